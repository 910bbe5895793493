/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/grpc_link.h"
#include "wire/unix_socket.h"

enum { BUSY_RETRY_MS = 5 }; /* the listener's queue is full */

struct grpc_client {
    struct grpc_link link;
    struct timer retry;
    char *path;
    void (*closed)(void *arg, const struct error *why);
    void *arg;
};

static void link_closed(void *owner, const struct error *why)
{
    struct grpc_client *c = owner;
    void (*closed)(void *arg, const struct error *why) = c->closed;
    c->closed = NULL;
    if (closed)
        closed(c->arg, why);
}

static void link_gone(void *owner)
{
    struct grpc_client *c = owner;
    timer_done(&c->retry);
    free(c->path);
    free(c);
}

static void try_again(void *arg)
{
    struct grpc_client *c = arg;
    struct error e;
    int fd;
    if (c->link.failed)
        return;
    if (unix_socket_connect(c->path, &fd, &e) == 0)
        grpc_link_open(&c->link, fd);
    else if (e.sys == EAGAIN)
        timer_set(&c->retry, BUSY_RETRY_MS);
    else
        grpc_link_close(&c->link, &e);
}

int grpc_client_new(struct loop *l, const char *path,
                    void (*closed)(void *arg, const struct error *why), void *arg,
                    struct grpc_client **ret, struct error *err)
{
    int fd = -1;
    struct error e;
    int r = unix_socket_connect(path, &fd, &e);
    if (r < 0 && e.sys != EAGAIN) {
        if (err)
            *err = e;
        return r;
    }
    struct grpc_client *c = x_alloc(sizeof *c);
    *c = (struct grpc_client){ .path = x_strdup(path), .closed = closed, .arg = arg };
    r = grpc_link_init(&c->link, l, &(struct grpc_session_config){ 0 }, err);
    if (r < 0) {
        mem_close_p(&fd);
        free(c->path);
        free(c);
        return error_wrap(err, "connect to %s", path);
    }
    c->link.owner = c;
    c->link.closed = link_closed;
    c->link.gone = link_gone;
    timer_init(&c->retry, l, try_again, c);
    if (fd >= 0)
        grpc_link_open(&c->link, fd);
    else
        timer_set(&c->retry, BUSY_RETRY_MS);
    *ret = c;
    return 0;
}

void grpc_client_free(struct grpc_client *c)
{
    if (c)
        grpc_link_done(&c->link);
}

static int request(struct grpc_client *c, const struct grpc_request *r, struct error *err)
{
    if (!c->link.session || c->link.failed)
        return error_set(err, ERR_UNAVAILABLE, 0, "call %s: the connection has ended", r->path);
    return grpc_session_request(c->link.session, r, grpc_now(), err);
}

int grpc_client_call(struct grpc_client *c, const char *path, struct str message,
                     int64_t timeout_ms,
                     void (*done)(void *arg, enum grpc_status status, const char *text,
                                  struct str message),
                     void *arg, struct error *err)
{
    const struct grpc_request r = {
        .path = path, .message = message, .timeout_ms = timeout_ms, .done = done, .arg = arg
    };
    return request(c, &r, err);
}

int grpc_client_stream(struct grpc_client *c, const char *path, struct str message,
                       void (*message_in)(void *arg, struct str message),
                       void (*ended)(void *arg, enum grpc_status status, const char *text),
                       void *arg, struct error *err)
{
    const struct grpc_request r = {
        .path = path, .message = message, .message_in = message_in, .ended = ended, .arg = arg
    };
    return request(c, &r, err);
}
