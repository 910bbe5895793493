/* SPDX-License-Identifier: Apache-2.0 */
#include "node/inventory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "node/resources.h"

enum {
    INVENTORY_MEMORY_MAX = 128 * 1024 * 1024, /* all lists; one list is held by DEVICE_LIST_MAX */
    NOTES_MAX = 64,
    SOCKET_NAME_MAX = 64, /* with kubelet's usual directory a path stays below sun_path (108) */
    DIGITS_MAX = 10,
};

/* ---- socket names ---- */

static uint64_t fnv1a(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h;
}

/* "nvidia-gpu.sock" of "nvidia.com/gpu", as the peer. Another prefix, or a name too long for a
 * socket path, gets a short form that depends on the name alone and cannot meet a plain one. */
static const char *socket_name(struct arena *a, const char *resource)
{
    static const char ours[] = "nvidia.com/";
    const char *slash = strchr(resource, '/');
    const char *tail = slash ? slash + 1 : resource;
    if (strncmp(resource, ours, sizeof ours - 1) == 0 &&
        strlen("nvidia-.sock") + strlen(tail) <= SOCKET_NAME_MAX)
        return arena_printf(a, "nvidia-%s.sock", tail);
    return arena_printf(a, "nvidia-%.24s_%016llx.sock", tail, (unsigned long long)fnv1a(resource));
}

/* ---- list size ---- */

static size_t varint_size(uint64_t v)
{
    size_t n = 1;
    while (v >>= 7)
        n++;
    return n;
}

static size_t digits(uint32_t v)
{
    size_t n = 1;
    while (v /= 10)
        n++;
    return n;
}

/* Encoded bytes of one Device within a ListAndWatchResponse: ID, health, topology. */
static size_t device_wire_size(size_t id, const struct gpu *g, bool whole)
{
    size_t n = 1 + varint_size(id) + id + 2 + strlen("Unhealthy");
    if ((g->valid & GPU_HAS_NUMA) && g->numa >= 0 && whole) {
        size_t node = g->numa ? 1 + varint_size((uint64_t)g->numa) : 0;
        size_t topology = 1 + varint_size(node) + node;
        n += 1 + varint_size(topology) + topology;
    }
    return 1 + varint_size(n) + n;
}

static int check_list_size(const struct draft *d, const struct resource *r, struct error *err)
{
    uint64_t bytes = 0, devices = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct base *b = &d->bases[i];
        if (strcmp(b->name, r->name) != 0)
            continue;
        uint32_t shares = b->replicas;
        size_t id = strlen(b->id) + (shares ? 2 + digits(shares - 1) : 0);
        bytes += (uint64_t)MAX(shares, 1u) *
                 device_wire_size(id, &d->survey->gpus[b->gpu], strcmp(b->id, "all") != 0);
        devices += MAX(shares, 1u);
    }
    if (bytes <= DEVICE_LIST_MAX)
        return 0;
    return error_set(err, ERR_LIMIT, 0,
                     "%s: the list of its %llu devices (%zu x up to %u replicas) takes %llu bytes; "
                     "kubelet accepts 4 MiB and we send at most %d: use at most %llu replicas",
                     r->name, (unsigned long long)devices, r->n_bases, r->replicas,
                     (unsigned long long)bytes, DEVICE_LIST_MAX,
                     (unsigned long long)(r->replicas * (uint64_t)DEVICE_LIST_MAX / bytes));
}

/* ---- what may be offered ---- */

static bool withheld(const struct draft *d, const struct base *b, const char **ret_reason)
{
    const struct ledger *l = d->in->ledger;
    const struct gpu *g = &d->survey->gpus[b->gpu];
    return l && !ledger_may_offer(l, b->name, b->replicas > 0, g->uuid, b->id, ret_reason);
}

static struct health_view view_of(const struct draft *d, const struct base *b)
{
    const struct health *h = d->in->health;
    const struct gpu *g = &d->survey->gpus[b->gpu];
    struct health_view v = { HEALTH_OK };
    if (!h)
        return v;
    if (b->part != UINT32_MAX)
        return health_part(h, g->uuid, g->parts[b->part].gi, g->parts[b->part].ci);
    v = health_gpu(h, g->uuid);
    /* The one device "all" of WSL stands for every gpu. */
    for (size_t i = 0; strcmp(b->id, "all") == 0 && i < d->survey->n_gpus; i++) {
        struct health_view other = health_gpu(h, d->survey->gpus[i].uuid);
        if (v.state != HEALTH_UNHEALTHY && other.state != HEALTH_OK)
            v = other;
    }
    return v;
}

static int judge(struct draft *d, struct base *b, struct error *err)
{
    struct health_view v = view_of(d, b);
    const char *reason = NULL;
    if (v.state == HEALTH_UNHEALTHY)
        reason = v.reason ? v.reason : "unhealthy";
    else if (d->survey->gpus[b->gpu].lost && (d->survey->driver == DRIVER_OK || !d->in->health))
        reason = "lost";
    else if (withheld(d, b, &reason))
        reason = reason ? reason : "withheld";
    else
        reason = NULL;
    b->healthy = !reason;
    b->reason = reason ? arena_strdup(&d->inv->arena, str_of(reason)) : NULL;
    return reason && !b->reason ? draft_no_memory(err) : 0;
}

static void note_unmonitored(struct draft *d)
{
    for (size_t i = 0; i < d->survey->n_gpus; i++) {
        const struct gpu *g = &d->survey->gpus[i];
        if (!d->inv->gpus[i].skip && !g->lost && !(g->valid & GPU_HAS_EVENTS))
            findings_add(&d->inv->notes, "gpu.unmonitored", SEVERITY_INFO, draft_subject(d, g),
                         "nothing: expected in a vGPU guest",
                         "the driver reports no XID events for it; its faults are seen by surveys "
                         "alone");
    }
}

/* ---- devices ---- */

static char *write_number(char *p, uint32_t v)
{
    char text[DIGITS_MAX];
    size_t n = 0;
    do {
        text[n++] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    while (n)
        *p++ = text[--n];
    *p = '\0';
    return p + 1;
}

static int fill_base(struct draft *d, struct resource *r, const struct base *b,
                     uint32_t base_number, struct error *err)
{
    size_t len = strlen(b->id), n = MAX(b->replicas, 1u);
    struct device like = {
        .id = b->id,
        .base = b->id,
        .index = b->index,
        .gpu = b->gpu,
        .part = b->part,
        .share = UINT32_MAX,
        .base_number = base_number,
        .healthy = b->healthy,
        .reason = b->reason,
    };
    if (!b->replicas) {
        r->devices[r->n_devices++] = like;
        return 0;
    }
    char *ids = arena_array(&d->inv->arena, n, len + 2 + digits(b->replicas - 1) + 1);
    if (!ids)
        return draft_no_memory(err);
    for (uint32_t share = 0; share < b->replicas; share++) {
        like.id = ids;
        like.share = share;
        r->devices[r->n_devices++] = like;
        memcpy(ids, b->id, len);
        memcpy(ids + len, "::", 2);
        ids = write_number(ids + len + 2, share);
    }
    return 0;
}

/* The number after `v` below `limit` in the order of decimal texts (1, 10, 11, 2, …); 0 at the end.
 */
static uint32_t next_as_text(uint32_t v, uint32_t limit)
{
    if (v == 0)
        return limit > 1 ? 1 : 0;
    if ((uint64_t)v * 10 < limit)
        return v * 10;
    while (v && (v % 10 == 9 || v + 1 >= limit))
        v /= 10;
    return v ? v + 1 : 0;
}

static int by_id(const void *a, const void *b, void *devices)
{
    const struct device *d = devices;
    return strcmp(d[*(const size_t *)a].id, d[*(const size_t *)b].id);
}

/* Sorts device numbers by id. Sorting the few bases and walking each one's shares in text order is
 * linear; ids for which that is not the order (one id the beginning of another) are sorted. */
static int index_devices(struct arena *a, struct resource *r, struct error *err)
{
    size_t *first = arena_array(a, r->n_bases + 1, sizeof *first);
    r->by_id = arena_array(a, r->n_devices + 1, sizeof *r->by_id);
    if (!first || !r->by_id)
        return draft_no_memory(err);
    size_t n = 0;
    for (size_t i = 0; i < r->n_devices; i++)
        if (i == 0 || r->devices[i].base_number != r->devices[i - 1].base_number)
            first[n++] = i;
    first[n] = r->n_devices;
    size_t *order = arena_array(a, n + 1, sizeof *order);
    if (!order)
        return draft_no_memory(err);
    memcpy(order, first, n * sizeof *order);
    qsort_r(order, n, sizeof *order, by_id, r->devices);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct device *base = &r->devices[order[i]];
        uint32_t shares = (uint32_t)(first[base->base_number + 1] - order[i]), share = 0;
        do
            r->by_id[at++] = order[i] + share;
        while ((share = next_as_text(share, shares)) != 0);
    }
    for (size_t i = 1; i < r->n_devices; i++)
        if (by_id(&r->by_id[i - 1], &r->by_id[i], r->devices) > 0) {
            qsort_r(r->by_id, r->n_devices, sizeof *r->by_id, by_id, r->devices);
            break;
        }
    return 0;
}

static int fill(struct draft *d, struct resource *r, struct error *err)
{
    int rc = check_list_size(d, r, err);
    if (rc < 0)
        return rc;
    size_t n = r->n_devices;
    r->devices = arena_array(&d->inv->arena, n + 1, sizeof *r->devices);
    if (!r->devices)
        return draft_no_memory(err);
    r->n_devices = 0;
    uint32_t number = 0;
    for (size_t i = 0; i < d->n; i++) {
        if (strcmp(d->bases[i].name, r->name) != 0)
            continue;
        rc = fill_base(d, r, &d->bases[i], number++, err);
        if (rc < 0)
            return rc;
    }
    return index_devices(&d->inv->arena, r, err);
}

/* ---- resources ---- */

static struct resource *resource_named(struct inventory *inv, const char *name)
{
    for (size_t i = 0; i < inv->n_resources; i++)
        if (strcmp(inv->resources[i].name, name) == 0)
            return &inv->resources[i];
    return NULL;
}

static struct resource *resource_add(struct inventory *inv, const char *name, const char *base_name)
{
    struct resource *r = &inv->resources[inv->n_resources];
    r->name = arena_strdup(&inv->arena, str_of(name));
    r->base_name = arena_strdup(&inv->arena, str_of(base_name));
    r->socket = socket_name(&inv->arena, name);
    if (!r->name || !r->base_name || !r->socket)
        return NULL;
    inv->n_resources++;
    return r;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct resource *)a)->name, ((const struct resource *)b)->name);
}

static int name_resources(struct draft *d, struct error *err)
{
    struct inventory *inv = d->inv;
    const struct inventory *before = d->in->before;
    size_t max = d->n + (before ? before->n_resources : 0);
    inv->resources = arena_array(&inv->arena, max + 1, sizeof *inv->resources);
    if (!inv->resources)
        return draft_no_memory(err);
    for (size_t i = 0; i < d->n; i++) {
        const struct base *b = &d->bases[i];
        struct resource *r = resource_named(inv, b->name);
        if (!r && !(r = resource_add(inv, b->name, b->resource)))
            return draft_no_memory(err);
        if (b->replicas)
            r->sharing = b->sharing;
        r->replicas = MAX(r->replicas, MAX(b->replicas, 1u));
        r->n_devices += MAX(b->replicas, 1u);
        r->n_bases++;
    }
    for (size_t i = 0; before && i < before->n_resources; i++) {
        const struct resource *was = &before->resources[i];
        if (resource_named(inv, was->name))
            continue;
        struct resource *r = resource_add(inv, was->name, was->base_name);
        if (!r)
            return draft_no_memory(err);
        r->sharing = was->sharing;
        r->replicas = was->replicas;
    }
    qsort(inv->resources, inv->n_resources, sizeof *inv->resources, by_name);
    return 0;
}

static int build(struct draft *d, struct error *err)
{
    int r = resources_collect(d, err);
    if (r == 0)
        r = sharing_apply(d, err);
    if (r == 0)
        r = name_resources(d, err);
    for (size_t i = 0; r == 0 && i < d->n; i++)
        r = judge(d, &d->bases[i], err);
    for (size_t i = 0; r == 0 && i < d->inv->n_resources; i++)
        r = fill(d, &d->inv->resources[i], err);
    if (r == 0)
        note_unmonitored(d);
    return r;
}

int inventory_build(const struct inventory_input *in, struct inventory **ret, struct error *err)
{
    struct inventory *inv = x_alloc(sizeof *inv);
    arena_init(&inv->arena, INVENTORY_MEMORY_MAX);
    findings_init(&inv->notes, &inv->arena, NOTES_MAX);
    /* A driver that is gone tells nothing about the host's gpus: the last picture stays. */
    bool blind = in->survey->driver != DRIVER_OK && in->survey->n_gpus == 0 && in->before;
    inv->survey = survey_ref(blind ? in->before->survey : in->survey);
    struct draft d = { .in = in, .inv = inv, .survey = inv->survey };
    int r = build(&d, err);
    if (r < 0) {
        inventory_free(inv);
        return r;
    }
    *ret = inv;
    return 0;
}

void inventory_free(struct inventory *inv)
{
    if (!inv)
        return;
    survey_unref(inv->survey);
    arena_done(&inv->arena);
    free(inv);
}

/* ---- looking at it ---- */

const struct resource *inventory_resource(const struct inventory *inv, const char *name)
{
    const struct resource key = { .name = name };
    return inv->n_resources
               ? bsearch(&key, inv->resources, inv->n_resources, sizeof *inv->resources, by_name)
               : NULL;
}

const struct device *resource_find(const struct resource *r, struct str id)
{
    size_t low = 0, high = r->n_devices;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct device *d = &r->devices[r->by_id[middle]];
        int order = id.n ? strncmp(d->id, id.p, id.n) : 1;
        if (order == 0)
            order = d->id[id.n] != '\0';
        if (order == 0)
            return d;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* The NUMA node as a list shows it; -1: none. */
static int32_t shown_numa(const struct inventory *inv, const struct device *d)
{
    const struct gpu *g = &inv->survey->gpus[d->gpu];
    return (g->valid & GPU_HAS_NUMA) && g->numa >= 0 ? g->numa : -1;
}

static bool same_list(const struct inventory *a, const struct resource *x,
                      const struct inventory *b, const struct resource *y)
{
    if (strcmp(x->name, y->name) != 0 || strcmp(x->socket, y->socket) != 0 ||
        x->n_devices != y->n_devices)
        return false;
    for (size_t i = 0; i < x->n_devices; i++) {
        const struct device *p = &x->devices[i], *q = &y->devices[i];
        if (p->healthy != q->healthy || strcmp(p->id, q->id) != 0 ||
            shown_numa(a, p) != shown_numa(b, q))
            return false;
    }
    return true;
}

bool inventory_same(const struct inventory *a, const struct inventory *b)
{
    if (a->n_resources != b->n_resources)
        return false;
    for (size_t i = 0; i < a->n_resources; i++)
        if (!same_list(a, &a->resources[i], b, &b->resources[i]))
            return false;
    return true;
}
