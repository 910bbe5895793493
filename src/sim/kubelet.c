/* SPDX-License-Identifier: Apache-2.0 */
/* The small kubelet: its life, its resources and pods, what it tells about itself. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/json.h"
#include "sim/kubelet_internal.h"

/* ---- small things ---- */

void sim_strings_free(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

void sim_event(struct sim_kubelet *k, const char *kind, const char *resource, const char *fmt, ...)
{
    struct sim_event *e = &k->events[k->n_events % SIM_EVENTS_MAX];
    free(e->kind);
    free(e->resource);
    free(e->text);
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    *e = (struct sim_event){ .number = ++k->n_events,
                             .mono_ns = host_mono_ns(&k->host) - k->began_ns,
                             .real_ns = host_real_ns(&k->host),
                             .kind = x_strdup(kind),
                             .resource = x_strdup(resource ? resource : ""),
                             .text = x_strdup(text) };
}

size_t sim_resource_healthy(const struct sim_resource *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += r->devices[i].healthy;
    return n;
}

void sim_changed(struct sim_kubelet *k, const struct sim_resource *r)
{
    if (k->changed)
        k->changed(k->arg, r->name, r->n, sim_resource_healthy(r));
}

struct sim_resource *sim_resource_find(const struct sim_kubelet *k, const char *name)
{
    for (struct sim_resource *r = k->resources; r; r = r->next)
        if (strcmp(r->name, name) == 0)
            return r;
    return NULL;
}

struct sim_resource *sim_resource_need(struct sim_kubelet *k, const char *name)
{
    struct sim_resource **at = &k->resources;
    while (*at && strcmp((*at)->name, name) < 0)
        at = &(*at)->next;
    if (*at && strcmp((*at)->name, name) == 0)
        return *at;
    struct sim_resource *r = x_alloc(sizeof *r);
    r->k = k;
    r->name = x_strdup(name);
    r->next = *at;
    timer_init(&r->grace, k->loop, sim_grace_over, r);
    *at = r;
    return r;
}

static int device_order(const void *id, const void *device)
{
    return strcmp(id, ((const struct sim_device *)device)->id);
}

struct sim_device *sim_device_find(const struct sim_resource *r, const char *id)
{
    return r->n ? bsearch(id, r->devices, r->n, sizeof *r->devices, device_order) : NULL;
}

static void resource_free(struct sim_resource *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->devices[i].id);
    free(r->devices);
    timer_done(&r->grace);
    free(r->name);
    free(r);
}

/* ---- pods and what they hold ---- */

static char *pod_cgroup(const struct sim_kubelet *k, const struct sim_pod *p)
{
    return x_printf("%s/kubepods/pod%s", k->cgroup_dir, p->uid);
}

struct sim_pod *sim_pod_need(struct sim_kubelet *k, const char *space, const char *name,
                             const char *uid)
{
    for (struct sim_pod *p = k->pods; p; p = p->next) {
        bool same = uid ? strcmp(p->uid, uid) == 0
                        : !p->ended && strcmp(p->space, space) == 0 && strcmp(p->name, name) == 0;
        if (same)
            return p;
    }
    char made[37] = "00000000-0000-4000-8000-000000000000";
    struct error err;
    if (!uid && host_uuid4(&k->host, made, &err) < 0)
        snprintf(made, sizeof made, "00000000-0000-4000-8000-%012llx",
                 (unsigned long long)k->n_events);
    struct sim_pod *p = x_alloc(sizeof *p);
    p->space = x_strdup(space);
    p->name = x_strdup(name);
    p->uid = x_strdup(uid ? uid : made);
    struct sim_pod **end = &k->pods;
    while (*end)
        end = &(*end)->next;
    *end = p;
    if (k->cgroup_dir) {
        auto_free char *cgroup = pod_cgroup(k, p);
        if (dir_make(cgroup, 0755, &err) < 0)
            sim_event(k, "cgroup-failed", NULL, "%s", err.text);
    }
    return p;
}

static void pod_free(struct sim_pod *p)
{
    free(p->space);
    free(p->name);
    free(p->uid);
    free(p);
}

void sim_grant_free(struct sim_grant *g)
{
    free(g->container);
    free(g->resource);
    sim_strings_free(g->ids, g->n);
    free(g->answer);
    free(g);
}

/* kubelet drops what ended pods held when it next looks for devices, not before. */
void sim_grants_forget_ended(struct sim_kubelet *k)
{
    for (struct sim_grant **at = &k->grants; *at;) {
        struct sim_grant *g = *at;
        if (!g->pod->ended) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        sim_grant_free(g);
    }
    for (struct sim_pod **at = &k->pods; *at;) {
        struct sim_pod *p = *at;
        if (!p->ended) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        pod_free(p);
    }
}

int sim_kubelet_end_pod(struct sim_kubelet *k, const char *pod, struct error *err)
{
    struct str rest = str_of(pod), space = STR("default"), name = str_cut(&rest, '/');
    if (rest.p) {
        space = name;
        name = rest;
    }
    for (struct sim_pod *p = k->pods; p; p = p->next) {
        bool same = (str_is(name, p->name) && str_is(space, p->space)) || strcmp(pod, p->uid) == 0;
        if (p->ended || !same)
            continue;
        for (const struct sim_admission *a = k->admissions; a; a = a->next)
            if (a->pod == p)
                return error_set(err, ERR_UNAVAILABLE, 0, "pod %s is being admitted", pod);
        p->ended = true;
        if (k->cgroup_dir) {
            auto_free char *cgroup = pod_cgroup(k, p);
            if (rmdir(cgroup) < 0 && errno != ENOENT)
                sim_event(k, "cgroup-failed", NULL, "rmdir %s: %s", cgroup, strerror(errno));
        }
        sim_event(k, "pod-ended", NULL, "%s/%s", p->space, p->name);
        return 0;
    }
    return error_set(err, ERR_NOT_FOUND, 0, "no running pod %s", pod);
}

/* ---- life ---- */

static const struct grpc_method registration_methods[] = {
    { .path = "/v1beta1.Registration/Register", .handle = sim_register },
};

/* As kubelet: everything in the plugin directory goes, folders and the checkpoint stay. */
static int empty_plugin_dir(const struct sim_kubelet *k, struct error *err)
{
    DIR *d = opendir(k->plugin_dir);
    if (!d)
        return error_errno(err, errno, "open %s", k->plugin_dir);
    for (const struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (strcmp(e->d_name, "kubelet_internal_checkpoint") == 0 ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
            continue;
        unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
    return 0;
}

static void forget_held(struct sim_kubelet *k)
{
    while (k->grants) {
        struct sim_grant *g = k->grants;
        k->grants = g->next;
        sim_grant_free(g);
    }
}

static void forget_resources(struct sim_kubelet *k)
{
    while (k->resources) {
        struct sim_resource *r = k->resources;
        k->resources = r->next;
        resource_free(r);
    }
}

void sim_kubelet_stop(struct sim_kubelet *k)
{
    if (!k->registration)
        return;
    for (struct sim_endpoint *e = k->endpoints; e; e = e->next)
        sim_endpoint_lost(e, "kubelet ends");
    sim_endpoints_reap(k);
    sim_admissions_fail(k, NULL, "kubelet ends");
    grpc_server_free(steal(k->registration));
    grpc_server_free(steal(k->pod_resources));
    forget_resources(k);
    sim_event(k, "kubelet-stopped", NULL, "pods run on");
}

int sim_kubelet_start(struct sim_kubelet *k, struct error *err)
{
    if (k->registration)
        return error_set(err, ERR_CONFLICT, 0, "the small kubelet runs already");
    int r = empty_plugin_dir(k, err);
    if (r < 0)
        return r;
    forget_held(k);
    sim_checkpoint_read(k);
    const struct grpc_server_config registration = {
        .methods = registration_methods,
        .n_methods = ARRAY_LEN(registration_methods),
        .arg = k,
        .cancelled = sim_register_cancelled,
    };
    const struct grpc_server_config pod_resources = {
        .methods = sim_pod_resources_methods,
        .n_methods = sim_pod_resources_n_methods,
        .arg = k,
    };
    auto_free char *lister = x_printf("%s/pod-resources/kubelet.sock", k->dir);
    auto_free char *socket = x_printf("%s/kubelet.sock", k->plugin_dir);
    r = grpc_server_new(k->loop, lister, 0660, &pod_resources, &k->pod_resources, err);
    if (r == 0)
        r = grpc_server_new(k->loop, socket, 0660, &registration, &k->registration, err);
    if (r < 0) {
        grpc_server_free(steal(k->pod_resources));
        return r;
    }
    sim_event(k, "kubelet-started", NULL, "%s", socket);
    return 0;
}

int sim_kubelet_restart(struct sim_kubelet *k, struct error *err)
{
    sim_kubelet_stop(k);
    return sim_kubelet_start(k, err);
}

void sim_kubelet_drop(struct sim_kubelet *k)
{
    for (struct sim_endpoint *e = k->endpoints; e; e = e->next)
        sim_endpoint_lost(e, "kubelet closes the connection");
}

void sim_kubelet_behave(struct sim_kubelet *k, int64_t register_ms, const char *refuse)
{
    k->register_ms = register_ms;
    free(k->refuse);
    k->refuse = refuse && refuse[0] ? x_strdup(refuse) : NULL;
}

static int prepare(struct sim_kubelet *k, struct error *err)
{
    auto_free char *lister = x_printf("%s/pod-resources", k->dir);
    int r = host_init(&k->host, &(struct host_config){ 0 }, err);
    if (r == 0)
        r = dir_make(k->plugin_dir, 0755, err);
    if (r == 0)
        r = dir_make(lister, 0755, err);
    if (r < 0)
        return r;
    k->plugin_dirfd = open(k->plugin_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (k->plugin_dirfd < 0)
        return error_errno(err, errno, "open %s", k->plugin_dir);
    k->began_ns = host_mono_ns(&k->host);
    return sim_kubelet_start(k, err);
}

int sim_kubelet_new(struct loop *l, const struct sim_kubelet_config *c, struct sim_kubelet **ret,
                    struct error *err)
{
    struct sim_kubelet *k = x_alloc(sizeof *k);
    k->loop = l;
    k->dir = x_strdup(c->dir);
    k->plugin_dir = x_printf("%s/device-plugins", c->dir);
    k->cgroup_dir = c->cgroup_dir ? x_strdup(c->cgroup_dir) : NULL;
    k->plugin_dirfd = -1;
    k->grace_ms = c->grace_ms ? c->grace_ms : SIM_GRACE_MS;
    k->arg = c->arg;
    k->changed = c->changed;
    timer_init(&k->admit_timer, l, sim_admit_next, k);
    timer_init(&k->reap_timer, l, sim_endpoints_reap, k);
    int r = prepare(k, err);
    if (r < 0) {
        sim_kubelet_free(k);
        return r;
    }
    *ret = k;
    return 0;
}

void sim_kubelet_free(struct sim_kubelet *k)
{
    if (!k)
        return;
    sim_kubelet_stop(k);
    forget_held(k);
    while (k->pods) {
        struct sim_pod *p = k->pods;
        k->pods = p->next;
        pod_free(p);
    }
    timer_done(&k->admit_timer);
    timer_done(&k->reap_timer);
    for (size_t i = 0; i < SIM_EVENTS_MAX; i++) {
        free(k->events[i].kind);
        free(k->events[i].resource);
        free(k->events[i].text);
    }
    mem_close_p(&k->plugin_dirfd);
    host_done(&k->host);
    free(k->dir);
    free(k->plugin_dir);
    free(k->cgroup_dir);
    free(k->refuse);
    free(k);
}

/* ---- what it tells ---- */

static bool held(const struct sim_kubelet *k, const char *resource, const char *id)
{
    for (const struct sim_grant *g = k->grants; g; g = g->next)
        for (size_t i = 0; i < g->n && strcmp(g->resource, resource) == 0; i++)
            if (strcmp(g->ids[i], id) == 0 && !g->pod->ended)
                return true;
    return false;
}

static void device_status(struct json_writer *w, const struct sim_resource *r,
                          const struct sim_device *d)
{
    jw_map(w);
    jw_kv(w, "id", d->id);
    jw_kv_bool(w, "healthy", d->healthy);
    jw_kv_bool(w, "used", held(r->k, r->name, d->id));
    jw_key(w, "numa");
    jw_list(w);
    for (size_t i = 0; i < d->n_numa; i++)
        jw_int(w, d->numa[i]);
    jw_end(w);
    jw_end(w);
}

static void resource_status(struct json_writer *w, const struct sim_resource *r)
{
    jw_map(w);
    jw_kv(w, "name", r->name);
    jw_kv_bool(w, "registered", r->endpoint != NULL);
    jw_kv(w, "endpoint", r->endpoint ? r->endpoint->file : "");
    jw_kv_bool(w, "preferred", r->endpoint && r->endpoint->preferred);
    jw_kv_bool(w, "pre_start", r->endpoint && r->endpoint->pre_start);
    jw_kv_int(w, "capacity", (int64_t)r->n);
    jw_kv_int(w, "allocatable", (int64_t)sim_resource_healthy(r));
    jw_kv_int(w, "lists", (int64_t)r->lists);
    jw_key(w, "devices");
    jw_list(w);
    for (size_t i = 0; i < r->n; i++)
        device_status(w, r, &r->devices[i]);
    jw_end(w);
    jw_end(w);
}

static void pod_status(struct json_writer *w, const struct sim_kubelet *k, const struct sim_pod *p)
{
    jw_map(w);
    jw_kv(w, "namespace", p->space);
    jw_kv(w, "name", p->name);
    jw_kv(w, "uid", p->uid);
    jw_kv_bool(w, "running", !p->ended);
    jw_key(w, "containers");
    jw_list(w);
    for (const struct sim_grant *g = k->grants; g; g = g->next) {
        if (g->pod != p)
            continue;
        jw_map(w);
        jw_kv(w, "name", g->container);
        jw_kv(w, "resource", g->resource);
        jw_key(w, "ids");
        jw_list(w);
        for (size_t i = 0; i < g->n; i++)
            jw_z(w, g->ids[i]);
        jw_end(w);
        jw_end(w);
    }
    jw_end(w);
    jw_end(w);
}

void sim_kubelet_status(const struct sim_kubelet *k, struct buf *out_json)
{
    struct json_writer w;
    jw_init(&w, out_json, 0);
    jw_map(&w);
    jw_kv(&w, "dir", k->dir);
    jw_kv_bool(&w, "running", k->registration != NULL);
    jw_key(&w, "resources");
    jw_list(&w);
    for (const struct sim_resource *r = k->resources; r; r = r->next)
        resource_status(&w, r);
    jw_end(&w);
    jw_key(&w, "pods");
    jw_list(&w);
    for (const struct sim_pod *p = k->pods; p; p = p->next)
        pod_status(&w, k, p);
    jw_end(&w);
    jw_end(&w);
}

void sim_kubelet_events(const struct sim_kubelet *k, uint64_t after, struct buf *out_json)
{
    struct json_writer w;
    jw_init(&w, out_json, 0);
    jw_list(&w);
    uint64_t first = k->n_events > SIM_EVENTS_MAX ? k->n_events - SIM_EVENTS_MAX : 0;
    for (uint64_t i = MAX(first, after); i < k->n_events; i++) {
        const struct sim_event *e = &k->events[i % SIM_EVENTS_MAX];
        jw_map(&w);
        jw_kv_int(&w, "number", (int64_t)e->number);
        jw_kv_int(&w, "us", e->mono_ns / 1000);
        jw_kv_int(&w, "unix_us", e->real_ns / 1000);
        jw_kv(&w, "kind", e->kind);
        jw_kv(&w, "resource", e->resource);
        jw_kv(&w, "text", e->text);
        jw_end(&w);
    }
    jw_end(&w);
}
