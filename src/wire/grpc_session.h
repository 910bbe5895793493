/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * One gRPC connection without its socket: bytes and a `now` go in, bytes come out, calls are told.
 * Both roles. grpc_link.c puts a socket under it; tests and the fuzzer feed it by hand.
 *
 * `now` is CLOCK_MONOTONIC in ns and never 0. No function here blocks or reads a clock.
 * Call-backs come from within feed, tick, output and free; from inside of them every grpc_*
 * function of grpc.h may be called, but not grpc_session_free (defer it).
 */
#include "wire/grpc.h"

/* Memory that messages of all connections of one server may hold together. */
struct grpc_budget {
    size_t used, max;
};

struct grpc_session;

struct grpc_session_config {
    const struct grpc_server_config *server; /* NULL: the client role. Borrowed. */
    size_t message_max;                      /* largest message accepted; 0: GRPC_MESSAGE_MAX */
    struct grpc_budget *budget;              /* NULL: no common limit */
    void *owner;
    /* There is output to fetch, said when no function of the session is running. May be NULL. */
    void (*wake)(void *owner);
};

int grpc_session_new(const struct grpc_session_config *config, int64_t now,
                     struct grpc_session **ret, struct error *err) must_check;
/* Tells every open call: cancelled, or UNAVAILABLE with why->text. why NULL: tells nobody. */
void grpc_session_free(struct grpc_session *s, const struct error *why);

/* From inside of a call-back: nobody is told anything any more; free it when that has returned. */
void grpc_session_silence(struct grpc_session *s);

/* An error is final: fetch the output once more, send what can be sent, free. */
int grpc_session_feed(struct grpc_session *s, struct str bytes, int64_t now,
                      struct error *err) must_check;
/* What is to be sent, at most about 64 KiB at a time; borrowed until the next call of any function.
 * Empty: nothing now. */
struct str grpc_session_output(struct grpc_session *s);
void grpc_session_sent(struct grpc_session *s, size_t n); /* the first n bytes of it have left */

/* The error that output and answers may have met. */
int grpc_session_check(const struct grpc_session *s, struct error *err) must_check;

/* When to tick at the latest; 0: never. */
int64_t grpc_session_deadline(const struct grpc_session *s);
int grpc_session_tick(struct grpc_session *s, int64_t now, struct error *err) must_check;

/* Both directions are over: close the connection. */
bool grpc_session_finished(const struct grpc_session *s);
size_t grpc_session_calls(const struct grpc_session *s); /* open ones */
void *grpc_call_owner(const struct grpc_call *call);     /* config.owner */

/* Server: GOAWAY; streams end with UNAVAILABLE, unary calls may still be answered; the session is
 * finished once they are. `now_too`: unanswered unary calls end as well. */
void grpc_session_drain(struct grpc_session *s, bool now_too);

/* Client. Either done (unary) or message and ended (stream). */
struct grpc_request {
    const char *path;
    struct str message;
    int64_t timeout_ms; /* 0: none */
    void (*done)(void *arg, enum grpc_status status, const char *text, struct str message);
    void (*message_in)(void *arg, struct str message);
    void (*ended)(void *arg, enum grpc_status status, const char *text);
    void *arg;
};
int grpc_session_request(struct grpc_session *s, const struct grpc_request *r, int64_t now,
                         struct error *err) must_check;
