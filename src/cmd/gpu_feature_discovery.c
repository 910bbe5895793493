/* SPDX-License-Identifier: Apache-2.0 */
/* gpu-feature-discovery: writes the node's labels for NFD to find, under the name, flags and
 * environment of the peer's program. It writes when something changed, not once a minute. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/label_options.h"
#include "gpu/worker.h"
#include "io/dirwatch.h"

enum {
    FINDINGS_MAX = 100,
    FINDINGS_ARENA = 256 * 1024,
    ONCE_MS = 120000, /* for the one survey of a oneshot run */
    RETRY_WRITE_MS = 5000,
    FILE_POLL_MS = 10000, /* where the file system tells no changes */
    LOOK_LEAST_MS = 1000,
    LOOK_MOST_MS = 24 * 3600 * 1000,
};

static const char program[] = "gpu-feature-discovery";

/* clang-format off */
static const struct opt options[] = {
    LABEL_OPTIONS,
    { .name = "fail-on-init-error", .type = OPT_BOOL, .env = { "GFD_FAIL_ON_INIT_ERROR", "FAIL_ON_INIT_ERROR" },
      .deflt = "true", .help = "end with an error when the driver cannot be used at start, instead of waiting for it" },
    { .name = "oneshot", .type = OPT_BOOL, .env = { "GFD_ONESHOT" }, .deflt = "false",
      .help = "write the labels once and end" },
    { .name = "sleep-interval", .type = OPT_DURATION, .env = { "GFD_SLEEP_INTERVAL" }, .deflt = "60s",
      .help = "how often the host is looked at for what the driver does not announce; infinite: never" },
    { .name = "output-file", .letter = 'o', .type = OPT_STRING, .aliases = { "output" }, .env = { "GFD_OUTPUT_FILE" },
      .deflt = "/etc/kubernetes/node-feature-discovery/features.d/gfd", .value_name = "FILE",
      .help = "the feature file; empty: standard output" },
    { .name = "delete-output-on-exit", .type = OPT_BOOL, .env = { "METE_DELETE_OUTPUT_ON_EXIT" }, .deflt = "false",
      .help = "remove the feature file when told to end, as NVIDIA's program does" },
    { .name = "use-node-feature-api", .type = OPT_BOOL,
      .env = { "GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API" }, .deflt = "true", .group = "Cluster",
      .help = "accepted, but this version always writes the feature file: it has no NodeFeature client yet" },
    { .name = "kubeconfig", .type = OPT_STRING, .env = { "KUBECONFIG" }, .value_name = "FILE", .group = "Cluster",
      .help = "accepted, not used by this version" },
    { .name = "kube-api-qps", .type = OPT_STRING, .env = { "KUBE_API_QPS" }, .deflt = "5", .value_name = "N",
      .group = "Cluster", .help = "accepted, not used by this version" },
    { .name = "kube-api-burst", .type = OPT_INT, .env = { "KUBE_API_BURST" }, .deflt = "10", .group = "Cluster",
      .help = "accepted, not used by this version" },
    { .name = "namespace", .type = OPT_STRING, .env = { "NAMESPACE" }, .deflt = "default", .value_name = "NAME",
      .group = "Cluster", .help = "accepted, not used by this version" },
    { .name = "node-name", .type = OPT_STRING, .env = { "NODE_NAME" }, .value_name = "NAME", .group = "Cluster",
      .help = "accepted, not used by this version" },
    { .name = "pod-name", .type = OPT_STRING, .env = { "POD_NAME" }, .value_name = "NAME", .group = "Cluster",
      .help = "accepted, not used by this version" },
    { .name = "log-level", .type = OPT_STRING, .env = { "METE_LOG_LEVEL" }, .deflt = "info",
      .choices = "debug|info|warn|error", .group = "Logging", .help = "least level that is logged" },
    { .name = "log-format", .type = OPT_STRING, .env = { "METE_LOG_FORMAT" }, .deflt = "text",
      .choices = "text|json", .group = "Logging", .help = "form of a log line" },
    { 0 },
};
/* clang-format on */

struct gfd {
    int argc;
    char **argv; /* parsed again by a reload */
    struct opts opts;
    struct plugin_config *config;
    bool per_model;
    struct host host;
    struct loop *loop;
    struct gpu_worker *worker;
    struct dirwatch *config_watch, *output_watch;
    struct timer reload_timer, write_timer, look_timer;
    struct survey *survey; /* what the labels are made of; NULL until the first */
    int64_t timestamp;     /* unix seconds of the last load of the config */
    char *text, *notes;    /* as last written and told; NULL: not yet */
    const char *why_reload;
    bool write_failed, kept; /* told of */
};

/* ---- config ---- */

static void log_findings(const struct findings *f, const char *event)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *it = &f->items[i];
        enum log_level level = it->severity == SEVERITY_ERROR     ? LOG_ERROR_
                               : it->severity == SEVERITY_WARNING ? LOG_WARN_
                                                                  : LOG_INFO_;
        log_at(level, event, KV("id", it->id), KV("subject", it->subject), KV("cause", it->cause),
               KV("fix", it->fix));
    }
}

/* On success the old config, options and host are replaced. */
static int load(struct gfd *g, struct error *err)
{
    struct opts o;
    struct host h;
    struct plugin_config *c = NULL;
    bool per_model = false;
    auto_arena arena;
    arena_init(&arena, FINDINGS_ARENA);
    struct findings findings;
    findings_init(&findings, &arena, FINDINGS_MAX);
    int r = opts_parse(&o, options, g->argc, g->argv, NULL, 0, err);
    if (r < 0)
        return r;
    r = label_config_load(&o, &findings, &c, &per_model, err);
    log_findings(&findings, "config.finding");
    if (r == 0)
        r = label_host_init(&o, c, &h, err);
    if (r < 0) {
        pluginconfig_free(c);
        opts_done(&o);
        return r;
    }
    if (g->config) {
        pluginconfig_free(g->config);
        opts_done(&g->opts);
        host_done(&g->host);
    }
    g->opts = o;
    g->config = c;
    g->host = h;
    g->per_model = per_model;
    g->timestamp = host_real_ns(&h) / 1000000000;
    return 0;
}

static void set_up_log(const struct opts *o)
{
    static const char *const levels[] = { "debug", "info", "warn", "error" };
    for (size_t i = 0; i < ARRAY_LEN(levels); i++)
        if (strcmp(opts_text(o, "log-level"), levels[i]) == 0)
            log_setup((enum log_level)i,
                      strcmp(opts_text(o, "log-format"), "json") == 0 ? LOG_JSON : LOG_TEXT);
}

static void say_file_mode(const struct gfd *g)
{
    if (!g->config->gfd.use_node_feature_api || !g->config->gfd.output_file[0])
        return;
    log_warn("labels.node-feature-api",
             KV("cause", "use-node-feature-api is on (its default), but this version has no client "
                         "for the NodeFeature API: the labels go to the feature file only"),
             KV("file", g->config->gfd.output_file),
             KV("fix", "see that NFD's worker reads that directory (its \"local\" source), and set "
                       "--use-node-feature-api=false to end this message"));
}

/* ---- output ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Heap. */
static char *dir_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? x_strdup(".") : x_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static int put_file(const struct gfd *g, struct str text, struct error *err)
{
    const char *path = g->config->gfd.output_file;
    auto_free char *dir = dir_name(path);
    int r = dir_make(dir, 0755, err);
    if (r < 0)
        return r;
    auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "open %s", dir);
    /* Not synced: it is written anew at each start. */
    return file_replace(&g->host, fd, base_name(path), text, 0644, FILE_SYNC_NONE, err);
}

static int put(const struct gfd *g, const char *text, struct error *err)
{
    if (g->config->gfd.output_file[0])
        return put_file(g, str_of(text), err);
    if (fputs(text, stdout) == EOF || fflush(stdout) == EOF)
        return error_errno(err, errno, "write to standard output");
    return 0;
}

/* New things to say are said once, not in every pass. */
static void tell_notes(struct gfd *g, const struct labels *l)
{
    auto_buf now;
    buf_init(&now, LABEL_FILE_MAX);
    labels_notes_text(l, &now);
    const char *text = now.p ? now.p : "";
    if (g->notes && strcmp(g->notes, text) == 0)
        return;
    free(g->notes);
    g->notes = x_strdup(text);
    log_findings(&l->notes, "labels.note");
}

/* ERR_* when the labels could not be made or written. */
static int write_labels(struct gfd *g, struct error *err)
{
    struct label_facts facts;
    struct labels *l = NULL;
    label_facts_read(&g->host, g->config->gfd.machine_type_file, g->survey, &facts);
    const struct label_input in = {
        .survey = g->survey,
        .config = g->config,
        .facts = &facts,
        .timestamp = g->config->gfd.no_timestamp ? -1 : g->timestamp,
        .per_model = g->per_model,
    };
    int r = labels_build(&in, &l, err);
    if (r < 0)
        return r;
    auto_buf text;
    buf_init(&text, LABEL_FILE_MAX);
    labels_text(l, &text);
    const char *now = text.p ? text.p : "";
    tell_notes(g, l);
    if (!g->text || strcmp(g->text, now) != 0) {
        r = put(g, now, err);
        if (r == 0) {
            free(g->text);
            g->text = x_strdup(now);
            log_info("labels.written", KV("file", g->config->gfd.output_file),
                     KV_I("labels", l->n));
        }
    }
    labels_free(l);
    return r;
}

static void relabel(void *arg)
{
    struct gfd *g = arg;
    struct error err;
    if (!g->survey)
        return;
    if (write_labels(g, &err) == 0) {
        g->write_failed = false;
        return;
    }
    if (!g->write_failed)
        log_error("labels.not-written", KV_ERR(&err),
                  KV("fix", "make the directory writable or choose another file with "
                            "--output-file; it is tried again every 5 s"));
    g->write_failed = true;
    timer_set(&g->write_timer, RETRY_WRITE_MS);
}

/* Another program's clean-up may take our file with it. One that is only different is left alone:
 * two that both insist would write without end. */
static void output_changed(void *arg, const char *name)
{
    struct gfd *g = arg;
    const char *path = g->config->gfd.output_file;
    if (!g->text || (name && strcmp(name, base_name(path)) != 0) || access(path, F_OK) == 0)
        return;
    log_warn("labels.file-gone", KV("file", path), KV("next", "it is written again"));
    free(steal(g->text));
    relabel(g);
}

/* ---- survey ---- */

static void first_survey_failed(const struct gfd *g, const struct survey *s)
{
    log_error("driver.not-usable", KV("state", driver_state_name(s->driver)),
              KV("cause", s->driver_text), KV("seen-at", g->host.driver_root_view),
              KV("fix", "see that the NVIDIA driver is installed and loaded on this host and "
                        "visible to this process, or set --fail-on-init-error=false to wait for "
                        "it"));
}

static int64_t look_ms(const struct gfd *g)
{
    int64_t ms = g->config->gfd.sleep_interval_ns / 1000000;
    return MIN(MAX(ms, (int64_t)LOOK_LEAST_MS), (int64_t)LOOK_MOST_MS);
}

static void look_again(void *arg)
{
    struct gfd *g = arg;
    gpu_worker_survey(g->worker);
}

/* Labels of a driver that goes away stay: it is being exchanged, or the host is ending. */
static void surveyed(void *arg, struct survey *s)
{
    struct gfd *g = arg;
    bool first = !g->survey;
    if (first && s->driver != DRIVER_OK && g->config->fail_on_init_error) {
        first_survey_failed(g, s);
        loop_stop(g->loop, 1);
        return;
    }
    if (!first && s->driver != DRIVER_OK && g->survey->driver == DRIVER_OK) {
        if (!g->kept)
            log_warn("labels.kept", KV("driver", driver_state_name(s->driver)),
                     KV("cause", s->driver_text));
        g->kept = true;
        return;
    }
    if (s->driver != DRIVER_OK && (first || g->survey->driver != s->driver))
        log_warn("driver.waiting", KV("state", driver_state_name(s->driver)),
                 KV("cause", s->driver_text));
    g->kept = false;
    survey_unref(g->survey);
    g->survey = survey_ref(s);
    relabel(g);
    if (labels_unsettled(s) && g->config->gfd.sleep_interval_ns != INT64_MAX)
        timer_set(&g->look_timer, look_ms(g));
}

static void happened(void *arg, const struct gpu_event *e)
{
    struct gfd *g = arg;
    if (e->kind == GPU_EVENT_MIG_CHANGE)
        gpu_worker_survey(g->worker);
}

static void worker_state(void *arg, enum driver_state s, bool stale, const char *why)
{
    log_at(s == DRIVER_OK ? LOG_DEBUG_ : LOG_WARN_, "worker.state",
           KV("driver", driver_state_name(s)), KV("why", why));
}

static void worker_note(void *arg, const char *text)
{
    log_debug("worker.note", KV("note", text));
}

/* ---- life ---- */

static void watch_note(void *arg, const char *text)
{
    log_info("watch.note", KV("note", text));
}

static void ask_reload(struct gfd *g, const char *why)
{
    g->why_reload = why;
    timer_set(&g->reload_timer, 0); /* not from within what is torn down */
}

static void config_changed(void *arg, const char *name)
{
    struct gfd *g = arg;
    if (!name || strcmp(name, base_name(opts_text(&g->opts, "config-file"))) == 0)
        ask_reload(g, "the config file changed");
}

static int watch_file(struct gfd *g, const char *path, void (*changed)(void *, const char *),
                      struct dirwatch **ret, struct error *err)
{
    if (!path[0])
        return 0;
    auto_free char *dir = dir_name(path);
    const struct dirwatch_events ev = { .changed = changed, .note = watch_note, .arg = g };
    return dirwatch_new(g->loop, dir, FILE_POLL_MS, &ev, ret, err);
}

static int begin(struct gfd *g, struct error *err)
{
    const struct gpu_worker_config worker = {
        .host = &g->host,
        .poll_ms = look_ms(g),
        .watch_events = true,
        .arg = g,
        .surveyed = surveyed,
        .event = happened,
        .state = worker_state,
        .note = worker_note,
    };
    int r = gpu_worker_new(g->loop, &worker, &g->worker, err);
    auto_free char *dir = dir_name(g->config->gfd.output_file);
    if (g->config->gfd.output_file[0])
        (void)!dir_make(dir, 0755, NULL); /* what is wrong is told when the file is written */
    if (r == 0)
        r = watch_file(g, g->config->gfd.output_file, output_changed, &g->output_watch, err);
    return r;
}

static void halt(struct gfd *g)
{
    timer_stop(&g->look_timer);
    timer_stop(&g->write_timer);
    gpu_worker_free(steal(g->worker));
    dirwatch_free(steal(g->output_watch));
}

static void reload(void *arg)
{
    struct gfd *g = arg;
    struct error err;
    auto_free char *file = x_strdup(g->config->gfd.output_file);
    halt(g); /* it borrows the host, which a new config replaces */
    if (load(g, &err) < 0) {
        log_error("config.rejected", KV("why-read", g->why_reload), KV_ERR(&err),
                  KV("fix", "the config read before stays in force; correct the file"));
    } else {
        log_info("config.loaded", KV("why-read", g->why_reload),
                 KV("file", g->config->source ? g->config->source : ""));
        set_up_log(&g->opts);
        if (strcmp(file, g->config->gfd.output_file) != 0)
            free(steal(g->text));
        relabel(g); /* sharing and strategy need no new survey */
    }
    if (begin(g, &err) < 0) {
        log_error("labels.cannot-go-on", KV_ERR(&err));
        loop_stop(g->loop, 1);
    }
}

static void told_to_reload(void *arg)
{
    ask_reload(arg, "SIGHUP");
}

static void told_to_end(void *arg)
{
    struct gfd *g = arg;
    loop_stop(g->loop, 0);
}

static int watch_signals(struct gfd *g, struct error *err)
{
    static const int ends[] = { SIGTERM, SIGINT, SIGQUIT };
    int r = loop_signal(g->loop, SIGHUP, told_to_reload, g, err);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(ends); i++)
        r = loop_signal(g->loop, ends[i], told_to_end, g, err);
    return r;
}

static void delete_output(const struct gfd *g)
{
    const char *path = g->config->gfd.output_file;
    if (!opts_bool(&g->opts, "delete-output-on-exit") || !path[0] ||
        g->config->gfd.sleep_interval_ns == INT64_MAX)
        return;
    if (unlink(path) == 0)
        log_info("labels.deleted", KV("file", path));
}

static int serve(struct gfd *g, struct error *err)
{
    int r = loop_new(&g->loop, err);
    if (r < 0)
        return r;
    timer_init(&g->reload_timer, g->loop, reload, g);
    timer_init(&g->write_timer, g->loop, relabel, g);
    timer_init(&g->look_timer, g->loop, look_again, g);
    r = watch_signals(g, err);
    /* It stays over every reload, so that no change is missed while one is under way. */
    if (r == 0)
        r = watch_file(g, opts_text(&g->opts, "config-file"), config_changed, &g->config_watch,
                       err);
    if (r == 0)
        r = begin(g, err);
    int code = r == 0 ? loop_run(g->loop) : 1;
    halt(g);
    dirwatch_free(steal(g->config_watch));
    timer_done(&g->reload_timer);
    timer_done(&g->write_timer);
    timer_done(&g->look_timer);
    loop_free(g->loop);
    if (r == 0 && code == 0)
        delete_output(g);
    return r < 0 ? r : code;
}

static int once(struct gfd *g, struct error *err)
{
    int r = gpu_survey_once(&g->host, ONCE_MS, &g->survey, err);
    if (r < 0)
        return r;
    if (g->survey->driver != DRIVER_OK && g->config->fail_on_init_error) {
        first_survey_failed(g, g->survey);
        return 1;
    }
    return write_labels(g, err);
}

static void done(struct gfd *g)
{
    survey_unref(g->survey);
    free(g->text);
    free(g->notes);
    if (!g->config)
        return;
    pluginconfig_free(g->config);
    opts_done(&g->opts);
    host_done(&g->host);
}

static int run(int argc, char **argv)
{
    struct gfd g = { .argc = argc, .argv = argv };
    struct error err;
    struct opts o;
    int code = 0;
    if (!command_begin(&cmd_gpu_feature_discovery, &o, argc, argv, 0, true, &code))
        return code;
    set_up_log(&o);
    opts_done(&o);
    signal(SIGPIPE, SIG_IGN);
    int r = load(&g, &err);
    if (r == 0) {
        log_info("labels.starts", KV("version", METE_VERSION),
                 KV("config", g.config->source ? g.config->source : ""));
        say_file_mode(&g);
        r = g.config->gfd.oneshot ? once(&g, &err) : serve(&g, &err);
    }
    if (r < 0)
        fprintf(stderr, "%s: %s\n", program, err.text);
    done(&g);
    return r == 0 ? 0 : 1;
}

const struct command cmd_gpu_feature_discovery = {
    .name = "gpu-feature-discovery",
    .summary = "write this node's labels for NFD, by the name of NVIDIA's program",
    .usage = "[options]",
    .text =
        "Labels the node's gpus as NVIDIA's gpu-feature-discovery does, into a feature file that "
        "NFD's worker reads. It is what runs when the executable is called gpu-feature-discovery, "
        "so that charts and manifests made for that program keep working.\n\n"
        "The file is written at start and when something changed: MIG devices made or destroyed, "
        "the driver loaded anew, the config file, SIGHUP. Between these it does nothing. It stays "
        "when the program ends, so that labels do not vanish in a restart.",
    .options = options,
    .run = run,
};
