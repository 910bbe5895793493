/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "wire/grpc_link.h"
#include "wire/unix_socket.h"

enum {
    BUDGET_MAX = 64 * 1024 * 1024, /* messages of all connections together */
    ACCEPT_PAUSE_MS = 100,         /* out of descriptors: the queue waits, the loop does not spin */
    ACCEPTS_A_TURN = 16,
    LAST_WORDS_MS = 200, /* after a drain's end, for peers to take their answers */
};

struct conn {
    struct grpc_link link;
    struct grpc_server *server;
    struct conn *prev, *next;
};

struct grpc_server {
    struct loop *loop;
    char *path;
    struct unix_socket_id id;
    struct grpc_server_config config;
    struct grpc_budget budget;
    int fd; /* -1 once it no longer accepts */
    struct watch watch;
    struct timer timer;
    struct conn conns; /* ring head */
    size_t n_conns;
    unsigned holds; /* walks through the connections that are under way */
    bool draining, drain_late, dead;
    void (*drained)(void *arg);
    void *drained_arg;
};

static void server_destroy(struct grpc_server *s)
{
    timer_done(&s->timer);
    free(s->path);
    free(s);
}

static void stop_accepting(struct grpc_server *s)
{
    if (s->fd < 0)
        return;
    watch_done(&s->watch);
    unix_socket_unlink(s->path, &s->id);
    close(s->fd);
    s->fd = -1;
}

/* ---- connections ---- */

static void conn_closed(void *owner, const struct error *why)
{
    struct conn *c = owner;
    grpc_link_done(&c->link);
}

static void conn_gone(void *owner)
{
    struct conn *c = owner;
    struct grpc_server *s = c->server;
    c->prev->next = c->next;
    c->next->prev = c->prev;
    s->n_conns--;
    free(c);
    if (s->n_conns || s->holds)
        return;
    if (s->dead)
        server_destroy(s);
    else if (s->draining && s->drained)
        timer_set(&s->timer, 0);
}

static void conn_new(struct grpc_server *s, int fd)
{
    struct conn *c = try_alloc(sizeof *c);
    struct grpc_session_config config = { .server = &s->config, .budget = &s->budget };
    if (!c || grpc_link_init(&c->link, s->loop, &config, NULL) < 0) {
        free(c);
        close(fd);
        return;
    }
    c->server = s;
    c->link.owner = c;
    c->link.closed = conn_closed;
    c->link.gone = conn_gone;
    c->next = &s->conns;
    c->prev = s->conns.prev;
    c->prev->next = c;
    s->conns.prev = c;
    s->n_conns++;
    grpc_link_open(&c->link, fd);
}

static void accept_ready(void *arg, int what)
{
    struct grpc_server *s = arg;
    for (int i = 0; i < ACCEPTS_A_TURN && s->fd >= 0; i++) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0 && s->n_conns >= GRPC_CONNECTIONS_MAX) {
            close(fd);
        } else if (fd >= 0) {
            conn_new(s, fd);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            if (errno != EAGAIN) {
                watch_want(&s->watch, 0);
                timer_set(&s->timer, ACCEPT_PAUSE_MS);
            }
            return;
        }
    }
}

/* ---- drain ---- */

static void report_drained(struct grpc_server *s)
{
    void (*done)(void *arg) = s->drained;
    s->drained = NULL;
    if (done)
        done(s->drained_arg);
}

/* Call-backs made from `each` may free the server or end any connection. */
static void for_each(struct grpc_server *s, void (*each)(struct conn *c))
{
    s->holds++;
    for (struct conn *c = s->conns.next; c != &s->conns; c = c->next)
        grpc_link_hold(&c->link);
    for (struct conn *c = s->conns.next; c != &s->conns; c = c->next)
        each(c);
    for (struct conn *c = s->conns.next, *next; c != &s->conns; c = next) {
        next = c->next;
        grpc_link_release(&c->link);
    }
    s->holds--;
    if (s->dead && !s->n_conns)
        server_destroy(s);
    else if (s->draining && s->drained && !s->n_conns)
        timer_set(&s->timer, 0);
}

static void drain_one(struct conn *c)
{
    if (c->link.session)
        grpc_session_drain(c->link.session, false);
}

static void drain_late_one(struct conn *c)
{
    if (c->link.session)
        grpc_session_drain(c->link.session, true);
}

static void close_one(struct conn *c)
{
    struct error why;
    error_set(&why, ERR_UNAVAILABLE, 0, "the server has stopped");
    grpc_link_close(&c->link, &why);
}

static void timer_fired(void *arg)
{
    struct grpc_server *s = arg;
    if (!s->draining) {
        watch_want(&s->watch, IO_READ);
    } else if (!s->n_conns) {
        report_drained(s);
    } else if (!s->drain_late) {
        s->drain_late = true;
        timer_set(&s->timer, LAST_WORDS_MS);
        for_each(s, drain_late_one);
    } else {
        for_each(s, close_one);
    }
}

void grpc_server_drain(struct grpc_server *s, int64_t ms, void (*done)(void *arg), void *arg)
{
    s->drained = done;
    s->drained_arg = arg;
    s->draining = true;
    stop_accepting(s);
    timer_set(&s->timer, s->n_conns ? ms : 0);
    for_each(s, drain_one);
}

/* ---- face ---- */

int grpc_server_new(struct loop *l, const char *path, mode_t mode,
                    const struct grpc_server_config *config, struct grpc_server **ret,
                    struct error *err)
{
    auto_close int fd = -1;
    struct unix_socket_id id;
    int r = unix_socket_listen(path, mode, &fd, &id, err);
    if (r < 0)
        return r;
    struct grpc_server *s = x_alloc(sizeof *s);
    *s = (struct grpc_server){ .loop = l,
                               .path = x_strdup(path),
                               .id = id,
                               .config = *config,
                               .budget = { .max = BUDGET_MAX },
                               .fd = steal_fd(&fd) };
    s->conns.prev = s->conns.next = &s->conns;
    timer_init(&s->timer, l, timer_fired, s);
    watch_init(&s->watch, l, s->fd, accept_ready, s);
    watch_want(&s->watch, IO_READ);
    *ret = s;
    return 0;
}

static void done_one(struct conn *c)
{
    grpc_link_done(&c->link);
}

void grpc_server_free(struct grpc_server *s)
{
    if (!s || s->dead)
        return;
    stop_accepting(s);
    timer_stop(&s->timer);
    s->drained = NULL;
    s->dead = true;
    for_each(s, done_one);
}

bool grpc_server_socket_ours(const struct grpc_server *s)
{
    return s->fd >= 0 && unix_socket_is(s->path, &s->id);
}

size_t grpc_server_connections(const struct grpc_server *s)
{
    return s->n_conns;
}

pid_t grpc_call_peer_pid(const struct grpc_call *call)
{
    const struct grpc_link *k = grpc_call_owner(call);
    struct ucred cred;
    socklen_t n = sizeof cred;
    if (k->fd < 0 || getsockopt(k->fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
        return 0;
    return cred.pid;
}
