/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The few pieces of the protobuf wire format that the grant path needs: a reader that hands out
 * views of the request, and a writer straight into the answer. Neither allocates, so a request
 * costs no more than its bytes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

struct pb_reader {
    const char *p, *end;
    bool bad; /* the text is not protobuf: what was read before still holds */
};

struct pb_field {
    uint32_t number;
    enum pb_wire wire;
    uint64_t value;   /* numbers */
    struct str bytes; /* PB_BYTES */
};

static inline struct pb_reader pb_reader(struct str s)
{
    return (struct pb_reader){ s.p, s.p + s.n, false };
}

/* The next field; false at the end or when the text is broken. */
bool pb_next(struct pb_reader *r, struct pb_field *f);

void pb_varint(struct buf *b, uint64_t v);
void pb_number(struct buf *b, uint32_t field, uint64_t v);    /* nothing when 0, as proto3 */
void pb_text(struct buf *b, uint32_t field, struct str s);    /* nothing when empty */
void pb_element(struct buf *b, uint32_t field, struct str s); /* repeated: also when empty */

/* A nested message: what is written between begin and end. */
size_t pb_begin(struct buf *b, uint32_t field);
void pb_end(struct buf *b, size_t mark);
