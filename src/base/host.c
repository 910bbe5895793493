/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t = { 0 };
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t real_mono_ns(void *arg)
{
    return clock_ns(CLOCK_BOOTTIME); /* goes on while the machine sleeps */
}

static int64_t real_real_ns(void *arg)
{
    return clock_ns(CLOCK_REALTIME);
}

static int real_random(void *arg, void *p, size_t n)
{
    char *at = p;
    while (n) {
        ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}

static int real_open_new(void *arg, int dirfd, const char *name, mode_t mode)
{
    int fd = openat(dirfd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
    return fd < 0 ? -errno : fd;
}

static ssize_t real_write(void *arg, int fd, const void *p, size_t n)
{
    ssize_t done = write(fd, p, n);
    return done < 0 ? -errno : done;
}

static int real_fsync(void *arg, int fd)
{
    return fsync(fd) < 0 ? -errno : 0;
}

static int real_rename(void *arg, int dirfd, const char *from, const char *to)
{
    return renameat(dirfd, from, dirfd, to) < 0 ? -errno : 0;
}

static int real_unlink(void *arg, int dirfd, const char *name)
{
    return unlinkat(dirfd, name, 0) < 0 ? -errno : 0;
}

const struct host_seams host_seams_real = {
    .mono_ns = real_mono_ns,
    .real_ns = real_real_ns,
    .random = real_random,
    .open_new = real_open_new,
    .write = real_write,
    .fsync = real_fsync,
    .rename = real_rename,
    .unlink = real_unlink,
};

static bool given(const char *path)
{
    return path && path[0];
}

/* A copy without slashes at the end; "/" becomes "". */
static char *without_slashes(const char *path)
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    return x_strndup(path, n);
}

/* The same, but "/" stays. */
static char *tidy(const char *path)
{
    char *p = without_slashes(path);
    if (p[0])
        return p;
    free(p);
    return x_strdup("/");
}

static char *driver_root_view(const struct host *h, const char *configured)
{
    static const char usual[] = "/driver-root";
    bool usual_one = !given(configured) || strcmp(configured, usual) == 0;
    if (!usual_one)
        return tidy(configured);
    if (file_exists(usual))
        return x_strdup(usual);
    auto_free char *joined = host_path(h, h->driver_root);
    return tidy(joined);
}

/* True when `root` has a folder "dev" with an entry whose name begins so. */
static bool has_dev(const char *root, const char *prefix)
{
    auto_free char *path = x_printf("%s/dev", strcmp(root, "/") == 0 ? "" : root);
    DIR *dir = opendir(path);
    if (!dir)
        return false;
    bool any = false;
    for (struct dirent *e; !any && (e = readdir(dir));)
        any = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
              str_starts(str_of(e->d_name), prefix);
    closedir(dir);
    return any;
}

/* Where the driver's nodes are; where neither place has them yet, a driver root with nodes of its
 * own is where they will come. */
static bool nodes_in_driver_root(const struct host *h)
{
    return has_dev(h->driver_root_view, "nvidia") ||
           (has_dev(h->driver_root_view, "") && !has_dev(h->root, "nvidia"));
}

int host_init(struct host *h, const struct host_config *config, struct error *err)
{
    const struct {
        const char *option, *path;
    } paths[] = {
        { "--host-root", config->root },
        { "--driver-root", config->driver_root },
        { "--driver-root-ctr-path", config->driver_root_view },
        { "--dev-root", config->dev_root },
    };
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (given(paths[i].path) && paths[i].path[0] != '/')
            return error_set(err, ERR_INVALID, 0,
                             "%s: \"%s\" is not an absolute path; it must start with \"/\"",
                             paths[i].option, paths[i].path);

    *h = (struct host){ .seams = config->seams ? config->seams : &host_seams_real };
    h->root = without_slashes(given(config->root) ? config->root : "/");
    h->driver_root = tidy(given(config->driver_root) ? config->driver_root : "/");
    h->driver_root_view = driver_root_view(h, config->driver_root_view);
    bool in_driver_root = nodes_in_driver_root(h);
    h->dev_root_view = in_driver_root ? x_strdup(h->driver_root_view) : tidy(h->root);
    /* What is published is where the nodes are: not the driver root when they were found elsewhere.
     */
    h->dev_root = given(config->dev_root) ? tidy(config->dev_root)
                  : in_driver_root        ? x_strdup(h->driver_root)
                                          : x_strdup("/");
    return 0;
}

void host_done(struct host *h)
{
    free(h->root);
    free(h->driver_root);
    free(h->driver_root_view);
    free(h->dev_root);
    free(h->dev_root_view);
    *h = (struct host){ 0 };
}

char *host_path(const struct host *h, const char *sub)
{
    return x_printf("%s%s", h->root, sub);
}

int64_t host_mono_ns(const struct host *h)
{
    return h->seams->mono_ns(h->seams->arg);
}

int64_t host_real_ns(const struct host *h)
{
    return h->seams->real_ns(h->seams->arg);
}

int host_boot_id(const struct host *h, char ret[HOST_BOOT_ID_SIZE], struct error *err)
{
    auto_free char *path = host_path(h, "/proc/sys/kernel/random/boot_id");
    auto_free char *text = NULL;
    int r = file_read(path, 64, &text, NULL, err);
    if (r < 0)
        return error_wrap(err, "boot id");
    struct str id = str_trim(str_of(text));
    bool good = id.n == HOST_BOOT_ID_SIZE - 1 && strspn(id.p, "0123456789abcdefABCDEF-") >= id.n;
    if (!good)
        return error_set(err, ERR_INVALID, 0,
                         "boot id: %s holds \"%.*s\", expected 36 characters as in a UUID", path,
                         STR_FMT(id));
    memcpy(ret, id.p, id.n);
    ret[id.n] = '\0';
    return 0;
}

int host_uuid4(const struct host *h, char ret[37], struct error *err)
{
    unsigned char b[16];
    int r = h->seams->random(h->seams->arg, b, sizeof b);
    if (r < 0)
        return error_errno(err, -r, "make a random UUID");
    b[6] = (unsigned char)((b[6] & 0x0F) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3F) | 0x80);
    snprintf(ret, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
             b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
    return 0;
}
