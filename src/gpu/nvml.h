/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * One loaded NVML library: its symbols, newest form first, and calls that give "the driver does not
 * have this" one meaning. Only the worker process opens one.
 *
 * An absent symbol, FUNCTION_NOT_FOUND (13), DEPRECATED (26) and NOT_SUPPORTED (3) all come back as
 * NV_E_NOT_SUPPORTED (spec/nvml-and-cuda.md 1.1). Every other code is passed on.
 */
#include <stdatomic.h>

#include "base/host.h"
#include "gpu/nvml_calls.h"
#include "gpu/survey.h"

/* What a call is doing right now, in memory that the agent can read while the call hangs: written
 * before each call, cleared after it. Shared between processes: text is cut, never trusted. */
struct nvml_progress {
    _Atomic uint32_t calls; /* counts calls begun */
    _Atomic uint32_t gpu;   /* index that the call is about, NVML_NO_GPU: none */
    char call[56];          /* "" between calls */
    _Atomic uint32_t waits; /* of the event thread: odd while it is inside the driver's wait */
};
#define NVML_NO_GPU UINT32_MAX

/* Which struct or symbol form a versioned call was found in. */
struct nvml {
    void *handle;
    char path[256];                 /* of the library as this process sees it */
    struct nvml_progress *progress; /* NULL: not wanted; borrowed; of the request thread */

    nv_fn_nvmlInit_v2 init;
    nv_fn_nvmlInitWithFlags init_with_flags;
    nv_fn_nvmlShutdown shutdown;
    nv_fn_nvmlSystemGetDriverVersion driver_version;
    nv_fn_nvmlSystemGetNVMLVersion nvml_version;
    nv_fn_nvmlSystemGetCudaDriverVersion cuda_version;

    nv_fn_nvmlDeviceGetCount_v2 count;
    nv_fn_nvmlDeviceGetHandleByIndex_v2 by_index;
    nv_fn_nvmlDeviceGetName name;
    nv_fn_nvmlDeviceGetUUID uuid;
    nv_fn_nvmlDeviceGetSerial serial;
    nv_fn_nvmlDeviceGetMinorNumber minor;
    nv_fn_nvmlDeviceGetModuleId module;
    nv_fn_nvmlDeviceGetBrand brand;
    nv_fn_nvmlDeviceGetArchitecture arch;
    nv_fn_nvmlDeviceGetCudaComputeCapability compute_capability;
    nv_fn_nvmlDeviceGetPciInfo_v3 pci;
    nv_fn_nvmlDeviceGetComputeMode compute_mode;
    nv_fn_nvmlDeviceGetAddressingMode addressing;

    nv_fn_nvmlDeviceGetMemoryInfo_v2 memory_v2;
    nv_fn_nvmlDeviceGetMemoryInfo memory_v1;
    nv_fn_nvmlDeviceGetBAR1MemoryInfo bar1;
    nv_fn_nvmlDeviceGetTotalEnergyConsumption energy;
    nv_fn_nvmlDeviceGetTotalEccErrors ecc_errors;
    nv_fn_nvmlDeviceGetRemappedRows remapped;
    nv_fn_nvmlDeviceGetFieldValues fields;

    nv_fn_nvmlDeviceGetTopologyCommonAncestor ancestor;
    nv_fn_nvmlDeviceGetNvLinkState link_state;
    nv_fn_nvmlDeviceGetNvLinkRemotePciInfo_v2 link_remote_pci;
    nv_fn_nvmlDeviceGetNvLinkRemoteDeviceType link_remote_type;
    nv_fn_nvmlDeviceGetGpuFabricInfoV fabric_v;
    nv_fn_nvmlDeviceGetGpuFabricInfo fabric_v1;

    nv_fn_nvmlDeviceGetMigMode mig_mode;
    nv_fn_nvmlDeviceGetMaxMigDeviceCount mig_max;
    nv_fn_nvmlDeviceGetMigDeviceHandleByIndex mig_by_index;
    nv_fn_nvmlDeviceGetGpuInstanceId gi_id;
    nv_fn_nvmlDeviceGetComputeInstanceId ci_id;
    nv_fn_nvmlDeviceGetAttributes_v2 attributes;
    nv_fn_nvmlDeviceGetGpuInstanceProfileInfo gi_profile;
    nv_fn_nvmlDeviceGetGpuInstanceById gi_by_id;
    nv_fn_nvmlGpuInstanceGetInfo gi_info;
    nv_fn_nvmlGpuInstanceGetComputeInstanceById ci_by_id;
    nv_fn_nvmlComputeInstanceGetInfo_v2 ci_info;
    nv_fn_nvmlComputeInstanceGetInfo ci_info_v1;
    nv_fn_nvmlGpuInstanceGetComputeInstanceProfileInfo ci_profile;

    nv_fn_nvmlEventSetCreate events_create;
    nv_fn_nvmlEventSetFree events_free;
    nv_fn_nvmlEventSetWait_v2 events_wait_v2;
    nv_fn_nvmlEventSetWait events_wait_v1;
    nv_fn_nvmlDeviceGetSupportedEventTypes events_supported;
    nv_fn_nvmlDeviceRegisterEvents events_register;
};

/* Loads libnvidia-ml.so.1 from the driver root as this process sees it; with "/" the dynamic loader
 * is asked first. DRIVER_OK, or *ret stays NULL and err tells what was tried: DRIVER_NO_LIBRARY,
 * DRIVER_BAD_LIBRARY. Does not initialise. */
enum driver_state nvml_open(const struct host *h, struct nvml **ret, struct error *err);
void nvml_close(struct nvml *n); /* without nvmlShutdown; NULL allowed */

/* nvmlInit with the newest form. DRIVER_OK or what the failure means; err has the text. */
enum driver_state nvml_start(struct nvml *n, struct error *err);

/* Our own name and sentence for a return code; never NULL. */
const char *nvml_code_name(int code); /* "gpu-is-lost" */
const char *nvml_code_text(int code); /* "the gpu has fallen off the bus or …" */

/* The codes that mean that a gpu itself is gone or needs a reset: 15, 16, 28. */
bool nvml_code_is_loss(int code);

nv_return nvml_fold(nv_return r); /* 13 and 26 become 3 */
/* NVML's newest name for a member of struct nvml ("by_index"); the text itself if there is none. */
const char *nvml_symbol(const char *member);
void nvml_enter(struct nvml *n, const char *call, uint32_t gpu);
nv_return nvml_leave(struct nvml *n, nv_return r);

/* NVML_CALL(n, gpu index, member, arguments…): the call through the table, with progress and
 * folding; NV_E_NOT_SUPPORTED when the library lacks the symbol. */
#define NVML_CALL(n, index, member, ...)                                                           \
    ((n)->member ? (nvml_enter((n), #member, (index)), nvml_leave((n), (n)->member(__VA_ARGS__)))  \
                 : NV_E_NOT_SUPPORTED)

/* Device nodes and library directories are looked up inside a root: resolves `path` (absolute or
 * not) below `root`, following symbolic links as if `root` were "/". False when it does not exist
 * or does not fit. */
bool nvml_resolve(const char *root, const char *path, char *ret, size_t size);
/* The first of the driver's library directories under `root` that holds `name`. */
bool nvml_find_library(const char *root, const char *name, char *ret, size_t size);
