/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/node: the agent's domain: inventory, ledger, sharing, placement, health.
 * Not here: sockets, gRPC, NVML, logging above debug.
 * may use: base io data gpu spec kubeletapi
 *
 * The inventory is what may be offered right now: a pure function of survey, config, ledger and
 * health. Same inputs, same bytes, stable order.
 */
#include "base/arena.h"
#include "base/finding.h"
#include "gpu/survey.h"
#include "node/health.h"
#include "node/ledger.h"
#include "spec/pluginconfig.h"

struct device {
    const char *id;       /* what kubelet sees: "GPU-…", "MIG-…", "GPU-…::3", "all" (WSL) */
    const char *base;     /* id without the share: the uuid */
    const char *index;    /* "0", "0:1" */
    uint32_t gpu, part;   /* places in survey->gpus and ->parts; part UINT32_MAX: whole gpu */
    uint32_t share;       /* 0… ; UINT32_MAX: not shared */
    uint32_t base_number; /* place of the gpu or part among the resource's distinct bases, for
                             placement */
    bool healthy;
    bool
        withheld; /* not healthy only because the ledger says no: in use elsewhere, another owner */
    const char *reason; /* why not healthy; NULL when healthy */
};

struct resource {
    const char *name;      /* "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb" */
    const char *base_name; /* before renaming */
    const char *socket;    /* "nvidia-gpu.sock" */
    enum sharing_kind sharing;
    uint32_t replicas;
    struct device *devices; /* by gpu index, part slot, share */
    size_t n_devices, n_bases;
    size_t *by_id; /* device numbers sorted by id, for resource_find */
};

struct inventory_gpu { /* of one gpu of the survey; for a lost one as it was when last seen */
    const char *name;
    bool mig;  /* MIG mode is on */
    bool skip; /* display board, or no UUID: never offered */
};

struct inventory {
    struct arena arena;
    struct survey *survey;      /* referenced; when the driver is gone: the survey before, whose
                                   devices stay listed with the state that health gives them */
    struct inventory_gpu *gpus; /* survey->n_gpus */
    struct resource *resources; /* by name; none has zero devices unless it had some before (then
                                   its list is empty, to withdraw) */
    size_t n_resources;
    struct findings notes; /* gpus skipped and why, patterns that matched nothing, … */
};

struct inventory_input {
    struct survey *survey;
    const struct plugin_config *config;
    const struct ledger *ledger;    /* NULL: everything may be offered */
    const struct health *health;    /* NULL: only lost gpus are unhealthy */
    const struct inventory *before; /* NULL at start: resources that vanish stay, empty */
    bool running; /* the config is served already and the host changed: what no longer fits (a
                     device named in sharing that is gone, parts that are unequal under MIG strategy
                     single) is withdrawn with a note. false: a new config, it is an error */
};

/* ERR_INVALID when the config cannot be served on this host (MIG strategy single with unequal
 * parts, …): the text says what the peer says where it says something, and the remedy. ERR_LIMIT: a
 * device list would exceed DEVICE_LIST_MAX. ERR_UNSUPPORTED: platform (Tegra). HEALTH_UNKNOWN is
 * offered: health turns it into HEALTH_UNHEALTHY when its grace ends. */
int inventory_build(const struct inventory_input *in, struct inventory **ret,
                    struct error *err) must_check;
void inventory_free(struct inventory *inv);

const struct resource *inventory_resource(const struct inventory *inv, const char *name);
const struct device *resource_find(const struct resource *r,
                                   struct str id); /* NULL: unknown; logarithmic */
bool inventory_same(const struct inventory *a,
                    const struct inventory *b); /* would publish the same lists */
