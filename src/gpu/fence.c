/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

#if defined(__x86_64__)
#define FENCE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FENCE_ARCH AUDIT_ARCH_AARCH64
#endif

static void note(struct buf *notes, const char *fence, const char *why)
{
    if (notes->n)
        buf_z(notes, "; ");
    buf_fmt(notes, "%s: %s", fence, why);
}

#ifdef FENCE_ARCH

/* Never needed to talk to a driver. The driver's library may start nvidia-modprobe, which inherits
 * this: it can make device nodes, but not load the module, which is the host's to do. */
static const uint32_t denied[] = {
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_open_by_handle_at,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_acct,
    SYS_quotactl,
    SYS_io_uring_setup,
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
#endif
};

enum { FILTER_MAX = 2 * ARRAY_LEN(denied) + 16 };

static struct sock_filter load(size_t at)
{
    return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)at);
}

static struct sock_filter jump(uint32_t value, uint8_t yes, uint8_t no)
{
    return (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no);
}

static struct sock_filter answer(uint32_t what)
{
    return (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what);
}

static size_t build(struct sock_filter *f)
{
    const uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;
    size_t n = 0;
    f[n++] = load(offsetof(struct seccomp_data, arch));
    f[n++] = jump(FENCE_ARCH, 1, 0);
    f[n++] = answer(SECCOMP_RET_ERRNO | ENOSYS); /* 32-bit calls: the numbers mean other things */
    f[n++] = load(offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1); /* x32 */
    f[n++] = answer(SECCOMP_RET_ERRNO | ENOSYS);
#endif
    for (size_t i = 0; i < ARRAY_LEN(denied); i++) {
        f[n++] = jump(denied[i], 0, 1);
        f[n++] = answer(refuse);
    }
    f[n++] = jump(SYS_socket, 0, 3);
    f[n++] = load(offsetof(struct seccomp_data, args[0]));
    f[n++] = jump(AF_UNIX, 1, 0);
    f[n++] = answer(SECCOMP_RET_ERRNO | EAFNOSUPPORT);
    f[n++] = answer(SECCOMP_RET_ALLOW);
    return n;
}

/* With CAP_SYS_ADMIN the filter needs no no_new_privs, which would keep nvidia-modprobe (setuid)
 * from making device nodes; so where the capability is missing the filter is left out. */
static void fence_calls(struct buf *notes)
{
    struct sock_filter filter[FILTER_MAX];
    struct sock_fprog program = { (unsigned short)build(filter), filter };
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)
        return;
    note(notes, "seccomp",
         errno == EACCES
             ? "needs CAP_SYS_ADMIN (no_new_privs would keep the driver from making its "
               "device nodes)"
             : strerror(errno));
}

#else

static void fence_calls(struct buf *notes)
{
    note(notes, "seccomp", "not written for this processor");
}

#endif

/* ---- files ---- */

#define ACCESS_TRUNCATE (1ULL << 14) /* Landlock 3; younger than Debian 12's header */

enum { LANDLOCK_REFER_SINCE = 2, LANDLOCK_TRUNCATE_SINCE = 3 };

static const uint64_t writing = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                                LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;

static void allow(int ruleset, uint64_t access, const char *root, const char *sub)
{
    auto_free char *path = x_printf("%s%s", strcmp(root, "/") == 0 ? "" : root, sub);
    auto_close int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = { .allowed_access = access, .parent_fd = fd };
    /* A folder that is not there needs no permission. */
    if (fd >= 0)
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

static void allow_places(int ruleset, uint64_t access, const struct host *h)
{
    /* The driver opens its nodes for writing, and its helper makes them. */
    static const char *const places[] = { "/dev", "/proc", "/sys", "/run", "/var/run" };
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        allow(ruleset, access, "", places[i]);
        if (h->root[0])
            allow(ruleset, access, h->root, places[i]);
    }
    allow(ruleset, access, h->dev_root_view, "/dev");
    /* The simulated driver's state is a file that all processes of its host share. */
    allow(ruleset, access, h->root, "/.mete-sim");
    allow(ruleset, access, h->driver_root_view, "/.mete-sim");
    const char *state = getenv("METE_SIM_STATE");
    if (state && state[0])
        allow(ruleset, access & (LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE), "", state);
}

static void fence_files(const struct host *h, struct buf *notes)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    uint64_t access = writing;
    if (version >= LANDLOCK_REFER_SINCE)
        access |= LANDLOCK_ACCESS_FS_REFER;
    if (version >= LANDLOCK_TRUNCATE_SINCE)
        access |= ACCESS_TRUNCATE;
    const struct landlock_ruleset_attr attr = { .handled_access_fs = access };
    auto_close int ruleset =
        version < 1 ? -1 : (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (ruleset < 0) {
        note(notes, "write protection", "this kernel has no Landlock");
        return;
    }
    allow_places(ruleset, access, h);
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) == 0)
        return;
    note(notes, "write protection", errno == EPERM ? "needs CAP_SYS_ADMIN" : strerror(errno));
}

void fence_up(const struct host *h, struct buf *notes)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        note(notes, "end with the agent", strerror(errno));
    fence_files(h, notes);
    fence_calls(notes);
}
