/* SPDX-License-Identifier: Apache-2.0 */
/* The asking side of agent.sock. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/standby_private.h"
#include "base/mem.h"

enum { HEAD_MAX = 64, QUEUE_MS = 10 };

int socket_connect(int dirfd, int *ret_fd, struct error *err)
{
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_errno(err, errno, "connect to %s", AGENT_SOCKET);
    struct sockaddr_un a = socket_address(dirfd, AGENT_SOCKET);
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) < 0)
        return error_errno(err, errno, "connect to %s", AGENT_SOCKET);
    *ret_fd = steal_fd(&fd);
    return 0;
}

static enum error_code code_of(struct str name)
{
    for (int c = 1; c < ERR_CODE_COUNT; c++)
        if (str_is(name, error_code_name((enum error_code)c)))
            return (enum error_code)c;
    return ERR_INTERNAL;
}

int answer_parse(struct str in, enum error_code *ret_code, size_t *ret_head, size_t *ret_n,
                 struct error *err)
{
    const char *end = in.n ? memchr(in.p, '\n', MIN(in.n, (size_t)HEAD_MAX)) : NULL;
    if (!end && in.n < HEAD_MAX)
        return 0;
    struct str line = { in.p, end ? (size_t)(end - in.p) : 0 };
    struct str word = str_cut(&line, ' ');
    enum error_code code = ERR_NONE;
    if (str_is(word, "error"))
        code = code_of(str_cut(&line, ' '));
    else if (!str_is(word, "ok"))
        line = (struct str){ NULL, 0 };
    uint64_t n;
    if (!end || !str_to_u64(line, AGENT_ANSWER_MAX, &n))
        return error_set(err, ERR_INVALID, 0,
                         "the agent's answer does not begin with \"ok\" or \"error\" and a length "
                         "of at most %d: another program listens there?",
                         AGENT_ANSWER_MAX);
    *ret_code = code;
    *ret_head = (size_t)(end - in.p) + 1;
    *ret_n = (size_t)n;
    return 1;
}

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int wait_for(int fd, short events, int64_t until, struct error *err)
{
    for (;;) {
        int64_t left = until - now_ms();
        struct pollfd p = { .fd = fd, .events = events };
        int n = left > 0 ? poll(&p, 1, (int)MIN(left, (int64_t)60000)) : 0;
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return error_errno(err, errno, "wait for the agent");
        if (left <= 0)
            return error_set(err, ERR_UNAVAILABLE, ETIMEDOUT, "the agent did not answer in time");
    }
}

static int send_line(int fd, const char *request, int64_t until, struct error *err)
{
    auto_buf line;
    buf_init(&line, AGENT_REQUEST_MAX);
    buf_fmt(&line, "%s\n", request);
    int r = buf_check(&line, "the request", err);
    while (r == 0 && line.n) {
        ssize_t n = send(fd, line.p, line.n, MSG_NOSIGNAL);
        if (n > 0)
            buf_drop(&line, (size_t)n);
        else if (errno == EAGAIN)
            r = wait_for(fd, POLLOUT, until, err);
        else if (errno == EPIPE || errno == ECONNRESET)
            break; /* refused before it was asked: the answer says why */
        else if (errno != EINTR)
            r = error_errno(err, errno, "ask the agent");
    }
    return r;
}

/* Reads until the announced bytes are there. */
static int receive(int fd, int64_t until, struct buf *in, enum error_code *ret_code,
                   size_t *ret_head, struct error *err)
{
    for (;;) {
        char piece[16 * 1024];
        size_t n;
        int r = answer_parse(buf_view(in), ret_code, ret_head, &n, err);
        if (r < 0 || (r > 0 && in->n >= *ret_head + n))
            return MIN(r, 0);
        r = wait_for(fd, POLLIN, until, err);
        if (r < 0)
            return r;
        ssize_t got = recv(fd, piece, sizeof piece, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got < 0)
            return error_errno(err, errno, "read the agent's answer");
        if (got == 0)
            return error_set(err, ERR_UNAVAILABLE, 0,
                             "the agent closed the connection before its answer was whole");
        buf_add(in, piece, (size_t)got);
        r = buf_check(in, "the agent's answer", err);
        if (r < 0)
            return r;
    }
}

/* err is not NULL. */
static int exchange(const char *state_dir, const char *request, int64_t until, struct buf *in,
                    enum error_code *ret_code, size_t *ret_head, struct error *err)
{
    auto_close int dirfd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int fd = -1;
    if (dirfd < 0)
        return error_errno(err, errno, "open state directory %s", state_dir);
    int r = socket_connect(dirfd, &fd, err);
    while (r < 0 && err->sys == EAGAIN && now_ms() < until) { /* it has callers enough: queue up */
        poll(NULL, 0, QUEUE_MS);
        r = socket_connect(dirfd, &fd, err);
    }
    if (r < 0 && err->sys == ECONNREFUSED)
        err->code = ERR_NOT_FOUND;
    if (r == 0)
        r = send_line(fd, request, until, err);
    return r < 0 ? r : receive(fd, until, in, ret_code, ret_head, err);
}

int agent_ask(const char *state_dir, const char *request, int64_t timeout_ms, char **ret_text,
              struct error *err)
{
    struct error here;
    struct error *e = err ? err : &here;
    enum error_code code = ERR_NONE;
    size_t head = 0;
    auto_buf in;
    buf_init(&in, AGENT_ANSWER_MAX + HEAD_MAX);
    int r = exchange(state_dir, request, now_ms() + timeout_ms, &in, &code, &head, e);
    if (r < 0 && e->code == ERR_NOT_FOUND)
        return error_wrap(e, "no agent is running with the state directory %s", state_dir);
    if (r < 0)
        return error_wrap(e, "ask the agent of %s", state_dir);
    buf_drop(&in, head);
    if (code != ERR_NONE)
        return error_set(e, code, 0, "the agent says: %.*s", STR_FMT(buf_view(&in)));
    *ret_text = buf_take(&in);
    return *ret_text ? 0 : error_set(e, ERR_LIMIT, 0, "no memory for the agent's answer");
}
