/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML's calls by symbol, as one list per duty: NV_CALLS_x(X) expands X(symbol, parameters...) for
 * each. Every call returns nv_return, except nvmlErrorString. From the lists come the pointer types
 * nv_fn_<symbol> below, and the prototypes in the simulated library (a macro that prefixes the
 * visibility attribute and expands to `nv_return symbol(parameters);`).
 *
 * A signature here is that of the very symbol named: `nvmlEventSetWait` fills nv_event_data_v1,
 * `nvmlEventSetWait_v2` fills nv_event_data.
 */
#include "gpu/nvml_abi.h"

#define NV_CALLS_SYSTEM(X)                                                                         \
    X(nvmlInit, void)                                                                              \
    X(nvmlInit_v2, void)                                                                           \
    X(nvmlInitWithFlags, unsigned flags)                                                           \
    X(nvmlShutdown, void)                                                                          \
    X(nvmlSystemGetDriverVersion, char *text, unsigned size)                                       \
    X(nvmlSystemGetNVMLVersion, char *text, unsigned size)                                         \
    X(nvmlSystemGetCudaDriverVersion, int *version)                                                \
    X(nvmlSystemGetCudaDriverVersion_v2, int *version)                                             \
    X(nvmlSystemGetDriverBranch, struct nv_driver_branch *branch, unsigned size)                   \
    X(nvmlSystemGetConfComputeState, struct nv_conf_compute_state *state)                          \
    X(nvmlSystemGetConfComputeSettings, struct nv_conf_compute_settings *settings)                 \
    X(nvmlSystemGetProcessName, unsigned pid, char *text, unsigned size)                           \
    X(nvmlSystemGetTopologyGpuSet, unsigned cpu, unsigned *n, nv_device *devices)                  \
    X(nvmlGetExcludedDeviceCount, unsigned *n)                                                     \
    X(nvmlGetExcludedDeviceInfoByIndex, unsigned index, struct nv_excluded_device *info)

#define NV_CALLS_IDENTITY(X)                                                                       \
    X(nvmlDeviceGetCount, unsigned *n)                                                             \
    X(nvmlDeviceGetCount_v2, unsigned *n)                                                          \
    X(nvmlDeviceGetHandleByIndex, unsigned index, nv_device *d)                                    \
    X(nvmlDeviceGetHandleByIndex_v2, unsigned index, nv_device *d)                                 \
    X(nvmlDeviceGetHandleByUUID, const char *uuid, nv_device *d)                                   \
    X(nvmlDeviceGetHandleByUUIDV, const struct nv_uuid *uuid, nv_device *d)                        \
    X(nvmlDeviceGetHandleBySerial, const char *serial, nv_device *d)                               \
    X(nvmlDeviceGetHandleByPciBusId, const char *bus_id, nv_device *d)                             \
    X(nvmlDeviceGetHandleByPciBusId_v2, const char *bus_id, nv_device *d)                          \
    X(nvmlDeviceGetName, nv_device d, char *text, unsigned size)                                   \
    X(nvmlDeviceGetUUID, nv_device d, char *text, unsigned size)                                   \
    X(nvmlDeviceGetSerial, nv_device d, char *text, unsigned size)                                 \
    X(nvmlDeviceGetBoardPartNumber, nv_device d, char *text, unsigned size)                        \
    X(nvmlDeviceGetVbiosVersion, nv_device d, char *text, unsigned size)                           \
    X(nvmlDeviceGetGspFirmwareVersion, nv_device d, char *text)                                    \
    X(nvmlDeviceGetInforomImageVersion, nv_device d, char *text, unsigned size)                    \
    X(nvmlDeviceGetInforomVersion, nv_device d, unsigned object, char *text, unsigned size)        \
    X(nvmlDeviceGetIndex, nv_device d, unsigned *index)                                            \
    X(nvmlDeviceGetMinorNumber, nv_device d, unsigned *minor)                                      \
    X(nvmlDeviceGetModuleId, nv_device d, unsigned *module)                                        \
    X(nvmlDeviceGetBoardId, nv_device d, unsigned *board)                                          \
    X(nvmlDeviceGetMultiGpuBoard, nv_device d, unsigned *multi)                                    \
    X(nvmlDeviceGetBrand, nv_device d, unsigned *brand)                                            \
    X(nvmlDeviceGetArchitecture, nv_device d, unsigned *arch)                                      \
    X(nvmlDeviceGetCudaComputeCapability, nv_device d, int *major, int *minor)                     \
    X(nvmlDeviceGetPciInfo, nv_device d, struct nv_pci_info *pci)                                  \
    X(nvmlDeviceGetPciInfo_v2, nv_device d, struct nv_pci_info *pci)                               \
    X(nvmlDeviceGetPciInfo_v3, nv_device d, struct nv_pci_info *pci)                               \
    X(nvmlDeviceGetPciInfoExt, nv_device d, struct nv_pci_info_ext *pci)                           \
    X(nvmlDeviceGetVirtualizationMode, nv_device d, unsigned *mode)                                \
    X(nvmlDeviceGetPersistenceMode, nv_device d, unsigned *mode)                                   \
    X(nvmlDeviceSetPersistenceMode, nv_device d, unsigned mode)                                    \
    X(nvmlDeviceGetComputeMode, nv_device d, unsigned *mode)                                       \
    X(nvmlDeviceSetComputeMode, nv_device d, unsigned mode)                                        \
    X(nvmlDeviceGetAddressingMode, nv_device d, struct nv_addressing_mode *mode)                   \
    X(nvmlDeviceGetCapabilities, nv_device d, struct nv_capabilities *caps)                        \
    X(nvmlDeviceGetPdi, nv_device d, struct nv_pdi *pdi)                                           \
    X(nvmlDeviceGetPlatformInfo, nv_device d, struct nv_platform_info *info)                       \
    X(nvmlDeviceGetDisplayMode, nv_device d, unsigned *mode)                                       \
    X(nvmlDeviceGetDisplayActive, nv_device d, unsigned *active)                                   \
    X(nvmlDeviceGetAccountingMode, nv_device d, unsigned *mode)

#define NV_CALLS_TELEMETRY(X)                                                                      \
    X(nvmlDeviceGetMemoryInfo, nv_device d, struct nv_memory *memory)                              \
    X(nvmlDeviceGetMemoryInfo_v2, nv_device d, struct nv_memory_v2 *memory)                        \
    X(nvmlDeviceGetBAR1MemoryInfo, nv_device d, struct nv_bar1_memory *memory)                     \
    X(nvmlDeviceGetUtilizationRates, nv_device d, struct nv_utilization *rates)                    \
    X(nvmlDeviceGetEncoderUtilization, nv_device d, unsigned *percent, unsigned *period_us)        \
    X(nvmlDeviceGetDecoderUtilization, nv_device d, unsigned *percent, unsigned *period_us)        \
    X(nvmlDeviceGetTemperature, nv_device d, unsigned sensor, unsigned *celsius)                   \
    X(nvmlDeviceGetTemperatureV, nv_device d, struct nv_temperature *temperature)                  \
    X(nvmlDeviceGetTemperatureThreshold, nv_device d, unsigned threshold, unsigned *celsius)       \
    X(nvmlDeviceGetMarginTemperature, nv_device d, struct nv_margin_temperature *margin)           \
    X(nvmlDeviceGetFanSpeed, nv_device d, unsigned *percent)                                       \
    X(nvmlDeviceGetNumFans, nv_device d, unsigned *n)                                              \
    X(nvmlDeviceGetPowerUsage, nv_device d, unsigned *mw)                                          \
    X(nvmlDeviceGetEnforcedPowerLimit, nv_device d, unsigned *mw)                                  \
    X(nvmlDeviceGetPowerManagementLimit, nv_device d, unsigned *mw)                                \
    X(nvmlDeviceGetPowerManagementDefaultLimit, nv_device d, unsigned *mw)                         \
    X(nvmlDeviceGetPowerManagementLimitConstraints, nv_device d, unsigned *min, unsigned *max)     \
    X(nvmlDeviceGetTotalEnergyConsumption, nv_device d, unsigned long long *mj)                    \
    X(nvmlDeviceGetClockInfo, nv_device d, unsigned clock, unsigned *mhz)                          \
    X(nvmlDeviceGetMaxClockInfo, nv_device d, unsigned clock, unsigned *mhz)                       \
    X(nvmlDeviceGetPerformanceState, nv_device d, unsigned *state)                                 \
    X(nvmlDeviceGetCurrentClocksEventReasons, nv_device d, unsigned long long *bits)               \
    X(nvmlDeviceGetCurrentClocksThrottleReasons, nv_device d, unsigned long long *bits)            \
    X(nvmlDeviceGetSupportedClocksEventReasons, nv_device d, unsigned long long *bits)             \
    X(nvmlDeviceGetViolationStatus, nv_device d, unsigned policy, struct nv_violation_time *time)  \
    X(nvmlDeviceGetEccMode, nv_device d, unsigned *current, unsigned *pending)                     \
    X(nvmlDeviceGetTotalEccErrors, nv_device d, unsigned error, unsigned counter,                  \
      unsigned long long *n)                                                                       \
    X(nvmlDeviceGetMemoryErrorCounter, nv_device d, unsigned error, unsigned counter,              \
      unsigned location, unsigned long long *n)                                                    \
    X(nvmlDeviceGetSramEccErrorStatus, nv_device d, struct nv_sram_ecc_status *status)             \
    X(nvmlDeviceGetRemappedRows, nv_device d, unsigned *corrected, unsigned *uncorrected,          \
      unsigned *pending, unsigned *failed)                                                         \
    X(nvmlDeviceGetRowRemapperHistogram, nv_device d, struct nv_remap_histogram *histogram)        \
    X(nvmlDeviceGetRetiredPages, nv_device d, unsigned cause, unsigned *n,                         \
      unsigned long long *addresses)                                                               \
    X(nvmlDeviceGetRetiredPages_v2, nv_device d, unsigned cause, unsigned *n,                      \
      unsigned long long *addresses, unsigned long long *timestamps)                               \
    X(nvmlDeviceGetRetiredPagesPendingStatus, nv_device d, unsigned *pending)                      \
    X(nvmlDeviceGetRepairStatus, nv_device d, struct nv_repair_status *status)                     \
    X(nvmlDeviceGetFieldValues, nv_device d, int n, struct nv_field_value *values)                 \
    X(nvmlDeviceGetPcieThroughput, nv_device d, unsigned counter, unsigned *kb_s)                  \
    X(nvmlDeviceGetCurrPcieLinkGeneration, nv_device d, unsigned *generation)                      \
    X(nvmlDeviceGetMaxPcieLinkGeneration, nv_device d, unsigned *generation)                       \
    X(nvmlDeviceGetCurrPcieLinkWidth, nv_device d, unsigned *width)                                \
    X(nvmlDeviceGetMaxPcieLinkWidth, nv_device d, unsigned *width)                                 \
    X(nvmlDeviceGetPcieReplayCounter, nv_device d, unsigned *n)                                    \
    X(nvmlDeviceGetComputeRunningProcesses, nv_device d, unsigned *n, struct nv_process_v1 *items) \
    X(nvmlDeviceGetComputeRunningProcesses_v2, nv_device d, unsigned *n, struct nv_process *items) \
    X(nvmlDeviceGetComputeRunningProcesses_v3, nv_device d, unsigned *n, struct nv_process *items) \
    X(nvmlDeviceGetGraphicsRunningProcesses, nv_device d, unsigned *n,                             \
      struct nv_process_v1 *items)                                                                 \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, nv_device d, unsigned *n,                          \
      struct nv_process *items)                                                                    \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, nv_device d, unsigned *n,                          \
      struct nv_process *items)                                                                    \
    X(nvmlDeviceGetMPSComputeRunningProcesses, nv_device d, unsigned *n,                           \
      struct nv_process_v1 *items)                                                                 \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2, nv_device d, unsigned *n,                        \
      struct nv_process *items)                                                                    \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, nv_device d, unsigned *n,                        \
      struct nv_process *items)                                                                    \
    X(nvmlDeviceGetRunningProcessDetailList, nv_device d, struct nv_process_detail_list *list)     \
    X(nvmlDeviceGetProcessUtilization, nv_device d, struct nv_process_utilization *items,          \
      unsigned *n, unsigned long long since_us)                                                    \
    X(nvmlDeviceGetSamples, nv_device d, unsigned type, unsigned long long since_us,               \
      unsigned *value_type, unsigned *n, struct nv_sample *items)                                  \
    X(nvmlGpmQueryDeviceSupport, nv_device d, struct nv_gpm_support *support)                      \
    X(nvmlGpmSampleAlloc, nv_gpm_sample *sample)                                                   \
    X(nvmlGpmSampleFree, nv_gpm_sample sample)                                                     \
    X(nvmlGpmSampleGet, nv_device d, nv_gpm_sample sample)                                         \
    X(nvmlGpmMigSampleGet, nv_device d, unsigned gi, nv_gpm_sample sample)                         \
    X(nvmlGpmMetricsGet, struct nv_gpm_metrics *metrics)

#define NV_CALLS_TOPOLOGY(X)                                                                       \
    X(nvmlDeviceGetTopologyCommonAncestor, nv_device a, nv_device b, unsigned *level)              \
    X(nvmlDeviceGetTopologyNearestGpus, nv_device d, unsigned level, unsigned *n,                  \
      nv_device *devices)                                                                          \
    X(nvmlDeviceGetP2PStatus, nv_device a, nv_device b, unsigned index, unsigned *status)          \
    X(nvmlDeviceGetCpuAffinity, nv_device d, unsigned words, unsigned long *set)                   \
    X(nvmlDeviceGetMemoryAffinity, nv_device d, unsigned words, unsigned long *set,                \
      unsigned scope)                                                                              \
    X(nvmlDeviceGetNumaNodeId, nv_device d, unsigned *node)                                        \
    X(nvmlDeviceGetNvLinkState, nv_device d, unsigned link, unsigned *active)                      \
    X(nvmlDeviceGetNvLinkVersion, nv_device d, unsigned link, unsigned *version)                   \
    X(nvmlDeviceGetNvLinkCapability, nv_device d, unsigned link, unsigned capability,              \
      unsigned *value)                                                                             \
    X(nvmlDeviceGetNvLinkRemotePciInfo, nv_device d, unsigned link, struct nv_pci_info *pci)       \
    X(nvmlDeviceGetNvLinkRemotePciInfo_v2, nv_device d, unsigned link, struct nv_pci_info *pci)    \
    X(nvmlDeviceGetNvLinkRemoteDeviceType, nv_device d, unsigned link, unsigned *type)             \
    X(nvmlDeviceGetNvLinkErrorCounter, nv_device d, unsigned link, unsigned counter,               \
      unsigned long long *n)                                                                       \
    X(nvmlDeviceGetNvLinkInfo, nv_device d, struct nv_nvlink_info *info)                           \
    X(nvmlDeviceGetC2cModeInfoV, nv_device d, struct nv_c2c_mode *mode)                            \
    X(nvmlDeviceGetGpuFabricInfo, nv_device d, struct nv_fabric_info_v1 *info)                     \
    X(nvmlDeviceGetGpuFabricInfoV, nv_device d, void *info) /* nv_fabric_info_v2 or _v3 */

#define NV_CALLS_MIG(X)                                                                            \
    X(nvmlDeviceGetMigMode, nv_device d, unsigned *current, unsigned *pending)                     \
    X(nvmlDeviceSetMigMode, nv_device d, unsigned mode, nv_return *activation)                     \
    X(nvmlDeviceGetMaxMigDeviceCount, nv_device d, unsigned *n)                                    \
    X(nvmlDeviceGetMigDeviceHandleByIndex, nv_device d, unsigned slot, nv_device *mig)             \
    X(nvmlDeviceIsMigDeviceHandle, nv_device d, unsigned *is)                                      \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nv_device mig, nv_device *parent)              \
    X(nvmlDeviceGetGpuInstanceId, nv_device mig, unsigned *id)                                     \
    X(nvmlDeviceGetComputeInstanceId, nv_device mig, unsigned *id)                                 \
    X(nvmlDeviceGetAttributes, nv_device mig, struct nv_attributes *attributes)                    \
    X(nvmlDeviceGetAttributes_v2, nv_device mig, struct nv_attributes *attributes)                 \
    X(nvmlDeviceGetGpuInstanceProfileInfo, nv_device d, unsigned index,                            \
      struct nv_gi_profile_info *info)                                                             \
    X(nvmlDeviceGetGpuInstanceProfileInfoV, nv_device d, unsigned index,                           \
      void *info) /* nv_gi_profile_info_v2 or _v3 */                                               \
    X(nvmlDeviceGetGpuInstancePossiblePlacements, nv_device d, unsigned profile,                   \
      struct nv_placement *items, unsigned *n)                                                     \
    X(nvmlDeviceGetGpuInstancePossiblePlacements_v2, nv_device d, unsigned profile,                \
      struct nv_placement *items, unsigned *n)                                                     \
    X(nvmlDeviceGetGpuInstanceRemainingCapacity, nv_device d, unsigned profile, unsigned *n)       \
    X(nvmlDeviceCreateGpuInstance, nv_device d, unsigned profile, nv_gi *gi)                       \
    X(nvmlDeviceCreateGpuInstanceWithPlacement, nv_device d, unsigned profile,                     \
      const struct nv_placement *placement, nv_gi *gi)                                             \
    X(nvmlGpuInstanceDestroy, nv_gi gi)                                                            \
    X(nvmlDeviceGetGpuInstances, nv_device d, unsigned profile, nv_gi *items, unsigned *n)         \
    X(nvmlDeviceGetGpuInstanceById, nv_device d, unsigned id, nv_gi *gi)                           \
    X(nvmlGpuInstanceGetInfo, nv_gi gi, struct nv_gi_info *info)                                   \
    X(nvmlGpuInstanceGetComputeInstanceProfileInfo, nv_gi gi, unsigned index, unsigned engine,     \
      struct nv_ci_profile_info *info)                                                             \
    X(nvmlGpuInstanceGetComputeInstanceProfileInfoV, nv_gi gi, unsigned index, unsigned engine,    \
      void *info) /* nv_ci_profile_info_v2 or _v3 */                                               \
    X(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, nv_gi gi, unsigned profile, unsigned *n) \
    X(nvmlGpuInstanceGetComputeInstancePossiblePlacements, nv_gi gi, unsigned profile,             \
      struct nv_placement *items, unsigned *n)                                                     \
    X(nvmlGpuInstanceCreateComputeInstance, nv_gi gi, unsigned profile, nv_ci *ci)                 \
    X(nvmlGpuInstanceCreateComputeInstanceWithPlacement, nv_gi gi, unsigned profile,               \
      const struct nv_placement *placement, nv_ci *ci)                                             \
    X(nvmlComputeInstanceDestroy, nv_ci ci)                                                        \
    X(nvmlGpuInstanceGetComputeInstances, nv_gi gi, unsigned profile, nv_ci *items, unsigned *n)   \
    X(nvmlGpuInstanceGetComputeInstanceById, nv_gi gi, unsigned id, nv_ci *ci)                     \
    X(nvmlComputeInstanceGetInfo, nv_ci ci, struct nv_ci_info_v1 *info)                            \
    X(nvmlComputeInstanceGetInfo_v2, nv_ci ci, struct nv_ci_info *info)

#define NV_CALLS_EVENTS(X)                                                                         \
    X(nvmlEventSetCreate, nv_event_set *set)                                                       \
    X(nvmlEventSetFree, nv_event_set set)                                                          \
    X(nvmlDeviceGetSupportedEventTypes, nv_device d, unsigned long long *mask)                     \
    X(nvmlDeviceRegisterEvents, nv_device d, unsigned long long mask, nv_event_set set)            \
    X(nvmlEventSetWait, nv_event_set set, struct nv_event_data_v1 *data, unsigned ms)              \
    X(nvmlEventSetWait_v2, nv_event_set set, struct nv_event_data *data, unsigned ms)              \
    X(nvmlSystemEventSetCreate, struct nv_system_event_create *request)                            \
    X(nvmlSystemEventSetFree, struct nv_system_event_free *request)                                \
    X(nvmlSystemRegisterEvents, struct nv_system_event_register *request)                          \
    X(nvmlSystemEventSetWait, struct nv_system_event_wait *request)

#define NV_CALLS(X)                                                                                \
    NV_CALLS_SYSTEM(X)                                                                             \
    NV_CALLS_IDENTITY(X)                                                                           \
    NV_CALLS_TELEMETRY(X)                                                                          \
    NV_CALLS_TOPOLOGY(X)                                                                           \
    NV_CALLS_MIG(X)                                                                                \
    NV_CALLS_EVENTS(X)

#define NV_POINTER_TYPE(symbol, ...) typedef nv_return (*nv_fn_##symbol)(__VA_ARGS__);
NV_CALLS(NV_POINTER_TYPE)
#undef NV_POINTER_TYPE

typedef const char *(*nv_fn_nvmlErrorString)(nv_return code);
