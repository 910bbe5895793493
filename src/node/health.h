/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Health policy: events and surveys in, a state with reason and since for every gpu and part out.
 * Pure: bytes and `now` in, no clock, no I/O. The first sign withdraws at once; a return needs
 * proof that the fault is gone and a quiet time (debounce delays recovery, never withdrawal).
 *
 * What withdraws           what brings it back
 * XID of an application     10 s without another, recovery action none (or not reported)
 * XID that needs a reset    a reset or reboot was seen and 3 s passed, or the driver reports its
 *                           recovery action and it is none, 10 s after the last one. Only this, or
 *                           a reboot, ends it: that a query works proves nothing
 * recovery action set       none again for 3 s, whatever the table says
 * lost                      answers again for 3 s
 * row remap failed          the flag is gone
 * XIDs of the device plugin's list (13 31 43 45 68 109) and of DP_DISABLE_HEALTHCHECKS are passed
 * over unless DP_ENABLE_HEALTHCHECKS names them; so is what the driver only counts (ECC events). A
 * pending row remap alone is told, not acted on; where the driver has no recovery action it keeps
 * an open fault open. Each relapse within 10 min of a return doubles both times, to 5 min at most.
 *
 * HEALTH_UNKNOWN: nothing bad is known, and what was known is old: the worker is stale, hung or
 * restarting (30 s), or the driver said that some gpu failed but not which (5 s, while the gpus are
 * probed). It is still offered; after that time it is HEALTH_UNHEALTHY. A driver that is known to
 * be gone, released, stuck or mismatched is HEALTH_UNHEALTHY at once.
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
    const char *text;   /* one sentence: cause and what brings it back; NULL when there is nothing
                           to say. Also for an ok gpu: a row remap that waits for a reset */
    int64_t since_ns;
};

struct health;
int health_new(const struct plugin_config *config, struct health **ret,
               struct error *err) must_check;
void health_free(struct health *h);
void health_config(struct health *h, const struct plugin_config *config); /* new ignore lists:
                                                    faults that are ignored from now on are over */

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

/* A gpu as one device: also what happened in one of its instances counts. */
struct health_view health_gpu(const struct health *h, const char *uuid);
struct health_view health_part(const struct health *h, const char *gpu_uuid, uint32_t gi,
                               uint32_t ci); /* what concerns the whole gpu, and this part */

/* What was seen and changed nothing, since the agent started. */
struct health_evidence {
    uint64_t ecc_double;       /* events of double-bit ECC errors */
    uint64_t passed_over;      /* XIDs that the policy ignores */
    uint64_t last_passed_over; /* number of the latest of them */
};
struct health_evidence health_evidence(const struct health *h, const char *uuid);

/* State that must outlive a restart (an unhealthy gpu does not heal by restarting the agent): open
 * faults with the boot they belong to. After a reboot what a reboot cures is over as soon as a
 * survey shows the gpu well. Same state, same bytes. */
void health_boot(struct health *h, const char *boot_id); /* before load and save; without it a
                                                            reboot is not noticed */
void health_save(const struct health *h, struct buf *out_json);
/* Adds the faults of the text. ERR_INVALID, ERR_UNSUPPORTED (newer format), ERR_LIMIT: nothing was
 * taken over. */
int health_load(struct health *h, struct str json, int64_t now_ns, struct error *err) must_check;

/* XID table: spec/nvml-and-cuda.md 5.2. */
struct xid_info {
    uint16_t xid;
    const char *what, *action; /* short description; "restart-app", "reset-gpu", "reboot-node",
                                  "inspect", "ignore", … (xid.c) */
    char kind;                 /* A application, D driver, H hardware, I information */
    bool ignored_by_default;   /* as the device plugin: 13 31 43 45 68 109 */
    bool needs_reset;          /* does not go away without a reset or reboot */
};
const struct xid_info *xid_lookup(uint64_t xid); /* NULL: not in the table */
