/* SPDX-License-Identifier: Apache-2.0 */
/* Allocate: what a container asked for, checked and granted, then the answer in the order of
 * spec/device-plugin.md 3.3. No file is looked at here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cdi/cdi.h"
#include "kubelet/pb.h"
#include "kubelet/plugin_answer.h"

/* Field numbers of v1beta1 (spec/device-plugin.md 0). */
enum {
    REQUEST_CONTAINERS = 1,
    REQUEST_IDS = 1,
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

enum {
    SMALL_IDS = 64, /* up to here everything is on the stack */
    SMALL_MARKS = 512,
};

struct container {
    size_t first, n; /* of allocation.devices: each device once */
    size_t asked;    /* as kubelet counted */
};

struct allocation {
    const struct plugin_context *c;
    const struct resource *r;
    const struct device **devices;
    const char **ids, **bases, **gpus; /* the same, as the ledger wants them */
    size_t n, total;
    uint16_t *device_marks; /* container + 1 that has the device */
    uint16_t *base_marks;   /* container + 1 that named the base last, while answering */
    struct container containers[CONTAINERS_MAX];
    size_t n_containers;
};

static int refuse(const struct allocation *a, struct error *err)
{
    return error_wrap(err, "invalid allocation request for \"%s\"", a->r->name);
}

static int malformed(const struct allocation *a, struct error *err)
{
    error_set(err, ERR_INVALID, 0, "not an AllocateRequest message of v1beta1");
    return refuse(a, err);
}

/* ---- reading and checking ---- */

static int count_ids(struct allocation *a, struct str request, struct error *err)
{
    struct pb_reader r = pb_reader(request);
    struct pb_field f;
    size_t most = 2 * MAX(a->r->n_devices, (size_t)IDS_MIN);
    while (pb_next(&r, &f)) {
        if (f.number != REQUEST_CONTAINERS || f.wire != PB_BYTES)
            continue;
        if (a->n_containers++ == CONTAINERS_MAX) {
            error_set(err, ERR_LIMIT, 0, "more than %d containers in one request", CONTAINERS_MAX);
            return refuse(a, err);
        }
        struct pb_reader inner = pb_reader(f.bytes);
        struct pb_field id;
        while (pb_next(&inner, &id))
            a->total += id.number == REQUEST_IDS && id.wire == PB_BYTES;
        if (inner.bad)
            return malformed(a, err);
        if (a->total > most) {
            error_set(err, ERR_LIMIT, 0,
                      "more than %zu device ids in one request; the resource has %zu devices", most,
                      a->r->n_devices);
            return refuse(a, err);
        }
    }
    a->n_containers = MIN(a->n_containers, (size_t)CONTAINERS_MAX);
    return r.bad ? malformed(a, err) : 0;
}

static int check_healthy(const struct allocation *a, const struct device *d, struct error *err)
{
    if (d->healthy)
        return 0;
    return error_set(err, ERR_UNAVAILABLE, 0,
                     "device %s is withdrawn: %s; it is offered again when that is over", d->id,
                     d->reason ? d->reason : "unhealthy");
}

static bool wants_nodes(const struct plugin_config *c)
{
    return (c->list_strategies & (LIST_CDI_ANNOTATIONS | LIST_CDI_CRI)) || c->pass_device_specs;
}

/* WSL has one node for all gpus, Tegra none of this kind. */
static bool has_nodes(const struct plugin_context *c)
{
    const char *platform = c->inv->survey->platform;
    return strcmp(platform, "wsl") != 0 && strcmp(platform, "tegra") != 0;
}

/* A container without these would start and find no gpu. */
static int check_nodes(const struct allocation *a, const struct device *d, struct error *err)
{
    const struct survey *s = a->c->inv->survey;
    if (!wants_nodes(a->c->config) || !has_nodes(a->c))
        return 0;
    const struct gpu *g = &s->gpus[d->gpu];
    if (!(g->valid & GPU_HAS_MINOR))
        return error_set(err, ERR_UNAVAILABLE, 0,
                         "the driver gives no minor number for gpu %s, so its device node is not "
                         "known",
                         g->uuid);
    if (d->part != UINT32_MAX && !(g->parts[d->part].valid & PART_HAS_CAPS))
        return error_set(err, ERR_UNAVAILABLE, 0,
                         "/proc/driver/nvidia-caps/mig-minors has no entry for part %s, so its "
                         "device nodes are not known",
                         g->parts[d->part].uuid);
    return 0;
}

static int add_device(struct allocation *a, size_t container, struct str id, struct error *err)
{
    const struct device *d = resource_find(a->r, id);
    if (!d)
        return error_set(err, ERR_NOT_FOUND, 0, "invalid request: unknown device: %.*s",
                         (int)MIN(id.n, (size_t)200), id.p ? id.p : "");
    uint16_t *mark = &a->device_marks[d - a->r->devices];
    if (*mark == container + 1)
        return 0;
    if (*mark)
        return error_set(err, ERR_CONFLICT, 0,
                         "invalid request: device %s is asked for by two containers", d->id);
    int r = check_healthy(a, d, err);
    if (r == 0)
        r = check_nodes(a, d, err);
    if (r < 0)
        return r;
    *mark = (uint16_t)(container + 1);
    a->devices[a->n] = d;
    a->ids[a->n] = d->id;
    a->bases[a->n] = d->base;
    a->gpus[a->n] = a->c->inv->survey->gpus[d->gpu].uuid;
    a->n++;
    return 0;
}

static const char *sharing_key(const struct resource *r)
{
    return r->sharing == SHARING_MPS ? "mps" : "timeSlicing";
}

static int check_count(const struct allocation *a, const struct container *k, struct error *err)
{
    if (a->r->sharing == SHARING_NONE || k->asked <= 1 ||
        !a->c->config->sharing.fail_requests_greater_than_one)
        return 0;
    return error_set(err, ERR_INVALID, 0,
                     "invalid request: maximum request size for shared resources is 1; found %zu "
                     "(rule: sharing.%s.failRequestsGreaterThanOne is true on this node, because a "
                     "second share gives no more of a gpu; ask for 1 in the container's limits)",
                     k->asked, sharing_key(a->r));
}

static int add_container(struct allocation *a, size_t number, struct str request, struct error *err)
{
    struct container *k = &a->containers[number];
    struct pb_reader r = pb_reader(request);
    struct pb_field f;
    *k = (struct container){ .first = a->n };
    while (pb_next(&r, &f)) {
        if (f.number != REQUEST_IDS || f.wire != PB_BYTES)
            continue;
        k->asked++;
        int rc = add_device(a, number, f.bytes, err);
        if (rc < 0)
            return rc;
    }
    k->n = a->n - k->first;
    return check_count(a, k, err);
}

static int add_containers(struct allocation *a, struct str request, struct error *err)
{
    struct pb_reader r = pb_reader(request);
    struct pb_field f;
    size_t number = 0;
    while (pb_next(&r, &f)) {
        if (f.number != REQUEST_CONTAINERS || f.wire != PB_BYTES)
            continue;
        if (add_container(a, number++, f.bytes, err) < 0)
            return refuse(a, err);
    }
    return 0;
}

/* ---- the ledger ---- */

static struct grant_request grant_of(const struct allocation *a, const struct container *k)
{
    return (struct grant_request){
        .resource = a->r->name,
        .ids = a->ids + k->first,
        .bases = a->bases + k->first,
        .gpu_uuids = a->gpus + k->first,
        .n = k->n,
        .exclusive = a->r->sharing == SHARING_NONE,
    };
}

static void undo(const struct allocation *a, size_t containers)
{
    for (size_t i = 0; a->c->ledger && i < containers; i++) {
        struct grant_request g = grant_of(a, &a->containers[i]);
        ledger_grant_undo(a->c->ledger, &g);
    }
}

static int grant(const struct allocation *a, struct error *err)
{
    for (size_t i = 0; a->c->ledger && i < a->n_containers; i++) {
        struct grant_request g = grant_of(a, &a->containers[i]);
        if (g.n > 0 && ledger_grant(a->c->ledger, &g, a->c->now_ns, err) < 0) {
            undo(a, i);
            return refuse(a, err);
        }
    }
    return 0;
}

/* ---- the answer ---- */

static void put_env(struct buf *b, const char *key, struct str value)
{
    size_t m = pb_begin(b, ANSWER_ENVS);
    pb_element(b, 1, str_of(key));
    pb_element(b, 2, value);
    pb_end(b, m);
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
    uint16_t mark;
};

static struct bases bases_of(struct allocation *a, const struct container *k)
{
    for (size_t i = 0; i < k->n; i++)
        a->base_marks[a->devices[k->first + i]->base_number] = 0;
    return (struct bases){ a, k, 0, 1 };
}

static const struct device *next_base(struct bases *i)
{
    while (i->at < i->k->n) {
        const struct device *d = i->a->devices[i->k->first + i->at++];
        uint16_t *mark = &i->a->base_marks[d->base_number];
        if (*mark == i->mark)
            continue;
        *mark = i->mark;
        return d;
    }
    return NULL;
}

static void put_visible_ids(struct allocation *a, const struct container *k, struct buf *b)
{
    size_t env = pb_begin(b, ANSWER_ENVS);
    pb_element(b, 1, STR("NVIDIA_VISIBLE_DEVICES"));
    size_t value = pb_begin(b, 2);
    struct bases i = bases_of(a, k);
    bool first = true;
    for (const struct device *d; (d = next_base(&i)); first = false) {
        if (!first)
            buf_ch(b, ',');
        buf_z(b, visible_id(a->c->config, d));
    }
    pb_end(b, value);
    pb_end(b, env);
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
    size_t m = pb_begin(b, field);
    buf_z(b, head);
    buf_z(b, tail);
    pb_end(b, m);
}

static void put_null_mount(struct buf *b, const char *head, const char *tail)
{
    size_t m = pb_begin(b, ANSWER_MOUNTS);
    put_joined(b, 1, head, tail);
    pb_element(b, 2, STR("/dev/null"));
    pb_end(b, m);
}

static void put_mps_mounts(const struct allocation *a, struct buf *b)
{
    const char *root = a->c->config->mps_root ? a->c->config->mps_root : "";
    size_t m = pb_begin(b, ANSWER_MOUNTS);
    size_t path = pb_begin(b, 1);
    buf_fmt(b, "/mps/%s/pipe", a->r->name);
    pb_end(b, path);
    path = pb_begin(b, 2);
    buf_fmt(b, "%s/%s/pipe", root, a->r->name);
    pb_end(b, path);
    pb_end(b, m);

    m = pb_begin(b, ANSWER_MOUNTS);
    pb_element(b, 1, STR("/dev/shm"));
    put_joined(b, 2, root, "/shm");
    pb_end(b, m);
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
    size_t m = pb_begin(b, ANSWER_DEVICES);
    pb_element(b, 1, str_of(path));
    put_joined(b, 2, root && strcmp(root, "/") != 0 ? root : "", path);
    pb_element(b, 3, STR("rw"));
    pb_end(b, m);
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
    for (const struct device *d; has_nodes(c) && (d = next_base(&i));)
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
    for (const struct device *d; (d = next_base(&i)); n++)
        put(b, n, "gpu", cdi_name_of(a->c->config->id_strategy, d->base, d->index));
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
    size_t device = pb_begin(b, ANSWER_CDI);
    size_t text = pb_begin(b, 1);
    put_name_listed(b, 0, class, name);
    pb_end(b, text);
    pb_end(b, device);
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
        size_t m = pb_begin(b, ANSWER_ANNOTATIONS);
        size_t key = pb_begin(b, 1);
        buf_z(b, c->cdi_annotation_prefix);
        buf_z(b, "nvidia-device-plugin_");
        buf_z(b, uuid);
        pb_end(b, key);
        size_t value = pb_begin(b, 2);
        each_cdi_name(a, k, b, put_name_listed);
        pb_end(b, value);
        pb_end(b, m);
    }
    if (c->list_strategies & LIST_CDI_CRI)
        each_cdi_name(a, k, b, put_name_element);
    return 0;
}

static int put_container(struct allocation *a, const struct container *k, struct buf *b,
                         struct error *err)
{
    size_t m = pb_begin(b, ANSWER_CONTAINERS);
    put_envs(a, k, b);
    put_mounts(a, k, b);
    /* with CDI alone the container engine adds the nodes */
    if (a->c->config->list_strategies & (LIST_ENVVAR | LIST_VOLUME_MOUNTS))
        put_nodes(a, k, b);
    int r = put_cdi(a, k, b, err);
    pb_end(b, m);
    return r;
}

static int put_answer(struct allocation *a, struct buf *b, struct error *err)
{
    int r = 0;
    for (size_t i = 0; i < a->n_containers && r == 0; i++)
        r = put_container(a, &a->containers[i], b, err);
    if (r == 0)
        r = buf_check(b, "Allocate answer", err);
    return r < 0 ? refuse(a, err) : 0;
}

static int allocate(struct allocation *a, struct str request, struct buf *answer, struct error *err)
{
    int r = add_containers(a, request, err);
    if (r == 0)
        r = grant(a, err);
    if (r < 0)
        return r;
    r = put_answer(a, answer, err);
    if (r < 0)
        undo(a, a->n_containers);
    return r;
}

static void lay_out(struct allocation *a, void *columns, uint16_t *marks)
{
    a->devices = columns;
    a->ids = (const char **)(a->devices + a->total);
    a->bases = a->ids + a->total;
    a->gpus = a->bases + a->total;
    a->device_marks = marks;
    a->base_marks = marks + a->r->n_devices;
}

int plugin_allocate(const struct plugin_context *c, const struct resource *r, struct str request,
                    struct buf *answer, struct error *err)
{
    struct allocation a;
    a.c = c;
    a.r = r;
    a.n = a.total = a.n_containers = 0;
    int rc = count_ids(&a, request, err);
    if (rc < 0)
        return rc;

    size_t marks = r->n_devices + r->n_bases;
    if (a.total <= SMALL_IDS && marks <= SMALL_MARKS) {
        const void *columns[4 * SMALL_IDS];
        uint16_t small_marks[SMALL_MARKS] = { 0 };
        lay_out(&a, columns, small_marks);
        return allocate(&a, request, answer, err);
    }
    size_t columns = 4 * a.total * sizeof(void *);
    auto_free char *block = try_alloc(columns + marks * sizeof(uint16_t));
    if (!block) {
        error_set(err, ERR_LIMIT, 0, "out of memory for %zu device ids", a.total);
        return refuse(&a, err);
    }
    lay_out(&a, block, (uint16_t *)(void *)(block + columns));
    return allocate(&a, request, answer, err);
}

bool plugin_request_ids(struct str request, size_t container, char *ret, size_t size)
{
    struct pb_reader r = pb_reader(request);
    struct pb_field f, id;
    bool found = false;
    ret[0] = '\0';
    while (!found && pb_next(&r, &f))
        found = f.number == REQUEST_CONTAINERS && f.wire == PB_BYTES && container-- == 0;
    if (!found)
        return false;
    struct pb_reader inner = pb_reader(f.bytes);
    size_t at = 0;
    while (pb_next(&inner, &id) && at < size) {
        if (id.number != REQUEST_IDS || id.wire != PB_BYTES)
            continue;
        int n = snprintf(ret + at, size - at, "%s%.*s", at ? "," : "", STR_FMT(id.bytes));
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}
