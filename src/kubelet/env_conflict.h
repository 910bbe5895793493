/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A container with devices of two of our resources, where only one answer's environment arrives:
 * each sets NVIDIA_VISIBLE_DEVICES and kubelet keeps one. A single Allocate cannot see that; what
 * kubelet wrote down afterwards can. */
#include "base/finding.h"
#include "kubeletapi/inuse.h"
#include "node/inventory.h"

/* Adds one finding "plugin.env-overwritten" for each such container (subject: pod and container,
 * the same in every run). Nothing when the config passes devices in a way that adds up. */
void plugin_env_conflicts(const struct in_use *facts, const struct plugin_config *config,
                          const struct inventory *inv, struct findings *out);

/* The same, but only what the run before did not have: for a log. */
struct env_memory {
    uint64_t told[64]; /* hashes of subjects; more than these are told again */
    size_t n;
};
void plugin_env_conflicts_new(struct env_memory *m, const struct in_use *facts,
                              const struct plugin_config *config, const struct inventory *inv,
                              struct findings *out);
