/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "../../golden/fixture.h"
#include "base/mem.h"
#include "kubelet/env_conflict.h"

/* B-038: one container, two kinds of MIG device. */
static void test_conflicts(void **state)
{
    struct device_use uses[] = {
        { "nvidia.com/mig-1g.5gb", "MIG-2", "uid-a", "", "", "c1" },
        { "nvidia.com/mig-1g.5gb", "MIG-3", "uid-a", "", "", "c1" },
        { "nvidia.com/mig-3g.20gb", "MIG-0", "uid-a", "a", "ns", "c1" },
        { "nvidia.com/mig-2g.10gb", "MIG-1", "uid-a", "", "", "c2" }, /* another container */
        { "example.com/nic", "n0", "uid-a", "", "", "c2" },           /* not ours */
        { "nvidia.com/gpu", "GPU-1", "", "b", "ns", "c1" },
        { "nvidia.com/mig-2g.10gb", "MIG-1", "", "b", "ns", "c1" },
        { "nvidia.com/gpu", "GPU-1", "uid-d", "", "", "c", .pod_gone = true },
        { "nvidia.com/mig-2g.10gb", "MIG-1", "uid-d", "", "", "c", .pod_gone = true },
    };
    static const struct {
        uint32_t strategies;
        size_t n;
    } cases[] = {
        { LIST_ENVVAR, 2 },
        { LIST_VOLUME_MOUNTS, 0 },
        { LIST_ENVVAR | LIST_CDI_CRI, 0 },
        { LIST_CDI_ANNOTATIONS, 0 },
    };
    struct in_use facts = { .uses = uses, .n = ARRAY_LEN(uses) };
    struct survey *s = fixture_survey("parts");
    struct plugin_config c = { .mig_strategy = MIG_STRATEGY_MIXED };
    const struct inventory_input in = { .survey = s, .config = &c };
    struct inventory *inv;
    struct error err;
    assert_int_equal(inventory_build(&in, &inv, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_arena a;
        struct findings found;
        arena_init(&a, 64 * 1024);
        findings_init(&found, &a, 10);
        c.list_strategies = cases[i].strategies;
        plugin_env_conflicts(&facts, &c, inv, &found);
        assert_int_equal(found.n, cases[i].n);
        if (found.n == 0)
            continue;
        assert_string_equal(found.items[0].id, "plugin.env-overwritten");
        assert_string_equal(found.items[0].subject, "pod uid-a container c1");
        assert_non_null(strstr(found.items[0].cause,
                               "devices of nvidia.com/mig-1g.5gb and of nvidia.com/mig-3g.20gb"));
        assert_string_equal(found.items[1].subject, "pod ns/b container c1");
    }
    struct env_memory memory = { .n = 0 };
    static const size_t fresh[] = { 2, 0, 0, 2 }; /* found, same, none, found again */
    c.list_strategies = LIST_ENVVAR;
    for (size_t i = 0; i < ARRAY_LEN(fresh); i++) {
        auto_arena a;
        struct findings found;
        arena_init(&a, 64 * 1024);
        findings_init(&found, &a, 10);
        facts.n = i == 2 ? 0 : ARRAY_LEN(uses);
        plugin_env_conflicts_new(&memory, &facts, &c, inv, &found);
        assert_int_equal(found.n, fresh[i]);
    }
    inventory_free(inv);
    survey_unref(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_conflicts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
