/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/tree.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sim/models.h"

enum { GPU_MAJOR = 195, CTL_MINOR = 255, MODESET_MINOR = 254, CAP_CONFIG = 1, CAP_MONITOR = 2 };
/* The static map of capability minors has room for so many gpus. */
enum { CAP_GPUS = 32 };

void sim_bdf(const struct sim_gpu *g, char ret[20])
{
    snprintf(ret, 20, "%04x:%02x:%02x.0", g->domain & 0xffffff, g->bus & 0xff, g->device & 0x1f);
}

uint32_t sim_cap_minor(uint32_t gpu_minor, uint32_t gi, int ci)
{
    return 3 + 135 * gpu_minor + 9 * gi + (ci < 0 ? 0 : 1 + (uint32_t)ci);
}

static bool has_mig(const struct sim_world *w)
{
    for (uint32_t i = 0; i < w->n_gpus; i++)
        if (w->gpus[i].mig_capable && w->gpus[i].geometry >= 0)
            return true;
    return false;
}

static bool has_switch_devices(const struct sim_world *w)
{
    /* Blackwell's switches are not seen as PCI devices of the host. */
    return w->n_switches > 0 && strcmp(w->model, "b200") != 0;
}

/* ---- proc ---- */

static void cap_file(struct tree *t, uint32_t minor, unsigned mode, const char *path)
{
    tree_text(t, path, "DeviceFileMinor: %u\nDeviceFileMode: %u\nDeviceFileModify: 1\n", minor,
              mode);
}

static void put_capabilities(struct tree *t, const struct sim_world *w)
{
    cap_file(t, CAP_CONFIG, 0400, "proc/driver/nvidia/capabilities/mig/config");
    cap_file(t, CAP_MONITOR, 0444, "proc/driver/nvidia/capabilities/mig/monitor");
    cap_file(t, sim_cap_minor(CAP_GPUS, 0, -1), 0400,
             "proc/driver/nvidia/capabilities/fabric-imex-mgmt");
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        uint32_t minor = w->gpus[i].minor;
        for (int g = 0; g < SIM_GI_MAX; g++) {
            const struct sim_gi *gi = &w->mig[i].gi[g];
            char path[160];
            if (!gi->used)
                continue;
            snprintf(path, sizeof(path), "proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/access",
                     minor, gi->id);
            cap_file(t, sim_cap_minor(minor, gi->id, -1), 0444, path);
            for (int c = 0; c < SIM_CI_MAX; c++) {
                if (!gi->ci[c].used)
                    continue;
                snprintf(path, sizeof(path),
                         "proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/ci%d/access", minor,
                         gi->id, c);
                cap_file(t, sim_cap_minor(minor, gi->id, c), 0444, path);
            }
        }
    }
}

static void put_mig_minors(struct tree *t)
{
    auto_buf text;
    buf_init(&text, 1 << 20);
    buf_z(&text, "config 1\nmonitor 2\n");
    for (uint32_t g = 0; g < CAP_GPUS; g++)
        for (uint32_t i = 0; i < SIM_GI_MAX; i++) {
            buf_fmt(&text, "gpu%u/gi%u/access %u\n", g, i, sim_cap_minor(g, i, -1));
            for (int c = 0; c < SIM_CI_MAX; c++)
                buf_fmt(&text, "gpu%u/gi%u/ci%d/access %u\n", g, i, c, sim_cap_minor(g, i, c));
        }
    tree_put(t, buf_view(&text), 0444, "proc/driver/nvidia-caps/mig-minors");
    tree_text(t, "proc/driver/nvidia-caps/sys-minors", "fabric-imex-mgmt %u\n",
              sim_cap_minor(CAP_GPUS, 0, -1));
}

static void put_gpu_information(struct tree *t, const struct sim_world *w, uint32_t i)
{
    const struct sim_gpu *g = &w->gpus[i];
    char bdf[20], path[80];
    sim_bdf(g, bdf);
    snprintf(path, sizeof(path), "proc/driver/nvidia/gpus/%s/information", bdf);
    tree_text(
        t, path,
        "Model: \t\t %s\nIRQ:   \t\t %u\nGPU UUID: \t %s\nVideo BIOS: \t %s\nBus Type: \t PCIe\n"
        "DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\n"
        "Device Minor: \t %u\nGPU Firmware: \t %s\nGPU Excluded:\t No\n",
        g->name, 100 + i, g->uuid, g->vbios, bdf, g->minor, w->driver_version);
}

static const char params_text[] =
    "ResmanDebugLevel: 4294967295\nRmLogonRC: 1\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n"
    "DeviceFileGID: 0\nDeviceFileMode: 438\nInitializeSystemMemoryAllocations: 1\n"
    "UsePageAttributeTable: 4294967295\nEnableMSI: 1\nEnablePCIeGen3: 0\nMemoryPoolSize: 0\n"
    "KMallocHeapMaxSize: 0\nVMallocHeapMaxSize: 0\nIgnoreMMIOCheck: 0\nEnableStreamMemOPs: 0\n"
    "EnableUserNUMAManagement: 1\nNvLinkDisable: 0\nRmProfilingAdminOnly: 1\n"
    "PreserveVideoMemoryAllocations: 0\nEnableS0ixPowerManagement: 0\n"
    "S0ixPowerManagementVideoMemoryThreshold: 256\nDynamicPowerManagement: 3\n"
    "DynamicPowerManagementVideoMemoryThreshold: 200\nRegisterPCIDriver: 1\n"
    "EnablePCIERelaxedOrderingMode: 0\nEnableResizableBar: 0\nEnableGpuFirmware: 18\n"
    "EnableGpuFirmwareLogs: 2\nRmNvlinkBandwidthLinkCount: 0\nEnableDbgBreakpoint: 0\n"
    "OpenRmEnableUnsupportedGpus: 1\nDmaRemapPeerMmio: 1\nImexChannelCount: 2048\n"
    "CreateImexChannel0: 0\nGrdmaPciTopoCheckOverride: 0\nCoherentGPUMemoryMode: \"\"\n"
    "RegistryDwords: \"\"\nRegistryDwordsPerDevice: \"\"\nRmMsg: \"\"\nGpuBlacklist: \"\"\n";

static const char *machine(const struct sim_world *w)
{
    return strcmp(w->model, "gb10") == 0 ? "aarch64" : "x86_64";
}

static void put_driver_proc(struct tree *t, const struct sim_world *w)
{
    tree_text(
        t, "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for %s  %s  Release Build  (lab@mete)  \n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
        machine(w), w->driver_version);
    tree_put(t, STR(params_text), 0444, "proc/driver/nvidia/params");
    for (uint32_t i = 0; i < w->n_gpus; i++)
        if (w->gpus[i].present)
            put_gpu_information(t, w, i);
    put_capabilities(t, w);
    if (has_mig(w))
        put_mig_minors(t);
    if (has_switch_devices(w))
        cap_file(t, sim_cap_minor(CAP_GPUS, 0, -1) - 1, 0400,
                 "proc/driver/nvidia-nvlink/capabilities/fabric-mgmt");
}

/* The driver's name for its major number changed with 550.40. */
static const char *frontend(const struct sim_world *w)
{
    unsigned major = 0, minor = 0;
    sscanf(w->driver_version, "%4u.%4u", &major, &minor);
    return major > 550 || (major == 550 && minor >= 40) ? "nvidia" : "nvidia-frontend";
}

static void put_proc(struct tree *t, const struct sim_world *w)
{
    bool loaded = w->driver != SIM_DRIVER_UNLOADED;
    char numbers[256] = "";
    if (loaded)
        snprintf(numbers, sizeof(numbers),
                 "%3d %s\n%3d nvidia-modeset\n%3d nvidiactl\n%3u nvidia-caps-imex-channels\n%3u "
                 "nvidia-caps\n"
                 "%3u nvidia-nvswitch\n%3u nvidia-uvm\n",
                 GPU_MAJOR, frontend(w), GPU_MAJOR, GPU_MAJOR, w->major_imex, w->major_caps,
                 w->major_switch, w->major_uvm);
    tree_text(t, "proc/devices",
              "Character devices:\n  1 mem\n  4 tty\n  5 /dev/tty\n  5 /dev/console\n 10 misc\n136 "
              "pts\n%s\n"
              "Block devices:\n  7 loop\n259 blkext\n",
              numbers);
    tree_text(t, "proc/modules", "%sext4 1048576 2 - Live 0x0000000000000000\n",
              loaded ? "nvidia_uvm 2076672 0 - Live 0x0000000000000000 (OE)\n"
                       "nvidia_modeset 1744896 0 - Live 0x0000000000000000 (OE)\n"
                       "nvidia 14385152 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)\n"
                     : "");
    uint64_t kb = w->system_memory / 1024;
    tree_text(t, "proc/meminfo",
              "MemTotal:       %8llu kB\nMemFree:        %8llu kB\nMemAvailable:   %8llu kB\n"
              "SwapTotal:             0 kB\nSwapFree:              0 kB\n",
              (unsigned long long)kb, (unsigned long long)(kb / 10 * 8),
              (unsigned long long)(kb / 10 * 9));
    tree_text(t, "proc/sys/kernel/random/boot_id", "%s\n", w->boot_id);
    if (loaded)
        put_driver_proc(t, w);
}

/* ---- sys ---- */

static void put_config(struct tree *t, const char *dir, uint32_t id, uint32_t subsystem,
                       uint32_t class, bool gone)
{
    unsigned char c[256];
    memset(c, gone ? 0xff : 0, sizeof(c));
    if (!gone) {
        memcpy(c, &(uint16_t){ (uint16_t)id }, 2);
        memcpy(c + 2, &(uint16_t){ (uint16_t)(id >> 16) }, 2);
        memcpy(c + 4, &(uint32_t){ 0x00100406 }, 4);
        memcpy(c + 8, &(uint32_t){ class << 8 | 0xa1 }, 4);
        memcpy(c + 0x2c, &subsystem, 4);
    }
    tree_put(t, (struct str){ (const char *)c, sizeof(c) }, 0644, "%s/config", dir);
}

struct pci_facts {
    uint32_t id, subsystem, class, generation, generation_max, width, width_max, irq;
    int32_t numa;
    bool gone;
};

static void put_pci_device(struct tree *t, const struct sim_world *w, const char *dir,
                           const struct pci_facts *f)
{
    static const char *const speeds[] = { "2.5", "2.5", "5.0", "8.0", "16.0", "32.0", "64.0" };
    char path[200];
#define ATTRIBUTE(name, ...)                                                                       \
    (snprintf(path, sizeof(path), "%s/" name, dir), tree_text(t, path, __VA_ARGS__))
    ATTRIBUTE("vendor", "0x%04x\n", f->id & 0xffff);
    ATTRIBUTE("device", "0x%04x\n", f->id >> 16);
    ATTRIBUTE("subsystem_vendor", "0x%04x\n", f->subsystem & 0xffff);
    ATTRIBUTE("subsystem_device", "0x%04x\n", f->subsystem >> 16);
    ATTRIBUTE("class", "0x%06x\n", f->class);
    ATTRIBUTE("revision", "0xa1\n");
    ATTRIBUTE("numa_node", "%d\n", f->numa);
    if (f->numa < 0)
        ATTRIBUTE("local_cpulist", "0-%u\n", w->n_cpus - 1);
    else
        ATTRIBUTE("local_cpulist", "%d-%d\n", f->numa * 16, f->numa * 16 + 15);
    ATTRIBUTE("irq", "%u\n", f->irq);
    ATTRIBUTE("enable", "1\n");
    ATTRIBUTE("current_link_speed", "%s GT/s PCIe\n",
              f->gone ? "Unknown" : speeds[f->generation % 7]);
    ATTRIBUTE("max_link_speed", "%s GT/s PCIe\n", speeds[f->generation_max % 7]);
    ATTRIBUTE("current_link_width", "%u\n", f->gone ? 63 : f->width);
    ATTRIBUTE("max_link_width", "%u\n", f->width_max);
    ATTRIBUTE("sriov_totalvfs", "0\n");
    ATTRIBUTE("sriov_numvfs", "0\n");
    ATTRIBUTE("reset", "%s", "");
#undef ATTRIBUTE
    put_config(t, dir, f->id, f->subsystem, f->class, f->gone);
}

static void put_gpu_sys(struct tree *t, const struct sim_world *w, uint32_t i)
{
    const struct sim_gpu *g = &w->gpus[i];
    char bdf[20], dir[120], target[140];
    sim_bdf(g, bdf);
    /* "pci0000:15" → its root port 0000:15:01.0 */
    snprintf(dir, sizeof(dir), "sys/devices/%s/%s:01.0/%s", g->pci_root, g->pci_root + 3, bdf);
    struct pci_facts f = { .id = g->pci_id,
                           .subsystem = g->subsystem,
                           .class = g->pci_class,
                           .generation = g->pcie_generation,
                           .generation_max = g->pcie_generation_max,
                           .width = g->pcie_width,
                           .width_max = g->pcie_width_max,
                           .irq = 100 + i,
                           .numa = g->numa,
                           .gone = g->lost };
    put_pci_device(t, w, dir, &f);
    snprintf(target, sizeof(target), "../../../%s", dir + 4);
    tree_link(t, target, "sys/bus/pci/devices/%s", bdf);
    if (w->driver == SIM_DRIVER_UNLOADED)
        return;
    tree_link(t, "../../../../bus/pci/drivers/nvidia", "%s/driver", dir);
    snprintf(target, sizeof(target), "../../../../%s", dir + 4);
    tree_link(t, target, "sys/bus/pci/drivers/nvidia/%s", bdf);
}

static void put_switches(struct tree *t, const struct sim_world *w)
{
    for (uint32_t s = 0; has_switch_devices(w) && s < w->n_switches; s++) {
        char bdf[20], dir[120], target[140];
        snprintf(bdf, sizeof(bdf), "0000:%02x:00.0", w->switches[s].bus & 0xff);
        snprintf(dir, sizeof(dir), "sys/devices/pci0000:01/0000:01:01.0/%s", bdf);
        struct pci_facts f = { .id = 0x22A310DE,
                               .subsystem = 0x1796 << 16 | 0x10DE,
                               .class = 0x068000,
                               .generation = 4,
                               .generation_max = 4,
                               .width = 2,
                               .width_max = 2,
                               .irq = 200 + s };
        put_pci_device(t, w, dir, &f);
        snprintf(target, sizeof(target), "../../../%s", dir + 4);
        tree_link(t, target, "sys/bus/pci/devices/%s", bdf);
        if (w->driver != SIM_DRIVER_UNLOADED)
            tree_link(t, "../../../../bus/pci/drivers/nvidia-nvswitch", "%s/driver", dir);
    }
}

static void put_module(struct tree *t, const struct sim_world *w, const char *name, unsigned users)
{
    char path[120];
    snprintf(path, sizeof(path), "sys/module/%s/version", name);
    tree_text(t, path, "%s\n", w->driver_version);
    snprintf(path, sizeof(path), "sys/module/%s/refcnt", name);
    tree_text(t, path, "%u\n", users);
    snprintf(path, sizeof(path), "sys/module/%s/initstate", name);
    tree_text(t, path, "live\n");
}

static void put_sys(struct tree *t, const struct sim_world *w)
{
    for (uint32_t i = 0; i < w->n_gpus; i++)
        if (w->gpus[i].present && !w->no_sysfs_gpus)
            put_gpu_sys(t, w, i);
    put_switches(t, w);
    for (uint32_t k = 0; k < w->n_numa; k++) {
        char path[80];
        uint32_t node = w->numa_nodes[k];
        snprintf(path, sizeof(path), "sys/devices/system/node/node%u/cpulist", node);
        tree_text(t, path, "%u-%u\n", node * 16, node * 16 + 15);
    }
    tree_text(t, "sys/devices/system/cpu/online", "0-%u\n", w->n_cpus - 1);
    tree_text(t, "sys/class/dmi/id/product_name", "%s\n", w->product);
    tree_text(t, "sys/class/dmi/id/sys_vendor", "Mete\n");
    if (w->driver == SIM_DRIVER_UNLOADED)
        return;
    put_module(t, w, "nvidia", 2);
    put_module(t, w, "nvidia_uvm", 0);
    put_module(t, w, "nvidia_modeset", 0);
}

/* ---- dev ---- */

static void put_caps(struct tree *t, const struct sim_world *w, const char *dev)
{
    tree_node(t, w->nodes, w->major_caps, CAP_CONFIG, 0400, "%s/nvidia-caps/nvidia-cap1", dev);
    tree_node(t, w->nodes, w->major_caps, CAP_MONITOR, 0444, "%s/nvidia-caps/nvidia-cap2", dev);
    for (uint32_t i = 0; i < w->n_gpus; i++)
        for (int g = 0; g < SIM_GI_MAX; g++)
            for (int c = -1; c < SIM_CI_MAX && w->mig[i].gi[g].used; c++) {
                if (c >= 0 && !w->mig[i].gi[g].ci[c].used)
                    continue;
                uint32_t minor = sim_cap_minor(w->gpus[i].minor, (uint32_t)g, c);
                tree_node(t, w->nodes, w->major_caps, minor, 0444, "%s/nvidia-caps/nvidia-cap%u",
                          dev, minor);
            }
}

static void put_dev(struct tree *t, const struct sim_world *w, const char *dev)
{
    tree_node(t, w->nodes, GPU_MAJOR, CTL_MINOR, 0666, "%s/nvidiactl", dev);
    tree_node(t, w->nodes, GPU_MAJOR, MODESET_MINOR, 0666, "%s/nvidia-modeset", dev);
    tree_node(t, w->nodes, w->major_uvm, 0, 0666, "%s/nvidia-uvm", dev);
    tree_node(t, w->nodes, w->major_uvm, 1, 0666, "%s/nvidia-uvm-tools", dev);
    for (uint32_t i = 0; i < w->n_gpus; i++)
        tree_node(t, w->nodes, GPU_MAJOR, w->gpus[i].minor, 0666, "%s/nvidia%u", dev,
                  w->gpus[i].minor);
    if (has_mig(w))
        put_caps(t, w, dev);
    for (uint32_t c = 0; c < w->imex_channels; c++)
        tree_node(t, w->nodes, w->major_imex, c, 0666, "%s/nvidia-caps-imex-channels/channel%u",
                  dev, c);
    for (uint32_t s = 0; has_switch_devices(w) && s < w->n_switches; s++)
        tree_node(t, w->nodes, w->major_switch, s, 0666, "%s/nvidia-nvswitch%u", dev, s);
    if (has_switch_devices(w))
        tree_node(t, w->nodes, w->major_switch, 255, 0666, "%s/nvidia-nvswitchctl", dev);
    tree_prune(t, dev, "nvidia");
}

int sim_tree_sync(const char *root, const struct sim_world *w, struct error *err)
{
    struct tree t;
    int r = tree_open(&t, root, err);
    if (r < 0)
        return r;
    put_proc(&t, w);
    put_sys(&t, w);
    tree_prune(&t, "proc/driver", "");
    tree_prune(&t, "sys/bus/pci", "");
    tree_prune(&t, "sys/devices", "pci");
    tree_prune(&t, "sys/module", "nvidia");
    put_dev(&t, w, "dev");
    if (w->driver_root[0]) {
        char dev[160];
        snprintf(dev, sizeof(dev), "%s/dev", w->driver_root + 1);
        put_dev(&t, w, dev);
    }
    return tree_close(&t);
}
