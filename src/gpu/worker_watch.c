/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which gpus the kernel driver has and which instances there are, as numbers to compare. /proc
 * tells nobody of changes, so this is looked at every few seconds, and is cheap: directories are
 * opened only for gpus in MIG mode.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "gpu/worker_private.h"

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ c[i]) * 0x100000001B3u;
    return h;
}

/* The order of a directory does not count; an entry removed and made again is another one. `below`:
 * entries with this beginning are looked into. */
static uint64_t directory(const char *path, const char *below)
{
    DIR *dir = opendir(path);
    uint64_t sum = dir ? 1 : 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        uint64_t h = mix(0xCBF29CE484222325u, e->d_name, strlen(e->d_name));
        h = mix(h, &e->d_ino, sizeof e->d_ino);
        if (below && strncmp(e->d_name, below, strlen(below)) == 0) {
            auto_free char *inner = x_printf("%s/%s", path, e->d_name);
            uint64_t within = directory(inner, NULL);
            h = mix(h, &within, sizeof within);
        }
        sum += h;
    }
    if (dir)
        closedir(dir);
    return sum;
}

/* Folders in a folder, as its links count them: one call, where no more has to be known. */
static uint64_t entries(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_nlink : 0;
}

struct fingerprint fingerprint_take(const struct host *h, const struct survey *s)
{
    struct fingerprint f = { 0 };
    auto_free char *gpus = host_path(h, "/proc/driver/nvidia/gpus");
    f.gpus = entries(gpus);
    for (size_t i = 0; s && i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        if (!(g->valid & GPU_HAS_MIG) || !(g->valid & GPU_HAS_MINOR))
            continue;
        auto_free char *sub = x_printf("/proc/driver/nvidia/capabilities/gpu%u/mig", g->minor);
        auto_free char *path = host_path(h, sub);
        uint64_t parts = g->mig_current ? directory(path, "gi") : entries(path);
        f.parts = mix(f.parts, &parts, sizeof parts);
    }
    return f;
}
