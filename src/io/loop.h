/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/io: the event loop (the only includer of libevent), timers, signals, child processes, the
 * disk thread, directory watches, locks. Not here: protocols. may use: base
 *
 * One thread runs the loop and owns all state. Call-backs run on it, one at a time, and never
 * block.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct loop;

int loop_new(struct loop **ret, struct error *err) must_check;
void loop_free(
    struct loop *l); /* NULL allowed; what was watched is forgotten, descriptors stay open */
int loop_run(struct loop *l); /* until loop_stop; returns the value given there */
void loop_stop(struct loop *l, int value);

/* Timers: embedded in their owner, usable again after they fired. ms is relative; 0 means "next
 * turn of the loop". */
struct timer {
    struct loop *loop;
    void *event;
    void (*fire)(void *arg);
    void *arg;
};
void timer_init(struct timer *t, struct loop *l, void (*fire)(void *arg), void *arg);
void timer_set(struct timer *t, int64_t ms); /* again: moved */
bool timer_pending(const struct timer *t);
void timer_stop(struct timer *t);
void timer_done(struct timer *t);

enum { IO_READ = 1, IO_WRITE = 2 };
struct watch {
    struct loop *loop;
    void *event_read, *event_write;
    int fd;
    void (*ready)(void *arg, int what); /* IO_READ, IO_WRITE or both */
    void *arg;
};
void watch_init(struct watch *w, struct loop *l, int fd, void (*ready)(void *arg, int what),
                void *arg);
void watch_want(struct watch *w, int what); /* level-triggered; 0 to pause */
void watch_done(struct watch *w);           /* does not close the fd */

/* A signal delivered as a call-back on the loop. */
int loop_signal(struct loop *l, int signo, void (*fire)(void *arg), void *arg,
                struct error *err) must_check;
