/* SPDX-License-Identifier: Apache-2.0 */
/* All servers together: publication, kubelet's socket and directory, the end. */
#include "kubelet/plugin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "io/dirwatch.h"
#include "kubelet/plugin_server.h"

enum {
    POLL_MS = 200, /* where inotify is not to be had */
    ANSWER_MAX = 4 * 1024 * 1024,
};

/* Which kubelet.sock it is. The change time too: a file system may give the inode out again. */
struct identity {
    bool there;
    dev_t dev;
    ino_t ino;
    struct timespec changed;
};

struct plugin_set {
    struct plugin_shared shared;
    char *dir, *kubelet_socket; /* copies that shared.config points to */
    struct plugin_server **servers;
    size_t n_servers;
    struct dirwatch *dir_watch, *kubelet_watch; /* the same directory: kubelet_watch is NULL */
    struct identity kubelet;
    struct timer stopped;
    bool stopping;
    void (*done)(void *arg);
    void *done_arg;
};

static struct identity identify(const char *path)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return (struct identity){ .there = false };
    return (struct identity){ true, st.st_dev, st.st_ino, st.st_ctim };
}

static bool identity_same(const struct identity *a, const struct identity *b)
{
    return a->there == b->there && a->dev == b->dev && a->ino == b->ino &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool registers(const struct plugin_set *p)
{
    return p->kubelet_socket[0] != '\0';
}

static void check_kubelet(struct plugin_set *p)
{
    struct identity now = identify(p->kubelet_socket);
    if (identity_same(&now, &p->kubelet))
        return;
    p->kubelet = now;
    for (size_t i = 0; now.there && i < p->n_servers; i++)
        plugin_server_kubelet_new(p->servers[i]);
}

static void dir_changed(void *arg, const char *name)
{
    struct plugin_set *p = arg;
    if (p->stopping)
        return;
    for (size_t i = 0; i < p->n_servers; i++) {
        if (!name || strcmp(name, plugin_server_socket(p->servers[i])) == 0)
            plugin_server_check_socket(p->servers[i]);
    }
    if (registers(p) && !p->kubelet_watch &&
        (!name || strcmp(name, base_name(p->kubelet_socket)) == 0))
        check_kubelet(p);
}

static void kubelet_dir_changed(void *arg, const char *name)
{
    struct plugin_set *p = arg;
    if (!p->stopping && (!name || strcmp(name, base_name(p->kubelet_socket)) == 0))
        check_kubelet(p);
}

static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return x_strdup(".");
    return slash == path ? x_strdup("/") : x_strndup(path, (size_t)(slash - path));
}

static bool same_dir(const char *a, const char *b)
{
    struct stat sa, sb;
    if (strcmp(a, b) == 0)
        return true;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

static int watch_dirs(struct plugin_set *p, struct error *err)
{
    struct loop *l = p->shared.loop;
    const struct dirwatch_events own = { .changed = dir_changed, .arg = p };
    int r = dirwatch_new(l, p->dir, POLL_MS, &own, &p->dir_watch, err);
    if (r < 0 || !registers(p))
        return r;
    auto_free char *parent = parent_of(p->kubelet_socket);
    const struct dirwatch_events kubelet = { .changed = kubelet_dir_changed, .arg = p };
    if (same_dir(parent, p->dir))
        return 0;
    return dirwatch_new(l, parent, POLL_MS, &kubelet, &p->kubelet_watch, err);
}

static void report_stopped(void *arg)
{
    struct plugin_set *p = arg;
    p->done(p->done_arg);
}

int plugin_set_new(struct loop *l, const struct plugin_set_config *config, struct plugin_set **ret,
                   struct error *err)
{
    struct plugin_set *p = x_alloc(sizeof(*p));
    p->dir = x_strdup(config->device_plugin_dir);
    p->kubelet_socket = x_strdup(config->kubelet_socket ? config->kubelet_socket : "");
    p->shared.loop = l;
    p->shared.config = *config;
    p->shared.config.device_plugin_dir = p->dir;
    p->shared.config.kubelet_socket = p->kubelet_socket;
    buf_init(&p->shared.answer, ANSWER_MAX);
    timer_init(&p->stopped, l, report_stopped, p);
    p->kubelet = identify(p->kubelet_socket);
    int r = watch_dirs(p, err);
    if (r < 0) {
        plugin_set_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

void plugin_set_free(struct plugin_set *p)
{
    if (!p)
        return;
    dirwatch_free(p->dir_watch);
    dirwatch_free(p->kubelet_watch);
    for (size_t i = 0; i < p->n_servers; i++)
        plugin_server_free(p->servers[i]);
    timer_done(&p->stopped);
    buf_done(&p->shared.answer);
    free(p->servers);
    free(p->dir);
    free(p->kubelet_socket);
    free(p);
}

static struct plugin_server *find(const struct plugin_set *p, const char *resource)
{
    for (size_t i = 0; i < p->n_servers; i++) {
        if (strcmp(plugin_server_resource(p->servers[i]), resource) == 0)
            return p->servers[i];
    }
    return NULL;
}

static void server_ended(void *arg, struct plugin_server *s);

static void start_servers(struct plugin_set *p)
{
    const struct inventory *inv = p->shared.inv;
    for (size_t i = 0; i < inv->n_resources; i++) {
        const struct resource *r = &inv->resources[i];
        if (r->n_devices == 0 || find(p, r->name))
            continue;
        p->servers = x_realloc(p->servers, (p->n_servers + 1) * sizeof(*p->servers));
        p->servers[p->n_servers++] = plugin_server_new(&p->shared, r, server_ended, p);
    }
}

static void server_ended(void *arg, struct plugin_server *s)
{
    struct plugin_set *p = arg;
    for (size_t i = 0; i < p->n_servers; i++) {
        if (p->servers[i] != s)
            continue;
        p->servers[i] = p->servers[--p->n_servers];
        plugin_server_free(s);
        break;
    }
    if (!p->stopping)
        start_servers(p); /* the resource may have come back meanwhile */
    else if (p->n_servers == 0)
        timer_set(&p->stopped, 0);
}

/* What is required and absent keeps the agent from starting; here, it went away later. */
static void look(struct plugin_set *p)
{
    struct error err;
    const struct plugin_set_config *c = &p->shared.config;
    if (cdi_look(c->host, p->shared.plugin_config, &p->shared.facts, &err) < 0 && c->failed)
        c->failed(c->arg, "", false, err.text);
}

void plugin_set_publish(struct plugin_set *p, const struct inventory *inv,
                        const struct plugin_config *config)
{
    if (p->stopping)
        return;
    p->shared.inv = inv;
    p->shared.plugin_config = config;
    look(p);
    for (size_t i = 0; i < p->n_servers; i++) {
        const char *name = plugin_server_resource(p->servers[i]);
        plugin_server_update(p->servers[i], inventory_resource(inv, name));
    }
    start_servers(p);
}

void plugin_set_stop(struct plugin_set *p, void (*done)(void *arg), void *arg)
{
    p->stopping = true;
    p->done = done;
    p->done_arg = arg;
    if (p->n_servers == 0)
        timer_set(&p->stopped, 0);
    for (size_t i = 0; i < p->n_servers; i++)
        plugin_server_end(p->servers[i]);
}

void plugin_set_register_again(struct plugin_set *p, const char *resource)
{
    struct plugin_server *s = p->stopping ? NULL : find(p, resource);
    if (s)
        plugin_server_register_again(s);
}

size_t plugin_set_status(const struct plugin_set *p, struct plugin_status *ret, size_t max)
{
    size_t n = MIN(p->n_servers, max);
    for (size_t i = 0; i < n; i++)
        ret[i] = plugin_server_status(p->servers[i]);
    return n;
}
