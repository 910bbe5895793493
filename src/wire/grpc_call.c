/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a session: its memory, its messages in and out. Both roles. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/grpc_core.h"

/* ---- memory ---- */

void grpc_buf_empty(struct buf *b)
{
    if (b->cap > GRPC_KEEP_MAX)
        buf_done(b);
    else
        buf_reset(b);
}

/* Settles with the common budget; false when it is exceeded. */
static bool charge(struct grpc_call *c)
{
    struct grpc_budget *budget = c->session->config.budget;
    if (!budget)
        return true;
    size_t holds = c->in.cap + c->out.cap + c->newer.cap;
    budget->used += holds - c->charged;
    c->charged = holds;
    return budget->used <= budget->max;
}

struct grpc_call *grpc_call_new(struct grpc_session *s)
{
    struct grpc_call *c = s->pool;
    if (c) {
        s->pool = c->next;
        s->n_pool--;
    } else {
        c = try_alloc(sizeof *c);
        if (!c)
            return NULL;
        buf_init(&c->in, s->config.message_max);
        buf_init(&c->out, GRPC_MESSAGE_MAX + GRPC_PREFIX);
        buf_init(&c->newer, GRPC_MESSAGE_MAX + GRPC_PREFIX);
        buf_init(&c->text, 3 * GRPC_TEXT_MAX);
    }
    c->session = s;
    c->status = GRPC_STATUS_NONE;
    c->next = &s->calls;
    c->prev = s->calls.prev;
    c->prev->next = c;
    s->calls.prev = c;
    s->n_calls++;
    return c;
}

void grpc_call_destroy(struct grpc_call *c)
{
    buf_done(&c->in);
    buf_done(&c->out);
    buf_done(&c->newer);
    buf_done(&c->text);
    free(c);
}

void grpc_call_free(struct grpc_call *c)
{
    struct grpc_session *s = c->session;
    c->prev->next = c->next;
    c->next->prev = c->prev;
    s->n_calls--;
    free(c->unknown_path);
    grpc_buf_empty(&c->in);
    grpc_buf_empty(&c->out);
    grpc_buf_empty(&c->newer);
    grpc_buf_empty(&c->text);
    if (s->config.budget)
        s->config.budget->used -= c->charged;
    if (s->n_pool == GRPC_POOL_MAX) {
        grpc_call_destroy(c);
        return;
    }
    *c = (struct grpc_call){
        .in = c->in, .out = c->out, .newer = c->newer, .text = c->text, .next = s->pool
    };
    s->pool = c;
    s->n_pool++;
}

void grpc_call_deadline(struct grpc_call *c, int64_t at)
{
    struct grpc_session *s = c->session;
    c->deadline = at;
    if (!s->soonest || at < s->soonest)
        s->soonest = at;
}

bool grpc_call_header_fits(struct grpc_call *c, struct str name, struct str value)
{
    c->header_bytes += name.n + value.n + 32; /* as RFC 9113 6.5.2 counts them */
    return c->header_bytes <= GRPC_HEADERS_MAX;
}

/* ---- messages out ---- */

int grpc_call_pack(struct grpc_call *c, struct buf *b, struct str message, struct error *err)
{
    unsigned char prefix[GRPC_PREFIX] = { 0, (unsigned char)(message.n >> 24),
                                          (unsigned char)(message.n >> 16),
                                          (unsigned char)(message.n >> 8),
                                          (unsigned char)message.n };
    if (message.n > GRPC_MESSAGE_MAX)
        return error_set(err, ERR_LIMIT, 0, "message of %zu bytes, at most %d are sent", message.n,
                         (int)GRPC_MESSAGE_MAX);
    grpc_buf_empty(b);
    buf_add(b, prefix, sizeof prefix);
    buf_str(b, message);
    if (!b->failed && charge(c))
        return 0;
    buf_done(b);
    charge(c);
    return error_set(err, ERR_LIMIT, 0, "no memory for a message of %zu bytes", message.n);
}

static void promote_newer(struct grpc_call *c)
{
    struct buf sent = c->out;
    c->out = c->newer;
    c->newer = sent;
    c->out_sent = 0;
    grpc_buf_empty(&c->newer);
    charge(c);
}

/* Server: the status goes out as trailers behind the last message. */
static void add_trailers(struct grpc_call *c)
{
    char status[3] = { (char)('0' + c->status / 10), (char)('0' + c->status % 10), 0 };
    const char *digits = c->status < 10 ? status + 1 : status;
    nghttp2_nv nv[2] = { GRPC_NV("grpc-status", digits, strlen(digits),
                                 NGHTTP2_NV_FLAG_NO_COPY_NAME),
                         GRPC_NV("grpc-message", c->text.p, c->text.n,
                                 NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX) };
    if (nghttp2_submit_trailer(c->session->h2, c->id, nv, c->text.n ? 2 : 1) != 0)
        c->session->broken = true;
}

static ssize_t provide(nghttp2_session *h2, int32_t id, uint8_t *p, size_t n, uint32_t *flags,
                       nghttp2_data_source *source, void *user)
{
    struct grpc_call *c = source->ptr;
    if (c->out_sent == c->out.n && c->newer.n)
        promote_newer(c);
    size_t left = c->out.n - c->out_sent;
    if (!left && !c->finishing)
        return NGHTTP2_ERR_DEFERRED;
    n = MIN(n, left);
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == left && !c->newer.n && c->finishing) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (c->session->config.server) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            add_trailers(c);
        }
    }
    return (ssize_t)n;
}

nghttp2_data_provider grpc_call_provider(struct grpc_call *c)
{
    return (nghttp2_data_provider){ .source.ptr = c, .read_callback = provide };
}

/* ---- messages in ---- */

static void refuse(struct grpc_call *c, enum grpc_status status, const char *fmt, ...)
    printf_like(3, 4);

static void refuse(struct grpc_call *c, enum grpc_status status, const char *fmt, ...)
{
    struct error e;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e.text, sizeof e.text, fmt, ap);
    va_end(ap);
    c->in_ignored = true;
    buf_done(&c->in);
    charge(c);
    c->session->role->refused(c, (int)status, e.text);
}

void grpc_call_check_end(struct grpc_call *c, const char *what)
{
    if (c->n_prefix)
        refuse(c, GRPC_INTERNAL, "the %s ended within a message", what);
    else if (!c->in_messages)
        refuse(c, GRPC_INTERNAL, "the %s holds no message", what);
}

static size_t take_prefix(struct grpc_call *c, const uint8_t *p, size_t n)
{
    size_t take = MIN(n, (size_t)GRPC_PREFIX - c->n_prefix);
    memcpy(c->prefix + c->n_prefix, p, take);
    c->n_prefix = (uint8_t)(c->n_prefix + take);
    if (c->n_prefix < GRPC_PREFIX)
        return take;
    const unsigned char *x = c->prefix;
    c->in_size = (size_t)x[1] << 24 | (size_t)x[2] << 16 | (size_t)x[3] << 8 | x[4];
    size_t max = c->session->config.message_max;
    if (x[0] == 1)
        refuse(c, GRPC_UNIMPLEMENTED, "compressed messages are not supported: use identity");
    else if (x[0] > 1)
        refuse(c, GRPC_INTERNAL, "message begins with the flag byte %u, allowed is 0", x[0]);
    else if (c->in_size > max)
        refuse(c, GRPC_RESOURCE_EXHAUSTED, "message of %zu bytes, at most %zu are accepted",
               c->in_size, max);
    return take;
}

void grpc_call_take(struct grpc_call *c, const uint8_t *p, size_t n)
{
    while (!c->in_ignored && !c->told) {
        if (c->n_prefix < GRPC_PREFIX) {
            if (!n)
                return;
            size_t taken = take_prefix(c, p, n);
            p += taken, n -= taken;
            if (c->n_prefix < GRPC_PREFIX || c->in_ignored)
                return;
            buf_reset(&c->in);
        }
        size_t take = MIN(n, c->in_size - c->in.n);
        buf_add(&c->in, p, take);
        p += take, n -= take;
        if (c->in.failed || !charge(c)) {
            refuse(c, GRPC_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes", c->in_size);
            return;
        }
        if (c->in.n < c->in_size)
            return;
        c->n_prefix = 0;
        c->in_messages++;
        c->session->role->message(c);
    }
}
