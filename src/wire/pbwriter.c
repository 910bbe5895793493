/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/pbwriter.h"

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, VARINT_MAX = 10 };

static size_t put(unsigned char *p, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        p[n++] = (unsigned char)(v | 0x80);
    p[n++] = (unsigned char)v;
    return n;
}

size_t pbw_varint_size(uint64_t v)
{
    size_t n = 1;
    while (v >>= 7)
        n++;
    return n;
}

static void add_number(struct buf *b, uint32_t tag, unsigned wire, uint64_t v)
{
    unsigned char p[2 * VARINT_MAX];
    size_t n = put(p, (uint64_t)tag << 3 | wire);
    n += put(p + n, v);
    buf_add(b, p, n);
}

void pbw_uint(struct buf *b, uint32_t tag, uint64_t v)
{
    if (v)
        add_number(b, tag, WIRE_VARINT, v);
}

void pbw_int(struct buf *b, uint32_t tag, int64_t v)
{
    pbw_uint(b, tag, (uint64_t)v);
}

void pbw_bool(struct buf *b, uint32_t tag, bool v)
{
    pbw_uint(b, tag, v);
}

void pbw_item(struct buf *b, uint32_t tag, struct str s)
{
    add_number(b, tag, WIRE_BYTES, s.n);
    buf_str(b, s);
}

void pbw_str(struct buf *b, uint32_t tag, struct str s)
{
    if (s.n)
        pbw_item(b, tag, s);
}

void pbw_map(struct buf *b, uint32_t tag, struct str key, struct str value)
{
    size_t n = 2 + pbw_varint_size(key.n) + key.n + pbw_varint_size(value.n) + value.n;
    add_number(b, tag, WIRE_BYTES, n);
    pbw_item(b, 1, key);
    pbw_item(b, 2, value);
}

void pbw_ints(struct buf *b, uint32_t tag, const int64_t *v, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += pbw_varint_size((uint64_t)v[i]);
    if (!n)
        return;
    add_number(b, tag, WIRE_BYTES, size);
    for (size_t i = 0; i < n; i++) {
        unsigned char p[VARINT_MAX];
        buf_add(b, p, put(p, (uint64_t)v[i]));
    }
}

/* One byte is left for the length: most nested messages are shorter than 128 bytes. */
size_t pbw_begin(struct buf *b, uint32_t tag)
{
    add_number(b, tag, WIRE_BYTES, 0);
    return b->n;
}

void pbw_end(struct buf *b, size_t mark)
{
    if (b->failed)
        return;
    unsigned char p[VARINT_MAX];
    size_t size = b->n - mark, n = put(p, size);
    if (n > 1) {
        buf_add(b, p, n - 1); /* makes the room */
        if (b->failed)
            return;
        memmove(b->p + mark + n - 1, b->p + mark, size);
    }
    memcpy(b->p + mark - 1, p, n);
}
