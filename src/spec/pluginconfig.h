/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/spec: strict decoders, with positions, of every document that people write.
 * Not here: what follows from a document on a given host.
 * may use: base data
 *
 * This file: the device plugin's config file, version v1 (spec/device-plugin.md 1.4), and the merge
 * of command line, environment, file and defaults into one effective config (1.4, 1.5).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/finding.h"
#include "base/opt.h"

enum {
    CONFIG_FILE_MAX = 256 * 1024,
    CONFIG_RESOURCES_MAX = 256,        /* entries of each list */
    REPLICAS_MAX = 16384,              /* of one device */
    DEVICE_LIST_MAX = 3 * 1024 * 1024, /* encoded bytes of one resource's device list that we let
                                          through: kubelet accepts 4 MiB */
};

enum mig_strategy { MIG_STRATEGY_NONE, MIG_STRATEGY_SINGLE, MIG_STRATEGY_MIXED };
enum list_strategy {
    LIST_ENVVAR = 1,
    LIST_VOLUME_MOUNTS = 2,
    LIST_CDI_ANNOTATIONS = 4,
    LIST_CDI_CRI = 8
}; /* bits */
enum id_strategy { ID_UUID, ID_INDEX };
enum placement_policy { PLACE_DISTRIBUTED, PLACE_PACKED };
enum sharing_kind { SHARING_NONE, SHARING_TIME_SLICING, SHARING_MPS };

/* Which devices an entry means. All false and n 0 with `all`: every device of the resource. */
struct device_ref {
    enum { REF_INDEX, REF_MIG_INDEX, REF_UUID } kind;
    uint32_t gpu, slot; /* REF_INDEX: gpu; REF_MIG_INDEX: gpu:slot */
    const char *uuid;   /* REF_UUID: GPU-…, MIG-…, MIG-GPU-…/gi/ci */
    uint32_t line, column;
};

struct shared_resource {
    const char *name;   /* with prefix "nvidia.com/" */
    const char *rename; /* with prefix, or NULL: <name> or <name>.shared by renameByDefault */
    bool all;
    uint32_t count; /* > 0: the first `count` devices in index order; 0: see refs */
    const struct device_ref *refs;
    size_t n_refs;
    uint32_t replicas; /* 1 = exclusive, keeps its name unless rename is written */
    uint32_t line, column;
};

struct sharing {
    enum sharing_kind kind;
    bool rename_by_default, fail_requests_greater_than_one;
    const struct shared_resource *resources;
    size_t n_resources;
};

struct resource_pattern {
    const char *pattern, *name; /* name with prefix */
    uint32_t line, column;
};

enum { RESOURCE_NAME_PART_MAX = 63 }; /* after the "/", as Kubernetes limits it; ".shared" counts */

/* The config in force: everything resolved, defaults filled in, validated. Immutable; lives in its
 * own arena. */
struct plugin_config {
    struct arena arena;
    const char *source; /* config file path or NULL */
    enum mig_strategy mig_strategy;
    bool fail_on_init_error;
    const char *driver_root, *dev_root, *driver_root_ctr_path, *mps_root;
    bool pass_device_specs;
    uint32_t list_strategies; /* LIST_* bits, at least one */
    enum id_strategy id_strategy;
    bool gdrcopy, gds, mofed;
    const char *cdi_annotation_prefix, *cdi_hook_path;
    enum placement_policy shared_policy;
    const char *discovery; /* "auto", "nvml", "tegra" */
    bool imex_channel0, imex_required;
    const char *const *cdi_feature_flags;
    size_t n_cdi_feature_flags;
    const char *const *cdi_disabled_hooks;
    size_t n_cdi_disabled_hooks;
    struct sharing sharing;
    const struct resource_pattern *gpu_patterns, *mig_patterns; /* "resources" of the file */
    size_t n_gpu_patterns, n_mig_patterns;
    bool require_distinct; /* shared requests must land on distinct gpus (ours:
                              sharing.requireDistinct) */
    struct {               /* flags.gfd, for the labels */
        bool oneshot, no_timestamp, use_node_feature_api;
        int64_t sleep_interval_ns;
        const char *output_file, *machine_type_file;
    } gfd;
    struct { /* DP_DISABLE_HEALTHCHECKS, DP_ENABLE_HEALTHCHECKS */
        bool disable_all, enable_all;
        const uint32_t *disabled, *enabled;
        size_t n_disabled, n_enabled;
    } health;
    const struct config_origin *origins; /* of each value, in the order of pluginconfig_print */
    size_t n_origins;
};

/* Where a value came from: "flags.migStrategy" → "env MIG_STRATEGY". */
struct config_origin {
    const char *key; /* config key, or "--option" for what the file cannot set */
    const char *origin;
};

/* Reads the file (if the options name one) and builds the effective config. `o` was parsed with a
 * table that contains pluginconfig_options. Errors are findings (file:line:column, key, what was
 * found, what is allowed), all of one run at once; returns ERR_INVALID if one has severity error.
 * Warnings are findings too. `text` overrides reading the file (for checks of text that is not on
 * disk); NULL: read it. env: as in opts_parse, for DP_*_HEALTHCHECKS. */
int pluginconfig_load(struct opts *o, const struct str *text, char *const *env,
                      struct findings *findings, struct plugin_config **ret,
                      struct error *err) must_check;
void pluginconfig_free(struct plugin_config *c); /* NULL allowed */

/* The merged config as the peer prints it at start (indented JSON, same keys), and where each value
 * came from. */
void pluginconfig_print(const struct plugin_config *c, struct buf *out);

/* The option rows shared by `mete agent` and `nvidia-device-plugin`: spec/device-plugin.md 1.1. A
 * macro so that tables can be const. */
#include "spec/pluginconfig-options.h"
