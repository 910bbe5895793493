/* SPDX-License-Identifier: Apache-2.0 */
/* The XID catalogue for Ampere and newer (spec/nvml-and-cuda.md 5.2), in our own words. A fault of
 * class A or I is over when it stays quiet; where hardware, firmware or the driver is at fault, a
 * reset (or the driver's own word) has to prove it. */
#include <stdlib.h>

#include "base/mem.h"
#include "node/health.h"

#define APP(n, what)                                                                               \
    {                                                                                              \
        n, what, "restart-app", 'A', false, false                                                  \
    }
#define APP_IGNORED(n, what)                                                                       \
    {                                                                                              \
        n, what, "restart-app", 'A', true, false                                                   \
    }
#define INFO(n, what)                                                                              \
    {                                                                                              \
        n, what, "ignore", 'I', false, false                                                       \
    }
#define SUPPORT(n, what)                                                                           \
    {                                                                                              \
        n, what, "contact-support", 'D', false, true                                               \
    }
#define RESET(n, what)                                                                             \
    {                                                                                              \
        n, what, "reset-gpu", 'H', false, true                                                     \
    }
#define INSPECT(n, what)                                                                           \
    {                                                                                              \
        n, what, "inspect", 'H', false, true                                                       \
    }
#define ENGINE(n)  APP(n, "exception in a copy, decode, JPEG or optical-flow engine")
#define NVLINK5(n) INSPECT(n, "NVLink 5 error; its sub-code says what to do")

static const struct xid_info table[] = {
    APP(8, "a channel made no progress in time"),
    APP(11, "damaged command buffer"),
    APP_IGNORED(13, "graphics or compute engine exception"),
    INFO(14, "follow-up message"),
    APP(25, "illegal content in a command buffer"),
    APP_IGNORED(31, "access to memory that is not mapped"),
    APP(32, "host interface could not read a command buffer"),
    INFO(37, "follow-up message"),
    { 38, "driver firmware error", "ignore", 'D', false, false },
    APP(39, "copy engine exception"),
    APP(40, "copy engine exception"),
    APP(41, "copy engine exception"),
    APP_IGNORED(43, "channel reset because of the application"),
    INFO(44, "follow-up message"),
    { 45, "clean-up of channels after another error", "follow-other-xid", 'I', true, false },
    RESET(46, "the GPU stopped processing"),
    RESET(48, "double-bit memory error"),
    INSPECT(54, "auxiliary power is not connected"),
    SUPPORT(56, "display engine error"),
    SUPPORT(57, "video memory interface error"),
    SUPPORT(58, "unstable video memory interface"),
    APP(60, "video engine exception"),
    SUPPORT(61, "internal microcontroller breakpoint"),
    RESET(62, "internal microcontroller stopped"),
    { 63, "memory row remap recorded", "reset-when-convenient", 'H', false, false },
    RESET(64, "memory row remap failed"),
    SUPPORT(65, "video encoder exception"),
    INFO(66, "follow-up message"),
    INFO(67, "follow-up message"),
    APP_IGNORED(68, "video decoder exception"),
    APP(69, "graphics engine class error"),
    ENGINE(70),
    ENGINE(71),
    ENGINE(72),
    SUPPORT(73, "second video encoder or NVLink flow error"),
    INSPECT(74, "NVLink error"),
    ENGINE(75),
    ENGINE(76),
    ENGINE(77),
    { 78, "vGPU could not start", "update-software", 'D', false, false },
    { 79, "the GPU fell off the bus", "reboot-node", 'H', false, true },
    APP(80, "corrupted data sent to the GPU"),
    SUPPORT(81, "VGA subsystem error"),
    ENGINE(82),
    ENGINE(83),
    ENGINE(84),
    ENGINE(85),
    ENGINE(86),
    ENGINE(88),
    ENGINE(89),
    { 92, "high rate of single-bit memory errors", "ignore", 'H', false, false },
    INFO(93, "the board's information storage wears out"),
    APP(94, "memory error contained to one application"),
    RESET(95, "memory error not contained"),
    ENGINE(96),
    ENGINE(97),
    ENGINE(98),
    ENGINE(99),
    ENGINE(100),
    ENGINE(101),
    ENGINE(102),
    ENGINE(103),
    ENGINE(104),
    ENGINE(105),
    INFO(106, "informational"),
    INFO(107, "informational"),
    INFO(108, "informational"),
    { 109, "context switch took too long", "reset-gpu", 'H', true, true },
    RESET(110, "security fault"),
    RESET(119, "the GPU system processor did not answer"),
    RESET(120, "the GPU system processor reported an error"),
    INFO(121, "corrected error on the chip-to-chip link"),
    ENGINE(126),
    ENGINE(127),
    ENGINE(128),
    ENGINE(129),
    ENGINE(130),
    ENGINE(131),
    ENGINE(132),
    ENGINE(133),
    ENGINE(134),
    ENGINE(135),
    RESET(136, "link training failed"),
    APP(137, "access over NVLink to memory that is not mapped"),
    ENGINE(139),
    RESET(140, "memory error not recovered"),
    INFO(141, "informational"),
    RESET(143, "GPU initialisation failed"),
    NVLINK5(144),
    NVLINK5(145),
    NVLINK5(146),
    NVLINK5(147),
    NVLINK5(148),
    NVLINK5(149),
    NVLINK5(150),
    { 151, "key rotation failed (confidential computing)", "restart-vm", 'D', false, true },
    INFO(152, "informational"),
    INFO(153, "informational"),
    { 154, "the driver changed its recovery action", "read-recovery-action", 'I', false, false },
    RESET(155, "NVLink software error"),
    RESET(156, "resource retired"),
    INFO(157, "informational"),
    RESET(158, "fatal timeout"),
    INSPECT(159, "coherent interface error"),
    INFO(160, "informational"),
    INFO(161, "informational"),
    INFO(162, "power smoothing state"),
    INFO(163, "power smoothing state"),
    INFO(164, "power smoothing state"),
    INFO(165, "power smoothing state"),
    INSPECT(166, "NVLink traffic before encryption"),
    INSPECT(167, "fatal timeout on PCIe"),
    INSPECT(168, "memory is reduced"),
    INSPECT(169, "security processor stopped"),
    INSPECT(170, "interrupt in confidential mode"),
    RESET(171, "double-bit memory error in DRAM (detail of XID 48)"),
    RESET(172, "double-bit memory error in SRAM (detail of XID 48)"),
};

static int by_number(const void *key, const void *row)
{
    uint64_t a = *(const uint64_t *)key, b = ((const struct xid_info *)row)->xid;
    return a < b ? -1 : a > b;
}

const struct xid_info *xid_lookup(uint64_t xid)
{
    return bsearch(&xid, table, ARRAY_LEN(table), sizeof table[0], by_number);
}
