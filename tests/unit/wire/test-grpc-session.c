/* SPDX-License-Identifier: Apache-2.0 */
/* The session core without sockets: every cut of the bytes, broken frames, limits, floods,
 * deadlines, failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "h2_raw.h"
#include "wire/grpc_session.h"

#define MS ((int64_t)1000000)

static struct {
    struct grpc_call *held;
    int handled, cancelled, done, messages, ended;
    enum grpc_status status;
    char text[512];
    size_t size;
} seen;

static void echo(struct grpc_call *call, struct str request, void *arg)
{
    seen.handled++;
    grpc_reply(call, request);
}

static void hold(struct grpc_call *call, struct str request, void *arg)
{
    seen.handled++;
    seen.held = call;
}

static void stream3(struct grpc_call *call, struct str request, void *arg)
{
    seen.handled++;
    seen.held = call;
    (void)!grpc_send_latest(call, request, NULL);
}

static void cancelled(struct grpc_call *call, void *arg)
{
    seen.cancelled++;
    seen.held = NULL;
}

static const struct grpc_method methods[] = { { "/t.T/Echo", echo, false },
                                              { "/t.T/Hold", hold, false },
                                              { "/t.T/Stream", stream3, true } };
static const struct grpc_server_config server_config = { methods, ARRAY_LEN(methods), NULL,
                                                         cancelled };

static void done(void *arg, enum grpc_status status, const char *text, struct str message)
{
    seen.done++;
    seen.status = status;
    seen.size = message.n;
    snprintf(seen.text, sizeof seen.text, "%s", text);
}

static void message_in(void *arg, struct str message)
{
    seen.messages++;
    seen.size = message.n;
}

static void ended(void *arg, enum grpc_status status, const char *text)
{
    seen.ended++;
    seen.status = status;
    snprintf(seen.text, sizeof seen.text, "%s", text);
}

static struct grpc_session *new_server(void)
{
    struct grpc_session *s;
    const struct grpc_session_config c = { .server = &server_config };
    memset(&seen, 0, sizeof seen);
    assert_int_equal(grpc_session_new(&c, 1, &s, NULL), 0);
    return s;
}

static struct grpc_session *new_client(void)
{
    struct grpc_session *s;
    const struct grpc_session_config c = { 0 };
    assert_int_equal(grpc_session_new(&c, 1, &s, NULL), 0);
    return s;
}

static void drain_output(struct grpc_session *s, struct buf *to)
{
    for (struct str out; (out = grpc_session_output(s)).n;) {
        buf_str(to, out);
        grpc_session_sent(s, out.n);
    }
}

/* Feeds raw bytes after a preface, returns what the server said to them; *ret: feed's result. */
static const char *exchange(struct grpc_session *s, struct raw_reader *r, struct str bytes,
                            int64_t now, int *ret, struct error *err)
{
    auto_buf out;
    buf_init(&out, 32 << 20);
    int e = grpc_session_feed(s, bytes, now, err);
    if (ret)
        *ret = e;
    else
        assert_int_equal(e, 0);
    drain_output(s, &out);
    return raw_read(r, buf_view(&out));
}

/* ---- cuts ---- */

static int transfer(struct grpc_session *from, struct grpc_session *to, size_t cut)
{
    int moved = 0;
    for (struct str out; (out = grpc_session_output(from)).n;) {
        size_t n = cut ? MIN(cut, out.n) : 1 + (size_t)rand() % MIN(out.n, (size_t)4000);
        n = MIN(n, out.n);
        assert_int_equal(grpc_session_feed(to, (struct str){ out.p, n }, 1, NULL), 0);
        grpc_session_sent(from, n);
        moved++;
    }
    return moved;
}

static void settle(struct grpc_session *a, struct grpc_session *b, size_t cut)
{
    while (transfer(a, b, cut) + transfer(b, a, cut))
        ;
}

static void every_cut(void **state)
{
    static const size_t cuts[] = { 1, 2, 3, 5, 7, 9, 10, 64, 1000, 16393, 0, 0, 0 };
    char *text = x_alloc(200000);
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        struct grpc_session *s = new_server(), *c = new_client();
        static const size_t sizes[] = { 0, 1, 5, 300, 16379, 16380, 16384, 200000 };
        for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
            const struct grpc_request r = {
                .path = "/t.T/Echo", .message = { text, sizes[k] }, .timeout_ms = 1000, .done = done
            };
            assert_int_equal(grpc_session_request(c, &r, 1, NULL), 0);
            settle(c, s, cuts[i]);
            assert_int_equal(seen.done, k + 1);
            assert_int_equal(seen.status, GRPC_OK);
            assert_int_equal(seen.size, sizes[k]);
        }
        const struct grpc_request all = {
            .path = "/t.T/Stream", .message = STR("x"), .message_in = message_in, .ended = ended
        };
        assert_int_equal(grpc_session_request(c, &all, 1, NULL), 0);
        settle(c, s, cuts[i]);
        grpc_fail(seen.held, GRPC_ABORTED, "ünd");
        settle(c, s, cuts[i]);
        assert_int_equal(seen.messages, 1);
        assert_int_equal(seen.ended, 1);
        assert_int_equal(seen.status, GRPC_ABORTED);
        assert_string_equal(seen.text, "ünd");
        grpc_session_free(s, NULL);
        grpc_session_free(c, NULL);
    }
    free(text);
}

/* ---- what a server answers to odd requests ---- */

struct odd {
    const char *name;
    const char *path, *more;
    const char *messages; /* each: flag byte as a letter ('0' …) and text, parted by '|' */
    bool end_headers;     /* END_STREAM on the headers */
    const char *says;     /* part of the answer */
};

static const struct odd odds[] = {
    { "plain", "/t.T/Echo", NULL, "0hello", false, "grpc-status=0 end;" },
    { "empty authority", "/t.T/Echo", ":authority\n\n", "0x", false, "grpc-status=0 end;" },
    { "socket path authority", "/t.T/Echo",
      ":authority\n/var/lib/kubelet/device-plugins/nvidia-gpu.sock\n", "0x", false,
      "grpc-status=0 end;" },
    { "escaped authority", "/t.T/Echo", ":authority\n%2Fvar%2Flib\n", "0x", false,
      "grpc-status=0 end;" },
    { "subtype", "/t.T/Echo", "content-type\napplication/grpc+proto\n", "0x", false,
      "grpc-status=0 end;" },
    { "parameter", "/t.T/Echo", "content-type\napplication/grpc;charset=utf-8\n", "0x", false,
      "grpc-status=0 end;" },
    { "GET", "/t.T/Echo", ":method\nGET\n", NULL, true, ":status=405 " },
    { "json", "/t.T/Echo", "content-type\napplication/json\n", "0x", false, ":status=415 " },
    { "grpcx", "/t.T/Echo", "content-type\napplication/grpcx\n", "0x", false, ":status=415 " },
    { "unknown", "/t.T/None", NULL, "0x", false,
      ":status=200 content-type=application/grpc grpc-status=12 "
      "grpc-message=unknown method /t.T/None end;R1 0;" },
    { "unknown, no body", "/x", NULL, NULL, true,
      "grpc-status=12 grpc-message=unknown method /x end;" },
    { "empty path", "", NULL, NULL, true, "grpc-status=12" },
    { "percent in path", "/%\n", NULL, NULL, true, "grpc-message=unknown method /%25%0A end;" },
    { "bad timeout", "/t.T/Echo", "grpc-timeout\n5\n", "0x", false, "grpc-status=13" },
    { "long timeout", "/t.T/Echo", "grpc-timeout\n99999999H\n", "0x", false, "grpc-status=0 end;" },
    { "9 digits", "/t.T/Echo", "grpc-timeout\n123456789S\n", "0x", false, "grpc-status=13" },
    { "compressed", "/t.T/Echo", "grpc-encoding\ngzip\n", "1x", false, "grpc-status=12" },
    { "flag 2", "/t.T/Echo", NULL, "2x", false, "grpc-status=13" },
    { "no message", "/t.T/Echo", NULL, NULL, true,
      "grpc-status=13 grpc-message=the request holds no message end;" },
    { "two messages", "/t.T/Echo", NULL, "0a|0b", false,
      "grpc-status=13 grpc-message=the request holds more than one message end;" },
    { "further headers", "/t.T/Echo",
      "x-a\nb\nuser-agent\ngrpc-go/1.81\ngrpc-accept-encoding\ngzip\n", "0x", false,
      "grpc-status=0 end;" },
};

static void odd_requests(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(odds); i++) {
        const struct odd *o = &odds[i];
        struct grpc_session *s = new_server();
        struct raw_reader r;
        auto_buf in;
        raw_reader_init(&r);
        buf_init(&in, 1 << 20);
        raw_preface(&in);
        raw_request(&in, 1, o->path, o->more, o->end_headers);
        for (struct str rest = str_of(o->messages); rest.n;) {
            struct str one = str_cut(&rest, '|');
            raw_message(&in, 1, (uint8_t)(one.p[0] - '0'), (struct str){ one.p + 1, one.n - 1 },
                        !rest.n);
        }
        const char *text = exchange(s, &r, buf_view(&in), 1, NULL, NULL);
        if (!strstr(text, o->says))
            fail_msg("%s: answered \"%s\", not \"%s\"", o->name, text, o->says);
        /* The connection is as good as before. */
        buf_reset(&in);
        raw_request(&in, 3, "/t.T/Echo", NULL, false);
        raw_message(&in, 3, 0, STR("ab"), true);
        text = exchange(s, &r, buf_view(&in), 1, NULL, NULL);
        if (!strstr(text, "D3 7;H3 grpc-status=0 end;"))
            fail_msg("%s: the next call answered \"%s\"", o->name, text);
        assert_int_equal(grpc_session_calls(s), 0);
        grpc_session_free(s, NULL);
        raw_reader_done(&r);
    }
}

/* One message over many DATA frames, with padding and empty frames between. */
static void message_in_pieces(void **state)
{
    struct grpc_session *s = new_server();
    struct raw_reader r;
    auto_buf in;
    raw_reader_init(&r);
    buf_init(&in, 1 << 20);
    raw_preface(&in);
    raw_request(&in, 1, "/t.T/Echo", NULL, false);
    static const char bytes[] = "\0\0\0\0\3abc";
    for (size_t i = 0; i < 8; i++) {
        char padded[6] = { 4, bytes[i], 0, 0, 0, 0 };
        raw_frame(&in, NGHTTP2_DATA, 8, 1, (struct str){ padded, sizeof padded });
        raw_frame(&in, NGHTTP2_DATA, 0, 1, (struct str){ NULL, 0 });
    }
    raw_frame(&in, NGHTTP2_DATA, 1, 1, (struct str){ NULL, 0 });
    const char *text = exchange(s, &r, buf_view(&in), 1, NULL, NULL);
    assert_non_null(strstr(text, "D1 8;H1 grpc-status=0 end;"));
    grpc_session_free(s, NULL);
    raw_reader_done(&r);
}

static void half_a_message(void **state)
{
    static const struct str parts[] = { STR("\0"), STR("\0\0\0\0"), STR("\0\0\0\0\5"),
                                        STR("\0\0\0\0\5abcd") };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        struct grpc_session *s = new_server();
        struct raw_reader r;
        auto_buf in;
        raw_reader_init(&r);
        buf_init(&in, 1 << 20);
        raw_preface(&in);
        raw_request(&in, 1, "/t.T/Echo", NULL, false);
        raw_frame(&in, NGHTTP2_DATA, 1, 1, parts[i]);
        const char *text = exchange(s, &r, buf_view(&in), 1, NULL, NULL);
        assert_non_null(strstr(text, "grpc-message=the request ended within a message end;"));
        assert_int_equal(seen.handled, 0);
        grpc_session_free(s, NULL);
        raw_reader_done(&r);
    }
}

static void too_large(void **state)
{
    struct grpc_session *s = new_server();
    struct raw_reader r;
    auto_buf in;
    raw_reader_init(&r);
    buf_init(&in, 1 << 20);
    raw_preface(&in);
    raw_request(&in, 1, "/t.T/Echo", NULL, false);
    /* The length alone is enough: nothing is kept for it. */
    raw_frame(&in, NGHTTP2_DATA, 0, 1, STR("\0\x00\x40\x00\x01"));
    const char *text = exchange(s, &r, buf_view(&in), 1, NULL, NULL);
    assert_non_null(strstr(text, "grpc-status=8 grpc-message=message of 4194305 bytes, at most "
                                 "4194304 are accepted end;R1 0;"));
    buf_reset(&in);
    raw_frame(&in, NGHTTP2_DATA, 0, 1, STR("more of it")); /* was under way: no harm */
    exchange(s, &r, buf_view(&in), 1, NULL, NULL);
    grpc_session_free(s, NULL);
    raw_reader_done(&r);
}

static void large_headers(void **state)
{
    struct grpc_session *s = new_server();
    struct raw_reader r;
    auto_buf in, more;
    raw_reader_init(&r);
    buf_init(&in, 1 << 20);
    buf_init(&more, 1 << 20);
    raw_preface(&in);
    buf_z(&more, "x\n");
    for (int i = 0; i < GRPC_HEADERS_MAX - 300; i++)
        buf_ch(&more, 'v');
    buf_z(&more, "\ny\nz\n");
    raw_request(&in, 1, "/t.T/Echo", more.p, true);
    const char *text = exchange(s, &r, buf_view(&in), 1, NULL, NULL);
    assert_non_null(strstr(text, "grpc-message=the request holds no message"));
    buf_reset(&in);
    buf_z(&more, "w\n0123456789012345678901234567890123456789");
    for (int i = 0; i < 100; i++)
        buf_ch(&more, 'v');
    auto_buf block;
    buf_init(&block, 1 << 20);
    raw_request(&block, 3, "/t.T/Echo", more.p, true);
    /* Past a frame's size: HEADERS and CONTINUATION. */
    struct str all = { block.p + 9, block.n - 9 };
    raw_frame(&in, NGHTTP2_HEADERS, 1, 3, (struct str){ all.p, 16000 });
    raw_frame(&in, NGHTTP2_CONTINUATION, 4, 3, (struct str){ all.p + 16000, all.n - 16000 });
    text = exchange(s, &r, buf_view(&in), 1, NULL, NULL);
    assert_non_null(strstr(text, "grpc-status=8 "));
    assert_non_null(strstr(text, "at most 16384 are accepted"));
    grpc_session_free(s, NULL);
    raw_reader_done(&r);
}

static void pings_and_unknown_frames(void **state)
{
    struct grpc_session *s = new_server();
    struct raw_reader r;
    auto_buf in;
    raw_reader_init(&r);
    buf_init(&in, 1 << 20);
    raw_preface(&in);
    raw_frame(&in, NGHTTP2_PING, 0, 0, STR("12345678"));
    raw_frame(&in, 0xEE, 0, 0, STR("what"));
    const char *text = exchange(s, &r, buf_view(&in), 1, NULL, NULL);
    assert_non_null(strstr(text, "PING ack;"));
    assert_non_null(strstr(text, "SETTINGS ack;"));
    grpc_session_free(s, NULL);
    raw_reader_done(&r);
}

static void broken_connections(void **state)
{
    static const struct {
        struct str bytes;
        const char *says; /* NULL: feed fails */
    } cases[] = {
        { STR("GET / HTTP/1.1\r\nhost: x\r\n\r\n"), NULL },
        { STR("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on: this is TLS"), NULL },
        /* a DATA frame for a stream that is idle */
        { STR("\0\0\1\0\0\0\0\0\1x"), "GOAWAY 0 1;" },
        /* a frame longer than allowed */
        { STR("\x00\x40\x01\x00\x00\x00\x00\x00\x01"), "GOAWAY 0 6;" },
        /* an even stream */
        { STR("\0\0\0\1\5\0\0\0\2"), "GOAWAY 0 1;" },
        /* broken HPACK */
        { STR("\0\0\4\1\5\0\0\0\1\xff\xff\xff\xff"), "GOAWAY " },
        /* window past 2^31 */
        { STR("\0\0\4\x08\0\0\0\0\0\x7f\xff\xff\xff"), "GOAWAY 0 3;" },
        /* SETTINGS of a wrong length */
        { STR("\0\0\3\4\0\0\0\0\0abc"), "GOAWAY 0 6;" },
        /* a window size of all ones */
        { STR("\0\0\6\4\0\0\0\0\0\0\4\xff\xff\xff\xff"), "GOAWAY 0 3;" },
        /* CONTINUATION out of nowhere */
        { STR("\0\0\1\x09\4\0\0\0\1x"), "GOAWAY 0 1;" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grpc_session *s = new_server();
        struct raw_reader r;
        struct error err;
        auto_buf in;
        int e;
        raw_reader_init(&r);
        buf_init(&in, 1 << 20);
        if (cases[i].says)
            raw_preface(&in);
        buf_str(&in, cases[i].bytes);
        const char *text = exchange(s, &r, buf_view(&in), 1, &e, &err);
        if (!cases[i].says) {
            assert_int_equal(e, -ERR_INVALID);
            assert_non_null(strstr(err.text, "HTTP/2"));
        } else if (!strstr(text, cases[i].says) || !grpc_session_finished(s)) {
            fail_msg("case %zu: \"%s\"", i, text);
        }
        grpc_session_free(s, NULL);
        raw_reader_done(&r);
    }
}

/* ---- floods ---- */

static void flood(uint8_t type, uint8_t flags, uint32_t stream, struct str payload, bool opens)
{
    struct grpc_session *s = new_server();
    struct raw_reader r;
    struct error err;
    auto_buf in;
    int e = 0, n = 0;
    raw_reader_init(&r);
    buf_init(&in, 1 << 20);
    raw_preface(&in);
    if (stream && !opens)
        raw_request(&in, stream, "/t.T/Echo", NULL, false);
    for (; e == 0 && n < 100000; n++) {
        if (opens) {
            stream = 2 * (uint32_t)n + 1;
            raw_request(&in, stream, "/t.T/Hold", NULL, false);
        }
        raw_frame(&in, type, flags, stream, payload);
        exchange(s, &r, buf_view(&in), 1 + n, &e, &err);
        buf_reset(&in);
        if (grpc_session_finished(s))
            break; /* the library's own limit was lower */
    }
    assert_true(n < 5000);
    if (e)
        assert_non_null(strstr(err.text, "floods"));
    grpc_session_free(s, NULL);
    raw_reader_done(&r);
}

static void floods(void **state)
{
    flood(NGHTTP2_PING, 0, 0, STR("12345678"), false);
    flood(NGHTTP2_SETTINGS, 0, 0, STR(""), false);
    flood(NGHTTP2_PRIORITY, 0, 7, STR("\0\0\0\1\1"), false);
    flood(NGHTTP2_DATA, 0, 1, STR(""), false);
    flood(NGHTTP2_RST_STREAM, 0, 1, STR("\0\0\0\x08"), true);
}

/* At a modest pace nobody is cut off. */
static void slow_pings_are_no_flood(void **state)
{
    struct grpc_session *s = new_server();
    struct raw_reader r;
    auto_buf in;
    raw_reader_init(&r);
    buf_init(&in, 1 << 20);
    raw_preface(&in);
    for (int i = 0; i < 20000; i++) {
        raw_frame(&in, NGHTTP2_PING, 0, 0, STR("12345678"));
        exchange(s, &r, buf_view(&in), 1 + i * 10 * MS, NULL, NULL);
        buf_reset(&in);
    }
    grpc_session_free(s, NULL);
    raw_reader_done(&r);
}

/* A peer that never reads: what waits for it stays bounded. */
static void unread_output_is_bounded(void **state)
{
    struct grpc_session *s = new_server();
    auto_buf in;
    buf_init(&in, 1 << 20);
    raw_preface(&in);
    int e = 0;
    for (int i = 0; e == 0 && i < 3000; i++) {
        raw_frame(&in, NGHTTP2_PING, 0, 0, STR("12345678"));
        e = grpc_session_feed(s, buf_view(&in), 1 + i * 10 * MS, NULL);
        buf_reset(&in);
        assert_true(grpc_session_output(s).n < 256 * 1024);
    }
    assert_true(e < 0 || grpc_session_finished(s) || grpc_session_output(s).n < 256 * 1024);
    grpc_session_free(s, NULL);
}

static void too_many_streams(void **state)
{
    struct grpc_session *s = new_server();
    struct raw_reader r;
    auto_buf in;
    raw_reader_init(&r);
    buf_init(&in, 1 << 22);
    raw_preface(&in);
    for (uint32_t i = 0; i < GRPC_CALLS_MAX; i++) {
        raw_request(&in, 2 * i + 1, "/t.T/Hold", NULL, false);
        raw_message(&in, 2 * i + 1, 0, STR("x"), true);
    }
    exchange(s, &r, buf_view(&in), 1, NULL, NULL);
    assert_int_equal(seen.handled, GRPC_CALLS_MAX);
    buf_reset(&in);
    raw_frame(&in, NGHTTP2_SETTINGS, 1, 0, STR("")); /* our settings, acknowledged */
    raw_request(&in, 2 * GRPC_CALLS_MAX + 1, "/t.T/Hold", NULL, false);
    const char *text = exchange(s, &r, buf_view(&in), 1, NULL, NULL);
    assert_int_equal(grpc_session_calls(s), GRPC_CALLS_MAX);
    assert_non_null(strstr(text, "R257 7;") ? "" : strstr(text, "GOAWAY"));
    struct error why;
    error_set(&why, ERR_UNAVAILABLE, 0, "test is over");
    grpc_session_free(s, &why);
    assert_int_equal(seen.cancelled, GRPC_CALLS_MAX);
    raw_reader_done(&r);
}

static void budget_is_shared(void **state)
{
    struct grpc_budget budget = { .max = 300 * 1024 };
    struct grpc_session *s[2];
    struct raw_reader r[2];
    const struct grpc_session_config c = { .server = &server_config, .budget = &budget };
    auto_buf in;
    char *big = x_alloc(200 * 1024);
    buf_init(&in, 1 << 22);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(grpc_session_new(&c, 1, &s[i], NULL), 0);
        raw_reader_init(&r[i]);
        buf_reset(&in);
        raw_preface(&in);
        exchange(s[i], &r[i], buf_view(&in), 1, NULL, NULL);
        buf_reset(&in);
        raw_frame(&in, NGHTTP2_SETTINGS, 1, 0, STR("")); /* the larger window holds */
        raw_request(&in, 1, "/t.T/Echo", NULL, false);
        raw_message(&in, 1, 0, (struct str){ big, 200 * 1024 }, false);
        const char *text = exchange(s[i], &r[i], buf_view(&in), 1, NULL, NULL);
        if (i == 0)
            assert_null(strstr(text, "grpc-status"));
        else
            assert_non_null(strstr(text, "grpc-status=8 grpc-message=no memory for a message"));
    }
    grpc_session_free(s[0], NULL);
    grpc_session_free(s[1], NULL);
    assert_int_equal(budget.used, 0);
    raw_reader_done(&r[0]);
    raw_reader_done(&r[1]);
    free(big);
}

/* ---- time ---- */

static void deadlines(void **state)
{
    struct grpc_session *s = new_server();
    struct raw_reader r;
    struct error err;
    auto_buf in, out;
    raw_reader_init(&r);
    buf_init(&in, 1 << 20);
    buf_init(&out, 1 << 20);
    raw_preface(&in);
    raw_request(&in, 1, "/t.T/Hold", "grpc-timeout\n50m\n", false);
    raw_message(&in, 1, 0, STR("x"), true);
    raw_request(&in, 3, "/t.T/Hold", "grpc-timeout\n2S\n", false); /* its message never comes */
    exchange(s, &r, buf_view(&in), 1000 * MS, NULL, NULL);
    assert_int_equal(grpc_session_deadline(s), 1050 * MS);
    assert_int_equal(grpc_session_tick(s, 1049 * MS, &err), 0);
    assert_int_equal(seen.cancelled, 0);
    assert_int_equal(grpc_session_tick(s, 1050 * MS, &err), 0);
    assert_int_equal(seen.cancelled, 1);
    drain_output(s, &out);
    assert_non_null(strstr(raw_read(&r, buf_view(&out)), "H1 :status=200 content-type=application/"
                                                         "grpc grpc-status=4 "));
    assert_int_equal(grpc_session_deadline(s), 3000 * MS);
    assert_int_equal(grpc_session_tick(s, 3000 * MS, &err), 0);
    assert_int_equal(seen.cancelled, 1);
    buf_reset(&out);
    drain_output(s, &out);
    assert_non_null(strstr(raw_read(&r, buf_view(&out)), "end;R3 0;"));
    assert_int_equal(grpc_session_deadline(s), 0);
    assert_int_equal(grpc_session_calls(s), 0);
    grpc_session_free(s, NULL);
    raw_reader_done(&r);
}

static void silence_before_the_preface(void **state)
{
    struct grpc_session *s = new_server();
    struct error err;
    assert_int_equal(grpc_session_deadline(s), 1 + 10000 * MS);
    assert_int_equal(grpc_session_feed(s, STR("PRI * HT"), 5 * MS, &err), 0);
    assert_int_equal(grpc_session_tick(s, 9999 * MS, &err), 0);
    assert_int_equal(grpc_session_tick(s, 10001 * MS, &err), -ERR_UNAVAILABLE);
    assert_non_null(strstr(err.text, "within 10 s"));
    grpc_session_free(s, NULL);
}

static void client_deadline(void **state)
{
    struct grpc_session *c = new_client(), *s = new_server();
    const struct grpc_request r = {
        .path = "/t.T/Hold", .message = STR(""), .timeout_ms = 20, .done = done
    };
    assert_int_equal(grpc_session_request(c, &r, 1, NULL), 0);
    settle(c, s, 0);
    assert_int_equal(grpc_session_tick(c, 1 + 20 * MS, NULL), 0);
    assert_int_equal(seen.status, GRPC_DEADLINE_EXCEEDED);
    settle(c, s, 0); /* RST_STREAM reaches the server */
    assert_int_equal(seen.cancelled, 1);
    assert_int_equal(grpc_session_calls(c), 0);
    grpc_session_free(c, NULL);
    grpc_session_free(s, NULL);
}

/* ---- ends ---- */

static void reset_by_peer(void **state)
{
    struct grpc_session *s = new_server();
    struct raw_reader r;
    auto_buf in;
    raw_reader_init(&r);
    buf_init(&in, 1 << 20);
    raw_preface(&in);
    raw_request(&in, 1, "/t.T/Hold", NULL, false);
    raw_message(&in, 1, 0, STR("x"), true);
    raw_frame(&in, NGHTTP2_RST_STREAM, 0, 1, STR("\0\0\0\x08"));
    exchange(s, &r, buf_view(&in), 1, NULL, NULL);
    assert_int_equal(seen.handled, 1);
    assert_int_equal(seen.cancelled, 1);
    assert_int_equal(grpc_session_calls(s), 0);
    grpc_session_free(s, NULL);
    raw_reader_done(&r);
}

static void goaway_both_ways(void **state)
{
    struct grpc_session *c = new_client(), *s = new_server();
    const struct grpc_request r = { .path = "/t.T/Hold", .message = STR("a"), .done = done };
    assert_int_equal(grpc_session_request(c, &r, 1, NULL), 0);
    settle(c, s, 0);
    grpc_session_drain(s, false);
    settle(c, s, 0);
    assert_false(grpc_session_finished(s));
    struct error err;
    assert_int_equal(grpc_session_request(c, &r, 1, &err), -ERR_UNAVAILABLE);
    grpc_reply(seen.held, STR("b"));
    settle(c, s, 0);
    assert_int_equal(seen.done, 1);
    assert_int_equal(seen.status, GRPC_OK);
    assert_true(grpc_session_finished(s));
    assert_true(grpc_session_finished(c));
    grpc_session_free(c, NULL);
    grpc_session_free(s, NULL);
}

/* ---- memory ---- */

/* The whole life of a connection pair while the k-th allocation fails. True when none failed. */
static bool life(uint64_t k)
{
    struct grpc_session *s = NULL, *c = NULL;
    const struct grpc_session_config sc = { .server = &server_config }, cc = { 0 };
    const struct grpc_request unary = {
        .path = "/t.T/Echo", .message = STR("hello"), .timeout_ms = 500, .done = done
    };
    const struct grpc_request wrong = { .path = "/t.T/No", .message = STR("x"), .done = done };
    const struct grpc_request stream = {
        .path = "/t.T/Stream", .message = STR("x"), .message_in = message_in, .ended = ended
    };
    int asked = 0, streams = 0;
    bool lost = false;
    struct error why;
    memset(&seen, 0, sizeof seen);
    error_set(&why, ERR_UNAVAILABLE, 0, "lost");
    mem_fail_at(k);
    if (grpc_session_new(&sc, 1, &s, NULL) < 0 || grpc_session_new(&cc, 1, &c, NULL) < 0)
        lost = true;
    for (int i = 0; !lost && i < 3; i++) {
        asked += grpc_session_request(c, &unary, 1, NULL) == 0;
        asked += grpc_session_request(c, &wrong, 1, NULL) == 0;
        streams += grpc_session_request(c, &stream, 1, NULL) == 0;
        bool moved = true;
        while (moved && !lost) {
            moved = false;
            struct grpc_session *pair[] = { c, s, c };
            for (int way = 0; way < 2 && !lost; way++) {
                for (struct str out; !lost && (out = grpc_session_output(pair[way])).n;) {
                    lost = grpc_session_feed(pair[way + 1], out, 1, NULL) < 0;
                    grpc_session_sent(pair[way], out.n);
                    moved = true;
                }
                lost |= grpc_session_check(pair[way], NULL) < 0;
            }
        }
        if (seen.held && !lost)
            grpc_finish(steal(seen.held));
    }
    uint64_t made = mem_fail_at(0);
    grpc_session_free(c, &why);
    grpc_session_free(s, &why);
    /* Every call is told exactly once, whatever happened. */
    assert_int_equal(seen.done, asked);
    assert_int_equal(seen.ended, streams);
    return made < k;
}

static void every_allocation_may_fail(void **state)
{
    uint64_t k = 1;
    while (!life(k))
        k++;
    assert_true(k > 100);
    assert_int_equal(seen.done, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut),
        cmocka_unit_test(odd_requests),
        cmocka_unit_test(message_in_pieces),
        cmocka_unit_test(half_a_message),
        cmocka_unit_test(too_large),
        cmocka_unit_test(large_headers),
        cmocka_unit_test(pings_and_unknown_frames),
        cmocka_unit_test(broken_connections),
        cmocka_unit_test(floods),
        cmocka_unit_test(slow_pings_are_no_flood),
        cmocka_unit_test(unread_output_is_bounded),
        cmocka_unit_test(too_many_streams),
        cmocka_unit_test(budget_is_shared),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(silence_before_the_preface),
        cmocka_unit_test(client_deadline),
        cmocka_unit_test(reset_by_peer),
        cmocka_unit_test(goaway_both_ways),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
