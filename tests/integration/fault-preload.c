/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults for the real program, by LD_PRELOAD and for tests only. METE_FAULT holds one of
 *   kill-before K, kill-after K   SIGKILL at the K-th durable step (open of a new file, write,
 * fsync, rename, unlink) on files whose path holds METE_FAULT_PATH count FILE appends one byte to
 * FILE for each such step stall MS                      each fsync there takes so long fail ERRNO
 * each such step fails no-inotify                    inotify_init1 fails with EMFILE Everything
 * else, and the GPU worker, goes on as without it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC     __attribute__((visibility("default")))
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static atomic_int steps;

static const char *mode_value(const char *mode)
{
    const char *fault = getenv("METE_FAULT");
    size_t n = strlen(mode);
    return fault && strncmp(fault, mode, n) == 0 && fault[n] == ' ' ? fault + n + 1 : NULL;
}

static bool path_meant(const char *path)
{
    const char *part = getenv("METE_FAULT_PATH");
    return part && strstr(path, part);
}

static bool fd_meant(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return path_meant(path);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void note_step(const char *file)
{
    static __typeof__(&write) real;
    if (!real)
        real = NEXT(write);
    int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && real(fd, "x", 1) < 0)
        perror(file);
    close(fd);
}

/* Before a step; the errno it is to fail with, or 0. */
static int before(void)
{
    int n = atomic_fetch_add(&steps, 1) + 1;
    const char *v = mode_value("kill-before");
    if (v && strtoul(v, NULL, 10) == (unsigned long)n)
        die();
    if ((v = mode_value("count")))
        note_step(v);
    v = mode_value("fail");
    return v ? (int)strtoul(v, NULL, 10) : 0;
}

static void after(void)
{
    const char *v = mode_value("kill-after");
    if (v && strtoul(v, NULL, 10) == (unsigned long)atomic_load(&steps))
        die();
}

#define STEP(meant, call)                                                                          \
    do {                                                                                           \
        bool step = (meant);                                                                       \
        int e = step ? before() : 0;                                                               \
        if (e) {                                                                                   \
            errno = e;                                                                             \
            return -1;                                                                             \
        }                                                                                          \
        __typeof__(call) r = (call);                                                               \
        if (step)                                                                                  \
            after();                                                                               \
        return r;                                                                                  \
    } while (0)

PUBLIC int openat(int dirfd, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    STEP(flags & O_CREAT && path_meant(path), NEXT(openat)(dirfd, path, flags, mode));
}

PUBLIC ssize_t write(int fd, const void *p, size_t n)
{
    static __typeof__(&write) real;
    if (!real)
        real = NEXT(write);
    STEP(fd > 2 && getenv("METE_FAULT_PATH") && fd_meant(fd), real(fd, p, n));
}

PUBLIC int fsync(int fd)
{
    const char *v = mode_value("stall");
    if (v && fd_meant(fd)) {
        unsigned long ms = strtoul(v, NULL, 10);
        struct timespec t = { .tv_sec = (time_t)(ms / 1000),
                              .tv_nsec = (long)(ms % 1000) * 1000000 };
        nanosleep(&t, NULL);
    }
    STEP(fd_meant(fd), NEXT(fsync)(fd));
}

PUBLIC int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    STEP(path_meant(to), NEXT(renameat)(from_dir, from, to_dir, to));
}

PUBLIC int unlinkat(int dirfd, const char *path, int flags)
{
    STEP(path_meant(path), NEXT(unlinkat)(dirfd, path, flags));
}

PUBLIC int inotify_init1(int flags)
{
    const char *fault = getenv("METE_FAULT");
    if (fault && strcmp(fault, "no-inotify") == 0) {
        errno = EMFILE;
        return -1;
    }
    return NEXT(inotify_init1)(flags);
}
