/* SPDX-License-Identifier: Apache-2.0 */
/* The recorded runs of the peer's feature discovery, on equal hosts made by hand: same labels, byte
 * for byte, timestamp aside.
 *
 * usage: test-labels RECORDINGS */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "node/labels.h"

enum { FILE_MAX = 64 * 1024, TIMESTAMP = 1796020000, RUNS_LEAST = 40 };

/* README-recordings.md; the mock says of every product that it can do MIG. */
static const struct profile {
    const char *name, *model, *driver;
    uint32_t gpus, cc_major, cc_minor;
    int cuda;
    uint64_t memory_bytes;
    bool mig_on, clique;
} profiles[] = {
    { "h100", "NVIDIA H100 80GB HBM3", "550.163.01", 8, 9, 0, 12040, 80ull << 30, false, true },
    { "h100-mig", "NVIDIA H100 80GB HBM3", "550.163.01", 8, 9, 0, 12040, 80ull << 30, true, true },
    { "a100", "NVIDIA A100-SXM4-40GB", "550.163.01", 8, 8, 0, 12040, 40ull << 30, false, false },
    { "l40s", "NVIDIA L40S", "550.163.01", 8, 8, 9, 12040, 48ull << 30, false, false },
    { "t4", "NVIDIA T4", "550.163.01", 4, 7, 5, 12040, 16ull << 30, false, false },
    { "b200", "NVIDIA B200", "560.35.03", 8, 10, 0, 12060, 192ull << 30, false, false },
    { "gb200", "NVIDIA GB200", "580.65.06", 8, 10, 0, 13000, 192ull << 30, false, true },
    { "gb300", "NVIDIA GB300 NVL", "570.124.06", 8, 10, 0, 12080, 288ull << 30, false, true },
    { "h200", "NVIDIA H200", "580.159.04", 1, 9, 0, 13000, 150754820096ull, false, false },
};

static const char *recordings;
static size_t runs;

static struct survey *survey_for(const struct profile *p, bool sysfs)
{
    struct survey *s = survey_new();
    s->driver = DRIVER_OK;
    s->cuda_version = p->cuda;
    snprintf(s->driver_version, sizeof s->driver_version, "%s", p->driver);
    snprintf(s->platform, sizeof s->platform, "nvml");
    s->n_gpus = p->gpus;
    s->gpus = x_alloc(p->gpus * sizeof *s->gpus);
    for (uint32_t i = 0; i < p->gpus; i++) {
        struct gpu *g = &s->gpus[i];
        g->index = g->minor = i;
        g->valid = GPU_HAS_MINOR | GPU_HAS_PCI | GPU_HAS_MEMORY | GPU_HAS_CC | GPU_HAS_MIG;
        snprintf(g->name, sizeof g->name, "%s", p->model);
        snprintf(g->uuid, sizeof g->uuid, "GPU-01000100-0000-0000-0000-00000000000%u", i);
        snprintf(g->pci, sizeof g->pci, "0000:%02x:00.0", 0x10 + i);
        g->cc_major = p->cc_major;
        g->cc_minor = p->cc_minor;
        g->memory_bytes = p->memory_bytes;
        g->mig_current = g->mig_pending = p->mig_on;
        if (sysfs) {
            g->valid |= GPU_HAS_PCI_CLASS;
            g->pci_class = 0x030200;
        }
        if (p->clique) {
            g->valid |= GPU_HAS_FABRIC;
            g->fabric_state = 3;
            g->fabric_cluster[15] = 1;
        }
    }
    return s;
}

/* ---- one recorded run ---- */

struct run {
    struct opts opts;
    struct plugin_config *config;
    bool timestamp, sysfs, machine;
};

static const struct opt table[] = { PLUGINCONFIG_OPTIONS, { .name = NULL } };

/* "# h100: --flags ; machine-type file …; sysfs GPUs present ; config version: v1|sharing:|…" */
static void read_head(struct run *r, const char *head)
{
    char *argv[] = { (char[]){ "test" }, (char[]){ "--mps-root=/mps" }, NULL, NULL };
    char *env[] = { NULL };
    struct error err;
    auto_free char *strategy = NULL, *config = NULL;
    const char *flag = strstr(head, "--mig-strategy="), *text = strstr(head, " ; config ");
    if (flag) {
        strategy = x_strndup(flag, strcspn(flag, " "));
        argv[2] = strategy;
    }
    r->timestamp = !strstr(head, "--no-timestamp");
    r->sysfs = strstr(head, "sysfs GPUs present") != NULL;
    r->machine = strstr(head, "Test Machine 9000 (rev. B)") != NULL;
    config = x_strdup(text ? text + strlen(" ; config ") : "");
    for (char *c = config; *c; c++)
        if (*c == '|')
            *c = '\n';
    assert_int_equal(opts_parse(&r->opts, table, argv[2] ? 3 : 2, argv, env, 0, &err), 0);
    auto_arena arena;
    arena_init(&arena, 64 * 1024);
    struct findings findings;
    findings_init(&findings, &arena, 10);
    struct str document = str_of(config);
    if (pluginconfig_load(&r->opts, &document, env, &findings, &r->config, &err) < 0)
        fail_msg("%s: %s", head, err.text);
}

static const struct profile *profile_named(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(profiles); i++)
        if (strcmp(profiles[i].name, name) == 0)
            return &profiles[i];
    abort(); /* a folder that this file does not know of */
}

/* The recorded labels with our time in place of "TIME". */
static void wanted(const char *text, struct buf *out)
{
    const char *time = strstr(text, "=TIME\n");
    buf_add(out, text, time ? (size_t)(time - text) : strlen(text));
    if (time)
        buf_fmt(out, "=%d\n%s", TIMESTAMP, time + strlen("=TIME\n"));
}

static void check(const char *profile, const char *variant, const char *text)
{
    struct run r = { 0 };
    struct error err;
    auto_free char *head = x_strndup(text, strcspn(text, "\n"));
    read_head(&r, head);
    struct survey *s = survey_for(profile_named(profile), r.sysfs);
    struct label_facts facts = { .vgpu = VGPU_NONE };
    if (r.machine)
        snprintf(facts.machine, sizeof facts.machine, "Test Machine 9000 (rev. B)");
    const struct label_input in = {
        .survey = s, .config = r.config, .facts = &facts, .timestamp = r.timestamp ? TIMESTAMP : -1
    };
    struct labels *l = NULL;
    assert_int_equal(labels_build(&in, &l, &err), 0);
    auto_buf ours, theirs;
    buf_init(&ours, FILE_MAX);
    buf_init(&theirs, FILE_MAX);
    labels_text(l, &ours);
    wanted(text + strlen(head) + 1, &theirs);
    if (strcmp(ours.p, theirs.p) != 0)
        fail_msg("%s/%s\n-- ours\n%s-- theirs\n%s", profile, variant, ours.p, theirs.p);
    runs++;
    labels_free(l);
    survey_unref(s);
    pluginconfig_free(r.config);
    opts_done(&r.opts);
}

static void all_runs_equal(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(profiles); i++) {
        auto_free char *folder = x_printf("%s/%s", recordings, profiles[i].name);
        DIR *dir = opendir(folder);
        if (!dir)
            fail_msg("%s is not there", folder);
        for (struct dirent *e; (e = readdir(dir));) {
            if (e->d_name[0] == '.')
                continue;
            auto_free char *path = x_printf("%s/%s", folder, e->d_name), *text = NULL;
            struct error err;
            if (file_read(path, FILE_MAX, &text, NULL, &err) < 0)
                fail_msg("%s", err.text);
            check(profiles[i].name, e->d_name, text);
        }
        closedir(dir);
    }
    assert_true(runs >= RUNS_LEAST);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(all_runs_equal) };
    recordings = argc > 1 ? argv[1] : "tests/golden/gfd";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
