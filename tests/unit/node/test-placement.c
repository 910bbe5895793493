/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "make_survey.h"
#include "node/placement.h"
#include "node/placement_links.h"

enum { IDS_MAX = 4096 };

static struct plugin_config config;
static struct shared_resource entry;

static struct inventory *build(struct survey *s, enum mig_strategy strategy, uint32_t replicas)
{
    entry =
        (struct shared_resource){ .name = strategy == MIG_STRATEGY_MIXED ? "nvidia.com/mig-1g.10gb"
                                                                         : "nvidia.com/gpu",
                                  .all = true,
                                  .replicas = replicas };
    config = (struct plugin_config){ .mig_strategy = strategy };
    if (replicas)
        config.sharing =
            (struct sharing){ .kind = SHARING_TIME_SLICING, .resources = &entry, .n_resources = 1 };
    const struct inventory_input in = { .survey = s, .config = &config };
    struct inventory *inv = NULL;
    struct error err;
    if (inventory_build(&in, &inv, &err) < 0)
        fail_msg("%s", err.text);
    survey_unref(s);
    return inv;
}

/* A device by what a test writes: gpu place, then the share or part. */
static struct str id_of(const struct resource *r, uint32_t gpu, uint32_t n)
{
    for (size_t i = 0; i < r->n_devices; i++) {
        const struct device *d = &r->devices[i];
        uint32_t which = d->share != UINT32_MAX ? d->share : d->part != UINT32_MAX ? d->part : 0;
        if (d->gpu == gpu && which == n)
            return str_of(d->id);
    }
    fail_msg("no device %u/%u", gpu, n);
    return (struct str){ 0 };
}

struct call {
    struct str available[IDS_MAX], must[IDS_MAX];
    struct placement_request req;
    int rc;
    struct error err;
    bool distinct;
    char got[1024]; /* "0/1 3/0": gpu and share or part of each, as chosen */
};

/* "0/1 3/0", or "*" for all. */
static size_t parse(const struct resource *r, const char *text, struct str *ids)
{
    size_t n = 0;
    if (strcmp(text, "*") == 0)
        for (; n < r->n_devices; n++)
            ids[n] = str_of(r->devices[n].id);
    while (*text && *text != '*') {
        unsigned gpu, which;
        int used;
        assert_int_equal(sscanf(text, "%u/%u %n", &gpu, &which, &used), 2);
        ids[n++] = id_of(r, gpu, which);
        text += used;
    }
    return n;
}

static const char *choose(struct call *c, const struct inventory *inv, enum placement_policy policy,
                          const char *available, const char *must, int64_t size)
{
    const struct resource *r = &inv->resources[0];
    bool require = c->req.require_distinct;
    c->req = (struct placement_request){
        .available = c->available,
        .n_available = parse(r, available, c->available),
        .must_include = c->must,
        .n_must_include = parse(r, must, c->must),
        .size = size,
        .require_distinct = require,
    };
    auto_arena a;
    arena_init(&a, 16 * 1024 * 1024);
    const struct str *ids;
    size_t n;
    c->rc = placement_choose(&a, inv, r, policy, &c->req, &ids, &n, &c->distinct, &c->err);
    c->got[0] = '\0';
    for (size_t i = 0; c->rc == 0 && i < n; i++) {
        const struct device *d = resource_find(r, ids[i]);
        assert_non_null(d);
        size_t at = strlen(c->got);
        snprintf(c->got + at, sizeof c->got - at, "%s%u/%u", at ? " " : "", d->gpu,
                 d->share != UINT32_MAX  ? d->share
                 : d->part != UINT32_MAX ? d->part
                                         : 0);
    }
    return c->got;
}

static struct call call;

/* The recorded answers of the peer for whole gpus (h100/plain, a100/plain). */
static void test_recorded_plain(void **state)
{
    static const struct {
        const char *must;
        int64_t size;
        const char *want;
    } cases[] = {
        { "", 1, "0/0" },
        { "", 2, "0/0 1/0" },
        { "", 3, "0/0 1/0 2/0" },
        { "", 4, "0/0 1/0 2/0 3/0" },
        { "", 8, "0/0 1/0 2/0 3/0 4/0 5/0 6/0 7/0" },
        { "", 9, "" },
        { "7/0", 2, "6/0 7/0" },
        { "", 0, "" },
        { "", -1, "" },
        { "0/0 1/0", 1, "" },
        { "7/0 7/0 3/0", 2, "3/0 7/0" },
    };
    /* With links, with PCIe alone, and with no link read at all. */
    for (int kind = 0; kind < 3; kind++) {
        struct survey *s = make_survey(8);
        if (kind < 2)
            make_links(s, kind == 0 ? 18 : 0);
        struct inventory *inv = build(s, MIG_STRATEGY_NONE, 0);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            choose(&call, inv, PLACE_DISTRIBUTED, "*", cases[i].must, cases[i].size);
            assert_int_equal(call.rc, 0);
            if (kind == 2 && strcmp(cases[i].must, "7/0") == 0)
                assert_string_equal(call.got, "0/0 7/0"); /* nothing known: the lowest */
            else
                assert_string_equal(call.got, cases[i].want);
            assert_true(call.distinct);
        }
        inventory_free(inv);
    }
}

static void test_unknown_ids(void **state)
{
    for (int replicas = 0; replicas <= 4; replicas += 4) {
        struct inventory *inv = build(make_survey(2), MIG_STRATEGY_NONE, (uint32_t)replicas);
        const struct resource *r = &inv->resources[0];
        struct str must = STR("GPU-no-such"),
                   available[] = { STR("GPU-gone"), str_of(r->devices[0].id),
                                   str_of(r->devices[0].id) };
        struct placement_request req = { available, 3, &must, 1, 1, false };
        auto_arena a;
        arena_init(&a, 1024 * 1024);
        const struct str *ids;
        size_t n;
        bool distinct;
        struct error err;
        assert_int_equal(
            placement_choose(&a, inv, r, PLACE_DISTRIBUTED, &req, &ids, &n, &distinct, &err),
            -ERR_NOT_FOUND);
        assert_string_equal(err.text, "unable to retrieve list of required devices: no device with "
                                      "uuid: GPU-no-such");
        req.n_must_include = 0;
        assert_int_equal(
            placement_choose(&a, inv, r, PLACE_DISTRIBUTED, &req, &ids, &n, &distinct, &err), 0);
        assert_int_equal(n, 1);
        assert_true(str_is(ids[0], r->devices[0].id));
        inventory_free(inv);
    }
}

/* B-051: one gpu of four is lost and no link of it is known. */
static void test_lost(void **state)
{
    struct survey *s = make_survey(4);
    make_links(s, 0);
    lose(s, 3);
    for (size_t i = 0; i < 3; i++)
        set_link(s, i, 3, 255, 0);
    struct inventory *inv = build(s, MIG_STRATEGY_NONE, 0);
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "0/0 1/0 2/0", "", 1), "2/0");
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "0/0 1/0 2/0", "", 2), "0/0 1/0");
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "0/0 1/0 2/0 3/0", "", 1), "3/0");
    inventory_free(inv);
}

/* NVLink bridges, an 8-gpu cube mesh, and what a choice leaves behind. */
static void test_links(void **state)
{
    struct survey *s = make_survey(4);
    make_links(s, 0);
    set_link(s, 0, 2, 40, 4);
    set_link(s, 1, 3, 40, 4);
    struct inventory *inv = build(s, MIG_STRATEGY_NONE, 0);
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "*", "", 2), "0/0 2/0");
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "*", "3/0", 2), "1/0 3/0");
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "0/0 1/0 3/0", "", 1), "0/0");
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "0/0 1/0 2/0", "", 1), "1/0");
    inventory_free(inv);

    /* Two quads, fully linked inside, one link to the partner in the other quad; some double. */
    static const uint8_t mesh[][3] = {
        { 0, 1, 1 }, { 0, 2, 1 }, { 0, 3, 2 }, { 1, 2, 2 }, { 1, 3, 1 }, { 2, 3, 2 },
        { 4, 5, 1 }, { 4, 6, 1 }, { 4, 7, 2 }, { 5, 6, 2 }, { 5, 7, 1 }, { 6, 7, 2 },
        { 0, 4, 2 }, { 1, 5, 2 }, { 2, 6, 1 }, { 3, 7, 1 },
    };
    s = make_survey(8);
    make_links(s, 0);
    for (size_t i = 0; i < ARRAY_LEN(mesh); i++)
        set_link(s, mesh[i][0], mesh[i][1], 40, mesh[i][2]);
    inv = build(s, MIG_STRATEGY_NONE, 0);
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "*", "", 4), "0/0 1/0 2/0 3/0");
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "*", "5/0", 4), "4/0 5/0 6/0 7/0");
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "*", "0/0 5/0", 3), "0/0 1/0 5/0");
    inventory_free(inv);
}

static uint32_t pair_sum(const struct link_problem *p, const uint8_t *set, size_t n)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            sum += p->score[set[i]][set[k]];
    return sum;
}

/* Best score by trying every set as a bit mask. */
static uint32_t best_by_force(const struct link_problem *p)
{
    uint32_t best = 0, required = 0;
    for (size_t i = 0; i < p->n; i++)
        required |= p->required[i] ? 1u << i : 0;
    for (uint32_t m = 0; m < 1u << p->n; m++) {
        if ((size_t)__builtin_popcount(m) != p->size || (m & required) != required)
            continue;
        uint8_t set[32];
        size_t n = 0;
        for (uint8_t i = 0; i < p->n; i++)
            if (m & 1u << i)
                set[n++] = i;
        best = MAX(best, pair_sum(p, set, n));
    }
    return best;
}

static void test_against_force(void **state)
{
    srand(7);
    for (int round = 0; round < 300; round++) {
        struct link_problem p = { .n = 2 + (size_t)rand() % 9 };
        p.size = 1 + (size_t)rand() % p.n;
        for (size_t i = 0; i < p.n; i++)
            for (size_t k = 0; k < i; k++)
                p.score[i][k] = p.score[k][i] =
                    10u * (uint32_t)(rand() % 6) + 100u * (uint32_t)(rand() % 3);
        for (size_t i = 0, left = (size_t)rand() % (p.size + 1); i < p.n && left; i++, left--)
            p.required[i] = true;
        uint8_t got[LINK_GPUS_MAX];
        links_choose(&p, got);
        for (size_t i = 1; i < p.size; i++)
            assert_true(got[i - 1] < got[i]);
        assert_int_equal(pair_sum(&p, got, p.size), best_by_force(&p));
    }
}

/* Past the exact search: 48 gpus in six closely linked groups of eight, in mixed order. */
static void test_many_gpus(void **state)
{
    struct link_problem p = { .n = 48, .size = 8 };
    for (size_t i = 0; i < p.n; i++)
        for (size_t k = 0; k < p.n; k++)
            p.score[i][k] = i == k ? 0 : i % 6 == k % 6 ? 1800 : 10;
    p.required[10] = true;
    uint8_t got[LINK_GPUS_MAX];
    links_choose(&p, got);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(got[i], 4 + 6 * i);
    p.size = 24;
    links_choose(&p, got);
    assert_int_equal(pair_sum(&p, got, 24), 3 * 28 * 1800 + 3 * 64 * 10);
}

/* The recorded answers under sharing, as counts for each gpu (h100/ts4, ts4-packed, mps4). */
static void test_recorded_shares(void **state)
{
    static const struct {
        enum placement_policy policy;
        const char *must;
        int64_t size;
        const char *want;
    } cases[] = {
        { PLACE_DISTRIBUTED, "", 1, "0/0" },
        { PLACE_DISTRIBUTED, "", 2, "0/0 1/0" },
        { PLACE_DISTRIBUTED, "", 3, "0/0 1/0 2/0" },
        { PLACE_DISTRIBUTED, "", 8, "0/0 1/0 2/0 3/0 4/0 5/0 6/0 7/0" },
        { PLACE_DISTRIBUTED, "7/3", 2, "7/3 0/0" },
        { PLACE_DISTRIBUTED, "", 0, "" },
        { PLACE_PACKED, "", 1, "0/0" },
        { PLACE_PACKED, "", 2, "0/0 0/1" },
        { PLACE_PACKED, "", 4, "0/0 0/1 0/2 0/3" },
        { PLACE_PACKED, "", 8, "0/0 0/1 0/2 0/3 1/0 1/1 1/2 1/3" },
        { PLACE_PACKED, "7/3", 2, "7/3 7/0" },
        { PLACE_PACKED, "", 0, "" },
        { PLACE_PACKED, "7/3 7/2", 1, "" },
    };
    struct survey *s = make_survey(8);
    make_links(s, 18);
    struct inventory *inv = build(s, MIG_STRATEGY_NONE, 4);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        choose(&call, inv, cases[i].policy, "*", cases[i].must, cases[i].size);
        assert_int_equal(call.rc, 0);
        assert_string_equal(call.got, cases[i].want);
    }
    choose(&call, inv, PLACE_DISTRIBUTED, "*", "", 33);
    assert_int_equal(call.rc, -ERR_UNAVAILABLE);
    assert_string_equal(call.err.text, "not enough available devices to satisfy allocation");
    inventory_free(inv);
}

/* B-018 */
static void test_distinct(void **state)
{
    struct inventory *inv = build(make_survey(2), MIG_STRATEGY_NONE, 2);
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "*", "", 2), "0/0 1/0");
    assert_true(call.distinct);
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "0/0 0/1", "", 2), "0/0 0/1");
    assert_false(call.distinct);
    call.req.require_distinct = true;
    choose(&call, inv, PLACE_DISTRIBUTED, "0/0 0/1", "", 2);
    assert_int_equal(call.rc, -ERR_CONFLICT);
    assert_non_null(strstr(call.err.text, "2 devices of nvidia.com/gpu on distinct gpus"));
    choose(&call, inv, PLACE_PACKED, "*", "0/0 0/1", 2);
    assert_int_equal(call.rc, -ERR_CONFLICT);
    assert_string_equal(choose(&call, inv, PLACE_PACKED, "*", "", 2), "0/0 1/0");
    assert_string_equal(choose(&call, inv, PLACE_PACKED, "*", "1/1", 2), "1/1 0/0");
    /* Where the load alone would put both on the emptier gpu. */
    call.req.require_distinct = false;
    inventory_free(inv);
    inv = build(make_survey(2), MIG_STRATEGY_NONE, 4);
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "0/3 1/0 1/1 1/2 1/3", "", 2),
                        "1/0 1/1");
    call.req.require_distinct = true;
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "0/3 1/0 1/1 1/2 1/3", "", 2),
                        "1/0 0/3");
    call.req.require_distinct = false;
    inventory_free(inv);
}

/* B-018: the spread stays even after many cycles. */
static void test_even_spread(void **state)
{
    struct inventory *inv = build(make_survey(4), MIG_STRATEGY_NONE, 10);
    const struct resource *r = &inv->resources[0];
    bool taken[40] = { false };
    size_t load[4] = { 0 }, held = 0;
    srand(3);
    for (int round = 0; round < 2000; round++) {
        auto_arena a;
        arena_init(&a, 1024 * 1024);
        if (held == 40 || (held > 0 && rand() % 2)) {
            /* Freeing takes from the fullest, so that only choosing could make it uneven. */
            size_t fullest = 0, i = 0;
            for (size_t g = 1; g < 4; g++)
                fullest = load[g] > load[fullest] ? g : fullest;
            while (!taken[i] || r->devices[i].gpu != fullest)
                i++;
            taken[i] = false;
            load[fullest]--;
            held--;
        } else {
            struct str available[40];
            struct placement_request req = { .available = available, .size = 1 };
            for (size_t i = 0; i < 40; i++)
                if (!taken[i])
                    available[req.n_available++] = str_of(r->devices[i].id);
            const struct str *ids;
            size_t n;
            bool distinct;
            assert_int_equal(
                placement_choose(&a, inv, r, PLACE_DISTRIBUTED, &req, &ids, &n, &distinct, NULL),
                0);
            const struct device *d = resource_find(r, ids[0]);
            taken[d - r->devices] = true;
            load[d->gpu]++;
            held++;
        }
        for (size_t g = 0; g < 4; g++)
            for (size_t k = 0; k < 4; k++)
                assert_true(load[g] <= load[k] + 1);
    }
    inventory_free(inv);
}

/* B-019 */
static void test_packed_sequence(void **state)
{
    struct inventory *inv = build(make_survey(2), MIG_STRATEGY_NONE, 4);
    static const struct {
        const char *available, *want;
    } steps[] = {
        { "*", "0/0" },
        { "0/1 0/2 0/3 1/0 1/1 1/2 1/3", "0/1" },
        { "0/2 0/3 1/0 1/1 1/2 1/3", "0/2" },
        { "0/3 1/0 1/1 1/2 1/3", "0/3" },
        { "1/0 1/1 1/2 1/3", "1/0" },
        { "0/1 1/1 1/2 1/3", "0/1" }, /* slot 2 was freed */
    };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        assert_string_equal(choose(&call, inv, PLACE_PACKED, steps[i].available, "", 1),
                            steps[i].want);
    inventory_free(inv);
}

static void test_parts(void **state)
{
    for (uint32_t replicas = 0; replicas <= 2; replicas += 2) {
        struct survey *s = make_survey(2);
        for (int i = 0; i < 3; i++) {
            make_part(s, 0, "1g.10gb");
            make_part(s, 1, "1g.10gb");
        }
        struct inventory *inv = build(s, MIG_STRATEGY_MIXED, replicas);
        if (replicas) { /* shares of parts: parts first, then their gpus */
            choose(&call, inv, PLACE_DISTRIBUTED, "*", "", 2);
            assert_string_equal(call.got, "0/0 1/0");
            assert_true(call.distinct);
        } else {
            assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "*", "", 4),
                                "0/0 1/0 0/1 1/1");
            assert_true(call.distinct);
            assert_string_equal(choose(&call, inv, PLACE_PACKED, "*", "", 2), "0/0 0/1");
            assert_true(call.distinct); /* two parts of one gpu are two devices */
            assert_string_equal(choose(&call, inv, PLACE_PACKED, "0/0 0/1 0/2 1/1 1/2", "", 3),
                                "1/1 1/2 0/0");
            assert_string_equal(choose(&call, inv, PLACE_PACKED, "*", "1/2", 2), "1/2 1/0");
        }
        inventory_free(inv);
    }
}

static void test_many_shares(void **state)
{
    struct inventory *inv = build(make_survey(8), MIG_STRATEGY_NONE, 512);
    const char *got = choose(&call, inv, PLACE_DISTRIBUTED, "*", "", 16);
    assert_string_equal(got, "0/0 1/0 2/0 3/0 4/0 5/0 6/0 7/0 0/1 1/1 2/1 3/1 4/1 5/1 6/1 7/1");
    assert_false(call.distinct);
    inventory_free(inv);
}

static void test_wsl(void **state)
{
    struct survey *s = make_survey(1);
    snprintf(s->platform, sizeof s->platform, "wsl");
    struct inventory *inv = build(s, MIG_STRATEGY_NONE, 0);
    assert_string_equal(choose(&call, inv, PLACE_DISTRIBUTED, "*", "", 1), "0/0");
    inventory_free(inv);
}

static void test_no_memory(void **state)
{
    for (uint32_t replicas = 0; replicas <= 4; replicas += 4) {
        struct inventory *inv = build(make_survey(4), MIG_STRATEGY_NONE, replicas);
        bool done = false;
        for (uint64_t k = 1; !done && k < 100; k++) {
            mem_fail_at(k);
            choose(&call, inv, PLACE_DISTRIBUTED, "*", "", 3);
            done = mem_fail_at(0) < k;
            assert_int_equal(call.rc, done ? 0 : -ERR_LIMIT);
        }
        assert_true(done);
        inventory_free(inv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_plain),
        cmocka_unit_test(test_unknown_ids),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_against_force),
        cmocka_unit_test(test_many_gpus),
        cmocka_unit_test(test_recorded_shares),
        cmocka_unit_test(test_distinct),
        cmocka_unit_test(test_even_spread),
        cmocka_unit_test(test_packed_sequence),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_many_shares),
        cmocka_unit_test(test_wsl),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
