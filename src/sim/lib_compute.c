/* SPDX-License-Identifier: Apache-2.0 */
/* Compute instances of a GPU instance. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sim/lib.h"

static const struct sim_profile *profile_of(const struct lib_view *v, const struct sim_gi *gi)
{
    return &sim_geometry_of(&v->gpu)->profiles[gi->profile];
}

struct ci_figures {
    uint32_t id, slices, instances, multiprocessors;
    const struct sim_profile *of;
    char name[NV_PROFILE_NAME_SIZE];
};

static nv_return figures(const char *call, nv_gi handle, unsigned index, unsigned engine, bool args,
                         struct ci_figures *ret)
{
    struct lib_view v;
    struct sim_gi gi;
    uint32_t starts[SIM_CI_MAX];
    nv_return r = lib_instance(call, handle,
                               args && index < NV_CI_PROFILES && engine < NV_CI_ENGINES, &v, &gi);
    if (r != NV_OK)
        return r;
    const struct sim_profile *p = profile_of(&v, &gi);
    if (!sim_ci_profile_fits(p->slices, index))
        return NV_E_NOT_SUPPORTED;
    ret->of = p;
    ret->id = sim_ci_profile_id(index);
    ret->slices = sim_ci_slices(index);
    ret->instances = sim_ci_starts(p->slices, index, starts);
    ret->multiprocessors = (uint32_t)p->multiprocessors * ret->slices / p->slices;
    if (ret->slices == p->slices)
        snprintf(ret->name, sizeof(ret->name), "MIG %s", p->name);
    else
        snprintf(ret->name, sizeof(ret->name), "MIG %uc.%s", ret->slices, p->name);
    return NV_OK;
}

nv_return nvmlGpuInstanceGetComputeInstanceProfileInfo(nv_gi gi, unsigned index, unsigned engine,
                                                       struct nv_ci_profile_info *info)
{
    struct ci_figures f;
    nv_return r = figures(__func__, gi, index, engine, info != NULL, &f);
    if (r == NV_OK)
        *info = (struct nv_ci_profile_info){
            f.id,           f.slices, f.instances, f.multiprocessors, f.of->copy_engines,
            f.of->decoders, 0,        f.of->jpegs, f.of->ofas
        };
    return r;
}

nv_return nvmlGpuInstanceGetComputeInstanceProfileInfoV(nv_gi gi, unsigned index, unsigned engine,
                                                        void *info)
{
    struct ci_figures f;
    nv_return r = figures(__func__, gi, index, engine, info != NULL, &f);
    if (r != NV_OK)
        return r;
    struct nv_ci_profile_info_v3 *i = info;
    uint32_t version = i->version;
    bool third = version == NV_VERSION(struct nv_ci_profile_info_v3, 3);
    if (!third && (r = lib_version(version, NV_VERSION(struct nv_ci_profile_info_v2, 2))) != NV_OK)
        return r;
    /* Both begin alike; the second ends before `capabilities`. */
    struct nv_ci_profile_info_v3 whole = { version,
                                           f.id,
                                           f.slices,
                                           f.instances,
                                           f.multiprocessors,
                                           f.of->copy_engines,
                                           f.of->decoders,
                                           0,
                                           f.of->jpegs,
                                           f.of->ofas,
                                           { 0 },
                                           f.of->graphics ? NV_CI_CAP_GFX : 0 };
    memcpy(whole.name, f.name, sizeof(whole.name));
    memcpy(info, &whole, third ? sizeof(whole) : sizeof(struct nv_ci_profile_info_v2));
    return NV_OK;
}

static nv_return with_profile(const char *call, nv_gi handle, unsigned id, bool args,
                              struct lib_view *v, struct sim_gi *gi, uint32_t *ret_index)
{
    nv_return r = lib_instance(call, handle, args, v, gi);
    if (r != NV_OK)
        return r;
    int index = sim_ci_profile_with_id(id);
    if (index < 0 || !sim_ci_profile_fits(profile_of(v, gi)->slices, (uint32_t)index))
        return NV_E_ARGUMENT;
    *ret_index = (uint32_t)index;
    return NV_OK;
}

nv_return nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nv_gi handle, unsigned profile,
                                                             unsigned *n)
{
    struct lib_view v;
    struct sim_gi gi;
    uint32_t index;
    nv_return r = with_profile(__func__, handle, profile, n != NULL, &v, &gi, &index);
    if (r == NV_OK)
        *n = sim_ci_capacity(&gi, profile_of(&v, &gi)->slices, index);
    return r;
}

nv_return nvmlGpuInstanceGetComputeInstancePossiblePlacements(nv_gi handle, unsigned profile,
                                                              struct nv_placement *items,
                                                              unsigned *n)
{
    struct lib_view v;
    struct sim_gi gi;
    uint32_t index, starts[SIM_CI_MAX];
    nv_return r = with_profile(__func__, handle, profile, n != NULL, &v, &gi, &index);
    if (r != NV_OK)
        return r;
    uint32_t have = sim_ci_starts(profile_of(&v, &gi)->slices, index, starts), room = *n;
    *n = have;
    if (items && room < have)
        return NV_E_SIZE;
    for (uint32_t i = 0; items && i < have; i++)
        items[i] = (struct nv_placement){ starts[i], sim_ci_slices(index) };
    return NV_OK;
}

static nv_return create_ci(const char *call, nv_gi handle, unsigned profile,
                           const struct nv_placement *placement, bool args, nv_ci *ret)
{
    struct lib_view v;
    struct sim_gi gi;
    uint32_t index;
    struct sim_world *w;
    struct sim_ci *ci;
    nv_return r = with_profile(call, handle, profile, args, &v, &gi, &index);
    if (r != NV_OK || (r = lib_change(&w)) != NV_OK)
        return r;
    struct sim_gi *now = sim_gi_by_id(&w->mig[v.number], gi.id);
    if (!now || now->serial != gi.serial || (placement && placement->size != sim_ci_slices(index)))
        r = NV_E_ARGUMENT;
    else
        r = sim_ci_create(w, v.number, now, index, placement ? (int)placement->start : -1, &ci);
    if (r != NV_OK) {
        lib_abandon();
        return r;
    }
    *ret = lib_ci_handle(v.number, now, ci);
    lib_commit(true);
    return NV_OK;
}

nv_return nvmlGpuInstanceCreateComputeInstance(nv_gi gi, unsigned profile, nv_ci *ci)
{
    return create_ci(__func__, gi, profile, NULL, ci != NULL, ci);
}

nv_return nvmlGpuInstanceCreateComputeInstanceWithPlacement(nv_gi gi, unsigned profile,
                                                            const struct nv_placement *placement,
                                                            nv_ci *ci)
{
    return create_ci(__func__, gi, profile, placement, ci && placement, ci);
}

nv_return nvmlComputeInstanceDestroy(nv_ci handle)
{
    struct lib_view v;
    struct sim_gi gi;
    struct sim_ci ci;
    struct sim_world *w;
    nv_return r = lib_compute(__func__, handle, true, &v, &gi, &ci);
    if (r != NV_OK || (r = lib_change(&w)) != NV_OK)
        return r;
    struct sim_gi *now_gi = sim_gi_by_id(&w->mig[v.number], gi.id);
    struct sim_ci *now = now_gi ? sim_ci_by_id(now_gi, ci.id) : NULL;
    r = !now || now->serial != ci.serial ? NV_E_ARGUMENT : sim_ci_destroy(w, v.number, now_gi, now);
    if (r == NV_OK)
        lib_commit(true);
    else
        lib_abandon();
    return r;
}

nv_return nvmlGpuInstanceGetComputeInstances(nv_gi handle, unsigned profile, nv_ci *items,
                                             unsigned *n)
{
    struct lib_view v;
    struct sim_gi gi;
    uint32_t index;
    nv_return r = with_profile(__func__, handle, profile, items && n, &v, &gi, &index);
    if (r != NV_OK)
        return r;
    *n = 0; /* output only, as with GPU instances */
    for (int i = 0; i < SIM_CI_MAX; i++)
        if (gi.ci[i].used && gi.ci[i].profile == index)
            items[(*n)++] = lib_ci_handle(v.number, &gi, &gi.ci[i]);
    return NV_OK;
}

nv_return nvmlGpuInstanceGetComputeInstanceById(nv_gi handle, unsigned id, nv_ci *ci)
{
    struct lib_view v;
    struct sim_gi gi;
    nv_return r = lib_instance(__func__, handle, ci != NULL, &v, &gi);
    if (r != NV_OK)
        return r;
    struct sim_ci *found = sim_ci_by_id(&gi, id);
    if (!found)
        return NV_E_NOT_FOUND;
    *ci = lib_ci_handle(v.number, &gi, found);
    return NV_OK;
}

static nv_return info_of(const char *call, nv_ci handle, bool args, struct nv_ci_info *ret)
{
    struct lib_view v;
    struct sim_gi gi;
    struct sim_ci ci;
    nv_return r = lib_compute(call, handle, args, &v, &gi, &ci);
    if (r == NV_OK)
        *ret = (struct nv_ci_info){ lib_mig_handle(v.number, &gi, &ci),
                                    lib_gi_handle(v.number, &gi),
                                    ci.id,
                                    sim_ci_profile_id(ci.profile),
                                    { ci.start, ci.size } };
    return r;
}

nv_return nvmlComputeInstanceGetInfo_v2(nv_ci ci, struct nv_ci_info *info)
{
    return info_of(__func__, ci, info != NULL, info);
}

nv_return nvmlComputeInstanceGetInfo(nv_ci ci, struct nv_ci_info_v1 *info)
{
    struct nv_ci_info whole;
    nv_return r = info_of(__func__, ci, info != NULL, &whole);
    if (r == NV_OK)
        *info = (struct nv_ci_info_v1){ whole.device, whole.gi, whole.id, whole.profile };
    return r;
}
