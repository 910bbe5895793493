/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* For grpc_session.c, grpc_call.c and the two roles (grpc_serve.c, grpc_request.c) only. */
#include <nghttp2/nghttp2.h>

#include "base/buf.h"
#include "wire/grpc_session.h"

enum {
    GRPC_PREFIX = 5,           /* flag and length before each message */
    GRPC_TEXT_MAX = 4096,      /* a grpc-message, decoded */
    GRPC_KEEP_MAX = 16 * 1024, /* memory of this size stays with a call for the next one */
    GRPC_POOL_MAX = 4,         /* calls kept for reuse */
    GRPC_STATUS_NONE = -1,
};

struct grpc_call {
    struct grpc_session *session;
    struct grpc_call *prev, *next; /* ring of the session, or chain of the pool */
    int32_t id;
    int64_t deadline; /* 0: none */

    /* what comes in */
    unsigned char prefix[GRPC_PREFIX];
    uint8_t n_prefix;
    bool in_ignored; /* nothing more of it is looked at */
    bool in_ended;   /* the peer closed its side */
    bool opened;     /* the first header block is over: what follows are trailers */
    uint32_t in_messages;
    size_t header_bytes;
    struct buf in; /* body of the message in progress, or the last one */
    size_t in_size;
    size_t charged; /* of the budget */

    /* what goes out; each buffer holds one message with its prefix */
    struct buf out, newer;
    size_t out_sent;
    bool submitted; /* headers are under way */
    bool finishing; /* the status follows after `out` */
    bool told;      /* server: answered or cancelled; client: done or ended was called */
    int status;
    struct buf text; /* server: grpc-message as sent; client: decoded */

    /* server */
    const struct grpc_method *method;
    void *user;
    char *unknown_path;
    bool is_post, is_grpc, bad_timeout, handed; /* is_grpc: client too */

    /* client */
    struct grpc_request request; /* path and message are not kept */
    int http_status;
};

struct grpc_session {
    nghttp2_session *h2;
    struct grpc_session_config config;
    const struct grpc_role *role;
    struct grpc_call calls; /* ring head */
    size_t n_calls;
    struct grpc_call *pool;
    size_t n_pool;
    struct buf out;
    size_t out_sent;
    int64_t now, soonest; /* soonest: not later than any deadline; 0: there is none */
    int64_t preface_by;   /* 0 once the peer's settings came */
    int64_t tokens, tokens_at;
    unsigned running;
    bool broken;     /* no memory for output, or a flood: no way on */
    bool silent;     /* being freed without telling anybody */
    bool ending;     /* no new requests */
    const char *why; /* text for calls that end with the session */
};

/* What the two roles do differently. */
struct grpc_role {
    /* false: no memory, the stream is reset */
    bool (*header)(struct grpc_call *c, struct str name, struct str value);
    void (*headers_done)(struct grpc_call *c, bool end_stream);
    void (*message)(struct grpc_call *c); /* one is whole in c->in */
    void (*refused)(struct grpc_call *c, int status,
                    const char *text); /* the incoming side is bad */
    void (*end_stream)(struct grpc_call *c);
    void (*closed)(struct grpc_call *c, uint32_t code);
    void (*expired)(struct grpc_call *c);
};
extern const struct grpc_role grpc_role_server, grpc_role_client;

struct grpc_call *grpc_call_new(struct grpc_session *s); /* NULL: no memory */
void grpc_call_free(struct grpc_call *c);                /* into the pool */
void grpc_call_destroy(struct grpc_call *c);
void grpc_call_deadline(struct grpc_call *c, int64_t at);
void grpc_call_take(struct grpc_call *c, const uint8_t *p, size_t n); /* DATA has come */
void grpc_call_check_end(struct grpc_call *c, const char *what);      /* refuses half a message */
bool grpc_call_header_fits(struct grpc_call *c, struct str name, struct str value);
/* Puts a message into `b`; ERR_LIMIT without memory. */
int grpc_call_pack(struct grpc_call *c, struct buf *b, struct str message, struct error *err);
void grpc_buf_empty(struct buf *b); /* keeps its memory for the next message, unless it is much */
nghttp2_data_provider grpc_call_provider(struct grpc_call *c);
void grpc_session_wake(struct grpc_session *s); /* output may be there */

#define GRPC_NV(n, v, vn, f)                                                                       \
    ((nghttp2_nv){ .name = (uint8_t *)(uintptr_t)(n),                                              \
                   .value = (uint8_t *)(uintptr_t)(v),                                             \
                   .namelen = sizeof(n) - 1,                                                       \
                   .valuelen = (vn),                                                               \
                   .flags = (f) })
#define GRPC_NV_Z(n, v)                                                                            \
    GRPC_NV(n, v, sizeof(v) - 1, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)
