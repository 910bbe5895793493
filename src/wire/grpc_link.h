/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The socket under a session: one read, the session's work, one write. For grpc_server.c and
 * grpc_client.c. */
#include "wire/grpc_session.h"

struct grpc_link {
    struct loop *loop;
    int fd; /* -1: not connected yet */
    struct grpc_session *session;
    struct watch watch;
    struct timer timer;
    int64_t timer_at; /* what the timer is set to; 0: not set */
    unsigned depth;   /* functions of ours on the stack */
    bool failed, dead;
    bool deaf; /* the peer takes nothing any more */
    struct error why;
    void *owner;
    void (*closed)(void *owner, const struct error *why); /* once; the owner then calls done */
    void (*gone)(void *owner); /* after done, when nothing is on the stack: frees the owner */
};

/* `session` of the config gets the link as its owner. The link is embedded in `owner`. */
int grpc_link_init(struct grpc_link *k, struct loop *l, const struct grpc_session_config *session,
                   struct error *err) must_check;
void grpc_link_open(struct grpc_link *k, int fd);                   /* takes the descriptor */
void grpc_link_close(struct grpc_link *k, const struct error *why); /* as if the peer had closed */
/* Between them neither link nor owner is freed, whatever call-backs do. */
void grpc_link_hold(struct grpc_link *k);
void grpc_link_release(struct grpc_link *k);
void grpc_link_done(struct grpc_link *k); /* no call-back but gone() any more */

int64_t grpc_now(void); /* CLOCK_MONOTONIC in ns */
