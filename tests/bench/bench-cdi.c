/* SPDX-License-Identifier: Apache-2.0 */
/* CDI on a simulated host with trees of real size: generation (limit 10 ms; nvidia-ctk took 90 to
 * 100 ms on an H200 host), reading and applying the file. Medians beside their limits.
 *
 * usage: bench-cdi LIBRARY      the simulated NVML */
#include <dirent.h>
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
#include "cdi/apply.h"
#include "cdi/generate.h"
#include "elf/ldcache.h"
#include "sim/simstate.h"

enum { RUNS = 101, OTHER_LIBRARIES = 1200, OTHER_PROGRAMS = 1500, GPUS = 8 };

#define LIB     "/usr/lib/x86_64-linux-gnu"
#define VERSION "580.159.04"

static char root[] = "/tmp/mete-bench-cdi-XXXXXX";

static void die(const char *what)
{
    fprintf(stderr, "bench-cdi: %s\n", what);
    exit(1);
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *ftw)
{
    return remove(path);
}

static void clean(void)
{
    nftw(root, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

/* ---- the host ---- */

static void put(const char *path, const char *text, mode_t mode)
{
    auto_free char *full = x_printf("%s/host%s", root, path);
    auto_close int fd = open(full, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, mode);
    size_t n = strlen(text);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n)
        die(full);
}

/* The driver's libraries are stand-ins of a few hundred bytes: now as large as real ones. */
static void grow_libraries(void)
{
    auto_free char *dir = x_printf("%s/host" LIB, root);
    DIR *handle = opendir(dir);
    if (!handle)
        die(dir);
    for (struct dirent *e; (e = readdir(handle));) {
        auto_free char *path = x_printf("%s/%s", dir, e->d_name);
        if (strstr(e->d_name, VERSION) && truncate(path, 60 << 20) < 0)
            die(path);
    }
    closedir(handle);
}

static void add_others(void)
{
    static struct ldcache_entry entries[OTHER_LIBRARIES];
    for (int i = 0; i < OTHER_LIBRARIES; i++) {
        auto_free char *file = x_printf(LIB "/libother%d.so.1.2.%d", i, i),
                       *link = x_printf("%s/host" LIB "/libother%d.so.1", root, i),
                       *target = x_printf("libother%d.so.1.2.%d", i, i);
        put(file, "", 0644);
        if (symlink(target, link) < 0)
            die(link);
        entries[i] =
            (struct ldcache_entry){ x_printf("libother%d.so.1", i),
                                    x_printf(LIB "/libother%d.so.1", i), LDCACHE_X86_64, 0 };
    }
    for (int i = 0; i < OTHER_PROGRAMS; i++) {
        auto_free char *file = x_printf("/usr/bin/program%d", i);
        put(file, "", 0755);
    }
    struct ldcache c = { .entries = entries, .n = OTHER_LIBRARIES };
    auto_buf bytes;
    struct error err;
    buf_init(&bytes, LDCACHE_MAX);
    auto_free char *path = x_printf("%s/host/etc/ld.so.cache", root);
    if (ldcache_write(&c, &bytes, &err) < 0)
        die(err.text);
    FILE *out = fopen(path, "w");
    if (!out || fwrite(bytes.p, 1, bytes.n, out) != bytes.n || fclose(out) != 0)
        die(path);
}

static void make_host(const char *library)
{
    struct error err;
    if (!mkdtemp(root))
        die("no temporary folder");
    atexit(clean);
    auto_free char *dir = x_printf("%s/host", root);
    const struct sim_create c = {
        .dir = dir, .model = "h200", .library = library, .driver_version = VERSION
    };
    if (sim_create(&c, &err) < 0)
        die(err.text);
    grow_libraries();
    add_others();
}

static struct survey *make_survey(void)
{
    struct survey *s = survey_new();
    snprintf(s->platform, sizeof s->platform, "nvml");
    snprintf(s->driver_version, sizeof s->driver_version, VERSION);
    s->n_gpus = GPUS;
    s->gpus = x_alloc(GPUS * sizeof *s->gpus);
    for (uint32_t i = 0; i < GPUS; i++) {
        struct gpu *g = &s->gpus[i];
        g->index = g->minor = i;
        g->valid = GPU_HAS_MINOR | GPU_HAS_PCI;
        snprintf(g->uuid, sizeof g->uuid, "GPU-01000100-0000-0000-0000-%012u", i);
        snprintf(g->pci, sizeof g->pci, "0000:%02x:00.0", 16 + i);
    }
    return s;
}

/* ---- measuring ---- */

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

static bool report(const char *what, int64_t *took, double limit_ms)
{
    qsort(took, RUNS, sizeof *took, by_value);
    double ms = (double)took[RUNS / 2] / 1e6, worst = (double)took[RUNS - 1] / 1e6;
    if (limit_ms > 0)
        printf("%-44s %10.3f ms  limit %10.3f ms  worst %10.3f ms\n", what, ms, limit_ms, worst);
    else
        printf("%-44s %10.3f ms  no limit             worst %10.3f ms\n", what, ms, worst);
    return limit_ms <= 0 || ms <= limit_ms;
}

static bool bench_generate(const struct host *h, const struct survey *s, struct buf *text)
{
    static const enum cdi_naming namings[] = { CDI_NAME_INDEX, CDI_NAME_UUID };
    const struct cdi_generate o = { .kind = "nvidia.com/gpu",
                                    .namings = namings,
                                    .n_namings = 2,
                                    .all_device = true,
                                    .hook_path = "/usr/bin/nvidia-cdi-hook" };
    static int64_t took[RUNS];
    size_t used = 0, mounts = 0;
    for (int i = 0; i < RUNS; i++) {
        auto_arena a;
        struct cdi_spec *specs;
        struct error err;
        size_t n;
        arena_init(&a, 16 << 20);
        buf_reset(text);
        int64_t began = now_ns();
        if (cdi_generate(&a, h, s, &o, &specs, &n, NULL, &err) < 0 ||
            cdi_encode(&specs[0], text, &err) < 0)
            die(err.text);
        took[i] = now_ns() - began;
        used = a.used;
        mounts = specs[0].common.n_mounts;
    }
    char what[96];
    snprintf(what, sizeof what, "CDI generation, 8 gpus (%zu files, %zu KiB)", mounts, used / 1024);
    return report(what, took, 10);
}

static void load(const char *dir, struct cdi_registry **ret)
{
    auto_arena a;
    struct findings f;
    struct error err;
    arena_init(&a, 1 << 20);
    findings_init(&f, &a, 10);
    if (cdi_registry_load(&dir, 1, ret, &f, &err) < 0)
        die(err.text);
    if (f.n > 0 || (*ret)->n != 2 * GPUS + 1)
        die(f.n ? f.items[0].cause : "devices are missing");
}

static bool bench_read(const struct buf *text)
{
    auto_free char *dir = x_printf("%s/cdi", root), *path = x_printf("%s/nvidia.json", dir);
    static int64_t reading[RUNS], applying[RUNS];
    FILE *out = mkdir(dir, 0755) == 0 ? fopen(path, "w") : NULL;
    if (!out || fwrite(text->p, 1, text->n, out) != text->n || fclose(out) != 0)
        die(path);
    for (int i = 0; i < RUNS; i++) {
        static const char *const names[] = { "nvidia.com/gpu=0" };
        const struct cdi_apply_options o = { .root = "" };
        struct value oci = { .kind = VALUE_MAP };
        struct cdi_registry *r;
        struct error err;
        auto_arena a;
        arena_init(&a, 64 << 20);
        int64_t began = now_ns();
        load(dir, &r);
        reading[i] = now_ns() - began;
        began = now_ns();
        if (cdi_apply(&a, &oci, r, names, 1, &o, &err) < 0)
            die(err.text);
        applying[i] = now_ns() - began;
        cdi_registry_free(r);
    }
    char what[96];
    snprintf(what, sizeof what, "CDI file read (%zu KiB of JSON)", text->n / 1024);
    bool ok = report(what, reading, 0);
    return report("one device applied to a config", applying, 0) && ok;
}

int main(int argc, char **argv)
{
    struct host h;
    struct error err;
    if (argc != 2)
        die("usage: bench-cdi LIBRARY");
    make_host(argv[1]);
    auto_free char *view = x_printf("%s/host", root);
    const struct host_config c = { .root = view, .driver_root_view = view };
    if (host_init(&h, &c, &err) < 0)
        die(err.text);
    struct survey *s = make_survey();
    auto_buf text;
    buf_init(&text, 4 << 20);
    bool ok = bench_generate(&h, s, &text);
    ok &= bench_read(&text);
    survey_unref(s);
    host_done(&h);
    return ok ? 0 : 1;
}
