/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* One simulated host's health under a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "make_survey.h"
#include "node/health.h"

#define SEC INT64_C(1000000000)

/* One host under a clock of its own. */
struct bed {
    struct health *h;
    struct survey *s;
    int64_t now;
};

static inline struct bed bed_new(size_t gpus, const struct plugin_config *config)
{
    static const struct plugin_config defaults;
    struct bed b = { .s = make_survey(gpus), .now = 1000 * SEC };
    struct error err;
    assert_int_equal(health_new(config ? config : &defaults, &b.h, &err), 0);
    health_survey(b.h, b.s, b.now);
    return b;
}

static inline void bed_done(struct bed *b)
{
    health_free(b->h);
    survey_unref(b->s);
}

static inline void look(struct bed *b, int64_t later_s)
{
    b->now += later_s * SEC;
    health_tick(b->h, b->now);
    health_survey(b->h, b->s, b->now);
}

static inline bool event_at(struct bed *b, enum gpu_event_kind kind, int gpu, uint32_t gi,
                            uint32_t ci, uint64_t value)
{
    struct gpu_event e = { .kind = kind, .gi = gi, .ci = ci, .value = value };
    if (gpu >= 0)
        snprintf(e.uuid, sizeof e.uuid, "%s", b->s->gpus[gpu].uuid);
    return health_event(b->h, &e, b->now);
}

static inline bool xid(struct bed *b, int gpu, uint64_t value)
{
    return event_at(b, GPU_EVENT_XID, gpu, UINT32_MAX, UINT32_MAX, value);
}

static inline struct health_view gpu_view(const struct bed *b, size_t gpu)
{
    return health_gpu(b->h, b->s->gpus[gpu].uuid);
}

static inline void assert_gpu(const struct bed *b, size_t gpu, enum health_state state,
                              const char *reason)
{
    struct health_view v = gpu_view(b, gpu);
    assert_int_equal(v.state, state);
    if (!reason) {
        assert_null(v.reason);
        return;
    }
    assert_non_null(v.reason);
    assert_string_equal(v.reason, reason);
    assert_true(v.text && strlen(v.text) > 10);
}

static inline void set_recovery(struct bed *b, size_t gpu, uint32_t action)
{
    b->s->gpus[gpu].valid |= GPU_HAS_RECOVERY;
    b->s->gpus[gpu].recovery_action = action;
}
