/* SPDX-License-Identifier: Apache-2.0 */
/* ListPodResourcesResponse (podresources v1): spec/kubelet-and-dra.md 2.6. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kubeletapi/inuse.h"
#include "wire/pbreader.h"

enum { TEXT_MAX = 4096, NONE = UINT32_MAX };

/* Field numbers. */
enum {
    LIST_POD_RESOURCES = 1,
    POD_NAME = 1,
    POD_NAMESPACE = 2,
    POD_CONTAINERS = 3,
    CONTAINER_NAME = 1,
    CONTAINER_DEVICES = 2,
    DEVICES_RESOURCE_NAME = 1,
    DEVICES_IDS = 2,
};

/* Uses by resource and id: chains of places. */
struct index {
    uint32_t *heads, *next; /* next: one for each use there was at the start */
    size_t mask;
};

static size_t hash(struct str resource, struct str id)
{
    uint64_t h = UINT64_C(1469598103934665603);
    for (size_t i = 0; i < resource.n; i++)
        h = (h ^ (unsigned char)resource.p[i]) * UINT64_C(1099511628211);
    for (size_t i = 0; i < id.n; i++)
        h = (h ^ (unsigned char)id.p[i]) * UINT64_C(1099511628211);
    return (size_t)(h ^ (h >> 29));
}

static bool index_make(struct index *x, const struct in_use *u)
{
    size_t size = 64;
    while (size < u->n * 2)
        size *= 2;
    x->heads = try_alloc(size * sizeof *x->heads);
    x->next = try_alloc((u->n + 1) * sizeof *x->next);
    if (!x->heads || !x->next)
        return false;
    x->mask = size - 1;
    memset(x->heads, 0xff, size * sizeof *x->heads);
    for (size_t i = 0; i < u->n; i++) {
        const struct device_use *use = &u->uses[i];
        uint32_t *head = &x->heads[hash(str_of(use->resource), str_of(use->id)) & x->mask];
        x->next[i] = *head;
        *head = (uint32_t)i;
    }
    return true;
}

static void index_done(struct index *x)
{
    free(x->heads);
    free(x->next);
}

struct merging {
    struct in_use *into;
    struct device_use *uses; /* n used of cap; replaces into->uses at the end */
    size_t n, cap;
    struct index index;
    struct str pod, ns, container, resource;
    const char *pod_z, *ns_z, *container_z, *resource_z; /* copies, made when first needed */
    struct error *err;
};

static int broken(struct merging *m, const char *what)
{
    return error_set(m->err, ERR_INVALID, 0, "pod-resources answer: %s", what);
}

static int no_room(struct merging *m)
{
    return error_set(m->err, ERR_LIMIT, 0, "pod-resources answer: no memory for %zu devices", m->n);
}

static int check_text(struct merging *m, struct str s)
{
    if (s.n > TEXT_MAX)
        return broken(m, "a text of more than 4096 bytes");
    return s.n && memchr(s.p, '\0', s.n) ? broken(m, "a text with a NUL byte") : 0;
}

static bool copy_once(struct merging *m, struct str s, const char **z)
{
    if (!*z)
        *z = arena_strdup(&m->into->arena, s);
    return *z;
}

static bool named(const struct device_use *u)
{
    return u->pod_name[0];
}

static bool named_so(const struct merging *m, const struct device_use *u)
{
    return str_is(m->pod, u->pod_name) && str_is(m->ns, u->pod_namespace);
}

/* The uses of this device that may be this pod's: those with its name, else those without a name.
 * Among two nameless pods it cannot be told which one is meant: *ret_doubt. */
static struct device_use *known_use(struct merging *m, struct str id, bool *ret_doubt)
{
    struct device_use *best = NULL, *nameless = NULL;
    *ret_doubt = false;
    for (uint32_t i = m->index.heads[hash(m->resource, id) & m->index.mask]; i != NONE;
         i = m->index.next[i]) {
        struct device_use *u = &m->uses[i];
        if (!str_is(id, u->id) || !str_is(m->resource, u->resource))
            continue;
        bool same_container = str_is(m->container, u->container);
        if (named_so(m, u) && (!best || same_container))
            best = u;
        if (named(u))
            continue;
        *ret_doubt = *ret_doubt || (nameless && strcmp(nameless->pod_uid, u->pod_uid) != 0);
        if (!nameless || same_container)
            nameless = u;
    }
    if (best)
        *ret_doubt = false;
    return best ? best : nameless;
}

/* All uses of the device count as living, none gets the name. */
static void mark_all(struct merging *m, struct str id)
{
    for (uint32_t i = m->index.heads[hash(m->resource, id) & m->index.mask]; i != NONE;
         i = m->index.next[i]) {
        struct device_use *u = &m->uses[i];
        if (str_is(id, u->id) && str_is(m->resource, u->resource) && !named(u))
            u->from_podresources = true;
    }
}

static bool grow(struct merging *m)
{
    if (m->n < m->cap)
        return true;
    size_t cap = MAX(m->cap * 2, (size_t)64);
    struct device_use *more = arena_array(&m->into->arena, cap, sizeof *more);
    if (!more)
        return false;
    if (m->n)
        memcpy(more, m->uses, m->n * sizeof *more);
    m->uses = more;
    m->cap = cap;
    return true;
}

static int merge_id(struct merging *m, struct str id)
{
    int r = id.n ? check_text(m, id) : broken(m, "an empty device id");
    if (r < 0)
        return r;
    if (!copy_once(m, m->pod, &m->pod_z) || !copy_once(m, m->ns, &m->ns_z))
        return no_room(m);
    bool doubt;
    struct device_use *u = known_use(m, id, &doubt);
    if (doubt) {
        mark_all(m, id);
        return 0;
    }
    if (!u) {
        if (m->n >= IN_USE_MAX)
            return error_set(m->err, ERR_LIMIT, 0, "pod-resources answer: more than %d devices",
                             IN_USE_MAX);
        if (!copy_once(m, m->container, &m->container_z) ||
            !copy_once(m, m->resource, &m->resource_z) || !grow(m))
            return no_room(m);
        u = &m->uses[m->n];
        *u = (struct device_use){ .resource = m->resource_z,
                                  .id = arena_strdup(&m->into->arena, id),
                                  .pod_uid = "",
                                  .container = m->container_z };
        if (!u->id)
            return no_room(m);
        m->n++;
    }
    u->pod_name = m->pod_z;
    u->pod_namespace = m->ns_z;
    u->from_podresources = true;
    return 0;
}

/* One text field of a message; the last one counts. */
static int text_field(struct merging *m, struct str message, uint32_t tag, struct str *ret)
{
    struct pbr r = pbr_of(message);
    *ret = (struct str){ "", 0 };
    for (struct pbr_field f; pbr_next(&r, &f);)
        if (f.tag == tag && f.wire == PBR_BYTES)
            *ret = f.bytes;
    int rc = pbr_check(&r, "pod-resources answer", m->err);
    return rc < 0 ? rc : check_text(m, *ret);
}

static int each(struct merging *m, struct str message, uint32_t tag,
                int (*take)(struct merging *m, struct str bytes))
{
    int rc = 0;
    struct pbr r = pbr_of(message);
    for (struct pbr_field f; rc == 0 && pbr_next(&r, &f);)
        if (f.tag == tag && f.wire == PBR_BYTES)
            rc = take(m, f.bytes);
    return rc < 0 ? rc : pbr_check(&r, "pod-resources answer", m->err);
}

static int merge_devices(struct merging *m, struct str devices)
{
    m->resource_z = NULL;
    int r = text_field(m, devices, DEVICES_RESOURCE_NAME, &m->resource);
    return r < 0 ? r : each(m, devices, DEVICES_IDS, merge_id);
}

static int merge_container(struct merging *m, struct str container)
{
    m->container_z = NULL;
    int r = text_field(m, container, CONTAINER_NAME, &m->container);
    return r < 0 ? r : each(m, container, CONTAINER_DEVICES, merge_devices);
}

static int merge_pod(struct merging *m, struct str pod)
{
    m->pod_z = m->ns_z = NULL;
    int r = text_field(m, pod, POD_NAME, &m->pod);
    if (r == 0)
        r = text_field(m, pod, POD_NAMESPACE, &m->ns);
    return r < 0 ? r : each(m, pod, POD_CONTAINERS, merge_container);
}

int podresources_parse(struct str message, struct in_use *into, struct error *err)
{
    struct merging m = { .into = into, .err = err };
    if (message.n > CHECKPOINT_MAX)
        return error_set(err, ERR_LIMIT, 0, "pod-resources answer: more than %d bytes",
                         CHECKPOINT_MAX);
    /* Works on a copy, so that a broken answer leaves no half-merged uses. */
    m.cap = into->n + 64;
    m.uses = arena_array(&into->arena, m.cap, sizeof *m.uses);
    m.n = into->n;
    if (m.uses && m.n)
        memcpy(m.uses, into->uses, m.n * sizeof *m.uses);
    bool room = m.uses && index_make(&m.index, into);
    int r = room ? each(&m, message, LIST_POD_RESOURCES, merge_pod) : no_room(&m);
    index_done(&m.index);
    if (r < 0)
        return r;
    into->uses = m.uses;
    into->n = m.n;
    into->podresources_read = true;
    return 0;
}
