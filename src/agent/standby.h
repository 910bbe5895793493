/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Two agents at once (a rolling update): only the holder of agent.lock in the state directory
 * works. A later one asks the holder over agent.sock to leave, waits, and goes on when it has the
 * lock. A holder that does not answer is waited for with a note; two never work at the same time.
 * The same socket serves commands that ask a running agent. Protocol: docs/formats.md.
 */
#include "base/buf.h"
#include "base/error.h"
#include "base/host.h"
#include "io/loop.h"

enum {
    AGENT_ANSWER_MAX = 4 * 1024 * 1024,
    AGENT_REQUEST_MAX = 256, /* bytes of a request line */
};
#define AGENT_LOCK   "agent.lock"
#define AGENT_SOCKET "agent.sock"

struct standby;
struct standby_config {
    const struct host *host;
    const char *state_dir; /* made when it is not there */
    void *arg;
    void (*acquired)(void *arg);       /* once: the state directory is ours */
    void (*asked_to_leave)(void *arg); /* once: drain, commit, standby_release, end */
    void (*moved)(void *arg); /* the state directory is another now, and ours: it was deleted, … */
    void (*note)(void *arg, const char *text);  /* for the log; once per cause, again each minute */
    void (*status)(void *arg, struct buf *out); /* JSON */
    void (*driver)(void *arg, bool release);    /* let go of the driver, or take it again */
    void (*survey)(void *arg);                  /* take a new one */
};

/* Starts; call-backs come from the loop, never from here. A directory in which nothing can be
 * locked (it cannot be made, it is read-only) is no reason not to work: a note tells, and what can
 * be locked is. */
int standby_new(struct loop *l, const struct standby_config *config, struct standby **ret,
                struct error *err) must_check;
bool standby_holds(const struct standby *s); /* acquired, and not released */
/* Removes the socket, gives the lock up and makes no call-back any more. */
void standby_release(struct standby *s);
void standby_free(struct standby *s); /* releases; NULL allowed */

/* Asks a running agent and waits: "status", "driver release", "driver acquire", "survey", "leave".
 * *ret_text is terminated, the caller frees it. ERR_NOT_FOUND: none is running there;
 * ERR_UNAVAILABLE: no whole answer within timeout_ms; ERR_DENIED: not root and not its user. */
int agent_ask(const char *state_dir, const char *request, int64_t timeout_ms, char **ret_text,
              struct error *err) must_check;
