/* SPDX-License-Identifier: Apache-2.0 */
/* The server role of a session: from headers to a handler, from its answer to trailers. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/grpc_core.h"
#include "wire/grpc_text.h"

enum { PATH_SHOWN = 200 };

static const struct grpc_server_config *config_of(const struct grpc_call *c)
{
    return c->session->config.server;
}

static void lost(struct grpc_call *c, int r)
{
    if (r != 0)
        c->session->broken = true;
}

/* ---- answers ---- */

static void end_now(struct grpc_call *c, const char *http)
{
    char status[12];
    int n = snprintf(status, sizeof status, "%d", c->status);
    const nghttp2_nv nv[] = {
        GRPC_NV(":status", http, strlen(http), NGHTTP2_NV_FLAG_NO_COPY_NAME),
        GRPC_NV_Z("content-type", "application/grpc"),
        GRPC_NV("grpc-status", status, (size_t)n, NGHTTP2_NV_FLAG_NO_COPY_NAME),
        GRPC_NV("grpc-message", c->text.p, c->text.n,
                NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX),
    };
    c->submitted = true;
    lost(c, nghttp2_submit_response(c->session->h2, c->id, nv, c->text.n ? 4 : 3, NULL));
}

/* The call is over with this status, and the handler does not know it any more. */
static void fail(struct grpc_call *c, const char *http, int status, const char *text)
{
    struct grpc_session *s = c->session;
    c->told = true;
    c->status = status;
    buf_reset(&c->text);
    struct str said = str_of(text);
    said.n = MIN(said.n, (size_t)GRPC_TEXT_MAX - 1);
    grpc_message_encode(said, &c->text);
    if (!c->submitted) {
        end_now(c, http);
    } else {
        grpc_buf_empty(&c->newer);
        if (c->out_sent == 0)
            grpc_buf_empty(&c->out);
        c->finishing = true;
        nghttp2_session_resume_data(s->h2, c->id);
    }
    grpc_session_wake(s);
}

static void send_headers(struct grpc_call *c)
{
    static const char ok[] = "200";
    const nghttp2_nv nv[] = { GRPC_NV_Z(":status", ok),
                              GRPC_NV_Z("content-type", "application/grpc") };
    nghttp2_data_provider from = grpc_call_provider(c);
    if (c->submitted) {
        nghttp2_session_resume_data(c->session->h2, c->id);
        return;
    }
    c->submitted = true;
    lost(c, nghttp2_submit_response(c->session->h2, c->id, nv, ARRAY_LEN(nv), &from));
}

void grpc_reply(struct grpc_call *c, struct str message)
{
    struct error e;
    if (c->told)
        return;
    if (grpc_call_pack(c, &c->out, message, &e) < 0) {
        fail(c, "200", GRPC_RESOURCE_EXHAUSTED, e.text);
        return;
    }
    c->told = c->finishing = true;
    c->status = GRPC_OK;
    send_headers(c);
    grpc_session_wake(c->session);
}

void grpc_fail(struct grpc_call *c, enum grpc_status status, const char *fmt, ...)
{
    char text[GRPC_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!c->told)
        fail(c, "200", status == GRPC_OK ? GRPC_UNKNOWN : (int)status, text);
}

int grpc_send_latest(struct grpc_call *c, struct str message, struct error *err)
{
    if (c->told)
        return error_set(err, ERR_CONFLICT, 0, "the stream has ended");
    bool leaving = c->out_sent > 0 && c->out_sent < c->out.n;
    int r = grpc_call_pack(c, leaving ? &c->newer : &c->out, message, err);
    if (r < 0)
        return r;
    if (!leaving)
        c->out_sent = 0;
    send_headers(c);
    grpc_session_wake(c->session);
    return 0;
}

void grpc_finish(struct grpc_call *c)
{
    if (c->told)
        return;
    c->told = true;
    c->status = GRPC_OK;
    if (!c->submitted) {
        end_now(c, "200");
    } else {
        c->finishing = true;
        nghttp2_session_resume_data(c->session->h2, c->id);
    }
    grpc_session_wake(c->session);
}

void grpc_call_set(struct grpc_call *c, void *user)
{
    c->user = user;
}

void *grpc_call_get(const struct grpc_call *c)
{
    return c->user;
}

/* ---- requests ---- */

static bool find_method(struct grpc_call *c, struct str path)
{
    const struct grpc_server_config *config = config_of(c);
    for (size_t i = 0; i < config->n_methods; i++) {
        if (str_is(path, config->methods[i].path)) {
            c->method = &config->methods[i];
            return true;
        }
    }
    free(c->unknown_path);
    c->unknown_path = try_alloc(PATH_SHOWN + 1);
    if (c->unknown_path)
        memcpy(c->unknown_path, path.p, MIN(path.n, (size_t)PATH_SHOWN));
    return c->unknown_path != NULL;
}

/* application/grpc, also with "+proto" or parameters behind it. */
static bool grpc_type(struct str value)
{
    static const char type[] = "application/grpc";
    if (!str_starts(value, type))
        return false;
    return value.n == sizeof type - 1 || value.p[sizeof type - 1] == '+' ||
           value.p[sizeof type - 1] == ';';
}

static bool header(struct grpc_call *c, struct str name, struct str value)
{
    if (!grpc_call_header_fits(c, name, value) || c->opened)
        return true;
    if (str_eq(name, STR(":path")))
        return find_method(c, value);
    if (str_eq(name, STR(":method"))) {
        c->is_post = str_eq(value, STR("POST"));
    } else if (str_eq(name, STR("content-type"))) {
        c->is_grpc = grpc_type(value);
    } else if (str_eq(name, STR("grpc-timeout"))) {
        int64_t ns;
        c->bad_timeout = !grpc_timeout_parse(value, &ns);
        if (!c->bad_timeout)
            grpc_call_deadline(c, c->session->now + ns);
    }
    return true;
}

static void headers_done(struct grpc_call *c, bool end_stream)
{
    c->in_ended = end_stream;
    if (c->header_bytes > GRPC_HEADERS_MAX) {
        char text[96];
        snprintf(text, sizeof text,
                 "request headers of %zu bytes and more, at most %d are accepted", c->header_bytes,
                 (int)GRPC_HEADERS_MAX);
        fail(c, "200", GRPC_RESOURCE_EXHAUSTED, text);
    } else if (c->opened) {
        return;
    } else if (!c->is_post) {
        fail(c, "405", GRPC_INTERNAL, "the HTTP method must be POST");
    } else if (!c->is_grpc) {
        fail(c, "415", GRPC_INTERNAL, "the content-type must be application/grpc");
    } else if (!c->method) {
        char text[PATH_SHOWN + 32];
        snprintf(text, sizeof text, "unknown method %s", c->unknown_path ? c->unknown_path : "");
        fail(c, "200", GRPC_UNIMPLEMENTED, text);
    } else if (c->bad_timeout) {
        fail(c, "200", GRPC_INTERNAL,
             "malformed grpc-timeout: 1 to 8 digits and H, M, S, m, u or n");
    }
    c->opened = true;
}

static void refused(struct grpc_call *c, int status, const char *text)
{
    fail(c, "200", status, text);
}

static void message(struct grpc_call *c)
{
    if (c->in_messages > 1) {
        c->in_ignored = true;
        fail(c, "200", GRPC_INTERNAL, "the request holds more than one message");
    }
}

static void end_stream(struct grpc_call *c)
{
    const struct grpc_server_config *config = config_of(c);
    c->in_ended = true;
    grpc_call_check_end(c, "request");
    if (c->told)
        return;
    c->handed = true;
    c->method->handle(c, buf_view(&c->in), config->arg);
    grpc_buf_empty(&c->in);
}

/* Takes the call back from the handler. */
static void withdraw(struct grpc_call *c)
{
    const struct grpc_server_config *config = config_of(c);
    if (c->told)
        return;
    c->told = true;
    if (c->handed && config->cancelled)
        config->cancelled(c, config->arg);
}

static void closed(struct grpc_call *c, uint32_t code)
{
    withdraw(c);
}

static void expired(struct grpc_call *c)
{
    withdraw(c);
    fail(c, "200", GRPC_DEADLINE_EXCEEDED, "the deadline passed before the call was answered");
}

const struct grpc_role grpc_role_server = {
    .header = header,
    .headers_done = headers_done,
    .message = message,
    .refused = refused,
    .end_stream = end_stream,
    .closed = closed,
    .expired = expired,
};

void grpc_session_drain(struct grpc_session *s, bool now_too)
{
    s->running++;
    if (!s->ending) {
        int32_t last = nghttp2_session_get_last_proc_stream_id(s->h2);
        if (nghttp2_submit_goaway(s->h2, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0) != 0)
            s->broken = true;
        s->ending = true;
    }
    for (struct grpc_call *c = s->calls.next; c != &s->calls; c = c->next) {
        bool stream = c->handed && c->method->stream;
        if (c->told || !(stream || now_too))
            continue;
        withdraw(c);
        fail(c, "200", GRPC_UNAVAILABLE, "the server is stopping");
    }
    s->running--;
    grpc_session_wake(s);
}
