/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A gRPC client for benches: connects once, makes unary calls one after the other on a loop of its
 * own, keeps each one's time. */
#include "base/buf.h"
#include "wire/grpc.h"

struct unary {
    struct loop *loop;
    struct grpc_client *client;
    const char *path; /* of the method under way */
    struct str request;
    int64_t timeout_ms, began, *t;
    size_t n, done;
    struct error *err;
    int result;
    struct buf last; /* the last answer */
};

/* Tries for 5 s, while the server starts. */
int unary_connect(struct unary *u, const char *socket, struct error *err) must_check;
void unary_close(struct unary *u);
/* n calls; t[i]: ns from the request to the whole answer. A status other than OK is an error. */
int unary_many(struct unary *u, const char *method, struct str request, int64_t timeout_ms,
               int64_t *t, size_t n, struct error *err) must_check;
