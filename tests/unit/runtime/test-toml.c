/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "runtime/toml.h"

enum { ARENA = 8 * 1024 * 1024 };

/* The document as compact JSON, to compare; or the error's text. */
static void parsed(const char *in, size_t n, struct buf *out)
{
    auto_arena a;
    struct error err;
    struct value *v = NULL;
    struct json_writer w;
    arena_init(&a, ARENA);
    buf_init(out, 1024 * 1024);
    if (toml_parse(&a, (struct str){ in, n }, "in.toml", &v, &err) < 0) {
        buf_z(out, err.text);
        return;
    }
    jw_init(&w, out, 0);
    jw_value(&w, v);
}

static void documents_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *in, *json;
    } cases[] = {
        { "", "{}" },
        { "# only a comment", "{}" },
        { "\r\n a = 1\r\n", "{\"a\":1}" },
        { "a = \"x\" # why", "{\"a\":\"x\"}" },
        { "a.b.c = 1\na.b.d = 2\n", "{\"a\":{\"b\":{\"c\":1,\"d\":2}}}" },
        { "'a b'.\"c\\u00e9\" = true", "{\"a b\":{\"c\xC3\xA9\":true}}" },
        { "3 = false\n1.2 = 4", "{\"3\":false,\"1\":{\"2\":4}}" },
        { "[a]\nx=1\n[a.b]\ny=2\n[c]\n", "{\"a\":{\"x\":1,\"b\":{\"y\":2}},\"c\":{}}" },
        { "[a.b]\nx=1\n[a]\ny=2\n", "{\"a\":{\"b\":{\"x\":1},\"y\":2}}" },
        { "[ plugins . \"io.containerd.grpc.v1.cri\" ]\nenable_cdi = true",
          "{\"plugins\":{\"io.containerd.grpc.v1.cri\":{\"enable_cdi\":true}}}" },
        { "[[l]]\na=1\n[[l]]\na=2\n[l.m]\nb=3", "{\"l\":[{\"a\":1},{\"a\":2,\"m\":{\"b\":3}}]}" },
        { "a = [ 1, # one\n 2,\n]\n", "{\"a\":[1,2]}" },
        { "a = []", "{\"a\":[]}" },
        { "a = [[1],['x',\"y\"]]", "{\"a\":[[1],[\"x\",\"y\"]]}" },
        { "a = { b = 1, c.d = 2, e = {} }", "{\"a\":{\"b\":1,\"c\":{\"d\":2},\"e\":{}}}" },
        { "a = 0x1F\nb = 0o17\nc = 0b1_1\nd = -1_000\ne=+7",
          "{\"a\":31,\"b\":15,\"c\":3,\"d\":-1000,\"e\":7}" },
        { "a = 1.5e3", "{\"a\":1.5e3}" },
        { "a = \"\"\"\nx\n\"y\" \\\n   z\"\"\"\"\nb = 1",
          "{\"a\":\"x\\n\\\"y\\\" z\\\"\",\"b\":1}" },
        { "a = '''\nc:\\x 'y' '''''", "{\"a\":\"c:\\\\x 'y' ''\"}" },
        { "a = 'c:\\x'", "{\"a\":\"c:\\\\x\"}" },
        { "a = \"\\b\\t\\n\\f\\r\\\"\\\\\\U0001F600\"",
          "{\"a\":\"\\b\\t\\n\\f\\r\\\"\\\\\xF0\x9F\x98\x80\"}" },
        { "a = \"\"\nb = ''\nc=\"\"\"\"\"\"", "{\"a\":\"\",\"b\":\"\",\"c\":\"\"}" },
        { "a.b = 1\n[a.c]\nd = 2", "{\"a\":{\"b\":1,\"c\":{\"d\":2}}}" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf got;
        parsed(cases[i].in, strlen(cases[i].in), &got);
        if (!got.p || strcmp(got.p, cases[i].json) != 0)
            fail_msg("case %zu (%s): %s", i, cases[i].in, got.p);
    }
}

static void faults_are_named_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *in, *says;
    } cases[] = {
        { "a", "in.toml:1:2: expected \"=\"" },
        { "a = ", "in.toml:1:5: expected a value" },
        { "a = 1 b = 2", "in.toml:1:7: expected the end of the line" },
        { "a = 1\na = 2", "in.toml:2:1: \"a\" is defined already at line 1" },
        { "[a]\n[a]", "in.toml:2:2: \"a\" is defined already at line 1" },
        { "[a]\nb.c=1\n[a.b]", "in.toml:3:4: \"b\" is defined already" },
        { "a = {b=1}\n[a.c]", "in.toml:2:2: \"a\" is defined already" },
        { "a = {b=1}\na.c=1", "in.toml:2:1: \"a\" is defined already" },
        { "a = {b.c=1, b.c=2}", "in.toml:1:15: \"c\" is defined already" },
        { "a = [1]\n[[a]]", "in.toml:2:3: \"a\" is defined already" },
        { "[a.b]\n[[a]]", "is defined already" },
        { "[[a]]\n[a]", "is defined already" },
        { "[a.b.c]\n[a]\nb.d = 1", "" }, /* adds to a table that only a header named */
        { "[a\n", "in.toml:1:3: expected \"]\"" },
        { "[[a]\n", "in.toml:1:4: expected \"]]\"" },
        { "[]", "in.toml:1:2: expected a key" },
        { "= 1", "in.toml:1:1: expected a key" },
        { "a. = 1", "expected a key" },
        { "a = \"x", "without an end" },
        { "a = \"x\n\"", "in.toml:1:7: a text without an end on its line" },
        { "a = \"\"\"x", "without an end" },
        { "a = \"\\x41\"", "in.toml:1:6: an unknown escape" },
        { "a = \"\\uD800\"", "an unknown escape" },
        { "a = \"\\U00110000\"", "an unknown escape" },
        { "a = \"\x01\"", "a control character" },
        { "\"\"\"a\"\"\" = 1", "a key cannot have more than one line" },
        { "a = 1979-05-27T07:32:00Z", "dates, inf and nan are not known" },
        { "a = inf", "expected a value" },
        { "a = 01", "expected a value" },
        { "a = 1__0", "expected a value" },
        { "a = _1", "expected a value" },
        { "a = 1.", "expected a value" },
        { "a = .5", "expected a value" },
        { "a = 0x", "expected a value" },
        { "a = 0xG", "expected a value" },
        { "a = 1e400", "expected a value" },
        { "a = 99999999999999999999", "expected a value" },
        { "a = 0xFFFFFFFFFFFFFFFFFF", "expected a value" },
        { "a = True", "expected a value" },
        { "a = [1 2]", "expected \",\" or \"]\"" },
        { "a = [1", "expected \",\" or \"]\"" },
        { "a = {b = 1", "expected \",\" or \"}\"" },
        { "a = {b = 1,\n c = 2}", "expected a key" },
        { "a = \xFF", "byte 4 is no text in UTF-8" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf got;
        parsed(cases[i].in, strlen(cases[i].in), &got);
        if (!got.p || !strstr(got.p, cases[i].says) || (cases[i].says[0] && got.p[0] == '{'))
            fail_msg("case %zu (%s): %s", i, cases[i].in, got.p);
    }
    auto_buf got;
    parsed("a = \"\0\"", 8, &got);
    assert_non_null(strstr(got.p, "byte 5 is no text"));
}

static void limits_hold(void **state)
{
    (void)state;
    auto_buf deep, many, wide, got, got2, got3;
    buf_init(&deep, 1 << 20);
    buf_z(&deep, "a = ");
    for (int i = 0; i < 5000; i++)
        buf_ch(&deep, '[');
    parsed(deep.p, deep.n, &got);
    assert_non_null(strstr(got.p, "nested deeper than 32 levels"));

    buf_init(&many, 1 << 20);
    for (int i = 0; i <= TOML_NODES_MAX; i++)
        buf_fmt(&many, "k%d=1\n", i);
    parsed(many.p, many.n, &got2);
    assert_non_null(strstr(got2.p, "more than 10000 values"));

    buf_init(&wide, 2 * TOML_BYTES_MAX);
    while (wide.n <= TOML_BYTES_MAX)
        buf_ch(&wide, '\n');
    parsed(wide.p, wide.n, &got3);
    assert_non_null(strstr(got3.p, "at most 1048576"));
}

static const char sample[] = "top = 1\n[a.\"b c\"]\nx = [\"y\", {z = 2, w = {}}]\n[[l]]\nq = '''\n"
                             "1'''\n[empty]\n[e.f]\n";

/* What is written reads back to the same tree. */
static void written_documents_read_back(void **state)
{
    (void)state;
    auto_arena a;
    struct error err;
    struct value *v;
    auto_buf text, one, two;
    arena_init(&a, ARENA);
    assert_int_equal(toml_parse(&a, STR(sample), "in", &v, &err), 0);
    buf_init(&text, 65536);
    toml_write(&text, v);
    parsed(sample, sizeof sample - 1, &one);
    parsed(text.p, text.n, &two);
    /* Tables go after scalars, so that only the order of members may differ. */
    assert_string_equal(text.p,
                        "top = 1\nl = [{ q = \"1\" }]\n\n[a.\"b c\"]\nx = [\"y\", { z = 2, w = "
                        "{} }]\n\n[empty]\n\n[e.f]\n");
    assert_int_equal(one.n, two.n);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        auto_arena a;
        struct value *v = NULL;
        struct error err;
        arena_init(&a, ARENA);
        mem_fail_at(k);
        int r = toml_parse(&a, STR(sample), "in", &v, &err);
        uint64_t calls = mem_fail_at(0);
        if (calls < k) {
            assert_int_equal(r, 0);
            assert_true(k > 2);
            return;
        }
        assert_int_equal(r, -ERR_LIMIT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_read),
        cmocka_unit_test(faults_are_named_with_their_place),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(written_documents_read_back),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
