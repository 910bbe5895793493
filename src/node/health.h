/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Health policy: events and surveys in, a state with reason and since for every gpu and part out.
 * Pure: bytes and `now` in, no clock, no I/O. The first sign withdraws at once; a return needs
 * proof that the fault is gone and a quiet time (debounce delays recovery, never withdrawal).
 */
#include "base/buf.h"
#include "gpu/survey.h"
#include "gpu/worker.h"
#include "spec/pluginconfig.h"

enum health_state { HEALTH_OK, HEALTH_UNHEALTHY, HEALTH_UNKNOWN };

struct health_view {
    enum health_state state;
    const char *reason; /* "xid-79", "lost", "driver-gone", "stale", "recovery-action", NULL when
                           ok; borrowed until the next change */
    const char *text;   /* one sentence: cause and what brings it back */
    int64_t since_ns;
};

struct health;
int health_new(const struct plugin_config *config, struct health **ret,
               struct error *err) must_check;
void health_free(struct health *h);
void health_config(struct health *h, const struct plugin_config *config); /* new ignore lists */

/* Each returns true when some view may have changed. */
bool health_event(struct health *h, const struct gpu_event *e, int64_t now_ns);
bool health_survey(struct health *h, const struct survey *s, int64_t now_ns);
bool health_driver(struct health *h, enum driver_state s, bool stale,
                   int64_t now_ns); /* worker state */
bool health_tick(struct health *h, int64_t now_ns);
int64_t health_next_ns(
    const struct health *h); /* when health_tick wants to be called; INT64_MAX: no need */
bool health_wants_survey(
    const struct health *h); /* a fault's end can only be seen by a new survey */

struct health_view health_gpu(const struct health *h, const char *uuid);
struct health_view health_part(const struct health *h, const char *gpu_uuid, uint32_t gi,
                               uint32_t ci); /* the worse of gpu and part */

/* State that must outlive a restart (an unhealthy gpu does not heal by restarting the agent). */
void health_save(const struct health *h, struct buf *out_json);
int health_load(struct health *h, struct str json, int64_t now_ns, struct error *err) must_check;

/* XID table: spec/nvml-and-cuda.md 5.2. */
struct xid_info {
    uint16_t xid;
    const char *what, *action; /* short description; "restart-app", "reset-gpu", "reboot-node",
                                  "inspect", "ignore", … */
    char kind;                 /* A application, D driver, H hardware, I information */
    bool ignored_by_default;   /* as the device plugin: 13 31 43 45 68 109 */
    bool needs_reset;          /* does not go away without a reset or reboot */
};
const struct xid_info *xid_lookup(uint64_t xid); /* NULL: not in the table */
