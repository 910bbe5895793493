/* SPDX-License-Identifier: Apache-2.0 */
#include "cdi/driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cdi/search.h"

/* ---- lists ---- */

const char *search_text(struct search *s, const char *fmt, ...)
{
    char line[2 * CDI_PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    char *copy = n < 0 || (size_t)n >= sizeof line ? NULL : arena_strdup(s->arena, str_of(line));
    s->full |= !copy;
    return copy ? copy : "/";
}

void search_add_file(struct search *s, enum cdi_file_kind kind, const char *container,
                     const char *real)
{
    struct cdi_file *f = SEARCH_PUSH(s, s->found->files, s->found->n_files);
    if (f)
        *f = (struct cdi_file){ kind, search_text(s, "%s", container), search_text(s, "%s", real) };
}

void search_add_link(struct search *s, bool graphics, const char *dir, const char *name,
                     const char *target)
{
    struct cdi_driver *d = s->found;
    struct cdi_link *l = graphics ? SEARCH_PUSH(s, d->graphics_links, d->n_graphics_links)
                                  : SEARCH_PUSH(s, d->links, d->n_links);
    if (l)
        *l = (struct cdi_link){ search_text(s, "%s", target), search_text(s, "%s/%s", dir, name) };
}

void search_add_once(struct search *s, const char ***list, size_t *n, const char *text)
{
    for (size_t i = 0; i < *n; i++) {
        if (strcmp((*list)[i], text) == 0)
            return;
    }
    const char **item = SEARCH_PUSH(s, *list, *n);
    if (item)
        *item = text;
}

/* ---- programs, sockets, configuration ---- */

/* A file in a folder (a real path) keeps its name, also when it is a link to somewhere else. */
static void add_in_dir(struct search *s, enum cdi_file_kind kind, const char *real_dir,
                       const char *name, const char *real, const char *link)
{
    char path[2 * CDI_PATH_MAX];
    const char *base = strcmp(real_dir, "/") == 0 ? "" : real_dir;
    snprintf(path, sizeof path, "%s/%s", base, name);
    search_add_file(s, kind, path, real);
    if (link)
        search_add_link(s, true, base, link, name);
}

static bool try_program(struct search *s, const char *real_dir, const char *name)
{
    char real[CDI_PATH_MAX];
    struct stat st;
    if (!cdi_root_resolve_in(&s->root, real_dir, name, real, &st) || !S_ISREG(st.st_mode) ||
        !(st.st_mode & 0111))
        return false;
    add_in_dir(s, CDI_FILE_PROGRAM, real_dir, name, real, NULL);
    return true;
}

/* Adds a folder, without links, to those that are searched, unless it is there. */
static void add_real_dir(struct search *s, const char ***dirs, size_t *n, const char *path)
{
    char real[CDI_PATH_MAX];
    struct stat st;
    if (!cdi_root_resolve(&s->root, path, real, &st) || !S_ISDIR(st.st_mode))
        return;
    for (size_t i = 0; i < *n; i++)
        if (strcmp((*dirs)[i], real) == 0)
            return;
    const char **item = SEARCH_PUSH(s, *dirs, *n);
    if (item)
        *item = search_text(s, "%s", real);
}

/* Where programs lie beside a library folder: "/usr/lib/x86_64-linux-gnu" → "/usr/bin". */
static bool bin_beside(const char *library_dir, char ret[CDI_PATH_MAX])
{
    struct str rest = str_of(library_dir);
    size_t at = 0;
    while (rest.p) {
        struct str part = str_cut(&rest, '/');
        if (str_is(part, "lib") || str_is(part, "lib64"))
            break;
        at += part.n + 1;
    }
    if (at == 0 || at > strlen(library_dir))
        return false;
    int n = snprintf(ret, CDI_PATH_MAX, "%.*s/bin", (int)(at - 1), library_dir);
    return n > 0 && n < CDI_PATH_MAX;
}

static const char *const program_dirs[] = {
    "/usr/bin",       "/usr/sbin",       "/bin",     "/sbin",
    "/usr/local/bin", "/usr/local/sbin", "/opt/bin", "/run/current-system/sw/bin",
};

static void find_programs(struct search *s)
{
    static const char *const names[] = {
        "nvidia-smi",
        "nvidia-debugdump",
        "nvidia-persistenced",
        "nvidia-cuda-mps-control",
        "nvidia-cuda-mps-server",
        "nvidia-imex",
        "nvidia-imex-ctl",
        "nvidia-xconfig", /* last: only with graphics */
    };
    const char **dirs = NULL;
    size_t n = 0;
    char dir[CDI_PATH_MAX];
    for (size_t i = 0; i < s->found->n_cuda_dirs; i++)
        if (bin_beside(s->found->cuda_dirs[i], dir))
            add_real_dir(s, &dirs, &n, dir);
    for (size_t i = 0; i < ARRAY_LEN(program_dirs); i++)
        add_real_dir(s, &dirs, &n, program_dirs[i]);
    for (size_t i = 0; i < ARRAY_LEN(names) - s->options->no_graphics && !s->full; i++)
        for (size_t k = 0; k < n; k++)
            if (try_program(s, dirs[k], names[i]))
                break;
}

static void find_sockets(struct search *s)
{
    static const char *const paths[][2] = {
        { "/run/nvidia-persistenced/socket", "/var/run/nvidia-persistenced/socket" },
        { "/run/nvidia-fabricmanager/socket", "/var/run/nvidia-fabricmanager/socket" },
        { "/tmp/nvidia-mps", NULL },
    };
    char real[CDI_PATH_MAX];
    for (size_t i = 0; i < ARRAY_LEN(paths) && !s->options->no_sockets; i++) {
        for (size_t k = 0; k < 2 && paths[i][k]; k++) {
            if (!cdi_root_resolve(&s->root, paths[i][k], real, NULL))
                continue;
            search_add_file(s, CDI_FILE_SOCKET, paths[i][k], real);
            break;
        }
    }
}

struct config_dirs {
    const char **dirs;
    size_t n;
};

/* Configuration is looked for in several folders, and put where the container's loaders look. */
static void find_config(struct search *s, const struct config_dirs *in, const char *name,
                        const char *container_dir)
{
    char real[CDI_PATH_MAX], container[CDI_PATH_MAX];
    struct stat st;
    for (size_t i = 0; i < in->n; i++) {
        if (!cdi_root_resolve_in(&s->root, in->dirs[i], name, real, &st) || !S_ISREG(st.st_mode))
            continue;
        snprintf(container, sizeof container, "%s/%s", container_dir, name);
        search_add_file(s, CDI_FILE_CONFIG, container, real);
        return;
    }
}

static void find_configs(struct search *s)
{
    static const char *const share[] = {
        "glvnd/egl_vendor.d/10_nvidia.json",
        "egl/egl_external_platform.d/15_nvidia_gbm.json",
        "egl/egl_external_platform.d/10_nvidia_wayland.json",
        "egl/egl_external_platform.d/09_nvidia_wayland2.json",
        "egl/egl_external_platform.d/20_nvidia_xcb.json",
        "egl/egl_external_platform.d/20_nvidia_xlib.json",
        "nvidia/nvoptix.bin",
        "X11/xorg.conf.d/10-nvidia.conf",
        "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    };
    static const char *const vulkan[] = {
        "vulkan/icd.d/nvidia_icd.json",
        "vulkan/icd.d/nvidia_icd.x86_64.json",
        "vulkan/icd.d/nvidia_icd.aarch64.json",
        "vulkan/icd.d/nvidia_layers.json",
        "vulkan/implicit_layer.d/nvidia_layers.json",
    };
    static const char *const usual[] = { "/etc", "/usr/local/share", "/usr/share" };
    const struct cdi_driver_options *o = s->options;
    const char *const *dirs = o->n_config_dirs ? o->config_dirs : usual;
    size_t n = o->n_config_dirs ? o->n_config_dirs : ARRAY_LEN(usual);
    struct config_dirs in = { 0 };
    for (size_t i = 0; i < n; i++)
        add_real_dir(s, &in.dirs, &in.n, dirs[i]);
    for (size_t i = 0; i < ARRAY_LEN(share); i++)
        find_config(s, &in, share[i], "/usr/share");
    find_config(s, &in, "OpenCL/vendors/nvidia.icd", "/etc");
    add_real_dir(s, &in.dirs, &in.n, "/"); /* some have it at <driver root>/vulkan */
    for (size_t i = 0; i < ARRAY_LEN(vulkan); i++)
        find_config(s, &in, vulkan[i], "/etc");
}

/* ---- X server modules ---- */

static void find_xorg(struct search *s)
{
    static const char *const below[] = {
        "nvidia/xorg",
        "xorg/modules/drivers",
        "xorg/modules/extensions",
        "xorg/modules/updates/drivers",
        "xorg/modules/updates/extensions",
    };
    const char **roots = NULL, **dirs = NULL;
    size_t n_roots = 0, n = 0;
    char real[CDI_PATH_MAX];
    struct stat st;
    for (size_t i = 0; i < s->found->n_cuda_dirs; i++)
        add_real_dir(s, &roots, &n_roots, s->found->cuda_dirs[i]);
    add_real_dir(s, &roots, &n_roots, "/usr/lib");
    add_real_dir(s, &roots, &n_roots, "/usr/lib64");
    for (size_t i = 0; i < n_roots; i++)
        for (size_t k = 0; k < ARRAY_LEN(below); k++)
            if (cdi_root_resolve_in(&s->root, roots[i], below[k], real, &st))
                add_real_dir(s, &dirs, &n, real);
    auto_free char *glx = x_printf("libglxserver_nvidia.so.%s", s->found->version);
    const char *const names[] = { "nvidia_drv.so", glx };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        for (size_t k = 0; k < n; k++) {
            if (!cdi_root_resolve_in(&s->root, dirs[k], names[i], real, &st) ||
                !S_ISREG(st.st_mode))
                continue;
            add_in_dir(s, CDI_FILE_XORG, dirs[k], names[i], real,
                       i == 1 ? "libglxserver_nvidia.so" : NULL);
            break;
        }
    }
}

/* ---- firmware ---- */

static void one_line(const struct host *h, const char *sub, char *ret, size_t size)
{
    auto_free char *path = host_path(h, sub), *text = NULL;
    struct error ignored;
    ret[0] = '\0';
    if (file_read(path, 4096, &text, NULL, &ignored) < 0)
        return;
    struct str rest = str_of(text), line = str_trim(str_cut(&rest, '\n'));
    if (line.n < size)
        snprintf(ret, size, "%.*s", STR_FMT(line));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_firmware_of(struct search *s, const char *base)
{
    char dir[CDI_PATH_MAX], real[CDI_PATH_MAX], path[2 * CDI_PATH_MAX];
    struct stat st;
    int n = snprintf(dir, sizeof dir, "%s/nvidia/%s", base, s->found->version);
    if (n < 0 || (size_t)n >= sizeof dir)
        return;
    int fd = cdi_root_open_file(&s->root, dir, O_RDONLY | O_DIRECTORY);
    DIR *handle = fd < 0 ? NULL : fdopendir(fd);
    if (!handle) {
        if (fd >= 0)
            close(fd);
        return;
    }
    const char **names = NULL;
    size_t n_names = 0, looked = 0;
    for (struct dirent *e; looked++ < SEARCH_ENTRIES_MAX && (e = readdir(handle));) {
        struct str name = str_of(e->d_name);
        if (str_starts(name, "gsp") && str_ends(name, ".bin"))
            search_add_once(s, &names, &n_names, search_text(s, "%s", e->d_name));
    }
    closedir(handle);
    if (n_names > 1)
        qsort(names, n_names, sizeof *names, by_text);
    for (size_t i = 0; i < n_names && !s->full; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (cdi_root_resolve(&s->root, path, real, &st) && S_ISREG(st.st_mode))
            search_add_file(s, CDI_FILE_FIRMWARE, path, real);
    }
}

/* In the kernel's order (drivers/base/firmware_loader): the custom path first. */
static void find_firmware(struct search *s, const struct host *h)
{
    char custom[CDI_PATH_MAX], release[256], dir[CDI_PATH_MAX];
    struct utsname u;
    one_line(h, "/sys/module/firmware_class/parameters/path", custom, sizeof custom);
    one_line(h, "/proc/sys/kernel/osrelease", release, sizeof release);
    if (!release[0] && uname(&u) == 0)
        snprintf(release, sizeof release, "%s", u.release);
    if (custom[0] == '/')
        add_firmware_of(s, custom);
    if (release[0] && !strchr(release, '/')) {
        snprintf(dir, sizeof dir, "/lib/firmware/updates/%s", release);
        add_firmware_of(s, dir);
    }
    add_firmware_of(s, "/lib/firmware/updates");
    if (release[0] && !strchr(release, '/')) {
        snprintf(dir, sizeof dir, "/lib/firmware/%s", release);
        add_firmware_of(s, dir);
    }
    add_firmware_of(s, "/lib/firmware");
}

/* ---- order ---- */

static size_t depth(const char *path)
{
    size_t n = 0;
    for (; *path; path++)
        n += *path == '/';
    return n;
}

static int by_place(const void *pa, const void *pb)
{
    const struct cdi_file *a = pa, *b = pb;
    size_t x = depth(a->container), y = depth(b->container);
    if (x != y)
        return x < y ? -1 : 1;
    int c = strcmp(a->container, b->container);
    return c ? c : strcmp(a->real, b->real);
}

static int by_link(const void *pa, const void *pb)
{
    const struct cdi_link *a = pa, *b = pb;
    int c = strcmp(a->path, b->path);
    return c ? c : strcmp(a->target, b->target);
}

static size_t unique_links(struct cdi_link *links, size_t n)
{
    size_t kept = 0;
    if (n > 1)
        qsort(links, n, sizeof *links, by_link);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || strcmp(links[kept - 1].path, links[i].path) != 0)
            links[kept++] = links[i];
    return kept;
}

static void settle(struct cdi_driver *d)
{
    size_t kept = 0;
    if (d->n_files > 1)
        qsort(d->files, d->n_files, sizeof *d->files, by_place);
    for (size_t i = 0; i < d->n_files; i++)
        if (kept == 0 || strcmp(d->files[kept - 1].container, d->files[i].container) != 0)
            d->files[kept++] = d->files[i];
    d->n_files = kept;
    d->n_links = unique_links(d->links, d->n_links);
    d->n_graphics_links = unique_links(d->graphics_links, d->n_graphics_links);
    if (d->n_library_dirs > 1)
        qsort(d->library_dirs, d->n_library_dirs, sizeof *d->library_dirs, by_text);
}

int cdi_driver_find(struct arena *a, const struct host *h, const struct cdi_driver_options *o,
                    struct cdi_driver *ret, struct findings *notes, struct error *err)
{
    struct cdi_driver found = { 0 };
    struct search s = { .arena = a, .options = o, .found = &found, .notes = notes };
    int r = cdi_root_open(&s.root, h->driver_root_view, err);
    if (r < 0)
        return error_wrap(err, "driver root");
    r = search_libraries(&s, err);
    if (r == 0 && !s.full) {
        find_programs(&s);
        find_sockets(&s);
        find_firmware(&s, h);
    }
    if (r == 0 && !s.full && !o->no_graphics) {
        find_configs(&s);
        find_xorg(&s);
    }
    cdi_root_close(&s.root);
    if (r < 0)
        return r;
    if (s.full)
        return error_set(err, ERR_LIMIT, 0,
                         "the driver's files below %s need more than %zu bytes or are more than %d",
                         h->driver_root_view, a->limit, SEARCH_FILES_MAX);
    settle(&found);
    *ret = found;
    return 0;
}

/* ---- versions ---- */

bool cdi_is_version(struct str s)
{
    size_t parts = 0;
    if (s.n == 0 || s.n > 40)
        return false;
    while (s.p) {
        struct str part = str_cut(&s, '.');
        if (part.n == 0)
            return false;
        for (size_t i = 0; i < part.n; i++)
            if (part.p[i] < '0' || part.p[i] > '9')
                return false;
        parts++;
    }
    return parts >= 2;
}

void cdi_module_version(const struct host *h, char ret[64])
{
    char line[512];
    ret[0] = '\0';
    one_line(h, "/proc/driver/nvidia/version", line, sizeof line);
    struct str rest = str_of(line);
    while (rest.p) {
        struct str word = str_cut(&rest, ' ');
        if (!cdi_is_version(word))
            continue;
        snprintf(ret, 64, "%.*s", STR_FMT(word));
        return;
    }
}
