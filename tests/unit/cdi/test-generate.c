/* SPDX-License-Identifier: Apache-2.0 */
/* Generated specs: names, modes, hooks, parts, and everything that may be missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../golden/driver_tree.h"
#include "base/mem.h"
#include "cdi/generate.h"
#include "cdi/registry.h"
#include "data/yaml.h"

enum { ARENA = 4 * 1024 * 1024 };

static const enum cdi_naming usual[] = { CDI_NAME_INDEX, CDI_NAME_UUID },
                             by_type[] = { CDI_NAME_TYPE_INDEX };

static struct cdi_generate options_for(enum cdi_mode mode)
{
    return (struct cdi_generate){ .mode = mode,
                                  .kind = "nvidia.com/gpu",
                                  .namings = usual,
                                  .n_namings = 2,
                                  .all_device = true,
                                  .hook_path = "/usr/bin/nvidia-cdi-hook" };
}

struct made {
    struct arena arena;
    struct cdi_spec *specs;
    size_t n;
    struct findings notes;
    struct error err;
    int r;
};

static void generate(struct made *m, const struct fixture_host *f, const struct survey *s,
                     const struct cdi_generate *o)
{
    arena_init(&m->arena, ARENA);
    findings_init(&m->notes, &m->arena, 100);
    m->r = cdi_generate(&m->arena, &f->host, s, o, &m->specs, &m->n, &m->notes, &m->err);
}

static void names_of(const struct cdi_spec *spec, struct buf *out)
{
    for (size_t i = 0; i < spec->n_devices; i++)
        buf_fmt(out, "%s%s", i ? " " : "", spec->devices[i].name);
}

static void check_names(const struct fixture_host *f, const struct survey *s,
                        const struct cdi_generate *o, const char *expected)
{
    struct made m;
    auto_buf out;
    buf_init(&out, 4096);
    generate(&m, f, s, o);
    if (m.r == 0)
        names_of(&m.specs[0], &out);
    else
        buf_z(&out, m.err.text);
    if (!out.p || !strstr(out.p, expected) || (m.r == 0 && strcmp(out.p, expected) != 0))
        fail_msg("%s\n expected %s", out.p, expected);
    arena_done(&m.arena);
}

#define M "MIG-00000000-0000-0000-0000-00000000000"
#define G "GPU-12345678-1234-1234-1234-12345678000"

static void names(void **state)
{
    struct survey *s = fixture_survey("parts");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DEV_NODES, NULL, "/", NULL);
    driver_tree_mock(&f);
    struct cdi_generate o = options_for(CDI_MODE_AUTO);
    /* a gpu in MIG mode has its parts only, also inside "all" */
    check_names(&f, s, &o, "0:0 " M "0 0:1 " M "1 0:2 " M "2 0:3 " M "3 1 " G "1 all");
    o.namings = by_type;
    o.n_namings = 1;
    check_names(&f, s, &o, "mig0:0 mig0:1 mig0:2 mig0:3 gpu1 all");
    o.all_device = false;
    check_names(&f, s, &o, "mig0:0 mig0:1 mig0:2 mig0:3 gpu1");
    static const char *const some[] = { "0:1", G "1" }, *const none[] = { "none" },
                             *const unknown[] = { "0:1", "9" }, *const divided[] = { "0" };
    o.ids = (struct cdi_texts){ some, 2 };
    check_names(&f, s, &o, "mig0:1 gpu1");
    o.ids = (struct cdi_texts){ none, 1 };
    o.all_device = true;
    check_names(&f, s, &o, "none");
    o.ids = (struct cdi_texts){ unknown, 2 };
    check_names(&f, s, &o, "there is no device \"9\"");
    o.ids = (struct cdi_texts){ divided, 1 };
    check_names(&f, s, &o, "there is no device \"0\"");
    fixture_host_done(&f);
    survey_unref(s);
}

/* An old MIG id has slashes (B-071): encoded one to one, and the index beside it. */
static void old_mig_ids(void **state)
{
    struct survey *s = fixture_survey("parts");
    struct fixture_host f;
    fixture_host_init(&f, s, FIXTURE_DEV_NODES, NULL, "/", NULL);
    driver_tree_mock(&f);
    snprintf(s->gpus[0].parts[0].uuid, sizeof s->gpus[0].parts[0].uuid, "MIG-%.40s/2/0",
             s->gpus[0].uuid);
    s->gpus[0].n_parts = 1;
    struct cdi_generate o = options_for(CDI_MODE_AUTO);
    check_names(&f, s, &o, "0:0 MIG-" G "0:2:0 1 " G "1 all");
    fixture_host_done(&f);
    survey_unref(s);
}

/* The union holds each node, group and hook once (B-066). */
static void the_device_all(void **state)
{
    struct survey *s = fixture_survey("h100");
    struct fixture_host f;
    struct made m;
    fixture_host_init(&f, s, FIXTURE_DEV_NODES, NULL, "/", NULL);
    driver_tree_mock(&f);
    struct cdi_generate o = options_for(CDI_MODE_AUTO);
    generate(&m, &f, s, &o);
    assert_int_equal(m.r, 0);
    const struct cdi_device *all = &m.specs[0].devices[m.specs[0].n_devices - 1];
    assert_string_equal(all->name, "all");
    assert_int_equal(m.specs[0].n_devices, 17);
    assert_int_equal(all->edits.n_nodes, 8);
    for (size_t i = 0; i < 8; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%zu", i);
        assert_string_equal(all->edits.nodes[i].path, path);
    }
    arena_done(&m.arena);
    fixture_host_done(&f);
    survey_unref(s);
}

static bool has_hook(const struct cdi_edits *e, const char *name)
{
    for (size_t i = 0; i < e->n_hooks; i++)
        for (size_t k = 0; k < e->hooks[i].n_args; k++)
            if (strcmp(e->hooks[i].args[k], name) == 0)
                return true;
    return false;
}

static void hooks(void **state)
{
    struct survey *s = fixture_survey("parts");
    struct fixture_host f;
    struct made m;
    fixture_host_init(&f, s, FIXTURE_DEV_NODES, NULL, "/", NULL);
    driver_tree_mock(&f);
    static const char *const off[] = { "all" }, *const on[] = { "chmod", "update-ldcache" };
    struct cdi_generate o = options_for(CDI_MODE_AUTO);
    o.hooks_off = (struct cdi_texts){ off, 1 };
    generate(&m, &f, s, &o);
    assert_int_equal(m.specs[0].common.n_hooks, 0);
    arena_done(&m.arena);
    o.hooks_on = (struct cdi_texts){ on, 2 };
    generate(&m, &f, s, &o);
    assert_int_equal(m.specs[0].common.n_hooks, 1);
    assert_true(has_hook(&m.specs[0].common, "update-ldcache"));
    const struct cdi_edits *part = &m.specs[0].devices[0].edits;
    assert_int_equal(part->n_hooks, 1);
    assert_string_equal(part->hooks[0].args[1], "chmod");
    assert_string_equal(part->hooks[0].args[5], "/dev/nvidia-caps");
    assert_string_equal(part->hooks[0].env[0], "NVIDIA_CTK_DEBUG=false");
    arena_done(&m.arena);
    fixture_host_done(&f);
    survey_unref(s);
}

/* Parts whose nodes nobody has made yet: numbers and mode as the driver will give them. */
static void part_without_nodes(void **state)
{
    struct survey *s = fixture_survey("parts");
    struct fixture_host f;
    struct made m;
    fixture_host_init(&f, s, 0, NULL, "/", NULL);
    driver_tree_mock(&f);
    fixture_file(&f, "/proc/devices", "Character devices:\n195 nvidia-frontend\n236 nvidia-caps\n");
    fixture_file(&f, "/proc/driver/nvidia/capabilities/gpu0/mig/gi2/access",
                 "DeviceFileMinor: 21\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
    struct cdi_generate o = options_for(CDI_MODE_AUTO);
    generate(&m, &f, s, &o);
    assert_int_equal(m.r, 0);
    const struct cdi_edits *e = &m.specs[0].devices[0].edits;
    assert_int_equal(e->n_nodes, 3);
    assert_string_equal(e->nodes[0].path, "/dev/nvidia-caps/nvidia-cap21");
    assert_true(e->nodes[0].has_type);
    assert_int_equal(e->nodes[0].major, 236);
    assert_int_equal(e->nodes[0].minor, 21);
    assert_int_equal(e->nodes[0].mode, 0444);
    assert_int_equal(e->nodes[1].mode, 0666); /* the driver tells nothing of this one */
    assert_int_equal(e->nodes[2].major, 195);
    assert_true(findings_count(&m.notes, SEVERITY_WARNING) >= 3);
    assert_string_equal(m.notes.items[0].id, "cdi.missing-node");
    arena_done(&m.arena);
    fixture_host_done(&f);
    survey_unref(s);
}

static void other_modes(void **state)
{
    struct survey *s = fixture_survey("h200");
    struct fixture_host f;
    static const char *const nodes[] = { "/dev/gdrdrv",
                                         "/dev/nvidia-nvswitch0",
                                         "/dev/nvidia-nvswitchctl",
                                         "/dev/nvidia-fs0",
                                         "/dev/infiniband/uverbs1",
                                         "/dev/nvidia-caps-imex-channels/channel0",
                                         "/dev/nvidia-caps-imex-channels/channel10",
                                         "/dev/nvidia-caps-imex-channels/channel2",
                                         "/dev/nvidia-caps-imex-channels/channel9999999",
                                         "/dev/nvidia-caps/nvidia-cap1",
                                         "/dev/nvlink",
                                         "/dev/nvidia-nvlink" };
    static const struct {
        enum cdi_mode mode;
        const char *names, *nodes;
    } cases[] = {
        { CDI_MODE_GDRCOPY, "all", "/dev/gdrdrv" },
        { CDI_MODE_NVSWITCH, "all", "/dev/nvidia-nvswitch0 /dev/nvidia-nvswitchctl" },
        { CDI_MODE_GDS, "all", "/dev/nvidia-fs0" },
        { CDI_MODE_MOFED, "all", "/dev/infiniband/uverbs1" },
        { CDI_MODE_IMEX, "0 2 10 all",
          "/dev/nvidia-caps-imex-channels/channel0 /dev/nvidia-caps-imex-channels/channel10 "
          "/dev/nvidia-caps-imex-channels/channel2" },
        { CDI_MODE_MANAGEMENT, "all",
          "/dev/nvidia-caps-imex-channels/channel0 /dev/nvidia-caps-imex-channels/channel10 "
          "/dev/nvidia-caps-imex-channels/channel2 "
          "/dev/nvidia-caps-imex-channels/channel9999999 /dev/nvidia-caps/nvidia-cap1 "
          "/dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidia0 /dev/nvidiactl" },
    };
    for (int there = 0; there < 2; there++) {
        fixture_host_init(&f, s, there ? FIXTURE_DEV_NODES : 0, NULL, "/", NULL);
        driver_tree_mock(&f);
        driver_library(&f, "/usr/lib64/libcuda.so.580.159.04", NULL);
        for (size_t i = 0; i < ARRAY_LEN(nodes) && there; i++)
            fixture_node(&f, nodes[i], 240, (unsigned)i);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            struct made m;
            auto_buf out;
            struct cdi_generate o = options_for(cases[i].mode);
            buf_init(&out, 4096);
            generate(&m, &f, cases[i].mode == CDI_MODE_MANAGEMENT ? s : NULL, &o);
            assert_int_equal(m.r, there ? 0 : -ERR_NOT_FOUND);
            if (there) {
                const struct cdi_edits *all = &m.specs[0].devices[m.specs[0].n_devices - 1].edits;
                names_of(&m.specs[0], &out);
                assert_string_equal(out.p, cases[i].names);
                buf_reset(&out);
                for (size_t k = 0; k < all->n_nodes; k++)
                    buf_fmt(&out, "%s%s", k ? " " : "", all->nodes[k].path);
                assert_string_equal(out.p, cases[i].nodes);
                bool driver = cases[i].mode == CDI_MODE_MANAGEMENT;
                assert_int_equal(m.specs[0].common.n_mounts > 0, driver);
                assert_false(has_hook(&m.specs[0].common, "update-application-profile"));
            }
            arena_done(&m.arena);
        }
        fixture_host_done(&f);
    }
    survey_unref(s);
}

/* Gpus that share the host's page tables in a spec of their own. */
static void coherent(void **state)
{
    struct survey *s = fixture_survey("h100");
    struct fixture_host f;
    struct made m;
    static const char *const flags[] = { "enable-coherent-annotations" };
    fixture_host_init(&f, s, FIXTURE_DEV_NODES, NULL, "/", NULL);
    driver_tree_mock(&f);
    for (size_t i = 0; i < 3; i++) {
        s->gpus[i].valid |= GPU_HAS_ADDRESSING;
        s->gpus[i].addressing = i < 2 ? 2 : 1;
    }
    struct cdi_generate o = options_for(CDI_MODE_AUTO);
    o.namings = by_type;
    o.n_namings = 1;
    o.flags = (struct cdi_texts){ flags, 1 };
    generate(&m, &f, s, &o);
    assert_int_equal(m.n, 3);
    static const char *const expected[] = {
        "nvidia.com/gpu gpu0 gpu1 gpu2 gpu3 gpu4 gpu5 gpu6 gpu7 all",
        "nvidia.com/gpu.coherent gpu0 gpu1 all",
        "nvidia.com/gpu.noncoherent gpu2 gpu3 gpu4 gpu5 gpu6 gpu7 all",
    };
    for (size_t i = 0; i < 3; i++) {
        auto_buf out;
        buf_init(&out, 4096);
        buf_fmt(&out, "%s ", m.specs[i].kind);
        names_of(&m.specs[i], &out);
        assert_string_equal(out.p, expected[i]);
        assert_int_equal(m.specs[i].common.n_mounts, 11);
    }
    arena_done(&m.arena);
    fixture_host_done(&f);
    survey_unref(s);
}

static void no_gpu(void **state)
{
    struct fixture_host f;
    struct survey *s = fixture_survey("h200");
    fixture_host_init(&f, s, 0, NULL, "/", NULL);
    struct cdi_generate o = options_for(CDI_MODE_AUTO);
    struct survey nothing = { .platform = "nvml" };
    check_names(&f, &nothing, &o, "the driver knows no gpu");
    nothing.driver = DRIVER_NOT_LOADED;
    snprintf(nothing.driver_text, sizeof nothing.driver_text, "the module is absent");
    check_names(&f, &nothing, &o, "driver not-loaded: the module is absent");
    s->gpus[0].valid &= ~(uint32_t)GPU_HAS_MINOR;
    check_names(&f, s, &o, "none of the 1 gpus can be published");
    snprintf(s->platform, sizeof s->platform, "tegra");
    check_names(&f, s, &o, "Tegra");
    fixture_host_done(&f);
    survey_unref(s);
}

/* Whatever is written, our own reader of engines' rules takes it. */
static void what_is_written_is_valid(void **state)
{
    static const char *const profiles[] = { "parts", "h100", "h200", "wsl" };
    for (size_t i = 0; i < ARRAY_LEN(profiles); i++) {
        struct survey *s = fixture_survey(profiles[i]);
        struct fixture_host f;
        struct made m;
        fixture_host_init(&f, s, FIXTURE_DRIVER_NODES, "/run/nvidia/driver", NULL, NULL);
        driver_tree_mock(&f);
        driver_tree_h200(&f, "");
        struct cdi_generate o = options_for(CDI_MODE_AUTO);
        generate(&m, &f, s, &o);
        if (m.r < 0)
            fail_msg("%s: %s", profiles[i], m.err.text);
        auto_buf text;
        struct value *doc;
        buf_init(&text, 1024 * 1024);
        assert_int_equal(cdi_encode(&m.specs[0], &text, &m.err), 0);
        assert_int_equal(
            yaml_parse(&m.arena, buf_view(&text), "f", &doc_limits_default, &doc, &m.err), 0);
        if (cdi_validate(doc, "f", &m.notes, &m.err) < 0)
            fail_msg("%s: %s", profiles[i], m.notes.items[m.notes.n - 1].cause);
        arena_done(&m.arena);
        fixture_host_done(&f);
        survey_unref(s);
    }
}

static void words(void **state)
{
    enum cdi_mode mode;
    enum cdi_naming naming;
    assert_true(cdi_mode_of(STR("nvml"), &mode) && mode == CDI_MODE_GPU);
    assert_true(cdi_mode_of(STR("imex"), &mode) && mode == CDI_MODE_IMEX);
    assert_false(cdi_mode_of(STR("csv"), &mode));
    assert_true(cdi_naming_of(STR("type-index"), &naming) && naming == CDI_NAME_TYPE_INDEX);
    assert_false(cdi_naming_of(STR("name"), &naming));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(old_mig_ids),
        cmocka_unit_test(the_device_all),
        cmocka_unit_test(hooks),
        cmocka_unit_test(part_without_nodes),
        cmocka_unit_test(other_modes),
        cmocka_unit_test(coherent),
        cmocka_unit_test(no_gpu),
        cmocka_unit_test(what_is_written_is_valid),
        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
