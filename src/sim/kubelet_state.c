/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the small kubelet leaves for others to read: kubelet_internal_checkpoint, as kubelet's
 * device manager writes it since 1.20 (ids grouped by NUMA node, "-1" without one; the answer in
 * base64), and the pod-resources API v1. The checksum is over the text of Data; kubelet's own is
 * over its in-memory form, and nobody but kubelet checks it.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/file.h"
#include "data/json.h"
#include "sim/kubelet_internal.h"
#include "wire/pbmsg.h"
#include "wire/pbwriter.h"

enum { CHECKPOINT_MAX = 64 * 1024 * 1024 };
static const char checkpoint_name[] = "kubelet_internal_checkpoint";

/* ---- base64 ---- */

static const char base64_letters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *base64_write(const char *p, size_t n)
{
    char *out = x_alloc((n + 2) / 3 * 4 + 1), *to = out;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)(unsigned char)p[i] << 16;
        v |= i + 1 < n ? (uint32_t)(unsigned char)p[i + 1] << 8 : 0;
        v |= i + 2 < n ? (unsigned char)p[i + 2] : 0;
        *to++ = base64_letters[v >> 18];
        *to++ = base64_letters[v >> 12 & 63];
        *to++ = i + 1 < n ? base64_letters[v >> 6 & 63] : '=';
        *to++ = i + 2 < n ? base64_letters[v & 63] : '=';
    }
    return out;
}

/* NULL when it is not base64. */
static char *base64_read(struct str s, size_t *ret_n)
{
    char *out = x_alloc(s.n / 4 * 3 + 4);
    size_t n = 0;
    uint32_t v = 0;
    int bits = 0;
    while (s.n > 0 && s.p[s.n - 1] == '=')
        s.n--;
    for (size_t i = 0; i < s.n; i++) {
        const char *at = s.p[i] ? strchr(base64_letters, s.p[i]) : NULL;
        if (!at) {
            free(out);
            return NULL;
        }
        v = v << 6 | (uint32_t)(at - base64_letters);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[n++] = (char)(v >> bits & 0xff);
        }
    }
    *ret_n = n;
    return out;
}

/* ---- checkpoint ---- */

static uint32_t fnv1a(struct str s)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 16777619u;
    return h;
}

static const int64_t no_node[] = { -1 };

static size_t nodes_of(const struct sim_kubelet *k, const struct sim_grant *g, size_t i,
                       const int64_t **ret)
{
    const struct sim_resource *r = sim_resource_find(k, g->resource);
    const struct sim_device *d = r ? sim_device_find(r, g->ids[i]) : NULL;
    *ret = d && d->n_numa ? d->numa : no_node;
    return d && d->n_numa ? d->n_numa : 1;
}

static bool on_node(const struct sim_kubelet *k, const struct sim_grant *g, size_t i, int64_t node)
{
    const int64_t *nodes;
    size_t n = nodes_of(k, g, i, &nodes);
    for (size_t j = 0; j < n; j++)
        if (nodes[j] == node)
            return true;
    return false;
}

/* {"0": ["id", …], "1": […]}: each node where one of the devices is, in order of appearance. */
static void ids_by_node(struct json_writer *w, const struct sim_kubelet *k,
                        const struct sim_grant *g)
{
    jw_map(w);
    for (size_t i = 0; i < g->n; i++) {
        const int64_t *nodes;
        size_t n = nodes_of(k, g, i, &nodes);
        for (size_t j = 0; j < n; j++) {
            bool written = false;
            for (size_t before = 0; before < i && !written; before++)
                written = on_node(k, g, before, nodes[j]);
            if (written)
                continue;
            auto_free char *key = x_printf("%lld", (long long)nodes[j]);
            jw_key(w, key);
            jw_list(w);
            for (size_t all = i; all < g->n; all++)
                if (on_node(k, g, all, nodes[j]))
                    jw_z(w, g->ids[all]);
            jw_end(w);
        }
    }
    jw_end(w);
}

static void data_json(struct json_writer *w, const struct sim_kubelet *k)
{
    jw_map(w);
    jw_key(w, "PodDeviceEntries");
    jw_list(w);
    for (const struct sim_grant *g = k->grants; g; g = g->next) {
        auto_free char *answer = base64_write(g->answer, g->answer_len);
        jw_map(w);
        jw_kv(w, "PodUID", g->pod->uid);
        jw_kv(w, "ContainerName", g->container);
        jw_kv(w, "ResourceName", g->resource);
        jw_key(w, "DeviceIDs");
        ids_by_node(w, k, g);
        jw_kv(w, "AllocResp", answer);
        jw_end(w);
    }
    jw_end(w);
    jw_key(w, "RegisteredDevices");
    jw_map(w);
    for (const struct sim_resource *r = k->resources; r; r = r->next) {
        jw_key(w, r->name);
        jw_list(w);
        for (size_t i = 0; i < r->n; i++)
            if (r->devices[i].healthy)
                jw_z(w, r->devices[i].id);
        jw_end(w);
    }
    jw_end(w);
    jw_end(w);
}

int sim_checkpoint_write(struct sim_kubelet *k, struct error *err)
{
    auto_buf data, whole;
    buf_init(&data, CHECKPOINT_MAX);
    buf_init(&whole, CHECKPOINT_MAX + 64);
    struct json_writer w;
    jw_init(&w, &data, 0);
    data_json(&w, k);
    buf_fmt(&whole, "{\"Data\":%.*s,\"Checksum\":%u}", STR_FMT(buf_view(&data)),
            fnv1a(buf_view(&data)));
    int r = buf_check(&data, "checkpoint", err);
    if (r == 0)
        r = buf_check(&whole, "checkpoint", err);
    if (r == 0)
        r = file_replace(&k->host, k->plugin_dirfd, checkpoint_name, buf_view(&whole), 0600,
                         FILE_SYNC_NONE, err);
    return r < 0 ? error_wrap(err, "write %s", checkpoint_name) : 0;
}

static void id_add(struct sim_grant *g, const struct value *id)
{
    const char *text = value_text(id, NULL);
    for (size_t i = 0; text && i < g->n; i++)
        if (strcmp(g->ids[i], text) == 0)
            return;
    if (!text)
        return;
    g->ids = x_realloc(g->ids, (g->n + 1) * sizeof *g->ids);
    g->ids[g->n++] = x_strdup(text);
}

static void grant_read(struct sim_kubelet *k, const struct value *entry, struct sim_grant ***end)
{
    const char *uid = value_text(value_get(entry, "PodUID"), "");
    const struct value *ids = value_get(entry, "DeviceIDs");
    struct sim_grant *g = x_alloc(sizeof *g);
    g->pod = sim_pod_need(k, "default", uid, uid);
    g->container = x_strdup(value_text(value_get(entry, "ContainerName"), ""));
    g->resource = x_strdup(value_text(value_get(entry, "ResourceName"), ""));
    g->answer = base64_read(str_of(value_text(value_get(entry, "AllocResp"), "")), &g->answer_len);
    if (!g->answer)
        g->answer = x_alloc(1);
    for (size_t i = 0; ids && ids->kind == VALUE_MAP && i < ids->n; i++)
        for (size_t j = 0; j < ids->members[i].value.n; j++)
            if (ids->members[i].value.kind == VALUE_LIST)
                id_add(g, &ids->members[i].value.items[j]);
    **end = g;
    *end = &g->next;
}

void sim_checkpoint_read(struct sim_kubelet *k)
{
    auto_free char *text = NULL;
    size_t n = 0;
    struct error why = { 0 };
    int r = file_read_at(k->plugin_dirfd, checkpoint_name, CHECKPOINT_MAX, &text, &n, &why);
    if (r < 0 && why.code == ERR_NOT_FOUND)
        return;
    auto_arena arena;
    arena_init(&arena, (size_t)4 * CHECKPOINT_MAX);
    struct value *v = NULL;
    const struct doc_limits limits = { .bytes = CHECKPOINT_MAX, .depth = 16, .nodes = 4000000 };
    if (r == 0)
        r = json_parse(&arena, (struct str){ text, n }, checkpoint_name, &limits, &v, &why);
    if (r < 0) { /* as kubelet: goes on without */
        sim_event(k, "checkpoint-unreadable", NULL, "%s", why.text);
        return;
    }
    const struct value *data = value_get(v, "Data");
    const struct value *entries = value_get(data, "PodDeviceEntries");
    const struct value *known = value_get(data, "RegisteredDevices");
    struct sim_grant **end = &k->grants;
    for (size_t i = 0; entries && entries->kind == VALUE_LIST && i < entries->n; i++)
        grant_read(k, &entries->items[i], &end);
    for (size_t i = 0; known && known->kind == VALUE_MAP && i < known->n; i++)
        sim_resource_need(k, known->members[i].key.p);
}

/* ---- pod-resources ---- */

static void topology(struct buf *b, uint32_t tag, const struct sim_device *d)
{
    if (!d || d->n_numa == 0)
        return;
    size_t m = pbw_begin(b, tag);
    for (size_t i = 0; i < d->n_numa; i++) {
        size_t node = pbw_begin(b, podres_Topology_nodes_tag);
        pbw_int(b, podres_NumaNode_id_tag, d->numa[i]);
        pbw_end(b, node);
    }
    pbw_end(b, m);
}

static void container_devices(struct buf *b, uint32_t tag, const struct sim_kubelet *k,
                              const char *resource, const char *id)
{
    const struct sim_resource *r = sim_resource_find(k, resource);
    size_t m = pbw_begin(b, tag);
    pbw_str(b, podres_ContainerDevices_resource_name_tag, str_of(resource));
    pbw_item(b, podres_ContainerDevices_device_ids_tag, str_of(id));
    topology(b, podres_ContainerDevices_topology_tag, r ? sim_device_find(r, id) : NULL);
    pbw_end(b, m);
}

static bool first_of_container(const struct sim_kubelet *k, const struct sim_grant *g)
{
    for (const struct sim_grant *o = k->grants; o != g; o = o->next)
        if (o->pod == g->pod && strcmp(o->container, g->container) == 0)
            return false;
    return true;
}

static void pod_resources(struct buf *b, uint32_t tag, const struct sim_kubelet *k,
                          const struct sim_pod *p)
{
    size_t pod = pbw_begin(b, tag);
    pbw_str(b, podres_PodResources_name_tag, str_of(p->name));
    pbw_str(b, podres_PodResources_namespace_tag, str_of(p->space));
    for (const struct sim_grant *g = k->grants; g; g = g->next) {
        if (g->pod != p || !first_of_container(k, g))
            continue;
        size_t c = pbw_begin(b, podres_PodResources_containers_tag);
        pbw_str(b, podres_ContainerResources_name_tag, str_of(g->container));
        for (const struct sim_grant *o = g; o; o = o->next)
            for (size_t i = 0; i < o->n; i++)
                if (o->pod == p && strcmp(o->container, g->container) == 0)
                    container_devices(b, podres_ContainerResources_devices_tag, k, o->resource,
                                      o->ids[i]);
        pbw_end(b, c);
    }
    pbw_end(b, pod);
}

static void answer(struct grpc_call *call, const struct buf *b)
{
    struct error err;
    if (buf_check(b, "pod-resources answer", &err) < 0)
        grpc_fail(call, GRPC_RESOURCE_EXHAUSTED, "%s", err.text);
    else
        grpc_reply(call, buf_view(b));
}

static void list(struct grpc_call *call, struct str request, void *arg)
{
    (void)request;
    const struct sim_kubelet *k = arg;
    auto_buf b;
    buf_init(&b, GRPC_MESSAGE_MAX);
    for (const struct sim_pod *p = k->pods; p; p = p->next)
        if (!p->ended)
            pod_resources(&b, podres_ListResponse_pod_resources_tag, k, p);
    answer(call, &b);
}

static void allocatable(struct grpc_call *call, struct str request, void *arg)
{
    (void)request;
    const struct sim_kubelet *k = arg;
    auto_buf b;
    buf_init(&b, GRPC_MESSAGE_MAX);
    for (const struct sim_resource *r = k->resources; r; r = r->next)
        for (size_t i = 0; i < r->n; i++)
            if (r->devices[i].healthy)
                container_devices(&b, podres_AllocatableResponse_devices_tag, k, r->name,
                                  r->devices[i].id);
    answer(call, &b);
}

static void get(struct grpc_call *call, struct str request, void *arg)
{
    const struct sim_kubelet *k = arg;
    struct error err;
    auto_pb(podres_GetRequest) q = podres_GetRequest_init_zero;
    if (pbmsg_read(podres_GetRequest, request, GRPC_MESSAGE_MAX, &q, &err) < 0) {
        grpc_fail(call, GRPC_INTERNAL, "%s", err.text);
        return;
    }
    const char *name = pbmsg_text(q.pod_name), *space = pbmsg_text(q.pod_namespace);
    for (const struct sim_pod *p = k->pods; p; p = p->next) {
        if (p->ended || strcmp(p->name, name) != 0 || strcmp(p->space, space) != 0)
            continue;
        auto_buf b;
        buf_init(&b, GRPC_MESSAGE_MAX);
        pod_resources(&b, podres_GetResponse_pod_resources_tag, k, p);
        answer(call, &b);
        return;
    }
    grpc_fail(call, GRPC_UNKNOWN, "pod %s in namespace %s not found", name, space);
}

const struct grpc_method sim_pod_resources_methods[] = {
    { .path = "/v1.PodResourcesLister/List", .handle = list },
    { .path = "/v1.PodResourcesLister/GetAllocatableResources", .handle = allocatable },
    { .path = "/v1.PodResourcesLister/Get", .handle = get },
};
const size_t sim_pod_resources_n_methods = ARRAY_LEN(sim_pod_resources_methods);
