/* SPDX-License-Identifier: Apache-2.0 */
/* Enumeration and identity. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "sim/lib.h"

/* ---- finding devices ---- */

nv_return nvmlDeviceGetCount(unsigned *n)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!n)
        return NV_E_ARGUMENT;
    /* The first form counts only what the caller may open. */
    unsigned count = 0;
    for (uint32_t i = 0, number; lib_number(i, &number); i++) {
        struct sim_gpu g;
        lib_read_gpu(number, &g);
        count += g.handle_code != NV_E_NO_PERMISSION;
    }
    *n = count;
    return NV_OK;
}

nv_return nvmlDeviceGetCount_v2(unsigned *n)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!n)
        return NV_E_ARGUMENT;
    *n = lib_count();
    return NV_OK;
}

nv_return nvmlDeviceGetHandleByIndex_v2(unsigned index, nv_device *d)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    uint32_t number;
    if (!d || !lib_number(index, &number))
        return NV_E_ARGUMENT;
    return lib_take(__func__, number, d);
}

nv_return nvmlDeviceGetHandleByIndex(unsigned index, nv_device *d)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    /* Indices of the first form leave out what the caller may not open. */
    for (uint32_t i = 0, number; d && lib_number(i, &number); i++) {
        struct sim_gpu g;
        lib_read_gpu(number, &g);
        if (g.handle_code != NV_E_NO_PERMISSION && index-- == 0)
            return lib_take(__func__, number, d);
    }
    return NV_E_ARGUMENT;
}

static nv_return mig_by_uuid(const char *uuid, nv_device *d)
{
    if (!lib_may_monitor())
        return NV_E_NO_PERMISSION;
    for (uint32_t i = 0, number; lib_number(i, &number); i++) {
        struct sim_mig mig;
        struct sim_gpu g;
        lib_read_mig(number, &mig);
        lib_read_gpu(number, &g);
        for (int a = 0; a < SIM_GI_MAX; a++)
            for (int b = 0; mig.gi[a].used && b < SIM_CI_MAX; b++)
                if (mig.gi[a].ci[b].used && strcmp(mig.gi[a].ci[b].uuid, uuid) == 0) {
                    *d = lib_mig_handle(number, &mig.gi[a], &mig.gi[a].ci[b]);
                    return lib_lost(number, &g) ? NV_E_GPU_IS_LOST : NV_OK;
                }
    }
    return NV_E_NOT_FOUND;
}

static nv_return by_uuid(const char *call, const char *uuid, nv_device *d)
{
    if (!uuid || !d)
        return NV_E_ARGUMENT;
    if (strncmp(uuid, "MIG-", 4) == 0)
        return mig_by_uuid(uuid, d);
    for (uint32_t i = 0, number; lib_number(i, &number); i++) {
        struct sim_gpu g;
        lib_read_gpu(number, &g);
        if (strcmp(g.uuid, uuid) == 0)
            return lib_take(call, number, d);
    }
    return NV_E_NOT_FOUND;
}

nv_return nvmlDeviceGetHandleByUUID(const char *uuid, nv_device *d)
{
    nv_return r = lib_enter(__func__);
    return r != NV_OK ? r : by_uuid(__func__, uuid, d);
}

nv_return nvmlDeviceGetHandleByUUIDV(const struct nv_uuid *uuid, nv_device *d)
{
    char text[NV_UUID_ASCII_SIZE + 1] = "";
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!uuid)
        return NV_E_ARGUMENT;
    if ((r = lib_version(uuid->version, NV_VERSION(struct nv_uuid, 1))) != NV_OK)
        return r;
    if (uuid->type == NV_UUID_TYPE_ASCII) {
        memcpy(text, uuid->value.text, NV_UUID_ASCII_SIZE);
    } else if (uuid->type == NV_UUID_TYPE_BINARY) {
        const unsigned char *b = uuid->value.bytes;
        snprintf(text, sizeof(text),
                 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                 b[14], b[15]);
    } else {
        return NV_E_ARGUMENT;
    }
    return by_uuid(__func__, text, d);
}

nv_return nvmlDeviceGetHandleBySerial(const char *serial, nv_device *d)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!serial || !d)
        return NV_E_ARGUMENT;
    for (uint32_t i = 0, number; lib_number(i, &number); i++) {
        struct sim_gpu g;
        lib_read_gpu(number, &g);
        if (g.serial[0] && strcmp(g.serial, serial) == 0)
            return lib_take(__func__, number, d);
    }
    return NV_E_NOT_FOUND;
}

/* "00000000:1A:00.0", "0000:1a:00.0", "1a:00.0", with or without the function. */
static bool parse_bus_id(const char *text, unsigned *domain, unsigned *bus, unsigned *device)
{
    int n = 0;
    if (sscanf(text, "%8x:%2x:%2x%n", domain, bus, device, &n) != 3) {
        *domain = 0;
        if (sscanf(text, "%2x:%2x%n", bus, device, &n) != 2)
            return false;
    }
    return text[n] == 0 || strcmp(text + n, ".0") == 0;
}

static nv_return by_bus_id(const char *call, const char *bus_id, nv_device *d)
{
    nv_return r = lib_enter(call);
    if (r != NV_OK)
        return r;
    unsigned domain, bus, device;
    if (!bus_id || !d || !parse_bus_id(bus_id, &domain, &bus, &device))
        return NV_E_ARGUMENT;
    for (uint32_t i = 0, number; lib_number(i, &number); i++) {
        struct sim_gpu g;
        lib_read_gpu(number, &g);
        if (g.domain == domain && g.bus == bus && g.device == device)
            return lib_take(call, number, d);
    }
    return NV_E_NOT_FOUND;
}

nv_return nvmlDeviceGetHandleByPciBusId(const char *bus_id, nv_device *d)
{
    return by_bus_id(__func__, bus_id, d);
}

nv_return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nv_device *d)
{
    return by_bus_id(__func__, bus_id, d);
}

/* ---- texts ---- */

static bool find_ci(const struct lib_view *v, struct sim_mig *mig, struct sim_gi **ret_gi,
                    struct sim_ci **ret_ci)
{
    lib_read_mig(v->number, mig);
    *ret_gi = sim_gi_by_id(mig, v->gi);
    *ret_ci = *ret_gi ? sim_ci_by_id(*ret_gi, v->ci) : NULL;
    return *ret_ci != NULL;
}

nv_return nvmlDeviceGetName(nv_device d, char *text, unsigned size)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, text != NULL, &v);
    if (r != NV_OK || v.kind == LIB_GPU)
        return r != NV_OK ? r : lib_text(text, size, v.gpu.name);
    struct sim_mig mig;
    struct sim_gi *gi;
    struct sim_ci *ci;
    if (!find_ci(&v, &mig, &gi, &ci))
        return NV_E_ARGUMENT;
    const struct sim_profile *p = &sim_geometry_of(&v.gpu)->profiles[gi->profile];
    char name[160], part[24] = "";
    if (ci->size != p->slices)
        snprintf(part, sizeof(part), "%uc.", ci->size);
    snprintf(name, sizeof(name), "%s MIG %s%s", v.gpu.name, part, p->name);
    return lib_text(text, size, name);
}

nv_return nvmlDeviceGetUUID(nv_device d, char *text, unsigned size)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, text != NULL, &v);
    if (r != NV_OK || v.kind == LIB_GPU)
        return r != NV_OK ? r : lib_text(text, size, v.gpu.uuid);
    struct sim_mig mig;
    struct sim_gi *gi;
    struct sim_ci *ci;
    return find_ci(&v, &mig, &gi, &ci) ? lib_text(text, size, ci->uuid) : NV_E_ARGUMENT;
}

/* Texts that a board may lack: an empty one is NOT_SUPPORTED. */
#define GET_TEXT(symbol, from)                                                                     \
    nv_return symbol(nv_device d, char *text, unsigned size)                                       \
    {                                                                                              \
        struct lib_view v;                                                                         \
        nv_return r = lib_whole(__func__, d, text != NULL, &v);                                    \
        if (r != NV_OK)                                                                            \
            return r;                                                                              \
        return (from)[0] ? lib_text(text, size, (from)) : NV_E_NOT_SUPPORTED;                      \
    }

GET_TEXT(nvmlDeviceGetSerial, v.gpu.serial)
GET_TEXT(nvmlDeviceGetBoardPartNumber, v.gpu.part_number)
GET_TEXT(nvmlDeviceGetVbiosVersion, v.gpu.vbios)
GET_TEXT(nvmlDeviceGetInforomImageVersion, v.gpu.inforom)

nv_return nvmlDeviceGetInforomVersion(nv_device d, unsigned object, char *text, unsigned size)
{
    static const char *const versions[] = { "2.1", "7.16" }; /* OEM, ECC */
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, text != NULL && object <= 2, &v);
    if (r != NV_OK)
        return r;
    return object < ARRAY_LEN(versions) && v.gpu.has_ecc ? lib_text(text, size, versions[object])
                                                         : NV_E_NOT_SUPPORTED;
}

nv_return nvmlDeviceGetGspFirmwareVersion(nv_device d, char *text)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, text != NULL, &v);
    if (r != NV_OK)
        return r;
    char version[sizeof(((struct sim_world *)0)->driver_version)];
    sim_read_member(lib_map(), driver_version, version);
    return lib_text(text, NV_GSP_VERSION_SIZE, version);
}

/* ---- numbers ---- */

nv_return nvmlDeviceGetIndex(nv_device d, unsigned *index)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, index != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.kind == LIB_GPU) {
        *index = lib_index(v.number);
        return NV_OK;
    }
    struct sim_mig mig;
    struct sim_gi *gi;
    struct sim_ci *ci;
    if (!find_ci(&v, &mig, &gi, &ci))
        return NV_E_ARGUMENT;
    *index = ci->slot; /* the slot, not the gpu's index */
    return NV_OK;
}

#define GET_NUMBER(symbol, enter, supported, expression)                                           \
    nv_return symbol(nv_device d, unsigned *value)                                                 \
    {                                                                                              \
        struct lib_view v;                                                                         \
        nv_return r = enter(__func__, d, value != NULL, &v);                                       \
        if (r != NV_OK)                                                                            \
            return r;                                                                              \
        if (!(supported))                                                                          \
            return NV_E_NOT_SUPPORTED;                                                             \
        *value = (expression);                                                                     \
        return NV_OK;                                                                              \
    }

GET_NUMBER(nvmlDeviceGetMinorNumber, lib_whole, true, v.gpu.minor)
GET_NUMBER(nvmlDeviceGetModuleId, lib_whole, true, v.gpu.module)
GET_NUMBER(nvmlDeviceGetBoardId, lib_whole, true, v.gpu.bus << 8 | v.gpu.device)
GET_NUMBER(nvmlDeviceGetMultiGpuBoard, lib_whole, true, 0)
GET_NUMBER(nvmlDeviceGetBrand, lib_device, true, v.gpu.brand)
GET_NUMBER(nvmlDeviceGetArchitecture, lib_device, true, v.gpu.arch)
GET_NUMBER(nvmlDeviceGetVirtualizationMode, lib_whole, true, v.gpu.virtualization)
GET_NUMBER(nvmlDeviceGetPersistenceMode, lib_whole, true, v.gpu.persistence)
GET_NUMBER(nvmlDeviceGetComputeMode, lib_device, true, v.gpu.compute_mode)
GET_NUMBER(nvmlDeviceGetDisplayMode, lib_whole, true, NV_FEATURE_OFF)
GET_NUMBER(nvmlDeviceGetDisplayActive, lib_whole, true, NV_FEATURE_OFF)
GET_NUMBER(nvmlDeviceGetAccountingMode, lib_whole, true, NV_FEATURE_OFF)

nv_return nvmlDeviceGetCudaComputeCapability(nv_device d, int *major, int *minor)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, major && minor, &v);
    if (r != NV_OK)
        return r;
    *major = (int)v.gpu.cc_major;
    *minor = (int)v.gpu.cc_minor;
    return NV_OK;
}

nv_return nvmlDeviceGetAddressingMode(nv_device d, struct nv_addressing_mode *mode)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, mode != NULL, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.has_addressing)
        return NV_E_NOT_SUPPORTED;
    if ((r = lib_version(mode->version, NV_VERSION(struct nv_addressing_mode, 1))) != NV_OK)
        return r;
    mode->value = v.gpu.addressing;
    return NV_OK;
}

nv_return nvmlDeviceGetCapabilities(nv_device d, struct nv_capabilities *caps)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, caps != NULL, &v);
    if (r == NV_OK)
        r = lib_version(caps->version, NV_VERSION(struct nv_capabilities, 1));
    if (r == NV_OK)
        caps->mask = 0;
    return r;
}

nv_return nvmlDeviceGetPdi(nv_device d, struct nv_pdi *pdi)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, pdi != NULL, &v);
    if (r == NV_OK)
        r = lib_version(pdi->version, NV_VERSION(struct nv_pdi, 1));
    if (r == NV_OK)
        pdi->value = sim_hash((uint64_t)v.gpu.bus << 32 | v.number);
    return r;
}

nv_return nvmlDeviceGetPlatformInfo(nv_device d, struct nv_platform_info *info)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, info != NULL, &v);
    if (r != NV_OK)
        return r;
    uint32_t v1 = NV_VERSION(struct nv_platform_info, 1),
             v2 = NV_VERSION(struct nv_platform_info, 2);
    if (lib_version(info->version, v1) != NV_OK && lib_version(info->version, v2) != NV_OK)
        return NV_E_VERSION;
    if (v.gpu.arch < NV_ARCH_BLACKWELL || v.gpu.unified)
        return NV_E_NOT_SUPPORTED;
    uint32_t version = info->version;
    *info = (struct nv_platform_info){ .version = version, .module_id = (uint8_t)v.gpu.module };
    return NV_OK;
}

/* ---- where it is ---- */

static void pci_info(const struct sim_gpu *g, bool whole, bool subsystem, struct nv_pci_info *pci)
{
    snprintf(pci->bus_id_legacy, sizeof(pci->bus_id_legacy), "%04X:%02X:%02X.0", g->domain & 0xffff,
             g->bus & 0xff, g->device & 0x1f);
    pci->domain = g->domain;
    pci->bus = g->bus;
    pci->device = g->device;
    pci->pci_device = g->pci_id;
    if (subsystem)
        pci->pci_subsystem = g->subsystem;
    if (whole)
        snprintf(pci->bus_id, sizeof(pci->bus_id), "%08X:%02X:%02X.0", g->domain, g->bus & 0xff,
                 g->device & 0x1f);
}

static nv_return get_pci(const char *call, nv_device d, bool whole, bool subsystem,
                         struct nv_pci_info *pci)
{
    struct lib_view v;
    nv_return r = lib_device(call, d, pci != NULL, &v);
    if (r == NV_OK)
        pci_info(&v.gpu, whole, subsystem, pci);
    return r;
}

nv_return nvmlDeviceGetPciInfo(nv_device d, struct nv_pci_info *pci)
{
    return get_pci(__func__, d, false, false, pci);
}

nv_return nvmlDeviceGetPciInfo_v2(nv_device d, struct nv_pci_info *pci)
{
    return get_pci(__func__, d, false, true, pci);
}

nv_return nvmlDeviceGetPciInfo_v3(nv_device d, struct nv_pci_info *pci)
{
    return get_pci(__func__, d, true, true, pci);
}

nv_return nvmlDeviceGetPciInfoExt(nv_device d, struct nv_pci_info_ext *pci)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, pci != NULL, &v);
    if (r == NV_OK)
        r = lib_version(pci->version, NV_VERSION(struct nv_pci_info_ext, 1));
    if (r != NV_OK)
        return r;
    struct nv_pci_info p = { 0 };
    pci_info(&v.gpu, true, true, &p);
    uint32_t version = pci->version;
    *pci = (struct nv_pci_info_ext){ version,
                                     p.domain,
                                     p.bus,
                                     p.device,
                                     p.pci_device,
                                     p.pci_subsystem,
                                     v.gpu.pci_class >> 16,
                                     v.gpu.pci_class >> 8 & 0xff,
                                     { 0 } };
    memcpy(pci->bus_id, p.bus_id, sizeof(pci->bus_id));
    return NV_OK;
}

/* ---- settings ---- */

static nv_return set_mode(const char *call, nv_device d, unsigned mode, unsigned max, size_t member)
{
    struct lib_view v;
    nv_return r = lib_whole(call, d, mode <= max, &v);
    struct sim_world *w;
    if (r != NV_OK || (r = lib_change(&w)) != NV_OK)
        return r;
    memcpy((char *)&w->gpus[v.number] + member, &mode, sizeof(mode));
    lib_commit(false);
    return NV_OK;
}

nv_return nvmlDeviceSetPersistenceMode(nv_device d, unsigned mode)
{
    return set_mode(__func__, d, mode, NV_FEATURE_ON, offsetof(struct sim_gpu, persistence));
}

nv_return nvmlDeviceSetComputeMode(nv_device d, unsigned mode)
{
    return set_mode(__func__, d, mode, NV_COMPUTE_EXCLUSIVE_PROCESS,
                    offsetof(struct sim_gpu, compute_mode));
}
