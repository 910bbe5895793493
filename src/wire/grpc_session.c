/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpc_session.h"

#include <stdlib.h>

#include "base/mem.h"
#include "wire/grpc_core.h"

enum {
    OUT_HIGH = 64 * 1024,            /* no more is fetched from nghttp2 while so much waits */
    OUT_MAX = OUT_HIGH + 128 * 1024, /* one frame more always fits */
    STREAM_WINDOW = 1024 * 1024,
    CONNECTION_WINDOW = 4 * 1024 * 1024,
    ACKS_MAX = 256, /* answers to PING and SETTINGS that a peer leaves unread */
    /* A peer pays for frames that cost us work and carry nothing. */
    TOKENS_MAX = 2000,
    TOKENS_A_SECOND = 500,
    RESET_COST = 4,
};
#define PREFACE_NS  ((int64_t)10 * 1000000000)
#define NS_A_SECOND ((int64_t)1000000000)

void *grpc_call_owner(const struct grpc_call *call)
{
    return call->session->config.owner;
}

void grpc_session_wake(struct grpc_session *s)
{
    if (!s->running && s->config.wake)
        s->config.wake(s->config.owner);
}

/* ---- nghttp2's call-backs ---- */

static void pay(struct grpc_session *s, int64_t cost)
{
    int64_t passed = MAX(s->now - s->tokens_at, (int64_t)0);
    if (passed > NS_A_SECOND / TOKENS_A_SECOND) {
        int64_t more = passed / (NS_A_SECOND / TOKENS_A_SECOND);
        s->tokens = MIN(s->tokens + MIN(more, (int64_t)TOKENS_MAX), (int64_t)TOKENS_MAX);
        s->tokens_at = s->now;
    }
    s->tokens -= cost;
    if (s->tokens < 0)
        s->broken = true;
}

static int on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t n,
                        nghttp2_data_source *source, void *user)
{
    struct grpc_session *s = user;
    struct grpc_call *c = source->ptr;
    buf_add(&s->out, head, 9);
    buf_add(&s->out, c->out.p + c->out_sent, n);
    if (s->out.failed)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    c->out_sent += n;
    s->tokens = MIN(s->tokens + 1, (int64_t)TOKENS_MAX); /* who is sent data may ping for it */
    return s->out.n - s->out_sent < OUT_HIGH ? 0 : NGHTTP2_ERR_PAUSE;
}

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    struct grpc_session *s = user;
    if (s->silent)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *c = grpc_call_new(s);
    if (!c)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    c->id = frame->hd.stream_id;
    nghttp2_session_set_stream_user_data(h2, c->id, c);
    return 0;
}

static struct grpc_call *call_of(struct grpc_session *s, int32_t id)
{
    return nghttp2_session_get_stream_user_data(s->h2, id);
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags, void *user)
{
    struct grpc_session *s = user;
    struct grpc_call *c = call_of(s, frame->hd.stream_id);
    if (!c || c->told)
        return 0;
    bool ok = s->role->header(c, (struct str){ (const char *)name, name_n },
                              (struct str){ (const char *)value, value_n });
    return ok ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
                   void *user)
{
    struct grpc_call *c = call_of(user, id);
    if (c && !c->told)
        grpc_call_take(c, p, n);
    return 0;
}

static void count(struct grpc_session *s, const nghttp2_frame *frame)
{
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM, ack = frame->hd.flags & NGHTTP2_FLAG_ACK;
    switch ((nghttp2_frame_type)frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (frame->headers.cat == NGHTTP2_HCAT_HEADERS)
            pay(s, 1);
        return;
    case NGHTTP2_WINDOW_UPDATE:
    case NGHTTP2_GOAWAY:
    case NGHTTP2_CONTINUATION:
        return;
    case NGHTTP2_DATA:
        if (frame->hd.length == 0 && !end)
            pay(s, 1);
        return;
    case NGHTTP2_SETTINGS:
    case NGHTTP2_PING:
        if (!ack)
            pay(s, 1);
        return;
    case NGHTTP2_RST_STREAM:
        pay(s, RESET_COST);
        return;
    case NGHTTP2_PRIORITY:
    case NGHTTP2_PUSH_PROMISE:
    case NGHTTP2_ALTSVC:
    case NGHTTP2_ORIGIN:
    case NGHTTP2_PRIORITY_UPDATE:
    default:
        pay(s, 1);
        return;
    }
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    struct grpc_session *s = user;
    count(s, frame);
    if (s->broken || s->silent)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type == NGHTTP2_SETTINGS)
        s->preface_by = 0;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        s->ending = true;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct grpc_call *c = call_of(s, frame->hd.stream_id);
    if (!c || c->told)
        return 0;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_HEADERS)
        s->role->headers_done(c, end);
    if (end && !c->told)
        s->role->end_stream(c);
    return 0;
}

/* An answer is whole: the peer need not send the rest of its request (RFC 9113 8.1). */
static int on_frame_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    struct grpc_session *s = user;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (!s->config.server || frame->hd.type != NGHTTP2_HEADERS || !end)
        return 0;
    const struct grpc_call *c = call_of(s, frame->hd.stream_id);
    if (!c || c->in_ended)
        return 0;
    return nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, c->id, NGHTTP2_NO_ERROR);
}

static int on_invalid_frame(nghttp2_session *h2, const nghttp2_frame *frame, int code, void *user)
{
    struct grpc_session *s = user;
    pay(s, RESET_COST);
    return s->broken ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_stream_close(nghttp2_session *h2, int32_t id, uint32_t code, void *user)
{
    struct grpc_session *s = user;
    struct grpc_call *c = call_of(s, id);
    if (!c)
        return 0;
    if (!s->silent)
        s->role->closed(c, code);
    grpc_call_free(c);
    return 0;
}

/* ---- session ---- */

static void *h2_malloc(size_t n, void *user)
{
    return try_realloc(NULL, n);
}

static void *h2_calloc(size_t n, size_t size, void *user)
{
    size_t all;
    return __builtin_mul_overflow(n, size, &all) ? NULL : try_alloc(all);
}

static void *h2_realloc(void *p, size_t n, void *user)
{
    return try_realloc(p, n);
}

static void h2_free(void *p, void *user)
{
    free(p);
}

static int make_h2(struct grpc_session *s, nghttp2_session_callbacks *cb, nghttp2_option *opt)
{
    nghttp2_mem mem = { NULL, h2_malloc, h2_free, h2_calloc, h2_realloc };
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_sent);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
    nghttp2_option_set_max_outbound_ack(opt, ACKS_MAX);
    nghttp2_option_set_no_closed_streams(opt, 1);
    if (!s->config.server)
        return nghttp2_session_client_new3(&s->h2, cb, s, opt, &mem);
    /* The library refuses kubelet's :authority forms; grpc_serve.c checks what matters. */
    nghttp2_option_set_no_http_messaging(opt, 1);
    return nghttp2_session_server_new3(&s->h2, cb, s, opt, &mem);
}

static int open_h2(struct grpc_session *s)
{
    nghttp2_session_callbacks *cb;
    nghttp2_option *opt;
    if (nghttp2_session_callbacks_new(&cb) != 0)
        return NGHTTP2_ERR_NOMEM;
    if (nghttp2_option_new(&opt) != 0) {
        nghttp2_session_callbacks_del(cb);
        return NGHTTP2_ERR_NOMEM;
    }
    int r = make_h2(s, cb, opt);
    nghttp2_option_del(opt);
    nghttp2_session_callbacks_del(cb);
    if (r != 0)
        return r;
    const nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, s->config.server ? GRPC_CALLS_MAX : 0 },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADERS_MAX },
        { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 }, /* a client's setting, so the last one */
    };
    size_t n = ARRAY_LEN(settings) - (s->config.server ? 1 : 0);
    r = nghttp2_submit_settings(s->h2, NGHTTP2_FLAG_NONE, settings, n);
    if (r == 0)
        r = nghttp2_session_set_local_window_size(s->h2, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW);
    return r;
}

int grpc_session_new(const struct grpc_session_config *config, int64_t now,
                     struct grpc_session **ret, struct error *err)
{
    struct grpc_session *s = try_alloc(sizeof *s);
    if (!s)
        return error_set(err, ERR_LIMIT, 0, "no memory for a connection");
    s->config = *config;
    if (!s->config.message_max)
        s->config.message_max = GRPC_MESSAGE_MAX;
    s->role = config->server ? &grpc_role_server : &grpc_role_client;
    s->calls.prev = s->calls.next = &s->calls;
    s->now = s->tokens_at = now;
    s->tokens = TOKENS_MAX;
    s->preface_by = now + PREFACE_NS;
    buf_init(&s->out, OUT_MAX);
    int r = open_h2(s);
    if (r != 0) {
        grpc_session_free(s, NULL);
        return error_set(err, ERR_LIMIT, 0, "make an HTTP/2 session: %s", nghttp2_strerror(r));
    }
    *ret = s;
    return 0;
}

void grpc_session_free(struct grpc_session *s, const struct error *why)
{
    if (!s)
        return;
    s->ending = true;
    s->silent = !why;
    s->why = why ? why->text : NULL;
    s->running++;
    while (s->calls.next != &s->calls) {
        struct grpc_call *c = s->calls.next;
        nghttp2_session_set_stream_user_data(s->h2, c->id, NULL);
        if (!s->silent)
            s->role->closed(c, NGHTTP2_NO_ERROR);
        grpc_call_free(c);
    }
    nghttp2_session_del(s->h2);
    for (struct grpc_call *c; (c = s->pool);) {
        s->pool = c->next;
        grpc_call_destroy(c);
    }
    buf_done(&s->out);
    free(s);
}

void grpc_session_silence(struct grpc_session *s)
{
    s->silent = s->ending = true;
    for (struct grpc_call *c = s->calls.next; c != &s->calls; c = c->next)
        c->told = true;
}

int grpc_session_check(const struct grpc_session *s, struct error *err)
{
    if (s->tokens < 0)
        return error_set(err, ERR_LIMIT, 0,
                         "the peer floods the connection with control frames and resets");
    if (s->broken)
        return error_set(err, ERR_LIMIT, 0, "no memory for the connection's output");
    return 0;
}

int grpc_session_feed(struct grpc_session *s, struct str bytes, int64_t now, struct error *err)
{
    s->now = now;
    s->running++;
    ssize_t r = nghttp2_session_mem_recv(s->h2, (const uint8_t *)bytes.p, bytes.n);
    s->running--;
    if (s->broken)
        return grpc_session_check(s, err);
    if (r < 0)
        return error_set(err, r == NGHTTP2_ERR_NOMEM ? ERR_LIMIT : ERR_INVALID, 0, "HTTP/2: %s",
                         nghttp2_strerror((int)r));
    return 0;
}

struct str grpc_session_output(struct grpc_session *s)
{
    s->running++;
    while (!s->broken && s->out.n - s->out_sent < OUT_HIGH) {
        const uint8_t *p;
        ssize_t n = nghttp2_session_mem_send(s->h2, &p);
        if (n > 0)
            buf_add(&s->out, p, (size_t)n);
        if (n < 0 || s->out.failed)
            s->broken = true;
        if (n <= 0)
            break;
    }
    s->running--;
    return (struct str){ s->out.p + s->out_sent, s->out.n - s->out_sent };
}

void grpc_session_sent(struct grpc_session *s, size_t n)
{
    s->out_sent += n;
    if (s->out_sent == s->out.n) {
        buf_reset(&s->out);
        s->out_sent = 0;
    } else if (s->out_sent > OUT_HIGH / 2) {
        buf_drop(&s->out, s->out_sent);
        s->out_sent = 0;
    }
}

int64_t grpc_session_deadline(const struct grpc_session *s)
{
    if (s->preface_by && (!s->soonest || s->preface_by < s->soonest))
        return s->preface_by;
    return s->soonest;
}

int grpc_session_tick(struct grpc_session *s, int64_t now, struct error *err)
{
    s->now = now;
    if (s->preface_by && now >= s->preface_by)
        return error_set(err, ERR_UNAVAILABLE, 0, "the peer did not speak HTTP/2 within %d s",
                         (int)(PREFACE_NS / NS_A_SECOND));
    s->running++;
    s->soonest = 0;
    for (struct grpc_call *c = s->calls.next, *next; c != &s->calls; c = next) {
        next = c->next;
        if (!c->deadline || c->told)
            continue;
        if (c->deadline <= now)
            s->role->expired(c);
        else
            grpc_call_deadline(c, c->deadline);
    }
    s->running--;
    return 0;
}

bool grpc_session_finished(const struct grpc_session *s)
{
    if (s->out.n > s->out_sent || nghttp2_session_want_write(s->h2))
        return false;
    return (s->ending && !s->n_calls) || !nghttp2_session_want_read(s->h2);
}

size_t grpc_session_calls(const struct grpc_session *s)
{
    return s->n_calls;
}
