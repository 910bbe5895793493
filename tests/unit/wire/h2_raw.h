/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* HTTP/2 frames written and read by hand, for tests that send what no library would. */
#include <nghttp2/nghttp2.h>

#include "base/buf.h"

void raw_frame(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream, struct str payload);
void raw_preface(struct buf *b); /* magic and an empty SETTINGS */
void raw_field(struct buf *block, struct str name, struct str value); /* literal, not indexed */
/* A request's HEADERS with the usual fields; `more` may be NULL: further fields as
 * "name\nvalue\n…", which come last and so win. */
void raw_request(struct buf *b, uint32_t stream, const char *path, const char *more, bool end);
void raw_message(struct buf *b, uint32_t stream, uint8_t flag, struct str message, bool end);

/* What a peer said, as text: "H1 :status=200 … end;" "D1 5 end;" "R1 8;" "PING ack;" … */
struct raw_reader {
    nghttp2_hd_inflater *inflater;
    struct buf in, text;
};
void raw_reader_init(struct raw_reader *r);
void raw_reader_done(struct raw_reader *r);
const char *raw_read(struct raw_reader *r, struct str bytes); /* text of these bytes alone */
