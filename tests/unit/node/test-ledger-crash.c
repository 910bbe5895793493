/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger over crashes. One script of changes is run
 *   - in a child that ends at its k-th durable step, for every k;
 *   - with every step recorded, and each prefix of the record made into what a disk may hold after
 * a power loss: unsynced data dropped, zeroed or halved, unsynced names kept, dropped or mixed;
 *   - with each step failing, once or from there on, as a full, read-only or broken disk does.
 * After each crash the ledger is opened again: it must be in the last state that was reported
 * written, or in the one that was being written.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"
#include "ledger-help.h"

/* ---- seams that count, record, fail or end the process ---- */

enum op_kind { OP_CREATE, OP_WRITE, OP_SYNC_FILE, OP_SYNC_DIR, OP_RENAME, OP_UNLINK };

struct op {
    enum op_kind kind;
    int file; /* number of the created file; -1: unknown */
    char name[96], to[96];
    char *data;
    size_t n;
    int commits; /* reported before this step */
};

enum { OPS_MAX = 400, FDS_MAX = 1024 };

static struct {
    int64_t now_ns;
    int step;              /* durable steps so far */
    int die_at;            /* 0: never */
    int fail_at, fail_sys; /* 0: never */
    bool fail_on;          /* from there on, not just once */
    int commits;
    struct op ops[OPS_MAX];
    int n_ops, n_files;
    int file_of_fd[FDS_MAX];
    bool recording;
} seam;

static void seam_reset(void)
{
    for (int i = 0; i < seam.n_ops; i++)
        free(seam.ops[i].data);
    memset(&seam, 0, sizeof seam);
    seam.now_ns = 1000 * S;
}

static int64_t fake_mono(void *arg)
{
    return seam.now_ns;
}

static struct op *record(enum op_kind kind, const char *name)
{
    static struct op nowhere;
    if (!seam.recording)
        return &nowhere;
    assert_true(seam.n_ops < OPS_MAX);
    struct op *o = &seam.ops[seam.n_ops++];
    *o = (struct op){ .kind = kind, .file = -1, .commits = seam.commits };
    snprintf(o->name, sizeof o->name, "%s", name);
    return o;
}

/* Before each step: 0, or the error with which it fails. */
static int step(void)
{
    seam.step++;
    if (seam.step == seam.die_at)
        _exit(9);
    bool fails =
        seam.fail_at && (seam.fail_on ? seam.step >= seam.fail_at : seam.step == seam.fail_at);
    return fails ? -seam.fail_sys : 0;
}

static int on_open(void *arg, int dirfd, const char *name, mode_t mode)
{
    int r = step();
    if (r < 0)
        return r;
    int fd = host_seams_real.open_new(host_seams_real.arg, dirfd, name, mode);
    if (fd >= 0) {
        assert_true(fd < FDS_MAX);
        seam.file_of_fd[fd] = seam.n_files;
        record(OP_CREATE, name)->file = seam.n_files++;
    }
    return fd;
}

static ssize_t on_write(void *arg, int fd, const void *p, size_t n)
{
    int r = step();
    if (r < 0) { /* a full disk takes what still fits */
        if (n > 1)
            (void)host_seams_real.write(host_seams_real.arg, fd, p, n / 2);
        return r;
    }
    ssize_t done = host_seams_real.write(host_seams_real.arg, fd, p, MIN(n, (size_t)100));
    if (done > 0 && seam.recording) {
        struct op *o = record(OP_WRITE, "");
        o->file = seam.file_of_fd[fd];
        o->n = (size_t)done;
        o->data = x_alloc(o->n);
        memcpy(o->data, p, o->n);
    }
    return done;
}

static int on_fsync(void *arg, int fd)
{
    struct stat st;
    int r = step();
    if (r < 0)
        return r;
    assert_int_equal(fstat(fd, &st), 0);
    record(S_ISDIR(st.st_mode) ? OP_SYNC_DIR : OP_SYNC_FILE, "")->file =
        fd < FDS_MAX ? seam.file_of_fd[fd] : -1;
    return 0; /* a real one only costs time here */
}

static int on_rename(void *arg, int dirfd, const char *from, const char *to)
{
    int r = step();
    if (r == 0)
        r = host_seams_real.rename(host_seams_real.arg, dirfd, from, to);
    if (r == 0) {
        struct op *o = record(OP_RENAME, from);
        snprintf(o->to, sizeof o->to, "%s", to);
    }
    return r;
}

static int on_unlink(void *arg, int dirfd, const char *name)
{
    int r = step();
    if (r == 0)
        r = host_seams_real.unlink(host_seams_real.arg, dirfd, name);
    if (r == 0)
        record(OP_UNLINK, name);
    return r;
}

static struct host_seams seams;
static struct host host;

/* ---- the script ---- */

enum { PHASES = 7 };

struct script {
    const char *dir;
    enum file_sync sync;
    int report; /* -1, or where a byte goes after each commit */
    void (*committed)(struct script *s);
    char states[PHASES + 2][128]; /* as found by a reader after each commit */
    bool retry;                   /* writes that fail are tried once more at the end */
};

/* What a reader finds, in words. Opening removes what a killed write left, and nothing else. */
static void read_state(const char *dir, char ret[128])
{
    struct error err = { 0 };
    struct ledger *l = NULL;
    const char *reason = NULL;
    if (ledger_open(&host, dir, OWNER_NONE, &l, NULL, &err) < 0)
        fail_msg("%s", err.text);
    enum owner b = ledger_owner(l, GPU_B);
    bool shares = ledger_may_offer(l, "nvidia.com/gpu.shared", true, GPU_B, GPU_B, &reason);
    snprintf(ret, 128, "%s A=%s B=%s%s", ledger_damaged(l) ? "damaged" : "sound",
             owner_name(ledger_owner(l, GPU_A)), owner_name(b),
             b == OWNER_DEVICE_PLUGIN && !shares ? " granted" : "");
    ledger_free(l);
}

static int write_step(struct ledger *l, struct script *s)
{
    struct error err = { 0 };
    auto_free char *text = ledger_pending_text(l);
    if (!text)
        return 0;
    int r = ledger_dirfd(l) < 0 ? error_set(&err, ERR_UNAVAILABLE, 0, "no directory")
                                : file_replace(&host, ledger_dirfd(l), LEDGER_FILE, str_of(text),
                                               0600, s->sync, &err);
    ledger_written(l, r, &err);
    if (r < 0)
        return r;
    seam.commits++;
    if (s->report >= 0)
        assert_int_equal(write(s->report, "c", 1), 1);
    if (s->committed)
        s->committed(s);
    return 0;
}

static void see_free(struct ledger *l, int64_t later)
{
    struct facts f;
    seam.now_ns += later;
    facts_init(&f, seam.now_ns);
    ledger_seen(l, &f.in_use, seam.now_ns);
    ledger_tick(l, seam.now_ns);
}

static void run_script(struct script *s)
{
    struct error err = { 0 };
    struct ledger *l = NULL;
    if (ledger_open(&host, s->dir, OWNER_DEVICE_PLUGIN, &l, NULL, &err) < 0)
        fail_msg("%s", err.text);
    bool was_damaged = ledger_damaged(l);
    ledger_survey(l, &help_survey);
    write_step(l, s);
    if (was_damaged) {
        see_free(l, S);
        write_step(l, s);
    }
    assert_int_equal(ledger_handover_start(l, GPU_A, OWNER_DRA, seam.now_ns, &err), 0);
    write_step(l, s);
    assert_int_equal(grant(l, "nvidia.com/gpu", GPU_B, GPU_B, GPU_B, seam.now_ns, &err), 0);
    write_step(l, s);
    see_free(l, 20 * S);
    see_free(l, 20 * S);
    write_step(l, s);
    ledger_tick(l, seam.now_ns);
    assert_int_equal(ledger_handover_start(l, GPU_B, OWNER_NONE, seam.now_ns, &err), 0);
    write_step(l, s);
    if (s->retry) {
        for (int i = 0; i < 3; i++) { /* the disk is well again: now nothing may be missing */
            seam.fail_at = 0;
            seam.now_ns += 6 * S;
            see_free(l, 20 * S);
            ledger_tick(l, seam.now_ns);
            assert_int_equal(write_step(l, s), 0);
        }
        assert_null(ledger_pending_text(l));
        char now[128];
        read_state(s->dir, now);
        bool b_drained = ledger_owner(l, GPU_B) != OWNER_DRAINING;
        assert_non_null(strstr(now, b_drained ? "B=none" : "B=draining"));
        assert_int_equal(ledger_owner(l, GPU_A), OWNER_DRA);
        assert_non_null(strstr(now, "sound A=dra"));
    }
    ledger_free(l);
}

static void remember_state(struct script *s)
{
    assert_true(seam.commits <= PHASES);
    bool recording = seam.recording;
    seam.recording = false;
    read_state(s->dir, s->states[seam.commits]);
    seam.recording = recording;
}

static char *temp_with(const char *content)
{
    char *dir = temp_dir();
    auto_free char *path = x_printf("%s/%s", dir, LEDGER_FILE);
    FILE *f = content ? fopen(path, "w") : NULL;
    if (f) {
        fputs(content, f);
        fclose(f);
    }
    return dir;
}

/* Runs the whole script once; *s gets the state after each commit. Returns the number of commits.
 */
static int run_whole(struct script *s, const char *content, bool recording)
{
    char *dir = temp_with(content);
    seam_reset();
    read_state(dir, s->states[0]);
    /* That was a look, which set a damaged file aside: start over. */
    remove_dir(dir);
    dir = temp_with(content);
    seam_reset();
    seam.recording = recording;
    s->dir = dir;
    s->committed = remember_state;
    run_script(s);
    s->committed = NULL;
    s->dir = NULL;
    remove_dir(dir);
    return seam.commits;
}

static const char *const starts[] = { NULL, "", "{\"version\":1" };

static void states_differ(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        struct script s = { .sync = FILE_SYNC_ALL, .report = -1 };
        int n = run_whole(&s, starts[i], false);
        assert_int_equal(n, starts[i] ? 6 : 5);
        for (int c = 0; c < n; c++) /* else the tests below would see nothing */
            if (strcmp(s.states[c], s.states[c + 1]) == 0 && !(starts[i] && c == 0))
                fail_msg("%d: %s", c, s.states[c]);
    }
}

/* ---- killed ---- */

static void expect_one_of(const struct script *s, int commits, const char *found, const char *where,
                          int at)
{
    if (strcmp(found, s->states[commits]) == 0)
        return;
    if (strcmp(found, s->states[commits + 1]) == 0)
        return;
    fail_msg("%s %d: after %d commits found \"%s\", expected \"%s\" or \"%s\"", where, at, commits,
             found, s->states[commits], s->states[commits + 1]);
}

static int run_child(const char *dir, int die_at, int *ret_commits)
{
    int p[2], how, commits = 0;
    char c;
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(p[0]);
        seam_reset();
        seam.die_at = die_at;
        struct script s = { .dir = dir, .sync = FILE_SYNC_ALL, .report = p[1] };
        run_script(&s);
        _exit(0);
    }
    close(p[1]);
    while (read(p[0], &c, 1) == 1)
        commits++;
    close(p[0]);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    *ret_commits = commits;
    return WEXITSTATUS(how);
}

static void killed_at_every_step(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        struct script s = { .sync = FILE_SYNC_ALL, .report = -1 };
        run_whole(&s, starts[i], false);
        int code = 9;
        for (int k = 1; code == 9; k++) {
            int commits;
            char found[128];
            char *dir = temp_with(starts[i]);
            assert_true(k < 1000);
            code = run_child(dir, k, &commits);
            seam_reset();
            read_state(dir, found);
            expect_one_of(&s, commits, found, "killed at step", k);
            remove_dir(dir);
        }
        assert_int_equal(code, 0);
    }
}

/* ---- power lost ---- */

enum names { NAMES_KEPT, NAMES_DROPPED, NAMES_MIXED, NAMES_COUNT };
enum data { DATA_KEPT, DATA_DROPPED, DATA_ZEROED, DATA_HALVED, DATA_COUNT };

enum { FILES_MAX = 40, START_FILE = FILES_MAX - 1 };

struct disk {
    struct {
        char bytes[4096];
        size_t n, synced;
    } files[FILES_MAX];
    struct entry {
        char name[96];
        int file;
    } entries[FILES_MAX];
    int n_entries;
};

static struct entry *find_entry(struct disk *d, const char *name)
{
    for (int i = 0; i < d->n_entries; i++)
        if (strcmp(d->entries[i].name, name) == 0)
            return &d->entries[i];
    return NULL;
}

static void remove_entry(struct disk *d, struct entry *e)
{
    *e = d->entries[--d->n_entries];
}

static void apply_name(struct disk *d, const struct op *o)
{
    struct entry *from = find_entry(d, o->name), *to;
    if (o->kind == OP_CREATE) {
        assert_true(d->n_entries < FILES_MAX);
        to = &d->entries[d->n_entries++];
        snprintf(to->name, sizeof to->name, "%s", o->name);
        to->file = o->file;
    } else if (o->kind == OP_UNLINK && from) {
        remove_entry(d, from);
    } else if (o->kind == OP_RENAME && from) {
        int file = from->file;
        remove_entry(d, from);
        to = find_entry(d, o->to);
        if (!to)
            to = &d->entries[d->n_entries++];
        snprintf(to->name, sizeof to->name, "%s", o->to);
        to->file = file;
    }
}

static bool is_name_op(const struct op *o)
{
    return o->kind == OP_CREATE || o->kind == OP_RENAME || o->kind == OP_UNLINK;
}

static int last_dir_sync(int n)
{
    int last = -1;
    for (int i = 0; i < n; i++)
        if (seam.ops[i].kind == OP_SYNC_DIR)
            last = i;
    return last;
}

/* What the first n steps may leave on the disk. */
static void make_disk(struct disk *d, const char *content, int n, enum names names, uint32_t mix)
{
    memset(d, 0, sizeof *d);
    if (content) {
        d->files[START_FILE].n = d->files[START_FILE].synced = strlen(content);
        memcpy(d->files[START_FILE].bytes, content, strlen(content));
        snprintf(d->entries[0].name, sizeof d->entries[0].name, "%s", LEDGER_FILE);
        d->entries[0].file = START_FILE;
        d->n_entries = 1;
    }
    int synced = last_dir_sync(n), unsynced = 0;
    for (int i = 0; i < n; i++) {
        const struct op *o = &seam.ops[i];
        if (o->kind == OP_WRITE) {
            assert_true(d->files[o->file].n + o->n <= sizeof d->files[0].bytes);
            memcpy(d->files[o->file].bytes + d->files[o->file].n, o->data, o->n);
            d->files[o->file].n += o->n;
        } else if (o->kind == OP_SYNC_FILE) {
            d->files[o->file].synced = d->files[o->file].n;
        }
        bool kept = i < synced || names == NAMES_KEPT ||
                    (names == NAMES_MIXED && (mix >> (unsynced % 32) & 1));
        if (!is_name_op(o))
            continue;
        unsynced += i > synced;
        if (kept)
            apply_name(d, o);
    }
}

static void put_disk(const struct disk *d, enum data data, const char *dir)
{
    static const char zeros[4096];
    for (int i = 0; i < d->n_entries; i++) {
        int file = d->entries[i].file;
        size_t n = d->files[file].n, synced = d->files[file].synced;
        auto_free char *path = x_printf("%s/%s", dir, d->entries[i].name);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fwrite(d->files[file].bytes, 1, synced, f);
        if (data == DATA_KEPT)
            fwrite(d->files[file].bytes + synced, 1, n - synced, f);
        else if (data == DATA_ZEROED)
            fwrite(zeros, 1, n - synced, f);
        else if (data == DATA_HALVED)
            fwrite(d->files[file].bytes + synced, 1, (n - synced) / 2, f);
        fclose(f);
    }
}

/* Opens what is left after n steps. True: one of the two states that may be there. */
static bool survives(const struct script *s, const char *content, int n, enum names names,
                     uint32_t mix, enum data data, char found[128])
{
    static struct disk d;
    int commits = n < seam.n_ops ? seam.ops[n].commits : seam.commits;
    char *dir = temp_dir();
    make_disk(&d, content, n, names, mix);
    put_disk(&d, data, dir);
    read_state(dir, found);
    remove_dir(dir);
    return strcmp(found, s->states[commits]) == 0 || strcmp(found, s->states[commits + 1]) == 0;
}

/* Returns how many of the disks were in a wrong state. */
static int lose_power(enum file_sync sync, const char *content, bool must_hold)
{
    int wrong = 0;
    char found[128];
    struct script s = { .sync = sync, .report = -1 };
    run_whole(&s, content, true);
    seam.recording = false;
    for (int n = 0; n <= seam.n_ops; n++)
        for (int names = 0; names < NAMES_COUNT; names++)
            for (int data = 0; data < DATA_COUNT; data++)
                for (uint32_t mix = 0; mix < (names == NAMES_MIXED ? 8 : 1); mix++) {
                    if (survives(&s, content, n, names, mix, data, found))
                        continue;
                    wrong++;
                    if (must_hold)
                        fail_msg("%d of %d steps, names %d (%u), data %d: found \"%s\"", n,
                                 seam.n_ops, names, (unsigned)mix, data, found);
                }
    return wrong;
}

static void power_lost_after_every_step(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(starts); i++)
        assert_int_equal(lose_power(FILE_SYNC_ALL, starts[i], true), 0);
}

/* The test itself can fail: without the fsyncs that the ledger asks for it does. */
static void power_lost_without_fsync(void **state)
{
    assert_true(lose_power(FILE_SYNC_NONE, NULL, false) > 0);
    assert_true(lose_power(FILE_SYNC_FILE, NULL, false) > 0);
}

/* ---- a disk that fails ---- */

static void fail_steps(const char *content, int sys, bool on)
{
    struct script whole = { .sync = FILE_SYNC_ALL, .report = -1 };
    run_whole(&whole, content, false);
    int steps = seam.step;
    assert_true(steps > 20);
    for (int k = 1; k <= steps; k++) {
        char *dir = temp_with(content);
        struct script s = { .dir = dir, .sync = FILE_SYNC_ALL, .report = -1, .retry = true };
        seam_reset();
        seam.fail_at = k;
        seam.fail_sys = sys;
        seam.fail_on = on;
        run_script(&s);
        remove_dir(dir);
    }
}

static void every_step_fails(void **state)
{
    static const int errors[] = { ENOSPC, EROFS, EIO, EDQUOT, EACCES };
    for (size_t i = 0; i < ARRAY_LEN(starts); i++)
        for (size_t e = 0; e < ARRAY_LEN(errors); e++)
            for (int on = 0; on < 2; on++)
                fail_steps(starts[i], errors[e], on);
}

static void failure_is_told(void **state)
{
    struct error err;
    auto_arena arena;
    arena_init(&arena, 65536);
    struct findings f;
    findings_init(&f, &arena, 10);
    char *dir = temp_dir();
    seam_reset();
    struct ledger *l = NULL;
    assert_int_equal(ledger_open(&host, dir, OWNER_DEVICE_PLUGIN, &l, NULL, &err), 0);
    ledger_survey(l, &help_survey);
    ledger_findings(l, &f);
    assert_int_equal(f.n, 0);
    struct script s = { .sync = FILE_SYNC_ALL, .report = -1 };
    seam.fail_at = 1;
    seam.fail_on = true;
    seam.fail_sys = ENOSPC;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write_step(l, &s), -ERR_LIMIT);
        assert_int_equal(grant(l, "nvidia.com/gpu", GPU_A, GPU_A, GPU_A, S, &err), 0);
    }
    ledger_findings(l, &f);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.items[0].id, "ledger.not-kept");
    assert_non_null(strstr(f.items[0].cause, "No space left"));
    seam.fail_at = 0;
    assert_int_equal(write_step(l, &s), 0);
    f.n = 0;
    ledger_findings(l, &f);
    assert_int_equal(f.n, 0);
    ledger_free(l);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_differ),
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(power_lost_after_every_step),
        cmocka_unit_test(power_lost_without_fsync),
        cmocka_unit_test(every_step_fails),
        cmocka_unit_test(failure_is_told),
    };
    seams = host_seams_real;
    seams.mono_ns = fake_mono;
    seams.open_new = on_open;
    seams.write = on_write;
    seams.fsync = on_fsync;
    seams.rename = on_rename;
    seams.unlink = on_unlink;
    host_plain(&host, &seams);
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    seam_reset();
    host_done(&host);
    return r;
}
