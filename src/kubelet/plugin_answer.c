/* SPDX-License-Identifier: Apache-2.0 */
/* Device list, options, registration and preferred allocation. Allocate: plugin_allocate.c. */
#include "kubelet/plugin_answer.h"

#include <string.h>

#include "base/mem.h"
#include "node/placement.h"
#include "wire/pbreader.h"
#include "wire/pbwriter.h"

/* Field numbers of v1beta1 (spec/device-plugin.md 0). */
enum {
    LIST_DEVICES = 1,
    DEVICE_ID = 1,
    DEVICE_HEALTH = 2,
    DEVICE_TOPOLOGY = 3,
    TOPOLOGY_NODES = 1,
    NUMA_ID = 1,
    OPTIONS_PREFERRED = 2,
    REGISTER_VERSION = 1,
    REGISTER_ENDPOINT = 2,
    REGISTER_RESOURCE = 3,
    REGISTER_OPTIONS = 4,
    PREFERRED_CONTAINERS = 1,
    PREFERRED_AVAILABLE = 1,
    PREFERRED_MUST = 2,
    PREFERRED_SIZE = 3,
    PREFERRED_ANSWERS = 1,
    PREFERRED_IDS = 1,
};

enum { PREFERRED_ARENA = 64 * 1024 * 1024 }; /* limit of one call; what is used follows the ids */

static void put_topology(struct buf *b, int32_t numa)
{
    size_t topology = pbw_begin(b, DEVICE_TOPOLOGY);
    size_t node = pbw_begin(b, TOPOLOGY_NODES);
    pbw_int(b, NUMA_ID, numa); /* node 0: an empty message, as proto3 has it */
    pbw_end(b, node);
    pbw_end(b, topology);
}

int plugin_list(const struct resource *r, const struct survey *s, struct buf *answer,
                struct error *err)
{
    for (size_t i = 0; i < r->n_devices; i++) {
        const struct device *d = &r->devices[i];
        const struct gpu *g = d->gpu < s->n_gpus ? &s->gpus[d->gpu] : NULL;
        size_t m = pbw_begin(answer, LIST_DEVICES);
        pbw_item(answer, DEVICE_ID, str_of(d->id));
        pbw_item(answer, DEVICE_HEALTH, d->healthy ? STR("Healthy") : STR("Unhealthy"));
        if (g && (g->valid & GPU_HAS_NUMA) && strcmp(s->platform, "wsl") != 0)
            put_topology(answer, g->numa);
        pbw_end(answer, m);
    }
    if (buf_check(answer, "device list", err) == 0)
        return 0;
    return error_set(err, ERR_LIMIT, 0,
                     "the list of the %zu devices of %s is larger than the %zu bytes that kubelet "
                     "takes; lower its replicas (now %u)",
                     r->n_devices, r->name, answer->max, r->replicas);
}

int plugin_options(struct buf *answer, struct error *err)
{
    pbw_bool(answer, OPTIONS_PREFERRED, true);
    return buf_check(answer, "options", err);
}

int plugin_register_request(const struct resource *r, struct buf *request, struct error *err)
{
    pbw_item(request, REGISTER_VERSION, STR("v1beta1"));
    pbw_item(request, REGISTER_ENDPOINT, str_of(r->socket));
    pbw_item(request, REGISTER_RESOURCE, str_of(r->name));
    size_t m = pbw_begin(request, REGISTER_OPTIONS);
    int rc = plugin_options(request, err);
    pbw_end(request, m);
    return rc < 0 ? rc : buf_check(request, "register request", err);
}

/* ---- preferred allocation ---- */

static int malformed(struct error *err)
{
    return error_set(err, ERR_INVALID, 0, "not a PreferredAllocationRequest message of v1beta1");
}

static int count_fields(struct str request, const struct resource *r, size_t *ret_available,
                        size_t *ret_must, struct error *err)
{
    struct pbr reader = pbr_of(request);
    struct pbr_field f;
    size_t most = MAX(r->n_devices, (size_t)IDS_MIN);
    *ret_available = *ret_must = 0;
    while (pbr_next(&reader, &f)) {
        *ret_available += f.tag == PREFERRED_AVAILABLE && f.wire == PBR_BYTES;
        *ret_must += f.tag == PREFERRED_MUST && f.wire == PBR_BYTES;
    }
    if (reader.bad)
        return malformed(err);
    if (*ret_available > most || *ret_must > most)
        return error_set(err, ERR_LIMIT, 0,
                         "more than %zu device ids in one request; the resource has %zu devices",
                         most, r->n_devices);
    return 0;
}

static int read_request(struct arena *a, struct str request, const struct resource *r,
                        struct placement_request *ret, struct error *err)
{
    size_t n_available, n_must;
    int rc = count_fields(request, r, &n_available, &n_must, err);
    if (rc < 0)
        return rc;
    struct str *available = arena_array(a, n_available + 1, sizeof(*available));
    struct str *must = arena_array(a, n_must + 1, sizeof(*must));
    if (!available || !must)
        return error_set(err, ERR_LIMIT, 0, "out of memory for %zu device ids", n_available);

    struct pbr reader = pbr_of(request);
    struct pbr_field f;
    *ret = (struct placement_request){ .available = available, .must_include = must };
    while (pbr_next(&reader, &f)) {
        if (f.tag == PREFERRED_AVAILABLE && f.wire == PBR_BYTES)
            available[ret->n_available++] = f.bytes;
        else if (f.tag == PREFERRED_MUST && f.wire == PBR_BYTES)
            must[ret->n_must_include++] = f.bytes;
        else if (f.tag == PREFERRED_SIZE && f.wire == PBR_VARINT)
            ret->size = (int32_t)(uint32_t)f.number;
    }
    return 0;
}

static int prefer(const struct plugin_context *c, const struct resource *r, struct str request,
                  struct buf *answer, struct error *err)
{
    auto_arena arena;
    arena_init(&arena, PREFERRED_ARENA);
    struct placement_request req;
    int rc = read_request(&arena, request, r, &req, err);
    if (rc < 0)
        return rc;
    req.require_distinct = c->config->require_distinct;
    const struct str *ids;
    size_t n;
    bool distinct;
    rc = placement_choose(&arena, c->inv, r, c->config->shared_policy, &req, &ids, &n, &distinct,
                          err);
    if (rc < 0)
        return rc;
    size_t m = pbw_begin(answer, PREFERRED_ANSWERS);
    for (size_t i = 0; i < n; i++)
        pbw_item(answer, PREFERRED_IDS, ids[i]);
    pbw_end(answer, m);
    return 0;
}

int plugin_preferred(const struct plugin_context *c, const struct resource *r, struct str request,
                     struct buf *answer, struct error *err)
{
    struct pbr reader = pbr_of(request);
    struct pbr_field f;
    size_t containers = 0;
    int rc = 0;
    while (rc == 0 && pbr_next(&reader, &f)) {
        if (f.tag != PREFERRED_CONTAINERS || f.wire != PBR_BYTES)
            continue;
        if (containers++ == CONTAINERS_MAX)
            rc = error_set(err, ERR_LIMIT, 0, "more than %d containers in one request",
                           CONTAINERS_MAX);
        else
            rc = prefer(c, r, f.bytes, answer, err);
    }
    if (rc == 0 && reader.bad)
        rc = malformed(err);
    if (rc == 0)
        rc = buf_check(answer, "preferred allocation", err);
    return rc < 0 ? error_wrap(err, "error getting list of preferred allocation devices") : 0;
}
