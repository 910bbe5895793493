/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small kubelet's control socket. One JSON map a line, answered by one JSON map a line, in the
 * order of the requests of a connection:
 *   {"do":"admit","pod":"ns/name","container":"c","resource":"nvidia.com/gpu","n":1}
 *   {"do":"end","pod":"ns/name"}   {"do":"status"}   {"do":"events","after":0}
 *   {"do":"wait","resource":"nvidia.com/gpu","capacity":8,"allocatable":8,"ms":10000}
 *   {"do":"stop"}   {"do":"start"}   {"do":"restart"}   {"do":"drop"}   {"do":"quit"}
 *   {"do":"forget","resource":"nvidia.com/gpu"}
 *   {"do":"behave","register_ms":8000,"refuse":"text"}   (0 and "": as it should be)
 * An answer has "ok"; when false, "error" says why; else "answer" has what was asked for.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "data/json.h"
#include "sim/kubelet_internal.h"

enum { LINE_MAX_ = 65536, PEERS_MAX = 32, OUT_MAX = 64 * 1024 * 1024 };

/* A request that is not answered at once. It outlives its peer when that goes away. */
struct request {
    struct peer *peer; /* NULL: nobody waits any more */
};

struct peer {
    struct peer *next;
    struct sim_kubelet_ctl *ctl;
    struct watch watch;
    struct buf in, out;
    struct request *request; /* in progress: no further line is read until it is answered */
    bool waits, gone;
    char *resource; /* of a wait */
    int64_t capacity, allocatable;
    struct timer limit;
};

struct sim_kubelet_ctl {
    struct loop *loop;
    struct sim_kubelet *k;
    char *path;
    struct watch watch;
    struct peer *peers;
    struct timer turn; /* looks at waits and at peers that went, outside their own call-backs */
    void (*quit)(void *arg);
    void *arg;
};

static void next_line(struct peer *p);

/* ---- answers ---- */

static void peer_gone(struct peer *p)
{
    p->gone = true;
    watch_want(&p->watch, 0);
    timer_set(&p->ctl->turn, 0);
}

static void flush(struct peer *p)
{
    while (p->out.n > 0 && !p->gone) {
        ssize_t n = send(p->watch.fd, p->out.p, p->out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            buf_drop(&p->out, (size_t)n);
        else if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        else
            peer_gone(p);
    }
    if (!p->gone)
        watch_want(&p->watch, p->out.n ? IO_READ | IO_WRITE : IO_READ);
}

static void answer_ok(struct peer *p, const char *json)
{
    buf_fmt(&p->out, "{\"ok\":true,\"answer\":%s}\n", json);
    if (p->out.failed)
        peer_gone(p);
    flush(p);
}

static void answer_error(struct peer *p, const char *text)
{
    struct json_writer w;
    jw_init(&w, &p->out, 0);
    jw_map(&w);
    jw_kv_bool(&w, "ok", false);
    jw_kv(&w, "error", text);
    jw_end(&w);
    buf_ch(&p->out, '\n');
    flush(p);
}

/* ---- requests ---- */

static void admitted(void *arg, const char *answer_json, const struct error *e)
{
    struct request *q = arg;
    struct peer *p = q->peer;
    free(q);
    if (!p)
        return;
    p->request = NULL;
    if (e)
        answer_error(p, e->text);
    else
        answer_ok(p, answer_json);
    timer_set(&p->ctl->turn, 0); /* the next line, if one is there already */
}

static int64_t number(const struct value *v, const char *key, int64_t deflt)
{
    const struct value *n = value_get(v, key);
    return n && n->kind == VALUE_INT ? n->number : deflt;
}

static int do_admit(struct peer *p, const struct value *v, struct error *err)
{
    int64_t n = number(v, "n", 1);
    struct request *q = x_alloc(sizeof *q);
    q->peer = p;
    int r = sim_kubelet_admit(p->ctl->k, value_text(value_get(v, "pod"), ""),
                              value_text(value_get(v, "container"), "c"),
                              value_text(value_get(v, "resource"), "nvidia.com/gpu"),
                              n < 0 || n > UINT32_MAX ? 0 : (uint32_t)n, admitted, q, err);
    if (r < 0)
        free(q);
    else
        p->request = q;
    return r;
}

/* True when the state that a peer waits for is there. */
static bool holds(const struct peer *p, int64_t *ret_capacity, int64_t *ret_allocatable)
{
    const struct sim_resource *r = sim_resource_find(p->ctl->k, p->resource);
    int64_t capacity = r ? (int64_t)r->n : 0;
    int64_t allocatable = r ? (int64_t)sim_resource_healthy(r) : 0;
    *ret_capacity = capacity;
    *ret_allocatable = allocatable;
    return (p->capacity < 0 || p->capacity == capacity) &&
           (p->allocatable < 0 || p->allocatable == allocatable);
}

static void wait_over(struct peer *p, bool well, int64_t capacity, int64_t allocatable)
{
    p->waits = false;
    timer_stop(&p->limit);
    auto_free char *text = x_printf(well ? "{\"capacity\":%lld,\"allocatable\":%lld}"
                                         : "not in time; now capacity %lld, allocatable %lld",
                                    (long long)capacity, (long long)allocatable);
    if (well)
        answer_ok(p, text);
    else
        answer_error(p, text);
}

static void wait_look(struct peer *p)
{
    int64_t capacity, allocatable;
    if (holds(p, &capacity, &allocatable))
        wait_over(p, true, capacity, allocatable);
}

static void wait_limit(void *arg)
{
    struct peer *p = arg;
    int64_t capacity, allocatable;
    bool well = holds(p, &capacity, &allocatable);
    wait_over(p, well, capacity, allocatable);
    timer_set(&p->ctl->turn, 0);
}

static int do_wait(struct peer *p, const struct value *v, struct error *err)
{
    (void)err;
    free(p->resource);
    p->resource = x_strdup(value_text(value_get(v, "resource"), "nvidia.com/gpu"));
    p->capacity = number(v, "capacity", -1);
    p->allocatable = number(v, "allocatable", -1);
    p->waits = true;
    timer_set(&p->limit, number(v, "ms", 10000));
    wait_look(p);
    return 0;
}

static int do_end(struct peer *p, const struct value *v, struct error *err)
{
    int r = sim_kubelet_end_pod(p->ctl->k, value_text(value_get(v, "pod"), ""), err);
    if (r == 0)
        answer_ok(p, "{}");
    return r;
}

static int do_status(struct peer *p, const struct value *v, struct error *err)
{
    (void)v;
    auto_buf out;
    buf_init(&out, OUT_MAX / 2);
    sim_kubelet_status(p->ctl->k, &out);
    int r = buf_check(&out, "status", err);
    if (r == 0)
        answer_ok(p, out.p);
    return r;
}

static int do_events(struct peer *p, const struct value *v, struct error *err)
{
    auto_buf out;
    buf_init(&out, OUT_MAX / 2);
    int64_t after = number(v, "after", 0);
    sim_kubelet_events(p->ctl->k, after < 0 ? 0 : (uint64_t)after, &out);
    int r = buf_check(&out, "events", err);
    if (r == 0)
        answer_ok(p, out.p);
    return r;
}

static int do_stop(struct peer *p, const struct value *v, struct error *err)
{
    (void)v, (void)err;
    sim_kubelet_stop(p->ctl->k);
    answer_ok(p, "{}");
    return 0;
}

static int do_start(struct peer *p, const struct value *v, struct error *err)
{
    (void)v;
    int r = sim_kubelet_start(p->ctl->k, err);
    if (r == 0)
        answer_ok(p, "{}");
    return r;
}

static int do_restart(struct peer *p, const struct value *v, struct error *err)
{
    (void)v;
    int r = sim_kubelet_restart(p->ctl->k, err);
    if (r == 0)
        answer_ok(p, "{}");
    return r;
}

static int do_drop(struct peer *p, const struct value *v, struct error *err)
{
    (void)v, (void)err;
    sim_kubelet_drop(p->ctl->k);
    answer_ok(p, "{}");
    return 0;
}

static int do_forget(struct peer *p, const struct value *v, struct error *err)
{
    int r = sim_kubelet_forget(p->ctl->k, value_text(value_get(v, "resource"), ""), err);
    if (r == 0)
        answer_ok(p, "{}");
    return r;
}

static int do_behave(struct peer *p, const struct value *v, struct error *err)
{
    int64_t ms = number(v, "register_ms", 0);
    if (ms < 0 || ms > 600000)
        return error_set(err, ERR_INVALID, 0, "register_ms %lld must be from 0 to 600000",
                         (long long)ms);
    sim_kubelet_behave(p->ctl->k, ms, value_text(value_get(v, "refuse"), NULL));
    answer_ok(p, "{}");
    return 0;
}

static int do_quit(struct peer *p, const struct value *v, struct error *err)
{
    (void)v, (void)err;
    answer_ok(p, "{}");
    if (p->ctl->quit)
        p->ctl->quit(p->ctl->arg);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(struct peer *p, const struct value *v, struct error *err);
} requests[] = {
    { "admit", do_admit },   { "end", do_end },         { "status", do_status },
    { "events", do_events }, { "wait", do_wait },       { "stop", do_stop },
    { "start", do_start },   { "restart", do_restart }, { "drop", do_drop },
    { "behave", do_behave }, { "forget", do_forget },   { "quit", do_quit },
};

static void handle(struct peer *p, struct str line)
{
    struct error err;
    auto_arena arena;
    arena_init(&arena, (size_t)1024 * 1024);
    struct value *v = NULL;
    if (json_parse(&arena, line, "request", &doc_limits_default, &v, &err) < 0) {
        answer_error(p, err.text);
        return;
    }
    const char *what = value_text(value_get(v, "do"), "");
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        if (strcmp(requests[i].name, what) != 0)
            continue;
        if (requests[i].run(p, v, &err) < 0)
            answer_error(p, err.text);
        return;
    }
    auto_free char *text = x_printf("unknown request \"%s\": admit, end, status, events, wait, "
                                    "stop, start, restart, drop, behave, forget and quit are known",
                                    what);
    answer_error(p, text);
}

/* ---- connections ---- */

static void next_line(struct peer *p)
{
    while (!p->gone && !p->request && !p->waits) {
        const char *end = p->in.n ? memchr(p->in.p, '\n', p->in.n) : NULL;
        if (!end)
            return;
        size_t n = (size_t)(end - p->in.p);
        auto_free char *line = x_strndup(p->in.p, n);
        buf_drop(&p->in, n + 1);
        handle(p, (struct str){ line, n });
    }
}

static void peer_ready(void *arg, int what)
{
    struct peer *p = arg;
    if (what & IO_WRITE)
        flush(p);
    if (!(what & IO_READ) || p->gone)
        return;
    char bytes[4096];
    ssize_t n = recv(p->watch.fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        peer_gone(p);
        return;
    }
    if (n > 0)
        buf_add(&p->in, bytes, (size_t)n);
    if (p->in.failed) {
        answer_error(p, "a request is at most 64 KiB");
        peer_gone(p);
        return;
    }
    next_line(p);
}

static void peer_free(struct peer *p)
{
    if (p->request)
        p->request->peer = NULL;
    watch_done(&p->watch);
    close(p->watch.fd);
    timer_done(&p->limit);
    buf_done(&p->in);
    buf_done(&p->out);
    free(p->resource);
    free(p);
}

static void turn(void *arg)
{
    struct sim_kubelet_ctl *c = arg;
    for (struct peer **at = &c->peers; *at;) {
        struct peer *p = *at;
        if (p->gone) {
            *at = p->next;
            peer_free(p);
            continue;
        }
        if (p->waits)
            wait_look(p);
        next_line(p);
        at = &p->next;
    }
}

static void accept_ready(void *arg, int what)
{
    struct sim_kubelet_ctl *c = arg;
    (void)what;
    int fd = accept4(c->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    size_t n = 0;
    for (const struct peer *p = c->peers; p; p = p->next)
        n++;
    if (n >= PEERS_MAX) {
        close(fd);
        return;
    }
    struct peer *p = x_alloc(sizeof *p);
    p->ctl = c;
    buf_init(&p->in, LINE_MAX_);
    buf_init(&p->out, OUT_MAX);
    timer_init(&p->limit, c->loop, wait_limit, p);
    watch_init(&p->watch, c->loop, fd, peer_ready, p);
    watch_want(&p->watch, IO_READ);
    p->next = c->peers;
    c->peers = p;
}

void sim_kubelet_ctl_changed(struct sim_kubelet_ctl *c)
{
    timer_set(&c->turn, 0);
}

static int listen_on(const char *path, int *ret_fd, struct error *err)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof a.sun_path)
        return error_set(err, ERR_LIMIT, 0,
                         "control socket %s: a socket's path has at most %zu bytes", path,
                         sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(path);
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, PEERS_MAX) < 0)
        return error_errno(err, errno, "control socket %s", path);
    *ret_fd = steal_fd(&fd);
    return 0;
}

int sim_kubelet_ctl_new(struct loop *l, struct sim_kubelet *k, const char *path,
                        void (*quit)(void *arg), void *arg, struct sim_kubelet_ctl **ret,
                        struct error *err)
{
    int fd = -1;
    int r = listen_on(path, &fd, err);
    if (r < 0)
        return r;
    struct sim_kubelet_ctl *c = x_alloc(sizeof *c);
    c->loop = l;
    c->k = k;
    c->path = x_strdup(path);
    c->quit = quit;
    c->arg = arg;
    timer_init(&c->turn, l, turn, c);
    watch_init(&c->watch, l, fd, accept_ready, c);
    watch_want(&c->watch, IO_READ);
    *ret = c;
    return 0;
}

void sim_kubelet_ctl_free(struct sim_kubelet_ctl *c)
{
    if (!c)
        return;
    while (c->peers) {
        struct peer *p = c->peers;
        c->peers = p->next;
        peer_free(p);
    }
    watch_done(&c->watch);
    close(c->watch.fd);
    unlink(c->path);
    timer_done(&c->turn);
    free(c->path);
    free(c);
}
