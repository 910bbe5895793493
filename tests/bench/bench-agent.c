/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bench of the real agent on a simulated 8-GPU host, each figure beside its limit:
 *   bench-agent METE SIM_LIBRARY BARE_NVML
 * or, on a host with a real GPU, without limits that were set for the simulated one:
 *   bench-agent METE DRIVER_ROOT/ BARE_NVML
 * It starts the agent as a child against the small kubelet in this process, and talks to the
 * agent's own socket through the C gRPC client.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/loop.h"
#include "sim/kubelet.h"
#include "sim/simstate.h"
#include "wire/grpc.h"
#include "wire/pbwriter.h"

enum { STARTS = 7, RESTARTS = 40, PINGS = 20000, CALLS = 20000, IDLE_S = 10, STEP_MS = 10000 };

static struct {
    const char *mete, *library, *bare;
    char dir[128], kubelet_dir[160], host_dir[160], socket[256];
    struct loop *loop;
    struct sim_kubelet *kubelet;
    bool real;   /* a real driver: argv[2] is its root */
    bool listed; /* since it was last cleared */
    size_t gpus; /* of the first list */
    pid_t agent;
    int failed; /* figures past their limit */
} b;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void __attribute__((noreturn)) give_up(const char *what, const struct error *err)
{
    fprintf(stderr, "bench-agent: %s%s%s\n", what, err ? ": " : "", err ? err->text : "");
    if (b.agent > 0)
        kill(b.agent, SIGKILL);
    exit(1);
}

static int compare(const void *a, const void *c)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)c;
    return (x > y) - (x < y);
}

static int64_t percentile(int64_t *v, size_t n, double p)
{
    qsort(v, n, sizeof *v, compare);
    size_t at = (size_t)(p * (double)(n - 1) + 0.5);
    return v[at];
}

/* One line of the report. */
static void figure(const char *name, double value, double limit, const char *unit)
{
    bool over = limit > 0 && value > limit;
    b.failed += over;
    if (limit > 0)
        printf("%-52s %10.3f %-4s limit %10.3f  %s\n", name, value, unit, limit,
               over ? "OVER" : "ok");
    else
        printf("%-52s %10.3f %-4s\n", name, value, unit);
    fflush(stdout);
}

/* ---- the loop, run until something holds ---- */

static bool expired;

static void out_of_time(void *arg)
{
    (void)arg;
    expired = true;
    loop_stop(b.loop, 1);
}

static void run_until_listed(const char *what)
{
    struct timer limit;
    timer_init(&limit, b.loop, out_of_time, NULL);
    timer_set(&limit, STEP_MS);
    expired = false;
    while (!b.listed && !expired)
        loop_run(b.loop);
    timer_done(&limit);
    if (expired)
        give_up(what, NULL);
}

static void changed(void *arg, const char *resource, size_t capacity, size_t allocatable)
{
    (void)arg;
    (void)capacity;
    if (strcmp(resource, "nvidia.com/gpu") == 0 && allocatable > 0) {
        b.gpus = allocatable;
        b.listed = true;
        loop_stop(b.loop, 0);
    }
}

/* ---- the agent ---- */

static void start_agent(void)
{
    char host_root[300], driver_root[300], view[300], kubelet_dir[300], state[300], cdi[300];
    snprintf(host_root, sizeof host_root, "--host-root=%s", b.real ? "/" : b.host_dir);
    snprintf(driver_root, sizeof driver_root, "--driver-root=%s",
             b.real ? b.library : "/run/nvidia/driver");
    if (b.real)
        snprintf(view, sizeof view, "--driver-root-ctr-path=%s", b.library);
    else
        snprintf(view, sizeof view, "--driver-root-ctr-path=%s/run/nvidia/driver", b.host_dir);
    snprintf(kubelet_dir, sizeof kubelet_dir, "--kubelet-dir=%s", b.kubelet_dir);
    snprintf(state, sizeof state, "--state-dir=%s/state", b.dir);
    snprintf(cdi, sizeof cdi, "--cdi-dir=%s/cdi", b.dir);
    char log[200];
    snprintf(log, sizeof log, "%s/agent.log", b.dir);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 2, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    char *mete = x_strdup(b.mete), *word = x_strdup("agent");
    char *argv[] = { mete, word, host_root, driver_root, view, kubelet_dir, state, cdi, NULL };
    extern char **environ;
    int e = posix_spawn(&b.agent, b.mete, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (e)
        give_up("cannot start the agent", NULL);
    free(mete);
    free(word);
}

static void end_agent(void)
{
    kill(b.agent, SIGTERM);
    waitpid(b.agent, NULL, 0);
    b.agent = 0;
}

static pid_t worker_of(pid_t agent)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", agent, agent);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    return (pid_t)strtol(text, NULL, 10);
}

/* ---- start and kubelet restart ---- */

static void bench_start(void)
{
    int64_t t[STARTS];
    for (int i = 0; i < STARTS; i++) {
        b.listed = false;
        int64_t began = now_ns();
        start_agent();
        run_until_listed("the agent did not list its GPUs");
        t[i] = now_ns() - began;
        end_agent();
    }
    figure("exec -> registered and first list, median of 7",
           (double)percentile(t, STARTS, 0.5) / 1e6, 25, "ms");
}

static void bench_kubelet_restart(void)
{
    int64_t t[RESTARTS];
    struct error err;
    for (int i = 0; i < RESTARTS; i++) {
        b.listed = false;
        int64_t began = now_ns();
        if (sim_kubelet_restart(b.kubelet, &err) < 0)
            give_up("restart the small kubelet", &err);
        run_until_listed("no list after a kubelet restart");
        t[i] = now_ns() - began;
    }
    figure("kubelet.sock re-created -> new list, median of 40",
           (double)percentile(t, RESTARTS, 0.5) / 1e6, 10, "ms");
    figure("kubelet.sock re-created -> new list, worst of 40", (double)t[RESTARTS - 1] / 1e6, 10,
           "ms");
}

/* ---- latency of a call beside a bare ping-pong ---- */

/* Idle CPUs that fall asleep cost more than what is measured: keep each awake with the lowest
 * priority there is. */
static size_t keep_awake(pid_t *pids, size_t max)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = 0;
    for (long i = 0; i < cpus && n < max; i++) {
        pid_t p = fork();
        if (p == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* never outlives the bench */
            struct sched_param param = { 0 };
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET((size_t)i, &set);
            sched_setaffinity(0, sizeof set, &set);
            sched_setscheduler(0, SCHED_IDLE, &param);
            for (;;)
                __asm__ volatile("pause");
        }
        if (p > 0)
            pids[n++] = p;
    }
    return n;
}

static void ping_pong(int64_t *t)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        give_up("socketpair", NULL);
    char text[64] = { 0 };
    pid_t echo = fork();
    if (echo == 0) {
        close(pair[0]);
        while (read(pair[1], text, sizeof text) == (ssize_t)sizeof text)
            if (write(pair[1], text, sizeof text) < 0)
                break;
        _exit(0);
    }
    close(pair[1]);
    for (int i = 0; i < PINGS; i++) {
        int64_t began = now_ns();
        if (write(pair[0], text, sizeof text) < 0 || read(pair[0], text, sizeof text) < 0)
            give_up("ping-pong", NULL);
        t[i] = now_ns() - began;
    }
    close(pair[0]);
    waitpid(echo, NULL, 0);
}

static struct {
    struct grpc_client *client;
    const char *path;
    struct buf request;
    int64_t *t, began;
    int done;
} c;

static void next_call(void);

static void answered(void *arg, enum grpc_status status, const char *text, struct str message)
{
    (void)arg;
    (void)message;
    if (status != GRPC_OK) {
        fprintf(stderr, "bench-agent: %s answered %d: %s\n", c.path, (int)status, text);
        exit(1);
    }
    c.t[c.done++] = now_ns() - c.began;
    if (c.done < CALLS)
        next_call();
    else
        loop_stop(b.loop, 0);
}

static void next_call(void)
{
    struct error err;
    c.began = now_ns();
    if (grpc_client_call(c.client, c.path, buf_view(&c.request), 0, answered, NULL, &err) < 0)
        give_up(c.path, &err);
}

static void closed(void *arg, const struct error *why)
{
    (void)arg;
    give_up("the agent closed the connection", why);
}

static void call_many(const char *path, int64_t *t)
{
    c.path = path;
    c.t = t;
    c.done = 0;
    next_call();
    loop_run(b.loop);
}

/* The id of a gpu as the small kubelet knows it from the list: the n-th text that begins with GPU-
 * in its status. */
static void id_of(int gpu, char ret[64])
{
    auto_buf status;
    buf_init(&status, 1024 * 1024);
    sim_kubelet_status(b.kubelet, &status);
    const char *at = status.p;
    for (int i = 0; at && i <= gpu; i++)
        at = strstr(i ? at + 4 : at, "\"GPU-");
    if (!at)
        give_up("the small kubelet does not know that many gpus", NULL);
    snprintf(ret, 64, "%.40s", at + 1);
}

/* AllocateRequest{container_requests{devices_ids}} */
static void allocate_request(struct buf *out)
{
    char id[64];
    auto_buf one;
    buf_init(&one, 4096);
    id_of((int)b.gpus / 2, id);
    pbw_item(&one, 1, str_of(id));
    pbw_item(out, 1, buf_view(&one));
}

/* PreferredAllocationRequest{container_requests{available_deviceIDs, allocation_size}} */
static void preferred_request(struct buf *out, uint64_t size)
{
    auto_buf one;
    buf_init(&one, 4096);
    for (int i = 0; i < (int)b.gpus; i++) {
        char id[64];
        id_of(i, id);
        pbw_item(&one, 1, str_of(id));
    }
    pbw_uint(&one, 3, size);
    pbw_item(out, 1, buf_view(&one));
}

static void bench_calls(void)
{
    pid_t awake[64];
    size_t n_awake = keep_awake(awake, ARRAY_LEN(awake));
    int64_t *ping = x_alloc(PINGS * sizeof *ping), *call = x_alloc(CALLS * sizeof *call);
    struct error err;
    ping_pong(ping);
    double p50 = (double)percentile(ping, PINGS, 0.50) / 1e3,
           p99 = (double)percentile(ping, PINGS, 0.99) / 1e3;
    figure("bare 64-byte ping-pong p50", p50, 0, "us");
    figure("bare 64-byte ping-pong p99", p99, 0, "us");

    snprintf(b.socket, sizeof b.socket, "%s/device-plugins/nvidia-gpu.sock", b.kubelet_dir);
    if (grpc_client_new(b.loop, b.socket, closed, NULL, &c.client, &err) < 0)
        give_up("connect to the agent", &err);
    buf_init(&c.request, 8192);
    allocate_request(&c.request);
    call_many("/v1beta1.DevicePlugin/Allocate", call); /* warms caches */
    call_many("/v1beta1.DevicePlugin/Allocate", call);
    figure("Allocate p50", (double)percentile(call, CALLS, 0.50) / 1e3, 2 * p50 + 40, "us");
    figure("Allocate p99", (double)percentile(call, CALLS, 0.99) / 1e3, 4 * p99 + 80, "us");
    buf_reset(&c.request);
    preferred_request(&c.request, b.gpus < 4 ? 1 : 4);
    call_many("/v1beta1.DevicePlugin/GetPreferredAllocation", call);
    figure(b.real ? "GetPreferredAllocation, whole call p50"
                  : "GetPreferredAllocation 4 of 8, whole call p50",
           (double)percentile(call, CALLS, 0.50) / 1e3, 200 + 2 * p50 + 40, "us");
    grpc_client_free(c.client);
    buf_done(&c.request);
    free(ping);
    free(call);
    for (size_t i = 0; i < n_awake; i++) {
        kill(awake[i], SIGKILL);
        waitpid(awake[i], NULL, 0);
    }
}

/* ---- weight ---- */

static double cpu_ms(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    /* schedstat counts nanoseconds; /proc/PID/stat only ticks of 10 ms. The main thread's file
     * covers that thread alone. */
    double sum = 0;
    auto_free char *list = x_printf("cat /proc/%d/task/*/schedstat", pid);
    FILE *f = popen(list, "r");
    unsigned long long run, wait, slices;
    while (f && fscanf(f, "%llu %llu %llu", &run, &wait, &slices) == 3)
        sum += (double)run / 1e6;
    if (f)
        pclose(f);
    return sum;
}

static double private_mib(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "re");
    char line[256];
    double kib = 0;
    while (f && fgets(line, sizeof line, f)) {
        unsigned long long v;
        if (sscanf(line, "Private_Clean: %llu", &v) == 1 ||
            sscanf(line, "Private_Dirty: %llu", &v) == 1)
            kib += (double)v;
    }
    if (f)
        fclose(f);
    return kib / 1024;
}

/* Worker and bare program are looked at while both run, so that the pages of the library's file
 * count for neither. */
static void bench_worker_memory(pid_t worker)
{
    auto_free char *library =
        b.real ? x_printf("%slib64/libnvidia-ml.so.1", b.library)
               : x_printf("%s/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1", b.host_dir);
    int out[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        give_up("pipe", NULL);
    pid_t p = fork();
    if (p == 0) {
        dup2(out[1], 1);
        execl(b.bare, b.bare, library, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    char ready;
    if (read(out[0], &ready, 1) != 1)
        give_up("the bare NVML program did not start", NULL);
    double bare = private_mib(p), ours = private_mib(worker);
    kill(p, SIGKILL);
    waitpid(p, NULL, 0);
    close(out[0]);
    figure("bare dlopen + nvmlInit private memory", bare, 0, "MiB");
    figure("worker private memory", ours, bare + 1, "MiB");
}

static void bench_weight(void)
{
    pid_t worker = worker_of(b.agent);
    sleep(2);
    double agent0 = cpu_ms(b.agent), worker0 = cpu_ms(worker);
    sleep(IDLE_S);
    figure("idle CPU of agent in 10 s", cpu_ms(b.agent) - agent0, 1, "ms");
    figure("idle CPU of agent and worker in 10 s",
           cpu_ms(b.agent) - agent0 + cpu_ms(worker) - worker0, 1, "ms");
    figure("agent private memory", private_mib(b.agent), 3, "MiB");
    bench_worker_memory(worker);
    auto_free char *strip = x_printf("strip -o %s/stripped %s", b.dir, b.mete);
    auto_free char *stripped = x_printf("%s/stripped", b.dir);
    struct stat st;
    if (system(strip) == 0 && stat(stripped, &st) == 0)
        figure("stripped mete", (double)st.st_size / 1048576, 3, "MiB");
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: bench-agent METE SIM_LIBRARY BARE_NVML\n");
        return 2;
    }
    b.mete = argv[1];
    b.library = argv[2];
    b.bare = argv[3];
    snprintf(b.dir, sizeof b.dir, "/tmp/mete-bench-XXXXXX");
    struct error err;
    if (!mkdtemp(b.dir))
        give_up("mkdtemp", NULL);
    snprintf(b.host_dir, sizeof b.host_dir, "%s/host", b.dir);
    snprintf(b.kubelet_dir, sizeof b.kubelet_dir, "%s/kubelet", b.dir);
    const struct sim_create host = {
        .dir = b.host_dir, .profile = "h100", .gpus = 8, .library = b.library
    };
    b.real = str_ends(str_of(b.library), "/");
    if (!b.real && sim_create(&host, &err) < 0)
        give_up("create the simulated host", &err);
    const struct sim_kubelet_config kubelet = { .dir = b.kubelet_dir, .changed = changed };
    if (loop_new(&b.loop, &err) < 0 || sim_kubelet_new(b.loop, &kubelet, &b.kubelet, &err) < 0)
        give_up("start the small kubelet", &err);
    bench_start();
    b.listed = false;
    start_agent();
    run_until_listed("the agent did not list its GPUs");
    bench_kubelet_restart();
    bench_calls();
    end_agent(); /* its grants were asked for by nobody that kubelet knows: idle is another agent */
    b.listed = false;
    start_agent();
    run_until_listed("the agent did not list its GPUs");
    bench_weight();
    end_agent();
    sim_kubelet_free(b.kubelet);
    loop_free(b.loop);
    auto_free char *clean = x_printf("rm -rf %s", b.dir);
    return system(clean) == 0 && b.failed == 0 ? 0 : 1;
}
