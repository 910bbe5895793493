/* SPDX-License-Identifier: Apache-2.0 */
/* config.toml of the NVIDIA container toolkit: the keys that decide what a container gets. Facts:
 * docs/runtime.md. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "runtime/runtime.h"
#include "runtime/toml.h"

static const char *const default_runtimes[] = { "runc", "crun" };
static const char *const default_kinds[] = { "nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu" };
static const char *const default_prefixes[] = { "cdi.k8s.io/" };
static const char *const default_dirs[] = { "/etc/cdi", "/var/run/cdi" };

const struct runtime_config runtime_config_default = {
    .envvar_when_unprivileged = true,
    .runtimes = { default_runtimes, ARRAY_LEN(default_runtimes) },
    .kinds = { default_kinds, ARRAY_LEN(default_kinds) },
    .annotation_prefixes = { default_prefixes, ARRAY_LEN(default_prefixes) },
    .spec_dirs = { default_dirs, ARRAY_LEN(default_dirs) },
};

const char *runtime_config_path(struct arena *a)
{
    const char *given = getenv("NVIDIA_CTK_CONFIG_FILE_PATH"), *home = getenv("XDG_CONFIG_HOME");
    if (given && given[0] == '/')
        return given;
    return arena_printf(a, "%s/nvidia-container-runtime/config.toml",
                        home && home[0] == '/' ? home : "/etc");
}

struct decode {
    struct arena *arena;
    const char *file;
    const struct value *doc;
    struct error *err;
};

static int wrong(const struct decode *d, const struct value *v, const char *key,
                 const char *expected)
{
    return error_set(d->err, ERR_INVALID, 0, "%s:%u:%u: %s: expected %s, found %s", d->file,
                     v->line, v->column, key, expected, value_kind_name(v));
}

/* The value at a dotted path, or NULL; a table that is none on the way is an error. */
static int at(const struct decode *d, const char *path, const struct value **ret)
{
    const struct value *v = d->doc;
    struct str rest = str_of(path);
    while (v && rest.p) {
        struct str part = str_cut(&rest, '.');
        char key[80];
        if (v->kind != VALUE_MAP)
            return wrong(d, v, path, "a table above it");
        memcpy(key, part.p, MIN(part.n, sizeof key - 1));
        key[MIN(part.n, sizeof key - 1)] = '\0';
        v = value_get(v, key);
    }
    *ret = v;
    return 0;
}

static int take_bool(const struct decode *d, const char *path, bool *ret)
{
    const struct value *v;
    int r = at(d, path, &v);
    if (r < 0 || !v)
        return r;
    if (v->kind != VALUE_BOOL)
        return wrong(d, v, path, "true or false");
    *ret = v->boolean;
    return 0;
}

static int take_text(const struct decode *d, const char *path, const char **ret)
{
    const struct value *v;
    int r = at(d, path, &v);
    if (r < 0 || !v)
        return r;
    if (v->kind != VALUE_TEXT)
        return wrong(d, v, path, "text in quotes");
    *ret = v->text.n ? v->text.p : *ret;
    return 0;
}

static int take_texts(const struct decode *d, const char *path, struct runtime_texts *ret)
{
    const struct value *v;
    int r = at(d, path, &v);
    if (r < 0 || !v)
        return r;
    if (v->kind != VALUE_LIST)
        return wrong(d, v, path, "a list of texts");
    const char **items = arena_array(d->arena, v->n ? v->n : 1, sizeof *items);
    if (!items)
        return error_set(d->err, ERR_LIMIT, 0, "%s: no memory for %s", d->file, path);
    for (size_t i = 0; i < v->n; i++) {
        if (v->items[i].kind != VALUE_TEXT || !v->items[i].text.n)
            return wrong(d, &v->items[i], path, "a list of texts that are not empty");
        items[i] = v->items[i].text.p;
    }
    *ret = (struct runtime_texts){ items, v->n };
    return 0;
}

/* default-kind goes before the kinds that are looked in anyway; "kinds" (a key of our own) says
 * them all. */
static int take_kinds(const struct decode *d, struct runtime_config *c)
{
    const char *first = NULL;
    size_t n = 0;
    int r = take_text(d, "nvidia-container-runtime.modes.cdi.default-kind", &first);
    if (r == 0)
        r = take_texts(d, "nvidia-container-runtime.modes.cdi.kinds", &c->kinds);
    if (r < 0 || !first)
        return r;
    const char **all = arena_array(d->arena, c->kinds.n + 1, sizeof *all);
    if (!all)
        return error_set(d->err, ERR_LIMIT, 0, "%s: no memory for kinds", d->file);
    all[n++] = first;
    for (size_t i = 0; i < c->kinds.n; i++)
        if (strcmp(c->kinds.items[i], first) != 0)
            all[n++] = c->kinds.items[i];
    c->kinds = (struct runtime_texts){ all, n };
    return 0;
}

/* One name, or several with commas. */
static int take_swarm(const struct decode *d, struct runtime_config *c)
{
    const char *text = NULL;
    int r = take_text(d, "swarm-resource", &text);
    if (r < 0 || !text)
        return r;
    const char **names = arena_array(d->arena, strlen(text) + 1, sizeof *names);
    struct str rest = str_of(text);
    size_t n = 0;
    while (names && rest.p) {
        struct str name = str_trim(str_cut(&rest, ','));
        char *copy = name.n ? arena_strdup(d->arena, name) : NULL;
        if (copy)
            names[n++] = copy;
    }
    if (!names)
        return error_set(d->err, ERR_LIMIT, 0, "%s: no memory for swarm-resource", d->file);
    c->swarm = (struct runtime_texts){ names, n };
    return 0;
}

static int decode(const struct decode *d, struct runtime_config *c)
{
    const char *level = "info";
    const struct {
        const char *key;
        bool *to;
    } bools[] = {
        { "accept-nvidia-visible-devices-envvar-when-unprivileged", &c->envvar_when_unprivileged },
        { "accept-nvidia-visible-devices-as-volume-mounts", &c->volume_mounts },
        { "features.ignore-imex-channel-requests", &c->ignore_imex },
    };
    const struct {
        const char *key;
        struct runtime_texts *to;
    } lists[] = {
        { "nvidia-container-runtime.runtimes", &c->runtimes },
        { "nvidia-container-runtime.modes.cdi.annotation-prefixes", &c->annotation_prefixes },
        { "nvidia-container-runtime.modes.cdi.spec-dirs", &c->spec_dirs },
    };
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(bools); i++)
        r = take_bool(d, bools[i].key, bools[i].to);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(lists); i++)
        r = take_texts(d, lists[i].key, lists[i].to);
    if (r == 0)
        r = take_kinds(d, c);
    if (r == 0)
        r = take_swarm(d, c);
    if (r == 0)
        r = take_text(d, "nvidia-container-runtime.debug", &c->log_path);
    if (r == 0)
        r = take_text(d, "nvidia-container-runtime.log-level", &level);
    c->verbose = strcmp(level, "debug") == 0 || strcmp(level, "trace") == 0;
    return r;
}

int runtime_config_read(struct arena *a, const char *path, struct runtime_config *ret,
                        struct error *err)
{
    auto_free char *text = NULL;
    struct error why;
    struct value *doc = NULL;
    size_t n = 0;
    *ret = runtime_config_default;
    int r = file_read(path, TOML_BYTES_MAX, &text, &n, &why);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r < 0)
        return error_set(err, why.code, why.sys, "%s", why.text);
    r = toml_parse(a, (struct str){ text, n }, path, &doc, err);
    const struct decode d = { a, path, doc, err };
    return r < 0 ? r : decode(&d, ret);
}
