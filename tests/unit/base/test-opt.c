/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/opt.h"

static const struct opt table[] = {
    { .name = "strategy",
      .letter = 's',
      .type = OPT_STRING,
      .aliases = { "old-strategy" },
      .env = { "STRATEGY", "OLD_STRATEGY" },
      .config_key = "flags.strategy",
      .deflt = "none",
      .choices = "none|single|mixed",
      .group = "Devices",
      .help = "how" },
    { .name = "fail",
      .type = OPT_BOOL,
      .env = { "FAIL" },
      .config_key = "flags.fail",
      .deflt = "true",
      .help = "whether" },
    { .name = "count",
      .letter = 'c',
      .type = OPT_INT,
      .env = { "COUNT" },
      .config_key = "flags.count",
      .deflt = "5" },
    { .name = "words",
      .type = OPT_LIST,
      .env = { "WORDS" },
      .config_key = "flags.words",
      .deflt = "a",
      .choices = "a|b|c",
      .help = "which" },
    { .name = "interval",
      .type = OPT_DURATION,
      .env = { "INTERVAL" },
      .config_key = "flags.interval",
      .deflt = "60s" },
    { .name = "root",
      .type = OPT_STRING,
      .env = { "ROOT" },
      .config_key = "flags.root",
      .value_name = "DIR",
      .group = "Paths",
      .help = "where" },
    { 0 },
};

enum { ARGS_MAX = 8 };

/* argv as a table row: up to 7 words; env likewise. */
static int parse(struct opts *o, const char *const *args, const char *const *env, int max_args,
                 struct error *err)
{
    static char *no_env[] = { NULL };
    char *argv[ARGS_MAX + 2], *envp[ARGS_MAX + 1];
    static char copies[2 * ARGS_MAX][64];
    int argc = 0, n = 0, e = 0;
    argv[argc++] = copies[0];
    for (; args && args[argc - 1]; argc++)
        argv[argc] = strncpy(copies[++n], args[argc - 1], 63);
    argv[argc] = NULL;
    for (; env && env[e]; e++)
        envp[e] = strncpy(copies[++n], env[e], 63);
    envp[e] = NULL;
    return opts_parse(o, table, argc, argv, env ? envp : no_env, max_args, err);
}

#define ARGS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void test_forms(void **state)
{
    static const struct {
        const char *args[4];
        const char *strategy;
        bool fail;
        int64_t count;
    } cases[] = {
        { { NULL }, "none", true, 5 },
        { { "--strategy", "mixed" }, "mixed", true, 5 },
        { { "--strategy=mixed" }, "mixed", true, 5 },
        { { "-strategy=mixed" }, "mixed", true, 5 },
        { { "-strategy", "mixed" }, "mixed", true, 5 },
        { { "-s", "mixed" }, "mixed", true, 5 },
        { { "-s=mixed" }, "mixed", true, 5 },
        { { "--old-strategy", "mixed" }, "mixed", true, 5 },
        { { "--strategy=a=b" }, "a=b", true, 5 },
        { { "--strategy", "--fail" }, "--fail", true, 5 }, /* what follows is the value */
        { { "--strategy=" }, "", true, 5 },
        { { "--fail" }, "none", true, 5 },
        { { "--fail=false" }, "none", false, 5 },
        { { "--fail=F" }, "none", false, 5 },
        { { "-fail=0" }, "none", false, 5 },
        { { "-c", "-3" }, "none", true, -3 },
        { { "--count=1", "--count=2" }, "none", true, 2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct opts o;
        struct error e = { 0 };
        int r = parse(&o, cases[i].args, NULL, 0, &e);
        if (r < 0)
            fail_msg("case %zu: %s", i, e.text);
        if (strcmp(opts_text(&o, "strategy"), cases[i].strategy) != 0 ||
            opts_bool(&o, "fail") != cases[i].fail || opts_int(&o, "count") != cases[i].count)
            fail_msg("case %zu: %s", i, opts_text(&o, "strategy"));
        opts_done(&o);
    }
}

static void test_arguments(void **state)
{
    struct opts o;
    struct error e;
    assert_int_equal(parse(&o, ARGS("DIR", "--count=1", "-", "--", "--fail=x"), NULL, -1, &e), 0);
    assert_int_equal(o.n_args, 3);
    assert_string_equal(o.args[0], "DIR");
    assert_string_equal(o.args[1], "-");
    assert_string_equal(o.args[2], "--fail=x");
    assert_null(o.args[3]);
    opts_done(&o);
    assert_int_equal(parse(&o, ARGS("a", "b"), NULL, 1, &e), -ERR_INVALID);
    assert_non_null(strstr(e.text, "\"b\""));
    assert_int_equal(parse(&o, ARGS("--bad", "--help"), NULL, 0, &e), -ERR_INVALID);
    assert_int_equal(parse(&o, ARGS("--help", "--bad"), ARGS("COUNT=x"), 0, &e),
                     0); /* nothing else is looked at */
    assert_true(o.help);
    opts_done(&o);
    assert_int_equal(parse(&o, ARGS("-h"), NULL, 0, &e), 0);
    assert_true(o.help);
    opts_done(&o);
}

static void test_errors(void **state)
{
    static const struct {
        const char *args[3], *env[2];
        const char *says[4];
    } cases[] = {
        { { "--stratgy=x" }, { NULL }, { "--stratgy", "--strategy" } },
        { { "-stratgy", "x" }, { NULL }, { "-stratgy", "--strategy" } },
        { { "--old_strategy=x" }, { NULL }, { "--old-strategy" } },
        { { "--zzzzzzzz" }, { NULL }, { "--zzzzzzzz", "--help" } },
        { { "-z" }, { NULL }, { "-z" } },
        { { "--strategy" }, { NULL }, { "--strategy", "needs a value" } },
        { { "--fail=maybe" }, { NULL }, { "flag --fail", "\"maybe\"", "true or false" } },
        { { "--fail=" }, { NULL }, { "flag --fail", "empty", "true or false" } },
        { { "--fail", "false" },
          { NULL },
          { "\"false\"" } }, /* not the flag's value: an argument too many */
        { { "--count=1.5" }, { NULL }, { "flag --count", "\"1.5\"", "whole number" } },
        { { "--count=" }, { NULL }, { "flag --count", "empty" } },
        { { "--interval=5" }, { NULL }, { "flag --interval", "\"5\"", "1h15m" } },
        { { NULL }, { "FAIL=maybe" }, { "env FAIL", "\"maybe\"", "true or false" } },
        { { NULL }, { "COUNT=x" }, { "env COUNT", "\"x\"" } },
        { { NULL }, { "INTERVAL=x" }, { "env INTERVAL", "\"x\"" } },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct opts o;
        struct error e = { 0 };
        int r = parse(&o, cases[i].args, cases[i].env, 0, &e);
        if (r != -ERR_INVALID)
            fail_msg("case %zu: %d", i, r);
        for (size_t k = 0; k < 4 && cases[i].says[k]; k++)
            if (!strstr(e.text, cases[i].says[k]))
                fail_msg("case %zu: \"%s\" lacks \"%s\"", i, e.text, cases[i].says[k]);
    }
}

static void give(struct opts *o, const char *key, const char *value)
{
    struct error e;
    char origin[64];
    snprintf(origin, sizeof origin, "f:1:2 %s", key);
    if (opts_from_config(o, key, &value, 1, origin, &e) < 0)
        fail_msg("%s", e.text);
}

/* Each type through each of the four sources, and what set-to-empty means in each. */
static void test_precedence(void **state)
{
    static const char *const names[] = { "strategy", "fail", "count", "words", "interval" };
    static const char *const keys[] = { "flags.strategy", "flags.fail", "flags.count",
                                        "flags.words", "flags.interval" };
    static const char *const in_config[] = { "single", "false", "6", "b", "1s" };
    static const struct {
        bool config;
        const char *env, *flag; /* what stands after the name */
        enum opt_source source[5];
        const char *text[5];
    } cases[] = {
        { false,
          NULL,
          NULL,
          { OPT_FROM_DEFAULT, OPT_FROM_DEFAULT, OPT_FROM_DEFAULT, OPT_FROM_DEFAULT,
            OPT_FROM_DEFAULT },
          { "none", "true", "5", "a", "60s" } },
        { true,
          NULL,
          NULL,
          { OPT_FROM_CONFIG, OPT_FROM_CONFIG, OPT_FROM_CONFIG, OPT_FROM_CONFIG, OPT_FROM_CONFIG },
          { "single", "false", "6", "b", "1s" } },
        { true,
          "1",
          NULL,
          { OPT_FROM_ENV, OPT_FROM_ENV, OPT_FROM_ENV, OPT_FROM_ENV,
            OPT_FROM_CONFIG }, /* 1: no duration */
          { "1", "1", "1", "1", "1s" } },
        { true,
          "",
          NULL,
          { OPT_FROM_ENV, OPT_FROM_ENV, OPT_FROM_CONFIG, OPT_FROM_ENV, OPT_FROM_CONFIG },
          { "", "", "6", "", "1s" } },
        { true,
          "",
          "0",
          { OPT_FROM_FLAG, OPT_FROM_FLAG, OPT_FROM_FLAG, OPT_FROM_FLAG, OPT_FROM_FLAG },
          { "0", "0", "0", "0", "0" } },
        { false,
          "",
          NULL,
          { OPT_FROM_ENV, OPT_FROM_ENV, OPT_FROM_DEFAULT, OPT_FROM_ENV, OPT_FROM_DEFAULT },
          { "", "", "5", "", "60s" } },
    };
    static const char *const vars[] = { "STRATEGY", "FAIL", "COUNT", "WORDS", "INTERVAL" };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            char env[64] = "", flag[64] = "";
            const char *env_row[2] = { NULL }, *flag_row[2] = { NULL };
            if (cases[i].env && !(k == 4 && cases[i].env[0])) {
                snprintf(env, sizeof env, "%s=%s", vars[k], cases[i].env);
                env_row[0] = env;
            }
            if (cases[i].flag) {
                snprintf(flag, sizeof flag, "--%s=%s", names[k], cases[i].flag);
                flag_row[0] = flag;
            }
            struct opts o;
            struct error e;
            if (parse(&o, flag_row, env_row, 0, &e) < 0)
                fail_msg("case %zu %s: %s", i, names[k], e.text);
            if (cases[i].config)
                give(&o, keys[k], in_config[k]);
            const struct opt_value *v = opts_get(&o, names[k]);
            if (v->source != cases[i].source[k] || strcmp(v->text, cases[i].text[k]) != 0)
                fail_msg("case %zu %s: source %d, text \"%s\"", i, names[k], v->source, v->text);
            char origin[80];
            const char *const origins[] = { "default", "", "", "" };
            if (v->source == OPT_FROM_CONFIG)
                snprintf(origin, sizeof origin, "f:1:2 %s", keys[k]);
            else if (v->source == OPT_FROM_ENV)
                snprintf(origin, sizeof origin, "env %s", vars[k]);
            else if (v->source == OPT_FROM_FLAG)
                snprintf(origin, sizeof origin, "flag --%s", names[k]);
            else
                snprintf(origin, sizeof origin, "%s", origins[0]);
            assert_string_equal(v->origin, origin);
            opts_done(&o);
        }
    }
}

static void test_empty_values(void **state)
{
    struct opts o;
    struct error e;
    assert_int_equal(parse(&o, NULL, ARGS("FAIL=", "WORDS=", "INTERVAL="), 0, &e), 0);
    assert_false(opts_bool(&o, "fail")); /* its default is true */
    assert_int_equal(opts_get(&o, "words")->n_items, 1);
    assert_string_equal(opts_get(&o, "words")->items[0], "");
    assert_true(opts_int(&o, "interval") == INT64_C(60000000000));
    assert_int_equal(opts_check(&o, &e), -ERR_INVALID); /* the empty word is no choice */
    assert_non_null(strstr(e.text, "env WORDS"));
    opts_done(&o);
}

static void test_env_order(void **state)
{
    struct opts o;
    struct error e;
    assert_int_equal(parse(&o, NULL, ARGS("OLD_STRATEGY=mixed", "STRATEGYX=x"), 0, &e), 0);
    assert_string_equal(opts_text(&o, "strategy"), "mixed");
    opts_done(&o);
    assert_int_equal(parse(&o, NULL, ARGS("OLD_STRATEGY=mixed", "STRATEGY=single"), 0, &e), 0);
    assert_string_equal(opts_text(&o, "strategy"), "single");
    opts_done(&o);
    assert_int_equal(parse(&o, NULL, ARGS("OLD_STRATEGY=mixed", "STRATEGY="), 0, &e), 0);
    assert_string_equal(opts_text(&o, "strategy"), ""); /* set to empty is set */
    opts_done(&o);
}

static void test_lists(void **state)
{
    struct opts o;
    struct error e;
    assert_int_equal(parse(&o, ARGS("--words=a, b", "--words", "c"), NULL, 0, &e), 0);
    const struct opt_value *v = opts_get(&o, "words");
    assert_int_equal(v->n_items, 3);
    assert_string_equal(v->items[1], "b");
    assert_string_equal(v->items[2], "c");
    assert_int_equal(opts_check(&o, &e), 0);
    opts_done(&o);

    assert_int_equal(parse(&o, NULL, NULL, 0, &e), 0);
    const char *const items[] = { "a,b", "c" };
    assert_int_equal(opts_from_config(&o, "flags.words", items, 2, "f:1:2 flags.words", &e), 0);
    v = opts_get(&o, "words");
    assert_int_equal(v->n_items, 2); /* an element of the file is not cut */
    assert_string_equal(v->text, "a,b,c");
    assert_int_equal(opts_check(&o, &e), -ERR_INVALID);
    assert_non_null(strstr(e.text, "f:1:2 flags.words"));
    assert_non_null(strstr(e.text, "\"a,b\""));
    assert_non_null(strstr(e.text, "a, b, c"));
    assert_int_equal(opts_from_config(&o, "flags.words", items, 0, "f", &e), 0);
    assert_int_equal(opts_get(&o, "words")->n_items,
                     2); /* the first of two values from the file stays */
    assert_int_equal(opts_from_config(&o, "flags.count", items, 2, "f", &e), -ERR_INVALID);
    assert_int_equal(opts_from_config(&o, "flags.nothing", items, 1, "f", &e), -ERR_NOT_FOUND);
    assert_int_equal(opts_from_config(&o, "flags.fail", items, 1, "f", &e), -ERR_INVALID);
    opts_done(&o);

    char many[5000];
    memset(many, ',', sizeof many);
    many[sizeof many - 1] = '\0';
    memcpy(many, "WORDS=", 6);
    char *env[] = { many, NULL };
    assert_int_equal(opts_parse(&o, table, 0, NULL, env, 0, &e), -ERR_LIMIT);
}

static void test_choices(void **state)
{
    struct opts o;
    struct error e;
    assert_int_equal(parse(&o, ARGS("--strategy=Mixed"), NULL, 0, &e), 0);
    assert_int_equal(opts_check(&o, &e), -ERR_INVALID);
    assert_non_null(strstr(e.text, "flag --strategy"));
    assert_non_null(strstr(e.text, "none, single, mixed"));
    assert_int_equal(opts_check(&o, NULL), -ERR_INVALID);
    opts_done(&o);
    assert_true(opt_allows(&table[1], "anything"));
}

static void test_memory(void **state)
{
    for (uint64_t k = 1;; k++) {
        struct opts o;
        struct error e;
        const char *value = "x";
        mem_fail_at(k);
        int r = parse(&o, ARGS("--words=a", "--words=b", "d"), ARGS("STRATEGY=x"), 1, &e);
        int c = r < 0 ? 0 : opts_from_config(&o, "flags.root", &value, 1, "f", &e);
        uint64_t calls = mem_fail_at(0);
        if (r == 0)
            opts_done(&o);
        if (calls < k) {
            assert_int_equal(r, 0);
            assert_int_equal(c, 0);
            return;
        }
        assert_true(r == -ERR_LIMIT || c == -ERR_LIMIT || r == 0);
    }
}

static void test_duration(void **state)
{
    static const struct {
        const char *in;
        bool ok;
        int64_t ns;
    } cases[] = {
        { "0", true, 0 },
        { "60s", true, INT64_C(60000000000) },
        { "1h15m30.918273645s", true, INT64_C(4530918273645) },
        { "300ms", true, 300000000 },
        { "1.5h", true, INT64_C(5400000000000) },
        { ".5s", true, 500000000 },
        { "5.s", true, INT64_C(5000000000) },
        { "-1.5us", true, -1500 },
        { "+5ns", true, 5 },
        { "1\xC2\xB5s", true, 1000 },
        { "1\xCE\xBCs", true, 1000 },
        { "0.100000000000000000000h", true, INT64_C(360000000000) },
        { "0.3333333333333333333h", true, INT64_C(1199999999999) },
        { "2562047h47m16.854775807s", true, INT64_MAX },
        { "infinite", true, INT64_MAX },
        { "2562047h47m16.854775808s", false, 0 },
        { "9999999h", false, 0 },
        { "99999999999999999999s", false, 0 },
        { "", false, 0 },
        { "5", false, 0 },
        { "1", false, 0 },
        { ".", false, 0 },
        { ".s", false, 0 },
        { "-", false, 0 },
        { "s", false, 0 },
        { "1d", false, 0 },
        { "1s ", false, 0 },
        { "1.5.5s", false, 0 },
        { "1 s", false, 0 },
        { "1e3s", false, 0 },
        { "Infinite", false, 0 },
        { "-infinite", false, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t ns = -7;
        struct error e;
        int r = duration_parse(str_of(cases[i].in), &ns, &e);
        if ((r == 0) != cases[i].ok || ns != (cases[i].ok ? cases[i].ns : -7))
            fail_msg("\"%s\": %d %lld", cases[i].in, r, (long long)ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_empty_values), cmocka_unit_test(test_env_order),
        cmocka_unit_test(test_lists),        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_memory),       cmocka_unit_test(test_duration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
