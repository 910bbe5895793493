/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Keeps one resource registered with kubelet: dials kubelet.sock, calls Register, expects the
 * device list stream, and starts over when any of that does not hold (spec/kubelet-and-dra.md 2.2).
 *
 * - Kubelet absent or refusing: again after 250 ms, doubling to 30 s.
 * - kubelet.sock was re-created: at once, for a second every millisecond and then a little slower:
 *   between bind and listen a dial is refused.
 * - Version or name refused: not again until kubelet.sock is re-created.
 * - No stream within 10 s of an acknowledgement: again.
 * - The last stream ended: again after 250 ms, doubling while streams keep ending early.
 */
#include "base/host.h"
#include "io/loop.h"

struct registration;

struct registration_config {
    const struct host *host;
    const char *kubelet_socket; /* copied */
    int64_t expect_ms;          /* for the stream after an acknowledgement; 0: 10 s */
    void *arg;
    void (*acknowledged)(void *arg);
    void (*failed)(void *arg, bool permanent, const char *why); /* once per cause */
};

void registration_new(struct loop *l, const struct registration_config *c,
                      struct registration **ret);
void registration_free(struct registration *r); /* NULL allowed; no call-back any more */

/* Registers with this request (copied), soon. Again: with the new one. */
void registration_start(struct registration *r, struct str request);
void registration_kubelet_new(struct registration *r); /* kubelet.sock was re-created */
void registration_stream_open(struct registration *r); /* kubelet reads our list */
void registration_stream_lost(struct registration *r); /* the last stream ended */
/* Kubelet's view and ours differ although it acknowledged: registers anew, unless it is at it. */
void registration_again(struct registration *r);
void registration_stop(struct registration *r);

bool registration_ok(const struct registration *r); /* kubelet acknowledged or reads our list */
const char *registration_error(const struct registration *r); /* NULL when none */
