/* SPDX-License-Identifier: Apache-2.0 */
#include "kubelet/pb.h"

static bool read_varint(struct pb_reader *r, uint64_t *ret)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && r->p < r->end; shift += 7) {
        unsigned char c = (unsigned char)*r->p++;
        v |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static bool read_fixed(struct pb_reader *r, size_t n, uint64_t *ret)
{
    if ((size_t)(r->end - r->p) < n)
        return false;
    *ret = 0;
    for (size_t i = 0; i < n; i++)
        *ret |= (uint64_t)(unsigned char)r->p[i] << (8 * i);
    r->p += n;
    return true;
}

static bool read_bytes(struct pb_reader *r, struct str *ret)
{
    uint64_t n;
    if (!read_varint(r, &n) || n > (uint64_t)(r->end - r->p))
        return false;
    *ret = (struct str){ r->p, (size_t)n };
    r->p += n;
    return true;
}

static bool read_value(struct pb_reader *r, struct pb_field *f)
{
    switch (f->wire) {
    case PB_VARINT:
        return read_varint(r, &f->value);
    case PB_FIXED64:
        return read_fixed(r, 8, &f->value);
    case PB_BYTES:
        return read_bytes(r, &f->bytes);
    case PB_FIXED32:
        return read_fixed(r, 4, &f->value);
    }
    return false; /* groups: not in proto3 */
}

bool pb_next(struct pb_reader *r, struct pb_field *f)
{
    uint64_t tag;
    if (r->bad || r->p >= r->end)
        return false;
    if (!read_varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff) {
        r->bad = true;
        return false;
    }
    *f = (struct pb_field){ .number = (uint32_t)(tag >> 3), .wire = (enum pb_wire)(tag & 7) };
    if (!read_value(r, f))
        r->bad = true;
    return !r->bad;
}

void pb_varint(struct buf *b, uint64_t v)
{
    char bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        bytes[n++] = (char)(v | 0x80);
    bytes[n++] = (char)v;
    buf_add(b, bytes, n);
}

static void tag(struct buf *b, uint32_t field, enum pb_wire wire)
{
    pb_varint(b, (uint64_t)field << 3 | wire);
}

void pb_number(struct buf *b, uint32_t field, uint64_t v)
{
    if (v == 0)
        return;
    tag(b, field, PB_VARINT);
    pb_varint(b, v);
}

void pb_element(struct buf *b, uint32_t field, struct str s)
{
    tag(b, field, PB_BYTES);
    pb_varint(b, s.n);
    buf_str(b, s);
}

void pb_text(struct buf *b, uint32_t field, struct str s)
{
    if (s.n > 0)
        pb_element(b, field, s);
}

/* One byte is kept for the length, as most messages here need no more; a longer one is moved up. */
size_t pb_begin(struct buf *b, uint32_t field)
{
    tag(b, field, PB_BYTES);
    buf_ch(b, 0);
    return b->n;
}

void pb_end(struct buf *b, size_t mark)
{
    if (b->failed)
        return;
    uint64_t n = b->n - mark;
    if (n < 0x80) {
        b->p[mark - 1] = (char)n;
        return;
    }
    size_t extra = 0;
    for (uint64_t v = n; v >= 0x80; v >>= 7)
        extra++;
    static const char zeros[10];
    buf_add(b, zeros, extra);
    if (b->failed)
        return;
    memmove(b->p + mark + extra, b->p + mark, (size_t)n);
    size_t at = mark - 1;
    for (uint64_t v = n; at < mark + extra; v >>= 7)
        b->p[at++] = (char)((v & 0x7f) | (v >= 0x80 ? 0x80 : 0));
}
