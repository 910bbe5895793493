/* SPDX-License-Identifier: Apache-2.0 */
#include "io/dirwatch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

enum {
    CHECK_MS = 30000, /* a mount over the directory makes no event: look now and then */
    POLL_MIN_MS = 10,
    WATCH_MASK = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CLOSE_WRITE |
                 IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR,
    PARENT_MASK = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_ONLYDIR,
    WATCH_LOST = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED,
};

struct dirwatch {
    struct loop *loop;
    char *path, *parent; /* parent: NULL for "/" */
    const char *base;    /* last part of path */
    int64_t poll_ms;
    struct dirwatch_events ev;
    int fd, wd;    /* inotify; -1: none */
    int parent_wd; /* tells at once when the directory appears, or goes while somebody has it open
                    */
    struct watch watch;
    struct timer timer;
    dev_t dev; /* of the directory that is watched or was polled last */
    ino_t ino;
    uint64_t print; /* of its entries, while polling */
    bool polling, told;
    bool running, dead; /* freed while a call-back runs: ends when that is over */
};

static void destroy(struct dirwatch *w)
{
    timer_done(&w->timer);
    if (w->fd >= 0) {
        watch_done(&w->watch);
        close(w->fd);
    }
    free(w->parent);
    free(w->path);
    free(w);
}

static void tell(struct dirwatch *w, const char *name)
{
    if (!w->dead && w->ev.changed)
        w->ev.changed(w->ev.arg, name);
}

static void note(struct dirwatch *w, const char *what, int sys)
{
    if (w->dead || !w->ev.note)
        return;
    auto_free char *text = sys ? x_printf("watch %s: %s: %s", w->path, what, strerror(sys))
                               : x_printf("watch %s: %s", w->path, what);
    w->ev.note(w->ev.arg, text);
}

static void drop_watch(struct dirwatch *w)
{
    if (w->fd < 0)
        return;
    watch_done(&w->watch);
    close(w->fd);
    w->fd = w->wd = w->parent_wd = -1;
}

/* ---- polling ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

static uint64_t mix_stat(uint64_t h, const struct stat *st)
{
    h = mix(h, st->st_ino);
    h = mix(h, st->st_mode);
    h = mix(h, (uint64_t)st->st_size);
    h = mix(h, (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec);
    return mix(h, (uint64_t)st->st_ctim.tv_sec * 1000000000u + (uint64_t)st->st_ctim.tv_nsec);
}

/* A number that changes with any entry, whatever their order: the entry itself and, behind a
 * symbolic link, what it points to. */
static uint64_t fingerprint(const char *path)
{
    uint64_t sum = 1;
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        uint64_t h = 0;
        struct stat st;
        for (const char *c = e->d_name; *c; c++)
            h = mix(h, (unsigned char)*c);
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            h = mix_stat(h, &st);
            if (S_ISLNK(st.st_mode) && fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
                h = mix_stat(h, &st);
        }
        sum += h;
    }
    closedir(dir);
    return sum;
}

/* ---- inotify ---- */

static void events_ready(void *arg, int what);

static int open_inotify(struct dirwatch *w)
{
    if (w->fd >= 0)
        return 0;
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd < 0)
        return errno;
    watch_init(&w->watch, w->loop, w->fd, events_ready, w);
    watch_want(&w->watch, IO_READ);
    return 0;
}

static int try_hold(struct dirwatch *w)
{
    struct stat st;
    int sys = open_inotify(w);
    if (sys)
        return sys;
    if (w->parent && w->parent_wd < 0)
        w->parent_wd = inotify_add_watch(w->fd, w->parent, PARENT_MASK);
    w->wd = inotify_add_watch(w->fd, w->path, WATCH_MASK);
    sys = w->wd < 0 ? errno : 0;
    /* Looked up after the watch is set: a swap in between is seen at the next check. */
    if (!sys && stat(w->path, &st) < 0)
        sys = errno;
    if (sys) {
        if (w->wd >= 0 || w->parent_wd < 0)
            drop_watch(w);
        return sys;
    }
    w->dev = st.st_dev;
    w->ino = st.st_ino;
    return 0;
}

/* Sets the watch, or goes on polling until it can be set. */
static void hold(struct dirwatch *w)
{
    int sys = try_hold(w);
    if (sys == 0) {
        if (w->told)
            note(w, "watched by events again", 0);
        w->told = w->polling = false;
        timer_set(&w->timer, CHECK_MS);
        return;
    }
    if (!w->told)
        note(w, "looked at by a poll until events can be had", sys);
    w->told = w->polling = true;
    w->print = fingerprint(w->path);
    timer_set(&w->timer, w->poll_ms);
}

static void poll_once(struct dirwatch *w)
{
    uint64_t before = w->print;
    hold(w);
    /* When the watch just took hold, what happened since the last look has made no event. */
    if (!w->polling)
        w->print = fingerprint(w->path);
    if (w->print != before)
        tell(w, NULL);
}

static void lost(struct dirwatch *w)
{
    drop_watch(w);
    hold(w);
    tell(w, NULL);
}

static void check(struct dirwatch *w)
{
    struct stat st;
    if (stat(w->path, &st) < 0 || st.st_dev != w->dev || st.st_ino != w->ino)
        lost(w);
    else
        timer_set(&w->timer, CHECK_MS);
}

static void look(struct dirwatch *w)
{
    if (w->polling)
        poll_once(w);
    else
        check(w);
}

static void timer_fired(void *arg)
{
    struct dirwatch *w = arg;
    w->running = true;
    look(w);
    w->running = false;
    if (w->dead)
        destroy(w);
}

static bool points_into(int dirfd, const char *entry, const char *name)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(dirfd, entry, target, sizeof target);
    if (n < 0)
        return false;
    struct str rest = { target, (size_t)n };
    if (str_starts(rest, "./"))
        rest.p += 2, rest.n -= 2;
    return str_is(str_cut(&rest, '/'), name);
}

/* A link was replaced: entries that lead through it have changed too ("config.yaml" ->
 * "..data/config.yaml" when "..data" is swapped). */
static void tell_behind(struct dirwatch *w, const char *name)
{
    DIR *dir = opendir(w->path);
    if (!dir)
        return;
    struct stat st;
    if (fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)) {
        for (const struct dirent *e; !w->dead && (e = readdir(dir));)
            if (e->d_type == DT_LNK || e->d_type == DT_UNKNOWN)
                if (strcmp(e->d_name, name) != 0 && points_into(dirfd(dir), e->d_name, name))
                    tell(w, e->d_name);
    }
    closedir(dir);
}

static void handle(struct dirwatch *w, const struct inotify_event *e)
{
    if (e->mask & IN_Q_OVERFLOW) {
        tell(w, NULL);
    } else if (e->wd == w->wd && e->len) {
        tell(w, e->name);
        if (!w->dead && e->mask & (IN_CREATE | IN_MOVED_TO))
            tell_behind(w, e->name);
    }
}

/* What the events mean for the watch itself. */
struct verdict {
    bool gone, look;
};

static void judge(struct dirwatch *w, const struct inotify_event *e, struct verdict *v)
{
    if (e->wd == w->wd && e->mask & WATCH_LOST) {
        v->gone = true;
    } else if (e->wd == w->parent_wd) {
        v->look |= e->len && strcmp(e->name, w->base) == 0;
        if (e->mask & IN_IGNORED)
            w->parent_wd = -1;
    }
}

static void events_ready(void *arg, int what)
{
    struct dirwatch *w = arg;
    char text[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n = read(w->fd, text, sizeof text);
    if (n <= 0)
        return;
    struct verdict v = { false, false };
    w->running = true;
    for (ssize_t at = 0; at < n && !w->dead;) {
        const struct inotify_event *e = (const struct inotify_event *)(text + at);
        at += (ssize_t)(sizeof *e + e->len);
        judge(w, e, &v);
        handle(w, e);
    }
    if (v.gone && !w->dead)
        lost(w);
    else if (v.look && !w->dead)
        look(w);
    w->running = false;
    if (w->dead)
        destroy(w);
}

/* ---- face ---- */

/* "/a/b/" -> "/a/b", parent "/a", base "b". */
static void split_path(struct dirwatch *w)
{
    size_t n = strlen(w->path);
    while (n > 1 && w->path[n - 1] == '/')
        w->path[--n] = '\0';
    w->base = path_name(w->path);
    w->parent = w->base[0] ? path_parent(w->path) : NULL;
}

int dirwatch_new(struct loop *l, const char *path, int64_t poll_ms,
                 const struct dirwatch_events *ev, struct dirwatch **ret, struct error *err)
{
    if (!path[0])
        return error_set(err, ERR_INVALID, 0, "watch a directory: its path is empty");
    struct dirwatch *w = x_alloc(sizeof *w);
    *w = (struct dirwatch){ .loop = l,
                            .path = x_strdup(path),
                            .poll_ms = MAX(poll_ms, (int64_t)POLL_MIN_MS),
                            .ev = *ev,
                            .fd = -1,
                            .wd = -1,
                            .parent_wd = -1 };
    split_path(w);
    timer_init(&w->timer, l, timer_fired, w);
    w->running = true;
    hold(w);
    w->running = false;
    if (w->dead) {
        destroy(w);
        return error_set(err, ERR_INTERNAL, 0, "watch %s: ended while it began", path);
    }
    *ret = w;
    return 0;
}

void dirwatch_free(struct dirwatch *w)
{
    if (!w)
        return;
    w->dead = true;
    if (!w->running)
        destroy(w);
}

bool dirwatch_polling(const struct dirwatch *w)
{
    return w->polling;
}
