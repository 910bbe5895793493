/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "gpu/events.h"
#include "gpu/worker_private.h"

enum {
    STUCK_MAX = 2,         /* unkillable workers; with these no further one is started */
    SURVEY_GAP_MS = 100,   /* between two surveys, whoever asks */
    TOTAL_FACTOR = 6,      /* a survey may take so many call timeouts, if its calls return */
    LOOKS = 4,             /* at the worker's progress in a call timeout */
    MESSAGES_AT_ONCE = 32, /* read before other work gets a turn */
    EVENTS_HANG_MS = 3 * EVENTS_WAIT_MS,
};

struct gpu_worker {
    struct loop *loop;
    struct gpu_worker_config config;
    struct process *process; /* running or ending; NULL: none */
    struct process *stuck;   /* killed, but alive */
    size_t n_stuck;

    struct timer deadline; /* of hello and of the survey asked for */
    struct timer retry;    /* start a worker, or survey again */
    struct timer gap;      /* the next survey, after SURVEY_GAP_MS */
    struct timer poll;
    int64_t deadline_ms; /* used so far of the current survey */
    uint32_t calls_seen; /* of the process's progress at the last look */
    int quiet;           /* looks since then */
    uint32_t waits_seen; /* of the process's event thread, at the last poll */
    int64_t waits_ns;    /* since then they are */
    int64_t restart_ms, recheck_ms;
    struct fingerprint seen;

    bool wanted;       /* not released */
    bool start_at_end; /* the process was ended to start another one at once */
    bool restart_next; /* the next survey wants a new process */
    bool survey_wanted;
    uint32_t next_id, outstanding; /* outstanding 0: none */
    struct survey *last;

    enum driver_state state;
    bool stale, told;
    char why[640];
};

static void start(struct gpu_worker *w);
static void ask(struct gpu_worker *w);

/* ---- state ---- */

static void set_state(struct gpu_worker *w, enum driver_state s, bool stale, const char *why)
{
    if (w->told && w->state == s && w->stale == stale && strcmp(w->why, why) == 0)
        return;
    w->told = true;
    w->state = s;
    w->stale = stale;
    snprintf(w->why, sizeof w->why, "%s", why);
    if (w->config.state)
        w->config.state(w->config.arg, s, stale, w->why);
}

static int64_t twice(int64_t ms, int64_t max)
{
    return ms >= max / 2 ? max : 2 * ms;
}

static void retry_later(struct gpu_worker *w)
{
    timer_set(&w->retry, w->restart_ms);
    w->restart_ms = twice(w->restart_ms, w->config.restart_max_ms);
}

/* The worker is of no use any more; what it last told is stale until the next one tells. */
static void lost_worker(struct gpu_worker *w, enum driver_state s, const char *what)
{
    char why[sizeof w->why];
    snprintf(why, sizeof why, "%s; a new worker starts in %lld ms", what, (long long)w->restart_ms);
    retry_later(w);
    set_state(w, s, true, why);
}

/* The state to tell when nothing is known of the driver but that its worker failed. */
static enum driver_state last_state(const struct gpu_worker *w)
{
    return w->told ? w->state : DRIVER_ERROR;
}

static void stop_talking(struct gpu_worker *w)
{
    timer_stop(&w->deadline);
    timer_stop(&w->gap);
    timer_stop(&w->poll);
    w->outstanding = 0;
    w->survey_wanted = false;
}

/* ---- a process that ends, or does not ---- */

static void how_it_ended(int status, char *ret, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(ret, size, "the GPU worker was ended by signal %d", WTERMSIG(status));
    else
        snprintf(ret, size, "the GPU worker ended with exit code %d", WEXITSTATUS(status));
}

static void released(struct gpu_worker *w)
{
    set_state(w, DRIVER_RELEASED, false,
              "the driver was let go by order; it is taken again by order");
}

static void remove_stuck(struct gpu_worker *w, struct process *p)
{
    for (struct process **at = &w->stuck; *at; at = &(*at)->next) {
        if (*at != p)
            continue;
        *at = p->next;
        w->n_stuck--;
        break;
    }
    process_free(p);
    if (w->wanted && !w->process && !timer_pending(&w->retry))
        timer_set(&w->retry, w->config.restart_ms);
    if (!w->wanted && !w->process && w->n_stuck == 0)
        released(w);
}

static void process_ended(void *arg, int status)
{
    struct process *p = arg;
    struct gpu_worker *w = p->worker;
    if (w->process != p) {
        remove_stuck(w, p);
        return;
    }
    char how[96];
    bool expected = p->ending;
    how_it_ended(status, how, sizeof how);
    w->process = NULL;
    process_free(p);
    stop_talking(w);
    if (!w->wanted) {
        if (w->n_stuck == 0)
            released(w);
    } else if (w->start_at_end) {
        start(w);
    } else if (!expected) {
        lost_worker(w, last_state(w), how);
    }
}

static void tell_stuck(struct gpu_worker *w, const struct process *p, const char *where)
{
    char why[sizeof w->why];
    bool more = w->n_stuck < STUCK_MAX;
    snprintf(why, sizeof why,
             "GPU worker %d does not die%s; %s; the driver is stuck in the kernel, a reboot of the "
             "node is likely needed",
             (int)p->pid, where,
             more ? "one more is tried" : "no further one is started until it ends");
    set_state(w, more && w->wanted ? DRIVER_HUNG : DRIVER_STUCK, true, why);
}

/* Ended or killed, and still there. */
static void process_overdue(void *arg)
{
    struct process *p = arg;
    struct gpu_worker *w = p->worker;
    if (!p->killed) {
        bool sudden = !p->ending;
        stop_talking(w);
        process_kill(p, &w->config);
        if (sudden)
            lost_worker(w, last_state(w), "the GPU worker closed its socket but does not end");
        return;
    }
    char where[256];
    process_where(p, w->config.seams->proc, where, sizeof where);
    w->process = NULL;
    p->next = w->stuck;
    w->stuck = p;
    w->n_stuck++;
    tell_stuck(w, p, where);
    if (!w->wanted || w->n_stuck >= STUCK_MAX)
        timer_stop(&w->retry);
    else if (!timer_pending(&w->retry))
        retry_later(w);
}

static void end_process(struct gpu_worker *w, bool start_again)
{
    stop_talking(w);
    w->start_at_end = start_again;
    if (w->process && !w->process->ending)
        process_end(w->process, w->config.reap_ms);
}

/* It broke the protocol: nothing that it says can be believed. */
static void discard_process(struct gpu_worker *w, const char *what)
{
    stop_talking(w);
    process_kill(w->process, &w->config);
    lost_worker(w, last_state(w), what);
}

/* ---- surveys ---- */

static void ask(struct gpu_worker *w)
{
    if (w->outstanding || !w->process || w->process->ending) {
        w->survey_wanted = true;
        return;
    }
    struct error err;
    w->survey_wanted = false;
    w->outstanding = ++w->next_id ? w->next_id : ++w->next_id;
    w->deadline_ms = 0;
    w->quiet = 0;
    w->calls_seen = atomic_load_explicit(&w->process->progress->calls, memory_order_relaxed);
    timer_set(&w->deadline, w->config.call_timeout_ms / LOOKS);
    if (message_send(w->process->fd, MESSAGE_REQUEST, 0, w->outstanding, (struct str){ NULL, 0 },
                     &err) < 0 &&
        !message_peer_gone(&err)) /* that its end will tell */
        discard_process(w, err.text);
}

static void gap_over(void *arg)
{
    ask(arg);
}

static void ask_soon(struct gpu_worker *w)
{
    if (w->outstanding)
        w->survey_wanted = true;
    else if (w->process && !w->process->ending && !timer_pending(&w->gap))
        timer_set(&w->gap, SURVEY_GAP_MS);
}

static void kill_hung(struct gpu_worker *w, const char *call, int64_t ms)
{
    char where[256], what[600];
    process_where(w->process, w->config.seams->proc, where, sizeof where);
    snprintf(what, sizeof what, "%s has not answered for %lld ms%s: worker %d is killed", call,
             (long long)ms, where, (int)w->process->pid);
    stop_talking(w);
    process_kill(w->process, &w->config);
    lost_worker(w, DRIVER_HUNG, what);
}

/* Calls that return one by one are slow, not hung. */
static void deadline_over(void *arg)
{
    struct gpu_worker *w = arg;
    uint32_t calls = atomic_load_explicit(&w->process->progress->calls, memory_order_relaxed);
    w->deadline_ms += w->config.call_timeout_ms / LOOKS;
    w->quiet = calls == w->calls_seen ? w->quiet + 1 : 0;
    w->calls_seen = calls;
    if (w->quiet < LOOKS && w->deadline_ms < TOTAL_FACTOR * w->config.call_timeout_ms) {
        timer_set(&w->deadline, w->config.call_timeout_ms / LOOKS);
        return;
    }
    char call[128];
    process_call(w->process, call, sizeof call);
    if (w->quiet < LOOKS)
        kill_hung(w, "the survey, whose calls return but do not come to an end,", w->deadline_ms);
    else
        kill_hung(w, call, w->config.call_timeout_ms);
}

static bool any_lost(const struct survey *s)
{
    for (size_t i = 0; i < s->n_gpus; i++)
        if (s->gpus[i].lost)
            return true;
    return false;
}

/* What is not well is looked at again, less and less often. A worker that saw no usable driver is
 * ended meanwhile: nothing of ours then holds the driver while somebody loads or repairs it. */
static void plan_recheck(struct gpu_worker *w, const struct survey *s, bool restart)
{
    w->restart_ms = w->config.restart_ms;
    w->restart_next = restart;
    if (s->driver == DRIVER_OK && !any_lost(s)) {
        w->recheck_ms = w->config.recheck_ms;
        timer_stop(&w->retry);
        return;
    }
    if (restart && s->driver != DRIVER_OK)
        end_process(w, false);
    if (timer_pending(
            &w->retry)) /* surveys that others ask for must not put it off again and again */
        return;
    timer_set(&w->retry, w->recheck_ms);
    w->recheck_ms = twice(w->recheck_ms, w->config.restart_max_ms);
}

/* A wait for events ends every few seconds. One that never does would leave us deaf for XIDs. */
static bool events_hang(struct gpu_worker *w)
{
    int64_t now = host_mono_ns(w->config.host);
    uint32_t waits = atomic_load_explicit(&w->process->progress->waits, memory_order_relaxed);
    if (waits != w->waits_seen || waits % 2 == 0) {
        w->waits_seen = waits;
        w->waits_ns = now;
    }
    return now - w->waits_ns >= EVENTS_HANG_MS * INT64_C(1000000);
}

static void deliver(struct gpu_worker *w, struct survey *s, bool restart)
{
    survey_unref(w->last);
    w->last = s;
    timer_stop(&w->deadline);
    w->outstanding = 0;
    bool again = w->survey_wanted;
    w->survey_wanted = false;
    plan_recheck(w, s, restart);
    if (w->config.watch_events && s->driver == DRIVER_OK) {
        w->seen = fingerprint_take(w->config.host, s);
        timer_set(&w->poll, w->config.poll_ms);
        (void)events_hang(w); /* the first look */
    }
    if (again)
        ask_soon(w);
    survey_ref(s);
    set_state(w, s->driver, false, s->driver == DRIVER_OK ? "the driver answers" : s->driver_text);
    if (w->config.surveyed)
        w->config.surveyed(w->config.arg, s);
    survey_unref(s);
}

static void poll_over(void *arg)
{
    struct gpu_worker *w = arg;
    if (events_hang(w)) {
        kill_hung(w, "the wait for events", EVENTS_HANG_MS);
        return;
    }
    struct fingerprint now = fingerprint_take(w->config.host, w->last);
    bool gpus = now.gpus != w->seen.gpus, parts = now.parts != w->seen.parts;
    w->seen = now;
    timer_set(&w->poll, w->config.poll_ms);
    if (gpus) /* NVML numbers its gpus once, when it starts */
        end_process(w, true);
    else if (parts)
        ask_soon(w);
}

/* ---- messages ---- */

static int on_hello(struct gpu_worker *w, const struct message *m, struct error *err)
{
    struct hello h;
    char own[BUILD_ID_SIZE];
    int r = hello_decode(m->body, &h, err);
    if (r < 0)
        return r;
    build_id(own);
    if (h.version != PROTOCOL_VERSION)
        return error_set(err, ERR_UNSUPPORTED, 0,
                         "the GPU worker speaks version %u of the protocol, this agent %d: both "
                         "must be of one installation",
                         h.version, PROTOCOL_VERSION);
    if (!w->config.executable && strcmp(h.build, own) != 0)
        return error_set(err, ERR_UNSUPPORTED, 0, "the GPU worker is of build %s, this agent of %s",
                         h.build, own);
    w->process->greeted = true;
    if (h.notes[0] && w->config.note)
        w->config.note(w->config.arg, h.notes);
    return 0;
}

static int on_survey(struct gpu_worker *w, const struct message *m, struct error *err)
{
    struct survey *s;
    if (!w->process->greeted || !w->outstanding || m->id != w->outstanding)
        return error_set(err, ERR_INVALID, 0, "the GPU worker sent a survey that nobody asked for");
    int r = survey_decode(m->body, &s, err);
    if (r == 0)
        deliver(w, s, m->flags & MESSAGE_RESTART);
    return r;
}

static int on_event(struct gpu_worker *w, const struct message *m, struct error *err)
{
    struct gpu_event e;
    if (!w->process->greeted)
        return error_set(err, ERR_INVALID, 0, "the GPU worker sent an event before its hello");
    int r = event_decode(m->body, &e, err);
    if (r < 0)
        return r;
    /* These say that something about the gpus is other than surveyed, or not to be heard. */
    if (e.kind == GPU_EVENT_MIG_CHANGE || e.kind == GPU_EVENT_WAIT_FAILED ||
        e.kind == GPU_EVENT_RECOVERY || e.kind == GPU_EVENT_UNAVAILABLE)
        ask_soon(w);
    if (w->config.event)
        w->config.event(w->config.arg, &e);
    return 0;
}

static int on_message(struct gpu_worker *w, const struct message *m, struct error *err)
{
    static int (*const handlers[])(struct gpu_worker *, const struct message *, struct error *) = {
        [MESSAGE_HELLO] = on_hello,
        [MESSAGE_SURVEY] = on_survey,
        [MESSAGE_EVENT] = on_event,
    };
    if ((size_t)m->kind >= ARRAY_LEN(handlers) || !handlers[m->kind])
        return error_set(err, ERR_INVALID, 0, "the GPU worker sent a message of kind %d", m->kind);
    return handlers[m->kind](w, m, err);
}

static void process_ready(void *arg, int what)
{
    struct process *p = arg;
    struct gpu_worker *w = p->worker;
    for (int i = 0; i < MESSAGES_AT_ONCE && w->process == p && !p->ending; i++) {
        auto_message m = { 0 };
        struct error err = { 0 };
        int r = message_receive(p->fd, &m, &err);
        if (r == -ERR_UNAVAILABLE)
            return;
        if (r == 0) { /* it has ended or is about to: how, the child tells */
            watch_want(&p->watch, 0);
            if (!timer_pending(&p->reap))
                timer_set(&p->reap, w->config.reap_ms);
            return;
        }
        r = r < 0 ? r : on_message(w, &m, &err);
        if (r < 0 && w->process == p && !p->ending)
            discard_process(w, err.text);
    }
}

/* ---- start ---- */

static const struct process_events process_calls = {
    .ready = process_ready,
    .ended = process_ended,
    .overdue = process_overdue,
};

static void start(struct gpu_worker *w)
{
    if (w->process) {
        w->start_at_end = true;
        return;
    }
    struct error err;
    w->start_at_end = w->restart_next = false;
    w->waits_seen = 0;
    int r = process_start(w->loop, &w->config, w, w->last, &process_calls, &w->process, &err);
    if (r < 0)
        lost_worker(w, last_state(w), err.text);
    else
        ask(w);
}

static void retry_over(void *arg)
{
    struct gpu_worker *w = arg;
    if (!w->wanted || w->n_stuck >= STUCK_MAX)
        return;
    if (!w->process || w->process->ending)
        start(w);
    else if (w->restart_next)
        end_process(w, true);
    else
        ask(w);
}

/* ---- the face ---- */

static void kill_really(void *arg, pid_t pid, int signo)
{
    if (pid > 0)
        kill(pid, signo);
}

static const struct gpu_worker_seams seams_real = { .kill = kill_really, .proc = "/proc" };

static void set_defaults(struct gpu_worker_config *c)
{
    const struct {
        int64_t *value, deflt;
    } times[] = {
        { &c->call_timeout_ms, 10000 }, { &c->restart_ms, 250 }, { &c->restart_max_ms, 30000 },
        { &c->recheck_ms, 1000 },       { &c->reap_ms, 2000 },   { &c->poll_ms, 10000 },
    };
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        if (*times[i].value <= 0)
            *times[i].value = times[i].deflt;
    if (!c->seams)
        c->seams = &seams_real;
}

int gpu_worker_new(struct loop *l, const struct gpu_worker_config *config, struct gpu_worker **ret,
                   struct error *err)
{
    struct gpu_worker *w = x_alloc(sizeof *w);
    w->loop = l;
    w->config = *config;
    set_defaults(&w->config);
    w->restart_ms = w->config.restart_ms;
    w->recheck_ms = w->config.recheck_ms;
    w->wanted = true;
    timer_init(&w->deadline, l, deadline_over, w);
    timer_init(&w->retry, l, retry_over, w);
    timer_init(&w->gap, l, gap_over, w);
    timer_init(&w->poll, l, poll_over, w);
    int r = process_start(l, &w->config, w, NULL, &process_calls, &w->process, err);
    if (r < 0) {
        gpu_worker_free(w);
        return r;
    }
    ask(w);
    *ret = w;
    return 0;
}

void gpu_worker_free(struct gpu_worker *w)
{
    if (!w)
        return;
    if (w->process)
        process_kill(w->process, &w->config);
    process_free(w->process);
    while (w->stuck) {
        struct process *p = w->stuck;
        w->stuck = p->next;
        process_free(p);
    }
    timer_done(&w->deadline);
    timer_done(&w->retry);
    timer_done(&w->gap);
    timer_done(&w->poll);
    survey_unref(w->last);
    free(w);
}

void gpu_worker_survey(struct gpu_worker *w)
{
    if (w->wanted)
        ask_soon(w);
}

void gpu_worker_release(struct gpu_worker *w)
{
    if (!w->wanted)
        return;
    w->wanted = false;
    timer_stop(&w->retry);
    end_process(w, false);
    if (!w->process && w->n_stuck == 0)
        released(w);
}

void gpu_worker_acquire(struct gpu_worker *w)
{
    if (w->wanted)
        return;
    w->wanted = true;
    w->restart_ms = w->config.restart_ms;
    w->recheck_ms = w->config.recheck_ms;
    if (w->n_stuck < STUCK_MAX)
        start(w);
}

pid_t gpu_worker_pid(const struct gpu_worker *w)
{
    return w->process ? w->process->pid : 0;
}

const char *gpu_event_name(enum gpu_event_kind kind)
{
    static const char *const names[] = {
        [GPU_EVENT_XID] = "xid",
        [GPU_EVENT_ECC_SINGLE] = "ecc-single",
        [GPU_EVENT_ECC_DOUBLE] = "ecc-double",
        [GPU_EVENT_MIG_CHANGE] = "mig-change",
        [GPU_EVENT_RECOVERY] = "recovery-action",
        [GPU_EVENT_UNAVAILABLE] = "unavailable",
        [GPU_EVENT_WAIT_FAILED] = "wait-failed",
    };
    return (size_t)kind < ARRAY_LEN(names) ? names[kind] : "unknown";
}
