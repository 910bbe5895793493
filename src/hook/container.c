/* SPDX-License-Identifier: Apache-2.0 */
/* The container that is being made: where its root is, files in it, links in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "hook/hook.h"
#include "hook/jsonscan.h"
#include "hook/root.h"

static int read_all(int fd, size_t max, const char *what, struct buf *out, struct error *err)
{
    char chunk[16 * 1024];
    buf_init(out, max);
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, errno, "read %s", what);
        if (n == 0)
            return buf_check(out, what, err);
        buf_add(out, chunk, (size_t)n);
        if (out->failed)
            return buf_check(out, what, err);
    }
}

static int given_in_config(const char *bundle, char given[ROOT_PATH_MAX], struct error *err)
{
    static const char *const root_path[] = { "root", "path", NULL };
    char path[ROOT_PATH_MAX + 16];
    auto_buf text = { 0 };
    snprintf(path, sizeof path, "%s/config.json", bundle);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "open %s", path);
    int r = read_all(fd, HOOK_CONFIG_MAX, path, &text, err);
    if (r == 0)
        r = jsonscan_text(buf_view(&text), root_path, given, ROOT_PATH_MAX, err);
    return r < 0 ? error_wrap(err, "root.path of %s", path) : 0;
}

/* The state's own root (crun; as it stands in config.json, which crun's hooks cannot always read),
 * else that of config.json. Relative means below the bundle. */
static int find_root(struct str state, char root[2 * ROOT_PATH_MAX], struct error *err)
{
    static const char *const state_root[] = { "root", NULL }, *const state_bundle[] = { "bundle",
                                                                                        NULL };
    char given[ROOT_PATH_MAX], bundle[ROOT_PATH_MAX];
    struct error why;
    int r = jsonscan_text(state, state_root, given, sizeof given, err);
    if (r < 0 && r != -ERR_NOT_FOUND)
        return r;
    int no_bundle = jsonscan_text(state, state_bundle, bundle, sizeof bundle, &why);
    if (r < 0 && no_bundle)
        return error_set(err, why.code, why.sys, "%s", why.text);
    if (r < 0)
        r = given_in_config(bundle, given, err);
    if (r < 0)
        return r;
    if (given[0] != '/' && (no_bundle || bundle[0] != '/'))
        return error_set(err, ERR_INVALID, 0,
                         "the root \"%s\" is not an absolute path, and there is no bundle to which "
                         "it could be relative",
                         given);
    snprintf(root, 2 * ROOT_PATH_MAX, "%s%s%s", given[0] == '/' ? "" : bundle,
             given[0] == '/' ? "" : "/", given);
    return 0;
}

int hook_open_container(int state_fd, int *ret_rootfd, struct error *err)
{
    char root[2 * ROOT_PATH_MAX];
    auto_buf state = { 0 };
    int r =
        read_all(state_fd, HOOK_STATE_MAX, "the container state on standard input", &state, err);
    if (r == 0)
        r = find_root(buf_view(&state), root, err);
    if (r < 0)
        return error_wrap(err, "container state");
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "open the container's root %s", root);
    *ret_rootfd = fd;
    return 0;
}

int hook_warn_fd = -1;

void hook_warn(const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (hook_warn_fd >= 0)
        dprintf(hook_warn_fd, "mete-hook: warning: %s\n", text);
}

int hook_read(int rootfd, const char *path, size_t max, char **ret_text, size_t *ret_n,
              struct error *err)
{
    auto_close int fd = -1;
    int r = root_open_file(rootfd, path, &fd, err);
    if (r < 0)
        return r;
    auto_buf text = { 0 };
    r = read_all(fd, max, path, &text, err);
    if (r < 0)
        return r;
    size_t n = text.n;
    char *p = buf_take(&text);
    if (!p)
        return error_set(err, ERR_LIMIT, 0, "no memory to read %s", path);
    *ret_text = p;
    if (ret_n)
        *ret_n = n;
    return 0;
}

static int write_all(int fd, struct str text)
{
    while (text.n) {
        ssize_t n = write(fd, text.p, text.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        text.p += n;
        text.n -= (size_t)n;
    }
    return 0;
}

int hook_write(int dirfd, const char *name, struct str text, mode_t mode, struct error *err)
{
    char temp[300];
    uint64_t salt;
    if (getrandom(&salt, sizeof salt, 0) != (ssize_t)sizeof salt)
        return error_errno(err, errno, "get random bytes");
    snprintf(temp, sizeof temp, ".%.200s.%016llx", name, (unsigned long long)salt);
    auto_close int fd =
        openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return error_errno(err, errno, "make %s in the container", temp);
    if (write_all(fd, text) < 0 || fchmod(fd, mode) < 0 || renameat(dirfd, temp, dirfd, name) < 0) {
        int saved = errno;
        unlinkat(dirfd, temp, 0);
        return error_errno(err, saved, "write %s in the container", name);
    }
    return 0;
}

static bool links_to(int dirfd, const char *name, const char *target)
{
    char now[ROOT_PATH_MAX];
    ssize_t n = readlinkat(dirfd, name, now, sizeof now - 1);
    return n >= 0 && (size_t)n == strlen(target) && memcmp(now, target, (size_t)n) == 0;
}

int hook_link(int dirfd, const char *name, const char *target, struct error *err)
{
    if (links_to(dirfd, name, target))
        return 0;
    if (symlinkat(target, dirfd, name) == 0)
        return 0;
    if (errno != EEXIST)
        return error_errno(err, errno, "make the link %s -> %s", name, target);
    char temp[300];
    uint64_t salt;
    if (getrandom(&salt, sizeof salt, 0) != (ssize_t)sizeof salt)
        return error_errno(err, errno, "get random bytes");
    snprintf(temp, sizeof temp, ".%.200s.%016llx", name, (unsigned long long)salt);
    if (symlinkat(target, dirfd, temp) < 0)
        return error_errno(err, errno, "make the link %s -> %s", temp, target);
    if (renameat(dirfd, temp, dirfd, name) < 0) {
        int saved = errno;
        unlinkat(dirfd, temp, 0);
        return error_errno(err, saved, "replace %s by a link to %s", name, target);
    }
    return 0;
}
