/* SPDX-License-Identifier: Apache-2.0 */
/* `mete sim set DIR ...`: reads one change word by word and makes it. Grammar: docs/lab.md. */
#include "sim/set.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "gpu/nvml_calls.h"
#include "sim/codes.h"
#include "sim/driver_files.h"
#include "sim/simstate.h"

/* ---- words ---- */

const char *set_peek(const struct set *s)
{
    return s->at < s->argc ? s->argv[s->at] : NULL;
}

bool set_accept(struct set *s, const char *word)
{
    const char *next = set_peek(s);
    if (!next || strcmp(next, word) != 0)
        return false;
    s->at++;
    return true;
}

static int wrong_word(struct set *s, const char *what, const char *const *known, size_t n)
{
    char list[400] = "";
    for (size_t i = 0, at = 0; i < n && at < sizeof(list); i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "", known[i]);
    const char *got = set_peek(s);
    if (!got)
        return error_set(s->err, ERR_INVALID, 0, "%s is missing; one of: %s", what, list);
    const char *near = str_nearest(str_of(got), known, n);
    if (near)
        return error_set(s->err, ERR_INVALID, 0,
                         "%s \"%.40s\" is not known, did you mean \"%s\"? There are: %s", what, got,
                         near, list);
    return error_set(s->err, ERR_INVALID, 0, "%s \"%.40s\" is not known; there are: %s", what, got,
                     list);
}

int set_choice(struct set *s, const char *what, const char *choices, uint32_t *ret)
{
    char text[200], *words[16];
    size_t n = 0;
    snprintf(text, sizeof(text), "%s", choices);
    for (char *p = text; p && n < ARRAY_LEN(words); n++) {
        words[n] = p;
        p = strchr(p, '|');
        if (p)
            *p++ = 0;
    }
    for (size_t i = 0; i < n; i++)
        if (set_accept(s, words[i])) {
            *ret = (uint32_t)i;
            return 0;
        }
    return wrong_word(s, what, (const char *const *)words, n);
}

int set_number(struct set *s, const char *what, uint64_t min, uint64_t max, uint64_t *ret)
{
    const char *got = set_peek(s);
    if (!got)
        return error_set(s->err, ERR_INVALID, 0, "%s is missing: a number from %llu to %llu", what,
                         (unsigned long long)min, (unsigned long long)max);
    struct str text = str_of(got);
    bool hex = str_starts(text, "0x");
    if (!(hex ? str_hex_to_u64(text, max, ret) : str_to_u64(text, max, ret)) || *ret < min)
        return error_set(s->err, ERR_INVALID, 0, "%s \"%.40s\" must be a number from %llu to %llu",
                         what, got, (unsigned long long)min, (unsigned long long)max);
    s->at++;
    return 0;
}

int set_u32(struct set *s, const char *what, uint32_t min, uint32_t max, uint32_t *ret)
{
    uint64_t value = 0;
    int r = set_number(s, what, min, max, &value);
    if (r == 0)
        *ret = (uint32_t)value;
    return r;
}

int set_code(struct set *s, uint32_t *ret)
{
    const char *got = set_peek(s), *names[64];
    for (size_t i = 0; i < n_sim_codes; i++) {
        names[i] = sim_codes[i].name;
        if (got && strcmp(got, sim_codes[i].name) == 0) {
            s->at++;
            *ret = sim_codes[i].value;
            return 0;
        }
    }
    uint64_t value = 0;
    if (got && str_to_u64(str_of(got), 999, &value)) {
        s->at++;
        *ret = (uint32_t)value;
        return 0;
    }
    return wrong_word(s, "the return code", names, n_sim_codes);
}

int set_instance(struct set *s, uint32_t *ret_gi, uint32_t *ret_ci)
{
    *ret_gi = *ret_ci = UINT32_MAX;
    int r =
        set_accept(s, "gi") ? set_u32(s, "the GPU instance's id", 0, SIM_GI_MAX - 1, ret_gi) : 0;
    if (r == 0 && *ret_gi != UINT32_MAX && set_accept(s, "ci"))
        r = set_u32(s, "the compute instance's id", 0, SIM_CI_MAX - 1, ret_ci);
    return r;
}

int set_lookup(struct set *s, const char *what, const struct set_word *words, size_t n,
               const struct set_word **ret)
{
    const char *names[48];
    for (size_t i = 0; i < n && i < ARRAY_LEN(names); i++) {
        names[i] = words[i].word;
        if (set_accept(s, words[i].word)) {
            *ret = &words[i];
            return 0;
        }
    }
    return wrong_word(s, what, names, MIN(n, ARRAY_LEN(names)));
}

/* Runs the row and adds its usage to what it says when it fails. */
static int run_word(struct set *s, const char *before, const struct set_word *w)
{
    int r = w->run(s);
    if (r == 0 && set_peek(s))
        r = error_set(s->err, ERR_INVALID, 0, "\"%.40s\" is one word too many", set_peek(s));
    if (r != -ERR_INVALID || !s->err)
        return r;
    struct error said = *s->err;
    return error_set(s->err, ERR_INVALID, 0, "%.300s; usage: %s%s%s%s", said.text, before, w->word,
                     w->usage[0] ? " " : "", w->usage);
}

/* ---- gpu N ... ---- */

static int run_gpu(struct set *s)
{
    const struct set_word *w;
    uint32_t first = 0, last = s->world->n_gpus - 1;
    int r = 0;
    if (!set_accept(s, "all")) {
        r = set_u32(s, "the gpu", 0, last, &first);
        last = first;
    }
    if (r == 0)
        r = set_lookup(s, "the change", set_gpu_words, n_set_gpu_words, &w);
    int at = s->at;
    for (s->number = first; r == 0 && s->number <= last; s->number++) {
        s->at = at;
        r = run_word(s, "gpu N ", w);
    }
    return r;
}

/* ---- driver ... ---- */

static void load_driver(struct set *s)
{
    struct sim_world *w = s->world;
    w->driver = SIM_DRIVER_LOADED;
    w->driver_epoch++;
    w->loaded_ns = sim_now_ns();
    for (uint32_t i = 0; i < w->n_gpus; i++)
        w->gpus[i].energy_mj = 0;
    s->trees = true;
}

static int driver_unload(struct set *s)
{
    s->world->driver = SIM_DRIVER_UNLOADED;
    s->trees = true;
    return 0;
}

static int driver_load(struct set *s)
{
    load_driver(s);
    return 0;
}

static int driver_mismatch(struct set *s)
{
    s->world->driver = SIM_DRIVER_MISMATCH;
    return 0;
}

static bool plain_version(const char *v)
{
    return v[0] && strlen(v) < sizeof(((struct sim_world *)0)->driver_version) &&
           strspn(v, "0123456789.") == strlen(v) && strchr(v, '.');
}

static int driver_version(struct set *s)
{
    struct sim_world *w = s->world;
    const char *version = set_peek(s);
    if (!version || !plain_version(version))
        return error_set(s->err, ERR_INVALID, 0,
                         "the version \"%.40s\" must be numbers and dots, as 580.159.04",
                         version ? version : "");
    s->at++;
    if (strcmp(version, w->driver_version) == 0)
        return 0;
    snprintf(s->renamed_from, sizeof(s->renamed_from), "%s", w->driver_version);
    snprintf(w->driver_version, sizeof(w->driver_version), "%s", version);
    snprintf(w->nvml_version, sizeof(w->nvml_version), "%d.%s", w->cuda_version / 1000, version);
    sim_driver_features(w);
    load_driver(s);
    return 0;
}

static int driver_cuda(struct set *s)
{
    uint32_t version;
    int r = set_u32(s, "the CUDA version (1000 * major + 10 * minor)", 1000, 99990, &version);
    if (r == 0)
        s->world->cuda_version = (int32_t)version;
    return r;
}

static const struct set_word driver_words[] = {
    { "unload", "", driver_unload },
    { "load", "", driver_load },
    { "reload", "", driver_load },
    { "mismatch", "", driver_mismatch },
    { "version", "VERSION", driver_version },
    { "cuda", "NUMBER", driver_cuda },
};

static int run_driver(struct set *s)
{
    const struct set_word *w;
    int r = set_lookup(s, "the change of the driver", driver_words, ARRAY_LEN(driver_words), &w);
    return r < 0 ? r : run_word(s, "driver ", w);
}

/* ---- call NAME ... ---- */

#define CALL_NAME(symbol, ...) #symbol,
static const char *const call_names[] = { NV_CALLS(CALL_NAME) };

static int call_name(struct set *s, const char **ret)
{
    const char *got = set_peek(s);
    if (!got)
        return error_set(s->err, ERR_INVALID, 0,
                         "the call's name is missing, as nvmlDeviceGetMemoryInfo_v2");
    size_t n = strlen(got);
    bool known = n < SIM_CALL_NAME_SIZE && n > 0 && got[n - 1] == '*';
    for (size_t i = 0; i < ARRAY_LEN(call_names) && !known; i++)
        known = strcmp(call_names[i], got) == 0;
    if (!known) {
        const char *near = str_nearest(str_of(got), call_names, ARRAY_LEN(call_names));
        return error_set(
            s->err, ERR_INVALID, 0,
            "there is no call \"%.60s\"%s%s%s (a name that ends in * means all that begin so)", got,
            near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    s->at++;
    *ret = got;
    return 0;
}

static void forget_faults(struct sim_world *w, const char *call, bool any_gpu, int32_t gpu)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_faults; i++) {
        const struct sim_fault *f = &w->faults[i];
        bool gone = (!call || strcmp(f->call, call) == 0) && (any_gpu || f->gpu == gpu);
        if (!gone)
            w->faults[n++] = *f;
    }
    memset(&w->faults[n], 0, (w->n_faults - n) * sizeof(*w->faults));
    w->n_faults = n;
}

static int run_call(struct set *s)
{
    enum { HANG, SLOW, FAIL, OK };
    static const uint32_t kinds[] = { SIM_FAULT_HANG, SIM_FAULT_SLOW, SIM_FAULT_FAIL,
                                      SIM_FAULT_NONE };
    struct sim_world *w = s->world;
    if (set_accept(s, "all")) {
        uint32_t only;
        int r = set_choice(s, "what becomes of all calls", "ok", &only);
        if (r == 0)
            forget_faults(w, NULL, true, -1);
        return r;
    }
    struct sim_fault f = { .gpu = -1 };
    const char *name;
    uint32_t kind, gpu;
    int r = call_name(s, &name);
    if (r == 0)
        r = set_choice(s, "what becomes of the call", "hang|slow|fail|ok", &kind);
    if (r == 0 && kind == SLOW)
        r = set_u32(s, "the delay in milliseconds", 1, 3600000, &f.value);
    if (r == 0 && kind == FAIL)
        r = set_code(s, &f.value);
    bool one = r == 0 && set_accept(s, "gpu");
    if (one && (r = set_u32(s, "the gpu", 0, w->n_gpus - 1, &gpu)) == 0)
        f.gpu = (int32_t)gpu;
    if (r < 0)
        return r;
    forget_faults(w, name, kind == OK && !one, f.gpu);
    if (kind == OK)
        return 0;
    if (w->n_faults == SIM_FAULTS_MAX)
        return error_set(s->err, ERR_LIMIT, 0,
                         "%d faults are set already; clear some with \"call all ok\"",
                         SIM_FAULTS_MAX);
    f.kind = kinds[kind];
    snprintf(f.call, sizeof(f.call), "%s", name);
    w->faults[w->n_faults++] = f;
    return 0;
}

/* ---- the rest ---- */

static int on_off(struct set *s, const char *what, uint32_t *ret)
{
    uint32_t off;
    int r = set_choice(s, what, "on|off", &off);
    if (r == 0)
        *ret = !off;
    return r;
}

static int run_monitor(struct set *s)
{
    return set_choice(s, "reading MIG instances", "allow|deny", &s->world->monitor_deny);
}

static int run_moves_minor(struct set *s)
{
    return on_off(s, "moving the minor with the MIG mode", &s->world->moves_minor);
}

static int run_lenient(struct set *s)
{
    uint32_t which, on;
    int r = set_choice(s, "the leniency", "magic|lost", &which);
    if (r == 0)
        r = on_off(s, "the leniency", &on);
    if (r == 0)
        s->world->leniency = (s->world->leniency & ~(1u << which)) | on << which;
    return r;
}

static int run_imex(struct set *s)
{
    s->trees = true;
    return set_u32(s, "the number of channels", 0, 2048, &s->world->imex_channels);
}

static int run_product(struct set *s)
{
    const char *name = set_peek(s);
    if (!name || strlen(name) >= sizeof(s->world->product))
        return error_set(s->err, ERR_INVALID, 0, "the product name must have 1 to %zu bytes",
                         sizeof(s->world->product) - 1);
    s->at++;
    snprintf(s->world->product, sizeof(s->world->product), "%s", name);
    s->trees = true;
    return 0;
}

/* What a reboot does: another boot id, volatile counters at zero, layouts gone; the MIG mode stays
 * only on boards that keep it (those that needed a reset for it). */
static int run_reboot(struct set *s)
{
    struct sim_world *w = s->world;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (const char *p = w->boot_id; *p; p++)
        h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    sim_uuid(h, 0xb007, w->boot_id);
    for (uint32_t i = 0; i < w->n_gpus; i++) {
        struct sim_gpu *g = &w->gpus[i];
        if (!g->mig_cold)
            g->mig_pending = 0;
        sim_mig_apply(w, i);
        g->lost = g->handle_code = g->recovery_action = 0;
        g->ecc[0][0] = g->ecc[1][0] = 0;
        g->resets++;
        memset(g->clients, 0, sizeof(g->clients));
    }
    forget_faults(w, NULL, true, -1);
    load_driver(s);
    return 0;
}

static const struct set_word words[] = {
    { "gpu", "N|all CHANGE...", run_gpu },
    { "driver", "unload|load|reload|mismatch|version VERSION|cuda NUMBER", run_driver },
    { "call", "NAME hang|slow MS|fail CODE|ok [gpu N], or: call all ok", run_call },
    { "monitor-cap", "allow|deny", run_monitor },
    { "moves-minor", "on|off", run_moves_minor },
    { "lenient", "magic|lost on|off", run_lenient },
    { "imex-channels", "N", run_imex },
    { "product", "NAME", run_product },
    { "reboot", "", run_reboot },
};

static int run(struct set *s)
{
    const struct set_word *w = NULL;
    int r = set_lookup(s, "the first word", words, ARRAY_LEN(words), &w);
    if (r < 0 || !w)
        return r;
    bool nested = w->run == run_gpu || w->run == run_driver;
    return nested ? w->run(s) : run_word(s, "", w);
}

int sim_set(const char *dir, int argc, char *const *argv, struct error *err)
{
    auto_sim_map map;
    struct set s = { .map = &map, .argc = argc, .argv = argv, .err = err };
    int r = sim_map_open(&map, dir, err);
    if (r == 0)
        r = sim_change(&map, &s.world, err);
    if (r < 0)
        return r;
    r = run(&s);
    if (r == 0 && s.renamed_from[0])
        r = sim_driver_files_rename(dir, s.world, s.renamed_from, err);
    if (r == 0 && s.trees)
        r = sim_tree_sync(dir, s.world, err);
    if (r < 0) {
        sim_abandon(&map);
        return r;
    }
    sim_commit(&map);
    return 0;
}
