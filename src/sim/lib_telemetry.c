/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, load, power, errors, processes. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "sim/lib.h"

/* ---- memory ---- */

struct memory {
    uint64_t total, reserved, used;
};

static nv_return memory_of(const struct lib_view *v, struct memory *m)
{
    *m = (struct memory){ v->gpu.memory_total, v->gpu.memory_reserved, v->gpu.memory_used };
    if (v->kind == LIB_MIG) {
        struct sim_mig mig;
        lib_read_mig(v->number, &mig);
        struct sim_gi *gi = sim_gi_by_id(&mig, v->gi);
        if (!gi)
            return NV_E_ARGUMENT;
        uint64_t mib = sim_geometry_of(&v->gpu)->profiles[gi->profile].memory_mib;
        *m = (struct memory){ mib << 20, 0, 0 };
    }
    for (int i = 0; i < SIM_CLIENTS_MAX; i++)
        if (v->gpu.clients[i].pid && (v->kind == LIB_GPU || v->gpu.clients[i].gi == v->gi))
            m->used += v->gpu.clients[i].memory;
    m->used = MIN(m->used, m->total - MIN(m->reserved, m->total));
    return NV_OK;
}

nv_return nvmlDeviceGetMemoryInfo(nv_device d, struct nv_memory *memory)
{
    struct lib_view v;
    struct memory m;
    nv_return r = lib_device(__func__, d, memory != NULL, &v);
    if (r == NV_OK)
        r = memory_of(&v, &m);
    if (r != NV_OK)
        return r;
    *memory = (struct nv_memory){ 0 };
    if (v.gpu.memory_mode != SIM_MEMORY_NORMAL)
        return v.gpu.memory_mode == SIM_MEMORY_UNSUPPORTED ? NV_E_NOT_SUPPORTED : NV_OK;
    /* The first form counts what the driver keeps for itself as used. */
    *memory = (struct nv_memory){ m.total, m.total - m.reserved - m.used, m.reserved + m.used };
    return NV_OK;
}

nv_return nvmlDeviceGetMemoryInfo_v2(nv_device d, struct nv_memory_v2 *memory)
{
    struct lib_view v;
    struct memory m;
    nv_return r = lib_device(__func__, d, memory != NULL, &v);
    if (r == NV_OK)
        r = lib_version(memory->version, NV_VERSION(struct nv_memory_v2, 2));
    if (r == NV_OK)
        r = memory_of(&v, &m);
    if (r != NV_OK)
        return r;
    uint32_t version = memory->version;
    *memory = (struct nv_memory_v2){ .version = version };
    if (v.gpu.memory_mode != SIM_MEMORY_NORMAL)
        return v.gpu.memory_mode == SIM_MEMORY_UNSUPPORTED ? NV_E_NOT_SUPPORTED : NV_OK;
    *memory = (struct nv_memory_v2){ version, m.total, m.reserved, m.total - m.reserved - m.used,
                                     m.used };
    return NV_OK;
}

nv_return nvmlDeviceGetBAR1MemoryInfo(nv_device d, struct nv_bar1_memory *memory)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, memory != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.unified || v.gpu.bar1_total == 0)
        return NV_E_NOT_SUPPORTED;
    uint64_t used = MIN(UINT64_C(1) << 20, v.gpu.bar1_total);
    *memory = (struct nv_bar1_memory){ v.gpu.bar1_total, v.gpu.bar1_total - used, used };
    return NV_OK;
}

/* ---- load, heat, power, clocks: whole gpus only ---- */

#define GET_NUMBER(symbol, supported, expression)                                                  \
    nv_return symbol(nv_device d, unsigned *value)                                                 \
    {                                                                                              \
        struct lib_view v;                                                                         \
        nv_return r = lib_whole(__func__, d, value != NULL, &v);                                   \
        if (r != NV_OK)                                                                            \
            return r;                                                                              \
        if (!(supported))                                                                          \
            return NV_E_NOT_SUPPORTED;                                                             \
        *value = (expression);                                                                     \
        return NV_OK;                                                                              \
    }

GET_NUMBER(nvmlDeviceGetFanSpeed, v.gpu.has_fan, 30)
GET_NUMBER(nvmlDeviceGetNumFans, true, v.gpu.has_fan)
GET_NUMBER(nvmlDeviceGetPowerUsage, true, v.gpu.power_mw)
GET_NUMBER(nvmlDeviceGetEnforcedPowerLimit, v.gpu.has_power_limit, v.gpu.power_limit_mw)
GET_NUMBER(nvmlDeviceGetPowerManagementLimit, v.gpu.has_power_limit, v.gpu.power_limit_mw)
GET_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, v.gpu.has_power_limit, v.gpu.power_limit_mw)
GET_NUMBER(nvmlDeviceGetPerformanceState, true, v.gpu.pstate)
GET_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, true, v.gpu.pcie_generation)
GET_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, true, v.gpu.pcie_generation_max)
GET_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, true, v.gpu.pcie_width)
GET_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, true, v.gpu.pcie_width_max)
GET_NUMBER(nvmlDeviceGetPcieReplayCounter, true, v.gpu.pcie_replays)
GET_NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, !v.gpu.has_remap && v.gpu.has_ecc,
           v.gpu.retired_pending)

nv_return nvmlDeviceGetUtilizationRates(nv_device d, struct nv_utilization *rates)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, rates != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.mig_current)
        return NV_E_NOT_SUPPORTED;
    *rates = (struct nv_utilization){ v.gpu.util_gpu, v.gpu.util_memory };
    return NV_OK;
}

static nv_return codec_load(const char *call, nv_device d, unsigned *percent, unsigned *period_us)
{
    struct lib_view v;
    nv_return r = lib_whole(call, d, percent && period_us, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.mig_current)
        return NV_E_NOT_SUPPORTED;
    *percent = 0;
    *period_us = 167000;
    return NV_OK;
}

nv_return nvmlDeviceGetEncoderUtilization(nv_device d, unsigned *percent, unsigned *period_us)
{
    return codec_load(__func__, d, percent, period_us);
}

nv_return nvmlDeviceGetDecoderUtilization(nv_device d, unsigned *percent, unsigned *period_us)
{
    return codec_load(__func__, d, percent, period_us);
}

nv_return nvmlDeviceGetTemperature(nv_device d, unsigned sensor, unsigned *celsius)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, celsius && sensor == 0, &v);
    if (r == NV_OK)
        *celsius = v.gpu.temperature;
    return r;
}

nv_return nvmlDeviceGetTemperatureV(nv_device d, struct nv_temperature *temperature)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, temperature != NULL, &v);
    if (r == NV_OK)
        r = lib_version(temperature->version, NV_VERSION(struct nv_temperature, 1));
    if (r == NV_OK && temperature->sensor != 0)
        r = NV_E_ARGUMENT;
    if (r == NV_OK)
        temperature->celsius = (int32_t)v.gpu.temperature;
    return r;
}

enum { SHUTDOWN_C = 95, SLOWDOWN_C = 90, MEMORY_MAX_C = 95, GPU_MAX_C = 87 };

nv_return nvmlDeviceGetTemperatureThreshold(nv_device d, unsigned threshold, unsigned *celsius)
{
    static const unsigned at[] = { [NV_THRESHOLD_SHUTDOWN] = SHUTDOWN_C,
                                   [NV_THRESHOLD_SLOWDOWN] = SLOWDOWN_C,
                                   [NV_THRESHOLD_MEMORY_MAX] = MEMORY_MAX_C,
                                   [NV_THRESHOLD_GPU_MAX] = GPU_MAX_C };
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, celsius && threshold <= NV_THRESHOLD_GPS, &v);
    if (r != NV_OK)
        return r;
    if (threshold >= ARRAY_LEN(at) || (threshold == NV_THRESHOLD_MEMORY_MAX && !v.gpu.has_remap))
        return NV_E_NOT_SUPPORTED;
    *celsius = at[threshold];
    return NV_OK;
}

nv_return nvmlDeviceGetMarginTemperature(nv_device d, struct nv_margin_temperature *margin)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, margin != NULL, &v);
    if (r == NV_OK)
        r = lib_version(margin->version, NV_VERSION(struct nv_margin_temperature, 1));
    if (r == NV_OK)
        margin->celsius = GPU_MAX_C - (int32_t)v.gpu.temperature;
    return r;
}

nv_return nvmlDeviceGetPowerManagementLimitConstraints(nv_device d, unsigned *min, unsigned *max)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, min && max, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.has_power_limit)
        return NV_E_NOT_SUPPORTED;
    *min = v.gpu.power_limit_mw / 1000 * 300;
    *max = v.gpu.power_limit_mw;
    return NV_OK;
}

uint64_t lib_energy(const struct lib_view *v)
{
    int64_t loaded;
    sim_read_member(lib_map(), loaded_ns, &loaded);
    int64_t ms = (sim_now_ns() - MAX(loaded, v->gpu.energy_from_ns)) / 1000000;
    return v->gpu.energy_mj + (uint64_t)MAX(ms, 0) * v->gpu.power_mw / 1000;
}

nv_return nvmlDeviceGetTotalEnergyConsumption(nv_device d, unsigned long long *mj)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, mj != NULL, &v);
    if (r != NV_OK)
        return r;
    *mj = lib_energy(&v);
    return NV_OK;
}

static nv_return clock_of(const char *call, nv_device d, unsigned clock, bool max, unsigned *mhz)
{
    struct lib_view v;
    nv_return r = lib_whole(call, d, mhz && clock <= NV_CLOCK_VIDEO, &v);
    if (r != NV_OK)
        return r;
    if (clock == NV_CLOCK_MEMORY && v.gpu.memory_clock == 0)
        return NV_E_NOT_SUPPORTED;
    *mhz = clock == NV_CLOCK_MEMORY ? v.gpu.memory_clock
           : max                    ? v.gpu.sm_clock_max
                                    : v.gpu.sm_clock;
    return NV_OK;
}

nv_return nvmlDeviceGetClockInfo(nv_device d, unsigned clock, unsigned *mhz)
{
    return clock_of(__func__, d, clock, false, mhz);
}

nv_return nvmlDeviceGetMaxClockInfo(nv_device d, unsigned clock, unsigned *mhz)
{
    return clock_of(__func__, d, clock, true, mhz);
}

static nv_return reasons(const char *call, nv_device d, bool supported, unsigned long long *bits)
{
    struct lib_view v;
    nv_return r = lib_whole(call, d, bits != NULL, &v);
    if (r == NV_OK)
        *bits = supported ? 0x1ff : v.gpu.clock_reasons;
    return r;
}

nv_return nvmlDeviceGetCurrentClocksEventReasons(nv_device d, unsigned long long *bits)
{
    return reasons(__func__, d, false, bits);
}

nv_return nvmlDeviceGetCurrentClocksThrottleReasons(nv_device d, unsigned long long *bits)
{
    return reasons(__func__, d, false, bits);
}

nv_return nvmlDeviceGetSupportedClocksEventReasons(nv_device d, unsigned long long *bits)
{
    return reasons(__func__, d, true, bits);
}

nv_return nvmlDeviceGetViolationStatus(nv_device d, unsigned policy, struct nv_violation_time *time)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, time && policy <= NV_PERF_BASE_CLOCKS, &v);
    if (r == NV_OK)
        *time = (struct nv_violation_time){ (uint64_t)sim_now_ns() / 1000, 0 };
    return r;
}

nv_return nvmlDeviceGetPcieThroughput(nv_device d, unsigned counter, unsigned *kb_s)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, kb_s && counter <= NV_PCIE_RX, &v);
    if (r != NV_OK)
        return r;
    /* The driver samples over 20 ms, and the call takes that long. */
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    *kb_s = counter == NV_PCIE_TX ? 836 : 446;
    return NV_OK;
}

/* ---- memory errors ---- */

nv_return nvmlDeviceGetEccMode(nv_device d, unsigned *current, unsigned *pending)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, current && pending, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.has_ecc)
        return NV_E_NOT_SUPPORTED;
    *current = v.gpu.ecc_current;
    *pending = v.gpu.ecc_pending;
    return NV_OK;
}

nv_return nvmlDeviceGetTotalEccErrors(nv_device d, unsigned error, unsigned counter,
                                      unsigned long long *n)
{
    struct lib_view v;
    nv_return r =
        lib_whole(__func__, d, n && error <= NV_ECC_UNCORRECTED && counter <= NV_ECC_AGGREGATE, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.has_ecc || !v.gpu.ecc_current)
        return NV_E_NOT_SUPPORTED;
    *n = v.gpu.ecc[error][counter];
    return NV_OK;
}

nv_return nvmlDeviceGetMemoryErrorCounter(nv_device d, unsigned error, unsigned counter,
                                          unsigned location, unsigned long long *n)
{
    struct lib_view v;
    bool known =
        error <= NV_ECC_UNCORRECTED && counter <= NV_ECC_AGGREGATE && location <= NV_ECC_SRAM;
    nv_return r = lib_whole(__func__, d, n && known, &v);
    if (r != NV_OK)
        return r;
    bool counted = location == NV_ECC_DRAM || location == NV_ECC_SRAM;
    if (!v.gpu.has_ecc || !v.gpu.ecc_current || !counted)
        return NV_E_NOT_SUPPORTED;
    *n = location == NV_ECC_DRAM ? v.gpu.ecc[error][counter] : 0;
    return NV_OK;
}

nv_return nvmlDeviceGetSramEccErrorStatus(nv_device d, struct nv_sram_ecc_status *status)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, status != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.arch < NV_ARCH_HOPPER || !v.gpu.has_ecc)
        return NV_E_NOT_SUPPORTED;
    if ((r = lib_version(status->version, NV_VERSION(struct nv_sram_ecc_status, 1))) != NV_OK)
        return r;
    uint32_t version = status->version;
    *status = (struct nv_sram_ecc_status){ .version = version,
                                           .threshold_exceeded = v.gpu.sram_exceeded };
    return NV_OK;
}

nv_return nvmlDeviceGetRemappedRows(nv_device d, unsigned *corrected, unsigned *uncorrected,
                                    unsigned *pending, unsigned *failed)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, corrected && uncorrected && pending && failed, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.has_remap)
        return NV_E_NOT_SUPPORTED;
    *corrected = v.gpu.remap_corrected;
    *uncorrected = v.gpu.remap_uncorrected;
    *pending = v.gpu.remap_pending;
    *failed = v.gpu.remap_failed;
    return NV_OK;
}

nv_return nvmlDeviceGetRowRemapperHistogram(nv_device d, struct nv_remap_histogram *histogram)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, histogram != NULL, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.has_remap)
        return NV_E_NOT_SUPPORTED;
    uint32_t used = MIN(v.gpu.remap_corrected + v.gpu.remap_uncorrected, v.gpu.remap_banks);
    *histogram = (struct nv_remap_histogram){ .max = v.gpu.remap_banks - used, .high = used };
    return NV_OK;
}

static nv_return retired(const char *call, nv_device d, unsigned cause, unsigned *n,
                         unsigned long long *addresses, unsigned long long *timestamps)
{
    struct lib_view v;
    nv_return r = lib_whole(call, d, n && cause <= 1, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.has_remap || !v.gpu.has_ecc)
        return NV_E_NOT_SUPPORTED;
    unsigned have = cause == 0 ? v.gpu.retired_single : v.gpu.retired_double, room = *n;
    *n = have;
    if (have > room || (have > 0 && !addresses))
        return NV_E_SIZE;
    for (unsigned i = 0; i < have; i++) {
        addresses[i] = 0x10000ull * (i + 1);
        if (timestamps)
            timestamps[i] = 1700000000u + i;
    }
    return NV_OK;
}

nv_return nvmlDeviceGetRetiredPages(nv_device d, unsigned cause, unsigned *n,
                                    unsigned long long *addresses)
{
    return retired(__func__, d, cause, n, addresses, NULL);
}

nv_return nvmlDeviceGetRetiredPages_v2(nv_device d, unsigned cause, unsigned *n,
                                       unsigned long long *addresses,
                                       unsigned long long *timestamps)
{
    return retired(__func__, d, cause, n, addresses, timestamps);
}

nv_return nvmlDeviceGetRepairStatus(nv_device d, struct nv_repair_status *status)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, status != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.gpu.arch < NV_ARCH_HOPPER || v.gpu.unified)
        return NV_E_NOT_SUPPORTED;
    if ((r = lib_version(status->version, NV_VERSION(struct nv_repair_status, 1))) != NV_OK)
        return r;
    status->channel_pending = status->tpc_pending = 0;
    return NV_OK;
}
