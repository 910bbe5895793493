/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "sim/codes.h"
#include "sim/lib.h"

const char *nvmlErrorString(nv_return code)
{
    const struct sim_code *c = sim_code_of((uint32_t)code);
    return c ? c->text : "Unknown Error";
}

nv_return nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    char version[sizeof(((struct sim_world *)0)->driver_version)];
    sim_read_member(lib_map(), driver_version, version);
    return lib_text(text, size, version);
}

nv_return nvmlSystemGetNVMLVersion(char *text, unsigned size)
{
    nv_return r = lib_enter_early(__func__);
    if (r != NV_OK)
        return r;
    char version[sizeof(((struct sim_world *)0)->nvml_version)];
    sim_read_member(lib_map(), nvml_version, version);
    return lib_text(text, size, version);
}

static nv_return cuda_version(const char *call, int *version)
{
    nv_return r = lib_enter_early(call);
    if (r != NV_OK)
        return r;
    if (!version)
        return NV_E_ARGUMENT;
    sim_read_member(lib_map(), cuda_version, version);
    return NV_OK;
}

nv_return nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_version(__func__, version);
}

nv_return nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_version(__func__, version);
}

nv_return nvmlSystemGetDriverBranch(struct nv_driver_branch *branch, unsigned size)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!branch)
        return NV_E_ARGUMENT;
    if ((r = lib_version(branch->version, NV_VERSION(struct nv_driver_branch, 1))) != NV_OK)
        return r;
    char version[sizeof(((struct sim_world *)0)->driver_version)], text[48];
    sim_read_member(lib_map(), driver_version, version);
    snprintf(text, sizeof(text), "r%.*s_00", (int)strcspn(version, "."), version);
    return lib_text(branch->branch, MIN(size, (unsigned)sizeof(branch->branch)), text);
}

nv_return nvmlSystemGetConfComputeState(struct nv_conf_compute_state *state)
{
    nv_return r = lib_enter(__func__);
    return r != NV_OK ? r : !state ? NV_E_ARGUMENT : NV_E_NOT_SUPPORTED;
}

nv_return nvmlSystemGetConfComputeSettings(struct nv_conf_compute_settings *settings)
{
    nv_return r = lib_enter(__func__);
    return r != NV_OK ? r : !settings ? NV_E_ARGUMENT : NV_E_NOT_SUPPORTED;
}

nv_return nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!text || size == 0)
        return NV_E_ARGUMENT;
    char path[40], name[256];
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof(name) - 1);
    if (n <= 0)
        return NV_E_NOT_FOUND;
    name[n] = 0;
    snprintf(text, size, "%s", name); /* cut, as NVML does */
    return NV_OK;
}

nv_return nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *n, nv_device *devices)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!n || (*n > 0 && !devices))
        return NV_E_ARGUMENT;
    unsigned found = 0, room = *n;
    for (uint32_t i = 0, number; lib_number(i, &number); i++) {
        struct sim_gpu g;
        lib_read_gpu(number, &g);
        if (lib_lost(number, &g) || (g.numa >= 0 && cpu / 16 != (unsigned)g.numa))
            continue;
        if (found < room)
            devices[found] = lib_gpu_handle(number);
        found++;
    }
    *n = room == 0 ? found : MIN(found, room);
    return NV_OK;
}

nv_return nvmlGetExcludedDeviceCount(unsigned *n)
{
    nv_return r = lib_enter_early(__func__);
    if (r != NV_OK)
        return r;
    if (!n)
        return NV_E_ARGUMENT;
    *n = 0;
    return NV_OK;
}

nv_return nvmlGetExcludedDeviceInfoByIndex(unsigned index, struct nv_excluded_device *info)
{
    nv_return r = lib_enter_early(__func__);
    return r != NV_OK ? r : NV_E_ARGUMENT;
}
