/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as pod-resources' answer, merged into what a checkpoint told. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kubeletapi/inuse.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const char checkpoint[] =
    "{\"Data\":{\"PodDeviceEntries\":["
    "{\"PodUID\":\"1\",\"ContainerName\":\"main\",\"ResourceName\":\"r\",\"DeviceIDs\":[\"a\"]},"
    "{\"PodUID\":\"2\",\"ContainerName\":\"main\",\"ResourceName\":\"r\",\"DeviceIDs\":[\"a\","
    "\"b\"]}]}}";

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
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
