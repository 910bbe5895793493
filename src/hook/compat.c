/* SPDX-License-Identifier: Apache-2.0 */
/* enable-cuda-compat: an image may carry a newer libcuda than the host's driver (forward
 * compatibility). If it does and the driver's branch is among those it names, its directory goes
 * into a drop-in that update-ldcache puts first. Nothing of the image is mounted or run. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "elf/elffile.h"
#include "hook/hook.h"
#include "hook/jsonscan.h"
#include "hook/root.h"

static const char compat_dir[] = "/usr/local/cuda/compat",
                  note_section[] = ".note.cuda.fwd_compatibility";

enum { NOTE_MAX = 64 * 1024, FILES_MAX = 256, ARENA_MAX = 1024 * 1024 };

static bool versioned(const char *name)
{
    return strncmp(name, "libcuda.so.", 11) == 0 && strchr(name + 11, '.') != NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The one regular file libcuda.so.MAJOR.MINOR[…] in the directory; NULL when there is none or more
 * than one. */
static const char *find_libcuda(struct arena *a, int dirfd)
{
    struct error ignored;
    const char *found = NULL;
    char **names;
    size_t n;
    if (root_list(a, dirfd, versioned, by_name, FILES_MAX, &names, &n, &ignored) < 0)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (fstatat(dirfd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (found)
            return NULL;
        found = names[i];
    }
    return found;
}

static bool major_of(const char *version, uint64_t *ret)
{
    struct str rest = str_of(version);
    return str_to_u64(str_cut(&rest, '.'), 100000, ret);
}

/* Is the host's branch in the note's list of driver branches? The note is JSON; a list of numbers
 * or texts: looked for as whole words. */
static bool names_branch(struct str note, uint64_t major)
{
    char word[24];
    int n = snprintf(word, sizeof word, "%llu", (unsigned long long)major);
    for (size_t i = 0; i + (size_t)n <= note.n; i++) {
        bool begins = i == 0 || note.p[i - 1] < '0' || note.p[i - 1] > '9';
        bool ends =
            i + (size_t)n == note.n || note.p[i + (size_t)n] < '0' || note.p[i + (size_t)n] > '9';
        if (begins && ends && memcmp(note.p + i, word, (size_t)n) == 0)
            return true;
    }
    return false;
}

static bool wanted(int dirfd, const char *name, const char *host_version)
{
    uint64_t host, compat;
    struct error ignored;
    auto_free char *note = NULL;
    size_t n = 0;
    if (!major_of(host_version, &host) || !major_of(name + strlen("libcuda.so."), &compat))
        return false;
    auto_close int fd = root_open_file_at(dirfd, name);
    if (fd >= 0 && elf_note(fd, note_section, NOTE_MAX, &note, &n, &ignored) == 0)
        return compat > host && names_branch((struct str){ note, n }, host);
    return compat > host;
}

int hook_enable_cuda_compat(int rootfd, const struct hook_options *o, struct error *err)
{
    struct error ignored;
    char file[64], last[256];
    auto_close int dirfd = -1, conf = -1;
    auto_arena arena;
    arena_init(&arena, ARENA_MAX);
    if (!o->host_driver_version || !o->host_driver_version[0])
        return 0;
    if (root_open(rootfd, compat_dir, O_RDONLY | O_DIRECTORY, 0, &dirfd, &ignored) < 0)
        return 0;
    const char *name = find_libcuda(&arena, dirfd);
    if (!name || !wanted(dirfd, name, o->host_driver_version))
        return 0;
    uint64_t salt;
    if (getrandom(&salt, sizeof salt, 0) != (ssize_t)sizeof salt)
        return error_errno(err, errno, "get random bytes");
    snprintf(file, sizeof file, "/etc/ld.so.conf.d/00-compat-%016llx.conf",
             (unsigned long long)salt);
    int r = root_open_parent(rootfd, file, &conf, last, err);
    return r < 0 ? r : hook_write(conf, last, STR("/usr/local/cuda/compat\n"), 0644, err);
}
