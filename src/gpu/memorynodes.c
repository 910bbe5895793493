/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/memorynodes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { ATS = 2, TEXT_MAX = 64 * 1024 };

static char *node_file(const char *dir, uint32_t number, const char *name)
{
    auto_free char *path = x_printf("%s/node%u/%s", dir, number, name);
    char *text = NULL;
    return file_read(path, TEXT_MAX, &text, NULL, NULL) < 0 ? NULL : text;
}

/* "Node 2 MemTotal:       98304 kB" */
static uint64_t total_of(const char *meminfo)
{
    static const char key[] = "MemTotal:";
    const char *at = meminfo ? strstr(meminfo, key) : NULL;
    uint64_t kib;
    if (!at)
        return 0;
    struct str rest = str_of(at + sizeof key - 1);
    struct str line = str_trim(str_cut(&rest, '\n'));
    struct str number = str_cut(&line, ' ');
    return str_to_u64(number, UINT64_MAX / 1024, &kib) ? kib * 1024 : 0;
}

static int by_number(const void *a, const void *b)
{
    const struct memory_node *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

size_t memory_nodes(const struct host *h, struct memory_node *ret, size_t max)
{
    auto_free char *dir = host_path(h, "/sys/devices/system/node");
    DIR *d = opendir(dir);
    size_t n = 0;
    if (!d)
        return 0;
    for (struct dirent *e; n < max && (e = readdir(d));) {
        uint64_t number;
        if (!str_starts(str_of(e->d_name), "node") ||
            !str_to_u64(str_of(e->d_name + strlen("node")), UINT32_MAX, &number))
            continue;
        auto_free char *cpus = node_file(dir, (uint32_t)number, "cpulist");
        auto_free char *meminfo = node_file(dir, (uint32_t)number, "meminfo");
        ret[n++] = (struct memory_node){ .number = (uint32_t)number,
                                         .has_cpus = !cpus || str_trim(str_of(cpus)).n > 0,
                                         .bytes = total_of(meminfo) };
    }
    closedir(d);
    qsort(ret, n, sizeof *ret, by_number);
    return n;
}

bool memory_note(const struct gpu *g, const struct memory_node *nodes, size_t n, char *ret,
                 size_t size)
{
    ret[0] = '\0';
    if (g->valid & GPU_UNIFIED) {
        snprintf(ret, size,
                 "it has no memory of its own but shares the host's: what containers use of it "
                 "counts against the node's memory. That is so by construction and cannot be "
                 "switched");
        return true;
    }
    if (!(g->valid & GPU_HAS_ADDRESSING) || g->addressing != ATS)
        return false;
    auto_buf list;
    buf_init(&list, 512);
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (nodes[i].has_cpus || nodes[i].bytes == 0)
            continue;
        buf_fmt(&list, "%s%u", list.n ? ", " : "", nodes[i].number);
        bytes += nodes[i].bytes;
    }
    if (bytes == 0) /* the driver keeps it to itself */
        return false;
    snprintf(ret, size,
             "addressing mode ATS, and the host has memory nodes without CPUs (%s: %llu MiB): GPU "
             "memory counts as memory of the node, and ordinary pods may be placed in it. The "
             "module option NVreg_CoherentGPUMemoryMode=driver keeps it apart",
             list.p ? list.p : "", (unsigned long long)(bytes >> 20));
    return true;
}
