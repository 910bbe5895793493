/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Child processes by posix_spawn. A child is never waited for with a blocking call: a process stuck
 * in the kernel survives SIGKILL. */
#include <stdbool.h>
#include <sys/types.h>

#include "io/loop.h"

struct child_spec {
    const char *path;                /* executable, absolute, or "/proc/self/exe" */
    char *const *argv, *const *envp; /* both NULL-terminated */
    const int *fds; /* fds[i] becomes descriptor 3 + i in the child; everything else but 0, 1, 2 is
                       closed */
    size_t n_fds;
};

struct child;
/* ended(): once, on the loop, with the wait status. */
int child_start(struct loop *l, const struct child_spec *spec, void (*ended)(void *arg, int status),
                void *arg, struct child **ret, struct error *err) must_check;
pid_t child_pid(const struct child *c); /* 0 once it has ended */
void child_kill(struct child *c, int signo);
/* Forgets the child: no call-back any more; it is still reaped when it ends. Frees c. */
void child_forget(struct child *c); /* NULL allowed; also after ended() and after loop_free */
