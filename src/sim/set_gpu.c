/* SPDX-License-Identifier: Apache-2.0 */
/* `mete sim set DIR gpu N ...` */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sim/set.h"

static struct sim_gpu *gpu(struct set *s)
{
    return &s->world->gpus[s->number];
}

/* ---- faults ---- */

/* What the driver itself recommends after an XID (field 230); codes as in the catalogue,
 * spec/nvml-and-cuda.md 5.2. Others leave the action alone. */
static const struct {
    uint16_t xid;
    uint16_t action;
} actions[] = {
    { 46, NV_RECOVERY_RESET },  { 48, NV_RECOVERY_DRAIN_RESET }, { 62, NV_RECOVERY_RESET },
    { 64, NV_RECOVERY_RESET },  { 79, NV_RECOVERY_REBOOT },      { 95, NV_RECOVERY_RESET },
    { 109, NV_RECOVERY_RESET }, { 110, NV_RECOVERY_RESET },      { 119, NV_RECOVERY_RESET },
    { 120, NV_RECOVERY_RESET }, { 136, NV_RECOVERY_RESET },      { 140, NV_RECOVERY_RESET },
    { 143, NV_RECOVERY_RESET }, { 155, NV_RECOVERY_RESET },      { 156, NV_RECOVERY_RESET },
    { 158, NV_RECOVERY_RESET },
};

static void recommend(struct set *s, uint32_t action)
{
    struct sim_gpu *g = gpu(s);
    if (g->recovery_action == action)
        return;
    g->recovery_action = action;
    sim_post(s->map, s->number, NV_EVENT_RECOVERY, action, NV_NO_INSTANCE, NV_NO_INSTANCE);
}

static int change_xid(struct set *s)
{
    uint32_t xid, gi, ci;
    int r = set_u32(s, "the XID", 1, 999, &xid);
    if (r == 0)
        r = set_instance(s, &gi, &ci);
    if (r < 0)
        return r;
    sim_post(s->map, s->number, NV_EVENT_XID, xid, gi, ci);
    for (size_t i = 0; i < ARRAY_LEN(actions); i++)
        if (actions[i].xid == xid && actions[i].action > gpu(s)->recovery_action)
            recommend(s, actions[i].action);
    return 0;
}

static int change_ecc(struct set *s)
{
    struct sim_gpu *g = gpu(s);
    uint32_t kind, n;
    int r = set_choice(s, "the kind of error", "single|double|mode", &kind);
    if (r == 0 && !g->has_ecc)
        return error_set(s->err, ERR_UNSUPPORTED, 0, "gpu %u (%s) has no ECC", s->number, g->name);
    if (r == 0 && kind == 2) {
        uint32_t off;
        r = set_choice(s, "the ECC mode", "on|off", &off);
        if (r == 0)
            g->ecc_pending = !off; /* comes into force with the next reset */
        return r;
    }
    if (r == 0)
        r = set_u32(s, "the number of errors", 1, 1000000, &n);
    if (r < 0)
        return r;
    g->ecc[kind][NV_ECC_VOLATILE] += n;
    g->ecc[kind][NV_ECC_AGGREGATE] += n;
    sim_post(s->map, s->number, kind == 0 ? NV_EVENT_ECC_SINGLE : NV_EVENT_ECC_DOUBLE, n,
             NV_NO_INSTANCE, NV_NO_INSTANCE);
    return 0;
}

static int change_lost(struct set *s)
{
    struct sim_gpu *g = gpu(s);
    if (!g->lost)
        g->lost_count++;
    g->lost = 1;
    s->trees = true;
    if (g->event_mask & NV_EVENT_UNAVAILABLE)
        sim_post(s->map, s->number, NV_EVENT_UNAVAILABLE, 0, NV_NO_INSTANCE, NV_NO_INSTANCE);
    return 0;
}

static void drop_faults_of(struct sim_world *w, uint32_t number)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_faults; i++)
        if (w->faults[i].gpu != (int32_t)number)
            w->faults[n++] = w->faults[i];
    memset(&w->faults[n], 0, (w->n_faults - n) * sizeof(*w->faults));
    w->n_faults = n;
}

static int change_reset(struct set *s)
{
    struct sim_gpu *g = gpu(s);
    if (!g->present)
        return error_set(s->err, ERR_CONFLICT, 0,
                         "gpu %u is pulled out; \"gpu %u present\" puts it back", s->number,
                         s->number);
    g->lost = g->handle_code = 0;
    g->ecc[NV_ECC_CORRECTED][NV_ECC_VOLATILE] = g->ecc[NV_ECC_UNCORRECTED][NV_ECC_VOLATILE] = 0;
    g->ecc_current = g->ecc_pending;
    g->remap_pending = 0;
    g->resets++;
    g->energy_mj = 0;
    g->energy_from_ns = sim_now_ns();
    memset(g->clients, 0, sizeof(g->clients));
    for (uint32_t l = 0; l < g->n_links; l++)
        g->links[l].active = g->links[l].remote_type != NV_REMOTE_UNKNOWN;
    drop_faults_of(s->world, s->number);
    if (g->mig_pending != g->mig_current)
        sim_mig_apply(s->world, s->number);
    recommend(s, NV_RECOVERY_NONE);
    s->trees = true;
    return 0;
}

static int change_removed(struct set *s)
{
    struct sim_gpu *g = gpu(s);
    if (g->present)
        sim_post(s->map, UINT32_MAX, NV_SYSTEM_DRIVER_UNBIND, s->number, NV_NO_INSTANCE,
                 NV_NO_INSTANCE);
    g->lost_count += g->present;
    g->present = 0;
    s->trees = true;
    return 0;
}

static int change_present(struct set *s)
{
    struct sim_gpu *g = gpu(s);
    if (!g->present)
        sim_post(s->map, UINT32_MAX, NV_SYSTEM_DRIVER_BIND, s->number, NV_NO_INSTANCE,
                 NV_NO_INSTANCE);
    g->present = 1;
    g->lost = 0;
    s->trees = true;
    return 0;
}

static int change_handle(struct set *s)
{
    if (set_accept(s, "ok")) {
        gpu(s)->handle_code = 0;
        return 0;
    }
    return set_code(s, &gpu(s)->handle_code);
}

static int change_recovery(struct set *s)
{
    uint32_t action;
    int r = set_choice(s, "the recovery action", "none|reset|reboot|drain-p2p|drain-reset|imex",
                       &action);
    if (r == 0)
        recommend(s, action);
    return r;
}

static int change_remap(struct set *s)
{
    enum { CORRECTED, UNCORRECTED, PENDING, FAILED };
    struct sim_gpu *g = gpu(s);
    uint32_t *const members[] = { &g->remap_corrected, &g->remap_uncorrected, &g->remap_pending,
                                  &g->remap_failed };
    uint32_t which;
    int r =
        set_choice(s, "the kind of remapped row", "corrected|uncorrected|pending|failed", &which);
    if (r == 0 && !g->has_remap)
        return error_set(s->err, ERR_UNSUPPORTED, 0, "gpu %u (%s) does not remap rows", s->number,
                         g->name);
    return r < 0 ? r : set_u32(s, "the value", 0, which >= PENDING ? 1 : 10000, members[which]);
}

static int change_pages(struct set *s)
{
    struct sim_gpu *g = gpu(s);
    uint32_t *const members[] = { &g->retired_single, &g->retired_double, &g->retired_pending };
    uint32_t which;
    int r = set_choice(s, "the kind of retired page", "single|double|pending", &which);
    return r < 0 ? r : set_u32(s, "the value", 0, which == 2 ? 1 : 64, members[which]);
}

static int change_event(struct set *s)
{
    uint64_t mask, data;
    uint32_t gi, ci;
    int r = set_number(s, "the event type (one bit)", 1, 0x8000, &mask);
    if (r == 0)
        r = set_number(s, "the event's data", 0, UINT64_MAX, &data);
    if (r == 0)
        r = set_instance(s, &gi, &ci);
    if (r == 0)
        sim_post(s->map, s->number, mask, data, gi, ci);
    return r;
}

static int change_sram(struct set *s)
{
    uint32_t ok;
    int r = set_choice(s, "the SRAM error threshold", "exceeded|ok", &ok);
    if (r == 0)
        gpu(s)->sram_exceeded = !ok;
    return r;
}

/* ---- use ---- */

static int change_client(struct set *s)
{
    struct sim_gpu *g = gpu(s);
    struct sim_client c = { .kind = SIM_CLIENT_COMPUTE, .memory = 512 << 20 };
    if (set_accept(s, "none")) {
        memset(g->clients, 0, sizeof(g->clients));
        return 0;
    }
    int r = set_u32(s, "the process id", 1, INT_MAX, &c.pid);
    if (r == 0)
        r = set_instance(s, &c.gi, &c.ci);
    uint64_t mib;
    if (r == 0 && set_accept(s, "memory") &&
        (r = set_number(s, "the memory in MiB", 0, 1 << 20, &mib)) == 0)
        c.memory = mib << 20;
    if (r == 0 && set_accept(s, "kind"))
        r = set_choice(s, "the kind of client", "compute|graphics|mps", &c.kind);
    for (int i = 0; r == 0 && i < SIM_CLIENTS_MAX; i++)
        if (g->clients[i].pid == 0 || g->clients[i].pid == c.pid) {
            g->clients[i] = c;
            return 0;
        }
    return r < 0 ? r
                 : error_set(s->err, ERR_LIMIT, 0, "gpu %u has %d clients already", s->number,
                             SIM_CLIENTS_MAX);
}

static int change_memory(struct set *s)
{
    uint32_t mode;
    uint64_t mib;
    int r = set_choice(s, "the memory", "normal|unsupported|zero|used|total", &mode);
    if (r == 0 && mode > SIM_MEMORY_ZERO) {
        r = set_number(s, "the memory in MiB", 0, 16 << 20, &mib);
        if (r == 0)
            *(mode == 3 ? &gpu(s)->memory_used : &gpu(s)->memory_total) = mib << 20;
    } else if (r == 0) {
        gpu(s)->memory_mode = mode;
    }
    return r;
}

/* ---- figures ---- */

struct figure {
    const char *word, *what;
    size_t member;
    uint32_t min, max, factor;
    bool trees;
};
#define MEMBER(name) offsetof(struct sim_gpu, name)

static const struct figure figures[] = {
    { "minor", "the minor number", MEMBER(minor), 0, 253, 1, true },
    { "module", "the module id", MEMBER(module), 0, 255, 1, false },
    { "temperature", "the temperature in °C", MEMBER(temperature), 0, 150, 1, false },
    { "memory-temperature", "the temperature in °C", MEMBER(memory_temperature), 0, 150, 1, false },
    { "power", "the power in W", MEMBER(power_mw), 0, 5000, 1000, false },
    { "util", "the load in percent", MEMBER(util_gpu), 0, 100, 1, false },
    { "memory-util", "the load in percent", MEMBER(util_memory), 0, 100, 1, false },
    { "pstate", "the performance state", MEMBER(pstate), 0, 15, 1, false },
    { "pcie-generation", "the PCIe generation", MEMBER(pcie_generation), 1, 6, 1, true },
    { "pcie-width", "the PCIe width", MEMBER(pcie_width), 1, 16, 1, true },
    { "pcie-replays", "the number of replays", MEMBER(pcie_replays), 0, UINT32_MAX, 1, false },
    { "virtualization", "the mode (0 none, 1 passthrough, 2 vGPU)", MEMBER(virtualization), 0, 4, 1,
      false },
    { "pci-class", "the class, as 0x030200", MEMBER(pci_class), 0, 0xffffff, 1, true },
};

static int change_figure(struct set *s)
{
    const char *word = s->argv[s->at - 1];
    const struct figure *f = figures;
    while (strcmp(f->word, word) != 0)
        f++;
    uint32_t value;
    int r = set_u32(s, f->what, f->min, f->max, &value);
    if (r < 0)
        return r;
    value *= f->factor;
    memcpy((char *)gpu(s) + f->member, &value, sizeof(value));
    s->trees = s->trees || f->trees;
    return 0;
}

static int change_minor(struct set *s)
{
    int r = change_figure(s);
    for (uint32_t i = 0; r == 0 && i < s->world->n_gpus; i++)
        if (i != s->number && s->world->gpus[i].minor == gpu(s)->minor)
            return error_set(s->err, ERR_CONFLICT, 0, "minor %u belongs to gpu %u", gpu(s)->minor,
                             i);
    return r;
}

static int change_numa(struct set *s)
{
    s->trees = true;
    if (set_accept(s, "none")) {
        gpu(s)->numa = -1;
        return 0;
    }
    uint32_t node;
    int r = set_u32(s, "the NUMA node (or \"none\")", 0, 255, &node);
    if (r == 0)
        gpu(s)->numa = (int32_t)node;
    return r;
}

static int change_reasons(struct set *s)
{
    return set_number(s, "the bits of the clock reasons", 0, 0x1ff, &gpu(s)->clock_reasons);
}

static int change_energy(struct set *s)
{
    return set_number(s, "the energy in mJ", 0, UINT64_MAX, &gpu(s)->energy_mj);
}

static int change_persistence(struct set *s)
{
    uint32_t off;
    int r = set_choice(s, "the persistence mode", "on|off", &off);
    if (r == 0)
        gpu(s)->persistence = !off;
    return r;
}

static int change_compute_mode(struct set *s)
{
    return set_choice(s, "the compute mode",
                      "default|exclusive-thread|prohibited|exclusive-process",
                      &gpu(s)->compute_mode);
}

static int change_addressing(struct set *s)
{
    uint32_t mode;
    int r = set_choice(s, "the addressing mode", "none|hmm|ats|unsupported", &mode);
    if (r < 0)
        return r;
    gpu(s)->has_addressing = mode <= NV_ADDRESSING_ATS;
    gpu(s)->addressing = mode % 3;
    return 0;
}

static int change_link(struct set *s)
{
    struct sim_gpu *g = gpu(s);
    uint32_t link, what, errors;
    if (g->n_links == 0)
        return error_set(s->err, ERR_UNSUPPORTED, 0, "gpu %u (%s) has no NVLink", s->number,
                         g->name);
    int r = set_u32(s, "the link", 0, g->n_links - 1, &link);
    if (r == 0)
        r = set_choice(s, "what becomes of the link", "up|down|errors", &what);
    if (r == 0 && what == 2 && (r = set_u32(s, "the number of errors", 0, 255, &errors)) == 0)
        g->links[link].errors = (uint8_t)errors;
    else if (r == 0)
        g->links[link].active = what == 0;
    return r;
}

static int change_cluster(struct set *s)
{
    const char *text = set_peek(s);
    uint8_t bytes[16] = { 0 };
    unsigned n = 0, value;
    for (const char *p = text; p && *p && n < 16; p += 2) {
        p += *p == '-';
        if (sscanf(p, "%2x", &value) != 1 || !p[1])
            break;
        bytes[n++] = (uint8_t)value;
    }
    if (!text || n != 16 || strlen(text) != 36)
        return error_set(s->err, ERR_INVALID, 0, "the cluster \"%.40s\" must be a UUID",
                         text ? text : "");
    s->at++;
    memcpy(gpu(s)->fabric_cluster, bytes, sizeof(bytes));
    return 0;
}

static int change_fabric(struct set *s)
{
    struct sim_gpu *g = gpu(s);
    uint32_t state;
    int r =
        set_choice(s, "the fabric state", "unsupported|not-started|in-progress|completed", &state);
    if (r == 0)
        g->has_fabric = state != 0;
    if (r == 0)
        g->fabric_state = state;
    while (r == 0 && set_peek(s)) {
        uint32_t key;
        r = set_choice(s, "the part of the fabric", "status|clique|health|summary|cluster", &key);
        uint32_t *const members[] = { &g->fabric_status, &g->fabric_clique, &g->fabric_health,
                                      &g->fabric_summary };
        if (r == 0)
            r = key == 4 ? change_cluster(s) : set_u32(s, "the value", 0, UINT32_MAX, members[key]);
    }
    return r;
}

const struct set_word set_gpu_words[] = {
    { "xid", "XID [gi G [ci C]]", change_xid },
    { "lost", "", change_lost },
    { "reset", "", change_reset },
    { "removed", "", change_removed },
    { "present", "", change_present },
    { "handle", "CODE|ok", change_handle },
    { "recovery", "none|reset|reboot|drain-p2p|drain-reset|imex", change_recovery },
    { "ecc", "single|double COUNT, or: ecc mode on|off", change_ecc },
    { "remap", "corrected|uncorrected|pending|failed VALUE", change_remap },
    { "pages", "single|double|pending VALUE", change_pages },
    { "sram-threshold", "exceeded|ok", change_sram },
    { "event", "TYPE DATA [gi G [ci C]]", change_event },
    { "mig",
      "on|off, mig PROFILE[@START],..., mig destroy all, mig destroy gi G [ci C], mig create-gi "
      "PROFILE[@START], mig create-ci gi G SLICES[@START]",
      set_gpu_mig },
    { "client", "PID [gi G [ci C]] [memory MIB] [kind compute|graphics|mps], or: client none",
      change_client },
    { "memory", "normal|unsupported|zero, or: memory used|total MIB", change_memory },
    { "numa", "NODE|none", change_numa },
    { "minor", "MINOR", change_minor },
    { "module", "ID", change_figure },
    { "temperature", "C", change_figure },
    { "memory-temperature", "C", change_figure },
    { "power", "W", change_figure },
    { "util", "PERCENT", change_figure },
    { "memory-util", "PERCENT", change_figure },
    { "energy", "MJ", change_energy },
    { "pstate", "N", change_figure },
    { "clock-reasons", "BITS", change_reasons },
    { "pcie-generation", "N", change_figure },
    { "pcie-width", "N", change_figure },
    { "pcie-replays", "N", change_figure },
    { "pci-class", "CLASS", change_figure },
    { "virtualization", "N", change_figure },
    { "persistence", "on|off", change_persistence },
    { "compute-mode", "default|exclusive-thread|prohibited|exclusive-process",
      change_compute_mode },
    { "addressing", "none|hmm|ats|unsupported", change_addressing },
    { "link", "N up|down, or: link N errors COUNT", change_link },
    { "fabric",
      "unsupported|not-started|in-progress|completed [status|clique|health|summary N] [cluster "
      "UUID]",
      change_fabric },
};
const size_t n_set_gpu_words = ARRAY_LEN(set_gpu_words);
