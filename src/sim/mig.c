/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/mig.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

int sim_profile_named(const struct sim_geometry *geo, const char *name)
{
    for (int i = 0; i < geo->n_profiles; i++)
        if (strcmp(geo->profiles[i].name, name) == 0)
            return i;
    return -1;
}

int sim_profile_with_id(const struct sim_geometry *geo, uint32_t id)
{
    for (int i = 0; i < geo->n_profiles; i++)
        if (geo->profiles[i].id == id)
            return i;
    return -1;
}

int sim_profile_with_index(const struct sim_geometry *geo, uint32_t index)
{
    for (int i = 0; i < geo->n_profiles; i++)
        if (geo->profiles[i].index == index)
            return i;
    return -1;
}

struct sim_gi *sim_gi_by_id(struct sim_mig *mig, uint32_t id)
{
    return id < SIM_GI_MAX && mig->gi[id].used ? &mig->gi[id] : NULL;
}

struct sim_ci *sim_ci_by_id(struct sim_gi *gi, uint32_t id)
{
    return id < SIM_CI_MAX && gi->ci[id].used ? &gi->ci[id] : NULL;
}

uint32_t sim_gi_count(const struct sim_mig *mig)
{
    uint32_t n = 0;
    for (int i = 0; i < SIM_GI_MAX; i++)
        n += mig->gi[i].used;
    return n;
}

static bool overlap(uint32_t a, uint32_t a_size, uint32_t b, uint32_t b_size)
{
    return a < b + b_size && b < a + a_size;
}

/* May a GPU instance of this profile stand at `start` beside what is there? */
static bool gi_fits(const struct sim_geometry *geo, const struct sim_mig *mig, int profile,
                    uint32_t start)
{
    const struct sim_profile *p = &geo->profiles[profile];
    uint32_t slices = p->slices, same = 0;
    for (int i = 0; i < SIM_GI_MAX; i++) {
        const struct sim_gi *gi = &mig->gi[i];
        if (!gi->used)
            continue;
        if (overlap(start, p->size, gi->start, gi->size))
            return false;
        slices += geo->profiles[gi->profile].slices;
        same += gi->profile == (uint32_t)profile;
    }
    return slices <= geo->slices && same < p->instances;
}

/* Ids as drivers give them out: neither from 0 nor without gaps. The minor numbers of the
 * capability nodes have room for 15. */
static uint32_t gi_id(const struct sim_geometry *geo, uint32_t start, uint32_t size)
{
    uint32_t slots = geo->memory_slots;
    if (size == slots)
        return 0;
    if (slots == 8)
        return size == 4 ? 1 + start / 4 : size == 2 ? 3 + start / 2 : 7 + start;
    uint32_t unit = slots / 4;
    return size == 2 * unit ? 1 + start / size : 3 + start / unit;
}

uint32_t sim_gi_capacity(const struct sim_geometry *geo, const struct sim_mig *mig, int profile)
{
    struct sim_mig trial = *mig;
    const struct sim_profile *p = &geo->profiles[profile];
    uint32_t n = 0;
    for (int i = 0; i < p->n_starts; i++) {
        if (!gi_fits(geo, &trial, profile, p->starts[i]))
            continue;
        trial.gi[gi_id(geo, p->starts[i], p->size)] = (struct sim_gi){
            .used = 1, .profile = (uint32_t)profile, .start = p->starts[i], .size = p->size
        };
        n++;
    }
    return n;
}

/* How many placements that are possible now an instance at `start` would take away. */
static unsigned spoils(const struct sim_geometry *geo, const struct sim_mig *mig, uint32_t start,
                       uint32_t size)
{
    unsigned n = 0;
    for (int p = 0; p < geo->n_profiles; p++)
        for (int i = 0; i < geo->profiles[p].n_starts; i++)
            n += overlap(start, size, geo->profiles[p].starts[i], geo->profiles[p].size) &&
                 gi_fits(geo, mig, p, geo->profiles[p].starts[i]);
    return n;
}

/* Where a driver puts an instance that is given no place: small ones where they spoil least (seven
 * 1g come to 6 4 5 0 1 2 3, three 2g to 4 0 2), halves from the beginning. -1: nowhere. */
static int pick_start(const struct sim_geometry *geo, const struct sim_mig *mig, int profile)
{
    const struct sim_profile *p = &geo->profiles[profile];
    bool small = p->size * 2 < geo->memory_slots;
    int best = -1;
    unsigned least = 0;
    for (int i = 0; i < p->n_starts; i++) {
        if (!gi_fits(geo, mig, profile, p->starts[i]))
            continue;
        unsigned n = small ? spoils(geo, mig, p->starts[i], p->size) : 0;
        if (best >= 0 && n >= least)
            continue;
        best = p->starts[i];
        least = n;
    }
    return best;
}

nv_return sim_gi_create(struct sim_world *w, uint32_t gpu, int profile, int start,
                        struct sim_gi **ret)
{
    const struct sim_geometry *geo = sim_geometry_of(&w->gpus[gpu]);
    if (!geo || !w->gpus[gpu].mig_current)
        return NV_E_NOT_SUPPORTED;
    const struct sim_profile *p = &geo->profiles[profile];
    bool known = start < 0;
    for (int i = 0; i < p->n_starts; i++)
        known = known || p->starts[i] == start;
    if (!known)
        return NV_E_ARGUMENT;
    int at = start >= 0 ? start : pick_start(geo, &w->mig[gpu], profile);
    if (at < 0 || !gi_fits(geo, &w->mig[gpu], profile, (uint32_t)at))
        return NV_E_RESOURCES;
    uint32_t id = gi_id(geo, (uint32_t)at, p->size);
    struct sim_gi *gi = &w->mig[gpu].gi[id];
    *gi = (struct sim_gi){ .used = 1,
                           .id = id,
                           .profile = (uint32_t)profile,
                           .start = (uint32_t)at,
                           .size = p->size,
                           .serial = w->next_serial++ };
    *ret = gi;
    return NV_OK;
}

bool sim_has_clients(const struct sim_gpu *g, uint32_t gi, uint32_t ci)
{
    for (int i = 0; i < SIM_CLIENTS_MAX; i++) {
        const struct sim_client *c = &g->clients[i];
        if (c->pid && (gi == UINT32_MAX || c->gi == gi) && (ci == UINT32_MAX || c->ci == ci))
            return true;
    }
    return false;
}

nv_return sim_gi_destroy(struct sim_world *w, uint32_t gpu, struct sim_gi *gi)
{
    for (int i = 0; i < SIM_CI_MAX; i++)
        if (gi->ci[i].used)
            return NV_E_IN_USE;
    if (sim_has_clients(&w->gpus[gpu], gi->id, UINT32_MAX))
        return NV_E_IN_USE;
    gi->used = 0;
    return NV_OK;
}

/* ---- compute instances ---- */

static const struct {
    uint32_t slices, id;
} ci_profiles[NV_CI_PROFILES] = {
    [NV_CI_1_SLICE] = { 1, 0 }, [NV_CI_2_SLICE] = { 2, 1 }, [NV_CI_3_SLICE] = { 3, 2 },
    [NV_CI_4_SLICE] = { 4, 3 }, [NV_CI_7_SLICE] = { 7, 4 },
};

uint32_t sim_ci_slices(uint32_t index)
{
    return index < NV_CI_PROFILES ? ci_profiles[index].slices : 0;
}

uint32_t sim_ci_profile_id(uint32_t index)
{
    return ci_profiles[index].id;
}

int sim_ci_profile_with_id(uint32_t id)
{
    for (int i = 0; i < NV_CI_PROFILES; i++)
        if (ci_profiles[i].slices && ci_profiles[i].id == id)
            return i;
    return -1;
}

bool sim_ci_profile_fits(uint32_t gi_slices, uint32_t index)
{
    uint32_t n = sim_ci_slices(index);
    return n != 0 && n <= gi_slices && (n != 3 || gi_slices != 4);
}

uint32_t sim_ci_starts(uint32_t gi_slices, uint32_t index, uint32_t starts[SIM_CI_MAX])
{
    uint32_t size = sim_ci_slices(index), step = size == 3 ? 4 : size, n = 0;
    for (uint32_t at = 0; size && at + size <= gi_slices && n < SIM_CI_MAX; at += step)
        starts[n++] = at;
    return n;
}

static bool ci_free(const struct sim_gi *gi, uint32_t start, uint32_t size)
{
    for (int i = 0; i < SIM_CI_MAX; i++)
        if (gi->ci[i].used && overlap(start, size, gi->ci[i].start, gi->ci[i].size))
            return false;
    return true;
}

uint32_t sim_ci_capacity(const struct sim_gi *gi, uint32_t gi_slices, uint32_t index)
{
    uint32_t starts[SIM_CI_MAX], n = 0, of = sim_ci_starts(gi_slices, index, starts);
    for (uint32_t i = 0; i < of; i++)
        n += ci_free(gi, starts[i], sim_ci_slices(index));
    return n;
}

/* The same place gives the same UUID, as on real boards: it is no proof of the same instance. */
static void mig_uuid(const struct sim_gpu *g, const struct sim_gi *gi, const struct sim_ci *ci,
                     char ret[44])
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (const char *p = g->uuid; *p; p++)
        h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    char text[37];
    sim_uuid(h,
             (uint64_t)gi->profile << 48 | (uint64_t)gi->start << 32 | ci->profile << 8 | ci->start,
             text);
    snprintf(ret, 44, "MIG-%s", text);
}

nv_return sim_ci_create(struct sim_world *w, uint32_t gpu, struct sim_gi *gi, uint32_t index,
                        int start, struct sim_ci **ret)
{
    const struct sim_geometry *geo = sim_geometry_of(&w->gpus[gpu]);
    uint32_t slices = geo->profiles[gi->profile].slices;
    if (!sim_ci_profile_fits(slices, index))
        return NV_E_NOT_SUPPORTED;
    uint32_t starts[SIM_CI_MAX], of = sim_ci_starts(slices, index, starts),
                                 size = sim_ci_slices(index);
    bool known = start < 0, found = false;
    uint32_t at = 0;
    for (uint32_t i = 0; i < of && !found; i++) {
        if (start >= 0 && starts[i] != (uint32_t)start)
            continue;
        known = true;
        at = starts[i];
        found = ci_free(gi, at, size);
    }
    if (!known)
        return NV_E_ARGUMENT;
    uint32_t id = 0;
    while (id < SIM_CI_MAX && gi->ci[id].used)
        id++;
    if (!found || id == SIM_CI_MAX)
        return NV_E_RESOURCES;
    struct sim_ci *ci = &gi->ci[id];
    *ci = (struct sim_ci){
        .used = 1, .id = id, .profile = index, .start = at, .size = size, .serial = w->next_serial++
    };
    /* One slot for each compute slice of the board, so slots have gaps where parts are wide. */
    uint32_t unit = geo->memory_slots == 8 ? 1 : geo->memory_slots / geo->slices;
    ci->slot = gi->start / unit + at;
    mig_uuid(&w->gpus[gpu], gi, ci, ci->uuid);
    *ret = ci;
    return NV_OK;
}

nv_return sim_ci_destroy(struct sim_world *w, uint32_t gpu, struct sim_gi *gi, struct sim_ci *ci)
{
    if (sim_has_clients(&w->gpus[gpu], gi->id, ci->id))
        return NV_E_IN_USE;
    ci->used = 0;
    return NV_OK;
}

/* ---- the mode ---- */

static uint32_t free_minor(const struct sim_world *w)
{
    for (uint32_t minor = w->n_gpus;; minor++) {
        bool taken = false;
        for (uint32_t i = 0; i < w->n_gpus; i++)
            taken = taken || w->gpus[i].minor == minor;
        if (!taken)
            return minor;
    }
}

void sim_mig_apply(struct sim_world *w, uint32_t gpu)
{
    struct sim_gpu *g = &w->gpus[gpu];
    if (g->mig_current != g->mig_pending && w->moves_minor)
        g->minor = free_minor(w);
    g->mig_current = g->mig_pending;
    memset(&w->mig[gpu], 0, sizeof(w->mig[gpu]));
}

nv_return sim_mig_mode(struct sim_world *w, uint32_t gpu, uint32_t on, nv_return *ret_activation)
{
    struct sim_gpu *g = &w->gpus[gpu];
    *ret_activation = NV_OK;
    if (!g->mig_capable)
        return NV_E_NOT_SUPPORTED;
    if (!on && sim_gi_count(&w->mig[gpu]) > 0)
        return NV_E_IN_USE;
    g->mig_pending = on;
    if (g->mig_current == on)
        return NV_OK;
    if (sim_has_clients(g, UINT32_MAX, UINT32_MAX))
        *ret_activation = NV_E_IN_USE;
    else if (g->mig_cold)
        *ret_activation = NV_E_RESET_REQUIRED;
    else
        sim_mig_apply(w, gpu);
    return NV_OK;
}
