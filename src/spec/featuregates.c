/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/featuregates.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum stage { ALPHA, BETA };

static const struct {
    const char *name;
    enum stage stage;
    bool on;
} gates[GATE_COUNT] = {
    [GATE_TIME_SLICING_SETTINGS] = { "TimeSlicingSettings", ALPHA, false },
    [GATE_MPS_SUPPORT] = { "MPSSupport", ALPHA, false },
    [GATE_PASSTHROUGH_SUPPORT] = { "PassthroughSupport", ALPHA, false },
    [GATE_DYNAMIC_MIG] = { "DynamicMIG", ALPHA, false },
    [GATE_NVML_DEVICE_HEALTH_CHECK] = { "NVMLDeviceHealthCheck", ALPHA, false },
    [GATE_DEVICE_METADATA] = { "DeviceMetadata", ALPHA, false },
    [GATE_DRA_LIST_TYPE_ATTRIBUTES] = { "DRAListTypeAttributes", ALPHA, false },
    [GATE_FABRIC_MANAGER_PARTITIONING] = { "FabricManagerPartitioning", ALPHA, false },
    [GATE_HOST_MANAGED_IMEX_DAEMON] = { "HostManagedIMEXDaemon", ALPHA, false },
    [GATE_CONSUMABLE_SHARES] = { "ConsumableShares", ALPHA, false },
    [GATE_IMEX_DAEMONS_WITH_DNS_NAMES] = { "IMEXDaemonsWithDNSNames", BETA, true },
    [GATE_COMPUTE_DOMAIN_CLIQUES] = { "ComputeDomainCliques", BETA, true },
    [GATE_CRASH_ON_NVLINK_FABRIC_ERRORS] = { "CrashOnNVLinkFabricErrors", BETA, true },
    [GATE_CONTEXTUAL_LOGGING] = { "ContextualLogging", BETA, true },
    [GATE_LOGGING_ALPHA_OPTIONS] = { "LoggingAlphaOptions", ALPHA, false },
    [GATE_LOGGING_BETA_OPTIONS] = { "LoggingBetaOptions", BETA, true },
};

static const enum feature_gate exclusive[][2] = {
    { GATE_DYNAMIC_MIG, GATE_PASSTHROUGH_SUPPORT },
    { GATE_DYNAMIC_MIG, GATE_NVML_DEVICE_HEALTH_CHECK },
    { GATE_DYNAMIC_MIG, GATE_MPS_SUPPORT },
    { GATE_PASSTHROUGH_SUPPORT, GATE_NVML_DEVICE_HEALTH_CHECK },
};

static const enum feature_gate needs[][2] = {
    { GATE_COMPUTE_DOMAIN_CLIQUES, GATE_IMEX_DAEMONS_WITH_DNS_NAMES },
    { GATE_DEVICE_METADATA, GATE_PASSTHROUGH_SUPPORT },
};

/* One reading: what was written for each gate, and for AllAlpha and AllBeta. */
enum written { UNSET, OFF, ON };
struct reading {
    struct findings *findings;
    const char *origin;
    size_t before;
    enum written gates[GATE_COUNT], all[2];
};

const char *feature_gate_name(enum feature_gate gate)
{
    return gate < GATE_COUNT ? gates[gate].name : "";
}

void featuregates_defaults(struct feature_gates *ret)
{
    for (size_t i = 0; i < GATE_COUNT; i++)
        ret->on[i] = gates[i].on;
}

static void unknown_gate(struct reading *r, struct str name)
{
    const char *names[GATE_COUNT + 2] = { "AllAlpha", "AllBeta" };
    for (size_t i = 0; i < GATE_COUNT; i++)
        names[i + 2] = gates[i].name;
    const char *near = str_nearest(name, names, ARRAY_LEN(names));
    char fix[120] = "remove it; the gates are listed in the driver's documentation";
    if (near && str_ieq(name, str_of(near)))
        snprintf(fix, sizeof fix, "write it \"%s\": the letter case counts", near);
    else if (near)
        snprintf(fix, sizeof fix, "did you mean \"%s\"?", near);
    findings_add(r->findings, "gates.unknown", SEVERITY_ERROR, r->origin, fix,
                 "unknown feature gate \"%.*s\"", (int)MIN(name.n, (size_t)60), name.p);
}

static enum written *place_of(struct reading *r, struct str name)
{
    if (str_is(name, "AllAlpha"))
        return &r->all[ALPHA];
    if (str_is(name, "AllBeta"))
        return &r->all[BETA];
    for (size_t i = 0; i < GATE_COUNT; i++)
        if (str_is(name, gates[i].name))
            return &r->gates[i];
    return NULL;
}

static void set_gate(struct reading *r, struct str name, bool on)
{
    enum written *at = place_of(r, name), now = on ? ON : OFF;
    if (!at)
        unknown_gate(r, name);
    else if (*at != UNSET && *at != now)
        findings_add(r->findings, "gates.both-ways", SEVERITY_ERROR, r->origin, "keep one of them",
                     "feature gate %.*s is set to true and to false", STR_FMT(name));
    else
        *at = now;
}

static void check_rules(struct reading *r, const struct feature_gates *g)
{
    for (size_t i = 0; i < ARRAY_LEN(exclusive); i++) {
        const char *a = gates[exclusive[i][0]].name, *b = gates[exclusive[i][1]].name;
        if (g->on[exclusive[i][0]] && g->on[exclusive[i][1]])
            findings_add(r->findings, "gates.exclusive", SEVERITY_ERROR, r->origin,
                         "switch one of the two off",
                         "feature gate %s is currently mutually exclusive with %s", a, b);
    }
    for (size_t i = 0; i < ARRAY_LEN(needs); i++) {
        const char *a = gates[needs[i][0]].name, *b = gates[needs[i][1]].name;
        if (g->on[needs[i][0]] && !g->on[needs[i][1]])
            findings_add(r->findings, "gates.needs", SEVERITY_ERROR, r->origin,
                         "switch the second on, or the first off",
                         "feature gate %s requires %s to also be enabled", a, b);
    }
}

static int finish(struct reading *r, struct feature_gates *ret, struct error *err)
{
    struct feature_gates g;
    for (size_t i = 0; i < GATE_COUNT; i++) {
        enum written w = r->gates[i] != UNSET ? r->gates[i] : r->all[gates[i].stage];
        g.on[i] = w == UNSET ? gates[i].on : w == ON;
    }
    if (findings_count(r->findings, SEVERITY_ERROR) == r->before)
        check_rules(r, &g);
    size_t errors = findings_count(r->findings, SEVERITY_ERROR) - r->before;
    if (errors)
        return error_set(
            err, ERR_INVALID, 0, "%s: %zu faults in the feature gates; the first: %s", r->origin,
            errors,
            r->findings->n ? r->findings->items[r->findings->n - MIN(errors, r->findings->n)].cause
                           : "");
    *ret = g;
    return 0;
}

int featuregates_parse(struct str text, const char *origin, struct findings *findings,
                       struct feature_gates *ret, struct error *err)
{
    struct reading r = { .findings = findings, .origin = origin };
    r.before = findings_count(findings, SEVERITY_ERROR);
    while (text.p) {
        struct str value = str_trim(str_cut(&text, ','));
        if (!value.n) /* the chart writes a comma at the end */
            continue;
        struct str name = str_trim(str_cut(&value, '='));
        bool on;
        if (value.p && str_to_bool(str_trim(value), &on))
            set_gate(&r, name, on);
        else
            findings_add(
                findings, "gates.value", SEVERITY_ERROR, origin, "write GATE=true or GATE=false",
                "feature gate %.*s: %s%.*s%s; allowed: true or false", (int)MIN(name.n, (size_t)60),
                name.p, value.p ? "\"" : "no value", (int)MIN(value.n, (size_t)40),
                value.p ? value.p : "", value.p ? "\" is no boolean" : "");
    }
    return finish(&r, ret, err);
}

int featuregates_from_map(const struct value *map, const char *origin, struct findings *findings,
                          struct feature_gates *ret, struct error *err)
{
    struct reading r = { .findings = findings, .origin = origin };
    r.before = findings_count(findings, SEVERITY_ERROR);
    if (map->kind != VALUE_MAP && map->kind != VALUE_NULL)
        findings_add(findings, "gates.value", SEVERITY_ERROR, origin,
                     "write one line \"Gate: true\" each", "found %s; expected a map of gates",
                     value_kind_name(map));
    for (size_t i = 0; map->kind == VALUE_MAP && i < map->n; i++) {
        const struct member *m = &map->members[i];
        if (m->value.kind == VALUE_BOOL)
            set_gate(&r, m->key, m->value.boolean);
        else
            findings_add(findings, "gates.value", SEVERITY_ERROR, origin,
                         "write true or false without quotes",
                         "feature gate %.*s: found %s; expected true or false",
                         (int)MIN(m->key.n, (size_t)60), m->key.p, value_kind_name(&m->value));
    }
    return finish(&r, ret, err);
}
