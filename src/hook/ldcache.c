/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update-ldcache: makes the driver's libraries known to the container's loader. The image's own
 * cache is read, the folders' libraries are put in front of it (or behind it, for the loader's
 * default directories), and a new cache is written. No program runs: neither the image's ldconfig
 * nor the host's. Drop-ins in ld.so.conf.d keep the folders when somebody runs ldconfig in the
 * container later.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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
    FOLDER_FILES_MAX = 16384,
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

static int add_entry(struct update *u, const char *soname, const char *folder, const char *file,
                     int32_t flags, struct error *err)
{
    if (u->cache.n == LDCACHE_ENTRIES_MAX)
        return error_set(err, ERR_LIMIT, 0, "more than %d libraries", LDCACHE_ENTRIES_MAX);
    if (u->cache.n == u->cap) {
        size_t cap = u->cap ? u->cap * 2 : 256;
        struct ldcache_entry *grown = arena_array(&u->arena, cap, sizeof *grown);
        if (!grown)
            return error_set(err, ERR_LIMIT, 0, "no memory for %zu libraries", cap);
        if (u->cache.n)
            memcpy(grown, u->cache.entries, u->cache.n * sizeof *grown);
        u->cache.entries = grown;
        u->cap = cap;
    }
    struct ldcache_entry *e = &u->cache.entries[u->cache.n];
    *e = (struct ldcache_entry){
        .soname = arena_strdup(&u->arena, str_of(soname)),
        .path = folder ? arena_printf(&u->arena, "%s/%s", folder, file)
                       : arena_strdup(&u->arena, str_of(file)),
        .flags = flags,
    };
    if (!e->soname || !e->path)
        return error_set(err, ERR_LIMIT, 0, "no memory for %zu libraries", u->cache.n);
    u->cache.n++;
    return 0;
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

/* One file of a folder: what it calls itself, under the name by which the loader will open it. A
 * missing SONAME link is made, as ldconfig would. */
static int add_file(struct update *u, int dirfd, const char *folder, const char *name,
                    struct error *err)
{
    auto_close int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct elf_facts facts;
    struct error ignored;
    if (fd < 0 || elf_read(fd, &facts, &ignored) < 0 || !facts.shared || !flags_of(&facts))
        return 0; /* a link, a linker script, a broken file: not for the loader */
    const char *soname = facts.soname[0] ? facts.soname : name;
    if (strchr(soname, '/'))
        return 0;
    if (strcmp(soname, name) != 0 && symlinkat(name, dirfd, soname) < 0 && errno != EEXIST)
        soname = name; /* a folder that cannot be written: the file itself is what can be opened */
    int r = add_entry(u, soname, folder, soname, flags_of(&facts), err);
    if (r == 0 && soname == name && facts.soname[0] && strcmp(facts.soname, name) != 0) {
        u->cache.entries[u->cache.n - 1].soname = arena_strdup(&u->arena, str_of(facts.soname));
        if (!u->cache.entries[u->cache.n - 1].soname)
            return error_set(err, ERR_LIMIT, 0, "no memory for a library's name");
    }
    return r;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*b)->d_name, (*a)->d_name); /* newest version first */
}

static int add_folder(struct update *u, const char *folder, struct error *err)
{
    int fd = -1;
    struct error absent;
    if (root_open(u->rootfd, folder, O_RDONLY | O_DIRECTORY, 0, &fd, &absent) < 0)
        return absent.code == ERR_NOT_FOUND
                   ? 0
                   : error_set(err, absent.code, absent.sys, "%s", absent.text);
    auto_close int dirfd = fd;
    struct dirent **names = NULL;
    int n = scandirat(dirfd, ".", &names, NULL, by_name), r = 0;
    if (n < 0)
        return error_errno(err, errno, "list %s in the container", folder);
    for (int i = 0; i < n; i++) {
        if (r == 0 && i < FOLDER_FILES_MAX && library_name(names[i]->d_name))
            r = add_file(u, dirfd, folder, names[i]->d_name, err);
        free(names[i]);
    }
    free(names);
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
            r = add_folder(u, folders->items[i], err);
    return r;
}

/* Folders that enable-cuda-compat left in its drop-ins: they go before the driver's. */
static int add_compat(struct update *u, struct error *err)
{
    int fd = -1;
    struct error absent;
    if (root_open(u->rootfd, "/etc/ld.so.conf.d", O_RDONLY | O_DIRECTORY, 0, &fd, &absent) < 0)
        return 0;
    auto_close int dirfd = fd;
    struct dirent **names = NULL;
    int n = scandirat(dirfd, ".", &names, NULL, alphasort), r = 0, taken = 0;
    for (int i = 0; i < n; i++) {
        char path[512];
        auto_free char *text = NULL;
        bool ours = strncmp(names[i]->d_name, compat_prefix, sizeof compat_prefix - 1) == 0;
        snprintf(path, sizeof path, "/etc/ld.so.conf.d/%s", names[i]->d_name);
        free(names[i]);
        if (r < 0 || !ours || taken == COMPAT_FOLDERS_MAX ||
            hook_read(u->rootfd, path, CONF_MAX, &text, NULL, &absent) < 0)
            continue;
        struct str line = str_of(text), folder = str_trim(str_cut(&line, '\n'));
        char *copy = folder.n && folder.p[0] == '/' ? arena_strdup(&u->arena, folder) : NULL;
        if (copy)
            r = add_folder(u, copy, err);
        taken++;
    }
    free(names);
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
    for (size_t i = 0; r == 0 && i < old.n; i++) {
        r = add_entry(u, old.entries[i].soname, NULL, old.entries[i].path, old.entries[i].flags,
                      err);
        if (r == 0)
            u->cache.entries[u->cache.n - 1].hwcap = old.entries[i].hwcap;
    }
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
    int fd = -1;
    if (root_open(rootfd, path, O_PATH, 0, &fd, &ignored) < 0)
        return false;
    close(fd);
    return true;
}

static int write_file(int rootfd, const char *path, struct str text, struct error *err)
{
    auto_close int dirfd = -1;
    char name[256];
    int r = root_open_parent(rootfd, path, &dirfd, name, err);
    return r < 0 ? r : hook_write(dirfd, name, text, 0644, err);
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

int hook_update_ldcache(int rootfd, const struct hook_options *o, struct error *err)
{
    struct update u = { .rootfd = rootfd };
    arena_init(&u.arena, ARENA_MAX);
    int r = add_compat(&u, err);
    if (r == 0)
        r = add_folders(&u, &o->folders, false, err);
    if (r == 0)
        r = add_image_cache(&u, err);
    if (r == 0)
        r = add_folders(&u, &o->folders, true, err);
    if (r == 0)
        r = write_cache(&u, err);
    arena_done(&u.arena);
    if (r == 0 && !there(rootfd, "/etc/ld.so.conf"))
        r = write_file(rootfd, "/etc/ld.so.conf", STR("include /etc/ld.so.conf.d/*.conf\n"), err);
    if (r == 0)
        r = write_conf(rootfd, front_conf, &o->folders, false, err);
    if (r == 0)
        r = write_conf(rootfd, back_conf, &o->folders, true, err);
    return r < 0 ? r : update_musl(rootfd, o, err);
}
