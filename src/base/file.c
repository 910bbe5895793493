/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

static const char *kind_of(mode_t mode)
{
    static const struct {
        mode_t type;
        const char *name;
    } kinds[] = {
        { S_IFDIR, "a directory" },        { S_IFIFO, "a named pipe" },   { S_IFSOCK, "a socket" },
        { S_IFCHR, "a character device" }, { S_IFBLK, "a block device" },
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if ((mode & S_IFMT) == kinds[i].type)
            return kinds[i].name;
    return "no regular file";
}

/* Reads to the end; the size that the file system claims is only a hint (0 in /proc and /sys). */
static int read_whole(int fd, size_t hint, size_t max, const char *name, char **ret_text,
                      size_t *ret_n, struct error *err)
{
    size_t cap = MIN(MAX(hint, (size_t)511), max) + 2, n = 0;
    auto_free char *p = try_alloc(cap);
    while (p) {
        ssize_t got = read(fd, p + n, cap - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, errno, "read %s", name);
        n += (size_t)got;
        if (n > max)
            return error_set(err, ERR_LIMIT, 0,
                             "read %s: more than %zu bytes, the most accepted here", name, max);
        if (got == 0) {
            p[n] = '\0';
            *ret_text = steal(p);
            *ret_n = n;
            return 0;
        }
        if (n == cap - 1) {
            cap = MIN(cap * 2, max + 2);
            char *more = try_realloc(p, cap);
            if (!more)
                break;
            p = more;
        }
    }
    return error_set(err, ERR_LIMIT, ENOMEM, "read %s: out of memory", name);
}

int file_read_at(int dirfd, const char *name, size_t max, char **ret_text, size_t *ret_n,
                 struct error *err)
{
    /* Without O_NONBLOCK the open of a pipe would wait for a writer. */
    auto_close int fd = openat(dirfd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    if (fd < 0 && errno == ENXIO)
        return error_set(err, ERR_INVALID, ENXIO,
                         "open %s: not a file that can be read (a socket or a device "
                         "without a driver)",
                         name);
    if (fd < 0)
        return error_errno(err, errno, "open %s", name);
    if (fstat(fd, &st) < 0)
        return error_errno(err, errno, "stat %s", name);
    if (!S_ISREG(st.st_mode))
        return error_set(err, ERR_INVALID, 0, "open %s: it is %s, expected a file", name,
                         kind_of(st.st_mode));
    if (st.st_size > 0 && (uint64_t)st.st_size > max)
        return error_set(err, ERR_LIMIT, 0,
                         "read %s: %" PRId64 " bytes, at most %zu are accepted here", name,
                         (int64_t)st.st_size, max);

    auto_free char *p = NULL;
    size_t n = 0;
    int r = read_whole(fd, (size_t)st.st_size, max, name, &p, &n, err);
    if (r < 0)
        return r;
    if (!ret_n && memchr(p, '\0', n))
        return error_set(err, ERR_INVALID, 0, "read %s: it holds a NUL byte, expected text", name);
    if (ret_n)
        *ret_n = n;
    *ret_text = steal(p);
    return 0;
}

int file_read(const char *path, size_t max, char **ret_text, size_t *ret_n, struct error *err)
{
    return file_read_at(AT_FDCWD, path, max, ret_text, ret_n, err);
}

static int temporary_name(const struct host *h, const char *name, char *ret, size_t size,
                          struct error *err)
{
    uint64_t random;
    int r = h->seams->random(h->seams->arg, &random, sizeof random);
    if (r < 0)
        return error_errno(err, -r, "write %s: read random bytes", name);
    int n = snprintf(ret, size, ".%s.%016" PRIx64, name, random);
    if (n < 0 || (size_t)n >= size)
        return error_set(err, ERR_INVALID, ENAMETOOLONG, "write %s: the name is too long", name);
    return 0;
}

static int write_whole(const struct host *h, int fd, struct str text, const char *name,
                       struct error *err)
{
    while (text.n) {
        ssize_t done = h->seams->write(h->seams->arg, fd, text.p, text.n);
        if (done == -EINTR)
            continue;
        if (done <= 0)
            return error_errno(err, done < 0 ? (int)-done : EIO,
                               "write %s: write the temporary file", name);
        text.p += done;
        text.n -= MIN((size_t)done, text.n);
    }
    return 0;
}

/* Makes the temporary file with all of the text in it, synced as asked, and closes it. */
static int fill_temporary(const struct host *h, int dirfd, const char *temporary, const char *name,
                          struct str text, mode_t mode, enum file_sync sync, bool *ret_made,
                          struct error *err)
{
    auto_close int fd = h->seams->open_new(h->seams->arg, dirfd, temporary, mode);
    if (fd < 0)
        return error_errno(err, -fd, "write %s: make a temporary file beside it", name);
    *ret_made = true;
    (void)fchmod(fd, mode); /* past the umask; a file system without modes is no reason to fail */
    int r = write_whole(h, fd, text, name, err);
    if (r < 0)
        return r;
    if (sync != FILE_SYNC_NONE) {
        r = h->seams->fsync(h->seams->arg, fd);
        if (r < 0)
            return error_errno(err, -r, "write %s: sync the temporary file", name);
    }
    if (close(steal_fd(&fd)) < 0 && errno != EINTR)
        return error_errno(err, errno, "write %s: close the temporary file", name);
    return 0;
}

static int sync_directory(const struct host *h, int dirfd, const char *what, const char *name,
                          struct error *err)
{
    auto_close int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "%s %s: open its directory", what, name);
    int r = h->seams->fsync(h->seams->arg, fd);
    return r < 0 ? error_errno(err, -r, "%s %s: sync its directory", what, name) : 0;
}

int file_replace(const struct host *h, int dirfd, const char *name, struct str text, mode_t mode,
                 enum file_sync sync, struct error *err)
{
    char temporary[300];
    if (strchr(name, '/'))
        return error_set(err, ERR_INVALID, 0,
                         "write %s: expected the name of a directory entry, without \"/\"", name);
    int r = temporary_name(h, name, temporary, sizeof temporary, err);
    if (r < 0)
        return r;
    bool made = false;
    r = fill_temporary(h, dirfd, temporary, name, text, mode, sync, &made, err);
    if (r == 0) {
        r = h->seams->rename(h->seams->arg, dirfd, temporary, name);
        r = r < 0 ? error_errno(err, -r, "write %s: rename the temporary file", name) : 0;
    }
    if (r < 0) {
        if (made)
            (void)h->seams->unlink(h->seams->arg, dirfd, temporary);
        return r;
    }
    return sync == FILE_SYNC_ALL ? sync_directory(h, dirfd, "write", name, err) : 0;
}

int file_remove(const struct host *h, int dirfd, const char *name, enum file_sync sync,
                struct error *err)
{
    int r = h->seams->unlink(h->seams->arg, dirfd, name);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return error_errno(err, -r, "remove %s", name);
    return sync == FILE_SYNC_ALL ? sync_directory(h, dirfd, "remove", name, err) : 0;
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *path_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return x_strdup(".");
    return x_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

int dir_make(const char *path, mode_t mode, struct error *err)
{
    auto_free char *copy = x_strdup(path);
    for (char *at = copy; *at;) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        char end = *at;
        *at = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST) {
            int sys = errno;
            struct stat st;
            /* A read-only parent answers EROFS or EACCES also for what exists. */
            if (stat(copy, &st) < 0)
                return error_errno(err, sys, "make directory %s", copy);
        }
        *at = end;
    }
    struct stat st;
    if (stat(path, &st) < 0)
        return error_errno(err, errno, "make directory %s", path);
    if (!S_ISDIR(st.st_mode))
        return error_set(err, ERR_CONFLICT, ENOTDIR,
                         "make directory %s: a file with that name is in the way", path);
    return 0;
}
