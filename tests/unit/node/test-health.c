/* SPDX-License-Identifier: Apache-2.0 */
#include "health_bed.h"

/* ---- which XIDs count ---- */

static void test_policy(void **state)
{
    static const uint32_t n79[] = { 79 }, n13_79[] = { 13, 79 }, n94[] = { 94 };
    static const struct {
        bool disable_all, enable_all;
        const uint32_t *disabled, *enabled;
        size_t n_disabled, n_enabled;
        uint64_t xid;
        bool acts;
    } cases[] = {
        { .xid = 79, .acts = true },
        { .xid = 94, .acts = true },
        { .xid = 999, .acts = true }, /* B-048 */
        { .xid = 13 },
        { .xid = 31 },
        { .xid = 43 },
        { .xid = 45 },
        { .xid = 68 },
        { .xid = 109 },
        { .xid = 79, .disable_all = true },
        { .xid = 79, .disabled = n79, .n_disabled = 1 },
        { .xid = 48, .disabled = n79, .n_disabled = 1, .acts = true },
        { .xid = 13, .enabled = n13_79, .n_enabled = 2, .acts = true },
        { .xid = 109, .enable_all = true, .acts = true },
        /* The peer switches everything off here. */
        { .xid = 79, .disable_all = true, .enabled = n79, .n_enabled = 1, .acts = true },
        { .xid = 48, .disable_all = true, .enabled = n79, .n_enabled = 1 },
        { .xid = 94,
          .disabled = n94,
          .n_disabled = 1,
          .enabled = n94,
          .n_enabled = 1,
          .acts = true },
        { .xid = 31, .disable_all = true, .enable_all = true, .acts = true },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plugin_config c = { 0 };
        c.health.disable_all = cases[i].disable_all;
        c.health.enable_all = cases[i].enable_all;
        c.health.disabled = cases[i].disabled;
        c.health.enabled = cases[i].enabled;
        c.health.n_disabled = cases[i].n_disabled;
        c.health.n_enabled = cases[i].n_enabled;
        struct bed b = bed_new(2, &c);
        char reason[32];
        snprintf(reason, sizeof reason, "xid-%llu", (unsigned long long)cases[i].xid);
        assert_int_equal(xid(&b, 1, cases[i].xid), cases[i].acts);
        assert_gpu(&b, 1, cases[i].acts ? HEALTH_UNHEALTHY : HEALTH_OK,
                   cases[i].acts ? reason : NULL);
        assert_gpu(&b, 0, HEALTH_OK, NULL);
        assert_int_equal(health_evidence(b.h, b.s->gpus[1].uuid).passed_over, !cases[i].acts);
        bed_done(&b);
    }
}

static void test_new_config(void **state)
{
    static const uint32_t n79[] = { 79 };
    struct bed b = bed_new(1, NULL);
    xid(&b, 0, 79);
    xid(&b, 0, 48);
    struct plugin_config c = { 0 };
    c.health.disabled = n79;
    c.health.n_disabled = 1;
    health_config(b.h, &c);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-48");
    c.health.disable_all = true;
    health_config(b.h, &c);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    /* Off means off: only what is plainly lost is not offered. */
    set_recovery(&b, 0, 2);
    b.s->gpus[0].valid |= GPU_HAS_REMAP;
    b.s->gpus[0].remap_failed = 1;
    event_at(&b, GPU_EVENT_UNAVAILABLE, 0, UINT32_MAX, UINT32_MAX, 0);
    event_at(&b, GPU_EVENT_WAIT_FAILED, -1, UINT32_MAX, UINT32_MAX, 999);
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    lose(b.s, 0);
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "lost");
    bed_done(&b);
}

/* ---- the way back ---- */

static void test_application_fault(void **state)
{
    struct bed b = bed_new(2, NULL);
    assert_true(xid(&b, 0, 94)); /* B-045 */
    assert_true(health_wants_survey(b.h));
    assert_int_equal(gpu_view(&b, 0).since_ns, b.now);
    look(&b, 9);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-94");
    xid(&b, 0, 94); /* again: the quiet time starts anew, since does not */
    look(&b, 9);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-94");
    assert_int_equal(gpu_view(&b, 0).since_ns, 1000 * SEC);
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    assert_int_equal(health_next_ns(b.h), INT64_MAX);
    bed_done(&b);
}

static void test_reset_needed(void **state)
{
    struct bed b = bed_new(2, NULL);
    xid(&b, 0, 79);
    assert_true(health_wants_survey(b.h));
    for (int i = 0; i < 100; i++) { /* B-047: that it answers proves nothing */
        look(&b, 60);
        assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-79");
    }
    b.s->gpus[0].generation++;
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    assert_gpu(&b, 1, HEALTH_OK, NULL);
    bed_done(&b);

    /* The energy counter went back to its start. */
    b = bed_new(1, NULL);
    b.s->gpus[0].valid |= GPU_HAS_ENERGY;
    b.s->gpus[0].energy_mj = 5000;
    look(&b, 1);
    xid(&b, 0, 95);
    look(&b, 1);
    b.s->gpus[0].energy_mj = 6000;
    look(&b, 20);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-95");
    b.s->gpus[0].energy_mj = 10;
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    bed_done(&b);

    /* A reset before the XID, that no survey had seen, is no proof. */
    b = bed_new(1, NULL);
    b.s->gpus[0].generation = 4;
    xid(&b, 0, 48);
    look(&b, 30);
    look(&b, 30);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-48");
    bed_done(&b);

    /* An XID before any survey takes the first one as its start. */
    static const struct plugin_config defaults;
    struct error err;
    b.s = make_survey(1);
    b.s->gpus[0].generation = 7;
    assert_int_equal(health_new(&defaults, &b.h, &err), 0);
    assert_gpu(&b, 0, HEALTH_UNKNOWN, "not-surveyed");
    xid(&b, 0, 48);
    look(&b, 30);
    look(&b, 30);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-48");
    b.s->gpus[0].generation = 8;
    look(&b, 30);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    bed_done(&b);
}

/* Field 230 wins over the table both ways. */
static void test_recovery_action(void **state)
{
    struct bed b = bed_new(2, NULL);
    set_recovery(&b, 0, 0);
    set_recovery(&b, 1, 0);
    look(&b, 1);
    /* Needs a reset by the table, but the driver sees no need. */
    xid(&b, 0, 95);
    look(&b, 9);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-95");
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    /* Only an application by the table, but the driver asks for a reset. */
    xid(&b, 1, 94);
    set_recovery(&b, 1, 1);
    look(&b, 60);
    assert_gpu(&b, 1, HEALTH_UNHEALTHY, "xid-94");
    look(&b, 600);
    assert_gpu(&b, 1, HEALTH_UNHEALTHY, "xid-94");
    set_recovery(&b, 1, 0);
    look(&b, 2);
    assert_gpu(&b, 1, HEALTH_UNHEALTHY, "recovery-action");
    look(&b, 1);
    assert_gpu(&b, 1, HEALTH_OK, NULL);
    bed_done(&b);

    /* No XID at all, or an ignored one: the action alone withdraws. Text follows the action. */
    b = bed_new(1, NULL);
    set_recovery(&b, 0, 1);
    assert_false(xid(&b, 0, 109));
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "recovery-action");
    assert_non_null(strstr(gpu_view(&b, 0).text, "reset the gpu"));
    set_recovery(&b, 0, 2);
    look(&b, 1);
    assert_non_null(strstr(gpu_view(&b, 0).text, "reboot the node"));
    set_recovery(&b, 0, 77);
    look(&b, 1);
    assert_non_null(strstr(gpu_view(&b, 0).text, "recovery action 77"));
    /* A gpu with a reset behind it that still wants one stays away. */
    b.s->gpus[0].generation++;
    look(&b, 60);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "recovery-action");
    bed_done(&b);
}

static void test_worst_open_fault(void **state)
{
    struct bed b = bed_new(1, NULL);
    xid(&b, 0, 94);
    b.now += SEC;
    xid(&b, 0, 79);
    assert_false(xid(&b, 0, 31)); /* B-055 */
    assert_false(xid(&b, 0, 43));
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-79");
    look(&b, 30); /* 94 is over, 79 is not */
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-79");
    assert_int_equal(health_evidence(b.h, b.s->gpus[0].uuid).last_passed_over, 43);
    bed_done(&b);
}

/* B-056: more kinds of fault than there is room for stay one unhealthy gpu. */
static void test_many_faults(void **state)
{
    struct bed b = bed_new(1, NULL);
    for (uint64_t i = 200; i < 300; i++)
        xid(&b, 0, i);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-200");
    look(&b, 1000);
    assert_int_equal(gpu_view(&b, 0).state, HEALTH_UNHEALTHY);
    b.s->gpus[0].generation++;
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    bed_done(&b);
}

static void test_relapses(void **state)
{
    static const int64_t quiet[] = { 10, 20, 40, 80, 160, 300, 300 };
    struct bed b = bed_new(1, NULL);
    for (size_t i = 0; i < ARRAY_LEN(quiet); i++) {
        xid(&b, 0, 94);
        look(&b, quiet[i] - 1);
        assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-94");
        look(&b, 1);
        assert_gpu(&b, 0, HEALTH_OK, NULL);
    }
    look(&b, 601); /* well for ten minutes: forgiven */
    xid(&b, 0, 94);
    look(&b, 10);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    bed_done(&b);
}

static void test_row_remap(void **state)
{
    struct bed b = bed_new(1, NULL);
    struct gpu *g = &b.s->gpus[0];
    g->valid |= GPU_HAS_REMAP;
    g->remap_pending = 1;
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL); /* told, not acted on */
    assert_non_null(strstr(gpu_view(&b, 0).text, "memory row"));
    xid(&b, 0, 63);
    look(&b, 100);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-63"); /* until the remap took place */
    g->remap_pending = 0;
    g->generation++;
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    assert_null(gpu_view(&b, 0).text);
    g->remap_failed = 1;
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "row-remap-failed");
    g->generation++;
    look(&b, 100);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "row-remap-failed");
    bed_done(&b);
}

static void test_ecc_is_evidence(void **state)
{
    struct bed b = bed_new(1, NULL);
    assert_false(event_at(&b, GPU_EVENT_ECC_DOUBLE, 0, UINT32_MAX, UINT32_MAX, 0));
    assert_false(event_at(&b, GPU_EVENT_ECC_SINGLE, 0, UINT32_MAX, UINT32_MAX, 0));
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    assert_int_equal(health_evidence(b.h, b.s->gpus[0].uuid).ecc_double, 1);
    assert_int_equal(health_evidence(b.h, "GPU-none").ecc_double, 0);
    bed_done(&b);
}

/* ---- parts ---- */

/* B-050 (b) */
static void test_parts(void **state)
{
    struct bed b = bed_new(2, NULL);
    static const uint32_t gi[] = { 1, 2, 5, 5 }, ci[] = { 0, 0, 0, 1 };
    for (size_t i = 0; i < 4; i++) {
        struct part *p = make_part(b.s, 0, "1g.10gb");
        p->gi = gi[i];
        p->ci = ci[i];
    }
    look(&b, 1);
    static const struct {
        uint32_t gi, ci;
        bool sick[4];
    } events[] = {
        { 2, 0, { false, true, false, false } },
        { 5, 1, { false, true, false, true } },
        { 5, UINT32_MAX, { false, true, true, true } },
        { UINT32_MAX, UINT32_MAX, { true, true, true, true } },
    };
    for (size_t e = 0; e < ARRAY_LEN(events); e++) {
        event_at(&b, GPU_EVENT_XID, 0, events[e].gi, events[e].ci, 48);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(health_part(b.h, b.s->gpus[0].uuid, gi[i], ci[i]).state,
                             events[e].sick[i] ? HEALTH_UNHEALTHY : HEALTH_OK);
        assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-48");
        assert_gpu(&b, 1, HEALTH_OK, NULL);
    }
    bed_done(&b);
}

static void test_parts_change(void **state)
{
    struct bed b = bed_new(1, NULL);
    const char *uuid = b.s->gpus[0].uuid;
    make_part(b.s, 0, "1g.10gb")->ci = 0;
    make_part(b.s, 0, "1g.10gb")->ci = 0;
    look(&b, 1);
    event_at(&b, GPU_EVENT_XID, 0, 2, 0, 94);
    assert_int_equal(health_part(b.h, uuid, 1, 0).state, HEALTH_OK);
    assert_int_equal(health_part(b.h, uuid, 2, 0).state, HEALTH_UNHEALTHY);
    b.s->gpus[0].n_parts = 1; /* destroyed: its application fault goes with it */
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    b.s->gpus[0].n_parts = 2;
    look(&b, 1);
    event_at(&b, GPU_EVENT_XID, 0, 2, 0, 95);
    b.s->gpus[0].n_parts = 1; /* a fault that needs a reset is the gpu's from now on */
    look(&b, 1);
    assert_int_equal(health_part(b.h, uuid, 1, 0).state, HEALTH_UNHEALTHY);
    b.s->gpus[0].generation++;
    look(&b, 20);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    /* An instance that no survey has shown: the whole gpu. */
    event_at(&b, GPU_EVENT_XID, 0, 9, 0, 94);
    assert_int_equal(health_part(b.h, uuid, 1, 0).state, HEALTH_UNHEALTHY);
    bed_done(&b);
}

/* ---- lost gpus ---- */

static void test_lost(void **state)
{
    struct bed b = bed_new(3, NULL);
    lose(b.s, 1);
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    assert_gpu(&b, 1, HEALTH_UNHEALTHY, "lost");
    assert_non_null(strstr(gpu_view(&b, 1).text, "15"));
    b.s->gpus[1].lost = 0;
    look(&b, 1);
    assert_gpu(&b, 1, HEALTH_UNHEALTHY, "lost");
    look(&b, 2);
    assert_gpu(&b, 1, HEALTH_OK, NULL);
    /* B-052: no longer counted at all. */
    b.s->n_gpus = 2;
    look(&b, 1);
    assert_gpu(&b, 2, HEALTH_UNHEALTHY, "lost");
    assert_non_null(strstr(gpu_view(&b, 2).text, "no longer lists"));
    look(&b, 100);
    int64_t soon = health_next_ns(b.h) - b.now;
    assert_true(soon > 0 && soon <= 10 * SEC);
    look(&b, 4000); /* taken out for good: no longer looked for */
    assert_int_equal(health_next_ns(b.h), INT64_MAX);
    b.s->n_gpus = 3;
    look(&b, 3);
    assert_gpu(&b, 2, HEALTH_OK, NULL);
    bed_done(&b);
}

static void test_lost_keeps_other_faults(void **state)
{
    struct bed b = bed_new(1, NULL);
    set_recovery(&b, 0, 0);
    look(&b, 1);
    xid(&b, 0, 79);
    lose(b.s, 0);
    look(&b, 100); /* its fields are old now: no proof of anything */
    b.s->gpus[0].lost = 0;
    set_recovery(&b, 0, 2);
    look(&b, 100);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-79");
    set_recovery(&b, 0, 0);
    look(&b, 10);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    bed_done(&b);
}

/* B-056: all are asked, one is lost. */
static void test_wait_failed(void **state)
{
    struct bed b = bed_new(8, NULL);
    assert_true(event_at(&b, GPU_EVENT_WAIT_FAILED, -1, UINT32_MAX, UINT32_MAX, 15));
    assert_true(health_wants_survey(b.h));
    for (size_t i = 0; i < 8; i++)
        assert_gpu(&b, i, HEALTH_UNKNOWN, "unknown");
    /* A survey that was already under way does not settle it; the next does. */
    b.now += SEC / 10;
    health_survey(b.h, b.s, b.now);
    assert_gpu(&b, 0, HEALTH_UNKNOWN, "unknown");
    assert_true(health_next_ns(b.h) - b.now < SEC);
    lose(b.s, 5);
    look(&b, 1);
    for (size_t i = 0; i < 8; i++)
        assert_gpu(&b, i, i == 5 ? HEALTH_UNHEALTHY : HEALTH_OK, i == 5 ? "lost" : NULL);
    bed_done(&b);

    /* No survey comes: not offered for ever. */
    b = bed_new(2, NULL);
    event_at(&b, GPU_EVENT_WAIT_FAILED, -1, UINT32_MAX, UINT32_MAX, 15);
    assert_int_equal(health_next_ns(b.h), b.now + 5 * SEC);
    b.now += 5 * SEC;
    assert_true(health_tick(b.h, b.now));
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "unknown");
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);

    /* Of one gpu: that one. */
    event_at(&b, GPU_EVENT_WAIT_FAILED, 1, UINT32_MAX, UINT32_MAX, 999);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    assert_gpu(&b, 1, HEALTH_UNHEALTHY, "wait-failed");
    look(&b, 10);
    assert_gpu(&b, 1, HEALTH_OK, NULL);
    bed_done(&b);
}

/* B-053: gpus answer, but nobody would see their faults. */
static void test_no_monitor(void **state)
{
    struct bed b = bed_new(2, NULL);
    for (int i = 0; i < 7; i++) {
        event_at(&b, GPU_EVENT_WAIT_FAILED, -1, UINT32_MAX, UINT32_MAX, 999);
        assert_gpu(&b, 0, i < 6 ? HEALTH_UNKNOWN : HEALTH_UNHEALTHY,
                   i < 6 ? "unknown" : "no-monitor");
        look(&b, 10);
    }
    assert_gpu(&b, 1, HEALTH_UNHEALTHY, "no-monitor");
    look(&b, 20);
    assert_gpu(&b, 1, HEALTH_OK, NULL);
    /* GPU_IS_LOST from the wait for a lost gpu says nothing about the others. */
    lose(b.s, 0);
    for (int i = 0; i < 20; i++) {
        event_at(&b, GPU_EVENT_WAIT_FAILED, -1, UINT32_MAX, UINT32_MAX, 15);
        look(&b, 10);
        assert_gpu(&b, 1, HEALTH_OK, NULL);
    }
    bed_done(&b);
}

static void test_unattributed_xid(void **state)
{
    struct bed b = bed_new(3, NULL);
    set_recovery(&b, 0, 0);
    set_recovery(&b, 1, 0);
    look(&b, 1);
    xid(&b, -1, 79);
    assert_gpu(&b, 0, HEALTH_UNKNOWN, "unknown");
    assert_gpu(&b, 2, HEALTH_UNHEALTHY, "xid-79"); /* no way to clear it of suspicion */
    set_recovery(&b, 1, 2);
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    assert_gpu(&b, 1, HEALTH_UNHEALTHY, "recovery-action");
    bed_done(&b);
}

static void test_unavailable(void **state)
{
    struct bed b = bed_new(1, NULL);
    event_at(&b, GPU_EVENT_UNAVAILABLE, 0, UINT32_MAX, UINT32_MAX, 0);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "unavailable");
    look(&b, 10);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    assert_false(event_at(&b, GPU_EVENT_RECOVERY, 0, UINT32_MAX, UINT32_MAX, 0));
    assert_true(health_wants_survey(b.h));
    bed_done(&b);
}

/* ---- driver ---- */

static void test_driver(void **state)
{
    static const struct {
        enum driver_state state;
        bool stale, at_once;
        const char *reason;
    } cases[] = {
        { DRIVER_OK, true, false, "stale" },
        { DRIVER_HUNG, true, false, "driver-hung" },
        { DRIVER_HUNG, false, false, "driver-hung" },
        { DRIVER_NO_LIBRARY, false, false, "driver-gone" },
        { DRIVER_BAD_LIBRARY, false, false, "driver-gone" },
        { DRIVER_NO_PERMISSION, false, false, "driver-permission" },
        { DRIVER_ERROR, false, false, "driver-error" },
        { DRIVER_NOT_LOADED, false, true, "driver-gone" },
        { DRIVER_VERSION_MISMATCH, false, true, "driver-mismatch" },
        { DRIVER_RELEASED, false, true, "driver-released" },
        { DRIVER_STUCK, true, true, "driver-stuck" },
        { (enum driver_state)99, false, false, "driver-error" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bed b = bed_new(2, NULL);
        assert_true(health_driver(b.h, cases[i].state, cases[i].stale, b.now));
        if (!cases[i].at_once) {
            assert_gpu(&b, 0, HEALTH_UNKNOWN, cases[i].reason);
            assert_int_equal(health_next_ns(b.h), b.now + 30 * SEC);
            health_tick(b.h, b.now + 30 * SEC - 1);
            assert_gpu(&b, 0, HEALTH_UNKNOWN, cases[i].reason);
            assert_true(health_tick(b.h, b.now + 30 * SEC));
        }
        assert_gpu(&b, 1, HEALTH_UNHEALTHY, cases[i].reason);
        /* The worker is back, but only a good survey counts. */
        b.now += 40 * SEC;
        health_driver(b.h, DRIVER_OK, false, b.now);
        assert_gpu(&b, 1, HEALTH_UNHEALTHY, cases[i].reason);
        assert_true(health_wants_survey(b.h));
        look(&b, 1);
        assert_gpu(&b, 1, HEALTH_OK, NULL);
        assert_int_equal(health_next_ns(b.h), INT64_MAX);
        bed_done(&b);
    }
}

static void test_driver_by_survey(void **state)
{
    struct bed b = bed_new(1, NULL);
    xid(&b, 0, 94);
    struct survey *gone = make_survey(0);
    gone->driver = DRIVER_NOT_LOADED;
    assert_true(health_survey(b.h, gone, b.now + SEC));
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-94"); /* its own fault is told first */
    health_survey(b.h, gone, b.now + 100 * SEC);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-94"); /* and not cured by an absent driver */
    look(&b, 101);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    /* From hung to stuck: no second grace. */
    health_driver(b.h, DRIVER_HUNG, true, b.now);
    assert_gpu(&b, 0, HEALTH_UNKNOWN, "driver-hung");
    assert_true(health_driver(b.h, DRIVER_STUCK, true, b.now + SEC));
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "driver-stuck");
    survey_unref(gone);
    bed_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy),
        cmocka_unit_test(test_new_config),
        cmocka_unit_test(test_application_fault),
        cmocka_unit_test(test_reset_needed),
        cmocka_unit_test(test_recovery_action),
        cmocka_unit_test(test_worst_open_fault),
        cmocka_unit_test(test_many_faults),
        cmocka_unit_test(test_relapses),
        cmocka_unit_test(test_row_remap),
        cmocka_unit_test(test_ecc_is_evidence),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_change),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_lost_keeps_other_faults),
        cmocka_unit_test(test_wait_failed),
        cmocka_unit_test(test_no_monitor),
        cmocka_unit_test(test_unattributed_xid),
        cmocka_unit_test(test_unavailable),
        cmocka_unit_test(test_driver),
        cmocka_unit_test(test_driver_by_survey),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
