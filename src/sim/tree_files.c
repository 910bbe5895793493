/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/mem.h"
#include "sim/tree.h"

int tree_open(struct tree *t, const char *root, struct error *err)
{
    *t = (struct tree){ .root = root, .err = err };
    t->fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return t->fd < 0 ? error_errno(err, errno, "open %s", root) : 0;
}

int tree_close(struct tree *t)
{
    if (t->fd >= 0)
        close(t->fd);
    for (size_t i = 0; i < t->n_kept; i++)
        free(t->kept[i]);
    free(t->kept);
    t->kept = NULL;
    t->n_kept = 0;
    return t->result;
}

static void failed(struct tree *t, int sys, const char *what, const char *path)
{
    if (t->result == 0)
        t->result = error_errno(t->err, sys, "%s %s/%s", what, t->root, path);
}

static void keep(struct tree *t, const char *path)
{
    if (t->n_kept == t->cap_kept) {
        t->cap_kept = t->cap_kept ? t->cap_kept * 2 : 256;
        t->kept = x_realloc(t->kept, t->cap_kept * sizeof(*t->kept));
    }
    t->kept[t->n_kept++] = x_strdup(path);
    t->sorted = false;
}

static void make_parents(struct tree *t, const char *path)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof(dir), "%s", path);
    for (char *p = strchr(dir, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        if (mkdirat(t->fd, dir, 0755) < 0 && errno != EEXIST)
            failed(t, errno, "make the directory", dir);
        *p = '/';
    }
}

static bool has_content(struct tree *t, const char *path, struct str text)
{
    auto_close int fd = openat(t->fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size != text.n)
        return false;
    auto_free char *old = x_alloc(text.n + 1);
    return read(fd, old, text.n + 1) == (ssize_t)text.n &&
           memcmp(old, text.p ? text.p : "", text.n) == 0;
}

static int write_beside(struct tree *t, const char *path, const char *temp, struct str text,
                        mode_t mode)
{
    auto_close int fd =
        openat(t->fd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    for (size_t at = 0; at < text.n;) {
        ssize_t n = write(fd, text.p + at, text.n - at);
        if (n < 0)
            return errno;
        at += (size_t)n;
    }
    if (fchmod(fd, mode) < 0 || renameat(t->fd, temp, t->fd, path) < 0)
        return errno;
    return 0;
}

static void put(struct tree *t, struct str text, mode_t mode, const char *path)
{
    keep(t, path);
    if (t->result < 0 || has_content(t, path, text))
        return;
    char temp[PATH_MAX];
    if (snprintf(temp, sizeof(temp), "%s.mete-new", path) >= (int)sizeof(temp)) {
        failed(t, ENAMETOOLONG, "write", path);
        return;
    }
    /* Written beside and renamed: a reader sees the old text or the new one. */
    int sys = write_beside(t, path, temp, text, mode);
    if (sys == ENOENT) {
        make_parents(t, path);
        sys = write_beside(t, path, temp, text, mode);
    }
    if (sys)
        failed(t, sys, "write", path);
}

#define FORMAT_PATH(path, format)                                                                  \
    char path[PATH_MAX];                                                                           \
    va_list args_##path;                                                                           \
    va_start(args_##path, format);                                                                 \
    vsnprintf(path, sizeof(path), format, args_##path);                                            \
    va_end(args_##path)

void tree_put(struct tree *t, struct str text, mode_t mode, const char *path_format, ...)
{
    FORMAT_PATH(path, path_format);
    put(t, text, mode, path);
}

void tree_text(struct tree *t, const char *path, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    put(t, (struct str){ text, (size_t)MIN(n, (int)sizeof(text) - 1) }, 0444, path);
}

void tree_link(struct tree *t, const char *target, const char *path_format, ...)
{
    FORMAT_PATH(path, path_format);
    keep(t, path);
    char old[PATH_MAX];
    ssize_t n = t->result < 0 ? -1 : readlinkat(t->fd, path, old, sizeof(old) - 1);
    if (t->result < 0 ||
        (n > 0 && (size_t)n == strlen(target) && memcmp(old, target, (size_t)n) == 0))
        return;
    if (n >= 0)
        unlinkat(t->fd, path, 0);
    int r = symlinkat(target, t->fd, path);
    if (r < 0 && errno == ENOENT) {
        make_parents(t, path);
        r = symlinkat(target, t->fd, path);
    }
    if (r < 0)
        failed(t, errno, "make the link", path);
}

static int make_node(struct tree *t, const char *path, bool real, dev_t device, mode_t mode)
{
    struct stat st;
    if (fstatat(t->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (real ? S_ISCHR(st.st_mode) && st.st_rdev == device : S_ISREG(st.st_mode))
            return 0;
        unlinkat(t->fd, path, 0);
    }
    if (mknodat(t->fd, path, real ? S_IFCHR | mode : S_IFREG | mode, real ? device : 0) < 0)
        return errno;
    return fchmodat(t->fd, path, mode, 0) < 0 ? errno : 0;
}

void tree_node(struct tree *t, bool real, uint32_t major, uint32_t minor, mode_t mode,
               const char *path_format, ...)
{
    FORMAT_PATH(path, path_format);
    keep(t, path);
    if (t->result < 0)
        return;
    int sys = make_node(t, path, real, makedev(major, minor), mode);
    if (sys == ENOENT) {
        make_parents(t, path);
        sys = make_node(t, path, real, makedev(major, minor), mode);
    }
    if (sys)
        failed(t, sys, "make the device node", path);
}

/* ---- removing ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The first kept path that is not before `path`; "" past the end. */
static const char *kept_from(const struct tree *t, const char *path)
{
    size_t low = 0, high = t->n_kept;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(t->kept[middle], path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->n_kept ? t->kept[low] : "";
}

/* Was the path itself put, or something below it? */
static bool is_kept(struct tree *t, const char *path)
{
    if (!t->sorted && t->n_kept > 0)
        qsort(t->kept, t->n_kept, sizeof(*t->kept), by_text);
    t->sorted = true;
    char below[PATH_MAX + 1];
    snprintf(below, sizeof(below), "%s/", path);
    return strcmp(kept_from(t, path), path) == 0 ||
           strncmp(kept_from(t, below), below, strlen(below)) == 0;
}

static void prune(struct tree *t, const char *dir, const char *prefix);

static void prune_entry(struct tree *t, const char *path)
{
    struct stat st;
    if (fstatat(t->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISDIR(st.st_mode))
        prune(t, path, "");
    if (!is_kept(t, path) && unlinkat(t->fd, path, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0)
        failed(t, errno, "remove", path);
}

static void prune(struct tree *t, const char *dir, const char *prefix)
{
    int fd = openat(t->fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[PATH_MAX];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strncmp(e->d_name, prefix, strlen(prefix)) != 0)
            continue;
        if (snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < (int)sizeof(path))
            prune_entry(t, path);
    }
    closedir(d);
}

void tree_prune(struct tree *t, const char *dir, const char *prefix)
{
    if (t->result == 0)
        prune(t, dir, prefix);
}
