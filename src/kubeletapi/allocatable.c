/* SPDX-License-Identifier: Apache-2.0 */
#include "kubeletapi/allocatable.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/grpc.h"
#include "wire/pbreader.h"

enum { RPC_MS = 2000, ANSWER_ARENA = 1024 * 1024, NAME_MAX_ = 512 };

/* Field numbers of podresources v1. */
enum { ALLOCATABLE_DEVICES = 1, DEVICES_RESOURCE_NAME = 1, DEVICES_IDS = 2 };

static const char method[] = "/v1.PodResourcesLister/GetAllocatableResources";

struct counting {
    struct arena *arena;
    struct allocatable_count *counts;
    size_t n;
};

static int count(struct counting *c, struct str resource, size_t ids, struct error *err)
{
    for (size_t i = 0; i < c->n; i++)
        if (str_is(resource, c->counts[i].resource)) {
            c->counts[i].n += ids;
            return 0;
        }
    if (resource.n > NAME_MAX_ || (resource.n && memchr(resource.p, '\0', resource.n)))
        return error_set(err, ERR_INVALID, 0, "allocatable resources: a broken resource name");
    if (c->n == ALLOCATABLE_RESOURCES_MAX)
        return error_set(err, ERR_LIMIT, 0, "allocatable resources: more than %d",
                         ALLOCATABLE_RESOURCES_MAX);
    char *name = arena_strdup(c->arena, resource);
    if (!name)
        return error_set(err, ERR_LIMIT, 0, "allocatable resources: no memory");
    c->counts[c->n++] = (struct allocatable_count){ name, ids };
    return 0;
}

/* One ContainerDevices: kubelet writes one for each device that has a NUMA node. */
static int count_devices(struct counting *c, struct str message, struct error *err)
{
    struct pbr r = pbr_of(message);
    struct str resource = { "", 0 };
    size_t ids = 0;
    for (struct pbr_field f; pbr_next(&r, &f);) {
        if (f.wire != PBR_BYTES)
            continue;
        if (f.tag == DEVICES_RESOURCE_NAME)
            resource = f.bytes;
        ids += f.tag == DEVICES_IDS;
    }
    int rc = pbr_check(&r, "allocatable resources", err);
    return rc < 0 ? rc : count(c, resource, ids, err);
}

int allocatable_parse(struct str message, struct arena *arena, struct allocatable_count **ret,
                      size_t *ret_n, struct error *err)
{
    struct counting c = { .arena = arena };
    c.counts = arena_array(arena, ALLOCATABLE_RESOURCES_MAX, sizeof *c.counts);
    if (!c.counts)
        return error_set(err, ERR_LIMIT, 0, "allocatable resources: no memory");
    struct pbr r = pbr_of(message);
    int rc = 0;
    for (struct pbr_field f; rc == 0 && pbr_next(&r, &f);)
        if (f.tag == ALLOCATABLE_DEVICES && f.wire == PBR_BYTES)
            rc = count_devices(&c, f.bytes, err);
    if (rc == 0)
        rc = pbr_check(&r, "allocatable resources", err);
    if (rc < 0)
        return rc;
    *ret = c.counts;
    *ret_n = c.n;
    return 0;
}

/* ---- asking ---- */

struct allocatable_reader {
    struct loop *loop;
    char *socket;
    struct grpc_client *client;
    struct timer
        turn; /* the end is told on a turn of its own: no client is freed in its call-back */
    bool running;
    struct arena arena;
    struct allocatable_count *counts;
    size_t n;
    struct error err; /* code 0: answered */
    void (*done)(void *arg, const struct allocatable_count *counts, size_t n,
                 const struct error *e);
    void *arg;
};

static void finish(void *arg)
{
    struct allocatable_reader *r = arg;
    grpc_client_free(steal(r->client));
    r->done(r->arg, r->counts, r->n, r->err.code ? &r->err : NULL);
    r->running = false;
    arena_done(&r->arena);
}

static void ended(struct allocatable_reader *r)
{
    if (!timer_pending(&r->turn))
        timer_set(&r->turn, 0);
}

static void closed(void *arg, const struct error *why)
{
    struct allocatable_reader *r = arg;
    if (timer_pending(&r->turn))
        return;
    error_set(&r->err, ERR_UNAVAILABLE, 0, "pod-resources (%s): %s", r->socket,
              why ? why->text : "the connection ended");
    ended(r);
}

static void answered(void *arg, enum grpc_status status, const char *text, struct str message)
{
    struct allocatable_reader *r = arg;
    if (timer_pending(&r->turn))
        return;
    if (status != GRPC_OK)
        error_set(&r->err, status == GRPC_UNIMPLEMENTED ? ERR_UNSUPPORTED : ERR_UNAVAILABLE, 0,
                  "pod-resources (%s): %s", r->socket, text && text[0] ? text : "the call failed");
    else if (allocatable_parse(message, &r->arena, &r->counts, &r->n, &r->err) == 0)
        r->err = (struct error){ 0 };
    ended(r);
}

struct allocatable_reader *allocatable_reader_new(struct loop *l, const char *socket)
{
    struct allocatable_reader *r = x_alloc(sizeof *r);
    r->loop = l;
    r->socket = x_strdup(socket);
    timer_init(&r->turn, l, finish, r);
    return r;
}

void allocatable_reader_free(struct allocatable_reader *r)
{
    if (!r)
        return;
    grpc_client_free(r->client);
    timer_done(&r->turn);
    if (r->running)
        arena_done(&r->arena);
    free(r->socket);
    free(r);
}

void allocatable_read(struct allocatable_reader *r,
                      void (*done)(void *arg, const struct allocatable_count *counts, size_t n,
                                   const struct error *e),
                      void *arg)
{
    if (r->running)
        return;
    r->running = true;
    r->done = done;
    r->arg = arg;
    r->counts = NULL;
    r->n = 0;
    r->err = (struct error){ 0 };
    arena_init(&r->arena, ANSWER_ARENA);
    int rc = grpc_client_new(r->loop, r->socket, closed, r, &r->client, &r->err);
    if (rc == 0)
        rc = grpc_client_call(r->client, method, STR(""), RPC_MS, answered, r, &r->err);
    if (rc < 0)
        ended(r);
}
