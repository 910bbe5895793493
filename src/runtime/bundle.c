/* SPDX-License-Identifier: Apache-2.0 */
/* The bundle: config.json read, and written in one step or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "runtime/runtime.h"

/* ---- reading ---- */

struct bundle {
    const char *path, *name;
    int dirfd;
    struct stat st;
    char *text;
    size_t n;
};

static void bundle_done(struct bundle *b)
{
    if (b->dirfd >= 0)
        close(b->dirfd);
    free(b->text);
}

static int read_text(struct bundle *b, int fd, struct error *err)
{
    size_t size = (size_t)b->st.st_size;
    b->text = try_alloc(size + 1);
    if (!b->text)
        return error_set(err, ERR_LIMIT, 0, "no memory for %zu bytes of %s/%s", size, b->path,
                         b->name);
    while (b->n < size) {
        ssize_t got = read(fd, b->text + b->n, size - b->n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, errno, "read %s/%s", b->path, b->name);
        if (got == 0)
            break;
        b->n += (size_t)got;
    }
    return 0;
}

/* *ret_there is false when there is nothing that could be read: the real runtime says so. */
static int bundle_read(struct bundle *b, bool *ret_there, struct error *err)
{
    *ret_there = false;
    b->dirfd = open(b->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->dirfd < 0)
        return 0;
    auto_close int fd =
        openat(b->dirfd, b->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        return error_set(err, ERR_INVALID, 0, "%s/%s is a link, expected a file", b->path, b->name);
    if (fd < 0)
        return 0;
    if (fstat(fd, &b->st) < 0)
        return error_errno(err, errno, "stat %s/%s", b->path, b->name);
    if (!S_ISREG(b->st.st_mode))
        return error_set(err, ERR_INVALID, 0, "%s/%s is no regular file", b->path, b->name);
    if (b->st.st_size > RUNTIME_CONFIG_MAX)
        return error_set(err, ERR_LIMIT, 0, "%s/%s has %lld bytes, at most %d are read", b->path,
                         b->name, (long long)b->st.st_size, RUNTIME_CONFIG_MAX);
    *ret_there = true;
    return read_text(b, fd, err);
}

/* ---- writing ---- */

static int write_all(int fd, struct str text)
{
    while (text.n) {
        ssize_t n = write(fd, text.p, text.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        text.p += n;
        text.n -= (size_t)n;
    }
    return 0;
}

/* The bundle lies on a file system in memory and is made anew after a crash: no fsync. */
static int bundle_write(const struct bundle *b, struct str text, struct error *err)
{
    char temp[64];
    uint64_t salt;
    if (getrandom(&salt, sizeof salt, 0) != (ssize_t)sizeof salt)
        return error_errno(err, errno, "get random bytes");
    snprintf(temp, sizeof temp, ".config.%016llx", (unsigned long long)salt);
    auto_close int fd =
        openat(b->dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, errno, "make %s/%s", b->path, temp);
    int r = write_all(fd, text);
    if (r == 0 && fchown(fd, b->st.st_uid, b->st.st_gid) < 0 &&
        (b->st.st_uid != geteuid() || b->st.st_gid != getegid()))
        r = -errno;
    if (r == 0 && fchmod(fd, b->st.st_mode & 07777) < 0)
        r = -errno;
    if (r == 0 && renameat(b->dirfd, temp, b->dirfd, b->name) < 0)
        r = -errno;
    if (r == 0)
        return 0;
    unlinkat(b->dirfd, temp, 0);
    return error_errno(err, -r, "write %s/%s", b->path, b->name);
}

static int merge(const struct bundle *b, const struct runtime_config *c,
                 const struct error *why_config, const char *root, struct runtime_outcome *ret,
                 struct error *err)
{
    auto_buf out;
    auto_free char *name = x_printf("%s/%s", b->path, b->name);
    buf_init(&out, RUNTIME_CONFIG_MAX);
    int r = runtime_merge((struct str){ b->text, b->n }, name, c, why_config, root, &out, ret, err);
    if (r < 0 || out.n == 0)
        return r;
    r = bundle_write(b, buf_view(&out), err);
    ret->written = r == 0;
    return r;
}

int runtime_prepare(const char *bundle, const char *config_name, const struct runtime_config *c,
                    const struct error *why_config, const char *root, struct runtime_outcome *ret,
                    struct error *err)
{
    struct bundle b = { .path = bundle, .name = config_name, .dirfd = -1 };
    bool there = false;
    *ret = (struct runtime_outcome){ 0 };
    int r = bundle_read(&b, &there, err);
    if (r == 0 && there && runtime_may_ask((struct str){ b.text, b.n }, c))
        r = merge(&b, c, why_config, root, ret, err);
    bundle_done(&b);
    return r;
}
