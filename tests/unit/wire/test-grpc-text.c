/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "wire/grpc.h"
#include "wire/grpc_text.h"

static void timeouts(void **state)
{
    static const struct {
        const char *in;
        int64_t ns; /* -1: refused */
    } cases[] = {
        { "45S", 45000000000 },
        { "1n", 1 },
        { "0n", 0 },
        { "250m", 250000000 },
        { "7u", 7000 },
        { "2M", 120000000000 },
        { "1H", 3600000000000 },
        { "99999999m", 99999999000000 },
        { "99999999S", 99999999000000000 },
        { "99999999H", 3155760000000000000 }, /* cut at 100 years */
        { "", -1 },
        { "S", -1 },
        { "5", -1 },
        { "5s", -1 },
        { "-5S", -1 },
        { "+5S", -1 },
        { " 5S", -1 },
        { "5 S", -1 },
        { "5SS", -1 },
        { "123456789n", -1 },
        { "0x5S", -1 },
        { "1.5S", -1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t ns = -1;
        assert_int_equal(grpc_timeout_parse(str_of(cases[i].in), &ns), cases[i].ns >= 0);
        assert_true(ns == cases[i].ns);
    }
}

static void timeout_text(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = { { 0, "0m" },
                  { -5, "0m" },
                  { 250, "250m" },
                  { 99999999, "99999999m" },
                  { 100000000, "100000S" },
                  { INT64_MAX, "99999999S" } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char out[GRPC_TIMEOUT_SIZE];
        int64_t ns;
        size_t n = grpc_timeout_format(cases[i].ms, out);
        assert_int_equal(n, strlen(cases[i].text));
        assert_memory_equal(out, cases[i].text, n);
        assert_true(grpc_timeout_parse((struct str){ out, n }, &ns));
    }
}

static void messages(void **state)
{
    static const struct {
        const char *text, *header;
    } cases[] = {
        { "", "" },
        { "plain text, ~!", "plain text, ~!" },
        { "100 %", "100 %25" },
        { "a\nb\tc", "a%0Ab%09c" },
        { "größer", "gr%C3%B6%C3%9Fer" },
        { "\x7f", "%7F" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf a, b;
        buf_init(&a, 1000);
        buf_init(&b, 1000);
        grpc_message_encode(str_of(cases[i].text), &a);
        assert_true(str_is(buf_view(&a), cases[i].header));
        grpc_message_decode(buf_view(&a), &b);
        assert_true(str_is(buf_view(&b), cases[i].text));
    }
}

static void odd_messages(void **state)
{
    static const struct {
        const char *header, *text;
    } cases[] = {
        { "%", "%" },       { "%4", "%4" },     { "%4g", "%4g" },  { "%%41", "%A" },
        { "%41", "A" },     { "a%00b", "a?b" }, { "%c3%B6", "ö" }, { "%0x", "%0x" },
        { "%2525", "%25" }, { "x%e", "x%e" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf b;
        buf_init(&b, 1000);
        grpc_message_decode(str_of(cases[i].header), &b);
        assert_string_equal(b.p, cases[i].text);
    }
}

static void statuses(void **state)
{
    assert_int_equal(grpc_status_of_http(401), GRPC_UNAUTHENTICATED);
    assert_int_equal(grpc_status_of_http(429), GRPC_UNAVAILABLE);
    assert_int_equal(grpc_status_of_http(302), GRPC_UNKNOWN);
    assert_int_equal(grpc_status_of_reset(12), GRPC_PERMISSION_DENIED);
    assert_int_equal(grpc_status_of_reset(999), GRPC_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeouts),     cmocka_unit_test(timeout_text), cmocka_unit_test(messages),
        cmocka_unit_test(odd_messages), cmocka_unit_test(statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
