/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC server of ours for other implementations to call (test_grpc_interop.py):
 *   grpc-serve SOCKET
 * Prints "ready" once it accepts. SIGTERM drains it (3 s) and ends it with 0.
 *   /test.T/Echo       the request
 *   /test.T/Fail       "CODE text": that status
 *   /test.T/Sleep      "MS": answers after that time
 *   /test.T/Never      no answer
 *   /test.T/Cancelled  how many calls were cancelled so far
 *   /test.T/Count      stream: "N SIZE": N messages, 2 ms apart, each begins with its number
 *   /test.T/Burst      stream: the same at once, so that a slow reader meets "latest wins"
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "wire/grpc.h"

enum { DRAIN_MS = 3000, STEP_MS = 2, SIZE_MAX_ = GRPC_MESSAGE_MAX };

static struct {
    struct loop *loop;
    struct grpc_server *server;
    size_t cancelled;
} w;

/* What a call that is answered later needs. */
struct job {
    struct grpc_call *call;
    struct timer timer;
    uint64_t next, count, size;
};

static void job_free(struct job *j)
{
    timer_done(&j->timer);
    free(j);
}

static struct job *job_new(struct grpc_call *call, void (*fire)(void *arg))
{
    struct job *j = x_alloc(sizeof *j);
    j->call = call;
    timer_init(&j->timer, w.loop, fire, j);
    grpc_call_set(call, j);
    return j;
}

static void cancelled(struct grpc_call *call, void *arg)
{
    struct job *j = grpc_call_get(call);
    w.cancelled++;
    if (j)
        job_free(j);
}

static void echo(struct grpc_call *call, struct str request, void *arg)
{
    grpc_reply(call, request);
}

static void refuse(struct grpc_call *call, struct str request, void *arg)
{
    uint64_t code;
    struct str text = request, head = str_cut(&text, ' ');
    if (!str_to_u64(head, 99, &code))
        code = GRPC_INTERNAL;
    grpc_fail(call, (enum grpc_status)code, "%.*s", STR_FMT(text));
}

static void slept(void *arg)
{
    struct job *j = arg;
    grpc_reply(j->call, STR("slept"));
    job_free(j);
}

static void rest(struct grpc_call *call, struct str request, void *arg)
{
    uint64_t ms = 0;
    (void)str_to_u64(request, 60000, &ms);
    timer_set(&job_new(call, slept)->timer, (int64_t)ms);
}

static void never(struct grpc_call *call, struct str request, void *arg)
{
}

static void count_cancelled(struct grpc_call *call, struct str request, void *arg)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%zu", w.cancelled);
    grpc_reply(call, (struct str){ text, (size_t)n });
}

static void send_one(struct job *j)
{
    struct error err;
    auto_free char *text = x_alloc((size_t)MAX(j->size, (uint64_t)32));
    int n = snprintf(text, 32, "%llu ", (unsigned long long)j->next++);
    size_t size = MAX((size_t)n, (size_t)j->size);
    if (grpc_send_latest(j->call, (struct str){ text, size }, &err) < 0)
        fprintf(stderr, "grpc-serve: %s\n", err.text);
}

static void step(void *arg)
{
    struct job *j = arg;
    if (j->next == j->count) {
        grpc_finish(j->call);
        job_free(j);
        return;
    }
    send_one(j);
    timer_set(&j->timer, STEP_MS);
}

static struct job *stream_job(struct grpc_call *call, struct str request)
{
    struct job *j = job_new(call, step);
    struct str size = request, count = str_cut(&size, ' ');
    (void)str_to_u64(count, 1000000, &j->count);
    (void)str_to_u64(size, SIZE_MAX_, &j->size);
    return j;
}

static void count_up(struct grpc_call *call, struct str request, void *arg)
{
    step(stream_job(call, request));
}

/* A reader that sleeps still holds the stream's end back: the last message waits for it. */
static void burst(struct grpc_call *call, struct str request, void *arg)
{
    struct job *j = stream_job(call, request);
    while (j->next < j->count)
        send_one(j);
    step(j);
}

static const struct grpc_method methods[] = {
    { "/test.T/Echo", echo, false },     { "/test.T/Fail", refuse, false },
    { "/test.T/Sleep", rest, false },    { "/test.T/Never", never, false },
    { "/test.T/Count", count_up, true }, { "/test.T/Cancelled", count_cancelled, false },
    { "/test.T/Burst", burst, true },
};

static void drained(void *arg)
{
    loop_stop(w.loop, 0);
}

static void terminate(void *arg)
{
    grpc_server_drain(w.server, DRAIN_MS, drained, NULL);
}

int main(int argc, char **argv)
{
    struct error err;
    const struct grpc_server_config config = { methods, ARRAY_LEN(methods), NULL, cancelled };
    if (argc != 2) {
        fprintf(stderr, "usage: grpc-serve SOCKET\n");
        return 2;
    }
    if (loop_new(&w.loop, &err) < 0 || loop_signal(w.loop, SIGTERM, terminate, NULL, &err) < 0 ||
        grpc_server_new(w.loop, argv[1], 0, &config, &w.server, &err) < 0) {
        fprintf(stderr, "grpc-serve: %s\n", err.text);
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    int r = loop_run(w.loop);
    grpc_server_free(w.server);
    loop_free(w.loop);
    return r;
}
