/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The worker's second thread: waits for the driver's events and tells them. It owns the event set;
 * the first thread makes a new set whenever the gpus changed and leaves it to be taken over.
 */
#include "gpu/nvml.h"
#include "gpu/worker.h"

/* How long a wait lasts at most; a new set may have to wait for the old one's last. */
enum { EVENTS_WAIT_MS = 5000 };

struct events;

/* emit() is called by both threads and must be safe for that. n is borrowed, and must outlive the
 * process's last wait: there is no end but that of the process, since a wait in the driver cannot
 * be woken. */
int events_new(struct nvml *n, void (*emit)(void *arg, const struct gpu_event *e), void *arg,
               struct events **ret, struct error *err) must_check;
/* By the first thread: a new set with all gpus that answer. What could not be watched is emitted as
 * GPU_EVENT_WAIT_FAILED. */
void events_arm(struct events *e, struct nvml *n);
/* The set is to be made anew: a wait failed, the MIG layout changed, or `s` has a gpu that was not
 * there when the set was made. */
bool events_want_arm(struct events *e, const struct survey *s);
