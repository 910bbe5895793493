/* SPDX-License-Identifier: Apache-2.0 */
/* Which uses of one gpu go together; grants, and what may be offered beside what is in use. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "node/ledger_private.h"

/* ---- kinds ---- */

bool kind_held(const struct kind *k)
{
    return k->seen || k->open;
}

bool entry_free(const struct entry *e)
{
    for (uint32_t i = 0; i < e->n_kinds; i++)
        if (kind_held(&e->kinds[i]))
            return false;
    return true;
}

static void kind_done(struct kind *k)
{
    free(k->resource);
    free(k->base);
    free(k->seen_text);
    free(k->open_text);
    free(k->remembered_text);
}

void entry_done(struct entry *e)
{
    for (uint32_t i = 0; i < e->n_kinds; i++)
        kind_done(&e->kinds[i]);
    free(steal(e->kinds));
    e->n_kinds = 0;
}

const char *kind_text(const struct kind *k)
{
    return k->seen && k->seen_text ? k->seen_text : k->open ? k->open_text : k->remembered_text;
}

static bool is_part(const char *base)
{
    return strncmp(base, "MIG-", 4) == 0;
}

static bool kind_is(const struct kind *k, const char *resource, bool shared, const char *base)
{
    return k->shared == shared && strcmp(k->base, base) == 0 && strcmp(k->resource, resource) == 0;
}

static struct kind *kind_find(const struct entry *e, const char *resource, bool shared,
                              const char *base)
{
    for (uint32_t i = 0; i < e->n_kinds; i++)
        if (kind_is(&e->kinds[i], resource, shared, base))
            return &e->kinds[i];
    return NULL;
}

/* A kind that nothing refers to any more makes room, so that re-made parts do not pile up. A grant
 * or fact refers to it exactly while it is held; facts of ended pods may too, and then say nothing.
 */
static struct kind *kind_room(struct entry *e)
{
    for (uint32_t i = 0; i < e->n_kinds; i++) {
        struct kind *k = &e->kinds[i];
        if (!kind_held(k) && !k->remembered && !k->was_held) {
            kind_done(k);
            return k;
        }
    }
    e->kinds = x_realloc(e->kinds, (e->n_kinds + 1) * sizeof *e->kinds);
    return &e->kinds[e->n_kinds++];
}

struct kind *kind_get(struct entry *e, const char *resource, bool shared, const char *base)
{
    struct kind *k = kind_find(e, resource, shared, base);
    if (k)
        return k;
    const char *form = shared ? "shares of " : "";
    k = kind_room(e);
    *k = (struct kind){ .resource = x_strdup(resource),
                        .base = x_strdup(base),
                        .shared = shared,
                        .whole = !is_part(base) };
    k->open_text =
        x_printf("granted as %s (%s%s), kubelet has not confirmed it yet", resource, form, base);
    k->remembered_text =
        x_printf("last granted as %s (%s%s), and kubelet's records were not read since the start",
                 resource, form, base);
    return k;
}

/* May a use as (resource, shared, base) stand beside `k`? */
static bool goes_with(const struct kind *k, const char *resource, bool shared, const char *base)
{
    bool whole = !is_part(base);
    if (!whole && !k->whole && strcmp(k->base, base) != 0)
        return true;
    return whole == k->whole && k->shared == shared && strcmp(k->resource, resource) == 0;
}

const struct kind *kind_conflict(const struct ledger *l, const struct entry *e,
                                 const char *resource, bool shared, const char *base)
{
    for (uint32_t i = 0; i < e->n_kinds; i++) {
        const struct kind *k = &e->kinds[i];
        bool counts = kind_held(k) || (k->earlier && !l->facts_ever);
        if (counts && !goes_with(k, resource, shared, base))
            return k;
    }
    return NULL;
}

/* ---- ids ---- */

struct id_parts id_split(struct str id)
{
    for (size_t i = id.n; i-- > 1;) {
        uint64_t n;
        if (id.p[i] != ':' || id.p[i - 1] != ':')
            continue;
        if (!str_to_u64((struct str){ id.p + i + 1, id.n - i - 1 }, NO_SHARE - 1, &n))
            break;
        return (struct id_parts){ { id.p, i - 1 }, true, (uint32_t)n };
    }
    return (struct id_parts){ id, false, NO_SHARE };
}

/* ---- grants ---- */

static int refuse(const struct entry *e, const char *uuid, const struct grant_request *g,
                  const struct ledger *l, struct error *err)
{
    if (l->damaged)
        return error_set(err, ERR_UNAVAILABLE, 0,
                         "gpu %s is not given out: the ledger was damaged and kubelet's records "
                         "have not been read since",
                         uuid);
    if (!e)
        return error_set(err, ERR_NOT_FOUND, 0, "gpu %s is not in the ledger", uuid);
    if (e->step != STEP_NONE)
        return error_set(err, ERR_CONFLICT, 0,
                         "gpu %s is not given out as %s: it is being handed from %s to %s", uuid,
                         g->resource, owner_name(e->owner), owner_name(e->to));
    return error_set(err, ERR_CONFLICT, 0,
                     "gpu %s is not given out as %s: its owner is %s, expected device-plugin", uuid,
                     g->resource, owner_name(e->owner));
}

static bool grantable(const struct ledger *l, const struct entry *e)
{
    return !l->damaged && e && e->step == STEP_NONE && e->owner == OWNER_DEVICE_PLUGIN;
}

/* Writes the form of the grant down when it is a new one for this gpu, so that a restart that
 * cannot read kubelet's records still knows it. Forms that are not in use any more go with it. */
static void remember(struct ledger *l, struct entry *e, struct kind *k)
{
    if (k->remembered)
        return;
    for (uint32_t i = 0; i < e->n_kinds; i++) {
        struct kind *other = &e->kinds[i];
        bool stays = kind_held(other) || (other->earlier && !l->facts_ever);
        other->remembered = other->remembered && stays;
    }
    k->remembered = true;
    ledger_changed(l, e);
}

static void undo_one(struct ledger *l, struct entry *e, struct kind *k, uint32_t share)
{
    uint32_t gpu = (uint32_t)(e - l->entries), kind = (uint32_t)(k - e->kinds);
    struct slot *s = slots_find(&l->grants, gpu, kind, share);
    if (!s || --s->counts > 0)
        return;
    slots_remove(&l->grants, s);
    k->open--;
}

static void undo(struct ledger *l, const struct grant_request *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct entry *e = ledger_entry(l, g->gpu_uuids[i]);
        struct kind *k = e ? kind_find(e, g->resource, !g->exclusive, g->bases[i]) : NULL;
        if (k)
            undo_one(l, e, k, id_split(str_of(g->ids[i])).share);
    }
}

void ledger_grant_undo(struct ledger *l, const struct grant_request *g)
{
    undo(l, g, g->n);
}

static void record(struct ledger *l, struct entry *e, struct kind *k, uint32_t share,
                   int64_t now_ns)
{
    bool fresh;
    uint32_t gpu = (uint32_t)(e - l->entries), kind = (uint32_t)(k - e->kinds);
    struct slot *s = slots_put(&l->grants, gpu, kind, share, &fresh);
    const struct slot *known = slots_find(&l->facts, gpu, kind, share);
    if (fresh)
        k->open++;
    s->ns = now_ns;
    s->pod = known ? known->pod : 0;
    s->counts++;
}

/* Most requests name one gpu once, or many shares of one: what was found out for the id before is
 * kept. */
struct grant_cursor {
    const char *gpu, *base;
    struct entry *e;
    struct kind *k;
};

static int grant_kind(struct ledger *l, const struct grant_request *g, size_t i,
                      struct grant_cursor *c, struct error *err)
{
    const char *uuid = g->gpu_uuids[i], *base = g->bases[i];
    if (c->k && strcmp(c->gpu, uuid) == 0 && strcmp(c->base, base) == 0)
        return 0;
    struct entry *e = ledger_entry(l, uuid);
    if (!grantable(l, e))
        return refuse(e, uuid, g, l, err);
    const struct kind *other = kind_conflict(l, e, g->resource, !g->exclusive, base);
    if (other)
        return error_set(err, ERR_CONFLICT, 0,
                         "gpu %s cannot be given out as %s%s: it is %s; that has to end first",
                         uuid, g->exclusive ? "" : "shares of ", g->resource, kind_text(other));
    struct kind *k = kind_get(e, g->resource, !g->exclusive, base);
    remember(l, e, k);
    *c = (struct grant_cursor){ uuid, base, e, k };
    return 0;
}

int ledger_grant(struct ledger *l, const struct grant_request *g, int64_t now_ns, struct error *err)
{
    if (!slots_reserve(&l->grants, g->n))
        return error_set(err, ERR_LIMIT, 0, "no memory to record a grant of %zu devices", g->n);
    struct grant_cursor c = { 0 };
    for (size_t i = 0; i < g->n; i++) {
        struct id_parts id = id_split(str_of(g->ids[i]));
        int r = grant_kind(l, g, i, &c, err);
        if (r == 0 && (!str_is(id.base, g->bases[i]) || id.shared == g->exclusive))
            r = error_set(err, ERR_INVALID, 0, "device id \"%s\" is not %s%s", g->ids[i],
                          g->exclusive ? "" : "a share of ", g->bases[i]);
        if (r < 0) {
            undo(l, g, i);
            return r;
        }
        record(l, c.e, c.k, id.share, now_ns);
        c.e->quiet_from_ns = MAX(c.e->quiet_from_ns, now_ns);
    }
    return 0;
}

size_t ledger_grants(const struct ledger *l)
{
    size_t n = 0;
    for (uint32_t i = 0; i < l->n_entries; i++)
        for (uint32_t k = 0; k < l->entries[i].n_kinds; k++)
            n += l->entries[i].kinds[k].seen;
    for (size_t i = 0; i < l->grants.cap; i++) {
        const struct slot *s = &l->grants.at[i];
        const struct slot *seen =
            s->gpu == SLOT_EMPTY ? NULL : slots_find(&l->facts, s->gpu, s->kind, s->share);
        n += s->gpu != SLOT_EMPTY && !(seen && seen->counts);
    }
    return n;
}

/* ---- offers ---- */

static const char *owner_reason(const struct entry *e)
{
    static const char *const reasons[] = {
        [OWNER_NONE] = "the ledger says that nobody may hand this gpu out",
        [OWNER_DEVICE_PLUGIN] = NULL,
        [OWNER_DRA] = "owned by dra",
        [OWNER_FOREIGN] = "owned by a foreign publisher",
        [OWNER_DRAINING] = "on its way to another owner",
    };
    return reasons[e->step == STEP_NONE ? e->owner : OWNER_DRAINING];
}

bool ledger_may_offer(const struct ledger *l, const char *resource, bool shared,
                      const char *gpu_uuid, const char *base, const char **ret_reason)
{
    const char *reason = NULL;
    const struct entry *e = ledger_entry(l, gpu_uuid);
    if (l->damaged)
        reason = "state was damaged; kubelet's records have not been read since";
    else if (!e)
        reason = "not in the ledger yet";
    else
        reason = owner_reason(e);
    if (!reason) {
        const struct kind *k = kind_conflict(l, e, resource, shared, base);
        reason = k ? kind_text(k) : NULL;
    }
    if (reason && ret_reason)
        *ret_reason = reason;
    return !reason;
}
