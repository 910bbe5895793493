/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The ledger: who owns each gpu and which grants are open. The single place where "exactly once" is
 * decided. owners, hand-overs    on disk, ledger.json in the state directory (format:
 * docs/formats.md; `version`, `min_reader`) device-plugin grants  in memory; the truth is
 * kubelet's. "In use" = listed by pod-resources, or in kubelet's device checkpoint with a pod not
 *                         proved gone, or answered by Allocate and not yet seen in either. Unknown
 * counts as in use. Crash-safe: every change is one file_replace; a kill or power loss at any step
 * leaves the old or the new state. Without a state directory (the drop-in name under upstream's
 * chart) owners are "device-plugin" and nothing is written.
 */
#include "base/finding.h"
#include "base/host.h"
#include "gpu/survey.h"
#include "kubeletapi/inuse.h"

enum owner { OWNER_NONE, OWNER_DEVICE_PLUGIN, OWNER_DRA, OWNER_FOREIGN, OWNER_DRAINING };
const char *owner_name(enum owner o);

struct ledger;

/* Opens or creates. A newer format: ERR_UNSUPPORTED with the version needed. Corrupt or truncated:
 * set aside as ledger.json.damaged-<time>, rebuilt; gpus then stay unpublished (owner none, reason
 * "state was damaged") until in-use facts were read (ledger_seen). A full disk or read-only
 * directory: works on from memory, with a finding, and writes when it can. */
int ledger_open(const struct host *h, const char *state_dir, enum owner deflt, struct ledger **ret,
                struct findings *notes, struct error *err) must_check;
void ledger_free(struct ledger *l);

/* New gpus get the default owner; gpus that vanished keep their entry. Returns true when something
 * has to be written. */
bool ledger_survey(struct ledger *l, const struct survey *s);
/* Fresh in-use facts (kubelet's checkpoint, pod-resources). NULL facts = could not be read:
 * unknown, counts as in use. */
bool ledger_seen(struct ledger *l, const struct in_use *facts, int64_t now_ns);

enum owner ledger_owner(const struct ledger *l, const char *gpu_uuid);
/* May `resource` offer this base (gpu or part) now? false with a reason when owner differs, state
 * was damaged, or the gpu, or a part of it, is in use under another resource. */
bool ledger_may_offer(const struct ledger *l, const char *resource, const char *gpu_uuid,
                      const char *base, const char **ret_reason);

/* The state was damaged and in-use facts have not been read since: nothing is offered. */
bool ledger_damaged(const struct ledger *l);

/* Allocate: all or nothing. ERR_CONFLICT (owner, other resource), with who holds it. Records the
 * grant in memory; no disk write, no system call. */
struct grant_request {
    const char *resource;
    const char *const *ids;       /* device ids as kubelet sent them */
    const char *const *bases;     /* gpu or part uuid of each */
    const char *const *gpu_uuids; /* parent gpu of each */
    size_t n;
    bool exclusive; /* not shared */
};
int ledger_grant(struct ledger *l, const struct grant_request *g, int64_t now_ns,
                 struct error *err) must_check;
void ledger_grant_undo(struct ledger *l,
                       const struct grant_request *g); /* the answer could not be sent */

/* Change of owner: architecture.md 6. Steps are separate durable writes. */
int ledger_handover_start(struct ledger *l, const char *gpu_uuid, enum owner to, int64_t now_ns,
                          struct error *err) must_check;
bool ledger_tick(
    struct ledger *l,
    int64_t now_ns); /* finishes hand-overs whose quiet time passed and that were twice seen free */
int64_t ledger_next_ns(const struct ledger *l);

/* What has to be on disk, as text; NULL when it already is. The caller writes it (disk thread) and
 * reports. */
char *ledger_pending_text(struct ledger *l);
void ledger_written(struct ledger *l, int r, const struct error *e);
int ledger_dirfd(const struct ledger *l);     /* -1 without a state directory */
size_t ledger_grants(const struct ledger *l); /* open grants, for display */
