/* SPDX-License-Identifier: Apache-2.0 */
/* A client session with open calls and whatever a server sends; every call must be told of its end
 * exactly once. The first byte says how the rest is cut into reads. */
#include <stdlib.h>

#include "base/mem.h"
#include "wire/grpc_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { UNARY = 3, STREAMS = 2 };
static int open_calls[UNARY + STREAMS];

static void end(int *open)
{
    if (--*open != 0)
        abort();
}

static void done(void *arg, enum grpc_status status, const char *text, struct str message)
{
    if (!text || (status != GRPC_OK && message.n))
        abort();
    end(arg);
}

static void message_in(void *arg, struct str message)
{
    const int *open = arg;
    if (*open != 1)
        abort();
}

static void ended(void *arg, enum grpc_status status, const char *text)
{
    end(arg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct grpc_session_config config = { .message_max = 64 * 1024 };
    struct grpc_session *s;
    if (!size || grpc_session_new(&config, 1, &s, NULL) < 0)
        return 0;
    for (int i = 0; i < UNARY + STREAMS; i++) {
        struct grpc_request r = { .path = "/a.B/C",
                                  .message = STR("hello"),
                                  .arg = &open_calls[i] };
        if (i < UNARY)
            r.done = done, r.timeout_ms = 50;
        else
            r.message_in = message_in, r.ended = ended;
        open_calls[i] = grpc_session_request(s, &r, 1, NULL) == 0;
    }
    int64_t now = 1;
    int r = 0;
    size_t cut = data[0] & 0x3F ? data[0] & 0x3F : size;
    for (struct str out; data[0] & 0x80 && (out = grpc_session_output(s)).n;)
        grpc_session_sent(s, out.n);
    for (size_t at = 1; r == 0 && at < size; at += cut) {
        now += 1000000;
        r = grpc_session_feed(s, (struct str){ (const char *)data + at, MIN(cut, size - at) }, now,
                              NULL);
        struct str out = grpc_session_output(s);
        grpc_session_sent(s, out.n);
        if (r == 0 && data[0] & 0x40)
            r = grpc_session_tick(s, now, NULL);
    }
    struct error why;
    error_set(&why, ERR_UNAVAILABLE, 0, "over");
    grpc_session_free(s, &why);
    for (int i = 0; i < UNARY + STREAMS; i++)
        if (open_calls[i])
            abort();
    return 0;
}
