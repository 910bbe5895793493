/* SPDX-License-Identifier: Apache-2.0 */
#include "cdi/generate.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cdi/classes.h"
#include "cdi/maker.h"

static const struct {
    const char *word;
    enum cdi_mode mode;
} modes[] = {
    { "auto", CDI_MODE_AUTO },
    { "nvml", CDI_MODE_GPU },
    { "gpu", CDI_MODE_GPU },
    { "wsl", CDI_MODE_WSL },
    { "management", CDI_MODE_MANAGEMENT },
    { "gds", CDI_MODE_GDS },
    { "gdrcopy", CDI_MODE_GDRCOPY },
    { "mofed", CDI_MODE_MOFED },
    { "imex", CDI_MODE_IMEX },
    { "nvswitch", CDI_MODE_NVSWITCH },
};
const char cdi_mode_words[] = "auto, nvml, wsl, management, gds, gdrcopy, mofed, imex or nvswitch";

const char *const cdi_flags[] = {
    "no-additional-gids-for-device-nodes",
    "enable-explicit-driver-libraries",
    "enable-coherent-annotations",
    "disable-ipc-discoverer",
    "disable-nvsandbox-utils",
    "disable-nvsandboxutils",
    "disable-multiple-csv-devices",
};
const size_t n_cdi_flags = ARRAY_LEN(cdi_flags);

bool cdi_mode_of(struct str word, enum cdi_mode *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        if (!str_is(word, modes[i].word))
            continue;
        *ret = modes[i].mode;
        return true;
    }
    return false;
}

bool cdi_naming_of(struct str word, enum cdi_naming *ret)
{
    static const char *const words[] = {
        [CDI_NAME_INDEX] = "index", [CDI_NAME_UUID] = "uuid", [CDI_NAME_TYPE_INDEX] = "type-index"
    };
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (!str_is(word, words[i]))
            continue;
        *ret = (enum cdi_naming)i;
        return true;
    }
    return false;
}

bool cdi_published(const struct gpu *g, const struct part *p, enum mig_strategy strategy)
{
    if (!g->uuid[0] || !(g->valid & GPU_HAS_MINOR))
        return false;
    if (p)
        return p->valid & PART_HAS_CAPS;
    bool divided = (g->valid & GPU_HAS_MIG) && g->mig_current;
    return !divided || strategy == MIG_STRATEGY_NONE;
}

/* ---- devices ---- */

struct build {
    struct maker m;
    const struct survey *survey;
    struct cdi_spec *spec;
    bool *asked_seen; /* of o->ids */
};

static struct cdi_device *push_device(struct build *b, struct cdi_spec *spec, const char *name,
                                      const struct cdi_edits *edits)
{
    for (size_t i = 0; i < spec->n_devices; i++)
        if (!name || strcmp(spec->devices[i].name, name) == 0)
            return NULL;
    struct cdi_device *d = MAKER_PUSH(&b->m, spec->devices, spec->n_devices);
    if (d)
        *d = (struct cdi_device){ name, *edits };
    return d;
}

/* Is a device with these names asked for? */
static bool asked(struct build *b, const char *uuid, const char *index)
{
    const struct cdi_texts *ids = &b->m.o->ids;
    bool any = ids->n == 0;
    for (size_t i = 0; i < ids->n; i++) {
        const char *id = ids->items[i];
        if (strcmp(id, "all") != 0 && strcmp(id, uuid) != 0 && strcmp(id, index) != 0)
            continue;
        any = b->asked_seen[i] = true;
    }
    return any;
}

static void add_names(struct build *b, const char *type, const char *uuid, const char *index,
                      const struct cdi_edits *edits)
{
    const struct cdi_generate *o = b->m.o;
    for (size_t i = 0; i < o->n_namings && !b->m.full; i++) {
        char name[CDI_NAME_MAX];
        if (o->namings[i] == CDI_NAME_TYPE_INDEX)
            snprintf(name, sizeof name, "%s%s", type, index);
        enum id_strategy strategy = o->namings[i] == CDI_NAME_UUID ? ID_UUID : ID_INDEX;
        const char *it =
            o->namings[i] == CDI_NAME_TYPE_INDEX ? name : cdi_name_of(strategy, uuid, index, name);
        push_device(b, b->spec, maker_text(&b->m, "%s", it), edits);
    }
}

static void add_gpu(struct build *b, const struct gpu *g)
{
    char index[32];
    enum mig_strategy strategy = b->m.o->divided_too ? MIG_STRATEGY_NONE : MIG_STRATEGY_MIXED;
    snprintf(index, sizeof index, "%u", g->index);
    if (cdi_published(g, NULL, strategy) && asked(b, g->uuid, index)) {
        struct cdi_edits edits = { 0 };
        maker_gpu(&b->m, g, &edits);
        add_names(b, "gpu", g->uuid, index, &edits);
    }
    for (size_t i = 0; i < g->n_parts && !b->m.full; i++) {
        const struct part *p = &g->parts[i];
        snprintf(index, sizeof index, "%u:%u", g->index, p->slot);
        if (!cdi_published(g, p, strategy) || !asked(b, p->uuid, index))
            continue;
        struct cdi_edits edits = { 0 };
        maker_part(&b->m, g, p, &edits);
        add_names(b, "mig", p->uuid, index, &edits);
    }
}

static void add_all(struct build *b, struct cdi_spec *spec)
{
    struct cdi_edits all = { 0 };
    if (!b->m.o->all_device || spec->n_devices == 0)
        return;
    for (size_t i = 0; i < spec->n_devices && !b->m.full; i++)
        maker_merge(&b->m, &all, &spec->devices[i].edits);
    maker_sort(&all);
    push_device(b, spec, "all", &all);
}

/* "none": a container that must have no gpu, whatever its image asks for. */
static bool add_none(struct build *b)
{
    bool any = false;
    for (size_t i = 0; i < b->m.o->ids.n; i++) {
        if (strcmp(b->m.o->ids.items[i], "none") != 0)
            continue;
        struct cdi_edits edits = { 0 };
        maker_env(&b->m, &edits, "NVIDIA_VISIBLE_DEVICES=void");
        push_device(b, b->spec, "none", &edits);
        any = b->asked_seen[i] = true;
    }
    return any;
}

static int unknown_id(struct build *b, struct error *err)
{
    for (size_t i = 0; i < b->m.o->ids.n; i++) {
        const char *id = b->m.o->ids.items[i];
        if (!b->asked_seen[i] && strcmp(id, "all") != 0)
            return error_set(err, ERR_NOT_FOUND, 0,
                             "there is no device \"%s\"; give a uuid or an index that \"mete "
                             "survey\" shows (a gpu in MIG mode has its parts only)",
                             id);
    }
    return 0;
}

static int no_gpu(const struct survey *s, struct error *err)
{
    if (s->driver != DRIVER_OK)
        return error_set(err, ERR_NOT_FOUND, 0, "no gpu can be published: driver %s: %s",
                         driver_state_name(s->driver), s->driver_text);
    if (s->n_gpus == 0)
        return error_set(err, ERR_NOT_FOUND, 0, "the driver knows no gpu");
    return error_set(err, ERR_NOT_FOUND, 0,
                     "none of the %zu gpus can be published: each is in MIG mode without parts, or "
                     "its minor number is not known",
                     s->n_gpus);
}

/* ---- coherent memory ---- */

/* A further spec with those devices whose gpu shares the host's page tables (ATS), or does not. */
static void add_by_memory(struct build *b, bool coherent, struct cdi_spec *specs, size_t *n)
{
    struct cdi_spec whole = *b->spec, *spec = &specs[*n];
    struct cdi_generate o = *b->m.o;
    const struct cdi_generate *before = b->m.o;
    *spec = (struct cdi_spec){ .kind = maker_text(&b->m, "%s.%s", whole.kind,
                                                  coherent ? "coherent" : "noncoherent"),
                               .common = whole.common };
    o.ids = (struct cdi_texts){ 0 };
    b->m.o = &o;
    b->spec = spec;
    for (size_t i = 0; i < b->survey->n_gpus && !b->m.full; i++) {
        const struct gpu *g = &b->survey->gpus[i];
        bool is = (g->valid & GPU_HAS_ADDRESSING) && g->addressing == 2;
        struct cdi_spec one = { .kind = whole.kind };
        if (is != coherent)
            continue;
        b->spec = &one;
        add_gpu(b, g);
        for (size_t k = 0; k < one.n_devices; k++)
            for (size_t d = 0; d < whole.n_devices; d++)
                if (strcmp(whole.devices[d].name, one.devices[k].name) == 0)
                    push_device(b, spec, one.devices[k].name, &one.devices[k].edits);
    }
    add_all(b, spec);
    b->m.o = before;
    b->spec = &specs[0];
    *n += spec->n_devices > 0;
}

/* ---- modes ---- */

static int build_gpu(struct build *b, struct cdi_spec *specs, size_t *n, struct error *err)
{
    const struct survey *s = b->survey;
    bool coherent = maker_flag(&b->m, "enable-coherent-annotations");
    if (strcmp(s->platform, "tegra") == 0)
        return error_set(err, ERR_UNSUPPORTED, 0,
                         "CDI for Tegra needs the lists in host-files-for-container.d, which are "
                         "not read; use deviceListStrategy envvar");
    bool none = add_none(b);
    for (size_t i = 0; i < s->n_gpus && !b->m.full; i++)
        add_gpu(b, &s->gpus[i]);
    int r = unknown_id(b, err);
    if (r == 0 && b->spec->n_devices == 0 && !b->m.full)
        r = no_gpu(s, err);
    if (r < 0)
        return r;
    maker_control_nodes(&b->m, &b->spec->common);
    r = b->m.full ? 0 : maker_driver(&b->m, s->driver_version, true, &b->spec->common, err);
    for (int i = 0; r == 0 && coherent && !none && i < 2; i++)
        add_by_memory(b, i == 0, specs, n);
    if (r == 0 && !none)
        add_all(b, b->spec);
    return r;
}

static int build_wsl(struct build *b, struct error *err)
{
    struct cdi_edits edits = { 0 };
    maker_node(&b->m, &edits, "/dev/dxg", true);
    push_device(b, b->spec, "all", &edits);
    return maker_wsl(&b->m, &b->spec->common, err);
}

static int build_management(struct build *b, struct error *err)
{
    struct cdi_edits edits = { 0 };
    maker_management_nodes(&b->m, &edits);
    if (edits.n_nodes == 0)
        return error_set(err, ERR_NOT_FOUND, 0, "there is no node of the driver in %s/dev",
                         strcmp(b->m.host->dev_root_view, "/") == 0 ? ""
                                                                    : b->m.host->dev_root_view);
    push_device(b, b->spec, "all", &edits);
    return maker_driver(&b->m, b->survey ? b->survey->driver_version : NULL, false,
                        &b->spec->common, err);
}

static int build_class(struct build *b, enum cdi_mode mode, struct error *err)
{
    struct cdi_edits edits = { 0 };
    class_edits(&b->m, mode, &edits);
    if (edits.n_nodes == 0)
        return error_set(err, ERR_NOT_FOUND, 0, "there is no node %s below %s",
                         class_of(mode)->what, b->m.host->dev_root_view);
    push_device(b, b->spec, "all", &edits);
    return 0;
}

static int build_imex(struct build *b, struct error *err)
{
    size_t n;
    const char **names =
        maker_names(&b->m, b->m.host->dev_root_view, IMEX_CHANNEL_DIR, "channel", &n);
    for (size_t i = 0; i < n && !b->m.full; i++) {
        struct cdi_edits edits = { 0 };
        uint64_t number;
        if (!str_to_u64(str_of(names[i] + strlen("channel")), (1u << 20) - 1, &number) ||
            !asked(b, names[i], names[i] + strlen("channel")))
            continue;
        maker_node(&b->m, &edits, maker_text(&b->m, IMEX_CHANNEL_DIR "/%s", names[i]), false);
        if (edits.n_nodes > 0)
            push_device(b, b->spec, names[i] + strlen("channel"), &edits);
    }
    int r = unknown_id(b, err);
    if (r == 0 && b->spec->n_devices == 0 && !b->m.full)
        r = error_set(err, ERR_NOT_FOUND, 0,
                      "there is no node channelN in " IMEX_CHANNEL_DIR
                      " below %s; start nvidia-imex",
                      b->m.host->dev_root_view);
    if (r == 0)
        add_all(b, b->spec);
    return r;
}

static int build_mode(struct build *b, enum cdi_mode mode, struct cdi_spec *specs, size_t *n,
                      struct error *err)
{
    bool wsl = b->survey && strcmp(b->survey->platform, "wsl") == 0;
    if (mode == CDI_MODE_AUTO)
        mode = wsl ? CDI_MODE_WSL : CDI_MODE_GPU;
    switch (mode) {
    case CDI_MODE_AUTO:
    case CDI_MODE_GPU:
        return build_gpu(b, specs, n, err);
    case CDI_MODE_WSL:
        return build_wsl(b, err);
    case CDI_MODE_MANAGEMENT:
        return build_management(b, err);
    case CDI_MODE_IMEX:
        return build_imex(b, err);
    case CDI_MODE_GDS:
    case CDI_MODE_GDRCOPY:
    case CDI_MODE_MOFED:
    case CDI_MODE_NVSWITCH:
        break;
    }
    return build_class(b, mode, err);
}

int cdi_generate(struct arena *a, const struct host *h, const struct survey *s,
                 const struct cdi_generate *o, struct cdi_spec **ret, size_t *ret_n,
                 struct findings *notes, struct error *err)
{
    struct build b = { .m = { .arena = a, .host = h, .o = o, .notes = notes }, .survey = s };
    b.m.gids = !maker_flag(&b.m, "no-additional-gids-for-device-nodes");
    struct cdi_spec *specs = arena_array(a, 3, sizeof *specs);
    b.asked_seen = arena_array(a, o->ids.n + 1, sizeof *b.asked_seen);
    size_t n = 1;
    int r = 0;
    if (specs && b.asked_seen) {
        specs[0].kind = o->kind;
        b.spec = &specs[0];
        r = build_mode(&b, o->mode, specs, &n, err);
    }
    if (r < 0)
        return r;
    if (!specs || !b.asked_seen || b.m.full)
        return error_set(err, ERR_LIMIT, 0, "CDI specs: more than %zu bytes of facts", a->limit);
    *ret = specs;
    *ret_n = n;
    return 0;
}
