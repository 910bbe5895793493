/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Inside the agent's side of the worker: one process (worker_process.c) and the comparison of the
 * driver's directories (worker_watch.c). */
#include "gpu/protocol.h"
#include "gpu/worker.h"
#include "io/child.h"

/* One worker process, from its start until it is reaped. */
struct process {
    struct child *child;
    pid_t pid;
    int fd; /* our end of the socket; −1 once we are done talking */
    struct watch watch;
    bool watching;
    struct nvml_progress *progress;
    struct timer reap;
    bool greeted;
    bool ending; /* told to end, or killed */
    bool killed;
    struct gpu_worker *worker;
    struct process *next; /* of those that could not be killed */
};

struct process_events {
    void (*ready)(void *arg, int what);   /* arg: the process */
    void (*ended)(void *arg, int status); /* arg: the process */
    void (*overdue)(void *arg);           /* did not end within reap_ms; arg: the process */
};

/* Starts `mete gpu-worker` and hands it its start message, with `before` (NULL: none) in it. */
int process_start(struct loop *l, const struct gpu_worker_config *config, struct gpu_worker *w,
                  const struct survey *before, const struct process_events *ev,
                  struct process **ret, struct error *err) must_check;
/* Closes the socket, which ends a worker that is not busy. */
void process_end(struct process *p, int64_t reap_ms);
void process_kill(struct process *p, const struct gpu_worker_config *config);
/* Lets go of everything of ours; the child is reaped when it ends. */
void process_free(struct process *p);

/* "nvmlDeviceGetHandleByIndex_v2 for gpu 5", from what the worker noted. */
void process_call(const struct process *p, char *ret, size_t size);
/* " in the kernel at nv_wait (top of stack: …)", as far as /proc tells. */
void process_where(const struct process *p, const char *proc, char *ret, size_t size);

/* Changes of these numbers mean that a survey is due. */
struct fingerprint {
    uint64_t gpus;  /* functions that the driver has */
    uint64_t parts; /* GPU and compute instances */
};
/* s: which gpus can have parts; NULL: none. */
struct fingerprint fingerprint_take(const struct host *h, const struct survey *s);
