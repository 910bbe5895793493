/* SPDX-License-Identifier: Apache-2.0 */
#include "cdi/cdi.h"

#include <string.h>

#include "base/mem.h"
#include "data/json.h"

/* Versions by the first feature that needs them (CDI specification, "Released versions"). */
enum version { V0_3, V0_5, V0_6, V0_7 };
static const char *const version_text[] = { "0.3.0", "0.5.0", "0.6.0", "0.7.0" };

static enum version edits_version(const struct cdi_edits *e)
{
    if (e->n_gids > 0)
        return V0_7;
    for (size_t i = 0; i < e->n_nodes; i++) {
        if (e->nodes[i].host_path)
            return V0_5;
    }
    return V0_3;
}

static bool dot_in_class(const char *kind)
{
    const char *slash = strrchr(kind, '/');
    return slash && strchr(slash, '.');
}

const char *cdi_version(const struct cdi_spec *spec)
{
    enum version v = edits_version(&spec->common);
    for (size_t i = 0; i < spec->n_devices; i++) {
        const struct cdi_device *d = &spec->devices[i];
        v = MAX(v, edits_version(&d->edits));
        if (d->name[0] >= '0' && d->name[0] <= '9')
            v = MAX(v, V0_5);
    }
    if (dot_in_class(spec->kind))
        v = MAX(v, V0_6);
    return version_text[v];
}

char *cdi_file_name(struct arena *a, const struct cdi_spec *spec)
{
    char *name = arena_printf(a, "%s.json", spec->kind);
    if (!name)
        return NULL;
    for (char *p = name; *p; p++) {
        if (*p == '/')
            *p = '-';
    }
    return name;
}

#define ALNUM "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

/* CDI: letters, digits and "_-.:", letter or digit first and last. */
static bool name_allowed(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && strspn(name, ALNUM "_-.:") == n && strchr(ALNUM, name[0]) &&
           strchr(ALNUM, name[n - 1]);
}

const char *cdi_name_of(enum id_strategy strategy, const char *uuid, const char *index,
                        char ret[CDI_NAME_MAX])
{
    size_t n = strlen(uuid);
    if (strategy != ID_UUID || n >= CDI_NAME_MAX)
        return index;
    memcpy(ret, uuid, n + 1);
    for (char *p = ret; *p; p++)
        if (*p == '/')
            *p = ':';
    return name_allowed(ret) ? ret : index;
}

static void encode_texts(struct json_writer *w, const char *key, const char *const *texts, size_t n)
{
    if (n == 0)
        return;
    jw_key(w, key);
    jw_list(w);
    for (size_t i = 0; i < n; i++)
        jw_z(w, texts[i]);
    jw_end(w);
}

static void encode_node(struct json_writer *w, const struct cdi_node *n)
{
    jw_map(w);
    jw_kv(w, "path", n->path);
    if (n->host_path)
        jw_kv(w, "hostPath", n->host_path);
    if (n->has_type)
        jw_kv(w, "type", "c");
    if (n->has_numbers) {
        jw_kv_int(w, "major", n->major);
        jw_kv_int(w, "minor", n->minor);
        jw_kv_int(w, "fileMode", n->mode);
    }
    jw_kv(w, "permissions", n->permissions);
    jw_end(w);
}

static void encode_hook(struct json_writer *w, const struct cdi_hook *h)
{
    jw_map(w);
    jw_kv(w, "hookName", h->name);
    jw_kv(w, "path", h->path);
    encode_texts(w, "args", h->args, h->n_args);
    encode_texts(w, "env", h->env, h->n_env);
    jw_end(w);
}

static void encode_mount(struct json_writer *w, const struct cdi_mount *m)
{
    jw_map(w);
    jw_kv(w, "hostPath", m->host_path);
    jw_kv(w, "containerPath", m->container_path);
    encode_texts(w, "options", m->options, m->n_options);
    jw_end(w);
}

static void encode_edits(struct json_writer *w, const struct cdi_edits *e)
{
    jw_key(w, "containerEdits");
    jw_map(w);
    encode_texts(w, "env", e->env, e->n_env);
    if (e->n_nodes > 0) {
        jw_key(w, "deviceNodes");
        jw_list(w);
        for (size_t i = 0; i < e->n_nodes; i++)
            encode_node(w, &e->nodes[i]);
        jw_end(w);
    }
    if (e->n_hooks > 0) {
        jw_key(w, "hooks");
        jw_list(w);
        for (size_t i = 0; i < e->n_hooks; i++)
            encode_hook(w, &e->hooks[i]);
        jw_end(w);
    }
    if (e->n_mounts > 0) {
        jw_key(w, "mounts");
        jw_list(w);
        for (size_t i = 0; i < e->n_mounts; i++)
            encode_mount(w, &e->mounts[i]);
        jw_end(w);
    }
    if (e->n_gids > 0) {
        jw_key(w, "additionalGids");
        jw_list(w);
        for (size_t i = 0; i < e->n_gids; i++)
            jw_int(w, e->gids[i]);
        jw_end(w);
    }
    jw_end(w);
}

int cdi_encode(const struct cdi_spec *spec, struct buf *out, struct error *err)
{
    struct json_writer w;
    jw_init(&w, out, 0);
    jw_map(&w);
    jw_kv(&w, "cdiVersion", cdi_version(spec));
    jw_kv(&w, "kind", spec->kind);
    jw_key(&w, "devices");
    jw_list(&w);
    for (size_t i = 0; i < spec->n_devices; i++) {
        jw_map(&w);
        jw_kv(&w, "name", spec->devices[i].name);
        encode_edits(&w, &spec->devices[i].edits);
        jw_end(&w);
    }
    jw_end(&w);
    encode_edits(&w, &spec->common);
    jw_end(&w);
    return buf_check(out, "CDI spec", err);
}
