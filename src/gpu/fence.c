/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fence.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
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

void fence_up(struct buf *notes)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        note(notes, "end with the agent", strerror(errno));
    fence_calls(notes);
}
