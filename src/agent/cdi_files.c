/* SPDX-License-Identifier: Apache-2.0 */
/* The CDI files on disk: written when their text changes, and again when somebody else changed or
 * deleted them. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/log.h"
#include "base/mem.h"
#include "cdi/cdi.h"
#include "cdi/registry.h"

enum {
    FILE_MAX = 4 * 1024 * 1024,
    ARENA_MAX = 16 * 1024 * 1024,
    LOOK_MS = 50,       /* after an event in the directory */
    POLL_MS = 10000,    /* where inotify is not to be had */
    RANDOM_DIGITS = 16, /* at the end of a temporary file's name */
};
static const char ours[] = "k8s.device-plugin.nvidia.com-",
                  plugin_gpus[] = "k8s.device-plugin.nvidia.com/gpu",
                  runtime_kind[] = "nvidia.com/gpu",
                  runtime_file[] = "mete-nvidia.com-gpu.json"; /* nobody else's name */

static bool uses_cdi(const struct plugin_config *c)
{
    return c->list_strategies & (LIST_CDI_ANNOTATIONS | LIST_CDI_CRI);
}

bool agent_wants_cdi(const struct agent *a)
{
    return uses_cdi(a->config) || a->runtime_cdi;
}

/* ---- trouble, told once ---- */

static void failed(struct agent *a, const struct error *e)
{
    a->cdi_failed = true;
    if (!told_anew(&a->cdi_told, e->text, host_mono_ns(&a->host)))
        return;
    log_error("cdi.not-written", KV("dir", a->cdi_dir), KV_ERR(e),
              KV("fix",
                 "make the directory writable or choose another with --cdi-dir; what needs "
                 "other CDI files than those on disk is not offered until they are written"));
}

static void settled(struct agent *a)
{
    if (!a->cdi_failed && told_over(&a->cdi_told))
        log_info("cdi.written-again", KV("dir", a->cdi_dir));
    agent_cdi_settled(a);
}

/* ---- the directory ---- */

/* ".k8s.device-plugin.nvidia.com-gpu.json.<16 hex digits>": left by a killed write. */
static bool is_left_over(const char *name)
{
    size_t n = strlen(name);
    if (n < sizeof runtime_file + RANDOM_DIGITS || name[0] != '.' ||
        (strncmp(name + 1, ours, sizeof ours - 1) != 0 &&
         strncmp(name + 1, runtime_file, sizeof runtime_file - 1) != 0) ||
        name[n - RANDOM_DIGITS - 1] != '.')
        return false;
    for (size_t i = n - RANDOM_DIGITS; i < n; i++)
        if (!isxdigit((unsigned char)name[i]))
            return false;
    return true;
}

static void sweep(const char *path)
{
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (is_left_over(e->d_name))
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
}

static void changed(void *arg, const char *name)
{
    struct agent *a = arg;
    bool about_us = !name || a->runtime_cdi || strncmp(name, ours, sizeof ours - 1) == 0;
    if (about_us && !timer_pending(&a->cdi_look))
        timer_set(&a->cdi_look, LOOK_MS);
}

static int open_dir(struct agent *a, struct error *err)
{
    if (a->cdi_dirfd >= 0)
        return 0;
    int r = dir_make(a->cdi_dir, 0755, err);
    if (r < 0)
        return error_wrap(err, "CDI directory");
    a->cdi_dirfd = open(a->cdi_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->cdi_dirfd < 0)
        return error_errno(err, errno, "open the CDI directory %s", a->cdi_dir);
    sweep(a->cdi_dir);
    const struct dirwatch_events ev = { .changed = changed, .arg = a };
    return a->cdi_watch ? 0 : dirwatch_new(a->loop, a->cdi_dir, POLL_MS, &ev, &a->cdi_watch, err);
}

/* Another directory has the name now, or none. */
static void drop_dir(struct agent *a)
{
    struct stat held, named;
    if (a->cdi_dirfd >= 0 && fstat(a->cdi_dirfd, &held) == 0 && stat(a->cdi_dir, &named) == 0 &&
        held.st_dev == named.st_dev && held.st_ino == named.st_ino && held.st_nlink > 0)
        return;
    if (a->cdi_dirfd >= 0)
        close(steal_fd(&a->cdi_dirfd));
}

/* ---- files ---- */

static struct cdi_file *find(struct agent *a, const char *name)
{
    for (size_t i = 0; i < a->n_files; i++)
        if (strcmp(a->files[i].name, name) == 0)
            return &a->files[i];
    return NULL;
}

static void written(void *arg, int r, const struct error *e)
{
    struct cdi_file *f = arg;
    struct agent *a = f->agent;
    a->cdi_waiting--;
    f->on_disk = r == 0;
    if (r < 0)
        failed(a, e);
    if (a->cdi_waiting == 0)
        settled(a);
}

static int write_file(struct agent *a, const char *name, struct str text, struct error *err)
{
    struct cdi_file *f = find(a, name);
    if (f && f->on_disk && str_is(text, f->text))
        return 0;
    if (!f && a->n_files == FILES_MAX)
        return error_set(err, ERR_LIMIT, 0, "more than %d CDI files", FILES_MAX);
    if (!f) {
        f = &a->files[a->n_files++];
        *f = (struct cdi_file){ .agent = a, .name = x_strdup(name) };
    }
    int r = disk_replace(a->disk, a->cdi_dirfd, name, text, 0644, FILE_SYNC_NONE, written, f, err);
    if (r < 0)
        return r;
    a->cdi_waiting++;
    f->on_disk = false;
    free(f->text);
    f->text = x_strndup(text.p, text.n);
    return 0;
}

static int write_as(struct agent *a, const char *name, const struct cdi_spec *spec,
                    struct error *err)
{
    auto_buf text;
    buf_init(&text, FILE_MAX);
    if (!name)
        return error_set(err, ERR_LIMIT, 0, "CDI specs need more than %d bytes", ARENA_MAX);
    int r = cdi_encode(spec, &text, err);
    return r < 0 ? r : write_file(a, name, buf_view(&text), err);
}

/* ---- the kind that mete-runtime looks in first ---- */

/* A file of somebody else with that kind: two definitions of one device would make it unusable for
 * everybody. */
static bool kind_elsewhere(const struct agent *a, char *ret_file, size_t size)
{
    auto_free char *etc_cdi = host_path(&a->host, "/etc/cdi");
    const char *dirs[] = { etc_cdi, a->cdi_dir };
    struct cdi_registry *r = NULL;
    auto_arena arena;
    struct findings ignored;
    struct error err;
    bool found = false;
    arena_init(&arena, 1024 * 1024);
    findings_init(&ignored, &arena, 1);
    if (cdi_registry_load(dirs, ARRAY_LEN(dirs), &r, &ignored, &err) < 0)
        return false;
    for (size_t i = 0; i < r->n_files && !found; i++) {
        const char *slash = strrchr(r->files[i], '/');
        found = strcmp(value_text(value_get(r->docs[i], "kind"), ""), runtime_kind) == 0 &&
                strcmp(slash ? slash + 1 : r->files[i], runtime_file) != 0;
        if (found)
            snprintf(ret_file, size, "%s", r->files[i]);
    }
    cdi_registry_free(r);
    return found;
}

/* Takes our file of that kind away; no write is on its way. */
static void drop_runtime_file(struct agent *a)
{
    struct cdi_file *f = find(a, runtime_file);
    if (a->cdi_dirfd >= 0)
        (void)unlinkat(a->cdi_dirfd, runtime_file, 0);
    if (!f)
        return;
    free(f->name);
    free(f->text);
    *f = a->files[--a->n_files];
}

static void look_elsewhere(struct agent *a)
{
    char file[512];
    bool now = a->runtime_cdi && kind_elsewhere(a, file, sizeof file);
    if (now && !a->runtime_cdi_elsewhere)
        log_warn("cdi.kind-elsewhere", KV("kind", runtime_kind), KV("file", file),
                 KV("fix", "--runtime-cdi waits until that file is gone; mete-runtime uses that "
                           "file, and k8s.device-plugin.nvidia.com/gpu for what it lacks"));
    if (!now && a->runtime_cdi_elsewhere)
        log_info("cdi.kind-ours-again", KV("kind", runtime_kind));
    a->runtime_cdi_elsewhere = now;
}

/* The gpus under the plugin's kind for kubelet's CDI strategies, under the runtime's for
 * mete-runtime; where somebody else has that one, under the plugin's for it too. */
static int write_spec(struct agent *a, struct arena *arena, const struct cdi_spec *spec,
                      struct error *err)
{
    bool gpus = strcmp(spec->kind, plugin_gpus) == 0;
    bool for_runtime = gpus && a->runtime_cdi && !a->runtime_cdi_elsewhere;
    int r = 0;
    if (for_runtime) {
        struct cdi_spec same = *spec;
        same.kind = runtime_kind;
        r = write_as(a, runtime_file, &same, err);
    }
    if (r == 0 && (uses_cdi(a->config) || !for_runtime))
        r = write_as(a, cdi_file_name(arena, spec), spec, err);
    return r;
}

/* What is on disk was made for this survey and this config: there is nothing to look for on the
 * host. Health alone turns far more often than either. */
static bool is_current(const struct agent *a, const struct inventory *inv)
{
    bool current = a->cdi_survey == inv->survey && a->cdi_config == a->config_number &&
                   !a->cdi_failed && a->cdi_dirfd >= 0;
    for (size_t i = 0; current && i < a->n_files; i++)
        current = a->files[i].on_disk;
    return current;
}

void cdi_files_write(struct agent *a, const struct inventory *inv)
{
    drop_dir(a);
    if (is_current(a, inv)) {
        settled(a);
        return;
    }
    survey_unref(a->cdi_survey);
    a->cdi_survey = survey_ref(inv->survey);
    a->cdi_config = a->config_number;
    struct error err;
    auto_arena arena;
    arena_init(&arena, ARENA_MAX);
    struct cdi_spec *specs;
    struct plugin_config config = *a->config; /* borrows all of it */
    size_t n;
    a->cdi_failed = false;
    if (a->hook_path && opts_get(&a->opts, "nvidia-cdi-hook-path")->source == OPT_FROM_DEFAULT)
        config.cdi_hook_path = a->hook_path;
    int r = open_dir(a, &err);
    if (r == 0) {
        look_elsewhere(a);
        if (!a->runtime_cdi || a->runtime_cdi_elsewhere)
            drop_runtime_file(a);
        r = cdi_build(&arena, &a->host, inv->survey, &config, &specs, &n, &err);
    }
    for (size_t i = 0; r == 0 && i < n; i++)
        r = write_spec(a, &arena, &specs[i], &err);
    if (r < 0)
        failed(a, &err);
    if (a->cdi_waiting == 0)
        settled(a);
}

/* ---- somebody else's doing ---- */

static bool is_on_disk(const struct agent *a, const struct cdi_file *f)
{
    auto_free char *path = x_printf("%s/%s", a->cdi_dir, f->name);
    auto_free char *text = NULL;
    return file_read(path, FILE_MAX, &text, NULL, NULL) == 0 && strcmp(text, f->text) == 0;
}

static void look(void *arg)
{
    struct agent *a = arg;
    const struct cdi_file *lost = NULL;
    if (a->cdi_waiting > 0) {
        timer_set(&a->cdi_look, LOOK_MS);
        return;
    }
    bool elsewhere = a->runtime_cdi_elsewhere;
    look_elsewhere(a);
    if (elsewhere != a->runtime_cdi_elsewhere) {
        survey_unref(steal(a->cdi_survey)); /* the files are others now */
        agent_changed(a);
        return;
    }
    for (size_t i = 0; i < a->n_files; i++) {
        struct cdi_file *f = &a->files[i];
        if (!f->on_disk || is_on_disk(a, f))
            continue;
        f->on_disk = false;
        lost = f;
    }
    if (!lost)
        return;
    /* With somebody who writes the same files this would be a race without end. */
    int64_t now = host_mono_ns(&a->host), ms = (now - a->cdi_repaired_ns) / 1000000;
    bool soon = a->cdi_repaired_ns && ms < RETRY_WRITE_MS;
    a->cdi_repaired_ns = now;
    log_warn("cdi.changed-by-others", KV("dir", a->cdi_dir), KV("file", lost->name),
             KV("next", soon ? "it is written again in some seconds" : "it is written again"));
    timer_set(&a->cdi_timer, soon ? RETRY_WRITE_MS : 0);
}

void cdi_files_init(struct agent *a)
{
    timer_init(&a->cdi_look, a->loop, look, a);
    a->cdi_dirfd = -1;
}

void cdi_files_done(struct agent *a)
{
    dirwatch_free(steal(a->cdi_watch));
    timer_done(&a->cdi_look);
    for (size_t i = 0; i < a->n_files; i++) {
        free(a->files[i].name);
        free(a->files[i].text);
    }
    a->n_files = 0;
    survey_unref(steal(a->cdi_survey));
    (void)told_over(&a->cdi_told);
    if (a->cdi_dirfd >= 0)
        close(steal_fd(&a->cdi_dirfd));
}
