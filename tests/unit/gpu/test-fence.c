/* SPDX-License-Identifier: Apache-2.0 */
/* What a process behind the fence can do and what not. Where the host does not let us put one up,
 * that is said, and there is nothing to test. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "fake.h"
#include "gpu/fence.h"

enum { SKIPPED = 77 };

static struct fake f;

/* In a child: each answers 0 when the fence did what it should. */

static int network(void)
{
    int local = socket(AF_UNIX, SOCK_STREAM, 0);
    if (local < 0)
        return 1;
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EAFNOSUPPORT)
        return 2;
    if (socket(AF_INET6, SOCK_DGRAM, 0) >= 0 || socket(AF_NETLINK, SOCK_RAW, 0) >= 0)
        return 3;
    return 0;
}

static int tracing(void)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 || errno != EPERM)
        return 1;
    return 0;
}

static int death(void)
{
    int signo = 0;
    prctl(PR_GET_PDEATHSIG, &signo);
    return signo == SIGKILL ? 0 : 1;
}

static int files(void)
{
    auto_free char *inside = x_printf("%s/dev/new", f.dir);
    auto_free char *outside = x_printf("%s/usr/lib64/new", f.dir);
    auto_free char *old = x_printf("%s/usr/lib64/x", f.dir);
    if (open(inside, O_WRONLY | O_CREAT, 0600) < 0)
        return 1;
    if (open("/dev/null", O_WRONLY) < 0)
        return 2;
    if (open(outside, O_WRONLY | O_CREAT, 0600) >= 0 || errno != EACCES)
        return 3;
    if (open(old, O_WRONLY) >= 0 || unlink(old) == 0)
        return 4;
    if (open(old, O_RDONLY) < 0)
        return 5;
    return 0;
}

/* The exit code of `check` behind the fence; SKIPPED when `needs` could not be had. */
static int behind_fence(int (*check)(void), const char *needs)
{
    pid_t pid = fork();
    if (pid == 0) {
        auto_buf notes;
        buf_init(&notes, 1000);
        fence_up(&f.host, &notes);
        if (notes.n && strstr(notes.p, needs)) {
            print_message("%s\n", notes.p);
            _exit(SKIPPED);
        }
        _exit(check());
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        fail_msg("the child did not end as it should: %d", status);
    return WEXITSTATUS(status);
}

static void fences(void **state)
{
    static const struct {
        const char *name, *needs;
        int (*check)(void);
    } cases[] = {
        { "network", "seccomp", network },
        { "tracing", "seccomp", tracing },
        { "death", "end with the agent", death },
        { "files", "write protection", files },
    };
    fake_begin(&f, NULL);
    fake_file(&f, "/dev/x", "");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int r = behind_fence(cases[i].check, cases[i].needs);
        if (r != 0 && r != SKIPPED)
            fail_msg("%s: step %d", cases[i].name, r);
    }
    fake_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fences) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
