/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/gpuconfig.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/quantity.h"
#include "spec/decode.h"

enum { LIMITS_MAX = 256 };

static const char *const gpu_paths[] = {
    "apiVersion",
    "kind",
    "sharing.strategy",
    "sharing.timeSlicingConfig.interval",
    "sharing.mpsConfig.defaultActiveThreadPercentage",
    "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
    "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit",
    "sharing.mpsConfig.multiUser",
};
/* A part has no time slice of its own. */
static const char *const mig_paths[] = {
    "apiVersion",
    "kind",
    "sharing.strategy",
    "sharing.mpsConfig.defaultActiveThreadPercentage",
    "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
    "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit",
    "sharing.mpsConfig.multiUser",
};

struct reading {
    struct decode d;
    const struct feature_gates *gates;
    struct gpu_config *c;
    const char *const *paths;
    size_t n_paths;
};

static const struct {
    const char *word;
    enum gpu_sharing sharing;
    enum feature_gate gate;
} strategies[] = {
    { "TimeSlicing", GPU_SHARING_TIME_SLICING, GATE_TIME_SLICING_SETTINGS },
    { "MPS", GPU_SHARING_MPS, GATE_MPS_SUPPORT },
};

static void unknown_key(struct reading *r, const char *path, const struct member *m)
{
    decode_unknown_key(&r->d, path, m, r->paths, r->n_paths);
}

/* True when the strategy is known and switched on. */
static bool decode_strategy(struct reading *r, const struct value *v)
{
    static const char path[] = "sharing.strategy";
    const char *word = NULL;
    if (!decode_text(&r->d, v, path, &word))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(strategies); i++) {
        if (strcmp(word, strategies[i].word) != 0)
            continue;
        r->c->sharing = strategies[i].sharing;
        /* Time slicing of a part is accepted and does nothing, so it needs no gate. */
        bool needs_gate = r->c->kind == GPU_CONFIG || r->c->sharing == GPU_SHARING_MPS;
        if (!needs_gate || r->gates->on[strategies[i].gate])
            return true;
        const char *gate = feature_gate_name(strategies[i].gate);
        char fix[120];
        snprintf(fix, sizeof fix, "switch it on in the driver with --feature-gates=%s=true", gate);
        decode_say(&r->d, "gpuconfig.gate-off", SEVERITY_ERROR, v->line, v->column, path, fix,
                   "\"%s\" is selected as the GPU sharing strategy, but the \"%s\" feature gate is "
                   "not enabled",
                   word, gate);
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(strategies); i++) {
        if (!str_ieq(str_of(word), str_of(strategies[i].word)))
            continue;
        decode_say(&r->d, "gpuconfig.letter-case", SEVERITY_ERROR, v->line, v->column, path,
                   "write it with exactly these letters",
                   "GPU sharing strategy \"%s\": the letter case is wrong; it is \"%s\"", word,
                   strategies[i].word);
        return false;
    }
    decode_say(
        &r->d, "gpuconfig.unknown-strategy", SEVERITY_ERROR, v->line, v->column, path,
        "choose one of these",
        "unknown GPU sharing strategy: %.60s, supported GPU sharing strategies: TimeSlicing, MPS",
        word);
    return false;
}

static void decode_interval(struct reading *r, const struct value *v)
{
    static const char *const words[] = { "Default", "Short", "Medium", "Long" };
    static const char path[] = "sharing.timeSlicingConfig.interval";
    const char *word = NULL;
    if (v->kind == VALUE_NULL || !decode_text(&r->d, v, path, &word))
        return;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcmp(word, words[i]) == 0) {
            r->c->interval = (enum time_slice_interval)i;
            return;
        }
    }
    const char *near = str_nearest(str_of(word), words, ARRAY_LEN(words));
    char fix[60] = "choose one of these";
    if (near)
        snprintf(fix, sizeof fix, "did you mean \"%s\"?", near);
    decode_say(&r->d, "gpuconfig.interval", SEVERITY_ERROR, v->line, v->column, path, fix,
               "unknown time-slice interval: %.60s, supported time-slice intervals: Default, "
               "Short, Medium, Long",
               word);
}

static void decode_time_slicing(struct reading *r, const struct value *v)
{
    static const char path[] = "sharing.timeSlicingConfig";
    if (!decode_map(&r->d, v, path))
        return;
    for (size_t i = 0; i < v->n; i++) {
        if (str_is(v->members[i].key, "interval"))
            decode_interval(r, &v->members[i].value);
        else
            unknown_key(r, path, &v->members[i]);
    }
}

/* A memory limit in whole MiB, as the MPS daemon takes it. */
static bool decode_limit(struct reading *r, const struct value *v, const char *path, int64_t *ret)
{
    struct quantity q;
    struct error e;
    bool number = v->kind == VALUE_INT || v->kind == VALUE_REAL;
    if (v->kind != VALUE_TEXT && !number) {
        decode_wrong_kind(&r->d, v, path, "a quantity such as \"10Gi\"", "write the quantity");
        return false;
    }
    if (quantity_parse(v->text, &q, &e) < 0) {
        decode_say(&r->d, "gpuconfig.limit", SEVERITY_ERROR, v->line, v->column, path,
                   "write a quantity such as 10Gi", "%s", e.text);
        return false;
    }
    *ret = quantity_value(&q) / (1024 * 1024);
    if (*ret > 0)
        return true;
    decode_say(&r->d, "gpuconfig.limit", SEVERITY_ERROR, v->line, v->column, path,
               "use at least 1Mi", "invalid limit: value set too low: %.60s; the least is 1Mi",
               v->text.p);
    return false;
}

static void decode_limits(struct reading *r, const struct value *v, const char *path)
{
    if (!decode_map(&r->d, v, path) || !v->n)
        return;
    if (v->n > LIMITS_MAX) {
        decode_say(&r->d, "gpuconfig.limit", SEVERITY_ERROR, v->line, v->column, path,
                   "name fewer devices", "found limits for %zu devices; at most %d are accepted",
                   v->n, LIMITS_MAX);
        return;
    }
    struct pinned_limit *limits = decode_array(&r->d, v->n, sizeof *limits);
    if (!limits)
        return;
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) {
        const struct member *m = &v->members[i];
        limits[n].device = decode_keep(&r->d, m->key);
        n += decode_limit(r, &m->value, decode_path(&r->d, path, m->key), &limits[n].mib);
    }
    r->c->limits = limits;
    r->c->n_limits = n;
}

static void decode_mps(struct reading *r, const struct value *v)
{
    static const char path[] = "sharing.mpsConfig";
    if (!decode_map(&r->d, v, path))
        return;
    for (size_t i = 0; i < v->n; i++) {
        const struct member *m = &v->members[i];
        const char *full = decode_path(&r->d, path, m->key);
        int64_t percent;
        if (str_is(m->key, "defaultActiveThreadPercentage")) {
            if (m->value.kind != VALUE_NULL && decode_int(&r->d, &m->value, full, 0, 100, &percent))
                r->c->thread_percentage = (int)percent;
        } else if (str_is(m->key, "defaultPinnedDeviceMemoryLimit")) {
            if (m->value.kind != VALUE_NULL)
                (void)decode_limit(r, &m->value, full, &r->c->pinned_mib);
        } else if (str_is(m->key, "defaultPerDevicePinnedMemoryLimit")) {
            decode_limits(r, &m->value, full);
        } else if (str_is(m->key, "multiUser")) {
            if (m->value.kind != VALUE_NULL)
                (void)decode_bool(&r->d, &m->value, full, &r->c->multi_user);
        } else {
            unknown_key(r, path, m);
        }
    }
}

static void wrong_part(struct reading *r, const struct value *v, const char *key,
                       const char *strategy)
{
    decode_say(&r->d, "gpuconfig.wrong-part", SEVERITY_ERROR, v->line, v->column, "sharing",
               "remove it, or choose the other strategy", "cannot use %s with the '%s' strategy",
               key, strategy);
}

static void decode_sharing(struct reading *r, const struct value *v)
{
    const struct value *strategy = value_get(v, "strategy"),
                       *slicing = value_get(v, "timeSlicingConfig"),
                       *mps = value_get(v, "mpsConfig");
    if (!decode_map(&r->d, v, "sharing"))
        return;
    for (size_t i = 0; i < v->n; i++) {
        bool known = str_is(v->members[i].key, "strategy") ||
                     str_is(v->members[i].key, "mpsConfig") ||
                     (r->c->kind == GPU_CONFIG && str_is(v->members[i].key, "timeSlicingConfig"));
        if (!known)
            unknown_key(r, "sharing", &v->members[i]);
    }
    if (!strategy) {
        decode_say(&r->d, "gpuconfig.unknown-strategy", SEVERITY_ERROR, v->line, v->column,
                   "sharing", "write strategy: TimeSlicing or strategy: MPS",
                   "the key \"strategy\" is missing here");
        return;
    }
    /* The gate is answered before the values: they mean nothing without it. */
    if (!decode_strategy(r, strategy))
        return;
    bool has_slicing = slicing && slicing->kind != VALUE_NULL && r->c->kind == GPU_CONFIG;
    bool has_mps = mps && mps->kind != VALUE_NULL;
    if (has_mps && r->c->sharing != GPU_SHARING_MPS)
        wrong_part(r, mps, "MpsConfig", "TimeSlicing");
    else if (has_mps)
        decode_mps(r, mps);
    if (has_slicing && r->c->sharing != GPU_SHARING_TIME_SLICING)
        wrong_part(r, slicing, "TimeSlicingConfig", "MPS");
    else if (has_slicing)
        decode_time_slicing(r, slicing);
}

static bool decode_kind(struct reading *r, const struct value *doc)
{
    static const char *const kinds[] = { "GpuConfig", "MigDeviceConfig" };
    const char *version = value_text(value_get(doc, "apiVersion"), NULL),
               *kind = value_text(value_get(doc, "kind"), NULL);
    if (!version || strcmp(version, "resource.nvidia.com/v1beta1") != 0)
        decode_say(&r->d, "gpuconfig.version", SEVERITY_ERROR, doc->line, doc->column, "apiVersion",
                   "write apiVersion: resource.nvidia.com/v1beta1",
                   "found \"%.80s\"; allowed: resource.nvidia.com/v1beta1", version ? version : "");
    for (size_t i = 0; kind && i < ARRAY_LEN(kinds); i++) {
        if (strcmp(kind, kinds[i]) == 0) {
            r->c->kind = (enum gpu_config_kind)i;
            return true;
        }
    }
    const char *near = kind ? str_nearest(str_of(kind), kinds, ARRAY_LEN(kinds)) : NULL;
    char fix[80] = "choose the kind that fits the device";
    if (near)
        snprintf(fix, sizeof fix, "did you mean \"%s\"?", near);
    decode_say(&r->d, "gpuconfig.kind", SEVERITY_ERROR, doc->line, doc->column, "kind", fix,
               "found \"%.60s\"; allowed: GpuConfig, MigDeviceConfig", kind ? kind : "");
    return false;
}

int gpuconfig_decode(const struct value *doc, const char *file, const struct feature_gates *gates,
                     struct arena *arena, struct findings *findings, struct gpu_config *ret,
                     struct error *err)
{
    struct gpu_config c = { .thread_percentage = -1 };
    struct reading r = { .d = { .findings = findings, .file = file, .arena = arena },
                         .gates = gates,
                         .c = &c };
    size_t before = findings_count(findings, SEVERITY_ERROR);
    if (decode_map(&r.d, doc, "") && decode_kind(&r, doc)) {
        bool gpu = c.kind == GPU_CONFIG;
        r.paths = gpu ? gpu_paths : mig_paths;
        r.n_paths = gpu ? ARRAY_LEN(gpu_paths) : ARRAY_LEN(mig_paths);
        for (size_t i = 0; i < doc->n; i++) {
            const struct member *m = &doc->members[i];
            if (str_is(m->key, "sharing") && m->value.kind != VALUE_NULL)
                decode_sharing(&r, &m->value);
            else if (!str_is(m->key, "sharing") && !str_is(m->key, "apiVersion") &&
                     !str_is(m->key, "kind"))
                unknown_key(&r, "", m);
        }
    }
    int rc = decode_result(&r.d, before, err);
    if (rc == 0)
        *ret = c;
    return rc;
}
