/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The opaque configuration of a claim for driver gpu.nvidia.com, resource.nvidia.com/v1beta1:
 * GpuConfig and MigDeviceConfig (spec/dra-driver.md 3). lint, webhook and prepare give the same
 * answers. */
#include "base/arena.h"
#include "base/finding.h"
#include "data/json.h"
#include "spec/featuregates.h"

enum gpu_config_kind { GPU_CONFIG, MIG_DEVICE_CONFIG };
enum gpu_sharing { GPU_SHARING_NONE, GPU_SHARING_TIME_SLICING, GPU_SHARING_MPS };
enum time_slice_interval {
    INTERVAL_DEFAULT,
    INTERVAL_SHORT,
    INTERVAL_MEDIUM,
    INTERVAL_LONG
}; /* nvidia-smi's 0…3 */

struct pinned_limit {
    const char *device; /* UUID, or index into the claim's sorted UUIDs */
    int64_t mib;
};

struct gpu_config {
    enum gpu_config_kind kind;
    enum gpu_sharing sharing;
    enum time_slice_interval interval; /* with time slicing on a whole gpu */
    int thread_percentage;             /* MPS; -1: not set */
    int64_t pinned_mib;                /* MPS; default limit of each device, 0: none */
    const struct pinned_limit *limits; /* MPS; per device, over the default */
    size_t n_limits;
    bool multi_user;
};

/* Decodes strictly and normalises. A strategy word that is unknown, one in the wrong letter case
 * and one whose feature gate is off are three different findings ("gpuconfig.unknown-strategy",
 * "gpuconfig.letter-case", "gpuconfig.gate-off"). All faults of the document are findings;
 * ERR_INVALID if there was one. Texts live in `arena`. */
int gpuconfig_decode(const struct value *doc, const char *file, const struct feature_gates *gates,
                     struct arena *arena, struct findings *findings, struct gpu_config *ret,
                     struct error *err) must_check;
