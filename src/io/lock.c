/* SPDX-License-Identifier: Apache-2.0 */
#include "io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

enum { TRIES = 8 };

static int held_by_other(const char *path, int fd, struct error *err)
{
    char text[24];
    int64_t pid;
    ssize_t n = pread(fd, text, sizeof text, 0);
    struct str s = str_trim((struct str){ text, n > 0 ? (size_t)n : 0 });
    if (str_to_i64(s, 1, INT32_MAX, &pid))
        return error_set(err, ERR_CONFLICT, EWOULDBLOCK, "lock %s: process %lld holds it", path,
                         (long long)pid);
    return error_set(err, ERR_CONFLICT, EWOULDBLOCK, "lock %s: another process holds it", path);
}

/* A holder that ends may have removed the file: then our lock is on a file that nobody else will
 * ever open. */
static bool still_there(const char *path, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* The pid only helps a reader: a full disk must not keep us from the lock. */
static void write_pid(int fd)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) == 0) {
        ssize_t ignored = pwrite(fd, text, (size_t)n, 0);
        (void)ignored;
    }
}

int lock_try(const char *path, int *ret_fd, struct error *err)
{
    for (int i = 0; i < TRIES; i++) {
        auto_close int fd =
            open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
        if (fd < 0)
            return error_errno(err, errno, "lock %s: open", path);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            if (errno == EINTR)
                continue;
            if (errno == EWOULDBLOCK)
                return held_by_other(path, fd, err);
            return error_errno(err, errno, "lock %s: flock", path);
        }
        if (!still_there(path, fd))
            continue;
        write_pid(fd);
        *ret_fd = steal_fd(&fd);
        return 0;
    }
    return error_set(err, ERR_CONFLICT, 0, "lock %s: the file is replaced again and again", path);
}
