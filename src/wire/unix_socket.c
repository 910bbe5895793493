/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

enum { BACKLOG = 128 };

/* A path taken apart. */
struct place {
    int dirfd;
    const char *name; /* within the path it was made of */
};

static void place_done(struct place *p)
{
    mem_close_p(&p->dirfd);
}

static int place_open(struct place *p, const char *path, struct error *err)
{
    p->name = path_name(path);
    if (!p->name[0])
        return error_set(err, ERR_INVALID, 0, "socket %s: the path names no file", path);
    auto_free char *dir = path_parent(path);
    p->dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (p->dirfd < 0)
        return error_errno(err, errno, "socket %s: open its directory", path);
    return 0;
}

static int address(const struct place *p, const char *name, struct sockaddr_un *ret,
                   struct error *err)
{
    *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int n = snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/%s", p->dirfd, name);
    if (n < 0 || (size_t)n >= sizeof ret->sun_path)
        return error_set(err, ERR_INVALID, 0,
                         "socket name %s: %zu bytes, about 85 fit; give it a shorter name", name,
                         strlen(name));
    return 0;
}

/* The plain path where it fits, so that nothing depends on /proc then. */
static int address_of(const struct place *p, const char *path, struct sockaddr_un *ret,
                      struct error *err)
{
    size_t n = strlen(path);
    if (n >= sizeof ret->sun_path)
        return address(p, p->name, ret, err);
    *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(ret->sun_path, path, n + 1);
    return 0;
}

static int open_socket(const char *path, struct error *err)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 ? fd : error_errno(err, errno, "socket %s: make a socket", path);
}

static int connect_to(int fd, const struct sockaddr_un *a)
{
    int r;
    do
        r = connect(fd, (const struct sockaddr *)a, sizeof *a);
    while (r < 0 && errno == EINTR);
    return r < 0 ? errno : 0;
}

int unix_socket_connect(const char *path, int *ret_fd, struct error *err)
{
    __attribute__((cleanup(place_done))) struct place p = { .dirfd = -1 };
    struct sockaddr_un a;
    int r = place_open(&p, path, err);
    if (r == 0)
        r = address_of(&p, path, &a, err);
    if (r < 0)
        return r;
    auto_close int fd = open_socket(path, err);
    if (fd < 0)
        return fd;
    int sys = connect_to(fd, &a);
    if (sys)
        return error_errno(err, sys, "connect to %s", path);
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* What stands in our place already. */
static int check_old(const struct place *p, const char *path, struct error *err)
{
    struct stat st;
    struct sockaddr_un a;
    int r = address_of(p, path, &a, err);
    if (r < 0)
        return r;
    if (fstatat(p->dirfd, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : error_errno(err, errno, "socket %s: look at it", path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, ERR_CONFLICT, 0,
                         "socket %s: something that is not a socket has this name; remove it",
                         path);
    auto_close int fd = open_socket(path, err);
    if (fd < 0)
        return fd;
    int sys = connect_to(fd, &a);
    if (sys == 0 || sys == EAGAIN)
        return error_set(err, ERR_CONFLICT, 0, "socket %s: another process answers on it", path);
    return 0;
}

static int bind_as(int fd, const struct place *p, const char *name, mode_t mode, const char *path,
                   struct unix_socket_id *ret_id, struct error *err)
{
    struct sockaddr_un a;
    struct stat st;
    int r = address(p, name, &a, err);
    if (r < 0)
        return r;
    unlinkat(p->dirfd, name, 0); /* of a process with our pid that died */
    if (bind(fd, (const struct sockaddr *)&a, sizeof a) < 0)
        return error_errno(err, errno, "socket %s: bind", path);
    if (fchmodat(p->dirfd, name, mode ? mode : 0600, 0) < 0)
        return error_errno(err, errno, "socket %s: set its mode", path);
    if (listen(fd, BACKLOG) < 0)
        return error_errno(err, errno, "socket %s: listen", path);
    if (fstatat(p->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return error_errno(err, errno, "socket %s: look at it", path);
    if (renameat(p->dirfd, name, p->dirfd, p->name) < 0)
        return error_errno(err, errno, "socket %s: give it its name", path);
    *ret_id = (struct unix_socket_id){ st.st_dev, st.st_ino };
    return 0;
}

int unix_socket_listen(const char *path, mode_t mode, int *ret_fd, struct unix_socket_id *ret_id,
                       struct error *err)
{
    static unsigned count;
    __attribute__((cleanup(place_done))) struct place p = { .dirfd = -1 };
    int r = place_open(&p, path, err);
    if (r == 0)
        r = check_old(&p, path, err);
    if (r < 0)
        return r;
    auto_close int fd = open_socket(path, err);
    if (fd < 0)
        return fd;
    char name[48];
    snprintf(name, sizeof name, ".mete-%d-%u.sock", (int)getpid(),
             __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
    r = bind_as(fd, &p, name, mode, path, ret_id, err);
    if (r < 0) {
        unlinkat(p.dirfd, name, 0);
        return r;
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

bool unix_socket_is(const char *path, const struct unix_socket_id *id)
{
    struct stat st;
    return lstat(path, &st) == 0 && st.st_dev == id->dev && st.st_ino == id->ino;
}

void unix_socket_unlink(const char *path, const struct unix_socket_id *id)
{
    if (unix_socket_is(path, id))
        unlink(path);
}
