/* SPDX-License-Identifier: Apache-2.0 */
/* Processes on a gpu, and samples. */
#include <stdlib.h>

#include "base/mem.h"
#include "sim/lib.h"

static bool listed(const struct lib_view *v, const struct sim_client *c, uint32_t kind)
{
    return c->pid && c->kind == kind && (v->kind == LIB_GPU || (c->gi == v->gi && c->ci == v->ci));
}

/* Fills as many as there is room for; NV_E_SIZE with the number needed when that is too few. */
static nv_return processes(const char *call, nv_device d, uint32_t kind, unsigned *n, void *items,
                           bool v1)
{
    struct lib_view v;
    nv_return r = lib_device(call, d, n != NULL, &v);
    if (r != NV_OK)
        return r;
    unsigned have = 0, room = items ? *n : 0;
    for (int i = 0; i < SIM_CLIENTS_MAX; i++) {
        const struct sim_client *c = &v.gpu.clients[i];
        if (!listed(&v, c, kind))
            continue;
        if (have < room && v1)
            ((struct nv_process_v1 *)items)[have] = (struct nv_process_v1){ c->pid, c->memory };
        else if (have < room)
            ((struct nv_process *)items)[have] =
                (struct nv_process){ c->pid, c->memory, c->gi, c->ci };
        have++;
    }
    *n = have;
    return have > room ? NV_E_SIZE : NV_OK;
}

#define PROCESSES(name, kind)                                                                      \
    nv_return nvmlDeviceGet##name##RunningProcesses(nv_device d, unsigned *n,                      \
                                                    struct nv_process_v1 *items)                   \
    {                                                                                              \
        return processes(__func__, d, kind, n, items, true);                                       \
    }                                                                                              \
    nv_return nvmlDeviceGet##name##RunningProcesses_v2(nv_device d, unsigned *n,                   \
                                                       struct nv_process *items)                   \
    {                                                                                              \
        return processes(__func__, d, kind, n, items, false);                                      \
    }                                                                                              \
    nv_return nvmlDeviceGet##name##RunningProcesses_v3(nv_device d, unsigned *n,                   \
                                                       struct nv_process *items)                   \
    {                                                                                              \
        return processes(__func__, d, kind, n, items, false);                                      \
    }

PROCESSES(Compute, SIM_CLIENT_COMPUTE)
PROCESSES(Graphics, SIM_CLIENT_GRAPHICS)
PROCESSES(MPSCompute, SIM_CLIENT_MPS)

nv_return nvmlDeviceGetRunningProcessDetailList(nv_device d, struct nv_process_detail_list *list)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, list != NULL, &v);
    if (r == NV_OK)
        r = lib_version(list->version, NV_VERSION(struct nv_process_detail_list, 1));
    if (r != NV_OK)
        return r;
    unsigned have = 0, room = list->items ? list->n : 0;
    for (int i = 0; i < SIM_CLIENTS_MAX; i++) {
        const struct sim_client *c = &v.gpu.clients[i];
        if (!listed(&v, c, list->mode))
            continue;
        if (have < room)
            list->items[have] = (struct nv_process_detail){ c->pid, c->memory, c->gi, c->ci, 0 };
        have++;
    }
    list->n = have;
    return have > room ? NV_E_SIZE : NV_OK;
}

nv_return nvmlDeviceGetProcessUtilization(nv_device d, struct nv_process_utilization *items,
                                          unsigned *n, unsigned long long since_us)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, n != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.mig_current)
        return NV_E_NOT_SUPPORTED;
    unsigned have = 0, room = items ? *n : 0;
    for (int i = 0; i < SIM_CLIENTS_MAX; i++) {
        if (!v.gpu.clients[i].pid)
            continue;
        if (have < room)
            items[have] = (struct nv_process_utilization){ v.gpu.clients[i].pid,
                                                           (uint64_t)sim_now_ns() / 1000,
                                                           v.gpu.util_gpu,
                                                           v.gpu.util_memory,
                                                           0,
                                                           0 };
        have++;
    }
    *n = have;
    return have == 0 ? NV_E_NOT_FOUND : have > room ? NV_E_SIZE : NV_OK;
}

enum { SAMPLE_POWER = 0, SAMPLE_GPU_LOAD = 1, SAMPLE_MEMORY_LOAD = 2, SAMPLE_TYPES = 17 };

nv_return nvmlDeviceGetSamples(nv_device d, unsigned type, unsigned long long since_us,
                               unsigned *value_type, unsigned *n, struct nv_sample *items)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, value_type && n && type < SAMPLE_TYPES, &v);
    if (r != NV_OK)
        return r;
    if (type > SAMPLE_MEMORY_LOAD || (v.gpu.mig_current && type != SAMPLE_POWER))
        return NV_E_NOT_SUPPORTED;
    *value_type = NV_VALUE_U32;
    if (!items) {
        *n = 1;
        return NV_OK;
    }
    if (*n < 1)
        return NV_E_SIZE;
    uint64_t now = (uint64_t)sim_now_ns() / 1000;
    if (since_us >= now)
        return NV_E_NOT_FOUND;
    *n = 1;
    items[0] = (struct nv_sample){ .timestamp_us = now };
    items[0].value.u32 = type == SAMPLE_POWER      ? v.gpu.power_mw
                         : type == SAMPLE_GPU_LOAD ? v.gpu.util_gpu
                                                   : v.gpu.util_memory;
    return NV_OK;
}

/* ---- GPM: two samples and their difference ---- */

struct gpm_sample {
    uint64_t magic;
    int64_t at_ns;
    uint32_t number, util_gpu, util_memory;
};
#define GPM_MAGIC UINT64_C(0x4d50475f4d4953)

nv_return nvmlGpmQueryDeviceSupport(nv_device d, struct nv_gpm_support *support)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, support != NULL, &v);
    if (r != NV_OK)
        return r;
    if (support->version != 1)
        return NV_E_VERSION;
    support->supported = v.gpu.arch >= NV_ARCH_HOPPER && !v.gpu.unified;
    return NV_OK;
}

nv_return nvmlGpmSampleAlloc(nv_gpm_sample *sample)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!sample)
        return NV_E_ARGUMENT;
    struct gpm_sample *s = calloc(1, sizeof(*s));
    if (!s)
        return NV_E_MEMORY;
    s->magic = GPM_MAGIC;
    *sample = (nv_gpm_sample)(void *)s;
    return NV_OK;
}

nv_return nvmlGpmSampleFree(nv_gpm_sample sample)
{
    nv_return r = lib_enter(__func__);
    if (r == NV_OK && !sample)
        r = NV_E_ARGUMENT;
    if (r == NV_OK)
        free(sample);
    return r;
}

static nv_return gpm_sample(const char *call, nv_device d, nv_gpm_sample sample)
{
    struct lib_view v;
    struct gpm_sample *s = (void *)sample;
    nv_return r = lib_whole(call, d, s && s->magic == GPM_MAGIC, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.arch < NV_ARCH_HOPPER || v.gpu.unified)
        return NV_E_NOT_SUPPORTED;
    *s =
        (struct gpm_sample){ GPM_MAGIC, sim_now_ns(), v.number, v.gpu.util_gpu, v.gpu.util_memory };
    return NV_OK;
}

nv_return nvmlGpmSampleGet(nv_device d, nv_gpm_sample sample)
{
    return gpm_sample(__func__, d, sample);
}

nv_return nvmlGpmMigSampleGet(nv_device d, unsigned gi, nv_gpm_sample sample)
{
    struct lib_view v;
    nv_return r = gpm_sample(__func__, d, sample);
    if (r != NV_OK || (r = lib_whole("", d, true, &v)) != NV_OK)
        return r;
    struct sim_mig mig;
    lib_read_mig(v.number, &mig);
    return sim_gi_by_id(&mig, gi) ? NV_OK : NV_E_NOT_FOUND;
}

enum {
    GPM_GRAPHICS = 1,
    GPM_SM = 2,
    GPM_OCCUPANCY = 3,
    GPM_DRAM = 10,
    GPM_PCIE_TX = 20,
    GPM_PCIE_RX = 21
};

static bool gpm_value(const struct gpm_sample *s, uint32_t metric, double *ret)
{
    switch (metric) {
    case GPM_GRAPHICS:
    case GPM_SM:
        *ret = s->util_gpu;
        return true;
    case GPM_OCCUPANCY:
        *ret = s->util_gpu / 2.0;
        return true;
    case GPM_DRAM:
        *ret = s->util_memory;
        return true;
    case GPM_PCIE_TX:
    case GPM_PCIE_RX:
        *ret = 0;
        return true;
    default:
        return false;
    }
}

nv_return nvmlGpmMetricsGet(struct nv_gpm_metrics *metrics)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!metrics)
        return NV_E_ARGUMENT;
    if (metrics->version != 1)
        return NV_E_VERSION;
    const struct gpm_sample *a = (const void *)metrics->sample1,
                            *b = (const void *)metrics->sample2;
    /* The array is as long as the caller's header says: only the first n are touched. */
    if (!a || !b || a->magic != GPM_MAGIC || b->magic != GPM_MAGIC ||
        metrics->n > NV_GPM_METRICS_MAX)
        return NV_E_ARGUMENT;
    if (a->at_ns >= b->at_ns || a->number != b->number)
        return NV_E_ARGUMENT;
    for (uint32_t i = 0; i < metrics->n; i++) {
        struct nv_gpm_metric *m = &metrics->items[i];
        m->value = 0;
        m->ret = gpm_value(b, m->metric, &m->value) ? NV_OK : NV_E_NOT_SUPPORTED;
    }
    return NV_OK;
}
