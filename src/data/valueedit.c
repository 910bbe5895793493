/* SPDX-License-Identifier: Apache-2.0 */
#include "data/valueedit.h"

#include <string.h>

#include "base/mem.h"

static int full(const struct arena *a, struct error *err)
{
    return error_set(err, ERR_LIMIT, 0, "the document needs more than the %zu bytes allowed",
                     a->limit);
}

struct value *value_edit(struct value *map, const char *key)
{
    for (size_t i = 0; map && map->kind == VALUE_MAP && i < map->n; i++)
        if (str_is(map->members[i].key, key))
            return &map->members[i].value;
    return NULL;
}

/* One place more. Documents that are edited are small (a container has tens of mounts), so a copy
 * each time will do. */
static void *grown(struct arena *a, const void *old, size_t n, size_t size)
{
    void *p = arena_array(a, n + 1, size);
    if (p && n)
        memcpy(p, old, n * size);
    return p;
}

int value_member(struct arena *a, struct value *map, const char *key, struct value **ret,
                 struct error *err)
{
    if (map->kind != VALUE_MAP)
        return error_set(err, ERR_INVALID, 0, "expected a map to hold \"%s\", found %s", key,
                         value_kind_name(map));
    *ret = value_edit(map, key);
    if (*ret)
        return 0;
    struct member *members = grown(a, map->members, map->n, sizeof *members);
    char *name = members ? arena_strdup(a, str_of(key)) : NULL;
    if (!name)
        return full(a, err);
    map->members = members;
    map->members[map->n].key = str_of(name);
    *ret = &map->members[map->n++].value;
    return 0;
}

static int of_kind(struct arena *a, struct value *map, const char *key, enum value_kind kind,
                   struct value **ret, struct error *err)
{
    int r = value_member(a, map, key, ret, err);
    if (r < 0)
        return r;
    if ((*ret)->kind == VALUE_NULL)
        **ret = (struct value){ .kind = kind };
    if ((*ret)->kind != kind)
        return error_set(err, ERR_INVALID, 0, "\"%s\": expected %s, found %s", key,
                         kind == VALUE_MAP ? "a map" : "a list", value_kind_name(*ret));
    return 0;
}

int value_submap(struct arena *a, struct value *map, const char *key, struct value **ret,
                 struct error *err)
{
    return of_kind(a, map, key, VALUE_MAP, ret, err);
}

int value_sublist(struct arena *a, struct value *map, const char *key, struct value **ret,
                  struct error *err)
{
    return of_kind(a, map, key, VALUE_LIST, ret, err);
}

int value_append(struct arena *a, struct value *list, const struct value *item, struct error *err)
{
    struct value *items = grown(a, list->items, list->n, sizeof *items);
    if (!items)
        return full(a, err);
    items[list->n] = *item;
    list->items = items;
    list->n++;
    return 0;
}

void value_remove_if(struct value *list, bool (*drop)(const struct value *item, void *arg),
                     void *arg)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++)
        if (!drop(&list->items[i], arg))
            list->items[kept++] = list->items[i];
    list->n = kept;
}

struct value value_of_text(struct str text)
{
    return (struct value){ .kind = VALUE_TEXT, .text = text };
}

struct value value_of_int(int64_t v)
{
    return (struct value){ .kind = VALUE_INT, .number = v };
}

struct value value_of_bool(bool v)
{
    return (struct value){ .kind = VALUE_BOOL, .boolean = v };
}
