/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger in a small world of its own: kubelet with a checkpoint that lags behind, pods that
 * come, fail to come, end and leave stale records, facts that are old when they arrive or cannot be
 * read, configs that rename and reshape the resources, restarts, changes of owner. Random
 * operations; after each one the world is asked, never the ledger: does any gpu belong to two who
 * do not go together? In the end everybody leaves, and everything must be free again.
 *
 *     test-ledger-model [SEED]     runs that seed alone
 */
#include "base/file.h"
#include "ledger-help.h"

enum { PODS_MAX = 60, OPS = 600, SEEDS = 150, SHARES = 3 };

/* Ways to offer a gpu. Parts are of GPU_B only. */
static const struct form {
    const char *resource, *gpu, *base;
    bool shared;
} forms[] = {
    { "nvidia.com/gpu", GPU_A, GPU_A, false },
    { "nvidia.com/gpu", GPU_A, GPU_A, true },
    { "nvidia.com/gpu.shared", GPU_A, GPU_A, true },
    { "nvidia.com/gpu", GPU_B, GPU_B, false },
    { "nvidia.com/gpu.shared", GPU_B, GPU_B, true },
    { "nvidia.com/mig-1g.10gb", GPU_B, MIG_0, false },
    { "nvidia.com/mig-1g.10gb", GPU_B, MIG_1, false },
    { "nvidia.com/gpu", GPU_B, MIG_0, false },
    { "nvidia.com/mig-1g.10gb.shared", GPU_B, MIG_1, true },
};

enum life {
    POD_NONE,
    POD_STARTING, /* Allocate was answered, the checkpoint does not have it yet */
    POD_RUNS,     /* in kubelet's memory and checkpoint */
    POD_ENDED,    /* no cgroup; the checkpoint may still have it */
};

struct pod {
    enum life life;
    const struct form *form;
    char id[96], uid[16];
    bool in_checkpoint;
    int64_t granted_ns;
};

struct world {
    struct host host;
    char *dir;
    struct ledger *l;
    struct pod pods[PODS_MAX];
    int64_t now_ns;
    uint64_t random;
    unsigned seed, op, pods_made;
    struct facts pending; /* read, not yet delivered */
    bool has_pending;
    const struct form *config[2]; /* what is offered of each gpu now */
    unsigned granted, refused, handed;
};

static int64_t fake_ns;

static int64_t fake_mono(void *arg)
{
    return fake_ns;
}

static unsigned below(struct world *w, unsigned n)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(w->random >> 33) % n;
}

static bool lives(const struct pod *p)
{
    return p->life == POD_STARTING || p->life == POD_RUNS;
}

/* Said again in other words than the ledger's: who may be on a gpu together. */
static bool together(const struct pod *a, const struct pod *b)
{
    const struct form *x = a->form, *y = b->form;
    if (strcmp(x->gpu, y->gpu) != 0)
        return true;
    bool x_part = strcmp(x->gpu, x->base) != 0, y_part = strcmp(y->gpu, y->base) != 0;
    if (x_part != y_part)
        return false;
    if (strcmp(x->base, y->base) != 0)
        return true;
    bool one_kind = x->shared && y->shared && strcmp(x->resource, y->resource) == 0;
    return one_kind && strcmp(a->id, b->id) != 0;
}

static void check(const struct world *w)
{
    for (int i = 0; i < PODS_MAX; i++) {
        if (!lives(&w->pods[i]))
            continue;
        for (int k = i + 1; k < PODS_MAX; k++)
            if (lives(&w->pods[k]) && !together(&w->pods[i], &w->pods[k]))
                fail_msg("seed %u, operation %u: %s as %s and %s as %s at once", w->seed, w->op,
                         w->pods[i].id, w->pods[i].form->resource, w->pods[k].id,
                         w->pods[k].form->resource);
        enum owner o = ledger_owner(w->l, w->pods[i].form->gpu);
        if (o != OWNER_DEVICE_PLUGIN && o != OWNER_DRAINING)
            fail_msg("seed %u, operation %u: %s changed its owner under a pod", w->seed, w->op,
                     w->pods[i].id);
    }
}

/* ---- operations ---- */

static void save(struct world *w)
{
    struct error err = { 0 };
    auto_free char *text = ledger_pending_text(w->l);
    if (!text)
        return;
    int r = file_replace(&w->host, ledger_dirfd(w->l), LEDGER_FILE, str_of(text), 0600,
                         FILE_SYNC_NONE, &err);
    ledger_written(w->l, r, &err);
    assert_int_equal(r, 0);
}

static struct pod *free_pod(struct world *w)
{
    for (int i = 0; i < PODS_MAX; i++)
        if (w->pods[i].life == POD_NONE)
            return &w->pods[i];
    return NULL;
}

/* Kubelet knows only its own resources: it never gives an id of one resource out twice. */
static bool kubelet_has(const struct world *w, const struct form *f, const char *id)
{
    for (int i = 0; i < PODS_MAX; i++)
        if (lives(&w->pods[i]) && strcmp(w->pods[i].id, id) == 0 &&
            strcmp(w->pods[i].form->resource, f->resource) == 0)
            return true;
    return false;
}

static const struct form *some_form(struct world *w, const char *gpu)
{
    for (;;) {
        const struct form *f = &forms[below(w, ARRAY_LEN(forms))];
        if (strcmp(f->gpu, gpu) == 0)
            return f;
    }
}

/* Mostly as the config says; kubelet may still have an old list. */
static const struct form *asked_form(struct world *w)
{
    unsigned gpu = below(w, 2);
    const struct form *c = w->config[gpu], *f;
    bool old_list = below(w, 6) == 0;
    do
        f = some_form(w, help_gpus[gpu].uuid);
    while (!old_list && (f->shared != c->shared || strcmp(f->resource, c->resource) != 0));
    return f;
}

static void change_config(struct world *w)
{
    for (unsigned i = 0; i < 2; i++)
        w->config[i] = some_form(w, help_gpus[i].uuid);
}

static void allocate(struct world *w)
{
    struct pod *p = free_pod(w), made = { .form = asked_form(w) };
    const struct form *f = made.form;
    snprintf(made.id, sizeof made.id, f->shared ? "%s::%u" : "%s", f->base, below(w, SHARES));
    snprintf(made.uid, sizeof made.uid, "uid-%u", w->pods_made++);
    if (!p || kubelet_has(w, f, made.id))
        return;
    struct one o;
    struct error err;
    const char *reason = NULL;
    bool may = ledger_may_offer(w->l, f->resource, f->shared, f->gpu, f->base, &reason);
    const struct grant_request *g = one(&o, f->resource, made.id, f->base, f->gpu);
    int r = ledger_grant(w->l, g, w->now_ns, &err);
    assert_true(may == (r == 0)); /* what is offered is what is given */
    if (r < 0) {
        assert_int_equal(r, -ERR_CONFLICT);
        w->refused++;
        return;
    }
    w->granted++;
    if (below(w, 10) == 0) {
        ledger_grant_undo(w->l, g);
        return;
    }
    made.granted_ns = w->now_ns;
    made.life = POD_STARTING; /* one in six fails in the middle: another resource was refused */
    if (below(w, 6) > 0)
        *p = made;
}

static void write_checkpoint(struct world *w)
{
    for (int i = 0; i < PODS_MAX; i++) {
        struct pod *p = &w->pods[i];
        if (p->life == POD_STARTING)
            p->life = POD_RUNS;
        p->in_checkpoint = p->life == POD_RUNS;
        if (p->life == POD_ENDED)
            p->life = POD_NONE;
    }
}

static void end_pod(struct world *w)
{
    struct pod *p = &w->pods[below(w, PODS_MAX)];
    for (int i = 0; i < PODS_MAX && !lives(p); i++)
        p = &w->pods[(p - w->pods + 1) % PODS_MAX];
    if (p->life == POD_RUNS)
        p->life = POD_ENDED;
    else if (p->life == POD_STARTING) /* never written anywhere */
        p->life = POD_NONE;
}

static void read_facts(struct world *w)
{
    bool listed = below(w, 4) > 0, checkpoint = below(w, 8) > 0;
    facts_init(&w->pending, w->now_ns);
    w->pending.in_use.checkpoint_read = checkpoint;
    w->pending.in_use.podresources_read = listed;
    w->has_pending = checkpoint || listed;
    for (int i = 0; i < PODS_MAX; i++) {
        const struct pod *p = &w->pods[i];
        bool shown = checkpoint && p->in_checkpoint;
        if (!shown && !(listed && p->life == POD_RUNS))
            continue;
        struct device_use *u =
            facts_add(&w->pending, p->form->resource, p->id, shown ? p->uid : "");
        u->from_checkpoint = shown;
        u->from_podresources = listed && p->life == POD_RUNS;
        u->pod_gone = p->life == POD_ENDED;
    }
}

static void deliver_facts(struct world *w)
{
    if (below(w, 8) == 0)
        ledger_seen(w->l, NULL, w->now_ns);
    else if (w->has_pending)
        ledger_seen(w->l, &w->pending.in_use, w->now_ns);
    w->has_pending = false;
}

static void change_owner(struct world *w)
{
    static const enum owner owners[] = { OWNER_DRA, OWNER_NONE, OWNER_DEVICE_PLUGIN,
                                         OWNER_DEVICE_PLUGIN, OWNER_DEVICE_PLUGIN };
    struct error err;
    const char *gpu = below(w, 2) ? GPU_A : GPU_B;
    int r = ledger_handover_start(w->l, gpu, owners[below(w, ARRAY_LEN(owners))], w->now_ns, &err);
    assert_true(r == 0 || r == -ERR_CONFLICT);
}

static void tick(struct world *w)
{
    enum owner a = ledger_owner(w->l, GPU_A);
    ledger_tick(w->l, w->now_ns);
    if (below(w, 2))
        save(w);
    w->handed += a == OWNER_DRAINING && ledger_owner(w->l, GPU_A) != OWNER_DRAINING;
}

static void open_ledger(struct world *w)
{
    struct error err = { 0 };
    w->l = NULL;
    if (ledger_open(&w->host, w->dir, OWNER_DEVICE_PLUGIN, &w->l, NULL, &err) < 0)
        fail_msg("%s", err.text);
    assert_false(ledger_damaged(w->l));
}

/* Before it gives anything out the new agent reads kubelet's records, or knows that it cannot. */
static void restart(struct world *w)
{
    save(w);
    ledger_free(w->l);
    write_checkpoint(w);
    open_ledger(w);
    bool survey_first = below(w, 2);
    if (survey_first)
        ledger_survey(w->l, &help_survey);
    read_facts(w);
    if (w->has_pending)
        ledger_seen(w->l, &w->pending.in_use, w->now_ns);
    w->has_pending = false;
    if (!survey_first)
        ledger_survey(w->l, &help_survey);
}

static void pass_time(struct world *w)
{
    static const int64_t steps[] = { S / 100, S, 5 * S, 30 * S, 150 * S };
    int64_t by = steps[below(w, ARRAY_LEN(steps))];
    for (int i = 0; i < PODS_MAX; i++) /* what the ledger relies on: kubelet is not that slow */
        if (w->pods[i].life == POD_STARTING &&
            w->now_ns + by - w->pods[i].granted_ns >= LEDGER_UNSEEN_NS)
            write_checkpoint(w);
    w->now_ns += by;
    fake_ns = w->now_ns;
}

static void (*const operations[])(struct world *w) = {
    allocate,      allocate, allocate, allocate,   write_checkpoint, write_checkpoint,
    end_pod,       end_pod,  end_pod,  read_facts, read_facts,       deliver_facts,
    deliver_facts, tick,     tick,     pass_time,
};

static void everybody_leaves(struct world *w)
{
    struct facts f;
    struct error err;
    memset(w->pods, 0, sizeof w->pods);
    for (int i = 0; i < 4; i++) {
        save(w);
        w->now_ns += LEDGER_UNSEEN_NS + S;
        facts_init(&f, w->now_ns);
        ledger_seen(w->l, &f.in_use, w->now_ns);
        ledger_tick(w->l, w->now_ns);
    }
    save(w);
    assert_int_equal(ledger_grants(w->l), 0);
    for (size_t i = 0; i < 2; i++) {
        if (ledger_owner(w->l, help_gpus[i].uuid) == OWNER_DRAINING)
            fail_msg("seed %u: %s hangs in a hand-over", w->seed, help_gpus[i].uuid);
        assert_int_equal(
            ledger_handover_start(w->l, help_gpus[i].uuid, OWNER_DEVICE_PLUGIN, w->now_ns, &err),
            0);
    }
    for (int i = 0; i < 4; i++) {
        save(w);
        w->now_ns += LEDGER_QUIET_NS + S;
        facts_init(&f, w->now_ns);
        ledger_seen(w->l, &f.in_use, w->now_ns);
        ledger_tick(w->l, w->now_ns);
    }
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        const char *reason = "";
        if (!ledger_may_offer(w->l, forms[i].resource, forms[i].shared, forms[i].gpu, forms[i].base,
                              &reason))
            fail_msg("seed %u: in the end %s stays %s", w->seed, forms[i].base, reason);
    }
}

static void run_seed(unsigned seed, unsigned totals[3])
{
    static struct host_seams seams;
    struct world w = { .seed = seed,
                       .random = seed * UINT64_C(2654435761) + 1,
                       .now_ns = 1000 * S };
    seams = host_seams_real;
    seams.mono_ns = fake_mono;
    fake_ns = w.now_ns;
    host_plain(&w.host, &seams);
    w.dir = temp_dir();
    change_config(&w);
    open_ledger(&w);
    ledger_survey(w.l, &help_survey);
    save(&w);
    for (w.op = 0; w.op < OPS; w.op++) {
        unsigned rare = below(&w, 100);
        if (rare == 0)
            restart(&w);
        else if (rare < 3)
            change_owner(&w);
        else if (rare < 6)
            change_config(&w);
        else
            operations[below(&w, ARRAY_LEN(operations))](&w);
        check(&w);
    }
    everybody_leaves(&w);
    totals[0] += w.granted;
    totals[1] += w.refused;
    totals[2] += w.handed;
    ledger_free(w.l);
    host_done(&w.host);
    remove_dir(w.dir);
}

static unsigned only_seed;

static void random_lives(void **state)
{
    unsigned totals[3] = { 0 };
    if (only_seed) {
        run_seed(only_seed, totals);
        return;
    }
    for (unsigned seed = 1; seed <= SEEDS; seed++)
        run_seed(seed, totals);
    print_message("%u granted, %u refused, %u changes of owner\n", totals[0], totals[1], totals[2]);
    assert_true(totals[0] > 15 * SEEDS && totals[1] > 15 * SEEDS && totals[2] > SEEDS / 3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_lives) };
    uint64_t seed = 0;
    if (argc > 1 && !str_to_u64(str_of(argv[1]), UINT32_MAX, &seed))
        return 2;
    only_seed = (unsigned)seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
