/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to one container of an Allocate, written straight into the buffer. No file is looked
 * at here: what the host has was found when the devices were published. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cdi/cdi.h"
#include "kubelet/plugin_allocate.h"
#include "wire/pbwriter.h"

/* Field numbers of v1beta1 (spec/device-plugin.md 0). */
enum {
    ANSWER_CONTAINERS = 1,
    ANSWER_ENVS = 1,
    ANSWER_MOUNTS = 2,
    ANSWER_DEVICES = 3,
    ANSWER_ANNOTATIONS = 4,
    ANSWER_CDI = 5,
};

#define CDI_PREFIX   "k8s.device-plugin.nvidia.com/"
#define MOUNT_FOLDER "/var/run/nvidia-container-devices"
#define IMEX_NODE    "/dev/nvidia-caps-imex-channels/channel0"

bool allocation_has_nodes(const struct plugin_context *c)
{
    const char *platform = c->inv->survey->platform;
    return strcmp(platform, "wsl") != 0 && strcmp(platform, "tegra") != 0;
}

static void put_env(struct buf *b, const char *key, struct str value)
{
    pbw_map(b, ANSWER_ENVS, str_of(key), value);
}

static const char *visible_id(const struct plugin_config *c, const struct device *d)
{
    return c->id_strategy == ID_INDEX ? d->index : d->base;
}

/* Walks over the distinct bases of a container in the order asked. */
struct bases {
    struct allocation *a;
    const struct container *k;
    size_t at;
};

static struct bases bases_of(struct allocation *a, const struct container *k)
{
    for (size_t i = 0; i < k->n; i++)
        a->base_marks[a->devices[k->first + i]->base_number] = 0;
    return (struct bases){ a, k, 0 };
}

static const struct device *next_base(struct bases *i)
{
    while (i->at < i->k->n) {
        const struct device *d = i->a->devices[i->k->first + i->at++];
        uint16_t *mark = &i->a->base_marks[d->base_number];
        if (*mark)
            continue;
        *mark = 1;
        return d;
    }
    return NULL;
}

static void put_visible_ids(struct allocation *a, const struct container *k, struct buf *b)
{
    size_t env = pbw_begin(b, ANSWER_ENVS);
    pbw_item(b, 1, STR("NVIDIA_VISIBLE_DEVICES"));
    size_t value = pbw_begin(b, 2);
    struct bases i = bases_of(a, k);
    bool first = true;
    for (const struct device *d; (d = next_base(&i)); first = false) {
        if (!first)
            buf_ch(b, ',');
        buf_z(b, visible_id(a->c->config, d));
    }
    pbw_end(b, value);
    pbw_end(b, env);
}

static bool uses_mps(const struct allocation *a)
{
    return a->r->sharing == SHARING_MPS;
}

static void put_envs(struct allocation *a, const struct container *k, struct buf *b)
{
    const struct plugin_config *c = a->c->config;
    char pipe[300];
    if (uses_mps(a)) {
        int n = snprintf(pipe, sizeof(pipe), "/mps/%s/pipe", a->r->name);
        put_env(b, "CUDA_MPS_PIPE_DIRECTORY",
                (struct str){ pipe, MIN((size_t)n, sizeof(pipe) - 1) });
    }
    const struct {
        bool on;
        const char *key;
    } gates[] = { { c->gdrcopy, "NVIDIA_GDRCOPY" },
                  { c->gds, "NVIDIA_GDS" },
                  { c->mofed, "NVIDIA_MOFED" } };
    for (size_t i = 0; i < ARRAY_LEN(gates); i++) {
        if (gates[i].on)
            put_env(b, gates[i].key, STR("enabled"));
    }
    if ((c->list_strategies & LIST_ENVVAR) && a->c->imex_channel0)
        put_env(b, "NVIDIA_IMEX_CHANNELS", STR("0"));
    if (c->list_strategies & LIST_VOLUME_MOUNTS)
        put_env(b, "NVIDIA_VISIBLE_DEVICES", STR(MOUNT_FOLDER));
    else if (c->list_strategies & LIST_ENVVAR)
        put_visible_ids(a, k, b);
}

/* A path as two pieces, so that no scratch text is needed. */
static void put_joined(struct buf *b, uint32_t field, const char *head, const char *tail)
{
    size_t m = pbw_begin(b, field);
    buf_z(b, head);
    buf_z(b, tail);
    pbw_end(b, m);
}

static void put_null_mount(struct buf *b, const char *head, const char *tail)
{
    size_t m = pbw_begin(b, ANSWER_MOUNTS);
    put_joined(b, 1, head, tail);
    pbw_item(b, 2, STR("/dev/null"));
    pbw_end(b, m);
}

static void put_mps_mounts(const struct allocation *a, struct buf *b)
{
    const char *root = a->c->config->mps_root ? a->c->config->mps_root : "";
    size_t m = pbw_begin(b, ANSWER_MOUNTS);
    size_t path = pbw_begin(b, 1);
    buf_fmt(b, "/mps/%s/pipe", a->r->name);
    pbw_end(b, path);
    path = pbw_begin(b, 2);
    buf_fmt(b, "%s/%s/pipe", root, a->r->name);
    pbw_end(b, path);
    pbw_end(b, m);

    m = pbw_begin(b, ANSWER_MOUNTS);
    pbw_item(b, 1, STR("/dev/shm"));
    put_joined(b, 2, root, "/shm");
    pbw_end(b, m);
}

static void put_mounts(struct allocation *a, const struct container *k, struct buf *b)
{
    if (uses_mps(a))
        put_mps_mounts(a, b);
    if (!(a->c->config->list_strategies & LIST_VOLUME_MOUNTS))
        return;
    struct bases i = bases_of(a, k);
    for (const struct device *d; (d = next_base(&i));)
        put_null_mount(b, MOUNT_FOLDER "/", visible_id(a->c->config, d));
    if (a->c->imex_channel0)
        put_null_mount(b, MOUNT_FOLDER "/imex/", "0");
}

static void put_node(const struct allocation *a, struct buf *b, const char *path)
{
    const char *root = a->c->host->dev_root;
    size_t m = pbw_begin(b, ANSWER_DEVICES);
    pbw_item(b, 1, str_of(path));
    put_joined(b, 2, root && strcmp(root, "/") != 0 ? root : "", path);
    pbw_item(b, 3, STR("rw"));
    pbw_end(b, m);
}

/* What a container's answer has named already: two parts of one gpu share its node, two compute
 * instances of one GPU instance share that one's capability. */
struct named {
    uint64_t gpus;
    uint32_t instances[SURVEY_GPUS_MAX];
};

static bool first_time(uint64_t *seen, uint64_t bit)
{
    bool first = !(*seen & bit);
    *seen |= bit;
    return first;
}

static void put_device_nodes(const struct allocation *a, struct buf *b, const struct device *d,
                             struct named *named)
{
    const struct gpu *g = &a->c->inv->survey->gpus[d->gpu];
    char path[64];
    if (first_time(&named->gpus, 1ull << d->gpu % SURVEY_GPUS_MAX)) {
        snprintf(path, sizeof(path), "/dev/nvidia%u", g->minor);
        put_node(a, b, path);
    }
    if (d->part == UINT32_MAX)
        return;
    const struct part *p = &g->parts[d->part];
    uint64_t seen = named->instances[d->gpu % SURVEY_GPUS_MAX];
    if (first_time(&seen, 1u << p->gi % 32)) {
        snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", p->gi_cap);
        put_node(a, b, path);
    }
    named->instances[d->gpu % SURVEY_GPUS_MAX] = (uint32_t)seen;
    snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", p->ci_cap);
    put_node(a, b, path);
}

static void put_nodes(struct allocation *a, const struct container *k, struct buf *b)
{
    const struct plugin_context *c = a->c;
    if (!c->config->pass_device_specs)
        return;
    if (strcmp(c->inv->survey->platform, "wsl") == 0) {
        put_node(a, b, "/dev/dxg");
        return;
    }
    for (size_t i = 0; i < c->n_control_nodes; i++)
        put_node(a, b, c->control_nodes[i]);
    struct named named = { 0 };
    struct bases i = bases_of(a, k);
    for (const struct device *d; allocation_has_nodes(c) && (d = next_base(&i));)
        put_device_nodes(a, b, d, &named);
    if (c->imex_channel0)
        put_node(a, b, IMEX_NODE);
}

typedef void put_name(struct buf *b, size_t number, const char *class, const char *name);

static size_t each_cdi_name(struct allocation *a, const struct container *k, struct buf *b,
                            put_name *put)
{
    static const char *const gated[] = { "gdrcopy", "gds", "mofed" };
    size_t n = 0;
    struct bases i = bases_of(a, k);
    for (const struct device *d; (d = next_base(&i)); n++) {
        char name[CDI_NAME_MAX];
        put(b, n, "gpu", cdi_name_of(a->c->config->id_strategy, d->base, d->index, name));
    }
    if (a->c->imex_channel0)
        put(b, n++, "imex-channel", "0");
    for (size_t g = 0; g < ARRAY_LEN(gated); g++) {
        if (a->c->gated & 1u << g)
            put(b, n++, gated[g], "all");
    }
    return n;
}

static void put_name_nowhere(struct buf *b, size_t number, const char *class, const char *name)
{
}

static void put_name_listed(struct buf *b, size_t number, const char *class, const char *name)
{
    if (number > 0)
        buf_ch(b, ',');
    buf_z(b, CDI_PREFIX);
    buf_z(b, class);
    buf_ch(b, '=');
    buf_z(b, name);
}

static void put_name_element(struct buf *b, size_t number, const char *class, const char *name)
{
    size_t device = pbw_begin(b, ANSWER_CDI);
    size_t text = pbw_begin(b, 1);
    put_name_listed(b, 0, class, name);
    pbw_end(b, text);
    pbw_end(b, device);
}

static int put_cdi(struct allocation *a, const struct container *k, struct buf *b,
                   struct error *err)
{
    const struct plugin_config *c = a->c->config;
    if ((c->list_strategies & LIST_CDI_ANNOTATIONS) && each_cdi_name(a, k, b, put_name_nowhere)) {
        char uuid[37];
        int r = host_uuid4(a->c->host, uuid, err);
        if (r < 0)
            return r;
        size_t m = pbw_begin(b, ANSWER_ANNOTATIONS);
        size_t key = pbw_begin(b, 1);
        buf_z(b, c->cdi_annotation_prefix);
        buf_z(b, "nvidia-device-plugin_");
        buf_z(b, uuid);
        pbw_end(b, key);
        size_t value = pbw_begin(b, 2);
        each_cdi_name(a, k, b, put_name_listed);
        pbw_end(b, value);
        pbw_end(b, m);
    }
    if (c->list_strategies & LIST_CDI_CRI)
        each_cdi_name(a, k, b, put_name_element);
    return 0;
}

int allocation_put(struct allocation *a, const struct container *k, struct buf *b,
                   struct error *err)
{
    size_t m = pbw_begin(b, ANSWER_CONTAINERS);
    put_envs(a, k, b);
    put_mounts(a, k, b);
    /* with CDI alone the container engine adds the nodes */
    if (a->c->config->list_strategies & (LIST_ENVVAR | LIST_VOLUME_MOUNTS))
        put_nodes(a, k, b);
    int r = put_cdi(a, k, b, err);
    pbw_end(b, m);
    return r;
}
