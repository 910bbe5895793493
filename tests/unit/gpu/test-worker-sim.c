/* SPDX-License-Identifier: Apache-2.0 */
/* The worker against the simulated driver: every board, MIG layouts, and faults while it runs. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include "gpu/nvml_abi.h"
#include "sim/simstate.h"
#include "worker-bench.h"

struct lab {
    struct bench b;
    struct host host;
};

static void lab_set(const struct lab *l, const char *change)
{
    char *words[16], text[256];
    int n = 0;
    struct error err;
    snprintf(text, sizeof text, "%s", change);
    for (char *at = text; at && n < (int)ARRAY_LEN(words);) {
        words[n++] = at;
        at = strchr(at, ' ');
        if (at)
            *at++ = '\0';
    }
    if (sim_set(l->b.f.dir, n, words, &err) < 0)
        fail_msg("%s: %s", change, err.text);
}

static void lab_begin(struct lab *l, const char *model, uint32_t gpus, const char *hide)
{
    struct error err;
    *l = (struct lab){ 0 };
    snprintf(l->b.f.dir, sizeof l->b.f.dir, "/tmp/mete-test-gpu.XXXXXX");
    if (!mkdtemp(l->b.f.dir))
        abort();
    const struct sim_create create = {
        .dir = l->b.f.dir,
        .model = model,
        .gpus = gpus,
        .library = getenv("METE_SIM_LIBRARY"),
        .hide_symbols = hide,
    };
    if (sim_create(&create, &err) < 0 ||
        host_init(&l->host, &(struct host_config){ .root = l->b.f.dir }, &err) < 0)
        fail_msg("%s", err.text);
    l->b.host = &l->host;
    bench_config(&l->b);
}

static void lab_start(struct lab *l)
{
    struct error err;
    if (gpu_worker_new(l->b.loop, &l->b.config, &l->b.w, &err) < 0)
        fail_msg("%s", err.text);
}

static void lab_end(struct lab *l)
{
    bench_done(&l->b);
    host_done(&l->host);
    nftw(l->b.f.dir, fake_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static bool all_well(struct bench *b)
{
    bool lost = false;
    for (size_t i = 0; b->last && i < b->last->n_gpus; i++)
        lost = lost || b->last->gpus[i].lost;
    return b->surveys && b->state == DRIVER_OK && !b->stale && b->last->driver == DRIVER_OK &&
           b->last->n_gpus > 0 && !lost;
}
static bool two_lost(struct bench *b)
{
    return b->last && b->last->driver == DRIVER_OK && b->last->n_gpus == 4 && b->last->gpus[2].lost;
}
static bool two_was_reset(struct bench *b)
{
    return all_well(b) && b->last->gpus[2].generation > 0;
}
static bool got_xid(struct bench *b)
{
    return b->xids > 0;
}
static bool is_hung(struct bench *b)
{
    return b->state == DRIVER_HUNG;
}
static bool is_not_loaded(struct bench *b)
{
    return b->state == DRIVER_NOT_LOADED;
}
static bool is_mismatched(struct bench *b)
{
    return b->state == DRIVER_VERSION_MISMATCH;
}

/* ---- boards ---- */

static void boards(void **state)
{
    static const struct {
        const char *model, *name;
        uint64_t mib;
        uint32_t cc_major;
        bool mig, unified;
    } cases[] = {
        { "a100-40", "NVIDIA A100-SXM4-40GB", 40960, 8, true, false },
        { "a100-80", NULL, 81920, 8, true, false },
        { "a30", "NVIDIA A30", 0, 8, true, false },
        { "h100-sxm", "NVIDIA H100 80GB HBM3", 81559, 9, true, false },
        { "h100-pcie", NULL, 0, 9, true, false },
        { "h100-nvl", NULL, 0, 9, true, false },
        { "h200", "NVIDIA H200", 143771, 9, true, false },
        { "b200", "NVIDIA B200", 183359, 10, true, false },
        { "l40s", "NVIDIA L40S", 46068, 8, false, false },
        { "t4", "Tesla T4", 15360, 7, false, false },
        { "gb10", "NVIDIA GB10", 0, 12, false, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct lab l;
        struct survey *s;
        struct error err;
        lab_begin(&l, cases[i].model, 0, NULL);
        if (gpu_survey_once(&l.host, 5000, &s, &err) < 0)
            fail_msg("%s: %s", cases[i].model, err.text);
        const struct gpu *g = &s->gpus[0];
        if (s->driver != DRIVER_OK || s->n_gpus == 0 || g->lost)
            fail_msg("%s: %s %s", cases[i].model, s->driver_text, g->lost_text);
        if (cases[i].name)
            assert_string_equal(g->name, cases[i].name);
        assert_true(g->valid & GPU_HAS_MEMORY);
        if (cases[i].mib)
            assert_int_equal(g->memory_bytes >> 20, cases[i].mib);
        assert_int_equal(g->cc_major, cases[i].cc_major);
        assert_int_equal(!(g->valid & GPU_HAS_MIG), !cases[i].mig);
        assert_int_equal(!(g->valid & GPU_UNIFIED), !cases[i].unified);
        assert_string_equal(g->memory_source, cases[i].unified ? "meminfo" : "nvml-v2");
        assert_true(g->valid & GPU_HAS_PCI && g->valid & GPU_HAS_MINOR);
        for (size_t k = 1; k < s->n_gpus; k++)
            assert_non_null(survey_link(s, 0, k));
        survey_unref(s);
        lab_end(&l);
    }
}

/* DGX H100: eighteen links of each gpu into four switches. */
static void links(void **state)
{
    struct lab l;
    struct survey *s;
    struct error err;
    lab_begin(&l, "h100-sxm", 8, NULL);
    assert_int_equal(gpu_survey_once(&l.host, 5000, &s, &err), 0);
    for (size_t a = 0; a < 8; a++)
        for (size_t b = 0; b < 8; b++)
            if (a != b) {
                assert_int_equal(survey_link(s, a, b)->nvlinks, 18);
                assert_true(survey_link(s, a, b)->through_switch);
            }
    survey_unref(s);
    lab_end(&l);
    lab_begin(&l, "h100-nvl", 4, NULL); /* bridges: pairs */
    assert_int_equal(gpu_survey_once(&l.host, 5000, &s, &err), 0);
    size_t linked = 0;
    for (size_t b = 1; b < 4; b++)
        linked += survey_link(s, 0, b)->nvlinks > 0 && !survey_link(s, 0, b)->through_switch;
    assert_int_equal(linked, 1);
    survey_unref(s);
    lab_end(&l);
}

static void layouts(void **state)
{
    static const struct {
        const char *model, *layout;
    } cases[] = {
        { "a100-40", "3g.20gb,2g.10gb,1g.5gb" },
        { "a100-80", "4g.40gb,1g.10gb,1g.10gb+me" },
        { "a30", "2g.12gb,1g.6gb" },
        { "h100-sxm", "3g.40gb,2g.20gb,1g.10gb" },
        { "h200", "3g.71gb,1g.18gb,1g.18gb+me" },
        { "b200", "7g.180gb" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct lab l;
        struct survey *s;
        struct error err;
        char change[128];
        lab_begin(&l, cases[i].model, 2, NULL);
        lab_set(&l, "gpu 1 mig on");
        lab_set(&l, "gpu 1 reset"); /* Ampere switches only then */
        snprintf(change, sizeof change, "gpu 1 mig %s", cases[i].layout);
        lab_set(&l, change);
        assert_int_equal(gpu_survey_once(&l.host, 5000, &s, &err), 0);
        const struct gpu *g = &s->gpus[1];
        struct str rest = str_of(cases[i].layout);
        size_t n = 0;
        while (rest.p) {
            struct str want = str_cut(&rest, ',');
            bool found = false;
            for (size_t k = 0; k < g->n_parts; k++)
                found = found || str_is(want, g->parts[k].profile);
            if (!found)
                fail_msg("%s: no %.*s", cases[i].model, STR_FMT(want));
            n++;
        }
        assert_int_equal(g->n_parts, n);
        for (size_t k = 0; k < g->n_parts; k++) {
            const struct part *p = &g->parts[k];
            assert_int_equal(p->valid, PART_HAS_ATTRIBUTES | PART_HAS_CAPS | PART_HAS_PLACEMENT);
            /* spec/nvml-and-cuda.md 3.1 */
            assert_int_equal(p->gi_cap, 3 + 135 * g->minor + 9 * p->gi);
            assert_int_equal(p->ci_cap, p->gi_cap + 1 + p->ci);
        }
        survey_unref(s);
        lab_end(&l);
    }
}

/* ---- while it runs ---- */

static void xid_and_reset(void **state)
{
    struct lab l;
    lab_begin(&l, "h100-sxm", 4, NULL);
    lab_start(&l);
    assert_true(wait_for(&l.b, all_well));
    lab_set(&l, "gpu 2 xid 79");
    assert_true(wait_for(&l.b, got_xid));
    assert_string_equal(l.b.xid.uuid, l.b.last->gpus[2].uuid);
    assert_int_equal(l.b.xid.value, 79);
    assert_int_equal(l.b.xid.gi, UINT32_MAX);
    /* A reset without a loss between two surveys is seen all the same. */
    lab_set(&l, "gpu 2 reset");
    gpu_worker_survey(l.b.w);
    assert_true(wait_for(&l.b, two_was_reset));
    assert_int_equal(l.b.last->gpus[1].generation, 0);
    lab_end(&l);
}

static void lost_and_back(void **state)
{
    struct lab l;
    lab_begin(&l, "h100-sxm", 4, NULL);
    lab_start(&l);
    assert_true(wait_for(&l.b, all_well));
    char uuid[UUID_TEXT_SIZE];
    snprintf(uuid, sizeof uuid, "%s", l.b.last->gpus[2].uuid);
    lab_set(&l, "gpu 2 lost");
    gpu_worker_survey(l.b.w);
    assert_true(wait_for(&l.b, two_lost));
    assert_string_equal(l.b.last->gpus[2].uuid, uuid);
    run_for(&l.b, 500); /* over several workers */
    assert_true(two_lost(&l.b));
    assert_string_equal(l.b.last->gpus[2].uuid, uuid);
    assert_string_equal(l.b.last->gpus[2].name, "NVIDIA H100 80GB HBM3");
    lab_set(&l, "gpu 2 reset");
    assert_true(wait_for(&l.b, two_was_reset));
    assert_string_equal(l.b.last->gpus[2].uuid, uuid);
    lab_set(&l, "gpu 2 xid 31"); /* it is watched again */
    assert_true(wait_for(&l.b, got_xid));
    assert_string_equal(l.b.xid.uuid, uuid);
    lab_end(&l);
}

static void driver_faults(void **state)
{
    struct lab l;
    lab_begin(&l, "h100-sxm", 4, NULL);
    lab_start(&l);
    assert_true(wait_for(&l.b, all_well));
    lab_set(&l, "driver unload");
    gpu_worker_survey(l.b.w);
    assert_true(wait_for(&l.b, is_not_loaded));
    assert_int_equal(l.b.last->n_gpus, 4);
    lab_set(&l, "driver load");
    assert_true(wait_for(&l.b, all_well));
    assert_int_equal(l.b.last->gpus[0].generation, 1);
    gpu_worker_release(l.b.w);
    lab_set(&l, "driver mismatch");
    gpu_worker_acquire(l.b.w);
    assert_true(wait_for(&l.b, is_mismatched));
    assert_non_null(strstr(l.b.why, "NVML 18"));
    lab_set(&l, "driver reload");
    assert_true(wait_for(&l.b, all_well));
    lab_end(&l);
}

static void hang(void **state)
{
    struct lab l;
    lab_begin(&l, "h100-sxm", 4, NULL);
    l.b.config.call_timeout_ms = 400;
    lab_start(&l);
    assert_true(wait_for(&l.b, all_well));
    lab_set(&l, "call nvmlDeviceGetMemoryInfo_v2 hang");
    gpu_worker_survey(l.b.w);
    assert_true(wait_for(&l.b, is_hung));
    assert_non_null(strstr(l.b.why, "nvmlDeviceGetMemoryInfo_v2 for gpu 0"));
    lab_set(&l, "call all ok");
    assert_true(wait_for(&l.b, all_well));
    lab_end(&l);
}

static bool mig_changed(struct bench *b)
{
    return b->last && b->last->n_gpus == 2 && b->last->gpus[0].n_parts == 2;
}

static void mig_while_it_runs(void **state)
{
    struct lab l;
    lab_begin(&l, "h100-sxm", 2, NULL);
    lab_set(&l, "gpu 0 mig on");
    lab_set(&l, "gpu 0 mig 3g.40gb,1g.10gb,1g.10gb");
    lab_start(&l);
    assert_true(wait_for(&l.b, all_well));
    assert_int_equal(l.b.last->gpus[0].n_parts, 3);
    char kept[2][UUID_TEXT_SIZE], gone[UUID_TEXT_SIZE], change[64];
    const struct part *p = l.b.last->gpus[0].parts;
    memcpy(kept[0], p[0].uuid, UUID_TEXT_SIZE);
    memcpy(gone, p[1].uuid, UUID_TEXT_SIZE);
    memcpy(kept[1], p[2].uuid, UUID_TEXT_SIZE);
    snprintf(change, sizeof change, "gpu 0 mig destroy gi %u", p[1].gi);
    lab_set(&l, change);
    assert_true(wait_for(&l.b, mig_changed));
    assert_non_null(survey_part(l.b.last, kept[0], NULL));
    assert_non_null(survey_part(l.b.last, kept[1], NULL));
    assert_null(survey_part(l.b.last, gone, NULL));
    lab_end(&l);
}

/* A driver of before 510: what it cannot do is absent, the gpus are there. */
static void old_driver(void **state)
{
    struct lab l;
    struct survey *s;
    struct error err;
    lab_begin(&l, "a100-40", 2,
              "nvmlInit_v2,nvmlInitWithFlags,nvmlDeviceGetMemoryInfo_v2,nvmlDeviceGetPciInfo_v3,"
              "nvmlDeviceGetCount_v2,nvmlDeviceGetHandleByIndex_v2,nvmlEventSetWait_v2,"
              "nvmlDeviceGetGpuFabricInfo*,nvmlDeviceGetFieldValues,nvmlDeviceGetModuleId");
    assert_int_equal(gpu_survey_once(&l.host, 5000, &s, &err), 0);
    assert_int_equal(s->driver, DRIVER_OK);
    assert_int_equal(s->n_gpus, 2);
    assert_string_equal(s->gpus[1].memory_source, "nvml-v1");
    assert_false(s->gpus[1].valid & (GPU_HAS_MODULE | GPU_HAS_FABRIC | GPU_HAS_RECOVERY));
    assert_true(s->gpus[1].valid & GPU_HAS_EVENTS && s->gpus[1].valid & GPU_HAS_PCI);
    survey_unref(s);
    lab_end(&l);
}

/* B-035 */
static void monitor_denied(void **state)
{
    struct lab l;
    struct survey *s;
    struct error err;
    lab_begin(&l, "h100-sxm", 2, NULL);
    lab_set(&l, "gpu 0 mig on");
    lab_set(&l, "gpu 0 mig 3g.40gb");
    lab_set(&l, "monitor-cap deny");
    assert_int_equal(gpu_survey_once(&l.host, 5000, &s, &err), 0);
    assert_int_equal(s->gpus[0].n_parts, 0);
    assert_non_null(strstr(s->gpus[0].mig_text, "nvidia-cap2 (monitor)"));
    assert_int_equal(s->gpus[1].lost, 0);
    survey_unref(s);
    lab_end(&l);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "gpu-worker") == 0)
        return bench_worker(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boards),        cmocka_unit_test(links),
        cmocka_unit_test(layouts),       cmocka_unit_test(xid_and_reset),
        cmocka_unit_test(lost_and_back), cmocka_unit_test(driver_faults),
        cmocka_unit_test(hang),          cmocka_unit_test(mig_while_it_runs),
        cmocka_unit_test(old_driver),    cmocka_unit_test(monitor_denied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
