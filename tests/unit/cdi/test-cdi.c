/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "../../golden/driver_tree.h"
#include "base/file.h"
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
        { ID_INDEX, "MIG-1", "0:1", "0:1" }, { ID_UUID, "MIG-GPU-1/2/0", "0:1", "MIG-GPU-1:2:0" },
        { ID_UUID, "", "0", "0" },           { ID_UUID, "GPU-", "0", "0" },
        { ID_UUID, "all", "all", "all" },
    };
    char name[CDI_NAME_MAX];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(cdi_name_of(cases[i].strategy, cases[i].uuid, cases[i].index, name),
                            cases[i].name);
    char longest[CDI_NAME_MAX + 8];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_string_equal(cdi_name_of(ID_UUID, longest, "7", name), "7");
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
        for (size_t k = 0; k < e->n_mounts && i < s->n_devices; k++)
            buf_fmt(out, " %s<%s", e->mounts[k].container_path, e->mounts[k].host_path);
        for (size_t k = 0; k < e->n_env; k++)
            buf_fmt(out, " %s", e->env[k]);
        if (e->n_mounts && i == s->n_devices)
            buf_fmt(out, " %zu files %zu hooks", e->n_mounts, e->n_hooks);
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

#define FILES  " NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64 NVIDIA_VISIBLE_DEVICES=void 11 files 5 hooks\n"
#define COMMON " *: /dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidiactl" FILES

/* A host with the driver's files of the mock hosts. */
static void host_init_with(struct fixture_host *f, const struct survey *s, int nodes,
                           const char *driver_root, const char *ctr_path, const char *dev_root)
{
    fixture_host_init(f, s, nodes, driver_root, ctr_path, dev_root);
    driver_tree_mock(f);
}

#define PART(n, caps)                                                                              \
    " MIG-00000000-0000-0000-0000-00000000000" n ": " caps " /dev/nvidia0\n 0:" n ": " caps        \
    " /dev/nvidia0\n"
#define PART_BY_INDEX(n, caps)                                                                     \
    " 0:" n ": " caps " /dev/nvidia0\n MIG-00000000-0000-0000-0000-00000000000" n ": " caps        \
    " /dev/nvidia0\n"
#define CAPS(a, b) "/dev/nvidia-caps/nvidia-cap" a " /dev/nvidia-caps/nvidia-cap" b
#define ALL_CAPS   CAPS("21", "22") " " CAPS("30", "31") " " CAPS("84", "85") " " CAPS("93", "94")

static void test_parts(void **state)
{
    struct survey *s = fixture_survey("parts");
    struct fixture_host f;
    host_init_with(&f, s, FIXTURE_DRIVER_NODES, NULL, NULL, NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_MIXED);
    check_built(
        &f, s, &c,
        "0.5.0 gpu\n" PART("0", CAPS("21", "22")) PART("1", CAPS("30", "31")) PART("2",
                                                                                   CAPS("84", "85"))
            PART("3", CAPS("93", "94")) " GPU-12345678-1234-1234-1234-123456780001: /dev/nvidia1\n"
                                        " 1: /dev/nvidia1\n"
                                        " all: " ALL_CAPS " /dev/nvidia0 /dev/nvidia1\n" COMMON);
    /* offered whole under strategy none: then the whole gpu has a name too */
    c = config_of(ID_INDEX, MIG_STRATEGY_NONE);
    check_built(
        &f, s, &c,
        "0.5.0 gpu\n"
        " 0: /dev/nvidia0\n"
        " GPU-12345678-1234-1234-1234-123456780000: /dev/nvidia0\n" PART_BY_INDEX("0",
                                                                                  CAPS("21", "22"))
            PART_BY_INDEX("1", CAPS("30", "31")) PART_BY_INDEX("2", CAPS("84", "85")) PART_BY_INDEX(
                "3", CAPS("93", "94")) " 1: /dev/nvidia1\n"
                                       " GPU-12345678-1234-1234-1234-123456780001: /dev/nvidia1\n"
                                       " all: " ALL_CAPS " /dev/nvidia0 /dev/nvidia1\n" COMMON);
    fixture_host_done(&f);
    survey_unref(s);
}

#define H200_UUID "GPU-11111111-2222-3333-4444-555555555555"

static void test_classes(void **state)
{
    struct survey *s = fixture_survey("h200");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DRIVER_NODES | FIXTURE_IMEX, "/run/nvidia/driver", NULL, NULL);
    driver_tree_h200(&f, "");
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
        "/driver-root/dev/nvidia-fsx",
        "/driver-root/dev/infiniband/uverbs0",
        "/driver-root/dev/infiniband/rdma_cm",
        "/driver-root/dev/infiniband/umad0",
    };
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
        fixture_node(&f, nodes[i], 240, (unsigned)i);
    fixture_file(&f, "/driver-root/etc/cufile.json", "{}");
    assert_int_equal(cdi_look(&f.host, &c, &facts, &err), 0);
    assert_int_equal(facts.gated, 7);

    /* clang-format off */
#define AT(path) path "</run/nvidia/driver" path
    check_built(&f, s, &c,
        "0.5.0 gpu\n"
        " " H200_UUID ": " AT("/dev/nvidia0") "\n"
        " 0: " AT("/dev/nvidia0") "\n"
        " all: " AT("/dev/nvidia0") "\n"
        " *: " AT("/dev/nvidia-uvm") " " AT("/dev/nvidia-uvm-tools") " " AT("/dev/nvidiactl")
        " NVIDIA_CTK_LIBCUDA_DIR=/lib64 NVIDIA_VISIBLE_DEVICES=void 31 files 6 hooks\n"
        "0.5.0 imex-channel\n"
        " 0: " AT("/dev/nvidia-caps-imex-channels/channel0") "\n *:\n"
        "0.5.0 gdrcopy\n"
        " all: " AT("/dev/gdrdrv") "\n *:\n"
        "0.5.0 gds\n"
        " all: " AT("/dev/nvidia-fs10") " " AT("/dev/nvidia-fs2") " " AT("/etc/cufile.json") "\n *:\n"
        "0.5.0 mofed\n"
        " all: " AT("/dev/infiniband/rdma_cm") " " AT("/dev/infiniband/uverbs0") "\n *:\n");
    /* clang-format on */
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

static int mkdir_below(const struct fixture_host *f, const char *path)
{
    auto_free char *full = x_printf("%s%s", f->dir, path);
    struct error err;
    return dir_make(full, 0755, &err);
}

static void link_below(const struct fixture_host *f, const char *target, const char *path)
{
    auto_free char *full = x_printf("%s%s", f->dir, path);
    assert_int_equal(symlink(target, full), 0);
}

/* card and render nodes by the PCI device, only those that exist; their group by gid */
static void test_drm(void **state)
{
    struct survey *s = fixture_survey("h200");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DEV_NODES, NULL, "/", NULL);
    driver_tree_h200(&f, "");
    fixture_file(&f, "/sys/bus/pci/devices/0000:18:00.0/drm/card1/dev", "");
    fixture_file(&f, "/sys/bus/pci/devices/0000:18:00.0/drm/renderD129/dev", "");
    fixture_file(&f, "/sys/bus/pci/devices/0000:18:00.0/drm/controlD65/dev", "");
    fixture_file(&f, "/sys/bus/pci/devices/0000:19:00.0/drm/card0/dev", "");
    fixture_node(&f, "/dev/dri/card1", 226, 1);
    fixture_node(&f, "/dev/dri/card0", 226, 0);
    fixture_file(&f, "/sys/bus/pci/devices/0000:18:00.0/drm/card1-DP-1", "");
    assert_int_equal(mkdir_below(&f, "/dev/dri/by-path"), 0);
    link_below(&f, "../card1", "/dev/dri/by-path/pci-0000:18:00.0-card");
    link_below(&f, "../renderD129", "/dev/dri/by-path/pci-0000:18:00.0-render");
    link_below(&f, "../card0", "/dev/dri/by-path/pci-0000:19:00.0-card");
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_NONE);
    auto_arena a;
    struct cdi_spec *specs;
    struct error err;
    size_t n;
    arena_init(&a, ARENA);
    if (cdi_build(&a, &f.host, s, &c, &specs, &n, &err) < 0)
        fail_msg("%s", err.text);
    const struct cdi_edits *e = &specs[0].devices[0].edits;
    assert_int_equal(e->n_nodes, 2);
    assert_string_equal(e->nodes[0].path, "/dev/dri/card1");
    assert_string_equal(e->nodes[1].path, "/dev/nvidia0");
    assert_int_equal(e->n_hooks, 1); /* no chmod hook unless it is asked for */
    assert_int_equal(e->hooks[0].n_args, 7);
    assert_string_equal(e->hooks[0].args[4], "../card1::/dev/dri/by-path/pci-0000:18:00.0-card");
    assert_string_equal(e->hooks[0].args[6],
                        "../renderD129::/dev/dri/by-path/pci-0000:18:00.0-render");
    fixture_host_done(&f);
    survey_unref(s);
}

/* A gpu whose node is missing stays in the file: the container engine then names the node. */
static void test_missing_node(void **state)
{
    struct survey *s = fixture_survey("h200");
    struct fixture_host f;
    fixture_host_init(&f, s, 0, NULL, "/", NULL);
    driver_tree_h200(&f, "");
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_NONE);
    check_built(&f, s, &c,
                "0.5.0 gpu\n"
                " " H200_UUID ": /dev/nvidia0\n 0: /dev/nvidia0\n all: /dev/nvidia0\n"
                " *: NVIDIA_CTK_LIBCUDA_DIR=/lib64 NVIDIA_VISIBLE_DEVICES=void 31 files 6 hooks\n");

    /* With numbers that the driver has registered the engine can make the node. */
    auto_arena a;
    struct cdi_spec *specs;
    struct error err;
    size_t n;
    arena_init(&a, ARENA);
    fixture_file(&f, "/proc/devices",
                 "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n\nBlock devices:\n"
                 "  7 nvidia\n");
    fixture_file(&f, "/proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileMode: 432\n");
    assert_int_equal(cdi_build(&a, &f.host, s, &c, &specs, &n, &err), 0);
    const struct cdi_node *node = &specs[0].devices[0].edits.nodes[0];
    assert_true(node->has_numbers && node->has_type);
    assert_int_equal(node->major, 195);
    assert_int_equal(node->minor, 0);
    assert_int_equal(node->mode, 0660);
    fixture_host_done(&f);
    survey_unref(s);
}

/* Gpus, but no library that a container could use: said with what was looked for (B-063). */
static void test_no_driver(void **state)
{
    struct survey *s = fixture_survey("h200");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DEV_NODES, NULL, "/", NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_NONE);
    auto_arena a;
    struct cdi_spec *specs;
    struct error err;
    size_t n;
    arena_init(&a, ARENA);
    assert_int_equal(cdi_build(&a, &f.host, s, &c, &specs, &n, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "libcuda.so.580.159.04"));
    assert_non_null(strstr(err.text, f.host.driver_root_view));
    /* the root comes: the next attempt looks again */
    driver_library(&f, "/usr/lib64/libcuda.so.570.1.1", "libcuda.so.1");
    assert_int_equal(cdi_build(&a, &f.host, s, &c, &specs, &n, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "/usr/lib64"));
    assert_non_null(strstr(err.text, "570.1.1"));
    driver_tree_h200(&f, "");
    assert_int_equal(cdi_build(&a, &f.host, s, &c, &specs, &n, &err), 0);
    fixture_host_done(&f);
    survey_unref(s);
}

static void test_platforms(void **state)
{
    struct survey *s = fixture_survey("wsl");
    struct fixture_host f;
    fixture_host_init(&f, s, 0, NULL, "/", NULL);
    struct plugin_config c = config_of(ID_UUID, MIG_STRATEGY_NONE);
    check_built(&f, s, &c, "0.3.0 gpu\n all: /dev/dxg\n *: NVIDIA_VISIBLE_DEVICES=void\n");
    driver_library(&f, "/usr/lib/wsl/drivers/nvam.inf_1/libcuda.so.1.1", NULL);
    driver_program(&f, "/usr/lib/wsl/drivers/nvam.inf_1/nvidia-smi");
    driver_library(&f, "/usr/lib/wsl/lib/libdxcore.so", NULL);
    check_built(&f, s, &c,
                "0.3.0 gpu\n all: /dev/dxg\n *: NVIDIA_VISIBLE_DEVICES=void 3 files 2 hooks\n");

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
    host_init_with(&f, s, FIXTURE_DRIVER_NODES, NULL, NULL, NULL);
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
    host_init_with(&f, s, FIXTURE_DRIVER_NODES, NULL, NULL, NULL);
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
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_no_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
