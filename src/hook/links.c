/* SPDX-License-Identifier: Apache-2.0 */
/* create-symlinks and chmod. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "hook/hook.h"
#include "hook/root.h"

/* Without these there is no compute; any other link (graphics, development) is not worth a
 * container that does not start. */
static bool essential(const char *name)
{
    static const char *const stems[] = { "libcuda.so", "libnvidia-ml.so",
                                         "libnvidia-ptxjitcompiler.so", "libnvidia-nvvm.so",
                                         "nvidia-smi" };
    for (size_t i = 0; i < ARRAY_LEN(stems); i++)
        if (strncmp(name, stems[i], strlen(stems[i])) == 0)
            return true;
    return false;
}

/* Is there a file behind the path as it is? */
static bool resolves(int rootfd, const char *path)
{
    struct error ignored;
    auto_close int fd = -1;
    return root_open(rootfd, path, O_PATH, 0, &fd, &ignored) == 0;
}

static int create_link(int rootfd, const char *spec, struct error *err)
{
    struct error why;
    char target[ROOT_PATH_MAX], name[256] = "";
    const char *path = strstr(spec, "::");
    if (!path || path == spec || !path[2] || (size_t)(path - spec) >= sizeof target)
        return error_set(err, ERR_INVALID, 0, "--link \"%s\": expected TARGET::PATH", spec);
    memcpy(target, spec, (size_t)(path - spec));
    target[path - spec] = '\0';
    path += 2;
    auto_close int dirfd = -1;
    int r = root_open_parent(rootfd, path, &dirfd, name, &why);
    if (r == -ERR_INVALID)
        return error_set(err, ERR_INVALID, 0, "--link \"%s\": %s", spec, why.text);
    if (r == 0)
        r = hook_link(dirfd, name, target, &why);
    if (r == 0)
        return 0;
    const char *slash = strrchr(path, '/');
    if (essential(slash ? slash + 1 : path) && !resolves(rootfd, path))
        return error_set(err, why.code, why.sys, "--link \"%s\": %s", spec, why.text);
    hook_warn("--link \"%s\" is left out: %s", spec, why.text);
    return 0;
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
        if (r == -ERR_NOT_FOUND)
            continue; /* this container has no such node */
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
