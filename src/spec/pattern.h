/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Which of the names that NVML reports a config's resource patterns match. */
#include "spec/pluginconfig.h"

/* Number of the first pattern that matches the name (`*` stands for any run, all else is literal
 * and case-sensitive), or n. */
size_t pattern_first(const struct resource_pattern *patterns, size_t n, const char *name);

/* Adds one finding for each pattern: info "pattern.matched" with the names it takes, warning
 * "pattern.unused" with the real names side by side when it takes none. A pattern that would match
 * if blanks and hyphens, or letter cases, were the same is told so; one that an earlier pattern
 * hides too. `what`: "GPU name", "MIG profile". `file`: for the subject; NULL: "config". */
void pattern_explain(const struct resource_pattern *patterns, size_t n, const char *file,
                     const char *what, const char *const *names, size_t n_names,
                     struct findings *findings);
