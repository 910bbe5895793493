/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/standby_private.h"
#include "base/mem.h"

enum {
    CONNECTIONS_MAX = 16,
    REQUEST_MS = 5000, /* until the line is there */
    ANSWER_MS = 10000, /* until the answer is taken */
};

static const char temporary_name[] = "." AGENT_SOCKET ".new";

struct conn {
    struct conn *next;
    struct serve *serve;
    int fd;
    struct watch watch;
    struct timer late;
    char line[AGENT_REQUEST_MAX + 1];
    size_t n, sent;
    struct buf out;
    bool answered, stays;
};

struct serve {
    struct loop *loop;
    int dirfd, fd; /* dirfd borrowed */
    dev_t dev;
    ino_t ino;
    struct watch watch;
    struct conn *conns;
    size_t n_conns;
    int (*handle)(void *arg, enum request what, struct buf *out, struct error *err);
    void *arg;
    bool *gone; /* set when freed inside a call-back */
};

static const struct {
    const char *line;
    enum request what;
} requests[] = {
    { "leave", REQUEST_LEAVE },
    { "status", REQUEST_STATUS },
    { "driver release", REQUEST_RELEASE },
    { "driver acquire", REQUEST_ACQUIRE },
    { "survey", REQUEST_SURVEY },
};

int request_parse(struct str line, enum request *ret, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        if (str_is(line, requests[i].line)) {
            *ret = requests[i].what;
            return 0;
        }
    }
    return error_set(err, ERR_INVALID, 0,
                     "unknown request, this agent knows: leave, status, driver release, driver "
                     "acquire, survey");
}

static void conn_free(struct conn *c)
{
    struct serve *s = c->serve;
    for (struct conn **at = &s->conns; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            s->n_conns--;
            break;
        }
    }
    watch_done(&c->watch);
    timer_done(&c->late);
    close(c->fd);
    buf_done(&c->out);
    free(c);
}

static void conn_late(void *arg)
{
    conn_free(arg);
}

static void conn_send(struct conn *c)
{
    while (c->sent < c->out.n) {
        ssize_t n = send(c->fd, c->out.p + c->sent, c->out.n - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            watch_want(&c->watch, IO_READ | IO_WRITE);
            return;
        }
        if (n < 0) {
            conn_free(c);
            return;
        }
        c->sent += (size_t)n;
    }
    if (!c->stays) {
        conn_free(c);
        return;
    }
    timer_stop(&c->late);
    watch_want(&c->watch, IO_READ);
}

static void answer(struct conn *c, struct str line)
{
    struct serve *s = c->serve;
    struct error err;
    enum request what = REQUEST_STATUS;
    bool gone = false;
    auto_buf body;
    buf_init(&body, AGENT_ANSWER_MAX);
    int r = request_parse(line, &what, &err);
    if (r == 0) {
        s->gone = &gone;
        r = s->handle(s->arg, what, &body, &err);
        if (gone)
            return;
        s->gone = NULL;
    }
    if (r == 0)
        r = buf_check(&body, "the answer", &err);
    if (r == 0) {
        buf_fmt(&c->out, "ok %zu\n", body.n);
        buf_add(&c->out, body.p, body.n);
    } else {
        buf_fmt(&c->out, "error %s %zu\n%s", error_code_name(err.code), strlen(err.text), err.text);
    }
    c->answered = true;
    c->stays = r == 0 && what == REQUEST_LEAVE;
    timer_set(&c->late, ANSWER_MS);
    conn_send(c);
}

static void conn_read(struct conn *c)
{
    char after[64];
    char *to = c->answered ? after : c->line + c->n;
    size_t room = c->answered ? sizeof after : AGENT_REQUEST_MAX - c->n;
    ssize_t n = recv(c->fd, to, room, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        conn_free(c);
        return;
    }
    if (c->answered) /* nothing is asked twice */
        return;
    c->n += (size_t)n;
    const char *end = memchr(c->line, '\n', c->n);
    if (end)
        answer(c, (struct str){ c->line, (size_t)(end - c->line) });
    else if (c->n == AGENT_REQUEST_MAX)
        answer(c, STR(""));
}

static void conn_ready(void *arg, int what)
{
    struct conn *c = arg;
    if (what & IO_WRITE)
        conn_send(c);
    else
        conn_read(c);
}

static bool peer_allowed(int fd)
{
    struct ucred cred;
    socklen_t n = sizeof cred;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 &&
           (cred.uid == 0 || cred.uid == geteuid());
}

static void refuse(int fd)
{
    static const char text[] = "only root and the agent's own user may ask";
    char line[128];
    int n = snprintf(line, sizeof line, "error denied %zu\n%s", sizeof text - 1, text);
    ssize_t ignored = send(fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignored;
}

static void accept_ready(void *arg, int what)
{
    struct serve *s = arg;
    auto_close int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (!peer_allowed(fd)) {
        refuse(fd);
        return;
    }
    if (s->n_conns >= CONNECTIONS_MAX)
        return;
    struct conn *c = x_alloc(sizeof *c);
    c->serve = s;
    c->fd = steal_fd(&fd);
    c->next = s->conns;
    s->conns = c;
    s->n_conns++;
    buf_init(&c->out, AGENT_ANSWER_MAX + 64);
    watch_init(&c->watch, s->loop, c->fd, conn_ready, c);
    watch_want(&c->watch, IO_READ);
    timer_init(&c->late, s->loop, conn_late, c);
    timer_set(&c->late, REQUEST_MS);
}

/* The directory's descriptor stands for its path, which may be longer than sun_path. */
struct sockaddr_un socket_address(int dirfd, const char *name)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s", dirfd, name);
    return a;
}

/* Bound under a name of its own and then renamed: whoever finds the socket finds it accepting. What
 * lies there is left from an agent that is gone: the lock is ours. */
static int listen_at(int dirfd, int fd, struct stat *ret, struct error *err)
{
    struct sockaddr_un a = socket_address(dirfd, temporary_name);
    (void)unlinkat(dirfd, temporary_name, 0);
    if (bind(fd, (const struct sockaddr *)&a, sizeof a) < 0)
        return error_errno(err, errno, "make %s", AGENT_SOCKET);
    int r = 0;
    if (fchmodat(dirfd, temporary_name, 0600, 0) < 0 || listen(fd, CONNECTIONS_MAX) < 0 ||
        fstatat(dirfd, temporary_name, ret, AT_SYMLINK_NOFOLLOW) < 0 ||
        renameat(dirfd, temporary_name, dirfd, AGENT_SOCKET) < 0) {
        r = error_errno(err, errno, "make %s", AGENT_SOCKET);
        (void)unlinkat(dirfd, temporary_name, 0);
    }
    return r;
}

int serve_new(struct loop *l, int dirfd,
              int (*handle)(void *arg, enum request what, struct buf *out, struct error *err),
              void *arg, struct serve **ret, struct error *err)
{
    struct stat st;
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_errno(err, errno, "make %s", AGENT_SOCKET);
    int r = listen_at(dirfd, fd, &st, err);
    if (r < 0)
        return r;
    struct serve *s = x_alloc(sizeof *s);
    *s = (struct serve){ .loop = l,
                         .dirfd = dirfd,
                         .fd = steal_fd(&fd),
                         .dev = st.st_dev,
                         .ino = st.st_ino,
                         .handle = handle,
                         .arg = arg };
    watch_init(&s->watch, l, s->fd, accept_ready, s);
    watch_want(&s->watch, IO_READ);
    *ret = s;
    return 0;
}

void serve_free(struct serve *s)
{
    struct stat st;
    if (!s)
        return;
    if (s->gone)
        *s->gone = true;
    while (s->conns)
        conn_free(s->conns);
    watch_done(&s->watch);
    close(s->fd);
    if (fstatat(s->dirfd, AGENT_SOCKET, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == s->dev &&
        st.st_ino == s->ino)
        (void)unlinkat(s->dirfd, AGENT_SOCKET, 0);
    free(s);
}
