/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/mem.h"
#include "gpu/worker.h"

struct once {
    struct loop *loop;
    struct survey *survey;
    char why[480]; /* the last state, when no survey comes */
};

static void surveyed(void *arg, struct survey *s)
{
    struct once *o = arg;
    if (!o->survey)
        o->survey = survey_ref(s);
    loop_stop(o->loop, 0);
}

static void state(void *arg, enum driver_state s, bool stale, const char *why)
{
    struct once *o = arg;
    snprintf(o->why, sizeof o->why, "%s", why);
}

static void too_late(void *arg)
{
    struct once *o = arg;
    loop_stop(o->loop, 1);
}

static int run(struct once *o, const struct host *h, int64_t timeout_ms, struct error *err)
{
    struct gpu_worker *w;
    struct timer t;
    const struct gpu_worker_config config = {
        .host = h,
        /* So that a hung call is named before the time is up. */
        .call_timeout_ms = timeout_ms * 3 / 5,
        .arg = o,
        .surveyed = surveyed,
        .state = state,
    };
    int r = gpu_worker_new(o->loop, &config, &w, err);
    if (r < 0)
        return r;
    timer_init(&t, o->loop, too_late, o);
    timer_set(&t, timeout_ms);
    loop_run(o->loop);
    timer_done(&t);
    gpu_worker_free(w);
    if (o->survey)
        return 0;
    return error_set(err, ERR_UNAVAILABLE, 0, "no survey within %lld ms: %s", (long long)timeout_ms,
                     o->why[0] ? o->why : "the GPU worker does not answer");
}

int gpu_survey_once(const struct host *h, int64_t timeout_ms, struct survey **ret,
                    struct error *err)
{
    struct once o = { 0 };
    int r = loop_new(&o.loop, err);
    if (r < 0)
        return r;
    r = run(&o, h, timeout_ms, err);
    loop_free(o.loop);
    if (r < 0)
        survey_unref(o.survey);
    else
        *ret = o.survey;
    return r;
}
