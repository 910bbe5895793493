/* SPDX-License-Identifier: Apache-2.0 */
#include "hook/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

static int walk_only;

void root_without_openat2(int on)
{
    walk_only = on;
}

static int open_in_root(int rootfd, const char *path, int flags, mode_t mode)
{
    const struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    if (walk_only) {
        errno = ENOSYS;
        return -1;
    }
    /* EAGAIN: a rename or mount raced with the resolution of ".."; the kernel asks to try again. */
    for (int tries = 0; tries < 32; tries++) {
        int fd = (int)syscall(SYS_openat2, rootfd, path, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            return fd;
    }
    return -1;
}

/* The walk: a stack of directory descriptors, so that ".." goes back along the way that was really
 * taken. */
struct walk {
    int fds[ROOT_LINKS_MAX * 4];
    int depth, links;
    char rest[2 * ROOT_PATH_MAX];
};

static void walk_pop(struct walk *w, int to)
{
    while (w->depth > to)
        close(w->fds[--w->depth]);
}

static int walk_here(const struct walk *w, int rootfd)
{
    return w->depth ? w->fds[w->depth - 1] : rootfd;
}

static int walk_push(struct walk *w, int fd)
{
    if (w->depth == (int)ARRAY_LEN(w->fds)) {
        close(fd);
        errno = ENAMETOOLONG;
        return -1;
    }
    w->fds[w->depth++] = fd;
    return 0;
}

/* Puts a link's text before what is left to walk. */
static int walk_link(struct walk *w, const char *text, size_t n)
{
    char tail[sizeof w->rest];
    if (++w->links > ROOT_LINKS_MAX) {
        errno = ELOOP;
        return -1;
    }
    size_t left = strlen(w->rest);
    if (n + 1 + left >= sizeof w->rest) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(tail, w->rest, left + 1);
    memcpy(w->rest, text, n);
    w->rest[n] = '/';
    memcpy(w->rest + n + 1, tail, left + 1);
    if (text[0] == '/')
        walk_pop(w, 0);
    return 0;
}

/* Takes the next component off w->rest; false at the end. */
static bool walk_next(struct walk *w, char name[256], bool *ret_last, bool *ret_must_be_dir)
{
    const char *p = w->rest + strspn(w->rest, "/");
    size_t n = strcspn(p, "/");
    if (n == 0 || n > 255) {
        errno = n ? ENAMETOOLONG : 0;
        return false;
    }
    memcpy(name, p, n);
    name[n] = '\0';
    const char *after = p + n;
    *ret_must_be_dir = *after == '/';
    after += strspn(after, "/");
    *ret_last = *after == '\0';
    memmove(w->rest, after, strlen(after) + 1);
    return true;
}

/* Looks at one component without following it: a directory is pushed, a link is put before the
 * rest, anything else ends the walk in ENOTDIR. */
static int walk_step(struct walk *w, int rootfd, const char *name)
{
    struct stat st;
    int fd = openat(walk_here(w, rootfd), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    char link[ROOT_PATH_MAX];
    ssize_t n = -1;
    bool is_link = fstat(fd, &st) == 0 && S_ISLNK(st.st_mode);
    if (is_link)
        n = readlinkat(fd, "", link, sizeof link);
    if (!is_link)
        return walk_push(w, fd);
    close(fd);
    if (n <= 0 || n >= (ssize_t)sizeof link) {
        errno = n < 0 ? errno : ENAMETOOLONG;
        return -1;
    }
    return walk_link(w, link, (size_t)n);
}

/* Opens what the walk stands on. An O_PATH descriptor is opened for real through /proc/self/fd,
 * which cannot be a link by now. */
static int walk_open_here(const struct walk *w, int rootfd, int flags)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", walk_here(w, rootfd));
    return open(self, (flags & ~(O_NOFOLLOW | O_CREAT | O_EXCL)) | O_CLOEXEC);
}

static int walk_end(struct walk *w, int fd)
{
    int saved = errno;
    walk_pop(w, 0);
    errno = saved;
    return fd;
}

static int open_by_walk(int rootfd, const char *path, int flags, mode_t mode)
{
    struct walk w = { 0 };
    char name[256];
    bool last, must_be_dir;
    snprintf(w.rest, sizeof w.rest, "%s", path);
    errno = 0;
    while (walk_next(&w, name, &last, &must_be_dir)) {
        if (strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            walk_pop(&w, w.depth > 0 ? w.depth - 1 : 0);
            continue;
        }
        if (last && !must_be_dir && (flags & (O_CREAT | O_NOFOLLOW))) {
            int fd = openat(walk_here(&w, rootfd), name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
            bool followable = errno == ELOOP && !(flags & (O_NOFOLLOW | O_EXCL));
            if (fd >= 0 || !followable)
                return walk_end(&w, fd);
        }
        if (walk_step(&w, rootfd, name) < 0)
            return walk_end(&w, -1);
        errno = 0;
    }
    return walk_end(&w, errno ? -1 : walk_open_here(&w, rootfd, flags));
}

int root_open(int rootfd, const char *path, int flags, mode_t mode, int *ret_fd, struct error *err)
{
    if (strlen(path) >= ROOT_PATH_MAX)
        return error_set(err, ERR_LIMIT, 0, "path of %zu bytes in the container, at most %d",
                         strlen(path), ROOT_PATH_MAX - 1);
    errno = 0;
    int fd = open_in_root(rootfd, path, flags, mode);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        errno = 0;
        fd = open_by_walk(rootfd, path, flags, mode);
    }
    if (fd < 0)
        return error_errno(err, errno, "open %s in the container", path);
    *ret_fd = fd;
    return 0;
}

/* An O_PATH descriptor touches nothing. What it turns out to be is opened through its entry in
 * /proc, which names that and nothing else. */
static int reopen(int pathfd)
{
    struct stat st;
    char self[64];
    if (fstat(pathfd, &st) < 0)
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    snprintf(self, sizeof self, "/proc/self/fd/%d", pathfd);
    return open(self, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

int root_open_file(int rootfd, const char *path, int *ret_fd, struct error *err)
{
    auto_close int at = -1;
    int r = root_open(rootfd, path, O_PATH, 0, &at, err);
    if (r < 0)
        return r;
    *ret_fd = reopen(at);
    if (*ret_fd >= 0)
        return 0;
    return errno == EINVAL || errno == EISDIR
               ? error_set(err, ERR_INVALID, 0, "%s in the container is not a regular file", path)
               : error_errno(err, errno, "open %s in the container", path);
}

int root_open_file_at(int dirfd, const char *name)
{
    auto_close int at = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return at < 0 ? -1 : reopen(at);
}

bool root_mount_of(int fd, const char *name, struct root_mount *ret)
{
    struct statx st;
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (name[0] ? 0 : AT_EMPTY_PATH);
    if (statx(fd, name, flags, STATX_TYPE | STATX_MNT_ID, &st) < 0)
        return false;
    *ret = (struct root_mount){ .id = st.stx_mask & STATX_MNT_ID ? st.stx_mnt_id : 0,
                                .device = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor };
    return true;
}

bool root_same_mount(const struct root_mount *a, const struct root_mount *b)
{
    return a->id && b->id ? a->id == b->id : a->device == b->device;
}

static int too_many(size_t max, struct error *err)
{
    return error_set(err, ERR_LIMIT, 0, "a directory in the container has more than %zu entries",
                     max);
}

static int list_into(struct arena *a, DIR *dir, bool (*want)(const char *), size_t max,
                     char ***items, size_t *n, struct error *err)
{
    size_t seen = 0;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (++seen > ROOT_LIST_MAX)
            return too_many(ROOT_LIST_MAX, err);
        if (e->d_type == DT_LNK || !want(e->d_name))
            continue;
        if (*n == max)
            return too_many(max, err);
        if ((*n & (*n - 1)) == 0) {
            char **more = arena_array(a, *n ? 2 * *n : 1, sizeof *more);
            if (more && *n)
                memcpy(more, *items, *n * sizeof *more);
            *items = more;
        }
        char *name = *items ? arena_strdup(a, str_of(e->d_name)) : NULL;
        if (!name)
            return error_set(err, ERR_LIMIT, 0, "no memory to list a directory");
        (*items)[(*n)++] = name;
    }
    return 0;
}

int root_list(struct arena *a, int dirfd, bool (*want)(const char *name),
              int (*compare)(const void *, const void *), size_t max, char ***ret, size_t *ret_n,
              struct error *err)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    *ret = NULL;
    *ret_n = 0;
    if (!dir) {
        int saved = errno;
        if (fd >= 0)
            close(fd);
        return error_errno(err, saved, "list a directory in the container");
    }
    int r = list_into(a, dir, want, max, ret, ret_n, err);
    closedir(dir);
    if (r == 0 && *ret_n)
        qsort(*ret, *ret_n, sizeof **ret, compare);
    return r;
}

/* Opens or makes one directory below another, without following a link in its last place. */
static int enter(int rootfd, int dirfd, const char *so_far, const char *name, int *ret_fd,
                 struct error *err)
{
    if (mkdirat(dirfd, name, 0755) < 0 && errno != EEXIST)
        return error_errno(err, errno, "make directory %s in the container", so_far);
    /* An image may have a link here (/lib -> usr/lib): it is resolved inside the root like any
     * other path. */
    return root_open(rootfd, so_far, O_RDONLY | O_DIRECTORY, 0, ret_fd, err);
}

/* Cuts the last name off a path; the names before it are checked on the way. */
static int split(const char *path, char parent[ROOT_PATH_MAX], char name[256], struct error *err)
{
    struct str rest = str_of(path), last = { 0 };
    size_t used = 0;
    if (rest.n >= ROOT_PATH_MAX - 1)
        return error_set(err, ERR_LIMIT, 0, "path of %zu bytes in the container, at most %d",
                         rest.n, ROOT_PATH_MAX - 2);
    parent[0] = '\0';
    while (rest.p) {
        struct str part = str_cut(&rest, '/');
        if (!part.n || str_is(part, "."))
            continue;
        if (part.n > 255 || str_is(part, ".."))
            return error_set(
                err, ERR_INVALID, 0,
                "path %s in the container: \"..\" and names over 255 bytes are not taken", path);
        if (last.n)
            used += (size_t)snprintf(parent + used, ROOT_PATH_MAX - used, "/%.*s", STR_FMT(last));
        last = part;
    }
    if (!last.n)
        return error_set(err, ERR_INVALID, 0, "path %s in the container has no last name", path);
    memcpy(name, last.p, last.n);
    name[last.n] = '\0';
    return 0;
}

/* Makes what is missing of a directory's path, from the root on. */
static int make_dirs(int rootfd, const char *path, int *ret_fd, struct error *err)
{
    char so_far[ROOT_PATH_MAX] = "", name[256];
    size_t used = 0;
    struct str rest = str_of(path + 1);
    auto_close int dirfd = -1;
    int r = root_open(rootfd, "/", O_RDONLY | O_DIRECTORY, 0, &dirfd, err);
    while (r == 0 && rest.p) {
        struct str part = str_cut(&rest, '/');
        snprintf(name, sizeof name, "%.*s", STR_FMT(part));
        used += (size_t)snprintf(so_far + used, sizeof so_far - used, "/%s", name);
        int next = -1;
        r = enter(rootfd, dirfd, so_far, name, &next, err);
        close(dirfd);
        dirfd = next;
    }
    if (r == 0)
        *ret_fd = steal_fd(&dirfd);
    return r;
}

int root_open_parent(int rootfd, const char *path, int *ret_fd, char ret_name[256],
                     struct error *err)
{
    char parent[ROOT_PATH_MAX];
    struct error absent;
    int r = split(path, parent, ret_name, err);
    if (r < 0)
        return r;
    r = root_open(rootfd, parent[0] ? parent : "/", O_RDONLY | O_DIRECTORY, 0, ret_fd, &absent);
    return r == -ERR_NOT_FOUND ? make_dirs(rootfd, parent, ret_fd, err)
           : r < 0             ? error_set(err, absent.code, absent.sys, "%s", absent.text)
                               : 0;
}
