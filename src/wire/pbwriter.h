/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Writes protobuf straight into a buffer: one pass, nothing copied twice but the bytes of a nested
 * message of 128 bytes and more, which move once. Failures stay in the buffer (buf_check at the
 * end). The caller gives fields in ascending order.
 *
 * Source: protobuf encoding; proto3 rules for what is left out are said at each function.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

void pbw_int(struct buf *b, uint32_t tag, int64_t v);    /* int32, int64: left out when 0 */
void pbw_uint(struct buf *b, uint32_t tag, uint64_t v);  /* uint32, uint64, enum: left out when 0 */
void pbw_bool(struct buf *b, uint32_t tag, bool v);      /* left out when false */
void pbw_str(struct buf *b, uint32_t tag, struct str s); /* singular: left out when empty */
void pbw_item(struct buf *b, uint32_t tag, struct str s); /* element of a repeated field: always */
void pbw_map(struct buf *b, uint32_t tag, struct str key, struct str value); /* both always */
void pbw_ints(struct buf *b, uint32_t tag, const int64_t *v,
              size_t n); /* repeated int64, packed; left out when n is 0 */

/* A nested message: what is appended between begin and end is its content. Always written, also
 * when empty. */
size_t pbw_begin(struct buf *b, uint32_t tag);
void pbw_end(struct buf *b, size_t mark);

size_t pbw_varint_size(uint64_t v); /* 1..10 */
