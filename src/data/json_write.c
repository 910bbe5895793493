/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>

#include "base/mem.h"
#include "data/json.h"

enum { DEPTH_MAX = 63 };

void jw_init(struct json_writer *w, struct buf *out, int indent)
{
    *w = (struct json_writer){ .out = out, .indent = indent };
}

static void newline(struct json_writer *w)
{
    if (w->indent)
        buf_fmt(w->out, "\n%*s", w->depth * w->indent, "");
}

/* What stands before a value or key: a comma and a line break, but nothing after a key. */
static void before(struct json_writer *w)
{
    uint64_t bit = UINT64_C(1) << w->depth;
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (w->has_items & bit)
        buf_ch(w->out, ',');
    if (w->depth)
        newline(w);
    w->has_items |= bit;
}

static void open_level(struct json_writer *w, char bracket, bool map)
{
    before(w);
    buf_ch(w->out, bracket);
    if (w->depth >= DEPTH_MAX) {
        w->out->failed = true;
        return;
    }
    w->depth++;
    uint64_t bit = UINT64_C(1) << w->depth;
    w->has_items &= ~bit;
    w->in_map = map ? w->in_map | bit : w->in_map & ~bit;
}

void jw_map(struct json_writer *w)
{
    open_level(w, '{', true);
}

void jw_list(struct json_writer *w)
{
    open_level(w, '[', false);
}

void jw_end(struct json_writer *w)
{
    if (!w->depth)
        return;
    uint64_t bit = UINT64_C(1) << w->depth--;
    if (w->has_items & bit)
        newline(w);
    buf_ch(w->out, w->in_map & bit ? '}' : ']');
}

/* How many bytes at the start stand for themselves. */
static size_t as_they_are(struct str s)
{
    size_t n = 0;
    while (n < s.n && s.p[n] >= 0x20 && s.p[n] < 0x7F && s.p[n] != '"' && s.p[n] != '\\')
        n++;
    return n;
}

static void quoted(struct buf *out, struct str s)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    buf_ch(out, '"');
    while (s.n) {
        size_t run = as_they_are(s);
        buf_add(out, s.p, run);
        s.p += run;
        s.n -= run;
        if (!s.n)
            break;
        unsigned char c = (unsigned char)s.p[0];
        const char *special = c ? strchr(plain, c) : NULL;
        size_t n = str_utf8(s);
        if (special)
            buf_fmt(out, "\\%c", letter[special - plain]);
        else if (c < 0x20 || c == 0x7F)
            buf_fmt(out, "\\u%04x", c);
        else if (n)
            buf_add(out, s.p, n);
        else
            buf_z(out, "\xEF\xBF\xBD");
        n = n ? n : 1;
        s.p += n;
        s.n -= n;
    }
    buf_ch(out, '"');
}

void jw_key(struct json_writer *w, const char *key)
{
    before(w);
    quoted(w->out, str_of(key));
    buf_z(w->out, w->indent ? ": " : ":");
    w->after_key = true;
}

void jw_text(struct json_writer *w, struct str s)
{
    before(w);
    quoted(w->out, s);
}

void jw_z(struct json_writer *w, const char *z)
{
    if (z)
        jw_text(w, str_of(z));
    else
        jw_null(w);
}

void jw_int(struct json_writer *w, int64_t v)
{
    before(w);
    buf_fmt(w->out, "%" PRId64, v);
}

void jw_uint(struct json_writer *w, uint64_t v)
{
    before(w);
    buf_fmt(w->out, "%" PRIu64, v);
}

void jw_bool(struct json_writer *w, bool v)
{
    before(w);
    buf_z(w->out, v ? "true" : "false");
}

void jw_null(struct json_writer *w)
{
    before(w);
    buf_z(w->out, "null");
}

/* As written, if that is also a JSON number (YAML knows further spellings). */
static void real(struct json_writer *w, const struct value *v)
{
    before(w);
    struct str t = v->text;
    bool json = t.n && (t.p[0] == '-' || (t.p[0] >= '0' && t.p[0] <= '9'));
    for (size_t i = 0; json && i < t.n; i++)
        json = strchr("+-.eE0123456789", t.p[i]) != NULL;
    size_t first = json && t.p[0] == '-';
    json =
        json && t.n > first && t.p[first] >= '0' && t.p[t.n - 1] >= '0' &&
        !(t.p[first] == '0' && t.n > first + 1 && t.p[first + 1] >= '0' && t.p[first + 1] <= '9');
    if (json)
        buf_str(w->out, t);
    else if (isfinite(v->real))
        buf_fmt(w->out, "%.17g", v->real + 0.0); /* no "-0": that reads back as a whole number */
    else
        buf_z(w->out, "null"); /* JSON has no infinity */
}

void jw_value(struct json_writer *w, const struct value *v)
{
    switch (v->kind) {
    case VALUE_NULL:
        jw_null(w);
        break;
    case VALUE_BOOL:
        jw_bool(w, v->boolean);
        break;
    case VALUE_INT:
        jw_int(w, v->number);
        break;
    case VALUE_REAL:
        real(w, v);
        break;
    case VALUE_TEXT:
        jw_text(w, v->text);
        break;
    case VALUE_LIST:
        jw_list(w);
        for (size_t i = 0; i < v->n && !w->out->failed; i++)
            jw_value(w, &v->items[i]);
        jw_end(w);
        break;
    case VALUE_MAP:
        jw_map(w);
        for (size_t i = 0; i < v->n && !w->out->failed; i++) {
            jw_key(w, v->members[i].key.p);
            jw_value(w, &v->members[i].value);
        }
        jw_end(w);
        break;
    }
}

void jw_kv(struct json_writer *w, const char *key, const char *z)
{
    jw_key(w, key);
    jw_z(w, z);
}

void jw_kv_int(struct json_writer *w, const char *key, int64_t v)
{
    jw_key(w, key);
    jw_int(w, v);
}

void jw_kv_bool(struct json_writer *w, const char *key, bool v)
{
    jw_key(w, key);
    jw_bool(w, v);
}
