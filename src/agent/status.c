/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's own account of itself, for `mete status`. */
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"
#include "data/json.h"

enum {
    RESOURCES_SHOWN = 256,
    SETTLING_S = 30, /* after kubelet's start the node may show old numbers: it writes its status
                        every 10 s, and lists reach it only now (kubernetes 114422) */
};

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

/* What was seen of a gpu and changed nothing. */
static void put_evidence(const struct agent *a, struct json_writer *w, const char *uuid)
{
    const struct health_evidence e = health_evidence(a->health, uuid);
    if (e.ecc_double)
        jw_kv_int(w, "doubleBitEccEvents", (int64_t)e.ecc_double);
    if (!e.passed_over)
        return;
    jw_kv_int(w, "xidsPassedOver", (int64_t)e.passed_over);
    jw_kv_int(w, "lastXidPassedOver", (int64_t)e.last_passed_over);
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
        }
        if (v.text)
            jw_kv(w, "text", v.text);
        put_evidence(a, w, g->uuid);
        jw_end(w);
    }
    jw_end(w);
}

/* Options that are not at their default, and where their values come from. */
static void put_config(const struct agent *a, struct json_writer *w)
{
    const struct plugin_config *c = a->config;
    bool off = c->health.disable_all && !c->health.enable_all && c->health.n_enabled == 0;
    jw_kv(w, "config", c->source ? c->source : "");
    jw_kv(w, "healthChecks", off ? "off" : "on");
    jw_key(w, "configValues");
    jw_list(w);
    for (size_t i = 0; i < a->opts.n; i++) {
        const struct opt_value *v = &a->opts.values[i];
        if (v->source == OPT_FROM_DEFAULT)
            continue;
        jw_map(w);
        jw_kv(w, "option", a->opts.table[i].name);
        jw_kv(w, "value", v->text);
        jw_kv(w, "origin", v->origin);
        jw_end(w);
    }
    jw_end(w);
}

static void put_kubelet(const struct agent *a, struct json_writer *w)
{
    struct stat st;
    if (!a->kubelet_socket[0])
        return;
    jw_key(w, "kubelet");
    jw_map(w);
    bool there = stat(a->kubelet_socket, &st) == 0;
    jw_kv_bool(w, "socket", there);
    if (there) {
        int64_t age = host_real_ns(&a->host) / 1000000000 - st.st_mtim.tv_sec;
        jw_kv_int(w, "socketAgeSeconds", age);
        jw_kv_bool(w, "settling", age >= 0 && age < SETTLING_S);
    }
    if (a->disagreement_told && a->disagreed)
        jw_kv(w, "disagrees", a->disagreed);
    jw_end(w);
}

static void put_finding(struct json_writer *w, const struct finding *f)
{
    jw_map(w);
    jw_kv(w, "id", f->id);
    jw_kv(w, "severity", severity_name(f->severity));
    jw_kv(w, "subject", f->subject);
    jw_kv(w, "cause", f->cause);
    jw_kv(w, "fix", f->fix);
    jw_end(w);
}

static void put_findings(const struct agent *a, struct json_writer *w)
{
    jw_key(w, "findings");
    jw_list(w);
    for (size_t i = 0; a->facts && i < a->facts->found.n; i++)
        put_finding(w, &a->facts->found.items[i]);
    for (size_t i = 0; a->inventory && i < a->inventory->notes.n; i++)
        put_finding(w, &a->inventory->notes.items[i]);
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
    put_config(a, &w);
    put_kubelet(a, &w);
    if (a->refused)
        jw_kv(&w, "refused", a->refused);
    jw_kv_int(&w, "openGrants", a->ledger ? (int64_t)ledger_grants(a->ledger) : 0);
    put_gpus(a, &w);
    put_resources(a, &w);
    put_withdrawn(a, &w);
    put_findings(a, &w);
    jw_end(&w);
}
