/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

enum { LINE_MAX_ = 16 * 1024, VALUE_MAX = 1024, HELD_MAX = 64 * 1024 };

static _Atomic int min_level = LOG_INFO_;
static _Atomic int line_format = LOG_TEXT;

static const char *const level_names[] = { "debug", "info", "warn", "error" };
static const char replacement[] = "\xEF\xBF\xBD", cut_mark[] = "…";

/* A line of bounded length on the stack. The last bytes are kept free for what closes the line. */
struct line {
    char p[LINE_MAX_];
    size_t n;
    bool full;
};
static const char closing[] = ",\"cut\":true}\n";

static void add(struct line *l, const char *p, size_t n)
{
    if (n > sizeof l->p - sizeof closing - l->n) {
        l->full = true;
        return;
    }
    memcpy(l->p + l->n, p, n);
    l->n += n;
}

static void add_z(struct line *l, const char *z)
{
    add(l, z, strlen(z));
}

/* The inside of a quoted text, with the escapes of JSON. What is no UTF-8 becomes U+FFFD. */
static void add_escaped(struct line *l, struct str s)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    while (s.n) {
        unsigned char c = (unsigned char)s.p[0];
        const char *special = c ? strchr(plain, c) : NULL;
        size_t n = str_utf8(s);
        if (special) {
            add(l, "\\", 1);
            add(l, &letter[special - plain], 1);
        } else if (c < 0x20 || c == 0x7F) {
            char hex[8];
            add(l, hex, (size_t)snprintf(hex, sizeof hex, "\\u%04x", c));
        } else if (n) {
            add(l, s.p, n);
        } else {
            add_z(l, replacement);
        }
        n = n ? n : 1;
        s.p += n;
        s.n -= n;
    }
}

static bool needs_quotes(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7F)
            return true;
    }
    return s.n == 0;
}

/* At most VALUE_MAX bytes of the text, cut between two characters. */
static struct str shortened(const char *text, bool *ret_cut)
{
    struct str s = { text, strnlen(text, VALUE_MAX + 1) };
    *ret_cut = s.n > VALUE_MAX;
    if (*ret_cut) {
        s.n = VALUE_MAX;
        while (s.n > VALUE_MAX - 4 && ((unsigned char)text[s.n] & 0xC0) == 0x80)
            s.n--;
    }
    return s;
}

static void add_text(struct line *l, const char *text, bool quoted)
{
    bool cut;
    struct str s = shortened(text, &cut);
    quoted = quoted || cut || needs_quotes(s);
    if (quoted)
        add(l, "\"", 1);
    add_escaped(l, s);
    if (cut)
        add_z(l, cut_mark);
    if (quoted)
        add(l, "\"", 1);
}

static void add_value(struct line *l, const struct log_kv *kv, bool json)
{
    char number[24];
    switch (kv->kind) {
    case LOG_KV_INT:
        add(l, number, (size_t)snprintf(number, sizeof number, "%" PRId64, kv->number));
        break;
    case LOG_KV_SECRET:
        add_z(l, json ? "\"***\"" : "***");
        break;
    case LOG_KV_TEXT:
        if (kv->text)
            add_text(l, kv->text, json);
        else
            add_z(l, json ? "null" : "-");
        break;
    }
}

static void add_time(struct line *l)
{
    struct timespec now = { 0 };
    struct tm tm = { 0 };
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    char text[40];
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    add(l, text, n);
    add(l, text, (size_t)snprintf(text, sizeof text, ".%03ldZ", now.tv_nsec / 1000000));
}

static void add_kv(struct line *l, const struct log_kv *kv, bool json)
{
    size_t before = l->n;
    if (json) {
        add_z(l, ",\"");
        add_escaped(l, str_of(kv->key));
        add_z(l, "\":");
    } else {
        add_z(l, " ");
        add_z(l, kv->key);
        add_z(l, "=");
    }
    add_value(l, kv, json);
    if (l->full) /* whole pairs only, so that the line stays readable by a machine */
        l->n = before;
}

/* ---- where lines go ---- */

static struct {
    pthread_mutex_t lock; /* over all of it */
    int fd;
    int own_fd; /* −1, or ours: the same pipe or terminal, opened anew so as not to wait */
    bool socket, never_wait;
    char held[HELD_MAX];
    size_t n_held;
    uint64_t lost; /* lines, since `held` was full */
    void (*stalled)(void *arg);
    void *arg;
} sink = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = STDERR_FILENO, .own_fd = -1 };

/* O_NONBLOCK on a descriptor that others have too would be theirs as well. Where the pipe cannot be
 * opened anew (another user's) it is asked first: then a page of it is free, and no more than that
 * is written at once. */
static ssize_t write_some(const char *p, size_t n)
{
    if (!sink.never_wait)
        return write(sink.fd, p, n);
    if (sink.socket)
        return send(sink.fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sink.own_fd >= 0)
        return write(sink.own_fd, p, n);
    struct pollfd ready = { .fd = sink.fd, .events = POLLOUT };
    if (poll(&ready, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(sink.fd, p, MIN(n, (size_t)PIPE_BUF));
}

/* How many bytes are done with: written, or hopeless. The rest has to wait. */
static size_t write_what_goes(const char *p, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t w = write_some(p + done, n - done);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && sink.never_wait)
            return done;
        if (w <= 0)
            return n; /* nowhere to tell it */
        done += (size_t)w;
    }
    return n;
}

/* A line, or the rest of one, behind what is kept already. */
static void keep(const char *p, size_t n)
{
    if (n > sizeof sink.held - sink.n_held) {
        sink.lost++;
        return;
    }
    memcpy(sink.held + sink.n_held, p, n);
    sink.n_held += n;
}

static void compose(struct line *l, enum log_level level, const char *event,
                    const struct log_kv *kv, size_t n);

static bool flush_held(void)
{
    size_t done = write_what_goes(sink.held, sink.n_held);
    sink.n_held -= done;
    memmove(sink.held, sink.held + done, sink.n_held);
    if (sink.n_held == 0 && sink.lost) {
        struct line l;
        compose(&l, LOG_WARN_, "log.lost",
                (struct log_kv[]){ KV_I("lines", sink.lost),
                                   KV("cause", "nobody read the log, and it has no end") },
                2);
        sink.lost = 0;
        done = write_what_goes(l.p, l.n);
        keep(l.p + done, l.n - done);
    }
    return sink.n_held == 0;
}

static void put(const char *p, size_t n)
{
    pthread_mutex_lock(&sink.lock);
    bool was_free = sink.n_held == 0;
    size_t done = flush_held() ? write_what_goes(p, n) : 0;
    if (done < n)
        keep(p + done, n - done);
    bool stalled = was_free && sink.n_held > 0 && sink.stalled;
    void (*fn)(void *) = sink.stalled;
    void *arg = sink.arg;
    pthread_mutex_unlock(&sink.lock);
    if (stalled)
        fn(arg);
}

static void forget_own(void)
{
    if (sink.own_fd >= 0)
        close(sink.own_fd);
    sink.own_fd = -1;
    sink.never_wait = sink.socket = false;
}

void log_to_fd(int fd)
{
    pthread_mutex_lock(&sink.lock);
    forget_own();
    sink.fd = fd;
    sink.n_held = 0;
    sink.lost = 0;
    sink.stalled = NULL;
    pthread_mutex_unlock(&sink.lock);
}

void log_never_wait(void (*stalled)(void *arg), void *arg)
{
    struct stat st = { 0 };
    char path[32];
    pthread_mutex_lock(&sink.lock);
    forget_own();
    sink.stalled = stalled;
    sink.arg = arg;
    if (fstat(sink.fd, &st) == 0 && (S_ISFIFO(st.st_mode) || isatty(sink.fd))) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", sink.fd);
        sink.own_fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        sink.never_wait = true;
    } else if (S_ISSOCK(st.st_mode)) {
        sink.never_wait = sink.socket = true;
    }
    pthread_mutex_unlock(&sink.lock);
}

bool log_flush(void)
{
    pthread_mutex_lock(&sink.lock);
    bool empty = flush_held();
    pthread_mutex_unlock(&sink.lock);
    return empty;
}

void log_drain(int ms)
{
    enum { STEP_MS = 10 };
    while (!log_flush() && ms > 0) {
        poll(NULL, 0, STEP_MS);
        ms -= STEP_MS;
    }
}

void log_setup(enum log_level level, enum log_format format)
{
    atomic_store(&min_level, (int)level);
    atomic_store(&line_format, (int)format);
}

bool log_on(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&min_level, memory_order_relaxed);
}

static void compose(struct line *l, enum log_level level, const char *event,
                    const struct log_kv *kv, size_t n)
{
    bool json = atomic_load(&line_format) == LOG_JSON;
    l->n = 0;
    l->full = false;
    if (json)
        add_z(l, "{\"time\":\"");
    add_time(l);
    add_z(l, json ? "\",\"level\":\"" : " ");
    add_z(l, level_names[level]);
    add_z(l, json ? "\",\"event\":" : " ");
    add_text(l, event, json);
    for (size_t i = 0; i < n && !l->full; i++)
        add_kv(l, &kv[i], json);
    const char *end = json ? l->full ? closing : "}\n" : l->full ? " cut=true\n" : "\n";
    size_t end_n = strlen(end);
    memcpy(l->p + l->n, end, end_n);
    l->n += end_n;
}

void log_write(enum log_level level, const char *event, const struct log_kv *kv, size_t n)
{
    if (!log_on(level))
        return;
    int saved = errno;
    struct line l;
    compose(&l, level, event, kv, n);
    put(l.p, l.n);
    errno = saved;
}
