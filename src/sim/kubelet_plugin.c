/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugins of the small kubelet. As kubelet does it: within Register the plugin's socket is
 * dialled and its options are asked for; then Register is answered and ListAndWatch opened. A
 * second Register of the same resource replaces the first. When the stream or the connection ends
 * every device is unhealthy, and after the grace period the resource is gone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "data/kname.h"
#include "sim/kubelet_internal.h"
#include "wire/pbmsg.h"

static void dial(void *arg);

static bool name_is_file(const char *s)
{
    return s[0] && !strchr(s, '/') && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

void sim_register(struct grpc_call *call, struct str request, void *arg)
{
    struct sim_kubelet *k = arg;
    struct error err;
    auto_pb(dp_RegisterRequest) q = dp_RegisterRequest_init_zero;
    if (pbmsg_read(dp_RegisterRequest, request, GRPC_MESSAGE_MAX, &q, &err) < 0) {
        grpc_fail(call, GRPC_INTERNAL, "%s", err.text);
        return;
    }
    const char *version = pbmsg_text(q.version), *resource = pbmsg_text(q.resource_name);
    const char *file = pbmsg_text(q.endpoint);
    sim_event(k, "register", resource, "version %s endpoint %s pid %ld", version, file,
              (long)grpc_call_peer_pid(call));
    if (strcmp(version, "v1beta1") != 0) {
        grpc_fail(call, GRPC_UNKNOWN,
                  "requested API version \"%s\" is not supported by kubelet. Supported version is "
                  "[\"v1beta1\"]",
                  version);
        return;
    }
    if (kname_extended_resource(str_of(resource), &err) < 0) {
        grpc_fail(call, GRPC_UNKNOWN, "the ResourceName \"%s\" is invalid", resource);
        return;
    }
    if (!name_is_file(file)) {
        grpc_fail(call, GRPC_UNKNOWN, "the Endpoint \"%s\" is not a file name", file);
        return;
    }
    struct sim_endpoint *e = x_alloc(sizeof *e);
    e->k = k;
    e->resource = x_strdup(resource);
    e->file = x_strdup(file);
    e->path = x_printf("%s/%s", k->plugin_dir, file);
    e->registering = call;
    e->refused = k->refuse != NULL;
    e->deadline_ns = host_mono_ns(&k->host) + (k->register_ms + SIM_DIAL_MS) * 1000000;
    timer_init(&e->again, k->loop, dial, e);
    e->next = k->endpoints;
    k->endpoints = e;
    if (k->register_ms || e->refused)
        timer_set(&e->again, k->register_ms);
    else
        dial(e);
}

void sim_register_cancelled(struct grpc_call *call, void *arg)
{
    const struct sim_kubelet *k = arg;
    for (struct sim_endpoint *e = k->endpoints; e; e = e->next)
        if (e->registering == call)
            e->registering = NULL;
}

/* ---- devices ---- */

static int device_cmp(const void *a, const void *b)
{
    return strcmp(((const struct sim_device *)a)->id, ((const struct sim_device *)b)->id);
}

static void device_take(struct sim_device *to, const dp_Device *from)
{
    to->id = x_strdup(pbmsg_text(from->id));
    to->healthy = strcmp(pbmsg_text(from->health), "Healthy") == 0;
    for (size_t i = 0; from->has_topology && i < from->topology.nodes_count; i++)
        if (to->n_numa < SIM_NUMA_MAX)
            to->numa[to->n_numa++] = from->topology.nodes[i].id;
}

static void devices_replace(struct sim_resource *r, const dp_ListAndWatchResponse *list)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->devices[i].id);
    free(r->devices);
    r->n = 0;
    r->devices = x_alloc((list->devices_count + 1) * sizeof *r->devices);
    for (size_t i = 0; i < list->devices_count; i++)
        device_take(&r->devices[i], &list->devices[i]);
    qsort(r->devices, list->devices_count, sizeof *r->devices, device_cmp);
    for (size_t i = 0; i < list->devices_count; i++) { /* kubelet keeps a set */
        if (r->n > 0 && strcmp(r->devices[r->n - 1].id, r->devices[i].id) == 0)
            free(r->devices[i].id);
        else
            r->devices[r->n++] = r->devices[i];
    }
    r->lists++;
}

static void listed(void *arg, struct str message)
{
    struct sim_endpoint *e = arg;
    struct sim_resource *r = sim_resource_find(e->k, e->resource);
    if (e->dead || !r || r->endpoint != e)
        return;
    struct error err;
    auto_pb(dp_ListAndWatchResponse) list = dp_ListAndWatchResponse_init_zero;
    if (pbmsg_read(dp_ListAndWatchResponse, message, GRPC_MESSAGE_MAX, &list, &err) < 0) {
        sim_endpoint_lost(e, err.text);
        return;
    }
    devices_replace(r, &list);
    sim_event(e->k, "list", e->resource, "capacity %zu allocatable %zu", r->n,
              sim_resource_healthy(r));
    if (sim_checkpoint_write(e->k, &err) < 0)
        sim_event(e->k, "checkpoint-failed", NULL, "%s", err.text);
    sim_changed(e->k, r);
}

int sim_kubelet_forget(struct sim_kubelet *k, const char *resource, struct error *err)
{
    struct sim_resource *r = sim_resource_find(k, resource);
    if (!r)
        return error_set(err, ERR_NOT_FOUND, 0, "there is no resource %s", resource);
    for (size_t i = 0; i < r->n; i++)
        free(r->devices[i].id);
    r->n = 0;
    sim_event(k, "forgotten", resource, "kubelet lost its devices");
    sim_changed(k, r);
    return 0;
}

/* ---- the end of an endpoint ---- */

void sim_grace_over(void *arg)
{
    struct sim_resource *r = arg;
    for (size_t i = 0; i < r->n; i++)
        free(r->devices[i].id);
    r->n = 0;
    sim_event(r->k, "removed", r->name, "its plugin did not come back");
    sim_changed(r->k, r);
}

static void resource_lost(struct sim_resource *r)
{
    r->endpoint = NULL;
    for (size_t i = 0; i < r->n; i++)
        r->devices[i].healthy = false;
    timer_set(&r->grace, r->k->grace_ms);
    sim_changed(r->k, r);
}

void sim_endpoint_lost(struct sim_endpoint *e, const char *why)
{
    if (e->dead)
        return;
    e->dead = true;
    timer_stop(&e->again);
    if (e->registering)
        grpc_fail(steal(e->registering), GRPC_UNKNOWN, "%s", why);
    sim_event(e->k, e->established ? "plugin-gone" : "plugin-refused", e->resource, "%s: %s",
              e->file, why);
    struct sim_resource *r = sim_resource_find(e->k, e->resource);
    if (r && r->endpoint == e)
        resource_lost(r);
    timer_set(&e->k->reap_timer, 0);
}

/* Not within the client's own call-backs: those of open calls may still come, and end their
 * admissions; what is open after grpc_client_free hears no more. */
void sim_endpoints_reap(void *arg)
{
    struct sim_kubelet *k = arg;
    for (struct sim_endpoint **at = &k->endpoints; *at;) {
        struct sim_endpoint *e = *at;
        if (!e->dead) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        grpc_client_free(e->client);
        sim_admissions_fail(k, e, "kubelet gave it up");
        timer_done(&e->again);
        free(e->resource);
        free(e->path);
        free(e->file);
        free(e);
    }
}

static void stream_ended(void *arg, enum grpc_status status, const char *text)
{
    auto_free char *why = x_printf("ListAndWatch ended: status %d %s", status, text ? text : "");
    sim_endpoint_lost(arg, why);
}

/* Before it is established the open call tells more than the connection does. */
static void closed(void *arg, const struct error *why)
{
    struct sim_endpoint *e = arg;
    if (e->established)
        sim_endpoint_lost(e, why->text);
}

/* ---- dial, options, watch ---- */

static void established(struct sim_endpoint *e)
{
    struct sim_kubelet *k = e->k;
    struct error err;
    e->established = true;
    struct sim_resource *r = sim_resource_need(k, e->resource);
    struct sim_endpoint *old = r->endpoint;
    timer_stop(&r->grace);
    r->endpoint = e;
    if (old)
        sim_endpoint_lost(old, "another plugin registered the same resource");
    if (e->registering)
        grpc_reply(steal(e->registering), (struct str){ 0 });
    sim_event(k, "registered", e->resource, "endpoint %s preferred %d pre-start %d", e->file,
              e->preferred, e->pre_start);
    if (grpc_client_stream(e->client, "/v1beta1.DevicePlugin/ListAndWatch", (struct str){ 0 },
                           listed, stream_ended, e, &err) < 0)
        sim_endpoint_lost(e, err.text);
}

static void options_came(void *arg, enum grpc_status status, const char *text, struct str message)
{
    struct sim_endpoint *e = arg;
    struct error err;
    if (e->dead)
        return;
    if (status == GRPC_UNAVAILABLE && host_mono_ns(&e->k->host) < e->deadline_ns) {
        timer_set(&e->again, SIM_DIAL_AGAIN_MS);
        return;
    }
    auto_pb(dp_Options) o = dp_Options_init_zero;
    if (status != GRPC_OK) {
        auto_free char *why = x_printf("failed to dial device plugin %s: status %d %s", e->file,
                                       status, text ? text : "");
        sim_endpoint_lost(e, why);
    } else if (pbmsg_read(dp_Options, message, GRPC_MESSAGE_MAX, &o, &err) < 0) {
        sim_endpoint_lost(e, err.text);
    } else {
        e->preferred = o.get_preferred_allocation_available;
        e->pre_start = o.pre_start_required;
        established(e);
    }
}

static void dial(void *arg)
{
    struct sim_endpoint *e = arg;
    struct error err;
    if (e->refused) {
        sim_endpoint_lost(e, e->k->refuse ? e->k->refuse : "refused");
        return;
    }
    grpc_client_free(steal(e->client));
    int r = grpc_client_new(e->k->loop, e->path, closed, e, &e->client, &err);
    if (r == 0)
        r = grpc_client_call(e->client, "/v1beta1.DevicePlugin/GetDevicePluginOptions",
                             (struct str){ 0 }, SIM_DIAL_MS, options_came, e, &err);
    if (r == 0)
        return;
    if (host_mono_ns(&e->k->host) < e->deadline_ns)
        timer_set(&e->again, SIM_DIAL_AGAIN_MS);
    else
        sim_endpoint_lost(e, err.text);
}
