/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { BLOCK_MIN = 4096 - 64, BLOCK_MAX = 64 * 1024, ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    char data[] __attribute__((aligned(16)));
};

void arena_init(struct arena *a, size_t limit)
{
    *a = (struct arena){ .limit = limit };
}

void arena_done(struct arena *a)
{
    for (struct arena_block *b = a->blocks; b;) {
        struct arena_block *next = b->next;
        free(b);
        b = next;
    }
    a->blocks = NULL;
    a->used = 0;
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX - ALIGN)
        return NULL;
    n = (MAX(n, 1) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (n > a->limit - MIN(a->used, a->limit))
        return NULL;
    struct arena_block *b = a->blocks;
    if (!b || b->size - b->used < n) {
        size_t grow = b ? MIN(b->size * 2, (size_t)BLOCK_MAX) : BLOCK_MIN;
        size_t size = MAX(grow, n);
        b = try_alloc(sizeof *b + size);
        if (!b)
            return NULL;
        b->size = size;
        /* A block made for one large object goes behind the current one, whose rest stays in use.
         */
        if (a->blocks && n > grow) {
            b->next = a->blocks->next;
            a->blocks->next = b;
        } else {
            b->next = a->blocks;
            a->blocks = b;
        }
    }
    void *p = b->data + b->used;
    b->used += n;
    a->used += n;
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    size_t n;
    return __builtin_mul_overflow(count, size, &n) ? NULL : arena_alloc(a, n);
}

char *arena_strdup(struct arena *a, struct str s)
{
    char *p = s.n < SIZE_MAX ? arena_alloc(a, s.n + 1) : NULL;
    if (p && s.n)
        memcpy(p, s.p, s.n);
    return p;
}

char *arena_vprintf(struct arena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, ap);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *p = arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}
