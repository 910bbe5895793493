/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing: which bases become several devices, and under what name (spec/device-plugin.md 2.3). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "node/resources.h"

static const char *kind_key(enum sharing_kind k)
{
    return k == SHARING_MPS ? "sharing.mps.resources" : "sharing.timeSlicing.resources";
}

static const char *source(const struct draft *d)
{
    return d->in->config->source ? d->in->config->source : "config";
}

static const char *ref_text(const struct device_ref *ref, char *buf, size_t n)
{
    if (ref->kind == REF_UUID)
        snprintf(buf, n, "%s", ref->uuid);
    else if (ref->kind == REF_MIG_INDEX)
        snprintf(buf, n, "%u:%u", ref->gpu, ref->slot);
    else
        snprintf(buf, n, "%u", ref->gpu);
    return buf;
}

static bool ref_means(const struct draft *d, const struct device_ref *ref, const struct base *b)
{
    const struct gpu *g = &d->survey->gpus[b->gpu];
    if (ref->kind == REF_UUID)
        return strcmp(ref->uuid, b->id) == 0;
    if (ref->kind == REF_INDEX)
        return b->part == UINT32_MAX && g->index == ref->gpu;
    return b->part != UINT32_MAX && g->index == ref->gpu && g->parts[b->part].slot == ref->slot;
}

/* A complaint about `what` at a place of the config: an error for a new config; for one that is
 * already served a note, for then the host changed, and the other devices must not suffer. */
static int complain(struct draft *d, const char *id, uint32_t line, uint32_t column,
                    const char *what, const char *fix, struct error *err)
{
    const char *key = kind_key(d->in->config->sharing.kind);
    if (!d->in->running)
        return error_set(err, ERR_INVALID, 0, "%s:%u:%u: %s: %s; %s", source(d), line, column, key,
                         what, fix);
    const char *subject = arena_printf(&d->inv->arena, "%s:%u:%u %s", source(d), line, column, key);
    findings_add(&d->inv->notes, id, SEVERITY_WARNING, subject, fix, "%s", what);
    return 0;
}

/* The indexes of the resource's devices, for messages: "0, 1, 2, …". */
static void index_list(const struct draft *d, const char *resource, struct buf *out)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) {
        if (strcmp(d->bases[i].resource, resource) != 0)
            continue;
        if (++n > 16) {
            buf_z(out, ", …");
            return;
        }
        buf_fmt(out, "%s%s", n > 1 ? ", " : "", d->bases[i].index);
    }
}

/* One gpu may be named by its index here and by its UUID there: only the survey shows that both
 * mean it. Once served, the first entry keeps it. */
static int claim(struct draft *d, struct base *b, const struct shared_resource *e, uint32_t line,
                 uint32_t column, struct error *err)
{
    if (b->entry) {
        char what[300];
        bool same = b->entry == e;
        snprintf(what, sizeof what, "device %s (%s) is %s at %u:%u", b->index, b->id,
                 same ? "listed in this entry already," : "taken by another entry,", b->line,
                 b->column);
        return complain(d, "sharing.device-twice", line, column, what,
                        same ? "list it once" : "a device may be in one entry only", err);
    }
    b->entry = e;
    b->line = line;
    b->column = column;
    return 0;
}

static int claim_ref(struct draft *d, const struct shared_resource *e, const struct device_ref *ref,
                     struct error *err)
{
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->bases[i].resource, e->name) == 0 && ref_means(d, ref, &d->bases[i]))
            return claim(d, &d->bases[i], e, ref->line, ref->column, err);
    char text[UUID_TEXT_SIZE * 2];
    auto_buf have, what;
    buf_init(&have, 512);
    buf_init(&what, 1024);
    index_list(d, e->name, &have);
    buf_fmt(&what, "device %s matches none of %s; this host has %s",
            ref_text(ref, text, sizeof text), e->name, have.p ? have.p : "none");
    return complain(d, "sharing.device-gone", ref->line, ref->column,
                    what.p ? what.p : "device matches nothing",
                    "bring the device back or take it out of the config", err);
}

/* The first `max` bases of the resource. */
static int claim_first(struct draft *d, const struct shared_resource *e, uint32_t max,
                       struct error *err)
{
    uint32_t taken = 0;
    for (size_t i = 0; i < d->n && taken < max; i++) {
        if (strcmp(d->bases[i].resource, e->name) != 0)
            continue;
        int r = claim(d, &d->bases[i], e, e->line, e->column, err);
        if (r < 0)
            return r;
        taken++;
    }
    if (max == UINT32_MAX || taken == max)
        return 0;
    char what[160];
    snprintf(what, sizeof what, "%u devices of a resource are asked for, the host has %u", max,
             taken);
    return complain(d, "sharing.device-gone", e->line, e->column, what,
                    "bring the devices back or ask for fewer", err);
}

static bool exists(const struct draft *d, const char *resource)
{
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->bases[i].resource, resource) == 0)
            return true;
    return false;
}

static int claim_entry(struct draft *d, const struct shared_resource *e, struct error *err)
{
    if (!exists(d, e->name)) {
        findings_add(&d->inv->notes, "sharing.no-such-resource", SEVERITY_INFO, e->name,
                     "nothing, if this config serves several kinds of node",
                     "%s names it (line %u), but this host has no such resource",
                     kind_key(d->in->config->sharing.kind), e->line);
        return 0;
    }
    if (e->all || (e->count == 0 && e->n_refs == 0))
        return claim_first(d, e, UINT32_MAX, err);
    if (e->count > 0)
        return claim_first(d, e, e->count, err);
    for (size_t i = 0; i < e->n_refs; i++) {
        int r = claim_ref(d, e, &e->refs[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int give_name(struct draft *d, struct base *b, struct error *err)
{
    const struct sharing *s = &d->in->config->sharing;
    const struct shared_resource *e = b->entry;
    if (!e)
        return 0;
    if (e->replicas > 1) {
        b->sharing = s->kind;
        b->replicas = e->replicas;
    }
    if (e->rename)
        b->name = e->rename;
    else if (e->replicas > 1 && s->rename_by_default)
        b->name = arena_printf(&d->inv->arena, "%s.shared", b->resource);
    if (!b->name)
        return draft_no_memory(err);
    const char *slash = strchr(b->name, '/');
    size_t n = strlen(slash ? slash + 1 : b->name);
    if (n > RESOURCE_NAME_PART_MAX)
        return error_set(err, ERR_INVALID, 0,
                         "%s:%u:%u: %s: the resource name %s has %zu characters after the \"/\", "
                         "%d are allowed; choose a shorter one with rename",
                         source(d), e->line, e->column, kind_key(s->kind), b->name, n,
                         RESOURCE_NAME_PART_MAX);
    return 0;
}

/* One published name must come from one resource: else nobody could tell what a pod gets. */
static int check_names(const struct draft *d, struct error *err)
{
    for (size_t i = 0; i < d->n; i++)
        for (size_t k = 0; k < i; k++) {
            const struct base *a = &d->bases[k], *b = &d->bases[i];
            if (strcmp(a->name, b->name) == 0 && strcmp(a->resource, b->resource) != 0) {
                const struct shared_resource *e = b->entry ? b->entry : a->entry;
                return error_set(err, ERR_INVALID, 0,
                                 "%s:%u:%u: %s: %s would hold devices of %s and of %s; choose "
                                 "another name with rename",
                                 source(d), e ? e->line : 0, e ? e->column : 0,
                                 kind_key(d->in->config->sharing.kind), b->name, a->resource,
                                 b->resource);
            }
        }
    return 0;
}

/* A share's memory limit under MPS is a part of the gpu's memory: where that is not known or is the
 * host's, there is none to set (B-171). */
static void note_unlimited(struct draft *d, const struct base *b)
{
    const struct gpu *g = &d->survey->gpus[b->gpu];
    bool own = (g->valid & GPU_HAS_MEMORY) && !(g->valid & GPU_UNIFIED);
    if (b->sharing != SHARING_MPS || own || g->lost)
        return;
    findings_add(&d->inv->notes, "mps.no-memory-limit", SEVERITY_WARNING, draft_subject(d, g),
                 "share it by time slicing, or see that its containers limit themselves",
                 "%s, so no memory limit of a share can be computed: under MPS its shares are "
                 "limited in threads alone",
                 g->valid & GPU_UNIFIED ? "it has no memory of its own"
                                        : "its memory is not known");
}

int sharing_apply(struct draft *d, struct error *err)
{
    const struct sharing *s = &d->in->config->sharing;
    if (s->kind == SHARING_NONE)
        return 0;
    for (size_t i = 0; i < s->n_resources; i++) {
        int r = claim_entry(d, &s->resources[i], err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < d->n; i++) {
        int r = give_name(d, &d->bases[i], err);
        if (r < 0)
            return r;
        note_unlimited(d, &d->bases[i]);
    }
    return check_names(d, err);
}
