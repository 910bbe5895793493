/* SPDX-License-Identifier: Apache-2.0 */
/* Open faults as JSON, so that a restart of the agent heals nothing. */
#include <string.h>

#include "base/mem.h"
#include "data/json.h"
#include "node/health_private.h"

enum { VERSION = 1, ARENA_MAX = 4 * 1024 * 1024 };

static const char *const kind_names[FAULT_KINDS] = {
    [FAULT_XID] = "xid",
    [FAULT_LOST] = "lost",
    [FAULT_RECOVERY] = "recovery-action",
    [FAULT_REMAP] = "row-remap-failed",
    [FAULT_UNAVAILABLE] = "unavailable",
    [FAULT_WAIT] = "wait-failed",
};

/* ---- writing ---- */

static void save_fault(struct json_writer *w, const struct fault *f)
{
    jw_map(w);
    jw_kv(w, "kind", kind_names[f->kind]);
    jw_key(w, "value");
    jw_uint(w, f->value);
    if (f->gi != UINT32_MAX)
        jw_kv_int(w, "gi", f->gi);
    if (f->ci != UINT32_MAX)
        jw_kv_int(w, "ci", f->ci);
    jw_kv_bool(w, "needsReset", f->needs_reset);
    jw_kv_bool(w, "resetSeen", f->reset_seen);
    jw_kv_bool(w, "lostSeen", f->lost_seen);
    jw_kv_int(w, "since", f->since_ns);
    jw_key(w, "energy");
    jw_uint(w, f->energy_mj);
    jw_end(w);
}

void health_save(const struct health *h, struct buf *out_json)
{
    struct json_writer w;
    jw_init(&w, out_json, 1);
    jw_map(&w);
    jw_kv_int(&w, "version", VERSION);
    jw_kv_int(&w, "min_reader", VERSION);
    jw_kv(&w, "boot", h->boot);
    jw_key(&w, "gpus");
    jw_list(&w);
    for (size_t i = 0; i < h->n_patients; i++) {
        const struct patient *p = &h->patients[i];
        if (p->n_faults == 0)
            continue;
        jw_map(&w);
        jw_kv(&w, "uuid", p->uuid);
        jw_kv_int(&w, "relapses", p->relapses);
        jw_key(&w, "faults");
        jw_list(&w);
        for (size_t k = 0; k < p->n_faults; k++)
            save_fault(&w, &p->faults[k]);
        jw_end(&w);
        jw_end(&w);
    }
    jw_end(&w);
    jw_end(&w);
}

/* ---- reading ---- */

struct loaded {
    const char *uuid;
    uint32_t relapses;
    struct fault *faults;
    size_t n;
};

static int bad(const struct value *at, const char *want, struct error *err)
{
    return error_set(err, ERR_INVALID, 0, "health state:%u:%u: %s is needed, found %s",
                     at ? at->line : 0, at ? at->column : 0, want, value_kind_name(at));
}

/* A number of a map; absent: `deflt`. */
static int number(const struct value *map, const char *key, int64_t deflt, int64_t max,
                  int64_t *ret, struct error *err)
{
    const struct value *v = value_get(map, key);
    *ret = deflt;
    if (!v)
        return 0;
    if (v->kind != VALUE_INT || v->number < 0 || v->number > max)
        return bad(v, key, err);
    *ret = v->number;
    return 0;
}

static int flag(const struct value *map, const char *key, bool *ret, struct error *err)
{
    const struct value *v = value_get(map, key);
    if (!v || v->kind != VALUE_BOOL)
        return bad(v ? v : map, key, err);
    *ret = v->boolean;
    return 0;
}

static int load_fault(const struct value *v, struct fault *f, struct error *err)
{
    const char *kind = value_text(value_get(v, "kind"), NULL);
    size_t k = 0;
    while (k < FAULT_KINDS && (!kind || strcmp(kind, kind_names[k]) != 0))
        k++;
    if (k == FAULT_KINDS)
        return bad(v, "a fault with a kind that we know", err);
    int64_t value, gi, ci, since, energy;
    int r = number(v, "value", 0, INT64_MAX, &value, err);
    if (r == 0)
        r = number(v, "gi", UINT32_MAX, UINT32_MAX, &gi, err);
    if (r == 0)
        r = number(v, "ci", UINT32_MAX, UINT32_MAX, &ci, err);
    if (r == 0)
        r = number(v, "since", 0, INT64_MAX, &since, err);
    if (r == 0)
        r = number(v, "energy", 0, INT64_MAX, &energy, err);
    if (r == 0)
        r = flag(v, "needsReset", &f->needs_reset, err);
    if (r == 0)
        r = flag(v, "resetSeen", &f->reset_seen, err);
    if (r == 0)
        r = flag(v, "lostSeen", &f->lost_seen, err);
    if (r < 0)
        return r;
    f->kind = (enum fault_kind)k;
    f->value = (uint64_t)value;
    f->gi = (uint32_t)gi;
    f->ci = (uint32_t)ci;
    f->since_ns = since;
    f->energy_mj = (uint64_t)energy;
    return 0;
}

static int load_gpu(struct arena *a, const struct value *v, struct loaded *l, struct error *err)
{
    const struct value *uuid = value_get(v, "uuid"), *faults = value_get(v, "faults");
    int64_t relapses;
    int r = number(v, "relapses", 0, RELAPSES_MAX, &relapses, err);
    if (r < 0)
        return r;
    if (!uuid || uuid->kind != VALUE_TEXT || uuid->text.n == 0 || uuid->text.n >= UUID_TEXT_SIZE ||
        strlen(uuid->text.p) != uuid->text.n)
        return bad(uuid ? uuid : v, "uuid", err);
    if (!faults || faults->kind != VALUE_LIST || faults->n > FAULTS_MAX)
        return bad(faults ? faults : v, "a list of at most 32 faults", err);
    l->uuid = uuid->text.p;
    l->relapses = (uint32_t)relapses;
    l->faults = arena_array(a, faults->n + 1, sizeof *l->faults);
    if (!l->faults)
        return error_set(err, ERR_LIMIT, 0, "health state: not enough memory to read it");
    for (; l->n < faults->n; l->n++) {
        r = load_fault(&faults->items[l->n], &l->faults[l->n], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int load_head(const struct value *doc, const char **ret_boot, const struct value **ret_gpus,
                     struct error *err)
{
    int64_t reader;
    if (doc->kind != VALUE_MAP)
        return bad(doc, "a map", err);
    int r = number(doc, "min_reader", 0, INT64_MAX, &reader, err);
    if (r < 0)
        return r;
    if (reader > VERSION)
        return error_set(err, ERR_UNSUPPORTED, 0,
                         "health state: written by a newer mete (format %lld, we read %d); update "
                         "this one or remove the file",
                         (long long)reader, VERSION);
    *ret_gpus = value_get(doc, "gpus");
    if (!*ret_gpus || (*ret_gpus)->kind != VALUE_LIST || (*ret_gpus)->n > HEALTH_GPUS_MAX)
        return bad(*ret_gpus ? *ret_gpus : doc, "gpus, a list of at most 128", err);
    *ret_boot = value_text(value_get(doc, "boot"), "");
    return 0;
}

/* The clock starts anew for quiet times: a restart may only delay a return. */
static void admit(struct health *h, const struct loaded *l, bool rebooted, int64_t now_ns)
{
    struct patient *p = health_patient_add(h, l->uuid);
    for (size_t i = 0; p && i < l->n; i++) {
        struct fault f = l->faults[i];
        /* After a reboot the first survey shows by itself which gpus are lost. */
        if (health_ignores_fault(h, &f) || (rebooted && f.kind == FAULT_LOST))
            continue;
        struct fault *open = health_open(h, p, &f, now_ns);
        h->wants_survey = true; /* from which the next reset is measured */
        open->since_ns = rebooted ? now_ns : MIN(f.since_ns, now_ns);
        open->reset_seen = f.reset_seen || rebooted;
        open->needs_reset |= f.needs_reset;
        /* This agent's count of generations began after the fault; the energy counter did not. */
        /* If it was lost after the fault and answers now, it was enumerated again. */
        open->lost_seen = open->based = f.lost_seen;
        open->generation = UINT64_MAX;
        open->energy_mj = rebooted ? 0 : f.energy_mj;
        p->relapses = MAX(p->relapses, l->relapses);
    }
}

int health_load(struct health *h, struct str json, int64_t now_ns, struct error *err)
{
    static const struct value nothing;
    auto_arena a;
    arena_init(&a, ARENA_MAX);
    struct value *doc = NULL;
    const char *boot = "";
    const struct value *gpus = &nothing;
    int r = json_parse(&a, json, "health state", &doc_limits_default, &doc, err);
    if (r == 0)
        r = load_head(doc, &boot, &gpus, err);
    if (r < 0)
        return r;
    struct loaded *all = arena_array(&a, gpus->n + 1, sizeof *all);
    if (!all)
        return error_set(err, ERR_LIMIT, 0, "health state: not enough memory to read it");
    for (size_t i = 0; i < gpus->n; i++) {
        r = load_gpu(&a, &gpus->items[i], &all[i], err);
        if (r < 0)
            return r;
    }
    bool rebooted = h->boot[0] && boot[0] && strcmp(h->boot, boot) != 0;
    for (size_t i = 0; i < gpus->n; i++)
        admit(h, &all[i], rebooted, now_ns);
    return 0;
}
