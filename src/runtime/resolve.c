/* SPDX-License-Identifier: Apache-2.0 */
/* From what a container asks for to CDI names. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cdi/registry.h"
#include "runtime/runtime.h"

enum { NAMES_SHOWN = 6 };

struct names {
    struct arena *arena;
    const char **items;
    size_t n, room;
};

static int add(struct names *l, const char *name, struct error *err)
{
    if (!name || l->n == l->room)
        return error_set(err, ERR_LIMIT, 0, "no memory for the devices asked for");
    l->items[l->n++] = name;
    return 0;
}

static bool qualified(const char *id)
{
    return strchr(id, '=') != NULL;
}

/* The name of an id in a kind, if a file defines it. CDI allows no slash in a name: ids of old MIG
 * drivers ("MIG-GPU-…/3/0") are published with colons. */
static const char *in_kind(struct arena *a, const struct cdi_registry *r, const char *kind,
                           const char *id)
{
    char *name = arena_printf(a, "%s=%s", kind, id);
    for (char *p = name ? name + strlen(kind) + 1 : NULL; p && *p; p++)
        if (*p == '/')
            *p = ':';
    return name && cdi_registry_find(r, str_of(name)) ? name : NULL;
}

/* The first kind that has all ids: what comes from one file is applied once. */
static const char *kind_of(struct arena *a, const struct runtime_texts *ids,
                           const struct runtime_config *c, const struct cdi_registry *r)
{
    for (size_t k = 0; k < c->kinds.n; k++) {
        size_t i = 0;
        while (i < ids->n &&
               (qualified(ids->items[i]) || in_kind(a, r, c->kinds.items[k], ids->items[i])))
            i++;
        if (i == ids->n)
            return c->kinds.items[k];
    }
    return NULL;
}

/* "nvidia.com/gpu has 0, 1, all; …": what there is instead. */
static void say_names(struct buf *out, const struct cdi_registry *r, const char *kind)
{
    size_t shown = 0, all = 0, n = strlen(kind);
    for (size_t i = 0; i < r->n; i++) {
        const char *name = r->devices[i].name;
        if (strncmp(name, kind, n) != 0 || name[n] != '=')
            continue;
        if (all++ < NAMES_SHOWN) {
            buf_fmt(out, "%s%s", shown ? ", " : "", name + n + 1);
            shown++;
        }
    }
    if (all > shown)
        buf_fmt(out, " and %zu more", all - shown);
    if (all == 0)
        buf_z(out, "nothing");
}

static bool any_kind(const struct cdi_registry *r, const char *kind)
{
    size_t n = strlen(kind);
    for (size_t i = 0; i < r->n; i++)
        if (strncmp(r->devices[i].name, kind, n) == 0 && r->devices[i].name[n] == '=')
            return true;
    return false;
}

static int not_found(const struct runtime_request *q, const char *id,
                     const struct runtime_config *c, const struct cdi_registry *r,
                     struct error *err)
{
    auto_buf there, dirs;
    buf_init(&there, 4096);
    buf_init(&dirs, 4096);
    for (size_t i = 0; i < c->spec_dirs.n; i++)
        buf_fmt(&dirs, "%s%s", i ? " or " : "", c->spec_dirs.items[i]);
    bool first = true;
    for (size_t k = 0; k < c->kinds.n; k++) {
        if (!any_kind(r, c->kinds.items[k]))
            continue;
        buf_fmt(&there, "%s%s has ", first ? "" : "; ", c->kinds.items[k]);
        say_names(&there, r, c->kinds.items[k]);
        first = false;
    }
    if (strcmp(id, "/var/run/nvidia-container-devices") == 0)
        return error_set(err, ERR_NOT_FOUND, 0,
                         "%s is %s: the devices are named by mounts, which this host does not "
                         "accept; set accept-nvidia-visible-devices-as-volume-mounts = true in "
                         "config.toml",
                         q->source, id);
    return error_set(err, ERR_NOT_FOUND, 0, "%s asks for \"%.100s\", which no CDI file in %s %s%s",
                     q->source, id, dirs.p ? dirs.p : "(no directory)",
                     first ? "defines; there is no file for kind " : "defines: ",
                     first ? (c->kinds.n ? c->kinds.items[0] : "(none)") : there.p);
}

static int add_gpus(struct names *l, const struct runtime_request *q,
                    const struct runtime_config *c, const struct cdi_registry *r,
                    const char **ret_kind, struct error *err)
{
    const char *kind = kind_of(l->arena, &q->ids, c, r);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < q->ids.n; i++) {
        const char *id = q->ids.items[i], *name = NULL;
        if (qualified(id))
            name = cdi_registry_find(r, str_of(id)) ? id : NULL;
        else if (kind)
            name = in_kind(l->arena, r, kind, id);
        for (size_t k = 0; !name && !qualified(id) && k < c->kinds.n; k++)
            name = in_kind(l->arena, r, c->kinds.items[k], id);
        rc = name ? add(l, name, err) : not_found(q, id, c, r, err);
    }
    *ret_kind = kind;
    return rc;
}

/* The vendor's part of a kind: "nvidia.com" of "nvidia.com/gpu". */
static struct str vendor_of(const char *kind)
{
    struct str rest = str_of(kind);
    return str_cut(&rest, '/');
}

/* A device of another class: of the vendor that the gpus came from first, then of the others. */
static const char *in_class(struct arena *a, const struct runtime_config *c,
                            const struct cdi_registry *r, const char *kind, const char *class_name,
                            const char *id)
{
    for (size_t k = 0; k <= c->kinds.n; k++) {
        const char *from = k ? c->kinds.items[k - 1] : kind;
        if (!from)
            continue;
        struct str vendor = vendor_of(from);
        char *name = arena_printf(a, "%.*s/%s=%s", STR_FMT(vendor), class_name, id);
        if (name && cdi_registry_find(r, str_of(name)))
            return name;
    }
    return NULL;
}

static int add_others(struct names *l, const struct runtime_request *q,
                      const struct runtime_config *c, const struct cdi_registry *r,
                      const char *kind, char *notes, size_t notes_size, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < q->imex_channels.n; i++) {
        const char *id = q->imex_channels.items[i],
                   *name = in_class(l->arena, c, r, kind, "imex-channel", id);
        if (!name)
            return error_set(err, ERR_NOT_FOUND, 0,
                             "NVIDIA_IMEX_CHANNELS asks for channel \"%.60s\", which no CDI file "
                             "defines (class imex-channel)",
                             id);
        rc = add(l, name, err);
    }
    for (size_t i = 0; rc == 0 && i < RUNTIME_GATED; i++) {
        if (!(q->gated & 1U << i))
            continue;
        const char *name = in_class(l->arena, c, r, kind, runtime_gated[i].class_name, "all");
        if (name)
            rc = add(l, name, err);
        else if (notes)
            snprintf(notes, notes_size, "%s is enabled, but no CDI file defines class %s",
                     runtime_gated[i].variable, runtime_gated[i].class_name);
    }
    return rc;
}

int runtime_resolve(struct arena *a, const struct runtime_request *q,
                    const struct runtime_config *c, const struct cdi_registry *r,
                    struct runtime_texts *ret, char *notes, size_t notes_size, struct error *err)
{
    struct names l = { .arena = a, .room = q->ids.n + q->imex_channels.n + RUNTIME_GATED };
    const char *kind = NULL;
    l.items = arena_array(a, l.room, sizeof *l.items);
    if (notes && notes_size)
        notes[0] = '\0';
    if (!l.items)
        return error_set(err, ERR_LIMIT, 0, "no memory for the devices asked for");
    int rc = add_gpus(&l, q, c, r, &kind, err);
    if (rc == 0)
        rc = add_others(&l, q, c, r, kind, notes, notes_size, err);
    *ret = (struct runtime_texts){ l.items, l.n };
    return rc;
}
