/* SPDX-License-Identifier: Apache-2.0 */
/* How gpus lie to one another: PCIe, NUMA, NVLink, fabric. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sim/lib.h"

static unsigned common_ancestor(const struct sim_gpu *a, const struct sim_gpu *b)
{
    if (strcmp(a->pci_root, b->pci_root) == 0)
        return a->switch_group == b->switch_group ? NV_TOPOLOGY_SWITCH : NV_TOPOLOGY_HOST_BRIDGE;
    return a->numa == b->numa ? NV_TOPOLOGY_NODE : NV_TOPOLOGY_SYSTEM;
}

static nv_return two(const char *call, nv_device a, nv_device b, bool args, struct lib_view *va,
                     struct lib_view *vb)
{
    nv_return r = lib_whole(call, a, args, va);
    return r != NV_OK ? r : lib_whole("", b, true, vb);
}

nv_return nvmlDeviceGetTopologyCommonAncestor(nv_device a, nv_device b, unsigned *level)
{
    struct lib_view va, vb;
    nv_return r = two(__func__, a, b, level != NULL, &va, &vb);
    if (r != NV_OK)
        return r;
    if (va.number == vb.number)
        return NV_E_ARGUMENT;
    *level = common_ancestor(&va.gpu, &vb.gpu);
    return NV_OK;
}

nv_return nvmlDeviceGetTopologyNearestGpus(nv_device d, unsigned level, unsigned *n,
                                           nv_device *devices)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, n && (*n == 0 || devices), &v);
    if (r != NV_OK)
        return r;
    unsigned found = 0, room = *n;
    for (uint32_t i = 0, number; lib_number(i, &number); i++) {
        struct sim_gpu g;
        lib_read_gpu(number, &g);
        if (number == v.number || lib_lost(number, &g) || common_ancestor(&v.gpu, &g) > level)
            continue;
        if (found < room)
            devices[found] = lib_gpu_handle(number);
        found++;
    }
    *n = room == 0 ? found : MIN(found, room);
    return NV_OK;
}

/* Links of `g` that reach gpu `to`, directly or through a switch. */
static unsigned links_to(const struct sim_gpu *g, uint32_t to, const struct sim_gpu *other)
{
    unsigned n = 0;
    bool other_on_switch = other->n_links > 0 && other->links[0].remote_type == NV_REMOTE_SWITCH;
    for (uint32_t l = 0; l < g->n_links; l++) {
        const struct sim_link *k = &g->links[l];
        n += k->active && (k->remote_type == NV_REMOTE_SWITCH
                               ? other_on_switch
                               : k->remote_type == NV_REMOTE_GPU && k->remote == to);
    }
    return n;
}

nv_return nvmlDeviceGetP2PStatus(nv_device a, nv_device b, unsigned index, unsigned *status)
{
    struct lib_view va, vb;
    nv_return r = two(__func__, a, b, status && index <= NV_P2P_PCI, &va, &vb);
    if (r != NV_OK)
        return r;
    bool linked = links_to(&va.gpu, vb.number, &vb.gpu) > 0;
    bool mig = va.gpu.mig_current || vb.gpu.mig_current;
    if (index == NV_P2P_NVLINK || index == NV_P2P_ATOMICS)
        *status = linked && !mig ? NV_P2P_OK : NV_P2P_NOT_SUPPORTED;
    else
        *status = mig ? NV_P2P_NOT_SUPPORTED : NV_P2P_OK;
    return NV_OK;
}

/* ---- processors and memory ---- */

static void set_bits(unsigned long *set, unsigned words, uint32_t first, uint32_t last)
{
    unsigned bits = sizeof(long) * 8;
    memset(set, 0, words * sizeof(*set));
    for (uint32_t i = first; i <= last && i / bits < words; i++)
        set[i / bits] |= 1ul << i % bits;
}

nv_return nvmlDeviceGetCpuAffinity(nv_device d, unsigned words, unsigned long *set)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, words > 0 && set, &v);
    if (r != NV_OK)
        return r;
    uint32_t cpus;
    sim_read_member(lib_map(), n_cpus, &cpus);
    uint32_t node = (uint32_t)v.gpu.numa;
    if (v.gpu.numa < 0)
        set_bits(set, words, 0, cpus - 1);
    else
        set_bits(set, words, node * 16, node * 16 + 15);
    return NV_OK;
}

nv_return nvmlDeviceGetMemoryAffinity(nv_device d, unsigned words, unsigned long *set,
                                      unsigned scope)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, words > 0 && set && scope <= 1, &v);
    if (r != NV_OK)
        return r;
    uint32_t node = v.gpu.numa < 0 ? 0 : (uint32_t)v.gpu.numa;
    set_bits(set, words, node, node);
    return NV_OK;
}

nv_return nvmlDeviceGetNumaNodeId(nv_device d, unsigned *node)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, node != NULL, &v);
    if (r != NV_OK)
        return r;
    /* The node of the gpu's own memory: only coherent systems have one. */
    if (v.gpu.addressing != NV_ADDRESSING_ATS || v.gpu.unified)
        return NV_E_NOT_SUPPORTED;
    *node = 2 + v.number;
    return NV_OK;
}

/* ---- NVLink ---- */

static nv_return link_of(const char *call, nv_device d, unsigned link, bool args,
                         struct lib_view *v)
{
    nv_return r = lib_whole(call, d, args, v);
    if (r != NV_OK)
        return r;
    if (v->gpu.n_links == 0 || v->gpu.mig_current)
        return NV_E_NOT_SUPPORTED;
    return link < v->gpu.n_links ? NV_OK : NV_E_ARGUMENT;
}

nv_return nvmlDeviceGetNvLinkState(nv_device d, unsigned link, unsigned *active)
{
    struct lib_view v;
    nv_return r = link_of(__func__, d, link, active != NULL, &v);
    if (r == NV_OK)
        *active = v.gpu.links[link].active;
    return r;
}

nv_return nvmlDeviceGetNvLinkVersion(nv_device d, unsigned link, unsigned *version)
{
    struct lib_view v;
    nv_return r = link_of(__func__, d, link, version != NULL, &v);
    if (r == NV_OK)
        *version = v.gpu.link_version;
    return r;
}

nv_return nvmlDeviceGetNvLinkCapability(nv_device d, unsigned link, unsigned capability,
                                        unsigned *value)
{
    struct lib_view v;
    nv_return r = link_of(__func__, d, link, value && capability <= NV_LINK_CAP_VALID, &v);
    if (r == NV_OK)
        *value = v.gpu.links[link].active && capability != NV_LINK_CAP_SLI;
    return r;
}

static nv_return remote_pci(const char *call, nv_device d, unsigned link, bool whole,
                            struct nv_pci_info *pci)
{
    struct lib_view v;
    nv_return r = link_of(call, d, link, pci != NULL, &v);
    if (r != NV_OK)
        return r;
    const struct sim_link *k = &v.gpu.links[link];
    uint32_t domain = 0, bus = 0, device = 0, id = 0;
    if (k->remote_type == NV_REMOTE_GPU) {
        struct sim_gpu other;
        lib_read_gpu(k->remote, &other);
        domain = other.domain;
        bus = other.bus;
        device = other.device;
        id = other.pci_id;
    } else if (k->remote_type == NV_REMOTE_SWITCH) {
        struct sim_switch switches[SIM_SWITCHES_MAX];
        sim_read_member(lib_map(), switches, switches);
        bus = switches[k->remote % SIM_SWITCHES_MAX].bus;
        id = 0x22A310DE;
    } else {
        return NV_E_NOT_SUPPORTED;
    }
    snprintf(pci->bus_id_legacy, sizeof(pci->bus_id_legacy), "%04X:%02X:%02X.0", domain & 0xffff,
             bus & 0xff, device & 0x1f);
    pci->domain = domain;
    pci->bus = bus;
    pci->device = device;
    pci->pci_device = id;
    pci->pci_subsystem = 0;
    if (whole)
        snprintf(pci->bus_id, sizeof(pci->bus_id), "%08X:%02X:%02X.0", domain, bus & 0xff,
                 device & 0x1f);
    return NV_OK;
}

nv_return nvmlDeviceGetNvLinkRemotePciInfo(nv_device d, unsigned link, struct nv_pci_info *pci)
{
    return remote_pci(__func__, d, link, false, pci);
}

nv_return nvmlDeviceGetNvLinkRemotePciInfo_v2(nv_device d, unsigned link, struct nv_pci_info *pci)
{
    return remote_pci(__func__, d, link, true, pci);
}

nv_return nvmlDeviceGetNvLinkRemoteDeviceType(nv_device d, unsigned link, unsigned *type)
{
    struct lib_view v;
    nv_return r = link_of(__func__, d, link, type != NULL, &v);
    if (r == NV_OK)
        *type = v.gpu.links[link].remote_type;
    return r;
}

nv_return nvmlDeviceGetNvLinkErrorCounter(nv_device d, unsigned link, unsigned counter,
                                          unsigned long long *n)
{
    struct lib_view v;
    nv_return r = link_of(__func__, d, link, n && counter <= NV_LINK_ERROR_ECC_DATA, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.link_version >= NV_LINK_5_0)
        return NV_E_NOT_SUPPORTED;
    *n = counter == NV_LINK_ERROR_REPLAY ? v.gpu.links[link].errors : 0;
    return NV_OK;
}

nv_return nvmlDeviceGetNvLinkInfo(nv_device d, struct nv_nvlink_info *info)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, info != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.n_links == 0 || v.gpu.link_version < NV_LINK_5_0)
        return NV_E_NOT_SUPPORTED;
    bool first = info->version == NV_VERSION(struct nv_nvlink_info_v1, 1);
    if (!first && (r = lib_version(info->version, NV_VERSION(struct nv_nvlink_info, 2))) != NV_OK)
        return r;
    info->encrypted = 0;
    if (!first)
        info->n_firmware = 0;
    return NV_OK;
}

nv_return nvmlDeviceGetC2cModeInfoV(nv_device d, struct nv_c2c_mode *mode)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, mode != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.arch < NV_ARCH_HOPPER)
        return NV_E_NOT_SUPPORTED;
    mode->enabled = v.gpu.has_c2c;
    return NV_OK;
}

/* ---- fabric ---- */

nv_return nvmlDeviceGetGpuFabricInfo(nv_device d, struct nv_fabric_info_v1 *info)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, info != NULL, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.has_fabric)
        return NV_E_NOT_SUPPORTED;
    memcpy(info->cluster, v.gpu.fabric_cluster, sizeof(info->cluster));
    info->status = v.gpu.fabric_status;
    info->clique = v.gpu.fabric_clique;
    info->state = (uint8_t)v.gpu.fabric_state;
    return NV_OK;
}

nv_return nvmlDeviceGetGpuFabricInfoV(nv_device d, void *info)
{
    struct lib_view v;
    struct nv_fabric_info_v3 *f = info;
    nv_return r = lib_whole(__func__, d, info != NULL, &v);
    if (r != NV_OK)
        return r;
    bool third = f->version == NV_VERSION(struct nv_fabric_info_v3, 3);
    if (!third && (r = lib_version(f->version, NV_VERSION(struct nv_fabric_info_v2, 2))) != NV_OK)
        return r;
    if (!v.gpu.has_fabric)
        return NV_E_NOT_SUPPORTED;
    /* Both begin alike; the second ends before `summary`. */
    memcpy(f->cluster, v.gpu.fabric_cluster, sizeof(f->cluster));
    f->status = v.gpu.fabric_status;
    f->clique = v.gpu.fabric_clique;
    f->state = (uint8_t)v.gpu.fabric_state;
    f->health = v.gpu.fabric_health;
    if (third)
        f->summary = (uint8_t)v.gpu.fabric_summary;
    return NV_OK;
}
