/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/take.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

struct taker {
    const struct host *host;
    struct survey *before; /* NULL: nothing known */
    bool links_read;       /* by this worker, for before->gpus */
    bool own;              /* `before` was taken by this worker: its indices are this session's */
    bool wants_restart;
    uint64_t serial;
    const char *platform;
    char evidence[256];
};

struct taker *taker_new(const struct host *h)
{
    struct taker *t = x_alloc(sizeof *t);
    t->host = h;
    return t;
}

void taker_free(struct taker *t)
{
    if (!t)
        return;
    survey_unref(t->before);
    free(t);
}

void taker_seed(struct taker *t, struct survey *before)
{
    survey_unref(t->before);
    t->before = survey_ref(before);
    t->own = false;
    t->links_read = false;
}

bool taker_wants_restart(const struct taker *t)
{
    return t->wants_restart;
}

/* ---- the list under work ---- */

struct work {
    struct taker *t;
    struct survey *s;
    struct found found[SURVEY_GPUS_MAX];
    struct proc_gpu pci[SURVEY_GPUS_MAX]; /* functions that the kernel driver has */
    size_t n_pci;
    bool hidden_pci[SURVEY_GPUS_MAX]; /* those that are no loss: excluded, a display, no node */
};

static void free_work(struct work **w)
{
    free(*w);
}

static struct gpu *add_gpu(struct work *w, uint32_t index)
{
    if (w->s->n_gpus == SURVEY_GPUS_MAX)
        return NULL;
    struct found *f = &w->found[w->s->n_gpus];
    f->gpu = &w->s->gpus[w->s->n_gpus++];
    f->device = NULL;
    f->gpu->index = index;
    return f->gpu;
}

static bool listed_uuid(const struct work *w, const char *uuid)
{
    return uuid[0] && survey_gpu(w->s, uuid);
}

static bool listed_pci(const struct work *w, const char *pci)
{
    for (size_t i = 0; i < w->s->n_gpus; i++)
        if (pci[0] && strcmp(w->s->gpus[i].pci, pci) == 0)
            return true;
    return false;
}

static bool listed_index(const struct work *w, uint32_t index)
{
    for (size_t i = 0; i < w->s->n_gpus; i++)
        if (w->s->gpus[i].index == index)
            return true;
    return false;
}

/* Fills a lost gpu with what was known of it; index and loss stay. While it stays lost, a code that
 * only a reset ends is kept over one that may pass: its return is to count as that reset. */
static void recall(struct gpu *g, const struct gpu *old)
{
    struct gpu now = *g;
    *g = *old;
    g->index = now.index;
    if (!survey_loss_proves_reset(old->lost) || survey_loss_proves_reset(now.lost))
        g->lost = now.lost;
    memcpy(g->lost_text, now.lost_text, sizeof g->lost_text);
    free(now.parts);
    g->parts = NULL;
    g->n_parts = 0;
    if (old->n_parts == 0)
        return;
    g->parts = x_alloc(SURVEY_PARTS_MAX * sizeof *g->parts);
    memcpy(g->parts, old->parts, old->n_parts * sizeof *g->parts);
    g->n_parts = old->n_parts;
}

/* ---- gpus that answer ---- */

static bool is_display(const struct gpu *g)
{
    return strcmp(g->name, "DGX Display") == 0 || strcmp(g->name, "NVIDIA DGX Display") == 0;
}

static void hide_pci(struct work *w, const char *pci)
{
    for (size_t i = 0; i < w->n_pci; i++)
        if (strcmp(w->pci[i].pci, pci) == 0)
            w->hidden_pci[i] = true;
}

static void take_one(struct work *w, struct nvml *n, uint32_t index)
{
    struct gpu *g = add_gpu(w, index);
    if (!g)
        return;
    struct found *f = &w->found[w->s->n_gpus - 1];
    take_gpu(w->t->host, n, f);
    if (is_display(g)) {
        hide_pci(w, g->pci);
        w->s->n_gpus--;
        memset(g, 0, sizeof *g);
        return;
    }
    const struct gpu *same = g->uuid[0] ? survey_gpu(w->s, g->uuid) : NULL;
    if (same && same != g) {
        g->uuid[0] = '\0';
        g->lost = NV_E_UNKNOWN;
        snprintf(g->lost_text, sizeof g->lost_text, "NVML gives it the UUID of gpu %u",
                 same->index);
    }
    take_parts(n, f);
}

static bool fell(bool had, uint64_t old, bool has, uint64_t now)
{
    return had && has && now < old;
}

/* What is evidence of a reset: survey.h at `generation`. */
static void compare(struct work *w, struct gpu *g)
{
    const struct gpu *old = w->t->before ? survey_gpu(w->t->before, g->uuid) : NULL;
    if (!old)
        return;
    g->generation = old->generation;
    if (survey_loss_proves_reset(old->lost) ||
        fell(old->valid & GPU_HAS_ENERGY, old->energy_mj, g->valid & GPU_HAS_ENERGY,
             g->energy_mj) ||
        fell(old->valid & GPU_HAS_ECC, old->ecc_uncorrected, g->valid & GPU_HAS_ECC,
             g->ecc_uncorrected))
        g->generation++;
}

/* ---- gpus that do not ---- */

static bool in_proc(const struct work *w, const char *pci)
{
    for (size_t i = 0; i < w->n_pci; i++)
        if (strcmp(w->pci[i].pci, pci) == 0)
            return true;
    return false;
}

/* Of the gpus of `before` that this survey has not accounted for, the one of lowest address. */
static const struct gpu *lowest_missing(const struct work *w, bool only_in_proc)
{
    const struct survey *b = w->t->before;
    const struct gpu *lowest = NULL;
    for (size_t i = 0; b && i < b->n_gpus; i++) {
        const struct gpu *g = &b->gpus[i];
        if (!g->uuid[0] || listed_uuid(w, g->uuid) || listed_pci(w, g->pci) ||
            (only_in_proc && !in_proc(w, g->pci)))
            continue;
        if (!lowest || strcmp(g->pci, lowest->pci) < 0)
            lowest = g;
    }
    return lowest;
}

/* Within a session NVML does not renumber, and over sessions only when their number changes: the
 * index tells. Else the address is the best guess, since most drivers number by it. */
static const struct gpu *known_missing(const struct work *w, const struct gpu *lost)
{
    const struct survey *b = w->t->before;
    for (size_t i = 0; b && (w->t->own || w->s->n_gpus >= b->n_gpus) && i < b->n_gpus; i++)
        if (b->gpus[i].index == lost->index && !listed_uuid(w, b->gpus[i].uuid))
            return &b->gpus[i];
    if (w->t->own)
        return NULL;
    const struct gpu *g = lowest_missing(w, true);
    return g ? g : lowest_missing(w, false);
}

static const struct proc_gpu *pci_missing(const struct work *w)
{
    for (size_t i = 0; i < w->n_pci; i++)
        if (!w->hidden_pci[i] && !listed_pci(w, w->pci[i].pci) && !listed_uuid(w, w->pci[i].uuid))
            return &w->pci[i];
    return NULL;
}

static void fill_from_proc(struct gpu *g, const struct proc_gpu *p)
{
    memcpy(g->pci, p->pci, sizeof g->pci);
    memcpy(g->uuid, p->uuid, sizeof g->uuid);
    g->valid |= GPU_HAS_PCI;
    if (p->has_minor) {
        g->minor = p->minor;
        g->valid |= GPU_HAS_MINOR;
    }
}

/* Who is the gpu that could not be read? */
static void name_lost(struct work *w, struct gpu *g)
{
    const struct gpu *old = g->uuid[0] && w->t->before ? survey_gpu(w->t->before, g->uuid) : NULL;
    if (!g->uuid[0])
        old = known_missing(w, g);
    if (old) {
        recall(g, old);
        return;
    }
    const struct proc_gpu *p = g->uuid[0] ? NULL : pci_missing(w);
    if (p)
        fill_from_proc(g, p);
}

static uint32_t free_index(const struct work *w, uint32_t wanted)
{
    while (listed_index(w, wanted))
        wanted++;
    return wanted;
}

/* Functions that the kernel driver has, with a node for us, which NVML does not count. */
static void add_uncounted(struct work *w, uint32_t count)
{
    for (const struct proc_gpu *p; (p = pci_missing(w));) {
        struct gpu *g = add_gpu(w, free_index(w, count));
        if (!g)
            return;
        fill_from_proc(g, p);
        const struct gpu *old = w->t->before ? survey_gpu(w->t->before, g->uuid) : NULL;
        g->lost = NV_E_GPU_NOT_FOUND;
        snprintf(g->lost_text, sizeof g->lost_text,
                 "the kernel driver has it at %s, but NVML does not count it; see the kernel log",
                 g->pci);
        if (old)
            recall(g, old);
    }
}

/* Was the function given to another kernel driver on purpose, or is it unbound? */
static bool given_away(const struct host *h, const struct gpu *g)
{
    char driver[64];
    return g->pci[0] && sysfs_driver(h, g->pci, driver, sizeof driver) &&
           strcmp(driver, "nvidia") != 0;
}

/* Gpus known from before that are nowhere any more. They stay, as lost, so that somebody hears of
 * it; not those that another driver has now. `code` 0: NVML works and does not show them. */
static void add_vanished(struct work *w, int code, const char *text)
{
    const struct survey *b = w->t->before;
    for (size_t i = 0; b && i < b->n_gpus; i++) {
        const struct gpu *old = &b->gpus[i];
        if (!old->uuid[0] || listed_uuid(w, old->uuid) || listed_pci(w, old->pci) ||
            given_away(w->t->host, old))
            continue;
        struct gpu *g = add_gpu(w, free_index(w, old->index));
        if (!g)
            return;
        g->lost = code ? code : NV_E_GPU_NOT_FOUND;
        if (code)
            copy_text(g->lost_text, sizeof g->lost_text, text);
        else
            snprintf(g->lost_text, sizeof g->lost_text,
                     "it was there before, now the driver does not show it; see the kernel log "
                     "for %s",
                     old->pci[0] ? old->pci : "its address");
        recall(g, old);
    }
}

/* ---- the whole ---- */

static struct work *work_new(struct taker *t)
{
    struct work *w = x_alloc(sizeof *w);
    w->t = t;
    w->s = survey_new();
    w->s->gpus = x_alloc(SURVEY_GPUS_MAX * sizeof *w->s->gpus);
    w->s->serial = ++t->serial;
    w->s->taken_ns = host_mono_ns(t->host);
    w->n_pci = proc_gpus(t->host, w->pci, SURVEY_GPUS_MAX);
    for (size_t i = 0; i < w->n_pci; i++) {
        /* A gpu that this process may not use has no node here: it is somebody else's. */
        auto_free char *node =
            x_printf("%s/dev/nvidia%u",
                     strcmp(t->host->dev_root_view, "/") == 0 ? "" : t->host->dev_root_view,
                     w->pci[i].minor);
        w->hidden_pci[i] = w->pci[i].excluded || !w->pci[i].has_minor || !file_exists(node);
    }
    return w;
}

/* The lists `gpus` and `found` by index: what was added at the end may belong before. */
static void sort(struct work *w)
{
    struct survey *s = w->s;
    for (size_t i = 1; i < s->n_gpus; i++) {
        for (size_t k = i; k > 0 && s->gpus[k].index < s->gpus[k - 1].index; k--) {
            struct gpu g = s->gpus[k];
            s->gpus[k] = s->gpus[k - 1];
            s->gpus[k - 1] = g;
            nv_device d = w->found[k].device;
            w->found[k].device = w->found[k - 1].device;
            w->found[k - 1].device = d;
        }
    }
}

static void take_driver(struct survey *s, struct nvml *n)
{
    char text[NV_DRIVER_VERSION_SIZE] = "";
    int cuda = 0;
    if (NVML_CALL(n, NVML_NO_GPU, driver_version, text, sizeof text) == NV_OK)
        copy_word(s->driver_version, sizeof s->driver_version, text);
    text[0] = '\0';
    if (NVML_CALL(n, NVML_NO_GPU, nvml_version, text, sizeof text) == NV_OK)
        copy_word(s->nvml_version, sizeof s->nvml_version, text);
    if (NVML_CALL(n, NVML_NO_GPU, cuda_version, &cuda) == NV_OK && cuda > 0)
        s->cuda_version = cuda;
}

static void set_platform(struct work *w, struct nvml *n)
{
    struct taker *t = w->t;
    if (!t->platform)
        t->platform = platform_detect(t->host, t->evidence, sizeof t->evidence);
    const char *name = t->platform[0] ? t->platform : n ? "nvml" : "unknown";
    if (strcmp(name, "tegra") == 0 && n)
        name = "nvml"; /* a Tegra with a gpu of its own on PCI; see is_tegra */
    copy_word(w->s->platform, sizeof w->s->platform, name);
    if (n)
        copy_text(w->s->library, sizeof w->s->library, n->path);
}

/* Integrated gpus by name; or on a Tegra, when none has a PCI address (its NVML then knows next to
 * nothing of them). */
static bool is_tegra(const struct work *w)
{
    bool pci = false, named = false;
    for (size_t i = 0; i < w->s->n_gpus; i++) {
        named = named || platform_tegra_name(w->s->gpus[i].name);
        pci = pci || w->s->gpus[i].valid & GPU_HAS_PCI;
    }
    return named || (strcmp(w->t->platform, "tegra") == 0 && !pci);
}

static void set_tegra(struct work *w)
{
    struct survey *s = w->s;
    for (size_t i = 0; i < s->n_gpus; i++)
        free(s->gpus[i].parts);
    s->n_gpus = 0;
    s->driver = DRIVER_ERROR;
    copy_word(s->platform, sizeof s->platform, "tegra");
    snprintf(s->driver_text, sizeof s->driver_text,
             "not supported on Jetson: the gpu is integrated and cannot be handed out by this "
             "program (%s%s); use the vendor's device plugin on this node",
             w->t->evidence[0] ? "found " : "known by its name",
             w->t->evidence[0] ? w->t->evidence : "");
}

/* Links are read once, and again when a gpu answers that did not. */
static bool links_are_known(const struct work *w)
{
    const struct taker *t = w->t;
    for (size_t i = 0; i < w->s->n_gpus; i++) {
        const struct gpu *g = &w->s->gpus[i];
        const struct gpu *old = t->before ? survey_gpu(t->before, g->uuid) : NULL;
        if (!g->lost && (!old || old->lost))
            return false;
    }
    return t->links_read;
}

static bool restart_helps(const struct work *w)
{
    const struct survey *s = w->s;
    if (s->driver != DRIVER_OK)
        return strcmp(s->platform, "tegra") != 0;
    size_t lost = 0;
    bool again = false;
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        const struct gpu *old =
            w->t->own && w->t->before ? survey_gpu(w->t->before, g->uuid) : NULL;
        lost += g->lost != 0;
        again = again || (g->lost && old && old->lost && !sysfs_off_bus(w->t->host, g->pci));
    }
    return again || (lost > 0 && lost == s->n_gpus);
}

static struct survey *finish(struct work *w)
{
    struct taker *t = w->t;
    sort(w);
    t->wants_restart = restart_helps(w);
    survey_unref(t->before);
    t->before = survey_ref(w->s);
    t->own = true;
    return w->s;
}

static const struct {
    enum driver_state state;
    nv_return code; /* that stands for it at each gpu */
} absent_codes[] = {
    { DRIVER_NO_LIBRARY, NV_E_LIBRARY_NOT_FOUND },
    { DRIVER_BAD_LIBRARY, NV_E_LIBRARY_NOT_FOUND },
    { DRIVER_NOT_LOADED, NV_E_DRIVER_NOT_LOADED },
    { DRIVER_VERSION_MISMATCH, NV_E_VERSION_MISMATCH },
    { DRIVER_NO_PERMISSION, NV_E_NO_PERMISSION },
};

struct survey *taker_without_driver(struct taker *t, struct nvml *n, enum driver_state state,
                                    const char *text)
{
    __attribute__((cleanup(free_work))) struct work *w = work_new(t);
    struct survey *s = w->s;
    int code = NV_E_UNKNOWN;
    for (size_t i = 0; i < ARRAY_LEN(absent_codes); i++)
        if (absent_codes[i].state == state)
            code = (int)absent_codes[i].code;
    s->driver = state;
    copy_text(s->driver_text, sizeof s->driver_text, text);
    set_platform(w, n);
    if (!n && strcmp(t->platform, "tegra") == 0)
        set_tegra(w);
    else
        add_vanished(w, code, text);
    return finish(w);
}

/* All handles fail with a code that speaks of the driver, not of a gpu. */
static bool driver_is_gone(const struct survey *s)
{
    for (size_t i = 0; i < s->n_gpus; i++)
        if (s->gpus[i].lost != NV_E_UNINITIALIZED && s->gpus[i].lost != NV_E_DRIVER_NOT_LOADED)
            return false;
    return s->n_gpus > 0;
}

static struct survey *gone(struct taker *t, struct nvml *n, nv_return r)
{
    char text[160];
    bool unloaded = r == NV_E_UNINITIALIZED || r == NV_E_DRIVER_NOT_LOADED;
    snprintf(text, sizeof text, "NVML was started but does not answer any more: %s (NVML %d)",
             nvml_code_text((int)r), (int)r);
    return taker_without_driver(t, n, unloaded ? DRIVER_NOT_LOADED : DRIVER_ERROR, text);
}

static void take_all(struct work *w, struct nvml *n, unsigned count)
{
    for (uint32_t i = 0; i < count; i++)
        take_one(w, n, i);
    for (size_t i = 0; i < w->s->n_gpus; i++)
        if (w->s->gpus[i].lost)
            name_lost(w, &w->s->gpus[i]);
        else
            compare(w, &w->s->gpus[i]);
    add_uncounted(w, count);
    add_vanished(w, 0, NULL);
    sort(w);
    take_part_caps(w->t->host, w->s);
}

struct survey *taker_survey(struct taker *t, struct nvml *n)
{
    unsigned count = 0;
    nv_return r = NVML_CALL(n, NVML_NO_GPU, count, &count);
    if (r != NV_OK)
        return gone(t, n, r);

    __attribute__((cleanup(free_work))) struct work *w = work_new(t);
    take_driver(w->s, n);
    set_platform(w, n);
    take_all(w, n, MIN(count, (unsigned)SURVEY_GPUS_MAX));
    if (is_tegra(w)) {
        set_tegra(w);
    } else if (driver_is_gone(w->s)) {
        nv_return first = (nv_return)w->s->gpus[0].lost;
        survey_unref(w->s);
        return gone(t, n, first);
    } else {
        w->s->links = take_links(links_are_known(w) ? NULL : n, w->found, w->s->n_gpus, t->before);
        t->links_read = true;
    }
    return finish(w);
}
