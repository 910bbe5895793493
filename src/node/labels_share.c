/* SPDX-License-Identifier: Apache-2.0 */
/* How the config shares a resource, as labels tell it. sharing.c decides what is offered; it fails
 * for what labels must still describe (MIG strategy single on a node that cannot have it), so the
 * question is asked anew here. */
#include <string.h>

#include "base/mem.h"
#include "node/labels_private.h"

static bool ref_means(const struct device_ref *ref, const struct label_base *b)
{
    if (ref->kind == REF_UUID)
        return strcmp(ref->uuid, b->part ? b->part->uuid : b->gpu->uuid) == 0;
    if (ref->gpu != b->gpu->index)
        return false;
    return ref->kind == REF_INDEX ? !b->part : b->part && b->part->slot == ref->slot;
}

static bool entry_means(const struct shared_resource *e, const struct label_base *b, size_t place)
{
    if (e->all || (e->count == 0 && e->n_refs == 0))
        return true;
    if (e->count > 0)
        return place < e->count;
    for (size_t i = 0; i < e->n_refs; i++)
        if (ref_means(&e->refs[i], b))
            return true;
    return false;
}

static struct label_share one(const struct sharing *s, const char *resource,
                              const struct label_base *b, size_t place)
{
    for (size_t i = 0; i < s->n_resources; i++) {
        const struct shared_resource *e = &s->resources[i];
        if (strcmp(e->name, resource) != 0 || !entry_means(e, b, place))
            continue;
        bool renamed =
            e->rename ? strcmp(e->rename, e->name) != 0 : e->replicas > 1 && s->rename_by_default;
        return (struct label_share){ MAX(e->replicas, 1u), renamed };
    }
    return (struct label_share){ 1, false };
}

/* Devices of one resource may be shared differently. What is still published under the resource's
 * own name speaks for it, with the largest number there is; when all has another name, the
 * smallest. */
struct label_share label_share_of(const struct plugin_config *c, const char *resource,
                                  const struct label_base *bases, size_t n, const char *model)
{
    struct label_share own = { 0, false }, other = { UINT32_MAX, true };
    bool any = false;
    if (c->sharing.kind == SHARING_NONE)
        return (struct label_share){ 1, false };
    for (size_t i = 0; i < n; i++) {
        if (model && strcmp(bases[i].gpu->name, model) != 0)
            continue;
        struct label_share s = one(&c->sharing, resource, &bases[i], i);
        if (s.renamed)
            other.replicas = MIN(other.replicas, s.replicas);
        else
            own.replicas = MAX(own.replicas, s.replicas);
        any = true;
    }
    if (!any)
        return (struct label_share){ 1, false };
    return own.replicas ? own : other;
}

const char *label_gpu_resource(const struct plugin_config *c, const struct gpu *g)
{
    for (size_t i = 0; i < c->n_gpu_patterns; i++)
        if (str_glob(str_of(c->gpu_patterns[i].pattern), str_of(g->name)))
            return c->gpu_patterns[i].name;
    return LABEL_GPU;
}
