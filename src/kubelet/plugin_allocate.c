/* SPDX-License-Identifier: Apache-2.0 */
/* Allocate: what each container asked for is read, checked and granted; then the answer is written
 * (plugin_put.c). All or nothing: a refused container takes back what the call granted before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kubelet/plugin_allocate.h"
#include "wire/pbreader.h"

/* Field numbers of v1beta1 (spec/device-plugin.md 0). */
enum {
    REQUEST_CONTAINERS = 1,
    REQUEST_IDS = 1,
};

enum {
    SMALL_IDS = 64, /* up to here everything is on the stack */
    SMALL_MARKS = 512,
};

static int refuse(const struct allocation *a, struct error *err)
{
    return error_wrap(err, "invalid allocation request for \"%s\"", a->r->name);
}

static int malformed(const struct allocation *a, struct error *err)
{
    error_set(err, ERR_INVALID, 0, "not an AllocateRequest message of v1beta1");
    return refuse(a, err);
}

/* ---- reading and checking ---- */

static int count_ids(struct allocation *a, struct str request, struct error *err)
{
    struct pbr r = pbr_of(request);
    struct pbr_field f;
    size_t most = 2 * MAX(a->r->n_devices, (size_t)IDS_MIN);
    while (pbr_next(&r, &f)) {
        if (f.tag != REQUEST_CONTAINERS || f.wire != PBR_BYTES)
            continue;
        if (a->n_containers++ == CONTAINERS_MAX) {
            error_set(err, ERR_LIMIT, 0, "more than %d containers in one request", CONTAINERS_MAX);
            return refuse(a, err);
        }
        struct pbr inner = pbr_of(f.bytes);
        struct pbr_field id;
        while (pbr_next(&inner, &id))
            a->total += id.tag == REQUEST_IDS && id.wire == PBR_BYTES;
        if (inner.bad)
            return malformed(a, err);
        if (a->total > most) {
            error_set(err, ERR_LIMIT, 0,
                      "more than %zu device ids in one request; the resource has %zu devices", most,
                      a->r->n_devices);
            return refuse(a, err);
        }
    }
    a->n_containers = MIN(a->n_containers, (size_t)CONTAINERS_MAX);
    return r.bad ? malformed(a, err) : 0;
}

static int check_healthy(const struct allocation *a, const struct device *d, struct error *err)
{
    if (d->healthy)
        return 0;
    return error_set(err, ERR_UNAVAILABLE, 0,
                     "device %s is withdrawn: %s; it is offered again when that is over", d->id,
                     d->reason ? d->reason : "unhealthy");
}

static bool wants_nodes(const struct plugin_config *c)
{
    return (c->list_strategies & (LIST_CDI_ANNOTATIONS | LIST_CDI_CRI)) || c->pass_device_specs;
}

/* A container without these would start and find no gpu. */
static int check_nodes(const struct allocation *a, const struct device *d, struct error *err)
{
    const struct survey *s = a->c->inv->survey;
    if (!wants_nodes(a->c->config) || !allocation_has_nodes(a->c))
        return 0;
    const struct gpu *g = &s->gpus[d->gpu];
    if (!(g->valid & GPU_HAS_MINOR))
        return error_set(err, ERR_UNAVAILABLE, 0,
                         "the driver gives no minor number for gpu %s, so its device node is not "
                         "known",
                         g->uuid);
    if (d->part != UINT32_MAX && !(g->parts[d->part].valid & PART_HAS_CAPS))
        return error_set(err, ERR_UNAVAILABLE, 0,
                         "/proc/driver/nvidia-caps/mig-minors has no entry for part %s, so its "
                         "device nodes are not known",
                         g->parts[d->part].uuid);
    return 0;
}

/* Two shares of one gpu or part in one container. */
static int check_distinct(const struct allocation *a, size_t container, const struct device *d,
                          struct error *err)
{
    uint16_t *mark = &a->base_marks[d->base_number];
    bool doubled = *mark == container + 1;
    *mark = (uint16_t)(container + 1);
    if (!doubled || d->share == UINT32_MAX)
        return 0;
    if (a->c->not_distinct)
        *a->c->not_distinct = true;
    if (!a->c->config->require_distinct)
        return 0;
    return error_set(err, ERR_CONFLICT, 0,
                     "invalid request: two of the shares are of %s (rule: sharing.requireDistinct "
                     "is true on this node); ask for fewer or wait until other gpus have free "
                     "shares",
                     d->base);
}

static int add_device(struct allocation *a, size_t container, struct str id, struct error *err)
{
    const struct device *d = resource_find(a->r, id);
    if (!d)
        return error_set(err, ERR_NOT_FOUND, 0, "invalid request: unknown device: %.*s",
                         (int)MIN(id.n, (size_t)200), id.p ? id.p : "");
    uint16_t *mark = &a->device_marks[d - a->r->devices];
    if (*mark == container + 1)
        return 0;
    if (*mark)
        return error_set(err, ERR_CONFLICT, 0,
                         "invalid request: device %s is asked for by two containers", d->id);
    int r = check_healthy(a, d, err);
    if (r == 0)
        r = check_nodes(a, d, err);
    if (r == 0)
        r = check_distinct(a, container, d, err);
    if (r < 0)
        return r;
    *mark = (uint16_t)(container + 1);
    a->devices[a->n++] = d;
    return 0;
}

static const char *sharing_key(const struct resource *r)
{
    return r->sharing == SHARING_MPS ? "mps" : "timeSlicing";
}

static int check_count(const struct allocation *a, const struct container *k, struct error *err)
{
    if (k->n_whole == k->n || k->asked <= 1 ||
        !a->c->config->sharing.fail_requests_greater_than_one)
        return 0;
    return error_set(err, ERR_INVALID, 0,
                     "invalid request: maximum request size for shared resources is 1; found %zu "
                     "(rule: sharing.%s.failRequestsGreaterThanOne is true on this node, because a "
                     "second share gives no more of a gpu; ask for 1 in the container's limits)",
                     k->asked, sharing_key(a->r));
}

/* The ledger takes whole devices and shares apart. */
static void fill_columns(struct allocation *a, struct container *k)
{
    size_t at = k->first;
    for (int shares = 0; shares <= 1; shares++) {
        for (size_t i = k->first; i < a->n; i++) {
            const struct device *d = a->devices[i];
            if ((d->share != UINT32_MAX) != shares)
                continue;
            a->ids[at] = d->id;
            a->bases[at] = d->base;
            a->gpus[at++] = a->c->inv->survey->gpus[d->gpu].uuid;
            k->n_whole += !shares;
        }
    }
}

static int add_container(struct allocation *a, size_t number, struct str request, struct error *err)
{
    struct container *k = &a->containers[number];
    struct pbr r = pbr_of(request);
    struct pbr_field f;
    *k = (struct container){ .first = a->n };
    while (pbr_next(&r, &f)) {
        if (f.tag != REQUEST_IDS || f.wire != PBR_BYTES)
            continue;
        k->asked++;
        int rc = add_device(a, number, f.bytes, err);
        if (rc < 0)
            return rc;
    }
    k->n = a->n - k->first;
    fill_columns(a, k);
    return check_count(a, k, err);
}

static int add_containers(struct allocation *a, struct str request, struct error *err)
{
    struct pbr r = pbr_of(request);
    struct pbr_field f;
    size_t number = 0;
    while (pbr_next(&r, &f)) {
        if (f.tag != REQUEST_CONTAINERS || f.wire != PBR_BYTES)
            continue;
        if (add_container(a, number++, f.bytes, err) < 0)
            return refuse(a, err);
    }
    return 0;
}

/* ---- the ledger ---- */

/* Step 2 i grants the whole devices of container i, step 2 i + 1 its shares. */
static struct grant_request grant_of(const struct allocation *a, size_t step)
{
    const struct container *k = &a->containers[step / 2];
    bool shares = step % 2;
    size_t first = k->first + (shares ? k->n_whole : 0);
    return (struct grant_request){
        .resource = a->r->name,
        .ids = a->ids + first,
        .bases = a->bases + first,
        .gpu_uuids = a->gpus + first,
        .n = shares ? k->n - k->n_whole : k->n_whole,
        .exclusive = !shares,
    };
}

static void undo(const struct allocation *a, size_t steps)
{
    while (a->c->ledger && steps-- > 0) {
        struct grant_request g = grant_of(a, steps);
        if (g.n > 0)
            ledger_grant_undo(a->c->ledger, &g);
    }
}

static int grant(const struct allocation *a, struct error *err)
{
    for (size_t i = 0; a->c->ledger && i < 2 * a->n_containers; i++) {
        struct grant_request g = grant_of(a, i);
        if (g.n > 0 && ledger_grant(a->c->ledger, &g, a->c->now_ns, err) < 0) {
            undo(a, i);
            return refuse(a, err);
        }
    }
    return 0;
}

static int put_answer(struct allocation *a, struct buf *b, struct error *err)
{
    int r = 0;
    for (size_t i = 0; i < a->n_containers && r == 0; i++)
        r = allocation_put(a, &a->containers[i], b, err);
    if (r == 0)
        r = buf_check(b, "Allocate answer", err);
    return r < 0 ? refuse(a, err) : 0;
}

static int allocate(struct allocation *a, struct str request, struct buf *answer, struct error *err)
{
    int r = add_containers(a, request, err);
    if (r == 0)
        r = grant(a, err);
    if (r < 0)
        return r;
    r = put_answer(a, answer, err);
    if (r < 0)
        undo(a, 2 * a->n_containers);
    return r;
}

static void lay_out(struct allocation *a, void *columns, uint16_t *marks)
{
    a->devices = columns;
    a->ids = (const char **)(a->devices + a->total);
    a->bases = a->ids + a->total;
    a->gpus = a->bases + a->total;
    a->device_marks = marks;
    a->base_marks = marks + a->r->n_devices;
}

int plugin_allocate(const struct plugin_context *c, const struct resource *r, struct str request,
                    struct buf *answer, struct error *err)
{
    struct allocation a;
    a.c = c;
    a.r = r;
    a.n = a.total = a.n_containers = 0;
    if (c->not_distinct)
        *c->not_distinct = false;
    int rc = count_ids(&a, request, err);
    if (rc < 0)
        return rc;

    size_t marks = r->n_devices + r->n_bases;
    if (a.total <= SMALL_IDS && marks <= SMALL_MARKS) {
        const void *columns[4 * SMALL_IDS];
        uint16_t small_marks[SMALL_MARKS] = { 0 };
        lay_out(&a, columns, small_marks);
        return allocate(&a, request, answer, err);
    }
    size_t columns = 4 * a.total * sizeof(void *);
    auto_free char *block = try_alloc(columns + marks * sizeof(uint16_t));
    if (!block) {
        error_set(err, ERR_LIMIT, 0, "out of memory for %zu device ids", a.total);
        return refuse(&a, err);
    }
    lay_out(&a, block, (uint16_t *)(void *)(block + columns));
    return allocate(&a, request, answer, err);
}

bool plugin_request_ids(struct str request, size_t container, char *ret, size_t size)
{
    struct pbr r = pbr_of(request);
    struct pbr_field f, id;
    bool found = false;
    ret[0] = '\0';
    while (!found && pbr_next(&r, &f))
        found = f.tag == REQUEST_CONTAINERS && f.wire == PBR_BYTES && container-- == 0;
    if (!found)
        return false;
    struct pbr inner = pbr_of(f.bytes);
    size_t at = 0;
    while (pbr_next(&inner, &id) && at < size) {
        if (id.tag != REQUEST_IDS || id.wire != PBR_BYTES)
            continue;
        int n = snprintf(ret + at, size - at, "%s%.*s", at ? "," : "", STR_FMT(id.bytes));
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}
