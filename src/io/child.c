/* SPDX-License-Identifier: Apache-2.0 */
#include "io/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/loop_private.h"

enum {
    FDS_MAX = 16,
    POLL_MS = 250, /* where the kernel has no pidfd (before 5.3, or denied by seccomp) */
};

struct child {
    struct loop_guest guest;
    struct loop *loop; /* NULL once the loop is gone */
    pid_t pid;         /* 0 once reaped */
    int pidfd;         /* -1: polled */
    struct watch watch;
    struct timer poll;
    void (*ended)(void *arg, int status);
    void *arg;
    bool forgotten;
};

static void stop_watching(struct child *c)
{
    if (c->pidfd >= 0) {
        watch_done(&c->watch);
        close(c->pidfd);
        c->pidfd = -1;
    } else {
        timer_done(&c->poll);
    }
}

static void child_loop_gone(struct loop_guest *g)
{
    struct child *c = (struct child *)((char *)g - offsetof(struct child, guest));
    if (c->pid)
        stop_watching(c);
    c->loop = NULL;
    if (c->forgotten)
        free(c);
}

static void reap(struct child *c)
{
    int status = 0;
    pid_t r = waitpid(c->pid, &status, WNOHANG);
    if (r == 0 || (r < 0 && errno == EINTR)) {
        if (c->pidfd < 0)
            timer_set(&c->poll, POLL_MS);
        return;
    }
    /* ECHILD: SIGCHLD is ignored in this process, the status is lost. Told as exit code 255. */
    if (r < 0)
        status = 255 << 8;
    stop_watching(c);
    c->pid = 0;
    if (c->forgotten) {
        loop_guest_remove(c->loop, &c->guest);
        free(c);
        return;
    }
    c->ended(c->arg, status);
}

static void pidfd_ready(void *arg, int what)
{
    reap(arg);
}

static void poll_again(void *arg)
{
    reap(arg);
}

/* Copies of those descriptors that stand where another one has to go. */
static int move_away(const struct child_spec *spec, int *fds, int *copies, struct error *err)
{
    int first_free = 3 + (int)spec->n_fds;
    for (size_t i = 0; i < spec->n_fds; i++) {
        fds[i] = spec->fds[i];
        if (fds[i] >= first_free)
            continue;
        copies[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, first_free);
        if (copies[i] < 0)
            return error_errno(err, errno, "start %s: copy descriptor %d", spec->path, fds[i]);
        fds[i] = copies[i];
    }
    return 0;
}

static int spawn(const struct child_spec *spec, const int *fds, pid_t *ret)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int r = posix_spawn_file_actions_init(&actions);
    if (r)
        return r;
    r = posix_spawnattr_init(&attr);
    if (r) {
        posix_spawn_file_actions_destroy(&actions);
        return r;
    }
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    for (size_t i = 0; !r && i < spec->n_fds; i++)
        r = posix_spawn_file_actions_adddup2(&actions, fds[i], 3 + (int)i);
    if (!r)
        r = posix_spawn_file_actions_addclosefrom_np(&actions, 3 + (int)spec->n_fds);
    if (!r)
        r = posix_spawn(ret, spec->path, &actions, &attr, spec->argv, spec->envp);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return r;
}

int child_start(struct loop *l, const struct child_spec *spec, void (*ended)(void *arg, int status),
                void *arg, struct child **ret, struct error *err)
{
    if (spec->n_fds > FDS_MAX)
        return error_set(err, ERR_LIMIT, 0, "start %s: %zu descriptors to hand over, at most %d",
                         spec->path, spec->n_fds, FDS_MAX);
    int fds[FDS_MAX], copies[FDS_MAX];
    pid_t pid;
    for (size_t i = 0; i < FDS_MAX; i++)
        copies[i] = -1;
    int r = move_away(spec, fds, copies, err), sys = 0;
    if (r == 0)
        sys = spawn(spec, fds, &pid);
    for (size_t i = 0; i < spec->n_fds; i++)
        mem_close_p(&copies[i]);
    if (r < 0)
        return r;
    if (sys)
        return error_errno(err, sys, "start %s", spec->path);

    struct child *c = x_alloc(sizeof *c);
    *c = (struct child){ .loop = l, .pid = pid, .ended = ended, .arg = arg };
    c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (c->pidfd >= 0) {
        watch_init(&c->watch, l, c->pidfd, pidfd_ready, c);
        watch_want(&c->watch, IO_READ);
    } else {
        timer_init(&c->poll, l, poll_again, c);
        timer_set(&c->poll, POLL_MS);
    }
    c->guest.loop_gone = child_loop_gone;
    loop_guest_add(l, &c->guest);
    *ret = c;
    return 0;
}

pid_t child_pid(const struct child *c)
{
    return c->pid;
}

void child_kill(struct child *c, int signo)
{
    if (c->pid)
        kill(c->pid, signo);
}

void child_forget(struct child *c)
{
    if (!c)
        return;
    if (c->pid && c->loop) {
        c->forgotten = true;
        return;
    }
    if (c->loop)
        loop_guest_remove(c->loop, &c->guest);
    free(c);
}
