/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How near gpus are to each other: the PCIe level of NVML, and NVLinks. A link counts between two
 * gpus when it ends at the other one; on hosts with NVSwitch no link does, there the links of both
 * into the same switch count.
 */
#include <string.h>

#include "base/mem.h"
#include "gpu/take.h"

enum { ANCESTOR_UNKNOWN = 255 };

static size_t count_ends(const struct link_end *ends, size_t n, const char *pci, bool is_switch)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ends[i].is_switch == is_switch && strcmp(ends[i].pci, pci) == 0;
    return count;
}

static bool seen_before(const struct link_end *ends, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (ends[k].is_switch && strcmp(ends[k].pci, ends[i].pci) == 0)
            return true;
    return false;
}

struct gpu_link links_count(const struct link_end *a, size_t n_a, const char *a_pci,
                            const struct link_end *b, size_t n_b, const char *b_pci)
{
    /* Both ends should tell the same; where they do not, the smaller count is sure. */
    size_t to_b = b_pci[0] ? count_ends(a, n_a, b_pci, false) : 0;
    size_t to_a = a_pci[0] ? count_ends(b, n_b, a_pci, false) : 0;
    size_t direct = MIN(to_b, to_a);
    size_t shared = 0;
    for (size_t i = 0; i < n_a; i++)
        if (a[i].is_switch && !seen_before(a, i))
            shared += MIN(count_ends(a, n_a, a[i].pci, true), count_ends(b, n_b, a[i].pci, true));
    return (struct gpu_link){
        .ancestor = ANCESTOR_UNKNOWN,
        .nvlinks = (uint8_t)MIN(direct ? direct : shared, (size_t)UINT8_MAX),
        .through_switch = !direct && shared,
    };
}

/* ---- reading ---- */

struct ends {
    struct link_end items[NV_LINKS_MAX];
    size_t n;
};

static bool is_gpu(const struct found *all, size_t n, const char *pci)
{
    for (size_t i = 0; i < n; i++)
        if (pci[0] && strcmp(all[i].gpu->pci, pci) == 0)
            return true;
    return false;
}

/* False: this gpu has no further links. */
static bool take_link(struct nvml *n, const struct found *f, unsigned link, struct ends *ends)
{
    uint32_t index = f->gpu->index;
    unsigned active = 0, type = NV_REMOTE_UNKNOWN;
    nv_return r = NVML_CALL(n, index, link_state, f->device, link, &active);
    if (r == NV_E_NOT_SUPPORTED || r == NV_E_ARGUMENT || nvml_code_is_loss((int)r))
        return false;
    if (r != NV_OK || !active)
        return true;
    struct nv_pci_info pci = { 0 };
    nv_return has_pci = NVML_CALL(n, index, link_remote_pci, f->device, link, &pci);
    nv_return has_type = NVML_CALL(n, index, link_remote_type, f->device, link, &type);
    if (has_pci != NV_OK && has_type != NV_OK)
        return true;
    struct link_end *e = &ends->items[ends->n++];
    if (has_pci == NV_OK)
        pci_text(pci.domain, pci.bus, pci.device, e->pci);
    e->is_switch = has_type == NV_OK && type == NV_REMOTE_SWITCH;
    return true;
}

static void take_ends(struct nvml *n, const struct found *all, size_t n_all, size_t i,
                      struct ends *ends)
{
    if (!n || !all[i].device || all[i].gpu->lost)
        return;
    for (unsigned link = 0; link < NV_LINKS_MAX && take_link(n, &all[i], link, ends); link++)
        ;
    /* Old drivers do not tell the kind: what is no gpu is a switch. */
    for (size_t k = 0; k < ends->n; k++)
        if (!is_gpu(all, n_all, ends->items[k].pci))
            ends->items[k].is_switch = true;
}

static struct gpu_link link_before(const struct survey *before, const struct gpu *a,
                                   const struct gpu *b)
{
    const struct gpu *x = before ? survey_gpu(before, a->uuid) : NULL;
    const struct gpu *y = before ? survey_gpu(before, b->uuid) : NULL;
    const struct gpu_link *old = NULL;
    if (x && y)
        old = survey_link(before, (size_t)(x - before->gpus), (size_t)(y - before->gpus));
    return old ? *old : (struct gpu_link){ .ancestor = ANCESTOR_UNKNOWN };
}

struct gpu_link *take_links(struct nvml *n, const struct found *found, size_t n_found,
                            const struct survey *before)
{
    if (n_found < 2)
        return NULL;
    auto_free struct ends *ends = x_alloc(n_found * sizeof *ends);
    struct gpu_link *links = x_alloc(n_found * n_found * sizeof *links);
    for (size_t i = 0; i < n_found; i++)
        take_ends(n, found, n_found, i, &ends[i]);
    for (size_t i = 0; i < n_found; i++) {
        for (size_t k = 0; k < i; k++) {
            const struct found *a = &found[i], *b = &found[k];
            struct gpu_link link;
            if (!n || a->gpu->lost || b->gpu->lost || !a->device || !b->device) {
                link = link_before(before, a->gpu, b->gpu);
            } else {
                unsigned level = ANCESTOR_UNKNOWN;
                link = links_count(ends[i].items, ends[i].n, a->gpu->pci, ends[k].items, ends[k].n,
                                   b->gpu->pci);
                if (NVML_CALL(n, a->gpu->index, ancestor, a->device, b->device, &level) == NV_OK &&
                    level <= NV_TOPOLOGY_SYSTEM)
                    link.ancestor = (uint8_t)level;
            }
            links[i * n_found + k] = links[k * n_found + i] = link;
        }
        links[i * n_found + i] = (struct gpu_link){ 0 };
    }
    return links;
}
