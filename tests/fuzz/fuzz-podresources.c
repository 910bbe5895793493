/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as pod-resources' answers: who has what, merged into what a checkpoint told, and how
 * much there is. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kubeletapi/allocatable.h"
#include "kubeletapi/inuse.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const char checkpoint[] =
    "{\"Data\":{\"PodDeviceEntries\":["
    "{\"PodUID\":\"1\",\"ContainerName\":\"main\",\"ResourceName\":\"r\",\"DeviceIDs\":[\"GPU-a\"]}"
    ","
    "{\"PodUID\":\"2\",\"ContainerName\":\"main\",\"ResourceName\":\"r\",\"DeviceIDs\":[\"GPU-a\","
    "\"b\"]}]}}";

static void count(const uint8_t *p, size_t n)
{
    struct error err = { 0 };
    auto_arena arena;
    struct allocatable_count *counts;
    size_t n_counts, devices = 0;
    arena_init(&arena, 1024 * 1024);
    int r = allocatable_parse((struct str){ (const char *)p, n }, &arena, &counts, &n_counts, &err);
    if (r < 0 && !err.text[0])
        abort();
    for (size_t i = 0; r == 0 && i < n_counts; i++)
        devices += counts[i].n + (strlen(counts[i].resource) == n + 1);
    if (devices > n)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    count(p, n);
    size_t sum = 0;
    struct error err = { 0 };
    auto_arena scratch, notes;
    arena_init(&scratch, 1024 * 1024);
    arena_init(&notes, 1024 * 1024);
    struct findings f;
    findings_init(&f, &notes, 100);
    struct in_use *u = in_use_new();
    if (checkpoint_parse(&scratch, STR(checkpoint), u, &err) < 0)
        abort();
    int r = podresources_parse((struct str){ (const char *)p, n }, u, &err);
    if (r < 0 && (u->n != 3 || u->podresources_read || !err.text[0]))
        abort();
    for (size_t i = 0; i < u->n; i++) {
        const struct device_use *d = &u->uses[i];
        if (!d->from_checkpoint && !d->from_podresources)
            abort();
        sum += strlen(d->resource) + strlen(d->id) + strlen(d->pod_uid) + strlen(d->pod_name) +
               strlen(d->pod_namespace) + strlen(d->container);
    }
    sum += in_use_duplicates(u, &f);
    in_use_free(u);
    if (sum == SIZE_MAX) /* the texts must be read, not only pointed to */
        abort();
    return 0;
}
