/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker process. It loads the driver's library, takes surveys when asked and tells events. It
 * keeps nothing that matters and may be killed at any moment. It never calls nvmlShutdown: the
 * second thread may be waiting inside the driver; the end of the process lets go of everything.
 */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "gpu/events.h"
#include "gpu/fence.h"
#include "gpu/protocol.h"
#include "gpu/take.h"

enum { SOCKET_FD = 3, PROGRESS_FD = 4 };

struct worker {
    const struct host *host;
    struct nvml_progress *progress;
    struct taker *taker;
    struct nvml *nvml; /* NULL until it was loaded and started */
    struct events *events;
    bool watch;
};

/* The agent closed the socket or is gone: nobody is left to work for. */
static void __attribute__((noreturn)) leave(void)
{
    _exit(0);
}

static void send_event(void *arg, const struct gpu_event *e)
{
    auto_buf body;
    buf_init(&body, MESSAGE_MAX - MESSAGE_HEADER);
    event_encode(e, &body);
    if (message_send(SOCKET_FD, MESSAGE_EVENT, 0, 0, buf_view(&body), NULL) < 0)
        leave();
}

/* ---- surveys ---- */

static enum driver_state start_driver(struct worker *w, struct nvml **ret, struct error *err)
{
    if (w->nvml) {
        *ret = w->nvml;
        return DRIVER_OK;
    }
    struct nvml *n = NULL;
    if (w->progress)
        snprintf(w->progress->call, sizeof w->progress->call, "dlopen");
    enum driver_state state = nvml_open(w->host, &n, err);
    if (w->progress)
        w->progress->call[0] = '\0';
    if (state == DRIVER_OK) {
        n->progress = w->progress;
        state = nvml_start(n, err);
    }
    if (state == DRIVER_OK)
        w->nvml = n;
    *ret = n;
    return state;
}

/* Registration before the survey: an event between the two is heard, and a fault before both is
 * in the survey. */
static struct survey *watch_and_survey(struct worker *w)
{
    if (w->watch && !w->events) {
        struct error err;
        if (events_new(w->nvml, send_event, NULL, &w->events, &err) < 0) {
            const struct gpu_event failed = {
                .kind = GPU_EVENT_WAIT_FAILED,
                .gi = UINT32_MAX,
                .ci = UINT32_MAX,
                .value = NV_E_OPERATING_SYSTEM,
            };
            send_event(NULL, &failed);
        }
    }
    if (w->events && events_want_arm(w->events, NULL))
        events_arm(w->events, w->nvml);
    struct survey *s = taker_survey(w->taker, w->nvml);
    if (w->events && s->driver == DRIVER_OK && events_want_arm(w->events, s)) {
        events_arm(w->events, w->nvml);
        survey_unref(s);
        s = taker_survey(w->taker, w->nvml);
    }
    return s;
}

static struct survey *survey(struct worker *w)
{
    struct error err;
    struct nvml *n;
    enum driver_state state = start_driver(w, &n, &err);
    if (state == DRIVER_OK)
        return watch_and_survey(w);
    struct survey *s = taker_without_driver(w->taker, n, state, err.text);
    nvml_close(n);
    return s;
}

static int answer(struct worker *w, uint32_t id, struct error *err)
{
    struct survey *s = survey(w);
    auto_buf body;
    buf_init(&body, SURVEY_BYTES_MAX);
    int r = survey_encode(s, &body, err);
    uint32_t flags = taker_wants_restart(w->taker) ? MESSAGE_RESTART : 0;
    survey_unref(s);
    return r < 0 ? r : message_send(SOCKET_FD, MESSAGE_SURVEY, flags, id, buf_view(&body), err);
}

/* ---- talking ---- */

static int greet(const struct host *h, struct error *err)
{
    auto_buf notes, body;
    buf_init(&notes, NOTES_SIZE - 1);
    buf_init(&body, MESSAGE_MAX - MESSAGE_HEADER);
    fence_up(h, &notes);
    struct hello hello = { .version = PROTOCOL_VERSION };
    build_id(hello.build);
    snprintf(hello.notes, sizeof hello.notes, "%s", notes.p ? notes.p : "");
    hello_encode(&hello, &body);
    return message_send(SOCKET_FD, MESSAGE_HELLO, 0, 0, buf_view(&body), err);
}

static int begin(struct worker *w, const struct message *m, struct error *err)
{
    struct start start;
    int r = start_decode(m->body, &start, err);
    if (r < 0)
        return r;
    w->watch = start.watch;
    struct survey *before;
    if (start.survey.n == 0)
        return 0;
    r = survey_decode(start.survey, &before, err);
    if (r < 0)
        return r;
    taker_seed(w->taker, before);
    survey_unref(before);
    return 0;
}

static int serve_one(struct worker *w, struct error *err)
{
    auto_message m = { 0 };
    int r = message_receive(SOCKET_FD, &m, err);
    if (r < 0)
        return r;
    if (r == 0)
        leave();
    if (m.kind == MESSAGE_START)
        return begin(w, &m, err);
    if (m.kind == MESSAGE_REQUEST)
        return answer(w, m.id, err);
    return error_set(err, ERR_INVALID, 0, "the agent sent a message of kind %d", m.kind);
}

static void ignore_signals(void)
{
    /* A signal to the whole group is the agent's business; closing the socket is ours. */
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        signal(signals[i], SIG_IGN);
}

int gpu_worker_main(const struct host *h)
{
    struct worker w = { .host = h, .taker = taker_new(h) };
    struct error err = { 0 };
    mallopt(M_ARENA_MAX, 1);
    ignore_signals();
    w.progress = progress_map(PROGRESS_FD);
    int r = greet(h, &err);
    while (r == 0)
        r = serve_one(&w, &err);

    /* Closed without a word is the usual end, also seen as a failed send. */
    fprintf(stderr, "mete gpu-worker: %s\n", err.text);
    taker_free(w.taker);
    progress_free(w.progress);
    return error_exit_code(err.code);
}
