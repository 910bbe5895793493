/* SPDX-License-Identifier: Apache-2.0 */
/* mete survey: what the driver says about this host, without an agent. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/host.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/output.h"
#include "data/json.h"
#include "gpu/memorynodes.h"
#include "gpu/worker.h"

static const struct opt options[] = {
    { .name = "host-root",
      .type = OPT_STRING,
      .env = { "METE_HOST_ROOT" },
      .deflt = "/",
      .value_name = "DIR",
      .help = "where this process sees the host's /proc, /sys and /dev" },
    { .name = "driver-root",
      .type = OPT_STRING,
      .aliases = { "nvidia-driver-root" },
      .env = { "NVIDIA_DRIVER_ROOT" },
      .deflt = "/",
      .value_name = "DIR",
      .help = "where the driver is installed, as a path of the host" },
    { .name = "driver-root-ctr-path",
      .type = OPT_STRING,
      .aliases = { "container-driver-root" },
      .env = { "DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT" },
      .value_name = "DIR",
      .help = "where this process sees the driver root" },
    { .name = "dev-root",
      .type = OPT_STRING,
      .aliases = { "nvidia-dev-root" },
      .env = { "NVIDIA_DEV_ROOT" },
      .value_name = "DIR",
      .help = "the host's directory whose dev/ holds the device nodes; empty: the driver root" },
    { .name = "timeout",
      .type = OPT_DURATION,
      .deflt = "30s",
      .help = "how long the driver may take" },
    OUTPUT_OPTION,
    { 0 },
};

/* ---- pieces of text ---- */

/* nvidia-smi's form: "00000000:1B:00.0". */
static void bus_id(const struct gpu *g, char *ret, size_t size)
{
    size_t domain = strcspn(g->pci, ":");
    static const char zeros[] = "00000000";
    snprintf(ret, size, "%s%s", domain < 8 && g->pci[0] ? zeros + domain : "", g->pci);
    for (char *c = ret; *c; c++)
        *c = (char)toupper((unsigned char)*c);
}

static const char *mig_text(const struct gpu *g)
{
    if (!(g->valid & GPU_HAS_MIG))
        return "n/a";
    if (g->mig_current != g->mig_pending)
        return g->mig_pending ? "off (on after a reset)" : "on (off after a reset)";
    return g->mig_current ? "on" : "off";
}

static const char *state_text(const struct gpu *g)
{
    return g->lost ? g->lost_text : g->mig_text[0] ? g->mig_text : "ok";
}

static unsigned long long mib(uint64_t bytes)
{
    return bytes >> 20;
}

/* ---- table ---- */

static void print_part(const struct gpu *g, const struct part *p)
{
    char index[24], memory[32];
    snprintf(index, sizeof index, "%u:%u", g->index, p->slot);
    snprintf(memory, sizeof memory, "%llu MiB", (unsigned long long)p->memory_mb);
    printf("%-5s %-41s %-26s %-17s %-18s gi %u ci %u\n", index, p->uuid,
           p->profile[0] ? p->profile : "(profile not known)", "", memory, p->gi, p->ci);
}

static void print_gpu(const struct gpu *g)
{
    char bus[32], memory[48] = "not told", numa[16] = "-";
    bus_id(g, bus, sizeof bus);
    if (g->valid & GPU_HAS_MEMORY)
        snprintf(memory, sizeof memory, "%llu MiB%s", mib(g->memory_bytes),
                 g->valid & GPU_UNIFIED ? " shared" : "");
    if (g->valid & GPU_HAS_NUMA)
        snprintf(numa, sizeof numa, "%d", g->numa);
    printf("%-5u %-41s %-26s %-17s %-18s %-5s %-4s %s\n", g->index,
           g->uuid[0] ? g->uuid : "(not known)", g->name[0] ? g->name : "-", bus[0] ? bus : "-",
           memory, mig_text(g), numa, state_text(g));
    for (size_t i = 0; i < g->n_parts; i++)
        print_part(g, &g->parts[i]);
}

/* Memory nodes are read once a run. */
struct memory {
    struct memory_node nodes[MEMORY_NODES_MAX];
    size_t n;
};

static void print_memory_notes(const struct survey *s, const struct memory *m)
{
    char note[400];
    for (size_t i = 0; i < s->n_gpus; i++)
        if (memory_note(&s->gpus[i], m->nodes, m->n, note, sizeof note))
            printf("\ngpu %u: %s\n", s->gpus[i].index, note);
}

static void print_table(const struct survey *s, const struct memory *m)
{
    printf("driver %s", driver_state_name(s->driver));
    if (s->driver_version[0])
        printf(", version %s", s->driver_version);
    if (s->cuda_version)
        printf(", CUDA %d.%d", s->cuda_version / 1000, s->cuda_version % 1000 / 10);
    if (s->library[0])
        printf(", %s", s->library);
    printf(", platform %s\n", s->platform);
    if (s->n_gpus == 0) {
        puts("no gpus");
        return;
    }
    printf("\n%-5s %-41s %-26s %-17s %-18s %-5s %-4s %s\n", "GPU", "UUID", "NAME", "PCI", "MEMORY",
           "MIG", "NUMA", "STATE");
    for (size_t i = 0; i < s->n_gpus; i++)
        print_gpu(&s->gpus[i]);
    print_memory_notes(s, m);
}

/* ---- document ---- */

static void put_part(struct json_writer *w, const struct part *p)
{
    jw_map(w);
    jw_kv(w, "uuid", p->uuid);
    jw_kv_int(w, "slot", p->slot);
    jw_kv(w, "profile", p->profile);
    jw_kv_int(w, "gpuInstance", p->gi);
    jw_kv_int(w, "computeInstance", p->ci);
    if (p->memory_mb)
        jw_kv_int(w, "memoryMiB", (int64_t)p->memory_mb);
    if (p->valid & PART_HAS_ATTRIBUTES)
        jw_kv_int(w, "multiprocessors", p->multiprocessors);
    if (p->valid & PART_HAS_PLACEMENT) {
        jw_kv_int(w, "placementStart", p->placement_start);
        jw_kv_int(w, "placementSize", p->placement_size);
    }
    if (p->valid & PART_HAS_CAPS) {
        jw_kv_int(w, "gpuInstanceCap", p->gi_cap);
        jw_kv_int(w, "computeInstanceCap", p->ci_cap);
    }
    jw_end(w);
}

/* Numbers that are in the document only when the driver told them. */
static void put_numbers(struct json_writer *w, const struct gpu *g)
{
    const struct {
        uint32_t bit;
        const char *key;
        int64_t value;
    } numbers[] = {
        { GPU_HAS_MINOR, "minor", g->minor },
        { GPU_HAS_MODULE, "moduleId", g->module },
        { GPU_HAS_NUMA, "numaNode", g->numa },
        { GPU_HAS_RECOVERY, "recoveryAction", g->recovery_action },
        { GPU_HAS_ECC, "eccUncorrected", (int64_t)g->ecc_uncorrected },
        { GPU_HAS_REMAP, "remappedRowsPending", g->remap_pending },
        { GPU_HAS_REMAP, "remappedRowsFailed", g->remap_failed },
        { GPU_HAS_FABRIC, "fabricState", g->fabric_state },
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (g->valid & numbers[i].bit)
            jw_kv_int(w, numbers[i].key, numbers[i].value);
}

static const char *addressing_word(uint32_t mode)
{
    static const char *const words[] = { "none", "HMM", "ATS" };
    return mode < ARRAY_LEN(words) ? words[mode] : "unknown";
}

static void put_memory(struct json_writer *w, const struct gpu *g, const struct memory *m)
{
    char note[400];
    if (g->valid & GPU_HAS_MEMORY) {
        jw_kv_int(w, "memoryMiB", (int64_t)mib(g->memory_bytes));
        jw_kv(w, "memorySource", g->memory_source);
    }
    jw_kv_bool(w, "unifiedMemory", g->valid & GPU_UNIFIED);
    if (g->valid & GPU_HAS_ADDRESSING)
        jw_kv(w, "addressing", addressing_word(g->addressing));
    if (memory_note(g, m->nodes, m->n, note, sizeof note))
        jw_kv(w, "memoryNote", note);
}

static void put_gpu(struct json_writer *w, const struct gpu *g, const struct memory *m)
{
    char text[32];
    jw_map(w);
    jw_kv_int(w, "index", g->index);
    jw_kv(w, "uuid", g->uuid);
    jw_kv(w, "name", g->name);
    if (g->valid & GPU_HAS_SERIAL)
        jw_kv(w, "serial", g->serial);
    if (g->valid & GPU_HAS_PCI) {
        bus_id(g, text, sizeof text);
        jw_kv(w, "pciBusId", text);
        jw_kv(w, "pciAddress", g->pci);
        snprintf(text, sizeof text, "0x%08X", g->pci_device);
        jw_kv(w, "pciDeviceId", text);
    }
    put_memory(w, g, m);
    if (g->valid & GPU_HAS_CC) {
        snprintf(text, sizeof text, "%u.%u", g->cc_major, g->cc_minor);
        jw_kv(w, "computeCapability", text);
    }
    put_numbers(w, g);
    jw_kv_bool(w, "migCapable", g->valid & GPU_HAS_MIG);
    if (g->valid & GPU_HAS_MIG) {
        jw_kv(w, "migMode", g->mig_current ? "enabled" : "disabled");
        jw_kv(w, "migModePending", g->mig_pending ? "enabled" : "disabled");
    }
    jw_kv_bool(w, "monitored", g->valid & GPU_HAS_EVENTS);
    jw_kv(w, "state", g->lost ? "lost" : "ok");
    if (g->lost || g->mig_text[0])
        jw_kv(w, "reason", state_text(g));
    jw_key(w, "parts");
    jw_list(w);
    for (size_t i = 0; i < g->n_parts; i++)
        put_part(w, &g->parts[i]);
    jw_end(w);
    jw_end(w);
}

static void put_links(struct json_writer *w, const struct survey *s)
{
    jw_key(w, "links");
    jw_list(w);
    for (size_t a = 0; a < s->n_gpus; a++) {
        for (size_t b = a + 1; b < s->n_gpus; b++) {
            const struct gpu_link *l = survey_link(s, a, b);
            if (!l)
                continue;
            jw_map(w);
            jw_kv_int(w, "a", s->gpus[a].index);
            jw_kv_int(w, "b", s->gpus[b].index);
            if (l->ancestor != 255)
                jw_kv_int(w, "commonAncestor", l->ancestor);
            jw_kv_int(w, "nvlinks", l->nvlinks);
            jw_kv_bool(w, "throughSwitch", l->through_switch);
            jw_end(w);
        }
    }
    jw_end(w);
}

static int print_document(const struct opts *o, const struct survey *s, const struct memory *m)
{
    auto_buf out;
    buf_init(&out, 4 * 1024 * 1024);
    struct json_writer w;
    jw_init(&w, &out, 2);
    jw_map(&w);
    jw_key(&w, "driver");
    jw_map(&w);
    jw_kv(&w, "state", driver_state_name(s->driver));
    if (s->driver_text[0])
        jw_kv(&w, "cause", s->driver_text);
    jw_kv(&w, "version", s->driver_version);
    jw_kv(&w, "nvmlVersion", s->nvml_version);
    jw_kv_int(&w, "cudaVersion", s->cuda_version);
    jw_kv(&w, "library", s->library);
    jw_end(&w);
    jw_kv(&w, "platform", s->platform);
    jw_key(&w, "gpus");
    jw_list(&w);
    for (size_t i = 0; i < s->n_gpus; i++)
        put_gpu(&w, &s->gpus[i], m);
    jw_end(&w);
    put_links(&w, s);
    jw_end(&w);
    return output_document(o, &out, "mete survey");
}

/* ---- the command ---- */

static int driver_exit(const struct survey *s)
{
    if (s->driver == DRIVER_OK)
        return 0;
    struct error err;
    enum error_code code = strcmp(s->platform, "tegra") == 0   ? ERR_UNSUPPORTED
                           : s->driver == DRIVER_NO_PERMISSION ? ERR_DENIED
                                                               : ERR_UNAVAILABLE;
    error_set(&err, code, 0, "%s", s->driver_text);
    return command_fail("mete survey", &err);
}

static int show(const struct opts *o, const struct host *h, const struct survey *s)
{
    struct memory m;
    int code = 0;
    m.n = memory_nodes(h, m.nodes, MEMORY_NODES_MAX);
    if (output_table(o))
        print_table(s, &m);
    else
        code = print_document(o, s, &m);
    fflush(stdout);
    return code ? code : driver_exit(s);
}

static int run(int argc, char **argv)
{
    struct opts o;
    struct host h;
    struct error err;
    int code = 0;
    if (!command_begin(&cmd_survey, &o, argc, argv, 0, true, &code))
        return code;
    const struct host_config paths = {
        .root = opts_text(&o, "host-root"),
        .driver_root = opts_text(&o, "driver-root"),
        .driver_root_view = opts_text(&o, "driver-root-ctr-path"),
        .dev_root = opts_text(&o, "dev-root"),
    };
    int64_t ms = opts_int(&o, "timeout") / 1000000;
    int r = host_init(&h, &paths, &err);
    if (r == 0) {
        struct survey *s;
        r = ms > 0 ? gpu_survey_once(&h, ms, &s, &err)
                   : error_set(&err, ERR_INVALID, 0,
                               "--timeout %s must be at least 1ms; leave it out for 30s",
                               opts_text(&o, "timeout"));
        if (r == 0) {
            code = show(&o, &h, s);
            survey_unref(s);
        }
        host_done(&h);
    }
    opts_done(&o);
    return r < 0 ? command_fail("mete survey", &err) : code;
}

const struct command cmd_survey = {
    .name = "survey",
    .summary = "show this host's gpus as the driver tells them",
    .usage = "[options]",
    .text = "Starts a GPU worker, takes one survey and ends it; no agent is needed, and one that "
            "runs is "
            "not disturbed. Memory and bus ids read as in nvidia-smi. A gpu that does not answer "
            "is shown "
            "with the reason.\n\n"
            "The exit code is 0 when the driver is usable, else that of the cause: 5 not "
            "available, 7 not "
            "permitted, 8 not supported on this platform.",
    .options = options,
    .run = run,
};
