/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disable-device-node-modification: libnvidia would make nodes of GPUs that the container does not
 * own unless the driver's params say ModifyDeviceFiles: 0. A copy that says so is bound over the
 * container's /proc/driver/nvidia/params. The copy lies on a file system of its own that is never
 * visible by name: fsopen, fsmount, open_tree, move_mount (Linux 5.2), all by descriptor. Older
 * kernels get the same through a tmpfs that lies over /proc/driver/nvidia of the container for a
 * moment.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "hook/hook.h"
#include "hook/root.h"

enum { PARAMS_MAX = 64 * 1024, PROC_DEPTH_MAX = 16 };

static const char params_dir[] = "/proc/driver/nvidia",
                  params_path[] = "/proc/driver/nvidia/params";

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

/* A path that names what a descriptor stands for and nothing else. */
struct self_path {
    char text[64];
};
static struct self_path self_path(int fd)
{
    struct self_path p;
    snprintf(p.text, sizeof p.text, "/proc/self/fd/%d", fd);
    return p;
}

/* A mount that is made below a shared one would show up on the host too. The container's proc is
 * made private first; its root is found by climbing until the mount changes. */
static int make_private(int dirfd, struct error *err)
{
    auto_close int at = openat(dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; at >= 0 && i < PROC_DEPTH_MAX; i++) {
        struct root_mount here, above;
        int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 || !root_mount_of(at, "", &here) || !root_mount_of(up, "", &above)) {
            int saved = errno;
            mem_close_p(&up);
            return error_errno(err, saved, "look above %s in the container", params_dir);
        }
        if (!root_same_mount(&here, &above)) {
            close(up);
            if (mount(NULL, self_path(at).text, NULL, MS_PRIVATE, NULL) < 0)
                return error_errno(err, errno, "make the container's /proc private");
            return 0;
        }
        close(at);
        at = up;
    }
    return error_set(err, ERR_INTERNAL, 0, "no mount found above %s in the container", params_dir);
}

/* Linux 5.2: a detached file system in memory that holds one file; *ret_fd is a detached mount of
 * that file, and the file system cannot be written any more. */
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
    auto_close int again = (int)syscall(SYS_fspick, mnt, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
    if (again < 0 || syscall(SYS_fsconfig, again, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
        syscall(SYS_fsconfig, again, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
        return error_errno(err, errno, "make a file system in memory read-only (fsconfig)");
    int tree = (int)syscall(SYS_open_tree, mnt, "params", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return error_errno(err, errno, "take the changed params (open_tree)");
    *ret_fd = tree;
    return 0;
}

static int bind_new(int target, struct str text, struct error *err)
{
    auto_close int copy = -1;
    int r = detached_file(text, &copy, err);
    if (r < 0)
        return r;
    if (syscall(SYS_move_mount, copy, "", target, "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return error_errno(err, errno, "bind the changed params over %s (move_mount)", params_path);
    return 0;
}

/* Writes the copy on the tmpfs that covers dirfd's directory and binds it over the target below. */
static int bind_from_cover(int cover, int dirfd, int target, struct str text, struct error *err)
{
    int r = hook_write(cover, "params", text, 0444, err);
    if (r < 0)
        return r;
    auto_close int file = openat(cover, "params", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0 || mount(self_path(file).text, self_path(target).text, NULL, MS_BIND, NULL) < 0)
        return error_errno(err, errno, "bind the changed params over %s", params_path);
    /* The kernel ignores MS_RDONLY while it binds: a second step. */
    auto_close int bound = openat(dirfd, "params", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (bound < 0 ||
        mount(NULL, self_path(bound).text, NULL,
              MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return error_errno(err, errno, "make %s read-only", params_path);
    return 0;
}

static int bind_old(int rootfd, int dirfd, int target, struct str text, struct error *err)
{
    auto_close int above = -1;
    struct root_mount below, on_top;
    int r = root_open(rootfd, "/proc/driver", O_PATH | O_DIRECTORY, 0, &above, err);
    if (r < 0)
        return r;
    if (mount("tmpfs", self_path(dirfd).text, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "size=64k,mode=0755") < 0)
        return error_errno(err, errno, "mount a file system in memory over %s", params_dir);
    auto_close int cover = openat(above, "nvidia", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (cover < 0 || !root_mount_of(dirfd, "", &below) || !root_mount_of(cover, "", &on_top))
        return error_errno(err, errno, "find the file system in memory over %s", params_dir);
    if (root_same_mount(&below, &on_top))
        return error_set(err, ERR_INTERNAL, 0, "the file system in memory is not over %s",
                         params_dir);
    r = bind_from_cover(cover, dirfd, target, text, err);
    if (umount2(self_path(cover).text, MNT_DETACH) < 0 && r == 0)
        r = error_errno(err, errno, "take the file system in memory off %s", params_dir);
    return r;
}

static int cover_params(int rootfd, int dirfd, int target, struct str text, bool old_kernel,
                        struct error *err)
{
    struct error why = { 0 };
    int r = make_private(dirfd, err);
    if (r < 0)
        return r;
    r = old_kernel ? -ERR_UNSUPPORTED : bind_new(target, text, &why);
    /* EPERM is what a seccomp filter that does not know a call answers. */
    if (r < 0 && (old_kernel || why.sys == ENOSYS || why.sys == EPERM))
        return bind_old(rootfd, dirfd, target, text, err);
    return r < 0 ? error_set(err, why.code, why.sys, "%s", why.text) : 0;
}

/* In a user namespace nobody can make device nodes: not being allowed to mount is no danger there.
 */
static bool in_user_namespace(void)
{
    char text[128] = { 0 };
    auto_close int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    unsigned inside = 1, outside = 1, count = 0;
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    return n > 0 && (sscanf(text, "%u %u %u", &inside, &outside, &count) != 3 || inside != 0 ||
                     outside != 0 || count != 4294967295U);
}

static int read_params(const char *proc, struct buf *out, bool *ret_change, struct error *err)
{
    char path[ROOT_PATH_MAX];
    static char text[PARAMS_MAX];
    snprintf(path, sizeof path, "%s/driver/nvidia/params", proc);
    *ret_change = false;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : error_errno(err, errno, "open %s", path);
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0)
        return error_errno(err, errno, "read %s", path);
    if (n == (ssize_t)sizeof text)
        return error_set(err, ERR_LIMIT, 0, "%s has more than %d bytes", path, PARAMS_MAX - 1);
    *ret_change = changed_params((struct str){ text, (size_t)n }, out);
    return buf_check(out, "the changed params", err);
}

int hook_disable_device_node_modification(int rootfd, const struct hook_options *o,
                                          struct error *err)
{
    auto_buf out;
    bool change;
    struct root_mount here, root;
    auto_close int target = -1, dirfd = -1;
    buf_init(&out, PARAMS_MAX);
    int r = read_params(o->proc_root ? o->proc_root : "/proc", &out, &change, err);
    if (r < 0 || !change)
        return r;
    r = root_open(rootfd, params_dir, O_PATH | O_DIRECTORY, 0, &dirfd, err);
    if (r == 0)
        r = root_open(rootfd, params_path, O_PATH, 0, &target, err);
    if (r == -ERR_NOT_FOUND)
        return 0; /* the container does not see the driver's proc files */
    if (r < 0)
        return r;
    /* A file of the image under that name, where no proc is mounted: not the driver's. */
    if (root_mount_of(target, "", &here) && root_mount_of(rootfd, "", &root) &&
        root_same_mount(&here, &root))
        return 0;
    r = cover_params(rootfd, dirfd, target, buf_view(&out), o->old_kernel, err);
    if (r < 0 && err && (err->sys == EPERM || err->sys == EACCES) && in_user_namespace()) {
        hook_warn("%s; the container cannot make device nodes anyway", err->text);
        return 0;
    }
    return r;
}
