/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){ .max = max };
}

void buf_done(struct buf *b)
{
    free(b->p);
    *b = (struct buf){ .max = b->max };
}

void buf_reset(struct buf *b)
{
    b->n = 0;
    b->failed = false;
    if (b->p)
        b->p[0] = '\0';
}

/* Makes room for n more bytes and the final NUL. */
static bool grow(struct buf *b, size_t n)
{
    if (b->failed)
        return false;
    if (n > b->max - MIN(b->n, b->max)) {
        b->failed = true;
        return false;
    }
    size_t need = b->n + n + 1;
    if (need <= b->cap)
        return true;
    size_t cap = MAX(b->cap, (size_t)64);
    while (cap < need)
        cap *= 2;
    cap = MIN(cap, b->max + 1);
    char *p = try_realloc(b->p, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (!grow(b, n))
        return;
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

void buf_str(struct buf *b, struct str s)
{
    buf_add(b, s.p, s.n);
}

void buf_z(struct buf *b, const char *z)
{
    buf_add(b, z, strlen(z));
}

void buf_ch(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_fmt(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        b->failed = true;
    else if (grow(b, (size_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void buf_drop(struct buf *b, size_t n)
{
    n = MIN(n, b->n);
    if (!n)
        return;
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
    b->p[b->n] = '\0';
}

int buf_check(const struct buf *b, const char *what, struct error *err)
{
    if (!b->failed)
        return 0;
    return error_set(err, ERR_LIMIT, 0, "%s does not fit: it may have at most %zu bytes", what,
                     b->max);
}

char *buf_take(struct buf *b)
{
    if (!b->failed && !b->p)
        buf_add(b, "", 0);
    char *p = b->failed ? NULL : steal(b->p);
    buf_done(b);
    return p;
}
