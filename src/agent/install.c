/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --install-dir DIR: mete-hook and mete-runtime on the host, where container engines run them.
 *
 *   DIR/<version>-<digest>/   the two programs, and links by the names of the peer's; never changed
 *   DIR/current               link to the newest
 *
 * A version is put together in a folder of its own and gets its name when it is complete. CDI files
 * name the version (a hook of theirs never changes under them), container engines name "current".
 * Older versions stay while a CDI file names them, and for a day.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    PROGRAM_MAX = 16 * 1024 * 1024,
    CDI_FILE_MAX = 16 * 1024 * 1024,
    DIGEST_DIGITS = 16,
    KEEP_SECONDS = 24 * 3600,
};

struct program {
    const char *name;
    const char *links[4]; /* names of the peer's programs, NULL-terminated */
    char *text;
    size_t n;
};

static const struct program programs_of_ours[] = {
    { "mete-hook", { "nvidia-cdi-hook", "nvidia-ctk", NULL }, NULL, 0 },
    { "mete-runtime",
      { "nvidia-container-runtime", "nvidia-container-runtime.cdi",
        "nvidia-container-runtime.legacy", NULL },
      NULL,
      0 },
};
enum { PROGRAMS = ARRAY_LEN(programs_of_ours) };

/* ---- what is installed ---- */

/* As they lie after "make install", in an image, and in a build folder. */
static int find_program(struct program *p, struct error *err)
{
    static const char *const places[] = { "%s/../libexec/mete/%s", "%s/%s", "%s/../hook/%s",
                                          "%s/../runtime/%s" };
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;
    if (!slash)
        return error_errno(err, n < 0 ? errno : EINVAL, "find this program's own folder");
    *slash = '\0';
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        auto_free char *path = x_printf(places[i], self, p->name);
        struct error why;
        int r = file_read(path, PROGRAM_MAX, &p->text, &p->n, &why);
        if (r == 0)
            return 0;
        if (r != -ERR_NOT_FOUND)
            return error_set(err, why.code, why.sys, "%s", why.text);
    }
    return error_set(err, ERR_NOT_FOUND, 0, "%s is neither in %s/../libexec/mete nor in %s",
                     p->name, self, self);
}

/* FNV-1a over both: tells builds of one version apart. */
static uint64_t digest(const struct program *programs)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < PROGRAMS; i++)
        for (size_t k = 0; k < programs[i].n; k++)
            h = (h ^ (unsigned char)programs[i].text[k]) * UINT64_C(0x100000001b3);
    return h;
}

/* ---- one version ---- */

static int put_program(const struct host *h, int dirfd, const struct program *p, struct error *err)
{
    int r =
        file_replace(h, dirfd, p->name, (struct str){ p->text, p->n }, 0755, FILE_SYNC_FILE, err);
    for (size_t i = 0; r == 0 && p->links[i]; i++)
        if (symlinkat(p->name, dirfd, p->links[i]) < 0)
            r = error_errno(err, errno, "make the link %s", p->links[i]);
    return r;
}

static void remove_dir(int dirfd, const char *name)
{
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            (void)unlinkat(fd, e->d_name, 0);
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    (void)unlinkat(dirfd, name, AT_REMOVEDIR);
}

/* Is everything of a version there as it should be? */
static bool complete(int dirfd, const char *version, const struct program *programs)
{
    auto_close int fd = openat(dirfd, version, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; fd >= 0 && i < PROGRAMS; i++) {
        auto_free char *text = NULL;
        struct stat st;
        size_t n;
        if (file_read_at(fd, programs[i].name, PROGRAM_MAX, &text, &n, NULL) < 0 ||
            n != programs[i].n || memcmp(text, programs[i].text, n) != 0 ||
            fstatat(fd, programs[i].name, &st, 0) < 0 || (st.st_mode & 0777) != 0755)
            return false;
        for (size_t k = 0; programs[i].links[k]; k++)
            if (fstatat(fd, programs[i].links[k], &st, 0) < 0 || !S_ISREG(st.st_mode))
                return false;
    }
    return fd >= 0;
}

/* Another agent may be at the same: nothing that is complete is taken away, not even for a moment.
 */
static int name_version(int dirfd, const char *temp, const char *version,
                        const struct program *programs, struct error *err)
{
    auto_free char *aside = x_printf("%s.damaged", temp);
    for (int tries = 0; tries < 3; tries++) {
        if (renameat(dirfd, temp, dirfd, version) == 0)
            return 0;
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
            break;
        if (complete(dirfd, version, programs)) {
            remove_dir(dirfd, temp);
            return 0;
        }
        if (renameat(dirfd, version, dirfd, aside) == 0)
            remove_dir(dirfd, aside);
    }
    return error_errno(err, errno, "name %s %s", temp, version);
}

static int put_version(const struct host *h, int dirfd, const char *version,
                       const struct program *programs, struct error *err)
{
    uint64_t salt;
    if (h->seams->random(h->seams->arg, &salt, sizeof salt) < 0)
        return error_set(err, ERR_INTERNAL, 0, "no random bytes");
    auto_free char *temp = x_printf(".%s.%016" PRIx64, version, salt);
    if (mkdirat(dirfd, temp, 0755) < 0)
        return error_errno(err, errno, "make %s", temp);
    auto_close int fd = openat(dirfd, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = fd < 0 ? error_errno(err, errno, "open %s", temp) : 0;
    if (r == 0 && fchmod(fd, 0755) < 0)
        r = error_errno(err, errno, "change the mode of %s", temp);
    for (size_t i = 0; r == 0 && i < PROGRAMS; i++)
        r = put_program(h, fd, &programs[i], err);
    if (r == 0 && h->seams->fsync(h->seams->arg, fd) < 0)
        r = error_set(err, ERR_INTERNAL, 0, "fsync %s failed", temp);
    if (r == 0)
        r = name_version(dirfd, temp, version, programs, err);
    if (r < 0)
        remove_dir(dirfd, temp);
    return r;
}

static int point_current(int dirfd, const char *version, struct error *err)
{
    char now[256];
    ssize_t n = readlinkat(dirfd, "current", now, sizeof now);
    if (n == (ssize_t)strlen(version) && memcmp(now, version, (size_t)n) == 0)
        return 0;
    auto_free char *temp = x_printf(".current.%s", version);
    (void)unlinkat(dirfd, temp, 0);
    if ((symlinkat(version, dirfd, temp) < 0 && errno != EEXIST) ||
        (renameat(dirfd, temp, dirfd, "current") < 0 && errno != ENOENT))
        return error_errno(err, errno, "point the link \"current\" to %s", version);
    return 0;
}

/* ---- older versions ---- */

/* "1.2.3-0123456789abcdef" */
static bool is_version(const char *name)
{
    const char *dash = strrchr(name, '-');
    if (!dash || !isdigit((unsigned char)name[0]) || strlen(dash + 1) != DIGEST_DIGITS)
        return false;
    return strspn(dash + 1, "0123456789abcdef") == DIGEST_DIGITS;
}

/* Some CDI file of a folder names a path below DIR/<version>. When a file cannot be read, it may.
 */
static bool named_in(const char *dir, const char *path)
{
    DIR *d = opendir(dir);
    bool found = !d && errno != ENOENT;
    for (const struct dirent *e; d && !found && (e = readdir(d));) {
        struct str name = str_of(e->d_name);
        auto_free char *text = NULL;
        size_t n = 0;
        if (!str_ends(name, ".json") && !str_ends(name, ".yaml"))
            continue;
        int r = file_read_at(dirfd(d), e->d_name, CDI_FILE_MAX, &text, &n, NULL);
        found = r == 0 ? memmem(text, n, path, strlen(path)) != NULL : r != -ERR_NOT_FOUND;
    }
    if (d)
        closedir(d);
    return found;
}

static void remove_old(const struct agent *a, int dirfd, const char *dir, const char *version)
{
    DIR *d = opendir(dir);
    auto_free char *etc_cdi = host_path(&a->host, "/etc/cdi");
    int64_t now = host_real_ns(&a->host) / 1000000000;
    for (const struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        auto_free char *path = x_printf("%s/%s/", dir, e->d_name);
        bool left_over = e->d_name[0] == '.' && isdigit((unsigned char)e->d_name[1]);
        if ((!is_version(e->d_name) && !left_over) || strcmp(e->d_name, version) == 0 ||
            fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
            now - st.st_mtime < KEEP_SECONDS || named_in(a->cdi_dir, path) ||
            named_in(etc_cdi, path))
            continue;
        remove_dir(dirfd, e->d_name);
        log_info("install.removed", KV("dir", path));
    }
    if (d)
        closedir(d);
}

/* ---- all of it ---- */

static int install(struct agent *a, const char *dir, struct program *programs, struct error *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < PROGRAMS; i++)
        r = find_program(&programs[i], err);
    if (r == 0)
        r = dir_make(dir, 0755, err);
    if (r < 0)
        return r;
    auto_close int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0)
        return error_errno(err, errno, "open %s", dir);
    auto_free char *version = x_printf(METE_VERSION "-%016" PRIx64, digest(programs));
    bool there = complete(dirfd, version, programs);
    if (!there)
        r = put_version(&a->host, dirfd, version, programs, err);
    if (r == 0)
        r = point_current(dirfd, version, err);
    if (r == 0 && !there && a->host.seams->fsync(a->host.seams->arg, dirfd) < 0)
        r = error_set(err, ERR_INTERNAL, 0, "fsync %s failed", dir);
    if (r < 0)
        return r;
    if (!there)
        log_info("install.done", KV("dir", dir), KV("version", version));
    free(a->hook_path);
    a->hook_path = x_printf("%s/%s/nvidia-cdi-hook", dir, version);
    remove_old(a, dirfd, dir, version);
    return 0;
}

int agent_install(struct agent *a, struct error *err)
{
    const char *dir = opts_text(&a->opts, "install-dir");
    struct program programs[PROGRAMS];
    if (!dir[0])
        return 0;
    if (dir[0] != '/')
        return error_set(err, ERR_INVALID, 0, "--install-dir \"%s\": expected a path from the root",
                         dir);
    memcpy(programs, programs_of_ours, sizeof programs);
    int r = install(a, dir, programs, err);
    for (size_t i = 0; i < PROGRAMS; i++)
        free(programs[i].text);
    return r < 0 ? error_wrap(err, "install to --install-dir") : 0;
}
