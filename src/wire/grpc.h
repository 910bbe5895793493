/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/wire: HTTP/2 sessions (nghttp2), gRPC server and client over unix sockets, generated kubelet
 * messages (nanopb, wire/pb/). Not here: what any method means. Protocol code (grpc_session.h) is
 * sans-I/O: bytes and a `now` in, bytes out; sockets live in grpc_server.c and grpc_client.c. may
 * use: base io data
 *
 * Source: gRPC over HTTP2 (PROTOCOL-HTTP2.md); limits below.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/host.h"
#include "base/str.h"
#include "io/loop.h"

enum {
    GRPC_MESSAGE_MAX = 4 * 1024 * 1024, /* one message, as grpc-go's default */
    GRPC_CALLS_MAX = 128,               /* open at a time on one connection */
    GRPC_CONNECTIONS_MAX = 64,          /* open at a time on one server */
    GRPC_HEADERS_MAX = 16 * 1024,
};

enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
};

/* ---- server ---- */

struct grpc_server;
struct grpc_call; /* one call in progress. Valid until it was answered, or until `cancelled` was
                     called for it. */

struct grpc_method {
    const char *path; /* "/v1beta1.DevicePlugin/Allocate" */
    /* The whole request message; it dies when handle returns. The handler answers now or later with
     * exactly one grpc_reply, grpc_fail or (streams) grpc_finish. */
    void (*handle)(struct grpc_call *call, struct str request, void *arg);
    bool stream; /* server stream */
};

struct grpc_server_config {
    const struct grpc_method *methods;
    size_t n_methods;
    void *arg; /* handed to handle and cancelled */
    /* The peer went away, reset the call or its deadline passed before it was answered: forget the
     * call. May be NULL. */
    void (*cancelled)(struct grpc_call *call, void *arg);
};

/* Listens on a unix socket at `path` (replacing a socket file that nobody answers on; one that
 * answers is ERR_CONFLICT), mode 0600 unless `mode`. The socket appears under its name only when it
 * accepts: bound under a dot name, then renamed. A path longer than sun_path is reached through its
 * directory's descriptor. */
int grpc_server_new(struct loop *l, const char *path, mode_t mode,
                    const struct grpc_server_config *config, struct grpc_server **ret,
                    struct error *err) must_check;
/* Stops accepting, sends GOAWAY, lets open unary calls end for at most `ms`, then calls done()
 * (once, on the loop). Unlinks the socket only if it is still ours (same inode). */
void grpc_server_drain(struct grpc_server *s, int64_t ms, void (*done)(void *arg), void *arg);
/* At once; unlinks as above. No call-back any more, `cancelled` neither: calls still open are gone.
 * Allowed inside of a call-back. NULL allowed. */
void grpc_server_free(struct grpc_server *s);
bool grpc_server_socket_ours(
    const struct grpc_server *s); /* false once the file was deleted or replaced by somebody */
size_t grpc_server_connections(const struct grpc_server *s);

void grpc_reply(struct grpc_call *call, struct str message); /* unary: OK */
void grpc_fail(struct grpc_call *call, enum grpc_status status, const char *fmt, ...)
    printf_like(3, 4); /* unary or stream */
/* One message on a stream. While the peer does not read, only the newest message that has not begun
 * to leave is kept: an older one is dropped (device lists replace each other). Returns ERR_LIMIT
 * for a message past GRPC_MESSAGE_MAX; the stream stays open. */
int grpc_send_latest(struct grpc_call *call, struct str message, struct error *err) must_check;
void grpc_finish(struct grpc_call *call);               /* stream: OK */
void grpc_call_set(struct grpc_call *call, void *user); /* for the handler's own book-keeping */
void *grpc_call_get(const struct grpc_call *call);
pid_t grpc_call_peer_pid(const struct grpc_call *call); /* SO_PEERCRED; 0 if unknown */

/* ---- client ---- */

struct grpc_client; /* one connection to one unix socket */

/* Starts to connect; never blocks. `:authority: localhost`. A socket that does not exist
 * (ERR_NOT_FOUND) or that nobody listens on (ERR_UNAVAILABLE with sys ECONNREFUSED: also for a
 * moment between a server's bind and its listen, so try again soon) is told at once, by the return
 * value. Later closed() is called once when the connection ends (not after grpc_client_free); open
 * calls have heard UNAVAILABLE before. */
int grpc_client_new(struct loop *l, const char *path,
                    void (*closed)(void *arg, const struct error *why), void *arg,
                    struct grpc_client **ret, struct error *err) must_check;
/* NULL allowed; open calls get no call-back; allowed inside of any call-back. */
void grpc_client_free(struct grpc_client *c);

/* Unary: done() exactly once with a status and, when GRPC_OK, the message; text is the peer's
 * grpc-message, percent-decoded, or ours. timeout_ms is sent as grpc-timeout and kept here. done
 * may free the client. */
int grpc_client_call(struct grpc_client *c, const char *path, struct str request,
                     int64_t timeout_ms,
                     void (*done)(void *arg, enum grpc_status status, const char *text,
                                  struct str message),
                     void *arg, struct error *err) must_check;
/* Server stream: message() for each, ended() once. */
int grpc_client_stream(struct grpc_client *c, const char *path, struct str request,
                       void (*message)(void *arg, struct str message),
                       void (*ended)(void *arg, enum grpc_status status, const char *text),
                       void *arg, struct error *err) must_check;
