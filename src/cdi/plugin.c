/* SPDX-License-Identifier: Apache-2.0 */
/* The specs of the device plugin (spec/device-plugin.md 3.4), and the classes beside the gpus. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cdi/classes.h"
#include "cdi/root.h"

#define KIND_PREFIX "k8s.device-plugin.nvidia.com/"

static const char imex_node[] = IMEX_CHANNEL_DIR "/channel0";
static const char default_hook[] = "/usr/bin/nvidia-ctk";

static const struct node_class classes[] = {
    [CDI_MODE_GDRCOPY] = { "gdrcopy", "/dev/gdrdrv", { "/dev/gdrdrv" } },
    [CDI_MODE_GDS] = { "gds",
                       "/dev/nvidia-fs*",
                       { NULL },
                       "/dev",
                       "nvidia-fs",
                       { "/run/udev", "/etc/cufile.json" } },
    [CDI_MODE_MOFED] = { "mofed",
                         "/dev/infiniband/uverbs* or rdma_cm",
                         { "/dev/infiniband/rdma_cm" },
                         "/dev/infiniband",
                         "uverbs" },
    [CDI_MODE_NVSWITCH] = { "nvswitch",
                            "/dev/nvidia-nvswitch*",
                            { "/dev/nvidia-nvswitchctl" },
                            "/dev",
                            "nvidia-nvswitch" },
};

const struct node_class *class_of(enum cdi_mode mode)
{
    return (size_t)mode < ARRAY_LEN(classes) && classes[mode].class ? &classes[mode] : NULL;
}

static void class_nodes(struct maker *m, const struct node_class *k, struct cdi_edits *e)
{
    for (size_t i = 0; i < ARRAY_LEN(k->fixed) && k->fixed[i]; i++)
        maker_node(m, e, k->fixed[i], false);
    if (k->dir)
        maker_numbered(m, e, k->dir, k->prefix);
    maker_sort(e);
}

void class_edits(struct maker *m, enum cdi_mode mode, struct cdi_edits *e)
{
    const struct node_class *k = class_of(mode);
    struct cdi_root root;
    struct error ignored;
    if (!k)
        return;
    class_nodes(m, k, e);
    if (e->n_nodes == 0 || !k->mounts[0] ||
        cdi_root_open(&root, m->host->driver_root_view, &ignored) < 0)
        return;
    for (size_t i = 0; i < ARRAY_LEN(k->mounts) && k->mounts[i]; i++) {
        char real[CDI_PATH_MAX];
        if (cdi_root_resolve(&root, k->mounts[i], real, NULL))
            maker_mount(m, e, maker_text(m, "%s", real), k->mounts[i], false);
    }
    cdi_root_close(&root);
}

bool class_present(struct maker *m, enum cdi_mode mode)
{
    const struct node_class *k = class_of(mode);
    struct cdi_edits e = { 0 };
    if (k)
        class_nodes(m, k, &e);
    return e.n_nodes > 0;
}

/* ---- what the plugin publishes ---- */

static struct cdi_generate options_of(const struct plugin_config *c)
{
    /* The names that kubelet is told come first; whoever asks by the other one finds it too. */
    static const enum cdi_naming by_uuid[] = { CDI_NAME_UUID, CDI_NAME_INDEX },
                                 by_index[] = { CDI_NAME_INDEX, CDI_NAME_UUID };
    return (struct cdi_generate){
        .mode = CDI_MODE_AUTO,
        .kind = KIND_PREFIX "gpu",
        .namings = c->id_strategy == ID_UUID ? by_uuid : by_index,
        .n_namings = ARRAY_LEN(by_uuid),
        .all_device = true,
        .divided_too = c->mig_strategy == MIG_STRATEGY_NONE,
        .hook_path = c->cdi_hook_path && c->cdi_hook_path[0] ? c->cdi_hook_path : default_hook,
        .hooks_off = { c->cdi_disabled_hooks, c->n_cdi_disabled_hooks },
        .flags = { c->cdi_feature_flags, c->n_cdi_feature_flags },
    };
}

static bool anything_published(const struct survey *s, const struct plugin_config *c)
{
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        if (strcmp(s->platform, "wsl") == 0 || cdi_published(g, NULL, c->mig_strategy))
            return true;
        for (size_t k = 0; k < g->n_parts; k++)
            if (cdi_published(g, &g->parts[k], c->mig_strategy))
                return true;
    }
    return false;
}

static void add_spec(struct maker *m, struct cdi_spec *specs, size_t *n, const char *class,
                     const char *device, const struct cdi_edits *edits)
{
    struct cdi_device *d = arena_array(m->arena, 1, sizeof *d);
    m->full |= !d;
    if (!d || edits->n_nodes == 0)
        return;
    *d = (struct cdi_device){ device, *edits };
    specs[(*n)++] = (struct cdi_spec){ .kind = maker_text(m, KIND_PREFIX "%s", class),
                                       .devices = d,
                                       .n_devices = 1 };
}

static const enum cdi_mode gated[] = { CDI_MODE_GDRCOPY, CDI_MODE_GDS, CDI_MODE_MOFED };

static bool gate_open(const struct plugin_config *c, enum cdi_mode mode)
{
    return mode == CDI_MODE_GDRCOPY ? c->gdrcopy : mode == CDI_MODE_GDS ? c->gds : c->mofed;
}

static int no_room(const struct arena *a, struct error *err)
{
    return error_set(err, ERR_LIMIT, 0, "CDI specs: more than %zu bytes of facts", a->limit);
}

int cdi_build(struct arena *a, const struct host *h, const struct survey *s,
              const struct plugin_config *c, struct cdi_spec **ret, size_t *ret_n,
              struct error *err)
{
    struct cdi_generate o = options_of(c);
    struct maker m = { .arena = a, .host = h, .o = &o };
    struct cdi_spec *specs = arena_array(a, 5 + 2, sizeof *specs), *gpus = NULL;
    size_t n = 0, n_gpus = 0;
    m.gids = !maker_flag(&m, "no-additional-gids-for-device-nodes");
    if (!specs)
        return no_room(a, err);
    if (strcmp(s->platform, "tegra") == 0 || anything_published(s, c)) {
        int r = cdi_generate(a, h, s, &o, &gpus, &n_gpus, NULL, err);
        if (r < 0)
            return r;
    }
    for (; gpus && n < n_gpus; n++)
        specs[n] = gpus[n];
    if (!m.full && c->imex_channel0) {
        struct cdi_edits edits = { 0 };
        maker_node(&m, &edits, imex_node, false);
        add_spec(&m, specs, &n, "imex-channel", "0", &edits);
    }
    for (size_t i = 0; i < ARRAY_LEN(gated) && !m.full; i++) {
        struct cdi_edits edits = { 0 };
        if (!gate_open(c, gated[i]))
            continue;
        class_edits(&m, gated[i], &edits);
        add_spec(&m, specs, &n, classes[gated[i]].class, "all", &edits);
    }
    if (m.full)
        return no_room(a, err);
    *ret = specs;
    *ret_n = n;
    return 0;
}

int cdi_look(const struct host *h, const struct plugin_config *c, struct cdi_facts *ret,
             struct error *err)
{
    auto_arena arena;
    struct cdi_generate o = options_of(c);
    struct maker m = { .arena = &arena, .host = h, .o = &o };
    arena_init(&arena, 1024 * 1024);
    *ret = (struct cdi_facts){ .n_control_nodes = 0 };
    for (size_t i = 0; i < ARRAY_LEN(control_nodes); i++) {
        if (maker_node_exists(h, control_nodes[i]))
            ret->control_nodes[ret->n_control_nodes++] = control_nodes[i];
    }
    ret->imex_channel0 = c->imex_channel0 && maker_node_exists(h, imex_node);
    for (size_t i = 0; i < ARRAY_LEN(gated); i++) {
        if (gate_open(c, gated[i]) && class_present(&m, gated[i]))
            ret->gated |= 1u << i;
    }
    if (c->imex_required && !ret->imex_channel0)
        return error_set(err, ERR_NOT_FOUND, 0,
                         "error querying IMEX channels: requested IMEX channel channel0 does not "
                         "exist (%s below %s); start nvidia-imex or set imex.required to false",
                         imex_node, h->dev_root_view);
    return 0;
}
