/* SPDX-License-Identifier: Apache-2.0 */
/* What outlives the agent, and the property that no faulty gpu is ever ok. */
#include "base/buf.h"
#include "health_bed.h"

/* ---- a restart of the agent ---- */

static void restart(struct bed *b, const char *boot, bool survey_first)
{
    static const struct plugin_config defaults;
    auto_buf text;
    struct error err;
    buf_init(&text, 1024 * 1024);
    health_save(b->h, &text);
    assert_false(text.failed);
    health_free(b->h);
    assert_int_equal(health_new(&defaults, &b->h, &err), 0);
    health_boot(b->h, boot);
    if (survey_first)
        health_survey(b->h, b->s, b->now);
    if (health_load(b->h, buf_view(&text), b->now, &err) < 0)
        fail_msg("%s", err.text);
    /* Same state, same bytes; the times of the boot before mean nothing in this one. */
    auto_buf again;
    buf_init(&again, 1024 * 1024);
    if (strstr(text.p, boot) && !survey_first) {
        health_save(b->h, &again);
        assert_string_equal(text.p, again.p);
    }
}

static void test_restart(void **state)
{
    for (int survey_first = 0; survey_first < 2; survey_first++) {
        struct bed b = bed_new(3, NULL);
        make_part(b.s, 2, "1g.10gb");
        make_part(b.s, 2, "1g.10gb");
        look(&b, 1);
        health_boot(b.h, "boot-1");
        xid(&b, 0, 79);
        event_at(&b, GPU_EVENT_XID, 2, 1, 0, 48);
        int64_t since = gpu_view(&b, 0).since_ns;
        b.now += 5 * SEC;
        /* The new agent counts generations from its own start. */
        b.s->gpus[0].generation = 3;
        restart(&b, "boot-1", survey_first);
        look(&b, 60);
        look(&b, 60);
        assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-79");
        assert_int_equal(gpu_view(&b, 0).since_ns, since);
        assert_gpu(&b, 1, HEALTH_OK, NULL);
        assert_int_equal(health_part(b.h, b.s->gpus[2].uuid, 1, 0).state, HEALTH_UNHEALTHY);
        assert_int_equal(health_part(b.h, b.s->gpus[2].uuid, 2, 0).state, HEALTH_OK);
        b.s->gpus[0].generation = 4;
        look(&b, 4);
        assert_gpu(&b, 0, HEALTH_OK, NULL);
        bed_done(&b);
    }
}

/* A reset while no agent ran shows in the energy counter. */
static void test_reset_between_agents(void **state)
{
    struct bed b = bed_new(1, NULL);
    b.s->gpus[0].valid |= GPU_HAS_ENERGY;
    b.s->gpus[0].energy_mj = 100000;
    look(&b, 1);
    xid(&b, 0, 95);
    look(&b, 1);
    b.s->gpus[0].energy_mj = 40;
    restart(&b, "boot-1", false);
    look(&b, 1);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-95");
    look(&b, 2);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    bed_done(&b);
}

/* Lost before the agent's restart and well after it: a reset only if nothing else ends that loss.
 */
static void test_lost_between_agents(void **state)
{
    static const struct {
        int code;
        bool reset;
    } cases[] = { { 15, true }, { 16, true }, { 28, true }, { 999, false }, { 11, false } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bed b = bed_new(1, NULL);
        xid(&b, 0, 79);
        look(&b, 1);
        b.s->gpus[0].lost = cases[i].code;
        look(&b, 1);
        restart(&b, "boot-1", false);
        b.s->gpus[0].lost = 0;
        look(&b, 20);
        look(&b, 20);
        if (cases[i].reset)
            assert_gpu(&b, 0, HEALTH_OK, NULL);
        else
            assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-79");
        bed_done(&b);
    }
}

static void test_reboot(void **state)
{
    struct bed b = bed_new(3, NULL);
    health_boot(b.h, "boot-1");
    xid(&b, 0, 79);
    xid(&b, 1, 95);
    set_recovery(&b, 1, 2);
    lose(b.s, 2);
    look(&b, 1);
    b.s->gpus[2].lost = 0;
    b.now = 20 * SEC; /* the clock began anew */
    restart(&b, "boot-2", false);
    assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-79"); /* until a survey shows it well */
    look(&b, 1);
    assert_gpu(&b, 2, HEALTH_OK, NULL);
    look(&b, 2);
    assert_gpu(&b, 0, HEALTH_OK, NULL);
    assert_gpu(&b, 1, HEALTH_UNHEALTHY, "xid-95"); /* the driver still asks for more */
    assert_true(gpu_view(&b, 1).since_ns <= b.now);
    bed_done(&b);
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *text;
        enum error_code code;
    } cases[] = {
        { "", ERR_INVALID },
        { "{", ERR_INVALID },
        { "[]", ERR_INVALID },
        { "{}", ERR_INVALID },
        { "{\"gpus\":{}}", ERR_INVALID },
        { "{\"min_reader\":2,\"gpus\":[]}", ERR_UNSUPPORTED },
        { "{\"min_reader\":\"1\",\"gpus\":[]}", ERR_INVALID },
        { "{\"gpus\":[3]}", ERR_INVALID },
        { "{\"gpus\":[{\"uuid\":\"\",\"faults\":[]}]}", ERR_INVALID },
        { "{\"gpus\":[{\"uuid\":\"a\\u0000b\",\"faults\":[]}]}", ERR_INVALID },
        { "{\"gpus\":[{\"uuid\":\"a\",\"relapses\":6,\"faults\":[]}]}", ERR_INVALID },
        { "{\"gpus\":[{\"uuid\":\"a\",\"faults\":[{\"kind\":\"x\"}]}]}", ERR_INVALID },
        { "{\"gpus\":[{\"uuid\":\"a\",\"faults\":[{\"kind\":\"xid\"}]}]}", ERR_INVALID },
        { "{\"gpus\":[{\"uuid\":\"a\",\"faults\":[{\"kind\":\"xid\",\"value\":-1}]}]}",
          ERR_INVALID },
        { "{\"gpus\":[{\"uuid\":\"a\",\"faults\":[{\"kind\":\"xid\",\"gi\":4294967296}]}]}",
          ERR_INVALID },
        /* One good gpu before a bad one: nothing is taken over. */
        { "{\"gpus\":[{\"uuid\":\"GPU-01000100-0000-0000-0000-000000000000\",\"faults\":[{\"kind\":"
          "\"xid\",\"value\":79,\"needsReset\":true,\"resetSeen\":false,\"lostSeen\":false}]},{"
          "\"uuid\":7}]}",
          ERR_INVALID },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bed b = bed_new(1, NULL);
        struct error err;
        int r = health_load(b.h, str_of(cases[i].text), b.now, &err);
        if (r != -(int)cases[i].code)
            fail_msg("case %zu: %d %s", i, r, r < 0 ? err.text : "");
        assert_gpu(&b, 0, HEALTH_OK, NULL);
        bed_done(&b);
    }
}

static void test_no_memory(void **state)
{
    static const char text[] =
        "{\"version\":1,\"min_reader\":1,\"boot\":\"b\",\"gpus\":[{\"uuid\":\"GPU-01000100-0000-"
        "0000-0000-000000000000\",\"relapses\":1,\"faults\":[{\"kind\":\"xid\",\"value\":79,"
        "\"needsReset\":true,\"resetSeen\":false,\"lostSeen\":false,\"since\":5,\"energy\":7}]}]}";
    bool done = false;
    for (uint64_t k = 1; !done && k < 200; k++) {
        struct bed b = bed_new(1, NULL);
        struct error err;
        mem_fail_at(k);
        int r = health_load(b.h, STR(text), b.now, &err);
        done = mem_fail_at(0) < k;
        if (r < 0)
            assert_gpu(&b, 0, HEALTH_OK, NULL);
        else
            assert_gpu(&b, 0, HEALTH_UNHEALTHY, "xid-79");
        assert_int_equal(r < 0, !done);
        bed_done(&b);
    }
    assert_true(done);
}

/* ---- property: a faulty gpu is never ok, and what is over comes back in time ---- */

/* What a gpu really is, apart from what health was told. */
struct truth {
    bool lost, dead; /* dead: a fault that only a reset ends */
    int64_t well_ns; /* since when nothing is wrong */
};

enum { GPUS = 4, BOUND_S = 320 };

static void misfortune(struct bed *b, struct truth *t, size_t gpu)
{
    static const uint64_t fatal[] = { 46, 48, 79, 95, 119, 140, 999 }, mild[] = { 8, 69, 94, 137 };
    struct gpu *g = &b->s->gpus[gpu];
    switch (rand() % 9) {
    case 0:
    case 1:
        xid(b, (int)gpu, fatal[(size_t)rand() % ARRAY_LEN(fatal)]);
        t->dead = true;
        if (g->valid & GPU_HAS_RECOVERY)
            g->recovery_action = 1 + (uint32_t)rand() % 4;
        break;
    case 2:
        xid(b, (int)gpu, mild[(size_t)rand() % ARRAY_LEN(mild)]);
        t->well_ns = MAX(t->well_ns, b->now);
        break;
    case 3:
        xid(b, (int)gpu, 31);
        break;
    case 4:
        t->lost = true;
        g->lost = 15;
        event_at(b, GPU_EVENT_WAIT_FAILED, -1, UINT32_MAX, UINT32_MAX, 15);
        break;
    case 5: /* found again: that takes a reset, but may not have been enough */
        if (t->lost) {
            t->well_ns = b->now;
            t->dead = (g->valid & GPU_HAS_RECOVERY) && g->recovery_action;
            g->generation++;
        }
        t->lost = false;
        g->lost = 0;
        break;
    case 6: /* a reset */
        if (!t->lost) {
            g->generation++;
            g->energy_mj = 1;
            g->recovery_action = 0;
            if (t->dead)
                t->well_ns = b->now;
            t->dead = false;
        }
        break;
    case 7:
        health_driver(b->h, DRIVER_HUNG, true, b->now);
        break;
    default:
        event_at(b, GPU_EVENT_ECC_DOUBLE, (int)gpu, UINT32_MAX, UINT32_MAX, 0);
        break;
    }
}

static void check_truth(const struct bed *b, const struct truth *t, bool settled)
{
    for (size_t i = 0; i < GPUS; i++) {
        struct health_view v = gpu_view(b, i);
        bool faulty = t[i].dead || (t[i].lost && settled);
        assert_false(faulty && v.state == HEALTH_OK);
        assert_true((v.state == HEALTH_OK) == !v.reason);
        if (!faulty && !t[i].lost && settled && b->now - t[i].well_ns > BOUND_S * SEC)
            assert_int_equal(v.state, HEALTH_OK);
    }
}

/* The agent surveys as soon as it is wanted. */
static void survey_if_wanted(struct bed *b)
{
    if (!health_wants_survey(b->h))
        return;
    b->now += SEC / 2;
    health_survey(b->h, b->s, b->now);
    assert_false(health_wants_survey(b->h));
}

/* The agent's part: ticks when asked, surveys when wanted. */
static void live(struct bed *b, const struct truth *t, int64_t until)
{
    while (b->now < until) {
        int64_t next = health_next_ns(b->h);
        assert_true(next > b->now - SEC);
        b->now = MIN(MAX(next, b->now + SEC / 2), until);
        health_tick(b->h, b->now);
        survey_if_wanted(b);
    }
    check_truth(b, t, false);
}

static void test_property_run(unsigned seed)
{
    srand(seed);
    struct bed b = bed_new(GPUS, NULL);
    struct truth t[GPUS] = { 0 };
    for (size_t i = 0; i < GPUS; i++) {
        t[i].well_ns = b.now;
        b.s->gpus[i].valid |= GPU_HAS_ENERGY;
        if (rand() % 2)
            set_recovery(&b, i, 0);
    }
    look(&b, 1);
    for (int step = 0; step < 60; step++) {
        size_t gpu = (size_t)rand() % GPUS;
        for (size_t i = 0; i < GPUS; i++)
            b.s->gpus[i].energy_mj += 100;
        misfortune(&b, &t[gpu], gpu);
        check_truth(&b, t, false);
        survey_if_wanted(&b);
        check_truth(&b, t, false);
        if (rand() % 3 == 0)
            live(&b, t, b.now + (rand() % 60) * SEC);
        if (rand() % 10 == 0) {
            restart(&b, "boot-1", rand() % 2);
            survey_if_wanted(&b);
        }
        if (rand() % 20 == 0) {
            look(&b, 1);
            live(&b, t, b.now + (BOUND_S + 30) * SEC);
            check_truth(&b, t, true);
        }
    }
    bed_done(&b);
}

static void test_properties(void **state)
{
    for (unsigned seed = 0; seed < 300; seed++)
        test_property_run(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_reset_between_agents),
        cmocka_unit_test(test_lost_between_agents),
        cmocka_unit_test(test_reboot),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
