/* SPDX-License-Identifier: Apache-2.0 */
/* A server session and whatever a peer sends. The first byte says how the rest is cut into reads
 * and whether the magic and an empty SETTINGS come first (so that the fuzzer need not guess them);
 * after half of the reads time passes and held calls are answered. */
#include <stdlib.h>

#include "base/mem.h"
#include "wire/grpc_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HELD_MAX = 2 * GRPC_CALLS_MAX };
static struct grpc_call *held[HELD_MAX];
static size_t n_held;

static void keep(struct grpc_call *call, struct str request, void *arg)
{
    if (n_held < HELD_MAX)
        held[n_held++] = call;
}

static void echo(struct grpc_call *call, struct str request, void *arg)
{
    grpc_reply(call, request);
}

static void refuse(struct grpc_call *call, struct str request, void *arg)
{
    grpc_fail(call, GRPC_INVALID_ARGUMENT, "%.*s", STR_FMT(request));
}

static void cancelled(struct grpc_call *call, void *arg)
{
    for (size_t i = 0; i < n_held; i++) {
        if (held[i] == call) {
            held[i] = held[--n_held];
            return;
        }
    }
    abort(); /* only a call that was handed out and not answered may be cancelled */
}

static const struct grpc_method methods[] = {
    { "/a.B/Echo", echo, false },
    { "/a.B/Keep", keep, false },
    { "/a.B/Stream", keep, true },
    { "/a.B/Refuse", refuse, false },
};

static void answer_held(void)
{
    for (size_t i = 0; i < n_held; i++)
        if (grpc_send_latest(held[i], STR("list"), NULL) < 0)
            abort();
    if (n_held)
        grpc_finish(held[--n_held]);
    if (n_held)
        grpc_reply(held[--n_held], STR("done"));
}

static void drop_output(struct grpc_session *s, size_t most)
{
    for (struct str out; most && (out = grpc_session_output(s)).n;) {
        size_t n = MIN(out.n, most);
        grpc_session_sent(s, n);
        most -= n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    static const struct grpc_server_config server = { methods, ARRAY_LEN(methods), NULL,
                                                      cancelled };
    struct grpc_budget budget = { .max = 256 * 1024 };
    const struct grpc_session_config config = { .server = &server, .budget = &budget };
    struct grpc_session *s;
    if (!size || grpc_session_new(&config, 1, &s, NULL) < 0)
        return 0;
    n_held = 0;
    int64_t now = 1;
    int r = 0;
    size_t cut = data[0] & 0x3F ? data[0] & 0x3F : size;
    if (data[0] & 0x80)
        r = grpc_session_feed(s, (struct str){ preface, sizeof preface }, now, NULL);
    for (size_t at = 1; r == 0 && at < size; at += cut) {
        now += 1000000;
        r = grpc_session_feed(s, (struct str){ (const char *)data + at, MIN(cut, size - at) }, now,
                              NULL);
        if (data[0] & 0x40)
            drop_output(s, 4096);
        if (at > size / 2) {
            answer_held();
            if (r == 0)
                r = grpc_session_tick(s, now, NULL);
        }
    }
    drop_output(s, SIZE_MAX);
    struct error why;
    error_set(&why, ERR_UNAVAILABLE, 0, "over");
    grpc_session_free(s, &why);
    if (n_held || budget.used)
        abort(); /* a call was forgotten, or memory was not given back */
    return 0;
}
