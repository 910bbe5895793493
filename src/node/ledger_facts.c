/* SPDX-License-Identifier: Apache-2.0 */
/* What kubelet's records say is in use, and which grants they confirm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "node/ledger_private.h"

static uint32_t hash_text(struct str s)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 16777619u;
    return h ? h : 1;
}

/* Ids that others make from a gpu's UUID ("GPU-…-3", "MIG-GPU-…/7/0") still name that gpu. */
static const struct base *embedded_gpu(const struct ledger *l, struct str id)
{
    enum { UUID_N = 40 }; /* "GPU-" and 36 digits and dashes */
    if (str_starts(id, "MIG-"))
        id.p += 4, id.n -= 4;
    return id.n > UUID_N && str_starts(id, "GPU-") ? ledger_base(l, (struct str){ id.p, UUID_N })
                                                   : NULL;
}

static void see_kind(struct kind *k, const struct device_use *u)
{
    char pod[320];
    if (k->seen++)
        return;
    auto_free char *text =
        x_printf("in use as %s by pod %s", k->resource, use_pod_text(u, pod, sizeof pod));
    if (k->seen_text && strcmp(k->seen_text, text) == 0)
        return;
    free(k->seen_text);
    k->seen_text = steal(text);
    k->was_held = false; /* the reason is another: tell it */
}

/* Of two pods that kubelet names for one device the living one counts. */
static void see(struct ledger *l, struct entry *e, const char *base, bool shared, uint32_t share,
                const struct device_use *u)
{
    bool fresh, holds = use_holds(u);
    struct kind *k = kind_get(e, u->resource, shared, base);
    struct slot *s =
        slots_put(&l->facts, (uint32_t)(e - l->entries), (uint32_t)(k - e->kinds), share, &fresh);
    if (!fresh && (s->counts || !holds))
        return;
    if (holds && !s->counts)
        see_kind(k, u);
    s->counts = holds;
    s->check = u->from_checkpoint;
    s->pod = u->pod_uid && u->pod_uid[0] ? hash_text(str_of(u->pod_uid)) : 0;
}

/* false: the id names no gpu that a survey has shown. */
static bool take_use(struct ledger *l, const struct device_use *u)
{
    struct str id = str_of(u->id);
    struct id_parts p = id_split(id);
    if (str_is(p.base, "all")) { /* one device for all gpus */
        for (uint32_t i = 0; i < l->n_entries; i++)
            see(l, &l->entries[i], "all", p.shared, p.share, u);
        return l->n_entries > 0;
    }
    const struct base *b = ledger_base(l, p.base);
    if (b) {
        see(l, &l->entries[b->gpu], b->uuid, p.shared, p.share, u);
        return true;
    }
    b = embedded_gpu(l, id);
    if (b) /* a foreign form goes with nothing of ours but itself */
        see(l, &l->entries[b->gpu], l->entries[b->gpu].uuid, true, hash_text(id), u);
    return b;
}

static bool could_be_gpu(const char *id)
{
    return strncmp(id, "GPU-", 4) == 0 || strncmp(id, "MIG-", 4) == 0 || strncmp(id, "all", 3) == 0;
}

/* Keeps a use for the time when a survey shows its gpu. */
static void keep_stray(struct in_use **strays, size_t room, const struct device_use *u)
{
    if (!could_be_gpu(u->id))
        return;
    if (!*strays) {
        *strays = in_use_new();
        (*strays)->uses = arena_array(&(*strays)->arena, room, sizeof *u);
    }
    struct in_use *s = *strays;
    if (!s->uses || s->n >= room)
        return;
    struct device_use copy = *u;
    const char **texts[] = { &copy.resource,      &copy.id,       &copy.pod_uid, &copy.pod_name,
                             &copy.pod_namespace, &copy.container };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        *texts[i] = arena_strdup(&s->arena, str_of(*texts[i]));
        if (!*texts[i])
            return;
    }
    s->uses[s->n++] = copy;
}

static size_t slots_needed(const struct ledger *l, const struct in_use *facts)
{
    size_t n = facts->n;
    for (size_t i = 0; i < facts->n; i++)
        n += strncmp(facts->uses[i].id, "all", 3) == 0 ? l->n_entries : 0;
    return n;
}

static void rebuild_owners(struct ledger *l)
{
    for (uint32_t i = 0; i < l->n_entries; i++) {
        struct entry *e = &l->entries[i];
        if (e->rebuilt && !l->damaged && !entry_free(e) && e->owner != OWNER_DEVICE_PLUGIN) {
            e->owner = OWNER_DEVICE_PLUGIN;
            ledger_changed(l, e);
        }
        e->rebuilt = e->rebuilt && l->damaged;
    }
}

void ledger_apply_strays(struct ledger *l)
{
    struct in_use *s = l->strays;
    size_t kept = 0;
    if (s && slots_reserve(&l->facts, slots_needed(l, s))) {
        for (size_t i = 0; i < s->n; i++)
            if (!take_use(l, &s->uses[i]))
                s->uses[kept++] = s->uses[i];
        s->n = kept;
        if (!kept)
            in_use_free(steal(l->strays));
    }
    rebuild_owners(l);
}

/* Before a whole new picture is taken in: nothing is seen, grants stay. */
static void forget_facts(struct ledger *l)
{
    slots_done(&l->facts);
    in_use_free(steal(l->strays));
    for (uint32_t i = 0; i < l->n_entries; i++)
        for (uint32_t k = 0; k < l->entries[i].n_kinds; k++)
            l->entries[i].kinds[k].seen = 0;
}

static bool confirmed(const struct ledger *l, const struct slot *grant, const struct in_use *facts)
{
    if (facts->began_ns <= grant->ns)
        return false;
    if (facts->checkpoint_read && facts->began_ns - grant->ns >= LEDGER_UNSEEN_NS)
        return true;
    const struct slot *s = slots_find(&l->facts, grant->gpu, grant->kind, grant->share);
    return s && s->counts && s->check && s->pod && s->pod != grant->pod;
}

static void confirm_grants(struct ledger *l, const struct in_use *facts)
{
    struct slots kept = { 0 };
    if (!l->grants.n || !slots_reserve(&kept, l->grants.n))
        return; /* without memory they stay open a little longer */
    for (size_t i = 0; i < l->grants.cap; i++) {
        const struct slot *s = &l->grants.at[i];
        bool fresh;
        if (s->gpu == SLOT_EMPTY)
            continue;
        if (confirmed(l, s, facts))
            l->entries[s->gpu].kinds[s->kind].open--;
        else
            *slots_put(&kept, s->gpu, s->kind, s->share, &fresh) = *s;
    }
    slots_done(&l->grants);
    l->grants = kept;
}

static void count_free_reads(struct ledger *l, const struct in_use *facts)
{
    for (uint32_t i = 0; i < l->n_entries; i++) {
        struct entry *e = &l->entries[i];
        if (e->step != STEP_DRAINING || !facts->checkpoint_read)
            continue;
        if (!entry_free(e)) {
            e->free_reads = 0;
        } else if (facts->began_ns > e->quiet_from_ns) {
            e->free_reads++;
            e->free_began_ns = facts->began_ns;
        }
    }
}

static void mark_held(struct ledger *l)
{
    for (uint32_t i = 0; i < l->n_entries; i++)
        for (uint32_t k = 0; k < l->entries[i].n_kinds; k++)
            l->entries[i].kinds[k].was_held = kind_held(&l->entries[i].kinds[k]);
}

static bool held_changed(struct ledger *l)
{
    bool changed = false;
    for (uint32_t i = 0; i < l->n_entries; i++)
        for (uint32_t k = 0; k < l->entries[i].n_kinds; k++) {
            struct kind *kind = &l->entries[i].kinds[k];
            changed = changed || kind->was_held != kind_held(kind);
            kind->was_held = false;
        }
    return changed;
}

static void unread(struct ledger *l, const char *why)
{
    l->unknown = true;
    snprintf(l->unknown_note, sizeof l->unknown_note, "%s", why);
}

/* Takes the uses in. Pod-resources alone leaves out pods that are not active: it adds, and frees
 * nothing. false: out of memory, nothing has changed. */
static bool take_facts(struct ledger *l, const struct in_use *facts)
{
    struct slots fresh = { 0 };
    bool whole = facts->checkpoint_read;
    if (!slots_reserve(whole ? &fresh : &l->facts, slots_needed(l, facts)))
        return false;
    if (whole) {
        forget_facts(l);
        l->facts = fresh;
    }
    struct in_use *strays = NULL;
    for (size_t i = 0; i < facts->n; i++)
        if (!take_use(l, &facts->uses[i]))
            keep_stray(&strays, facts->n, &facts->uses[i]);
    if (l->strays)
        in_use_free(strays); /* the checkpoint's, which are more */
    else
        l->strays = strays;
    return true;
}

bool ledger_seen(struct ledger *l, const struct in_use *facts, int64_t now_ns)
{
    (void)now_ns; /* what counts is when the reading began */
    bool told = facts && (facts->checkpoint_read || facts->podresources_read);
    if (!told) {
        unread(l, facts && facts->note[0] ? facts->note : "neither source could be read");
        return false;
    }
    mark_held(l);
    if (!take_facts(l, facts)) {
        unread(l, "out of memory");
        return false;
    }
    confirm_grants(l, facts);
    bool changed = held_changed(l);
    if (facts->checkpoint_read) {
        changed = changed || !l->facts_ever || l->damaged;
        l->facts_ever = true;
        l->unknown = false;
        if (l->damaged) {
            l->damaged = false;
            ledger_changed(l, NULL);
        }
        rebuild_owners(l);
        count_free_reads(l, facts);
    } else {
        unread(l, facts->note[0] ? facts->note : "kubelet's checkpoint was not read");
    }
    return changed;
}

bool ledger_wants_facts(const struct ledger *l)
{
    bool wants = l->damaged || !l->facts_ever || l->grants.n;
    for (uint32_t i = 0; !wants && i < l->n_entries; i++)
        wants = l->entries[i].step == STEP_DRAINING;
    return wants;
}
