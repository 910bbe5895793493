/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The small grammars of gRPC's headers. Source: PROTOCOL-HTTP2.md, "Requests" and "Responses". */
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

/* grpc-timeout: 1 to 8 digits and a unit H M S m u n. Nanoseconds; what passes 100 years is cut to
 * that. False for anything else. */
bool grpc_timeout_parse(struct str s, int64_t *ret_ns);
enum { GRPC_TIMEOUT_SIZE = 16 };
/* Writes the header for a time in ms (negative: 0) and returns its length. */
size_t grpc_timeout_format(int64_t ms, char out[GRPC_TIMEOUT_SIZE]);

/* grpc-message: UTF-8, percent-encoded outside of 0x20..0x7e and for '%'. */
void grpc_message_encode(struct str text, struct buf *out);
/* A '%' without two hex digits stays as it is; a NUL becomes '?'. */
void grpc_message_decode(struct str header, struct buf *out);

/* Status for an HTTP status without grpc-status, and for a stream reset with an HTTP/2 error code.
 * Source: http-grpc-status-mapping.md and PROTOCOL-HTTP2.md, "Errors". */
int grpc_status_of_http(int http);
int grpc_status_of_reset(uint32_t code);
