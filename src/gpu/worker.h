/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The agent's side of the GPU worker: starts `mete gpu-worker` (this executable), speaks the
 * protocol of gpu/protocol.h with it, kills it when a call does not return in time, starts it again
 * with back-off, and after two that cannot be killed starts no third. The agent itself never loads
 * NVML and never opens /dev/nvidia*.
 */
#include "base/host.h"
#include "gpu/survey.h"
#include "io/loop.h"

enum gpu_event_kind {
    GPU_EVENT_XID,         /* value: the XID number */
    GPU_EVENT_ECC_SINGLE,  /* NVML event bit 1 */
    GPU_EVENT_ECC_DOUBLE,  /* bit 2 */
    GPU_EVENT_MIG_CHANGE,  /* bit 0x100 */
    GPU_EVENT_RECOVERY,    /* bit 0x8000: recovery action changed */
    GPU_EVENT_UNAVAILABLE, /* bit 0x4000 */
    GPU_EVENT_WAIT_FAILED, /* the wait itself failed; value: nvmlReturn_t; uuid "" unless known */
};

const char *gpu_event_name(enum gpu_event_kind kind); /* "xid", "ecc-single", … */

struct gpu_event {
    enum gpu_event_kind kind;
    char uuid[UUID_TEXT_SIZE]; /* of the gpu, "" if the driver named none */
    uint32_t gi, ci;           /* UINT32_MAX: not attributed to an instance */
    uint64_t value;
};

/* How a worker is killed and where its state in the kernel is read; for tests of one that refuses
 * to die. */
struct gpu_worker_seams {
    void *arg;
    void (*kill)(void *arg, pid_t pid, int signo);
    const char *proc; /* "/proc" */
};

struct gpu_worker_config {
    const struct host *host; /* borrowed, like all texts here */
    const char *executable;  /* NULL: /proc/self/exe */
    int64_t call_timeout_ms; /* within which one driver call must return; default 10 000. A survey
                                whose calls do return gets six times that. */
    int64_t restart_ms, restart_max_ms; /* back-off; defaults 250 and 30 000 */
    int64_t recheck_ms; /* while the driver is not ok or a gpu is lost: survey again, backing off
                           from this to restart_max_ms; default 1 000 */
    int64_t reap_ms;    /* how long a killed worker may take to end; default 2 000 */
    int64_t poll_ms;   /* how often the driver's directories in /proc are compared: MIG devices made
                          or destroyed, gpus bound or unbound; default 10 000 */
    bool watch_events; /* false: no event thread, no poll */
    const struct gpu_worker_seams *seams; /* NULL: the real ones */
    void *arg;                            /* no call-back may free the worker */
    /* A new survey: at start, on request, after a driver or MIG change, after a restart. The callee
     * takes a reference if it keeps it. */
    void (*surveyed)(void *arg, struct survey *s);
    void (*event)(void *arg, const struct gpu_event *e);
    /* The worker's state changed; survey content is not affected. `why` for the log: cause and what
     * happens next. stale: the last survey can no longer be trusted. */
    void (*state)(void *arg, enum driver_state s, bool stale, const char *why);
    /* Worth a line in the log: a fence that the worker could not have. May be NULL. */
    void (*note)(void *arg, const char *text);
};

struct gpu_worker;
int gpu_worker_new(struct loop *l, const struct gpu_worker_config *config, struct gpu_worker **ret,
                   struct error *err) must_check;
void gpu_worker_free(struct gpu_worker *w);    /* ends the process; NULL allowed */
void gpu_worker_survey(struct gpu_worker *w);  /* asks for a fresh survey; coalesced */
void gpu_worker_release(struct gpu_worker *w); /* let go of the driver (GPU reset, driver upgrade);
                                                  state() tells when done */
void gpu_worker_acquire(struct gpu_worker *w); /* take it again */
pid_t gpu_worker_pid(const struct gpu_worker *w); /* 0 while none runs */

/* The worker process itself: `mete gpu-worker`, protocol on descriptor 3. Returns the exit code. */
int gpu_worker_main(const struct host *h);

/* One survey in this process without a worker process of its own being kept: starts a worker, takes
 * its first survey, ends it. For `mete survey`. Blocks at most timeout_ms. */
int gpu_survey_once(const struct host *h, int64_t timeout_ms, struct survey **ret,
                    struct error *err) must_check;
