/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Feature gates of the DRA driver 0.5 (spec/dra-driver.md 1.5): "A=true,B=false". */
#include <stdbool.h>

#include "base/error.h"
#include "base/finding.h"
#include "data/json.h"

enum feature_gate {
    GATE_TIME_SLICING_SETTINGS,
    GATE_MPS_SUPPORT,
    GATE_PASSTHROUGH_SUPPORT,
    GATE_DYNAMIC_MIG,
    GATE_NVML_DEVICE_HEALTH_CHECK,
    GATE_DEVICE_METADATA,
    GATE_DRA_LIST_TYPE_ATTRIBUTES,
    GATE_FABRIC_MANAGER_PARTITIONING,
    GATE_HOST_MANAGED_IMEX_DAEMON,
    GATE_CONSUMABLE_SHARES,
    GATE_IMEX_DAEMONS_WITH_DNS_NAMES,
    GATE_COMPUTE_DOMAIN_CLIQUES,
    GATE_CRASH_ON_NVLINK_FABRIC_ERRORS,
    GATE_CONTEXTUAL_LOGGING,
    GATE_LOGGING_ALPHA_OPTIONS,
    GATE_LOGGING_BETA_OPTIONS,
    GATE_COUNT,
};

struct feature_gates {
    bool on[GATE_COUNT];
};

const char *feature_gate_name(enum feature_gate gate); /* "DynamicMIG" */
void featuregates_defaults(struct feature_gates *ret);

/* Parses the text of --feature-gates over the defaults and checks the rules between gates. Every
 * fault is a finding about `origin` ("flag --feature-gates"): an unknown gate with the nearest
 * known one, a value that is no boolean, one gate set both ways, gates that exclude each other, a
 * gate that needs another. ERR_INVALID if there was one. */
int featuregates_parse(struct str text, const char *origin, struct findings *findings,
                       struct feature_gates *ret, struct error *err) must_check;
/* The same from a map of the chart's values (featureGates: {A: true}). */
int featuregates_from_map(const struct value *map, const char *origin, struct findings *findings,
                          struct feature_gates *ret, struct error *err) must_check;
