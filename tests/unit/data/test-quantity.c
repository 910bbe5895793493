/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "data/quantity.h"
#include "data/semver.h"

static void test_quantity(void **state)
{
    static const struct {
        const char *in;
        int code;
        int64_t units;
        int32_t milli;
        bool rounded;
    } cases[] = {
        { "1", 0, 1, 0, false },
        { "250m", 0, 0, 250, false },
        { "1Gi", 0, 1073741824, 0, false },
        { "1.5Gi", 0, 1610612736, 0, false },
        { "81559Mi", 0, INT64_C(85520809984), 0, false },
        { "-1.5", 0, -1, -500, false },
        { "+2k", 0, 2000, 0, false },
        { "1e3", 0, 1000, 0, false },
        { "1E3", 0, 1000, 0, false },
        { "1E", 0, INT64_C(1000000000000000000), 0, false },
        { "15e-1", 0, 1, 500, false },
        { ".5", 0, 0, 500, false },
        { "5.", 0, 5, 0, false },
        { "0.1Ki", 0, 102, 400, false },
        { "1n", 0, 0, 1, true },
        { "1000001u", 0, 1, 1, true },
        { "1500u", 0, 0, 2, true },
        { "-1n", 0, 0, -1, true },
        { "0.0000000000000000000000000000000000000", 0, 0, 0, false },
        { "9223372036854775807", 0, INT64_MAX, 0, false },
        { "7Ei", 0, INT64_C(8070450532247928832), 0, false },
        { "1.000000000000000000000000000", 0, 1, 0, false },
        { "9223372036854775808", -ERR_LIMIT, 0, 0, false },
        { "8Ei", -ERR_LIMIT, 0, 0, false },
        { "1e60", -ERR_LIMIT, 0, 0, false },
        { "99999999999999999999999999999999999999999999", -ERR_LIMIT, 0, 0, false },
        { "", -ERR_INVALID, 0, 0, false },
        { "1 ", -ERR_INVALID, 0, 0, false },
        { " 1", -ERR_INVALID, 0, 0, false },
        { "Gi", -ERR_INVALID, 0, 0, false },
        { ".", -ERR_INVALID, 0, 0, false },
        { "1.2.3", -ERR_INVALID, 0, 0, false },
        { "1gi", -ERR_INVALID, 0, 0, false },
        { "1K", -ERR_INVALID, 0, 0, false },
        { "1e", -ERR_INVALID, 0, 0, false },
        { "1e99", -ERR_INVALID, 0, 0, false },
        { "1ee3", -ERR_INVALID, 0, 0, false },
        { "--1", -ERR_INVALID, 0, 0, false },
        { "0x1", -ERR_INVALID, 0, 0, false },
        { "1GiB", -ERR_INVALID, 0, 0, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct quantity q = { 7, 7, false };
        struct error e;
        int r = quantity_parse(str_of(cases[i].in), &q, &e);
        bool same = r != 0 || (q.units == cases[i].units && q.milli == cases[i].milli &&
                               q.rounded == cases[i].rounded);
        if (r != cases[i].code || !same)
            fail_msg("\"%s\": %d %lld %d", cases[i].in, r, (long long)q.units, q.milli);
    }
    struct quantity a = { 1, 500, false }, b = { 1, 0, false }, big = { INT64_MAX / 100, 0, false };
    int64_t m;
    assert_true(quantity_milli(&a, &m) && m == 1500);
    assert_false(quantity_milli(&big, &m));
    assert_int_equal(quantity_value(&a), 2);
    assert_int_equal(quantity_value(&b), 1);
    struct quantity negative = { -1, -500, false };
    assert_int_equal(quantity_value(&negative), -1);
    assert_true(quantity_cmp(&a, &b) > 0 && quantity_cmp(&b, &a) < 0 && quantity_cmp(&a, &a) == 0);
    assert_true(quantity_cmp(&negative, &b) < 0);
}

static void test_semver(void **state)
{
    static const struct {
        const char *in;
        bool strict, loose;
    } cases[] = {
        { "1.2.3", true, true },
        { "0.0.0", true, true },
        { "1.2.3-alpha.1+build.5", true, true },
        { "1.2.3-0a", true, true },
        { "1.2.3--", true, true },
        { "1.2.3+001", true, true },
        { "v1.35.0-gke.1", false, true },
        { "1.34", false, true },
        { "595.58.03", false, true },
        { "1", false, true },
        { "", false, false },
        { "1.2.3.4", false, false },
        { "1..3", false, false },
        { "1.2.x", false, false },
        { "1.2.3-", false, false },
        { "1.2.3-a..b", false, false },
        { "1.2.3-01", false, true },
        { "1.2.3+", false, false },
        { "1.2.3+a+b", false, false },
        { "1.2.3-ä", false, false },
        { "-1.2.3", false, false },
        { "99999999999999999999.0.0", false, false },
        { "v", false, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct semver v;
        struct error e;
        bool strict = semver_parse(str_of(cases[i].in), &v, &e) == 0;
        bool loose = semver_parse_loose(str_of(cases[i].in), &v, &e) == 0;
        if (strict != cases[i].strict || loose != cases[i].loose)
            fail_msg("\"%s\": %d %d", cases[i].in, strict, loose);
    }
    struct semver v;
    struct error e;
    assert_int_equal(semver_parse(STR("1.22.333-rc.1+sha"), &v, &e), 0);
    assert_true(v.major == 1 && v.minor == 22 && v.patch == 333);
    assert_true(str_is(v.pre, "rc.1") && str_is(v.build, "sha"));
}

/* The order of the specification's own example, and further ones: each is lower than the next. */
static void test_semver_order(void **state)
{
    static const char *const rising[] = {
        "0.9.9",
        "1.0.0-1",
        "1.0.0-2",
        "1.0.0-10",
        "1.0.0-99999999999999999999",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.1",
        "1.2.0",
        "1.10.0",
        "2.0.0",
    };
    for (size_t i = 0; i < ARRAY_LEN(rising); i++) {
        for (size_t k = 0; k < ARRAY_LEN(rising); k++) {
            struct semver a, b;
            struct error e;
            assert_int_equal(semver_parse(str_of(rising[i]), &a, &e), 0);
            assert_int_equal(semver_parse(str_of(rising[k]), &b, &e), 0);
            if (semver_cmp(&a, &b) != (i > k) - (i < k))
                fail_msg("%s and %s", rising[i], rising[k]);
        }
    }
    struct semver a, b;
    struct error e;
    assert_int_equal(semver_parse(STR("1.0.0+a"), &a, &e), 0);
    assert_int_equal(semver_parse(STR("1.0.0+b"), &b, &e), 0);
    assert_int_equal(semver_cmp(&a, &b), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantity),
        cmocka_unit_test(test_semver),
        cmocka_unit_test(test_semver_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
