/* SPDX-License-Identifier: Apache-2.0 */
/* Preferred allocation and inventory alone, without a socket: medians beside their limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "node/placement.h"

enum { RUNS_MAX = 2001 };

static struct survey *make_host(size_t n)
{
    struct survey *s = survey_new();
    s->n_gpus = n;
    s->gpus = x_alloc(n * sizeof *s->gpus);
    s->links = x_alloc(n * n * sizeof *s->links);
    for (size_t i = 0; i < n; i++) {
        struct gpu *g = &s->gpus[i];
        g->index = (uint32_t)i;
        g->valid = GPU_HAS_NUMA | GPU_HAS_EVENTS;
        g->numa = i >= n / 2;
        snprintf(g->uuid, sizeof g->uuid, "GPU-01000100-0000-0000-0000-%012zu", i);
        for (size_t k = 0; k < n; k++)
            if (k != i)
                s->links[i * n + k] = (struct gpu_link){ .ancestor = i / 2 == k / 2 ? 10 : 40,
                                                         .nvlinks = 18,
                                                         .through_switch = true };
    }
    return s;
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

static bool report(const char *what, int64_t *took, size_t n, double limit_us)
{
    qsort(took, n, sizeof *took, by_value);
    double us = (double)took[n / 2] / 1000, worst = (double)took[n - 1] / 1000;
    if (limit_us > 0)
        printf("%-44s %10.1f us  limit %10.1f us  worst %10.1f us\n", what, us, limit_us, worst);
    else
        printf("%-44s %10.1f us  no limit             worst %10.1f us\n", what, us, worst);
    return limit_us <= 0 || us <= limit_us;
}

static struct inventory *build(struct survey *s, uint32_t replicas)
{
    const struct shared_resource all = { .name = "nvidia.com/gpu",
                                         .all = true,
                                         .replicas = replicas };
    struct plugin_config c = { 0 };
    if (replicas)
        c.sharing =
            (struct sharing){ .kind = SHARING_TIME_SLICING, .resources = &all, .n_resources = 1 };
    const struct inventory_input in = { .survey = s, .config = &c };
    struct inventory *inv = NULL;
    struct error err;
    if (inventory_build(&in, &inv, &err) < 0) {
        fprintf(stderr, "bench-placement: %s\n", err.text);
        exit(1);
    }
    return inv;
}

static bool bench_choose(size_t gpus, uint32_t replicas, int64_t size, size_t runs, double limit_us)
{
    struct survey *s = make_host(gpus);
    struct inventory *inv = build(s, replicas);
    const struct resource *r = &inv->resources[0];
    struct str *available = x_alloc(r->n_devices * sizeof *available);
    for (size_t i = 0; i < r->n_devices; i++)
        available[i] = str_of(r->devices[i].id);
    const struct placement_request req = { available, r->n_devices, NULL, 0, size, false };
    static int64_t took[RUNS_MAX];
    for (size_t i = 0; i < runs; i++) {
        auto_arena a;
        arena_init(&a, 64 * 1024 * 1024);
        const struct str *ids;
        size_t n;
        bool distinct;
        struct error err;
        int64_t began = now_ns();
        if (placement_choose(&a, inv, r, PLACE_DISTRIBUTED, &req, &ids, &n, &distinct, &err) < 0 ||
            n != (size_t)size) {
            fprintf(stderr, "bench-placement: wrong answer\n");
            exit(1);
        }
        took[i] = now_ns() - began;
    }
    char what[80];
    snprintf(what, sizeof what, "preferred allocation, %lld of %zu", (long long)size, r->n_devices);
    bool ok = report(what, took, runs, limit_us);
    free(available);
    inventory_free(inv);
    survey_unref(s);
    return ok;
}

static bool bench_build(size_t gpus, uint32_t replicas, size_t runs)
{
    struct survey *s = make_host(gpus);
    static int64_t took[RUNS_MAX];
    size_t bytes = 0, devices = 0;
    for (size_t i = 0; i < runs; i++) {
        int64_t began = now_ns();
        struct inventory *inv = build(s, replicas);
        took[i] = now_ns() - began;
        bytes = inv->arena.used;
        devices = inv->resources[0].n_devices;
        inventory_free(inv);
    }
    char what[80];
    snprintf(what, sizeof what, "inventory of %zu devices (%zu KiB)", devices, bytes / 1024);
    bool ok = report(what, took, runs, 0);
    survey_unref(s);
    return ok;
}

int main(void)
{
    bool ok = bench_choose(8, 0, 4, 2001, 200);
    ok &= bench_choose(16, 0, 4, 2001, 1000);
    ok &= bench_choose(16, 0, 8, 501, 0);
    ok &= bench_choose(64, 0, 32, 51, 0);
    ok &= bench_choose(8, 4, 4, 2001, 0);
    ok &= bench_choose(8, 4096, 4, 51, 0);
    ok &= bench_build(8, 0, 501);
    ok &= bench_build(8, 4096, 51);
    return ok ? 0 : 1;
}
