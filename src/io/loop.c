/* SPDX-License-Identifier: Apache-2.0 */
#include "io/loop.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>

#include "base/mem.h"
#include "io/loop_private.h"

/* An event of ours. It knows whether its loop is still there, so that owners may end in any order
 * after loop_free. */
struct node {
    struct loop_guest guest;
    struct loop *loop; /* NULL once the loop is gone */
    struct event ev;
};

struct loop {
    struct event_base *base;
    struct loop_guest guests; /* ring head */
    int value;
};

struct signal_node {
    struct loop_guest guest;
    struct event ev;
    void (*fire)(void *arg);
    void *arg;
};

void loop_guest_add(struct loop *l, struct loop_guest *g)
{
    g->next = &l->guests;
    g->prev = l->guests.prev;
    g->prev->next = g;
    l->guests.prev = g;
}

void loop_guest_remove(struct loop *l, struct loop_guest *g)
{
    (void)l;
    g->prev->next = g->next;
    g->next->prev = g->prev;
    g->prev = g->next = NULL;
}

int loop_new(struct loop **ret, struct error *err)
{
    /* Without PRECISE_TIMER timers follow the coarse clock: 1 ms would be up to 8. */
    struct event_config *config = event_config_new();
    if (config)
        event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    struct event_base *base = config ? event_base_new_with_config(config) : NULL;
    if (config)
        event_config_free(config);
    if (!base)
        return error_set(err, ERR_INTERNAL, 0, "make an event loop: libevent finds no way to poll");
    struct loop *l = x_alloc(sizeof *l);
    l->base = base;
    l->guests.next = l->guests.prev = &l->guests;
    *ret = l;
    return 0;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    while (l->guests.next != &l->guests) {
        struct loop_guest *g = l->guests.next;
        loop_guest_remove(l, g);
        g->loop_gone(g);
    }
    event_base_free(l->base);
    free(l);
}

int loop_run(struct loop *l)
{
    l->value = 0;
    event_base_loop(l->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return l->value;
}

void loop_stop(struct loop *l, int value)
{
    l->value = value;
    event_base_loopbreak(l->base);
}

static void node_loop_gone(struct loop_guest *g)
{
    struct node *n = (struct node *)((char *)g - offsetof(struct node, guest));
    event_del(&n->ev);
    n->loop = NULL;
}

static struct node *node_new(struct loop *l, int fd, short what, event_callback_fn fn, void *arg)
{
    struct node *n = x_alloc(sizeof *n);
    n->loop = l;
    n->guest.loop_gone = node_loop_gone;
    loop_guest_add(l, &n->guest);
    event_assign(&n->ev, l->base, fd, what, fn, arg);
    return n;
}

static void node_free(struct node *n)
{
    if (!n)
        return;
    if (n->loop) {
        event_del(&n->ev);
        loop_guest_remove(n->loop, &n->guest);
    }
    free(n);
}

static void timer_ready(evutil_socket_t fd, short what, void *arg)
{
    struct timer *t = arg;
    t->fire(t->arg);
}

void timer_init(struct timer *t, struct loop *l, void (*fire)(void *arg), void *arg)
{
    *t = (struct timer){ .loop = l, .fire = fire, .arg = arg };
    t->event = node_new(l, -1, 0, timer_ready, t);
}

void timer_set(struct timer *t, int64_t ms)
{
    struct node *n = t->event;
    if (!n || !n->loop)
        return;
    ms = MAX(ms, (int64_t)0);
    struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
    event_add(&n->ev, &tv);
}

bool timer_pending(const struct timer *t)
{
    const struct node *n = t->event;
    return n && n->loop && event_pending(&n->ev, EV_TIMEOUT, NULL);
}

void timer_stop(struct timer *t)
{
    struct node *n = t->event;
    if (n && n->loop)
        event_del(&n->ev);
}

void timer_done(struct timer *t)
{
    node_free(t->event);
    t->event = NULL;
}

static void watch_ready(evutil_socket_t fd, short what, void *arg)
{
    struct watch *w = arg;
    w->ready(w->arg, what & EV_READ ? IO_READ : IO_WRITE);
}

void watch_init(struct watch *w, struct loop *l, int fd, void (*ready)(void *arg, int what),
                void *arg)
{
    *w = (struct watch){ .loop = l, .fd = fd, .ready = ready, .arg = arg };
    w->event_read = node_new(l, fd, EV_READ | EV_PERSIST, watch_ready, w);
    w->event_write = node_new(l, fd, EV_WRITE | EV_PERSIST, watch_ready, w);
}

static void want(struct node *n, short what, bool on)
{
    if (!n || !n->loop || on == !!event_pending(&n->ev, what, NULL))
        return;
    if (on)
        event_add(&n->ev, NULL);
    else
        event_del(&n->ev);
}

void watch_want(struct watch *w, int what)
{
    want(w->event_read, EV_READ, what & IO_READ);
    want(w->event_write, EV_WRITE, what & IO_WRITE);
}

void watch_done(struct watch *w)
{
    node_free(w->event_read);
    node_free(w->event_write);
    w->event_read = w->event_write = NULL;
}

static void signal_ready(evutil_socket_t fd, short what, void *arg)
{
    struct signal_node *s = arg;
    s->fire(s->arg);
}

static void signal_loop_gone(struct loop_guest *g)
{
    struct signal_node *s = (struct signal_node *)((char *)g - offsetof(struct signal_node, guest));
    event_del(&s->ev);
    free(s);
}

int loop_signal(struct loop *l, int signo, void (*fire)(void *arg), void *arg, struct error *err)
{
    struct signal_node *s = x_alloc(sizeof *s);
    s->fire = fire;
    s->arg = arg;
    s->guest.loop_gone = signal_loop_gone;
    event_assign(&s->ev, l->base, signo, EV_SIGNAL | EV_PERSIST, signal_ready, s);
    if (event_add(&s->ev, NULL) < 0) {
        free(s);
        return error_set(err, ERR_INTERNAL, 0, "watch signal %d: libevent refuses it", signo);
    }
    loop_guest_add(l, &s->guest);
    return 0;
}
