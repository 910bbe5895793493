/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/worker_private.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

extern char **environ;

/* What the driver's library, the loader and the simulation may look at; nothing else of the agent's
 * environment is the worker's business. */
static const char *const kept[] = {
    "PATH=",
    "LD_",
    "METE_SIM_",
    "NVIDIA_",
    "CUDA_",
    "__NV",
    "LANG=",
    "LC_",
    "TZ=",
    "ASAN_OPTIONS=",
    "LSAN_OPTIONS=",
    "TSAN_OPTIONS=",
    "UBSAN_OPTIONS=",
    "MALLOC_",
    "GCOV_",
    "LLVM_PROFILE_FILE=",
};

static char **kept_environment(void)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **env = x_alloc((n + 1) * sizeof *env);
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < ARRAY_LEN(kept); k++)
            if (strncmp(environ[i], kept[k], strlen(kept[k])) == 0) {
                env[used++] = environ[i];
                break;
            }
    return env;
}

static int spawn(struct loop *l, const struct gpu_worker_config *config, struct process *p,
                 int their_fd, int progress_fd, const struct process_events *ev, struct error *err)
{
    const struct host *h = config->host;
    char *argv[] = {
        (char[]){ "mete" },
        (char[]){ "gpu-worker" },
        (char[]){ "--host-root" },
        h->root[0] ? h->root : (char[]){ "/" },
        (char[]){ "--driver-root" },
        h->driver_root,
        (char[]){ "--driver-root-ctr-path" },
        h->driver_root_view,
        (char[]){ "--dev-root" },
        h->dev_root,
        NULL,
    };
    const int fds[] = { their_fd, progress_fd };
    auto_free char **env = kept_environment();
    const struct child_spec spec = {
        .path = config->executable ? config->executable : "/proc/self/exe",
        .argv = argv,
        .envp = env,
        .fds = fds,
        .n_fds = ARRAY_LEN(fds),
    };
    return child_start(l, &spec, ev->ended, p, &p->child, err);
}

static int send_start(const struct process *p, bool watch, const struct survey *before,
                      struct error *err)
{
    auto_buf survey, body;
    buf_init(&survey, SURVEY_BYTES_MAX);
    buf_init(&body, SURVEY_BYTES_MAX + 128);
    struct start s = { .version = PROTOCOL_VERSION, .watch = watch };
    build_id(s.build);
    /* Without it the worker still works, it only knows less of gpus that are lost. */
    if (before && survey_encode(before, &survey, NULL) == 0)
        s.survey = buf_view(&survey);
    start_encode(&s, &body);
    return message_send(p->fd, MESSAGE_START, 0, 0, buf_view(&body), err);
}

int process_start(struct loop *l, const struct gpu_worker_config *config, struct gpu_worker *w,
                  const struct survey *before, const struct process_events *ev,
                  struct process **ret, struct error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_errno(err, errno, "socket pair for the GPU worker");
    auto_close int theirs = pair[1];
    auto_close int progress_fd = -1;
    struct process *p = x_alloc(sizeof *p);
    *p = (struct process){ .fd = pair[0], .worker = w };
    timer_init(&p->reap, l, ev->overdue, p);
    int r = progress_new(&progress_fd, &p->progress, err);
    /* Our end never waits: a worker that does not read is a hung one. */
    if (r == 0 && fcntl(p->fd, F_SETFL, O_NONBLOCK) < 0)
        r = error_errno(err, errno, "socket of the GPU worker");
    if (r == 0)
        r = spawn(l, config, p, theirs, progress_fd, ev, err);
    if (r < 0) {
        process_free(p);
        return r;
    }
    p->pid = child_pid(p->child);
    watch_init(&p->watch, l, p->fd, ev->ready, p);
    watch_want(&p->watch, IO_READ);
    p->watching = true;
    struct error own;
    r = send_start(p, config->watch_events, before, &own);
    if (r < 0 && !message_peer_gone(&own)) { /* its end is told by the child */
        if (err)
            *err = own;
        process_kill(p, config);
        process_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

static void hang_up(struct process *p)
{
    if (p->watching)
        watch_done(&p->watch);
    p->watching = false;
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

void process_end(struct process *p, int64_t reap_ms)
{
    hang_up(p);
    p->ending = true;
    timer_set(&p->reap, reap_ms);
}

void process_kill(struct process *p, const struct gpu_worker_config *config)
{
    hang_up(p);
    p->ending = p->killed = true;
    config->seams->kill(config->seams->arg, p->pid, SIGKILL);
    timer_set(&p->reap, config->reap_ms);
}

void process_free(struct process *p)
{
    if (!p)
        return;
    hang_up(p);
    timer_done(&p->reap);
    child_forget(p->child);
    progress_free(p->progress);
    free(p);
}

/* ---- what it is doing ---- */

static void clean(char *text)
{
    for (char *c = text; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
}

void process_call(const struct process *p, char *ret, size_t size)
{
    char call[sizeof p->progress->call];
    memcpy(call, p->progress->call, sizeof call);
    call[sizeof call - 1] = '\0';
    clean(call);
    uint32_t gpu = atomic_load_explicit(&p->progress->gpu, memory_order_relaxed);
    if (!call[0])
        snprintf(ret, size, "the worker is between driver calls and");
    else if (gpu == NVML_NO_GPU || strcmp(call, "dlopen") == 0)
        snprintf(ret, size, "%s", nvml_symbol(call));
    else
        snprintf(ret, size, "%s for gpu %u", nvml_symbol(call), gpu);
}

static char *proc_line(const struct process *p, const char *proc, const char *name)
{
    auto_free char *path = x_printf("%s/%d/%s", proc, (int)p->pid, name);
    char *text = NULL;
    if (file_read(path, 4096, &text, NULL, NULL) < 0)
        return x_strdup("");
    text[strcspn(text, "\n")] = '\0';
    clean(text);
    return text;
}

void process_where(const struct process *p, const char *proc, char *ret, size_t size)
{
    auto_free char *wchan = proc_line(p, proc, "wchan");
    auto_free char *stack = proc_line(p, proc, "stack");
    bool named = wchan[0] && strcmp(wchan, "0") != 0;
    snprintf(ret, size, "%s%s%s%s%s", named ? " in the kernel at " : "", named ? wchan : "",
             stack[0] ? " (top of its stack: " : "", stack, stack[0] ? ")" : "");
}
