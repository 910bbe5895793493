/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/str.h"

static void test_cut(void **state)
{
    struct str rest = STR("a,,b");
    assert_true(str_is(str_cut(&rest, ','), "a"));
    assert_true(str_is(str_cut(&rest, ','), ""));
    assert_non_null(rest.p);
    assert_true(str_is(str_cut(&rest, ','), "b"));
    assert_null(rest.p);
    rest = STR("a,");
    assert_true(str_is(str_cut(&rest, ','), "a"));
    assert_non_null(rest.p); /* one empty field more */
    assert_true(str_is(str_cut(&rest, ','), ""));
    assert_null(rest.p);
    rest = STR("");
    assert_int_equal(str_cut(&rest, ',').n, 0);
    assert_null(rest.p);
}

static void test_numbers(void **state)
{
    static const struct {
        const char *in;
        bool ok;
        int64_t value;
    } cases[] = {
        { "0", true, 0 },
        { "-1", true, -1 },
        { "+7", true, 7 },
        { "9223372036854775807", true, INT64_MAX },
        { "-9223372036854775808", true, INT64_MIN },
        { "9223372036854775808", false, 0 },
        { "-9223372036854775809", false, 0 },
        { "99999999999999999999999", false, 0 },
        { "", false, 0 },
        { "-", false, 0 },
        { "1 ", false, 0 },
        { " 1", false, 0 },
        { "0x1", false, 0 },
        { "1a", false, 0 },
        { "--1", false, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t v = 42;
        bool ok = str_to_i64(str_of(cases[i].in), INT64_MIN, INT64_MAX, &v);
        if (ok != cases[i].ok || v != (ok ? cases[i].value : 42))
            fail_msg("\"%s\": %d %lld", cases[i].in, ok, (long long)v);
    }
    int64_t v;
    assert_false(str_to_i64(STR("5"), 6, 9, &v));
    assert_true(str_to_i64(STR("6"), 6, 9, &v));
    uint64_t u;
    assert_true(str_to_u64(STR("18446744073709551615"), UINT64_MAX, &u));
    assert_false(str_to_u64(STR("18446744073709551616"), UINT64_MAX, &u));
    assert_false(str_to_u64(STR("-1"), UINT64_MAX, &u));
    assert_true(str_hex_to_u64(STR("0xfF"), UINT64_MAX, &u) && u == 255);
    assert_true(str_hex_to_u64(STR("10"), UINT64_MAX, &u) && u == 16);
    assert_false(str_hex_to_u64(STR("0x"), UINT64_MAX, &u));
    bool b;
    assert_true(str_to_bool(STR("T"), &b) && b);
    assert_true(str_to_bool(STR("False"), &b) && !b);
    assert_false(str_to_bool(STR("yes"), &b));
    assert_false(str_to_bool(STR(""), &b));
}

static void test_nearest(void **state)
{
    static const char *const keys[] = { "timeSlicing", "mps", "requireDistinct" };
    assert_string_equal(str_nearest(STR("timeSlising"), keys, 3), "timeSlicing");
    assert_string_equal(str_nearest(STR("TIMESLICING"), keys, 3), "timeSlicing");
    assert_string_equal(str_nearest(STR("mpls"), keys, 3), "mps");
    assert_string_equal(str_nearest(STR("msp"), keys, 3), "mps"); /* two letters swapped */
    assert_null(str_nearest(STR("resources"), keys, 3));
    assert_null(str_nearest(STR("x"), keys, 3));
    assert_int_equal(str_distance(STR("kitten"), STR("sitting")), 3);
    assert_int_equal(str_distance(STR(""), STR("abc")), 3);
    char longer[66];
    memset(longer, 'a', sizeof longer);
    assert_true(str_distance((struct str){ longer, 65 }, STR("a")) == SIZE_MAX);
    assert_int_equal(str_distance((struct str){ longer, 64 }, (struct str){ longer, 64 }), 0);
}

static void test_glob(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool match;
    } cases[] = {
        { "*", "", true },
        { "", "", true },
        { "", "a", false },
        { "Tesla-V100*", "Tesla V100-SXM2-16GB", false },
        { "Tesla V100*", "Tesla V100-SXM2-16GB", true },
        { "V100", "Tesla V100", false },
        { "*V100", "Tesla V100", true },
        { "*100*80*", "NVIDIA H100 80GB HBM3", true },
        { "a*b*c", "aXbYbZc", true },
        { "a*b*c", "aXbYbZ", false },
        { "[ab]?", "[ab]?", true },
        { "[ab]", "a", false },
        { "h100", "H100", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (str_glob(str_of(cases[i].pattern), str_of(cases[i].text)) != cases[i].match)
            fail_msg("\"%s\" on \"%s\"", cases[i].pattern, cases[i].text);
    char many[4096]; /* no factorial time */
    memset(many, 'a', sizeof many);
    assert_false(str_glob(STR("*a*a*a*a*a*a*a*a*b"), (struct str){ many, sizeof many }));
}

static void test_utf8(void **state)
{
    static const struct {
        const char *in;
        size_t n, length;
    } cases[] = {
        { "a", 1, 1 },
        { "\0", 1, 1 },
        { "\xC3\xA9", 2, 2 },
        { "\xE2\x82\xAC", 3, 3 },
        { "\xF0\x9F\x98\x80", 4, 4 },
        { "\xF4\x8F\xBF\xBF", 4, 4 },
        { "", 0, 0 },
        { "\x80", 1, 0 },             /* stray continuation */
        { "\xC3", 1, 0 },             /* cut off */
        { "\xC3x", 2, 0 },            /* no continuation */
        { "\xC0\x80", 2, 0 },         /* overlong */
        { "\xC1\xBF", 2, 0 },         /* overlong */
        { "\xE0\x9F\xBF", 3, 0 },     /* overlong */
        { "\xF0\x8F\xBF\xBF", 4, 0 }, /* overlong */
        { "\xED\xA0\x80", 3, 0 },     /* surrogate */
        { "\xF4\x90\x80\x80", 4, 0 }, /* past U+10FFFF */
        { "\xFF", 1, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (str_utf8((struct str){ cases[i].in, cases[i].n }) != cases[i].length)
            fail_msg("case %zu", i);
}

static void test_text(void **state)
{
    assert_true(str_is(str_trim(STR(" \t a b \r\n")), "a b"));
    assert_int_equal(str_trim(STR(" \n")).n, 0);
    assert_true(str_starts(STR("abc"), "ab") && !str_starts(STR("a"), "ab"));
    assert_true(str_ends(STR("abc"), "bc") && !str_ends(STR("c"), "bc"));
    assert_true(str_ieq(STR("aBc"), STR("AbC")) && !str_ieq(STR("a"), STR("ab")));
    assert_true(str_cmp(STR("a"), STR("ab")) < 0 && str_cmp(STR("b"), STR("ab")) > 0);
    assert_int_equal(str_cmp(STR(""), (struct str){ NULL, 0 }), 0);
}

static int fails(struct error *err)
{
    error_set(err, ERR_NOT_FOUND, 2, "open %s", "x");
    return error_wrap(err, "load ledger");
}

static void test_error(void **state)
{
    struct error e;
    assert_int_equal(fails(&e), -ERR_NOT_FOUND);
    assert_string_equal(e.text, "load ledger: open x");
    assert_int_equal(e.sys, 2);
    assert_int_equal(fails(NULL), -ERR_INTERNAL);
    assert_int_equal(error_set(NULL, ERR_LIMIT, 0, "x"), -ERR_LIMIT);

    static const struct {
        int sys;
        enum error_code code;
    } codes[] = {
        { ENOENT, ERR_NOT_FOUND },      { EACCES, ERR_DENIED },   { EROFS, ERR_DENIED },
        { ENOSPC, ERR_LIMIT },          { EDQUOT, ERR_LIMIT },    { EMFILE, ERR_LIMIT },
        { EAGAIN, ERR_UNAVAILABLE },    { EEXIST, ERR_CONFLICT }, { EIO, ERR_INTERNAL },
        { ETIMEDOUT, ERR_UNAVAILABLE },
    };
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        assert_int_equal(error_errno(&e, codes[i].sys, "read"), -(int)codes[i].code);
        assert_int_equal(e.sys, codes[i].sys);
        assert_true(strncmp(e.text, "read: ", 6) == 0);
        assert_string_equal(e.text + 6, strerror(codes[i].sys));
    }
    for (int c = 0; c < ERR_CODE_COUNT; c++) {
        assert_true(error_code_name((enum error_code)c)[0]);
        int g = error_grpc_status((enum error_code)c);
        assert_true(g >= 0 && g <= 16);
        assert_true((g == 0) == (c == ERR_NONE));
        assert_true((error_exit_code((enum error_code)c) == 0) == (c == ERR_NONE));
        assert_true(error_http_status((enum error_code)c) >= 200);
    }
    assert_string_equal(error_code_name((enum error_code)99), error_code_name(ERR_INTERNAL));
}

/* Too long: cut between characters, marked, terminated. */
static void test_error_cut(void **state)
{
    char text[1000];
    struct error e;
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', shift);
        size_t n = shift;
        for (; n + 2 < sizeof text; n += 2)
            memcpy(text + n, "\xC3\xA9", 2);
        text[n] = '\0';
        error_set(&e, ERR_INVALID, 0, "%s", text);
        assert_true(strlen(e.text) < sizeof e.text);
        assert_true(str_ends(str_of(e.text), "…"));
        for (struct str s = str_of(e.text); s.n;) {
            size_t len = str_utf8(s);
            assert_true(len > 0);
            s.p += len;
            s.n -= len;
        }
        error_wrap(&e, "outer");
        assert_true(strncmp(e.text, "outer: ", 7) == 0 && str_ends(str_of(e.text), "…"));
        error_errno(&e, ENOENT, "%s", text);
        assert_true(str_ends(str_of(e.text), "…"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),     cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_nearest), cmocka_unit_test(test_glob),
        cmocka_unit_test(test_utf8),    cmocka_unit_test(test_text),
        cmocka_unit_test(test_error),   cmocka_unit_test(test_error_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
