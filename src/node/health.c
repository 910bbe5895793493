/* SPDX-License-Identifier: Apache-2.0 */
/* Events, driver states and time. Surveys are in health_survey.c, views in health_view.c. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "node/health_private.h"

/* ---- configuration ---- */

static uint32_t *copy_numbers(const uint32_t *from, size_t n)
{
    uint32_t *to = x_alloc((n + 1) * sizeof *to);
    if (n)
        memcpy(to, from, n * sizeof *to);
    return to;
}

static bool contains(const uint32_t *numbers, size_t n, uint64_t x)
{
    for (size_t i = 0; i < n; i++)
        if (numbers[i] == x)
            return true;
    return false;
}

/* Enabling wins over every way of ignoring, also over "all" (the peer's comment says so, its code
 * does not). */
bool health_ignores(const struct health *h, uint64_t xid)
{
    const struct xid_info *info = xid_lookup(xid);
    if (h->enable_all || contains(h->enabled, h->n_enabled, xid))
        return false;
    return h->ignore_all || contains(h->ignored, h->n_ignored, xid) ||
           (info && info->ignored_by_default);
}

bool health_off(const struct health *h)
{
    return h->ignore_all && !h->enable_all;
}

bool health_ignores_fault(const struct health *h, const struct fault *f)
{
    if (f->kind == FAULT_XID)
        return health_ignores(h, f->value);
    return f->kind != FAULT_LOST && health_off(h);
}

void health_config(struct health *h, const struct plugin_config *config)
{
    free(h->ignored);
    free(h->enabled);
    h->ignore_all = config->health.disable_all;
    h->enable_all = config->health.enable_all;
    h->n_ignored = config->health.n_disabled;
    h->n_enabled = config->health.n_enabled;
    h->ignored = copy_numbers(config->health.disabled, h->n_ignored);
    h->enabled = copy_numbers(config->health.enabled, h->n_enabled);
    for (size_t i = 0; i < h->n_patients; i++) {
        struct patient *p = &h->patients[i];
        for (size_t k = p->n_faults; k-- > 0;)
            if (health_ignores_fault(h, &p->faults[k]))
                health_close(h, p, k, INT64_MIN);
    }
}

int health_new(const struct plugin_config *config, struct health **ret, struct error *err)
{
    (void)err;
    struct health *h = x_alloc(sizeof *h);
    h->patients = x_alloc(HEALTH_GPUS_MAX * sizeof *h->patients);
    h->probe_ns = INT64_MAX;
    health_config(h, config);
    *ret = h;
    return 0;
}

void health_free(struct health *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n_patients; i++)
        free(h->patients[i].faults);
    free(h->patients);
    free(h->ignored);
    free(h->enabled);
    free(h);
}

/* ---- gpus and their faults ---- */

struct patient *health_patient(const struct health *h, const char *uuid)
{
    for (size_t i = 0; i < h->n_patients; i++)
        if (strcmp(h->patients[i].uuid, uuid) == 0)
            return &h->patients[i];
    return NULL;
}

struct patient *health_patient_add(struct health *h, const char *uuid)
{
    struct patient *p = health_patient(h, uuid);
    if (p || h->n_patients == HEALTH_GPUS_MAX || strlen(uuid) >= sizeof p->uuid)
        return p;
    p = &h->patients[h->n_patients++];
    *p = (struct patient){ .returned_ns = INT64_MIN };
    memcpy(p->uuid, uuid, strlen(uuid) + 1);
    return p;
}

static struct fault *fault_like(struct patient *p, const struct fault *like)
{
    for (size_t i = 0; i < p->n_faults; i++) {
        struct fault *f = &p->faults[i];
        /* One gpu is lost once, and has one recovery action: the number may change. */
        bool one = like->kind != FAULT_XID;
        if (f->kind == like->kind && f->gi == like->gi && f->ci == like->ci &&
            (one || f->value == like->value))
            return f;
    }
    return NULL;
}

/* What counts as a reset is measured from the first survey after the sign: the one before it may be
 * days old, and a reset since then, of a gpu that was well, would pass for the cure. */
static void renew(struct health *h, struct fault *f, int64_t now_ns)
{
    f->last_ns = now_ns;
    f->reset_seen = f->lost_seen = f->based = false;
    f->energy_mj = 0;
    h->probe_ns = MIN(h->probe_ns, now_ns + PROBE_NS);
}

struct fault *health_open(struct health *h, struct patient *p, const struct fault *like,
                          int64_t now_ns)
{
    struct fault *f = fault_like(p, like);
    if (f) {
        bool same = f->value == like->value;
        f->value = like->value;
        renew(h, f, now_ns);
        if (!same) {
            health_describe(f);
            h->changed = true;
        }
        return f;
    }
    if (!p->faults)
        p->faults = x_alloc(FAULTS_MAX * sizeof *p->faults);
    if (p->n_faults == 0) {
        bool again = p->returned_ns != INT64_MIN && now_ns - p->returned_ns < RELAPSE_NS;
        p->relapses = again ? MIN(p->relapses + 1, (uint32_t)RELAPSES_MAX) : 0;
    }
    /* No room: the last place stands for all further ones, and for the whole gpu. */
    bool full = p->n_faults == FAULTS_MAX;
    f = &p->faults[full ? FAULTS_MAX - 1 : p->n_faults++];
    *f = *like;
    if (full) {
        f->gi = f->ci = UINT32_MAX;
        f->needs_reset = true;
    }
    f->since_ns = now_ns;
    renew(h, f, now_ns);
    health_describe(f);
    h->changed = true;
    return f;
}

void health_close(struct health *h, struct patient *p, size_t i, int64_t now_ns)
{
    p->n_faults--;
    memmove(&p->faults[i], &p->faults[i + 1], (p->n_faults - i) * sizeof *p->faults);
    if (p->n_faults == 0)
        p->returned_ns = now_ns;
    h->changed = true;
}

/* ---- driver and monitoring ---- */

/* Known to be gone: at once. Maybe only slow, or the worker's own trouble: after the grace. */
static const struct driver_policy policies[] = {
    [DRIVER_OK] = { "stale", "the GPU worker does not answer; it is started again",
                    STALE_GRACE_NS },
    [DRIVER_NO_LIBRARY] = { "driver-gone",
                            "the driver's library is not found; returns when the driver is back",
                            STALE_GRACE_NS },
    [DRIVER_BAD_LIBRARY] = { "driver-gone",
                             "the driver's library cannot be loaded; returns when it can",
                             STALE_GRACE_NS },
    [DRIVER_NOT_LOADED] = { "driver-gone",
                            "the driver's kernel module is not loaded; returns when it is", 0 },
    [DRIVER_VERSION_MISMATCH] = { "driver-mismatch",
                                  "the driver's library and kernel module differ in version; "
                                  "returns when they agree (reload the module or reboot)",
                                  0 },
    [DRIVER_NO_PERMISSION] = { "driver-permission",
                               "the driver refuses the GPU worker; returns when it may ask again",
                               STALE_GRACE_NS },
    [DRIVER_RELEASED] = { "driver-released",
                          "the agent let go of the driver for a reset or an upgrade; returns when "
                          "it takes it again",
                          0 },
    [DRIVER_HUNG] = { "driver-hung",
                      "a driver call does not return; the GPU worker is started again",
                      STALE_GRACE_NS },
    [DRIVER_STUCK] = { "driver-stuck",
                       "the driver is stuck in the kernel; a reboot is likely needed", 0 },
    [DRIVER_ERROR] = { "driver-error", "the driver answers with errors; returns when it works",
                       STALE_GRACE_NS },
};

const struct driver_policy *health_driver_policy(const struct health *h)
{
    return &policies[(size_t)h->driver < ARRAY_LEN(policies) ? h->driver : DRIVER_ERROR];
}

bool health_driver(struct health *h, enum driver_state s, bool stale, int64_t now_ns)
{
    h->changed = false;
    if (s == DRIVER_OK && !stale) {
        /* Only a good survey ends the trouble. */
        h->wants_survey |= h->driver_bad;
        health_advance(h, now_ns);
        return h->changed;
    }
    if (!h->driver_bad)
        h->driver_since_ns = now_ns;
    h->changed = !h->driver_bad || h->driver != s;
    h->driver_bad = true;
    h->driver_stale = stale;
    h->driver = s;
    h->driver_late = false;
    health_advance(h, now_ns);
    return h->changed;
}

static void set(struct health *h, bool *flag, bool value)
{
    h->changed |= *flag != value;
    *flag = value;
}

void health_advance(struct health *h, int64_t now_ns)
{
    if (h->driver_bad)
        set(h, &h->driver_late, now_ns - h->driver_since_ns >= health_driver_policy(h)->grace_ns);
    if (h->doubt)
        set(h, &h->doubt_late, now_ns - h->doubt_since_ns >= DOUBT_GRACE_NS);
    if (h->wait_failing && now_ns - h->wait_last_ns >= WAIT_FORGOTTEN_NS) {
        h->wait_failing = false;
        set(h, &h->wait_broken, false);
    }
    if (now_ns >= h->probe_ns) {
        h->wants_survey = true;
        h->probe_ns = now_ns + PROBE_LATER_NS; /* asked again should the survey never come */
    }
}

bool health_tick(struct health *h, int64_t now_ns)
{
    h->changed = false;
    health_advance(h, now_ns);
    return h->changed;
}

int64_t health_next_ns(const struct health *h)
{
    int64_t next = h->probe_ns;
    if (h->driver_bad && !h->driver_late)
        next = MIN(next, h->driver_since_ns + health_driver_policy(h)->grace_ns);
    if (h->doubt && !h->doubt_late)
        next = MIN(next, h->doubt_since_ns + DOUBT_GRACE_NS);
    if (h->wait_failing)
        next = MIN(next, h->wait_last_ns + WAIT_FORGOTTEN_NS);
    return next;
}

bool health_wants_survey(const struct health *h)
{
    return h->wants_survey;
}

/* ---- events ---- */

static void doubt(struct health *h, int64_t now_ns)
{
    if (!h->doubt) {
        h->doubt = h->changed = true;
        h->doubt_late = false;
        h->doubt_since_ns = now_ns;
    }
    h->wants_survey = true;
}

/* An instance that the last survey did not show cannot be told apart: then the event counts for
 * all that it may mean. */
static void scope(const struct patient *p, const struct gpu_event *e, struct fault *f)
{
    bool gi = false, ci = false;
    for (size_t i = 0; p->parts_known && i < p->n_parts; i++) {
        gi |= p->parts[i].gi == e->gi;
        ci |= p->parts[i].gi == e->gi && p->parts[i].ci == e->ci;
    }
    f->gi = gi ? e->gi : UINT32_MAX;
    f->ci = ci ? e->ci : UINT32_MAX;
}

static void xid_on(struct health *h, struct patient *p, const struct gpu_event *e, int64_t now_ns)
{
    const struct xid_info *info = xid_lookup(e->value);
    struct fault f = {
        .kind = FAULT_XID,
        .value = e->value,
        .needs_reset = !info || info->needs_reset,
    };
    scope(p, e, &f);
    health_open(h, p, &f, now_ns);
}

/* An XID of some gpu. Where the driver tells a recovery action, the survey that is asked for shows
 * which; the others cannot be told from a faulty one if the fault is of the kind that stays. */
static void xid_somewhere(struct health *h, const struct gpu_event *e, int64_t now_ns)
{
    const struct xid_info *info = xid_lookup(e->value);
    doubt(h, now_ns);
    for (size_t i = 0; i < h->n_patients; i++)
        if (!h->patients[i].has_recovery && (!info || info->needs_reset))
            xid_on(h, &h->patients[i], e, now_ns);
}

static void on_xid(struct health *h, struct patient *p, const struct gpu_event *e, int64_t now_ns)
{
    if (health_ignores(h, e->value)) {
        if (p) {
            p->evidence.passed_over++;
            p->evidence.last_passed_over = e->value;
        }
        return;
    }
    h->wants_survey = true;
    if (p)
        xid_on(h, p, e, now_ns);
    else
        xid_somewhere(h, e, now_ns);
}

/* NVML's wait answers GPU_IS_LOST for as long as a lost gpu is watched: that says nothing about the
 * watching of the others. */
enum { NVML_GPU_IS_LOST = 15 };

static void on_wait_failed(struct health *h, struct patient *p, const struct gpu_event *e,
                           int64_t now_ns)
{
    if (health_off(h))
        return;
    h->wants_survey = true;
    if (p) {
        const struct fault f = {
            .kind = FAULT_WAIT, .value = e->value, .gi = UINT32_MAX, .ci = UINT32_MAX
        };
        health_open(h, p, &f, now_ns);
        return;
    }
    doubt(h, now_ns);
    if (e->value == NVML_GPU_IS_LOST)
        return;
    if (!h->wait_failing)
        h->wait_first_ns = now_ns;
    h->wait_failing = true;
    h->wait_last_ns = now_ns;
    if (now_ns - h->wait_first_ns >= WAIT_BROKEN_NS)
        set(h, &h->wait_broken, true);
}

static void on_unavailable(struct health *h, struct patient *p, int64_t now_ns)
{
    const struct fault f = { .kind = FAULT_UNAVAILABLE, .gi = UINT32_MAX, .ci = UINT32_MAX };
    if (health_off(h))
        return;
    h->wants_survey = true;
    if (p)
        health_open(h, p, &f, now_ns);
    else
        doubt(h, now_ns);
}

bool health_event(struct health *h, const struct gpu_event *e, int64_t now_ns)
{
    h->changed = false;
    health_advance(h, now_ns);
    struct patient *p = e->uuid[0] ? health_patient_add(h, e->uuid) : NULL;
    switch (e->kind) {
    case GPU_EVENT_XID:
        on_xid(h, p, e, now_ns);
        break;
    case GPU_EVENT_WAIT_FAILED:
        on_wait_failed(h, p, e, now_ns);
        break;
    case GPU_EVENT_UNAVAILABLE:
        on_unavailable(h, p, now_ns);
        break;
    case GPU_EVENT_ECC_DOUBLE:
        if (p)
            p->evidence.ecc_double++;
        break;
    case GPU_EVENT_RECOVERY:
    case GPU_EVENT_MIG_CHANGE:
        h->wants_survey = true;
        break;
    case GPU_EVENT_ECC_SINGLE:
        break;
    }
    return h->changed;
}

void health_boot(struct health *h, const char *boot_id)
{
    if (strlen(boot_id) < sizeof h->boot)
        memcpy(h->boot, boot_id, strlen(boot_id) + 1);
}
