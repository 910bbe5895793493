/* SPDX-License-Identifier: Apache-2.0 */
#include "kubelet/registration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/grpc.h"

enum {
    CALL_TIMEOUT_MS = 5000,
    BACKOFF_MS = 250,
    BACKOFF_MAX_MS = 30000,
    STREAM_EXPECTED_MS = 10000,
    STREAM_STEADY_S = 60, /* a stream that lasted this long forgives earlier losses */
    EAGER_MS = 1000,      /* after kubelet.sock was re-created */
    EAGER_STEPS = 20,     /* first tries, 1 ms apart; then doubling */
    EAGER_STEP_MAX_MS = 64,
    NS_PER_MS = 1000000,
};

static const char register_path[] = "/v1beta1.Registration/Register";

struct registration {
    struct loop *loop;
    struct registration_config config;
    char *socket;
    char *request;
    size_t request_n;
    struct grpc_client *client; /* while dialling or waiting for the answer */
    struct timer retry, expect; /* expect: the stream after an acknowledgement */
    int64_t backoff_ms, eager_until_ns, stream_since_ns;
    unsigned eager_tries;
    bool started, calling, acknowledged, stream, refused;
    char *error;
};

static void attempt(void *arg);

static int64_t now_ns(const struct registration *r)
{
    return host_mono_ns(r->config.host);
}

static void forget_client(struct registration *r)
{
    grpc_client_free(steal(r->client));
}

static void note(struct registration *r, bool permanent, const char *why)
{
    if (r->error && strcmp(r->error, why) == 0)
        return;
    free(r->error);
    r->error = x_strdup(why);
    r->config.failed(r->config.arg, permanent, why);
}

/* When to try again: soon while kubelet has only just made its socket, else with back-off. */
static int64_t next_delay(struct registration *r)
{
    if (now_ns(r) < r->eager_until_ns) {
        unsigned n = r->eager_tries++;
        if (n < EAGER_STEPS)
            return 1;
        return MIN(1ll << MIN(n - EAGER_STEPS + 1, 10u), (int64_t)EAGER_STEP_MAX_MS);
    }
    int64_t ms = r->backoff_ms;
    r->backoff_ms = MIN(r->backoff_ms * 2, (int64_t)BACKOFF_MAX_MS);
    return ms;
}

/* The client of the failed try is freed when the next one begins: we may be in its call-back. */
static void again(struct registration *r)
{
    r->calling = false;
    timer_set(&r->retry, next_delay(r));
}

static void unreachable(struct registration *r, const char *why)
{
    char text[600];
    if (now_ns(r) >= r->eager_until_ns) { /* before: a refusal between bind and listen is no news */
        snprintf(text, sizeof(text), "kubelet does not answer at %s: %s", r->socket, why);
        note(r, false, text);
    }
    again(r);
}

static void dial_ended(void *arg, const struct error *why)
{
    struct registration *r = arg;
    if (r->calling)
        unreachable(r, why->text);
}

static bool is_permanent(enum grpc_status status, const char *text)
{
    return status == GRPC_UNIMPLEMENTED || strcasestr(text, "is not supported by kubelet") ||
           strcasestr(text, "unsupported version") ||
           strcasestr(text, "version is not supported") || strcasestr(text, "ResourceName");
}

static void refused(struct registration *r, enum grpc_status status, const char *text)
{
    char why[600];
    bool permanent = is_permanent(status, text);
    if (permanent)
        snprintf(why, sizeof(why),
                 "kubelet refused the registration: %s (status %d). Supported here: device plugin "
                 "API v1beta1. Tried again only when kubelet.sock is re-created",
                 text, (int)status);
    else
        snprintf(why, sizeof(why), "kubelet refused the registration: %s (status %d)", text,
                 (int)status);
    note(r, permanent, why);
    r->refused = permanent;
    r->calling = false;
    if (!permanent)
        again(r);
}

static void forget_error(struct registration *r)
{
    free(steal(r->error));
}

static void answered(void *arg, enum grpc_status status, const char *text, struct str message)
{
    struct registration *r = arg;
    if (!r->calling)
        return;
    if (status == GRPC_UNAVAILABLE || status == GRPC_DEADLINE_EXCEEDED) {
        unreachable(r, text);
        return;
    }
    if (status != GRPC_OK) {
        refused(r, status, text);
        return;
    }
    r->calling = false;
    forget_client(r);
    forget_error(r);
    r->acknowledged = true;
    if (!r->stream)
        timer_set(&r->expect, r->config.expect_ms);
    r->config.acknowledged(r->config.arg);
}

static void stream_missing(void *arg)
{
    struct registration *r = arg;
    r->acknowledged = false;
    char why[160];
    snprintf(why, sizeof(why),
             "kubelet acknowledged the registration but did not open the device list within %lld "
             "ms; registering again",
             (long long)r->config.expect_ms);
    note(r, false, why);
    again(r);
}

static void attempt(void *arg)
{
    struct registration *r = arg;
    struct error err;
    forget_client(r);
    timer_stop(&r->expect);
    r->calling = true;
    int rc = grpc_client_new(r->loop, r->socket, dial_ended, r, &r->client, &err);
    if (rc == 0)
        rc = grpc_client_call(r->client, register_path, (struct str){ r->request, r->request_n },
                              CALL_TIMEOUT_MS, answered, r, &err);
    if (rc < 0)
        unreachable(r, err.text);
}

void registration_new(struct loop *l, const struct registration_config *c,
                      struct registration **ret)
{
    struct registration *r = x_alloc(sizeof(*r));
    r->loop = l;
    r->config = *c;
    if (r->config.expect_ms == 0)
        r->config.expect_ms = STREAM_EXPECTED_MS;
    r->socket = x_strdup(c->kubelet_socket);
    r->backoff_ms = BACKOFF_MS;
    timer_init(&r->retry, l, attempt, r);
    timer_init(&r->expect, l, stream_missing, r);
    *ret = r;
}

void registration_free(struct registration *r)
{
    if (!r)
        return;
    forget_client(r);
    timer_done(&r->retry);
    timer_done(&r->expect);
    free(r->socket);
    free(r->request);
    free(r->error);
    free(r);
}

void registration_start(struct registration *r, struct str request)
{
    free(r->request);
    r->request = x_alloc(request.n ? request.n : 1);
    if (request.n)
        memcpy(r->request, request.p, request.n);
    r->request_n = request.n;
    r->started = true;
    r->acknowledged = r->refused = false;
    r->backoff_ms = BACKOFF_MS;
    timer_set(&r->retry, 0);
}

void registration_kubelet_new(struct registration *r)
{
    if (!r->started)
        return;
    r->acknowledged = r->refused = false;
    r->backoff_ms = BACKOFF_MS;
    r->eager_tries = 0;
    r->eager_until_ns = now_ns(r) + (int64_t)EAGER_MS * NS_PER_MS;
    timer_stop(&r->retry);
    attempt(r);
}

/* Also while Register is still under way: a slow kubelet opens the list before it answers, or
 * answers only after our deadline. */
void registration_stream_open(struct registration *r)
{
    r->stream = true;
    r->stream_since_ns = now_ns(r);
    timer_stop(&r->expect);
    if (!r->calling) {
        timer_stop(&r->retry);
        forget_error(r);
    }
}

void registration_stream_lost(struct registration *r)
{
    r->stream = false;
    r->acknowledged = false;
    if (!r->started || r->refused || r->calling || timer_pending(&r->retry))
        return;
    if (now_ns(r) - r->stream_since_ns > (int64_t)STREAM_STEADY_S * 1000 * NS_PER_MS)
        r->backoff_ms = BACKOFF_MS;
    timer_set(&r->retry, r->backoff_ms);
    r->backoff_ms = MIN(r->backoff_ms * 2, (int64_t)BACKOFF_MAX_MS);
}

void registration_again(struct registration *r)
{
    if (!r->started || r->refused || r->calling || timer_pending(&r->retry))
        return;
    r->acknowledged = false;
    timer_set(&r->retry, 0);
}

void registration_stop(struct registration *r)
{
    r->started = r->calling = false;
    forget_client(r);
    timer_stop(&r->retry);
    timer_stop(&r->expect);
}

bool registration_ok(const struct registration *r)
{
    return r->acknowledged || r->stream;
}

const char *registration_error(const struct registration *r)
{
    return r->error;
}
