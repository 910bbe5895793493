/* SPDX-License-Identifier: Apache-2.0 */
/* From a survey to the feature file on disk: host facts, labels, text, rename. Medians beside the
 * limit. */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "node/labels.h"

enum { RUNS = 501, PARTS = 7, CONFIG = 4096 };

static struct survey *make_host(size_t n, bool parts)
{
    struct survey *s = survey_new();
    s->n_gpus = n;
    s->cuda_version = 13000;
    snprintf(s->driver_version, sizeof s->driver_version, "580.159.04");
    s->gpus = x_alloc(n * sizeof *s->gpus);
    for (size_t i = 0; i < n; i++) {
        struct gpu *g = &s->gpus[i];
        g->index = (uint32_t)i;
        g->valid = GPU_HAS_PCI | GPU_HAS_PCI_CLASS | GPU_HAS_MEMORY | GPU_HAS_CC | GPU_HAS_MIG;
        g->memory_bytes = 80ull << 30;
        g->pci_class = 0x030200;
        g->cc_major = 9;
        g->mig_current = parts;
        snprintf(g->name, sizeof g->name, "NVIDIA H100 80GB HBM3");
        snprintf(g->uuid, sizeof g->uuid, "GPU-01000100-0000-0000-0000-%012zu", i);
        snprintf(g->pci, sizeof g->pci, "%04zx:%02zx:00.0", i / 8, 16 + i % 8);
        g->n_parts = parts ? PARTS : 0;
        g->parts = parts ? x_alloc(PARTS * sizeof *g->parts) : NULL;
        for (size_t k = 0; k < g->n_parts; k++) {
            g->parts[k] = (struct part){ .valid = PART_HAS_ATTRIBUTES, .memory_mb = 9728 };
            snprintf(g->parts[k].profile, sizeof g->parts[k].profile, "1g.10gb%s",
                     k % 2 ? "+me" : "");
        }
    }
    return s;
}

/* A sysfs and a machine type file for these gpus. */
static void make_tree(const char *dir, const struct survey *s)
{
    static char config[CONFIG];
    for (size_t i = 0; i < s->n_gpus; i++) {
        auto_free char *path = x_printf("%s/sys/bus/pci/devices/%s", dir, s->gpus[i].pci);
        auto_free char *file = x_printf("%s/config", path);
        FILE *f = dir_make(path, 0755, NULL) == 0 ? fopen(file, "w") : NULL;
        if (!f || fwrite(config, 1, sizeof config, f) != sizeof config || fclose(f) != 0)
            exit(1);
    }
    auto_free char *dmi = x_printf("%s/sys/class/dmi/id", dir);
    auto_free char *file = x_printf("%s/product_name", dmi);
    FILE *f = dir_make(dmi, 0755, NULL) == 0 ? fopen(file, "w") : NULL;
    if (!f || fputs("DGX H100\n", f) == EOF || fclose(f) != 0)
        exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static size_t once(const struct host *h, const struct plugin_config *c, const struct survey *s,
                   int dirfd)
{
    struct label_facts facts;
    struct labels *l = NULL;
    struct error err;
    auto_buf text;
    buf_init(&text, LABEL_FILE_MAX);
    label_facts_read(h, "/sys/class/dmi/id/product_name", s, &facts);
    const struct label_input in = { .survey = s, .config = c, .facts = &facts, .timestamp = 1 };
    if (labels_build(&in, &l, &err) < 0)
        exit(1);
    labels_text(l, &text);
    if (file_replace(h, dirfd, "gfd", buf_view(&text), 0644, FILE_SYNC_NONE, &err) < 0) {
        fprintf(stderr, "bench-labels: %s\n", err.text);
        exit(1);
    }
    size_t n = l->n;
    labels_free(l);
    return n;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static bool bench(size_t gpus, bool parts, double limit_ms)
{
    char dir[] = "/tmp/mete-bench-labels-XXXXXX";
    struct error err;
    struct host h;
    if (!mkdtemp(dir))
        return false;
    const struct host_config paths = { .root = dir };
    struct survey *s = make_host(gpus, parts);
    const struct plugin_config c = { .mig_strategy =
                                         parts ? MIG_STRATEGY_MIXED : MIG_STRATEGY_NONE };
    make_tree(dir, s);
    auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || host_init(&h, &paths, &err) < 0)
        exit(1);
    static int64_t took[RUNS];
    size_t labels = 0;
    for (size_t i = 0; i < RUNS; i++) {
        int64_t began = now_ns();
        labels = once(&h, &c, s, fd);
        took[i] = now_ns() - began;
    }
    qsort(took, RUNS, sizeof *took, by_value);
    double ms = (double)took[RUNS / 2] / 1e6;
    char what[80];
    snprintf(what, sizeof what, "survey to feature file, %zu gpus%s, %zu labels", gpus,
             parts ? " in parts" : "", labels);
    printf("%-52s %8.3f ms  limit %6.1f ms  worst %8.3f ms\n", what, ms, limit_ms,
           (double)took[RUNS - 1] / 1e6);
    host_done(&h);
    survey_unref(s);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return ms <= limit_ms;
}

int main(void)
{
    bool good = bench(8, false, 5);
    good = bench(8, true, 5) && good;
    good = bench(64, true, 5) && good;
    return good ? 0 : 1;
}
