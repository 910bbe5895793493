/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's libraries: every one that carries the driver's version in its name, in every folder
 * where distributions and driver containers keep them, those without a version that call themselves
 * one of the driver's by SONAME, and the links by which programs open them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cdi/search.h"
#include "elf/elffile.h"
#include "elf/ldcache.h"

/* Debian, Ubuntu, RHEL, SUSE, driver containers, container-optimised systems, NixOS. */
static const char *const usual_dirs[] = {
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
    "/home/kubernetes/bin/nvidia/lib64",
    "/opt/nvidia/lib64",
    "/run/opengl-driver/lib",
};

enum capability { COMPUTE, GRAPHICS, VIDEO, CAPABILITIES };
static const char *const capability_names[] = { "compute", "graphics", "video" };

/* Libraries of the driver that may come without its version in their name; `expected`: in every
 * driver of that capability. */
static const struct {
    const char *stem;
    enum capability capability;
    bool expected;
} known[] = {
    { "libcuda", COMPUTE, true },
    { "libnvidia-ml", COMPUTE, true },
    { "libnvidia-ptxjitcompiler", COMPUTE, true },
    { "libcudadebugger", COMPUTE, false },
    { "libnvidia-nvvm", COMPUTE, false },
    { "libnvidia-opencl", COMPUTE, false },
    { "libnvidia-cfg", COMPUTE, false },
    { "libnvidia-allocator", COMPUTE, false },
    { "libGLX_nvidia", GRAPHICS, true },
    { "libEGL_nvidia", GRAPHICS, true },
    { "libnvidia-glcore", GRAPHICS, true },
    { "libnvidia-eglcore", GRAPHICS, true },
    { "libnvidia-glsi", GRAPHICS, true },
    { "libnvidia-tls", GRAPHICS, true },
    { "libGLESv1_CM_nvidia", GRAPHICS, false },
    { "libGLESv2_nvidia", GRAPHICS, false },
    { "libnvidia-fbc", GRAPHICS, false },
    { "libnvoptix", GRAPHICS, false },
    { "libnvcuvid", VIDEO, true },
    { "libnvidia-encode", VIDEO, true },
    { "libnvidia-opticalflow", VIDEO, false },
    { "libvdpau_nvidia", VIDEO, false },
};

/* Versions of their own. */
static const char *const own_version[] = {
    "libnvidia-egl-gbm", "libnvidia-egl-wayland", "libnvidia-egl-wayland2",
    "libnvidia-egl-xcb", "libnvidia-egl-xlib",
};

static const char *const neutral_loaders[] = {
    "libEGL.so",        "libGL.so",     "libGLESv1_CM.so", "libGLESv2.so",     "libGLX.so",
    "libGLdispatch.so", "libOpenCL.so", "libOpenGL.so",    "libnvidia-api.so",
};

/* A library that is published. */
struct library {
    const char *dir, *name; /* real folder; file name */
    size_t stem;            /* length of the part before ".so" */
};

struct scan {
    struct search *s;
    struct library *list;
    size_t n;
    struct library *unversioned; /* files that only their SONAME can prove to be the driver's */
    size_t n_unversioned;
};

static size_t stem_of(const char *name)
{
    const char *so = strstr(name, ".so");
    return so ? (size_t)(so - name) : 0;
}

static int known_stem(struct str stem)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_is(stem, known[i].stem))
            return (int)i;
    return -1;
}

/* ---- folders ---- */

static void add_dir(struct search *s, const char *path)
{
    char real[CDI_PATH_MAX];
    struct stat st;
    if (path[0] != '/' || !cdi_root_resolve(&s->root, path, real, &st) || !S_ISDIR(st.st_mode))
        return;
    for (size_t i = 0; i < s->n_dirs; i++)
        if (strcmp(s->dirs[i], real) == 0)
            return;
    if (s->n_dirs < SEARCH_DIRS_MAX)
        s->dirs[s->n_dirs++] = search_text(s, "%s", real);
}

/* Folders that the host's own loader finds driver libraries in. */
static bool add_cached(void *arg, const struct ldcache_entry *e)
{
    struct search *s = arg;
    struct str name = str_of(e->soname), stem = { name.p, stem_of(name.p) };
    const char *slash = strrchr(e->path, '/');
    char dir[CDI_PATH_MAX];
    if (known_stem(stem) < 0 || !slash || slash == e->path ||
        (size_t)(slash - e->path) >= sizeof dir)
        return true;
    snprintf(dir, sizeof dir, "%.*s", (int)(slash - e->path), e->path);
    add_dir(s, dir);
    return !s->full;
}

static void add_cached_dirs(struct search *s)
{
    auto_close int fd = cdi_root_open_file(&s->root, "/etc/ld.so.cache", O_RDONLY | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
        st.st_size > SEARCH_CACHE_MAX)
        return;
    auto_free char *bytes = try_alloc((size_t)st.st_size);
    struct error ignored;
    if (!bytes) {
        s->full = true;
        return;
    }
    ssize_t n = pread(fd, bytes, (size_t)st.st_size, 0);
    /* A cache that cannot be read only means that nothing comes from it. */
    if (n > 0 && ldcache_each((struct str){ bytes, (size_t)n }, add_cached, s, &ignored) < 0)
        return;
}

static void find_dirs(struct search *s)
{
    for (size_t i = 0; i < s->options->n_library_dirs; i++)
        add_dir(s, s->options->library_dirs[i]);
    for (size_t i = 0; i < ARRAY_LEN(usual_dirs); i++)
        add_dir(s, usual_dirs[i]);
    add_cached_dirs(s);
}

static DIR *open_dir(const struct search *s, const char *dir)
{
    int fd = cdi_root_open_file(&s->root, dir, O_RDONLY | O_DIRECTORY);
    DIR *handle = fd < 0 ? NULL : fdopendir(fd);
    if (!handle && fd >= 0)
        close(fd);
    return handle;
}

/* ---- version ---- */

static int newer(const char *a, const char *b)
{
    return strverscmp(a, b) > 0;
}

/* The highest version that `name` ("libcuda.so.") has in any folder. */
static void version_by_name(struct search *s, const char *name, char ret[64])
{
    size_t n = strlen(name);
    for (size_t i = 0; i < s->n_dirs && !ret[0]; i++) {
        DIR *handle = open_dir(s, s->dirs[i]);
        size_t looked = 0;
        for (struct dirent *e; handle && looked++ < SEARCH_ENTRIES_MAX && (e = readdir(handle));) {
            const char *rest = e->d_name + n;
            if (strncmp(e->d_name, name, n) == 0 && cdi_is_version(str_of(rest)) &&
                (!ret[0] || newer(rest, ret)))
                snprintf(ret, 64, "%s", rest);
        }
        if (handle)
            closedir(handle);
    }
}

static void version_by_files(struct search *s, char ret[64])
{
    ret[0] = '\0';
    version_by_name(s, "libcuda.so.", ret);
    if (!ret[0])
        version_by_name(s, "libnvidia-ml.so.", ret);
}

/* ---- looking through folders ---- */

static bool is_own_version(struct str stem, const char *rest)
{
    for (size_t i = 0; i < ARRAY_LEN(own_version); i++)
        if (str_is(stem, own_version[i]))
            return cdi_is_version(str_of(rest));
    return str_is(stem, "libnvidia-nvvm70") && rest[0];
}

static void add_library(struct scan *c, struct library **list, size_t *n, const char *dir,
                        const char *name)
{
    struct library *l = SEARCH_PUSH(c->s, *list, *n);
    if (l)
        *l = (struct library){ dir, search_text(c->s, "%s", name), stem_of(name) };
}

/* What a name in a library folder means. */
static void take_name(struct scan *c, const char *dir, const struct dirent *e)
{
    const char *name = e->d_name, *so = strstr(name, ".so.");
    if (!so || strlen(name) >= 255)
        return;
    const char *rest = so + 4;
    struct str stem = { name, (size_t)(so - name) };
    if (strcmp(rest, c->s->found->version) == 0 || is_own_version(stem, rest))
        add_library(c, &c->list, &c->n, dir, name);
    else if (e->d_type != DT_LNK && strspn(rest, "0123456789") == strlen(rest) &&
             known_stem(stem) >= 0)
        add_library(c, &c->unversioned, &c->n_unversioned, dir, name);
}

static void take_dir(struct scan *c, const char *dir)
{
    DIR *handle = open_dir(c->s, dir);
    size_t looked = 0;
    if (!handle)
        return;
    for (struct dirent *e; looked++ < SEARCH_ENTRIES_MAX && (e = readdir(handle));)
        take_name(c, dir, e);
    closedir(handle);
}

static bool has_stem(const struct scan *c, const struct library *l)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->list[i].stem == l->stem && strncmp(c->list[i].name, l->name, l->stem) == 0)
            return true;
    return false;
}

static void take_neutral(struct scan *c)
{
    char real[CDI_PATH_MAX];
    struct stat st;
    for (size_t i = 0; i < ARRAY_LEN(neutral_loaders); i++) {
        for (size_t k = 0; k < c->s->n_dirs; k++) {
            if (!cdi_root_resolve_in(&c->s->root, c->s->dirs[k], neutral_loaders[i], real, &st) ||
                !S_ISREG(st.st_mode))
                continue;
            char *slash = strrchr(real, '/');
            *slash = '\0';
            add_library(c, &c->list, &c->n, search_text(c->s, "%s", real), slash + 1);
            break;
        }
    }
}

/* ---- one library ---- */

/* Where a library really is; false when it is no regular file. */
static bool real_place(const struct search *s, struct library *l, char real[CDI_PATH_MAX])
{
    struct stat st;
    return cdi_root_resolve_in(&s->root, l->dir, l->name, real, &st) && S_ISREG(st.st_mode);
}

static bool facts_of(const struct search *s, const char *real, struct elf_facts *ret)
{
    struct error ignored;
    auto_close int fd = cdi_root_open_file(&s->root, real, O_RDONLY | O_NONBLOCK);
    return fd >= 0 && elf_read(fd, ret, &ignored) == 0;
}

static bool exists(const struct search *s, const char *dir, const char *name)
{
    char real[CDI_PATH_MAX];
    return cdi_root_resolve_in(&s->root, dir, name, real, NULL);
}

/* Links that applications need although no linker makes them. */
static void add_special_links(struct search *s, const char *dir, const char *name)
{
    struct str file = str_of(name);
    if (str_starts(file, "libcuda.so."))
        search_add_link(s, false, dir, "libcuda.so", "libcuda.so.1");
    else if (str_starts(file, "libGLX_nvidia.so."))
        search_add_link(s, false, dir, "libGLX_indirect.so.0", name);
    else if (str_starts(file, "libnvidia-opticalflow.so."))
        search_add_link(s, false, dir, "libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1");
    if (s->options->no_graphics)
        return;
    if (str_starts(file, "libnvidia-allocator.so."))
        search_add_link(s, true, dir, "gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1");
    else if (str_starts(file, "libnvidia-vulkan-producer.so."))
        search_add_link(s, true, dir, "libnvidia-vulkan-producer.so", name);
}

static void publish(struct search *s, const char *real, const struct elf_facts *facts)
{
    char dir[CDI_PATH_MAX];
    const char *slash = strrchr(real, '/'), *name = slash + 1;
    snprintf(dir, sizeof dir, "%.*s", (int)(slash - real), real);
    search_add_file(s, CDI_FILE_LIBRARY, real, real);
    search_add_once(s, &s->found->library_dirs, &s->found->n_library_dirs,
                    search_text(s, "%s", slash == real ? "/" : dir));
    add_special_links(s, dir, name);
    const char *soname = facts ? facts->soname : "";
    if (!soname[0] || strchr(soname, '/') || stem_of(name) == 0)
        return;
    if (strcmp(soname, name) != 0)
        search_add_link(s, false, dir, soname, name);
    char link[256];
    size_t dot_so = stem_of(name) + 3;
    snprintf(link, sizeof link, "%.*s", (int)dot_so, name);
    if (name[dot_so] && strcmp(link, soname) != 0 && exists(s, slash == real ? "/" : dir, link))
        search_add_link(s, false, dir, link, soname);
}

/* `proven`: the name says that it is the driver's; else the file must. */
static void take_library(struct scan *c, struct library *l, bool proven)
{
    char real[CDI_PATH_MAX];
    struct elf_facts facts;
    if (!real_place(c->s, l, real))
        return;
    bool elf = facts_of(c->s, real, &facts);
    if ((elf && !facts.is64) || (!elf && !proven))
        return; /* of the 32-bit driver, or anything */
    if (!proven && (strncmp(facts.soname, l->name, l->stem) != 0 ||
                    strncmp(facts.soname + l->stem, ".so", 3) != 0))
        return;
    publish(c->s, real, elf ? &facts : NULL);
}

static int by_place(const void *pa, const void *pb)
{
    const struct library *a = pa, *b = pb;
    int c = strcmp(a->dir, b->dir);
    return c ? c : strcmp(a->name, b->name);
}

static void sort_libraries(struct library *list, size_t n)
{
    if (n > 1)
        qsort(list, n, sizeof *list, by_place);
}

/* ---- what is there, what is missing ---- */

static bool published(const struct search *s, const char *stem)
{
    size_t n = strlen(stem);
    for (size_t i = 0; i < s->found->n_files; i++) {
        const char *name = strrchr(s->found->files[i].container, '/') + 1;
        if (strncmp(name, stem, n) == 0 && strncmp(name + n, ".so", 3) == 0)
            return true;
    }
    return false;
}

static void find_cuda_dirs(struct search *s, const char *stem)
{
    struct cdi_driver *d = s->found;
    size_t n = strlen(stem);
    for (size_t i = 0; i < d->n_files; i++) {
        const char *path = d->files[i].container, *slash = strrchr(path, '/');
        if (strncmp(slash + 1, stem, n) != 0 || strncmp(slash + 1 + n, ".so.", 4) != 0)
            continue;
        search_add_once(s, &d->cuda_dirs, &d->n_cuda_dirs,
                        search_text(s, "%.*s", (int)(slash - path), path));
    }
}

static void tell_missing(struct search *s)
{
    if (!s->notes)
        return;
    for (int c = 0; c < CAPABILITIES; c++) {
        size_t there = 0;
        auto_buf missing;
        buf_init(&missing, 1024);
        for (size_t i = 0; i < ARRAY_LEN(known); i++) {
            if (known[i].capability != (enum capability)c || !known[i].expected)
                continue;
            if (published(s, known[i].stem))
                there++;
            else
                buf_fmt(&missing, "%s%s.so", missing.n ? ", " : "", known[i].stem);
        }
        if (missing.n == 0 || (there == 0 && c != COMPUTE)) {
            if (missing.n > 0)
                findings_add(s->notes, "cdi.no-capability", SEVERITY_INFO, capability_names[c],
                             "install the driver's libraries for it if containers need it",
                             "none of the libraries for %s is there", capability_names[c]);
            continue;
        }
        findings_add(s->notes, "cdi.missing-library", SEVERITY_WARNING, capability_names[c],
                     "install the whole driver, of one version",
                     "driver %s has libraries for %s, but not %s", s->found->version,
                     capability_names[c], missing.p);
    }
}

static int no_driver(struct search *s, const char *version, struct error *err)
{
    char found[64];
    auto_buf where;
    buf_init(&where, 200);
    for (size_t i = 0; i < s->n_dirs; i++)
        buf_fmt(&where, "%s%s", i ? " " : "", s->dirs[i]);
    version_by_files(s, found);
    return error_set(err, ERR_NOT_FOUND, 0,
                     "no libcuda.so.%s or libnvidia-ml.so.%s below %s (looked in: %s)%s%s; is the "
                     "driver root right, and the driver installed whole?",
                     version[0] ? version : "VERSION", version[0] ? version : "VERSION",
                     s->root.view, where.n ? where.p : "none of the usual folders exists",
                     found[0] ? "; found instead: version " : "", found);
}

int search_libraries(struct search *s, struct error *err)
{
    char version[64] = "";
    const char *told = s->options->version;
    struct scan c = { .s = s };
    find_dirs(s);
    if (told && cdi_is_version(str_of(told)))
        snprintf(version, sizeof version, "%s", told);
    else
        version_by_files(s, version);
    s->found->version = search_text(s, "%s", version);
    if (s->full)
        return 0; /* the caller says so */
    if (!version[0])
        return no_driver(s, version, err);
    size_t n = s->n_dirs;
    for (size_t i = 0; i < n; i++) {
        char real[CDI_PATH_MAX];
        take_dir(&c, s->dirs[i]);
        if (cdi_root_resolve_in(&s->root, s->dirs[i], "vdpau", real, NULL))
            take_dir(&c, search_text(s, "%s", real));
    }
    if (s->options->explicit_libraries)
        take_neutral(&c);
    sort_libraries(c.list, c.n);
    sort_libraries(c.unversioned, c.n_unversioned);
    for (size_t i = 0; i < c.n && !s->full; i++)
        take_library(&c, &c.list[i], true);
    for (size_t i = 0; i < c.n_unversioned && !s->full; i++)
        if (!has_stem(&c, &c.unversioned[i]))
            take_library(&c, &c.unversioned[i], false);
    if (s->full)
        return 0;
    find_cuda_dirs(s, "libcuda");
    if (s->found->n_cuda_dirs == 0)
        find_cuda_dirs(s, "libnvidia-ml");
    if (s->found->n_cuda_dirs == 0)
        return no_driver(s, version, err);
    tell_missing(s);
    return 0;
}
