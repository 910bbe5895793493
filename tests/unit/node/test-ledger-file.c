/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.json: formats, damage, state that cannot be kept; owners and their changes. */
#include <glob.h>

#include "base/file.h"
#include "ledger-help.h"

/* ---- the file ---- */

static void first_start_and_restart(void **state)
{
    auto_free char *text = NULL;
    struct error err;
    char *dir = temp_dir();
    auto_free char *state_dir = x_printf("%s/a/b", dir);
    struct ledger *l = open_at(state_dir, OWNER_DEVICE_PLUGIN, NULL);
    assert_true(ledger_survey(l, &help_survey));
    assert_int_equal(write_out(l), 0);
    assert_null(ledger_pending_text(l));
    assert_false(ledger_survey(l, &help_survey));
    ledger_free(l);

    auto_free char *file = x_printf("%s/%s", state_dir, LEDGER_FILE);
    assert_int_equal(file_read(file, 65536, &text, NULL, &err), 0);
    assert_non_null(strstr(text, "\"version\": 1"));
    assert_non_null(strstr(text, "\"min_reader\": 1"));
    assert_non_null(strstr(text, GPU_B));
    l = open_at(state_dir, OWNER_NONE, NULL);
    assert_null(ledger_pending_text(l));
    assert_false(ledger_damaged(l));
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DEVICE_PLUGIN);
    assert_int_equal(ledger_owner(l, GPU_B), OWNER_DEVICE_PLUGIN);
    assert_int_equal(ledger_owner(l, "GPU-x"), OWNER_NONE);
    ledger_free(l);
    remove_dir(dir);
}

static void put_file(const char *dir, const char *name, const void *p, size_t n)
{
    auto_free char *path = x_printf("%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static size_t count_files(const char *dir, const char *pattern)
{
    auto_free char *path = x_printf("%s/%s", dir, pattern);
    glob_t g = { 0 };
    glob(path, GLOB_PERIOD, NULL, &g);
    size_t n = g.gl_pathc;
    globfree(&g);
    return n;
}

#define HEAD "{\"version\":1,\"min_reader\":1,\"boot\":\"x\",\"gpus\":"

static void damaged_files(void **state)
{
    static const struct {
        const char *what, *text;
        size_t n;
    } cases[] = {
        { "empty", "", 0 },
        { "zeros", "\0\0\0\0\0\0\0\0", 8 },
        { "truncated", HEAD "[{\"uuid\":\"GPU-1\",\"own", 0 },
        { "not JSON", "owner: dra", 0 },
        { "a list", "[]", 0 },
        { "no version", "{\"gpus\":[]}", 0 },
        { "version as text", "{\"version\":\"1\",\"min_reader\":1,\"gpus\":[]}", 0 },
        { "reader above version", "{\"version\":1,\"min_reader\":2,\"gpus\":[]}", 0 },
        { "version zero", "{\"version\":0,\"min_reader\":0,\"gpus\":[]}", 0 },
        { "no gpus", "{\"version\":1,\"min_reader\":1}", 0 },
        { "gpus as a map", HEAD "{}}", 0 },
        { "gpu as text", HEAD "[\"GPU-1\"]}", 0 },
        { "no owner", HEAD "[{\"uuid\":\"GPU-1\"}]}", 0 },
        { "unknown owner", HEAD "[{\"uuid\":\"GPU-1\",\"owner\":\"me\"}]}", 0 },
        { "draining as owner", HEAD "[{\"uuid\":\"GPU-1\",\"owner\":\"draining\"}]}", 0 },
        { "empty uuid", HEAD "[{\"uuid\":\"\",\"owner\":\"dra\"}]}", 0 },
        { "uuid with NUL", HEAD "[{\"uuid\":\"G\\u0000\",\"owner\":\"dra\"}]}", 0 },
        { "a gpu twice",
          HEAD "[{\"uuid\":\"G\",\"owner\":\"dra\"},{\"uuid\":\"G\",\"owner\":\"none\"}]}", 0 },
        { "hand-over as text", HEAD "[{\"uuid\":\"G\",\"owner\":\"dra\",\"handover\":\"x\"}]}", 0 },
        { "hand-over without to",
          HEAD "[{\"uuid\":\"G\",\"owner\":\"dra\",\"handover\":{\"step\":\"draining\",\"from\":"
               "\"dra\",\"started\":1}}]}",
          0 },
        { "hand-over from another",
          HEAD "[{\"uuid\":\"G\",\"owner\":\"dra\",\"handover\":{\"step\":\"draining\",\"from\":"
               "\"none\",\"to\":\"device-plugin\",\"started\":1}}]}",
          0 },
        { "hand-over to itself",
          HEAD "[{\"uuid\":\"G\",\"owner\":\"dra\",\"handover\":{\"step\":\"draining\",\"from\":"
               "\"dra\",\"to\":\"dra\",\"started\":1}}]}",
          0 },
        { "granted_as of numbers", HEAD "[{\"uuid\":\"G\",\"owner\":\"dra\",\"granted_as\":[1]}]}",
          0 },
        { "damaged as number", "{\"version\":1,\"min_reader\":1,\"damaged\":1,\"gpus\":[]}", 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *dir = temp_dir();
        auto_arena arena;
        arena_init(&arena, 65536);
        struct findings notes;
        findings_init(&notes, &arena, 10);
        put_file(dir, LEDGER_FILE, cases[i].text, cases[i].n ? cases[i].n : strlen(cases[i].text));
        struct ledger *l = open_at(dir, OWNER_DEVICE_PLUGIN, &notes);
        if (!ledger_damaged(l))
            fail_msg("%s: taken as sound", cases[i].what);
        assert_int_equal(notes.n, 1);
        assert_string_equal(notes.items[0].id, "ledger.damaged");
        assert_int_equal(count_files(dir, LEDGER_FILE), 0);
        assert_int_equal(count_files(dir, LEDGER_FILE ".damaged-*"), 1);
        ledger_survey(l, &help_survey);
        assert_int_equal(ledger_owner(l, GPU_A), OWNER_NONE);
        const char *reason = NULL;
        assert_false(ledger_may_offer(l, "nvidia.com/gpu", false, GPU_A, GPU_A, &reason));
        assert_non_null(strstr(reason, "state was damaged"));
        struct error err;
        assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, S, &err),
                         -ERR_UNAVAILABLE);

        /* Killed before anything is written: the next start must not take the gap for a fresh
         * host. Killed after a write: neither. */
        for (int written = 0; written < 2; written++) {
            ledger_free(l);
            l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
            assert_true(ledger_damaged(l));
            ledger_survey(l, &help_survey);
            assert_int_equal(write_out(l), 0);
        }

        struct facts f;
        ledger_seen(l, NULL, S);
        assert_true(ledger_damaged(l));
        facts_init(&f, S);
        f.in_use.checkpoint_read = false;
        ledger_seen(l, &f.in_use, S); /* pod-resources alone is no proof */
        assert_true(ledger_damaged(l));
        facts_init(&f, 2 * S);
        facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-1");
        assert_true(ledger_seen(l, &f.in_use, S));
        assert_false(ledger_damaged(l));
        assert_int_equal(ledger_owner(l, GPU_A), OWNER_DEVICE_PLUGIN);
        assert_true(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));
        assert_false(may(l, "nvidia.com/gpu", true, GPU_A, GPU_A));
        assert_true(may(l, "nvidia.com/gpu", true, GPU_B, GPU_B));
        assert_int_equal(write_out(l), 0);
        ledger_free(l);
        l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
        assert_false(ledger_damaged(l));
        assert_int_equal(ledger_owner(l, GPU_A), OWNER_DEVICE_PLUGIN);
        ledger_free(l);
        remove_dir(dir);
    }
}

/* After damage the user of a gpu is its owner, whatever the default says. */
static void rebuilt_owner_follows_use(void **state)
{
    for (int survey_first = 0; survey_first < 2; survey_first++) {
        char *dir = temp_dir();
        put_file(dir, LEDGER_FILE, "", 0);
        struct ledger *l = open_at(dir, OWNER_DRA, NULL);
        struct facts f;
        facts_init(&f, S);
        facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-1");
        if (survey_first)
            ledger_survey(l, &help_survey);
        ledger_seen(l, &f.in_use, S);
        ledger_survey(l, &help_survey);
        assert_int_equal(ledger_owner(l, GPU_A), OWNER_DEVICE_PLUGIN);
        assert_int_equal(ledger_owner(l, GPU_B), OWNER_DRA);
        ledger_free(l);
        remove_dir(dir);
    }
}

static void wrong_type_of_file(void **state)
{
    char *dir = temp_dir();
    auto_free char *path = x_printf("%s/%s", dir, LEDGER_FILE);
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 0)
            assert_int_equal(mkdir(path, 0700), 0);
        else if (kind == 1)
            assert_int_equal(mkfifo(path, 0600), 0);
        else
            assert_int_equal(symlink("/dev/zero", path), 0);
        struct ledger *l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
        assert_true(ledger_damaged(l));
        struct facts f;
        facts_init(&f, S);
        ledger_seen(l, &f.in_use, S);
        assert_int_equal(write_out(l), 0);
        ledger_free(l);
        l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
        assert_false(ledger_damaged(l));
        ledger_free(l);
        assert_int_equal(unlink(path), 0);
        auto_free char *aside = x_printf("rm -rf %s/%s.damaged-*", dir, LEDGER_FILE);
        assert_int_equal(system(aside), 0);
    }
    remove_dir(dir);
}

/* tests/golden/ledger/: files of every format there ever was. */
static void formats_there_were(void **state)
{
    static const struct {
        const char *file;
        int r;
        enum owner a, b;
        const char *text;
    } cases[] = {
        { "v1-plain.json", 0, OWNER_DEVICE_PLUGIN, OWNER_DRA, NULL },
        { "v1-handover.json", 0, OWNER_DRAINING, OWNER_NONE, NULL },
        { "v1-granted.json", 0, OWNER_DEVICE_PLUGIN, OWNER_DEVICE_PLUGIN, NULL },
        { "v2-readable.json", 0, OWNER_DEVICE_PLUGIN, OWNER_DRA, NULL },
        { "v3-too-new.json", -ERR_UNSUPPORTED, 0, 0, "needs a program that reads format 3" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *dir = temp_dir();
        struct error err = { 0 };
        auto_free char *from = x_printf("%s/ledger/%s", GOLDEN_DIR, cases[i].file);
        auto_free char *text = NULL;
        assert_int_equal(file_read(from, 65536, &text, NULL, &err), 0);
        put_file(dir, LEDGER_FILE, text, strlen(text));
        struct ledger *l = NULL;
        int r = ledger_open(&help_host, dir, OWNER_NONE, &l, NULL, &err);
        if (r != cases[i].r)
            fail_msg("%s: %d %s", cases[i].file, r, err.text);
        if (r < 0) {
            assert_non_null(strstr(err.text, cases[i].text));
            assert_int_equal(count_files(dir, LEDGER_FILE), 1); /* untouched */
        } else {
            assert_false(ledger_damaged(l));
            assert_int_equal(ledger_owner(l, GPU_A), cases[i].a);
            assert_int_equal(ledger_owner(l, GPU_B), cases[i].b);
        }
        ledger_free(l);
        remove_dir(dir);
    }
}

/* A restart with another config while kubelet's records cannot be read. */
static void remembers_the_last_form(void **state)
{
    struct error err;
    struct facts f;
    char *dir = temp_dir();
    struct ledger *l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
    ledger_survey(l, &help_survey);
    assert_int_equal(write_out(l), 0);
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, S, &err), 0);
    assert_int_equal(write_out(l), 0);
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, 2 * S, &err), 0);
    assert_null(ledger_pending_text(l)); /* the same form is not written again */
    ledger_free(l);

    l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
    ledger_survey(l, &help_survey);
    ledger_seen(l, NULL, S);
    assert_true(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));
    assert_false(may(l, "nvidia.com/gpu.shared", true, GPU_A, GPU_A));
    assert_true(may(l, "nvidia.com/gpu.shared", true, GPU_B, GPU_B));
    assert_int_equal(grant(l, "nvidia.com/gpu.shared", GPU_A "::0", GPU_A, GPU_A, S, &err),
                     -ERR_CONFLICT);
    facts_init(&f, 3 * S);
    assert_true(ledger_seen(l, &f.in_use, 3 * S));
    assert_true(may(l, "nvidia.com/gpu.shared", true, GPU_A, GPU_A));
    assert_int_equal(grant(l, "nvidia.com/gpu.shared", GPU_A "::0", GPU_A, GPU_A, 4 * S, &err), 0);
    auto_free char *text = ledger_pending_text(l);
    assert_non_null(text);
    assert_null(strstr(text, "\"nvidia.com/gpu\"")); /* the old form went */
    assert_non_null(strstr(text, "\"nvidia.com/gpu.shared\""));
    ledger_free(l);
    remove_dir(dir);
}

/* What changes while a text is being written is not taken for written. */
static void change_during_a_write(void **state)
{
    struct error err;
    char *dir = temp_dir();
    struct ledger *l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
    ledger_survey(l, &help_survey);
    auto_free char *text = ledger_pending_text(l);
    assert_non_null(text);
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_DRA, S, &err), 0);
    assert_null(ledger_pending_text(l));
    ledger_written(l, 0, NULL);
    auto_free char *next = ledger_pending_text(l);
    assert_non_null(next);
    assert_non_null(strstr(next, "draining"));
    ledger_written(l, 0, NULL);
    assert_null(ledger_pending_text(l));
    ledger_written(l, 0, NULL); /* a report too many changes nothing */
    assert_null(ledger_pending_text(l));
    ledger_free(l);
    remove_dir(dir);
}

/* Forms of parts in use stay written down beside each other. */
static void remembers_all_parts(void **state)
{
    struct error err;
    char *dir = temp_dir();
    struct ledger *l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
    ledger_survey(l, &help_survey);
    assert_int_equal(grant(l, "nvidia.com/mig-1g.10gb", MIG_0, MIG_0, GPU_B, S, &err), 0);
    assert_int_equal(grant(l, "nvidia.com/mig-2g.20gb", MIG_1, MIG_1, GPU_B, S, &err), 0);
    auto_free char *text = ledger_pending_text(l);
    assert_non_null(strstr(text, MIG_0));
    assert_non_null(strstr(text, MIG_1));
    ledger_free(l);
    remove_dir(dir);
}

/* ---- owners ---- */

static void see(struct ledger *l, int64_t began_ns, bool checkpoint, const char *held)
{
    struct facts f;
    facts_init(&f, began_ns);
    f.in_use.checkpoint_read = checkpoint;
    if (held)
        facts_add(&f, "nvidia.com/gpu", held, "pod-1")->from_podresources = true;
    ledger_seen(l, &f.in_use, began_ns);
}

/* Each step of a hand-over waits for what it needs. */
static void hand_over_waits(void **state)
{
    struct error err;
    char *dir = temp_dir();
    struct ledger *l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
    ledger_survey(l, &help_survey);
    int64_t t = host_mono_ns(&help_host) + S;
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_DRA, t, &err), 0);
    see(l, t + 11 * S, true, NULL);
    see(l, t + 12 * S, true, NULL);
    assert_false(ledger_tick(l, t + 13 * S)); /* "draining" is not on disk yet */
    assert_int_equal(write_out(l), 0);
    see(l, t + 14 * S, false, GPU_A); /* pod-resources alone: in use after all */
    assert_false(ledger_tick(l, t + 15 * S));
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRAINING);
    see(l, t + 16 * S, true, GPU_A);
    see(l, t + 17 * S, true, NULL);
    assert_false(ledger_tick(l, t + 18 * S)); /* once is not twice */
    see(l, t + 19 * S, true, NULL);
    assert_true(ledger_tick(l, t + 20 * S));
    /* The new owner counts once it is written, not when an older text is. */
    assert_int_equal(ledger_handover_start(l, GPU_B, OWNER_DRA, t + 20 * S, &err), 0);
    auto_free char *both = ledger_pending_text(l);
    assert_non_null(both);
    see(l, t + 40 * S, true, NULL);
    see(l, t + 41 * S, true, NULL);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRAINING);
    ledger_written(l, 0, NULL);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRA);
    /* Something else is on its way to the disk while the owner of B changes. */
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_NONE, t + 42 * S, &err), 0);
    auto_free char *older = ledger_pending_text(l);
    assert_non_null(older);
    assert_true(ledger_tick(l, t + 42 * S));
    ledger_written(l, 0, NULL);
    assert_int_equal(ledger_owner(l, GPU_B), OWNER_DRAINING);
    assert_int_equal(write_out(l), 0);
    assert_int_equal(ledger_owner(l, GPU_B), OWNER_DRA);
    ledger_free(l);
    remove_dir(dir);
}

static void hand_over(void **state)
{
    struct error err;
    struct facts f;
    char *dir = temp_dir();
    struct ledger *l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
    ledger_survey(l, &help_survey);
    assert_int_equal(write_out(l), 0);
    int64_t t0 = host_mono_ns(&help_host) + S;
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, t0, &err), 0);
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_DRA, t0, &err), 0);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRAINING);
    assert_int_equal(ledger_owner(l, GPU_B), OWNER_DEVICE_PLUGIN);
    assert_false(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, t0, &err), -ERR_CONFLICT);
    assert_non_null(strstr(err.text, "handed from device-plugin to dra"));
    assert_true(ledger_wants_facts(l));

    /* In use: never. */
    for (int i = 1; i < 5; i++) {
        facts_init(&f, t0 + i * 10 * S);
        facts_add(&f, "nvidia.com/gpu", GPU_A, "pod-1");
        ledger_seen(l, &f.in_use, 0);
        assert_int_equal(write_out(l), 0);
        assert_false(ledger_tick(l, t0 + i * 10 * S));
    }
    /* Free once: not yet. Killed now: on from the same step. */
    facts_init(&f, t0 + 60 * S);
    ledger_seen(l, &f.in_use, 0);
    assert_false(ledger_tick(l, t0 + 60 * S));
    ledger_free(l);
    l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
    ledger_survey(l, &help_survey);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRAINING);

    /* Twice free, but without the quiet time since the start. */
    int64_t t1 = host_mono_ns(&help_host) + S;
    facts_init(&f, t1);
    ledger_seen(l, &f.in_use, 0);
    facts_init(&f, t1 + S);
    ledger_seen(l, &f.in_use, 0);
    assert_false(ledger_tick(l, t1 + 2 * S));
    ledger_seen(l, NULL, 0); /* unread: nothing */
    assert_true(ledger_next_ns(l) > t1 + 2 * S);
    facts_init(&f, t1 + 10 * S);
    ledger_seen(l, &f.in_use, 0);
    assert_int_equal(ledger_next_ns(l), 0);
    assert_true(ledger_tick(l, t1 + 10 * S));
    /* Decided, but it counts only once it is on disk. */
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRAINING);
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_NONE, t1, &err), -ERR_CONFLICT);
    struct error disk = { .code = ERR_LIMIT, .text = "no space" };
    free(ledger_pending_text(l));
    assert_null(ledger_pending_text(l)); /* in flight */
    ledger_written(l, -ERR_LIMIT, &disk);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRAINING);
    assert_int_equal(write_out(l), 0);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRA);
    assert_int_equal(ledger_next_ns(l), 0); /* tell it */
    assert_true(ledger_tick(l, t1 + 11 * S));
    assert_int_equal(ledger_next_ns(l), INT64_MAX);
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, t1, &err), -ERR_CONFLICT);
    ledger_free(l);
    l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRA);
    ledger_free(l);
    remove_dir(dir);
}

static void hand_over_refused_and_taken_back(void **state)
{
    struct error err;
    struct ledger *l = open_memory();
    assert_int_equal(ledger_handover_start(l, "GPU-x", OWNER_DRA, S, &err), -ERR_NOT_FOUND);
    assert_int_equal(ledger_handover_start(l, MIG_0, OWNER_DRA, S, &err), -ERR_NOT_FOUND);
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_FOREIGN, S, &err), -ERR_INVALID);
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_DEVICE_PLUGIN, S, &err), 0);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DEVICE_PLUGIN);
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_DRA, S, &err), 0);
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_DRA, S, &err), 0);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRAINING);
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_DEVICE_PLUGIN, S, &err), 0);
    assert_int_equal(ledger_owner(l, GPU_A), OWNER_DEVICE_PLUGIN);
    assert_true(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));
    ledger_free(l);
}

/* ---- state that cannot be kept ---- */

static void directory_that_cannot_be_made(void **state)
{
    char *dir = temp_dir();
    auto_arena arena;
    arena_init(&arena, 65536);
    struct findings notes, now;
    findings_init(&notes, &arena, 10);
    findings_init(&now, &arena, 10);
    put_file(dir, "file", "", 0);
    auto_free char *under = x_printf("%s/file/state", dir);
    struct ledger *l = open_at(under, OWNER_DEVICE_PLUGIN, &notes);
    assert_int_equal(notes.n, 1);
    assert_string_equal(notes.items[0].id, "ledger.not-kept");
    ledger_findings(l, &now);
    assert_true(now.n >= 1);
    assert_int_equal(ledger_dirfd(l), -1);
    assert_true(ledger_next_ns(l) < INT64_MAX);

    /* Something is in the way, it may hide a ledger: offered once kubelet's records were read. */
    struct facts f;
    struct error err;
    ledger_survey(l, &help_survey);
    assert_false(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));
    facts_init(&f, S);
    ledger_seen(l, &f.in_use, S);
    assert_true(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, S, &err), 0);
    assert_int_not_equal(write_out(l), 0);

    auto_free char *file = x_printf("%s/file", dir);
    assert_int_equal(unlink(file), 0);
    ledger_tick(l, ledger_next_ns(l));
    assert_true(ledger_dirfd(l) >= 0);
    assert_int_equal(write_out(l), 0);
    now.n = 0;
    ledger_findings(l, &now);
    assert_int_equal(now.n, 0);
    ledger_free(l);
    remove_dir(dir);
}

static void directory_that_vanishes(void **state)
{
    struct error err;
    char *dir = temp_dir();
    auto_free char *state_dir = x_printf("%s/state", dir);
    struct ledger *l = open_at(state_dir, OWNER_DEVICE_PLUGIN, NULL);
    ledger_survey(l, &help_survey);
    assert_int_equal(write_out(l), 0);
    int fd = ledger_dirfd(l);
    auto_free char *command = x_printf("rm -rf %s", state_dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, S, &err), 0);
    assert_int_not_equal(write_out(l), 0);
    assert_int_equal(ledger_dirfd(l), fd); /* the number stays, the disk thread may hold it */
    assert_int_equal(write_out(l), 0);
    assert_int_equal(count_files(state_dir, LEDGER_FILE), 1);
    ledger_free(l);
    remove_dir(dir);
}

static void leftovers_are_removed(void **state)
{
    char *dir = temp_dir();
    put_file(dir, "." LEDGER_FILE ".0123456789abcdef", "x", 1);
    put_file(dir, ".other.json.0123456789abcdef", "x", 1);
    struct ledger *l = open_at(dir, OWNER_DEVICE_PLUGIN, NULL);
    assert_false(ledger_damaged(l));
    assert_int_equal(count_files(dir, "." LEDGER_FILE ".*"), 0);
    assert_int_equal(count_files(dir, ".other.json.*"), 1);
    ledger_free(l);
    remove_dir(dir);
}

static void every_allocation_of_the_reader(void **state)
{
    char *dir = temp_dir();
    struct error err;
    auto_free char *from = x_printf("%s/ledger/v1-granted.json", GOLDEN_DIR);
    auto_free char *text = NULL;
    assert_int_equal(file_read(from, 65536, &text, NULL, &err), 0);
    bool through = false;
    for (uint64_t k = 1; !through; k++) {
        assert_true(k < 10000);
        auto_free char *aside = x_printf("rm -rf %s/%s.damaged-*", dir, LEDGER_FILE);
        assert_int_equal(system(aside), 0);
        put_file(dir, LEDGER_FILE, text, strlen(text));
        struct ledger *l = NULL;
        mem_fail_at(k);
        int r = ledger_open(&help_host, dir, OWNER_NONE, &l, NULL, &err);
        through = mem_fail_at(0) < k;
        assert_int_equal(r, 0);
        /* The reader may do without the memory; it must never take half a ledger for a whole one.
         */
        assert_true(!through || !ledger_damaged(l));
        if (!ledger_damaged(l)) {
            assert_int_equal(ledger_owner(l, GPU_B), OWNER_DEVICE_PLUGIN);
            assert_false(may(l, "nvidia.com/gpu", false, GPU_A, GPU_A));
        }
        ledger_free(l);
    }
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_start_and_restart),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(rebuilt_owner_follows_use),
        cmocka_unit_test(wrong_type_of_file),
        cmocka_unit_test(formats_there_were),
        cmocka_unit_test(remembers_the_last_form),
        cmocka_unit_test(change_during_a_write),
        cmocka_unit_test(remembers_all_parts),
        cmocka_unit_test(hand_over),
        cmocka_unit_test(hand_over_waits),
        cmocka_unit_test(hand_over_refused_and_taken_back),
        cmocka_unit_test(directory_that_cannot_be_made),
        cmocka_unit_test(directory_that_vanishes),
        cmocka_unit_test(leftovers_are_removed),
        cmocka_unit_test(every_allocation_of_the_reader),
    };
    host_plain(&help_host, NULL);
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    host_done(&help_host);
    return r;
}
