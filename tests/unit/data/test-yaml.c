/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "data/yaml.h"

/* The document as compact JSON, or the error's text. */
static const char *as_json(const char *text)
{
    static char out[4096];
    auto_arena a;
    arena_init(&a, 4 * 1024 * 1024);
    struct value *v;
    struct error e;
    auto_buf b;
    struct json_writer w;
    buf_init(&b, sizeof out - 1);
    if (yaml_parse(&a, str_of(text), "in.yaml", NULL, &v, &e) < 0) {
        snprintf(out, sizeof out, "%s: %s", error_code_name(e.code), e.text);
        return out;
    }
    jw_init(&w, &b, 0);
    jw_value(&w, v);
    snprintf(out, sizeof out, "%s", b.p);
    return out;
}

static void test_scalars(void **state)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        { "yes", "true" },
        { "No", "false" },
        { "on", "true" },
        { "OFF", "false" },
        { "y", "true" },
        { "True", "true" },
        { "tRUE", "\"tRUE\"" },
        { "\"yes\"", "\"yes\"" },
        { "'on'", "\"on\"" },
        { "~", "null" },
        { "Null", "null" },
        { "nil", "\"nil\"" },
        { "12", "12" },
        { "+12", "12" },
        { "-12", "-12" },
        { "017", "15" },
        { "-017", "-15" },
        { "0o17", "15" },
        { "0x1F", "31" },
        { "0b101", "5" },
        { "1_000", "1000" },
        { "08", "8" }, /* no octal number: Kubernetes' reader takes the real 8 */
        { "0x", "\"0x\"" },
        { "1.5", "1.5" },
        { "1e3", "1e3" },
        { "-1.5e-3", "-1.5e-3" },
        { ".5", "0.5" },
        { ".", "\".\"" },
        { "-", "[null]" },
        { "1.2.3", "\"1.2.3\"" },
        { "1:30", "\"1:30\"" }, /* no sexagesimals */
        { "2020-01-02", "\"2020-01-02\"" },
        { "9223372036854775807", "9223372036854775807" },
        { "-9223372036854775808", "-9223372036854775808" },
        { "18446744073709551615", "18446744073709551615" },
        { "99999999999999999999999", "99999999999999999999999" },
        { ".inf", "null" },
        { "GPU-1", "\"GPU-1\"" },
        { "!!str 12", "\"12\"" },
        { "!!int \"12\"", "12" },
        { "!!float 1", "1" },
        { "! 12", "\"12\"" },
        { "!!int x", "invalid" },
        { "!custom x", "invalid" },
        { "!!binary aGk=", "invalid" },
        { "", "null" },
        { "# only a comment", "null" },
        { "---", "null" },
        { "|\n  a\n  b\n", "\"a\\nb\\n\"" },
        { ">-\n  a\n  b\n", "\"a b\"" },
        { "\"a\\u00e9\\n\"", "\"aé\\n\"" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = as_json(cases[i].in);
        bool failed = strcmp(cases[i].want, "invalid") == 0;
        if (failed ? strncmp(got, "invalid", 7) != 0 : strcmp(got, cases[i].want) != 0)
            fail_msg("\"%s\": got %s, want %s", cases[i].in, got, cases[i].want);
    }
}

static void test_structure(void **state)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        { "a: 1\nb:\n- x\n- w: {z: [1, 2]}\n", "{\"a\":1,\"b\":[\"x\",{\"w\":{\"z\":[1,2]}}]}" },
        { "a:\nb: \"\"\n", "{\"a\":null,\"b\":\"\"}" },
        { "1: a\ntrue: b\non : c\n",
          "invalid: in.yaml:3:1: key \"true\" appears twice in one map; keep one" },
        { "012: a\n1.5: b\n\"~\": c\n", "{\"10\":\"a\",\"1.5\":\"b\",\"~\":\"c\"}" },
        { "~: a", "invalid: in.yaml:1:1: a key must be text" },
        { "[a]: b", "invalid: in.yaml:1:1: a list or map cannot be a key" },
        { "? {a: 1}\n: b", "invalid: in.yaml:1:3: a list or map cannot be a key" },
        { "a: 1\nb: 2\na: 3\n",
          "invalid: in.yaml:3:1: key \"a\" appears twice in one map; keep one" },
        { "a: &x [1, 2]\nb: *x\n", "{\"a\":[1,2],\"b\":[1,2]}" },
        { "a: &x 1\nb: &x 2\nc: *x\n", "{\"a\":1,\"b\":2,\"c\":2}" },
        { "a: *x\n",
          "invalid: in.yaml:1:4: the alias *x has no anchor &x that is complete before it" },
        { "a: &x [*x]\n",
          "invalid: in.yaml:1:8: the alias *x has no anchor &x that is complete before it" },
        { "b: &b {x: 1, w: 2}\na:\n  <<: *b\n  x: 3\n",
          "{\"b\":{\"x\":1,\"w\":2},\"a\":{\"x\":3,\"w\":2}}" },
        { "a:\n  <<: [{x: 1}, {x: 2, w: 3}]\n", "{\"a\":{\"x\":1,\"w\":3}}" },
        { "\"<<\": 1\n", "{\"<<\":1}" },
        { "<<: 1\n", "invalid: in.yaml:1:1: the merge key \"<<\" takes a map or a list of maps" },
        { "<<: {}\n<<: {}\n",
          "invalid: in.yaml:2:1: key \"<<\" appears twice in one map; give it a list" },
        { "a: 1\n---\nb: 2\n",
          "invalid: in.yaml:3:1: a second document starts here; expected one" },
        { "a: 1\n...\n", "{\"a\":1}" },
        { "%YAML 1.1\n---\na: 1\n", "{\"a\":1}" },
        { "\xEF\xBB\xBF"
          "a: 1\n",
          "{\"a\":1}" },
        { "a: 1\r\nb: 2\r\n", "{\"a\":1,\"b\":2}" },
        { "name:\"nvidia\"\nhandler: x\n",
          "invalid: in.yaml:2:8: no valid YAML: mapping values are not allowed in this context" },
        { "a: [1\nb: 2\n", "invalid" },
        { "a: \"x\n", "invalid" },
        { "a: @x\n", "invalid" },
        { "a: \xFF\n", "invalid" },
        { "{\"a\": \"\\ud83d\\ude00\"}", "{\"a\":\"😀\"}" }, /* JSON */
        { "{a: 1, \"b\": [x,],}", "{\"a\":1,\"b\":[\"x\"]}" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = as_json(cases[i].in);
        bool failed = strcmp(cases[i].want, "invalid") == 0;
        if (failed ? strncmp(got, "invalid: in.yaml", 16) != 0 : strcmp(got, cases[i].want) != 0)
            fail_msg("case %zu: got %s", i, got);
    }
}

/* Whatever libyaml calls it: line, column and the word. */
static void test_tabs(void **state)
{
    static const struct {
        const char *in;
        const char *place;
    } cases[] = {
        { "a:\n\tb: 1\n", "in.yaml:2:1" },
        { "a:\n  b: 1\n\tc: 2\n", "in.yaml:3:1" },
        { "a:\n  b:\n  \tc: 2\n", "in.yaml:3:3" },
        { "sharing:\n\ttimeSlicing:\n\t\tresources:\n", "in.yaml:2:1" },
        { "a:\n\t- x\n", "in.yaml:2:1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = as_json(cases[i].in);
        if (!strstr(got, cases[i].place) || !strstr(got, "a tab is not allowed"))
            fail_msg("case %zu: %s", i, got);
    }
    assert_string_equal(as_json("a:\t1\n"), "{\"a\":1}"); /* between key and value it is fine */
    assert_string_equal(as_json("a: |\n  x\n  \ty\n"), "{\"a\":\"x\\n\\ty\\n\"}");
}

static void test_positions(void **state)
{
    auto_arena a;
    arena_init(&a, 1024 * 1024);
    struct value *v;
    struct error e;
    assert_int_equal(
        yaml_parse(&a, STR("# c\né: x\nb:\n  - 1\n  - {c: &q 7}\nd: *q\n"), "f", NULL, &v, &e), 0);
    assert_int_equal(v->line, 2);
    assert_int_equal(v->members[0].value.column, 4); /* characters, not bytes */
    const struct value *b = value_get(v, "b");
    assert_int_equal(v->members[1].line, 3);
    assert_int_equal(b->items[0].line, 4);
    assert_int_equal(b->items[0].column, 5);
    assert_int_equal(b->items[1].members[0].line, 5);
    assert_int_equal(b->items[1].members[0].column, 6);
    assert_int_equal(value_get(v, "d")->line, 6); /* where the alias stands */
    assert_int_equal(value_get(v, "d")->number, 7);
}

static void test_limits(void **state)
{
    auto_arena a;
    arena_init(&a, 8 * 1024 * 1024);
    struct value *v;
    struct error e;
    struct doc_limits small = { .bytes = 100, .depth = 3, .nodes = 10 };
    assert_int_equal(yaml_parse(&a, STR("[[[1]]]"), "x", &small, &v, &e), 0);
    assert_int_equal(yaml_parse(&a, STR("[[[[1]]]]"), "x", &small, &v, &e), -ERR_LIMIT);
    assert_int_equal(yaml_parse(&a, STR("- - - a\n"), "x", &small, &v, &e), 0);
    assert_int_equal(yaml_parse(&a, STR("- - - - a\n"), "x", &small, &v, &e), -ERR_LIMIT);
    assert_int_equal(yaml_parse(&a, STR("a: {b: {c: {d: 1}}}\n"), "x", &small, &v, &e), -ERR_LIMIT);
    assert_int_equal(
        yaml_parse(&a, STR("- 1\n- 2\n- 3\n- 4\n- 5\n- 6\n- 7\n- 8\n- 9\n"), "x", &small, &v, &e),
        0);
    assert_int_equal(yaml_parse(&a, STR("- 1\n- 2\n- 3\n- 4\n- 5\n- 6\n- 7\n- 8\n- 9\n- 10\n"), "x",
                                &small, &v, &e),
                     -ERR_LIMIT);
    char text[200];
    memset(text, 'a', sizeof text);
    assert_int_equal(yaml_parse(&a, (struct str){ text, 101 }, "x", &small, &v, &e), -ERR_LIMIT);

    /* Ten lines that stand for ten billion values. */
    auto_buf b;
    buf_init(&b, 10000);
    buf_z(&b, "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 10; i++) {
        buf_fmt(&b, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            buf_fmt(&b, "*a%d,", i - 1);
        buf_z(&b, "]\n");
    }
    assert_int_equal(yaml_parse(&a, buf_view(&b), "x", NULL, &v, &e), -ERR_LIMIT);
    assert_non_null(strstr(e.text, "an alias counts"));

    /* Deep brackets end at the limit, and quickly. */
    size_t n = 1000000;
    auto_free char *deep = x_alloc(n);
    memset(deep, '[', n);
    assert_int_equal(yaml_parse(&a, (struct str){ deep, n }, "x", NULL, &v, &e), -ERR_LIMIT);
    memset(deep, '{', n);
    assert_int_equal(yaml_parse(&a, (struct str){ deep, n }, "x", NULL, &v, &e) < 0, true);
    for (size_t i = 0; i + 1 < n; i += 2)
        memcpy(deep + i, "- ", 2);
    assert_int_equal(yaml_parse(&a, (struct str){ deep, n }, "x", NULL, &v, &e), -ERR_LIMIT);
}

static void test_all(void **state)
{
    auto_arena a;
    arena_init(&a, 1024 * 1024);
    struct value *v;
    struct error e;
    assert_int_equal(yaml_parse_all(&a, STR("a: &x 1\n---\n---\nb: 2\n"), "x", NULL, &v, &e), 0);
    assert_int_equal(v->n, 3);
    assert_int_equal(v->items[1].kind, VALUE_NULL);
    assert_int_equal(value_get(&v->items[2], "b")->number, 2);
    assert_int_equal(yaml_parse_all(&a, STR("a: &x 1\n---\nb: *x\n"), "x", NULL, &v, &e),
                     -ERR_INVALID);
    assert_int_equal(yaml_parse_all(&a, STR(""), "x", NULL, &v, &e), 0);
    assert_int_equal(v->n, 0);
    assert_int_equal(yaml_parse_all(&a, STR("{\"a\":\"\\ud83d\\ude00\"}"), "x", NULL, &v, &e), 0);
    assert_int_equal(v->n, 1);
    assert_int_equal(yaml_parse_all(&a, (struct str){ NULL, 0 }, "x", NULL, &v, NULL), 0);
    assert_int_equal(yaml_parse(&a, STR("["), "x", NULL, &v, NULL), -ERR_INVALID);
}

/* What is written as YAML reads back as the same values. */
static void test_round_trip(void **state)
{
    static const char json[] =
        "{\"plain\":\"GPU-0\",\"words\":[\"yes\",\"No\",\"on\",\"y\",\"~\",\"\",\"null\",\"12\","
        "\"0x1\",\"1.5\",\"1_0\",\".inf\",\"<<\","
        "\"=\",\"---\",\"...\",\"a: b\",\"a:\",\":a\",\"a #b\",\"#a\",\"-\",\"- "
        "a\",\"-a\",\"?\",\"a\\nb\",\" a\",\"a \",\"\\ta\","
        "\"{a}\",\"[a\",\"a, "
        "b\",\"*a\",\"&a\",\"!a\",\"|\",\">\",\"'\",\"\\\"\",\"%\",\"@\",\"`\",\"é\","
        "\"\\u007f\\u0001\",\"a:b\",\"a#b\"],"
        "\"lists\":[[],[[1],[2,{\"a\":[{\"b\":null}]}]],{}],\"12\":-1,\"true\":false,\"a "
        "b\":1.50,\"\":0,"
        "\"big\":18446744073709551615}";
    auto_arena a;
    arena_init(&a, 1024 * 1024);
    struct value *v, *again;
    struct error e;
    auto_buf yaml, back;
    struct json_writer w;
    buf_init(&yaml, 100000);
    buf_init(&back, 100000);
    assert_int_equal(json_parse(&a, STR(json), "j", NULL, &v, &e), 0);
    value_to_yaml(v, &yaml);
    if (yaml_parse(&a, buf_view(&yaml), "y", NULL, &again, &e) < 0)
        fail_msg("%s\n%s", e.text, yaml.p);
    jw_init(&w, &back, 0);
    jw_value(&w, again);
    assert_string_equal(back.p, json);

    static const struct {
        const char *in, *want;
    } forms[] = {
        { "{\"a\":[{\"b\":1,\"c\":[2]},[3,4]],\"d\":{\"e\":{}}}",
          "a:\n- b: 1\n  c:\n  - 2\n- - 3\n  - 4\nd:\n  e: {}\n" },
        { "[]", "[]\n" },
        { "{}", "{}\n" },
        { "\"x\"", "x\n" },
        { "null", "null\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        buf_reset(&yaml);
        assert_int_equal(json_parse(&a, str_of(forms[i].in), "j", NULL, &v, &e), 0);
        value_to_yaml(v, &yaml);
        assert_string_equal(yaml.p, forms[i].want);
    }
}

static void test_memory(void **state)
{
    static const char text[] = "a: &x {b: [1, 2, 3, 4, 5, x], c: yes}\nd: *x\n12: !!str 5\ne:\n  "
                               "<<: *x\n  f: |\n    text\n";
    for (uint64_t k = 1;; k++) {
        auto_arena a;
        arena_init(&a, 1024 * 1024);
        struct value *v = NULL;
        struct error e;
        mem_fail_at(k);
        int r = yaml_parse(&a, STR(text), "x", NULL, &v, &e);
        uint64_t calls = mem_fail_at(0);
        if (calls < k) {
            assert_int_equal(r, 0);
            break;
        }
        assert_int_equal(r, -ERR_LIMIT);
    }
    /* The arena's own limit at every size. */
    for (size_t limit = 0; limit < 20000; limit += 16) {
        auto_arena a;
        arena_init(&a, limit);
        struct value *v = NULL;
        struct error e;
        int r = yaml_parse(&a, STR(text), "x", NULL, &v, &e);
        assert_true(r == 0 || r == -ERR_LIMIT);
        if (r == 0)
            return;
    }
    fail();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),    cmocka_unit_test(test_structure),
        cmocka_unit_test(test_tabs),       cmocka_unit_test(test_positions),
        cmocka_unit_test(test_limits),     cmocka_unit_test(test_all),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
