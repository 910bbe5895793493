/* SPDX-License-Identifier: Apache-2.0 */
/* `mete sim show DIR`: the world as JSON. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/json.h"
#include "sim/codes.h"
#include "sim/mig.h"
#include "sim/simstate.h"
#include "sim/tree.h"

static const char *name_of(const char *const *names, size_t n, uint32_t value)
{
    return value < n ? names[value] : "?";
}
#define NAME(names, value) name_of(names, ARRAY_LEN(names), value)

static void show_instances(struct json_writer *j, const struct sim_world *w, uint32_t i)
{
    const struct sim_geometry *geo = sim_geometry_of(&w->gpus[i]);
    jw_key(j, "gpuInstances");
    jw_list(j);
    for (int g = 0; geo && g < SIM_GI_MAX; g++) {
        const struct sim_gi *gi = &w->mig[i].gi[g];
        if (!gi->used)
            continue;
        jw_map(j);
        jw_kv_int(j, "id", gi->id);
        jw_kv(j, "profile", geo->profiles[gi->profile].name);
        jw_kv_int(j, "start", gi->start);
        jw_kv_int(j, "size", gi->size);
        jw_key(j, "computeInstances");
        jw_list(j);
        for (int c = 0; c < SIM_CI_MAX; c++) {
            const struct sim_ci *ci = &gi->ci[c];
            if (!ci->used)
                continue;
            jw_map(j);
            jw_kv_int(j, "id", ci->id);
            jw_kv_int(j, "slices", ci->size);
            jw_kv_int(j, "start", ci->start);
            jw_kv_int(j, "slot", ci->slot);
            jw_kv(j, "uuid", ci->uuid);
            jw_end(j);
        }
        jw_end(j);
        jw_end(j);
    }
    jw_end(j);
}

static void show_health(struct json_writer *j, const struct sim_gpu *g)
{
    static const char *const actions[] = { "none",      "reset",       "reboot",
                                           "drain-p2p", "drain-reset", "imex" };
    const struct sim_code *code = sim_code_of(g->handle_code);
    jw_kv_bool(j, "present", g->present);
    jw_kv_bool(j, "lost", g->lost);
    jw_kv(j, "handle", g->handle_code && code ? code->name : "ok");
    jw_kv_int(j, "resets", (int64_t)g->resets);
    jw_kv(j, "recoveryAction", NAME(actions, g->recovery_action));
    if (g->has_ecc) {
        jw_kv_int(j, "eccSingle", (int64_t)g->ecc[0][0]);
        jw_kv_int(j, "eccDouble", (int64_t)g->ecc[1][0]);
    }
}

static void show_clients(struct json_writer *j, const struct sim_gpu *g)
{
    jw_key(j, "clients");
    jw_list(j);
    for (int c = 0; c < SIM_CLIENTS_MAX; c++)
        if (g->clients[c].pid)
            jw_int(j, g->clients[c].pid);
    jw_end(j);
}

static void show_gpu(struct json_writer *j, const struct sim_world *w, uint32_t i)
{
    static const char *const memory[] = { "normal", "unsupported", "zero" };
    const struct sim_gpu *g = &w->gpus[i];
    char bdf[20];
    sim_bdf(g, bdf);
    jw_map(j);
    jw_kv_int(j, "gpu", i);
    jw_kv(j, "uuid", g->uuid);
    jw_kv(j, "name", g->name);
    jw_kv(j, "pci", bdf);
    jw_kv_int(j, "minor", g->minor);
    jw_kv_int(j, "module", g->module);
    jw_kv_int(j, "numa", g->numa);
    jw_kv_int(j, "memoryMiB", (int64_t)(g->memory_total >> 20));
    jw_kv(j, "memory", NAME(memory, g->memory_mode));
    show_health(j, g);
    jw_kv_bool(j, "migCapable", g->mig_capable);
    if (g->mig_capable) {
        jw_kv_bool(j, "mig", g->mig_current);
        jw_kv_bool(j, "migPending", g->mig_pending);
        show_instances(j, w, i);
    }
    show_clients(j, g);
    jw_end(j);
}

static void show_faults(struct json_writer *j, const struct sim_world *w)
{
    static const char *const kinds[] = { "none", "hang", "slow", "fail" };
    jw_key(j, "faults");
    jw_list(j);
    for (uint32_t i = 0; i < w->n_faults; i++) {
        const struct sim_fault *f = &w->faults[i];
        const struct sim_code *code = sim_code_of(f->value);
        jw_map(j);
        jw_kv(j, "call", f->call);
        jw_kv(j, "kind", NAME(kinds, f->kind));
        if (f->kind == SIM_FAULT_SLOW)
            jw_kv_int(j, "milliseconds", f->value);
        if (f->kind == SIM_FAULT_FAIL && code)
            jw_kv(j, "code", code->name);
        else if (f->kind == SIM_FAULT_FAIL)
            jw_kv_int(j, "code", f->value);
        if (f->gpu >= 0)
            jw_kv_int(j, "gpu", f->gpu);
        jw_end(j);
    }
    jw_end(j);
}

int sim_show(const char *dir, struct buf *out_json, struct error *err)
{
    static const char *const states[] = { "loaded", "unloaded", "mismatch" };
    auto_sim_map map;
    int r = sim_map_open(&map, dir, err);
    if (r < 0)
        return r;
    auto_free struct sim_world *w = x_alloc(sizeof(*w));
    uint64_t generation;
    sim_read(&map, 0, sizeof(*w), w, &generation);

    struct json_writer j;
    jw_init(&j, out_json, 2);
    jw_map(&j);
    jw_kv(&j, "model", w->model);
    jw_kv(&j, "profile", w->profile[0] ? w->profile : NULL);
    jw_kv_int(&j, "generation", (int64_t)generation);
    jw_kv_int(&j, "events", (int64_t)map.state->event_seq);
    jw_key(&j, "driver");
    jw_map(&j);
    jw_kv(&j, "state", NAME(states, w->driver));
    jw_kv(&j, "version", w->driver_version);
    jw_kv_int(&j, "cuda", w->cuda_version);
    jw_kv_int(&j, "loads", w->driver_epoch);
    jw_kv(&j, "root", w->driver_root[0] ? w->driver_root : "/");
    jw_kv(&j, "libraries", w->lib_dir);
    jw_kv(&j, "hiddenSymbols", w->hidden);
    jw_end(&j);
    jw_kv(&j, "bootId", w->boot_id);
    jw_kv(&j, "monitorCapability", w->monitor_deny ? "deny" : "allow");
    jw_kv_bool(&j, "movesMinor", w->moves_minor);
    jw_kv_int(&j, "switches", w->n_switches);
    jw_key(&j, "gpus");
    jw_list(&j);
    for (uint32_t i = 0; i < w->n_gpus; i++)
        show_gpu(&j, w, i);
    jw_end(&j);
    show_faults(&j, w);
    jw_end(&j);
    buf_ch(out_json, '\n');
    return buf_check(out_json, "the state of the simulated host", err);
}
