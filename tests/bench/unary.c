/* SPDX-License-Identifier: Apache-2.0 */
#include "unary.h"

#include <time.h>

#include "base/mem.h"
#include "pingpong.h"

enum { TRIES = 1000, TRY_MS = 5, ANSWER_MAX = GRPC_MESSAGE_MAX };

static void closed(void *arg, const struct error *why)
{
    struct unary *u = arg;
    grpc_client_free(u->client);
    u->client = NULL;
    if (u->err)
        *u->err = *why;
    u->result = -ERR_UNAVAILABLE;
    loop_stop(u->loop, 0);
}

int unary_connect(struct unary *u, const char *socket, struct error *err)
{
    *u = (struct unary){ .loop = NULL };
    int r = loop_new(&u->loop, err);
    if (r < 0)
        return r;
    buf_init(&u->last, ANSWER_MAX);
    for (int i = 0; i < TRIES; i++) {
        const struct timespec pause = { .tv_nsec = TRY_MS * 1000000 };
        r = grpc_client_new(u->loop, socket, closed, u, &u->client, err);
        if (r == 0)
            return 0;
        nanosleep(&pause, NULL);
    }
    unary_close(u);
    return r;
}

void unary_close(struct unary *u)
{
    grpc_client_free(u->client);
    loop_free(u->loop);
    buf_done(&u->last);
    u->client = NULL;
    u->loop = NULL;
}

static void next(struct unary *u);

static void answered(void *arg, enum grpc_status status, const char *text, struct str message)
{
    struct unary *u = arg;
    u->t[u->done++] = bench_now_ns() - u->began;
    if (status != GRPC_OK) {
        u->result = error_set(u->err, ERR_INTERNAL, 0, "%s answered status %d: %s", u->path,
                              (int)status, text);
        loop_stop(u->loop, 0);
    } else if (u->done < u->n) {
        next(u);
    } else {
        buf_reset(&u->last);
        buf_str(&u->last, message);
        loop_stop(u->loop, 0);
    }
}

static void next(struct unary *u)
{
    u->began = bench_now_ns();
    int r = grpc_client_call(u->client, u->path, u->request, u->timeout_ms, answered, u, u->err);
    if (r == 0)
        return;
    u->result = r;
    loop_stop(u->loop, 0);
}

int unary_many(struct unary *u, const char *method, struct str request, int64_t timeout_ms,
               int64_t *t, size_t n, struct error *err)
{
    if (!u->client)
        return error_set(err, ERR_UNAVAILABLE, 0, "call %s: not connected", method);
    u->path = method;
    u->request = request;
    u->timeout_ms = timeout_ms;
    u->t = t;
    u->n = n;
    u->done = 0;
    u->err = err;
    u->result = 0;
    next(u);
    if (u->result == 0)
        loop_run(u->loop);
    u->err = NULL;
    return u->result;
}
