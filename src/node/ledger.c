/* SPDX-License-Identifier: Apache-2.0 */
#include "node/ledger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "node/ledger_private.h"

/* ---- entries and bases ---- */

static size_t base_place(const struct ledger *l, struct str uuid, bool *ret_found)
{
    size_t low = 0, high = l->n_bases;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = str_cmp(str_of(l->bases[mid].uuid), uuid);
        if (c == 0) {
            *ret_found = true;
            return mid;
        }
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *ret_found = false;
    return low;
}

const struct base *ledger_base(const struct ledger *l, struct str uuid)
{
    bool found;
    size_t at = base_place(l, uuid, &found);
    return found ? &l->bases[at] : NULL;
}

void ledger_base_add(struct ledger *l, const char *uuid, uint32_t gpu)
{
    bool found;
    size_t at = base_place(l, str_of(uuid), &found);
    if (!found) {
        l->bases = x_realloc(l->bases, (l->n_bases + 1) * sizeof *l->bases);
        memmove(l->bases + at + 1, l->bases + at, (l->n_bases - at) * sizeof *l->bases);
        l->n_bases++;
        snprintf(l->bases[at].uuid, sizeof l->bases[at].uuid, "%s", uuid);
    }
    l->bases[at].gpu = gpu;
}

struct entry *ledger_entry(const struct ledger *l, const char *gpu_uuid)
{
    const struct base *b = ledger_base(l, str_of(gpu_uuid));
    struct entry *e = b ? &l->entries[b->gpu] : NULL;
    return e && strcmp(e->uuid, gpu_uuid) == 0 ? e : NULL;
}

struct entry *ledger_entry_add(struct ledger *l, const char *gpu_uuid)
{
    struct entry *e = ledger_entry(l, gpu_uuid);
    if (e)
        return e;
    if (l->n_entries >= LEDGER_GPUS_MAX)
        return NULL;
    l->entries = x_realloc(l->entries, (l->n_entries + 1) * sizeof *l->entries);
    e = &l->entries[l->n_entries];
    *e = (struct entry){ .owner = l->deflt, .quiet_from_ns = l->opened_ns };
    snprintf(e->uuid, sizeof e->uuid, "%s", gpu_uuid);
    ledger_base_add(l, gpu_uuid, l->n_entries++);
    return e;
}

/* A part that is gone and not in use has nothing to tell any more. */
static void drop_old_parts(struct ledger *l, const struct survey *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->n_bases; i++) {
        const struct base *b = &l->bases[i];
        const struct entry *e = &l->entries[b->gpu];
        bool keep = strcmp(b->uuid, e->uuid) == 0 || survey_part(s, b->uuid, NULL) ||
                    !survey_gpu(s, e->uuid) || survey_gpu(s, e->uuid)->lost;
        for (uint32_t k = 0; !keep && k < e->n_kinds; k++)
            keep = kind_held(&e->kinds[k]) && strcmp(e->kinds[k].base, b->uuid) == 0;
        if (keep)
            l->bases[kept++] = *b;
    }
    l->n_bases = kept;
}

bool ledger_survey(struct ledger *l, const struct survey *s)
{
    bool added = false;
    drop_old_parts(l, s);
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        struct entry *e = g->uuid[0] ? ledger_entry(l, g->uuid) : NULL;
        if (!e && g->uuid[0]) {
            e = ledger_entry_add(l, g->uuid);
            if (!e)
                continue;
            e->rebuilt = l->lost_state;
            added = true;
            ledger_changed(l, e);
        }
        for (size_t p = 0; e && p < g->n_parts; p++)
            if (g->parts[p].uuid[0])
                ledger_base_add(l, g->parts[p].uuid, (uint32_t)(e - l->entries));
    }
    ledger_apply_strays(l);
    return added && l->disk_gen != l->gen;
}

/* ---- what is on disk ---- */

/* A new owner counts once it is durable; a hand-over that was only begun may be lost. */
static void settle(struct ledger *l)
{
    for (uint32_t i = 0; i < l->n_entries; i++) {
        struct entry *e = &l->entries[i];
        if (e->step == STEP_SETTLING && e->gen <= l->disk_gen) {
            e->step = STEP_NONE;
            l->settled = true;
        }
    }
}

void ledger_changed(struct ledger *l, struct entry *e)
{
    l->gen++;
    if (e)
        e->gen = l->gen;
    if (!l->state_dir) {
        l->disk_gen = l->gen;
        settle(l);
    }
}

char *ledger_pending_text(struct ledger *l)
{
    if (l->disk_gen == l->gen || l->out_gen)
        return NULL;
    auto_buf text;
    buf_init(&text, LEDGER_TEXT_MAX);
    ledger_encode(l, &text);
    char *p = buf_take(&text);
    if (p)
        l->out_gen = l->gen;
    return p;
}

int ledger_dirfd(const struct ledger *l)
{
    return l->dirfd;
}

/* Opens the state directory; when it was there before, under the same number, since a write in
 * another thread may be using it. */
static int open_dir(struct ledger *l, struct error *err)
{
    int r = dir_make(l->state_dir, 0700, err);
    if (r < 0)
        return r;
    auto_close int fd = open(l->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "open state directory %s", l->state_dir);
    if (l->dirfd < 0)
        l->dirfd = steal_fd(&fd);
    else if (dup3(fd, l->dirfd, O_CLOEXEC) < 0)
        return error_errno(err, errno, "open state directory %s again", l->state_dir);
    return 0;
}

/* The directory's name leads elsewhere or nowhere: it was deleted, replaced or mounted over. */
static bool dir_moved(const struct ledger *l)
{
    struct stat a, b;
    return l->dirfd < 0 || fstat(l->dirfd, &a) < 0 || stat(l->state_dir, &b) < 0 ||
           a.st_dev != b.st_dev || a.st_ino != b.st_ino;
}

void ledger_reopen_dir(struct ledger *l, int64_t now_ns)
{
    struct error err;
    if (!dir_moved(l))
        return;
    if (open_dir(l, &err) < 0) {
        l->write_err = err;
        l->retry_ns = now_ns + LEDGER_RETRY_NS;
    } else {
        l->retry_ns = INT64_MAX;
    }
}

void ledger_dir_moved(struct ledger *l, int64_t now_ns)
{
    if (!l->state_dir || !dir_moved(l))
        return;
    ledger_reopen_dir(l, now_ns);
    ledger_changed(l, NULL);
}

void ledger_written(struct ledger *l, int r, const struct error *e)
{
    static const struct error unsaid = { .code = ERR_INTERNAL, .text = "the write failed" };
    if (r < 0) {
        l->out_gen = 0;
        l->write_err = e && e->code ? *e : unsaid;
        if (l->state_dir)
            ledger_reopen_dir(l, host_mono_ns(l->host));
        return;
    }
    if (!l->out_gen)
        return;
    l->disk_gen = l->out_gen;
    l->out_gen = 0;
    l->write_err = (struct error){ 0 };
    settle(l);
}

/* ---- open ---- */

static void note(struct findings *notes, enum severity severity, const char *id,
                 const char *subject, const char *fix, const char *cause)
{
    if (notes)
        findings_add(notes, id, severity, subject, fix, "%s", cause);
}

static const char damaged_prefix[] = LEDGER_FILE ".damaged-";

/* Removes what a killed write left, and tells whether a damaged ledger was set aside. */
static bool scan_dir(const struct ledger *l)
{
    static const char temporary[] = "." LEDGER_FILE ".";
    bool aside = false;
    int fd = openat(l->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, temporary, sizeof temporary - 1) == 0)
            (void)l->host->seams->unlink(l->host->seams->arg, l->dirfd, e->d_name);
        aside = aside || strncmp(e->d_name, damaged_prefix, sizeof damaged_prefix - 1) == 0;
    }
    closedir(d);
    return aside;
}

/* Moves a damaged ledger out of the way. Should the machine stop right after, the name alone tells
 * the next start that state was lost. */
static void set_aside(struct ledger *l, const struct error *why, struct findings *notes)
{
    char name[sizeof damaged_prefix + 40], when[32] = "unknown-time";
    time_t t = (time_t)(host_real_ns(l->host) / 1000000000);
    struct tm tm;
    if (gmtime_r(&t, &tm))
        strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &tm);
    snprintf(name, sizeof name, "%s%s", damaged_prefix, when);
    int r = l->host->seams->rename(l->host->seams->arg, l->dirfd, LEDGER_FILE, name);
    auto_free char *cause = x_printf(
        "%s; %s%s%s", why->text, r < 0 ? "it cannot be set aside: " : "set aside as ",
        r < 0 ? strerror(-r) : name, "; no gpu is offered until kubelet's records were read");
    note(
        notes, SEVERITY_ERROR, "ledger.damaged", l->state_dir,
        "nothing to do when gpus come back within a minute; keep the file that was set aside for a "
        "report",
        cause);
    l->damaged = true;
    ledger_changed(l, NULL);
}

static void forget(struct ledger *l)
{
    for (uint32_t i = 0; i < l->n_entries; i++)
        entry_done(&l->entries[i]);
    free(steal(l->entries));
    free(steal(l->bases));
    l->n_entries = 0;
    l->n_bases = 0;
}

static int load(struct ledger *l, struct findings *notes, struct error *err)
{
    auto_free char *text = NULL;
    size_t n;
    bool aside = scan_dir(l);
    int r = file_read_at(l->dirfd, LEDGER_FILE, LEDGER_TEXT_MAX, &text, &n, err);
    if (r == -ERR_NOT_FOUND) {
        l->damaged = aside;
        ledger_changed(l, NULL);
        if (aside)
            note(notes, SEVERITY_ERROR, "ledger.damaged", l->state_dir,
                 "nothing to do when gpus come back within a minute",
                 "an earlier ledger was set aside as damaged and never rebuilt; no gpu is offered "
                 "until kubelet's records were read");
        return 0;
    }
    if (r == 0)
        r = ledger_decode(l, (struct str){ text, n }, err);
    if (r == -ERR_UNSUPPORTED)
        return error_wrap(err, "%s/%s", l->state_dir, LEDGER_FILE);
    if (r == 0) {
        l->disk_gen = l->gen;
        return 0;
    }
    forget(l);
    set_aside(l, err, notes);
    return 0;
}

static int open_state(struct ledger *l, struct findings *notes, struct error *err)
{
    struct error why;
    int r = open_dir(l, &why);
    if (r == 0)
        return load(l, notes, err);
    /* Nothing there and nothing to be made there is a first start; anything else may hide a ledger.
     */
    l->damaged = why.sys != EROFS && why.code != ERR_NOT_FOUND;
    l->write_err = why;
    l->retry_ns = l->opened_ns + LEDGER_RETRY_NS;
    ledger_changed(l, NULL);
    note(notes, SEVERITY_ERROR, "ledger.not-kept", l->state_dir,
         "make the directory writable for this process, or choose another with --state-dir",
         why.text);
    return 0;
}

int ledger_open(const struct host *h, const char *state_dir, enum owner deflt, struct ledger **ret,
                struct findings *notes, struct error *err)
{
    struct error here;
    struct ledger *l = x_alloc(sizeof *l);
    l->host = h;
    l->dirfd = -1;
    l->deflt = deflt;
    l->opened_ns = host_mono_ns(h);
    l->retry_ns = INT64_MAX;
    l->state_dir = state_dir && state_dir[0] ? x_strdup(state_dir) : NULL;
    if (host_boot_id(h, l->boot, &here) < 0)
        l->boot[0] = '\0';
    int r = l->state_dir ? open_state(l, notes, err ? err : &here) : 0;
    l->lost_state = l->damaged;
    if (r < 0) {
        ledger_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    forget(l);
    slots_done(&l->grants);
    slots_done(&l->facts);
    in_use_free(l->strays);
    if (l->dirfd >= 0)
        close(l->dirfd);
    free(l->state_dir);
    free(l);
}
