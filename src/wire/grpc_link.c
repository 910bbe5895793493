/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpc_link.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    READ_SIZE = 32 * 1024,
    READS_A_TURN = 8, /* then other descriptors have their turn */
};
#define NS_A_MS ((int64_t)1000000)

int64_t grpc_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void grpc_link_hold(struct grpc_link *k)
{
    k->depth++;
}

void grpc_link_release(struct grpc_link *k)
{
    if (--k->depth || !k->dead)
        return;
    grpc_session_free(k->session, NULL);
    k->session = NULL;
    watch_done(&k->watch);
    timer_done(&k->timer);
    mem_close_p(&k->fd);
    k->fd = -1;
    k->gone(k->owner);
}

static void fail(struct grpc_link *k, enum error_code code, const char *text, int sys)
{
    if (k->failed)
        return;
    k->failed = true;
    if (sys)
        error_errno(&k->why, sys, "%s", text);
    else
        error_set(&k->why, code, 0, "%s", text);
}

/* Sends what there is until the socket takes no more. */
static void flush(struct grpc_link *k)
{
    while (!k->dead && !k->deaf && k->fd >= 0) {
        struct error e;
        struct str out = grpc_session_output(k->session);
        if (!k->dead && grpc_session_check(k->session, &e) < 0)
            fail(k, e.code, e.text, 0);
        if (!out.n || k->dead)
            break;
        ssize_t n = send(k->fd, out.p, out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            grpc_session_sent(k->session, (size_t)n);
        } else if (n < 0 && errno == EAGAIN) {
            watch_want(&k->watch, IO_READ | IO_WRITE);
            return;
        } else if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            k->deaf = true; /* what it said before it left is still to be read */
        } else if (n < 0 && errno != EINTR) {
            fail(k, ERR_UNAVAILABLE, "write to the peer", errno);
            return;
        }
    }
    if (!k->dead && k->fd >= 0)
        watch_want(&k->watch, IO_READ);
}

static void arm(struct grpc_link *k)
{
    int64_t at = grpc_session_deadline(k->session);
    if (!at || (k->timer_at && k->timer_at <= at))
        return;
    k->timer_at = at;
    timer_set(&k->timer, MAX(at - grpc_now(), (int64_t)0) / NS_A_MS + 1);
}

/* Ends the connection now: open calls hear of it, then the owner. */
static void end(struct grpc_link *k)
{
    struct grpc_session *s = k->session;
    watch_want(&k->watch, 0);
    timer_stop(&k->timer);
    if (!s)
        return;
    /* Call-backs may ask for silence: the pointer stays until they are over. */
    grpc_session_free(s, k->dead ? NULL : &k->why);
    k->session = NULL;
    if (!k->dead)
        k->closed(k->owner, &k->why);
}

static bool over(struct grpc_link *k)
{
    if (!k->failed && !k->dead && k->fd >= 0 && grpc_session_finished(k->session))
        fail(k, ERR_UNAVAILABLE, "the connection was closed", 0);
    return k->failed;
}

static void end_of_turn(struct grpc_link *k)
{
    if (k->dead)
        return;
    flush(k);
    if (k->dead)
        return;
    if (over(k))
        end(k);
    else
        arm(k);
}

/* One turn's reading; an error is kept in the link. */
static void take_input(struct grpc_link *k)
{
    char in[READ_SIZE];
    for (int i = 0; i < READS_A_TURN && !k->dead; i++) {
        ssize_t n = recv(k->fd, in, sizeof in, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            bool left = n == 0 || errno == ECONNRESET; /* reset: it left something unread */
            fail(k, ERR_UNAVAILABLE, left ? "the peer closed the connection" : "read from the peer",
                 left ? 0 : errno);
            return;
        }
        struct error e;
        if (grpc_session_feed(k->session, (struct str){ in, (size_t)n }, grpc_now(), &e) < 0) {
            flush(k); /* the GOAWAY that says why */
            fail(k, e.code, e.text, 0);
            return;
        }
        if ((size_t)n < sizeof in)
            return;
    }
}

static void ready(void *arg, int what)
{
    struct grpc_link *k = arg;
    grpc_link_hold(k);
    if (what & IO_READ && !k->failed)
        take_input(k);
    end_of_turn(k);
    grpc_link_release(k);
}

static void fired(void *arg)
{
    struct grpc_link *k = arg;
    struct error e;
    grpc_link_hold(k);
    k->timer_at = 0;
    if (!k->failed && grpc_session_tick(k->session, grpc_now(), &e) < 0)
        fail(k, e.code, e.text, 0);
    end_of_turn(k);
    grpc_link_release(k);
}

/* The session has output, made by a caller from outside: it must not see its connection end before
 * it returns. */
static void wake(void *owner)
{
    struct grpc_link *k = owner;
    grpc_link_hold(k);
    if (!k->failed)
        flush(k);
    if (!k->dead) {
        if (over(k))
            timer_set(&k->timer, 0);
        else
            arm(k);
    }
    grpc_link_release(k);
}

int grpc_link_init(struct grpc_link *k, struct loop *l, const struct grpc_session_config *session,
                   struct error *err)
{
    struct grpc_session_config c = *session;
    c.owner = k;
    c.wake = wake;
    k->loop = l;
    k->fd = -1;
    int r = grpc_session_new(&c, grpc_now(), &k->session, err);
    if (r < 0)
        return r;
    timer_init(&k->timer, l, fired, k);
    return 0;
}

void grpc_link_open(struct grpc_link *k, int fd)
{
    k->fd = fd;
    watch_init(&k->watch, k->loop, fd, ready, k);
    watch_want(&k->watch, IO_READ);
    wake(k);
}

void grpc_link_close(struct grpc_link *k, const struct error *why)
{
    if (k->dead)
        return;
    grpc_link_hold(k);
    if (!k->failed) {
        k->failed = true;
        k->why = *why;
    }
    end(k);
    grpc_link_release(k);
}

void grpc_link_done(struct grpc_link *k)
{
    if (k->dead)
        return;
    grpc_link_hold(k);
    k->dead = true;
    if (k->session)
        grpc_session_silence(k->session);
    grpc_link_release(k);
}
