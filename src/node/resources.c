/* SPDX-License-Identifier: Apache-2.0 */
/* Survey and MIG strategy → bases with the names of their resources (spec/device-plugin.md 2). */
#include "node/resources.h"

#include <string.h>

#include "base/mem.h"
#include "spec/pattern.h"

static const char GPU_RESOURCE[] = "nvidia.com/gpu";
static const char MIG_PREFIX[] = "nvidia.com/mig-";

int draft_no_memory(struct error *err)
{
    return error_set(err, ERR_LIMIT, 0,
                     "the inventory needs more memory than we allow: use fewer replicas");
}

const char *draft_subject(struct draft *d, const struct gpu *g)
{
    const char *s = arena_printf(&d->inv->arena, "gpu %u (%s)", g->index,
                                 g->uuid[0] ? g->uuid : "uuid not known");
    return s ? s : "gpu";
}

static int add(struct draft *d, size_t gpu, uint32_t part, const char *resource, struct error *err)
{
    if (d->n == d->cap)
        return draft_no_memory(err);
    const struct gpu *g = &d->survey->gpus[gpu];
    const struct part *p = part == UINT32_MAX ? NULL : &g->parts[part];
    struct arena *a = &d->inv->arena;
    const char *id = arena_strdup(a, str_of(p ? p->uuid : g->uuid));
    const char *index =
        p ? arena_printf(a, "%u:%u", g->index, p->slot) : arena_printf(a, "%u", g->index);
    if (!id || !index)
        return draft_no_memory(err);
    d->bases[d->n++] = (struct base){
        .id = id,
        .index = index,
        .resource = resource,
        .name = resource,
        .gpu = (uint32_t)gpu,
        .part = part,
    };
    return 0;
}

/* ---- patterns ---- */

static const char *pattern_name(const struct resource_pattern *patterns, size_t n, const char *text)
{
    size_t i = pattern_first(patterns, n, text);
    return i < n ? patterns[i].name : NULL;
}

/* Which names each pattern takes on this host; where nothing can be named, nothing is said. */
static void explain(struct draft *d, const struct resource_pattern *patterns, size_t n,
                    const char *what, const char *const *texts, size_t n_texts)
{
    if (n_texts > 0)
        pattern_explain(patterns, n, d->in->config->source, what, texts, n_texts, &d->inv->notes);
}

static void check_patterns(struct draft *d)
{
    const struct plugin_config *c = d->in->config;
    const struct survey *s = d->survey;
    size_t n_parts = 0;
    for (size_t i = 0; i < s->n_gpus; i++)
        n_parts += s->gpus[i].n_parts;
    const char **texts = arena_array(&d->inv->arena, MAX(s->n_gpus, n_parts) + 1, sizeof *texts);
    if (!texts)
        return;
    size_t n = 0;
    for (size_t i = 0; i < s->n_gpus; i++)
        if (d->inv->gpus[i].name[0] && !d->inv->gpus[i].skip)
            texts[n++] = d->inv->gpus[i].name;
    explain(d, c->gpu_patterns, c->n_gpu_patterns, "GPU name", texts, n);
    if (c->mig_strategy != MIG_STRATEGY_MIXED)
        return;
    n = 0;
    for (size_t i = 0; i < s->n_gpus; i++)
        for (size_t p = 0; p < s->gpus[i].n_parts; p++)
            texts[n++] = s->gpus[i].parts[p].profile;
    explain(d, c->mig_patterns, c->n_mig_patterns, "MIG profile", texts, n);
}

/* ---- whole gpus ---- */

static int add_whole(struct draft *d, size_t gpu, struct error *err)
{
    const struct plugin_config *c = d->in->config;
    const struct gpu *g = &d->survey->gpus[gpu];
    const struct inventory_gpu *known = &d->inv->gpus[gpu];
    const char *name = GPU_RESOURCE;
    if (c->n_gpu_patterns > 0)
        name = pattern_name(c->gpu_patterns, c->n_gpu_patterns, known->name);
    if (!name) {
        findings_add(&d->inv->notes, "resources.no-pattern", SEVERITY_WARNING, draft_subject(d, g),
                     "add a pattern for it to resources.gpus (\"*\" takes every GPU)",
                     "GPU name '%s' does not match any resource patterns; it is not offered",
                     known->name);
        return 0;
    }
    if (known->mig)
        findings_add(&d->inv->notes, "mig.strategy-none", SEVERITY_WARNING, draft_subject(d, g),
                     "use MIG strategy mixed or single, or switch MIG mode off",
                     "MIG mode is on (%zu MIG devices) but the MIG strategy is none: it is offered "
                     "as one whole %s, and CUDA finds no device in a container that gets it",
                     g->n_parts, name);
    return add(d, gpu, UINT32_MAX, name, err);
}

/* ---- parts ---- */

/* True for "1c.3g.20gb": a compute instance that is only a piece of its GPU instance. */
static bool is_piece(const struct part *p)
{
    size_t digits = strspn(p->profile, "0123456789");
    if (digits > 0 && p->profile[digits] == 'c' && p->profile[digits + 1] == '.')
        return true;
    return p->ci_slices && p->gi_slices && p->ci_slices != p->gi_slices;
}

/* "nvidia.com/mig-1g.10gb.me" of "1g.10gb+me"; NULL in *ret when the profile gives no legal name.
 */
static int mig_name(struct draft *d, const struct part *p, const char **ret, struct error *err)
{
    *ret = NULL;
    size_t n = strlen(p->profile);
    if (n == 0 || strspn(p->profile, "abcdefghijklmnopqrstuvwxyz0123456789.+-") != n)
        return 0;
    char *name = arena_printf(&d->inv->arena, "%s%s", MIG_PREFIX, p->profile);
    if (!name)
        return draft_no_memory(err);
    for (char *at = name; *at; at++)
        if (*at == '+')
            *at = '.';
    *ret = name;
    return 0;
}

static int mixed_name(struct draft *d, const struct gpu *g, const struct part *p, const char **ret,
                      struct error *err)
{
    const struct plugin_config *c = d->in->config;
    *ret = NULL;
    if (c->n_mig_patterns > 0) {
        *ret = pattern_name(c->mig_patterns, c->n_mig_patterns, p->profile);
        if (!*ret)
            findings_add(&d->inv->notes, "resources.no-pattern", SEVERITY_WARNING,
                         draft_subject(d, g), "add a pattern for it to resources.mig",
                         "MIG profile '%s' (MIG device %u:%u) does not match any resource "
                         "patterns; it is not offered",
                         p->profile, g->index, p->slot);
        return 0;
    }
    if (is_piece(p)) {
        findings_add(&d->inv->notes, "mig.piece", SEVERITY_WARNING, draft_subject(d, g),
                     "make one compute instance as large as its GPU instance, or name the profile "
                     "in resources.mig",
                     "MIG device %u:%u has profile %s, a piece of its GPU instance: no resource "
                     "stands for it, it is not offered",
                     g->index, p->slot, p->profile);
        return 0;
    }
    int r = mig_name(d, p, ret, err);
    if (r == 0 && !*ret)
        findings_add(&d->inv->notes, "mig.profile-unknown", SEVERITY_WARNING, draft_subject(d, g),
                     "read the layout with `mete survey`; update the driver if it stays",
                     "MIG device %u:%u has profile '%s', which makes no resource name; it is not "
                     "offered",
                     g->index, p->slot, p->profile);
    return r;
}

static void note_no_parts(struct draft *d, const struct gpu *g)
{
    if (g->lost)
        findings_add(&d->inv->notes, "gpu.lost", SEVERITY_WARNING, draft_subject(d, g),
                     "reset the gpu or reboot the node",
                     "lost, and its MIG devices are not known: %s", g->lost_text);
    else if (g->mig_text[0])
        findings_add(&d->inv->notes, "mig.unreadable", SEVERITY_WARNING, draft_subject(d, g),
                     "let the agent reach /dev/nvidia-caps/nvidia-cap2 (MIG monitor): a privileged "
                     "container, or NVIDIA_MIG_MONITOR_DEVICES=all",
                     "its MIG devices cannot be read, so none is offered: %s", g->mig_text);
    else
        findings_add(&d->inv->notes, "mig.empty", SEVERITY_WARNING, draft_subject(d, g),
                     "create MIG devices on it or switch its MIG mode off",
                     "MIG mode is on but it has no MIG devices; it is skipped");
}

static int add_parts(struct draft *d, size_t gpu, struct error *err)
{
    const struct gpu *g = &d->survey->gpus[gpu];
    if (g->n_parts == 0) {
        note_no_parts(d, g);
        return 0;
    }
    for (size_t i = 0; i < g->n_parts; i++) {
        const char *name = GPU_RESOURCE;
        int r = 0;
        if (d->in->config->mig_strategy == MIG_STRATEGY_MIXED)
            r = mixed_name(d, g, &g->parts[i], &name, err);
        if (r == 0 && name)
            r = add(d, gpu, (uint32_t)i, name, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- strategy single ---- */

static bool same_shape(const struct part *a, const struct part *b)
{
    if (strcmp(a->profile, b->profile) != 0)
        return false;
    if (!(a->valid & b->valid & PART_HAS_ATTRIBUTES))
        return true;
    return a->gi_slices == b->gi_slices && a->ci_slices == b->ci_slices &&
           a->memory_mb == b->memory_mb && a->multiprocessors == b->multiprocessors &&
           a->copy_engines == b->copy_engines && a->decoders == b->decoders &&
           a->encoders == b->encoders && a->jpegs == b->jpegs && a->ofas == b->ofas;
}

/* Lost gpus and gpus whose parts cannot be read have no say: one bad gpu must not take the others
 * away. */
static int check_single(const struct draft *d, struct error *err)
{
    const struct survey *s = d->survey;
    const struct part *first = NULL;
    const struct gpu *first_gpu = NULL, *whole = NULL;
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        const struct inventory_gpu *known = &d->inv->gpus[i];
        if (known->skip || g->lost)
            continue;
        if (!known->mig) {
            whole = whole ? whole : g;
            continue;
        }
        if (g->n_parts == 0 && !g->mig_text[0])
            return error_set(err, ERR_INVALID, 0,
                             "invalid MIG configuration: at least one device with migEnabled=true "
                             "was not configured correctly: error visiting device: device %u has "
                             "no MIG devices configured; create MIG devices on it, or use MIG "
                             "strategy mixed, which serves the other gpus",
                             g->index);
        for (size_t p = 0; p < g->n_parts; p++) {
            if (first && !same_shape(first, &g->parts[p]))
                return error_set(err, ERR_INVALID, 0,
                                 "invalid MIG configuration: more than one MIG device type present "
                                 "on node: %s on gpu %u, %s on gpu %u; make all alike or use MIG "
                                 "strategy mixed",
                                 first->profile, first_gpu->index, g->parts[p].profile, g->index);
            if (!first) {
                first = &g->parts[p];
                first_gpu = g;
            }
        }
    }
    if (first && whole)
        return error_set(err, ERR_INVALID, 0,
                         "all devices on the node must be configured with the same migEnabled "
                         "value: gpu %u has MIG devices, gpu %u has MIG mode off; switch MIG mode "
                         "alike or use MIG strategy mixed",
                         first_gpu->index, whole->index);
    return 0;
}

/* ---- all of it ---- */

/* What is known of a lost gpu whose facts are gone: as it was in the inventory before. */
static const struct inventory_gpu *known_before(const struct inventory *before, const char *uuid)
{
    for (size_t i = 0; before && uuid[0] && i < before->survey->n_gpus; i++)
        if (strcmp(before->survey->gpus[i].uuid, uuid) == 0)
            return &before->gpus[i];
    return NULL;
}

static int learn(struct draft *d, struct error *err)
{
    const struct survey *s = d->survey;
    struct inventory *inv = d->inv;
    inv->gpus = arena_array(&inv->arena, s->n_gpus + 1, sizeof *inv->gpus);
    if (!inv->gpus)
        return draft_no_memory(err);
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        struct inventory_gpu *k = &inv->gpus[i];
        const struct inventory_gpu *was = g->lost ? known_before(d->in->before, g->uuid) : NULL;
        k->name = arena_strdup(&inv->arena, str_of(was && !g->name[0] ? was->name : g->name));
        if (!k->name)
            return draft_no_memory(err);
        k->mig = (g->valid & GPU_HAS_MIG) ? g->mig_current != 0 : (was && was->mig);
        k->skip = strcmp(k->name, "DGX Display") == 0 ||
                  strcmp(k->name, "NVIDIA DGX Display") == 0 || !g->uuid[0];
        if (!g->uuid[0])
            findings_add(&inv->notes, "gpu.no-uuid", SEVERITY_WARNING, draft_subject(d, g),
                         "reset the gpu or reboot the node",
                         "it does not say its UUID, so it cannot be offered: %s", g->lost_text);
        d->cap += 1 + g->n_parts;
    }
    d->bases = arena_array(&inv->arena, d->cap + 1, sizeof *d->bases);
    return d->bases ? 0 : draft_no_memory(err);
}

static int collect_wsl(struct draft *d, struct error *err)
{
    if (d->survey->n_gpus == 0)
        return 0;
    int r = add_whole(d, 0, err);
    if (r == 0 && d->n > 0)
        d->bases[0].id = d->bases[0].index = "all";
    return r;
}

int resources_collect(struct draft *d, struct error *err)
{
    enum mig_strategy strategy = d->in->config->mig_strategy;
    int r = learn(d, err);
    if (r < 0)
        return r;
    if (strcmp(d->survey->platform, "tegra") == 0)
        return error_set(err, ERR_UNSUPPORTED, 0,
                         "this is a Tegra (Jetson) host with an integrated GPU: not supported; "
                         "keep this agent off such nodes");
    if (strcmp(d->survey->platform, "wsl") == 0)
        return collect_wsl(d, err);
    if (strategy == MIG_STRATEGY_SINGLE) {
        struct error why;
        r = check_single(d, &why);
        if (r < 0 && !d->in->running) {
            if (err)
                *err = why;
            return r;
        }
        if (r < 0) {
            findings_add(&d->inv->notes, "mig.not-single", SEVERITY_ERROR, GPU_RESOURCE,
                         "restore the layout, or use MIG strategy mixed", "nothing is offered: %s",
                         why.text);
            return 0;
        }
    }
    for (size_t i = 0; r == 0 && i < d->survey->n_gpus; i++) {
        if (d->inv->gpus[i].skip)
            continue;
        bool whole = strategy == MIG_STRATEGY_NONE || !d->inv->gpus[i].mig;
        r = whole ? add_whole(d, i, err) : add_parts(d, i, err);
    }
    check_patterns(d);
    return r;
}
