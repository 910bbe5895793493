/* SPDX-License-Identifier: Apache-2.0 */
#include "kubelet/plugin_server.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kubelet/plugin_answer.h"
#include "wire/grpc.h"

enum {
    STREAMS_MAX = 64, /* open device lists of one resource; kubelet has one */
    GRACE_MS = 30000, /* an emptied resource is served for so long */
    DRAIN_MS = 2000,  /* open calls at the end */
    LISTEN_MS = 500,  /* first retry when the socket cannot be made, doubling */
    LISTEN_MAX_MS = 30000,
    BEFORE_MS = 10000, /* a deleted socket's streams, unless kubelet comes back sooner */
    NOTE_IDS = 1024,   /* ids in a note of a grant, cut there */
};

/* One socket. A second one exists while kubelet's stream still hangs on a socket whose file was
 * deleted. */
struct listener {
    struct plugin_server *owner;
    struct grpc_server *server;
};

struct stream {
    struct grpc_call *call;
    const struct listener *listener;
};

struct plugin_server {
    struct plugin_shared *shared;
    char *resource, *socket, *path;
    const struct resource *now; /* borrowed; NULL: vanished */
    struct resource empty;      /* stands in then */
    struct buf list;            /* as sent last */
    struct listener *listener, *before;
    struct stream streams[STREAMS_MAX];
    size_t n_streams;
    struct registration *registration; /* NULL: not asked for */
    struct timer listen_again, before_over, grace, over;
    int64_t listen_ms;
    char *error; /* of socket or list, as told last */
    bool ending;
    void (*ended)(void *arg, struct plugin_server *s);
    void *arg;
};

static const struct resource *current(const struct plugin_server *s)
{
    return s->now ? s->now : &s->empty;
}

/* ---- calls ---- */

static struct plugin_context context_of(const struct plugin_server *s)
{
    const struct plugin_shared *sh = s->shared;
    return (struct plugin_context){
        .host = sh->config.host,
        .inv = sh->inv,
        .config = sh->plugin_config,
        .ledger = sh->config.ledger,
        .now_ns = host_mono_ns(sh->config.host),
        .control_nodes = sh->facts.control_nodes,
        .n_control_nodes = sh->facts.n_control_nodes,
        .imex_channel0 = sh->facts.imex_channel0,
        .gated = sh->facts.gated,
    };
}

/* The peer answers every refusal with UNKNOWN, and kubelet shows the text. */
static void finish(struct grpc_call *call, struct plugin_server *s, int r, const struct error *err)
{
    if (r < 0)
        grpc_fail(call, GRPC_UNKNOWN, "%s", err->text);
    else
        grpc_reply(call, buf_view(&s->shared->answer));
}

static void handle_options(struct grpc_call *call, struct str request, void *arg)
{
    struct plugin_server *s = ((struct listener *)arg)->owner;
    struct error err;
    buf_reset(&s->shared->answer);
    int r = plugin_options(&s->shared->answer, &err);
    finish(call, s, r, &err);
}

static void tell_granted(const struct plugin_server *s, struct str request, bool not_distinct,
                         const char *error)
{
    const struct plugin_set_config *c = &s->shared->config;
    char ids[NOTE_IDS];
    if (!c->granted && !not_distinct)
        return;
    /* A refusal is of the request as a whole, which may name any number of containers. */
    size_t most = error ? 1 : SIZE_MAX;
    for (size_t i = 0; i < most && plugin_request_ids(request, i, ids, sizeof(ids)); i++) {
        if (c->granted)
            c->granted(c->arg, s->resource, ids, error);
        if (not_distinct && c->not_distinct && !error)
            c->not_distinct(c->arg, s->resource, ids);
    }
}

static void handle_allocate(struct grpc_call *call, struct str request, void *arg)
{
    struct plugin_server *s = ((struct listener *)arg)->owner;
    struct error err;
    struct plugin_context c = context_of(s);
    bool not_distinct;
    c.not_distinct = &not_distinct;
    buf_reset(&s->shared->answer);
    int r = plugin_allocate(&c, current(s), request, &s->shared->answer, &err);
    finish(call, s, r, &err);
    tell_granted(s, request, not_distinct, r < 0 ? err.text : NULL);
}

static void handle_preferred(struct grpc_call *call, struct str request, void *arg)
{
    struct plugin_server *s = ((struct listener *)arg)->owner;
    struct error err;
    struct plugin_context c = context_of(s);
    buf_reset(&s->shared->answer);
    int r = plugin_preferred(&c, current(s), request, &s->shared->answer, &err);
    finish(call, s, r, &err);
}

static void handle_pre_start(struct grpc_call *call, struct str request, void *arg)
{
    grpc_reply(call, (struct str){ "", 0 });
}

/* ---- device lists ---- */

/* Once per cause. */
static void note(struct plugin_server *s, bool permanent, const char *why)
{
    const struct plugin_set_config *c = &s->shared->config;
    if (s->error && strcmp(s->error, why) == 0)
        return;
    free(s->error);
    s->error = x_strdup(why);
    if (c->failed)
        c->failed(c->arg, s->resource, permanent, why);
}

static void stream_drop(struct plugin_server *s, size_t i)
{
    s->streams[i] = s->streams[--s->n_streams];
}

static void listener_free(struct listener *l)
{
    if (!l)
        return;
    struct plugin_server *s = l->owner;
    size_t had = s->n_streams;
    for (size_t i = s->n_streams; i-- > 0;) {
        if (s->streams[i].listener == l)
            stream_drop(s, i);
    }
    if (had > 0 && s->n_streams == 0 && s->registration)
        registration_stream_lost(s->registration);
    grpc_server_free(l->server);
    free(l);
}

static void end_before(void *arg)
{
    struct plugin_server *s = arg;
    timer_stop(&s->before_over);
    listener_free(steal(s->before));
}

static void handle_list(struct grpc_call *call, struct str request, void *arg)
{
    struct listener *listener = arg;
    struct plugin_server *s = listener->owner;
    const struct plugin_set_config *c = &s->shared->config;
    struct error err;
    if (s->n_streams == STREAMS_MAX) {
        grpc_fail(call, GRPC_RESOURCE_EXHAUSTED, "more than %d open device lists of %s",
                  STREAMS_MAX, s->resource);
        return;
    }
    if (listener == s->listener)
        end_before(s);
    s->streams[s->n_streams++] = (struct stream){ call, listener };
    if (grpc_send_latest(call, buf_view(&s->list), &err) < 0) {
        /* Without a list kubelet would wait for ever: it is to ask again. */
        s->n_streams--;
        note(s, false, err.text);
        grpc_fail(call, GRPC_RESOURCE_EXHAUSTED, "%s", err.text);
        return;
    }
    if (s->registration)
        registration_stream_open(s->registration);
    if (c->first_list)
        c->first_list(c->arg, s->resource);
}

static void handle_cancelled(struct grpc_call *call, void *arg)
{
    struct plugin_server *s = ((struct listener *)arg)->owner;
    for (size_t i = 0; i < s->n_streams; i++) {
        if (s->streams[i].call != call)
            continue;
        stream_drop(s, i);
        if (s->n_streams == 0 && s->registration)
            registration_stream_lost(s->registration);
        return;
    }
}

static void send_list(struct plugin_server *s)
{
    struct error err;
    for (size_t i = 0; i < s->n_streams; i++) {
        if (grpc_send_latest(s->streams[i].call, buf_view(&s->list), &err) < 0)
            note(s, false, err.text);
    }
}

/* True when the list differs from the one sent last. One that cannot be encoded keeps the old. */
static bool make_list(struct plugin_server *s)
{
    struct error err;
    const struct survey *survey = s->shared->inv ? s->shared->inv->survey : NULL;
    auto_buf list;
    buf_init(&list, DEVICE_LIST_MAX);
    if (s->now && survey && plugin_list(s->now, survey, &list, &err) < 0) {
        note(s, true, err.text);
        return false;
    }
    if (str_eq(buf_view(&list), buf_view(&s->list)))
        return false;
    buf_reset(&s->list);
    buf_str(&s->list, buf_view(&list));
    return true;
}

/* ---- socket and registration ---- */

static const struct grpc_method methods[] = {
    { "/v1beta1.DevicePlugin/GetDevicePluginOptions", handle_options, false },
    { "/v1beta1.DevicePlugin/ListAndWatch", handle_list, true },
    { "/v1beta1.DevicePlugin/GetPreferredAllocation", handle_preferred, false },
    { "/v1beta1.DevicePlugin/Allocate", handle_allocate, false },
    { "/v1beta1.DevicePlugin/PreStartContainer", handle_pre_start, false },
};

static void send_registration(struct plugin_server *s)
{
    struct error err;
    auto_buf request;
    buf_init(&request, 4096);
    if (!s->registration)
        return;
    if (plugin_register_request(current(s), &request, &err) < 0)
        note(s, true, err.text);
    else
        registration_start(s->registration, buf_view(&request));
}

static int listener_new(struct plugin_server *s, struct listener **ret, struct error *err)
{
    struct listener *l = x_alloc(sizeof(*l));
    const struct grpc_server_config config = {
        .methods = methods,
        .n_methods = ARRAY_LEN(methods),
        .arg = l,
        .cancelled = handle_cancelled,
    };
    l->owner = s;
    int r = grpc_server_new(s->shared->loop, s->path, 0, &config, &l->server, err);
    if (r < 0)
        free(l);
    else
        *ret = l;
    return r;
}

static void listen_now(void *arg)
{
    struct plugin_server *s = arg;
    struct error err;
    if (s->listener || s->ending)
        return;
    if (listener_new(s, &s->listener, &err) < 0) {
        note(s, false, err.text);
        timer_set(&s->listen_again, s->listen_ms);
        s->listen_ms = MIN(s->listen_ms * 2, (int64_t)LISTEN_MAX_MS);
        return;
    }
    timer_stop(&s->listen_again);
    free(steal(s->error));
    s->listen_ms = LISTEN_MS;
    send_registration(s);
}

/* The old socket's connections live on until kubelet reads the list from the new one: its open
 * stream keeps the devices healthy meanwhile. */
void plugin_server_check_socket(struct plugin_server *s)
{
    if (s->ending || (s->listener && grpc_server_socket_ours(s->listener->server)))
        return;
    if (s->listener) {
        end_before(s);
        s->before = steal(s->listener);
        timer_set(&s->before_over, BEFORE_MS);
    }
    listen_now(s);
}

static void acknowledged(void *arg)
{
    struct plugin_server *s = arg;
    const struct plugin_set_config *c = &s->shared->config;
    if (c->registered)
        c->registered(c->arg, s->resource, current(s)->n_devices);
}

static void registration_failed(void *arg, bool permanent, const char *why)
{
    const struct plugin_server *s = arg;
    const struct plugin_set_config *c = &s->shared->config;
    if (c->failed)
        c->failed(c->arg, s->resource, permanent, why);
}

void plugin_server_kubelet_new(struct plugin_server *s)
{
    plugin_server_check_socket(s);
    if (s->registration && s->listener)
        registration_kubelet_new(s->registration);
}

void plugin_server_register_again(struct plugin_server *s)
{
    if (s->registration && s->listener)
        registration_again(s->registration);
}

/* ---- life ---- */

static void grace_over(void *arg)
{
    plugin_server_end(arg);
}

static void all_over(void *arg)
{
    struct plugin_server *s = arg;
    s->ended(s->arg, s);
}

struct plugin_server *plugin_server_new(struct plugin_shared *shared, const struct resource *r,
                                        void (*ended)(void *arg, struct plugin_server *s),
                                        void *arg)
{
    struct plugin_server *s = x_alloc(sizeof(*s));
    s->shared = shared;
    s->resource = x_strdup(r->name);
    s->socket = x_strdup(r->socket);
    s->path = x_printf("%s/%s", shared->config.device_plugin_dir, r->socket);
    s->empty = (struct resource){ .name = s->resource, .base_name = s->resource };
    s->empty.socket = s->socket;
    s->listen_ms = LISTEN_MS;
    s->ended = ended;
    s->arg = arg;
    buf_init(&s->list, DEVICE_LIST_MAX);
    timer_init(&s->listen_again, shared->loop, listen_now, s);
    timer_init(&s->before_over, shared->loop, end_before, s);
    timer_init(&s->grace, shared->loop, grace_over, s);
    timer_init(&s->over, shared->loop, all_over, s);
    if (shared->config.kubelet_socket[0]) {
        const struct registration_config c = {
            .host = shared->config.host,
            .kubelet_socket = shared->config.kubelet_socket,
            .expect_ms = shared->config.expect_ms,
            .arg = s,
            .acknowledged = acknowledged,
            .failed = registration_failed,
        };
        registration_new(shared->loop, &c, &s->registration);
    }
    plugin_server_update(s, r);
    listen_now(s);
    return s;
}

void plugin_server_free(struct plugin_server *s)
{
    if (!s)
        return;
    registration_free(steal(s->registration));
    end_before(s);
    listener_free(s->listener);
    timer_done(&s->listen_again);
    timer_done(&s->before_over);
    timer_done(&s->grace);
    timer_done(&s->over);
    buf_done(&s->list);
    free(s->error);
    free(s->resource);
    free(s->socket);
    free(s->path);
    free(s);
}

void plugin_server_update(struct plugin_server *s, const struct resource *r)
{
    if (s->ending)
        return;
    s->now = r;
    if (make_list(s))
        send_list(s);
    bool has_devices = r && r->n_devices > 0;
    if (has_devices)
        timer_stop(&s->grace);
    else if (!timer_pending(&s->grace))
        timer_set(&s->grace, s->shared->config.grace_ms ? s->shared->config.grace_ms : GRACE_MS);
}

/* Called by the server that is to be freed: that waits for the next turn of the loop. */
static void drained(void *arg)
{
    struct plugin_server *s = arg;
    timer_set(&s->over, 0);
}

void plugin_server_end(struct plugin_server *s)
{
    if (s->ending)
        return;
    s->ending = true;
    s->now = NULL; /* what was published may go away while calls end */
    timer_stop(&s->listen_again);
    timer_stop(&s->grace);
    if (s->registration)
        registration_stop(s->registration);
    end_before(s);
    while (s->n_streams > 0)
        grpc_finish(s->streams[--s->n_streams].call);
    if (s->listener)
        grpc_server_drain(s->listener->server, DRAIN_MS, drained, s);
    else
        drained(s);
}

const char *plugin_server_resource(const struct plugin_server *s)
{
    return s->resource;
}

const char *plugin_server_socket(const struct plugin_server *s)
{
    return s->socket;
}

struct plugin_status plugin_server_status(const struct plugin_server *s)
{
    const struct resource *r = current(s);
    struct plugin_status st = {
        .resource = s->resource,
        .registered = s->registration && registration_ok(s->registration),
        .stream_open = s->n_streams > 0,
        .devices = r->n_devices,
        .last_error = s->error,
    };
    for (size_t i = 0; i < r->n_devices; i++)
        st.healthy += r->devices[i].healthy;
    if (!st.last_error && s->registration)
        st.last_error = registration_error(s->registration);
    return st;
}
