/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as kubelet_internal_checkpoint; what is accepted is looked at whole. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kubeletapi/inuse.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static size_t touch(const struct in_use *u)
{
    size_t sum = 0;
    for (size_t i = 0; i < u->n; i++) {
        const struct device_use *d = &u->uses[i];
        sum += strlen(d->resource) + strlen(d->id) + strlen(d->pod_uid) + strlen(d->pod_name) +
               strlen(d->pod_namespace) + strlen(d->container);
    }
    for (size_t i = 0; i < u->n_registered; i++) {
        sum += strlen(u->registered[i].resource);
        for (size_t k = 0; k < u->registered[i].n; k++)
            sum += strlen(u->registered[i].ids[k]);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    size_t sum = 0;
    struct error err = { 0 };
    auto_arena scratch, notes;
    arena_init(&scratch, 64 * 1024 * 1024);
    arena_init(&notes, 1024 * 1024);
    struct findings f;
    findings_init(&f, &notes, 100);
    struct in_use *u = in_use_new();
    int r = checkpoint_parse(&scratch, (struct str){ (const char *)p, n }, u, &err);
    if (r < 0 && (u->n || u->checkpoint_read || !err.text[0]))
        abort();
    arena_done(&scratch); /* nothing is borrowed from it */
    sum += touch(u) + in_use_duplicates(u, &f);
    in_use_free(u);
    if (sum == SIZE_MAX) /* the texts must be read, not only pointed to */
        abort();
    return 0;
}
