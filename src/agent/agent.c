/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/log.h"
#include "base/mem.h"

/* ---- durable state ---- */

static void save_later(void *arg)
{
    agent_save(arg);
}

static void ledger_done(void *arg, int r, const struct error *e)
{
    struct agent *a = arg;
    a->ledger_writing = false;
    ledger_written(a->ledger, r, e);
    if (r < 0) {
        if (told_anew(&a->ledger_told, e->text, host_mono_ns(&a->host)))
            log_error("ledger.not-written", KV("dir", a->state_dir), KV_ERR(e),
                      KV("fix", "the agent goes on from memory and tries again every 5 s; free or "
                                "unlock the directory"));
        timer_set(&a->write_timer, RETRY_WRITE_MS);
        return;
    }
    if (told_over(&a->ledger_told))
        log_info("ledger.written-again", KV("dir", a->state_dir));
    agent_save(a);
}

static void health_done(void *arg, int r, const struct error *e)
{
    struct agent *a = arg;
    a->health_writing = false;
    if (r < 0) {
        if (told_anew(&a->health_told, e->text, host_mono_ns(&a->host)))
            log_error("health.not-written", KV("dir", a->state_dir), KV_ERR(e));
        free(steal(a->health_text));
        timer_set(&a->write_timer, RETRY_WRITE_MS);
        return;
    }
    if (told_over(&a->health_told))
        log_info("health.written-again", KV("dir", a->state_dir));
    agent_save(a); /* what changed meanwhile */
}

static void save_ledger(struct agent *a)
{
    auto_free char *text = a->ledger_writing ? NULL : ledger_pending_text(a->ledger);
    if (!text)
        return;
    struct error err;
    int r = disk_replace(a->disk, ledger_dirfd(a->ledger), LEDGER_FILE, str_of(text), 0600,
                         FILE_SYNC_ALL, ledger_done, a, &err);
    a->ledger_writing = true;
    if (r < 0)
        ledger_done(a, r, &err);
}

static void save_health(struct agent *a)
{
    auto_buf text;
    buf_init(&text, 1024 * 1024);
    health_save(a->health, &text);
    if (a->health_writing || text.failed ||
        (a->health_text && text.p && strcmp(a->health_text, text.p) == 0))
        return;
    struct error err;
    free(a->health_text);
    a->health_text = buf_take(&text);
    int r = disk_replace(a->disk, ledger_dirfd(a->ledger), HEALTH_FILE, str_of(a->health_text),
                         0600, FILE_SYNC_FILE, health_done, a, &err);
    a->health_writing = true;
    if (r < 0)
        health_done(a, r, &err);
}

void agent_save(struct agent *a)
{
    if (!a->started || ledger_dirfd(a->ledger) < 0)
        return;
    save_ledger(a);
    save_health(a);
}

static void in_use_again(void *arg)
{
    agent_read_in_use(arg);
}

/* ---- health and survey ---- */

static void health_changed(struct agent *a)
{
    int64_t next = health_next_ns(a->health), now = host_mono_ns(&a->host);
    if (next == INT64_MAX)
        timer_stop(&a->health_timer);
    else
        timer_set(&a->health_timer, next <= now ? 1 : (next - now) / 1000000 + 1);
    if (health_wants_survey(a->health) && a->worker)
        gpu_worker_survey(a->worker);
    agent_save(a);
}

static void health_due(void *arg)
{
    struct agent *a = arg;
    if (health_tick(a->health, host_mono_ns(&a->host)))
        agent_changed(a);
    health_changed(a);
}

static void ledger_due(void *arg)
{
    struct agent *a = arg;
    if (ledger_tick(a->ledger, host_mono_ns(&a->host)))
        agent_changed(a);
    agent_save(a);
    agent_watch_ledger(a);
}

static void first_survey_failed(const struct agent *a, const struct survey *s)
{
    log_error("driver.not-usable", KV("state", driver_state_name(s->driver)),
              KV("cause", s->driver_text));
    if (strcmp(s->platform, "tegra") == 0)
        return;
    log_error("driver.not-usable",
              KV("fix", "see that the NVIDIA driver is installed and loaded on this host, and that "
                        "--driver-root (and --driver-root-ctr-path, where this process sees it) "
                        "point to it"));
    log_error("driver.not-usable", KV("driver-root", a->host.driver_root),
              KV("seen-at", a->host.driver_root_view));
    log_error("driver.not-usable",
              KV("fix", "if this node has no GPU, keep the agent off it, or set "
                        "--fail-on-init-error=false to let it wait for a driver"));
}

static void surveyed(void *arg, struct survey *s)
{
    struct agent *a = arg;
    bool first = !a->survey;
    if (first)
        log_info("survey.first", KV("driver", driver_state_name(s->driver)),
                 KV("version", s->driver_version), KV_I("gpus", s->n_gpus),
                 KV_I("after-us", (host_mono_ns(&a->host) - a->began_ns) / 1000));
    survey_unref(a->survey);
    a->survey = survey_ref(s);
    if (first && s->driver != DRIVER_OK) {
        if (a->config->fail_on_init_error) {
            first_survey_failed(a, s);
            agent_end(a, 1);
            return;
        }
        log_warn("driver.waiting", KV("state", driver_state_name(s->driver)),
                 KV("cause", s->driver_text));
    }
    int64_t now = host_mono_ns(&a->host);
    health_survey(a->health, s, now);
    if (a->started)
        ledger_survey(a->ledger, s);
    agent_changed(a);
    health_changed(a);
}

static void log_event(struct agent *a, const struct gpu_event *e)
{
    uint64_t hidden;
    enum log_level level = e->kind == GPU_EVENT_XID ? LOG_WARN_ : LOG_INFO_;
    if (!flood_lets(&a->events, host_mono_ns(&a->host), &hidden))
        return;
    if (hidden)
        log_warn("gpu.events-not-told", KV_I("lines", hidden));
    log_at(level, "gpu.event", KV("kind", gpu_event_name(e->kind)), KV("gpu", e->uuid),
           KV_I("value", e->value));
}

static void happened(void *arg, const struct gpu_event *e)
{
    struct agent *a = arg;
    log_event(a, e);
    if (e->kind == GPU_EVENT_MIG_CHANGE)
        gpu_worker_survey(a->worker);
    if (health_event(a->health, e, host_mono_ns(&a->host)))
        agent_changed(a);
    health_changed(a);
}

static void worker_state(void *arg, enum driver_state s, bool stale, const char *why)
{
    struct agent *a = arg;
    a->driver = s;
    log_at(s == DRIVER_OK ? LOG_INFO_ : LOG_WARN_, "worker.state",
           KV("driver", driver_state_name(s)), KV("why", why));
    if (health_driver(a->health, s, stale, host_mono_ns(&a->host)))
        agent_changed(a);
    health_changed(a);
}

static void worker_note(void *arg, const char *text)
{
    (void)arg;
    log_warn("worker.note", KV("note", text));
}

/* ---- kubelet ---- */

static void registered(void *arg, const char *resource, size_t devices)
{
    struct agent *a = arg;
    log_info("plugin.registered", KV("resource", resource), KV_I("devices", devices),
             KV_I("after-us", (host_mono_ns(&a->host) - a->began_ns) / 1000));
}

static void first_list(void *arg, const char *resource)
{
    struct agent *a = arg;
    log_info("plugin.listed", KV("resource", resource),
             KV_I("after-us", (host_mono_ns(&a->host) - a->began_ns) / 1000));
    agent_compare_soon(a);
}

static void plugin_failed(void *arg, const char *resource, bool permanent, const char *why)
{
    (void)arg;
    log_at(permanent ? LOG_ERROR_ : LOG_WARN_, "plugin.not-registered", KV("resource", resource),
           KV("cause", why),
           KV("fix", "kubelet's directory is set with --kubelet-dir, its socket with "
                     "--kubelet-socket"),
           KV("next", permanent ? "waits until kubelet starts anew" : "tries again"));
}

/* Whoever opens our socket can make these come as fast as it likes. */
static void log_refusal(struct agent *a, const char *resource, const char *ids, const char *error)
{
    uint64_t hidden;
    if (!flood_lets(&a->refusals, host_mono_ns(&a->host), &hidden))
        return;
    if (hidden)
        log_warn("grant.refusals-not-told", KV_I("lines", hidden));
    log_warn("grant.refused", KV("resource", resource), KV("devices", ids), KV("cause", error));
}

static void granted(void *arg, const char *resource, const char *ids, const char *error)
{
    struct agent *a = arg;
    if (error)
        log_refusal(a, resource, ids, error);
    else
        log_info("grant", KV("resource", resource), KV("devices", ids));
    /* Whether the container really came to be is only seen in kubelet's own records. A new kind of
     * grant is also written down, but not before the answer has left. */
    if (!timer_pending(&a->in_use_timer))
        timer_set(&a->in_use_timer, GRANT_CHECK_MS);
    if (!timer_pending(&a->write_timer))
        timer_set(&a->write_timer, GRANT_WRITE_MS);
}

static void not_distinct(void *arg, const char *resource, const char *ids)
{
    (void)arg;
    log_warn("grant.not-distinct", KV("resource", resource), KV("devices", ids),
             KV("cause", "two of the shares are of one gpu or part"),
             KV("fix", "set sharing.requireDistinct to refuse such a grant"));
}

/* Kubelet writes it right after Allocate: read then, a grant is confirmed before its pod can be
 * gone again. Missed, the gpu would be kept from every other form for minutes. */
static void checkpoint_changed(void *arg, const char *name)
{
    struct agent *a = arg;
    bool wanted = agent_withholds(a) || ledger_wants_facts(a->ledger);
    if (wanted && (!name || strcmp(name, CHECKPOINT_FILE) == 0))
        agent_read_in_use(a);
}

/* ---- start and end ---- */

static void load_health(struct agent *a)
{
    struct error err;
    auto_free char *text = NULL;
    char boot[HOST_BOOT_ID_SIZE];
    if (ledger_dirfd(a->ledger) < 0)
        return;
    if (host_boot_id(&a->host, boot, NULL) == 0)
        health_boot(a->health, boot);
    int r = file_read_at(ledger_dirfd(a->ledger), HEALTH_FILE, 1024 * 1024, &text, NULL, &err);
    if (r == 0)
        r = health_load(a->health, str_of(text), host_mono_ns(&a->host), &err);
    if (r < 0 && err.code != ERR_NOT_FOUND)
        log_warn("health.not-read", KV_ERR(&err),
                 KV("next", "faults are taken from the driver alone"));
}

/* The state directory is ours: open the ledger and face kubelet. */
static int begin(struct agent *a, struct error *err)
{
    auto_arena arena;
    arena_init(&arena, 64 * 1024);
    struct findings notes;
    findings_init(&notes, &arena, 20);
    int r = ledger_open(&a->host, a->state_dir[0] ? a->state_dir : NULL, OWNER_DEVICE_PLUGIN,
                        &a->ledger, &notes, err);
    if (r < 0)
        return error_wrap(err, "open the ledger");
    for (size_t i = 0; i < notes.n; i++)
        log_warn("ledger.note", KV("subject", notes.items[i].subject),
                 KV("cause", notes.items[i].cause), KV("fix", notes.items[i].fix));
    load_health(a);

    const struct in_use_config in_use = {
        .host = &a->host,
        .device_plugin_dir = a->plugin_dir,
        .podresources_socket = a->pod_resources,
    };
    const struct plugin_set_config plugins = {
        .host = &a->host,
        .device_plugin_dir = a->plugin_dir,
        .kubelet_socket = a->kubelet_socket,
        .ledger = a->ledger,
        .arg = a,
        .registered = registered,
        .first_list = first_list,
        .failed = plugin_failed,
        .granted = granted,
        .not_distinct = not_distinct,
    };
    r = in_use_reader_new(a->loop, &in_use, &a->in_use, err);
    if (r == 0)
        r = plugin_set_new(a->loop, &plugins, &a->plugins, err);
    if (r < 0)
        return r;
    const struct dirwatch_events ev = { .changed = checkpoint_changed, .arg = a };
    r = dirwatch_new(a->loop, a->plugin_dir, 10000, &ev, &a->checkpoint_watch, err);
    if (r < 0)
        return r;
    a->allocatable = allocatable_reader_new(a->loop, a->pod_resources);
    a->started = true;
    timer_set(&a->facts_timer, FACTS_FIRST_MS);
    agent_read_in_use(a);
    agent_watch_ledger(a);
    if (a->survey) {
        ledger_survey(a->ledger, a->survey);
        agent_changed(a);
    }
    return 0;
}

static void lock_acquired(void *arg)
{
    struct agent *a = arg;
    struct error err;
    if (begin(a, &err) < 0) {
        log_error("agent.cannot-start", KV_ERR(&err));
        agent_end(a, 1);
    }
}

static void asked_to_leave(void *arg)
{
    struct agent *a = arg;
    log_info("agent.hands-over", KV("why", "another agent of this node has started"));
    agent_end(a, 0);
}

static void state_moved(void *arg)
{
    struct agent *a = arg;
    if (!a->ledger)
        return;
    log_warn("state.moved", KV("dir", a->state_dir),
             KV("next", "everything is written there anew"));
    ledger_dir_moved(a->ledger, host_mono_ns(&a->host));
    free(steal(a->health_text));
    agent_save(a);
}

static void standby_note(void *arg, const char *text)
{
    (void)arg;
    log_warn("agent.standby", KV("note", text));
}

static void asked_for_status(void *arg, struct buf *out)
{
    agent_status(arg, out);
}

static void asked_to_release(void *arg, bool release)
{
    struct agent *a = arg;
    log_info(release ? "driver.release" : "driver.acquire", KV("why", "asked by a command"));
    if (release)
        gpu_worker_release(a->worker);
    else
        gpu_worker_acquire(a->worker);
}

static void asked_to_survey(void *arg)
{
    struct agent *a = arg;
    gpu_worker_survey(a->worker);
}

static void plugins_stopped(void *arg)
{
    struct agent *a = arg;
    loop_stop(a->loop, a->exit_code);
}

static void end_late(void *arg)
{
    plugins_stopped(arg);
}

void agent_end(struct agent *a, int code)
{
    if (a->ending)
        return;
    a->ending = true;
    a->exit_code = code;
    timer_init(&a->end_timer, a->loop, end_late, a);
    timer_set(&a->end_timer, EXIT_AFTER_MS);
    if (a->plugins)
        plugin_set_stop(a->plugins, plugins_stopped, a);
    else
        timer_set(&a->end_timer, 0);
}

static void told_to_end(void *arg)
{
    struct agent *a = arg;
    log_info("agent.ends", KV("why", "told by a signal"));
    agent_end(a, 0);
}

static void told_to_reload(void *arg)
{
    agent_reload(arg, "SIGHUP");
}

static const int ends[] = { SIGTERM, SIGINT, SIGQUIT };

/* Until they are watched they wait: an end is clean and a reload is not lost, however early. */
static void block_signals(sigset_t *ret_before)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGHUP);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        sigaddset(&ours, ends[i]);
    sigprocmask(SIG_BLOCK, &ours, ret_before);
    signal(SIGPIPE, SIG_IGN);
}

static int watch_signals(struct agent *a, struct error *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(ends); i++)
        r = loop_signal(a->loop, ends[i], told_to_end, a, err);
    if (r == 0)
        r = loop_signal(a->loop, SIGHUP, told_to_reload, a, err);
    sigprocmask(SIG_SETMASK, &a->signals_before, NULL);
    return r;
}

/* ---- a log that nobody reads ---- */

static void log_stalled(void *arg)
{
    struct agent *a = arg;
    timer_set(&a->log_timer, LOG_AGAIN_MS);
}

static void log_again(void *arg)
{
    struct agent *a = arg;
    if (!log_flush())
        timer_set(&a->log_timer, LOG_AGAIN_MS);
}

static char *under(const char *dir, const char *name)
{
    return x_printf("%s%s%s", dir, dir[0] && dir[strlen(dir) - 1] == '/' ? "" : "/", name);
}

/* The peer's flag moves only the registration socket; without it everything follows --kubelet-dir.
 */
static void resolve_paths(struct agent *a)
{
    const char *dir = opts_text(&a->opts, "kubelet-dir");
    const struct opt_value *socket = opts_get(&a->opts, "kubelet-socket");
    a->plugin_dir = under(dir, "device-plugins");
    a->pod_resources = under(dir, "pod-resources/kubelet.sock");
    a->kubelet_socket = socket->source == OPT_FROM_DEFAULT ? under(a->plugin_dir, "kubelet.sock")
                                                           : x_strdup(socket->text);
    a->cdi_dir = x_strdup(opts_text(&a->opts, "cdi-dir"));
    a->state_dir = x_strdup(opts_text(&a->opts, "state-dir"));
    a->runtime_cdi = opts_bool(&a->opts, "runtime-cdi");
}

static int set_up(struct agent *a, struct error *err)
{
    const struct opt_value *view = opts_get(&a->opts, "driver-root-ctr-path");
    const struct host_config host = {
        .root = opts_text(&a->opts, "host-root"),
        .driver_root = a->config->driver_root,
        .driver_root_view = view->source == OPT_FROM_DEFAULT ? NULL : view->text,
        .dev_root = opts_text(&a->opts, "dev-root"),
    };
    resolve_paths(a);
    int r = host_init(&a->host, &host, err);
    if (r == 0)
        r = loop_new(&a->loop, err);
    if (r < 0)
        return r;
    a->began_ns = host_mono_ns(&a->host);
    publish_init(a);
    timer_init(&a->health_timer, a->loop, health_due, a);
    timer_init(&a->ledger_timer, a->loop, ledger_due, a);
    timer_init(&a->in_use_timer, a->loop, in_use_again, a);
    timer_init(&a->facts_timer, a->loop, agent_facts_late, a);
    timer_init(&a->compare_timer, a->loop, agent_compare, a);
    timer_init(&a->write_timer, a->loop, save_later, a);
    timer_init(&a->log_timer, a->loop, log_again, a);
    log_never_wait(log_stalled, a);
    log_again(a);

    const struct gpu_worker_config worker = {
        .host = &a->host,
        .watch_events = true,
        .arg = a,
        .surveyed = surveyed,
        .event = happened,
        .state = worker_state,
        .note = worker_note,
    };
    r = agent_install(a, err);
    if (r == 0)
        r = watch_signals(a, err);
    if (r == 0)
        r = health_new(a->config, &a->health, err);
    if (r == 0)
        r = gpu_worker_new(a->loop, &worker, &a->worker,
                           err); /* first: the survey takes the longest */
    if (r == 0)
        r = disk_new(a->loop, &a->host, &a->disk, err);
    if (r == 0)
        r = reload_watch(a, err);
    if (r < 0)
        return r;
    if (!a->state_dir[0])
        return begin(a, err);
    const struct standby_config standby = {
        .host = &a->host,
        .state_dir = a->state_dir,
        .arg = a,
        .acquired = lock_acquired,
        .asked_to_leave = asked_to_leave,
        .moved = state_moved,
        .note = standby_note,
        .status = asked_for_status,
        .driver = asked_to_release,
        .survey = asked_to_survey,
    };
    return standby_new(a->loop, &standby, &a->standby, err);
}

static void tear_down(struct agent *a)
{
    plugin_set_free(a->plugins);
    dirwatch_free(a->config_watch);
    dirwatch_free(a->checkpoint_watch);
    gpu_worker_free(a->worker);
    in_use_reader_free(a->in_use);
    allocatable_reader_free(a->allocatable);
    disk_free(a->disk); /* waits for writes */
    log_never_wait(NULL, NULL);
    if (a->loop) {
        publish_done(a);
        struct timer *timers[] = { &a->health_timer, &a->ledger_timer, &a->in_use_timer,
                                   &a->facts_timer,  &a->write_timer,  &a->compare_timer,
                                   &a->end_timer,    &a->log_timer,    &a->config_timer };
        for (size_t i = 0; i < ARRAY_LEN(timers); i++)
            if (timers[i]->loop)
                timer_done(timers[i]);
    }
    block_signals(NULL); /* with the loop go their handlers: one more is no reason to die of it */
    standby_free(a->standby); /* the lock goes last: a successor may start now */
    ledger_free(a->ledger);
    health_free(a->health);
    survey_unref(a->survey);
    loop_free(a->loop);
    host_done(&a->host);
    free(a->plugin_dir);
    free(a->kubelet_socket);
    free(a->pod_resources);
    free(a->cdi_dir);
    free(a->hook_path);
    free(a->state_dir);
    free(a->health_text);
    free(a->disagreed);
    facts_free(a->facts);
    (void)told_over(&a->ledger_told);
    (void)told_over(&a->health_told);
    pluginconfig_free(a->config);
    opts_done(&a->opts);
}

static void set_up_log(const struct opts *o)
{
    static const char *const levels[] = { "debug", "info", "warn", "error" };
    enum log_level level = LOG_INFO_;
    for (size_t i = 0; i < ARRAY_LEN(levels); i++)
        if (strcmp(opts_text(o, "log-level"), levels[i]) == 0)
            level = (enum log_level)i;
    log_setup(level, strcmp(opts_text(o, "log-format"), "json") == 0 ? LOG_JSON : LOG_TEXT);
    log_never_wait(NULL, NULL);
}

int agent_run(const struct agent_setup *setup)
{
    struct error err;
    struct agent a = { .setup = setup, .cdi_dirfd = -1 };
    block_signals(&a.signals_before);
    int r = config_load(setup, &a.opts, &a.config, &a.config_seen, &err);
    if (r == 0 && a.opts.help) {
        auto_buf out;
        buf_init(&out, 256 * 1024);
        command_help(setup->command, "mete", &out);
        fputs(out.p ? out.p : "", stdout);
        opts_done(&a.opts);
        return 0;
    }
    if (r < 0) {
        fprintf(stderr, "%s: %s\n", setup->program, err.text);
        return 1;
    }
    set_up_log(&a.opts);
    log_info("agent.starts", KV("version", METE_VERSION),
             KV("node", opts_text(&a.opts, "node-name")),
             KV("config", a.config->source ? a.config->source : ""));
    config_log(&a.opts, a.config);
    r = set_up(&a, &err);
    int code = 1;
    if (r < 0)
        log_error("agent.cannot-start", KV_ERR(&err));
    else
        code = loop_run(a.loop);
    tear_down(&a);
    log_info("agent.ended", KV_I("exit-code", code));
    log_drain(LOG_DRAIN_MS);
    return code;
}
