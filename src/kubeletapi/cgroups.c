/* SPDX-License-Identifier: Apache-2.0 */
/* Is a pod gone? A pod that runs, or that kubelet is about to end, has a cgroup directory. Its name
 * ends in "pod<uid>" (cgroupfs) or "-pod<uid, with _ for ->.slice" (systemd), somewhere below a
 * directory named after "kubepods". */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "kubeletapi/inuse.h"

enum {
    DIRS_MAX = 100 * 1000,
    DEPTH_MAX = 16,
    UID_MAX = 128,
};

struct pod {
    const char *uid;
    bool alive;
};

struct walk {
    struct pod *pods; /* by uid */
    size_t n, dirs;
    bool kubepods; /* seen such a directory: kubelet's tree is in view */
    struct error *err;
};

static int by_uid(const void *a, const void *b)
{
    const struct pod *x = a, *y = b;
    return strcmp(x->uid, y->uid);
}

static struct pod *find_pod(const struct walk *w, const char *uid)
{
    const struct pod key = { .uid = uid };
    return w->n ? bsearch(&key, w->pods, w->n, sizeof *w->pods, by_uid) : NULL;
}

/* The pod's UID out of a directory's name; false when it is no pod's directory. */
static bool pod_uid(const char *name, char ret[UID_MAX])
{
    struct str s = str_of(name);
    if (str_ends(s, ".slice"))
        s.n -= strlen(".slice");
    size_t at = SIZE_MAX;
    if (str_starts(s, "pod"))
        at = 0;
    for (size_t i = 0; i + 4 <= s.n; i++)
        if (memcmp(s.p + i, "-pod", 4) == 0)
            at = i + 1;
    if (at == SIZE_MAX || s.n - at <= 3 || s.n - at - 3 >= UID_MAX)
        return false;
    for (size_t i = at + 3; i < s.n; i++)
        ret[i - at - 3] = s.p[i] == '_' ? '-' : s.p[i];
    ret[s.n - at - 3] = '\0';
    return true;
}

static int walk_dir(struct walk *w, int dirfd, const char *name, int depth);

static int walk_entry(struct walk *w, int dirfd, const struct dirent *e, int depth)
{
    char uid[UID_MAX];
    bool maybe_dir = e->d_type == DT_DIR || e->d_type == DT_UNKNOWN;
    if (!maybe_dir || strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
        return 0;
    if (strstr(e->d_name, "kubepods"))
        w->kubepods = true;
    if (pod_uid(e->d_name, uid)) {
        struct pod *p = find_pod(w, uid);
        if (p)
            p->alive = true;
        return 0; /* containers are below, no other pods */
    }
    return walk_dir(w, dirfd, e->d_name, depth + 1);
}

static int walk_dir(struct walk *w, int dirfd, const char *name, int depth)
{
    if (depth > DEPTH_MAX || ++w->dirs > DIRS_MAX)
        return error_set(w->err, ERR_LIMIT, 0,
                         "the cgroup tree is larger than %d directories, %d deep", DIRS_MAX,
                         DEPTH_MAX);
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && depth > 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return 0; /* ended meanwhile, or no directory after all */
    if (fd < 0)
        return error_errno(w->err, errno, "open cgroup directory %s", name);
    DIR *d = fdopendir(fd);
    if (!d) {
        int sys = errno;
        close(fd);
        return error_errno(w->err, sys, "read cgroup directory %s", name);
    }
    int r = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            if (errno && errno != ENOENT)
                r = error_errno(w->err, errno, "read cgroup directory %s", name);
            break;
        }
        r = walk_entry(w, fd, e, depth);
        if (r < 0)
            break;
    }
    closedir(d);
    return r;
}

/* The UIDs asked for, each once, in order. */
static bool collect(struct walk *w, const struct in_use *u)
{
    w->pods = try_alloc((u->n + 1) * sizeof *w->pods);
    if (!w->pods)
        return false;
    for (size_t i = 0; i < u->n; i++)
        if (u->uses[i].pod_uid && u->uses[i].pod_uid[0])
            w->pods[w->n++].uid = u->uses[i].pod_uid;
    qsort(w->pods, w->n, sizeof *w->pods, by_uid);
    size_t kept = 0;
    for (size_t i = 0; i < w->n; i++)
        if (!kept || strcmp(w->pods[kept - 1].uid, w->pods[i].uid) != 0)
            w->pods[kept++] = w->pods[i];
    w->n = kept;
    return true;
}

static int look(const struct host *h, struct walk *w)
{
    auto_free char *root = host_path(h, "/sys/fs/cgroup");
    int r = walk_dir(w, AT_FDCWD, root, 0);
    if (r == 0 && !w->kubepods)
        r = error_set(w->err, ERR_UNAVAILABLE, 0,
                      "%s has no kubepods directory: it is another cgroup namespace, or kubelet "
                      "has not started since the boot",
                      root);
    return r;
}

int pods_gone_mark(const struct host *h, struct in_use *u, struct error *err)
{
    struct walk w = { .err = err };
    if (!collect(&w, u))
        return error_set(err, ERR_LIMIT, 0, "no memory to look for the cgroups of %zu uses", u->n);
    int r = w.n ? look(h, &w) : 0;
    for (size_t i = 0; w.n && r == 0 && i < u->n; i++) {
        const struct pod *p = u->uses[i].pod_uid ? find_pod(&w, u->uses[i].pod_uid) : NULL;
        u->uses[i].pod_gone = p && !p->alive;
    }
    free(w.pods);
    return r;
}
