/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/models.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/nvml_abi.h"

#define MIB (UINT64_C(1) << 20)

enum far_end { FAR_NONE, FAR_SWITCH, FAR_PAIR };

struct model {
    const char *key, *name, *geometry, *driver, *part, *vbios;
    uint32_t usual, pci_id, subsystem, brand, arch, cc_major, cc_minor;
    uint32_t memory_mib, reserved_mib, bar1_mib, power_limit_w, multiprocessors, copy_engines;
    bool mig_cold, ecc, remap, fan, unified, fabric, c2c;
    uint32_t addressing, links, link_version, far_end, switches, pcie, sm_clock, memory_clock;
    int32_t cuda;
    uint8_t buses[8], modules[8]; /* in bus order; modules 0: the call is not supported */
};

#define DRIVER_580 .driver = "580.159.04", .cuda = 13000
static const struct model models[] = {
    { .key = "a100-40",
      .name = "NVIDIA A100-SXM4-40GB",
      .geometry = "A100-40",
      DRIVER_580,
      .part = "692-2G506-0200-003",
      .vbios = "92.00.45.00.03",
      .usual = 8,
      .pci_id = 0x20B010DE,
      .subsystem = 0x134F10DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_AMPERE,
      .cc_major = 8,
      .memory_mib = 40960,
      .reserved_mib = 518,
      .bar1_mib = 65536,
      .power_limit_w = 400,
      .multiprocessors = 108,
      .copy_engines = 7,
      .mig_cold = true,
      .ecc = true,
      .remap = true,
      .addressing = NV_ADDRESSING_HMM,
      .links = 12,
      .link_version = NV_LINK_3_0,
      .far_end = FAR_SWITCH,
      .switches = 6,
      .pcie = 4,
      .sm_clock = 1410,
      .memory_clock = 1215,
      .buses = { 0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd },
      .modules = { 7, 5, 6, 8, 1, 3, 4, 2 } },
    { .key = "a100-80",
      .name = "NVIDIA A100-SXM4-80GB",
      .geometry = "A100-80",
      DRIVER_580,
      .part = "692-2G506-0210-003",
      .vbios = "92.00.9E.00.01",
      .usual = 8,
      .pci_id = 0x20B210DE,
      .subsystem = 0x147F10DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_AMPERE,
      .cc_major = 8,
      .memory_mib = 81920,
      .reserved_mib = 662,
      .bar1_mib = 131072,
      .power_limit_w = 400,
      .multiprocessors = 108,
      .copy_engines = 7,
      .mig_cold = true,
      .ecc = true,
      .remap = true,
      .addressing = NV_ADDRESSING_HMM,
      .links = 12,
      .link_version = NV_LINK_3_0,
      .far_end = FAR_SWITCH,
      .switches = 6,
      .pcie = 4,
      .sm_clock = 1410,
      .memory_clock = 1593,
      .buses = { 0x07, 0x0a, 0x44, 0x4a, 0x84, 0x8a, 0xc0, 0xc3 },
      .modules = { 3, 1, 4, 2, 7, 5, 8, 6 } },
    { .key = "a30",
      .name = "NVIDIA A30",
      .geometry = "A30-24",
      DRIVER_580,
      .part = "900-21001-0040-000",
      .vbios = "92.00.66.00.04",
      .usual = 4,
      .pci_id = 0x20B710DE,
      .subsystem = 0x153210DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_AMPERE,
      .cc_major = 8,
      .memory_mib = 24576,
      .reserved_mib = 318,
      .bar1_mib = 32768,
      .power_limit_w = 165,
      .multiprocessors = 56,
      .copy_engines = 4,
      .mig_cold = true,
      .ecc = true,
      .remap = true,
      .addressing = NV_ADDRESSING_HMM,
      .pcie = 4,
      .sm_clock = 1440,
      .memory_clock = 1215,
      .buses = { 0x17, 0x31, 0x65, 0x98, 0xb1, 0xca, 0xe3, 0xf1 } },
    { .key = "h100-sxm",
      .name = "NVIDIA H100 80GB HBM3",
      .geometry = "H100-80",
      DRIVER_580,
      .part = "692-2G520-0200-000",
      .vbios = "96.00.74.00.1A",
      .usual = 8,
      .pci_id = 0x233010DE,
      .subsystem = 0x16C110DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_HOPPER,
      .cc_major = 9,
      .memory_mib = 81559,
      .reserved_mib = 480,
      .bar1_mib = 131072,
      .power_limit_w = 700,
      .multiprocessors = 132,
      .copy_engines = 8,
      .ecc = true,
      .remap = true,
      .fabric = true,
      .addressing = NV_ADDRESSING_HMM,
      .links = 18,
      .link_version = NV_LINK_4_0,
      .far_end = FAR_SWITCH,
      .switches = 4,
      .pcie = 5,
      .sm_clock = 1980,
      .memory_clock = 2619,
      .buses = { 0x53, 0x64, 0x75, 0x86, 0x97, 0xa8, 0xb9, 0xca },
      .modules = { 7, 5, 6, 8, 1, 3, 4, 2 } },
    { .key = "h100-pcie",
      .name = "NVIDIA H100 PCIe",
      .geometry = "H100-80",
      DRIVER_580,
      .part = "900-21010-0000-000",
      .vbios = "96.00.30.00.01",
      .usual = 4,
      .pci_id = 0x233110DE,
      .subsystem = 0x162610DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_HOPPER,
      .cc_major = 9,
      .memory_mib = 81559,
      .reserved_mib = 480,
      .bar1_mib = 131072,
      .power_limit_w = 350,
      .multiprocessors = 114,
      .copy_engines = 8,
      .ecc = true,
      .remap = true,
      .addressing = NV_ADDRESSING_HMM,
      .pcie = 5,
      .sm_clock = 1755,
      .memory_clock = 1593,
      .buses = { 0x17, 0x3d, 0x60, 0x70, 0x98, 0xb8, 0xd8, 0xe3 } },
    { .key = "h100-nvl",
      .name = "NVIDIA H100 NVL",
      .geometry = "H100-94",
      DRIVER_580,
      .part = "900-21010-0020-000",
      .vbios = "96.00.88.00.11",
      .usual = 4,
      .pci_id = 0x232110DE,
      .subsystem = 0x183910DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_HOPPER,
      .cc_major = 9,
      .memory_mib = 95830,
      .reserved_mib = 553,
      .bar1_mib = 131072,
      .power_limit_w = 400,
      .multiprocessors = 132,
      .copy_engines = 8,
      .ecc = true,
      .remap = true,
      .addressing = NV_ADDRESSING_HMM,
      .links = 18,
      .link_version = NV_LINK_4_0,
      .far_end = FAR_PAIR,
      .pcie = 5,
      .sm_clock = 1785,
      .memory_clock = 2619,
      .buses = { 0x17, 0x18, 0x65, 0x66, 0x98, 0x99, 0xe1, 0xe2 } },
    { .key = "h200",
      .name = "NVIDIA H200",
      .geometry = "H200-141",
      DRIVER_580,
      .part = "692-2G520-0282-000",
      .vbios = "96.00.A5.00.1A",
      .usual = 8,
      .pci_id = 0x233510DE,
      .subsystem = 0x18BF10DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_HOPPER,
      .cc_major = 9,
      .memory_mib = 143771,
      .reserved_mib = 616,
      .bar1_mib = 262144,
      .power_limit_w = 700,
      .multiprocessors = 132,
      .copy_engines = 8,
      .ecc = true,
      .remap = true,
      .fabric = true,
      .addressing = NV_ADDRESSING_NONE,
      .links = 18,
      .link_version = NV_LINK_4_0,
      .far_end = FAR_SWITCH,
      .switches = 4,
      .pcie = 5,
      .sm_clock = 1980,
      .memory_clock = 3201,
      .buses = { 0x19, 0x3b, 0x4c, 0x5d, 0x9b, 0xbb, 0xcb, 0xdb },
      .modules = { 7, 5, 6, 8, 1, 3, 4, 2 } },
    { .key = "b200",
      .name = "NVIDIA B200",
      .geometry = "B200-180",
      DRIVER_580,
      .part = "692-2G525-0220-002",
      .vbios = "97.00.B9.00.0E",
      .usual = 8,
      .pci_id = 0x290110DE,
      .subsystem = 0x199910DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_BLACKWELL,
      .cc_major = 10,
      .memory_mib = 183359,
      .reserved_mib = 728,
      .bar1_mib = 262144,
      .power_limit_w = 1000,
      .multiprocessors = 148,
      .copy_engines = 16,
      .ecc = true,
      .remap = true,
      .fabric = true,
      .addressing = NV_ADDRESSING_NONE,
      .links = 18,
      .link_version = NV_LINK_5_0,
      .far_end = FAR_SWITCH,
      .switches = 2,
      .pcie = 5,
      .sm_clock = 1965,
      .memory_clock = 3996,
      .buses = { 0x8f, 0x90, 0x96, 0x97, 0xc4, 0xc5, 0xcb, 0xcc },
      .modules = { 6, 8, 7, 5, 2, 4, 3, 1 } },
    { .key = "rtx-pro-6000",
      .name = "NVIDIA RTX PRO 6000 Blackwell Server Edition",
      .geometry = "RTX-PRO-6000-BW",
      DRIVER_580,
      .part = "900-2G153-0000-000",
      .vbios = "98.02.8D.00.02",
      .usual = 4,
      .pci_id = 0x2BB510DE,
      .subsystem = 0x204E10DE,
      .brand = NV_BRAND_NVIDIA_RTX,
      .arch = NV_ARCH_BLACKWELL,
      .cc_major = 12,
      .memory_mib = 97887,
      .reserved_mib = 637,
      .bar1_mib = 131072,
      .power_limit_w = 600,
      .multiprocessors = 188,
      .copy_engines = 8,
      .ecc = true,
      .remap = true,
      .addressing = NV_ADDRESSING_HMM,
      .pcie = 5,
      .sm_clock = 2430,
      .memory_clock = 12481,
      .buses = { 0x05, 0x16, 0x27, 0x38, 0x85, 0x96, 0xa7, 0xb8 } },
    { .key = "l40s",
      .name = "NVIDIA L40S",
      DRIVER_580,
      .part = "900-2G133-0080-000",
      .vbios = "95.02.66.00.02",
      .usual = 8,
      .pci_id = 0x26B910DE,
      .subsystem = 0x185110DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_ADA,
      .cc_major = 8,
      .cc_minor = 9,
      .memory_mib = 46068,
      .reserved_mib = 586,
      .bar1_mib = 65536,
      .power_limit_w = 350,
      .multiprocessors = 142,
      .copy_engines = 4,
      .ecc = true,
      .remap = true,
      .addressing = NV_ADDRESSING_HMM,
      .pcie = 4,
      .sm_clock = 2520,
      .memory_clock = 9001,
      .buses = { 0x17, 0x18, 0x31, 0x32, 0xb1, 0xb2, 0xca, 0xcb } },
    { .key = "t4",
      .name = "Tesla T4",
      DRIVER_580,
      .part = "900-2G183-0000-000",
      .vbios = "90.04.38.00.03",
      .usual = 4,
      .pci_id = 0x1EB810DE,
      .subsystem = 0x12A210DE,
      .brand = NV_BRAND_NVIDIA,
      .arch = NV_ARCH_TURING,
      .cc_major = 7,
      .cc_minor = 5,
      .memory_mib = 15360,
      .reserved_mib = 449,
      .bar1_mib = 256,
      .power_limit_w = 70,
      .multiprocessors = 40,
      .copy_engines = 3,
      .ecc = true,
      .addressing = NV_ADDRESSING_NONE,
      .pcie = 3,
      .sm_clock = 1590,
      .memory_clock = 5001,
      .buses = { 0x3b, 0x86, 0xaf, 0xd8, 0x1a, 0x1c, 0x1d, 0x1e } },
    { .key = "gb10",
      .name = "NVIDIA GB10",
      DRIVER_580,
      .part = "",
      .vbios = "9A.0B.12.00.00",
      .usual = 1,
      .pci_id = 0x2E1210DE,
      .subsystem = 0x1E1910DE,
      .brand = NV_BRAND_NVIDIA_RTX,
      .arch = NV_ARCH_BLACKWELL,
      .cc_major = 12,
      .cc_minor = 1,
      .multiprocessors = 48,
      .copy_engines = 2,
      .unified = true,
      .addressing = NV_ADDRESSING_ATS,
      .pcie = 1,
      .sm_clock = 3003,
      .memory_clock = 0,
      .buses = { 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08 } },
};

/* The hosts of the recordings (cases/README-recordings.md). What a field leaves 0 or NULL is the
 * model's. */
struct host_profile {
    const char *key, *model, *name, *driver, *uuid; /* uuid: all but the last digit, which counts */
    uint32_t gpus, memory_mib, major_uvm, major_caps, major_imex;
    int32_t cuda;
    uint8_t buses[8], roots[8];
    int8_t numa[8];
    bool mig_on, no_sysfs, real, clique;
    const char *driver_root, *lib_dir, *bin_dir, *gpu_name;
};

#define MOCK_550                                                                                   \
    .driver = "550.163.01", .cuda = 12040, .major_uvm = 510, .major_caps = 236, .major_imex = 235, \
    .driver_root = "/run/nvidia/driver", .lib_dir = "/usr/lib64", .bin_dir = "/usr/bin"
#define MOCK_LAYOUT                                                                                \
    .major_uvm = 510, .major_caps = 236, .major_imex = 235, .driver_root = "/run/nvidia/driver",   \
    .lib_dir = "/usr/lib64", .bin_dir = "/usr/bin", .no_sysfs = true
#define H100_MOCK                                                                                  \
    .model = "h100-sxm", .uuid = "GPU-01000100-0000-0000-0000-00000000000", .gpus = 8,             \
    .memory_mib = 81920, MOCK_550, .clique = true,                                                 \
    .buses = { 0x1a, 0x1b, 0x4a, 0x4b, 0x8a, 0x8b, 0xca, 0xcb },                                   \
    .roots = { 0x15, 0x15, 0x40, 0x40, 0x80, 0x80, 0xc0, 0xc0 },                                   \
    .numa = { 0, 0, 0, 0, 1, 1, 1, 1 }
#define BUSES_RECKONED                                                                             \
    .buses = { 0x0f, 0x1f, 0x2f, 0x3f, 0x8f, 0x9f, 0xaf, 0xbf }, .numa = { 0, 0, 0, 0, 1, 1, 1, 1 }

static const struct host_profile host_profiles[] = {
    { .key = "h100", H100_MOCK },
    { .key = "h100-mig", H100_MOCK, .mig_on = true },
    { .key = "a100",
      .model = "a100-40",
      .uuid = "GPU-12345678-1234-1234-1234-12345678000",
      .gpus = 8,
      MOCK_550,
      .buses = { 0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd },
      .roots = { 0x00, 0x00, 0x40, 0x40, 0x80, 0x80, 0xb0, 0xb0 },
      .numa = { 3, 3, 1, 1, 7, 7, 5, 5 } },
    { .key = "l40s",
      .model = "l40s",
      .uuid = "GPU-14050000-0000-0000-0000-00000000000",
      .gpus = 8,
      .memory_mib = 49152,
      MOCK_550,
      .buses = { 0x17, 0x31, 0xb1, 0xca, 0x18, 0x32, 0xb2, 0xcb },
      .numa = { 0, 0, 1, 1, 0, 0, 1, 1 } },
    { .key = "t4",
      .model = "t4",
      .name = "NVIDIA T4",
      .uuid = "GPU-00000074-0000-0000-0000-00000000000",
      .gpus = 4,
      .memory_mib = 16384,
      MOCK_550,
      .buses = { 0x3b, 0x86, 0xaf, 0xd8 },
      .numa = { 0, 1, 1, 1 } },
    { .key = "b200",
      .model = "b200",
      .uuid = "GPU-0b200000-0000-0000-0000-00000000000",
      .gpus = 8,
      .memory_mib = 196608,
      .driver = "560.35.03",
      .cuda = 12060,
      MOCK_LAYOUT,
      BUSES_RECKONED },
    { .key = "gb200",
      .model = "b200",
      .name = "NVIDIA GB200",
      .uuid = "GPU-0b200001-0000-0000-0000-00000000000",
      .gpus = 8,
      .memory_mib = 196608,
      .driver = "580.65.06",
      .cuda = 13000,
      MOCK_LAYOUT,
      .clique = true,
      BUSES_RECKONED },
    { .key = "gb300",
      .model = "b200",
      .name = "NVIDIA GB300 NVL",
      .uuid = "GPU-0b300001-0000-0000-0000-00000000000",
      .gpus = 8,
      .memory_mib = 294912,
      .driver = "570.124.06",
      .cuda = 12080,
      MOCK_LAYOUT,
      .clique = true,
      BUSES_RECKONED },
    { .key = "h200",
      .model = "h200",
      .uuid = "GPU-11111111-2222-3333-4444-55555555555",
      .gpus = 1,
      .real = true,
      .major_uvm = 238,
      .major_caps = 241,
      .driver_root = "/opt/driver",
      .lib_dir = "/lib64",
      .bin_dir = "/bin",
      .buses = { 0x00 },
      .numa = { -1 } },
};

uint64_t sim_hash(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void sim_uuid(uint64_t seed, uint64_t tag, char ret[37])
{
    uint64_t a = sim_hash(sim_hash(seed) ^ tag), b = sim_hash(a ^ UINT64_C(0x5eed));
    snprintf(ret, 37, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32),
             (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xfff,
             (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
             (unsigned long long)(b & UINT64_C(0xffffffffffff)));
}

const struct sim_geometry *sim_geometry_of(const struct sim_gpu *g)
{
    return g->geometry < 0 ? NULL : &sim_geometries[g->geometry];
}

static int32_t geometry_index(const char *key)
{
    for (size_t i = 0; key && i < n_sim_geometries; i++)
        if (strcmp(sim_geometries[i].key, key) == 0)
            return (int32_t)i;
    return -1;
}

/* A fixed disorder of 0..n-1, different for each seed and never the identity: so that nobody gets
 * away with taking index, minor, module or bus order for one another. */
static void disorder(uint32_t *p, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        p[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        seed = sim_hash(seed);
        uint32_t j = (uint32_t)(seed % i), x = p[i - 1];
        p[i - 1] = p[j];
        p[j] = x;
    }
    bool same = n > 1;
    for (uint32_t i = 0; i < n; i++)
        same = same && p[i] == i;
    if (same) {
        memmove(p, p + 1, (n - 1) * sizeof(*p));
        p[n - 1] = 0;
    }
}

static const struct model *find_model(const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(models); i++)
        if (strcmp(models[i].key, key) == 0)
            return &models[i];
    return NULL;
}

static int unknown(const char *what, const char *got, const char *const *known, size_t n,
                   struct error *err)
{
    char list[320] = "";
    for (size_t i = 0, at = 0; i < n && at < sizeof(list); i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "", known[i]);
    const char *near = str_nearest(str_of(got), known, n);
    if (near)
        return error_set(err, ERR_INVALID, 0,
                         "there is no %s \"%.40s\", did you mean \"%s\"? Known: %s", what, got,
                         near, list);
    return error_set(err, ERR_INVALID, 0, "there is no %s \"%.40s\"; known: %s", what, got, list);
}

static int choose(const struct sim_create *c, const struct model **ret_model,
                  const struct host_profile **ret_profile, struct error *err)
{
    const char *names[ARRAY_LEN(models) + ARRAY_LEN(host_profiles)];
    *ret_profile = NULL;
    for (size_t i = 0; c->profile && i < ARRAY_LEN(host_profiles); i++) {
        names[i] = host_profiles[i].key;
        if (strcmp(host_profiles[i].key, c->profile) == 0)
            *ret_profile = &host_profiles[i];
    }
    if (c->profile && !*ret_profile)
        return unknown("profile", c->profile, names, ARRAY_LEN(host_profiles), err);
    if (c->profile && c->model)
        return error_set(err, ERR_INVALID, 0,
                         "a profile has a model of its own (%s): give either a profile or a model",
                         (*ret_profile)->model);
    const char *key = *ret_profile ? (*ret_profile)->model : c->model ? c->model : "h100-sxm";
    *ret_model = find_model(key);
    for (size_t i = 0; i < ARRAY_LEN(models); i++)
        names[i] = models[i].key;
    return *ret_model ? 0 : unknown("model", key, names, ARRAY_LEN(models), err);
}

static void board(struct sim_gpu *g, const struct model *m)
{
    *g = (struct sim_gpu){
        .present = 1,
        .pci_id = m->pci_id,
        .subsystem = m->subsystem,
        .pci_class = 0x030200,
        .brand = m->brand,
        .arch = m->arch,
        .cc_major = m->cc_major,
        .cc_minor = m->cc_minor,
        .memory_total = m->memory_mib * MIB,
        .memory_reserved = m->reserved_mib * MIB,
        .bar1_total = m->bar1_mib * MIB,
        .has_ecc = m->ecc,
        .ecc_current = m->ecc,
        .ecc_pending = m->ecc,
        .has_remap = m->remap,
        .remap_banks = m->arch >= NV_ARCH_BLACKWELL ? 3840
                       : m->remap                   ? 2560
                                                    : 0,
        .geometry = geometry_index(m->geometry),
        .mig_capable = m->geometry != NULL,
        .mig_cold = m->mig_cold,
        .has_fabric = m->fabric,
        .has_addressing = 1,
        .addressing = m->addressing,
        .has_c2c = m->c2c,
        .unified = m->unified,
        .virtualization = NV_VIRTUAL_NONE,
        .persistence = 1,
        .power_mw = m->power_limit_w ? m->power_limit_w * 100 : 4500,
        .power_limit_mw = m->power_limit_w * 1000,
        .has_power_limit = m->power_limit_w != 0,
        .temperature = 33,
        .memory_temperature = 38,
        .has_fan = m->fan,
        .sm_clock = 345,
        .sm_clock_max = m->sm_clock,
        .memory_clock = m->memory_clock,
        .clock_reasons = NV_REASON_IDLE,
        .pcie_generation = m->pcie,
        .pcie_generation_max = m->pcie,
        .pcie_width = 16,
        .pcie_width_max = 16,
        .multiprocessors = m->multiprocessors,
        .copy_engines = m->copy_engines,
        .n_links = m->links,
        .link_version = m->link_version,
    };
    snprintf(g->name, sizeof(g->name), "%s", m->name);
    snprintf(g->part_number, sizeof(g->part_number), "%s", m->part);
    snprintf(g->vbios, sizeof(g->vbios), "%s", m->vbios);
    snprintf(g->inforom, sizeof(g->inforom), "%.4s.%.4s.02.02", m->part[0] ? m->part + 5 : "G000",
             m->part[0] ? m->part + 10 : "0000");
    if (m->unified)
        g->memory_mode = SIM_MEMORY_UNSUPPORTED;
    if (m->fabric) {
        g->fabric_state = NV_FABRIC_COMPLETED;
        g->fabric_health = m->arch >= NV_ARCH_BLACKWELL ? NV_FABRIC_HEALTH_GOOD : 0;
        g->fabric_summary = m->arch >= NV_ARCH_BLACKWELL ? NV_FABRIC_SUMMARY_HEALTHY : 0;
    }
    g->event_mask = NV_EVENT_XID | NV_EVENT_PSTATE | NV_EVENT_CLOCK;
    if (m->ecc)
        g->event_mask |= NV_EVENT_ECC_SINGLE | NV_EVENT_ECC_DOUBLE;
    if (m->geometry)
        g->event_mask |= NV_EVENT_MIG_CONFIG;
}

void sim_driver_features(struct sim_world *w)
{
    const uint32_t newer = NV_EVENT_UNAVAILABLE | NV_EVENT_RECOVERY;
    unsigned major = 0;
    sscanf(w->driver_version, "%4u", &major);
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        struct sim_gpu *g = &w->gpus[i];
        g->event_mask = major >= 570 ? g->event_mask | newer : g->event_mask & ~newer;
        g->has_addressing = major >= 560;
    }
}

/* The gpu on the other end of a bridge; SIM_GPUS_MAX: none (an odd one out). */
static uint32_t bridged_to(const struct sim_world *w, uint32_t i)
{
    for (uint32_t j = 0; j < w->n_gpus; j++)
        if (j != i && w->gpus[j].switch_group == w->gpus[i].switch_group)
            return j;
    return SIM_GPUS_MAX;
}

static void link_up(struct sim_world *w, const struct model *m)
{
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        struct sim_gpu *g = &w->gpus[i];
        uint32_t peer = m->far_end == FAR_PAIR ? bridged_to(w, i) : 0;
        for (uint32_t l = 0; l < g->n_links; l++) {
            struct sim_link *link = &g->links[l];
            if (m->far_end == FAR_SWITCH)
                *link = (struct sim_link){ 1, NV_REMOTE_SWITCH, (uint8_t)(l % m->switches), 0 };
            else if (peer < SIM_GPUS_MAX)
                *link = (struct sim_link){ 1, NV_REMOTE_GPU, (uint8_t)peer, 0 };
            else
                *link = (struct sim_link){ .remote_type = NV_REMOTE_UNKNOWN };
        }
    }
    w->n_switches = m->far_end == FAR_SWITCH ? m->switches : 0;
    for (uint32_t s = 0; s < w->n_switches; s++)
        w->switches[s].bus = 0x02 + s;
    /* One gpu alone in a virtual machine sees no links and no fabric. */
    if (w->n_gpus == 1 && m->far_end == FAR_SWITCH) {
        w->gpus[0].has_fabric = 0;
        w->gpus[0].n_links = 0;
        w->n_switches = 0;
    }
}

/* Where the gpu with bus rank `rank` of `n` sits. Past eight gpus a further PCI domain begins. */
static void place(struct sim_gpu *g, const struct model *m, uint32_t rank, uint32_t n)
{
    uint32_t at = rank % 8, per_domain = n < 8 ? n : 8;
    g->domain = m->unified ? 0xf + rank / 8 : rank / 8;
    g->bus = m->buses[at];
    g->switch_group = rank / 2;
    g->numa = m->unified ? -1 : at * 2 < per_domain ? 0 : 1;
    snprintf(g->pci_root, sizeof(g->pci_root), "pci%04x:%02x", g->domain,
             m->far_end == FAR_PAIR ? m->buses[at & ~1u] - 1 : m->buses[at] - 1);
}

static void serial_and_uuid(struct sim_gpu *g, const struct sim_create *c, const struct model *m,
                            uint32_t i)
{
    uint64_t tag = sim_hash((uint64_t)(m - models) << 32 | i);
    char uuid[37];
    sim_uuid(c->seed, tag, uuid);
    snprintf(g->uuid, sizeof(g->uuid), "GPU-%s", uuid);
    if (!m->unified)
        snprintf(g->serial, sizeof(g->serial), "165%010llu",
                 (unsigned long long)(sim_hash(tag ^ c->seed) % 10000000000u));
}

static void own_gpus(struct sim_world *w, const struct sim_create *c, const struct model *m)
{
    uint32_t n = w->n_gpus, bus[SIM_GPUS_MAX], minor[SIM_GPUS_MAX], module[SIM_GPUS_MAX];
    disorder(bus, n, c->seed ^ 0xb05);
    disorder(minor, n, c->seed ^ 0x111);
    disorder(module, n, c->seed ^ 0x70d);
    for (uint32_t i = 0; i < n; i++) {
        struct sim_gpu *g = &w->gpus[i];
        board(g, m);
        place(g, m, bus[i], n);
        g->minor = minor[i];
        g->module = m->modules[0] == 0 ? 0 : n <= 8 ? m->modules[bus[i]] : module[i] + 1;
        serial_and_uuid(g, c, m, i);
    }
}

static void recorded_gpus(struct sim_world *w, const struct sim_create *c, const struct model *m,
                          const struct host_profile *p)
{
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        struct sim_gpu *g = &w->gpus[i];
        board(g, m);
        serial_and_uuid(g, c, m, i);
        if (p->name)
            snprintf(g->name, sizeof(g->name), "%s", p->name);
        if (p->memory_mib)
            g->memory_total = p->memory_mib * MIB;
        snprintf(g->uuid, sizeof(g->uuid), "%s%x", p->uuid, (i + (p->real ? 5 : 0)) & 0xf);
        g->domain = i / 8;
        g->bus = p->buses[i % 8];
        g->device = p->real ? 6 : 0;
        g->numa = p->numa[i % 8];
        g->switch_group = i / 2;
        snprintf(g->pci_root, sizeof(g->pci_root), "pci%04x:%02x", g->domain,
                 p->real                      ? 0
                 : p->roots[0] || p->roots[2] ? p->roots[i % 8]
                                              : g->bus);
        g->minor = i;
        g->module = p->real ? 5 : i;
        if (!p->real) {
            g->pci_id = 0x233010DE;
            g->memory_reserved = 0;
            g->mig_capable = 1;
            g->has_fabric = p->clique;
            g->fabric_cluster[15] = p->clique;
            if (p->clique)
                g->fabric_state = NV_FABRIC_COMPLETED;
        } else {
            /* Memory as measured: not a whole number of MiB. */
            g->memory_total = UINT64_C(150754820096);
            g->memory_reserved = UINT64_C(644939776);
            g->virtualization = NV_VIRTUAL_PASSTHROUGH;
        }
        g->mig_current = g->mig_pending = p->mig_on;
    }
}

static int layout(struct sim_world *w, const struct sim_create *c, const struct model *m,
                  const struct host_profile *p, struct error *err)
{
    const char *root = c->driver_root ? c->driver_root : p && p->driver_root ? p->driver_root : "/";
    if (root[0] != '/' || strstr(root, "/../") || strlen(root) >= sizeof(w->driver_root))
        return error_set(
            err, ERR_INVALID, 0,
            "driver root \"%.60s\" must be an absolute path below the host directory, as "
            "\"/run/nvidia/driver\"",
            root);
    snprintf(w->driver_root, sizeof(w->driver_root), "%s", strcmp(root, "/") == 0 ? "" : root);
    size_t n = strlen(w->driver_root);
    while (n > 0 && w->driver_root[n - 1] == '/')
        w->driver_root[--n] = 0;
#if defined(__aarch64__)
    const char *lib = "/usr/lib/aarch64-linux-gnu";
#else
    const char *lib = "/usr/lib/x86_64-linux-gnu";
#endif
    /* A containerised driver keeps its libraries where the distribution of its image has them. */
    snprintf(w->lib_dir, sizeof(w->lib_dir), "%s", p ? p->lib_dir : n ? "/usr/lib64" : lib);
    snprintf(w->bin_dir, sizeof(w->bin_dir), "%s", p ? p->bin_dir : "/usr/bin");
    snprintf(w->model, sizeof(w->model), "%s", m->key);
    snprintf(w->profile, sizeof(w->profile), "%s", p ? p->key : "");
    snprintf(w->product, sizeof(w->product), "%s",
             p && !p->real ? "Test Machine 9000 (rev. B)"
             : m->unified  ? "NVIDIA DGX Spark"
                           : "Mete Lab Host");
    w->nodes = c->nodes;
    w->bare = p && !p->real;
    w->no_sysfs_gpus = p && p->no_sysfs;
    w->major_uvm = p ? p->major_uvm : 510;
    w->major_caps = p ? p->major_caps : 236;
    w->major_imex = p ? p->major_imex : 235;
    w->major_switch = 237;
    return 0;
}

static void driver(struct sim_world *w, const struct sim_create *c, const struct model *m,
                   const struct host_profile *p)
{
    snprintf(w->driver_version, sizeof(w->driver_version), "%s",
             c->driver_version ? c->driver_version
             : p && p->driver  ? p->driver
                               : m->driver);
    w->cuda_version = p && p->cuda ? p->cuda : m->cuda;
    snprintf(w->nvml_version, sizeof(w->nvml_version), "%d.%s", w->cuda_version / 1000,
             w->driver_version);
    w->driver = SIM_DRIVER_LOADED;
    w->driver_epoch = 1;
    w->loaded_ns = sim_now_ns();
}

static void numa_nodes(struct sim_world *w)
{
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        uint32_t node = w->gpus[i].numa < 0 ? 0 : (uint32_t)w->gpus[i].numa;
        uint32_t k = 0;
        while (k < w->n_numa && w->numa_nodes[k] != node)
            k++;
        if (k == w->n_numa && w->n_numa < ARRAY_LEN(w->numa_nodes))
            w->numa_nodes[w->n_numa++] = node;
    }
    /* The cores of node k are k * 16 .. k * 16 + 15. */
    w->n_cpus = 16;
    for (uint32_t k = 0; k < w->n_numa; k++)
        w->n_cpus = MAX(w->n_cpus, (w->numa_nodes[k] + 1) * 16);
}

int sim_world_init(struct sim_world *w, const struct sim_create *c, struct error *err)
{
    const struct model *m;
    const struct host_profile *p;
    int r = choose(c, &m, &p, err);
    if (r < 0)
        return r;
    memset(w, 0, sizeof(*w));
    w->n_gpus = c->gpus ? c->gpus : p ? p->gpus : m->usual;
    if (w->n_gpus > SIM_GPUS_MAX)
        return error_set(err, ERR_INVALID, 0, "%u gpus are too many for one host: at most %d",
                         w->n_gpus, SIM_GPUS_MAX);
    if (p && w->n_gpus > 16)
        return error_set(err, ERR_INVALID, 0, "profile %s has ids for at most 16 gpus", p->key);
    if ((r = layout(w, c, m, p, err)) < 0)
        return r;
    driver(w, c, m, p);
    if (p)
        recorded_gpus(w, c, m, p);
    else
        own_gpus(w, c, m);
    link_up(w, m);
    sim_driver_features(w);
    numa_nodes(w);
    w->next_serial = 1;
    w->system_memory = m->unified ? UINT64_C(127600000) * 1000 : UINT64_C(2048) << 30;
    sim_uuid(c->seed, 0xb007, w->boot_id);
    return 0;
}
