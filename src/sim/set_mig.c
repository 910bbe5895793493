/* SPDX-License-Identifier: Apache-2.0 */
/* `mete sim set DIR gpu N mig ...` */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "sim/codes.h"
#include "sim/set.h"

static void announce(struct set *s)
{
    s->trees = true;
    sim_post(s->map, s->number, NV_EVENT_MIG_CONFIG, 0, NV_NO_INSTANCE, NV_NO_INSTANCE);
}

static int refused(struct set *s, nv_return code, const char *what)
{
    const struct sim_code *c = sim_code_of((uint32_t)code);
    return error_set(s->err, ERR_CONFLICT, (int)code, "gpu %u: %s: %s", s->number, what,
                     c ? c->name : "UNKNOWN");
}

/* As nvmlDeviceSetMigMode; what does not come into force at once waits for "reset". */
static int change_mode(struct set *s, uint32_t on)
{
    struct sim_world *w = s->world;
    nv_return activation;
    if (!on) /* a person who says off means the instances too */
        for (int g = 0; g < SIM_GI_MAX; g++)
            if (!sim_has_clients(&w->gpus[s->number], (uint32_t)g, UINT32_MAX))
                memset(&w->mig[s->number].gi[g], 0, sizeof(w->mig[s->number].gi[g]));
    nv_return r = sim_mig_mode(w, s->number, on, &activation);
    if (r != NV_OK)
        return refused(s, r, on ? "MIG mode on" : "MIG mode off");
    announce(s);
    return 0;
}

/* "3g.40gb" or "3g.40gb@4" → row and start (-1: any). */
static int parse_profile(struct set *s, const struct sim_geometry *geo, struct str text,
                         int *ret_row, int *ret_start)
{
    struct str rest = text, name = str_cut(&rest, '@');
    uint64_t start = 0;
    char key[40];
    snprintf(key, sizeof(key), "%.*s", STR_FMT(name));
    *ret_start = -1;
    if (rest.p && !str_to_u64(rest, geo->memory_slots - 1u, &start))
        return error_set(s->err, ERR_INVALID, 0,
                         "the start \"%.*s\" must be a memory slot from 0 to %d", STR_FMT(rest),
                         geo->memory_slots - 1);
    if (rest.p)
        *ret_start = (int)start;
    if ((*ret_row = sim_profile_named(geo, key)) >= 0)
        return 0;
    char list[200] = "";
    const char *names[16];
    for (size_t i = 0, at = 0; i < geo->n_profiles && at < sizeof(list); i++) {
        names[i] = geo->profiles[i].name;
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? " " : "", names[i]);
    }
    const char *near = str_nearest(name, names, geo->n_profiles);
    return error_set(s->err, ERR_INVALID, 0,
                     "this board has no profile \"%.30s\"%s%s%s; it has: %s", key,
                     near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "", list);
}

/* One part: a GPU instance, filled by one compute instance when `whole`. */
static int create_part(struct set *s, const struct sim_geometry *geo, struct str text, bool whole)
{
    int row, start;
    struct sim_gi *gi;
    struct sim_ci *ci;
    int r = parse_profile(s, geo, text, &row, &start);
    if (r < 0)
        return r;
    nv_return code = sim_gi_create(s->world, s->number, row, start, &gi);
    char what[80];
    snprintf(what, sizeof(what), "no room for %.*s", STR_FMT(text));
    if (code != NV_OK)
        return code == NV_E_ARGUMENT
                   ? error_set(s->err, ERR_INVALID, 0, "profile %s cannot start at memory slot %d",
                               geo->profiles[row].name, start)
                   : refused(s, code, what);
    for (uint32_t index = 0; whole && index < NV_CI_PROFILES; index++)
        if (sim_ci_slices(index) == geo->profiles[row].slices) {
            code = sim_ci_create(s->world, s->number, gi, index, -1, &ci);
            break;
        }
    return code == NV_OK ? 0 : refused(s, code, what);
}

/* Clears the layout and makes the parts of the list; the whole change is dropped when one does not
 * fit. */
static int change_layout(struct set *s, const struct sim_geometry *geo)
{
    struct sim_gpu *g = &s->world->gpus[s->number];
    if (sim_has_clients(g, UINT32_MAX, UINT32_MAX))
        return refused(s, NV_E_IN_USE, "another layout while clients use the gpu");
    g->mig_pending = 1;
    sim_mig_apply(s->world, s->number);
    struct str rest = str_of(s->argv[s->at++]);
    int r = 0;
    while (r == 0 && rest.p)
        r = create_part(s, geo, str_cut(&rest, ','), true);
    if (r == 0)
        announce(s);
    return r;
}

static int destroy(struct set *s)
{
    struct sim_mig *mig = &s->world->mig[s->number];
    if (set_accept(s, "all")) {
        if (sim_has_clients(&s->world->gpus[s->number], UINT32_MAX, UINT32_MAX))
            return refused(s, NV_E_IN_USE, "destroy all");
        memset(mig, 0, sizeof(*mig));
        announce(s);
        return 0;
    }
    uint32_t gi_id, ci_id;
    int r = set_instance(s, &gi_id, &ci_id);
    if (r < 0)
        return r;
    struct sim_gi *gi = sim_gi_by_id(mig, gi_id);
    if (!gi)
        return error_set(s->err, ERR_INVALID, 0,
                         "name an instance that exists: \"gi G [ci C]\", or \"all\"");
    struct sim_ci *ci = ci_id == UINT32_MAX ? NULL : sim_ci_by_id(gi, ci_id);
    if (ci_id != UINT32_MAX && !ci)
        return error_set(s->err, ERR_INVALID, 0, "GPU instance %u has no compute instance %u",
                         gi_id, ci_id);
    nv_return code = NV_OK;
    for (uint32_t c = 0; c < SIM_CI_MAX && code == NV_OK; c++)
        if (gi->ci[c].used && (!ci || ci->id == c))
            code = sim_ci_destroy(s->world, s->number, gi, &gi->ci[c]);
    if (code == NV_OK && !ci)
        code = sim_gi_destroy(s->world, s->number, gi);
    if (code != NV_OK)
        return refused(s, code, "destroy");
    announce(s);
    return 0;
}

static int create_ci(struct set *s)
{
    uint32_t gi_id, unused, slices;
    int r = set_instance(s, &gi_id, &unused);
    if (r == 0)
        r = set_u32(s, "the number of compute slices", 1, 7, &slices);
    if (r < 0)
        return r;
    struct sim_gi *gi = sim_gi_by_id(&s->world->mig[s->number], gi_id);
    if (!gi)
        return error_set(s->err, ERR_INVALID, 0, "there is no GPU instance %d", (int)gi_id);
    struct sim_ci *ci;
    nv_return code = NV_E_NOT_SUPPORTED;
    for (uint32_t index = 0; index < NV_CI_PROFILES; index++)
        if (sim_ci_slices(index) == slices) {
            code = sim_ci_create(s->world, s->number, gi, index, -1, &ci);
            break;
        }
    if (code != NV_OK)
        return refused(s, code, "create the compute instance");
    announce(s);
    return 0;
}

int set_gpu_mig(struct set *s)
{
    struct sim_gpu *g = &s->world->gpus[s->number];
    const struct sim_geometry *geo = sim_geometry_of(g);
    if (!g->mig_capable)
        return error_set(s->err, ERR_UNSUPPORTED, 0, "gpu %u (%s) has no MIG", s->number, g->name);
    if (set_accept(s, "on"))
        return change_mode(s, 1);
    if (set_accept(s, "off"))
        return change_mode(s, 0);
    if (!set_peek(s))
        return error_set(s->err, ERR_INVALID, 0, "what becomes of MIG is missing");
    if (!geo)
        return error_set(s->err, ERR_UNSUPPORTED, 0,
                         "the recorded host knows no MIG instances of %s", g->name);
    if (set_accept(s, "destroy"))
        return destroy(s);
    if (set_accept(s, "create-ci"))
        return create_ci(s);
    if (set_accept(s, "create-gi")) {
        if (!set_peek(s))
            return error_set(s->err, ERR_INVALID, 0, "the profile is missing, as \"3g.40gb\"");
        int r = create_part(s, geo, str_of(s->argv[s->at++]), false);
        if (r == 0)
            announce(s);
        return r;
    }
    return change_layout(s, geo);
}
