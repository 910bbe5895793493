/* SPDX-License-Identifier: Apache-2.0 */
/* The node's labels as a feature file for NFD (--label-file): made of survey and config only, and
 * written when they change. */
#include "node/labels.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/log.h"
#include "base/mem.h"

enum { FILE_POLL_MS = 10000, LOOK_LEAST_MS = 1000, LOOK_MOST_MS = 24 * 3600 * 1000 };

struct label_file {
    struct agent *agent;
    char *path, *dir;
    const char *name; /* last part of path */
    int dirfd;
    struct dirwatch *watch;
    struct timer retry, look;
    struct survey *survey;  /* what the labels were made of last; NULL: nothing yet */
    uint64_t config_serial; /* the same */
    int64_t timestamp;      /* unix seconds when that config was first used */
    char *text, *notes;     /* as last handed to the disk thread, as last told */
    size_t n_labels;
    bool writing, failed;
};

static void make_again(void *arg)
{
    struct label_file *f = arg;
    free(steal(f->text));
    survey_unref(steal(f->survey));
    agent_labels(f->agent);
}

static void written(void *arg, int r, const struct error *e)
{
    struct label_file *f = arg;
    f->writing = false;
    if (r == 0) {
        f->failed = false;
        log_info("labels.written", KV("file", f->path), KV_I("labels", f->n_labels));
        return;
    }
    if (!f->failed)
        log_error("labels.not-written", KV("file", f->path), KV_ERR(e),
                  KV("fix", "make the directory writable or choose another file with "
                            "--label-file; it is tried again every 5 s"));
    f->failed = true;
    timer_set(&f->retry, RETRY_WRITE_MS);
}

static int open_dir(struct label_file *f, struct error *err)
{
    if (f->dirfd >= 0)
        return 0;
    int r = dir_make(f->dir, 0755, err);
    if (r < 0)
        return r;
    f->dirfd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return f->dirfd < 0 ? error_errno(err, errno, "open %s", f->dir) : 0;
}

static void hand_to_disk(struct label_file *f, const struct labels *l)
{
    struct error err;
    auto_buf text;
    buf_init(&text, LABEL_FILE_MAX);
    labels_text(l, &text);
    if (f->writing || (f->text && text.p && strcmp(f->text, text.p) == 0)) {
        if (f->writing) /* what is on its way may be older */
            timer_set(&f->retry, 1);
        return;
    }
    int r = open_dir(f, &err);
    /* Not synced: it is written anew at each start. */
    if (r == 0)
        r = disk_replace(f->agent->disk, f->dirfd, f->name, buf_view(&text), 0644, FILE_SYNC_NONE,
                         written, f, &err);
    f->writing = r == 0;
    if (r < 0) {
        written(f, r, &err);
        return;
    }
    free(f->text);
    f->text = buf_take(&text);
    f->n_labels = l->n;
}

static void tell_notes(struct label_file *f, const struct labels *l)
{
    auto_buf now;
    buf_init(&now, LABEL_FILE_MAX);
    labels_notes_text(l, &now);
    const char *text = now.p ? now.p : "";
    if (f->notes && strcmp(f->notes, text) == 0)
        return;
    free(f->notes);
    f->notes = x_strdup(text);
    for (size_t i = 0; i < l->notes.n; i++) {
        const struct finding *it = &l->notes.items[i];
        log_at(it->severity == SEVERITY_INFO ? LOG_INFO_ : LOG_WARN_, "labels.note",
               KV("id", it->id), KV("subject", it->subject), KV("cause", it->cause),
               KV("fix", it->fix));
    }
}

static void make(struct label_file *f)
{
    struct agent *a = f->agent;
    const struct plugin_config *c = a->config;
    struct label_facts facts;
    struct labels *l = NULL;
    struct error err;
    label_facts_read(&a->host, c->gfd.machine_type_file, f->survey, &facts);
    const struct label_input in = {
        .survey = f->survey,
        .config = c,
        .facts = &facts,
        .timestamp = c->gfd.no_timestamp ? -1 : f->timestamp,
        .per_model = opts_bool(&a->opts, "labels-per-model"),
    };
    if (labels_build(&in, &l, &err) < 0) {
        log_error("labels.not-made", KV_ERR(&err));
        return;
    }
    tell_notes(f, l);
    hand_to_disk(f, l);
    labels_free(l);
}

/* ---- life ---- */

static void look_again(void *arg)
{
    struct label_file *f = arg;
    gpu_worker_survey(f->agent->worker);
}

/* Somebody else's clean-up may take the file with it. */
static void dir_changed(void *arg, const char *name)
{
    struct label_file *f = arg;
    if (f->writing || !f->text || (name && strcmp(name, f->name) != 0) ||
        access(f->path, F_OK) == 0)
        return;
    log_warn("labels.file-gone", KV("file", f->path), KV("next", "it is written again"));
    if (f->dirfd >= 0)
        close(steal_fd(&f->dirfd)); /* perhaps the directory went with it */
    make_again(f);
}

static struct label_file *label_file_new(struct agent *a, const char *path)
{
    struct label_file *f = x_alloc(sizeof *f);
    const char *slash = strrchr(path, '/');
    f->agent = a;
    f->path = x_strdup(path);
    f->name = slash ? f->path + (slash - path) + 1 : f->path;
    f->dir = !slash ? x_strdup(".") : x_strndup(path, slash == path ? 1 : (size_t)(slash - path));
    f->dirfd = -1;
    timer_init(&f->retry, a->loop, make_again, f);
    timer_init(&f->look, a->loop, look_again, f);
    struct error err;
    (void)!dir_make(f->dir, 0755, NULL); /* what is wrong is told when the file is written */
    const struct dirwatch_events ev = { .changed = dir_changed, .arg = f };
    if (dirwatch_new(a->loop, f->dir, FILE_POLL_MS, &ev, &f->watch, &err) < 0)
        log_warn("labels.not-watched", KV("dir", f->dir), KV_ERR(&err));
    return f;
}

static void settle_later(struct label_file *f)
{
    int64_t ns = f->agent->config->gfd.sleep_interval_ns;
    if (ns == INT64_MAX || !labels_unsettled(f->survey))
        timer_stop(&f->look);
    else if (!timer_pending(&f->look))
        timer_set(&f->look, MIN(MAX(ns / 1000000, (int64_t)LOOK_LEAST_MS), (int64_t)LOOK_MOST_MS));
}

void agent_labels(struct agent *a)
{
    const char *path = opts_text(&a->opts, "label-file");
    if (!path[0] || !a->survey)
        return;
    struct label_file *f = a->labels;
    if (!f)
        f = a->labels = label_file_new(a, path);
    /* Labels of a driver that goes away stay: it is being exchanged, or the host is ending. */
    struct survey *s = a->survey;
    if (s->driver != DRIVER_OK && f->survey && f->survey->driver == DRIVER_OK)
        s = f->survey;
    if (f->survey == s && f->config_serial == a->config_serial && f->timestamp)
        return;
    if (!f->timestamp || f->config_serial != a->config_serial)
        f->timestamp = host_real_ns(&a->host) / 1000000000;
    f->config_serial = a->config_serial;
    survey_ref(s);
    survey_unref(f->survey);
    f->survey = s;
    make(f);
    settle_later(f);
}

void agent_labels_done(struct agent *a)
{
    struct label_file *f = steal(a->labels);
    if (!f)
        return;
    dirwatch_free(f->watch);
    timer_done(&f->retry);
    timer_done(&f->look);
    survey_unref(f->survey);
    if (f->dirfd >= 0)
        close(f->dirfd);
    free(f->path);
    free(f->dir);
    free(f->text);
    free(f->notes);
    free(f);
}
