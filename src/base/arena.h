/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * An arena: everything decoded from one call, event or document lives in it and dies with it.
 * It has a limit in bytes; past it (or on exhaustion) allocation returns NULL and the caller
 * answers ERR_LIMIT.
 */
#include <stdarg.h>
#include <stddef.h>

#include "base/str.h"

struct arena_block;

struct arena {
    struct arena_block *blocks;
    size_t used, limit;
};

void arena_init(struct arena *a, size_t limit);
void arena_done(
    struct arena *a); /* frees everything; the arena can be used again with the same limit */

void *arena_alloc(struct arena *a,
                  size_t n); /* zeroed, aligned for any type; NULL past the limit */
void *arena_array(struct arena *a, size_t count,
                  size_t size); /* zeroed; NULL also when count * size overflows */
char *arena_strdup(struct arena *a, struct str s); /* terminated copy */
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(struct arena *a, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

#define auto_arena __attribute__((cleanup(arena_done))) struct arena
