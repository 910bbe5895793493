/* SPDX-License-Identifier: Apache-2.0 */
/* MIG: modes, profiles, instances. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sim/lib.h"

/* ---- the mode ---- */

nv_return nvmlDeviceGetMigMode(nv_device d, unsigned *current, unsigned *pending)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, current && pending, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.mig_capable)
        return NV_E_NOT_SUPPORTED;
    *current = v.gpu.mig_current;
    *pending = v.gpu.mig_pending;
    return NV_OK;
}

nv_return nvmlDeviceSetMigMode(nv_device d, unsigned mode, nv_return *activation)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, activation && mode <= NV_FEATURE_ON, &v);
    struct sim_world *w;
    if (r != NV_OK || (r = lib_change(&w)) != NV_OK)
        return r;
    uint32_t before = w->gpus[v.number].mig_current;
    r = sim_mig_mode(w, v.number, mode, activation);
    if (r != NV_OK) {
        lib_abandon();
        return r;
    }
    if (before != w->gpus[v.number].mig_current)
        sim_post(lib_map(), v.number, NV_EVENT_MIG_CONFIG, 0, NV_NO_INSTANCE, NV_NO_INSTANCE);
    lib_commit(true);
    return NV_OK;
}

nv_return nvmlDeviceGetMaxMigDeviceCount(nv_device d, unsigned *n)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, n != NULL, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.mig_capable)
        return NV_E_NOT_SUPPORTED;
    const struct sim_geometry *geo = sim_geometry_of(&v.gpu);
    *n = v.gpu.mig_current ? geo ? geo->slices : 7 : 0;
    return NV_OK;
}

/* ---- MIG devices ---- */

nv_return nvmlDeviceGetMigDeviceHandleByIndex(nv_device d, unsigned slot, nv_device *handle)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, handle != NULL, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.mig_capable)
        return NV_E_NOT_SUPPORTED;
    if (!v.gpu.mig_current)
        return NV_E_NOT_FOUND;
    const struct sim_geometry *geo = sim_geometry_of(&v.gpu);
    if (slot >= (geo ? geo->slices : 7u))
        return NV_E_ARGUMENT;
    if (!lib_may_monitor())
        return NV_E_NO_PERMISSION;
    struct sim_mig mig;
    lib_read_mig(v.number, &mig);
    for (int g = 0; g < SIM_GI_MAX; g++)
        for (int c = 0; mig.gi[g].used && c < SIM_CI_MAX; c++)
            if (mig.gi[g].ci[c].used && mig.gi[g].ci[c].slot == slot) {
                *handle = lib_mig_handle(v.number, &mig.gi[g], &mig.gi[g].ci[c]);
                return NV_OK;
            }
    return NV_E_NOT_FOUND;
}

nv_return nvmlDeviceIsMigDeviceHandle(nv_device d, unsigned *is)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, d, is != NULL, &v);
    if (r == NV_OK)
        *is = v.kind == LIB_MIG;
    return r;
}

nv_return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nv_device mig, nv_device *parent)
{
    struct lib_view v;
    nv_return r = lib_device(__func__, mig, parent != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.kind != LIB_MIG)
        return NV_E_ARGUMENT;
    *parent = lib_gpu_handle(v.number);
    return NV_OK;
}

static nv_return instance_id(const char *call, nv_device mig, bool compute, unsigned *id)
{
    struct lib_view v;
    nv_return r = lib_device(call, mig, id != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.kind != LIB_MIG)
        return NV_E_NOT_SUPPORTED;
    *id = compute ? v.ci : v.gi;
    return NV_OK;
}

nv_return nvmlDeviceGetGpuInstanceId(nv_device mig, unsigned *id)
{
    return instance_id(__func__, mig, false, id);
}

nv_return nvmlDeviceGetComputeInstanceId(nv_device mig, unsigned *id)
{
    return instance_id(__func__, mig, true, id);
}

/* Of an instance with `ci` of the `p->slices` compute slices. */
static uint32_t share_of(uint32_t whole, uint32_t ci, const struct sim_profile *p)
{
    return whole * ci / p->slices;
}

static nv_return attributes_of(const char *call, nv_device mig, struct nv_attributes *attributes)
{
    struct lib_view v;
    nv_return r = lib_device(call, mig, attributes != NULL, &v);
    if (r != NV_OK)
        return r;
    if (v.kind != LIB_MIG)
        return NV_E_NOT_SUPPORTED;
    if (!lib_may_monitor())
        return NV_E_NO_PERMISSION;
    struct sim_mig all;
    lib_read_mig(v.number, &all);
    struct sim_gi *gi = sim_gi_by_id(&all, v.gi);
    struct sim_ci *ci = gi ? sim_ci_by_id(gi, v.ci) : NULL;
    if (!ci)
        return NV_E_ARGUMENT;
    const struct sim_profile *p = &sim_geometry_of(&v.gpu)->profiles[gi->profile];
    *attributes = (struct nv_attributes){
        .multiprocessors = share_of(p->multiprocessors, ci->size, p),
        .copy_engines = p->copy_engines,
        .decoders = p->decoders,
        .jpegs = p->jpegs,
        .ofas = p->ofas,
        .gi_slices = p->slices,
        .ci_slices = ci->size,
        .memory_mb = p->memory_mib,
    };
    return NV_OK;
}

nv_return nvmlDeviceGetAttributes(nv_device mig, struct nv_attributes *attributes)
{
    return attributes_of(__func__, mig, attributes);
}

nv_return nvmlDeviceGetAttributes_v2(nv_device mig, struct nv_attributes *attributes)
{
    return attributes_of(__func__, mig, attributes);
}

/* ---- GPU instance profiles ---- */

/* Drivers before R525 tell profiles only while MIG is on. */
static bool profiles_known(const struct lib_view *v)
{
    char version[sizeof(((struct sim_world *)0)->driver_version)];
    unsigned major = 0;
    sim_read_member(lib_map(), driver_version, version);
    sscanf(version, "%4u", &major);
    return sim_geometry_of(&v->gpu) && (v->gpu.mig_current || major >= 525);
}

static nv_return profile_at(const char *call, nv_device d, unsigned index, bool args,
                            struct lib_view *v, const struct sim_profile **ret)
{
    nv_return r = lib_whole(call, d, args && index < NV_GI_PROFILES, v);
    if (r != NV_OK)
        return r;
    if (!profiles_known(v))
        return NV_E_NOT_SUPPORTED;
    const struct sim_geometry *geo = sim_geometry_of(&v->gpu);
    int row = sim_profile_with_index(geo, index);
    if (row < 0)
        return NV_E_NOT_SUPPORTED;
    *ret = &geo->profiles[row];
    return NV_OK;
}

static uint32_t encoders_of(const struct sim_profile *p)
{
    return 0; /* none of the boards that can be parted has an encoder */
}

nv_return nvmlDeviceGetGpuInstanceProfileInfo(nv_device d, unsigned index,
                                              struct nv_gi_profile_info *info)
{
    struct lib_view v;
    const struct sim_profile *p;
    nv_return r = profile_at(__func__, d, index, info != NULL, &v, &p);
    if (r == NV_OK)
        *info = (struct nv_gi_profile_info){
            p->id,           0,           p->slices,      p->instances, p->multiprocessors,
            p->copy_engines, p->decoders, encoders_of(p), p->jpegs,     p->ofas,
            p->memory_mib
        };
    return r;
}

nv_return nvmlDeviceGetGpuInstanceProfileInfoV(nv_device d, unsigned index, void *info)
{
    struct lib_view v;
    const struct sim_profile *p;
    nv_return r = profile_at(__func__, d, index, info != NULL, &v, &p);
    if (r != NV_OK)
        return r;
    uint32_t version;
    memcpy(&version, info, sizeof(version));
    /* Both forms have the same size: only the version byte tells them apart. */
    if (version == NV_VERSION(struct nv_gi_profile_info_v3, 3)) {
        struct nv_gi_profile_info_v3 *i = info;
        *i = (struct nv_gi_profile_info_v3){ version,
                                             p->id,
                                             p->slices,
                                             p->instances,
                                             p->multiprocessors,
                                             p->copy_engines,
                                             p->decoders,
                                             encoders_of(p),
                                             p->jpegs,
                                             p->ofas,
                                             p->memory_mib,
                                             { 0 },
                                             p->graphics ? NV_GI_CAP_GFX : 0 };
        snprintf(i->name, sizeof(i->name), "MIG %s", p->name);
        return NV_OK;
    }
    if ((r = lib_version(version, NV_VERSION(struct nv_gi_profile_info_v2, 2))) != NV_OK)
        return r;
    struct nv_gi_profile_info_v2 *i = info;
    *i = (struct nv_gi_profile_info_v2){ version,
                                         p->id,
                                         0,
                                         p->slices,
                                         p->instances,
                                         p->multiprocessors,
                                         p->copy_engines,
                                         p->decoders,
                                         encoders_of(p),
                                         p->jpegs,
                                         p->ofas,
                                         p->memory_mib,
                                         { 0 } };
    snprintf(i->name, sizeof(i->name), "MIG %s", p->name);
    return NV_OK;
}

/* The row of a profile *id*, as the calls that work with instances take it. */
static nv_return profile_by_id(const char *call, nv_device d, unsigned id, bool args,
                               struct lib_view *v, const struct sim_geometry **ret_geo,
                               int *ret_row)
{
    nv_return r = lib_whole(call, d, args, v);
    if (r != NV_OK)
        return r;
    if (!profiles_known(v))
        return NV_E_NOT_SUPPORTED;
    *ret_geo = sim_geometry_of(&v->gpu);
    *ret_row = sim_profile_with_id(*ret_geo, id);
    return *ret_row < 0 ? NV_E_ARGUMENT : NV_OK;
}

nv_return nvmlDeviceGetGpuInstancePossiblePlacements_v2(nv_device d, unsigned profile,
                                                        struct nv_placement *items, unsigned *n)
{
    struct lib_view v;
    const struct sim_geometry *geo;
    int row;
    nv_return r = profile_by_id(__func__, d, profile, n != NULL, &v, &geo, &row);
    if (r != NV_OK)
        return r;
    const struct sim_profile *p = &geo->profiles[row];
    if (items && *n < p->n_starts) {
        *n = p->n_starts;
        return NV_E_SIZE;
    }
    *n = p->n_starts;
    for (uint32_t i = 0; items && i < p->n_starts; i++)
        items[i] = (struct nv_placement){ p->starts[i], p->size };
    return NV_OK;
}

nv_return nvmlDeviceGetGpuInstancePossiblePlacements(nv_device d, unsigned profile,
                                                     struct nv_placement *items, unsigned *n)
{
    struct lib_view v;
    const struct sim_geometry *geo;
    int row;
    nv_return r = profile_by_id(__func__, d, profile, n && items, &v, &geo, &row);
    if (r != NV_OK)
        return r;
    /* The plain form takes the caller's room for granted: the profile's maximum. */
    const struct sim_profile *p = &geo->profiles[row];
    *n = p->n_starts;
    for (uint32_t i = 0; i < p->n_starts; i++)
        items[i] = (struct nv_placement){ p->starts[i], p->size };
    return NV_OK;
}

nv_return nvmlDeviceGetGpuInstanceRemainingCapacity(nv_device d, unsigned profile, unsigned *n)
{
    struct lib_view v;
    const struct sim_geometry *geo;
    int row;
    nv_return r = profile_by_id(__func__, d, profile, n != NULL, &v, &geo, &row);
    if (r != NV_OK)
        return r;
    if (!v.gpu.mig_current)
        return NV_E_NOT_SUPPORTED;
    struct sim_mig mig;
    lib_read_mig(v.number, &mig);
    *n = sim_gi_capacity(geo, &mig, row);
    return NV_OK;
}

/* ---- GPU instances ---- */

static nv_return create_gi(const char *call, nv_device d, unsigned profile,
                           const struct nv_placement *placement, bool args, nv_gi *ret)
{
    struct lib_view v;
    const struct sim_geometry *geo;
    int row;
    nv_return r = lib_whole(call, d, args, &v);
    if (r == NV_OK && (!v.gpu.mig_current || !(geo = sim_geometry_of(&v.gpu))))
        r = NV_E_NOT_SUPPORTED;
    if (r != NV_OK)
        return r;
    if ((row = sim_profile_with_id(geo, profile)) < 0)
        return NV_E_ARGUMENT;
    if (placement && placement->size != geo->profiles[row].size)
        return NV_E_ARGUMENT;
    struct sim_world *w;
    struct sim_gi *gi;
    if ((r = lib_change(&w)) != NV_OK)
        return r;
    r = sim_gi_create(w, v.number, row, placement ? (int)placement->start : -1, &gi);
    if (r != NV_OK) {
        lib_abandon();
        return r;
    }
    *ret = lib_gi_handle(v.number, gi);
    lib_commit(true);
    return NV_OK;
}

nv_return nvmlDeviceCreateGpuInstance(nv_device d, unsigned profile, nv_gi *gi)
{
    return create_gi(__func__, d, profile, NULL, gi != NULL, gi);
}

nv_return nvmlDeviceCreateGpuInstanceWithPlacement(nv_device d, unsigned profile,
                                                   const struct nv_placement *placement, nv_gi *gi)
{
    return create_gi(__func__, d, profile, placement, gi && placement, gi);
}

nv_return nvmlGpuInstanceDestroy(nv_gi handle)
{
    struct lib_view v;
    struct sim_gi gi;
    nv_return r = lib_instance(__func__, handle, true, &v, &gi);
    struct sim_world *w;
    if (r != NV_OK || (r = lib_change(&w)) != NV_OK)
        return r;
    struct sim_gi *now = sim_gi_by_id(&w->mig[v.number], gi.id);
    r = !now || now->serial != gi.serial ? NV_E_ARGUMENT : sim_gi_destroy(w, v.number, now);
    if (r == NV_OK)
        lib_commit(true);
    else
        lib_abandon();
    return r;
}

nv_return nvmlDeviceGetGpuInstances(nv_device d, unsigned profile, nv_gi *items, unsigned *n)
{
    struct lib_view v;
    const struct sim_geometry *geo;
    int row;
    nv_return r = profile_by_id(__func__, d, profile, items && n, &v, &geo, &row);
    if (r != NV_OK)
        return r;
    if (!v.gpu.mig_current)
        return NV_E_NOT_SUPPORTED;
    if (!lib_may_monitor())
        return NV_E_NO_PERMISSION;
    struct sim_mig mig;
    lib_read_mig(v.number, &mig);
    /* The count is output only; at most the profile's maximum is written. */
    *n = 0;
    for (int i = 0; i < SIM_GI_MAX; i++)
        if (mig.gi[i].used && mig.gi[i].profile == (uint32_t)row)
            items[(*n)++] = lib_gi_handle(v.number, &mig.gi[i]);
    return NV_OK;
}

nv_return nvmlDeviceGetGpuInstanceById(nv_device d, unsigned id, nv_gi *gi)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, gi != NULL, &v);
    if (r != NV_OK)
        return r;
    if (!v.gpu.mig_current)
        return NV_E_NOT_SUPPORTED;
    if (!lib_may_monitor())
        return NV_E_NO_PERMISSION;
    struct sim_mig mig;
    lib_read_mig(v.number, &mig);
    struct sim_gi *found = sim_gi_by_id(&mig, id);
    if (!found)
        return NV_E_NOT_FOUND;
    *gi = lib_gi_handle(v.number, found);
    return NV_OK;
}

nv_return nvmlGpuInstanceGetInfo(nv_gi handle, struct nv_gi_info *info)
{
    struct lib_view v;
    struct sim_gi gi;
    nv_return r = lib_instance(__func__, handle, info != NULL, &v, &gi);
    if (r == NV_OK)
        *info = (struct nv_gi_info){ lib_gpu_handle(v.number),
                                     gi.id,
                                     sim_geometry_of(&v.gpu)->profiles[gi.profile].id,
                                     { gi.start, gi.size } };
    return r;
}
