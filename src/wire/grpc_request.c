/* SPDX-License-Identifier: Apache-2.0 */
/* The client role of a session: a request out, messages and a status in. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "wire/grpc_core.h"
#include "wire/grpc_text.h"

#define NS_A_MS ((int64_t)1000000)

/* ---- the end of a call ---- */

static void tell(struct grpc_call *c, int status, const char *text)
{
    const struct grpc_request *r = &c->request;
    if (c->told)
        return;
    c->told = true;
    c->status = status;
    struct str message = status == GRPC_OK ? buf_view(&c->in) : (struct str){ NULL, 0 };
    if (r->done)
        r->done(r->arg, (enum grpc_status)status, text, message);
    else if (r->ended)
        r->ended(r->arg, (enum grpc_status)status, text);
}

/* Ends the call from our side: nothing more is wanted of the peer. */
static void give_up(struct grpc_call *c, int status, const char *text)
{
    struct grpc_session *s = c->session;
    if (nghttp2_submit_rst_stream(s->h2, NGHTTP2_FLAG_NONE, c->id, NGHTTP2_CANCEL) != 0)
        s->broken = true;
    tell(c, status, text);
    grpc_session_wake(s);
}

static void tell_without_status(struct grpc_call *c)
{
    char text[96];
    if (c->http_status && c->http_status != 200) {
        snprintf(text, sizeof text, "the server answered HTTP status %d", c->http_status);
        tell(c, grpc_status_of_http(c->http_status), text);
    } else {
        tell(c, GRPC_INTERNAL, "the server ended the call without a status");
    }
}

/* ---- what comes in ---- */

static bool header(struct grpc_call *c, struct str name, struct str value)
{
    uint64_t v;
    if (!grpc_call_header_fits(c, name, value))
        return true;
    if (str_eq(name, STR(":status"))) {
        c->http_status = str_to_u64(value, 999, &v) ? (int)v : 0;
    } else if (str_eq(name, STR("grpc-status"))) {
        c->status = str_to_u64(value, GRPC_UNAUTHENTICATED, &v) ? (int)v : GRPC_UNKNOWN;
    } else if (str_eq(name, STR("grpc-message"))) {
        buf_reset(&c->text);
        value.n = MIN(value.n, (size_t)3 * GRPC_TEXT_MAX);
        grpc_message_decode(value, &c->text);
    }
    return true;
}

static void headers_done(struct grpc_call *c, bool end)
{
    c->in_ended = end;
    if (c->header_bytes > GRPC_HEADERS_MAX)
        give_up(c, GRPC_RESOURCE_EXHAUSTED, "the answer's headers pass 16 KiB");
    /* Informational blocks come before the one that counts. */
    if (c->http_status < 100 || c->http_status >= 200)
        c->opened = true;
}

static void message(struct grpc_call *c)
{
    const struct grpc_request *r = &c->request;
    if (r->message_in)
        r->message_in(r->arg, buf_view(&c->in));
    else if (!r->ended && c->in_messages > 1)
        give_up(c, GRPC_INTERNAL, "the answer holds more than one message");
}

static void refused(struct grpc_call *c, int status, const char *text)
{
    give_up(c, status, text);
}

static void end_stream(struct grpc_call *c)
{
    c->in_ended = true;
    if (c->status == GRPC_STATUS_NONE) {
        tell_without_status(c);
        return;
    }
    if (c->status == GRPC_OK && (c->n_prefix || (c->request.done && !c->in_messages))) {
        grpc_call_check_end(c, "answer");
        return;
    }
    tell(c, c->status, c->text.n ? c->text.p : "");
}

static void closed(struct grpc_call *c, uint32_t code)
{
    char text[96];
    const struct grpc_session *s = c->session;
    if (c->told)
        return;
    if (s->why || s->ending) {
        tell(c, GRPC_UNAVAILABLE, s->why ? s->why : "the server is going away");
        return;
    }
    snprintf(text, sizeof text, "the server reset the call: %s", nghttp2_http2_strerror(code));
    tell(c, grpc_status_of_reset(code), text);
}

static void expired(struct grpc_call *c)
{
    char text[96];
    snprintf(text, sizeof text, "no answer within %lld ms", (long long)c->request.timeout_ms);
    give_up(c, GRPC_DEADLINE_EXCEEDED, text);
}

const struct grpc_role grpc_role_client = {
    .header = header,
    .headers_done = headers_done,
    .message = message,
    .refused = refused,
    .end_stream = end_stream,
    .closed = closed,
    .expired = expired,
};

/* ---- requests ---- */

static int submit(struct grpc_call *c, const char *path)
{
    char timeout[GRPC_TIMEOUT_SIZE];
    size_t timeout_n = grpc_timeout_format(c->request.timeout_ms, timeout);
    const nghttp2_nv nv[] = {
        GRPC_NV_Z(":method", "POST"),
        GRPC_NV_Z(":scheme", "http"),
        GRPC_NV(":path", path, strlen(path), NGHTTP2_NV_FLAG_NO_COPY_NAME),
        GRPC_NV_Z(":authority", "localhost"),
        GRPC_NV_Z("content-type", "application/grpc"),
        GRPC_NV_Z("te", "trailers"),
        GRPC_NV_Z("user-agent", "mete/" METE_VERSION),
        GRPC_NV("grpc-timeout", timeout, timeout_n,
                NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX),
    };
    size_t n = ARRAY_LEN(nv) - (c->request.timeout_ms > 0 ? 0 : 1);
    nghttp2_data_provider from = grpc_call_provider(c);
    return nghttp2_submit_request(c->session->h2, NULL, nv, n, &from, c);
}

int grpc_session_request(struct grpc_session *s, const struct grpc_request *r, int64_t now,
                         struct error *err)
{
    if (s->ending || s->broken)
        return error_set(err, ERR_UNAVAILABLE, 0, "call %s: the connection is ending", r->path);
    if (s->n_calls >= GRPC_CALLS_MAX)
        return error_set(err, ERR_LIMIT, 0, "call %s: %d calls are open on the connection", r->path,
                         (int)GRPC_CALLS_MAX);
    struct grpc_call *c = grpc_call_new(s);
    if (!c)
        return error_set(err, ERR_LIMIT, 0, "call %s: no memory", r->path);
    c->request = *r;
    c->request.path = NULL;
    c->request.message = (struct str){ NULL, 0 };
    c->finishing = c->submitted = true;
    int e = grpc_call_pack(c, &c->out, r->message, err);
    if (e < 0) {
        grpc_call_free(c);
        return error_wrap(err, "call %s", r->path);
    }
    c->id = submit(c, r->path);
    if (c->id < 0) {
        e = c->id;
        grpc_call_free(c);
        return error_set(err, e == NGHTTP2_ERR_NOMEM ? ERR_LIMIT : ERR_UNAVAILABLE, 0,
                         "call %s: %s", r->path, nghttp2_strerror(e));
    }
    if (r->timeout_ms > 0)
        grpc_call_deadline(c, now + MIN(r->timeout_ms, INT64_MAX / NS_A_MS / 2) * NS_A_MS);
    grpc_session_wake(s);
    return 0;
}
