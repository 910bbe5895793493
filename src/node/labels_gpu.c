/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of whole gpus: their model, and what is said of all of them at once. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "node/labels_private.h"

enum {
    FABRIC_COMPLETED = 3,
    FABRIC_STATUS_OK = 0,
    CLASS_GRAPHICS = 0x030000,
    CLASS_COMPUTE = 0x030200,
    MODEL_KEY_MAX = 36, /* so that "gpu-model.<it>.sharing-strategy" has 63 characters */
};

/* Gpus of one name. */
struct model {
    const char *name;
    size_t n, n_whole;     /* all of them; those with MIG mode off */
    uint64_t memory_bytes; /* the least; 0: not told, or not of its own */
    const struct gpu *cc;  /* one that tells its compute capability */
};

static bool has_mig_on(const struct gpu *g)
{
    return g->valid & GPU_HAS_MIG && g->mig_current;
}

static size_t find_models(struct label_draft *d, struct model *models)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_gpus; i++) {
        const struct gpu *g = d->gpus[i];
        size_t m = 0;
        while (m < n && strcmp(models[m].name, g->name) != 0)
            m++;
        if (m == n)
            models[n++] = (struct model){ .name = g->name };
        struct model *of = &models[m];
        of->n++;
        of->n_whole += !has_mig_on(g);
        bool own = g->valid & GPU_HAS_MEMORY && !(g->valid & GPU_UNIFIED);
        uint64_t bytes = own ? g->memory_bytes : 0;
        if (bytes && (!of->memory_bytes || bytes < of->memory_bytes))
            of->memory_bytes = bytes;
        if (!of->cc && g->valid & GPU_HAS_CC)
            of->cc = g;
    }
    return n;
}

/* The model that speaks for the node, whatever the order of the gpus: the one that can be had
 * whole, then the one there is most of, then the one with most memory. */
static bool better(const struct model *a, const struct model *b)
{
    if (!a->n_whole != !b->n_whole)
        return a->n_whole > 0;
    if (a->n != b->n)
        return a->n > b->n;
    if (a->memory_bytes != b->memory_bytes)
        return a->memory_bytes > b->memory_bytes;
    return strcmp(a->name, b->name) < 0;
}

/* ---- one model ---- */

static const char *family(uint32_t major, uint32_t minor)
{
    static const struct {
        uint32_t major, from;
        const char *name;
    } rows[] = {
        { 1, 0, "tesla" },   { 2, 0, "fermi" },      { 3, 0, "kepler" },
        { 5, 0, "maxwell" }, { 6, 0, "pascal" },     { 7, 0, "volta" },
        { 7, 5, "turing" },  { 8, 0, "ampere" },     { 8, 9, "ada-lovelace" },
        { 9, 0, "hopper" },  { 10, 0, "blackwell" }, { 12, 0, "blackwell" },
        { 13, 0, "rubin" },
    };
    const char *name = "undefined";
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].major == major && minor >= rows[i].from)
            name = rows[i].name;
    return name;
}

void labels_add_base(struct label_draft *d, const char *prefix, const char *model,
                     const char *middle, size_t count, const struct label_share *share)
{
    static const char *const kinds[] = { "none", "time-slicing", "mps" };
    bool shared = share && share->replicas > 1;
    enum sharing_kind kind = shared ? d->in->config->sharing.kind : SHARING_NONE;
    char suffix[96];
    snprintf(suffix, sizeof suffix, "%s%s", middle, shared && !share->renamed ? "-SHARED" : "");
    label_put_text(d, label_key(d, prefix, "product"), model, suffix);
    label_put(d, label_key(d, prefix, "count"), "%zu", count);
    label_put(d, label_key(d, prefix, "replicas"), "%u", share ? share->replicas : 0);
    label_put(d, label_key(d, prefix, "sharing-strategy"), "%s", kinds[kind]);
}

/* The gpus that the config offers whole as `resource`. */
static size_t whole_bases(struct label_draft *d, const char *resource, struct label_base *bases)
{
    const struct plugin_config *c = d->in->config;
    size_t n = 0;
    for (size_t i = 0; i < d->n_gpus; i++) {
        const struct gpu *g = d->gpus[i];
        bool offered = c->mig_strategy == MIG_STRATEGY_NONE || !has_mig_on(g);
        if (offered && strcmp(label_gpu_resource(c, g), resource) == 0)
            bases[n++] = (struct label_base){ .gpu = g };
    }
    return n;
}

static void add_model(struct label_draft *d, const char *prefix, const struct model *m,
                      bool with_memory)
{
    struct label_base bases[SURVEY_GPUS_MAX];
    struct label_share share = { 1, false };
    const struct gpu *first = NULL;
    for (size_t i = 0; i < d->n_gpus && !first; i++)
        if (strcmp(d->gpus[i]->name, m->name) == 0)
            first = d->gpus[i];
    if (m->n_whole && first) {
        const char *resource = label_gpu_resource(d->in->config, first);
        size_t n = whole_bases(d, resource, bases);
        share = label_share_of(d->in->config, resource, bases, n, m->name);
    }
    labels_add_base(d, prefix, m->name, "", m->n, m->n_whole ? &share : NULL);
    if (with_memory && m->memory_bytes >> 20)
        label_put(d, label_key(d, prefix, "memory"), "%llu",
                  (unsigned long long)(m->memory_bytes >> 20));
    if (!m->cc)
        return;
    label_put(d, label_key(d, prefix, "family"), "%s", family(m->cc->cc_major, m->cc->cc_minor));
    label_put(d, label_key(d, prefix, "compute.major"), "%u", m->cc->cc_major);
    label_put(d, label_key(d, prefix, "compute.minor"), "%u", m->cc->cc_minor);
}

/* Two names that are equal as far as there is room must not share a key. */
static const char *model_prefix(struct label_draft *d, const char *name)
{
    char *clean = label_clean(d, name);
    if (!clean)
        return NULL;
    size_t n = strlen(clean);
    while (n && strchr("-_.", clean[n - 1]))
        n--;
    clean[n] = '\0';
    if (n <= MODEL_KEY_MAX)
        return arena_printf(&d->out->arena, "%s-model.%s", LABEL_GPU, clean);
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return arena_printf(&d->out->arena, "%s-model.%.*s-%06x", LABEL_GPU, MODEL_KEY_MAX - 7, clean,
                        hash & 0xffffff);
}

static void add_each_model(struct label_draft *d, const struct model *models, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *prefix = model_prefix(d, models[i].name);
        if (prefix)
            add_model(d, prefix, &models[i], true);
        else
            d->no_memory = true;
    }
}

static void note_memory(struct label_draft *d, const struct model *m)
{
    if (m->memory_bytes >> 20)
        return;
    label_note(d, "labels.no-memory", SEVERITY_WARNING, LABEL_GPU ".memory",
               "nothing for a gpu that uses the system's memory; `mete survey` shows the source",
               "%s tells no memory of its own, so this label is left out", m->name);
}

static void note_mixed(struct label_draft *d, const struct model *models, size_t n,
                       const struct model *first)
{
    auto_buf names;
    buf_init(&names, 300);
    for (size_t i = 0; i < n; i++)
        buf_fmt(&names, "%s%zu x %s", i ? ", " : "", models[i].n, models[i].name);
    label_note(d, "labels.mixed-models", SEVERITY_WARNING, LABEL_GPU ".product",
               d->in->per_model ? "select by the labels of each model (" LABEL_GPU "-model.*)"
                                : "--labels-per-model gives each model labels of its own",
               "this node has %s; the labels of the node as a whole describe %s",
               names.p ? names.p : "several models", first->name);
}

static void add_models(struct label_draft *d)
{
    struct model *models = arena_array(&d->out->arena, d->n_gpus + 1, sizeof *models);
    if (!models) {
        d->no_memory = true;
        return;
    }
    size_t n = find_models(d, models);
    if (n == 0)
        return;
    const struct model *first = &models[0];
    bool same_memory = true;
    for (size_t i = 1; i < n; i++) {
        if (better(&models[i], first))
            first = &models[i];
        same_memory = same_memory && models[i].memory_bytes == models[0].memory_bytes;
    }
    add_model(d, LABEL_GPU, first, same_memory);
    note_memory(d, first);
    if (n > 1)
        note_mixed(d, models, n, first);
    if (d->in->per_model)
        add_each_model(d, models, n);
}

/* ---- all of them ---- */

static void add_mig_capable(struct label_draft *d)
{
    bool capable = false;
    for (size_t i = 0; i < d->n_gpus; i++)
        capable = capable || d->gpus[i]->valid & GPU_HAS_MIG;
    label_put(d, "nvidia.com/mig.capable", "%s", capable ? "true" : "false");
}

static void add_mps_capable(struct label_draft *d)
{
    const struct sharing *s = &d->in->config->sharing;
    bool asked = false, mig = false;
    for (size_t i = 0; s->kind == SHARING_MPS && i < s->n_resources; i++)
        asked = asked || s->resources[i].replicas > 1;
    for (size_t i = 0; i < d->n_gpus; i++)
        mig = mig || has_mig_on(d->gpus[i]);
    if (asked && mig)
        label_note(d, "labels.mps-mig", SEVERITY_WARNING, "nvidia.com/mps.capable is \"false\"",
                   "switch MIG mode off, or share by time slicing",
                   "the config shares by MPS, which is not supported for gpus in MIG mode");
    label_put(d, "nvidia.com/mps.capable", "%s", asked && !mig ? "true" : "false");
}

/* Gpus whose class cannot be read have no say. */
static void add_mode(struct label_draft *d)
{
    uint32_t class = 0;
    bool same = true;
    for (size_t i = 0; i < d->n_gpus; i++) {
        const struct gpu *g = d->gpus[i];
        if (!(g->valid & GPU_HAS_PCI_CLASS))
            continue;
        same = same && (!class || class == g->pci_class);
        class = g->pci_class;
    }
    const char *mode = same && class == CLASS_GRAPHICS  ? "graphics"
                       : same && class == CLASS_COMPUTE ? "compute"
                                                        : "unknown";
    label_put(d, LABEL_GPU ".mode", "%s", mode);
}

static bool on_fabric(const struct gpu *g)
{
    static const unsigned char none[sizeof g->fabric_cluster];
    return !g->lost && g->valid & GPU_HAS_FABRIC && g->fabric_state == FABRIC_COMPLETED &&
           g->fabric_status == FABRIC_STATUS_OK &&
           memcmp(g->fabric_cluster, none, sizeof none) != 0;
}

static void add_clique(struct label_draft *d)
{
    const struct gpu *first = NULL;
    for (size_t i = 0; i < d->n_gpus; i++) {
        const struct gpu *g = d->gpus[i];
        if (!on_fabric(g))
            continue;
        if (!first)
            first = g;
        if (g->fabric_clique == first->fabric_clique &&
            memcmp(g->fabric_cluster, first->fabric_cluster, sizeof g->fabric_cluster) == 0)
            continue;
        label_note(d, "labels.clique-mixed", SEVERITY_WARNING, LABEL_GPU ".clique",
                   "see that the fabric manager put all gpus of this node into one clique",
                   "gpus %u and %u are in different cliques, so this label is left out",
                   first->index, g->index);
        return;
    }
    if (!first)
        return;
    const unsigned char *u = first->fabric_cluster;
    label_put(d, LABEL_GPU ".clique",
              "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x.%u", u[0], u[1],
              u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
              u[15], first->fabric_clique);
}

void labels_add_gpus(struct label_draft *d)
{
    add_mig_capable(d);
    add_mps_capable(d);
    add_models(d);
    add_mode(d);
    add_clique(d);
}
