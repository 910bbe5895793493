/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's own account of itself, for `mete status`. */
#include <unistd.h>

#include "agent/internal.h"
#include "data/json.h"

enum { RESOURCES_SHOWN = 256 };

static void put_resources(const struct agent *a, struct json_writer *w)
{
    struct plugin_status rows[RESOURCES_SHOWN];
    size_t n = a->plugins ? plugin_set_status(a->plugins, rows, RESOURCES_SHOWN) : 0;
    jw_key(w, "resources");
    jw_list(w);
    for (size_t i = 0; i < n; i++) {
        jw_map(w);
        jw_kv(w, "name", rows[i].resource);
        jw_kv_int(w, "devices", (int64_t)rows[i].devices);
        jw_kv_int(w, "healthy", (int64_t)rows[i].healthy);
        jw_kv_bool(w, "registered", rows[i].registered);
        jw_kv_bool(w, "streamOpen", rows[i].stream_open);
        if (rows[i].last_error)
            jw_kv(w, "lastError", rows[i].last_error);
        jw_end(w);
    }
    jw_end(w);
}

/* Devices that are not offered, each with its reason; of a shared gpu only the first share. */
static void put_withdrawn(const struct agent *a, struct json_writer *w)
{
    jw_key(w, "notOffered");
    jw_list(w);
    for (size_t i = 0; a->inventory && i < a->inventory->n_resources; i++) {
        const struct resource *r = &a->inventory->resources[i];
        for (size_t d = 0; d < r->n_devices; d++) {
            const struct device *dev = &r->devices[d];
            if (dev->healthy || (dev->share != UINT32_MAX && dev->share != 0))
                continue;
            jw_map(w);
            jw_kv(w, "resource", r->name);
            jw_kv(w, "device", dev->base);
            jw_kv(w, "reason", dev->reason);
            jw_end(w);
        }
    }
    jw_end(w);
}

static void put_gpus(const struct agent *a, struct json_writer *w)
{
    jw_key(w, "gpus");
    jw_list(w);
    for (size_t i = 0; a->survey && i < a->survey->n_gpus; i++) {
        const struct gpu *g = &a->survey->gpus[i];
        const struct health_view v = health_gpu(a->health, g->uuid);
        jw_map(w);
        jw_kv_int(w, "index", g->index);
        jw_kv(w, "uuid", g->uuid);
        jw_kv(w, "name", g->name);
        jw_kv(w, "owner", a->ledger ? owner_name(ledger_owner(a->ledger, g->uuid)) : "unknown");
        jw_kv(w, "health",
              v.state == HEALTH_OK          ? "ok"
              : v.state == HEALTH_UNHEALTHY ? "unhealthy"
                                            : "unknown");
        if (v.reason) {
            jw_kv(w, "reason", v.reason);
            jw_kv(w, "text", v.text);
        }
        jw_end(w);
    }
    jw_end(w);
}

void agent_status(const struct agent *a, struct buf *out)
{
    struct json_writer w;
    jw_init(&w, out, 0);
    jw_map(&w);
    jw_kv(&w, "version", METE_VERSION);
    jw_kv_int(&w, "pid", getpid());
    jw_kv_int(&w, "workerPid", a->worker ? gpu_worker_pid(a->worker) : 0);
    jw_kv_int(&w, "uptimeSeconds", (host_mono_ns(&a->host) - a->began_ns) / 1000000000);
    jw_kv(&w, "driver", a->survey ? driver_state_name(a->survey->driver) : "not surveyed yet");
    jw_kv(&w, "driverVersion", a->survey ? a->survey->driver_version : "");
    jw_kv(&w, "config", a->config->source ? a->config->source : "");
    if (a->refused)
        jw_kv(&w, "refused", a->refused);
    jw_kv_int(&w, "openGrants", a->ledger ? (int64_t)ledger_grants(a->ledger) : 0);
    put_gpus(a, &w);
    put_resources(a, &w);
    put_withdrawn(a, &w);
    jw_end(&w);
}
