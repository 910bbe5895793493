/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the real runtime, and saying why a container cannot be made where its caller looks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "runtime/runtime.h"

static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* A program that is not this one under another name: that would start itself for ever. */
static bool usable(const char *path)
{
    struct stat st, self;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0 &&
           !(stat("/proc/self/exe", &self) == 0 && self.st_dev == st.st_dev &&
             self.st_ino == st.st_ino);
}

int runtime_find(struct arena *a, const struct runtime_texts *names, const char *path,
                 const char **ret, struct error *err)
{
    auto_buf tried;
    buf_init(&tried, 4096);
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->items[i];
        struct str rest = str_of(path && path[0] ? path : default_path);
        buf_fmt(&tried, "%s%s", i ? ", " : "", name);
        if (strchr(name, '/')) {
            if (name[0] == '/' && usable(name)) {
                *ret = name;
                return 0;
            }
            continue;
        }
        while (rest.p) {
            struct str dir = str_cut(&rest, ':');
            if (!dir.n || dir.p[0] != '/')
                continue;
            const char *full = arena_printf(a, "%.*s/%s", STR_FMT(dir), name);
            if (!full)
                return error_set(err, ERR_LIMIT, 0, "no memory to look for %s", name);
            if (usable(full)) {
                *ret = full;
                return 0;
            }
        }
    }
    return error_set(err, ERR_NOT_FOUND, 0,
                     "no OCI runtime found: tried %s in %s; name it in config.toml, "
                     "nvidia-container-runtime.runtimes",
                     tried.p ? tried.p : "(none)", path && path[0] ? path : default_path);
}

/* ---- saying ---- */

static void append(const char *path, struct str line)
{
    auto_close int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0644);
    ssize_t n = fd >= 0 ? write(fd, line.p, line.n) : 0;
    (void)n;
}

static void now_text(char *ret, size_t size)
{
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    strftime(ret, size, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static void log_line(struct buf *out, bool json, const char *level, const char *text)
{
    char when[32];
    struct json_writer w;
    now_text(when, sizeof when);
    if (json) {
        jw_init(&w, out, 0);
        jw_map(&w);
        jw_kv(&w, "level", level);
        jw_kv(&w, "msg", text);
        jw_kv(&w, "time", when);
        jw_end(&w);
        buf_ch(out, '\n');
        return;
    }
    buf_fmt(out, "time=\"%s\" level=%s msg=", when, level);
    jw_init(&w, out, 0);
    jw_z(&w, text);
    buf_ch(out, '\n');
}

void runtime_report(const struct runtime_command *c, const char *program, const char *text)
{
    fprintf(stderr, "%s: %s\n", program, text);
    /* crun names the kind of log; only a file is one that its caller reads. */
    const char *log = c->log && strncmp(c->log, "file:", 5) == 0 ? c->log + 5 : c->log;
    if (!log || !log[0] || strncmp(log, "journald:", 9) == 0 || strncmp(log, "syslog:", 7) == 0)
        return;
    auto_buf line;
    buf_init(&line, 8192);
    log_line(&line, c->log_format && strcmp(c->log_format, "json") == 0, "error", text);
    if (!line.failed)
        append(log, buf_view(&line));
}

void runtime_note(const struct runtime_config *c, const char *level, const char *text)
{
    if (!c->log_path || c->log_path[0] != '/')
        return;
    auto_buf line;
    buf_init(&line, 8192);
    log_line(&line, false, level, text);
    if (!line.failed)
        append(c->log_path, buf_view(&line));
}
