/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define LIBRARY "libnvidia-ml.so.1"

/* Where each pointer of struct nvml comes from: the first symbol that the library has. Forms whose
 * struct differs have a pointer each; forms listed together differ only in what they count or which
 * texts they fill (spec 1.1). */
static const struct {
    size_t at;
    const char *member, *symbols[3];
} table[] = {
#define ROW(member, ...)                                                                           \
    {                                                                                              \
        offsetof(struct nvml, member), #member,                                                    \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
    ROW(init, "nvmlInit_v2", "nvmlInit"),
    ROW(init_with_flags, "nvmlInitWithFlags"),
    ROW(shutdown, "nvmlShutdown"),
    ROW(driver_version, "nvmlSystemGetDriverVersion"),
    ROW(nvml_version, "nvmlSystemGetNVMLVersion"),
    ROW(cuda_version, "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"),
    ROW(count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"),
    ROW(by_index, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"),
    ROW(name, "nvmlDeviceGetName"),
    ROW(uuid, "nvmlDeviceGetUUID"),
    ROW(serial, "nvmlDeviceGetSerial"),
    ROW(minor, "nvmlDeviceGetMinorNumber"),
    ROW(module, "nvmlDeviceGetModuleId"),
    ROW(brand, "nvmlDeviceGetBrand"),
    ROW(arch, "nvmlDeviceGetArchitecture"),
    ROW(compute_capability, "nvmlDeviceGetCudaComputeCapability"),
    ROW(pci, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"),
    ROW(compute_mode, "nvmlDeviceGetComputeMode"),
    ROW(addressing, "nvmlDeviceGetAddressingMode"),
    ROW(memory_v2, "nvmlDeviceGetMemoryInfo_v2"),
    ROW(memory_v1, "nvmlDeviceGetMemoryInfo"),
    ROW(bar1, "nvmlDeviceGetBAR1MemoryInfo"),
    ROW(energy, "nvmlDeviceGetTotalEnergyConsumption"),
    ROW(ecc_errors, "nvmlDeviceGetTotalEccErrors"),
    ROW(remapped, "nvmlDeviceGetRemappedRows"),
    ROW(fields, "nvmlDeviceGetFieldValues"),
    ROW(ancestor, "nvmlDeviceGetTopologyCommonAncestor"),
    ROW(link_state, "nvmlDeviceGetNvLinkState"),
    ROW(link_remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"),
    ROW(link_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType"),
    ROW(fabric_v, "nvmlDeviceGetGpuFabricInfoV"),
    ROW(fabric_v1, "nvmlDeviceGetGpuFabricInfo"),
    ROW(mig_mode, "nvmlDeviceGetMigMode"),
    ROW(mig_max, "nvmlDeviceGetMaxMigDeviceCount"),
    ROW(mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex"),
    ROW(gi_id, "nvmlDeviceGetGpuInstanceId"),
    ROW(ci_id, "nvmlDeviceGetComputeInstanceId"),
    ROW(attributes, "nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes"),
    ROW(gi_profile, "nvmlDeviceGetGpuInstanceProfileInfo"),
    ROW(gi_by_id, "nvmlDeviceGetGpuInstanceById"),
    ROW(gi_info, "nvmlGpuInstanceGetInfo"),
    ROW(ci_by_id, "nvmlGpuInstanceGetComputeInstanceById"),
    ROW(ci_info, "nvmlComputeInstanceGetInfo_v2"),
    ROW(ci_info_v1, "nvmlComputeInstanceGetInfo"),
    ROW(ci_profile, "nvmlGpuInstanceGetComputeInstanceProfileInfo"),
    ROW(events_create, "nvmlEventSetCreate"),
    ROW(events_free, "nvmlEventSetFree"),
    ROW(events_wait_v2, "nvmlEventSetWait_v2"),
    ROW(events_wait_v1, "nvmlEventSetWait"),
    ROW(events_supported, "nvmlDeviceGetSupportedEventTypes"),
    ROW(events_register, "nvmlDeviceRegisterEvents"),
#undef ROW
};

static void take_symbols(struct nvml *n)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        void *found = NULL;
        for (size_t k = 0; k < ARRAY_LEN(table[i].symbols) && table[i].symbols[k] && !found; k++)
            found = dlsym(n->handle, table[i].symbols[k]);
        memcpy((char *)n + table[i].at, &found, sizeof found);
    }
}

const char *nvml_symbol(const char *member)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(table[i].member, member) == 0)
            return table[i].symbols[0];
    return member;
}

/* ---- finding and loading ---- */

/* The peer's list (spec/device-plugin.md 2.1), then where distributions without multiarch and WSL
 * have it. */
static const char *const directories[] = {
    "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/lib64",     "/lib/x86_64-linux-gnu",     "/lib/aarch64-linux-gnu",
    "/usr/lib",   "/usr/lib/wsl/lib",
};

bool nvml_find_library(const char *root, const char *name, char *ret, size_t size)
{
    for (size_t i = 0; i < ARRAY_LEN(directories); i++) {
        auto_free char *path = x_printf("%s/%s", directories[i], name);
        if (nvml_resolve(root, path, ret, size))
            return true;
    }
    return false;
}

/* Lazy binding: a library whose own dependencies are incomplete can still answer most calls. */
static void *load(const char *path)
{
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

static void note_path(struct nvml *n, const char *path)
{
    struct link_map *map = NULL;
    if (dlinfo(n->handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0])
        path = map->l_name;
    snprintf(n->path, sizeof n->path, "%s", path);
}

enum driver_state nvml_open(const struct host *h, struct nvml **ret, struct error *err)
{
    char path[sizeof((struct nvml *)NULL)->path] = LIBRARY;
    const char *root = h->driver_root_view;
    void *handle = strcmp(root, "/") == 0 ? load(LIBRARY) : NULL;
    if (!handle) {
        if (!nvml_find_library(root, LIBRARY, path, sizeof path)) {
            error_set(err, ERR_UNAVAILABLE, 0,
                      "%s not found under %s (looked in usr/lib64, usr/lib/<triplet>, lib64, "
                      "lib/<triplet>); install the driver there or point --driver-root at it",
                      LIBRARY, root);
            return DRIVER_NO_LIBRARY;
        }
        handle = load(path);
    }
    if (!handle) {
        const char *why = dlerror();
        error_set(err, ERR_UNAVAILABLE, 0, "%s cannot be loaded: %s", path, why ? why : "?");
        return DRIVER_BAD_LIBRARY;
    }

    struct nvml *n = x_alloc(sizeof *n);
    n->handle = handle;
    note_path(n, path);
    take_symbols(n);
    if (!n->init || !n->count || !n->by_index || !n->uuid) {
        error_set(err, ERR_UNAVAILABLE, 0,
                  "%s is no NVML: it lacks %s; it may be a stub of a toolkit, install the driver's",
                  n->path,
                  !n->init    ? "nvmlInit"
                  : !n->count ? "nvmlDeviceGetCount"
                  : !n->uuid  ? "nvmlDeviceGetUUID"
                              : "nvmlDeviceGetHandleByIndex");
        nvml_close(n);
        return DRIVER_BAD_LIBRARY;
    }
    *ret = n;
    return DRIVER_OK;
}

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    dlclose(n->handle);
    free(n);
}

static const struct {
    int code;
    enum driver_state state;
    const char *fix;
} starts[] = {
    { NV_E_DRIVER_NOT_LOADED, DRIVER_NOT_LOADED,
      "load it with \"modprobe nvidia\", or see the kernel log why it does not load" },
    { NV_E_VERSION_MISMATCH, DRIVER_VERSION_MISMATCH,
      "after a driver update: reload the kernel module or reboot" },
    { NV_E_NO_PERMISSION, DRIVER_NO_PERMISSION,
      "run as root or give access to /dev/nvidiactl and /dev/nvidia*" },
};

enum driver_state nvml_start(struct nvml *n, struct error *err)
{
    /* Without gpus there is a node without gpus, not a failure. */
    nv_return r = NV_E_NOT_SUPPORTED;
    if (n->init_with_flags)
        r = NVML_CALL(n, NVML_NO_GPU, init_with_flags, NV_INIT_NO_GPUS);
    if (r == NV_E_NOT_SUPPORTED || r == NV_E_ARGUMENT) {
        nvml_enter(n, "init", NVML_NO_GPU);
        r = nvml_leave(n, n->init());
    }
    if (r == NV_OK)
        return DRIVER_OK;

    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        if (starts[i].code != (int)r)
            continue;
        error_set(err, ERR_UNAVAILABLE, (int)r, "%s: %s (NVML %d); %s", n->path,
                  nvml_code_text((int)r), (int)r, starts[i].fix);
        return starts[i].state;
    }
    error_set(err, ERR_UNAVAILABLE, (int)r, "%s: start of NVML failed: %s (NVML %d)", n->path,
              nvml_code_text((int)r), (int)r);
    return DRIVER_ERROR;
}

/* ---- calls ---- */

nv_return nvml_fold(nv_return r)
{
    return r == NV_E_FUNCTION_NOT_FOUND || r == NV_E_DEPRECATED ? NV_E_NOT_SUPPORTED : r;
}

void nvml_enter(struct nvml *n, const char *call, uint32_t gpu)
{
    struct nvml_progress *p = n->progress;
    if (!p)
        return;
    snprintf(p->call, sizeof p->call, "%s", call);
    atomic_store_explicit(&p->gpu, gpu, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->calls, 1, memory_order_release);
}

nv_return nvml_leave(struct nvml *n, nv_return r)
{
    if (n->progress)
        n->progress->call[0] = '\0';
    return nvml_fold(r);
}

/* ---- codes in our own words ---- */

static const struct {
    int code;
    const char *name, *text;
} codes[] = {
    { NV_OK, "ok", "success" },
    { NV_E_UNINITIALIZED, "uninitialized", "NVML was not started" },
    { NV_E_ARGUMENT, "argument", "NVML refused an argument" },
    { NV_E_NOT_SUPPORTED, "not-supported", "this gpu or driver does not offer it" },
    { NV_E_NO_PERMISSION, "no-permission", "the driver denies access" },
    { NV_E_ALREADY_INITIALIZED, "already-initialized", "NVML was started before" },
    { NV_E_NOT_FOUND, "not-found", "the driver knows no such thing" },
    { NV_E_SIZE, "size", "NVML wants a larger buffer" },
    { NV_E_POWER, "power", "a power cable of the gpu is not attached" },
    { NV_E_DRIVER_NOT_LOADED, "driver-not-loaded", "the driver's kernel module is not loaded" },
    { NV_E_TIMEOUT, "timeout", "nothing happened in the time given" },
    { NV_E_IRQ, "irq", "the kernel found an interrupt problem with the gpu" },
    { NV_E_LIBRARY_NOT_FOUND, "library-not-found", "NVML misses a library of the driver" },
    { NV_E_FUNCTION_NOT_FOUND, "function-not-found", "this driver does not have the call" },
    { NV_E_INFOROM, "inforom", "the gpu's InfoROM is damaged" },
    { NV_E_GPU_IS_LOST, "gpu-is-lost", "the gpu is lost: it fell off the bus or does not answer" },
    { NV_E_RESET_REQUIRED, "reset-required", "the gpu needs a reset before it can be used" },
    { NV_E_OPERATING_SYSTEM, "operating-system", "the operating system blocks access to the gpu" },
    { NV_E_VERSION_MISMATCH, "version-mismatch",
      "the driver's library and its kernel module are of different versions" },
    { NV_E_IN_USE, "in-use", "the gpu is in use" },
    { NV_E_MEMORY, "memory", "the driver is out of memory" },
    { NV_E_NO_DATA, "no-data", "no data yet" },
    { NV_E_VGPU_ECC, "vgpu-ecc", "not possible on a virtual gpu with ECC" },
    { NV_E_RESOURCES, "resources", "no room left on the gpu" },
    { NV_E_FREQUENCY, "frequency", "this clock frequency is not offered" },
    { NV_E_VERSION, "version", "NVML does not know this version of a struct" },
    { NV_E_DEPRECATED, "deprecated", "the call was withdrawn from this driver" },
    { NV_E_NOT_READY, "not-ready", "the driver is not ready yet" },
    { NV_E_GPU_NOT_FOUND, "gpu-not-found", "there is no such gpu" },
    { NV_E_STATE, "state", "the gpu is not in a state that allows it" },
    { NV_E_RESET_TYPE, "reset-type", "the gpu does not offer this kind of reset" },
    { NV_E_UNKNOWN, "unknown", "the driver failed without saying why" },
};

static size_t code_place(int code)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].code == code)
            return i;
    return ARRAY_LEN(codes);
}

const char *nvml_code_name(int code)
{
    size_t i = code_place(code);
    return i < ARRAY_LEN(codes) ? codes[i].name : "not-in-table";
}

const char *nvml_code_text(int code)
{
    size_t i = code_place(code);
    return i < ARRAY_LEN(codes) ? codes[i].text : "a code that is in no table";
}

bool nvml_code_is_loss(int code)
{
    return code == NV_E_GPU_IS_LOST || code == NV_E_RESET_REQUIRED || code == NV_E_GPU_NOT_FOUND;
}
