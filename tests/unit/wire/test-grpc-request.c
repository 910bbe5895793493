/* SPDX-License-Identifier: Apache-2.0 */
/* The client role of a session: what it makes of odd answers and ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "h2_raw.h"
#include "wire/grpc_session.h"

static struct {
    int done;
    enum grpc_status status;
    char text[512];
} seen;

static void done(void *arg, enum grpc_status status, const char *text, struct str message)
{
    seen.done++;
    seen.status = status;
    snprintf(seen.text, sizeof seen.text, "%s", text);
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

static void answer(struct buf *b, const char *fields, uint8_t flags)
{
    auto_buf block;
    buf_init(&block, 1 << 20);
    for (struct str rest = str_of(fields); rest.n;) {
        struct str name = str_cut(&rest, '\n'), value = str_cut(&rest, '\n');
        raw_field(&block, name, value);
    }
    raw_frame(b, NGHTTP2_HEADERS, (uint8_t)(4 | flags), 1, buf_view(&block));
}

static void odd_answers(void **state)
{
    static const char ok[] = ":status\n200\ncontent-type\napplication/grpc\n";
    static const struct {
        const char *headers, *trailers;
        struct str data;
        int status;
        const char *text;
    } cases[] = {
        { ok, "grpc-status\n0\n", STR("\0\0\0\0\1x"), GRPC_OK, "" },
        { ok, "grpc-status\n0\n", STR(""), GRPC_INTERNAL, "the answer holds no message" },
        { ok, "grpc-status\n0\n", STR("\0\0\0\0\2x"), GRPC_INTERNAL, "within a message" },
        { ok, "grpc-status\n0\n", STR("\0\0\0\0\1x\0\0\0\0\1y"), GRPC_INTERNAL, "more than one" },
        { ok, "grpc-status\n5\ngrpc-message\nno%20%67pu %E2%9C%93 %zz%\n", STR(""), GRPC_NOT_FOUND,
          "no gpu ✓ %zz%" },
        { ok, "grpc-status\n99\n", STR(""), GRPC_UNKNOWN, "" },
        { ok, "grpc-status\nabc\n", STR(""), GRPC_UNKNOWN, "" },
        { ok, "x\ny\n", STR("\0\0\0\0\1x"), GRPC_INTERNAL, "without a status" },
        { ":status\n503\n", NULL, STR(""), GRPC_UNAVAILABLE, "HTTP status 503" },
        { ":status\n404\n", NULL, STR(""), GRPC_UNIMPLEMENTED, "HTTP status 404" },
        { ":status\n418\n", NULL, STR(""), GRPC_UNKNOWN, "HTTP status 418" },
        { ":status\n200\ngrpc-status\n14\ngrpc-message\nlater\n", NULL, STR(""), GRPC_UNAVAILABLE,
          "later" },
        { ok, "grpc-status\n0\n", STR("\1\0\0\0\1x"), GRPC_UNIMPLEMENTED, "compressed" },
        { ok, "grpc-status\n0\n", STR("\0\x7f\0\0\0"), GRPC_RESOURCE_EXHAUSTED,
          "2130706432 bytes" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grpc_session *c = new_client();
        const struct grpc_request r = { .path = "/x/Y", .message = STR("a"), .done = done };
        auto_buf in, out;
        buf_init(&in, 1 << 20);
        buf_init(&out, 1 << 20);
        memset(&seen, 0, sizeof seen);
        assert_int_equal(grpc_session_request(c, &r, 1, NULL), 0);
        drain_output(c, &out);
        raw_frame(&in, NGHTTP2_SETTINGS, 0, 0, STR(""));
        answer(&in, cases[i].headers, cases[i].trailers ? 0 : 1);
        if (cases[i].data.n)
            raw_frame(&in, NGHTTP2_DATA, 0, 1, cases[i].data);
        if (cases[i].trailers)
            answer(&in, cases[i].trailers, 1);
        assert_int_equal(grpc_session_feed(c, buf_view(&in), 1, NULL), 0);
        drain_output(c, &out);
        if (seen.done != 1 || (int)seen.status != cases[i].status ||
            !strstr(seen.text, cases[i].text))
            fail_msg("case %zu: told %d times, status %d, \"%s\"", i, seen.done, (int)seen.status,
                     seen.text);
        grpc_session_free(c, NULL);
    }
}

static void resets_of_a_client_call(void **state)
{
    static const struct {
        struct str code;
        int status;
    } cases[] = {
        { STR("\0\0\0\x07"), GRPC_UNAVAILABLE },        /* REFUSED_STREAM */
        { STR("\0\0\0\x08"), GRPC_CANCELLED },          /* CANCEL */
        { STR("\0\0\0\x0b"), GRPC_RESOURCE_EXHAUSTED }, /* ENHANCE_YOUR_CALM */
        { STR("\0\0\0\x02"), GRPC_INTERNAL },           { STR("\0\0\0\x00"), GRPC_INTERNAL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grpc_session *c = new_client();
        const struct grpc_request r = { .path = "/x/Y", .message = STR("a"), .done = done };
        auto_buf in, out;
        buf_init(&in, 1 << 20);
        buf_init(&out, 1 << 20);
        memset(&seen, 0, sizeof seen);
        assert_int_equal(grpc_session_request(c, &r, 1, NULL), 0);
        drain_output(c, &out);
        raw_frame(&in, NGHTTP2_SETTINGS, 0, 0, STR(""));
        raw_frame(&in, NGHTTP2_RST_STREAM, 0, 1, cases[i].code);
        assert_int_equal(grpc_session_feed(c, buf_view(&in), 1, NULL), 0);
        assert_int_equal(seen.done, 1);
        assert_int_equal(seen.status, cases[i].status);
        grpc_session_free(c, NULL);
    }
}

static void connection_lost(void **state)
{
    struct grpc_session *c = new_client();
    const struct grpc_request r = { .path = "/t.T/Hold", .message = STR("a"), .done = done };
    struct error why;
    memset(&seen, 0, sizeof seen);
    for (int i = 0; i < 3; i++)
        assert_int_equal(grpc_session_request(c, &r, 1, NULL), 0);
    error_set(&why, ERR_UNAVAILABLE, 0, "cable cut");
    grpc_session_free(c, &why);
    assert_int_equal(seen.done, 3);
    assert_int_equal(seen.status, GRPC_UNAVAILABLE);
    assert_string_equal(seen.text, "cable cut");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_answers),
        cmocka_unit_test(resets_of_a_client_call),
        cmocka_unit_test(connection_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
