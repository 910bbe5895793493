/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A growable byte buffer that is told its maximum at the start. Appending past it fails once and
 * for good: `failed` stays set, the bytes so far stay valid, later appends do nothing. So a writer
 * may append freely and ask at the end.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/str.h"

struct buf {
    char *p; /* always terminated by a NUL that is not counted, once something was appended */
    size_t n, cap, max;
    bool failed;
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);
void buf_reset(struct buf *b); /* empties, keeps the memory and the maximum, clears `failed` */

void buf_add(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, struct str s);
void buf_z(struct buf *b, const char *z);
void buf_ch(struct buf *b, char c);
void buf_fmt(struct buf *b, const char *fmt, ...) printf_like(2, 3);
void buf_drop(struct buf *b, size_t n); /* removes the first n bytes */

static inline struct str buf_view(const struct buf *b)
{
    return (struct str){ b->p, b->n };
}

/* 0, or ERR_LIMIT with `what` and the maximum in the text. */
int buf_check(const struct buf *b, const char *what, struct error *err) must_check;
char *buf_take(struct buf *b); /* moves the terminated text out (caller frees); NULL when failed */

#define auto_buf __attribute__((cleanup(buf_done))) struct buf
