/* SPDX-License-Identifier: Apache-2.0 */
/* What the host has of the device nodes that a gpu, a part or a gated class needs
 * (spec/device-plugin.md 3.4, nvml-and-cuda.md 3.2). */
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/mem.h"
#include "cdi/cdi.h"

#define KIND_PREFIX "k8s.device-plugin.nvidia.com/"

enum {
    ENTRIES_MAX = 256, /* of one directory that we look through */
    NODES_MAX = 300,   /* of one device or class */
    CLASSES = 5,
};

/* In the order in which the peer lists them in device specs. */
static const char *const control_nodes[] = { "/dev/nvidiactl", "/dev/nvidia-uvm",
                                             "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset" };
static const char imex_node[] = "/dev/nvidia-caps-imex-channels/channel0";

struct discovery {
    struct arena *arena;
    const struct host *host;
    bool gids; /* publish groups of nodes */
    bool full; /* the arena is exhausted */
};

static const char *or_empty(const char *root)
{
    return root && strcmp(root, "/") != 0 ? root : "";
}

static bool view_stat(const char *root, const char *path, struct stat *st)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof(full), "%s%s", or_empty(root), path);
    return n > 0 && (size_t)n < sizeof(full) && stat(full, st) == 0;
}

static bool node_exists(const struct host *h, const char *path)
{
    struct stat st;
    return view_stat(h->dev_root_view, path, &st);
}

static char *text(struct discovery *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static char *text(struct discovery *d, const char *fmt, ...)
{
    char line[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    char *copy = arena_strdup(d->arena, str_of(line));
    d->full |= !copy;
    return copy;
}

static void *array(struct discovery *d, size_t count, size_t size)
{
    void *p = arena_array(d->arena, count ? count : 1, size);
    d->full |= !p;
    return p;
}

/* Names in a directory that start with one of the prefixes and go on with a digit, in natural order
 * ("card2" before "card10"). */
struct entries {
    char names[ENTRIES_MAX][64];
    size_t n;
};

static int entry_cmp(const void *a, const void *b)
{
    return strverscmp(a, b);
}

static bool entry_wanted(const char *name, const char *const *prefixes)
{
    for (; *prefixes; prefixes++) {
        size_t n = strlen(*prefixes);
        if (strncmp(name, *prefixes, n) == 0 && (name[n] == '\0' || strchr("0123456789", name[n])))
            return true;
    }
    return false;
}

static void entries_read(struct entries *e, const char *root, const char *dir,
                         const char *const *prefixes)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof(full), "%s%s", or_empty(root), dir);
    e->n = 0;
    if (n <= 0 || (size_t)n >= sizeof(full))
        return;
    DIR *handle = opendir(full);
    if (!handle)
        return;
    for (struct dirent *entry; e->n < ENTRIES_MAX && (entry = readdir(handle));) {
        size_t len = strlen(entry->d_name);
        if (len < sizeof(e->names[0]) && entry_wanted(entry->d_name, prefixes))
            memcpy(e->names[e->n++], entry->d_name, len + 1);
    }
    closedir(handle);
    qsort(e->names, e->n, sizeof(e->names[0]), entry_cmp);
}

static void add_gid(struct cdi_edits *e, uint32_t gid)
{
    for (size_t i = 0; i < e->n_gids; i++) {
        if (e->gids[i] == gid)
            return;
    }
    e->gids[e->n_gids++] = gid;
}

/* Adds a node; one that is absent is left out unless `always`, so that the container engine names
 * it in its error instead of starting a container without its gpu. */
static void add_node(struct discovery *d, struct cdi_edits *e, const char *path, bool always)
{
    struct stat st = { 0 };
    bool found = view_stat(d->host->dev_root_view, path, &st);
    if ((!found && !always) || !e->nodes || !e->gids || e->n_nodes == NODES_MAX)
        return;

    const char *root = or_empty(d->host->dev_root);
    struct cdi_node node = { .path = text(d, "%s", path), .permissions = "rwm" };
    if (*root)
        node.host_path = text(d, "%s%s", root, path);
    if (found && S_ISCHR(st.st_mode)) {
        node.has_numbers = true;
        node.major = major(st.st_rdev);
        node.minor = minor(st.st_rdev);
        node.mode = st.st_mode & 07777;
        if (d->gids && st.st_gid != 0 && (st.st_mode & 06) != 06)
            add_gid(e, st.st_gid);
    }
    e->nodes[e->n_nodes++] = node;
}

static void edits_init(struct discovery *d, struct cdi_edits *e, size_t nodes)
{
    *e = (struct cdi_edits){
        .nodes = array(d, nodes, sizeof(struct cdi_node)),
        .gids = array(d, nodes, sizeof(uint32_t)),
    };
}

static int node_cmp(const void *a, const void *b)
{
    return strcmp(((const struct cdi_node *)a)->path, ((const struct cdi_node *)b)->path);
}

static void edits_sort(struct cdi_edits *e)
{
    if (e->nodes && e->n_nodes > 1)
        qsort(e->nodes, e->n_nodes, sizeof(*e->nodes), node_cmp);
}

/* card and render nodes of a gpu, from the drm folder of its PCI device */
static void add_drm(struct discovery *d, const struct gpu *g, struct cdi_edits *e, size_t max)
{
    static const char *const prefixes[] = { "card", "renderD", NULL };
    if (!(g->valid & GPU_HAS_PCI))
        return;
    char dir[96], path[96];
    struct entries list;
    snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s/drm", g->pci);
    entries_read(&list, d->host->root, dir, prefixes);
    for (size_t i = 0; i < list.n && i < max; i++) {
        snprintf(path, sizeof(path), "/dev/dri/%s", list.names[i]);
        add_node(d, e, path, false);
    }
}

enum { DRM_MAX = 16 };

static void gpu_edits(struct discovery *d, const struct gpu *g, struct cdi_edits *e)
{
    char path[40];
    edits_init(d, e, 1 + DRM_MAX);
    snprintf(path, sizeof(path), "/dev/nvidia%u", g->minor);
    add_node(d, e, path, true);
    add_drm(d, g, e, DRM_MAX);
    edits_sort(e);
}

static bool has_graphics(const struct part *p)
{
    size_t n = strlen(p->profile);
    return n > 4 && strcmp(p->profile + n - 4, "+gfx") == 0;
}

static void part_edits(struct discovery *d, const struct gpu *g, const struct part *p,
                       struct cdi_edits *e)
{
    char path[64];
    edits_init(d, e, 3 + DRM_MAX);
    snprintf(path, sizeof(path), "/dev/nvidia%u", g->minor);
    add_node(d, e, path, true);
    snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", p->gi_cap);
    add_node(d, e, path, true);
    snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", p->ci_cap);
    add_node(d, e, path, true);
    if (has_graphics(p))
        add_drm(d, g, e, DRM_MAX);
    edits_sort(e);
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

static size_t devices_max(const struct survey *s)
{
    size_t n = 1;
    for (size_t i = 0; i < s->n_gpus; i++)
        n += 1 + s->gpus[i].n_parts;
    return n;
}

static void add_gpu(struct discovery *d, const struct gpu *g, const struct plugin_config *c,
                    struct cdi_spec *spec)
{
    if (cdi_published(g, NULL, c->mig_strategy)) {
        struct cdi_device *dev = &spec->devices[spec->n_devices++];
        dev->name = cdi_name_of(c->id_strategy, text(d, "%s", g->uuid), text(d, "%u", g->index));
        gpu_edits(d, g, &dev->edits);
    }
    for (size_t i = 0; i < g->n_parts && !d->full; i++) {
        const struct part *p = &g->parts[i];
        if (!cdi_published(g, p, c->mig_strategy))
            continue;
        struct cdi_device *dev = &spec->devices[spec->n_devices++];
        dev->name = cdi_name_of(c->id_strategy, text(d, "%s", p->uuid),
                                text(d, "%u:%u", g->index, p->slot));
        part_edits(d, g, p, &dev->edits);
    }
}

static void common_edits(struct discovery *d, struct cdi_edits *e)
{
    edits_init(d, e, ARRAY_LEN(control_nodes));
    for (size_t i = 0; i < ARRAY_LEN(control_nodes); i++)
        add_node(d, e, control_nodes[i], false);
    edits_sort(e);
    /* keeps an nvidia runtime that also looks at the environment from adding devices of its own */
    e->env = array(d, 1, sizeof(*e->env));
    if (e->env)
        e->env[e->n_env++] = "NVIDIA_VISIBLE_DEVICES=void";
}

static void wsl_device(struct discovery *d, struct cdi_spec *spec)
{
    struct cdi_device *dev = &spec->devices[spec->n_devices++];
    dev->name = "all";
    edits_init(d, &dev->edits, 1);
    add_node(d, &dev->edits, "/dev/dxg", true);
}

static void gpu_class(struct discovery *d, const struct survey *s, const struct plugin_config *c,
                      struct cdi_spec *spec)
{
    *spec = (struct cdi_spec){ .kind = KIND_PREFIX "gpu" };
    spec->devices = array(d, devices_max(s), sizeof(*spec->devices));
    if (!spec->devices)
        return;
    if (strcmp(s->platform, "wsl") == 0) {
        if (s->n_gpus > 0)
            wsl_device(d, spec);
        return;
    }
    for (size_t i = 0; i < s->n_gpus && !d->full; i++)
        add_gpu(d, &s->gpus[i], c, spec);
    common_edits(d, &spec->common);
}

/* A class with one device. Its nodes: fixed names, and names by prefix from one folder. */
struct node_class {
    const char *kind, *device;
    const char *fixed[2];
    const char *dir, *prefixes[2];
    const char *mounts[2]; /* files of the driver root, if there is any node */
};
enum { CLASS_IMEX, CLASS_GDRCOPY, CLASS_GDS, CLASS_MOFED };
static const struct node_class classes[] = {
    [CLASS_IMEX] = { KIND_PREFIX "imex-channel", "0", { imex_node } },
    [CLASS_GDRCOPY] = { KIND_PREFIX "gdrcopy", "all", { "/dev/gdrdrv" } },
    [CLASS_GDS] = { KIND_PREFIX "gds",
                    "all",
                    { NULL },
                    "/dev",
                    { "nvidia-fs" },
                    { "/run/udev", "/etc/cufile.json" } },
    [CLASS_MOFED] = { KIND_PREFIX "mofed",
                      "all",
                      { "/dev/infiniband/rdma_cm" },
                      "/dev/infiniband",
                      { "uverbs" } },
};

static bool class_wanted(size_t class, const struct plugin_config *c)
{
    const bool wanted[] = { c->imex_channel0, c->gdrcopy, c->gds, c->mofed };
    return wanted[class];
}

static void class_nodes(struct discovery *d, const struct node_class *k, struct cdi_edits *e)
{
    char path[PATH_MAX];
    struct entries list = { .n = 0 };
    if (k->dir)
        entries_read(&list, d->host->dev_root_view, k->dir, k->prefixes);
    edits_init(d, e, list.n + ARRAY_LEN(k->fixed));
    for (size_t i = 0; i < ARRAY_LEN(k->fixed) && k->fixed[i]; i++)
        add_node(d, e, k->fixed[i], false);
    for (size_t i = 0; i < list.n; i++) {
        snprintf(path, sizeof(path), "%s/%s", k->dir, list.names[i]);
        add_node(d, e, path, false);
    }
    edits_sort(e);
}

static void class_mounts(struct discovery *d, const struct node_class *k, struct cdi_edits *e)
{
    static const char *const options[] = { "ro", "nosuid", "nodev", "rbind", "rprivate" };
    struct stat st;
    e->mounts = array(d, ARRAY_LEN(k->mounts), sizeof(*e->mounts));
    for (size_t i = 0; i < ARRAY_LEN(k->mounts) && k->mounts[i] && e->mounts; i++) {
        if (!view_stat(d->host->driver_root_view, k->mounts[i], &st))
            continue;
        e->mounts[e->n_mounts++] = (struct cdi_mount){
            .host_path = text(d, "%s%s", or_empty(d->host->driver_root), k->mounts[i]),
            .container_path = k->mounts[i],
            .options = options,
            .n_options = ARRAY_LEN(options),
        };
    }
}

static bool node_class_build(struct discovery *d, const struct node_class *k, struct cdi_spec *spec)
{
    *spec = (struct cdi_spec){ .kind = k->kind };
    spec->devices = array(d, 1, sizeof(*spec->devices));
    if (!spec->devices)
        return false;
    struct cdi_device *dev = &spec->devices[0];
    dev->name = k->device;
    class_nodes(d, k, &dev->edits);
    if (dev->edits.n_nodes == 0)
        return false;
    class_mounts(d, k, &dev->edits);
    spec->n_devices = 1;
    return true;
}

static bool flag_set(const struct plugin_config *c, const char *flag)
{
    for (size_t i = 0; i < c->n_cdi_feature_flags; i++) {
        if (strcmp(c->cdi_feature_flags[i], flag) == 0)
            return true;
    }
    return false;
}

int cdi_build(struct arena *a, const struct host *h, const struct survey *s,
              const struct plugin_config *c, struct cdi_spec **ret, size_t *ret_n,
              struct error *err)
{
    if (strcmp(s->platform, "tegra") == 0)
        return error_set(err, ERR_UNSUPPORTED, 0,
                         "CDI for Tegra needs the lists in host-files-for-container.d, which are "
                         "not read; use deviceListStrategy envvar");
    struct discovery d = { a, h, !flag_set(c, "no-additional-gids-for-device-nodes"), false };
    struct cdi_spec *specs = array(&d, CLASSES, sizeof(*specs));
    size_t n = 0;
    if (specs) {
        gpu_class(&d, s, c, &specs[n]);
        n += specs[n].n_devices > 0;
        for (size_t i = 0; i < ARRAY_LEN(classes) && !d.full; i++)
            n += class_wanted(i, c) && node_class_build(&d, &classes[i], &specs[n]);
    }
    if (d.full)
        return error_set(err, ERR_LIMIT, 0, "CDI specs: more than %zu bytes of facts", a->limit);
    *ret = specs;
    *ret_n = n;
    return 0;
}

static bool class_present(const struct host *h, const struct node_class *k)
{
    struct entries list = { .n = 0 };
    for (size_t i = 0; i < ARRAY_LEN(k->fixed) && k->fixed[i]; i++) {
        if (node_exists(h, k->fixed[i]))
            return true;
    }
    if (k->dir)
        entries_read(&list, h->dev_root_view, k->dir, k->prefixes);
    return list.n > 0;
}

int cdi_look(const struct host *h, const struct plugin_config *c, struct cdi_facts *ret,
             struct error *err)
{
    *ret = (struct cdi_facts){ .n_control_nodes = 0 };
    for (size_t i = 0; i < ARRAY_LEN(control_nodes); i++) {
        if (node_exists(h, control_nodes[i]))
            ret->control_nodes[ret->n_control_nodes++] = control_nodes[i];
    }
    ret->imex_channel0 = c->imex_channel0 && node_exists(h, imex_node);
    for (size_t i = CLASS_GDRCOPY; i < ARRAY_LEN(classes); i++) {
        if (class_wanted(i, c) && class_present(h, &classes[i]))
            ret->gated |= 1u << (i - CLASS_GDRCOPY);
    }
    if (c->imex_required && !ret->imex_channel0)
        return error_set(err, ERR_NOT_FOUND, 0,
                         "error querying IMEX channels: requested IMEX channel channel0 does not "
                         "exist (%s below %s); start nvidia-imex or set imex.required to false",
                         imex_node, h->dev_root_view);
    return 0;
}
