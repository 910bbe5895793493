/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission in the small kubelet: one container after the other, as kubelet does it. Devices are
 * chosen from the healthy and free ones; the plugin's preference is filtered against those and the
 * rest filled up in order; then Allocate; then the checkpoint; then PreStartContainer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "data/json.h"
#include "sim/kubelet_internal.h"
#include "wire/pbmsg.h"
#include "wire/pbwriter.h"

static void call_allocate(struct sim_admission *a);
static void call_pre_start(struct sim_admission *a);

void sim_admission_free(struct sim_admission *a)
{
    free(a->container);
    free(a->resource);
    sim_strings_free(a->ids, a->n);
    sim_strings_free(a->preferred, a->n_preferred);
    free(a);
}

/* A pod that was refused never runs, as kubelet's failed pods; unless something else of it does. */
static void end_refused_pod(const struct sim_admission *a)
{
    for (const struct sim_grant *g = a->k->grants; g; g = g->next)
        if (g->pod == a->pod)
            return;
    struct error err;
    if (sim_kubelet_end_pod(a->k, a->pod->uid, &err) < 0)
        return; /* another of its containers still waits */
}

/* Takes the admission out of the queue, tells its owner, lets the next one begin. */
static void finish(struct sim_admission *a, const char *json, const struct error *e)
{
    struct sim_kubelet *k = a->k;
    struct sim_admission **at = &k->admissions;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    timer_set(&k->admit_timer, 0);
    if (e) {
        sim_event(k, "refused", a->resource, "%s/%s %s: %s", a->pod->space, a->pod->name,
                  a->container, e->text);
        end_refused_pod(a);
    }
    a->done(a->arg, json, e);
    sim_admission_free(a);
}

static void fail(struct sim_admission *a, enum error_code code, const char *fmt, ...)
    printf_like(3, 4);
static void fail(struct sim_admission *a, enum error_code code, const char *fmt, ...)
{
    char text[sizeof((struct error *)NULL)->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct error e = { 0 };
    error_set(&e, code, 0, "%s", text);
    finish(a, NULL, &e);
}

void sim_admissions_fail(struct sim_kubelet *k, const struct sim_endpoint *e, const char *why)
{
    for (struct sim_admission *a = k->admissions, *next; a; a = next) {
        next = a->next;
        if (!e || a->endpoint == e)
            fail(a, ERR_UNAVAILABLE, "the plugin of %s is gone: %s", a->resource, why);
    }
}

/* ---- the answer as JSON ---- */

static void strings_json(struct json_writer *w, const char *key, char *const *list, size_t n)
{
    jw_key(w, key);
    jw_list(w);
    for (size_t i = 0; i < n; i++)
        jw_z(w, list[i]);
    jw_end(w);
}

static void response_json(struct json_writer *w, const dp_ContainerAllocateResponse *c)
{
    jw_key(w, "envs");
    jw_map(w);
    for (size_t i = 0; i < c->envs_count; i++)
        jw_kv(w, pbmsg_text(c->envs[i].key), pbmsg_text(c->envs[i].value));
    jw_end(w);
    jw_key(w, "annotations");
    jw_map(w);
    for (size_t i = 0; i < c->annotations_count; i++)
        jw_kv(w, pbmsg_text(c->annotations[i].key), pbmsg_text(c->annotations[i].value));
    jw_end(w);
    jw_key(w, "devices");
    jw_list(w);
    for (size_t i = 0; i < c->devices_count; i++) {
        jw_map(w);
        jw_kv(w, "container_path", pbmsg_text(c->devices[i].container_path));
        jw_kv(w, "host_path", pbmsg_text(c->devices[i].host_path));
        jw_kv(w, "permissions", pbmsg_text(c->devices[i].permissions));
        jw_end(w);
    }
    jw_end(w);
    jw_key(w, "mounts");
    jw_list(w);
    for (size_t i = 0; i < c->mounts_count; i++) {
        jw_map(w);
        jw_kv(w, "container_path", pbmsg_text(c->mounts[i].container_path));
        jw_kv(w, "host_path", pbmsg_text(c->mounts[i].host_path));
        jw_kv_bool(w, "read_only", c->mounts[i].read_only);
        jw_end(w);
    }
    jw_end(w);
    jw_key(w, "cdi_devices");
    jw_list(w);
    for (size_t i = 0; i < c->cdi_devices_count; i++)
        jw_z(w, pbmsg_text(c->cdi_devices[i].name));
    jw_end(w);
}

static void succeed(struct sim_admission *a)
{
    const struct sim_grant *g = a->grant;
    struct error err;
    auto_buf out;
    buf_init(&out, SIM_ANSWER_MAX);
    /* The grant keeps one ContainerAllocateResponse: the same bytes as in a message of one. */
    auto_buf bytes;
    buf_init(&bytes, GRPC_MESSAGE_MAX + 16);
    pbw_item(&bytes, dp_AllocateResponse_container_responses_tag,
             (struct str){ g->answer, g->answer_len });
    auto_pb(dp_AllocateResponse) answer = dp_AllocateResponse_init_zero;
    if (pbmsg_read(dp_AllocateResponse, buf_view(&bytes), GRPC_MESSAGE_MAX, &answer, &err) < 0 ||
        answer.container_responses_count != 1) {
        fail(a, ERR_INTERNAL, "the kept answer of %s cannot be read", a->container);
        return;
    }
    struct json_writer w;
    jw_init(&w, &out, 0);
    jw_map(&w);
    jw_kv(&w, "uid", a->pod->uid);
    strings_json(&w, "ids", g->ids, g->n);
    strings_json(&w, "preferred", a->preferred, a->n_preferred);
    jw_kv_bool(&w, "reused", a->reused);
    jw_kv_int(&w, "preferred_us", a->preferred_ns / 1000);
    jw_kv_int(&w, "allocate_us", a->allocate_ns / 1000);
    response_json(&w, &answer.container_responses[0]);
    jw_end(&w);
    if (buf_check(&out, "answer of an admission", &err) < 0) {
        fail(a, ERR_LIMIT, "%s", err.text);
        return;
    }
    sim_event(a->k, a->reused ? "reused" : "granted", a->resource, "%s/%s %s: %s%s", a->pod->space,
              a->pod->name, a->container, g->n ? g->ids[0] : "", g->n > 1 ? " and more" : "");
    finish(a, out.p, NULL);
}

/* ---- the choice ---- */

static bool taken(const struct sim_kubelet *k, const char *resource, const char *id)
{
    for (const struct sim_grant *g = k->grants; g; g = g->next)
        for (size_t i = 0; i < g->n && strcmp(g->resource, resource) == 0; i++)
            if (strcmp(g->ids[i], id) == 0)
                return true;
    return false;
}

/* Borrowed ids of the healthy and free devices; the caller frees the list alone. */
static const char **available(const struct sim_kubelet *k, const struct sim_resource *r,
                              size_t *ret_n)
{
    const char **list = x_alloc((r->n + 1) * sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->devices[i].healthy && !taken(k, r->name, r->devices[i].id))
            list[n++] = r->devices[i].id;
    *ret_n = n;
    return list;
}

static bool chosen(const struct sim_admission *a, const char *id)
{
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->ids[i], id) == 0)
            return true;
    return false;
}

static void choose(struct sim_admission *a, const struct sim_resource *r)
{
    size_t n;
    auto_free const char **free_ids = available(a->k, r, &n);
    a->ids = x_alloc((a->want + 1) * sizeof *a->ids);
    for (size_t i = 0; i < a->n_preferred && a->n < a->want; i++)
        for (size_t j = 0; j < n; j++)
            if (strcmp(free_ids[j], a->preferred[i]) == 0 && !chosen(a, free_ids[j]))
                a->ids[a->n++] = x_strdup(free_ids[j]);
    for (size_t j = 0; j < n && a->n < a->want; j++)
        if (!chosen(a, free_ids[j]))
            a->ids[a->n++] = x_strdup(free_ids[j]);
}

static void preferred_came(void *arg, enum grpc_status status, const char *text, struct str message)
{
    struct sim_admission *a = arg;
    struct error err;
    a->preferred_ns = host_mono_ns(&a->k->host) - a->began_ns;
    auto_pb(dp_PreferredAllocationResponse) p = dp_PreferredAllocationResponse_init_zero;
    if (status != GRPC_OK) {
        fail(a, ERR_INVALID,
             "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = %d desc "
             "= %s",
             status, text ? text : "");
        return;
    }
    if (pbmsg_read(dp_PreferredAllocationResponse, message, GRPC_MESSAGE_MAX, &p, &err) < 0) {
        fail(a, ERR_INVALID, "%s", err.text);
        return;
    }
    if (p.container_responses_count > 0) {
        const dp_ContainerPreferredResponse *c = &p.container_responses[0];
        a->preferred = x_alloc((c->device_ids_count + 1u) * sizeof *a->preferred);
        for (size_t i = 0; i < c->device_ids_count; i++)
            a->preferred[a->n_preferred++] = x_strdup(pbmsg_text(c->device_ids[i]));
    }
    call_allocate(a);
}

static void call_preferred(struct sim_admission *a, const char *const *ids, size_t n)
{
    struct error err;
    auto_buf q;
    buf_init(&q, GRPC_MESSAGE_MAX);
    size_t m = pbw_begin(&q, dp_PreferredAllocationRequest_container_requests_tag);
    for (size_t i = 0; i < n; i++)
        pbw_item(&q, dp_ContainerPreferredRequest_available_device_ids_tag, str_of(ids[i]));
    pbw_int(&q, dp_ContainerPreferredRequest_allocation_size_tag, a->want);
    pbw_end(&q, m);
    a->began_ns = host_mono_ns(&a->k->host);
    int r = buf_check(&q, "PreferredAllocationRequest", &err);
    if (r == 0)
        r = grpc_client_call(a->endpoint->client, "/v1beta1.DevicePlugin/GetPreferredAllocation",
                             buf_view(&q), SIM_CALL_MS, preferred_came, a, &err);
    if (r < 0)
        fail(a, err.code, "%s", err.text);
}

/* ---- Allocate and after ---- */

static void keep(struct sim_admission *a, const char *answer, size_t n)
{
    struct error err;
    struct sim_grant *g = x_alloc(sizeof *g);
    g->pod = a->pod;
    g->container = x_strdup(a->container);
    g->resource = x_strdup(a->resource);
    g->ids = steal(a->ids);
    g->n = a->n;
    a->n = 0;
    g->answer = x_alloc(n + 1);
    memcpy(g->answer, answer, n);
    g->answer_len = n;
    struct sim_grant **end = &a->k->grants;
    while (*end)
        end = &(*end)->next;
    *end = g;
    a->grant = g;
    if (sim_checkpoint_write(a->k, &err) < 0)
        sim_event(a->k, "checkpoint-failed", NULL, "%s", err.text);
}

static void allocated(void *arg, enum grpc_status status, const char *text, struct str message)
{
    struct sim_admission *a = arg;
    struct error err;
    a->allocate_ns = host_mono_ns(&a->k->host) - a->began_ns;
    if (status != GRPC_OK) {
        fail(a, ERR_INVALID,
             "Allocate failed due to rpc error: code = %d desc = %s, which is unexpected", status,
             text ? text : "");
        return;
    }
    auto_pb(dp_AllocateResponse) p = dp_AllocateResponse_init_zero;
    if (pbmsg_read(dp_AllocateResponse, message, GRPC_MESSAGE_MAX, &p, &err) < 0) {
        fail(a, ERR_INVALID, "%s", err.text);
        return;
    }
    if (p.container_responses_count == 0) {
        fail(a, ERR_INVALID, "no containers return in allocation response");
        return;
    }
    auto_buf bytes;
    buf_init(&bytes, GRPC_MESSAGE_MAX);
    if (pbmsg_add(dp_ContainerAllocateResponse, &p.container_responses[0], &bytes, &err) < 0) {
        fail(a, err.code, "%s", err.text);
        return;
    }
    keep(a, bytes.p ? bytes.p : "", bytes.n);
    if (a->endpoint->pre_start)
        call_pre_start(a);
    else
        succeed(a);
}

static void add_ids(struct buf *q, uint32_t tag, char *const *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pbw_item(q, tag, str_of(ids[i]));
}

static void call_allocate(struct sim_admission *a)
{
    struct error err;
    choose(a, sim_resource_find(a->k, a->resource));
    if (a->n < a->want) { /* devices went while the plugin was asked for its preference */
        fail(a, ERR_UNAVAILABLE,
             "requested number of devices unavailable for %s. Requested: %u, Available: %zu",
             a->resource, a->want, a->n);
        return;
    }
    auto_buf q;
    buf_init(&q, GRPC_MESSAGE_MAX);
    size_t m = pbw_begin(&q, dp_AllocateRequest_container_requests_tag);
    add_ids(&q, dp_ContainerAllocateRequest_devices_ids_tag, a->ids, a->n);
    pbw_end(&q, m);
    a->began_ns = host_mono_ns(&a->k->host);
    int r = buf_check(&q, "AllocateRequest", &err);
    if (r == 0)
        r = grpc_client_call(a->endpoint->client, "/v1beta1.DevicePlugin/Allocate", buf_view(&q),
                             SIM_CALL_MS, allocated, a, &err);
    if (r < 0)
        fail(a, err.code, "%s", err.text);
}

static void pre_started(void *arg, enum grpc_status status, const char *text, struct str message)
{
    (void)message;
    if (status == GRPC_OK)
        succeed(arg);
    else
        fail(arg, ERR_INVALID,
             "device plugin PreStartContainer rpc failed with err: rpc error: code = %d desc = %s",
             status, text ? text : "");
}

static void call_pre_start(struct sim_admission *a)
{
    struct error err;
    auto_buf q;
    buf_init(&q, GRPC_MESSAGE_MAX);
    add_ids(&q, dp_PreStartContainerRequest_devices_ids_tag, a->grant->ids, a->grant->n);
    int r = buf_check(&q, "PreStartContainerRequest", &err);
    if (r == 0)
        r = grpc_client_call(a->endpoint->client, "/v1beta1.DevicePlugin/PreStartContainer",
                             buf_view(&q), SIM_PRE_START_MS, pre_started, a, &err);
    if (r < 0)
        fail(a, err.code, "%s", err.text);
}

/* ---- the queue ---- */

static struct sim_grant *grant_of(const struct sim_admission *a)
{
    for (struct sim_grant *g = a->k->grants; g; g = g->next)
        if (g->pod == a->pod && strcmp(g->container, a->container) == 0 &&
            strcmp(g->resource, a->resource) == 0)
            return g;
    return NULL;
}

/* A container that comes again (it or kubelet was restarted) keeps its devices. */
static void begin_again(struct sim_admission *a, const struct sim_resource *r)
{
    for (size_t i = 0; i < a->grant->n; i++) {
        const struct sim_device *d = sim_device_find(r, a->grant->ids[i]);
        if (!d || !d->healthy) {
            fail(a, ERR_UNAVAILABLE,
                 "previously allocated devices are no longer healthy; cannot allocate unhealthy "
                 "devices %s",
                 a->resource);
            return;
        }
    }
    if (a->grant->n != a->want) {
        fail(a, ERR_INVALID, "container %s holds %zu of %s already; it cannot ask for %u",
             a->container, a->grant->n, a->resource, a->want);
        return;
    }
    a->reused = true;
    if (a->endpoint->pre_start)
        call_pre_start(a);
    else
        succeed(a);
}

static void begin(struct sim_admission *a)
{
    sim_grants_forget_ended(a->k);
    const struct sim_resource *r = sim_resource_find(a->k, a->resource);
    if (!r) {
        fail(a, ERR_NOT_FOUND, "cannot allocate unregistered device %s", a->resource);
        return;
    }
    if (!r->endpoint || sim_resource_healthy(r) == 0) {
        fail(a, ERR_UNAVAILABLE, "no healthy devices present; cannot allocate unhealthy devices %s",
             a->resource);
        return;
    }
    a->endpoint = r->endpoint;
    a->grant = grant_of(a);
    if (a->grant) {
        begin_again(a, r);
        return;
    }
    size_t n;
    auto_free const char **ids = available(a->k, r, &n);
    if (n < a->want)
        fail(a, ERR_UNAVAILABLE,
             "requested number of devices unavailable for %s. Requested: %u, Available: %zu",
             a->resource, a->want, n);
    else if (a->endpoint->preferred)
        call_preferred(a, ids, n);
    else
        call_allocate(a);
}

void sim_admit_next(void *arg)
{
    struct sim_kubelet *k = arg;
    struct sim_admission *a = k->admissions;
    if (a && !a->endpoint)
        begin(a);
}

int sim_kubelet_admit(struct sim_kubelet *k, const char *pod, const char *container,
                      const char *resource, uint32_t n,
                      void (*done)(void *arg, const char *answer_json, const struct error *e),
                      void *arg, struct error *err)
{
    if (!k->registration)
        return error_set(err, ERR_UNAVAILABLE, 0, "the small kubelet is stopped");
    if (n == 0 || n > 65536)
        return error_set(err, ERR_INVALID, 0, "%u devices asked for: 1 to 65536 are possible", n);
    struct str rest = str_of(pod), space = STR("default"), name = str_cut(&rest, '/');
    if (rest.p) {
        space = name;
        name = rest;
    }
    if (name.n == 0 || space.n == 0 || !container[0])
        return error_set(err, ERR_INVALID, 0, "pod \"%s\" and container \"%s\" need names", pod,
                         container);
    auto_free char *space_z = x_strndup(space.p, space.n);
    auto_free char *name_z = x_strndup(name.p, name.n);
    struct sim_admission *a = x_alloc(sizeof *a);
    a->k = k;
    a->pod = sim_pod_need(k, space_z, name_z, NULL);
    a->container = x_strdup(container);
    a->resource = x_strdup(resource);
    a->want = n;
    a->done = done;
    a->arg = arg;
    struct sim_admission **end = &k->admissions;
    while (*end)
        end = &(*end)->next;
    *end = a;
    timer_set(&k->admit_timer, 0);
    return 0;
}
