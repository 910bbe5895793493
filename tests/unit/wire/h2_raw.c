/* SPDX-License-Identifier: Apache-2.0 */
#include "h2_raw.h"

#include <string.h>

#include "base/mem.h"

void raw_frame(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream, struct str payload)
{
    const unsigned char head[9] = { (unsigned char)(payload.n >> 16),
                                    (unsigned char)(payload.n >> 8),
                                    (unsigned char)payload.n,
                                    type,
                                    flags,
                                    (unsigned char)(stream >> 24),
                                    (unsigned char)(stream >> 16),
                                    (unsigned char)(stream >> 8),
                                    (unsigned char)stream };
    buf_add(b, head, sizeof head);
    buf_str(b, payload);
}

void raw_preface(struct buf *b)
{
    buf_z(b, NGHTTP2_CLIENT_MAGIC);
    raw_frame(b, NGHTTP2_SETTINGS, 0, 0, (struct str){ NULL, 0 });
}

static void text_with_length(struct buf *block, struct str s)
{
    if (s.n < 127) {
        buf_ch(block, (char)s.n);
    } else {
        size_t rest = s.n - 127;
        buf_ch(block, 127);
        for (; rest >= 128; rest >>= 7)
            buf_ch(block, (char)(rest | 128));
        buf_ch(block, (char)rest);
    }
    buf_str(block, s);
}

void raw_field(struct buf *block, struct str name, struct str value)
{
    buf_ch(block, 0);
    text_with_length(block, name);
    text_with_length(block, value);
}

void raw_request(struct buf *b, uint32_t stream, const char *path, const char *more, bool end)
{
    auto_buf block;
    buf_init(&block, 1 << 20);
    raw_field(&block, STR(":method"), STR("POST"));
    raw_field(&block, STR(":scheme"), STR("http"));
    raw_field(&block, STR(":path"), str_of(path));
    raw_field(&block, STR("content-type"), STR("application/grpc"));
    for (struct str rest = str_of(more); rest.n;) {
        struct str name = str_cut(&rest, '\n'), value = str_cut(&rest, '\n');
        raw_field(&block, name, value);
    }
    raw_frame(b, NGHTTP2_HEADERS, (uint8_t)(4 | (end ? 1 : 0)), stream, buf_view(&block));
}

void raw_message(struct buf *b, uint32_t stream, uint8_t flag, struct str message, bool end)
{
    auto_buf data;
    buf_init(&data, 8 << 20);
    const unsigned char prefix[5] = { flag, (unsigned char)(message.n >> 24),
                                      (unsigned char)(message.n >> 16),
                                      (unsigned char)(message.n >> 8), (unsigned char)message.n };
    buf_add(&data, prefix, sizeof prefix);
    buf_str(&data, message);
    for (size_t at = 0; at < data.n; at += 16384) {
        size_t n = MIN(data.n - at, (size_t)16384);
        raw_frame(b, NGHTTP2_DATA, end && at + n == data.n, stream, (struct str){ data.p + at, n });
    }
}

void raw_reader_init(struct raw_reader *r)
{
    buf_init(&r->in, 16 << 20);
    buf_init(&r->text, 1 << 20);
    if (nghttp2_hd_inflate_new(&r->inflater) != 0)
        r->inflater = NULL;
}

void raw_reader_done(struct raw_reader *r)
{
    nghttp2_hd_inflate_del(r->inflater);
    buf_done(&r->in);
    buf_done(&r->text);
}

static void headers(struct raw_reader *r, const uint8_t *p, size_t n)
{
    int flags = 0;
    for (;;) {
        nghttp2_nv nv;
        ssize_t used = nghttp2_hd_inflate_hd2(r->inflater, &nv, &flags, p, n, 1);
        if (used < 0) {
            buf_z(&r->text, " BROKEN");
            return;
        }
        p += used, n -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            buf_fmt(&r->text, " %.*s=%.*s", (int)nv.namelen, (const char *)nv.name,
                    (int)nv.valuelen, (const char *)nv.value);
        if (flags & NGHTTP2_HD_INFLATE_FINAL)
            break;
        if (!(flags & NGHTTP2_HD_INFLATE_EMIT) && !n)
            break;
    }
    nghttp2_hd_inflate_end_headers(r->inflater);
}

static uint32_t number(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void one(struct raw_reader *r, uint8_t type, uint8_t flags, uint32_t stream,
                const uint8_t *p, size_t n)
{
    switch (type) {
    case NGHTTP2_HEADERS:
        buf_fmt(&r->text, "H%u", stream);
        headers(r, p, n);
        buf_z(&r->text, flags & 1 ? " end;" : ";");
        return;
    case NGHTTP2_DATA:
        buf_fmt(&r->text, "D%u %zu%s;", stream, n, flags & 1 ? " end" : "");
        return;
    case NGHTTP2_RST_STREAM:
        buf_fmt(&r->text, "R%u %u;", stream, number(p));
        return;
    case NGHTTP2_PING:
        buf_fmt(&r->text, "PING%s;", flags & 1 ? " ack" : "");
        return;
    case NGHTTP2_SETTINGS:
        buf_fmt(&r->text, "SETTINGS%s;", flags & 1 ? " ack" : "");
        return;
    case NGHTTP2_GOAWAY:
        buf_fmt(&r->text, "GOAWAY %u %u;", number(p), number(p + 4));
        return;
    default:
        return; /* windows are not of interest */
    }
}

const char *raw_read(struct raw_reader *r, struct str bytes)
{
    buf_str(&r->in, bytes);
    buf_reset(&r->text);
    buf_z(&r->text, "");
    while (r->in.n >= 9) {
        const uint8_t *p = (const uint8_t *)r->in.p;
        size_t n = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
        if (r->in.n < 9 + n)
            break;
        one(r, p[3], p[4], number(p + 5), p + 9, n);
        buf_drop(&r->in, 9 + n);
    }
    return r->text.p ? r->text.p : "";
}
