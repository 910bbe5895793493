/* SPDX-License-Identifier: Apache-2.0 */
/* Labels: MIG strategies, sharing, several models, and what must not break the others. The peer's
 * recorded runs are in tests/golden/test-labels.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "data/kname.h"
#include "make_survey.h"
#include "node/labels.h"

static const struct plugin_config defaults;
static const struct label_facts plain_facts = { .vgpu = VGPU_NONE };

static struct survey *h100s(size_t n)
{
    struct survey *s = make_survey(n);
    s->cuda_version = 12040;
    for (size_t i = 0; i < n; i++) {
        struct gpu *g = &s->gpus[i];
        g->valid |= GPU_HAS_MEMORY | GPU_HAS_CC | GPU_HAS_PCI | GPU_HAS_PCI_CLASS;
        g->memory_bytes = 80ull << 30;
        g->pci_class = 0x030200;
        g->cc_major = 9;
    }
    return s;
}

static void rename_gpu(struct survey *s, size_t i, const char *name, uint64_t gib)
{
    snprintf(s->gpus[i].name, sizeof s->gpus[i].name, "%s", name);
    s->gpus[i].memory_bytes = gib << 30;
}

static struct labels *build(struct survey *s, const struct plugin_config *c,
                            const struct label_facts *f, bool per_model)
{
    const struct label_input in = { .survey = s,
                                    .config = c ? c : &defaults,
                                    .facts = f ? f : &plain_facts,
                                    .timestamp = -1,
                                    .per_model = per_model };
    struct labels *l = NULL;
    struct error err;
    if (labels_build(&in, &l, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < l->n; i++) {
        assert_int_equal(kname_qualified(str_of(l->items[i].key), &err), 0);
        assert_int_equal(kname_label_value(str_of(l->items[i].value), &err), 0);
        assert_true(i == 0 || strcmp(l->items[i - 1].key, l->items[i].key) < 0);
    }
    return l;
}

static bool noted(const struct labels *l, const char *id)
{
    for (size_t i = 0; i < l->notes.n; i++)
        if (strcmp(l->notes.items[i].id, id) == 0)
            return true;
    return false;
}

/* "key=value" lines without "nvidia.com/"; "!key": it is not there. */
static void expect(const struct labels *l, const char *lines)
{
    struct str rest = str_of(lines);
    while (rest.p) {
        struct str value = str_cut(&rest, '\n');
        bool absent = str_starts(value, "!");
        struct str name = str_cut(&value, '=');
        auto_free char *key = x_printf("nvidia.com/%.*s", (int)(name.n - absent), name.p + absent);
        const char *is = labels_get(l, key);
        if (absent ? is != NULL : !is || !str_is(value, is))
            fail_msg("%s is %s, not \"%.*s\"", key, is ? is : "absent", STR_FMT(value));
    }
}

static void expect_of(struct survey *s, const struct plugin_config *c, const char *lines)
{
    struct labels *l = build(s, c, NULL, false);
    expect(l, lines);
    labels_free(l);
}

/* ---- sharing (B-022) ---- */

static const struct plugin_config *shared_by(enum sharing_kind kind, const char *resource,
                                             uint32_t replicas, bool rename,
                                             enum mig_strategy strategy)
{
    static struct shared_resource entry;
    static struct plugin_config c;
    entry = (struct shared_resource){ .name = resource, .all = true, .replicas = replicas };
    c = (struct plugin_config){
        .mig_strategy = strategy,
        .sharing = { .kind = kind,
                     .rename_by_default = rename,
                     .resources = &entry,
                     .n_resources = 1 },
    };
    return &c;
}

static void sharing_follows_the_config(void **state)
{
    const enum sharing_kind ts = SHARING_TIME_SLICING;
    struct survey *s = h100s(2);
    const char *none = "gpu.replicas=1\ngpu.sharing-strategy=none\n"
                       "gpu.product=NVIDIA-H100-80GB-HBM3\nmps.capable=false";
    expect_of(s, NULL, none);
    expect_of(s, shared_by(ts, "nvidia.com/gpu", 4, false, MIG_STRATEGY_NONE),
              "gpu.replicas=4\ngpu.sharing-strategy=time-slicing\n"
              "gpu.product=NVIDIA-H100-80GB-HBM3-SHARED\nmps.capable=false");
    expect_of(s, shared_by(ts, "nvidia.com/gpu", 4, true, MIG_STRATEGY_NONE),
              "gpu.replicas=4\ngpu.sharing-strategy=time-slicing\n"
              "gpu.product=NVIDIA-H100-80GB-HBM3");
    expect_of(s, NULL, none);
    expect_of(s, shared_by(SHARING_MPS, "nvidia.com/gpu", 3, false, MIG_STRATEGY_NONE),
              "gpu.replicas=3\ngpu.sharing-strategy=mps\n"
              "gpu.product=NVIDIA-H100-80GB-HBM3-SHARED\nmps.capable=true");
    expect_of(s, shared_by(SHARING_MPS, "nvidia.com/gpu", 1, false, MIG_STRATEGY_NONE), none);
    expect_of(s, shared_by(ts, "nvidia.com/mig-1g.10gb", 4, false, MIG_STRATEGY_NONE), none);
    survey_unref(s);
}

static void some_gpus_shared(void **state)
{
    struct survey *s = h100s(4);
    const struct device_ref first = { .kind = REF_INDEX, .gpu = 0 };
    const struct device_ref by_uuid = { .kind = REF_UUID, .uuid = s->gpus[3].uuid };
    struct shared_resource e[] = {
        { .name = "nvidia.com/gpu", .refs = &first, .n_refs = 1, .replicas = 4 },
        { .name = "nvidia.com/gpu", .refs = &by_uuid, .n_refs = 1, .replicas = 8 },
    };
    struct plugin_config c = {
        .sharing = { .kind = SHARING_TIME_SLICING, .resources = e, .n_resources = 2 }
    };
    /* A pod that asks for nvidia.com/gpu may get a share. */
    expect_of(s, &c,
              "gpu.replicas=8\ngpu.sharing-strategy=time-slicing\n"
              "gpu.product=NVIDIA-H100-80GB-HBM3-SHARED");
    /* It cannot: the shares have another name. */
    e[0].rename = e[1].rename = "nvidia.com/gpu.small";
    expect_of(s, &c,
              "gpu.replicas=1\ngpu.sharing-strategy=none\ngpu.product=NVIDIA-H100-80GB-HBM3");
    e[0] = (struct shared_resource){ .name = "nvidia.com/gpu", .count = 4, .replicas = 2 };
    c.sharing.n_resources = 1;
    c.sharing.rename_by_default = true;
    expect_of(s, &c,
              "gpu.replicas=2\ngpu.sharing-strategy=time-slicing\n"
              "gpu.product=NVIDIA-H100-80GB-HBM3");
    survey_unref(s);
}

static void resource_patterns(void **state)
{
    const struct resource_pattern p[] = { { .pattern = "*H100*", .name = "nvidia.com/h100" } };
    struct shared_resource e = { .name = "nvidia.com/h100", .all = true, .replicas = 4 };
    const struct plugin_config c = {
        .gpu_patterns = p,
        .n_gpu_patterns = 1,
        .sharing = { .kind = SHARING_TIME_SLICING, .resources = &e, .n_resources = 1 },
    };
    struct survey *s = h100s(1);
    expect_of(s, &c, "gpu.replicas=4\ngpu.sharing-strategy=time-slicing");
    survey_unref(s);
}

/* ---- MIG ---- */

static struct part *full_part(struct survey *s, size_t gpu, const char *profile)
{
    struct part *p = make_part(s, gpu, profile);
    p->multiprocessors = 16 * p->gi_slices;
    p->copy_engines = p->gi_slices;
    p->decoders = p->jpegs = p->ofas = 1;
    return p;
}

static void mig_none(void **state)
{
    struct survey *s = h100s(2);
    full_part(s, 0, "1g.10gb");
    /* One gpu can still be had whole: it speaks for the model. */
    expect_of(s, NULL,
              "gpu.count=2\ngpu.replicas=1\n!mig.strategy\nmig.capable=true\n!mig-1g.10gb.count\n"
              "gpu.memory=81920");
    full_part(s, 1, "1g.10gb");
    expect_of(s, NULL, "gpu.count=2\ngpu.replicas=0\ngpu.sharing-strategy=none");
    /* Parents are never marked as shared. */
    expect_of(s, shared_by(SHARING_TIME_SLICING, "nvidia.com/gpu", 4, false, MIG_STRATEGY_NONE),
              "gpu.replicas=0\ngpu.sharing-strategy=none\ngpu.product=NVIDIA-H100-80GB-HBM3");
    survey_unref(s);
}

static void mig_single(void **state)
{
    struct survey *s = h100s(2);
    struct plugin_config c = { .mig_strategy = MIG_STRATEGY_SINGLE };
    expect_of(s, &c, "mig.strategy=single\ngpu.count=2\ngpu.product=NVIDIA-H100-80GB-HBM3");
    full_part(s, 0, "3g.40gb");
    full_part(s, 0, "3g.40gb");
    const char *invalid = "gpu.product=NVIDIA-H100-80GB-HBM3-MIG-INVALID\ngpu.count=0\n"
                          "gpu.replicas=0\ngpu.memory=0\ngpu.sharing-strategy=\n"
                          "mig.strategy=single\ngpu.family=hopper\n!gpu.multiprocessors";
    expect_of(s, &c, invalid); /* some on, some off */
    make_part(s, 1, NULL);
    expect_of(s, &c, invalid); /* on, and empty */
    full_part(s, 1, "3g.40gb");
    expect_of(s, &c,
              "gpu.product=NVIDIA-H100-80GB-HBM3-MIG-3g.40gb\ngpu.count=3\ngpu.replicas=1\n"
              "gpu.memory=29184\ngpu.multiprocessors=48\ngpu.slices.gi=3\ngpu.slices.ci=3\n"
              "gpu.engines.copy=3\ngpu.engines.decoder=1\ngpu.engines.encoder=0\n"
              "gpu.engines.jpeg=1\ngpu.engines.ofa=1\ngpu.sharing-strategy=none\n"
              "gpu.family=hopper\ngpu.compute.major=9\ngpu.compute.minor=0\n!mig-3g.40gb.count");
    expect_of(s, shared_by(SHARING_TIME_SLICING, "nvidia.com/gpu", 4, false, MIG_STRATEGY_SINGLE),
              "gpu.product=NVIDIA-H100-80GB-HBM3-MIG-3g.40gb-SHARED\ngpu.replicas=4\n"
              "gpu.sharing-strategy=time-slicing\ngpu.count=3");
    full_part(s, 1, "1g.10gb");
    expect_of(s, &c, invalid); /* two profiles */
    survey_unref(s);
}

static void mig_single_not_disturbed(void **state)
{
    struct survey *s = h100s(3);
    struct plugin_config c = { .mig_strategy = MIG_STRATEGY_SINGLE };
    full_part(s, 0, "7g.80gb");
    full_part(s, 1, "7g.80gb");
    /* A lost gpu of which nothing is known, and one that lost its parts with it. */
    lose(s, 2);
    s->gpus[2].name[0] = '\0';
    expect_of(s, &c, "gpu.product=NVIDIA-H100-80GB-HBM3-MIG-7g.80gb\ngpu.count=2");
    lose(s, 1);
    s->gpus[1].n_parts = 0;
    expect_of(s, &c, "gpu.product=NVIDIA-H100-80GB-HBM3-MIG-7g.80gb\ngpu.count=1");
    /* Without its attributes a part never shows the figures of the whole gpu. */
    s->gpus[0].parts[0].valid = 0;
    s->gpus[0].parts[0].memory_mb = 0;
    expect_of(s, &c,
              "gpu.product=NVIDIA-H100-80GB-HBM3-MIG-7g.80gb\n!gpu.memory\n!gpu.multiprocessors");
    survey_unref(s);
}

static void mig_mixed(void **state)
{
    struct survey *s = h100s(3);
    struct plugin_config c = { .mig_strategy = MIG_STRATEGY_MIXED };
    full_part(s, 0, "3g.40gb");
    full_part(s, 1, "1g.10gb+me");
    full_part(s, 1, "1g.10gb");
    full_part(s, 1, "1g.10gb");
    full_part(s, 1, "1c.3g.40gb");
    expect_of(s, &c,
              "mig.strategy=mixed\ngpu.count=3\ngpu.replicas=1\n"
              "gpu.product=NVIDIA-H100-80GB-HBM3\ngpu.memory=81920\n"
              "mig-3g.40gb.count=1\nmig-3g.40gb.product=NVIDIA-H100-80GB-HBM3-MIG-3g.40gb\n"
              "mig-1g.10gb.me.count=1\n"
              "mig-1g.10gb.me.product=NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me\n"
              "mig-1g.10gb.count=2\nmig-1g.10gb.replicas=1\nmig-1g.10gb.sharing-strategy=none\n"
              "mig-1g.10gb.memory=9728\nmig-1g.10gb.multiprocessors=16\n"
              "mig-1g.10gb.engines.jpeg=1\nmig-1c.3g.40gb.slices.gi=3\n"
              "mig-1c.3g.40gb.slices.ci=1");
    expect_of(
        s, shared_by(SHARING_TIME_SLICING, "nvidia.com/mig-1g.10gb", 5, false, MIG_STRATEGY_MIXED),
        "mig-1g.10gb.replicas=5\nmig-1g.10gb.sharing-strategy=time-slicing\n"
        "mig-1g.10gb.product=NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED\nmig-1g.10gb.count=2\n"
        "mig-3g.40gb.replicas=1\ngpu.replicas=1");
    survey_unref(s);
}

/* A profile that cannot be told costs its own labels only. */
static void mig_unknown_profile(void **state)
{
    struct survey *s = h100s(1);
    struct plugin_config c = { .mig_strategy = MIG_STRATEGY_MIXED };
    full_part(s, 0, "1g.10gb");
    full_part(s, 0, "1g.10gb")->profile[0] = '\0';
    struct labels *l = build(s, &c, NULL, false);
    expect(l, "mig-1g.10gb.count=1\ngpu.count=1");
    assert_true(noted(l, "labels.part-left-out"));
    labels_free(l);
    survey_unref(s);
}

/* B-127: why there are no MIG labels is said. */
static void no_mig_explained(void **state)
{
    struct survey *s = h100s(1);
    struct plugin_config c = { .mig_strategy = MIG_STRATEGY_MIXED };
    s->gpus[0].pci_device = 0x318210de;
    struct labels *l = build(s, &c, NULL, false);
    expect(l, "mig.strategy=mixed\nmig.capable=true");
    assert_true(noted(l, "labels.no-mig"));
    assert_int_equal(l->notes.n, 1);
    labels_free(l);
    survey_unref(s);
}

static void mps_with_mig(void **state)
{
    struct survey *s = h100s(2);
    full_part(s, 0, "1g.10gb");
    struct labels *l = build(
        s, shared_by(SHARING_MPS, "nvidia.com/gpu", 4, false, MIG_STRATEGY_NONE), NULL, false);
    expect(l, "mps.capable=false\ngpu.count=2");
    assert_true(noted(l, "labels.mps-mig"));
    labels_free(l);
    survey_unref(s);
}

/* ---- several models (B-121) ---- */

static void reverse(struct survey *s)
{
    for (size_t i = 0, k = s->n_gpus - 1; i < k; i++, k--) {
        struct gpu g = s->gpus[i];
        s->gpus[i] = s->gpus[k];
        s->gpus[k] = g;
    }
}

static void mixed_models(void **state)
{
    struct survey *s = h100s(5);
    rename_gpu(s, 4, "NVIDIA T400", 2);
    s->gpus[4].pci_class = 0x030000;
    struct labels *l = build(s, NULL, NULL, false);
    expect(l, "gpu.product=NVIDIA-H100-80GB-HBM3\ngpu.count=4\n!gpu.memory\ngpu.mode=unknown\n"
              "gpu.family=hopper\n!gpu-model.NVIDIA-T400.count");
    assert_true(noted(l, "labels.mixed-models"));
    auto_buf a, b;
    buf_init(&a, LABEL_FILE_MAX);
    buf_init(&b, LABEL_FILE_MAX);
    labels_text(l, &a);
    labels_free(l);
    reverse(s);
    l = build(s, NULL, NULL, false);
    labels_text(l, &b);
    labels_free(l);
    assert_string_equal(a.p, b.p);
    survey_unref(s);

    s = h100s(4);
    for (size_t i = 0; i < 4; i++)
        rename_gpu(s, i, i % 2 ? "Tesla V100-SXM2-16GB" : "Tesla V100-SXM2-32GB", i % 2 ? 16 : 32);
    l = build(s, NULL, NULL, true);
    expect(l, "gpu.product=Tesla-V100-SXM2-32GB\ngpu.count=2\n!gpu.memory\n"
              "gpu-model.Tesla-V100-SXM2-32GB.memory=32768\n"
              "gpu-model.Tesla-V100-SXM2-32GB.count=2\n"
              "gpu-model.Tesla-V100-SXM2-16GB.memory=16384\n"
              "gpu-model.Tesla-V100-SXM2-16GB.product=Tesla-V100-SXM2-16GB\n"
              "gpu-model.Tesla-V100-SXM2-16GB.compute.major=9");
    labels_free(l);
    survey_unref(s);
}

/* Which model speaks when the counts are equal: one that is not cut into parts, as with the peer.
 */
static void mixed_models_with_mig(void **state)
{
    struct survey *s = h100s(3);
    struct plugin_config c = { .mig_strategy = MIG_STRATEGY_MIXED };
    rename_gpu(s, 2, "NVIDIA L40S", 48);
    full_part(s, 0, "1g.10gb");
    full_part(s, 1, "1g.10gb");
    expect_of(s, &c,
              "gpu.product=NVIDIA-L40S\ngpu.count=1\nmig-1g.10gb.count=2\n"
              "mig-1g.10gb.product=NVIDIA-H100-80GB-HBM3-MIG-1g.10gb");
    survey_unref(s);
}

static void display_boards(void **state)
{
    struct survey *s = h100s(5);
    rename_gpu(s, 0, "NVIDIA DGX Display", 4);
    s->gpus[0].pci_class = 0x030000;
    s->gpus[0].valid &= ~(uint32_t)GPU_HAS_MIG;
    struct labels *l = build(s, NULL, NULL, true);
    expect(l, "gpu.product=NVIDIA-H100-80GB-HBM3\ngpu.count=4\ngpu.memory=81920\n"
              "gpu.mode=compute\n!gpu-model.NVIDIA-DGX-Display.count");
    assert_int_equal(l->notes.n, 0);
    labels_free(l);
    survey_unref(s);
}

/* Long names that differ only at the end have keys of their own. */
static void long_model_keys(void **state)
{
    struct survey *s = h100s(2);
    rename_gpu(s, 0, "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 96);
    rename_gpu(s, 1, "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Version", 96);
    struct labels *l = build(s, NULL, NULL, true);
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        n += str_starts(str_of(l->items[i].key), "nvidia.com/gpu-model.") &&
             str_ends(str_of(l->items[i].key), ".sharing-strategy");
    assert_int_equal(n, 2);
    expect(l, "gpu.memory=98304"); /* both have the same */
    labels_free(l);
    survey_unref(s);
}

/* ---- legal values (B-126) ---- */

static void long_product(void **state)
{
    struct survey *s = h100s(1);
    rename_gpu(s, 0, "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 96);
    full_part(s, 0, "1g.24gb");
    struct labels *l =
        build(s, shared_by(SHARING_TIME_SLICING, "nvidia.com/gpu", 4, false, MIG_STRATEGY_SINGLE),
              NULL, false);
    expect(l, "gpu.product=NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstat-MIG-1g.24gb-SHARED\n"
              "gpu.replicas=4\ngpu.count=1\nmig.strategy=single");
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i].key, "nvidia.com/gpu.product") == 0)
            assert_string_equal(
                l->items[i].full,
                "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition-MIG-1g.24gb-SHARED");
        else
            assert_null(l->items[i].full);
    assert_true(noted(l, "labels.shortened"));
    labels_free(l);
    survey_unref(s);
}

static void odd_texts(void **state)
{
    static const struct {
        const char *machine, *label;
    } cases[] = {
        { "Test Machine 9000 (rev. B)", "Test-Machine-9000-rev.-B" },
        { "PowerEdge  R760xa", "PowerEdge-R760xa" },
        { "A ( ) B", "A-B" },
        { "System Product Name (To be filled by O.E.M.)",
          "System-Product-Name-To-be-filled-by-O.E.M" },
        { "  -X-  ", "X" },
        { "\xe6\x9c\xba\xe5\x99\xa8", "unknown" },
        { "", "unknown" },
        { "...", "unknown" },
        { "a\tb/c", "abc" },
        { "0123456789012345678901234567890123456789012345678901234567890123456789",
          "012345678901234567890123456789012345678901234567890123456789012" },
        { "01234567890123456789012345678901234567890123456789012345678901 - 3456789",
          "01234567890123456789012345678901234567890123456789012345678901" },
    };
    struct survey *s = h100s(1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct label_facts f = plain_facts;
        snprintf(f.machine, sizeof f.machine, "%s", cases[i].machine);
        struct labels *l = build(s, NULL, &f, false);
        assert_string_equal(labels_get(l, "nvidia.com/gpu.machine"), cases[i].label);
        labels_free(l);
    }
    survey_unref(s);
}

static void driver_versions(void **state)
{
    struct survey *s = h100s(1);
    static const struct {
        const char *version, *labels;
    } cases[] = {
        { "580.159.04", "cuda.driver-version.full=580.159.04\ncuda.driver.rev=04\n"
                        "cuda.driver-version.revision=04\ncuda.driver.major=580" },
        { "470.82", "cuda.driver-version.full=470.82\ncuda.driver-version.revision=\n"
                    "cuda.driver.rev=\ncuda.driver-version.minor=82" },
        { "418", "cuda.driver-version.full=418\n!cuda.driver.major\ngpu.count=1" },
        { "1.2.3.4", "cuda.driver-version.full=1.2.3.4\n!cuda.driver-version.major\ngpu.count=1" },
        { "", "!cuda.driver-version.full\n!cuda.driver.major\ngpu.count=1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(s->driver_version, sizeof s->driver_version, "%s", cases[i].version);
        expect_of(s, NULL, cases[i].labels);
    }
    s->cuda_version = 0;
    expect_of(s, NULL, "!cuda.runtime.major\n!cuda.runtime-version.full\ngpu.count=1");
    s->cuda_version = 11080;
    expect_of(s, NULL,
              "cuda.runtime.major=11\ncuda.runtime.minor=8\n"
              "cuda.runtime-version.full=11.8");
    survey_unref(s);
}

/* ---- what one gpu does not tell costs nothing else ---- */

static void families(void **state)
{
    static const struct {
        uint32_t major, minor;
        const char *family;
    } cases[] = {
        { 1, 3, "tesla" },        { 2, 1, "fermi" },      { 3, 7, "kepler" },
        { 4, 0, "undefined" },    { 5, 2, "maxwell" },    { 6, 1, "pascal" },
        { 7, 0, "volta" },        { 7, 2, "volta" },      { 7, 5, "turing" },
        { 8, 0, "ampere" },       { 8, 6, "ampere" },     { 8, 8, "ampere" },
        { 8, 9, "ada-lovelace" }, { 9, 0, "hopper" },     { 10, 3, "blackwell" },
        { 11, 0, "undefined" },   { 12, 1, "blackwell" }, { 13, 0, "rubin" },
        { 14, 0, "undefined" },
    };
    struct survey *s = h100s(1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        s->gpus[0].cc_major = cases[i].major;
        s->gpus[0].cc_minor = cases[i].minor;
        struct labels *l = build(s, NULL, NULL, false);
        assert_string_equal(labels_get(l, "nvidia.com/gpu.family"), cases[i].family);
        labels_free(l);
    }
    s->gpus[0].valid &= ~(uint32_t)GPU_HAS_CC;
    expect_of(s, NULL, "!gpu.family\n!gpu.compute.major\n!gpu.compute.minor\ngpu.count=1");
    survey_unref(s);
}

/* B-125, B-170: no memory of its own, or none told. */
static void unified_memory(void **state)
{
    struct survey *s = h100s(1);
    struct gpu *g = &s->gpus[0];
    rename_gpu(s, 0, "NVIDIA GB10", 120);
    g->valid |= GPU_UNIFIED;
    snprintf(g->memory_source, sizeof g->memory_source, "meminfo");
    struct labels *l = build(s, NULL, NULL, false);
    expect(l, "!gpu.memory\ngpu.product=NVIDIA-GB10\ngpu.count=1\ngpu.family=hopper\n"
              "cuda.driver.major=550");
    assert_true(noted(l, "labels.no-memory"));
    labels_free(l);
    g->valid &= ~(uint32_t)(GPU_UNIFIED | GPU_HAS_MEMORY);
    g->memory_bytes = 0;
    expect_of(s, NULL, "!gpu.memory\ngpu.count=1");
    /* MPS there: B-171. */
    expect_of(s, shared_by(SHARING_MPS, "nvidia.com/gpu", 4, false, MIG_STRATEGY_NONE),
              "mps.capable=true\n!gpu.memory\ngpu.replicas=4");
    survey_unref(s);
}

static void lost_gpus(void **state)
{
    struct survey *s = h100s(4);
    lose(s, 2);
    expect_of(s, NULL, "gpu.count=4\ngpu.memory=81920\ngpu.mode=compute\ngpu.machine=unknown");
    /* Lost before anybody saw it. */
    s->gpus[2] = (struct gpu){ .index = 2, .lost = 15 };
    struct labels *l = build(s, NULL, NULL, false);
    expect(l, "gpu.count=3\ngpu.memory=81920\ngpu.mode=compute\nmig.capable=true");
    assert_true(noted(l, "labels.gpu-unknown"));
    labels_free(l);
    for (size_t i = 0; i < 4; i++)
        s->gpus[i] = (struct gpu){ .index = (uint32_t)i, .lost = 15 };
    expect_of(s, NULL,
              "!gpu.count\n!gpu.product\nmig.capable=false\ncuda.driver.major=550\n"
              "gpu.machine=unknown");
    survey_unref(s);
}

/* One unreadable sysfs attribute takes neither the mode nor anything else. */
static void unreadable_class(void **state)
{
    struct survey *s = h100s(3);
    s->gpus[1].valid &= ~(uint32_t)(GPU_HAS_PCI_CLASS | GPU_HAS_NUMA);
    s->gpus[1].pci_class = 0;
    expect_of(s, NULL, "gpu.mode=compute\ngpu.count=3");
    s->gpus[0].pci_class = s->gpus[2].pci_class = 0x030000;
    expect_of(s, NULL, "gpu.mode=graphics");
    s->gpus[2].pci_class = 0x030200;
    expect_of(s, NULL, "gpu.mode=unknown");
    s->gpus[0].pci_class = s->gpus[2].pci_class = 0x120000;
    expect_of(s, NULL, "gpu.mode=unknown");
    for (size_t i = 0; i < 3; i++)
        s->gpus[i].valid &= ~(uint32_t)GPU_HAS_PCI_CLASS;
    expect_of(s, NULL, "gpu.mode=unknown");
    survey_unref(s);
}

static void cliques(void **state)
{
    struct survey *s = h100s(3);
    for (size_t i = 0; i < 3; i++) {
        struct gpu *g = &s->gpus[i];
        g->valid |= GPU_HAS_FABRIC;
        g->fabric_state = 3;
        g->fabric_clique = 32766;
        memcpy(g->fabric_cluster,
               "\x01\x23\x45\x67\x89\xab\xcd\xef\xfe\xdc\xba\x98\x76\x54\x32\x10", 16);
    }
    const char *good = "gpu.clique=01234567-89ab-cdef-fedc-ba9876543210.32766";
    expect_of(s, NULL, good);
    assert_false(labels_unsettled(s));
    s->gpus[0].valid &= ~(uint32_t)GPU_HAS_FABRIC;
    expect_of(s, NULL, good);
    s->gpus[1].fabric_state = 2; /* still forming */
    expect_of(s, NULL, good);
    assert_true(labels_unsettled(s));
    s->gpus[1].fabric_state = 3;
    s->gpus[1].fabric_clique = 1;
    expect_of(s, NULL, "!gpu.clique\ngpu.count=3");
    s->gpus[1].fabric_clique = 32766;
    s->gpus[1].fabric_cluster[0] = 9;
    expect_of(s, NULL, "!gpu.clique");
    lose(s, 1); /* what it said is old */
    expect_of(s, NULL, good);
    s->gpus[2].fabric_status = 1;
    expect_of(s, NULL, "!gpu.clique");
    s->gpus[2].fabric_status = 0;
    memset(s->gpus[2].fabric_cluster, 0, 16);
    expect_of(s, NULL, "!gpu.clique"); /* a plain HGX H100 */
    survey_unref(s);
}

static void no_gpus(void **state)
{
    struct survey *s = make_survey(0);
    struct label_facts f = { .vgpu = VGPU_NONE };
    const struct label_input in = {
        .survey = s, .config = &defaults, .facts = &f, .timestamp = 1796020000
    };
    struct labels *l = NULL;
    struct error err;
    assert_int_equal(labels_build(&in, &l, &err), 0);
    auto_buf out;
    buf_init(&out, LABEL_FILE_MAX);
    labels_text(l, &out);
    assert_string_equal(out.p,
                        "nvidia.com/gfd.timestamp=1796020000\nnvidia.com/vgpu.present=false\n");
    labels_free(l);
    survey_unref(s);
}

static void vgpu_labels(void **state)
{
    struct survey *s = h100s(1);
    rename_gpu(s, 0, "GRID A100-10C", 10);
    s->gpus[0].valid &= ~(uint32_t)(GPU_HAS_EVENTS | GPU_HAS_MIG); /* B-174 */
    struct label_facts f = { .vgpu = VGPU_GUEST,
                             .vgpu_version = "460.16",
                             .vgpu_branch = "r460_00" };
    struct labels *l = build(s, NULL, &f, false);
    expect(l, "vgpu.present=true\nvgpu.host-driver-version=460.16\n"
              "vgpu.host-driver-branch=r460_00\ngpu.product=GRID-A100-10C\ngpu.count=1\n"
              "mig.capable=false");
    labels_free(l);
    f = (struct label_facts){ .vgpu = VGPU_GUEST, .vgpu_text = "no record" };
    l = build(s, NULL, &f, false);
    expect(l, "vgpu.present=true\n!vgpu.host-driver-version\n!vgpu.host-driver-branch");
    labels_free(l);
    f = (struct label_facts){ .vgpu = VGPU_UNKNOWN, .vgpu_text = "64 bytes only" };
    l = build(s, NULL, &f, false);
    expect(l, "!vgpu.present\ngpu.count=1");
    assert_true(noted(l, "labels.vgpu-unknown"));
    labels_free(l);
    /* B-175: MIG-backed: what exists is labelled. */
    full_part(s, 0, "1g.10gb");
    expect_of(s, &(struct plugin_config){ .mig_strategy = MIG_STRATEGY_MIXED },
              "mig-1g.10gb.count=1");
    survey_unref(s);
}

static void every_allocation_may_fail(void **state)
{
    struct survey *s = h100s(8);
    struct plugin_config c = { .mig_strategy = MIG_STRATEGY_MIXED };
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 7; k++)
            full_part(s, i, k % 2 ? "1g.10gb" : "2g.20gb");
    const struct label_input in = {
        .survey = s, .config = &c, .facts = &plain_facts, .timestamp = 1, .per_model = true
    };
    int r = -1;
    for (uint64_t k = 1; r < 0; k++) {
        struct labels *l = NULL;
        struct error err = { 0 };
        mem_fail_at(k);
        r = labels_build(&in, &l, &err);
        mem_fail_at(0);
        assert_true(r == 0 || r == -ERR_LIMIT);
        assert_true(r < 0 || labels_get(l, "nvidia.com/mig-1g.10gb.count"));
        labels_free(l);
        assert_true(k < 1000);
    }
    survey_unref(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharing_follows_the_config),
        cmocka_unit_test(some_gpus_shared),
        cmocka_unit_test(resource_patterns),
        cmocka_unit_test(mig_none),
        cmocka_unit_test(mig_single),
        cmocka_unit_test(mig_single_not_disturbed),
        cmocka_unit_test(mig_mixed),
        cmocka_unit_test(mig_unknown_profile),
        cmocka_unit_test(no_mig_explained),
        cmocka_unit_test(mps_with_mig),
        cmocka_unit_test(mixed_models),
        cmocka_unit_test(mixed_models_with_mig),
        cmocka_unit_test(display_boards),
        cmocka_unit_test(long_model_keys),
        cmocka_unit_test(long_product),
        cmocka_unit_test(odd_texts),
        cmocka_unit_test(driver_versions),
        cmocka_unit_test(families),
        cmocka_unit_test(unified_memory),
        cmocka_unit_test(lost_gpus),
        cmocka_unit_test(unreadable_class),
        cmocka_unit_test(cliques),
        cmocka_unit_test(no_gpus),
        cmocka_unit_test(vgpu_labels),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
