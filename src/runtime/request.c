/* SPDX-License-Identifier: Apache-2.0 */
/* What a container asks for: annotations, else mounts, else variables. Facts: docs/runtime.md. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cdi/registry.h"
#include "runtime/runtime.h"

static const char visible[] = "NVIDIA_VISIBLE_DEVICES", imex[] = "NVIDIA_IMEX_CHANNELS",
                  volume_root[] = "/var/run/nvidia-container-devices";

const struct runtime_gated runtime_gated[RUNTIME_GATED] = {
    { "NVIDIA_GDRCOPY", "gdrcopy" },
    { "NVIDIA_GDS", "gds" },
    { "NVIDIA_MOFED", "mofed" },
    { "NVIDIA_NVSWITCH", "nvswitch" },
};

static bool holds(struct str text, const char *word)
{
    return text.n && memmem(text.p, text.n, word, strlen(word)) != NULL;
}

bool runtime_may_ask(struct str text, const struct runtime_config *c)
{
    if (holds(text, visible) || holds(text, imex) || holds(text, volume_root))
        return true;
    for (size_t i = 0; i < c->swarm.n; i++)
        if (holds(text, c->swarm.items[i]))
            return true;
    for (size_t i = 0; i < c->annotation_prefixes.n; i++)
        if (holds(text, c->annotation_prefixes.items[i]))
            return true;
    return false;
}

/* ---- lists ---- */

struct ids {
    struct arena *arena;
    const char **items;
    size_t n;
};

static int add(struct ids *l, struct str id, struct error *err)
{
    if (l->n == RUNTIME_IDS_MAX)
        return error_set(err, ERR_LIMIT, 0, "the container asks for more than %d devices",
                         RUNTIME_IDS_MAX);
    for (size_t i = 0; i < l->n; i++)
        if (str_is(id, l->items[i]))
            return 0;
    if ((l->n & (l->n - 1)) == 0) {
        const char **more = arena_array(l->arena, l->n ? 2 * l->n : 1, sizeof *more);
        if (!more)
            return error_set(err, ERR_LIMIT, 0, "no memory for the devices asked for");
        if (l->n)
            memcpy(more, l->items, l->n * sizeof *more);
        l->items = more;
    }
    l->items[l->n] = arena_strdup(l->arena, id);
    if (!l->items[l->n])
        return error_set(err, ERR_LIMIT, 0, "no memory for the devices asked for");
    l->n++;
    return 0;
}

static int add_list(struct ids *l, struct str text, struct error *err)
{
    while (text.p) {
        struct str id = str_trim(str_cut(&text, ','));
        int r = id.n ? add(l, id, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static bool has(const struct ids *l, const char *id)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i], id) == 0)
            return true;
    return false;
}

/* ---- the container ---- */

/* The value of a variable; of several entries the last counts. A text with a NUL is none. */
static bool env_of(const struct value *oci, const char *name, struct str *ret)
{
    const struct value *env = value_get(value_get(oci, "process"), "env");
    size_t n = strlen(name);
    bool found = false;
    for (size_t i = 0; env && env->kind == VALUE_LIST && i < env->n; i++) {
        const struct value *e = &env->items[i];
        if (e->kind != VALUE_TEXT || e->text.n <= n || e->text.p[n] != '=' ||
            memcmp(e->text.p, name, n) != 0 || memchr(e->text.p, '\0', e->text.n))
            continue;
        *ret = (struct str){ e->text.p + n + 1, e->text.n - n - 1 };
        found = true;
    }
    return found;
}

static bool privileged(const struct value *oci)
{
    const struct value *caps =
        value_get(value_get(value_get(oci, "process"), "capabilities"), "bounding");
    for (size_t i = 0; caps && caps->kind == VALUE_LIST && i < caps->n; i++)
        if (strcmp(value_text(&caps->items[i], ""), "CAP_SYS_ADMIN") == 0)
            return true;
    return false;
}

/* ---- sources ---- */

static int from_annotations(struct ids *l, const struct value *oci, const struct runtime_config *c,
                            struct error *err)
{
    const struct value *all = value_get(oci, "annotations");
    for (size_t i = 0; all && all->kind == VALUE_MAP && i < all->n; i++) {
        const struct member *m = &all->members[i];
        bool ours = false;
        for (size_t k = 0; k < c->annotation_prefixes.n; k++)
            ours = ours || str_starts(m->key, c->annotation_prefixes.items[k]);
        if (!ours)
            continue;
        struct ids names = { .arena = l->arena };
        int r = m->value.kind == VALUE_TEXT ? add_list(&names, m->value.text, err) : 0;
        for (size_t k = 0; r == 0 && k < names.n; k++)
            r = cdi_name_valid(str_of(names.items[k]))
                    ? add(l, str_of(names.items[k]), err)
                    : error_set(err, ERR_INVALID, 0,
                                "annotation %.*s: \"%s\" is no CDI device, expected "
                                "VENDOR/CLASS=NAME",
                                (int)MIN(m->key.n, (size_t)120), m->key.p, names.items[k]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* /var/run/nvidia-container-devices/GPU-…, …/cdi/VENDOR/CLASS/NAME, …/imex/CHANNEL: mounts of
 * /dev/null that only name something. */
static int take_mount(struct ids *l, struct ids *channels, struct str at, struct error *err)
{
    if (str_starts(at, "imex/"))
        return add(channels, (struct str){ at.p + 5, at.n - 5 }, err);
    if (!str_starts(at, "cdi/"))
        return add(l, at, err);
    struct str rest = { at.p + 4, at.n - 4 }, vendor = str_cut(&rest, '/'),
               class_name = str_cut(&rest, '/');
    char *name = arena_printf(l->arena, "%.*s/%.*s=%.*s", STR_FMT(vendor), STR_FMT(class_name),
                              STR_FMT(rest));
    if (!name)
        return error_set(err, ERR_LIMIT, 0, "no memory for the devices asked for");
    if (!cdi_name_valid(str_of(name)))
        return error_set(err, ERR_INVALID, 0,
                         "mount %s/%.*s names no CDI device, expected cdi/VENDOR/CLASS/NAME",
                         volume_root, (int)MIN(at.n, (size_t)120), at.p);
    return add(l, str_of(name), err);
}

static int from_mounts(struct ids *l, struct ids *channels, const struct value *oci,
                       struct error *err)
{
    const struct value *mounts = value_get(oci, "mounts");
    size_t n = sizeof volume_root - 1;
    for (size_t i = 0; mounts && mounts->kind == VALUE_LIST && i < mounts->n; i++) {
        const struct value *to = value_get(&mounts->items[i], "destination");
        if (!to || to->kind != VALUE_TEXT || !str_starts(to->text, volume_root) ||
            to->text.n <= n + 1 || to->text.p[n] != '/' ||
            strcmp(value_text(value_get(&mounts->items[i], "source"), ""), "/dev/null") != 0)
            continue;
        int r =
            take_mount(l, channels, (struct str){ to->text.p + n + 1, to->text.n - n - 1 }, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int from_env(struct ids *l, const struct value *oci, const struct runtime_config *c,
                    const char **ret_source, struct error *err)
{
    struct str text;
    int r = 0;
    for (size_t i = 0; r == 0 && i < c->swarm.n; i++)
        if (env_of(oci, c->swarm.items[i], &text)) {
            *ret_source = c->swarm.items[i];
            r = add_list(l, text, err);
        }
    if (r == 0 && l->n == 0 && env_of(oci, visible, &text)) {
        *ret_source = visible;
        r = add_list(l, text, err);
    }
    return r;
}

/* "all" is everything, "void" nothing at all, "none" no gpu; each counts wherever it stands. */
static void settle(struct runtime_request *q, struct ids *l)
{
    static const char *const everything[] = { "all" };
    if (has(l, "all"))
        q->ids = (struct runtime_texts){ everything, 1 };
    else if (has(l, "none"))
        q->driver_only = !has(l, "void");
    else if (!has(l, "void"))
        q->ids = (struct runtime_texts){ l->items, l->n };
}

static int take_channels(struct ids *channels, const struct value *oci, bool accepted,
                         struct error *err)
{
    struct str text;
    return channels->n == 0 && accepted && env_of(oci, imex, &text) ? add_list(channels, text, err)
                                                                    : 0;
}

static int take_env(struct runtime_request *q, struct ids *l, const struct value *oci,
                    const struct runtime_config *c, bool accepted, struct error *err)
{
    struct ids asked = { .arena = l->arena };
    int r = from_env(&asked, oci, c, &q->source, err);
    if (r == 0 && !accepted) {
        struct runtime_request ignored = { 0 };
        settle(&ignored, &asked);
        q->refused = ignored.ids.n > 0 || ignored.driver_only;
        return 0;
    }
    *l = asked;
    return r;
}

int runtime_request_read(struct arena *a, const struct value *oci, const struct runtime_config *c,
                         struct runtime_request *ret, struct error *err)
{
    struct ids l = { .arena = a }, channels = { .arena = a };
    bool accepted = c->envvar_when_unprivileged || privileged(oci);
    struct str text;
    *ret = (struct runtime_request){ .source = "an annotation" };
    int r = from_annotations(&l, oci, c, err);
    bool qualified = l.n > 0;
    if (r == 0 && !qualified && c->volume_mounts) {
        ret->source = "a mount below /var/run/nvidia-container-devices";
        r = from_mounts(&l, &channels, oci, err);
    }
    if (r == 0 && l.n == 0)
        r = take_env(ret, &l, oci, c, accepted, err);
    if (r == 0 && !c->ignore_imex)
        r = take_channels(&channels, oci, accepted, err);
    if (r < 0)
        return r;
    settle(ret, &l);
    if (!c->ignore_imex)
        ret->imex_channels = (struct runtime_texts){ channels.items, channels.n };
    for (size_t i = 0; (ret->ids.n || ret->driver_only) && !qualified && i < RUNTIME_GATED; i++)
        if (env_of(oci, runtime_gated[i].variable, &text) && str_is(text, "enabled"))
            ret->gated |= 1U << i;
    return 0;
}

bool runtime_request_empty(const struct runtime_request *q)
{
    return q->ids.n == 0 && !q->driver_only && q->imex_channels.n == 0;
}
