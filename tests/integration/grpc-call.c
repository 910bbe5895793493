/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC client of ours that calls other implementations (test_grpc_interop.py):
 *   grpc-call SOCKET METHOD TIMEOUT_MS COUNT REQUEST   COUNT unary calls at once; TIMEOUT_MS 0:
 * none grpc-call SOCKET METHOD stream 0 REQUEST           one server stream REQUEST "@N" stands for
 * N bytes. Prints one line for each message, "message LENGTH CHECKSUM BEGINNING", and for each end,
 * "status CODE TEXT"; "closed TEXT" when the connection ended first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/grpc.h"

enum { SHOWN = 40, REQUEST_MAX = 8 << 20 };

static struct {
    struct loop *loop;
    uint64_t open;
} w;

static void show(struct str message)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < message.n; i++)
        sum = sum * 31 + (unsigned char)message.p[i];
    printf("message %zu %u %.*s\n", message.n, sum, (int)MIN(message.n, (size_t)SHOWN),
           message.n ? message.p : "");
}

static void end(enum grpc_status status, const char *text)
{
    printf("status %d %s\n", (int)status, text);
    fflush(stdout);
    if (--w.open == 0)
        loop_stop(w.loop, 0);
}

static void done(void *arg, enum grpc_status status, const char *text, struct str message)
{
    if (status == GRPC_OK)
        show(message);
    end(status, text);
}

static void message_in(void *arg, struct str message)
{
    show(message);
    fflush(stdout);
}

static void ended(void *arg, enum grpc_status status, const char *text)
{
    end(status, text);
}

static void closed(void *arg, const struct error *why)
{
    printf("closed %s\n", why->text);
    loop_stop(w.loop, 0);
}

static int start(struct grpc_client *c, char **argv, struct str request, struct error *err)
{
    uint64_t timeout = 0, count = 0;
    if (strcmp(argv[3], "stream") == 0) {
        w.open = 1;
        return grpc_client_stream(c, argv[2], request, message_in, ended, NULL, err);
    }
    if (!str_to_u64(str_of(argv[3]), 1000000, &timeout) ||
        !str_to_u64(str_of(argv[4]), GRPC_CALLS_MAX, &count))
        return error_set(err, ERR_INVALID, 0, "TIMEOUT_MS and COUNT are numbers");
    w.open = count;
    for (uint64_t i = 0; i < count; i++) {
        int r = grpc_client_call(c, argv[2], request, (int64_t)timeout, done, NULL, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct error err;
    struct grpc_client *c = NULL;
    uint64_t n;
    if (argc != 6) {
        fprintf(stderr, "usage: grpc-call SOCKET METHOD TIMEOUT_MS|stream COUNT REQUEST\n");
        return 2;
    }
    struct str request = str_of(argv[5]);
    auto_free char *many = NULL;
    if (request.n && request.p[0] == '@' &&
        str_to_u64((struct str){ request.p + 1, request.n - 1 }, REQUEST_MAX, &n)) {
        many = x_alloc((size_t)n);
        request = (struct str){ many, (size_t)n };
    }
    int r = loop_new(&w.loop, &err);
    if (r == 0)
        r = grpc_client_new(w.loop, argv[1], closed, NULL, &c, &err);
    if (r == 0)
        r = start(c, argv, request, &err);
    if (r < 0)
        printf("error %s\n", err.text);
    else
        loop_run(w.loop);
    grpc_client_free(c);
    loop_free(w.loop);
    return r < 0;
}
