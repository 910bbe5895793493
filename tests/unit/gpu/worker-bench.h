/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A loop with a GPU worker in it, and what was heard of it. The test program is the worker too. */
#include "fake.h"
#include "gpu/worker.h"
#include "io/loop.h"

struct bench {
    struct fake f;
    const struct host *host;
    struct loop *loop;
    struct gpu_worker *w;
    struct gpu_worker_config config;
    struct timer limit;

    struct survey *last;
    size_t surveys, events, states, notes;
    struct gpu_event event, failed, xid; /* the last one, the last failure, the last XID */
    size_t xids;
    enum driver_state state;
    bool stale;
    char why[640], first_why[640];
    bool (*until)(struct bench *b);
};

static inline void look(struct bench *b)
{
    if (b->until && b->until(b))
        loop_stop(b->loop, 1);
}

static inline void surveyed(void *arg, struct survey *s)
{
    struct bench *b = arg;
    survey_unref(b->last);
    b->last = survey_ref(s);
    b->surveys++;
    look(b);
}

static inline void event(void *arg, const struct gpu_event *e)
{
    struct bench *b = arg;
    b->event = *e;
    if (e->kind == GPU_EVENT_WAIT_FAILED)
        b->failed = *e;
    if (e->kind == GPU_EVENT_XID) {
        b->xid = *e;
        b->xids++;
    }
    b->events++;
    look(b);
}

static inline void state(void *arg, enum driver_state s, bool stale, const char *why)
{
    struct bench *b = arg;
    b->state = s;
    b->stale = stale;
    snprintf(b->why, sizeof b->why, "%s", why);
    b->states++;
    look(b);
}

static inline void note(void *arg, const char *text)
{
    struct bench *b = arg;
    b->notes++;
}

static inline void too_late(void *arg)
{
    struct bench *b = arg;
    loop_stop(b->loop, 0);
}

/* Runs until the condition holds; false after ten seconds. */
static inline bool wait_for(struct bench *b, bool (*until)(struct bench *b))
{
    if (until(b))
        return true;
    b->until = until;
    timer_set(&b->limit, 10000);
    int r = loop_run(b->loop);
    timer_stop(&b->limit);
    b->until = NULL;
    if (!r)
        print_error("surveys %zu, events %zu, state %s%s: %s\n", b->surveys, b->events,
                    driver_state_name(b->state), b->stale ? " stale" : "", b->why);
    return r;
}

static inline bool never(struct bench *b)
{
    return false;
}

/* Lets the loop run for a while. */
static inline void run_for(struct bench *b, int64_t ms)
{
    b->until = never;
    timer_set(&b->limit, ms);
    loop_run(b->loop);
    b->until = NULL;
}

/* Times short enough for a test; b->host is set. */
static inline void bench_config(struct bench *b)
{
    if (loop_new(&b->loop, NULL) < 0)
        abort();
    timer_init(&b->limit, b->loop, too_late, b);
    b->config = (struct gpu_worker_config){
        .host = b->host,
        .call_timeout_ms = 3000,
        .restart_ms = 20,
        .restart_max_ms = 200,
        .recheck_ms = 20,
        .reap_ms = 500,
        .poll_ms = 50,
        .watch_events = true,
        .arg = b,
        .surveyed = surveyed,
        .event = event,
        .state = state,
        .note = note,
    };
}

static inline void bench_done(struct bench *b)
{
    gpu_worker_free(b->w);
    timer_done(&b->limit);
    loop_free(b->loop);
    survey_unref(b->last);
}

/* `PROGRAM gpu-worker --host-root DIR --driver-root DIR …`, as worker_process.c starts it. */
static inline int bench_worker(char **argv)
{
    struct host h;
    const struct host_config paths = {
        .root = argv[3], .driver_root = argv[5], .driver_root_view = argv[7], .dev_root = argv[9]
    };
    return host_init(&h, &paths, NULL) < 0 ? 1 : gpu_worker_main(&h);
}
