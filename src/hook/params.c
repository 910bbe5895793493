/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disable-device-node-modification: libnvidia would make nodes of GPUs that the container does not
 * own unless the driver's params say ModifyDeviceFiles: 0. A copy that says so is bound over the
 * container's /proc/driver/nvidia/params. The copy lies on a file system of its own that is never
 * visible by name: fsopen, fsmount, open_tree, move_mount (Linux 5.2), all by descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "hook/hook.h"
#include "hook/root.h"

enum { PARAMS_MAX = 64 * 1024 };

static const char params_path[] = "/proc/driver/nvidia/params";

/* The params with the exact line "ModifyDeviceFiles: 1" changed; false when there is none. */
static bool changed_params(struct str old, struct buf *out)
{
    bool changed = false;
    while (old.p) {
        struct str line = str_cut(&old, '\n');
        bool it = str_is(line, "ModifyDeviceFiles: 1");
        changed = changed || it;
        buf_str(out, it ? STR("ModifyDeviceFiles: 0") : line);
        if (old.p)
            buf_ch(out, '\n');
    }
    return changed;
}

/* A detached file system in memory that holds one read-only file; *ret_fd is a detached mount of
 * that file. */
static int detached_file(struct str text, int *ret_fd, struct error *err)
{
    auto_close int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
    if (fs < 0)
        return error_errno(err, errno, "open a file system in memory (fsopen)");
    if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "size", "64k", 0) < 0 ||
        syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_errno(err, errno, "set up a file system in memory (fsconfig)");
    auto_close int mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                                      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (mnt < 0)
        return error_errno(err, errno, "mount a file system in memory (fsmount)");
    int r = hook_write(mnt, "params", text, 0444, err);
    if (r < 0)
        return r;
    int tree = (int)syscall(SYS_open_tree, mnt, "params", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return error_errno(err, errno, "take the changed params (open_tree)");
    *ret_fd = tree;
    return 0;
}

int hook_disable_device_node_modification(int rootfd, const struct hook_options *o,
                                          struct error *err)
{
    char path[ROOT_PATH_MAX];
    static char text[PARAMS_MAX];
    snprintf(path, sizeof path, "%s/driver/nvidia/params", o->proc_root ? o->proc_root : "/proc");
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : error_errno(err, errno, "open %s", path);
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0)
        return error_errno(err, errno, "read %s", path);
    if (n == (ssize_t)sizeof text)
        return error_set(err, ERR_LIMIT, 0, "%s has more than %d bytes", path, PARAMS_MAX - 1);
    auto_buf out;
    buf_init(&out, PARAMS_MAX);
    if (!changed_params((struct str){ text, (size_t)n }, &out))
        return 0;
    auto_close int target = -1, copy = -1;
    int r = root_open(rootfd, params_path, O_PATH, 0, &target, err);
    if (r == -ERR_NOT_FOUND)
        return 0; /* the container does not see the driver's proc files */
    if (r == 0)
        r = buf_check(&out, "the changed params", err);
    if (r == 0)
        r = detached_file(buf_view(&out), &copy, err);
    if (r < 0)
        return r;
    if (syscall(SYS_move_mount, copy, "", target, "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return error_errno(err, errno,
                           "bind the changed params over %s in the container (move_mount)",
                           params_path);
    return 0;
}
