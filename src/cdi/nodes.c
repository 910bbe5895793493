/* SPDX-License-Identifier: Apache-2.0 */
/* Device nodes of gpus, parts and the driver (spec/device-plugin.md 3.4, nvml-and-cuda.md 3.2). */
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cdi/maker.h"

enum { ENTRIES_MAX = 100000, TEXT_MAX = 64 * 1024, DEFAULT_MODE = 0666 };

const char *const control_nodes[4] = { "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                                       "/dev/nvidia-modeset" };

const char *maker_text(struct maker *m, const char *fmt, ...)
{
    char line[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    char *copy = n < 0 || (size_t)n >= sizeof line ? NULL : arena_strdup(m->arena, str_of(line));
    m->full |= !copy;
    return copy ? copy : "";
}

bool maker_flag(const struct maker *m, const char *flag)
{
    for (size_t i = 0; i < m->o->flags.n; i++)
        if (strcmp(m->o->flags.items[i], flag) == 0)
            return true;
    return false;
}

static const char *or_empty(const char *root)
{
    return strcmp(root, "/") == 0 ? "" : root;
}

static bool view_stat(const char *root, const char *path, struct stat *st)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof full, "%s%s", or_empty(root), path);
    return n > 0 && (size_t)n < sizeof full && stat(full, st) == 0;
}

bool maker_node_exists(const struct host *h, const char *path)
{
    struct stat st;
    return view_stat(h->dev_root_view, path, &st) && !S_ISDIR(st.st_mode);
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

const char **maker_names(struct maker *m, const char *root, const char *dir, const char *prefix,
                         size_t *ret_n)
{
    char full[PATH_MAX];
    const char **names = NULL;
    int n = snprintf(full, sizeof full, "%s%s", or_empty(root), dir);
    *ret_n = 0;
    DIR *handle = n > 0 && (size_t)n < sizeof full ? opendir(full) : NULL;
    size_t looked = 0;
    for (struct dirent *e; handle && looked++ < ENTRIES_MAX && (e = readdir(handle));) {
        if (!str_starts(str_of(e->d_name), prefix) || e->d_name[0] == '.')
            continue;
        const char **item = MAKER_PUSH(m, names, *ret_n);
        if (item)
            *item = maker_text(m, "%s", e->d_name);
        if (m->full)
            break;
    }
    if (handle)
        closedir(handle);
    if (*ret_n > 1 && !m->full)
        qsort(names, *ret_n, sizeof *names, by_name);
    return names;
}

/* ---- numbers of nodes that do not exist yet ---- */

static void read_majors(struct maker *m)
{
    auto_free char *path = host_path(m->host, "/proc/devices"), *text = NULL;
    struct error ignored;
    m->majors_read = true;
    if (file_read(path, TEXT_MAX, &text, NULL, &ignored) < 0)
        return;
    struct str rest = str_of(text);
    while (rest.p) {
        struct str line = str_trim(str_cut(&rest, '\n'));
        struct str name = line, number = str_cut(&name, ' ');
        uint64_t v;
        if (str_is(line, "Block devices:"))
            return;
        if (!name.p || !str_to_u64(number, UINT32_MAX, &v))
            continue;
        if (str_is(name, "nvidia") || str_is(name, "nvidia-frontend"))
            m->major_gpu = (uint32_t)v;
        else if (str_is(name, "nvidia-uvm"))
            m->major_uvm = (uint32_t)v;
        else if (str_is(name, "nvidia-caps"))
            m->major_caps = (uint32_t)v;
        else if (str_is(name, "nvidia-caps-imex-channels"))
            m->major_imex = (uint32_t)v;
    }
}

/* "DeviceFileMode: 438", decimal, in a file of the driver. */
static uint32_t mode_in(struct maker *m, const char *sub)
{
    auto_free char *path = host_path(m->host, sub), *text = NULL;
    struct error ignored;
    if (file_read(path, TEXT_MAX, &text, NULL, &ignored) < 0)
        return DEFAULT_MODE;
    struct str rest = str_of(text);
    while (rest.p) {
        struct str value = str_cut(&rest, '\n'), key = str_cut(&value, ':');
        uint64_t v;
        if (str_is(key, "DeviceFileMode") && str_to_u64(str_trim(value), 07777, &v))
            return (uint32_t)v;
    }
    return DEFAULT_MODE;
}

static bool number_after(const char *path, const char *prefix, uint32_t *ret)
{
    uint64_t v;
    size_t n = strlen(prefix);
    if (strncmp(path, prefix, n) != 0 || !str_to_u64(str_of(path + n), UINT32_MAX, &v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

/* What the node's numbers will be, by what the driver has registered. */
static void expected_numbers(struct maker *m, const char *path, struct cdi_node *node)
{
    static const struct {
        const char *path;
        uint32_t minor;
        bool uvm;
    } fixed[] = { { "/dev/nvidiactl", 255, false },
                  { "/dev/nvidia-modeset", 254, false },
                  { "/dev/nvidia-uvm", 0, true },
                  { "/dev/nvidia-uvm-tools", 1, true } };
    uint32_t major_ = 0, minor_ = 0;
    if (!m->majors_read)
        read_majors(m);
    if (number_after(path, "/dev/nvidia-caps/nvidia-cap", &minor_))
        major_ = m->major_caps;
    else if (number_after(path, IMEX_CHANNEL_DIR "/channel", &minor_))
        major_ = m->major_imex;
    else if (number_after(path, "/dev/nvidia", &minor_))
        major_ = m->major_gpu;
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
        if (strcmp(path, fixed[i].path) == 0) {
            major_ = fixed[i].uvm ? m->major_uvm : m->major_gpu;
            minor_ = fixed[i].minor;
        }
    }
    if (major_ == 0)
        return;
    node->has_numbers = node->has_type = true;
    node->major = major_;
    node->minor = minor_;
    node->mode = mode_in(m, "/proc/driver/nvidia/params");
}

/* ---- nodes ---- */

static void add_gid(struct maker *m, struct cdi_edits *e, uint32_t gid)
{
    for (size_t i = 0; i < e->n_gids; i++) {
        if (e->gids[i] == gid)
            return;
    }
    uint32_t *item = MAKER_PUSH(m, e->gids, e->n_gids);
    if (item)
        *item = gid;
}

static struct cdi_node *push_node(struct maker *m, struct cdi_edits *e, const char *path,
                                  bool always)
{
    struct stat st = { 0 };
    bool found = view_stat(m->host->dev_root_view, path, &st);
    if ((!found && !always) || (found && S_ISDIR(st.st_mode)))
        return NULL;
    const char *root = or_empty(m->host->dev_root);
    struct cdi_node node = { .path = maker_text(m, "%s", path), .permissions = "rwm" };
    if (*root)
        node.host_path = maker_text(m, "%s%s", root, path);
    if (found && S_ISCHR(st.st_mode)) {
        node.has_numbers = true;
        node.major = major(st.st_rdev);
        node.minor = minor(st.st_rdev);
        node.mode = st.st_mode & 07777;
        if (m->gids && st.st_gid != 0 && (st.st_mode & 06) != 06)
            add_gid(m, e, st.st_gid);
    } else {
        expected_numbers(m, path, &node);
        if (m->notes && !found)
            findings_add(m->notes, "cdi.missing-node", SEVERITY_WARNING, path,
                         "run nvidia-modprobe, or open the gpu once as root",
                         "%s%s does not exist%s", or_empty(m->host->dev_root_view), path,
                         node.has_numbers ? "; its numbers are taken from /proc/devices" : "");
    }
    struct cdi_node *at = MAKER_PUSH(m, e->nodes, e->n_nodes);
    if (at)
        *at = node;
    return at;
}

void maker_node(struct maker *m, struct cdi_edits *e, const char *path, bool always)
{
    push_node(m, e, path, always);
}

static int node_cmp(const void *a, const void *b)
{
    return strcmp(((const struct cdi_node *)a)->path, ((const struct cdi_node *)b)->path);
}

void maker_sort(struct cdi_edits *e)
{
    if (e->n_nodes > 1)
        qsort(e->nodes, e->n_nodes, sizeof *e->nodes, node_cmp);
}

void maker_control_nodes(struct maker *m, struct cdi_edits *e)
{
    for (size_t i = 0; i < ARRAY_LEN(control_nodes); i++)
        maker_node(m, e, control_nodes[i], false);
    maker_sort(e);
}

void maker_numbered(struct maker *m, struct cdi_edits *e, const char *dir, const char *prefix)
{
    char path[PATH_MAX];
    size_t n, prefix_n = strlen(prefix);
    const char **names = maker_names(m, m->host->dev_root_view, dir, prefix, &n);
    for (size_t i = 0; i < n && !m->full; i++) {
        const char *rest = names[i] + prefix_n;
        if (rest[0] && strspn(rest, "0123456789") != strlen(rest))
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        maker_node(m, e, path, false);
    }
}

/* ---- card and render nodes ---- */

/* /dev/dri/by-path/pci-0000:1b:00.0-card → ../card1: the link as the host has it. */
static void add_by_path(struct maker *m, const struct gpu *g, const char *const *names, size_t n,
                        struct cdi_edits *e)
{
    static const char *const ends[] = { "card", "render" };
    const char **args = NULL;
    size_t n_args = 0;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char full[PATH_MAX], target[256];
        const char *link = maker_text(m, "/dev/dri/by-path/pci-%s-%s", g->pci, ends[i]);
        int len = snprintf(full, sizeof full, "%s%s", or_empty(m->host->dev_root_view), link);
        ssize_t got =
            len > 0 && (size_t)len < sizeof full ? readlink(full, target, sizeof target - 1) : -1;
        if (got <= 0)
            continue;
        target[got] = '\0';
        const char *base = path_name(target);
        for (size_t k = 0; k < n; k++) {
            if (strcmp(base, names[k]) != 0)
                continue;
            const char **flag = MAKER_PUSH(m, args, n_args);
            if (flag)
                *flag = "--link";
            const char **value = MAKER_PUSH(m, args, n_args);
            if (value)
                *value = maker_text(m, "%s::%s", target, link);
        }
    }
    if (n_args && !m->full)
        maker_hook(m, e, "create-symlinks", args, n_args);
}

static void add_drm(struct maker *m, const struct gpu *g, struct cdi_edits *e)
{
    static const char *const prefixes[] = { "card", "renderD" };
    char dir[96], path[PATH_MAX];
    const char **all = NULL;
    size_t n_all = 0;
    if (!(g->valid & GPU_HAS_PCI))
        return;
    snprintf(dir, sizeof dir, "/sys/bus/pci/devices/%s/drm", g->pci);
    for (size_t p = 0; p < ARRAY_LEN(prefixes); p++) {
        size_t n;
        const char **names = maker_names(m, m->host->root, dir, prefixes[p], &n);
        for (size_t i = 0; i < n && !m->full; i++) {
            const char *rest = names[i] + strlen(prefixes[p]);
            if (!rest[0] || strspn(rest, "0123456789") != strlen(rest))
                continue; /* card0-DP-1: a connector */
            const char **item = MAKER_PUSH(m, all, n_all);
            if (item)
                *item = names[i];
            snprintf(path, sizeof path, "/dev/dri/%s", names[i]);
            maker_node(m, e, path, false);
        }
    }
    if (!m->full)
        add_by_path(m, g, all, n_all, e);
}

/* Rootless containers under crun cannot pass folders of nodes that the runtime made. */
static void add_chmod(struct maker *m, struct cdi_edits *e)
{
    static const char *const folders[] = { "/dev/dri/", "/dev/nvidia-caps/" };
    const char **args = NULL;
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        bool any = false;
        for (size_t k = 0; k < e->n_nodes; k++)
            any = any || strncmp(e->nodes[k].path, folders[i], strlen(folders[i])) == 0;
        const char *words[] = { "--path",
                                maker_text(m, "%.*s", (int)strlen(folders[i]) - 1, folders[i]) };
        for (size_t k = 0; any && k < ARRAY_LEN(words); k++) {
            const char **item = MAKER_PUSH(m, args, n);
            if (item)
                *item = words[k];
        }
    }
    if (n == 0 || m->full)
        return;
    const char **all = arena_array(m->arena, n + 2, sizeof *all);
    m->full |= !all;
    if (!all)
        return;
    all[0] = "--mode";
    all[1] = "755";
    memcpy(all + 2, args, n * sizeof *all);
    maker_hook(m, e, "chmod", all, n + 2);
}

/* ---- gpus and parts ---- */

void maker_gpu(struct maker *m, const struct gpu *g, struct cdi_edits *e)
{
    char path[40];
    snprintf(path, sizeof path, "/dev/nvidia%u", g->minor);
    maker_node(m, e, path, true);
    add_drm(m, g, e);
    maker_sort(e);
    add_chmod(m, e);
}

static bool has_graphics(const struct part *p)
{
    return str_ends(str_of(p->profile), "+gfx");
}

static void add_cap(struct maker *m, struct cdi_edits *e, uint32_t cap, const char *proc_file)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/nvidia-caps/nvidia-cap%u", cap);
    struct cdi_node *node = push_node(m, e, path, true);
    if (node && node->has_type)
        node->mode = mode_in(m, proc_file);
}

void maker_part(struct maker *m, const struct gpu *g, const struct part *p, struct cdi_edits *e)
{
    char path[128];
    snprintf(path, sizeof path, "/dev/nvidia%u", g->minor);
    maker_node(m, e, path, true);
    snprintf(path, sizeof path, "/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/access", g->minor,
             p->gi);
    add_cap(m, e, p->gi_cap, path);
    snprintf(path, sizeof path, "/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/ci%u/access",
             g->minor, p->gi, p->ci);
    add_cap(m, e, p->ci_cap, path);
    if (has_graphics(p))
        add_drm(m, g, e);
    maker_sort(e);
    add_chmod(m, e);
}

void maker_management_nodes(struct maker *m, struct cdi_edits *e)
{
    static const char *const other[] = { "nvidia-fs", "nvidia-nvswitch", "nvidia-nvlink" };
    size_t n;
    char path[PATH_MAX];
    const char **names = maker_names(m, m->host->dev_root_view, "/dev", "nvidia", &n);
    for (size_t i = 0; i < n && !m->full; i++) {
        bool skip = false;
        for (size_t k = 0; k < ARRAY_LEN(other); k++)
            skip = skip || str_starts(str_of(names[i]), other[k]);
        snprintf(path, sizeof path, "/dev/%s", names[i]);
        if (!skip)
            maker_node(m, e, path, false);
    }
    maker_numbered(m, e, "/dev/nvidia-caps", "nvidia-cap");
    maker_numbered(m, e, IMEX_CHANNEL_DIR, "channel");
    maker_sort(e);
    add_chmod(m, e);
}

/* ---- union ---- */

static bool same_hook(const struct cdi_hook *a, const struct cdi_hook *b)
{
    if (strcmp(a->name, b->name) != 0 || a->n_args != b->n_args)
        return false;
    for (size_t i = 0; i < a->n_args; i++)
        if (strcmp(a->args[i], b->args[i]) != 0)
            return false;
    return true;
}

static void merge_nodes(struct maker *m, struct cdi_edits *to, const struct cdi_edits *from)
{
    for (size_t i = 0; i < from->n_nodes; i++) {
        bool there = false;
        for (size_t k = 0; k < to->n_nodes && !there; k++)
            there = strcmp(to->nodes[k].path, from->nodes[i].path) == 0;
        struct cdi_node *at = there ? NULL : MAKER_PUSH(m, to->nodes, to->n_nodes);
        if (at)
            *at = from->nodes[i];
    }
}

static void merge_hooks(struct maker *m, struct cdi_edits *to, const struct cdi_edits *from)
{
    for (size_t i = 0; i < from->n_hooks; i++) {
        bool there = false;
        for (size_t k = 0; k < to->n_hooks && !there; k++)
            there = same_hook(&to->hooks[k], &from->hooks[i]);
        struct cdi_hook *at = there ? NULL : MAKER_PUSH(m, to->hooks, to->n_hooks);
        if (at)
            *at = from->hooks[i];
    }
}

void maker_merge(struct maker *m, struct cdi_edits *to, const struct cdi_edits *from)
{
    merge_nodes(m, to, from);
    merge_hooks(m, to, from);
    for (size_t i = 0; i < from->n_gids; i++)
        add_gid(m, to, from->gids[i]);
}
