/* SPDX-License-Identifier: Apache-2.0 */
/* Server and client over a real socket, both on one loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "wire/grpc.h"

struct world {
    struct loop *loop;
    struct grpc_server *server;
    struct grpc_client *client;
    struct grpc_call *held; /* a call that the handler keeps */
    int held_count, cancelled, closed, drained, answers, messages, ended;
    enum grpc_status status;
    char text[512];
    struct buf message;
    char dir[64], path[300];
    struct timer watchdog;
    int stop_after;
};

static void echo(struct grpc_call *call, struct str request, void *arg)
{
    grpc_reply(call, request);
}

static void refuse(struct grpc_call *call, struct str request, void *arg)
{
    grpc_fail(call, GRPC_NOT_FOUND, "no %.*s: 100%% größer\n", STR_FMT(request));
}

static void hold(struct grpc_call *call, struct str request, void *arg)
{
    struct world *w = arg;
    w->held = call;
    w->held_count++;
    grpc_call_set(call, w);
    assert_ptr_equal(grpc_call_get(call), w);
    assert_int_equal(grpc_call_peer_pid(call), getpid());
}

static void stream(struct grpc_call *call, struct str request, void *arg)
{
    hold(call, request, arg);
    assert_int_equal(grpc_send_latest(call, STR("first"), NULL), 0);
}

static void free_server(struct grpc_call *call, struct str request, void *arg)
{
    struct world *w = arg;
    grpc_server_free(w->server);
    w->server = NULL;
}

static void cancelled(struct grpc_call *call, void *arg)
{
    struct world *w = arg;
    assert_ptr_equal(call, w->held);
    w->held = NULL;
    w->cancelled++;
    if (w->stop_after == 100)
        loop_stop(w->loop, 0);
}

static const struct grpc_method methods[] = {
    { "/t.T/Echo", echo, false },        { "/t.T/Fail", refuse, false },
    { "/t.T/Hold", hold, false },        { "/t.T/Stream", stream, true },
    { "/t.T/Free", free_server, false },
};

static void timed_out(void *arg)
{
    fprintf(stderr, "the loop did not come to an end\n");
    abort();
}

static void client_closed(void *arg, const struct error *why)
{
    struct world *w = arg;
    w->closed++;
    snprintf(w->text, sizeof w->text, "%s", why->text);
    grpc_client_free(w->client);
    w->client = NULL;
    loop_stop(w->loop, 1);
}

static void connect_client(struct world *w)
{
    struct error err;
    assert_int_equal(grpc_client_new(w->loop, w->path, client_closed, w, &w->client, &err), 0);
}

static int setup(void **state)
{
    struct world *w = x_alloc(sizeof *w);
    struct error err;
    snprintf(w->dir, sizeof w->dir, "/tmp/mete-grpc-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof w->path, "%s/s.sock", w->dir);
    assert_int_equal(loop_new(&w->loop, &err), 0);
    timer_init(&w->watchdog, w->loop, timed_out, NULL);
    timer_set(&w->watchdog, 30000);
    buf_init(&w->message, 8 << 20);
    const struct grpc_server_config config = { methods, ARRAY_LEN(methods), w, cancelled };
    assert_int_equal(grpc_server_new(w->loop, w->path, 0, &config, &w->server, &err), 0);
    connect_client(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    grpc_client_free(w->client);
    grpc_server_free(w->server);
    timer_done(&w->watchdog);
    loop_free(w->loop);
    buf_done(&w->message);
    assert_int_not_equal(access(w->path, F_OK), 0);
    assert_int_equal(rmdir(w->dir), 0); /* also: no dot name is left behind */
    free(w);
    return 0;
}

static void done(void *arg, enum grpc_status status, const char *text, struct str message)
{
    struct world *w = arg;
    w->answers++;
    w->status = status;
    snprintf(w->text, sizeof w->text, "%s", text);
    buf_reset(&w->message);
    buf_str(&w->message, message);
    if (--w->stop_after <= 0)
        loop_stop(w->loop, 0);
}

static void call(struct world *w, const char *method, struct str message, int64_t timeout_ms)
{
    struct error err;
    assert_int_equal(grpc_client_call(w->client, method, message, timeout_ms, done, w, &err), 0);
    loop_run(w->loop);
}

static void unary(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 50; i++) {
        call(w, "/t.T/Echo", STR("hello"), i % 2 ? 5000 : 0);
        assert_int_equal(w->status, GRPC_OK);
        assert_true(str_is(buf_view(&w->message), "hello"));
    }
    call(w, "/t.T/Echo", (struct str){ NULL, 0 }, 0);
    assert_int_equal(w->status, GRPC_OK);
    assert_int_equal(w->message.n, 0);
    assert_int_equal(grpc_server_connections(w->server), 1);
    assert_true(grpc_server_socket_ours(w->server));
    struct stat st;
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void big_messages(void **state)
{
    struct world *w = *state;
    static const size_t sizes[] = { 16384 - 5, 65535, 1 << 20, GRPC_MESSAGE_MAX - 1,
                                    GRPC_MESSAGE_MAX };
    char *big = x_alloc(GRPC_MESSAGE_MAX + 1);
    for (size_t i = 0; i < GRPC_MESSAGE_MAX; i++)
        big[i] = (char)(i * 7 + i / 251);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        call(w, "/t.T/Echo", (struct str){ big, sizes[i] }, 0);
        assert_int_equal(w->status, GRPC_OK);
        assert_int_equal(w->message.n, sizes[i]);
        assert_memory_equal(w->message.p, big, sizes[i]);
    }
    struct error err;
    assert_int_equal(grpc_client_call(w->client, "/t.T/Echo",
                                      (struct str){ big, GRPC_MESSAGE_MAX + 1 }, 0, done, w, &err),
                     -ERR_LIMIT);
    assert_non_null(strstr(err.text, "4194305 bytes, at most 4194304"));
    free(big);
}

static void statuses(void **state)
{
    struct world *w = *state;
    call(w, "/t.T/Fail", STR("gpu"), 0);
    assert_int_equal(w->status, GRPC_NOT_FOUND);
    assert_string_equal(w->text, "no gpu: 100% größer\n");
    call(w, "/t.T/Nope", STR("x"), 0);
    assert_int_equal(w->status, GRPC_UNIMPLEMENTED);
    assert_string_equal(w->text, "unknown method /t.T/Nope");
}

static void many_at_once(void **state)
{
    struct world *w = *state;
    struct error err;
    for (int i = 0; i < GRPC_CALLS_MAX; i++)
        assert_int_equal(grpc_client_call(w->client, "/t.T/Echo", STR("x"), 0, done, w, &err), 0);
    assert_int_equal(grpc_client_call(w->client, "/t.T/Echo", STR("x"), 0, done, w, &err),
                     -ERR_LIMIT);
    w->stop_after = GRPC_CALLS_MAX;
    loop_run(w->loop);
    assert_int_equal(w->answers, GRPC_CALLS_MAX);
}

static void deadline(void **state)
{
    struct world *w = *state;
    call(w, "/t.T/Hold", STR(""), 30);
    assert_int_equal(w->status, GRPC_DEADLINE_EXCEEDED);
    w->stop_after = 100;
    if (!w->cancelled)
        loop_run(w->loop);
    assert_int_equal(w->cancelled, 1);
    assert_null(w->held);
    w->stop_after = 1;
    call(w, "/t.T/Echo", STR("still there"), 0);
    assert_int_equal(w->status, GRPC_OK);
}

static void stop_loop(void *arg)
{
    struct world *w = arg;
    loop_stop(w->loop, 0);
}

static void run_for(struct world *w, int64_t ms)
{
    struct timer t;
    timer_init(&t, w->loop, stop_loop, w);
    timer_set(&t, ms);
    loop_run(w->loop);
    timer_done(&t);
}

static void late_answer(void **state)
{
    struct world *w = *state;
    struct error err;
    assert_int_equal(grpc_client_call(w->client, "/t.T/Hold", STR("a"), 0, done, w, &err), 0);
    run_for(w, 20);
    assert_non_null(w->held);
    grpc_reply(w->held, STR("late"));
    loop_run(w->loop);
    assert_int_equal(w->status, GRPC_OK);
    assert_true(str_is(buf_view(&w->message), "late"));
    assert_int_equal(w->cancelled, 0);
}

static void message_in(void *arg, struct str message)
{
    struct world *w = arg;
    w->messages++;
    buf_reset(&w->message);
    buf_str(&w->message, message);
    if (--w->stop_after == 0)
        loop_stop(w->loop, 0);
}

static void ended(void *arg, enum grpc_status status, const char *text)
{
    struct world *w = arg;
    w->ended++;
    w->status = status;
    snprintf(w->text, sizeof w->text, "%s", text);
    loop_stop(w->loop, 0);
}

static void open_stream(struct world *w)
{
    struct error err;
    w->stop_after = 1;
    assert_int_equal(
        grpc_client_stream(w->client, "/t.T/Stream", STR(""), message_in, ended, w, &err), 0);
    loop_run(w->loop);
    assert_int_equal(w->messages, 1);
    assert_true(str_is(buf_view(&w->message), "first"));
}

static void streams(void **state)
{
    struct world *w = *state;
    open_stream(w);
    for (int i = 0; i < 5; i++) {
        w->stop_after = 1;
        assert_int_equal(grpc_send_latest(w->held, STR("more"), NULL), 0);
        loop_run(w->loop);
        assert_true(str_is(buf_view(&w->message), "more"));
    }
    assert_int_equal(w->messages, 6);
    grpc_finish(w->held);
    loop_run(w->loop);
    assert_int_equal(w->ended, 1);
    assert_int_equal(w->status, GRPC_OK);
    assert_int_equal(w->cancelled, 0);
}

static void stream_fails(void **state)
{
    struct world *w = *state;
    open_stream(w);
    grpc_fail(w->held, GRPC_ABORTED, "over");
    loop_run(w->loop);
    assert_int_equal(w->status, GRPC_ABORTED);
    assert_string_equal(w->text, "over");
}

static void client_leaves(void **state)
{
    struct world *w = *state;
    open_stream(w);
    grpc_client_free(w->client);
    w->client = NULL;
    w->stop_after = 100;
    loop_run(w->loop);
    assert_int_equal(w->cancelled, 1);
    assert_int_equal(w->closed, 0);
    run_for(w, 5);
    assert_int_equal(grpc_server_connections(w->server), 0);
}

static void server_leaves(void **state)
{
    struct world *w = *state;
    open_stream(w);
    grpc_server_free(w->server);
    w->server = NULL;
    while (!w->closed)
        loop_run(w->loop);
    assert_int_equal(w->ended, 1);
    assert_int_equal(w->status, GRPC_UNAVAILABLE);
    assert_string_equal(w->text, "the peer closed the connection");
    assert_int_equal(w->cancelled, 0);
}

static void server_freed_by_handler(void **state)
{
    struct world *w = *state;
    call(w, "/t.T/Free", STR(""), 0);
    assert_int_equal(w->status, GRPC_UNAVAILABLE);
    while (!w->closed)
        loop_run(w->loop);
    assert_null(w->server);
}

static void done_frees_client(void *arg, enum grpc_status status, const char *text,
                              struct str message)
{
    struct world *w = arg;
    grpc_client_free(w->client);
    w->client = NULL;
    done(arg, status, text, message);
}

static void client_freed_by_done(void **state)
{
    struct world *w = *state;
    struct error err;
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            grpc_client_call(w->client, "/t.T/Echo", STR("x"), 0, done_frees_client, w, &err), 0);
    loop_run(w->loop);
    run_for(w, 10);
    assert_int_equal(w->answers, 1); /* the other two are not told any more */
}

static void drained(void *arg)
{
    struct world *w = arg;
    w->drained++;
    grpc_server_free(w->server);
    w->server = NULL;
    loop_stop(w->loop, 7);
}

static void drain_waits_for_unary(void **state)
{
    struct world *w = *state;
    struct error err;
    assert_int_equal(grpc_client_call(w->client, "/t.T/Hold", STR(""), 0, done, w, &err), 0);
    run_for(w, 10);
    grpc_server_drain(w->server, 10000, drained, w);
    assert_int_not_equal(access(w->path, F_OK), 0);
    run_for(w, 10);
    assert_int_equal(w->drained, 0);
    grpc_reply(w->held, STR("in time"));
    while (!w->drained || !w->closed)
        loop_run(w->loop);
    assert_int_equal(w->status, GRPC_OK);
    assert_true(str_is(buf_view(&w->message), "in time"));
}

static void drain_ends_streams_and_late_calls(void **state)
{
    struct world *w = *state;
    struct error err;
    assert_int_equal(grpc_client_call(w->client, "/t.T/Hold", STR(""), 0, done, w, &err), 0);
    run_for(w, 10);
    grpc_server_drain(w->server, 30, drained, w);
    while (!w->drained || !w->closed)
        loop_run(w->loop);
    assert_int_equal(w->status, GRPC_UNAVAILABLE);
    assert_int_equal(w->cancelled, 1);
}

static void drain_with_nobody(void **state)
{
    struct world *w = *state;
    grpc_client_free(w->client);
    w->client = NULL;
    run_for(w, 10);
    grpc_server_drain(w->server, 10000, drained, w);
    loop_run(w->loop);
    assert_int_equal(w->drained, 1);
}

/* A reader that sleeps gets the newest list, not all of them. */
static void latest_wins(void **state)
{
    struct world *w = *state;
    enum { SIZE = 3 << 20 };
    char *big = x_alloc(SIZE);
    open_stream(w);
    for (char c = 'a'; c <= 'j'; c++) {
        memset(big, c, SIZE);
        assert_int_equal(grpc_send_latest(w->held, (struct str){ big, SIZE }, NULL), 0);
    }
    w->stop_after = 2;
    loop_run(w->loop);
    assert_int_equal(w->messages, 3); /* "first", one that had begun to leave, the newest */
    assert_int_equal(w->message.n, SIZE);
    assert_int_equal(w->message.p[0], 'j');
    assert_int_equal(w->message.p[SIZE - 1], 'j');
    run_for(w, 10);
    assert_int_equal(w->messages, 3);
    assert_int_equal(grpc_send_latest(w->held, (struct str){ big, GRPC_MESSAGE_MAX + 1 }, NULL),
                     -ERR_LIMIT);
    free(big);
}

/* ---- sockets ---- */

static void live_socket_is_a_conflict(void **state)
{
    struct world *w = *state;
    struct grpc_server *second;
    struct error err;
    const struct grpc_server_config config = { methods, ARRAY_LEN(methods), w, NULL };
    assert_int_equal(grpc_server_new(w->loop, w->path, 0, &config, &second, &err), -ERR_CONFLICT);
    assert_non_null(strstr(err.text, w->path));
    call(w, "/t.T/Echo", STR("x"), 0);
    assert_int_equal(w->status, GRPC_OK);
}

static void other_files_are_a_conflict(void **state)
{
    struct world *w = *state;
    struct grpc_server *second;
    struct error err;
    const struct grpc_server_config config = { methods, ARRAY_LEN(methods), w, NULL };
    char path[400];
    snprintf(path, sizeof path, "%s/file", w->dir);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(grpc_server_new(w->loop, path, 0, &config, &second, &err), -ERR_CONFLICT);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/no/file", w->dir);
    assert_int_equal(grpc_server_new(w->loop, path, 0, &config, &second, &err), -ERR_NOT_FOUND);
    snprintf(path, sizeof path, "%s/", w->dir);
    assert_int_equal(grpc_server_new(w->loop, path, 0, &config, &second, &err), -ERR_INVALID);
}

static void stale_socket_is_replaced(void **state)
{
    struct world *w = *state;
    struct error err;
    char path[200];
    snprintf(path, sizeof path, "%s/stale", w->dir);
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    struct grpc_client *c;
    assert_int_equal(grpc_client_new(w->loop, path, client_closed, w, &c, &err), -ERR_UNAVAILABLE);
    const struct grpc_server_config config = { methods, ARRAY_LEN(methods), w, NULL };
    struct grpc_server *s;
    assert_int_equal(grpc_server_new(w->loop, path, 0660, &config, &s, &err), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    /* Somebody takes the name away and gives it to a socket of his own: not ours to remove. */
    unlink(path);
    assert_false(grpc_server_socket_ours(s));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_false(grpc_server_socket_ours(s));
    grpc_server_free(s);
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    unlink(path);
}

static void long_paths(void **state)
{
    struct world *w = *state;
    struct error err;
    char dir[200], path[256];
    snprintf(dir, sizeof dir, "%s/%0120d", w->dir, 7);
    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(path, sizeof path, "%s/nvidia-gpu.sock", dir);
    const struct grpc_server_config config = { methods, ARRAY_LEN(methods), w, cancelled };
    struct grpc_server *s;
    assert_int_equal(grpc_server_new(w->loop, path, 0, &config, &s, &err), 0);
    assert_true(grpc_server_socket_ours(s));
    grpc_client_free(w->client);
    assert_int_equal(grpc_client_new(w->loop, path, client_closed, w, &w->client, &err), 0);
    call(w, "/t.T/Echo", STR("far"), 0);
    assert_int_equal(w->status, GRPC_OK);
    grpc_server_free(s);
    assert_int_equal(rmdir(dir), 0);
    char name[400];
    snprintf(name, sizeof name, "%s/%0110d", w->dir, 1);
    assert_int_equal(grpc_server_new(w->loop, name, 0, &config, &s, &err), -ERR_INVALID);
    struct grpc_client *c;
    assert_int_equal(grpc_client_new(w->loop, name, client_closed, w, &c, &err), -ERR_INVALID);
}

static void no_such_socket(void **state)
{
    struct world *w = *state;
    struct error err;
    struct grpc_client *c;
    assert_int_equal(grpc_client_new(w->loop, "/tmp/mete-none/x", client_closed, w, &c, &err),
                     -ERR_NOT_FOUND);
}

static void too_many_connections(void **state)
{
    struct world *w = *state;
    struct grpc_client *more[GRPC_CONNECTIONS_MAX];
    struct error err;
    for (size_t i = 1; i < ARRAY_LEN(more); i++)
        assert_int_equal(grpc_client_new(w->loop, w->path, NULL, NULL, &more[i], &err), 0);
    run_for(w, 30);
    assert_int_equal(grpc_server_connections(w->server), GRPC_CONNECTIONS_MAX);
    struct grpc_client *last = w->client;
    connect_client(w);
    loop_run(w->loop);
    assert_int_equal(w->closed, 1);
    w->client = last;
    for (size_t i = 1; i < ARRAY_LEN(more); i++)
        grpc_client_free(more[i]);
    call(w, "/t.T/Echo", STR("x"), 0);
    assert_int_equal(w->status, GRPC_OK);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(unary),
        T(big_messages),
        T(statuses),
        T(many_at_once),
        T(deadline),
        T(late_answer),
        T(streams),
        T(stream_fails),
        T(client_leaves),
        T(server_leaves),
        T(server_freed_by_handler),
        T(client_freed_by_done),
        T(drain_waits_for_unary),
        T(drain_ends_streams_and_late_calls),
        T(drain_with_nobody),
        T(latest_wins),
        T(live_socket_is_a_conflict),
        T(other_files_are_a_conflict),
        T(stale_socket_is_replaced),
        T(long_paths),
        T(no_such_socket),
        T(too_many_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
