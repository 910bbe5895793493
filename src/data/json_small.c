/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_parse once more, without yyjson: there is no static yyjson, and mete-runtime is static,
 * since it runs on hosts whose libraries nobody knows. The same answers as json.c, position for
 * position: the same tests and a fuzzer hold the two against each other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/json.h"

struct reader {
    struct arena *arena;
    const char *name;
    const struct doc_limits *limits;
    const char *p, *end;
    /* Columns count characters: `column` is that of `counted`, a place on this line. */
    const char *line_start, *counted;
    uint32_t line, column;
    bool ascii; /* all of the document: a column is a difference of pointers then */
    size_t nodes;
    struct error *err;
};

static uint32_t column(struct reader *r, const char *at)
{
    if (r->ascii)
        return (uint32_t)(at - r->line_start) + 1;
    if (r->counted < r->line_start || r->counted > at) {
        r->counted = r->line_start;
        r->column = 1;
    }
    for (; r->counted < at; r->counted++)
        r->column += ((unsigned char)*r->counted & 0xC0) != 0x80;
    return r->column;
}

static int invalid(struct reader *r, const char *at, const char *what)
{
    return error_set(r->err, ERR_INVALID, 0, "%s:%u:%u: no valid JSON: %s", r->name, r->line,
                     column(r, at), what);
}

static int too_large(const struct reader *r)
{
    return error_set(r->err, ERR_LIMIT, 0, "%s: the document does not fit in %zu bytes of memory",
                     r->name, r->arena->limit);
}

static int too_many(const struct reader *r)
{
    return error_set(r->err, ERR_LIMIT, 0, "%s: more than %zu values", r->name, r->limits->nodes);
}

static char peek(struct reader *r)
{
    for (; r->p < r->end; r->p++) {
        if (*r->p == '\n') {
            r->line++;
            r->line_start = r->p + 1;
        } else if (*r->p != ' ' && *r->p != '\t' && *r->p != '\r') {
            return *r->p;
        }
    }
    return '\0';
}

/* ---- texts ---- */

static bool hex4(const char *p, const char *end, uint32_t *ret)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t v = 0;
    if (end - p < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        const char *d =
            p[i] ? strchr(digits, p[i] | (p[i] >= 'A' && p[i] <= 'F' ? 0x20 : 0)) : NULL;
        if (!d)
            return false;
        v = v * 16 + (uint32_t)(d - digits);
    }
    *ret = v;
    return true;
}

static size_t put_rune(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)(leads[n] | c);
    return n;
}

/* After "\u": one character, written as one or two escapes. */
static int take_unicode(struct reader *r, char *to, size_t *n)
{
    uint32_t high, low;
    const char *at = r->p - 2;
    if (!hex4(r->p, r->end, &high))
        return invalid(r, at, "an escape \\u without four hexadecimal digits");
    r->p += 4;
    if (high >= 0xDC00 && high < 0xE000)
        return invalid(r, at, "half of a surrogate pair");
    if (high >= 0xD800 && high < 0xDC00) {
        if (r->end - r->p < 6 || r->p[0] != '\\' || r->p[1] != 'u' ||
            !hex4(r->p + 2, r->end, &low) || low < 0xDC00 || low >= 0xE000)
            return invalid(r, at, "half of a surrogate pair");
        r->p += 6;
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    *n += put_rune(to + *n, high);
    return 0;
}

static int take_escape(struct reader *r, char *to, size_t *n)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = r->end - r->p >= 2 ? r->p[1] : '\0';
    const char *known = c ? strchr(letters, c) : NULL;
    if (!known && c != 'u')
        return invalid(r, r->p, "an unknown escape in a text");
    r->p += 2;
    if (c == 'u')
        return take_unicode(r, to, n);
    to[(*n)++] = values[known - letters];
    return 0;
}

/* Where the text that begins at r->p ends, or NULL: its closing quote. */
static const char *text_end(const struct reader *r)
{
    for (const char *p = r->p; p < r->end; p++) {
        if (*p == '"')
            return p;
        p += *p == '\\';
    }
    return NULL;
}

/* How many characters follow that stand for themselves and take one byte. */
static size_t plain(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && (unsigned char)p[n] >= 0x20 && (unsigned char)p[n] < 0x80 &&
           p[n] != '"' && p[n] != '\\')
        n++;
    return n;
}

static int take_text(struct reader *r, struct str *ret)
{
    r->p++;
    size_t simple = plain(r->p, r->end);
    if (r->p + simple < r->end && r->p[simple] == '"') {
        *ret = (struct str){ arena_strdup(r->arena, (struct str){ r->p, simple }), simple };
        r->p += simple + 1;
        return ret->p ? 0 : too_large(r);
    }
    const char *start = r->p, *end = text_end(r);
    if (!end)
        return invalid(r, start - 1, "a text without an end");
    char *to = arena_alloc(r->arena, (size_t)(end - start) + 1);
    size_t n = 0;
    if (!to)
        return too_large(r);
    while (r->p < end) {
        unsigned char c = (unsigned char)*r->p;
        size_t width = c >= 0x80 ? str_utf8((struct str){ r->p, (size_t)(r->end - r->p) }) : 1;
        if (c < 0x20)
            return invalid(r, r->p, "a control character in a text");
        if (width == 0)
            return invalid(r, r->p, "a text that is not UTF-8");
        if (c == '\\') {
            int rc = take_escape(r, to, &n);
            if (rc < 0)
                return rc;
            continue;
        }
        memcpy(to + n, r->p, width);
        n += width;
        r->p += width;
    }
    r->p = end + 1;
    *ret = (struct str){ to, n };
    return 0;
}

/* ---- other scalars ---- */

static size_t digits(const struct reader *r, const char *p)
{
    size_t n = 0;
    while (p + n < r->end && p[n] >= '0' && p[n] <= '9')
        n++;
    return n;
}

/* The length of the number at r->p by JSON's grammar, or 0. */
static size_t number_length(const struct reader *r, bool *ret_whole)
{
    const char *p = r->p;
    p += *p == '-';
    size_t n = digits(r, p);
    if (n == 0 || (n > 1 && *p == '0'))
        return 0;
    p += n;
    *ret_whole = true;
    if (p < r->end && *p == '.') {
        n = digits(r, p + 1);
        if (n == 0)
            return 0;
        p += 1 + n;
        *ret_whole = false;
    }
    if (p < r->end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < r->end && (*p == '+' || *p == '-');
        n = digits(r, p);
        if (n == 0)
            return 0;
        p += n;
        *ret_whole = false;
    }
    return (size_t)(p - r->p);
}

static int keep_written(struct reader *r, struct value *to, size_t n)
{
    to->text = (struct str){ arena_strdup(r->arena, (struct str){ r->p, n }), n };
    r->p += n;
    return to->text.p ? 0 : too_large(r);
}

static int take_number(struct reader *r, struct value *to)
{
    bool whole = false;
    size_t n = number_length(r, &whole);
    if (n == 0)
        return invalid(r, r->p, "a number that JSON does not know");
    const char *at = r->p;
    int rc = keep_written(r, to, n);
    if (rc < 0)
        return rc;
    to->real = strtod(to->text.p, NULL);
    if (whole && str_to_i64(to->text, INT64_MIN, INT64_MAX, &to->number)) {
        to->kind = VALUE_INT;
        to->real = (double)to->number;
        return 0;
    }
    to->kind = VALUE_REAL;
    return to->real - to->real == 0 ? 0 : invalid(r, at, "a number without bounds");
}

static int take_word(struct reader *r, struct value *to)
{
    static const struct {
        struct str word;
        enum value_kind kind;
        bool boolean;
    } words[] = { { { "true", 4 }, VALUE_BOOL, true },
                  { { "false", 5 }, VALUE_BOOL, false },
                  { { "null", 4 }, VALUE_NULL, false } };
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        struct str w = words[i].word;
        if ((size_t)(r->end - r->p) < w.n || memcmp(r->p, w.p, w.n) != 0)
            continue;
        to->kind = words[i].kind;
        to->boolean = words[i].boolean;
        return keep_written(r, to, w.n);
    }
    return invalid(r, r->p, "a value was expected");
}

/* ---- containers ---- */

/* Room for one item more: doubles whenever the number is a power of two. */
static int grow(struct reader *r, void **items, size_t n, size_t size)
{
    if (n & (n - 1))
        return 0;
    void *more = arena_array(r->arena, n ? 2 * n : 1, size);
    if (!more)
        return too_large(r);
    if (n)
        memcpy(more, *items, n * size);
    *items = more;
    return 0;
}

static int take_value(struct reader *r, size_t depth, struct value *to);

/* What follows an item: true when there is another. */
static int after_item(struct reader *r, char close, bool *ret_more)
{
    char c = peek(r);
    if (c != ',' && c != close)
        return invalid(r, r->p,
                       close == ']' ? "expected \",\" or \"]\"" : "expected \",\" or \"}\"");
    r->p++;
    *ret_more = c == ',';
    return 0;
}

static int take_list(struct reader *r, size_t depth, struct value *to)
{
    to->kind = VALUE_LIST;
    r->p++;
    bool more = peek(r) != ']';
    r->p += !more;
    while (more) {
        void *items = to->items;
        int rc = grow(r, &items, to->n, sizeof *to->items);
        to->items = items;
        if (rc == 0)
            rc = take_value(r, depth + 1, &to->items[to->n]);
        if (rc < 0)
            return rc;
        to->n++;
        rc = after_item(r, ']', &more);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int take_member(struct reader *r, size_t depth, struct member *m)
{
    if (peek(r) != '"')
        return invalid(r, r->p, "a key in quotes was expected");
    m->line = r->line;
    m->column = column(r, r->p);
    if (++r->nodes > r->limits->nodes) /* keys count too */
        return too_many(r);
    int rc = take_text(r, &m->key);
    if (rc < 0)
        return rc;
    if (peek(r) != ':')
        return invalid(r, r->p, "expected \":\" after a key");
    r->p++;
    return take_value(r, depth + 1, &m->value);
}

static int no_key_twice(struct reader *r, const struct value *map)
{
    const struct member *twice;
    int rc = value_duplicate_key(r->arena, map, &twice, r->err);
    if (rc < 0)
        return error_wrap(r->err, "%s", r->name);
    return twice ? error_set(r->err, ERR_INVALID, 0,
                             "%s:%u:%u: key \"%.*s\" appears twice in one object; keep one",
                             r->name, twice->line, twice->column,
                             (int)MIN(twice->key.n, (size_t)80), twice->key.p)
                 : 0;
}

static int take_map(struct reader *r, size_t depth, struct value *to)
{
    to->kind = VALUE_MAP;
    r->p++;
    bool more = peek(r) != '}';
    r->p += !more;
    while (more) {
        void *members = to->members;
        int rc = grow(r, &members, to->n, sizeof *to->members);
        to->members = members;
        if (rc == 0)
            rc = take_member(r, depth, &to->members[to->n]);
        if (rc < 0)
            return rc;
        to->n++;
        rc = after_item(r, '}', &more);
        if (rc < 0)
            return rc;
    }
    return no_key_twice(r, to);
}

static int take_value(struct reader *r, size_t depth, struct value *to)
{
    char c = peek(r);
    *to = (struct value){ .line = r->line, .column = column(r, r->p) };
    if (++r->nodes > r->limits->nodes)
        return too_many(r);
    if ((c == '{' || c == '[') && depth >= r->limits->depth)
        return error_set(r->err, ERR_LIMIT, 0, "%s:%u:%u: nested deeper than %zu levels", r->name,
                         to->line, to->column, r->limits->depth);
    if (c == '{')
        return take_map(r, depth, to);
    if (c == '[')
        return take_list(r, depth, to);
    if (c == '"') {
        to->kind = VALUE_TEXT;
        return take_text(r, &to->text);
    }
    return c == '-' || (c >= '0' && c <= '9') ? take_number(r, to) : take_word(r, to);
}

static bool only_ascii(struct str text)
{
    unsigned char all = 0;
    for (size_t i = 0; i < text.n; i++)
        all |= (unsigned char)text.p[i];
    return all < 0x80;
}

int json_parse(struct arena *a, struct str text, const char *name, const struct doc_limits *limits,
               struct value **ret, struct error *err)
{
    struct reader r = { .arena = a,
                        .name = name,
                        .limits = limits ? limits : &doc_limits_default,
                        .p = text.p,
                        .end = text.p + text.n,
                        .line_start = text.p,
                        .counted = text.p,
                        .line = 1,
                        .column = 1,
                        .ascii = only_ascii(text),
                        .err = err };
    if (text.n > r.limits->bytes)
        return error_set(err, ERR_LIMIT, 0, "%s: %zu bytes, at most %zu are accepted", name, text.n,
                         r.limits->bytes);
    if (!str_trim(text).n)
        return error_set(err, ERR_INVALID, 0, "%s:1:1: no valid JSON: the text is empty", name);
    struct value *root = arena_alloc(a, sizeof *root);
    if (!root)
        return too_large(&r);
    int rc = take_value(&r, 0, root);
    if (rc == 0 && (peek(&r) != '\0' || r.p < r.end))
        rc = invalid(&r, r.p, "something follows the document");
    if (rc == 0)
        *ret = root;
    return rc;
}
