/* SPDX-License-Identifier: Apache-2.0 */
/* Config: read at start, read again on SIGHUP and when its file changes. A new config is tried as a
 * whole on the present survey first; one that fails leaves the old one in force and says why. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/log.h"
#include "base/mem.h"

enum { FINDINGS_MAX = 100, FINDINGS_ARENA = 256 * 1024, CONFIG_POLL_MS = 10000 };

static void log_findings(const struct findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *it = &f->items[i];
        enum log_level level = it->severity == SEVERITY_ERROR     ? LOG_ERROR_
                               : it->severity == SEVERITY_WARNING ? LOG_WARN_
                                                                  : LOG_INFO_;
        log_at(level, "config.finding", KV("id", it->id), KV("place", it->subject),
               KV("cause", it->cause), KV("fix", it->fix));
    }
}

static struct config_identity identify(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return (struct config_identity){ .there = false };
    return (
        struct config_identity){ true, st.st_dev, st.st_ino, st.st_size, st.st_mtim, st.st_ctim };
}

static bool same(const struct config_identity *a, const struct config_identity *b)
{
    return a->there == b->there && a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

int config_load(const struct agent_setup *setup, struct opts *o, struct plugin_config **ret,
                struct config_identity *ret_seen, struct error *err)
{
    struct opts parsed;
    int r = opts_parse(&parsed, setup->table, setup->argc, setup->argv, NULL, 0, err);
    if (r < 0)
        return r;
    if (parsed.help) {
        *o = parsed;
        *ret = NULL;
        return 0;
    }
    *ret_seen = identify(opts_text(&parsed, "config-file")); /* before it is read */
    auto_arena arena;
    arena_init(&arena, FINDINGS_ARENA);
    struct findings findings;
    findings_init(&findings, &arena, FINDINGS_MAX);
    r = pluginconfig_load(&parsed, NULL, NULL, &findings, ret, err);
    log_findings(&findings);
    if (r < 0) {
        opts_done(&parsed);
        return r;
    }
    *o = parsed;
    return 0;
}

void config_log(const struct opts *o, const struct plugin_config *c)
{
    auto_buf set;
    buf_init(&set, 4096);
    for (size_t i = 0; i < o->n; i++) {
        const struct opt_value *v = &o->values[i];
        if (v->source != OPT_FROM_DEFAULT)
            buf_fmt(&set, "%s%s=%s (%s)", set.n ? "; " : "", o->table[i].name, v->text, v->origin);
        log_debug("config.value", KV("option", o->table[i].name), KV("value", v->text),
                  KV("origin", v->origin));
    }
    static const char *const kinds[] = { "none", "time-slicing", "mps" };
    log_info("config.in-force", KV("file", c->source ? c->source : "none"),
             KV("sharing", kinds[c->sharing.kind]), KV("set", set.n ? set.p : "nothing"),
             KV("rest", "defaults"));
}

/* Options that are fixed for the life of the process. */
static const char *const fixed[] = {
    "host-root",   "kubelet-dir", "kubelet-socket", "state-dir",
    "cdi-dir",     "driver-root", "dev-root",       "driver-root-ctr-path",
    "config-file", "label-file",  "runtime-cdi",    "install-dir"
};

static void warn_fixed(const struct opts *old, const struct opts *new)
{
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (strcmp(opts_text(old, fixed[i]), opts_text(new, fixed[i])) != 0)
            log_warn("config.needs-restart", KV("option", fixed[i]),
                     KV("in-force", opts_text(old, fixed[i])),
                     KV("wanted", opts_text(new, fixed[i])),
                     KV("origin", opts_get(new, fixed[i])->origin));
}

/* Would the host's present GPUs be served by this config? */
static int try_config(const struct agent *a, const struct plugin_config *c, struct error *err)
{
    if (!a->survey || !a->ledger)
        return 0;
    const struct inventory_input in = {
        .survey = a->survey,
        .config = c,
        .ledger = a->ledger,
        .health = a->health,
        .before = a->inventory,
    };
    struct inventory *trial = NULL;
    int r = inventory_build(&in, &trial, err);
    inventory_free(trial);
    return r;
}

/* At start an empty file is a config without values, as for the peer. Later it is most likely one
 * that somebody is about to write: falling back to the defaults would withdraw what is shared. */
static int refuse_empty(const char *path, struct error *err)
{
    struct stat st;
    if (!path[0] || stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > 0)
        return 0;
    return error_set(err, ERR_INVALID, 0,
                     "%s: the file is empty; a config without values is \"version: v1\"", path);
}

void agent_reload(struct agent *a, const char *why)
{
    if (!a->survey || !a->started) { /* nothing to try it on yet */
        a->reload_later = true;
        return;
    }
    struct error err;
    struct opts o;
    struct plugin_config *c = NULL;
    const char *path = opts_text(&a->opts, "config-file");
    int r = refuse_empty(path, &err);
    if (r < 0)
        a->config_seen = identify(path);
    else
        r = config_load(a->setup, &o, &c, &a->config_seen, &err);
    if (r == 0 && (r = try_config(a, c, &err)) < 0) {
        opts_done(&o);
        pluginconfig_free(c);
    }
    if (r < 0) {
        log_error("config.rejected", KV("why-read", why), KV_ERR(&err),
                  KV("fix", "the config read before stays in force; correct the file"));
        return;
    }
    warn_fixed(&a->opts, &o);
    opts_done(&a->opts);
    a->opts = o;
    /* The plugins borrow the config until the next publication. */
    if (a->published_config)
        pluginconfig_free(a->config);
    else
        a->published_config = a->config;
    a->config = c;
    a->config_serial++;
    a->config_number++;
    if (a->health)
        health_config(a->health, c);
    log_info("config.loaded", KV("why-read", why), KV("file", c->source ? c->source : ""));
    config_log(&a->opts, c);
    if (a->in_use)
        agent_read_in_use(a);
    agent_changed(a);
}

static void file_changed(void *arg, const char *name)
{
    struct agent *a = arg;
    const char *path = opts_text(&a->opts, "config-file");
    const char *slash = strrchr(path, '/');
    if (!name || strcmp(name, slash ? slash + 1 : path) == 0)
        agent_reload(a, "the file changed");
}

/* What makes no event in the watched folder: the file behind a link changes elsewhere, or its
 * folder is mounted over. */
static void look_again(void *arg)
{
    struct agent *a = arg;
    struct config_identity now = identify(opts_text(&a->opts, "config-file"));
    timer_set(&a->config_timer, CONFIG_POLL_MS);
    if (!same(&now, &a->config_seen))
        agent_reload(a, "the file changed");
}

static void watch_note(void *arg, const char *text)
{
    (void)arg;
    log_warn("config.watch", KV("note", text));
}

int reload_watch(struct agent *a, struct error *err)
{
    const char *path = opts_text(&a->opts, "config-file");
    timer_init(&a->config_timer, a->loop, look_again, a);
    if (!path[0])
        return 0;
    timer_set(&a->config_timer, CONFIG_POLL_MS);
    const char *slash = strrchr(path, '/');
    auto_free char *dir =
        slash ? x_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : x_strdup(".");
    const struct dirwatch_events ev = { .changed = file_changed, .note = watch_note, .arg = a };
    int r = dirwatch_new(a->loop, dir, CONFIG_POLL_MS, &ev, &a->config_watch, err);
    return r < 0 ? error_wrap(err, "watch the config file") : 0;
}
