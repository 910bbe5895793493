/* SPDX-License-Identifier: Apache-2.0 */
#include "hook/jsonscan.h"

#include <stdio.h>

struct scan {
    struct str doc;
    size_t at;
};

static int malformed(const struct scan *s, const char *expected, struct error *err)
{
    return error_set(err, ERR_INVALID, 0, "JSON at byte %zu: expected %s", s->at, expected);
}

static char peek(struct scan *s)
{
    while (s->at < s->doc.n && (s->doc.p[s->at] == ' ' || s->doc.p[s->at] == '\t' ||
                                s->doc.p[s->at] == '\n' || s->doc.p[s->at] == '\r'))
        s->at++;
    return s->at < s->doc.n ? s->doc.p[s->at] : '\0';
}

static int hex4(struct scan *s, uint32_t *ret, struct error *err)
{
    uint64_t v;
    struct str digits = { s->doc.p + s->at, 4 };
    if (s->doc.n - s->at < 4 || !str_hex_to_u64(digits, 0xFFFF, &v))
        return malformed(s, "four hexadecimal digits", err);
    s->at += 4;
    *ret = (uint32_t)v;
    return 0;
}

/* A growing place for the unescaped text; NULL p only skips. */
struct out {
    char *p;
    size_t n, size;
};

static void put(struct out *o, char c)
{
    if (o->p && o->n < o->size)
        o->p[o->n] = c;
    o->n++;
}

static void put_rune(struct out *o, uint32_t c)
{
    if (c < 0x80) {
        put(o, (char)c);
    } else if (c < 0x800) {
        put(o, (char)(0xC0 | c >> 6));
        put(o, (char)(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        put(o, (char)(0xE0 | c >> 12));
        put(o, (char)(0x80 | (c >> 6 & 0x3F)));
        put(o, (char)(0x80 | (c & 0x3F)));
    } else {
        put(o, (char)(0xF0 | c >> 18));
        put(o, (char)(0x80 | (c >> 12 & 0x3F)));
        put(o, (char)(0x80 | (c >> 6 & 0x3F)));
        put(o, (char)(0x80 | (c & 0x3F)));
    }
}

static int take_escape(struct scan *s, struct out *o, struct error *err)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = s->at < s->doc.n ? s->doc.p[s->at] : '\0';
    const char *known = c ? strchr(letters, c) : NULL;
    if (known) {
        s->at++;
        put(o, values[known - letters]);
        return 0;
    }
    if (c != 'u')
        return malformed(s, "an escape", err);
    s->at++;
    uint32_t high, low;
    int r = hex4(s, &high, err);
    if (r < 0)
        return r;
    if (high >= 0xD800 && high < 0xDC00 && s->doc.n - s->at >= 6 && s->doc.p[s->at] == '\\' &&
        s->doc.p[s->at + 1] == 'u') {
        s->at += 2;
        r = hex4(s, &low, err);
        if (r < 0)
            return r;
        high = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
                                             : 0xFFFD;
    }
    put_rune(o, high >= 0xD800 && high < 0xE000 ? 0xFFFD : high);
    return 0;
}

static int take_text(struct scan *s, struct out *o, struct error *err)
{
    if (peek(s) != '"')
        return malformed(s, "a text", err);
    s->at++;
    while (s->at < s->doc.n) {
        char c = s->doc.p[s->at++];
        if (c == '"')
            return 0;
        if ((unsigned char)c < 0x20)
            break;
        if (c != '\\') {
            put(o, c);
            continue;
        }
        int r = take_escape(s, o, err);
        if (r < 0)
            return r;
    }
    return malformed(s, "the end of a text", err);
}

static int skip_scalar(struct scan *s, struct error *err)
{
    size_t began = s->at;
    while (s->at < s->doc.n && !strchr(",]} \t\r\n", s->doc.p[s->at]))
        s->at++;
    return s->at == began ? malformed(s, "a value", err) : 0;
}

/* Skips one value by counting brackets; texts are read as texts, so that brackets in them do not
 * count. */
static int skip_value(struct scan *s, struct error *err)
{
    struct out nowhere = { 0 };
    char open[JSONSCAN_DEPTH_MAX];
    int depth = 0;
    do {
        char c = peek(s);
        int r = 0;
        if (c == '"') {
            r = take_text(s, &nowhere, err);
        } else if (c == '{' || c == '[') {
            if (depth == JSONSCAN_DEPTH_MAX)
                return error_set(err, ERR_LIMIT, 0, "JSON at byte %zu: nested deeper than %d",
                                 s->at, depth);
            open[depth++] = c;
            s->at++;
        } else if (c == '}' || c == ']') {
            if (depth == 0 || open[depth - 1] != (c == '}' ? '{' : '['))
                return malformed(s, "a value", err);
            depth--;
            s->at++;
        } else if ((c == ',' || c == ':') && depth > 0) {
            s->at++;
        } else {
            r = skip_scalar(s, err);
        }
        if (r < 0)
            return r;
    } while (depth > 0);
    return 0;
}

/* Moves into the member `name` of the map that begins here. */
static int enter_member(struct scan *s, const char *name, struct error *err)
{
    if (peek(s) != '{')
        return error_set(err, ERR_NOT_FOUND, 0, "JSON: nothing called \"%s\"", name);
    s->at++;
    while (peek(s) != '}') {
        char key[128];
        struct out o = { key, 0, sizeof key };
        int r = take_text(s, &o, err);
        if (r < 0)
            return r;
        if (peek(s) != ':')
            return malformed(s, "\":\"", err);
        s->at++;
        if (o.n < sizeof key && str_eq((struct str){ key, o.n }, str_of(name)))
            return 0;
        r = skip_value(s, err);
        if (r < 0)
            return r;
        char c = peek(s);
        if (c == ',')
            s->at++;
        else if (c != '}')
            return malformed(s, "\",\" or \"}\"", err);
    }
    return error_set(err, ERR_NOT_FOUND, 0, "JSON: nothing called \"%s\"", name);
}

int jsonscan_text(struct str doc, const char *const *path, char *ret, size_t size,
                  struct error *err)
{
    struct scan s = { doc, 0 };
    for (; *path; path++) {
        int r = enter_member(&s, *path, err);
        if (r < 0)
            return r;
    }
    if (peek(&s) != '"')
        return error_set(err, ERR_NOT_FOUND, 0, "JSON at byte %zu: not a text", s.at);
    struct out o = { ret, 0, size };
    int r = take_text(&s, &o, err);
    if (r < 0)
        return r;
    if (o.n >= size)
        return error_set(err, ERR_LIMIT, 0, "JSON: a text of %zu bytes, at most %zu are taken", o.n,
                         size - 1);
    if (memchr(ret, '\0', o.n))
        return error_set(err, ERR_INVALID, 0, "JSON: a text with a NUL");
    ret[o.n] = '\0';
    return 0;
}
