/* SPDX-License-Identifier: Apache-2.0 */
/* What is in use, what may be offered beside it, and how long a grant stays open. */
#include "ledger-help.h"

/* ---- which uses go together ---- */

static void uses_that_go_together(void **state)
{
    static const struct {
        const char *held_resource, *held_id; /* in kubelet's checkpoint */
        const char *resource;
        bool shared;
        const char *gpu, *base;
        bool ok;
    } cases[] = {
        { "nvidia.com/gpu", GPU_A, "nvidia.com/gpu", false, GPU_A, GPU_A, true },
        { "nvidia.com/gpu", GPU_A, "nvidia.com/gpu", true, GPU_A, GPU_A, false },
        { "nvidia.com/gpu", GPU_A, "nvidia.com/gpu.shared", true, GPU_A, GPU_A, false },
        { "nvidia.com/gpu", GPU_A, "nvidia.com/gpu", false, GPU_B, GPU_B, true },
        { "nvidia.com/gpu", GPU_A "::1", "nvidia.com/gpu", true, GPU_A, GPU_A, true },
        { "nvidia.com/gpu", GPU_A "::1", "nvidia.com/gpu", false, GPU_A, GPU_A, false },
        { "nvidia.com/gpu.shared", GPU_A "::7", "nvidia.com/gpu", true, GPU_A, GPU_A, false },
        { "nvidia.com/gpu.shared", GPU_A "::7", "nvidia.com/gpu.shared", true, GPU_A, GPU_A, true },
        /* whole gpu and its parts */
        { "nvidia.com/gpu", GPU_B, "nvidia.com/mig-1g.10gb", false, GPU_B, MIG_0, false },
        { "nvidia.com/gpu", GPU_B, "nvidia.com/gpu", false, GPU_B, MIG_0, false },
        { "nvidia.com/mig-1g.10gb", MIG_0, "nvidia.com/gpu", false, GPU_B, GPU_B, false },
        { "nvidia.com/gpu", MIG_0, "nvidia.com/gpu", false, GPU_B, GPU_B, false },
        { "nvidia.com/mig-1g.10gb", MIG_0, "nvidia.com/gpu", false, GPU_B, MIG_0, false },
        { "nvidia.com/mig-1g.10gb", MIG_0, "nvidia.com/gpu", false, GPU_B, MIG_1, true },
        { "nvidia.com/mig-1g.10gb", MIG_0 "::0", "nvidia.com/mig-1g.10gb", true, GPU_B, MIG_0,
          true },
        { "nvidia.com/mig-1g.10gb", MIG_0 "::0", "nvidia.com/mig-1g.10gb", false, GPU_B, MIG_0,
          false },
        /* ids of others that hold the gpu's name */
        { "example.com/vgpu", GPU_A "-3", "nvidia.com/gpu", false, GPU_A, GPU_A, false },
        { "nvidia.com/gpu", GPU_A "-3", "nvidia.com/gpu", false, GPU_A, GPU_A, false },
        { "nvidia.com/mig-1g.5gb", "MIG-" GPU_A "/7/0", "nvidia.com/gpu", false, GPU_A, GPU_A,
          false },
        { "nvidia.com/gpu", "all", "nvidia.com/gpu.shared", true, GPU_A, "all", false },
        /* what is no gpu of this host */
        { "intel.com/qat", "0000:3d:01.0", "nvidia.com/gpu", false, GPU_A, GPU_A, true },
        { "nvidia.com/gpu", "GPU-cccccccc-0000-0000-0000-000000000000", "nvidia.com/gpu.shared",
          true, GPU_A, GPU_A, true },
        { "nvidia.com/gpu", "GPU-", "nvidia.com/gpu.shared", true, GPU_A, GPU_A, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ledger *l = open_memory();
        struct facts f;
        facts_init(&f, S);
        facts_add(&f, cases[i].held_resource, cases[i].held_id, "pod-1");
        ledger_seen(l, &f.in_use, S);
        bool ok = may(l, cases[i].resource, cases[i].shared, cases[i].gpu, cases[i].base);
        if (ok != cases[i].ok)
            fail_msg("case %zu: %s as %s, then %s %s: %d", i, cases[i].held_id,
                     cases[i].held_resource, cases[i].resource, cases[i].base, ok);
        /* The ledger decides a grant the same way. */
        struct error err;
        auto_free char *id = x_printf("%s%s", cases[i].base, cases[i].shared ? "::0" : "");
        int r = grant(l, cases[i].resource, id, cases[i].base, cases[i].gpu, 2 * S, &err);
        assert_int_equal(r, cases[i].ok ? 0 : -ERR_CONFLICT);
        if (r < 0)
            assert_non_null(strstr(err.text, "pod with uid pod-1"));
        ledger_free(l);
    }
}

/* ---- how long a grant stays open ---- */

static void grant_life(void **state)
{
    enum { UNREAD, EMPTY, LISTED, GONE, SAME_POD, ONLY_PODRES };
    static const struct {
        const char *what;
        int shows;
        int64_t granted, began; /* seconds */
        bool held;              /* afterwards */
    } cases[] = {
        { "facts older than the grant", EMPTY, 10, 9, true },
        { "facts as old as the grant", EMPTY, 10, 10, true },
        { "not yet in the checkpoint", EMPTY, 10, 11, true },
        { "just before the limit", EMPTY, 10, 129, true },
        { "never seen", EMPTY, 10, 130, false },
        { "unread", UNREAD, 10, 1000, true },
        { "listed: the facts hold it", LISTED, 10, 11, true },
        { "a pod that is gone says nothing yet", GONE, 10, 11, true },
        { "a pod that is gone, late", GONE, 10, 130, false },
        { "pod-resources alone frees nothing", ONLY_PODRES, 10, 500, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ledger *l = open_memory();
        struct error err;
        struct facts f;
        assert_int_equal(
            grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, cases[i].granted * S, &err), 0);
        assert_false(may(l, "other.com/gpu", false, GPU_A, GPU_A));
        assert_true(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));
        facts_init(&f, cases[i].began * S);
        if (cases[i].shows == LISTED || cases[i].shows == GONE)
            facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-1")->pod_gone = cases[i].shows == GONE;
        if (cases[i].shows == ONLY_PODRES)
            f.in_use.checkpoint_read = false;
        ledger_seen(l, cases[i].shows == UNREAD ? NULL : &f.in_use, (cases[i].began + 1) * S);
        bool held = !may(l, "other.com/gpu", false, GPU_A, GPU_A);
        if (held != cases[i].held)
            fail_msg("%s: held %d", cases[i].what, held);
        assert_int_equal(ledger_grants(l), held);
        ledger_free(l);
    }
}

/* Once kubelet named the new pod, its end ends the grant: no waiting. */
static void confirmed_grant_ends_with_its_pod(void **state)
{
    struct ledger *l = open_memory();
    struct error err;
    struct facts f;
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, 10 * S, &err), 0);
    assert_true(ledger_wants_facts(l));
    facts_init(&f, 11 * S);
    facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-1");
    assert_true(ledger_seen(l, &f.in_use, 11 * S)); /* the first facts */
    assert_false(ledger_wants_facts(l));
    assert_false(ledger_seen(l, &f.in_use, 12 * S)); /* the same again */
    facts_init(&f, 13 * S);
    assert_true(ledger_seen(l, &f.in_use, 13 * S));
    assert_true(may(l, "other.com/gpu", false, GPU_A, GPU_A));
    ledger_free(l);
}

/* Kubelet's checkpoint may still show the device's last pod when it gives it to the next one. */
static void old_pod_confirms_nothing(void **state)
{
    struct ledger *l = open_memory();
    struct error err;
    struct facts f;
    facts_init(&f, 5 * S);
    facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-old");
    ledger_seen(l, &f.in_use, 5 * S);
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, 10 * S, &err), 0);
    facts_init(&f, 11 * S);
    facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-old");
    ledger_seen(l, &f.in_use, 11 * S);
    facts_init(&f, 12 * S); /* the old pod's cgroup is gone, the new one is not written yet */
    facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-old")->pod_gone = true;
    ledger_seen(l, &f.in_use, 12 * S);
    assert_false(may(l, "other.com/gpu", false, GPU_A, GPU_A));
    facts_init(&f, 13 * S);
    facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-new");
    ledger_seen(l, &f.in_use, 13 * S);
    assert_false(ledger_wants_facts(l));
    assert_false(may(l, "other.com/gpu", false, GPU_A, GPU_A));
    facts_init(&f, 14 * S);
    ledger_seen(l, &f.in_use, 14 * S);
    assert_true(may(l, "other.com/gpu", false, GPU_A, GPU_A));
    ledger_free(l);
}

/* Facts that were read before the grant, but arrive after it, show the device's pod before. */
static void late_facts_confirm_nothing(void **state)
{
    struct ledger *l = open_memory();
    struct error err;
    struct facts f;
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, 10 * S, &err), 0);
    facts_init(&f, 9 * S);
    facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-before");
    ledger_seen(l, &f.in_use, 11 * S);
    facts_init(&f, 12 * S);
    ledger_seen(l, &f.in_use, 12 * S);
    assert_false(may(l, "other.com/gpu", false, GPU_A, GPU_A));
    ledger_free(l);
}

static void podresources_alone_frees_nothing(void **state)
{
    struct ledger *l = open_memory();
    struct facts f;
    facts_init(&f, S);
    facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-1");
    ledger_seen(l, &f.in_use, S);
    facts_init(&f, 2 * S);
    f.in_use.checkpoint_read = false;
    struct device_use *u = facts_add(&f, "nvidia.com/gpu", GPU_B, "");
    u->from_checkpoint = false;
    u->from_podresources = true;
    assert_true(ledger_seen(l, &f.in_use, 2 * S));
    assert_false(may(l, "other.com/gpu", false, GPU_A, GPU_A));
    assert_false(may(l, "other.com/gpu", false, GPU_B, GPU_B)); /* and adds */
    facts_init(&f, 3 * S);
    assert_true(ledger_seen(l, &f.in_use, 3 * S));
    assert_true(may(l, "other.com/gpu", false, GPU_A, GPU_A));
    assert_true(may(l, "other.com/gpu", false, GPU_B, GPU_B));
    ledger_free(l);
}

/* Many shares, taken back one by one in another order. */
static void thousands_of_shares(void **state)
{
    enum { N = 5000 };
    struct ledger *l = open_memory();
    struct error err;
    struct one o;
    for (int i = 0; i < N; i++) {
        auto_free char *id = x_printf(GPU_A "::%d", i * 7);
        assert_int_equal(grant(l, "nvidia.com/gpu", id, GPU_A, GPU_A, S, &err), 0);
    }
    assert_int_equal(ledger_grants(l), N);
    for (int i = 0; i < N; i++) {
        auto_free char *id = x_printf(GPU_A "::%d", (i * 3331 % N) * 7);
        ledger_grant_undo(l, one(&o, "nvidia.com/gpu", id, GPU_A, GPU_A));
        assert_int_equal(ledger_grants(l), N - 1 - i);
    }
    assert_true(may(l, "other.com/gpu", false, GPU_A, GPU_A));
    ledger_free(l);
}

static void undo_takes_back_what_was_granted(void **state)
{
    struct ledger *l = open_memory();
    struct error err;
    const char *ids[] = { GPU_A "::0", GPU_A "::1", GPU_B "::0" };
    const char *gpus[] = { GPU_A, GPU_A, GPU_B };
    const struct grant_request g = {
        .resource = "nvidia.com/gpu.shared", .ids = ids, .bases = gpus, .gpu_uuids = gpus, .n = 3
    };
    assert_int_equal(ledger_grant(l, &g, S, &err), 0);
    assert_int_equal(ledger_grants(l), 3);
    ledger_grant_undo(l, &g);
    assert_int_equal(ledger_grants(l), 0);
    assert_true(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));

    /* A repeated grant that is taken back leaves the first. */
    assert_int_equal(ledger_grant(l, &g, S, &err), 0);
    assert_int_equal(ledger_grant(l, &g, 2 * S, &err), 0);
    assert_int_equal(ledger_grants(l), 3);
    ledger_grant_undo(l, &g);
    assert_int_equal(ledger_grants(l), 3);
    ledger_grant_undo(l, &g);
    ledger_grant_undo(l, &g); /* once too often: nothing happens */
    assert_int_equal(ledger_grants(l), 0);
    ledger_free(l);
}

static void grants_are_all_or_nothing(void **state)
{
    static const struct {
        const char *ids[3], *bases[3], *gpus[3];
        bool exclusive;
        int r;
        const char *text;
    } cases[] = {
        { { GPU_A, GPU_B, GPU_B },
          { GPU_A, GPU_B, GPU_B },
          { GPU_A, GPU_B, "GPU-cccccccc-0000-0000-0000-000000000000" },
          true,
          -ERR_NOT_FOUND,
          "is not in the ledger" },
        { { GPU_A, GPU_B, MIG_0 },
          { GPU_A, GPU_B, MIG_0 },
          { GPU_A, GPU_B, GPU_B },
          true,
          -ERR_CONFLICT,
          "granted as nvidia.com/gpu" },
        { { GPU_A, GPU_B, "GPU-x" },
          { GPU_A, GPU_B, GPU_B },
          { GPU_A, GPU_B, GPU_B },
          true,
          -ERR_INVALID,
          "\"GPU-x\" is not " GPU_B },
        { { GPU_A "::0", GPU_A "::1", GPU_A },
          { GPU_A, GPU_A, GPU_A },
          { GPU_A, GPU_A, GPU_A },
          false,
          -ERR_INVALID,
          "is not a share of" },
        { { GPU_A "::0", GPU_A "::1", GPU_A "::99999999999" },
          { GPU_A, GPU_A, GPU_A },
          { GPU_A, GPU_A, GPU_A },
          false,
          -ERR_INVALID,
          "is not a share of" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ledger *l = open_memory();
        struct error err;
        const struct grant_request g = { .resource = "nvidia.com/gpu",
                                         .ids = cases[i].ids,
                                         .bases = cases[i].bases,
                                         .gpu_uuids = cases[i].gpus,
                                         .n = 3,
                                         .exclusive = cases[i].exclusive };
        assert_int_equal(ledger_grant(l, &g, S, &err), cases[i].r);
        assert_non_null(strstr(err.text, cases[i].text));
        assert_int_equal(ledger_grants(l), 0);
        assert_true(may(l, "other.com/gpu", true, GPU_A, GPU_A));
        assert_true(may(l, "other.com/gpu", true, GPU_B, GPU_B));
        ledger_free(l);
    }
}

/* Facts may be there before the first survey. */
static void facts_before_the_survey(void **state)
{
    struct ledger *l = open_at(NULL, OWNER_DEVICE_PLUGIN, NULL);
    struct facts f;
    assert_false(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A)); /* not in any survey */
    facts_init(&f, S);
    facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-1");
    facts_add(&f, "nvidia.com/mig-1g.10gb", MIG_1, "pod-2");
    ledger_seen(l, &f.in_use, S);
    memset(&f, 0xff, sizeof f); /* nothing is borrowed */
    ledger_survey(l, &help_survey);
    assert_false(may(l, "nvidia.com/gpu.shared", true, GPU_A, GPU_A));
    assert_true(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));
    assert_false(may(l, "nvidia.com/gpu", false, GPU_B, GPU_B));
    assert_true(may(l, "nvidia.com/mig-1g.10gb", false, GPU_B, MIG_1));
    ledger_free(l);
}

/* Parts come and go; one that is in use is not forgotten. */
static void parts_that_vanish(void **state)
{
    struct ledger *l = open_memory();
    struct facts f;
    facts_init(&f, S);
    facts_add(&f, "nvidia.com/mig-1g.10gb", MIG_0, "pod-1");
    ledger_seen(l, &f.in_use, S);
    struct gpu bare[2] = { { .uuid = GPU_A }, { .uuid = GPU_B } };
    const struct survey s = { .gpus = bare, .n_gpus = 2 };
    ledger_survey(l, &s);
    assert_false(may(l, "nvidia.com/gpu", false, GPU_B, GPU_B));
    ledger_seen(l, &f.in_use, 2 * S);
    assert_false(may(l, "nvidia.com/gpu", false, GPU_B, GPU_B));
    facts_init(&f, 3 * S);
    ledger_seen(l, &f.in_use, 3 * S);
    assert_true(may(l, "nvidia.com/gpu", false, GPU_B, GPU_B));
    ledger_survey(l, &s);
    facts_init(&f, 4 * S); /* a stale record of a part that is no more */
    facts_add(&f, "nvidia.com/mig-1g.10gb", MIG_0, "pod-1");
    ledger_seen(l, &f.in_use, 4 * S);
    assert_true(may(l, "nvidia.com/gpu", false, GPU_B, GPU_B));
    ledger_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uses_that_go_together),
        cmocka_unit_test(grant_life),
        cmocka_unit_test(confirmed_grant_ends_with_its_pod),
        cmocka_unit_test(old_pod_confirms_nothing),
        cmocka_unit_test(late_facts_confirm_nothing),
        cmocka_unit_test(podresources_alone_frees_nothing),
        cmocka_unit_test(thousands_of_shares),
        cmocka_unit_test(undo_takes_back_what_was_granted),
        cmocka_unit_test(grants_are_all_or_nothing),
        cmocka_unit_test(facts_before_the_survey),
        cmocka_unit_test(parts_that_vanish),
    };
    host_plain(&help_host, NULL);
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    host_done(&help_host);
    return r;
}
