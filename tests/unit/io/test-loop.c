/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/loop.h"

struct world {
    struct loop *loop;
    struct timer a, b;
    struct watch watch;
    int order[8], n, writes;
    int fds[2];
};

static int setup(void **state)
{
    struct world *w = x_alloc(sizeof *w);
    assert_int_equal(loop_new(&w->loop, NULL), 0);
    assert_int_equal(pipe(w->fds), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    loop_free(w->loop);
    close(w->fds[0]);
    if (w->fds[1] >= 0)
        close(w->fds[1]);
    free(w);
    return 0;
}

static void first(void *arg)
{
    struct world *w = arg;
    w->order[w->n++] = 1;
}

static void second(void *arg)
{
    struct world *w = arg;
    w->order[w->n++] = 2;
    loop_stop(w->loop, 42);
}

static void timers(void **state)
{
    struct world *w = *state;
    timer_init(&w->a, w->loop, first, w);
    timer_init(&w->b, w->loop, second, w);
    timer_set(&w->b, 30);
    timer_set(&w->a, 5);
    assert_true(timer_pending(&w->a));
    assert_int_equal(loop_run(w->loop), 42);
    assert_int_equal(w->n, 2);
    assert_int_equal(w->order[0], 1);
    assert_false(timer_pending(&w->a));
    /* moved, stopped, used again */
    timer_set(&w->a, 1);
    timer_set(&w->a, 10000);
    timer_set(&w->b, 0);
    loop_run(w->loop);
    assert_int_equal(w->n, 3);
    timer_stop(&w->a);
    assert_false(timer_pending(&w->a));
    timer_done(&w->a);
    timer_done(&w->a);
    timer_set(&w->a, 1);
    timer_done(&w->b);
}

static void done_in_own_callback(void *arg)
{
    struct world *w = arg;
    timer_done(&w->a);
    loop_stop(w->loop, 1);
}

static void timer_ends_in_its_callback(void **state)
{
    struct world *w = *state;
    timer_init(&w->a, w->loop, done_in_own_callback, w);
    timer_set(&w->a, 0);
    assert_int_equal(loop_run(w->loop), 1);
}

static void ready(void *arg, int what)
{
    struct world *w = arg;
    if (what & IO_WRITE) {
        w->writes++;
        return;
    }
    char c;
    assert_int_equal(read(w->fds[0], &c, 1), 1);
    loop_stop(w->loop, c);
}

static void watches(void **state)
{
    struct world *w = *state;
    watch_init(&w->watch, w->loop, w->fds[0], ready, w);
    watch_want(&w->watch, IO_READ);
    assert_int_equal(write(w->fds[1], "xy", 2), 2);
    assert_int_equal(loop_run(w->loop), 'x');
    assert_int_equal(loop_run(w->loop), 'y'); /* level-triggered */
    assert_int_equal(write(w->fds[1], "z", 1), 1);
    watch_want(&w->watch, 0); /* paused */
    timer_init(&w->b, w->loop, second, w);
    timer_set(&w->b, 10);
    assert_int_equal(loop_run(w->loop), 42);
    watch_want(&w->watch, IO_READ);
    assert_int_equal(loop_run(w->loop), 'z');
    watch_done(&w->watch);
    timer_done(&w->b);
    struct watch out;
    watch_init(&out, w->loop, w->fds[1], ready, w);
    watch_want(&out, IO_WRITE);
    timer_init(&w->b, w->loop, second, w);
    timer_set(&w->b, 1);
    loop_run(w->loop);
    assert_true(w->writes > 0);
    watch_done(&out);
    timer_done(&w->b);
}

static void got_signal(void *arg)
{
    struct world *w = arg;
    loop_stop(w->loop, 9);
}

static void signals(void **state)
{
    struct world *w = *state;
    assert_int_equal(loop_signal(w->loop, SIGUSR1, got_signal, w, NULL), 0);
    raise(SIGUSR1);
    assert_int_equal(loop_run(w->loop), 9);
    struct error err;
    assert_int_equal(loop_signal(w->loop, 9999, got_signal, w, &err), -ERR_INTERNAL);
}

/* Owners may end before or after their loop. */
static void owners_outlive_the_loop(void **state)
{
    struct world *w = *state;
    struct loop *l;
    struct timer t;
    struct watch x;
    assert_int_equal(loop_new(&l, NULL), 0);
    timer_init(&t, l, first, w);
    timer_set(&t, 5);
    watch_init(&x, l, w->fds[0], ready, w);
    watch_want(&x, IO_READ);
    loop_free(l);
    assert_false(timer_pending(&t));
    timer_set(&t, 1);
    timer_stop(&t);
    watch_want(&x, IO_READ | IO_WRITE);
    timer_done(&t);
    watch_done(&x);
    loop_free(NULL);
}

static void idle_costs_nothing(void **state)
{
    struct world *w = *state;
    struct rusage before, after;
    watch_init(&w->watch, w->loop, w->fds[0], ready, w);
    watch_want(&w->watch, IO_READ);
    timer_init(&w->b, w->loop, second, w);
    timer_set(&w->b, 200);
    getrusage(RUSAGE_SELF, &before);
    loop_run(w->loop);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_nvcsw - before.ru_nvcsw < 10); /* woke up for the timer, not in between */
    watch_done(&w->watch);
    timer_done(&w->b);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(timers),  T(timer_ends_in_its_callback), T(watches),
        T(signals), T(owners_outlive_the_loop),    T(idle_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
