/* SPDX-License-Identifier: Apache-2.0 */
#include "cdi/root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

enum { LINKS_MAX = 40 }; /* as the kernel allows in one path */

int cdi_root_open(struct cdi_root *r, const char *view, struct error *err)
{
    *r = (struct cdi_root){ open(view, O_PATH | O_DIRECTORY | O_CLOEXEC), view };
    return r->fd < 0 ? error_errno(err, errno, "open the folder %s", view) : 0;
}

void cdi_root_close(struct cdi_root *r)
{
    if (r->fd >= 0)
        close(steal_fd(&r->fd));
}

/* A path on its way: `done` is free of links, `rest` is still to be walked. */
struct walk {
    char done[CDI_PATH_MAX], rest[2 * CDI_PATH_MAX];
    size_t n; /* of done */
    int links;
};

static void go_up(struct walk *w)
{
    while (w->n > 0 && w->done[--w->n] != '/') {
    }
    w->done[w->n] = '\0';
}

/* Puts a link's target before what is left, which is empty or begins with a slash. */
static bool follow(const struct cdi_root *r, struct walk *w, const char *left)
{
    char target[CDI_PATH_MAX], joined[sizeof w->rest];
    ssize_t n = readlinkat(r->fd, w->done + 1, target, sizeof target - 1);
    if (n <= 0 || (size_t)n == sizeof target - 1 || ++w->links > LINKS_MAX)
        return false;
    target[n] = '\0';
    if (target[0] == '/')
        w->n = 0, w->done[0] = '\0';
    else
        go_up(w);
    int len = snprintf(joined, sizeof joined, "%s%s", target, left);
    if (len < 0 || (size_t)len >= sizeof joined)
        return false;
    memcpy(w->rest, joined, (size_t)len + 1);
    return true;
}

/* One component more; *at moves on in w->rest. */
static bool step(const struct cdi_root *r, struct walk *w, char **at, struct stat *st)
{
    char *name = *at + strspn(*at, "/"), *end = name + strcspn(name, "/");
    size_t n = (size_t)(end - name);
    *at = end;
    if (n == 0 || (n == 1 && name[0] == '.'))
        return true;
    if (n == 2 && name[0] == '.' && name[1] == '.') {
        go_up(w);
        return w->n == 0 || fstatat(r->fd, w->done + 1, st, AT_SYMLINK_NOFOLLOW) == 0;
    }
    if (w->n + 1 + n >= sizeof w->done)
        return false;
    w->done[w->n] = '/';
    memcpy(w->done + w->n + 1, name, n);
    w->n += 1 + n;
    w->done[w->n] = '\0';
    if (fstatat(r->fd, w->done + 1, st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    if (S_ISLNK(st->st_mode)) {
        if (!follow(r, w, end))
            return false;
        *at = w->rest;
        st->st_mode = 0; /* of the link; the target's comes with the next step */
        return true;
    }
    return *end == '\0' || S_ISDIR(st->st_mode);
}

bool cdi_root_resolve_in(const struct cdi_root *r, const char *real_dir, const char *name,
                         char ret[CDI_PATH_MAX], struct stat *st)
{
    struct walk w;
    struct stat last = { 0 };
    size_t n = strlen(name), dir_n = strcmp(real_dir, "/") == 0 ? 0 : strlen(real_dir);
    if (n >= sizeof w.rest || dir_n >= sizeof w.done)
        return false;
    memcpy(w.done, real_dir, dir_n);
    w.done[dir_n] = '\0';
    w.n = dir_n;
    w.links = 0;
    memcpy(w.rest, name, n + 1);
    for (char *at = w.rest; *at;) {
        if (!step(r, &w, &at, &last))
            return false;
    }
    if (w.n == 0) {
        if (fstat(r->fd, &last) < 0)
            return false;
        memcpy(w.done, "/", 2);
        w.n = 1;
    }
    memcpy(ret, w.done, w.n + 1);
    if (st)
        *st = last;
    return true;
}

bool cdi_root_resolve(const struct cdi_root *r, const char *path, char ret[CDI_PATH_MAX],
                      struct stat *st)
{
    return cdi_root_resolve_in(r, "/", path, ret, st);
}

int cdi_root_open_file(const struct cdi_root *r, const char *path, int flags)
{
    struct open_how how = {
        .flags = (unsigned)(flags | O_CLOEXEC | O_NOCTTY),
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, r->fd, path, &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
        return fd;
    /* A kernel or a seccomp filter without openat2: the links are followed by hand. */
    char real[CDI_PATH_MAX];
    if (!cdi_root_resolve(r, path, real, NULL)) {
        errno = ENOENT;
        return -1;
    }
    return openat(r->fd, real[1] ? real + 1 : ".", flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
}
