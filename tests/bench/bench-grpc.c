/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gRPC costs by itself: a unary echo over a unix socket between two processes, beside a bare
 * 64-byte ping-pong over the same kind of socket, CPUs kept awake. No agent, no simulation:
 *   bench-grpc [CALLS]
 * Each figure is printed beside the limit that the whole Allocate has to keep.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "pingpong.h"
#include "unary.h"

enum { CALLS = 20000 };

static void echo(struct grpc_call *call, struct str request, void *arg)
{
    (void)arg;
    grpc_reply(call, request);
}

static void lists(struct grpc_call *call, struct str request, void *arg)
{
    (void)request;
    grpc_reply(call, *(const struct str *)arg);
}

/* The other process. */
static void __attribute__((noreturn)) serve(const char *path, struct str list)
{
    static const struct grpc_method methods[] = { { "/b.B/Echo", echo, false },
                                                  { "/b.B/List", lists, false } };
    const struct grpc_server_config config = { methods, ARRAY_LEN(methods), &list, NULL };
    struct loop *l;
    struct grpc_server *s;
    struct error err;
    if (loop_new(&l, &err) < 0 || grpc_server_new(l, path, 0, &config, &s, &err) < 0) {
        fprintf(stderr, "bench-grpc: %s\n", err.text);
        _exit(1);
    }
    _exit(loop_run(l));
}

static int figure(const char *name, double us, double limit)
{
    if (limit > 0)
        printf("%-40s %9.2f us  limit %9.2f  %s\n", name, us, limit, us > limit ? "OVER" : "ok");
    else
        printf("%-40s %9.2f us\n", name, us);
    return limit > 0 && us > limit;
}

static int measure(struct unary *u, const char *name, const char *method, struct str request,
                   int64_t timeout_ms, int64_t *t, size_t n, double limit50, double limit99)
{
    char text[80];
    struct error err;
    if (unary_many(u, method, request, timeout_ms, t, n / 10 + 1, &err) < 0 ||
        unary_many(u, method, request, timeout_ms, t, n, &err) < 0) {
        fprintf(stderr, "bench-grpc: %s\n", err.text);
        return 1;
    }
    snprintf(text, sizeof text, "%s p50", name);
    int over = figure(text, percentile_us(t, n, 0.50), limit50);
    snprintf(text, sizeof text, "%s p99", name);
    return over + figure(text, percentile_us(t, n, 0.99), limit99);
}

int main(int argc, char **argv)
{
    uint64_t calls = CALLS;
    if (argc > 2 || (argc == 2 && !str_to_u64(str_of(argv[1]), 10000000, &calls)) || calls < 10) {
        fprintf(stderr, "usage: bench-grpc [CALLS]   (10 to 10000000, default %d)\n", (int)CALLS);
        return 2;
    }
    size_t n = (size_t)calls;
    char dir[] = "/tmp/mete-bench-XXXXXX", path[64];
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/s", dir);
    enum { LIST = 4 << 20 };
    struct str list = { x_alloc(LIST), LIST };
    int64_t *t = x_alloc(n * sizeof *t);
    struct awake awake;
    awake_start(&awake);
    pid_t server = fork();
    if (server == 0)
        serve(path, list);
    if (pingpong(t, n) < 0)
        return 1;
    double p50 = percentile_us(t, n, 0.50), p99 = percentile_us(t, n, 0.99);
    figure("bare 64-byte ping-pong p50", p50, 0);
    figure("bare 64-byte ping-pong p99", p99, 0);
    struct unary u;
    struct error err;
    int over = 0;
    if (unary_connect(&u, path, &err) < 0) {
        fprintf(stderr, "bench-grpc: %s\n", err.text);
        over = 1;
    } else {
        char request[64] = { 0 };
        struct str small = { request, sizeof request };
        double l50 = 2 * p50 + 40, l99 = 4 * p99 + 80;
        over += measure(&u, "unary echo of 64 bytes", "/b.B/Echo", small, 0, t, n, l50, l99);
        over +=
            measure(&u, "the same with grpc-timeout", "/b.B/Echo", small, 30000, t, n, l50, l99);
        over += measure(&u, "answer of 4 MiB", "/b.B/List", small, 0, t, MIN(n, (size_t)200), 0, 0);
        unary_close(&u);
    }
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    awake_stop(&awake);
    free(t);
    free((void *)(uintptr_t)list.p);
    unlink(path);
    rmdir(dir);
    return over ? 1 : 0;
}
