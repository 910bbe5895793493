/* SPDX-License-Identifier: Apache-2.0 */
/* create-symlinks and chmod. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "hook/hook.h"
#include "hook/root.h"

static bool links_to(int dirfd, const char *name, const char *target)
{
    char now[ROOT_PATH_MAX];
    ssize_t n = readlinkat(dirfd, name, now, sizeof now - 1);
    return n >= 0 && (size_t)n == strlen(target) && memcmp(now, target, (size_t)n) == 0;
}

static int make_link(int dirfd, const char *name, const char *target, struct error *err)
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

static int create_link(int rootfd, const char *spec, struct error *err)
{
    char target[ROOT_PATH_MAX], name[256];
    const char *path = strstr(spec, "::");
    if (!path || path == spec || !path[2] || (size_t)(path - spec) >= sizeof target)
        return error_set(err, ERR_INVALID, 0, "--link \"%s\": expected TARGET::PATH", spec);
    memcpy(target, spec, (size_t)(path - spec));
    target[path - spec] = '\0';
    auto_close int dirfd = -1;
    int r = root_open_parent(rootfd, path + 2, &dirfd, name, err);
    if (r == 0)
        r = make_link(dirfd, name, target, err);
    return r < 0 ? error_wrap(err, "--link \"%s\"", spec) : 0;
}

int hook_create_symlinks(int rootfd, const struct hook_options *o, struct error *err)
{
    for (size_t i = 0; i < o->links.n; i++) {
        int r = create_link(rootfd, o->links.items[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool parse_mode(const char *text, mode_t *ret)
{
    unsigned v = 0;
    if (!text || !text[0])
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '7' || v > 07777 / 8)
            return false;
        v = v * 8 + (unsigned)(*text - '0');
    }
    *ret = v;
    return true;
}

int hook_chmod(int rootfd, const struct hook_options *o, struct error *err)
{
    mode_t mode;
    if (!parse_mode(o->mode, &mode))
        return error_set(err, ERR_INVALID, 0, "--mode \"%s\": expected an octal mode such as 755",
                         o->mode ? o->mode : "");
    for (size_t i = 0; i < o->paths.n; i++) {
        auto_close int fd = -1;
        char self[64];
        int r = root_open(rootfd, o->paths.items[i], O_PATH, 0, &fd, err);
        if (r < 0)
            return r;
        /* An O_PATH descriptor cannot be given to fchmod; its entry in /proc names the same file
         * and nothing else. */
        snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
        if (chmod(self, mode) < 0)
            return error_errno(err, errno, "change the mode of %s in the container",
                               o->paths.items[i]);
    }
    return 0;
}
