/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Numbers (little-endian) and texts (16-bit length) in a block of bytes that somebody else may have
 * written. Reading never goes past the end; every taker returns false instead. */
#include "base/buf.h"

static inline void bytes_put(struct buf *out, uint64_t v, size_t bytes)
{
    unsigned char le[8];
    for (size_t i = 0; i < bytes; i++)
        le[i] = (unsigned char)(v >> (8 * i));
    buf_add(out, le, bytes);
}

/* At most max_n bytes of a terminated text. */
static inline void bytes_put_text(struct buf *out, const char *text, size_t max_n)
{
    size_t n = strnlen(text, max_n < UINT16_MAX ? max_n : UINT16_MAX);
    bytes_put(out, n, 2);
    buf_add(out, text, n);
}

static inline const unsigned char *bytes_take(struct str *rest, size_t n)
{
    if (n > rest->n)
        return NULL;
    const unsigned char *p = (const unsigned char *)rest->p;
    rest->p += n;
    rest->n -= n;
    return p;
}

static inline bool bytes_take_number(struct str *rest, size_t bytes, uint64_t *ret)
{
    const unsigned char *p = bytes_take(rest, bytes);
    if (!p)
        return false;
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    *ret = v;
    return true;
}

static inline bool bytes_take_u32(struct str *rest, uint32_t *ret)
{
    uint64_t v;
    if (!bytes_take_number(rest, sizeof *ret, &v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

/* No control characters; as a word, only visible ASCII. */
static inline bool bytes_are_text(const unsigned char *p, size_t n, bool word)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] < ' ' || p[i] == 0x7F || (word && (p[i] == ' ' || p[i] > 0x7F)))
            return false;
    return true;
}

/* A clean text that fits `size` with its end. */
static inline bool bytes_take_text(struct str *rest, char *to, size_t size, bool word)
{
    uint64_t n;
    if (!bytes_take_number(rest, 2, &n) || n >= size)
        return false;
    const unsigned char *p = bytes_take(rest, (size_t)n);
    if (!p || !bytes_are_text(p, (size_t)n, word))
        return false;
    memcpy(to, p, (size_t)n);
    to[n] = '\0';
    return true;
}
