/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "spec/pattern.h"

static struct arena arena;
static struct findings findings;

static void explain(const struct resource_pattern *p, size_t n, const char *const *names,
                    size_t n_names)
{
    arena_done(&arena);
    arena_init(&arena, 1024 * 1024);
    findings_init(&findings, &arena, 100);
    pattern_explain(p, n, "config.yaml", "GPU name", names, n_names, &findings);
}

static void finding_is(size_t i, const char *id, enum severity severity, const char *const *parts)
{
    assert_true(i < findings.n);
    const struct finding *f = &findings.items[i];
    assert_string_equal(f->id, id);
    assert_int_equal(f->severity, severity);
    for (; *parts; parts++)
        if (!strstr(f->cause, *parts) && !strstr(f->fix, *parts))
            fail_msg("\"%s; %s\" lacks \"%s\"", f->cause, f->fix, *parts);
}
#define PARTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* The label's spelling instead of NVML's. */
static void test_b017_spelling(void **state)
{
    static const char *const names[] = { "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB",
                                         "NVIDIA A30" };
    static const struct resource_pattern p[] = {
        { "Tesla-V100*", "nvidia.com/v100", 3, 5 }, { "nvidia a30", "nvidia.com/a30", 4, 5 },
        { "*H100*", "nvidia.com/h100", 5, 5 },      { "*V100*", "nvidia.com/other", 6, 5 },
        { "*SXM2*", "nvidia.com/late", 7, 5 },
    };
    explain(p, ARRAY_LEN(p), names, ARRAY_LEN(names));
    assert_int_equal(findings.n, 5);
    assert_string_equal(findings.items[0].subject, "config.yaml:3:5 resources");
    finding_is(0, "pattern.unused", SEVERITY_WARNING,
               PARTS("\"Tesla-V100*\" → nvidia.com/v100",
                     "would match \"Tesla V100-SXM2-16GB\" if blanks and hyphens",
                     "as NVML spells the name"));
    finding_is(1, "pattern.unused", SEVERITY_WARNING, PARTS("would match \"NVIDIA A30\""));
    finding_is(
        2, "pattern.unused", SEVERITY_WARNING,
        PARTS("matches no GPU name; this host has \"Tesla V100-SXM2-16GB\", \"NVIDIA A30\""));
    assert_null(strstr(findings.items[2].cause, "16GB\", \"Tesla")); /* each name once */
    finding_is(3, "pattern.matched", SEVERITY_INFO,
               PARTS("\"*V100*\" → nvidia.com/other takes \"Tesla V100-SXM2-16GB\""));
    finding_is(4, "pattern.unused", SEVERITY_WARNING,
               PARTS("because \"*V100*\" (line 6) comes before it", "narrower"));
}

static void test_edges(void **state)
{
    static const struct resource_pattern p[] = { { "*", "nvidia.com/gpu", 1, 1 } };
    explain(p, 1, NULL, 0);
    finding_is(0, "pattern.unused", SEVERITY_WARNING, PARTS("this host has none"));
    explain(p, 0, NULL, 0);
    assert_int_equal(findings.n, 0);
    static const char *const names[] = { "A", "B", "A" };
    explain(p, 1, names, 3);
    finding_is(0, "pattern.matched", SEVERITY_INFO, PARTS("takes \"A\", \"B\""));
    assert_int_equal(pattern_first(p, 1, "anything"), 0);
    assert_int_equal(pattern_first(p, 0, "anything"), 0);
    /* Many long names are cut, not overrun. */
    char longer[400];
    const char *many[64];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = longer + i;
    static const struct resource_pattern q[] = { { "*y*", "nvidia.com/gpu", 1, 1 } };
    explain(q, 1, many, ARRAY_LEN(many));
    assert_int_equal(findings.n, 1);
}

static int teardown(void **state)
{
    arena_done(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        { "B-017 a pattern that is spelled like the label", test_b017_spelling, NULL, NULL, NULL },
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
