/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "sim/driver_files.h"
#include "sim/elf_file.h"
#include "sim/models.h"
#include "sim/simstate.h"
#include "sim/tree.h"

enum { LIBRARY_MAX = 64 << 20 };

/* Beside the executable, as the build leaves them and as they are installed. */
static const char *const places[] = {
    "", "../sim/", "../../../src/sim/", "../libexec/mete/", "../../libexec/mete/", "../lib/mete/"
};

static bool find_beside(const char *name, char ret[PATH_MAX])
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n <= 0)
        return false;
    exe[n] = 0;
    char *slash = strrchr(exe, '/');
    if (!slash)
        return false;
    slash[1] = 0;
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (snprintf(ret, PATH_MAX, "%s%s%s", exe, places[i], name) < PATH_MAX &&
            access(ret, R_OK) == 0)
            return true;
    return false;
}

static int read_library(const struct sim_create *c, char **ret, size_t *ret_n, struct error *err)
{
    const char *given = c->library ? c->library : getenv("METE_SIM_LIBRARY");
    char found[PATH_MAX];
    if (!given && !find_beside("libnvidia-ml-sim.so", found))
        return error_set(err, ERR_NOT_FOUND, ENOENT,
                         "the simulated NVML library (libnvidia-ml-sim.so) is not beside this "
                         "program; name it with "
                         "--library or METE_SIM_LIBRARY");
    return file_read(given ? given : found, LIBRARY_MAX, ret, ret_n, err);
}

static int driver_files(const struct sim_create *c, const struct sim_world *w, struct error *err)
{
    auto_free char *library = NULL, *smi = NULL;
    size_t n = 0, n_smi = 0, hidden = 0;
    int r = read_library(c, &library, &n, err);
    if (r == 0 && c->hide_symbols && c->hide_symbols[0])
        r = sim_elf_hide((unsigned char *)library, n, c->hide_symbols, &hidden, err);
    if (r < 0)
        return r;
    char path[PATH_MAX];
    if (find_beside("nvidia-smi-sim", path) &&
        (r = file_read(path, LIBRARY_MAX, &smi, &n_smi, err)) < 0)
        return r;
    struct tree t;
    if ((r = tree_open(&t, c->dir, err)) < 0)
        return r;
    sim_driver_files_put(&t, w, (struct str){ library, n }, (struct str){ smi, n_smi });
    return tree_close(&t);
}

/* A directory that is not there yet, or an empty one. */
static int claim_directory(const char *dir, struct error *err)
{
    if (mkdir(dir, 0755) == 0)
        return 0;
    if (errno == ENOENT)
        return dir_make(dir, 0755, err);
    if (errno != EEXIST)
        return error_errno(err, errno, "make %s", dir);
    char state[PATH_MAX];
    snprintf(state, sizeof(state), "%s/" SIM_STATE_PATH, dir);
    if (access(state, F_OK) == 0)
        return error_set(err, ERR_CONFLICT, EEXIST,
                         "%s is a simulated host already; change it with \"mete sim set\", or "
                         "remove the directory first",
                         dir);
    if (rmdir(dir) < 0)
        return error_set(err, ERR_CONFLICT, errno,
                         "%s is there and not empty (or no directory); give a new one", dir);
    return mkdir(dir, 0755) < 0 ? error_errno(err, errno, "make %s", dir) : 0;
}

static int write_state(const char *dir, const struct sim_world *w, struct error *err)
{
    auto_free char *folder = x_printf("%s/.mete-sim", dir),
                   *path = x_printf("%s/" SIM_STATE_PATH, dir), *temp = x_printf("%s.new", path);
    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        return error_errno(err, errno, "make %s", folder);
    auto_close int fd = open(temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(struct sim_state)) < 0)
        return error_errno(err, errno, "write %s", temp);
    /* Blocks now rather than SIGBUS later, when the disk is full. */
    int sys = posix_fallocate(fd, 0, sizeof(struct sim_state));
    if (sys != 0 && sys != EOPNOTSUPP && sys != EINVAL)
        return error_errno(err, sys, "write %s", temp);
    struct sim_state *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s == MAP_FAILED)
        return error_errno(err, errno, "map %s", temp);
    s->magic = SIM_STATE_MAGIC;
    s->version = SIM_STATE_VERSION;
    s->size = sizeof(*s);
    s->worlds[0] = *w;
    munmap(s, sizeof(*s));
    return rename(temp, path) < 0 ? error_errno(err, errno, "name %s", path) : 0;
}

static int build(const struct sim_create *c, const struct sim_world *w, struct error *err)
{
    int r = driver_files(c, w, err);
    if (r == 0)
        r = sim_tree_sync(c->dir, w, err);
    if (r == -ERR_DENIED && w->nodes)
        return error_wrap(
            err, "real device nodes need root with CAP_MKNOD; leave out --nodes for plain files");
    /* Last: a directory without it is no host, so a failure on the way leaves none behind. */
    return r < 0 ? r : write_state(c->dir, w, err);
}

static void remove_all(const char *dir)
{
    struct tree t;
    if (tree_open(&t, dir, NULL) == 0)
        tree_prune(&t, ".", "");
    (void)!tree_close(&t);
    rmdir(dir);
}

int sim_create(const struct sim_create *c, struct error *err)
{
    auto_free struct sim_world *w = x_alloc(sizeof(*w));
    int r = sim_world_init(w, c, err);
    if (r == 0)
        r = claim_directory(c->dir, err);
    if (r < 0)
        return r;
    if (c->hide_symbols)
        snprintf(w->hidden, sizeof(w->hidden), "%s", c->hide_symbols);
    r = build(c, w, err);
    if (r < 0)
        remove_all(c->dir);
    return r;
}
