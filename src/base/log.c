/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

enum { LINE_MAX_ = 16 * 1024, VALUE_MAX = 1024 };

static _Atomic int min_level = LOG_INFO_;
static _Atomic int line_format = LOG_TEXT;
static _Atomic int line_fd = STDERR_FILENO;

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

static void write_whole(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return; /* nowhere to tell it */
        p += done;
        n -= (size_t)done;
    }
}

void log_setup(enum log_level level, enum log_format format)
{
    atomic_store(&min_level, (int)level);
    atomic_store(&line_format, (int)format);
}

void log_to_fd(int fd)
{
    atomic_store(&line_fd, fd);
}

bool log_on(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&min_level, memory_order_relaxed);
}

void log_write(enum log_level level, const char *event, const struct log_kv *kv, size_t n)
{
    if (!log_on(level))
        return;
    int saved = errno;
    bool json = atomic_load(&line_format) == LOG_JSON;
    struct line l;
    l.n = 0;
    l.full = false;
    if (json)
        add_z(&l, "{\"time\":\"");
    add_time(&l);
    add_z(&l, json ? "\",\"level\":\"" : " ");
    add_z(&l, level_names[level]);
    add_z(&l, json ? "\",\"event\":" : " ");
    add_text(&l, event, json);
    for (size_t i = 0; i < n && !l.full; i++)
        add_kv(&l, &kv[i], json);
    const char *end = json ? l.full ? closing : "}\n" : l.full ? " cut=true\n" : "\n";
    size_t end_n = strlen(end);
    memcpy(l.p + l.n, end, end_n);
    write_whole(atomic_load(&line_fd), l.p, l.n + end_n);
    errno = saved;
}
