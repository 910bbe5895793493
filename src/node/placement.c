/* SPDX-License-Identifier: Apache-2.0 */
#include "node/placement.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "node/placement_links.h"

struct choice {
    struct arena *arena;
    const struct inventory *inv;
    const struct resource *r;
    uint8_t *state;                 /* of each device of the resource: enum device_state */
    size_t n_available, n_required; /* distinct ones; required ones are not in available */
    size_t size;
    size_t *picks; /* `size` device numbers */
    size_t n_picks;
    bool require_distinct, distinct;
};

enum device_state { DEVICE_TAKEN, DEVICE_AVAILABLE, DEVICE_REQUIRED };

static int no_memory(struct error *err)
{
    return error_set(err, ERR_LIMIT, 0, "preferred allocation needs more memory than we allow");
}

static int mark(struct choice *c, const struct placement_request *req, struct error *err)
{
    for (size_t i = 0; i < req->n_must_include; i++) {
        const struct device *d = resource_find(c->r, req->must_include[i]);
        if (!d)
            return error_set(err, ERR_NOT_FOUND, 0,
                             "unable to retrieve list of required devices: no device with uuid: "
                             "%.*s",
                             STR_FMT(req->must_include[i]));
        uint8_t *state = &c->state[d - c->r->devices];
        c->n_required += *state != DEVICE_REQUIRED;
        *state = DEVICE_REQUIRED;
    }
    for (size_t i = 0; i < req->n_available; i++) {
        const struct device *d = resource_find(c->r, req->available[i]);
        if (!d || c->state[d - c->r->devices] != DEVICE_TAKEN)
            continue;
        c->state[d - c->r->devices] = DEVICE_AVAILABLE;
        c->n_available++;
    }
    return 0;
}

/* ---- whole gpus ---- */

static bool is_aligned(const struct resource *r)
{
    if (r->n_bases > LINK_GPUS_MAX)
        return false;
    for (size_t i = 0; i < r->n_devices; i++) {
        const struct device *d = &r->devices[i];
        if (d->part != UINT32_MAX || d->share != UINT32_MAX || strcmp(d->index, "all") == 0)
            return false;
    }
    return true;
}

static int choose_aligned(struct choice *c, struct error *err)
{
    const struct resource *r = c->r;
    struct link_problem *p = arena_alloc(c->arena, sizeof *p);
    if (!p)
        return no_memory(err);
    size_t of[LINK_GPUS_MAX];
    uint8_t chosen[LINK_GPUS_MAX];
    p->size = c->size;
    for (size_t i = 0; i < r->n_devices; i++) {
        if (c->state[i] == DEVICE_TAKEN)
            continue;
        for (size_t k = 0; k < p->n; k++)
            p->score[p->n][k] = p->score[k][p->n] =
                links_score(survey_link(c->inv->survey, r->devices[i].gpu, r->devices[of[k]].gpu));
        p->required[p->n] = c->state[i] == DEVICE_REQUIRED;
        of[p->n++] = i;
    }
    if (p->size == p->n) {
        memcpy(c->picks, of, p->n * sizeof *of);
    } else {
        links_choose(p, chosen);
        for (size_t i = 0; i < c->size; i++)
            c->picks[i] = of[chosen[i]];
    }
    c->n_picks = c->size;
    return 0;
}

/* ---- shares and parts ---- */

/* Where load is counted: a shared gpu or part, or, for parts that are not shared, their gpu. */
struct bucket {
    size_t *available; /* device numbers, lowest first */
    size_t n_available, next;
    size_t gone, picked; /* taken by others or in this call; picked in this call */
    bool used;           /* a required device or a pick is on it */
    uint32_t gpu;        /* place in the survey */
};

static bool counts_by_gpu(const struct device *d)
{
    return d->share == UINT32_MAX && d->part != UINT32_MAX;
}

static bool same_bucket(const struct device *a, const struct device *b)
{
    if (counts_by_gpu(a) || counts_by_gpu(b))
        return counts_by_gpu(a) && counts_by_gpu(b) && a->gpu == b->gpu;
    return a->base_number == b->base_number;
}

struct load {
    struct bucket *buckets; /* in order of their first device */
    size_t n;
    size_t *gone; /* by place of the gpu in the survey */
};

static int measure(struct choice *c, struct load *l, struct error *err)
{
    const struct resource *r = c->r;
    l->buckets = arena_array(c->arena, r->n_bases + 1, sizeof *l->buckets);
    l->gone = arena_array(c->arena, c->inv->survey->n_gpus + 1, sizeof *l->gone);
    size_t *room = arena_array(c->arena, r->n_devices + 1, sizeof *room);
    if (!l->buckets || !l->gone || !room)
        return no_memory(err);
    for (size_t i = 0; i < r->n_devices; i++) {
        const struct device *d = &r->devices[i];
        if (i == 0 || !same_bucket(&r->devices[i - 1], d))
            l->buckets[l->n++] = (struct bucket){ .available = room + i, .gpu = d->gpu };
        struct bucket *b = &l->buckets[l->n - 1];
        b->used |= c->state[i] == DEVICE_REQUIRED;
        if (c->state[i] == DEVICE_AVAILABLE) {
            b->available[b->n_available++] = i;
        } else {
            b->gone++;
            l->gone[d->gpu]++;
        }
    }
    return 0;
}

static bool better(const struct load *l, const struct bucket *a, const struct bucket *b,
                   enum placement_policy policy)
{
    if (a->gone != b->gone)
        return policy == PLACE_PACKED ? a->gone > b->gone : a->gone < b->gone;
    if (a->picked != b->picked)
        return a->picked < b->picked;
    size_t x = l->gone[a->gpu], y = l->gone[b->gpu]; /* shares of parts: look at the gpu too */
    return policy == PLACE_PACKED ? x > y : x < y;
}

/* Shares of one gpu or part are not distinct; parts of one gpu are. */
static bool exhausted(const struct choice *c, const struct bucket *b)
{
    if (b->next == b->n_available)
        return true;
    return c->require_distinct && b->used && !counts_by_gpu(&c->r->devices[b->available[b->next]]);
}

static int refuse_shared(const struct choice *c, struct error *err)
{
    return error_set(err, ERR_CONFLICT, 0,
                     "%zu devices of %s on distinct gpus are asked for (sharing.requireDistinct), "
                     "but its free shares are on fewer gpus; ask for fewer or wait for others to "
                     "end",
                     c->size, c->r->name);
}

static int choose_greedy(struct choice *c, enum placement_policy policy, struct error *err)
{
    struct load l = { 0 };
    int rc = measure(c, &l, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < c->r->n_devices; i++)
        if (c->state[i] == DEVICE_REQUIRED)
            c->picks[c->n_picks++] = i;
    while (c->n_picks < c->size) {
        struct bucket *best = NULL;
        for (size_t i = 0; i < l.n; i++)
            if (!exhausted(c, &l.buckets[i]) && (!best || better(&l, &l.buckets[i], best, policy)))
                best = &l.buckets[i];
        if (!best)
            return refuse_shared(c, err);
        c->picks[c->n_picks++] = best->available[best->next++];
        best->gone++;
        best->picked++;
        best->used = true;
        l.gone[best->gpu]++;
    }
    return 0;
}

/* ---- both ---- */

static int check_distinct(struct choice *c, struct error *err)
{
    uint8_t *seen = arena_array(c->arena, c->r->n_bases + 1, sizeof *seen);
    if (!seen)
        return no_memory(err);
    for (size_t i = 0; i < c->n_picks; i++) {
        uint32_t base = c->r->devices[c->picks[i]].base_number;
        c->distinct = c->distinct && !seen[base];
        seen[base] = 1;
    }
    return c->require_distinct && !c->distinct ? refuse_shared(c, err) : 0;
}

static int hand_out(struct choice *c, const struct str **ret_ids, size_t *ret_n, struct error *err)
{
    struct str *ids = arena_array(c->arena, c->n_picks + 1, sizeof *ids);
    if (!ids)
        return no_memory(err);
    for (size_t i = 0; i < c->n_picks; i++)
        ids[i] = str_of(c->r->devices[c->picks[i]].id);
    *ret_ids = ids;
    *ret_n = c->n_picks;
    return 0;
}

int placement_choose(struct arena *a, const struct inventory *inv, const struct resource *r,
                     enum placement_policy policy, const struct placement_request *req,
                     const struct str **ret_ids, size_t *ret_n, bool *ret_distinct,
                     struct error *err)
{
    *ret_ids = NULL;
    *ret_n = 0;
    *ret_distinct = true;
    struct choice c = {
        .arena = a,
        .inv = inv,
        .r = r,
        .require_distinct = req->require_distinct,
        .distinct = true,
    };
    c.state = arena_array(a, r->n_devices + 1, sizeof *c.state);
    if (!c.state)
        return no_memory(err);
    int rc = mark(&c, req, err);
    if (rc < 0)
        return rc;
    if (req->size <= 0 || (uint64_t)req->size < c.n_required)
        return 0;
    bool aligned = is_aligned(r);
    if ((uint64_t)req->size > c.n_available + c.n_required)
        return aligned ? 0
                       : error_set(err, ERR_UNAVAILABLE, 0,
                                   "not enough available devices to satisfy allocation");
    c.size = (size_t)req->size;
    c.picks = arena_array(a, c.size + 1, sizeof *c.picks);
    if (!c.picks)
        return no_memory(err);
    rc = aligned ? choose_aligned(&c, err) : choose_greedy(&c, policy, err);
    if (rc == 0)
        rc = check_distinct(&c, err);
    if (rc == 0)
        rc = hand_out(&c, ret_ids, ret_n, err);
    if (rc == 0)
        *ret_distinct = c.distinct;
    return rc;
}
