/* SPDX-License-Identifier: Apache-2.0 */
/* Feature gates, opaque GPU configs and chart values of the DRA driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "data/yaml.h"
#include "spec/chartvalues.h"
#include "spec/featuregates.h"
#include "spec/gpuconfig.h"

static struct arena arena;
static struct findings findings;
static struct error err;

static void fresh(void)
{
    arena_done(&arena);
    arena_init(&arena, 1024 * 1024);
    findings_init(&findings, &arena, 100);
}

static int teardown(void **state)
{
    arena_done(&arena);
    return 0;
}

static bool has(const char *id, const char *cause, const char *fix)
{
    for (size_t i = 0; i < findings.n; i++)
        if (strcmp(findings.items[i].id, id) == 0 && strstr(findings.items[i].cause, cause) &&
            strstr(findings.items[i].fix, fix))
            return true;
    for (size_t i = 0; i < findings.n; i++)
        print_message("%s: %s; %s\n", findings.items[i].id, findings.items[i].cause,
                      findings.items[i].fix);
    return false;
}

static struct value *yaml(const char *text)
{
    struct value *v;
    if (yaml_parse(&arena, str_of(text), "f.yaml", NULL, &v, &err) < 0)
        fail_msg("%s", err.text);
    return v;
}

/* ---- gates ---- */

static void test_gates(void **state)
{
    struct feature_gates g;
    fresh();
    assert_int_equal(featuregates_parse(STR(""), "flag", &findings, &g, &err), 0);
    assert_true(g.on[GATE_COMPUTE_DOMAIN_CLIQUES] && !g.on[GATE_MPS_SUPPORT]);
    /* the chart leaves a comma at the end; blanks do no harm; false as any Go boolean */
    assert_int_equal(
        featuregates_parse(
            STR(" MPSSupport = true ,TimeSlicingSettings=1,CrashOnNVLinkFabricErrors=F,"), "flag",
            &findings, &g, &err),
        0);
    assert_true(g.on[GATE_MPS_SUPPORT] && g.on[GATE_TIME_SLICING_SETTINGS] &&
                !g.on[GATE_CRASH_ON_NVLINK_FABRIC_ERRORS]);
    assert_int_equal(featuregates_parse(STR("AllBeta=false,ContextualLogging=true"), "flag",
                                        &findings, &g, &err),
                     0);
    assert_true(!g.on[GATE_COMPUTE_DOMAIN_CLIQUES] && g.on[GATE_CONTEXTUAL_LOGGING] &&
                !g.on[GATE_MPS_SUPPORT]);
    assert_int_equal(findings.n, 0);
    for (int i = 0; i < GATE_COUNT; i++)
        assert_true(feature_gate_name((enum feature_gate)i)[0]);
}

static void test_b007_gates(void **state)
{
    static const struct {
        const char *in, *id, *cause, *fix;
    } cases[] = {
        { "DynamicMIG=true,MPSSupport=true", "gates.exclusive",
          "feature gate DynamicMIG is currently mutually exclusive with MPSSupport", "switch one" },
        { "DynamicMIG=true,NVMLDeviceHealthCheck=true", "gates.exclusive",
          "DynamicMIG is currently mutually exclusive", "" },
        { "DynamicMIG=true,PassthroughSupport=true", "gates.exclusive", "with PassthroughSupport",
          "" },
        { "PassthroughSupport=true,NVMLDeviceHealthCheck=true", "gates.exclusive",
          "with NVMLDeviceHealthCheck", "" },
        { "AllAlpha=true", "gates.exclusive", "DynamicMIG", "" },
        { "DeviceMetadata=true", "gates.needs",
          "DeviceMetadata requires PassthroughSupport to also be enabled", "switch the second on" },
        { "IMEXDaemonsWithDNSNames=false", "gates.needs",
          "feature gate ComputeDomainCliques requires IMEXDaemonsWithDNSNames to also be enabled",
          "" },
        { "MPSSuport=true", "gates.unknown", "\"MPSSuport\"", "did you mean \"MPSSupport\"?" },
        { "mpssupport=true", "gates.unknown", "\"mpssupport\"", "letter case" },
        { "Nonsense=true", "gates.unknown", "\"Nonsense\"", "remove it" },
        { "MPSSupport", "gates.value", "no value", "GATE=true" },
        { "MPSSupport=yes", "gates.value", "\"yes\" is no boolean", "" },
        { "MPSSupport=", "gates.value", "\"\" is no boolean", "" },
        { "MPSSupport=true,MPSSupport=false", "gates.both-ways", "to true and to false",
          "keep one" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct feature_gates g;
        fresh();
        int r =
            featuregates_parse(str_of(cases[i].in), "flag --feature-gates", &findings, &g, &err);
        if (r != -ERR_INVALID || !has(cases[i].id, cases[i].cause, cases[i].fix))
            fail_msg("%s: %d", cases[i].in, r);
        assert_string_equal(findings.items[0].subject, "flag --feature-gates");
        assert_non_null(strstr(err.text, findings.items[0].cause));
    }
    /* B-007's own input in the chart's form */
    struct feature_gates g;
    fresh();
    assert_int_equal(featuregates_from_map(yaml("{DynamicMIG: true, MPSSupport: true}"), "values",
                                           &findings, &g, &err),
                     -ERR_INVALID);
    assert_true(has("gates.exclusive", "DynamicMIG", ""));
    fresh();
    assert_int_equal(
        featuregates_from_map(yaml("{DynamicMIG: \"true\"}"), "values", &findings, &g, &err),
        -ERR_INVALID);
    assert_true(has("gates.value", "found text \"true\"", "without quotes"));
    fresh();
    assert_int_equal(featuregates_from_map(yaml("~"), "values", &findings, &g, &err), 0);
}

/* ---- GpuConfig ---- */

#define HEAD     "apiVersion: resource.nvidia.com/v1beta1\nkind: GpuConfig\n"
#define MIG_HEAD "apiVersion: resource.nvidia.com/v1beta1\nkind: MigDeviceConfig\n"

static int decode(const char *text, const char *gates, struct gpu_config *c)
{
    struct feature_gates g;
    fresh();
    assert_int_equal(featuregates_parse(str_of(gates), "flag", &findings, &g, &err), 0);
    return gpuconfig_decode(yaml(text), "claim", &g, &arena, &findings, c, &err);
}

static void test_gpuconfig(void **state)
{
    static const char all[] = "MPSSupport=true,TimeSlicingSettings=true";
    struct gpu_config c;
    assert_int_equal(decode(HEAD, "", &c), 0);
    assert_int_equal(c.sharing, GPU_SHARING_NONE);
    assert_int_equal(decode(HEAD "sharing: {strategy: TimeSlicing}", all, &c), 0);
    assert_true(c.kind == GPU_CONFIG && c.sharing == GPU_SHARING_TIME_SLICING &&
                c.interval == INTERVAL_DEFAULT);
    assert_int_equal(
        decode(HEAD "sharing: {strategy: TimeSlicing, timeSlicingConfig: {}}", all, &c), 0);
    assert_int_equal(decode(HEAD
                            "sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}",
                            all, &c),
                     0);
    assert_int_equal(c.interval, INTERVAL_LONG);
    assert_int_equal(decode(HEAD "sharing: {strategy: MPS}", all, &c), 0);
    assert_true(c.sharing == GPU_SHARING_MPS && c.thread_percentage == -1 && c.pinned_mib == 0);
    assert_int_equal(
        decode(HEAD "sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 33, "
                    "defaultPinnedDeviceMemoryLimit: 10M, multiUser: true, "
                    "defaultPerDevicePinnedMemoryLimit: {0: 1G, GPU-x: 2Gi}}}",
               all, &c),
        0);
    assert_true(c.thread_percentage == 33 && c.pinned_mib == 9 && c.multi_user && c.n_limits == 2);
    assert_string_equal(c.limits[0].device, "0");
    assert_true(c.limits[0].mib == 953 && c.limits[1].mib == 2048);
    /* a part: time slicing is accepted, does nothing and needs no gate */
    assert_int_equal(decode(MIG_HEAD "sharing: {strategy: TimeSlicing}", "", &c), 0);
    assert_true(c.kind == MIG_DEVICE_CONFIG && c.sharing == GPU_SHARING_TIME_SLICING);
}

static void test_gpuconfig_faults(void **state)
{
    static const struct {
        const char *in, *gates, *id, *cause, *fix;
    } cases[] = {
        { HEAD "sharing: {strategy: Mps2}", "", "gpuconfig.unknown-strategy",
          "unknown GPU sharing strategy: Mps2, supported GPU sharing strategies: TimeSlicing, MPS",
          "" },
        { HEAD "sharing: {}", "", "gpuconfig.unknown-strategy", "\"strategy\" is missing", "" },
        { HEAD "sharing: {strategy: \"\"}", "", "gpuconfig.unknown-strategy",
          "unknown GPU sharing strategy", "" },
        { HEAD "sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Forever}}",
          "TimeSlicingSettings=true", "gpuconfig.interval",
          "unknown time-slice interval: Forever, supported", "" },
        { HEAD "sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Forever}}", "",
          "gpuconfig.gate-off",
          "\"TimeSlicing\" is selected as the GPU sharing strategy, but the "
          "\"TimeSlicingSettings\" feature gate is not enabled",
          "TimeSlicingSettings=true" },
        { HEAD "sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: long}}",
          "TimeSlicingSettings=true", "gpuconfig.interval", "long", "did you mean \"Long\"?" },
        { HEAD "sharing: {strategy: TimeSlicing, mpsConfig: {}}", "TimeSlicingSettings=true",
          "gpuconfig.wrong-part", "cannot use MpsConfig with the 'TimeSlicing' strategy", "" },
        { HEAD "sharing: {strategy: MPS, timeSlicingConfig: {}}", "MPSSupport=true",
          "gpuconfig.wrong-part", "cannot use TimeSlicingConfig with the 'MPS' strategy", "" },
        { HEAD "sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 101}}",
          "MPSSupport=true", "config.out-of-range",
          "found 101; expected a whole number from 0 to 100", "" },
        { HEAD "sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: -1}}",
          "MPSSupport=true", "config.out-of-range", "found -1", "" },
        { HEAD "sharing: {strategy: MPS, mpsConfig: {defaultPinnedDeviceMemoryLimit: 1k}}",
          "MPSSupport=true", "gpuconfig.limit", "invalid limit: value set too low: 1k", "1Mi" },
        { HEAD "sharing: {strategy: MPS, mpsConfig: {defaultPinnedDeviceMemoryLimit: -5Gi}}",
          "MPSSupport=true", "gpuconfig.limit", "too low", "" },
        { HEAD "sharing: {strategy: MPS, mpsConfig: {defaultPinnedDeviceMemoryLimit: 5GB}}",
          "MPSSupport=true", "gpuconfig.limit", "\"5GB\" is no quantity", "" },
        { HEAD "sharing: {strategy: MPS, mpsConfig: {defaultPerDevicePinnedMemoryLimit: {a: []}}}",
          "MPSSupport=true", "config.wrong-type", "found a list", "" },
        { HEAD "sharing: {strategy: MPS, mpsConfg: {}}", "MPSSupport=true", "config.unknown-key",
          "\"mpsConfg\"", "did you mean \"mpsConfig\"?" },
        { HEAD "sharing: {strategy: MPS, multiUser: true}", "MPSSupport=true", "config.unknown-key",
          "\"multiUser\"", "it belongs inside sharing.mpsConfig" },
        { HEAD "strategy: MPS", "", "config.unknown-key", "\"strategy\"",
          "it belongs inside sharing" },
        { MIG_HEAD "sharing: {strategy: TimeSlicing, timeSlicingConfig: {}}", "",
          "config.unknown-key", "\"timeSlicingConfig\"", "" },
        { "kind: GpuConfig", "", "gpuconfig.version", "allowed: resource.nvidia.com/v1beta1", "" },
        { "apiVersion: resource.nvidia.com/v1beta1\nkind: GPUConfig", "", "gpuconfig.kind",
          "found \"GPUConfig\"; allowed: GpuConfig, MigDeviceConfig",
          "did you mean \"GpuConfig\"?" },
        { "[]", "", "config.wrong-type", "found a list", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gpu_config c;
        int r = decode(cases[i].in, cases[i].gates, &c);
        if (r != -ERR_INVALID || !has(cases[i].id, cases[i].cause, cases[i].fix))
            fail_msg("%s: %d", cases[i].in, r);
    }
}

/* Unknown word, wrong letter case, known but switched off: three different answers. */
static void test_b009_three_answers(void **state)
{
    struct gpu_config c;
    static const char claim[] =
        HEAD "sharing: {strategy: %s, mpsConfig: {defaultActiveThreadPercentage: 33}}";
    static const struct {
        const char *word, *gates, *id, *cause, *fix;
    } cases[] = {
        { "MPS", "", "gpuconfig.gate-off",
          "\"MPS\" is selected as the GPU sharing strategy, but the \"MPSSupport\" feature gate is "
          "not enabled",
          "--feature-gates=MPSSupport=true" },
        { "mps", "", "gpuconfig.letter-case", "\"mps\": the letter case is wrong; it is \"MPS\"",
          "exactly these letters" },
        { "mps", "MPSSupport=true", "gpuconfig.letter-case", "it is \"MPS\"", "" },
        { "mpss", "", "gpuconfig.unknown-strategy", "unknown GPU sharing strategy: mpss",
          "choose" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[300];
        snprintf(text, sizeof text, claim, cases[i].word);
        assert_int_equal(decode(text, cases[i].gates, &c), -ERR_INVALID);
        assert_true(has(cases[i].id, cases[i].cause, cases[i].fix));
        assert_int_equal(findings.n, 1);
        assert_string_equal(findings.items[0].subject, "claim:3:21 sharing.strategy");
    }
}

/* ---- chart values ---- */

static int check(const char *text)
{
    fresh();
    return chartvalues_check(yaml(text), "values.yaml", &arena, &findings, &err);
}

static void test_b008_half_enabled(void **state)
{
    assert_int_equal(
        check("gpuResourcesEnabledOverride: true\nresources:\n  gpus: {enabled: false}\n"
              "  computeDomains: {enabled: true}\n"),
        -ERR_INVALID);
    assert_true(has("chart.gpus-half-enabled",
                    "gpuResourcesEnabledOverride=true only lifts the chart's guard against a "
                    "device plugin on the same nodes; "
                    "resources.gpus.enabled=false switches the GPU half off: no DeviceClass "
                    "gpu.nvidia.com, no ResourceSlice of "
                    "GPUs; only compute domains would run",
                    "resources.gpus.enabled: true"));
    assert_string_equal(findings.items[0].subject, "values.yaml:3:19 resources.gpus.enabled");

    assert_int_equal(check("{}"), -ERR_INVALID); /* the chart's own defaults do not install */
    assert_true(
        has("chart.gpus-guard",
            "resources.gpus.enabled is true by default, but gpuResourcesEnabledOverride is false "
            "by default: the chart refuses to install",
            "gpuResourcesEnabledOverride: true"));
    assert_int_equal(check("gpuResourcesEnabledOverride: true"), 0);
    assert_int_equal(findings.n, 0);
    assert_int_equal(check("resources: {gpus: {enabled: false}}"), 0);
    assert_int_equal(check("resources: {gpus: {enabled: false}, computeDomains: {enabled: false}}"),
                     0);
    assert_true(has("chart.nothing-enabled", "would do nothing", ""));
    assert_int_equal(check("gpuResourcesEnabledOverride: \"false\""), -ERR_INVALID);
    assert_true(has("config.wrong-type", "found text \"false\"", "without quotes"));
}

static void test_chart_other(void **state)
{
    assert_int_equal(check("gpuResourcesEnabledOverride: true\nfeatureGates: {DynamicMIG: true, "
                           "MPSSupport: true}"),
                     -ERR_INVALID);
    assert_true(
        has("gates.exclusive", "DynamicMIG is currently mutually exclusive with MPSSupport", ""));
    assert_string_equal(findings.items[0].subject, "values.yaml:2:15 featureGates");
    assert_int_equal(check("gpuResourcesEnabledOverride: true\nnamespace: x\n"), -ERR_INVALID);
    assert_true(has("chart.refused-key", "refuses", "--namespace"));
    assert_int_equal(check("gpuResourcesEnabledOverride: true\nnamespace: \"\"\nanything: [1]\n"),
                     0);
    assert_int_equal(check("[]"), -ERR_INVALID);
}

static void test_memory(void **state)
{
    for (uint64_t k = 1;; k++) {
        struct gpu_config c;
        struct feature_gates g;
        fresh();
        featuregates_defaults(&g);
        g.on[GATE_MPS_SUPPORT] = true;
        struct value *v = yaml(HEAD "x: 1\nsharing: {strategy: MPS, mpsConfig: "
                                    "{defaultPerDevicePinnedMemoryLimit: {a: 1Gi}}}");
        struct arena small;
        arena_init(&small, 100000);
        struct findings f;
        findings_init(&f, &small, 10);
        mem_fail_at(k);
        int r = gpuconfig_decode(v, "claim", &g, &small, &f, &c, &err);
        uint64_t calls = mem_fail_at(0);
        arena_done(&small);
        assert_true(r == -ERR_INVALID || r == -ERR_LIMIT);
        if (calls < k)
            return;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gates),
        { "B-007 gates that exclude or need each other", test_b007_gates, NULL, NULL, NULL },
        cmocka_unit_test(test_gpuconfig),
        cmocka_unit_test(test_gpuconfig_faults),
        { "B-009 unknown, wrong letter case, switched off", test_b009_three_answers, NULL, NULL,
          NULL },
        { "B-008 GPU publishing half enabled", test_b008_half_enabled, NULL, NULL, NULL },
        cmocka_unit_test(test_chart_other),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
