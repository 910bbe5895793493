/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The ledger: who owns each gpu and which grants are open. The single place where "exactly once" is
 * decided.
 *   owners, hand-overs     on disk, ledger.json in the state directory (docs/formats.md)
 *   device-plugin grants   in memory; the truth is kubelet's
 * "In use" = listed by pod-resources, or in kubelet's device checkpoint with a pod not proved gone,
 * or answered by Allocate and not yet seen in either. Unknown counts as in use.
 * Crash-safe: every change is one file_replace; a kill or power loss at any step leaves the old or
 * the new state. Without a state directory (the drop-in name under upstream's chart) owners are
 * "device-plugin" and nothing is written.
 *
 * A grant stays open until facts whose reading began after it
 *   - show its device with another pod than the one that kubelet's checkpoint named for it at the
 *     time of the grant: from then on the facts alone decide; or
 *   - come from a checkpoint read LEDGER_UNSEEN_NS or more after the grant, whatever they show:
 *     kubelet writes its checkpoint right after Allocate, so what is not there by then failed.
 * Facts that could not be read change nothing.
 *
 * Two uses of one gpu go together when both are of one resource and one form (shared or not) on the
 * same base, or when they are different parts. Everything else (another resource name, a share
 * beside the whole gpu, a part beside the whole gpu) waits until the first use has ended.
 */
#include "base/finding.h"
#include "base/host.h"
#include "gpu/survey.h"
#include "kubeletapi/inuse.h"

enum owner { OWNER_NONE, OWNER_DEVICE_PLUGIN, OWNER_DRA, OWNER_FOREIGN, OWNER_DRAINING };
const char *owner_name(enum owner o);

struct ledger;

enum {
    LEDGER_TEXT_MAX = 4 * 1024 * 1024,
    LEDGER_GPUS_MAX = 1024, /* remembered, vanished ones included */
};
#define LEDGER_FILE      "ledger.json"
#define LEDGER_UNSEEN_NS (INT64_C(120) * 1000000000)
#define LEDGER_QUIET_NS  (INT64_C(10) * 1000000000) /* before a change of owner */
#define LEDGER_RETRY_NS  (INT64_C(5) * 1000000000)  /* a state directory that cannot be opened */

/* Opens or creates. A newer format: ERR_UNSUPPORTED with the version needed. Corrupt or truncated:
 * set aside as ledger.json.damaged-<time>, rebuilt; gpus then stay unpublished (owner none, reason
 * "state was damaged") until in-use facts were read (ledger_seen). A full disk or read-only
 * directory: works on from memory, with a finding, and writes when it can. state_dir NULL or "":
 * none. notes may be NULL. */
int ledger_open(const struct host *h, const char *state_dir, enum owner deflt, struct ledger **ret,
                struct findings *notes, struct error *err) must_check;
void ledger_free(struct ledger *l);

/* New gpus get the default owner; gpus that vanished keep their entry. Returns true when something
 * has to be written. */
bool ledger_survey(struct ledger *l, const struct survey *s);
/* Fresh in-use facts (kubelet's checkpoint, pod-resources). NULL facts = could not be read:
 * unknown, counts as in use. Returns true when what may be offered may have changed. */
bool ledger_seen(struct ledger *l, const struct in_use *facts, int64_t now_ns);

/* OWNER_NONE for a gpu that was in no survey yet, and for every gpu while the state is damaged.
 * A new owner counts once it is on disk; until then it is OWNER_DRAINING. */
enum owner ledger_owner(const struct ledger *l, const char *gpu_uuid);
/* May `resource` offer this base (gpu or part) now, as shares or not? false with a reason when the
 * owner differs, the state was damaged, or the gpu, or a part of it, is in use in a way that does
 * not go with it. The reason is borrowed until the next change. */
bool ledger_may_offer(const struct ledger *l, const char *resource, bool shared,
                      const char *gpu_uuid, const char *base, const char **ret_reason);

/* The state was damaged and in-use facts have not been read since: nothing is offered. */
bool ledger_damaged(const struct ledger *l);
/* Fresh facts would move something on: damaged state, a hand-over, grants not yet confirmed, or no
 * facts at all so far. */
bool ledger_wants_facts(const struct ledger *l);

/* Allocate: all or nothing. ERR_CONFLICT (owner, other resource), with who holds it; ERR_INVALID
 * for an id that is neither its base nor a share of it. Records the grant in memory; no disk write,
 * no system call. */
struct grant_request {
    const char *resource;
    const char *const *ids;       /* device ids as kubelet sent them: base or base::N */
    const char *const *bases;     /* gpu or part uuid of each */
    const char *const *gpu_uuids; /* parent gpu of each */
    size_t n;
    bool exclusive; /* not shared */
};
int ledger_grant(struct ledger *l, const struct grant_request *g, int64_t now_ns,
                 struct error *err) must_check;
/* The answer could not be sent. Only for the request just granted. */
void ledger_grant_undo(struct ledger *l, const struct grant_request *g);

/* Change of owner: architecture.md 6. Steps are separate durable writes. `to` is none,
 * device-plugin or dra; the present owner takes a hand-over back. ERR_NOT_FOUND: unknown gpu.
 * ERR_CONFLICT: the last step of another hand-over is being written. ERR_UNAVAILABLE: damaged. */
int ledger_handover_start(struct ledger *l, const char *gpu_uuid, enum owner to, int64_t now_ns,
                          struct error *err) must_check;
/* Finishes hand-overs whose quiet time passed and that were twice seen free; tries again to open a
 * state directory that was not there. True when something may have changed. */
bool ledger_tick(struct ledger *l, int64_t now_ns);
int64_t ledger_next_ns(const struct ledger *l); /* when ledger_tick wants to be called; INT64_MAX */

/* What has to be on disk, as text that the caller frees; NULL when it already is, or while an
 * earlier text is still being written. Each text handed out is reported with ledger_written, also
 * when it was not written. */
char *ledger_pending_text(struct ledger *l);
void ledger_written(struct ledger *l, int r, const struct error *e);
int ledger_dirfd(const struct ledger *l); /* -1 without a state directory, or while it cannot be
                                             opened; the number stays the same once it is there */
/* The state directory may have been deleted, replaced or mounted over: opens what the name leads to
 * now, and then everything has to be on disk again. */
void ledger_dir_moved(struct ledger *l, int64_t now_ns);
size_t ledger_grants(const struct ledger *l); /* open grants, for display */
/* What stands now: state that cannot be written, damaged state, hand-overs and what they wait for,
 * facts that could not be read. */
void ledger_findings(const struct ledger *l, struct findings *out);
