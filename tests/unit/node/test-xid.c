/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "node/health.h"

static void test_table(void **state)
{
    static const struct {
        uint64_t xid;
        const char *action;
        char kind;
        bool ignored, needs_reset;
    } cases[] = {
        { 8, "restart-app", 'A', false, false },
        { 13, "restart-app", 'A', true, false },
        { 31, "restart-app", 'A', true, false },
        { 43, "restart-app", 'A', true, false },
        { 45, "follow-other-xid", 'I', true, false },
        { 46, "reset-gpu", 'H', false, true },
        { 48, "reset-gpu", 'H', false, true },
        { 63, "reset-when-convenient", 'H', false, false },
        { 68, "restart-app", 'A', true, false },
        { 74, "inspect", 'H', false, true },
        { 79, "reboot-node", 'H', false, true },
        { 92, "ignore", 'H', false, false },
        { 94, "restart-app", 'A', false, false },
        { 95, "reset-gpu", 'H', false, true },
        { 109, "reset-gpu", 'H', true, true },
        { 119, "reset-gpu", 'H', false, true },
        { 120, "reset-gpu", 'H', false, true },
        { 139, "restart-app", 'A', false, false },
        { 140, "reset-gpu", 'H', false, true },
        { 154, "read-recovery-action", 'I', false, false },
        { 172, "reset-gpu", 'H', false, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct xid_info *x = xid_lookup(cases[i].xid);
        assert_non_null(x);
        assert_int_equal(x->xid, cases[i].xid);
        assert_string_equal(x->action, cases[i].action);
        assert_int_equal(x->kind, cases[i].kind);
        assert_int_equal(x->ignored_by_default, cases[i].ignored);
        assert_int_equal(x->needs_reset, cases[i].needs_reset);
        assert_true(x->what[0]);
    }
}

/* The search needs rising numbers: every row is found by its own, and exactly six are ignored. */
static void test_all_rows(void **state)
{
    size_t rows = 0, ignored = 0;
    for (uint64_t xid = 0; xid < 1000; xid++) {
        const struct xid_info *x = xid_lookup(xid);
        if (!x)
            continue;
        rows++;
        ignored += x->ignored_by_default;
        assert_int_equal(x->xid, xid);
        assert_non_null(strchr("ADHI", x->kind));
    }
    assert_int_equal(ignored, 6);
    assert_int_equal(rows, 117);
    /* B-048 */
    assert_null(xid_lookup(999));
    assert_null(xid_lookup(0));
    assert_null(xid_lookup(UINT64_MAX));
    assert_null(xid_lookup(65536 + 79));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_table),
                                        cmocka_unit_test(test_all_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
