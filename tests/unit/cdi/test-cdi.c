/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "../../golden/fixture.h"
#include "base/mem.h"
#include "cdi/cdi.h"
#include "data/json.h"

enum { ARENA = 1024 * 1024 };

static const char kind_gpu[] = "k8s.device-plugin.nvidia.com/gpu";

static struct plugin_config config_of(enum id_strategy ids, enum mig_strategy mig)
{
    return (struct plugin_config){ .id_strategy = ids, .mig_strategy = mig };
}

/* ---- the model ---- */

static void test_version(void **state)
{
    struct cdi_node plain = { .path = "/dev/a", .permissions = "rwm" };
    struct cdi_node moved = { .path = "/dev/a", .host_path = "/b/dev/a", .permissions = "rwm" };
    uint32_t gid = 44;
    const struct {
        const char *kind, *name;
        struct cdi_node *node;
        size_t gids;
        const char *version;
    } cases[] = {
        { "nvidia.com/gpu", "GPU-1", &plain, 0, "0.3.0" },
        { "nvidia.com/gpu", "0", &plain, 0, "0.5.0" },
        { "nvidia.com/gpu", "GPU-1", &moved, 0, "0.5.0" },
        { "nvidia.com/gpu.x", "GPU-1", &moved, 0, "0.6.0" },
        { "nvidia.com/gpu", "GPU-1", &plain, 1, "0.7.0" },
        { "nvidia.com/gpu.x", "0", &moved, 1, "0.7.0" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cdi_device d = { cases[i].name, { .nodes = cases[i].node, .n_nodes = 1 } };
        d.edits.gids = &gid;
        d.edits.n_gids = cases[i].gids;
        struct cdi_spec spec = { .kind = cases[i].kind, .devices = &d, .n_devices = 1 };
        assert_string_equal(cdi_version(&spec), cases[i].version);
        struct cdi_spec common = { .kind = cases[i].kind, .common = d.edits };
        if (cases[i].name[0] != '0')
            assert_string_equal(cdi_version(&common), cases[i].version);
    }
}

static void test_encode(void **state)
{
    const char *const options[] = { "ro", "nodev" };
    const char *const args[] = { "nvidia-ctk", "hook" };
    const char *env[] = { "A=b" };
    uint32_t gids[] = { 44 };
    struct cdi_node nodes[] = {
        { "/dev/nvidia0", "/root/dev/nvidia0", "rwm", true, 195, 0, 0666 },
        { "/dev/x", NULL, "rw", false, 0, 0, 0 },
    };
    struct cdi_mount mount = { "/h", "/c", options, 2 };
    struct cdi_hook hook = { "createContainer", "/usr/bin/nvidia-ctk", args, 2, NULL, 0 };
    struct cdi_device d = { "0", { .nodes = nodes, .n_nodes = 2, .gids = gids, .n_gids = 1 } };
    struct cdi_spec spec = {
        .kind = kind_gpu,
        .devices = &d,
        .n_devices = 1,
        .common = { .env = env,
                    .n_env = 1,
                    .mounts = &mount,
                    .n_mounts = 1,
                    .hooks = &hook,
                    .n_hooks = 1 },
    };
    auto_buf out;
    buf_init(&out, 64 * 1024);
    struct error err;
    assert_int_equal(cdi_encode(&spec, &out, &err), 0);
    assert_string_equal(
        out.p,
        "{\"cdiVersion\":\"0.7.0\",\"kind\":\"k8s.device-plugin.nvidia.com/gpu\",\"devices\":[{"
        "\"name\":\"0\",\"containerEdits\":{\"deviceNodes\":[{\"path\":\"/dev/nvidia0\","
        "\"hostPath\":\"/root/dev/nvidia0\",\"major\":195,\"minor\":0,\"fileMode\":438,"
        "\"permissions\":\"rwm\"},{\"path\":\"/dev/x\",\"permissions\":\"rw\"}],"
        "\"additionalGids\":[44]}}],\"containerEdits\":{\"env\":[\"A=b\"],\"hooks\":[{"
        "\"hookName\":\"createContainer\",\"path\":\"/usr/bin/nvidia-ctk\",\"args\":["
        "\"nvidia-ctk\",\"hook\"]}],\"mounts\":[{\"hostPath\":\"/h\",\"containerPath\":\"/c\","
        "\"options\":[\"ro\",\"nodev\"]}]}}");

    auto_buf small;
    buf_init(&small, 40);
    assert_int_equal(cdi_encode(&spec, &small, &err), -ERR_LIMIT);

    auto_arena a;
    arena_init(&a, ARENA);
    assert_string_equal(cdi_file_name(&a, &spec), "k8s.device-plugin.nvidia.com-gpu.json");
}

static void test_names(void **state)
{
    static const struct {
        enum id_strategy strategy;
        const char *uuid, *index, *name;
    } cases[] = {
        { ID_UUID, "GPU-1", "0", "GPU-1" },  { ID_INDEX, "GPU-1", "0", "0" },
        { ID_INDEX, "MIG-1", "0:1", "0:1" }, { ID_UUID, "MIG-GPU-1/2/0", "0:1", "0:1" },
        { ID_UUID, "", "0", "0" },           { ID_UUID, "GPU-", "0", "0" },
        { ID_UUID, "all", "all", "all" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(cdi_name_of(cases[i].strategy, cases[i].uuid, cases[i].index),
                            cases[i].name);
}

/* ---- discovery ---- */

/* Everything a spec says about nodes, one line a device. */
static void describe(const struct cdi_spec *s, struct buf *out)
{
    buf_fmt(out, "%s %s\n", cdi_version(s), strrchr(s->kind, '/') + 1);
    for (size_t i = 0; i <= s->n_devices; i++) {
        const struct cdi_edits *e = i < s->n_devices ? &s->devices[i].edits : &s->common;
        buf_fmt(out, " %s:", i < s->n_devices ? s->devices[i].name : "*");
        for (size_t k = 0; k < e->n_nodes; k++)
            buf_fmt(out, " %s%s%s", e->nodes[k].path, e->nodes[k].host_path ? "<" : "",
                    e->nodes[k].host_path ? e->nodes[k].host_path : "");
        for (size_t k = 0; k < e->n_mounts; k++)
            buf_fmt(out, " %s<%s", e->mounts[k].container_path, e->mounts[k].host_path);
        for (size_t k = 0; k < e->n_env; k++)
            buf_fmt(out, " %s", e->env[k]);
        buf_ch(out, '\n');
    }
}

static void check_built(const struct fixture_host *f, const struct survey *s,
                        const struct plugin_config *c, const char *expected)
{
    auto_arena a;
    auto_buf out;
    struct error err;
    struct cdi_spec *specs;
    size_t n;
    arena_init(&a, ARENA);
    buf_init(&out, 64 * 1024);
    buf_z(&out, "");
    if (cdi_build(&a, &f->host, s, c, &specs, &n, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++)
        describe(&specs[i], &out);
    assert_string_equal(out.p, expected);
}

#define COMMON                                                                                     \
    " *: /dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidiactl NVIDIA_VISIBLE_DEVICES=void\n"

static void test_parts(void **state)
{
    struct survey *s = fixture_survey("parts");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DRIVER_NODES, NULL, NULL, NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_MIXED);
    check_built(&f, s, &c,
                "0.3.0 gpu\n"
                " MIG-00000000-0000-0000-0000-000000000000: /dev/nvidia-caps/nvidia-cap21 "
                "/dev/nvidia-caps/nvidia-cap22 /dev/nvidia0\n"
                " MIG-00000000-0000-0000-0000-000000000001: /dev/nvidia-caps/nvidia-cap30 "
                "/dev/nvidia-caps/nvidia-cap31 /dev/nvidia0\n"
                " MIG-00000000-0000-0000-0000-000000000002: /dev/nvidia-caps/nvidia-cap84 "
                "/dev/nvidia-caps/nvidia-cap85 /dev/nvidia0\n"
                " MIG-00000000-0000-0000-0000-000000000003: /dev/nvidia-caps/nvidia-cap93 "
                "/dev/nvidia-caps/nvidia-cap94 /dev/nvidia0\n"
                " GPU-12345678-1234-1234-1234-123456780001: /dev/nvidia1\n" COMMON);
    /* offered whole under strategy none: then the whole gpu has a name too */
    c = config_of(ID_INDEX, MIG_STRATEGY_NONE);
    check_built(&f, s, &c,
                "0.5.0 gpu\n"
                " 0: /dev/nvidia0\n"
                " 0:0: /dev/nvidia-caps/nvidia-cap21 /dev/nvidia-caps/nvidia-cap22 /dev/nvidia0\n"
                " 0:1: /dev/nvidia-caps/nvidia-cap30 /dev/nvidia-caps/nvidia-cap31 /dev/nvidia0\n"
                " 0:2: /dev/nvidia-caps/nvidia-cap84 /dev/nvidia-caps/nvidia-cap85 /dev/nvidia0\n"
                " 0:3: /dev/nvidia-caps/nvidia-cap93 /dev/nvidia-caps/nvidia-cap94 /dev/nvidia0\n"
                " 1: /dev/nvidia1\n" COMMON);
    fixture_host_done(&f);
    survey_unref(s);
}

static void test_classes(void **state)
{
    struct survey *s = fixture_survey("h200");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DRIVER_NODES | FIXTURE_IMEX, "/run/nvidia/driver", NULL, NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_NONE);
    c.gdrcopy = c.gds = c.mofed = c.imex_channel0 = true;

    struct cdi_facts facts;
    struct error err;
    assert_int_equal(cdi_look(&f.host, &c, &facts, &err), 0);
    assert_int_equal(facts.gated, 0);
    assert_true(facts.imex_channel0);
    assert_int_equal(facts.n_control_nodes, 3);
    assert_string_equal(facts.control_nodes[0], "/dev/nvidiactl");

    static const char *const nodes[] = {
        "/driver-root/dev/gdrdrv",
        "/driver-root/dev/nvidia-fs10",
        "/driver-root/dev/nvidia-fs2",
        "/driver-root/dev/infiniband/uverbs0",
        "/driver-root/dev/infiniband/rdma_cm",
        "/driver-root/dev/infiniband/umad0",
    };
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
        fixture_node(&f, nodes[i], 240, (unsigned)i);
    fixture_file(&f, "/driver-root/etc/cufile.json", "{}");
    assert_int_equal(cdi_look(&f.host, &c, &facts, &err), 0);
    assert_int_equal(facts.gated, 7);

#define AT(path) path "</run/nvidia/driver" path
    check_built(
        &f, s, &c,
        "0.5.0 gpu\n"
        " GPU-11111111-2222-3333-4444-555555555555: " AT(
            "/dev/nvidia0") "\n"
                            " *: " AT("/dev/nvidia-uvm") " " AT("/dev/nvidia-uvm-tools") " " AT(
                                "/dev/nvidiactl") " NVIDIA_VISIBLE_DEVICES=void\n"
                                                  "0.5.0 imex-channel\n"
                                                  " 0: " AT(
                                                      "/dev/nvidia-caps-imex-channels/"
                                                      "channel0") "\n *:\n"
                                                                  "0.5.0 gdrcopy\n"
                                                                  " all: " AT(
                                                                      "/dev/gdrdrv") "\n *:\n"
                                                                                     "0.5.0 "
                                                                                     "gds\n"
                                                                                     " all:"
                                                                                     " " AT(
                                                                                         "/dev/"
                                                                                         "nvidia"
                                                                                         "-fs10") " " AT("/dev/nvidia-fs2") " " AT("/et"
                                                                                                                                   "c/"
                                                                                                                                   "cuf"
                                                                                                                                   "ile"
                                                                                                                                   ".js"
                                                                                                                                   "on") "\n "
                                                                                                                                         "*:"
                                                                                                                                         "\n"
                                                                                                                                         "0."
                                                                                                                                         "5."
                                                                                                                                         "0 "
                                                                                                                                         "mof"
                                                                                                                                         "ed"
                                                                                                                                         "\n"
                                                                                                                                         " al"
                                                                                                                                         "l:"
                                                                                                                                         " " AT("/dev/infiniband/rdma_cm") " " AT(
                                                                                                                                             "/dev/infiniband/uverbs0") "\n *:\n");
    fixture_host_done(&f);
    survey_unref(s);
}

static void test_imex_required(void **state)
{
    struct survey *s = fixture_survey("h200");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DRIVER_NODES | FIXTURE_DEV_NODES, NULL, "/", NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_NONE);
    struct cdi_facts facts;
    struct error err;
    c.imex_channel0 = true;
    assert_int_equal(cdi_look(&f.host, &c, &facts, &err), 0);
    assert_false(facts.imex_channel0);
    c.imex_required = true;
    assert_int_equal(cdi_look(&f.host, &c, &facts, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text,
                           "error querying IMEX channels: requested IMEX channel channel0 "
                           "does not exist"));
    assert_int_equal(facts.n_control_nodes, 3);
    fixture_host_done(&f);
    survey_unref(s);
}

/* card and render nodes by the PCI device, only those that exist; their group by gid */
static void test_drm(void **state)
{
    struct survey *s = fixture_survey("h200");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DEV_NODES, NULL, "/", NULL);
    fixture_file(&f, "/sys/bus/pci/devices/0000:18:00.0/drm/card1/dev", "");
    fixture_file(&f, "/sys/bus/pci/devices/0000:18:00.0/drm/renderD129/dev", "");
    fixture_file(&f, "/sys/bus/pci/devices/0000:18:00.0/drm/controlD65/dev", "");
    fixture_file(&f, "/sys/bus/pci/devices/0000:19:00.0/drm/card0/dev", "");
    fixture_node(&f, "/dev/dri/card1", 226, 1);
    fixture_node(&f, "/dev/dri/card0", 226, 0);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_NONE);
    check_built(&f, s, &c,
                "0.3.0 gpu\n"
                " GPU-11111111-2222-3333-4444-555555555555: /dev/dri/card1 /dev/nvidia0\n" COMMON);
    fixture_host_done(&f);
    survey_unref(s);
}

/* A gpu whose node is missing stays in the file: the container engine then names the node. */
static void test_missing_node(void **state)
{
    struct survey *s = fixture_survey("h200");
    struct fixture_host f;
    fixture_host_init(&f, s, 0, NULL, "/", NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_NONE);
    check_built(&f, s, &c,
                "0.3.0 gpu\n"
                " GPU-11111111-2222-3333-4444-555555555555: /dev/nvidia0\n"
                " *: NVIDIA_VISIBLE_DEVICES=void\n");
    fixture_host_done(&f);
    survey_unref(s);
}

static void test_platforms(void **state)
{
    struct survey *s = fixture_survey("wsl");
    struct fixture_host f;
    fixture_host_init(&f, s, 0, NULL, "/", NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_NONE);
    check_built(&f, s, &c, "0.3.0 gpu\n all: /dev/dxg\n *:\n");

    struct survey tegra = { .platform = "tegra" };
    struct survey nothing = { .platform = "nvml" };
    struct error err;
    struct cdi_spec *specs;
    size_t n;
    auto_arena a;
    arena_init(&a, ARENA);
    assert_int_equal(cdi_build(&a, &f.host, &tegra, &c, &specs, &n, &err), -ERR_UNSUPPORTED);
    assert_int_equal(cdi_build(&a, &f.host, &nothing, &c, &specs, &n, &err), 0);
    assert_int_equal(n, 0);
    fixture_host_done(&f);
    survey_unref(s);
}

/* What is written is JSON, and the same input gives the same bytes. */
static void test_bytes(void **state)
{
    struct survey *s = fixture_survey("parts");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DRIVER_NODES, NULL, NULL, NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_MIXED);
    struct error err;
    auto_buf first, second;
    buf_init(&first, 64 * 1024);
    buf_init(&second, 64 * 1024);
    for (int i = 0; i < 2; i++) {
        auto_arena a;
        struct cdi_spec *specs;
        struct value *v;
        size_t n;
        struct buf *out = i ? &second : &first;
        arena_init(&a, ARENA);
        assert_int_equal(cdi_build(&a, &f.host, s, &c, &specs, &n, &err), 0);
        assert_int_equal(cdi_encode(&specs[0], out, &err), 0);
        assert_int_equal(json_parse(&a, buf_view(out), "cdi", &doc_limits_default, &v, &err), 0);
    }
    assert_string_equal(first.p, second.p);
    fixture_host_done(&f);
    survey_unref(s);
}

static void test_memory(void **state)
{
    struct survey *s = fixture_survey("parts");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DRIVER_NODES, NULL, NULL, NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_MIXED);
    struct error err;
    int r = -1;
    for (uint64_t k = 1; r != 0; k++) {
        auto_arena a;
        auto_buf out;
        struct cdi_spec *specs;
        size_t n;
        assert_true(k < 1000);
        arena_init(&a, ARENA);
        buf_init(&out, 64 * 1024);
        mem_fail_at(k);
        r = cdi_build(&a, &f.host, s, &c, &specs, &n, &err);
        if (r == 0)
            r = cdi_encode(&specs[0], &out, &err);
        mem_fail_at(0);
        assert_true(r == 0 || r == -ERR_LIMIT);
    }
    auto_arena tiny;
    struct cdi_spec *specs;
    size_t n;
    arena_init(&tiny, 600);
    assert_int_equal(cdi_build(&tiny, &f.host, s, &c, &specs, &n, &err), -ERR_LIMIT);
    fixture_host_done(&f);
    survey_unref(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),   cmocka_unit_test(test_encode),
        cmocka_unit_test(test_names),     cmocka_unit_test(test_parts),
        cmocka_unit_test(test_classes),   cmocka_unit_test(test_imex_required),
        cmocka_unit_test(test_drm),       cmocka_unit_test(test_missing_node),
        cmocka_unit_test(test_platforms), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
