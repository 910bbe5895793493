/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "data/json.h"

static int parse(struct arena *a, const char *text, struct value **v, struct error *e)
{
    arena_init(a, 4 * 1024 * 1024);
    return json_parse(a, str_of(text), "in.json", NULL, v, e);
}

static void test_values(void **state)
{
    auto_arena a;
    struct value *v;
    struct error e;
    assert_int_equal(
        parse(&a,
              "{\"null\":null, \"t\":true,\"f\":false,\n  "
              "\"int\":-9223372036854775808,\"big\":18446744073709551615,"
              "\"real\":1.50e3,\"text\":\"a\\\"\\u00e9\\ud83d\\ude00\\n\",\"é\":[1,[ ],{ }]}",
              &v, &e),
        0);
    assert_int_equal(v->kind, VALUE_MAP);
    assert_int_equal(v->n, 8);
    assert_int_equal(value_get(v, "null")->kind, VALUE_NULL);
    assert_true(value_get(v, "t")->boolean && !value_get(v, "f")->boolean);
    assert_int_equal(value_get(v, "int")->kind, VALUE_INT);
    assert_true(value_get(v, "int")->number == INT64_MIN);
    assert_int_equal(value_get(v, "big")->kind, VALUE_REAL);
    assert_string_equal(value_get(v, "big")->text.p, "18446744073709551615");
    assert_true(value_get(v, "real")->real > 1499.9 && value_get(v, "real")->real < 1500.1);
    assert_string_equal(value_get(v, "real")->text.p, "1.50e3");
    assert_string_equal(value_text(value_get(v, "text"), ""), "a\"é😀\n");
    assert_string_equal(value_text(value_get(v, "int"), "none"), "none");
    assert_string_equal(value_text(NULL, "none"), "none");
    assert_null(value_get(v, "T"));
    assert_null(value_get(value_get(v, "t"), "x"));
    assert_null(value_get(NULL, "x"));
    const struct value *list = value_get(v, "é");
    assert_int_equal(list->n, 3);
    assert_int_equal(list->items[2].kind, VALUE_MAP);

    assert_int_equal(v->members[3].line, 2);
    assert_int_equal(v->members[3].column, 3);
    assert_int_equal(v->members[3].value.column, 9);
    assert_int_equal(v->line, 1);
    assert_int_equal(v->column, 1);
}

/* Positions after texts with escapes and characters of several bytes: columns count characters. */
static void test_positions(void **state)
{
    auto_arena a;
    struct value *v;
    struct error e;
    assert_int_equal(parse(&a, "\n [ \"é\\\"],{\" , {\"b\" :\r\n\t7 } , -1.5e-3 , true]", &v, &e),
                     0);
    static const struct {
        uint32_t line, column;
    } want[] = { { 2, 4 }, { 2, 15 }, { 3, 8 }, { 3, 18 } };
    assert_int_equal(v->n, ARRAY_LEN(want));
    for (size_t i = 0; i < v->n; i++) {
        assert_int_equal(v->items[i].line, want[i].line);
        assert_int_equal(v->items[i].column, want[i].column);
    }
    assert_int_equal(v->items[1].members[0].column, 16);
    assert_int_equal(v->items[1].members[0].value.line, 3);
    assert_int_equal(v->items[1].members[0].value.column, 2);
}

static void test_refused(void **state)
{
    static const struct {
        const char *in, *says;
    } cases[] = {
        { "", "in.json:1:1" },
        { " \n ", "in.json:1:1" },
        { "{", "in.json:1:" },
        { "{\"a\":1,}", "in.json:1:" },
        { "[1]x", "in.json:1:4" },
        { "[1] [2]", "in.json:1:5" },
        { "// c\n1", "in.json:1:1" },
        { "[NaN]", "in.json:1:2" },
        { "[Infinity]", "in.json:1:2" },
        { "[1e999]", "in.json:1:" },
        { "[01]", "in.json:1:" },
        { "[+1]", "in.json:1:2" },
        { "[\n \"\x01\"]", "in.json:2:" },
        { "[\"\xFF\"]", "in.json:1:" },
        { "{'a':1}", "in.json:1:2" },
        { "{\"a\":1,\n \"b\":2,\n\"a\":3}", "in.json:3:1: key \"a\" appears twice" },
        { "[{\"a\\u0062\":1, \"ab\":2}]", "in.json:1:16: key \"ab\" appears twice" },
        { "\xEF\xBB\xBF{}", "in.json:1:1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_arena a;
        struct value *v = NULL;
        struct error e = { 0 };
        int r = parse(&a, cases[i].in, &v, &e);
        if (r != -ERR_INVALID || v || !strstr(e.text, cases[i].says))
            fail_msg("case %zu: %d %s", i, r, e.text);
        assert_int_equal(json_parse(&a, str_of(cases[i].in), "x", NULL, &v, NULL),
                         r < 0 ? -ERR_INVALID : 0);
    }
}

static void test_limits(void **state)
{
    static const struct {
        const char *in;
        struct doc_limits limits;
        bool ok;
    } cases[] = {
        { "[[1]]", { 5, 2, 3 }, true },      { "[[1]]", { 4, 2, 3 }, false },
        { "[[1]]", { 5, 1, 3 }, false },     { "[[1]]", { 5, 2, 2 }, false },
        { "1", { 1, 0, 1 }, true },          { "{\"a\":1}", { 9, 1, 3 }, true },
        { "{\"a\":1}", { 9, 1, 2 }, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_arena a;
        arena_init(&a, 100000);
        struct value *v;
        struct error e;
        int r = json_parse(&a, str_of(cases[i].in), "x", &cases[i].limits, &v, &e);
        if (r != (cases[i].ok ? 0 : -ERR_LIMIT))
            fail_msg("case %zu: %d", i, r);
    }
    /* A million brackets: refused, without deep recursion. */
    size_t n = 1000000;
    auto_free char *deep = x_alloc(2 * n + 1);
    memset(deep, '[', n);
    memset(deep + n, ']', n);
    auto_arena a;
    arena_init(&a, 1000000);
    struct value *v;
    struct error e;
    const struct doc_limits wide = { .bytes = 3 * n, .depth = 64, .nodes = 3 * n };
    assert_int_equal(json_parse(&a, (struct str){ deep, 2 * n }, "x", &wide, &v, &e), -ERR_LIMIT);
    assert_non_null(strstr(e.text, "x:1:65: nested deeper than 64"));
    /* An arena that is too small. */
    auto_arena tiny;
    arena_init(&tiny, 200);
    assert_int_equal(json_parse(&tiny, STR("[1,2,3,4,5,6,7,8,9]"), "x", NULL, &v, &e), -ERR_LIMIT);
}

/* Many keys: the duplicate is found, the first one in the order of the document, in a time that is
 * not quadratic. */
static void test_many_keys(void **state)
{
    auto_buf b;
    buf_init(&b, 1024 * 1024);
    buf_ch(&b, '{');
    for (int i = 0; i < 30000; i++)
        buf_fmt(&b, "\"key-%d\":%d,\n", i, i);
    buf_z(&b, "\"key-7\":1,\n\"key-3\":2}");
    auto_arena a;
    arena_init(&a, 16 * 1024 * 1024);
    struct value *v;
    struct error e;
    assert_int_equal(json_parse(&a, buf_view(&b), "x", NULL, &v, &e), -ERR_INVALID);
    assert_string_equal(e.text, "x:30001:1: key \"key-7\" appears twice in one object; keep one");
}

static const char sample[] =
    "{\"a\":[1,-2.50,\"x\\ty\\u0000z\",null,true,{}],\"b\":{\"c\":[[]],\"\":18446744073709551615}}";

static void test_memory(void **state)
{
    for (uint64_t k = 1;; k++) {
        auto_arena a;
        struct value *v = NULL;
        struct error e;
        mem_fail_at(k);
        int r = parse(&a, sample, &v, &e);
        uint64_t calls = mem_fail_at(0);
        if (calls < k) {
            assert_int_equal(r, 0);
            assert_true(k > 1);
            return;
        }
        assert_int_equal(r, -ERR_LIMIT);
        assert_null(v);
    }
}

static void test_write(void **state)
{
    auto_arena a;
    struct value *v;
    struct error e;
    auto_buf b;
    struct json_writer w;
    buf_init(&b, 10000);
    assert_int_equal(parse(&a, sample, &v, &e), 0);
    jw_init(&w, &b, 0);
    jw_value(&w, v);
    assert_string_equal(b.p, sample);

    buf_reset(&b);
    jw_init(&w, &b, 2);
    jw_map(&w);
    jw_kv(&w, "text", "a/b<>&\"\\\x7F");
    jw_kv(&w, "none", NULL);
    jw_kv_int(&w, "int", INT64_MIN);
    jw_key(&w, "uint");
    jw_uint(&w, UINT64_MAX);
    jw_kv_bool(&w, "bool", false);
    jw_key(&w, "empty");
    jw_list(&w);
    jw_end(&w);
    jw_key(&w, "list");
    jw_list(&w);
    jw_int(&w, 1);
    jw_map(&w);
    jw_end(&w);
    jw_text(&w, (struct str){ "\xC3(", 2 });
    jw_end(&w);
    jw_end(&w);
    assert_string_equal(b.p, "{\n  \"text\": \"a/b<>&\\\"\\\\\\u007f\",\n  \"none\": null,\n  "
                             "\"int\": -9223372036854775808,\n"
                             "  \"uint\": 18446744073709551615,\n  \"bool\": false,\n  \"empty\": "
                             "[],\n  \"list\": [\n    1,\n"
                             "    {},\n    \"\xEF\xBF\xBD(\"\n  ]\n}");
    buf_reset(&b);
    jw_init(&w, &b, 0);
    for (int i = 0; i < 63; i++)
        jw_list(&w);
    assert_false(b.failed);
    jw_list(&w);
    assert_true(b.failed);
}

/* Reals that YAML reads and JSON does not know. */
static void test_write_reals(void **state)
{
    static const struct {
        const char *text;
        double real;
        const char *want;
    } cases[] = {
        { "1.5", 1.5, "1.5" },   { ".5", 0.5, "0.5" },      { "5.", 5, "5" },
        { "+1.5", 1.5, "1.5" },  { "1_0.5", 10.5, "10.5" }, { ".inf", 1.0 / 0.0, "null" },
        { "01.5", 1.5, "1.5" },  { "-0.5", -0.5, "-0.5" },  { "1e3", 1000, "1e3" },
        { "-.5", -0.5, "-0.5" }, { "-_0.", -0.0, "0" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf b;
        struct json_writer w;
        buf_init(&b, 100);
        jw_init(&w, &b, 0);
        struct value v = { .kind = VALUE_REAL,
                           .real = cases[i].real,
                           .text = str_of(cases[i].text) };
        jw_value(&w, &v);
        assert_string_equal(b.p, cases[i].want);
    }
}

static void test_kind_names(void **state)
{
    char longer[100];
    memset(longer, 'x', sizeof longer);
    memcpy(longer + 46, "\xE2\x82\xAC", 3); /* across the place of the cut */
    struct value text = { .kind = VALUE_TEXT, .text = { longer, sizeof longer } };
    struct value bad = { .kind = VALUE_TEXT, .text = STR("a\x1b[2J\xFF\n") };
    struct value number = { .kind = VALUE_INT, .number = 3, .text = STR("0x3") };
    assert_string_equal(value_kind_name(&number), "the number 0x3");
    assert_string_equal(value_kind_name(&bad), "text \"a?[2J??\"");
    assert_string_equal(value_kind_name(&text),
                        "text \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…\"");
    struct value map = { .kind = VALUE_MAP }, null = { .kind = VALUE_NULL };
    assert_string_equal(value_kind_name(&map), "a map");
    assert_string_equal(value_kind_name(&null), "nothing (null)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),     cmocka_unit_test(test_positions),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_many_keys),  cmocka_unit_test(test_memory),
        cmocka_unit_test(test_write),      cmocka_unit_test(test_write_reals),
        cmocka_unit_test(test_kind_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
