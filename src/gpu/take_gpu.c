/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of one gpu. What the driver does not offer leaves its validity bit clear. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/take.h"

void gpu_lost(struct gpu *g, int code, const char *what)
{
    if (g->lost)
        return;
    g->lost = code;
    snprintf(g->lost_text, sizeof g->lost_text, "%s: %s (NVML %d)", what, nvml_code_text(code),
             code);
}

bool gpu_got(struct gpu *g, nv_return r, const char *what)
{
    if (nvml_code_is_loss((int)r))
        gpu_lost(g, (int)r, what);
    return r == NV_OK;
}

/* ---- identity ---- */

static void take_pci(const struct host *h, struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    struct nv_pci_info pci = { 0 };
    if (!gpu_got(g, NVML_CALL(n, g->index, pci, f->device, &pci), "reading its PCI address"))
        return;
    pci_text(pci.domain, pci.bus, pci.device, g->pci);
    g->pci_device = pci.pci_device;
    g->valid |= GPU_HAS_PCI;

    int64_t v;
    if (sysfs_number(h, g->pci, "class", &v) && v >= 0) {
        g->pci_class = (uint32_t)v;
        g->valid |= GPU_HAS_PCI_CLASS;
    }
    if (sysfs_number(h, g->pci, "numa_node", &v) && v >= 0 && v <= INT32_MAX) {
        g->numa = (int32_t)v;
        g->valid |= GPU_HAS_NUMA;
    }
}

/* Calls that fill one number, with the bit that says that it is there. */
static void take_numbers(struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    const struct {
        nv_return (*call)(nv_device d, unsigned *v);
        const char *name;
        uint32_t *to, bit;
    } rows[] = {
        { n->minor, "minor", &g->minor, GPU_HAS_MINOR },
        { n->module, "module", &g->module, GPU_HAS_MODULE },
        { n->brand, "brand", &g->brand, GPU_HAS_BRAND },
        { n->arch, "arch", &g->arch, GPU_HAS_ARCH },
        { n->compute_mode, "compute_mode", &g->compute_mode, GPU_HAS_COMPUTE_MODE },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        unsigned v = 0;
        if (!rows[i].call)
            continue;
        nvml_enter(n, rows[i].name, g->index);
        nv_return r = nvml_leave(n, rows[i].call(f->device, &v));
        if (!gpu_got(g, r, "reading its numbers"))
            continue;
        *rows[i].to = v;
        g->valid |= rows[i].bit;
    }
}

static void take_identity(struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    char text[NV_NAME_V2_SIZE] = "";
    if (gpu_got(g, NVML_CALL(n, g->index, name, f->device, text, sizeof text), "reading its name"))
        copy_text(g->name, sizeof g->name, text);

    char serial[NV_SERIAL_SIZE] = "";
    if (gpu_got(g, NVML_CALL(n, g->index, serial, f->device, serial, sizeof serial),
                "reading its serial number") &&
        serial[0]) {
        copy_text(g->serial, sizeof g->serial, serial);
        g->valid |= GPU_HAS_SERIAL;
    }

    int major = 0, minor = 0;
    if (gpu_got(g, NVML_CALL(n, g->index, compute_capability, f->device, &major, &minor),
                "reading its compute capability") &&
        major > 0 && minor >= 0) {
        g->cc_major = (uint32_t)major;
        g->cc_minor = (uint32_t)minor;
        g->valid |= GPU_HAS_CC;
    }
}

/* ---- memory ---- */

static void set_memory(struct gpu *g, uint64_t bytes, const char *source)
{
    g->memory_bytes = bytes;
    snprintf(g->memory_source, sizeof g->memory_source, "%s", source);
    g->valid |= GPU_HAS_MEMORY;
}

/* A gpu without memory of its own answers "not supported", or success with nothing in it. A BAR1
 * window shows that there is memory which only could not be asked for. */
static void take_system_memory(const struct host *h, struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    struct nv_bar1_memory bar1 = { 0 };
    uint64_t total;
    if (NVML_CALL(n, g->index, bar1, f->device, &bar1) == NV_OK && bar1.total > 0)
        return;
    g->valid |= GPU_UNIFIED;
    if (meminfo_total(h, &total))
        set_memory(g, total, "meminfo");
}

static void take_memory(const struct host *h, struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    struct nv_memory_v2 v2 = { .version = NV_VERSION(struct nv_memory_v2, 2) };
    nv_return r = NVML_CALL(n, g->index, memory_v2, f->device, &v2);
    if (gpu_got(g, r, "reading its memory") && v2.total > 0) {
        set_memory(g, v2.total, "nvml-v2");
        return;
    }
    struct nv_memory v1 = { 0 };
    nv_return r1 = NVML_CALL(n, g->index, memory_v1, f->device, &v1);
    if (gpu_got(g, r1, "reading its memory") && v1.total > 0) {
        set_memory(g, v1.total, "nvml-v1");
        return;
    }
    bool none = (r == NV_OK || r == NV_E_NOT_SUPPORTED || r == NV_E_VERSION) &&
                (r1 == NV_OK || r1 == NV_E_NOT_SUPPORTED);
    if (none && !g->lost)
        take_system_memory(h, n, f);
}

/* ---- condition ---- */

static void take_fabric(struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    struct nv_fabric_info_v3 v3 = { .version = NV_VERSION(struct nv_fabric_info_v3, 3) };
    struct nv_fabric_info_v2 v2 = { .version = NV_VERSION(struct nv_fabric_info_v2, 2) };
    struct nv_fabric_info_v1 v1 = { 0 };
    nv_return r = NVML_CALL(n, g->index, fabric_v, f->device, &v3);
    if (r == NV_OK) { /* v2 is the beginning of v3 */
        memcpy((char *)&v2 + sizeof v2.version, (char *)&v3 + sizeof v3.version,
               sizeof v2 - sizeof v2.version);
    } else if (r == NV_E_VERSION || r == NV_E_ARGUMENT) {
        r = NVML_CALL(n, g->index, fabric_v, f->device, &v2);
    }
    if (r != NV_OK && !nvml_code_is_loss((int)r)) {
        r = NVML_CALL(n, g->index, fabric_v1, f->device, &v1);
        if (r == NV_OK) {
            memcpy(v2.cluster, v1.cluster, sizeof v2.cluster);
            v2.status = v1.status;
            v2.clique = v1.clique;
            v2.state = v1.state;
        }
    }
    if (!gpu_got(g, r, "reading its fabric state") || v2.state == NV_FABRIC_NOT_SUPPORTED)
        return;
    memcpy(g->fabric_cluster, v2.cluster, sizeof g->fabric_cluster);
    g->fabric_status = v2.status;
    g->fabric_clique = v2.clique;
    g->fabric_state = v2.state;
    g->fabric_health = v2.health;
    g->valid |= GPU_HAS_FABRIC;
}

static void take_errors(struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (gpu_got(g,
                NVML_CALL(n, g->index, remapped, f->device, &corrected, &uncorrected, &pending,
                          &failed),
                "reading its remapped rows")) {
        g->remap_corrected = corrected;
        g->remap_uncorrected = uncorrected;
        g->remap_pending = pending;
        g->remap_failed = failed;
        g->valid |= GPU_HAS_REMAP;
    }
    unsigned long long count = 0;
    if (gpu_got(g,
                NVML_CALL(n, g->index, ecc_errors, f->device, NV_ECC_UNCORRECTED, NV_ECC_VOLATILE,
                          &count),
                "reading its ECC counters")) {
        g->ecc_uncorrected = count;
        g->valid |= GPU_HAS_ECC;
    }
    if (gpu_got(g, NVML_CALL(n, g->index, energy, f->device, &count),
                "reading its energy counter")) {
        g->energy_mj = count;
        g->valid |= GPU_HAS_ENERGY;
    }
    struct nv_field_value recovery = { .field = NV_FIELD_RECOVERY_ACTION };
    if (gpu_got(g, NVML_CALL(n, g->index, fields, f->device, 1, &recovery),
                "reading its recovery action") &&
        recovery.ret == NV_OK) {
        g->recovery_action = recovery.value.u32;
        g->valid |= GPU_HAS_RECOVERY;
    }
}

static void take_modes(struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    struct nv_addressing_mode mode = { .version = NV_VERSION(struct nv_addressing_mode, 1) };
    if (gpu_got(g, NVML_CALL(n, g->index, addressing, f->device, &mode),
                "reading its addressing mode")) {
        g->addressing = mode.value;
        g->valid |= GPU_HAS_ADDRESSING;
    }
    unsigned current = 0, pending = 0;
    if (gpu_got(g, NVML_CALL(n, g->index, mig_mode, f->device, &current, &pending),
                "reading its MIG mode")) {
        g->mig_current = current;
        g->mig_pending = pending;
        g->valid |= GPU_HAS_MIG;
    }
    unsigned long long events = 0;
    if (gpu_got(g, NVML_CALL(n, g->index, events_supported, f->device, &events),
                "reading which events it has") &&
        events & NV_EVENT_XID && n->events_create && n->events_register &&
        (n->events_wait_v2 || n->events_wait_v1))
        g->valid |= GPU_HAS_EVENTS;
}

void take_gpu(const struct host *h, struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    nv_return r = NVML_CALL(n, g->index, by_index, g->index, &f->device);
    if (r != NV_OK) {
        f->device = NULL;
        gpu_lost(g, (int)r, "taking its handle");
        return;
    }
    char uuid[NV_UUID_SIZE] = "";
    r = NVML_CALL(n, g->index, uuid, f->device, uuid, sizeof uuid);
    if (r != NV_OK || !uuid[0]) {
        gpu_lost(g, r == NV_OK ? NV_E_UNKNOWN : (int)r, "reading its UUID");
        return;
    }
    copy_word(g->uuid, sizeof g->uuid, uuid);
    take_pci(h, n, f);
    take_numbers(n, f);
    take_identity(n, f);
    take_memory(h, n, f);
    take_modes(n, f);
    take_fabric(n, f);
    take_errors(n, f);
}
