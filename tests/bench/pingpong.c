/* SPDX-License-Identifier: Apache-2.0 */
#include "pingpong.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum { SIZE = 64 };

static void __attribute__((noreturn)) spin(size_t cpu)
{
    struct sched_param param = { 0 };
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    sched_setscheduler(0, SCHED_IDLE, &param);
    for (;;)
        __asm__ volatile("" ::: "memory");
}

void awake_start(struct awake *a)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    a->n = 0;
    for (long i = 0; i < cpus && a->n < ARRAY_LEN(a->pids); i++) {
        pid_t p = fork();
        if (p == 0)
            spin((size_t)i);
        if (p > 0)
            a->pids[a->n++] = p;
    }
}

void awake_stop(struct awake *a)
{
    for (size_t i = 0; i < a->n; i++) {
        kill(a->pids[i], SIGKILL);
        waitpid(a->pids[i], NULL, 0);
    }
    a->n = 0;
}

int64_t bench_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int play(int fd, int64_t *t, size_t n)
{
    char text[SIZE] = { 0 };
    for (size_t i = 0; i < n; i++) {
        int64_t began = bench_now_ns();
        if (write(fd, text, SIZE) != SIZE || read(fd, text, SIZE) != SIZE) {
            fprintf(stderr, "ping-pong: the other side is gone\n");
            return -1;
        }
        t[i] = bench_now_ns() - began;
    }
    return 0;
}

int pingpong(int64_t *t, size_t n)
{
    int pair[2];
    char text[SIZE];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    pid_t echo = fork();
    if (echo == 0) {
        close(pair[0]);
        while (read(pair[1], text, SIZE) == SIZE && write(pair[1], text, SIZE) == SIZE)
            ;
        _exit(0);
    }
    close(pair[1]);
    int r = echo < 0 ? -1 : play(pair[0], t, n);
    close(pair[0]);
    if (echo > 0)
        waitpid(echo, NULL, 0);
    return r;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

double percentile_us(int64_t *t, size_t n, double p)
{
    qsort(t, n, sizeof *t, compare);
    return (double)t[(size_t)(p * (double)(n - 1) + 0.5)] / 1e3;
}
