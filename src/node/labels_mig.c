/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of parts, by the MIG strategy (spec/device-plugin.md 7.2). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "node/labels_private.h"

enum { PROFILES_MAX = 64 };

/* Parts of one profile; the first in index order gives its figures. */
struct profile {
    char name[sizeof((struct part *)NULL)->profile]; /* as in labels: "1g.10gb.me" */
    const struct gpu *gpu;
    const struct part *part;
    size_t n;
};

static bool has_mig_on(const struct gpu *g)
{
    return g->valid & GPU_HAS_MIG && g->mig_current;
}

static void profile_name(const struct part *p, char ret[sizeof p->profile])
{
    snprintf(ret, sizeof p->profile, "%s", p->profile);
    for (char *c = ret; *c; c++)
        if (*c == '+')
            *c = '.';
}

static size_t find_profiles(struct label_draft *d, struct profile *profiles)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_gpus; i++) {
        for (size_t k = 0; k < d->gpus[i]->n_parts; k++) {
            const struct part *p = &d->gpus[i]->parts[k];
            char name[sizeof p->profile];
            profile_name(p, name);
            size_t at = 0;
            while (at < n && strcmp(profiles[at].name, name) != 0)
                at++;
            if (!name[0] || at == PROFILES_MAX) {
                label_note(d, "labels.part-left-out", SEVERITY_WARNING, p->uuid,
                           "read the layout with `mete survey`; update the driver if it stays",
                           "%s",
                           name[0] ? "the node has too many MIG profiles for labels"
                                   : "the MIG profile of this part is not known");
                continue;
            }
            if (at == n)
                profiles[n++] = (struct profile){ .gpu = d->gpus[i], .part = p };
            memcpy(profiles[at].name, name, sizeof name);
            profiles[at].n++;
        }
    }
    return n;
}

static size_t profile_bases(struct label_draft *d, const char *name, struct label_base *bases)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_gpus; i++) {
        for (size_t k = 0; k < d->gpus[i]->n_parts; k++) {
            char its[sizeof d->gpus[i]->parts->profile];
            profile_name(&d->gpus[i]->parts[k], its);
            if (strcmp(its, name) == 0)
                bases[n++] = (struct label_base){ d->gpus[i], &d->gpus[i]->parts[k] };
        }
    }
    return n;
}

static void add_attributes(struct label_draft *d, const char *prefix, const struct part *p)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        { "multiprocessors", p->multiprocessors },
        { "slices.gi", p->gi_slices },
        { "slices.ci", p->ci_slices },
        { "engines.copy", p->copy_engines },
        { "engines.decoder", p->decoders },
        { "engines.encoder", p->encoders },
        { "engines.jpeg", p->jpegs },
        { "engines.ofa", p->ofas },
    };
    if (p->memory_mb)
        label_put(d, label_key(d, prefix, "memory"), "%llu", (unsigned long long)p->memory_mb);
    else
        label_drop(d, label_key(d, prefix, "memory")); /* never that of the whole gpu */
    for (size_t i = 0; p->valid & PART_HAS_ATTRIBUTES && i < ARRAY_LEN(rows); i++)
        label_put(d, label_key(d, prefix, rows[i].name), "%llu", (unsigned long long)rows[i].value);
}

static void add_profile(struct label_draft *d, const char *prefix, const char *resource,
                        const struct profile *p)
{
    struct label_base *bases =
        arena_array(&d->out->arena, (size_t)SURVEY_GPUS_MAX * SURVEY_PARTS_MAX, sizeof *bases);
    if (!bases || !prefix || !resource) {
        d->no_memory = true;
        return;
    }
    size_t n = profile_bases(d, p->name, bases);
    struct label_share share = label_share_of(d->in->config, resource, bases, n, NULL);
    char middle[48];
    snprintf(middle, sizeof middle, "-MIG-%s", p->name);
    labels_add_base(d, prefix, p->gpu->name, middle, p->n, &share);
    add_attributes(d, prefix, p->part);
}

/* ---- strategy mixed ---- */

static const char *mixed_resource(struct label_draft *d, const struct profile *p)
{
    const struct plugin_config *c = d->in->config;
    for (size_t i = 0; i < c->n_mig_patterns; i++)
        if (str_glob(str_of(c->mig_patterns[i].pattern), str_of(p->part->profile)))
            return c->mig_patterns[i].name;
    return arena_printf(&d->out->arena, "nvidia.com/mig-%s", p->name);
}

static void add_mixed(struct label_draft *d, const struct profile *profiles, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_profile(d, arena_printf(&d->out->arena, "nvidia.com/mig-%s", profiles[i].name),
                    mixed_resource(d, &profiles[i]), &profiles[i]);
}

/* ---- strategy single ---- */

static void add_invalid(struct label_draft *d, const struct gpu *g, const char *why)
{
    label_note(d, "labels.mig-invalid", SEVERITY_WARNING, LABEL_GPU ".product",
               "give all gpus the same MIG profile, or choose MIG strategy mixed",
               "MIG strategy single cannot be served: %s", why);
    label_put_text(d, LABEL_GPU ".product", g->name, "-MIG-INVALID");
    label_put(d, LABEL_GPU ".count", "0");
    label_put(d, LABEL_GPU ".replicas", "0");
    label_put(d, LABEL_GPU ".memory", "0");
    label_put(d, LABEL_GPU ".sharing-strategy", "%s", "");
}

/* A lost gpu without parts says nothing: they are not known any more. */
static void add_single(struct label_draft *d, const struct profile *profiles, size_t n)
{
    const struct gpu *on = NULL, *off = NULL, *empty = NULL;
    for (size_t i = 0; i < d->n_gpus; i++) {
        const struct gpu *g = d->gpus[i];
        bool silent = g->lost && g->n_parts == 0;
        if (has_mig_on(g) && !on)
            on = g;
        if (!has_mig_on(g) && !g->lost)
            off = g;
        if (has_mig_on(g) && g->n_parts == 0 && !silent)
            empty = g;
    }
    if (!on)
        return;
    if (empty && empty->mig_text[0])
        add_invalid(d, on, empty->mig_text);
    else if (empty)
        add_invalid(d, on, "a gpu in MIG mode has no MIG devices");
    else if (off)
        add_invalid(d, on, "some gpus are in MIG mode and some are not");
    else if (n > 1)
        add_invalid(d, on, "there is more than one MIG profile");
    else if (n == 1)
        add_profile(d, LABEL_GPU, LABEL_GPU, &profiles[0]);
    else
        add_invalid(d, on, "no MIG device is known");
}

/* People look for MIG labels that cannot be there (B-127). */
static void note_none(struct label_draft *d)
{
    for (size_t i = 0; i < d->n_gpus; i++)
        if (has_mig_on(d->gpus[i]))
            return;
    label_note(d, "labels.no-mig", SEVERITY_INFO, "nvidia.com/mig.strategy",
               "switch MIG mode on and create MIG devices, or set MIG strategy none",
               "the MIG strategy is set but no gpu is in MIG mode: there are no MIG labels");
}

void labels_add_parts(struct label_draft *d)
{
    enum mig_strategy strategy = d->in->config->mig_strategy;
    if (strategy == MIG_STRATEGY_NONE || d->n_gpus == 0)
        return;
    struct profile *profiles = arena_array(&d->out->arena, PROFILES_MAX, sizeof *profiles);
    if (!profiles) {
        d->no_memory = true;
        return;
    }
    label_put(d, "nvidia.com/mig.strategy", "%s",
              strategy == MIG_STRATEGY_SINGLE ? "single" : "mixed");
    size_t n = find_profiles(d, profiles);
    if (strategy == MIG_STRATEGY_SINGLE)
        add_single(d, profiles, n);
    else
        add_mixed(d, profiles, n);
    note_none(d);
}
