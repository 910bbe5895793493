/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/models.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/nvml_abi.h"
#include "sim/boards.h"

#define MIB (UINT64_C(1) << 20)
uint64_t sim_hash(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void sim_uuid(uint64_t seed, uint64_t tag, char ret[37])
{
    uint64_t a = sim_hash(sim_hash(seed) ^ tag), b = sim_hash(a ^ UINT64_C(0x5eed));
    snprintf(ret, 37, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32),
             (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xfff,
             (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
             (unsigned long long)(b & UINT64_C(0xffffffffffff)));
}

const struct sim_geometry *sim_geometry_of(const struct sim_gpu *g)
{
    return g->geometry < 0 ? NULL : &sim_geometries[g->geometry];
}

static int32_t geometry_index(const char *key)
{
    for (size_t i = 0; key && i < n_sim_geometries; i++)
        if (strcmp(sim_geometries[i].key, key) == 0)
            return (int32_t)i;
    return -1;
}

/* A fixed disorder of 0..n-1, different for each seed and never the identity: so that nobody gets
 * away with taking index, minor, module or bus order for one another. */
static void disorder(uint32_t *p, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        p[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        seed = sim_hash(seed);
        uint32_t j = (uint32_t)(seed % i), x = p[i - 1];
        p[i - 1] = p[j];
        p[j] = x;
    }
    bool same = n > 1;
    for (uint32_t i = 0; i < n; i++)
        same = same && p[i] == i;
    if (same) {
        memmove(p, p + 1, (n - 1) * sizeof(*p));
        p[n - 1] = 0;
    }
}

static const struct model *find_model(const char *key)
{
    for (size_t i = 0; i < n_sim_models; i++)
        if (strcmp(sim_models[i].key, key) == 0)
            return &sim_models[i];
    return NULL;
}

static int unknown(const char *what, const char *got, const char *const *known, size_t n,
                   struct error *err)
{
    char list[320] = "";
    for (size_t i = 0, at = 0; i < n && at < sizeof(list); i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "", known[i]);
    const char *near = str_nearest(str_of(got), known, n);
    if (near)
        return error_set(err, ERR_INVALID, 0,
                         "there is no %s \"%.40s\", did you mean \"%s\"? Known: %s", what, got,
                         near, list);
    return error_set(err, ERR_INVALID, 0, "there is no %s \"%.40s\"; known: %s", what, got, list);
}

static int choose(const struct sim_create *c, const struct model **ret_model,
                  const struct host_profile **ret_profile, struct error *err)
{
    const char *names[32]; /* more than either table has */
    *ret_profile = NULL;
    for (size_t i = 0; c->profile && i < n_sim_host_profiles && i < ARRAY_LEN(names); i++) {
        names[i] = sim_host_profiles[i].key;
        if (strcmp(sim_host_profiles[i].key, c->profile) == 0)
            *ret_profile = &sim_host_profiles[i];
    }
    if (c->profile && !*ret_profile)
        return unknown("profile", c->profile, names, n_sim_host_profiles, err);
    if (c->profile && c->model)
        return error_set(err, ERR_INVALID, 0,
                         "a profile has a model of its own (%s): give either a profile or a model",
                         (*ret_profile)->model);
    const char *key = *ret_profile ? (*ret_profile)->model : c->model ? c->model : "h100-sxm";
    *ret_model = find_model(key);
    for (size_t i = 0; i < n_sim_models && i < ARRAY_LEN(names); i++)
        names[i] = sim_models[i].key;
    return *ret_model ? 0 : unknown("model", key, names, n_sim_models, err);
}

static void board(struct sim_gpu *g, const struct model *m)
{
    *g = (struct sim_gpu){
        .present = 1,
        .pci_id = m->pci_id,
        .subsystem = m->subsystem,
        .pci_class = 0x030200,
        .brand = m->brand,
        .arch = m->arch,
        .cc_major = m->cc_major,
        .cc_minor = m->cc_minor,
        .memory_total = m->memory_mib * MIB,
        .memory_reserved = m->reserved_mib * MIB,
        .bar1_total = m->bar1_mib * MIB,
        .has_ecc = m->ecc,
        .ecc_current = m->ecc,
        .ecc_pending = m->ecc,
        .has_remap = m->remap,
        .remap_banks = m->arch >= NV_ARCH_BLACKWELL ? 3840
                       : m->remap                   ? 2560
                                                    : 0,
        .geometry = geometry_index(m->geometry),
        .mig_capable = m->geometry != NULL,
        .mig_cold = m->mig_cold,
        .has_fabric = m->fabric,
        .has_addressing = 1,
        .addressing = m->addressing,
        .has_c2c = m->c2c,
        .unified = m->unified,
        .virtualization = NV_VIRTUAL_NONE,
        .persistence = 1,
        .power_mw = m->power_limit_w ? m->power_limit_w * 100 : 4500,
        /* As on a host that has been up for hours: what a reset takes away is then to be seen. */
        .energy_mj = 1000000000,
        .power_limit_mw = m->power_limit_w * 1000,
        .has_power_limit = m->power_limit_w != 0,
        .temperature = 33,
        .memory_temperature = 38,
        .has_fan = m->fan,
        .sm_clock = 345,
        .sm_clock_max = m->sm_clock,
        .memory_clock = m->memory_clock,
        .clock_reasons = NV_REASON_IDLE,
        .pcie_generation = m->pcie,
        .pcie_generation_max = m->pcie,
        .pcie_width = 16,
        .pcie_width_max = 16,
        .multiprocessors = m->multiprocessors,
        .copy_engines = m->copy_engines,
        .n_links = m->links,
        .link_version = m->link_version,
    };
    snprintf(g->name, sizeof(g->name), "%s", m->name);
    snprintf(g->part_number, sizeof(g->part_number), "%s", m->part);
    snprintf(g->vbios, sizeof(g->vbios), "%s", m->vbios);
    snprintf(g->inforom, sizeof(g->inforom), "%.4s.%.4s.02.02", m->part[0] ? m->part + 5 : "G000",
             m->part[0] ? m->part + 10 : "0000");
    if (m->unified)
        g->memory_mode = SIM_MEMORY_UNSUPPORTED;
    if (m->fabric) {
        g->fabric_state = NV_FABRIC_COMPLETED;
        g->fabric_health = m->arch >= NV_ARCH_BLACKWELL ? NV_FABRIC_HEALTH_GOOD : 0;
        g->fabric_summary = m->arch >= NV_ARCH_BLACKWELL ? NV_FABRIC_SUMMARY_HEALTHY : 0;
    }
    g->event_mask = NV_EVENT_XID | NV_EVENT_PSTATE | NV_EVENT_CLOCK;
    if (m->ecc)
        g->event_mask |= NV_EVENT_ECC_SINGLE | NV_EVENT_ECC_DOUBLE;
    if (m->geometry)
        g->event_mask |= NV_EVENT_MIG_CONFIG;
}

void sim_driver_features(struct sim_world *w)
{
    const uint32_t newer = NV_EVENT_UNAVAILABLE | NV_EVENT_RECOVERY;
    unsigned major = 0;
    sscanf(w->driver_version, "%4u", &major);
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        struct sim_gpu *g = &w->gpus[i];
        g->event_mask = major >= 570 ? g->event_mask | newer : g->event_mask & ~newer;
        g->has_addressing = major >= 560;
    }
}

/* The gpu on the other end of a bridge; SIM_GPUS_MAX: none (an odd one out). */
static uint32_t bridged_to(const struct sim_world *w, uint32_t i)
{
    for (uint32_t j = 0; j < w->n_gpus; j++)
        if (j != i && w->gpus[j].switch_group == w->gpus[i].switch_group)
            return j;
    return SIM_GPUS_MAX;
}

/* The first PCI bus from `bus` on where no gpu sits. */
static uint32_t free_bus(const struct sim_world *w, uint32_t bus)
{
    for (uint32_t i = 0; i < w->n_gpus; i++)
        if (w->gpus[i].domain == 0 && w->gpus[i].bus == bus)
            return free_bus(w, bus + 1);
    return bus;
}

static void link_up(struct sim_world *w, const struct model *m)
{
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        struct sim_gpu *g = &w->gpus[i];
        uint32_t peer = m->far_end == FAR_PAIR ? bridged_to(w, i) : 0;
        for (uint32_t l = 0; l < g->n_links; l++) {
            struct sim_link *link = &g->links[l];
            if (m->far_end == FAR_SWITCH)
                *link = (struct sim_link){ 1, NV_REMOTE_SWITCH, (uint8_t)(l % m->switches), 0 };
            else if (peer < SIM_GPUS_MAX)
                *link = (struct sim_link){ 1, NV_REMOTE_GPU, (uint8_t)peer, 0 };
            else
                *link = (struct sim_link){ .remote_type = NV_REMOTE_UNKNOWN };
        }
    }
    w->n_switches = m->far_end == FAR_SWITCH ? m->switches : 0;
    for (uint32_t s = 0; s < w->n_switches; s++)
        w->switches[s].bus = free_bus(w, s ? w->switches[s - 1].bus + 1 : 0x02);
    /* One gpu alone in a virtual machine sees no links and no fabric. */
    if (w->n_gpus == 1 && m->far_end == FAR_SWITCH) {
        w->gpus[0].has_fabric = 0;
        w->gpus[0].n_links = 0;
        w->n_switches = 0;
    }
}

/* Where the gpu with bus rank `rank` of `n` sits. Past eight gpus a further PCI domain begins. */
static void place(struct sim_gpu *g, const struct model *m, uint32_t rank, uint32_t n)
{
    uint32_t at = rank % 8, per_domain = n < 8 ? n : 8;
    g->domain = m->unified ? 0xf + rank / 8 : rank / 8;
    g->bus = m->buses[at];
    g->switch_group = rank / 2;
    g->numa = m->unified ? -1 : at * 2 < per_domain ? 0 : 1;
    snprintf(g->pci_root, sizeof(g->pci_root), "pci%04x:%02x", g->domain,
             m->far_end == FAR_PAIR ? m->buses[at & ~1u] - 1 : m->buses[at] - 1);
}

static void serial_and_uuid(struct sim_gpu *g, const struct sim_create *c, const struct model *m,
                            uint32_t i)
{
    uint64_t tag = sim_hash((uint64_t)(m - sim_models) << 32 | i);
    char uuid[37];
    sim_uuid(c->seed, tag, uuid);
    snprintf(g->uuid, sizeof(g->uuid), "GPU-%s", uuid);
    if (!m->unified)
        snprintf(g->serial, sizeof(g->serial), "165%010llu",
                 (unsigned long long)(sim_hash(tag ^ c->seed) % 10000000000u));
}

static void own_gpus(struct sim_world *w, const struct sim_create *c, const struct model *m)
{
    uint32_t n = w->n_gpus, bus[SIM_GPUS_MAX], minor[SIM_GPUS_MAX], module[SIM_GPUS_MAX];
    disorder(bus, n, c->seed ^ 0xb05);
    disorder(minor, n, c->seed ^ 0x111);
    disorder(module, n, c->seed ^ 0x70d);
    for (uint32_t i = 0; i < n; i++) {
        struct sim_gpu *g = &w->gpus[i];
        board(g, m);
        place(g, m, bus[i], n);
        g->minor = minor[i];
        g->module = m->modules[0] == 0 ? 0 : n <= 8 ? m->modules[bus[i]] : module[i] + 1;
        serial_and_uuid(g, c, m, i);
    }
}

static void recorded_gpus(struct sim_world *w, const struct sim_create *c, const struct model *m,
                          const struct host_profile *p)
{
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        struct sim_gpu *g = &w->gpus[i];
        board(g, m);
        serial_and_uuid(g, c, m, i);
        if (p->name)
            snprintf(g->name, sizeof(g->name), "%s", p->name);
        if (p->memory_mib)
            g->memory_total = p->memory_mib * MIB;
        snprintf(g->uuid, sizeof(g->uuid), "%s%x", p->uuid, (i + (p->real ? 5 : 0)) & 0xf);
        g->domain = i / 8;
        g->bus = p->buses[i % 8];
        g->device = p->real ? 6 : 0;
        g->numa = p->numa[i % 8];
        g->switch_group = i / 2;
        snprintf(g->pci_root, sizeof(g->pci_root), "pci%04x:%02x", g->domain,
                 p->real                      ? 0
                 : p->roots[0] || p->roots[2] ? p->roots[i % 8]
                                              : g->bus);
        g->minor = i;
        g->module = p->real ? 5 : i;
        if (!p->real) {
            g->pci_id = 0x233010DE;
            g->memory_reserved = 0;
            g->mig_capable = 1;
            g->has_fabric = p->clique;
            g->fabric_cluster[15] = p->clique;
            if (p->clique)
                g->fabric_state = NV_FABRIC_COMPLETED;
        } else {
            /* Memory as measured: not a whole number of MiB. */
            g->memory_total = UINT64_C(150754820096);
            g->memory_reserved = UINT64_C(644939776);
            g->virtualization = NV_VIRTUAL_PASSTHROUGH;
        }
        g->mig_current = g->mig_pending = p->mig_on;
    }
}

static int layout(struct sim_world *w, const struct sim_create *c, const struct model *m,
                  const struct host_profile *p, struct error *err)
{
    const char *root = c->driver_root ? c->driver_root : p && p->driver_root ? p->driver_root : "/";
    if (root[0] != '/' || strstr(root, "/../") || strlen(root) >= sizeof(w->driver_root))
        return error_set(
            err, ERR_INVALID, 0,
            "driver root \"%.60s\" must be an absolute path below the host directory, as "
            "\"/run/nvidia/driver\"",
            root);
    snprintf(w->driver_root, sizeof(w->driver_root), "%s", strcmp(root, "/") == 0 ? "" : root);
    size_t n = strlen(w->driver_root);
    while (n > 0 && w->driver_root[n - 1] == '/')
        w->driver_root[--n] = 0;
#if defined(__aarch64__)
    const char *lib = "/usr/lib/aarch64-linux-gnu";
#else
    const char *lib = "/usr/lib/x86_64-linux-gnu";
#endif
    /* A containerised driver keeps its libraries where the distribution of its image has them. */
    snprintf(w->lib_dir, sizeof(w->lib_dir), "%s", p ? p->lib_dir : n ? "/usr/lib64" : lib);
    snprintf(w->bin_dir, sizeof(w->bin_dir), "%s", p ? p->bin_dir : "/usr/bin");
    snprintf(w->model, sizeof(w->model), "%s", m->key);
    snprintf(w->profile, sizeof(w->profile), "%s", p ? p->key : "");
    snprintf(w->product, sizeof(w->product), "%s",
             p && !p->real ? "Test Machine 9000 (rev. B)"
             : m->unified  ? "NVIDIA DGX Spark"
                           : "Mete Lab Host");
    w->nodes = c->nodes;
    w->bare = p && !p->real;
    w->no_sysfs_gpus = p && p->no_sysfs;
    w->major_uvm = p ? p->major_uvm : 510;
    w->major_caps = p ? p->major_caps : 236;
    w->major_imex = p ? p->major_imex : 235;
    w->major_switch = 237;
    return 0;
}

static void driver(struct sim_world *w, const struct sim_create *c, const struct model *m,
                   const struct host_profile *p)
{
    snprintf(w->driver_version, sizeof(w->driver_version), "%s",
             c->driver_version ? c->driver_version
             : p && p->driver  ? p->driver
                               : m->driver);
    w->cuda_version = p && p->cuda ? p->cuda : m->cuda;
    snprintf(w->nvml_version, sizeof(w->nvml_version), "%d.%s", w->cuda_version / 1000,
             w->driver_version);
    w->driver = SIM_DRIVER_LOADED;
    w->driver_epoch = 1;
    w->loaded_ns = sim_now_ns();
}

static void numa_nodes(struct sim_world *w)
{
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        uint32_t node = w->gpus[i].numa < 0 ? 0 : (uint32_t)w->gpus[i].numa;
        uint32_t k = 0;
        while (k < w->n_numa && w->numa_nodes[k] != node)
            k++;
        if (k == w->n_numa && w->n_numa < ARRAY_LEN(w->numa_nodes))
            w->numa_nodes[w->n_numa++] = node;
    }
    /* The cores of node k are k * 16 .. k * 16 + 15. */
    w->n_cpus = 16;
    for (uint32_t k = 0; k < w->n_numa; k++)
        w->n_cpus = MAX(w->n_cpus, (w->numa_nodes[k] + 1) * 16);
}

int sim_world_init(struct sim_world *w, const struct sim_create *c, struct error *err)
{
    const struct model *m;
    const struct host_profile *p;
    int r = choose(c, &m, &p, err);
    if (r < 0)
        return r;
    memset(w, 0, sizeof(*w));
    w->n_gpus = c->gpus ? c->gpus : p ? p->gpus : m->usual;
    if (w->n_gpus > SIM_GPUS_MAX)
        return error_set(err, ERR_INVALID, 0, "%u gpus are too many for one host: at most %d",
                         w->n_gpus, SIM_GPUS_MAX);
    if (p && w->n_gpus > 16)
        return error_set(err, ERR_INVALID, 0, "profile %s has ids for at most 16 gpus", p->key);
    if ((r = layout(w, c, m, p, err)) < 0)
        return r;
    driver(w, c, m, p);
    if (p)
        recorded_gpus(w, c, m, p);
    else
        own_gpus(w, c, m);
    link_up(w, m);
    sim_driver_features(w);
    numa_nodes(w);
    w->next_serial = 1;
    w->system_memory = m->unified ? UINT64_C(127600000) * 1000 : UINT64_C(2048) << 30;
    sim_uuid(c->seed, 0xb007, w->boot_id);
    return 0;
}
