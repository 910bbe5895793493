/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Changing a value tree in place, with new memory from the arena it lives in. Members and items
 * keep their order; what is not touched stays as it was read. */
#include "data/json.h"

/* The member of that name, or NULL; like value_get, but to be changed. */
struct value *value_edit(struct value *map, const char *key);
/* The member of that name, made (as null, at the end) when there is none. ERR_INVALID when `map` is
 * no map. */
int value_member(struct arena *a, struct value *map, const char *key, struct value **ret,
                 struct error *err) must_check;
/* As value_member, but the member is a map (or list): null or absent becomes an empty one, anything
 * else is ERR_INVALID. */
int value_submap(struct arena *a, struct value *map, const char *key, struct value **ret,
                 struct error *err) must_check;
int value_sublist(struct arena *a, struct value *map, const char *key, struct value **ret,
                  struct error *err) must_check;
/* Adds a copy of `item` (shallow) at the end of a list. */
int value_append(struct arena *a, struct value *list, const struct value *item,
                 struct error *err) must_check;
/* Takes items for which drop() is true out of a list. */
void value_remove_if(struct value *list, bool (*drop)(const struct value *item, void *arg),
                     void *arg);

/* Scalars to put in. The text is borrowed. */
struct value value_of_text(struct str text);
struct value value_of_int(int64_t v);
struct value value_of_bool(bool v);
