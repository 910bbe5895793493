/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin config: what loads and to what, and what each fault says. Tests named after a number
 * cover that public bug report. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "spec/pluginconfig.h"

static const struct opt table[] = { PLUGINCONFIG_OPTIONS, { 0 } };

/* One loading and everything it left behind. */
struct run {
    struct opts o;
    struct arena arena;
    struct findings findings;
    struct plugin_config *c;
    int r;
    struct error e;
};

static void run_done(struct run *t)
{
    pluginconfig_free(t->c);
    arena_done(&t->arena);
    opts_done(&t->o);
}
#define auto_run __attribute__((cleanup(run_done))) struct run

enum { WORDS_MAX = 6 };

/* `file`: text of the config file, NULL: none. args, env: up to WORDS_MAX words, NULL-terminated.
 */
static void load(struct run *t, const char *file, const char *const *args, const char *const *env)
{
    char *argv[WORDS_MAX + 3] = { NULL }, *envp[WORDS_MAX + 1] = { NULL };
    static char copies[2 * WORDS_MAX + 2][300];
    size_t n = 0, e = 0;
    int argc = 0;
    argv[argc++] = copies[n++];
    for (; args && *args; args++) {
        snprintf(copies[n], sizeof copies[n], "%s", *args);
        argv[argc++] = copies[n++];
    }
    for (; env && *env; env++) {
        snprintf(copies[n], sizeof copies[n], "%s", *env);
        envp[e++] = copies[n++];
    }
    *t = (struct run){ .r = 0 };
    arena_init(&t->arena, 4 * 1024 * 1024);
    findings_init(&t->findings, &t->arena, 200);
    if (opts_parse(&t->o, table, argc, argv, envp, 0, &t->e) < 0)
        fail_msg("options: %s", t->e.text);
    struct str text = str_of(file);
    t->r = pluginconfig_load(&t->o, file ? &text : NULL, envp, &t->findings, &t->c, &t->e);
}

static void load_ok(struct run *t, const char *file, const char *const *args,
                    const char *const *env)
{
    load(t, file, args, env);
    if (t->r < 0)
        fail_msg("%s\nof\n%s", t->e.text, file ? file : "");
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* True when one finding has all three parts. */
static bool has(const struct run *t, const char *id, enum severity severity, const char *subject,
                const char *cause, const char *fix)
{
    for (size_t i = 0; i < t->findings.n; i++) {
        const struct finding *f = &t->findings.items[i];
        if (strcmp(f->id, id) == 0 && f->severity == severity && strstr(f->subject, subject) &&
            strstr(f->cause, cause) && strstr(f->fix, fix))
            return true;
    }
    return false;
}

static void dump(const struct run *t)
{
    for (size_t i = 0; i < t->findings.n; i++) {
        const struct finding *f = &t->findings.items[i];
        print_message("%s: %s [%s] %s; %s\n", f->subject, severity_name(f->severity), f->id,
                      f->cause, f->fix);
    }
}

static void must_have(const struct run *t, const char *id, enum severity severity,
                      const char *subject, const char *cause, const char *fix)
{
    if (has(t, id, severity, subject, cause, fix))
        return;
    dump(t);
    fail_msg("no %s %s at \"%s\" with \"%s\" and \"%s\"", severity_name(severity), id, subject,
             cause, fix);
}

static size_t errors(const struct run *t)
{
    return findings_count(&t->findings, SEVERITY_ERROR);
}

/* ---- what loads ---- */

static void test_defaults(void **state)
{
    static const char *const empty[] = { NULL,
                                         "",
                                         "version: v1\n",
                                         "version: \"\"\n",
                                         "version:\n",
                                         "{}",
                                         "flags:\n",
                                         "flags: {plugin: , gfd: }\nresources:\nsharing:\nimex:\n",
                                         "# nothing\n" };
    for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
        auto_run t;
        load_ok(&t, empty[i], NULL, NULL);
        const struct plugin_config *c = t.c;
        assert_int_equal(t.findings.n, 0);
        assert_int_equal(c->mig_strategy, MIG_STRATEGY_NONE);
        assert_true(c->fail_on_init_error);
        assert_string_equal(c->driver_root, "/");
        assert_string_equal(c->dev_root, "/");
        assert_string_equal(c->driver_root_ctr_path, "/driver-root");
        assert_string_equal(c->mps_root, "");
        assert_false(c->pass_device_specs || c->gdrcopy || c->gds || c->mofed || c->imex_channel0 ||
                     c->imex_required);
        assert_int_equal(c->list_strategies, LIST_ENVVAR);
        assert_int_equal(c->id_strategy, ID_UUID);
        assert_string_equal(c->cdi_annotation_prefix, "cdi.k8s.io/");
        assert_string_equal(c->cdi_hook_path, "/usr/bin/nvidia-ctk");
        assert_int_equal(c->shared_policy, PLACE_DISTRIBUTED);
        assert_string_equal(c->discovery, "auto");
        assert_int_equal(c->sharing.kind, SHARING_NONE);
        assert_int_equal(c->n_cdi_feature_flags + c->n_cdi_disabled_hooks + c->n_gpu_patterns +
                             c->n_mig_patterns,
                         0);
        assert_true(c->gfd.sleep_interval_ns == INT64_C(60000000000));
        assert_string_equal(opts_text(&t.o, "kubelet-socket"),
                            "/var/lib/kubelet/device-plugins/kubelet.sock");
    }
}

/* Every key of the file arrives. */
static void test_every_key(void **state)
{
    static const char file[] =
        "version: v1\n"
        "flags:\n"
        "  migStrategy: single\n"
        "  failOnInitError: no\n"
        "  mpsRoot: /mps\n"
        "  nvidiaDriverRoot: /run/nvidia/driver\n"
        "  nvidiaDevRoot: /dev-root\n"
        "  gdrcopyEnabled: on\n"
        "  gdsEnabled: yes\n"
        "  mofedEnabled: true\n"
        "  useNodeFeatureAPI: false\n"
        "  deviceDiscoveryStrategy: nvml\n"
        "  plugin:\n"
        "    passDeviceSpecs: true\n"
        "    deviceListStrategy: [envvar, cdi-cri, volume-mounts, cdi-annotations]\n"
        "    deviceIDStrategy: index\n"
        "    cdiAnnotationPrefix: x.io/\n"
        "    nvidiaCTKPath: /hook\n"
        "    containerDriverRoot: /d\n"
        "    sharedDevicesAllocationPolicy: packed\n"
        "  gfd: {oneshot: true, noTimestamp: true, sleepInterval: 30000000000, outputFile: \"\", "
        "machineTypeFile: /m}\n"
        "resources:\n"
        "  gpus: [{pattern: \"*H100*\", name: gpu-large}]\n"
        "  mig: [{pattern: \"1g.*\", name: nvidia.com/mig-small}]\n"
        "sharing:\n"
        "  requireDistinct: true\n"
        "  timeSlicing:\n"
        "    failRequestsGreaterThanOne: true\n"
        "    renameByDefault: true\n"
        "    resources: [{name: gpu-large, rename: x, devices: 2, replicas: 3}]\n"
        "imex: {channelIDs: [0], required: true}\n";
    auto_run t;
    load_ok(&t, file, NULL, NULL);
    const struct plugin_config *c = t.c;
    assert_int_equal(t.findings.n, 0);
    assert_int_equal(c->mig_strategy, MIG_STRATEGY_SINGLE);
    assert_false(c->fail_on_init_error);
    assert_string_equal(c->mps_root, "/mps");
    assert_string_equal(c->driver_root, "/run/nvidia/driver");
    assert_string_equal(c->dev_root, "/dev-root");
    assert_true(c->gdrcopy && c->gds && c->mofed && c->pass_device_specs && c->imex_channel0 &&
                c->imex_required);
    assert_false(c->gfd.use_node_feature_api);
    assert_string_equal(c->discovery, "nvml");
    assert_int_equal(c->list_strategies,
                     LIST_ENVVAR | LIST_CDI_CRI | LIST_VOLUME_MOUNTS | LIST_CDI_ANNOTATIONS);
    assert_int_equal(c->id_strategy, ID_INDEX);
    assert_string_equal(c->cdi_annotation_prefix, "x.io/");
    assert_string_equal(c->cdi_hook_path, "/hook");
    assert_string_equal(c->driver_root_ctr_path, "/d");
    assert_int_equal(c->shared_policy, PLACE_PACKED);
    assert_true(c->gfd.oneshot && c->gfd.no_timestamp);
    assert_true(c->gfd.sleep_interval_ns == INT64_C(30000000000));
    assert_string_equal(c->gfd.output_file, "");
    assert_string_equal(c->gfd.machine_type_file, "/m");
    assert_int_equal(c->n_gpu_patterns, 1);
    assert_string_equal(c->gpu_patterns[0].pattern, "*H100*");
    assert_string_equal(c->gpu_patterns[0].name, "nvidia.com/gpu-large");
    assert_int_equal(c->gpu_patterns[0].line, 23);
    assert_string_equal(c->mig_patterns[0].name, "nvidia.com/mig-small");
    assert_true(c->require_distinct);
    assert_int_equal(c->sharing.kind, SHARING_TIME_SLICING);
    assert_true(c->sharing.rename_by_default && c->sharing.fail_requests_greater_than_one);
    const struct shared_resource *s = c->sharing.resources;
    assert_string_equal(s->name, "nvidia.com/gpu-large");
    assert_string_equal(s->rename, "nvidia.com/x");
    assert_true(!s->all && s->count == 2 && s->replicas == 3);
    assert_string_equal(c->source, "config");
}

/* The recorded configs of the peer, and the runbook's: same meaning, nothing to complain about. */
static void test_recorded(void **state)
{
    static const struct {
        const char *file;
        enum sharing_kind kind;
        bool rename, fail_more;
        uint32_t replicas;
    } cases[] = {
        { "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n     "
          " replicas: 4\n",
          SHARING_TIME_SLICING, false, false, 4 },
        { "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n     "
          " replicas: 10\n",
          SHARING_TIME_SLICING, false, false, 10 },
        { "version: v1\nsharing:\n  timeSlicing:\n    failRequestsGreaterThanOne: true\n    "
          "resources:\n"
          "    - name: nvidia.com/gpu\n      replicas: 4\n",
          SHARING_TIME_SLICING, false, true, 4 },
        { "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    resources:\n"
          "    - name: nvidia.com/gpu\n      replicas: 4\n",
          SHARING_TIME_SLICING, true, false, 4 },
        { "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      "
          "replicas: 4\n",
          SHARING_MPS, false, true, 4 },
        { "# Fragment of device-plugin configuration, not a Kubernetes resource.\nversion: "
          "v1\nsharing:\n  timeSlicing:\n"
          "    renameByDefault: true\n    failRequestsGreaterThanOne: true\n    resources:\n      "
          "- name: nvidia.com/gpu\n"
          "        replicas: 4\n",
          SHARING_TIME_SLICING, true, true, 4 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_run t;
        load_ok(&t, cases[i].file, WORDS("--mps-root=/run/nvidia/mps"), NULL);
        assert_int_equal(t.findings.n, 0);
        const struct sharing *s = &t.c->sharing;
        assert_int_equal(s->kind, cases[i].kind);
        assert_int_equal(s->rename_by_default, cases[i].rename);
        assert_int_equal(s->fail_requests_greater_than_one, cases[i].fail_more);
        assert_int_equal(s->n_resources, 1);
        assert_string_equal(s->resources[0].name, "nvidia.com/gpu");
        assert_null(s->resources[0].rename);
        assert_true(s->resources[0].all);
        assert_int_equal(s->resources[0].replicas, cases[i].replicas);
    }
}

/* The GPU operator's environment, the most common way to run the peer. */
static void test_operator_env(void **state)
{
    auto_run t;
    load_ok(&t, NULL, NULL,
            WORDS("PASS_DEVICE_SPECS=true", "FAIL_ON_INIT_ERROR=true",
                  "DEVICE_LIST_STRATEGY=cdi-annotations,cdi-cri", "NVIDIA_CTK_PATH=/ctk",
                  "NVIDIA_DRIVER_ROOT=/run/nvidia/driver", "MPS_ROOT=/run/nvidia/mps"));
    assert_true(t.c->pass_device_specs);
    assert_int_equal(t.c->list_strategies, LIST_CDI_ANNOTATIONS | LIST_CDI_CRI);
    assert_string_equal(t.c->cdi_hook_path, "/ctk");
    assert_string_equal(t.c->driver_root, "/run/nvidia/driver");
    assert_string_equal(t.c->dev_root, "/run/nvidia/driver"); /* follows the driver root */
}

/* ---- precedence ---- */

static void test_precedence(void **state)
{
    static const char file[] =
        "flags: {migStrategy: single, failOnInitError: false, nvidiaDriverRoot: /file, "
        "plugin: {deviceListStrategy: cdi-cri, passDeviceSpecs: true}}\nimex: {channelIDs: [0]}\n";
    static const struct {
        const char *args[WORDS_MAX], *env[WORDS_MAX];
        enum mig_strategy mig;
        bool fail_on_init, specs, imex;
        const char *root;
        uint32_t lists;
    } cases[] = {
        { { NULL }, { NULL }, MIG_STRATEGY_SINGLE, false, true, true, "/file", LIST_CDI_CRI },
        { { NULL },
          { "MIG_STRATEGY=mixed", "FAIL_ON_INIT_ERROR=1", "PASS_DEVICE_SPECS=f",
            "NVIDIA_DRIVER_ROOT=/env", "DEVICE_LIST_STRATEGY=envvar" },
          MIG_STRATEGY_MIXED,
          true,
          false,
          true,
          "/env",
          LIST_ENVVAR },
        { { "--mig-strategy=none", "--fail-on-init-error=false", "--pass-device-specs",
            "--nvidia-driver-root=/flag", "--device-list-strategy=volume-mounts" },
          { "MIG_STRATEGY=mixed", "FAIL_ON_INIT_ERROR=1", "PASS_DEVICE_SPECS=f",
            "NVIDIA_DRIVER_ROOT=/env", "DEVICE_LIST_STRATEGY=envvar" },
          MIG_STRATEGY_NONE,
          false,
          true,
          true,
          "/flag",
          LIST_VOLUME_MOUNTS },
        /* set to the empty text: a bool is then false, a path has its default, whatever the file
           says */
        { { NULL },
          { "PASS_DEVICE_SPECS=", "NVIDIA_DRIVER_ROOT=" },
          MIG_STRATEGY_SINGLE,
          false,
          false,
          true,
          "/",
          LIST_CDI_CRI },
        { { "--driver-root=", "--imex-channel-ids=0" },
          { NULL },
          MIG_STRATEGY_SINGLE,
          false,
          true,
          true,
          "/",
          LIST_CDI_CRI },
        { { "--device-list-strategy=envvar", "--device-list-strategy=cdi-cri" },
          { NULL },
          MIG_STRATEGY_SINGLE,
          false,
          true,
          true,
          "/file",
          LIST_ENVVAR | LIST_CDI_CRI },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_run t;
        load_ok(&t, file, cases[i].args, cases[i].env);
        const struct plugin_config *c = t.c;
        bool same =
            c->mig_strategy == cases[i].mig && c->fail_on_init_error == cases[i].fail_on_init &&
            c->pass_device_specs == cases[i].specs && c->imex_channel0 == cases[i].imex &&
            strcmp(c->driver_root, cases[i].root) == 0 && c->list_strategies == cases[i].lists;
        if (!same)
            fail_msg("case %zu", i);
    }
}

static void test_set_to_empty(void **state)
{
    static const struct {
        const char *env, *subject;
    } cases[] = {
        { "MIG_STRATEGY=", "env MIG_STRATEGY" },
        { "DEVICE_LIST_STRATEGY=", "env DEVICE_LIST_STRATEGY" },
        { "DEVICE_ID_STRATEGY=", "env DEVICE_ID_STRATEGY" },
        { "DEVICE_DISCOVERY_STRATEGY=", "env DEVICE_DISCOVERY_STRATEGY" },
        { "SHARED_DEVICES_ALLOCATION_POLICY=", "env SHARED_DEVICES_ALLOCATION_POLICY" },
        { "IMEX_CHANNEL_IDS=", "env IMEX_CHANNEL_IDS" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_run t;
        load(&t, NULL, NULL, WORDS(cases[i].env));
        assert_int_equal(t.r, -ERR_INVALID);
        assert_null(t.c);
        must_have(&t, "config.invalid-value", SEVERITY_ERROR, cases[i].subject, "", "");
        assert_non_null(strstr(t.e.text, cases[i].subject));
    }
    auto_run t;
    load_ok(&t, NULL, NULL,
            WORDS("FAIL_ON_INIT_ERROR=", "NVIDIA_DEV_ROOT=", "MPS_ROOT=", "CDI_ANNOTATION_PREFIX=",
                  "CDI_FEATURE_FLAGS=", "CDI_DISABLE_HOOKS="));
    assert_false(t.c->fail_on_init_error); /* its default is true */
    assert_string_equal(t.c->cdi_annotation_prefix, "");
    assert_int_equal(t.c->n_cdi_feature_flags + t.c->n_cdi_disabled_hooks, 0);
    assert_int_equal(t.findings.n, 0);
}

/* A word of the file that is overridden is not in force: said, not refused. */
static void test_overridden_slip(void **state)
{
    auto_run t;
    load_ok(&t, "flags: {migStrategy: singel}", WORDS("--mig-strategy=none"), NULL);
    must_have(&t, "config.invalid-value", SEVERITY_WARNING, "config:1:22 flags.migStrategy",
              "found text \"singel\"; allowed: none, single, mixed; not in force because it is set "
              "by flag --mig-strategy",
              "did you mean \"single\"?");
}

/* ---- one fault each ---- */

static void test_faults(void **state)
{
    static const struct {
        const char *file, *id, *subject, *cause, *fix;
    } cases[] = {
        { "version: v2", "config.version", "config:1:10 version",
          "unknown version: v2; allowed: v1", "v1" },
        { "version: 1", "config.wrong-type", "config:1:10 version", "found the number 1", "v1" },
        { "[]", "config.wrong-type", "config:1:1", "found a list; expected a map", "" },
        { "hello", "config.wrong-type", "config:1:1", "found text \"hello\"", "" },
        { "a: [", "config.syntax", "config:", "no valid YAML", "" },
        { "versoin: v1", "config.unknown-key", "config:1:1 versoin",
          "unknown key \"versoin\"; allowed at the top level: version, resources, sharing, flags, "
          "imex",
          "did you mean \"version\"?" },
        { "Version: v1", "config.unknown-key", "config:1:1 Version", "unknown key",
          "did you mean \"version\"? Keys are" },
        { "migStrategy: none", "config.unknown-key", "config:1:1 migStrategy", "unknown key",
          "it belongs inside flags" },
        { "flags: {deviceIDStrategy: uuid}", "config.unknown-key",
          "config:1:9 flags.deviceIDStrategy",
          "allowed in flags:", "it belongs inside flags.plugin" },
        { "flags: {plugin: {deviceIdStrategy: uuid}}", "config.unknown-key",
          "flags.plugin.deviceIdStrategy", "", "did you mean \"deviceIDStrategy\"? Keys are" },
        { "flags: {plugin.passDeviceSpecs: true}", "config.unknown-key", "config:1:9",
          "unknown key", "" },
        { "\"version\\0x\": v1", "config.unknown-key", "config:1:1", "unknown key", "" },
        { "flags: 3", "config.wrong-type", "config:1:8 flags", "found the number 3; expected a map",
          "indentation" },
        { "flags: {migStrategy: true}", "config.wrong-type", "flags.migStrategy",
          "found the boolean true; expected text", "put it in quotes" },
        { "flags: {migStrategy: Mixed}", "config.invalid-value", "config:1:22 flags.migStrategy",
          "found text \"Mixed\"; allowed: none, single, mixed", "did you mean \"mixed\"?" },
        { "flags: {failOnInitError: \"true\"}", "config.wrong-type", "flags.failOnInitError",
          "found text \"true\"; expected true or false", "without quotes" },
        { "flags: {failOnInitError: 1}", "config.wrong-type", "flags.failOnInitError",
          "found the number 1", "" },
        { "flags: {plugin: {deviceListStrategy: \"envvar,cdi-cri\"}}", "config.invalid-value",
          "flags.plugin.deviceListStrategy",
          "allowed: envvar, volume-mounts, cdi-annotations, cdi-cri", "as a list" },
        { "flags: {plugin: {deviceListStrategy: [envvar, cdi]}}", "config.invalid-value",
          "config:1:47", "found text \"cdi\"", "" },
        { "flags: {plugin: {deviceListStrategy: []}}", "config.invalid-value",
          "flags.plugin.deviceListStrategy", "empty", "at least one" },
        { "flags: {plugin: {deviceListStrategy: 1}}", "config.wrong-type",
          "flags.plugin.deviceListStrategy", "found the number 1; expected a list", "" },
        { "flags: {plugin: {deviceListStrategy: [[envvar]]}}", "config.wrong-type",
          "deviceListStrategy[0]", "found a list", "" },
        { "flags: {nvidiaDriverRoot: run/nvidia}", "config.invalid-value",
          "config:1:9 flags.nvidiaDriverRoot", "\"run/nvidia\" is not an absolute path",
          "from \"/\" on" },
        { "flags: {gfd: {sleepInterval: 5}}", NULL, "", "", "" },
        { "flags: {gfd: {sleepInterval: 5x}}", "config.invalid-value", "flags.gfd.sleepInterval",
          "\"5x\" is no duration", "" },
        { "flags: {gfd: {sleepInterval: infinite}}", NULL, "", "", "" },
        { "flags: {gfd: {oneShot: true}}", "config.unknown-key", "flags.gfd.oneShot", "",
          "did you mean \"oneshot\"" },
        { "imex: {channelIDs: [1]}", "config.invalid-value", "imex.channelIDs",
          "found [1]; allowed: [] (no channel) or [0]", "" },
        { "imex: {channelIDs: [0, 0]}", "config.invalid-value", "imex.channelIDs", "found [0,0]",
          "" },
        { "imex: {channelIDs: []}", NULL, "", "", "" },
        { "imex: {channelIDs: 0}", "config.wrong-type", "imex.channelIDs", "expected a list", "" },
        { "imex: {channelIds: [0]}", "config.unknown-key", "imex.channelIds", "",
          "did you mean \"channelIDs\"" },
        { "resources: {gpus: [{pattern: x}]}", "config.missing-key",
          "config:1:20 resources.gpus[0]", "\"name\" is missing", "" },
        { "resources: {gpus: [{name: x}]}", "config.missing-key", "resources.gpus[0]",
          "\"pattern\" is missing", "" },
        { "resources: {gpus: [{pattern: \"\", name: x}]}", "config.pattern", "resources.gpus[0]",
          "empty", "\"*\"" },
        { "resources: {gpus: {pattern: x, name: x}}", "config.wrong-type", "resources.gpus",
          "found a map; expected a list", "" },
        { "resources: {gpu: []}", "config.unknown-key", "resources.gpu",
          "allowed in resources: gpus, mig", "did you mean \"gpus\"?" },
        { "resources: {mig: [{pattern: x, name: Mig-Small}]}", "config.resource-name",
          "resources.mig[0].name", "\"Mig-Small\" is not allowed; allowed: lower-case", "" },
        { "sharing: {timeSlicing: {renameByDefault: true}}", "config.missing-key",
          "sharing.timeSlicing", "no resources specified", "at least one" },
        { "sharing: {timeSlicing: {resources: []}}", "config.missing-key", "sharing.timeSlicing",
          "no resources specified", "" },
        { "sharing: {mps: {}}", "config.missing-key", "sharing.mps", "no resources specified", "" },
        { "sharing: {mps: }", NULL, "", "", "" },
        { "sharing: {mps: x}", "config.wrong-type", "sharing.mps", "found text \"x\"", "" },
        { "sharing: {requireDistinct: maybe}", "config.wrong-type", "sharing.requireDistinct",
          "expected true or false", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_run t;
        load(&t, cases[i].file, NULL, NULL);
        if (!cases[i].id) {
            if (t.r < 0 || t.findings.n)
                fail_msg("%s: %s", cases[i].file, t.e.text);
            continue;
        }
        if (t.r != -ERR_INVALID || t.c || errors(&t) != 1) {
            dump(&t);
            fail_msg("%s: %d, %zu errors", cases[i].file, t.r, errors(&t));
        }
        must_have(&t, cases[i].id, SEVERITY_ERROR, cases[i].subject, cases[i].cause, cases[i].fix);
        assert_non_null(
            strstr(t.e.text, cases[i].subject)); /* the returned error names the place too */
    }
}

/* An entry of sharing.timeSlicing.resources: one fault each. */
static void test_entry_faults(void **state)
{
    static const struct {
        const char *entry, *id, *path, *cause, *fix;
    } cases[] = {
        { "{name: nvidia.com/gpu, replicas: 2}", NULL, "", "", "" },
        { "{name: gpu, replicas: 16384, devices: all}", NULL, "", "", "" },
        { "{name: gpu, replicas: 2, devices: , rename: }", NULL, "", "", "" },
        { "{name: gpu, replicas: 2, devices: [0, \"1\", \"2:3\", "
          "GPU-01000100-0000-0000-0000-000000000000, MIG-01000100-0000-0000-0000-000000000000, "
          "MIG-GPU-01000100-0000-0000-0000-000000000000/1/0]}",
          NULL, "", "", "" },
        { "{name: gpu}", "config.missing-key", "resources[0]", "\"replicas\" is missing",
          "shares" },
        { "{replicas: 2}", "config.missing-key", "resources[0]", "\"name\" is missing",
          "nvidia.com/gpu" },
        { "{name: gpu, replica: 2, replicas: 2}", "config.unknown-key", "resources[0].replica",
          "allowed in sharing.timeSlicing.resources[0]: name, rename, devices, replicas",
          "did you mean \"replicas\"?" },
        { "gpu", "config.wrong-type", "resources[0]", "found text \"gpu\"; expected a map", "" },
        { "{name: gpu, replicas: 0}", "config.replicas", "resources[0].replicas", "found 0;",
          "leave the entry out" },
        { "{name: gpu, replicas: -1}", "config.replicas", "resources[0].replicas", "found -1;",
          "leave the entry out" },
        { "{name: gpu, replicas: 2.0}", "config.wrong-type", "resources[0].replicas",
          "found the number 2.0", "" },
        { "{name: gpu, replicas: \"2\"}", "config.wrong-type", "resources[0].replicas",
          "found text \"2\"", "without quotes" },
        { "{name: gpu, replicas: }", "config.wrong-type", "resources[0].replicas", "found nothing",
          "" },
        { "{name: gpu, replicas: 99999999999999999999}", "config.wrong-type",
          "resources[0].replicas", "found the number 99999999999999999999", "" },
        { "{name: amd.com/gpu, replicas: 2}", "config.resource-name", "resources[0].name",
          "another domain", "nvidia.com/" },
        { "{name: nvidia.com/, replicas: 2}", "config.resource-name", "resources[0].name", "empty",
          "" },
        { "{name: nvidia.com/a/b, replicas: 2}", "config.resource-name", "resources[0].name",
          "\"a/b\" is not allowed", "" },
        { "{name: 7, replicas: 2}", "config.wrong-type", "resources[0].name", "found the number 7",
          "quotes" },
        { "{name: gpu, rename: x_y, replicas: 2}", "config.resource-name", "resources[0].rename",
          "\"x_y\"", "" },
        { "{name: gpu, replicas: 2, devices: some}", "config.devices", "resources[0].devices",
          "found text \"some\"", "put it in a list" },
        { "{name: gpu, replicas: 2, devices: \"0\"}", "config.devices", "resources[0].devices",
          "found text \"0\"", "put it in a list" },
        { "{name: gpu, replicas: 2, devices: 0}", "config.devices", "resources[0].devices",
          "found the number 0", "" },
        { "{name: gpu, replicas: 2, devices: 2.0}", "config.devices", "resources[0].devices",
          "found the number 2.0", "" },
        { "{name: gpu, replicas: 2, devices: []}", "config.devices", "resources[0].devices",
          "list of 0 devices", "all" },
        { "{name: gpu, replicas: 2, devices: [-1]}", "config.devices", "devices[0]",
          "found the number -1", "" },
        { "{name: gpu, replicas: 2, devices: [0.0]}", "config.devices", "devices[0]",
          "found the number 0.0", "" },
        { "{name: gpu, replicas: 2, devices: [\"1:\"]}", "config.devices", "devices[0]",
          "found text \"1:\"", "" },
        { "{name: gpu, replicas: 2, devices: [\"1:2:3\"]}", "config.devices", "devices[0]", "1:2:3",
          "" },
        { "{name: gpu, replicas: 2, devices: [GPU-0]}", "config.devices", "devices[0]", "GPU-0",
          "full UUID" },
        { "{name: gpu, replicas: 2, devices: [GPU-01000100-0000-0000-0000-000000000000x]}",
          "config.devices", "devices[0]", "", "" },
        { "{name: gpu, replicas: 2, devices: [MIG-GPU-01000100-0000-0000-0000-000000000000/1]}",
          "config.devices", "devices[0]", "", "" },
        { "{name: gpu, replicas: 2, devices: [0, 0]}", "config.device-twice", "devices[1]",
          "device 0 is listed", "" },
        { "{name: gpu, replicas: 2, devices: [0, \"0\"]}", "config.device-twice", "devices[1]",
          "device 0 is listed", "" },
        { "{name: gpu, replicas: 2, devices: [\"1:2\", \"1:2\"]}", "config.device-twice",
          "devices[1]", "device 1:2", "" },
        { "{name: gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 3}", "config.device-twice",
          "resources[1]",
          "some devices of nvidia.com/gpu, which sharing.timeSlicing.resources[0] (line 1)", "" },
        { "{name: gpu, devices: 2, replicas: 2}, {name: gpu, devices: [3, 1], replicas: 3}",
          "config.device-twice", "resources[1]", "device 1 of nvidia.com/gpu", "" },
        { "{name: gpu, devices: 2, replicas: 2}, {name: gpu, devices: [3, 2], replicas: 3}", NULL,
          "", "", "" },
        { "{name: gpu, devices: [0], replicas: 2}, {name: mig-1g.5gb, devices: [0], replicas: 3}",
          NULL, "", "", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *file =
            x_printf("sharing: {timeSlicing: {resources: [%s]}}", cases[i].entry);
        auto_run t;
        load(&t, file, NULL, NULL);
        if (!cases[i].id) {
            if (t.r < 0 || t.findings.n)
                fail_msg("%s: %s", cases[i].entry, t.e.text);
            continue;
        }
        if (t.r != -ERR_INVALID || errors(&t) != 1) {
            dump(&t);
            fail_msg("%s: %d, %zu errors", cases[i].entry, t.r, errors(&t));
        }
        must_have(&t, cases[i].id, SEVERITY_ERROR, cases[i].path, cases[i].cause, cases[i].fix);
    }
}

/* All faults of one file come in one run, each with its place; nothing of the file is in force
 * then. */
static void test_all_at_once(void **state)
{
    auto_run t;
    load(&t,
         "version: v3\nflags:\n  migStrategy: x\n  typo: 1\nsharing:\n  timeSlicing:\n    "
         "resources:\n    - name: gpu\n"
         "      replicas: 0\n    - name: gpu2\n      replicas: many\nimex: {required: maybe}\n",
         NULL, WORDS("DP_DISABLE_HEALTHCHECKS=nvlink", "DEVICE_ID_STRATEGY=serial"));
    assert_int_equal(t.r, -ERR_INVALID);
    assert_null(t.c);
    assert_int_equal(errors(&t), 8);
    must_have(&t, "config.replicas", SEVERITY_ERROR,
              "config:9:17 sharing.timeSlicing.resources[0].replicas", "", "");
    must_have(&t, "config.wrong-type", SEVERITY_ERROR,
              "config:11:17 sharing.timeSlicing.resources[1].replicas", "", "");
    must_have(&t, "config.unknown-key", SEVERITY_ERROR, "config:4:3 flags.typo", "", "");
    must_have(&t, "config.invalid-value", SEVERITY_ERROR, "env DEVICE_ID_STRATEGY", "\"serial\"",
              "");
    assert_non_null(strstr(t.e.text, "config:1:10 version: unknown version: v3"));
    assert_non_null(strstr(t.e.text, "(and 7 more)"));
}

static void test_file_errors(void **state)
{
    char name[] = "/tmp/mete-test-pluginconfig.XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    auto_free char *flag = x_printf("--config-file=%s", name);
    {
        auto_run t;
        assert_int_equal(write(fd, "flags: {x: 1}", 13), 13);
        load(&t, NULL, WORDS(flag), NULL);
        auto_free char *subject = x_printf("%s:1:9 flags.x", name);
        must_have(&t, "config.unknown-key", SEVERITY_ERROR, subject, "", "");
    }
    {
        auto_run t;
        assert_int_equal(ftruncate(fd, CONFIG_FILE_MAX + 1), 0);
        load(&t, NULL, WORDS(flag), NULL);
        must_have(&t, "config.unreadable", SEVERITY_ERROR, name, "at most", "");
    }
    {
        auto_run t;
        unlink(name);
        load(&t, NULL, WORDS(flag), NULL);
        assert_int_equal(t.r, -ERR_INVALID);
        must_have(&t, "config.unreadable", SEVERITY_ERROR, name, "No such file", "CONFIG_FILE");
    }
    close(fd);
}

/* ---- words that only name parts of CDI files ---- */

static void test_cdi_words(void **state)
{
    auto_run t;
    load_ok(&t, NULL,
            WORDS("--cdi-feature-flags=disable-nvsandboxutils,from-the-future",
                  "--cdi-disable-hooks=all"),
            NULL);
    assert_int_equal(t.c->n_cdi_feature_flags, 2);
    assert_string_equal(t.c->cdi_disabled_hooks[0], "all");
    must_have(&t, "config.unknown-word", SEVERITY_WARNING, "flag --cdi-feature-flags",
              "\"from-the-future\"", "no effect");
}

/* ---- bug reports ---- */

static void test_b002_tabs_and_indentation(void **state)
{
    auto_run a, b, c;
    load(&a,
         "version: v1\nsharing:\n\ttimeSlicing:\n\t\tresources:\n\t\t- name: nvidia.com/gpu\n\t\t  "
         "replicas: 10\n",
         NULL, NULL);
    assert_int_equal(a.r, -ERR_INVALID);
    must_have(&a, "config.syntax", SEVERITY_ERROR, "config:3:1", "a tab is not allowed here", "");

    load(&b,
         "version: v1\nsharing:\n  timeSlicing:\n  resources:\n  - name: nvidia.com/gpu\n    "
         "replicas: 10\n",
         NULL, NULL);
    assert_int_equal(b.r, -ERR_INVALID);
    assert_int_equal(errors(&b), 1);
    must_have(&b, "config.unknown-key", SEVERITY_ERROR, "config:4:3 sharing.resources",
              "unknown key \"resources\"", "it belongs inside sharing.timeSlicing or sharing.mps");
    must_have(&b, "config.shares-nothing", SEVERITY_WARNING, "sharing.timeSlicing",
              "nothing is shared", "");

    load_ok(&c, "sharing: {timeSlicing: {}}", NULL, NULL);
    must_have(&c, "config.shares-nothing", SEVERITY_WARNING, "sharing.timeSlicing",
              "nothing is shared", "");
    assert_int_equal(c.c->sharing.kind, SHARING_NONE);
}

static void test_b003_one_replica(void **state)
{
    auto_run t;
    load_ok(&t,
            "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, "
            "replicas: 1}]}}",
            NULL, NULL);
    must_have(&t, "config.not-shared", SEVERITY_INFO, "sharing.timeSlicing.resources[0]",
              "not shared: the devices are handed out whole, as nvidia.com/gpu",
              "leaving the entry out");
    assert_int_equal(t.c->sharing.kind, SHARING_NONE);
}

static void test_b004_config_in_environment(void **state)
{
    auto_run t;
    load_ok(&t, NULL, NULL,
            WORDS("any=version: v1\nsharing:\n  timeSlicing:\n    resources: []\n", "HOME=/root",
                  "X=version: v1", "Y"));
    must_have(&t, "config.in-environment", SEVERITY_WARNING, "env any", "has no effect",
              "mount the ConfigMap as a file");
    assert_int_equal(t.findings.n, 1);
    /* and what is in force, and why, is printed */
    auto_run u;
    load_ok(&u, "flags: {migStrategy: mixed}", WORDS("--dev-root=/x"), WORDS("GDS_ENABLED=1"));
    auto_buf b;
    buf_init(&b, 100000);
    pluginconfig_print(u.c, &b);
    assert_non_null(strstr(b.p, "\"source\": \"config\""));
    assert_non_null(strstr(b.p, "\"flags.migStrategy\": \"config:1:9 flags.migStrategy\""));
    assert_non_null(strstr(b.p, "\"flags.nvidiaDevRoot\": \"flag --dev-root\""));
    assert_non_null(strstr(b.p, "\"flags.gdsEnabled\": \"env GDS_ENABLED\""));
    assert_non_null(strstr(b.p, "\"flags.mofedEnabled\": \"default\""));
}

static void test_b005_mps_without_root(void **state)
{
    static const char file[] = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}";
    auto_run t, u, v;
    load(&t, file, NULL, NULL);
    assert_int_equal(t.r, -ERR_INVALID);
    must_have(&t, "config.mps-root", SEVERITY_ERROR, "sharing.mps",
              "using MPS requires --mps-root to be specified",
              "set flags.mpsRoot in the config file, --mps-root or MPS_ROOT (usually "
              "/run/nvidia/mps) and mount that path");
    load_ok(&u, file, NULL, WORDS("MPS_ROOT=/run/nvidia/mps"));
    assert_int_equal(u.c->sharing.kind, SHARING_MPS);
    assert_true(u.c->sharing.fail_requests_greater_than_one); /* MPS: on unless said otherwise */
    load(&v, file, WORDS("--mig-strategy=mixed", "--mps-root=/m"), NULL);
    must_have(&v, "config.mps-mixed", SEVERITY_ERROR, "flag --mig-strategy",
              "using --mig-strategy=mixed is not supported with MPS", "");
}

static void test_b011_health_words(void **state)
{
    static const struct {
        const char *value;
        size_t errors, n;
        bool all;
    } cases[] = {
        { "94", 0, 1, false },         { "94, 109", 0, 2, false },     { "all", 0, 0, true },
        { "xids", 0, 0, true },        { "94,xids", 0, 1, true },      { "94;109", 1, 0, false },
        { "none", 1, 0, false },       { "nvlink", 1, 0, false },      { "", 0, 0, false },
        { " 94 ,", 0, 1, false },      { "ALL", 0, 0, true },          { "-1", 1, 0, false },
        { "4294967296", 1, 0, false }, { "none,nvlink", 2, 0, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *off = x_printf("DP_DISABLE_HEALTHCHECKS=%s", cases[i].value);
        auto_free char *on = x_printf("DP_ENABLE_HEALTHCHECKS=%s", cases[i].value);
        auto_run t, u;
        load(&t, NULL, NULL, WORDS(off));
        load(&u, NULL, NULL, WORDS(on));
        if (errors(&t) != cases[i].errors || errors(&u) != cases[i].errors)
            fail_msg("\"%s\": %zu errors", cases[i].value, errors(&t));
        if (cases[i].errors) {
            must_have(&t, "config.health-words", SEVERITY_ERROR, "env DP_DISABLE_HEALTHCHECKS",
                      "allowed: all, xids, or XID numbers", "");
            continue;
        }
        assert_int_equal(t.c->health.disable_all, cases[i].all);
        assert_int_equal(t.c->health.n_disabled, cases[i].n);
        assert_int_equal(u.c->health.enable_all, cases[i].all);
        assert_int_equal(u.c->health.n_enabled, cases[i].n);
        bool warned = has(&t, "config.health-off", SEVERITY_WARNING, "env DP_DISABLE_HEALTHCHECKS",
                          "all health checking is off", "");
        assert_int_equal(warned, cases[i].all);
        assert_int_equal(u.findings.n, 0);
    }
    auto_run t;
    load_ok(&t, NULL, NULL, WORDS("DP_DISABLE_HEALTHCHECKS=all", "DP_ENABLE_HEALTHCHECKS=79"));
    assert_true(t.c->health.disable_all && t.c->health.n_enabled == 1 &&
                t.c->health.enabled[0] == 79);
    must_have(&t, "config.health-off", SEVERITY_WARNING, "",
              "every XID but those in DP_ENABLE_HEALTHCHECKS", "");
}

static void test_b014_plus_in_profile(void **state)
{
    auto_run t;
    load_ok(&t, "sharing: {timeSlicing: {resources: [{name: mig-1g.23gb+me, replicas: 2}]}}", NULL,
            NULL);
    assert_string_equal(t.c->sharing.resources[0].name, "nvidia.com/mig-1g.23gb.me");
    must_have(&t, "config.mig-name", SEVERITY_INFO, "resources[0].name",
              "\"mig-1g.23gb+me\" is the resource nvidia.com/mig-1g.23gb.me",
              "request it by that name");
    auto_run u;
    load_ok(&u,
            "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.23gb.me, replicas: 2}]}}",
            NULL, NULL);
    assert_string_equal(u.c->sharing.resources[0].name, "nvidia.com/mig-1g.23gb.me");
    assert_int_equal(u.findings.n, 0);
}

static void test_b015_name_with_suffix(void **state)
{
    static const struct {
        size_t length;
        bool rename, ok;
    } cases[] = { { 60, true, false },
                  { 56, true, true },
                  { 57, true, false },
                  { 63, false, true },
                  { 64, false, false } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char name[80];
        memset(name, 'a', sizeof name);
        name[cases[i].length] = '\0';
        auto_free char *file = x_printf(
            "sharing: {timeSlicing: {renameByDefault: %s, resources: [{name: %s, replicas: 2}]}}",
            cases[i].rename ? "true" : "false", name);
        auto_run t;
        load(&t, file, NULL, NULL);
        if ((t.r == 0) != cases[i].ok)
            fail_msg("case %zu: %s", i, t.e.text);
        if (!cases[i].ok) {
            auto_free char *cause =
                x_printf("%s%s", name, cases[i].rename ? ".shared, which has" : " has");
            auto_free char *length =
                x_printf("%zu characters", cases[i].length + (cases[i].rename ? 7 : 0));
            must_have(&t, "config.resource-name", SEVERITY_ERROR, "resources[0]", cause, "shorter");
            must_have(&t, "config.resource-name", SEVERITY_ERROR, "resources[0]", length, "");
            must_have(&t, "config.resource-name", SEVERITY_ERROR, "resources[0]", "63 are allowed",
                      "");
        }
    }
}

static void test_b020_devices_and_rename(void **state)
{
    auto_run t;
    load_ok(&t,
            "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [\"0\"], "
            "replicas: 2, rename: gpu-light}, "
            "{name: nvidia.com/gpu, devices: [\"1\"], replicas: 8, rename: gpu-batch}]}}",
            NULL, NULL);
    assert_int_equal(t.findings.n, 0);
    const struct shared_resource *r = t.c->sharing.resources;
    assert_int_equal(t.c->sharing.n_resources, 2);
    assert_string_equal(r[0].rename, "nvidia.com/gpu-light");
    assert_true(r[0].n_refs == 1 && r[0].refs[0].kind == REF_INDEX && r[0].refs[0].gpu == 0 &&
                r[0].replicas == 2);
    assert_string_equal(r[1].rename, "nvidia.com/gpu-batch");
    assert_true(r[1].refs[0].gpu == 1 && r[1].replicas == 8);

    auto_run u; /* one GPU in both entries */
    load(&u,
         "sharing: {timeSlicing: {resources: [{name: gpu, devices: [\"0\"], replicas: 2, rename: "
         "a}, "
         "{name: gpu, devices: [1, 0], replicas: 8, rename: b}]}}",
         NULL, NULL);
    assert_int_equal(u.r, -ERR_INVALID);
    must_have(&u, "config.device-twice", SEVERITY_ERROR, "sharing.timeSlicing.resources[1]",
              "names device 0 of nvidia.com/gpu", "different devices");
    auto_run v; /* every kind of reference is kept */
    load_ok(&v,
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [\"2:3\", "
            "MIG-01000100-0000-0000-0000-00000000000a]}]}}",
            NULL, NULL);
    r = v.c->sharing.resources;
    assert_true(r->refs[0].kind == REF_MIG_INDEX && r->refs[0].gpu == 2 && r->refs[0].slot == 3 &&
                !r->all);
    assert_int_equal(r->refs[1].kind, REF_UUID);
    assert_string_equal(r->refs[1].uuid, "MIG-01000100-0000-0000-0000-00000000000a");
    assert_int_equal(r->refs[1].line, 1);
}

static void test_both_kinds_of_sharing(void **state)
{
    auto_run t;
    load(&t,
         "sharing:\n  mps: {resources: [{name: gpu, replicas: 2}]}\n  timeSlicing: {resources: "
         "[{name: gpu, replicas: 2}]}\n",
         WORDS("--mps-root=/m"), NULL);
    assert_int_equal(errors(&t), 1);
    must_have(&t, "config.sharing-twice", SEVERITY_ERROR, "config:3:16 sharing.timeSlicing",
              "exclude each other", "keep one");
    auto_run u; /* an empty section shares nothing, so it excludes nothing */
    load_ok(&u, "sharing: {timeSlicing: , mps: {resources: [{name: gpu, replicas: 2}]}}",
            WORDS("--mps-root=/m"), NULL);
    assert_int_equal(u.c->sharing.kind, SHARING_MPS);
}

static void test_b178_replicas_limit(void **state)
{
    auto_run t;
    load(&t, "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 16385}]}}", NULL, NULL);
    assert_int_equal(t.r, -ERR_INVALID);
    must_have(&t, "config.replicas", SEVERITY_ERROR, "resources[0].replicas",
              "found 16385; at most 16384 are accepted, because kubelet takes a device list of at "
              "most 4 MiB",
              "fewer replicas");
}

/* ---- limits and memory ---- */

static void test_limits(void **state)
{
    auto_buf b;
    buf_init(&b, CONFIG_FILE_MAX);
    buf_z(&b, "sharing: {timeSlicing: {resources: [");
    for (int i = 0; i <= CONFIG_RESOURCES_MAX; i++)
        buf_fmt(&b, "{name: gpu-%d, replicas: 2},", i);
    buf_z(&b, "]}}");
    auto_run t;
    load(&t, b.p, NULL, NULL);
    must_have(&t, "config.too-many", SEVERITY_ERROR, "sharing.timeSlicing.resources",
              "found 257 entries; at most 256", "");

    /* Thousands of faults: bounded output, still an error. */
    buf_reset(&b);
    for (int i = 0; i < 5000; i++)
        buf_fmt(&b, "key%d: 1\n", i);
    auto_run u;
    load(&u, b.p, NULL, NULL);
    assert_int_equal(u.r, -ERR_INVALID);
    assert_true(u.findings.n <= 201);
    assert_string_equal(u.findings.items[200].id, "limit.findings");
    assert_int_equal(errors(&u), 5000);
}

static void test_memory(void **state)
{
    static const char file[] = "flags: {migStrategy: mixed, plugin: {deviceListStrategy: "
                               "[envvar]}, gfd: {sleepInterval: 1s}, x: 1}\n"
                               "resources: {gpus: [{pattern: x, name: y}]}\n"
                               "sharing: {timeSlicing: {resources: [{name: mig-1g.5gb+me, devices: "
                               "[0, GPU-01000100-0000-0000-0000-000000000000], "
                               "replicas: 2, rename: z}]}}\n";
    for (uint64_t k = 1;; k++) {
        auto_run t = { .r = 0 };
        mem_fail_at(0);
        arena_init(&t.arena, 4 * 1024 * 1024);
        findings_init(&t.findings, &t.arena, 200);
        char *argv[] = { (char[]){ "x" }, NULL },
             *env[] = { (char[]){ "DP_DISABLE_HEALTHCHECKS=1,2" }, NULL };
        assert_int_equal(opts_parse(&t.o, table, 1, argv, env, 0, &t.e), 0);
        struct str text = STR(file);
        mem_fail_at(k);
        t.r = pluginconfig_load(&t.o, &text, env, &t.findings, &t.c, &t.e);
        uint64_t calls = mem_fail_at(0);
        assert_null(t.c);
        assert_true(t.r == -ERR_INVALID ||
                    t.r == -ERR_LIMIT); /* the file has a fault, and that is never lost */
        if (calls < k) {
            assert_int_equal(t.r, -ERR_INVALID);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_every_key),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_operator_env),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_set_to_empty),
        cmocka_unit_test(test_overridden_slip),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_entry_faults),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_file_errors),
        cmocka_unit_test(test_cdi_words),
        { "B-002 tabs, and a section indented wrongly", test_b002_tabs_and_indentation, NULL, NULL,
          NULL },
        { "B-003 one replica means not shared", test_b003_one_replica, NULL, NULL, NULL },
        { "B-004 a config that only the environment holds", test_b004_config_in_environment, NULL,
          NULL, NULL },
        { "B-005 MPS without its root", test_b005_mps_without_root, NULL, NULL, NULL },
        { "B-011 words of the health variables", test_b011_health_words, NULL, NULL, NULL },
        { "B-014 a plus sign in a MIG profile", test_b014_plus_in_profile, NULL, NULL, NULL },
        { "B-015 a name too long with its suffix", test_b015_name_with_suffix, NULL, NULL, NULL },
        { "B-020 devices and rename are honoured", test_b020_devices_and_rename, NULL, NULL, NULL },
        cmocka_unit_test(test_both_kinds_of_sharing),
        { "B-178 more replicas than kubelet can list", test_b178_replicas_limit, NULL, NULL, NULL },
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
