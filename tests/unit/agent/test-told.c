/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/told.h"

#define MS INT64_C(1000000)

static void test_told(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
        bool tell;
    } steps[] = {
        { "disk full", 1000, true },           { "disk full", 1005, false },
        { "disk full", 60999, false },         { "disk full", 61000, true },
        { "read-only", 61001, true },          { "disk full", 61002, true },
        { "disk full", 61002 + 59999, false },
    };
    struct told t = { 0 };
    assert_false(told_over(&t));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        assert_int_equal(told_anew(&t, steps[i].text, steps[i].ms * MS), steps[i].tell);
    assert_true(told_over(&t));
    assert_false(told_over(&t));
    assert_true(told_anew(&t, "disk full", 61003 * MS));
    assert_true(told_over(&t));
}

/* Twenty at once, two a second afterwards, and the count of the others with the next that is told.
 */
static void test_flood(void **state)
{
    struct flood f = { 0 };
    uint64_t hidden = 99;
    for (int i = 0; i < 20; i++) {
        assert_true(flood_lets(&f, 5000 * MS, &hidden));
        assert_int_equal(hidden, 0);
    }
    for (int i = 0; i < 1000; i++)
        assert_false(flood_lets(&f, (5000 + i / 4) * MS, &hidden));
    assert_true(flood_lets(&f, 5500 * MS, &hidden));
    assert_int_equal(hidden, 1000);
    assert_false(flood_lets(&f, 5999 * MS, &hidden));
    assert_true(flood_lets(&f, 6000 * MS, &hidden));
    assert_int_equal(hidden, 1);
    for (int i = 0; i < 20; i++)
        assert_true(flood_lets(&f, 100000 * MS, &hidden));
    assert_false(flood_lets(&f, 100000 * MS, &hidden));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_told), cmocka_unit_test(test_flood) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
