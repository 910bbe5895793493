/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/standby.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/standby_private.h"
#include "base/file.h"
#include "base/mem.h"
#include "io/lock.h"

enum {
    TRY_MS = 100,         /* between tries for the lock */
    ASK_MS = 5000,        /* between requests to leave */
    NOTE_MS = 60 * 1000,  /* before a cause is told again */
    FIRST_NOTE_MS = 3000, /* a polite holder is gone by then, nothing needs to be told */
    LOOK_MS = 5000,       /* does the lock still stand? */
};

struct standby {
    struct loop *loop;
    const struct host *host;
    struct standby_config config;
    char *state_dir, *lock_path, *noted;
    int dirfd, dir_lock, lock; /* -1: none */
    struct timer again;
    struct serve *serve;
    bool holds, asked, left, released;
    int64_t began_ns, ask_ns, noted_ns;

    /* The request to the holder: sent, and waited for its end. */
    int ask_fd;
    struct watch ask_watch;
    bool ask_sent;
    char ask_text[256];
    size_t ask_n;
};

static void note(struct standby *s, const char *text)
{
    int64_t now = host_mono_ns(s->host);
    bool same = s->noted && strcmp(s->noted, text) == 0;
    if (same && now - s->noted_ns < NOTE_MS * INT64_C(1000000))
        return;
    free(s->noted);
    s->noted = x_strdup(text);
    s->noted_ns = now;
    if (s->config.note)
        s->config.note(s->config.arg, text);
}

/* ---- holding ---- */

static int handle(void *arg, enum request what, struct buf *out, struct error *err)
{
    struct standby *s = arg;
    const struct standby_config *c = &s->config;
    if (what == REQUEST_LEAVE && !s->asked) {
        s->asked = true;
        timer_set(&s->again, 0); /* told after the answer is on its way */
    } else if (what == REQUEST_STATUS && c->status) {
        c->status(c->arg, out);
    } else if ((what == REQUEST_RELEASE || what == REQUEST_ACQUIRE) && c->driver) {
        c->driver(c->arg, what == REQUEST_RELEASE);
    } else if (what == REQUEST_SURVEY && c->survey) {
        c->survey(c->arg);
    } else if (what != REQUEST_LEAVE) {
        return error_set(err, ERR_UNSUPPORTED, 0, "this agent does not serve that request");
    }
    return 0;
}

static void ask_end(struct standby *s)
{
    if (s->ask_fd < 0)
        return;
    watch_done(&s->ask_watch);
    close(steal_fd(&s->ask_fd));
    s->ask_sent = false;
}

static void listen_for_requests(struct standby *s)
{
    struct error err;
    if (!s->serve && s->dirfd >= 0 &&
        serve_new(s->loop, s->dirfd, handle, s, &s->serve, &err) < 0) {
        auto_free char *text =
            x_printf("commands and a successor cannot ask this agent: %s", err.text);
        note(s, text);
    }
}

static void hold(struct standby *s)
{
    ask_end(s);
    s->holds = true;
    listen_for_requests(s);
    timer_set(&s->again, LOOK_MS);
    s->config.acquired(s->config.arg);
}

/* ---- waiting ---- */

static void ask_ready(void *arg, int what)
{
    struct standby *s = arg;
    static const char line[] = "leave\n";
    if ((what & IO_WRITE) && !s->ask_sent) {
        s->ask_sent = send(s->ask_fd, line, sizeof line - 1, MSG_NOSIGNAL) == sizeof line - 1;
        if (!s->ask_sent && errno != EAGAIN && errno != EINTR) {
            ask_end(s);
            return;
        }
        watch_want(&s->ask_watch, s->ask_sent ? IO_READ : IO_WRITE);
        return;
    }
    ssize_t n = recv(s->ask_fd, s->ask_text + s->ask_n, sizeof s->ask_text - 1 - s->ask_n, 0);
    if (n > 0) {
        s->ask_n += (size_t)n;
        s->ask_text[s->ask_n] = '\0';
        if (s->ask_n < sizeof s->ask_text - 1)
            return;
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    ask_end(s); /* it ends: its lock is free, or about to be */
    timer_set(&s->again, 0);
}

static void ask(struct standby *s)
{
    struct error err;
    s->ask_ns = host_mono_ns(s->host);
    s->ask_n = 0;
    s->ask_text[0] = '\0';
    ask_end(s);
    if (s->dirfd < 0 || socket_connect(s->dirfd, &s->ask_fd, &err) < 0)
        return;
    watch_init(&s->ask_watch, s->loop, s->ask_fd, ask_ready, s);
    watch_want(&s->ask_watch, IO_WRITE);
}

static long holder_pid(const struct standby *s)
{
    struct error err;
    auto_free char *text = NULL;
    int64_t pid = 0;
    if (file_read(s->lock_path, 64, &text, NULL, &err) == 0)
        (void)str_to_i64(str_trim(str_of(text)), 1, INT32_MAX, &pid);
    return (long)pid;
}

/* What the holder answered, if it did. */
static void tell_waiting(struct standby *s)
{
    enum error_code code;
    size_t head, n;
    struct error err;
    char who[64] = "another agent";
    long pid = holder_pid(s);
    if (host_mono_ns(s->host) - s->began_ns < FIRST_NOTE_MS * INT64_C(1000000))
        return;
    if (pid)
        snprintf(who, sizeof who, "another agent (process %ld)", pid);
    int r = answer_parse((struct str){ s->ask_text, s->ask_n }, &code, &head, &n, &err);
    const char *says = r <= 0             ? "does not answer when it is asked to leave"
                       : code == ERR_NONE ? "has been asked to leave and is still ending"
                                          : "refuses to leave";
    auto_free char *text = x_printf(
        "%s holds %s and %s%s%s; this one waits and does nothing until it has ended: stop it (kill "
        "its process, or remove its pod or service)",
        who, s->lock_path, says, r > 0 && code ? ": " : "",
        r > 0 && code ? s->ask_text + head : "");
    note(s, text);
}

static void open_dir(struct standby *s, struct error *err)
{
    if (s->dirfd >= 0 || dir_make(s->state_dir, 0700, err) < 0)
        return;
    s->dirfd = open(s->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dirfd < 0)
        error_errno(err, errno, "open state directory %s", s->state_dir);
}

/* The directory itself is locked too: that works where no file can be made. 0, or ERR_CONFLICT. */
static int lock_dir(struct standby *s)
{
    auto_close int fd = openat(s->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -ERR_CONFLICT : 0;
    s->dir_lock = steal_fd(&fd);
    return 0;
}

static void unlock(struct standby *s)
{
    if (s->lock >= 0)
        close(steal_fd(&s->lock));
    if (s->dir_lock >= 0)
        close(steal_fd(&s->dir_lock));
}

/* true: nobody else has the directory. */
static bool try_lock(struct standby *s)
{
    struct error err = { 0 };
    open_dir(s, &err);
    int r = s->dirfd >= 0 ? lock_dir(s) : -ERR_UNAVAILABLE;
    if (r == 0)
        r = lock_try(s->lock_path, &s->lock, &err);
    if (r == 0)
        return true;
    if (r == -ERR_CONFLICT) {
        unlock(s);
        return false;
    }
    auto_free char *text =
        x_printf("%s; %s", err.text,
                 s->dir_lock >= 0 ? "the directory itself is locked instead"
                                  : "a second agent on this node is not kept out, make sure that "
                                    "there is none");
    note(s, text);
    return true;
}

static bool lock_stands(const struct standby *s)
{
    struct stat a, b;
    return fstat(s->lock, &a) == 0 && stat(s->lock_path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Somebody may have deleted the state directory or mounted over it: a lock on what no name leads to
 * keeps nobody out. */
static void look_after_lock(struct standby *s)
{
    struct error err;
    timer_set(&s->again, LOOK_MS);
    if (s->lock < 0 && s->dir_lock >= 0) { /* no file could be made; perhaps now */
        if (lock_try(s->lock_path, &s->lock, &err) < 0)
            s->lock = -1;
        else
            listen_for_requests(s);
        return;
    }
    if (s->lock >= 0 && lock_stands(s)) {
        listen_for_requests(s);
        return;
    }
    serve_free(steal(s->serve));
    unlock(s);
    if (s->dirfd >= 0)
        close(steal_fd(&s->dirfd));
    if (try_lock(s)) {
        listen_for_requests(s);
        if (s->config.moved)
            s->config.moved(s->config.arg);
        return;
    }
    note(s, "the state directory was replaced and another agent works there: this one ends");
    s->asked = s->left = true;
    s->config.asked_to_leave(s->config.arg);
}

static void turn(void *arg)
{
    struct standby *s = arg;
    if (s->released || s->left)
        return;
    if (s->holds && s->asked) {
        s->left = true;
        s->config.asked_to_leave(s->config.arg);
        return;
    }
    if (s->holds) {
        look_after_lock(s);
        return;
    }
    if (try_lock(s)) {
        hold(s);
        return;
    }
    if (!s->ask_ns || host_mono_ns(s->host) - s->ask_ns >= ASK_MS * INT64_C(1000000)) {
        if (s->ask_ns)
            tell_waiting(s);
        ask(s);
    }
    timer_set(&s->again, TRY_MS);
}

int standby_new(struct loop *l, const struct standby_config *config, struct standby **ret,
                struct error *err)
{
    if (!config->state_dir || !config->state_dir[0])
        return error_set(err, ERR_INVALID, 0, "a standby needs a state directory");
    struct standby *s = x_alloc(sizeof *s);
    *s = (struct standby){ .loop = l,
                           .host = config->host,
                           .config = *config,
                           .state_dir = x_strdup(config->state_dir),
                           .lock_path = x_printf("%s/%s", config->state_dir, AGENT_LOCK),
                           .dirfd = -1,
                           .dir_lock = -1,
                           .lock = -1,
                           .ask_fd = -1,
                           .began_ns = host_mono_ns(config->host) };
    timer_init(&s->again, l, turn, s);
    timer_set(&s->again, 0);
    *ret = s;
    return 0;
}

bool standby_holds(const struct standby *s)
{
    return s->holds && !s->released;
}

void standby_release(struct standby *s)
{
    s->released = true;
    timer_stop(&s->again);
    ask_end(s);
    serve_free(steal(s->serve)); /* before the lock: afterwards the name is the successor's */
    unlock(s);
}

void standby_free(struct standby *s)
{
    if (!s)
        return;
    standby_release(s);
    timer_done(&s->again);
    if (s->dirfd >= 0)
        close(s->dirfd);
    free(s->state_dir);
    free(s->lock_path);
    free(s->noted);
    free(s);
}
