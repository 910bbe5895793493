/* SPDX-License-Identifier: Apache-2.0 */
/* Owners and their changes, and what stands now in words. */
#include "base/mem.h"
#include "node/ledger_private.h"

static const char *const owner_names[] = {
    [OWNER_NONE] = "none",       [OWNER_DEVICE_PLUGIN] = "device-plugin", [OWNER_DRA] = "dra",
    [OWNER_FOREIGN] = "foreign", [OWNER_DRAINING] = "draining",
};

const char *owner_name(enum owner o)
{
    return (size_t)o < ARRAY_LEN(owner_names) ? owner_names[o] : "unknown";
}

enum owner ledger_owner(const struct ledger *l, const char *gpu_uuid)
{
    const struct entry *e = l->damaged ? NULL : ledger_entry(l, gpu_uuid);
    if (!e)
        return OWNER_NONE;
    return e->step == STEP_NONE ? e->owner : OWNER_DRAINING;
}

bool ledger_damaged(const struct ledger *l)
{
    return l->damaged;
}

int ledger_handover_start(struct ledger *l, const char *gpu_uuid, enum owner to, int64_t now_ns,
                          struct error *err)
{
    struct entry *e = ledger_entry(l, gpu_uuid);
    if (to != OWNER_NONE && to != OWNER_DEVICE_PLUGIN && to != OWNER_DRA)
        return error_set(err, ERR_INVALID, 0,
                         "gpu %s cannot be handed to owner \"%s\": allowed are none, device-plugin "
                         "and dra",
                         gpu_uuid, owner_name(to));
    if (l->damaged)
        return error_set(err, ERR_UNAVAILABLE, 0,
                         "gpu %s keeps its owner for now: the ledger was damaged and kubelet's "
                         "records have not been read since",
                         gpu_uuid);
    if (!e)
        return error_set(err, ERR_NOT_FOUND, 0, "gpu %s is not in the ledger", gpu_uuid);
    if (e->step == STEP_SETTLING)
        return error_set(err, ERR_CONFLICT, 0,
                         "gpu %s is just being handed to %s; ask again when that is written",
                         gpu_uuid, owner_name(e->owner));
    if ((e->step == STEP_NONE && to == e->owner) || (e->step == STEP_DRAINING && to == e->to))
        return 0;
    e->step = to == e->owner ? STEP_NONE : STEP_DRAINING;
    e->to = to;
    e->quiet_from_ns = MAX(e->quiet_from_ns, now_ns);
    e->started_real_ns = host_real_ns(l->host);
    e->free_reads = 0;
    ledger_changed(l, e);
    return 0;
}

static bool drained(const struct ledger *l, const struct entry *e)
{
    return e->step == STEP_DRAINING && e->gen <= l->disk_gen && entry_free(e) &&
           e->free_reads >= 2 && e->free_began_ns >= e->quiet_from_ns + LEDGER_QUIET_NS;
}

bool ledger_tick(struct ledger *l, int64_t now_ns)
{
    bool changed = l->settled;
    l->ticked_ns = now_ns;
    if (l->state_dir && now_ns >= l->retry_ns)
        ledger_reopen_dir(l, now_ns);
    for (uint32_t i = 0; i < l->n_entries; i++) {
        struct entry *e = &l->entries[i];
        if (!drained(l, e))
            continue;
        e->owner = e->to;
        e->step = STEP_SETTLING;
        ledger_changed(l, e);
        changed = true;
    }
    l->settled = false;
    return changed;
}

int64_t ledger_next_ns(const struct ledger *l)
{
    if (l->settled)
        return 0;
    int64_t next = l->retry_ns;
    for (uint32_t i = 0; i < l->n_entries; i++) {
        const struct entry *e = &l->entries[i];
        if (drained(l, e))
            return 0;
        if (e->step == STEP_DRAINING)
            next =
                MIN(next, MAX(e->quiet_from_ns + LEDGER_QUIET_NS, l->ticked_ns + LEDGER_RETRY_NS));
    }
    return next;
}

/* ---- what stands ---- */

static void findings_handover(const struct ledger *l, const struct entry *e, struct findings *out)
{
    const char *waits = "10 s of quiet and two readings that show it free";
    for (uint32_t k = 0; k < e->n_kinds; k++)
        if (kind_held(&e->kinds[k]))
            waits = kind_text(&e->kinds[k]);
    if (e->gen > l->disk_gen)
        waits = "the step to be written to disk";
    findings_add(out, "ledger.hand-over", SEVERITY_INFO, e->uuid,
                 "nothing to do; delete the pods that use the gpu to have it sooner",
                 "on its way from %s to %s, offered by nobody; waits for: %s", owner_name(e->owner),
                 owner_name(e->to), waits);
}

void ledger_findings(const struct ledger *l, struct findings *out)
{
    if (l->damaged)
        findings_add(out, "ledger.damaged", SEVERITY_ERROR, l->state_dir ? l->state_dir : "ledger",
                     "make kubelet's device-plugin directory readable for this process",
                     "the state was damaged; no gpu is offered until kubelet's records were read");
    if (l->write_err.code)
        findings_add(out, "ledger.not-kept", SEVERITY_ERROR, l->state_dir,
                     "free space or make the directory writable; it is tried again by itself",
                     "the ledger is kept in memory only: %s", l->write_err.text);
    if (l->unknown)
        findings_add(out, "ledger.in-use-unknown", SEVERITY_WARNING, "kubelet",
                     "make kubelet's device-plugin directory and pod-resources socket readable for "
                     "this process",
                     "what is in use could not be read%s: %s",
                     l->facts_ever ? " again, what was seen last counts" : "", l->unknown_note);
    for (uint32_t i = 0; i < l->n_entries; i++)
        if (l->entries[i].step != STEP_NONE)
            findings_handover(l, &l->entries[i], out);
}
