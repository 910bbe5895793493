/* SPDX-License-Identifier: Apache-2.0 */
/* kubelet_internal_checkpoint. Its checksum is a hash over Go's printed form of the data; another
 * kubelet version computes it differently, so it says nothing here. */
#include <string.h>

#include "base/mem.h"
#include "data/json.h"
#include "kubeletapi/inuse.h"

enum { DEPTH_MAX = 8, NODES_MAX = 1000 * 1000, TEXT_MAX = 4096 };

/* What is read: counted first, then filled into arrays of just that size. */
struct reading {
    struct arena *arena; /* the result's; NULL while counting */
    struct device_use *uses;
    size_t n_uses, n_ids;
    struct error *err;
};

static int wrong(struct reading *r, const struct value *at, const char *what, const char *expected)
{
    return error_set(r->err, ERR_INVALID, 0, "%s:%u:%u: %s is %s, expected %s", CHECKPOINT_FILE,
                     at ? at->line : 0, at ? at->column : 0, what,
                     at ? value_kind_name(at) : "missing", expected);
}

static int no_room(struct reading *r)
{
    return error_set(r->err, ERR_LIMIT, 0, "%s: no memory for its %zu devices", CHECKPOINT_FILE,
                     r->n_uses);
}

static bool text_ok(const struct value *v)
{
    return v && v->kind == VALUE_TEXT && v->text.n <= TEXT_MAX &&
           !memchr(v->text.p, '\0', v->text.n);
}

static bool absent(const struct value *v)
{
    return !v || v->kind == VALUE_NULL; /* Go writes an empty list as null */
}

/* Borrowed from the document while counting, copied into the result while filling. */
static int take_text(struct reading *r, const struct value *map, const char *key, const char **ret)
{
    const struct value *v = value_get(map, key);
    if (!text_ok(v) || v->text.n == 0)
        return wrong(r, v ? v : map, key, "a text that is not empty");
    *ret = r->arena ? arena_strdup(r->arena, v->text) : v->text.p;
    return *ret ? 0 : no_room(r);
}

static int take_ids(struct reading *r, const struct value *list, const struct device_use *proto)
{
    if (absent(list))
        return 0;
    if (list->kind != VALUE_LIST)
        return wrong(r, list, "DeviceIDs", "a list");
    for (size_t i = 0; i < list->n; i++) {
        const struct value *v = &list->items[i];
        if (!text_ok(v) || v->text.n == 0)
            return wrong(r, v, "a device id", "a text that is not empty");
        if (r->n_uses >= IN_USE_MAX)
            return error_set(r->err, ERR_LIMIT, 0, "%s: more than %d devices in use",
                             CHECKPOINT_FILE, IN_USE_MAX);
        if (r->arena) {
            struct device_use *u = &r->uses[r->n_uses];
            *u = *proto;
            u->id = arena_strdup(r->arena, v->text);
            if (!u->id)
                return no_room(r);
        }
        r->n_uses++;
    }
    return 0;
}

static int take_entry(struct reading *r, const struct value *entry)
{
    struct device_use use = { .pod_name = "", .pod_namespace = "", .from_checkpoint = true };
    const struct value *ids = value_get(entry, "DeviceIDs");
    int rc = entry->kind == VALUE_MAP ? 0 : wrong(r, entry, "an entry", "a map");
    if (rc == 0)
        rc = take_text(r, entry, "PodUID", &use.pod_uid);
    if (rc == 0)
        rc = take_text(r, entry, "ContainerName", &use.container);
    if (rc == 0)
        rc = take_text(r, entry, "ResourceName", &use.resource);
    if (rc < 0 || absent(ids))
        return rc;
    if (ids->kind != VALUE_MAP) /* before 1.20 */
        return take_ids(r, ids, &use);
    for (size_t i = 0; rc == 0 && i < ids->n; i++)
        rc = take_ids(r, &ids->members[i].value, &use);
    return rc;
}

static int take_entries(struct reading *r, const struct value *entries)
{
    int rc = 0;
    r->n_uses = 0;
    if (!absent(entries) && entries->kind != VALUE_LIST)
        return wrong(r, entries, "PodDeviceEntries", "a list");
    for (size_t i = 0; rc == 0 && !absent(entries) && i < entries->n; i++)
        rc = take_entry(r, &entries->items[i]);
    return rc;
}

static int take_registered_one(struct reading *r, const struct member *m,
                               struct registered_devices *to)
{
    const struct value *list = &m->value;
    size_t n = absent(list) ? 0 : list->n;
    if (!absent(list) && list->kind != VALUE_LIST)
        return wrong(r, list, "RegisteredDevices", "a map of lists");
    if (memchr(m->key.p ? m->key.p : "", '\0', m->key.n))
        return wrong(r, list, "RegisteredDevices", "names without NUL");
    if (r->n_ids + n > IN_USE_MAX)
        return error_set(r->err, ERR_LIMIT, 0, "%s: more than %d registered devices",
                         CHECKPOINT_FILE, IN_USE_MAX);
    const char **ids = arena_array(r->arena, n ? n : 1, sizeof *ids);
    to->resource = arena_strdup(r->arena, m->key);
    if (!ids || !to->resource)
        return no_room(r);
    for (size_t i = 0; i < n; i++) {
        if (!text_ok(&list->items[i]))
            return wrong(r, &list->items[i], "a registered device", "a text");
        ids[i] = arena_strdup(r->arena, list->items[i].text);
        if (!ids[i])
            return no_room(r);
    }
    to->ids = ids;
    to->n = n;
    r->n_ids += n;
    return 0;
}

static int take_registered(struct reading *r, const struct value *map,
                           struct registered_devices **ret, size_t *ret_n)
{
    int rc = 0;
    size_t n = absent(map) ? 0 : map->n;
    if (!absent(map) && map->kind != VALUE_MAP)
        return wrong(r, map, "RegisteredDevices", "a map");
    struct registered_devices *all = arena_array(r->arena, n ? n : 1, sizeof *all);
    if (!all)
        return no_room(r);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = take_registered_one(r, &map->members[i], &all[i]);
    *ret = all;
    *ret_n = n;
    return rc;
}

int checkpoint_parse(struct arena *scratch, struct str text, struct in_use *into, struct error *err)
{
    static const struct doc_limits limits = { CHECKPOINT_MAX, DEPTH_MAX, NODES_MAX };
    struct value *doc = NULL;
    int rc = json_parse(scratch, text, CHECKPOINT_FILE, &limits, &doc, err);
    if (rc < 0)
        return rc;
    struct reading r = { .err = err };
    const struct value *data = value_get(doc, "Data");
    if (!data || data->kind != VALUE_MAP)
        return wrong(&r, data ? data : doc, "Data", "a map");
    const struct value *entries = value_get(data, "PodDeviceEntries");
    rc = take_entries(&r, entries);
    if (rc < 0)
        return rc;

    size_t n = r.n_uses;
    r.arena = &into->arena;
    r.uses = arena_array(r.arena, into->n + n + 1, sizeof *r.uses);
    if (!r.uses)
        return no_room(&r);
    if (into->n)
        memcpy(r.uses, into->uses, into->n * sizeof *r.uses);
    struct device_use *all = r.uses;
    r.uses += into->n;
    rc = take_entries(&r, entries);
    struct registered_devices *registered = NULL;
    size_t n_registered = 0;
    if (rc == 0)
        rc = take_registered(&r, value_get(data, "RegisteredDevices"), &registered, &n_registered);
    if (rc < 0)
        return rc;
    into->uses = all;
    into->n += n;
    into->registered = registered;
    into->n_registered = n_registered;
    into->checkpoint_read = true;
    return 0;
}
