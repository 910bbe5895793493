/* SPDX-License-Identifier: Apache-2.0 */
/* nvmlDeviceGetFieldValues: the call succeeds while each entry has a code of its own. */
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "sim/lib.h"

static unsigned driver_major(void)
{
    char version[sizeof(((struct sim_world *)0)->driver_version)];
    unsigned major = 0;
    sim_read_member(lib_map(), driver_version, version);
    sscanf(version, "%4u", &major);
    return major;
}

#define GETTER(name, supported, expression)                                                        \
    static nv_return name(const struct lib_view *v, uint32_t scope, uint64_t *ret)                 \
    {                                                                                              \
        const struct sim_gpu *g = &v->gpu;                                                         \
        (void)g;                                                                                   \
        if (!(supported))                                                                          \
            return NV_E_NOT_SUPPORTED;                                                             \
        *ret = (expression);                                                                       \
        return NV_OK;                                                                              \
    }

#define LINK(g, scope) ((scope) < (g)->n_links && !(g)->mig_current)

GETTER(memory_temperature, g->has_remap, g->memory_temperature)
GETTER(link_count, true, g->n_links)
GETTER(pcie_replays, true, g->pcie_replays)
GETTER(remap_corrected, g->has_remap, g->remap_corrected)
GETTER(remap_uncorrected, g->has_remap, g->remap_uncorrected)
GETTER(remap_pending, g->has_remap, g->remap_pending)
GETTER(remap_failed, g->has_remap, g->remap_failed)
GETTER(link_data, LINK(g, scope), 0)
GETTER(link_errors, LINK(g, scope) && g->link_version < NV_LINK_5_0, g->links[scope].errors)
GETTER(link_errors5, LINK(g, scope) && g->link_version >= NV_LINK_5_0, g->links[scope].errors)
GETTER(link_state, LINK(g, scope), g->links[scope].active)
GETTER(link_version, LINK(g, scope), g->link_version)
GETTER(c2c_count, g->arch >= NV_ARCH_HOPPER, g->has_c2c ? 10 : 0)
GETTER(c2c_status, g->has_c2c, 1)
GETTER(pcie_errors, !g->unified, 0)
GETTER(mig_warm, g->mig_capable, !g->mig_cold)
GETTER(power, true, g->power_mw)
GETTER(power_min, g->has_power_limit, g->power_limit_mw / 1000 * 300)
GETTER(power_limit, g->has_power_limit, g->power_limit_mw)
GETTER(margin, g->has_power_limit, 87 - g->temperature)
GETTER(profiles_without_mig, g->mig_capable && g->geometry >= 0, 1)
GETTER(recovery, driver_major() >= 565, g->recovery_action)
GETTER(reasons, true, 0)
GETTER(inactive_remaps, g->has_remap &&driver_major() >= 575, 0)

static nv_return switch_links(const struct lib_view *v, uint32_t scope, uint64_t *ret)
{
    *ret = 0;
    for (uint32_t l = 0; l < v->gpu.n_links; l++)
        *ret += v->gpu.links[l].active && v->gpu.links[l].remote_type == NV_REMOTE_SWITCH;
    return v->gpu.n_links ? NV_OK : NV_E_NOT_SUPPORTED;
}

static nv_return link_speed(const struct lib_view *v, uint32_t scope, uint64_t *ret)
{
    if (!LINK(&v->gpu, scope))
        return NV_E_NOT_SUPPORTED;
    *ret = v->gpu.link_version >= NV_LINK_5_0   ? 53125
           : v->gpu.link_version >= NV_LINK_4_0 ? 26562
                                                : 25000;
    return NV_OK;
}

static nv_return deprecated(const struct lib_view *v, uint32_t scope, uint64_t *ret)
{
    return NV_E_DEPRECATED;
}

static nv_return energy(const struct lib_view *v, uint32_t scope, uint64_t *ret)
{
    *ret = lib_energy(v);
    return NV_OK;
}

static const struct {
    uint32_t first, last, type; /* enum nv_value_type */
    nv_return (*get)(const struct lib_view *v, uint32_t scope, uint64_t *ret);
} fields[] = {
    { NV_FIELD_MEMORY_TEMPERATURE, NV_FIELD_MEMORY_TEMPERATURE, NV_VALUE_U32, memory_temperature },
    { NV_FIELD_ENERGY, NV_FIELD_ENERGY, NV_VALUE_U64, energy },
    { NV_FIELD_LINK_COUNT, NV_FIELD_LINK_COUNT, NV_VALUE_U32, link_count },
    { NV_FIELD_PCIE_REPLAYS, NV_FIELD_PCIE_REPLAYS, NV_VALUE_U32, pcie_replays },
    { NV_FIELD_LINK_DATA_TX, NV_FIELD_LINK_RAW_RX, NV_VALUE_U64, link_data },
    { NV_FIELD_REMAP_CORRECTED, NV_FIELD_REMAP_CORRECTED, NV_VALUE_U32, remap_corrected },
    { NV_FIELD_REMAP_UNCORRECTED, NV_FIELD_REMAP_UNCORRECTED, NV_VALUE_U32, remap_uncorrected },
    { NV_FIELD_REMAP_PENDING, NV_FIELD_REMAP_PENDING, NV_VALUE_U32, remap_pending },
    { NV_FIELD_REMAP_FAILURE, NV_FIELD_REMAP_FAILURE, NV_VALUE_U32, remap_failed },
    { NV_FIELD_SWITCH_LINK_COUNT, NV_FIELD_SWITCH_LINK_COUNT, NV_VALUE_U32, switch_links },
    { NV_FIELD_LINK_REPLAY, NV_FIELD_LINK_CRC, NV_VALUE_U64, link_errors },
    { NV_FIELD_LINK_SPEED, NV_FIELD_LINK_SPEED, NV_VALUE_U32, link_speed },
    { NV_FIELD_LINK_STATE, NV_FIELD_LINK_STATE, NV_VALUE_U32, link_state },
    { NV_FIELD_LINK_VERSION, NV_FIELD_LINK_VERSION, NV_VALUE_U32, link_version },
    { NV_FIELD_C2C_COUNT, NV_FIELD_C2C_COUNT, NV_VALUE_U32, c2c_count },
    { NV_FIELD_C2C_STATUS, NV_FIELD_C2C_BANDWIDTH, NV_VALUE_U32, c2c_status },
    { NV_FIELD_PCIE_ERRORS_FIRST, NV_FIELD_PCIE_ERRORS_LAST, NV_VALUE_U32, pcie_errors },
    { NV_FIELD_MIG_WITHOUT_RESET, NV_FIELD_MIG_WITHOUT_RESET, NV_VALUE_U32, mig_warm },
    { NV_FIELD_POWER_AVERAGE, NV_FIELD_POWER_INSTANT, NV_VALUE_U32, power },
    { NV_FIELD_POWER_MIN_LIMIT, NV_FIELD_POWER_MIN_LIMIT, NV_VALUE_U32, power_min },
    { NV_FIELD_POWER_MAX_LIMIT, NV_FIELD_POWER_CURRENT_LIMIT, NV_VALUE_U32, power_limit },
    { NV_FIELD_TLIMIT_FIRST, NV_FIELD_TLIMIT_LAST, NV_VALUE_I32, margin },
    { NV_FIELD_PROFILES_WITHOUT_MIG, NV_FIELD_PROFILES_WITHOUT_MIG, NV_VALUE_U32,
      profiles_without_mig },
    { NV_FIELD_LINK5_FIRST, NV_FIELD_LINK5_LAST, NV_VALUE_U64, link_errors5 },
    { NV_FIELD_RESET_STATUS, NV_FIELD_DRAIN_RESET_STATUS, NV_VALUE_U32, deprecated },
    { NV_FIELD_RECOVERY_ACTION, NV_FIELD_RECOVERY_ACTION, NV_VALUE_U32, recovery },
    { NV_FIELD_REASONS_FIRST, NV_FIELD_REASONS_LAST, NV_VALUE_U64, reasons },
    { NV_FIELD_INACTIVE_REMAPS_FIRST, NV_FIELD_INACTIVE_REMAPS_LAST, NV_VALUE_U32,
      inactive_remaps },
};

static void answer(const struct lib_view *v, struct nv_field_value *f)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    f->timestamp_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    f->latency_us = 0;
    f->ret = f->field == 0 || f->field > NV_FIELD_LAST ? NV_E_ARGUMENT : NV_E_NOT_SUPPORTED;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        if (f->field < fields[i].first || f->field > fields[i].last)
            continue;
        uint64_t value = 0;
        f->ret = fields[i].get(v, f->scope, &value);
        f->type = fields[i].type;
        f->value.u64 = 0;
        if (f->type == NV_VALUE_U64)
            f->value.u64 = value;
        else
            f->value.u32 = (uint32_t)value;
        return;
    }
}

nv_return nvmlDeviceGetFieldValues(nv_device d, int n, struct nv_field_value *values)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, n > 0 && values, &v);
    for (int i = 0; r == NV_OK && i < n; i++)
        answer(&v, &values[i]);
    return r;
}
