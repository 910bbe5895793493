/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update-ldcache: makes the driver's libraries known to the container's loader. The image's own
 * cache is read, the folders' libraries are put in front of it (or behind it, for the loader's
 * default directories), and a new cache is written. No program runs: neither the image's ldconfig
 * nor the host's. Drop-ins in ld.so.conf.d keep the folders when somebody runs ldconfig in the
 * container later.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "elf/elffile.h"
#include "elf/ldcache.h"
#include "hook/hook.h"
#include "hook/root.h"

enum {
    ARENA_MAX = 64 * 1024 * 1024,
    FOLDER_FILES_MAX = 8192,
    CONF_FILES_MAX = 1024,
    CONF_MAX = 64 * 1024,
    COMPAT_FOLDERS_MAX = 8
};

static const char front_conf[] = "00-nvcr-mete.conf", back_conf[] = "zz-nvcr-mete.conf",
                  compat_prefix[] = "00-compat-";

/* Directories that the loader searches without a cache: the image's own order among them must stay.
 */
static const char *const default_folders[] = {
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
};

struct update {
    struct arena arena;
    struct ldcache cache;
    size_t cap;
    int rootfd;
};

/* The entry's texts live in the arena already. */
static int push_entry(struct update *u, const struct ldcache_entry *e, struct error *err)
{
    if (!e->soname || !e->path)
        return error_set(err, ERR_LIMIT, 0, "no memory for %zu libraries", u->cache.n);
    if (u->cache.n == LDCACHE_ENTRIES_MAX)
        return error_set(err, ERR_LIMIT, 0, "more than %d libraries", LDCACHE_ENTRIES_MAX);
    if (u->cache.n == u->cap) {
        size_t cap = u->cap ? u->cap * 2 : 1024;
        struct ldcache_entry *grown = arena_array(&u->arena, cap, sizeof *grown);
        if (!grown)
            return error_set(err, ERR_LIMIT, 0, "no memory for %zu libraries", cap);
        if (u->cache.n)
            memcpy(grown, u->cache.entries, u->cache.n * sizeof *grown);
        u->cache.entries = grown;
        u->cap = cap;
    }
    u->cache.entries[u->cache.n++] = *e;
    return 0;
}

static int add_entry(struct update *u, const char *soname, const char *folder, const char *file,
                     int32_t flags, struct error *err)
{
    const struct ldcache_entry e = {
        .soname = arena_strdup(&u->arena, str_of(soname)),
        .path = arena_printf(&u->arena, "%s/%s", folder, file),
        .flags = flags,
    };
    return push_entry(u, &e, err);
}

static int32_t flags_of(const struct elf_facts *f)
{
    static const struct {
        uint16_t machine;
        bool is64;
        int32_t flags;
    } known[] = { { 62, true, LDCACHE_X86_64 },
                  { 183, true, LDCACHE_AARCH64 },
                  { 3, false, LDCACHE_I386 } };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (f->machine == known[i].machine && f->is64 == known[i].is64)
            return known[i].flags;
    return 0;
}

static bool library_name(const char *name)
{
    return strncmp(name, "lib", 3) == 0 && strstr(name, ".so") != NULL;
}

/* A folder while it is looked at. */
struct folder {
    const char *path;
    int dirfd;
    bool defaults; /* the loader looks here anyway */
    struct root_mount mount;
    size_t first; /* its first entry in the cache */
};

static bool named_already(const struct update *u, const struct folder *f, const char *soname)
{
    for (size_t i = f->first; i < u->cache.n; i++)
        if (strcmp(u->cache.entries[i].soname, soname) == 0)
            return true;
    return false;
}

/* A file that lies on another mount than its folder was put there by the CDI files. */
static bool mounted(const struct folder *f, const char *name)
{
    struct root_mount m;
    return root_mount_of(f->dirfd, name, &m) && !root_same_mount(&m, &f->mount);
}

/* Makes the link by which the loader finds a file, as ldconfig would. A link of the image to
 * another version gives way to the driver that was mounted; a file does not. True when the name
 * leads somewhere. */
static bool link_soname(const struct folder *f, const char *name, const char *soname)
{
    struct stat st;
    struct error ignored;
    if (strcmp(soname, name) == 0 || symlinkat(name, f->dirfd, soname) == 0)
        return true;
    if (fstatat(f->dirfd, soname, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false; /* a folder that cannot be written */
    return !S_ISLNK(st.st_mode) || !mounted(f, name) ||
           hook_link(f->dirfd, soname, name, &ignored) == 0;
}

/* One file of a folder: what it calls itself, under the name by which the loader will open it. Of
 * several with one SONAME the first, newest one counts. */
static int add_file(struct update *u, const struct folder *f, const char *name, struct error *err)
{
    struct elf_facts facts;
    struct error ignored;
    /* In a folder that the loader searches anyway, the image's own libraries need no entry: there
     * may be thousands. */
    if (f->defaults && !mounted(f, name))
        return 0;
    auto_close int fd = root_open_file_at(f->dirfd, name);
    if (fd < 0 || elf_read(fd, &facts, &ignored) < 0 || !facts.shared || !flags_of(&facts))
        return 0; /* a link, a linker script, a broken file: not for the loader */
    const char *soname = facts.soname[0] ? facts.soname : name;
    if (strchr(soname, '/') || named_already(u, f, soname))
        return 0;
    const char *file = link_soname(f, name, soname) ? soname : name;
    return add_entry(u, soname, f->path, file, flags_of(&facts), err);
}

static int newest_first(const void *a, const void *b)
{
    return ldcache_compare_names(*(char *const *)b, *(char *const *)a);
}

static int add_folder(struct update *u, const char *path, bool defaults, struct error *err)
{
    auto_close int dirfd = -1;
    struct error absent;
    char **names;
    size_t n;
    if (root_open(u->rootfd, path, O_RDONLY | O_DIRECTORY, 0, &dirfd, &absent) < 0)
        return absent.code == ERR_NOT_FOUND
                   ? 0
                   : error_set(err, absent.code, absent.sys, "%s", absent.text);
    struct folder f = { .path = path, .dirfd = dirfd, .defaults = defaults, .first = u->cache.n };
    if (!root_mount_of(dirfd, "", &f.mount))
        return error_errno(err, errno, "stat %s in the container", path);
    int r =
        root_list(&u->arena, dirfd, library_name, newest_first, FOLDER_FILES_MAX, &names, &n, err);
    if (r < 0)
        return error_wrap(err, "%s", path);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = add_file(u, &f, names[i], err);
    return r;
}

static bool is_default(const char *folder)
{
    for (size_t i = 0; i < ARRAY_LEN(default_folders); i++)
        if (strcmp(folder, default_folders[i]) == 0)
            return true;
    return false;
}

static int add_folders(struct update *u, const struct hook_values *folders, bool defaults,
                       struct error *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < folders->n; i++)
        if (is_default(folders->items[i]) == defaults)
            r = add_folder(u, folders->items[i], defaults, err);
    return r;
}

static bool is_compat_conf(const char *name)
{
    return strncmp(name, compat_prefix, sizeof compat_prefix - 1) == 0;
}

static int oldest_first(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Folders that enable-cuda-compat left in its drop-ins: they go before the driver's. */
static int add_compat(struct update *u, struct error *err)
{
    auto_close int dirfd = -1;
    struct error ignored;
    char **names;
    size_t n;
    if (root_open(u->rootfd, "/etc/ld.so.conf.d", O_RDONLY | O_DIRECTORY, 0, &dirfd, &ignored) <
            0 ||
        root_list(&u->arena, dirfd, is_compat_conf, oldest_first, CONF_FILES_MAX, &names, &n,
                  &ignored) < 0)
        return 0;
    int r = 0;
    for (size_t i = 0; r == 0 && i < MIN(n, (size_t)COMPAT_FOLDERS_MAX); i++) {
        auto_free char *text = NULL;
        auto_free char *path = x_printf("/etc/ld.so.conf.d/%s", names[i]);
        if (hook_read(u->rootfd, path, CONF_MAX, &text, NULL, &ignored) < 0)
            continue;
        struct str line = str_of(text), folder = str_trim(str_cut(&line, '\n'));
        char *copy = folder.n && folder.p[0] == '/' ? arena_strdup(&u->arena, folder) : NULL;
        /* The drop-in may be the image's own: what is wrong with it does not stop the container. */
        if (copy && add_folder(u, copy, false, &ignored) == -ERR_LIMIT)
            r = error_set(err, ignored.code, ignored.sys, "%s", ignored.text);
    }
    return r;
}

static int add_image_cache(struct update *u, struct error *err)
{
    struct error why;
    auto_free char *bytes = NULL;
    size_t n = 0;
    if (hook_read(u->rootfd, "/etc/ld.so.cache", LDCACHE_MAX, &bytes, &n, &why) < 0)
        return 0; /* none: the loader has its default directories */
    struct ldcache old;
    if (ldcache_parse(&u->arena, (struct str){ bytes, n }, &old, &why) < 0)
        return 0; /* unreadable for us and, most likely, for the loader */
    int r = 0;
    for (size_t i = 0; r == 0 && i < old.n; i++)
        r = push_entry(u, &old.entries[i], err);
    memcpy(u->cache.hwcaps, old.hwcaps, sizeof old.hwcaps);
    u->cache.n_hwcaps = old.n_hwcaps;
    return r;
}

static int write_conf(int rootfd, const char *name, const struct hook_values *folders,
                      bool defaults, struct error *err)
{
    auto_buf text;
    buf_init(&text, CONF_MAX);
    for (size_t i = 0; i < folders->n; i++)
        if (is_default(folders->items[i]) == defaults)
            buf_fmt(&text, "%s\n", folders->items[i]);
    if (text.n == 0)
        return 0;
    int r = buf_check(&text, name, err);
    auto_close int dirfd = -1;
    char last[256];
    auto_free char *path = x_printf("/etc/ld.so.conf.d/%s", name);
    if (r == 0)
        r = root_open_parent(rootfd, path, &dirfd, last, err);
    return r < 0 ? r : hook_write(dirfd, last, buf_view(&text), 0644, err);
}

static bool there(int rootfd, const char *path)
{
    struct error ignored;
    auto_close int fd = -1;
    return root_open(rootfd, path, O_PATH, 0, &fd, &ignored) == 0;
}

static int write_file(int rootfd, const char *path, struct str text, struct error *err)
{
    auto_close int dirfd = -1;
    char name[256];
    int r = root_open_parent(rootfd, path, &dirfd, name, err);
    return r < 0 ? r : hook_write(dirfd, name, text, 0644, err);
}

/* Folders are parted by colons and line ends. */
static bool in_path(struct str path, const char *folder)
{
    while (path.p) {
        struct str line = str_cut(&path, '\n');
        while (line.p)
            if (str_is(str_trim(str_cut(&line, ':')), folder))
                return true;
    }
    return false;
}

/* musl's loader has no cache but a file with its search path. */
static int update_musl(int rootfd, const struct hook_options *o, struct error *err)
{
    static const char *const archs[] = { "x86_64", "aarch64" };
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        auto_free char *loader = x_printf("/lib/ld-musl-%s.so.1", archs[i]);
        auto_free char *path = x_printf("/etc/ld-musl-%s.path", archs[i]);
        auto_free char *old = NULL;
        struct error ignored;
        if (!there(rootfd, loader))
            continue;
        if (hook_read(rootfd, path, CONF_MAX, &old, NULL, &ignored) < 0)
            old = x_strdup("/lib:/usr/local/lib:/usr/lib");
        auto_buf text;
        buf_init(&text, 2 * CONF_MAX);
        buf_str(&text, str_trim(str_of(old)));
        for (size_t f = 0; f < o->folders.n; f++)
            if (!in_path(str_of(old), o->folders.items[f]))
                buf_fmt(&text, "%s%s", text.n ? "\n" : "", o->folders.items[f]);
        buf_ch(&text, '\n');
        int r = buf_check(&text, path, err);
        if (r == 0)
            r = write_file(rootfd, path, buf_view(&text), err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int write_cache(struct update *u, struct error *err)
{
    auto_buf out;
    buf_init(&out, LDCACHE_MAX);
    int r = ldcache_write(&u->cache, &out, err);
    return r < 0 ? r : write_file(u->rootfd, "/etc/ld.so.cache", buf_view(&out), err);
}

static int update(struct update *u, const struct hook_options *o, struct error *err)
{
    int r = add_compat(u, err);
    if (r == 0)
        r = add_folders(u, &o->folders, false, err);
    if (r == 0)
        r = add_image_cache(u, err);
    if (r == 0)
        r = add_folders(u, &o->folders, true, err);
    if (r == 0)
        r = write_cache(u, err);
    if (r == 0 && !there(u->rootfd, "/etc/ld.so.conf"))
        r = write_file(u->rootfd, "/etc/ld.so.conf", STR("include /etc/ld.so.conf.d/*.conf\n"),
                       err);
    if (r == 0)
        r = write_conf(u->rootfd, front_conf, &o->folders, false, err);
    if (r == 0)
        r = write_conf(u->rootfd, back_conf, &o->folders, true, err);
    return r < 0 ? r : update_musl(u->rootfd, o, err);
}

/* A root that cannot be written is fine as long as the loader looks in every folder anyway. */
static int read_only(const struct hook_options *o, const struct error *why, struct error *err)
{
    for (size_t i = 0; i < o->folders.n; i++)
        if (!is_default(o->folders.items[i]))
            return error_set(err, why->code, why->sys,
                             "%s; give the container a root that can be written, or set "
                             "LD_LIBRARY_PATH=%s in it and switch this hook off",
                             why->text, o->folders.items[i]);
    hook_warn("the loader's cache stays as it is: %s", why->text);
    return 0;
}

int hook_update_ldcache(int rootfd, const struct hook_options *o, struct error *err)
{
    struct update u = { .rootfd = rootfd };
    struct error why = { 0 };
    arena_init(&u.arena, ARENA_MAX);
    int r = update(&u, o, &why);
    arena_done(&u.arena);
    if (r < 0 && why.sys == EROFS)
        return read_only(o, &why, err);
    return r < 0 ? error_set(err, why.code, why.sys, "%s", why.text) : 0;
}

/* An action of older CDI files: only the links of update-ldcache. */
int hook_create_soname_symlinks(int rootfd, const struct hook_options *o, struct error *err)
{
    struct update u = { .rootfd = rootfd };
    arena_init(&u.arena, ARENA_MAX);
    int r = add_folders(&u, &o->folders, false, err);
    if (r == 0)
        r = add_folders(&u, &o->folders, true, err);
    arena_done(&u.arena);
    return r;
}
