/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Reads protobuf field by field out of bytes that somebody else owns: no allocation, no copy, no
 * limit but the bytes themselves.
 *
 *     struct pbr r = pbr_of(bytes);
 *     for (struct pbr_field f; pbr_next(&r, &f);)
 *         if (f.tag == 1 && f.wire == PBR_BYTES) ...
 *     return pbr_check(&r, "AllocateRequest", err);
 *
 * Unknown fields are simply not looked at. Groups and broken encodings set `bad`.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

enum { PBR_VARINT = 0, PBR_I64 = 1, PBR_BYTES = 2, PBR_I32 = 5 };

struct pbr {
    struct str rest;
    bool bad;
};

struct pbr_field {
    uint32_t tag;     /* field number */
    unsigned wire;    /* PBR_* */
    uint64_t number;  /* PBR_VARINT, PBR_I64, PBR_I32; int32 and int64 by a cast */
    struct str bytes; /* PBR_BYTES: string, bytes, nested message or packed numbers */
};

static inline struct pbr pbr_of(struct str bytes)
{
    return (struct pbr){ .rest = bytes };
}

/* False at the end and when the rest is broken. */
bool pbr_next(struct pbr *r, struct pbr_field *ret);
/* One number of a packed field. */
bool pbr_packed(struct pbr *r, uint64_t *ret);
/* 0, or ERR_INVALID naming `what`, when reading stopped at broken bytes. */
int pbr_check(const struct pbr *r, const char *what, struct error *err) must_check;
