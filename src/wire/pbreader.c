/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/pbreader.h"

enum { VARINT_MAX = 10 };

static bool bad(struct pbr *r)
{
    r->bad = true;
    return false;
}

static bool varint(struct pbr *r, uint64_t *ret)
{
    uint64_t v = 0;
    for (size_t i = 0; i < VARINT_MAX && i < r->rest.n; i++) {
        unsigned char c = (unsigned char)r->rest.p[i];
        if (i == VARINT_MAX - 1 && c > 1)
            break;
        v |= (uint64_t)(c & 0x7F) << (7 * i);
        if (c < 0x80) {
            r->rest.p += i + 1;
            r->rest.n -= i + 1;
            *ret = v;
            return true;
        }
    }
    return bad(r);
}

static bool fixed(struct pbr *r, size_t n, uint64_t *ret)
{
    if (r->rest.n < n)
        return bad(r);
    *ret = 0;
    for (size_t i = 0; i < n; i++)
        *ret |= (uint64_t)(unsigned char)r->rest.p[i] << (8 * i);
    r->rest.p += n;
    r->rest.n -= n;
    return true;
}

static bool bytes(struct pbr *r, struct str *ret)
{
    uint64_t n;
    if (!varint(r, &n))
        return false;
    if (n > r->rest.n)
        return bad(r);
    *ret = (struct str){ r->rest.p, (size_t)n };
    r->rest.p += n;
    r->rest.n -= (size_t)n;
    return true;
}

bool pbr_next(struct pbr *r, struct pbr_field *ret)
{
    uint64_t key;
    if (r->bad || !r->rest.n || !varint(r, &key))
        return false;
    if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
        return bad(r);
    *ret = (struct pbr_field){ .tag = (uint32_t)(key >> 3), .wire = (unsigned)(key & 7) };
    switch (ret->wire) {
    case PBR_VARINT:
        return varint(r, &ret->number);
    case PBR_I64:
        return fixed(r, 8, &ret->number);
    case PBR_BYTES:
        return bytes(r, &ret->bytes);
    case PBR_I32:
        return fixed(r, 4, &ret->number);
    default:
        return bad(r);
    }
}

bool pbr_packed(struct pbr *r, uint64_t *ret)
{
    return !r->bad && r->rest.n && varint(r, ret);
}

int pbr_check(const struct pbr *r, const char *what, struct error *err)
{
    if (!r->bad)
        return 0;
    return error_set(err, ERR_INVALID, 0,
                     "message %s does not decode: broken protobuf, %zu bytes before its end", what,
                     r->rest.n);
}
