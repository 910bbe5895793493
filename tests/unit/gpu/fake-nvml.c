/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small NVML for the tests of src/gpu. What it answers is in the file that METE_SIM_FAKE names,
 * as "key=number" words, read anew at each call: so a test changes the world under a running
 * worker. FAKE_OLD leaves out what drivers before 510 do not have.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu/nvml_calls.h"

#define FAKE_CALL(symbol, ...) __attribute__((visibility("default"))) nv_return symbol(__VA_ARGS__);
NV_CALLS(FAKE_CALL)
#undef FAKE_CALL

enum { GPUS = 64, SLOTS = 7 };

/* Handles are addresses in here: gpus first, then MIG devices, instances. */
static char handles[GPUS], mig_handles[GPUS][SLOTS];
#ifndef FAKE_OLD
static char gi_handles[GPUS][SLOTS], ci_handles[GPUS][SLOTS];
#endif
static int set_handle;

/* ---- the control file ---- */

static unsigned long long value(const char *key, unsigned long long deflt)
{
    char text[4096];
    const char *path = getenv("METE_SIM_FAKE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    size_t length = strlen(key);
    for (char *word = text; word; word = strchr(word, ' ')) {
        word += strspn(word, " \n");
        if (strncmp(word, key, length) == 0 && word[length] == '=')
            return strtoull(word + length + 1, NULL, 0);
    }
    return deflt;
}

static unsigned long long gpu_value(const char *key, size_t gpu, unsigned long long deflt)
{
    char own[64];
    snprintf(own, sizeof own, "%s%zu", key, gpu);
    return value(own, value(key, deflt));
}

static void pause_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

static void hang_if(const char *key, size_t gpu)
{
    while (gpu_value(key, gpu, 0))
        pause_ms(20);
}

static size_t gpu_of(nv_device d)
{
    const char *p = (const char *)d;
    if (p >= handles && p < handles + GPUS)
        return (size_t)(p - handles);
    return (size_t)(p - &mig_handles[0][0]) / SLOTS;
}

static __attribute__((unused)) size_t slot_of(nv_device d)
{
    return (size_t)((const char *)d - &mig_handles[0][0]) % SLOTS;
}

static int is_mig(nv_device d)
{
    const char *p = (const char *)d;
    return p >= &mig_handles[0][0] && p < &mig_handles[0][0] + sizeof mig_handles;
}

/* The code that every call on a gpu gives: "call3=15". */
static nv_return on(nv_device d)
{
    return (nv_return)gpu_value("call", gpu_of(d), 0);
}

static nv_return text_out(char *to, unsigned size, const char *text)
{
    if (strlen(text) >= size)
        return NV_E_SIZE;
    memcpy(to, text, strlen(text) + 1);
    return NV_OK;
}

/* ---- system ---- */

nv_return nvmlInit(void)
{
    hang_if("hang_init", 0);
    return (nv_return)value("init", 0);
}

#ifndef FAKE_OLD
nv_return nvmlInit_v2(void)
{
    return nvmlInit();
}

nv_return nvmlInitWithFlags(unsigned flags)
{
    return flags == NV_INIT_NO_GPUS ? nvmlInit() : NV_E_ARGUMENT;
}
#endif

nv_return nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    return text_out(text, size, value("new_driver", 0) ? "590.1.2" : "580.3.4");
}

nv_return nvmlSystemGetCudaDriverVersion(int *version)
{
    *version = 13000;
    return NV_OK;
}

nv_return nvmlDeviceGetCount(unsigned *n)
{
    nv_return r = (nv_return)value("count", 0);
    if (r == NV_OK)
        *n = (unsigned)value("gpus", 2);
    return r;
}

#ifndef FAKE_OLD
nv_return nvmlDeviceGetCount_v2(unsigned *n)
{
    return nvmlDeviceGetCount(n);
}
#endif

nv_return nvmlDeviceGetHandleByIndex(unsigned index, nv_device *d)
{
    hang_if("hang_handle", index);
    pause_ms((long)gpu_value("slow_handle", index, 0));
    if (index >= value("gpus", 2))
        return NV_E_ARGUMENT;
    nv_return r = (nv_return)gpu_value("handle", index, 0);
    if (r == NV_OK)
        *d = (nv_device)&handles[index];
    return r;
}

#ifndef FAKE_OLD
nv_return nvmlDeviceGetHandleByIndex_v2(unsigned index, nv_device *d)
{
    return nvmlDeviceGetHandleByIndex(index, d);
}
#endif

/* ---- one gpu ---- */

nv_return nvmlDeviceGetUUID(nv_device d, char *text, unsigned size)
{
    char uuid[80];
    nv_return r = on(d);
    size_t number = gpu_value("uuid", gpu_of(d), gpu_of(d));
    if (r != NV_OK)
        return r;
    if (is_mig(d))
        snprintf(uuid, sizeof uuid, "MIG-0000-%zu-%zu", number, slot_of(d));
    else
        snprintf(uuid, sizeof uuid, "GPU-0000-%zu", number);
    return text_out(text, size, uuid);
}

nv_return nvmlDeviceGetName(nv_device d, char *text, unsigned size)
{
    static const char *const names[] = { "NVIDIA Test", "NVIDIA DGX Display", "NVIDIA Thor",
                                         "Bad\nname\x7F" };
    return text_out(text, size, names[gpu_value("name", gpu_of(d), 0) % 4]);
}

nv_return nvmlDeviceGetMinorNumber(nv_device d, unsigned *minor)
{
    *minor = (unsigned)gpu_of(d) + 4;
    return on(d);
}

nv_return nvmlDeviceGetCudaComputeCapability(nv_device d, int *major, int *minor)
{
    *major = 9;
    *minor = 0;
    return on(d);
}

nv_return nvmlDeviceGetPciInfo(nv_device d, struct nv_pci_info *pci)
{
    if (value("no_pci", 0))
        return NV_E_NOT_SUPPORTED;
    *pci = (struct nv_pci_info){ .domain = (uint32_t)value("domain", 0),
                                 .bus = 0x1a + (uint32_t)gpu_of(d),
                                 .pci_device = 0x233010DE };
    return on(d);
}

#ifndef FAKE_OLD
nv_return nvmlDeviceGetMemoryInfo_v2(nv_device d, struct nv_memory_v2 *m)
{
    if (m->version != NV_VERSION(struct nv_memory_v2, 2))
        return NV_E_VERSION;
    m->total = gpu_value("memory2_", gpu_of(d), 85520809984u);
    return on(d) ? on(d) : (nv_return)gpu_value("memory2_code", gpu_of(d), 0);
}

nv_return nvmlDeviceGetBAR1MemoryInfo(nv_device d, struct nv_bar1_memory *m)
{
    m->total = gpu_value("bar1_", gpu_of(d), 0);
    return m->total ? NV_OK : NV_E_NOT_SUPPORTED;
}

nv_return nvmlDeviceGetTotalEnergyConsumption(nv_device d, unsigned long long *mj)
{
    *mj = gpu_value("energy", gpu_of(d), 1000);
    return on(d);
}

nv_return nvmlDeviceGetFieldValues(nv_device d, int n, struct nv_field_value *values)
{
    for (int i = 0; i < n; i++) {
        values[i].ret = values[i].field == NV_FIELD_RECOVERY_ACTION ? NV_OK : NV_E_NOT_SUPPORTED;
        values[i].type = NV_VALUE_U32;
        values[i].value.u32 = (uint32_t)gpu_value("recovery", gpu_of(d), 0);
    }
    return on(d);
}

nv_return nvmlDeviceGetGpuFabricInfoV(nv_device d, void *info)
{
    uint32_t version;
    memcpy(&version, info, sizeof version);
    if (version != NV_VERSION(struct nv_fabric_info_v2, 2)) /* knows no v3 */
        return NV_E_VERSION;
    struct nv_fabric_info_v2 v2 = {
        .version = version, .clique = 7, .state = 3, .health = NV_FABRIC_HEALTH_GOOD
    };
    memset(v2.cluster, 0xAB, sizeof v2.cluster);
    memcpy(info, &v2, sizeof v2);
    return on(d);
}
#endif

nv_return nvmlDeviceGetMemoryInfo(nv_device d, struct nv_memory *m)
{
    m->total = gpu_value("memory1_", gpu_of(d), 85000000000u);
    return on(d) ? on(d) : (nv_return)gpu_value("memory1_code", gpu_of(d), 0);
}

nv_return nvmlDeviceGetTotalEccErrors(nv_device d, unsigned error, unsigned counter,
                                      unsigned long long *n)
{
    *n = gpu_value("ecc", gpu_of(d), 0);
    return on(d);
}

/* ---- topology: each gpu has four links, two to each of two switches, or to its neighbour ---- */

nv_return nvmlDeviceGetTopologyCommonAncestor(nv_device a, nv_device b, unsigned *level)
{
    *level = NV_TOPOLOGY_NODE;
    return (nv_return)value("ancestor", 0);
}

nv_return nvmlDeviceGetNvLinkState(nv_device d, unsigned link, unsigned *active)
{
    if (value("no_links", 0))
        return NV_E_NOT_SUPPORTED;
    *active = 1;
    return link < 4 ? NV_OK : NV_E_ARGUMENT;
}

nv_return nvmlDeviceGetNvLinkRemotePciInfo(nv_device d, unsigned link, struct nv_pci_info *pci)
{
    uint32_t bus = 0xC0 + link % 2;
    if (value("direct", 0))
        bus = 0x1a + ((uint32_t)gpu_of(d) ^ 1);
    *pci = (struct nv_pci_info){ .bus = bus };
    return NV_OK;
}

#ifndef FAKE_OLD
nv_return nvmlDeviceGetNvLinkRemoteDeviceType(nv_device d, unsigned link, unsigned *type)
{
    *type = value("direct", 0) ? NV_REMOTE_GPU : NV_REMOTE_SWITCH;
    return NV_OK;
}

/* ---- MIG: bits of "mig0=0x15" are the slots in use ---- */

nv_return nvmlDeviceGetMigMode(nv_device d, unsigned *current, unsigned *pending)
{
    *current = gpu_value("mig", gpu_of(d), 0) != 0;
    *pending = *current;
    return on(d);
}

nv_return nvmlDeviceGetMaxMigDeviceCount(nv_device d, unsigned *n)
{
    *n = SLOTS;
    return on(d);
}

nv_return nvmlDeviceGetMigDeviceHandleByIndex(nv_device d, unsigned slot, nv_device *mig)
{
    if (value("mig_code", 0))
        return (nv_return)value("mig_code", 0);
    if (slot >= SLOTS || !(gpu_value("mig", gpu_of(d), 0) & 1u << slot))
        return NV_E_NOT_FOUND;
    *mig = (nv_device)&mig_handles[gpu_of(d)][slot];
    return NV_OK;
}

nv_return nvmlDeviceGetGpuInstanceId(nv_device mig, unsigned *id)
{
    *id = 7 + (unsigned)slot_of(mig);
    return NV_OK;
}

nv_return nvmlDeviceGetComputeInstanceId(nv_device mig, unsigned *id)
{
    *id = 0;
    return NV_OK;
}

nv_return nvmlDeviceGetAttributes_v2(nv_device mig, struct nv_attributes *a)
{
    *a = (struct nv_attributes){
        .multiprocessors = 16, .copy_engines = 1, .gi_slices = 1, .ci_slices = 1, .memory_mb = 9984
    };
    return NV_OK;
}

nv_return nvmlDeviceGetGpuInstanceById(nv_device d, unsigned id, nv_gi *gi)
{
    if (id < 7 || id >= 7 + SLOTS)
        return NV_E_NOT_FOUND;
    *gi = (nv_gi)&gi_handles[gpu_of(d)][id - 7];
    return NV_OK;
}

static unsigned gi_slot(nv_gi gi)
{
    return (unsigned)((const char *)gi - &gi_handles[0][0]) % SLOTS;
}

/* Slot 2 was made of the profile with the media engines. */
nv_return nvmlGpuInstanceGetInfo(nv_gi gi, struct nv_gi_info *info)
{
    unsigned slot = gi_slot(gi);
    *info = (struct nv_gi_info){ .id = 7 + slot,
                                 .profile = slot == 2 ? 20 : 19,
                                 .placement = { .start = slot, .size = 1 } };
    return NV_OK;
}

nv_return nvmlDeviceGetGpuInstanceProfileInfo(nv_device d, unsigned index,
                                              struct nv_gi_profile_info *info)
{
    if (index >= NV_GI_PROFILES)
        return NV_E_ARGUMENT;
    if (index != NV_GI_1_SLICE && index != NV_GI_1_SLICE_REV1)
        return NV_E_NOT_SUPPORTED;
    *info = (struct nv_gi_profile_info){ .id = index == NV_GI_1_SLICE ? 19 : 20, .slices = 1 };
    return NV_OK;
}

nv_return nvmlGpuInstanceGetComputeInstanceById(nv_gi gi, unsigned id, nv_ci *ci)
{
    *ci = (nv_ci)&ci_handles[0][gi_slot(gi)];
    return id == 0 ? NV_OK : NV_E_NOT_FOUND;
}

nv_return nvmlComputeInstanceGetInfo_v2(nv_ci ci, struct nv_ci_info *info)
{
    *info = (struct nv_ci_info){ .profile = 0 };
    return NV_OK;
}

nv_return nvmlGpuInstanceGetComputeInstanceProfileInfo(nv_gi gi, unsigned index, unsigned engine,
                                                       struct nv_ci_profile_info *info)
{
    if (index != NV_CI_1_SLICE)
        return NV_E_NOT_SUPPORTED;
    *info = (struct nv_ci_profile_info){ .id = 0, .slices = 1 };
    return NV_OK;
}
#endif

/* ---- events: a new "event_seq" is one event ---- */

nv_return nvmlEventSetCreate(nv_event_set *set)
{
    *set = (nv_event_set)&set_handle;
    return (nv_return)value("set_code", 0);
}

nv_return nvmlEventSetFree(nv_event_set set)
{
    return NV_OK;
}

nv_return nvmlDeviceGetSupportedEventTypes(nv_device d, unsigned long long *mask)
{
    *mask = value("events", NV_EVENT_XID | NV_EVENT_ECC_DOUBLE | NV_EVENT_MIG_CONFIG);
    return on(d);
}

nv_return nvmlDeviceRegisterEvents(nv_device d, unsigned long long mask, nv_event_set set)
{
    if (mask & ~value("events", NV_EVENT_XID | NV_EVENT_ECC_DOUBLE | NV_EVENT_MIG_CONFIG))
        return NV_E_NOT_SUPPORTED;
    return (nv_return)gpu_value("register", gpu_of(d), 0);
}

nv_return nvmlEventSetWait(nv_event_set set, struct nv_event_data_v1 *data, unsigned ms)
{
    static unsigned long long told;
    for (unsigned waited = 0; waited < ms; waited += 5) {
        nv_return failed = (nv_return)value("wait", 0);
        if (failed != NV_OK)
            return failed;
        unsigned long long seq = value("event_seq", 0);
        if (seq != told) {
            told = seq;
            *data = (struct nv_event_data_v1){
                .device = value("event_anonymous", 0)
                              ? NULL
                              : (nv_device)&handles[value("event_gpu", 0) % GPUS],
                .type = value("event_type", NV_EVENT_XID),
                .data = value("event_data", 79),
            };
            return NV_OK;
        }
        pause_ms(5);
    }
    return NV_E_TIMEOUT;
}

#ifndef FAKE_OLD
nv_return nvmlEventSetWait_v2(nv_event_set set, struct nv_event_data *data, unsigned ms)
{
    struct nv_event_data_v1 v1;
    nv_return r = nvmlEventSetWait(set, &v1, ms);
    if (r == NV_OK)
        *data = (struct nv_event_data){ v1.device, v1.type, v1.data,
                                        (uint32_t)value("event_gi", NV_NO_INSTANCE),
                                        (uint32_t)value("event_ci", NV_NO_INSTANCE) };
    return r;
}
#endif
