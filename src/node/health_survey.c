/* SPDX-License-Identifier: Apache-2.0 */
/* What a survey shows: faults that begin, and proof that others are over. */
#include <string.h>

#include "base/mem.h"
#include "node/health_private.h"

enum { RECOVERY_NONE = 0, GPU_NOT_FOUND = 28 /* nvmlReturn_t */ };

static int64_t grown(const struct patient *p, int64_t base_ns)
{
    return MIN(base_ns << p->relapses, QUIET_MAX_NS);
}

/* The instances of a gpu changed: a fault of one that is gone ends with it, unless it needs a
 * reset; then it is the gpu's. */
static void follow_parts(struct health *h, struct patient *p, int64_t now_ns)
{
    for (size_t i = p->n_faults; p->parts_known && i-- > 0;) {
        struct fault *f = &p->faults[i];
        bool there = f->gi == UINT32_MAX;
        for (size_t k = 0; k < p->n_parts && !there; k++)
            there = p->parts[k].gi == f->gi;
        if (there)
            continue;
        if (f->needs_reset) {
            f->gi = f->ci = UINT32_MAX;
            h->changed = true;
        } else {
            health_close(h, p, i, now_ns);
        }
    }
}

static bool reset_proved(const struct patient *p, const struct fault *f)
{
    return f->reset_seen || (f->based && p->generation != f->generation) ||
           (f->energy_mj && p->has_energy && p->energy_mj < f->energy_mj);
}

/* From here on a reset counts, for faults that had no survey since their last sign. The others'
 * energy mark moves up with it: what is below it later was reset since now. */
static void measure_from(struct patient *p, uint64_t generation, uint64_t energy_mj)
{
    bool any = false;
    for (size_t i = 0; i < p->n_faults; i++) {
        struct fault *f = &p->faults[i];
        if (f->based)
            continue;
        any = f->based = true;
        f->generation = generation;
    }
    for (size_t i = 0; any && i < p->n_faults; i++)
        if (!reset_proved(p, &p->faults[i]))
            p->faults[i].energy_mj = MAX(p->faults[i].energy_mj, energy_mj);
}

/* Keeps the proof: a restart of the agent before the settling time ends must not lose it. */
static void keep_proof(struct patient *p)
{
    for (size_t i = 0; i < p->n_faults; i++)
        p->faults[i].reset_seen = reset_proved(p, &p->faults[i]);
}

/* `code` as in struct gpu; of a gpu that the driver does not count: GPU_NOT_FOUND's. */
static void see_lost(struct patient *p, int code)
{
    if (!survey_loss_proves_reset(code))
        return;
    for (size_t i = 0; i < p->n_faults; i++)
        p->faults[i].lost_seen = true;
}

static void take_facts(struct health *h, struct patient *p, const struct gpu *g, int64_t now_ns)
{
    p->surveyed = true;
    p->has_recovery = g->valid & GPU_HAS_RECOVERY;
    p->recovery_action = g->recovery_action;
    p->has_energy = g->valid & GPU_HAS_ENERGY;
    p->energy_mj = g->energy_mj;
    p->generation = g->generation;
    bool pending = (g->valid & GPU_HAS_REMAP) && g->remap_pending;
    h->changed |= pending != p->remap_pending;
    p->remap_pending = pending;
    p->parts_known = !g->mig_text[0] && g->n_parts <= SURVEY_PARTS_MAX;
    p->n_parts = 0;
    for (size_t i = 0; p->parts_known && i < g->n_parts; i++) {
        p->parts[p->n_parts].gi = g->parts[i].gi;
        p->parts[p->n_parts++].ci = g->parts[i].ci;
    }
    measure_from(p, p->generation, p->has_energy ? p->energy_mj : 0);
    keep_proof(p);
    follow_parts(h, p, now_ns);
}

static void open_simple(struct health *h, struct patient *p, enum fault_kind kind, uint64_t value,
                        int64_t now_ns)
{
    const struct fault f = { .kind = kind, .value = value, .gi = UINT32_MAX, .ci = UINT32_MAX };
    if (!health_ignores_fault(h, &f))
        health_open(h, p, &f, now_ns);
}

/* Is this fault, of a gpu that answers, proved gone? */
static bool is_over(const struct patient *p, const struct fault *f, int64_t now_ns)
{
    int64_t quiet = now_ns - f->last_ns;
    if (p->has_recovery && p->recovery_action != RECOVERY_NONE)
        return false;
    if (f->kind == FAULT_LOST || f->kind == FAULT_RECOVERY || f->kind == FAULT_REMAP)
        return quiet >= grown(p, SETTLE_NS);
    if (p->remap_pending && !p->has_recovery)
        return false;
    if (f->reset_seen && quiet >= grown(p, SETTLE_NS))
        return true;
    return (p->has_recovery || !f->needs_reset) && quiet >= grown(p, QUIET_NS);
}

static void examine(struct health *h, struct patient *p, const struct gpu *g, int64_t now_ns)
{
    p->kept = true;
    if (g->lost) {
        open_simple(h, p, FAULT_LOST, (uint64_t)g->lost, now_ns);
        measure_from(p, g->generation, 0);
        see_lost(p, g->lost);
        return;
    }
    take_facts(h, p, g, now_ns);
    if (p->has_recovery && p->recovery_action != RECOVERY_NONE)
        open_simple(h, p, FAULT_RECOVERY, p->recovery_action, now_ns);
    if ((g->valid & GPU_HAS_REMAP) && g->remap_failed)
        open_simple(h, p, FAULT_REMAP, 0, now_ns);
    for (size_t i = p->n_faults; i-- > 0;)
        if (is_over(p, &p->faults[i], now_ns))
            health_close(h, p, i, now_ns);
}

/* The next survey while something is open: soon at first, for a reset mostly comes soon. A gpu that
 * was taken out of the host is not waited for. */
static void plan_probe(struct health *h, int64_t now_ns)
{
    int64_t latest = INT64_MIN;
    bool open = false;
    for (size_t i = 0; i < h->n_patients; i++)
        for (size_t k = 0; k < h->patients[i].n_faults; k++) {
            const struct fault *f = &h->patients[i].faults[k];
            bool seen_by_survey =
                f->kind == FAULT_LOST || f->kind == FAULT_RECOVERY || f->kind == FAULT_REMAP;
            if (!h->patients[i].kept && now_ns - f->since_ns > FORGOTTEN_NS)
                continue;
            latest = MAX(latest, seen_by_survey ? f->since_ns : f->last_ns);
            open = true;
        }
    if (!open)
        h->probe_ns = INT64_MAX;
    else
        h->probe_ns = now_ns + (now_ns - latest < PROBE_EAGER_NS ? PROBE_NS : PROBE_LATER_NS);
}

bool health_survey(struct health *h, const struct survey *s, int64_t now_ns)
{
    if (s->driver != DRIVER_OK) {
        bool changed = health_driver(h, s->driver, false, now_ns);
        h->wants_survey = false;
        return changed;
    }
    h->changed = h->driver_bad || h->doubt;
    h->driver_bad = h->driver_late = false;
    /* A survey that was under way when the doubt came up does not settle it. */
    bool settled = now_ns - h->doubt_since_ns >= DOUBT_SETTLE_NS;
    h->doubt = h->doubt && !settled;
    h->doubt_late = h->doubt_late && h->doubt;
    h->wants_survey = false;
    for (size_t i = 0; i < h->n_patients; i++)
        h->patients[i].kept = false;
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        bool known = g->uuid[0] && health_patient(h, g->uuid);
        struct patient *p = g->uuid[0] ? health_patient_add(h, g->uuid) : NULL;
        h->changed |= p && !known;
        if (p)
            examine(h, p, g, now_ns);
    }
    /* A gpu that the driver no longer counts is lost without saying so. */
    for (size_t i = 0; i < h->n_patients; i++) {
        struct patient *p = &h->patients[i];
        if (p->kept || (!p->surveyed && p->n_faults == 0))
            continue;
        open_simple(h, p, FAULT_LOST, 0, now_ns);
        /* Should it come back, then by a reset; the worker counts anew for it. */
        for (size_t k = 0; k < p->n_faults; k++) {
            p->faults[k].based = true;
            p->faults[k].generation = UINT64_MAX;
        }
        see_lost(p, GPU_NOT_FOUND);
    }
    plan_probe(h, now_ns);
    if (h->doubt)
        h->probe_ns = MIN(h->probe_ns, h->doubt_since_ns + DOUBT_SETTLE_NS);
    health_advance(h, now_ns);
    return h->changed;
}
