/* SPDX-License-Identifier: Apache-2.0 */
/* The reader works on linked nodes, since tables may be added to from several places of a file, and
 * copies them into a value tree at the end. */
#include "runtime/toml.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum origin {
    BY_PATH,   /* a table that only stands in somebody's header: [a] of [a.b] */
    BY_HEADER, /* its own [header] */
    BY_KEY,    /* a dotted key */
    BY_VALUE,  /* complete where it stands: scalar, array, inline table */
    BY_LIST,   /* [[header]]: the list of its tables */
};

struct node {
    struct str key;
    uint32_t line, column; /* of the key */
    struct value value;    /* kind and scalar; n counts children */
    enum origin origin;
    struct node *first, *last, *next;
};

struct reader {
    struct arena *arena;
    const char *name, *p, *end;
    /* Columns count characters: `column` is that of `counted`, a place on this line. */
    const char *line_start, *counted;
    uint32_t line, column;
    size_t nodes;
    struct node *root, *table;
    struct error *err;
};

static uint32_t column(struct reader *r, const char *at)
{
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
    return error_set(r->err, ERR_INVALID, 0, "%s:%u:%u: %s", r->name, r->line, column(r, at), what);
}

static int no_room(const struct reader *r)
{
    return error_set(r->err, ERR_LIMIT, 0, "%s: more than %d values, or no memory for them",
                     r->name, TOML_NODES_MAX);
}

/* ---- characters ---- */

static char now(const struct reader *r)
{
    return r->p < r->end ? *r->p : '\0';
}

static bool at_newline(const struct reader *r)
{
    return now(r) == '\n' || (now(r) == '\r' && r->end - r->p > 1 && r->p[1] == '\n');
}

static void newline(struct reader *r)
{
    r->p += *r->p == '\r' ? 2 : 1;
    r->line++;
    r->line_start = r->p;
}

static void blanks(struct reader *r)
{
    while (now(r) == ' ' || now(r) == '\t')
        r->p++;
}

static void comment(struct reader *r)
{
    if (now(r) == '#')
        while (r->p < r->end && !at_newline(r))
            r->p++;
}

/* Blanks, comments and line ends. */
static void gap(struct reader *r)
{
    for (;;) {
        blanks(r);
        comment(r);
        if (r->p >= r->end || !at_newline(r))
            return;
        newline(r);
    }
}

static int line_end(struct reader *r)
{
    blanks(r);
    comment(r);
    if (r->p < r->end && !at_newline(r))
        return invalid(r, r->p, "expected the end of the line");
    return 0;
}

/* ---- texts ---- */

static bool hex_digits(const char *p, size_t n, uint32_t *ret)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i] >= 'A' && p[i] <= 'F' ? (char)(p[i] | 0x20) : p[i];
        const char *d = c ? strchr(digits, c) : NULL;
        if (!d)
            return false;
        v = v * 16 + (uint32_t)(d - digits);
    }
    *ret = v;
    return true;
}

static size_t put_rune(char *to, uint32_t c)
{
    static const unsigned char leads[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)(leads[n] | c);
    return n;
}

static int escape(struct reader *r, char *to, size_t *n)
{
    static const char letters[] = "btnfre\"\\", values[] = "\b\t\n\f\r\033\"\\";
    char c = r->end - r->p >= 2 ? r->p[1] : '\0';
    const char *known = c && c != 'e' ? strchr(letters, c) : NULL;
    if (known) {
        to[(*n)++] = values[known - letters];
        r->p += 2;
        return 0;
    }
    uint32_t rune;
    size_t width = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (width == 0 || (size_t)(r->end - r->p) < 2 + width || !hex_digits(r->p + 2, width, &rune) ||
        rune > 0x10FFFF || (rune >= 0xD800 && rune < 0xE000))
        return invalid(r, r->p, "an unknown escape in a text");
    *n += put_rune(to + *n, rune);
    r->p += 2 + width;
    return 0;
}

/* A backslash at the end of a line: skips to the next character that is none of blank and line
 * end. */
static bool continued(struct reader *r)
{
    const char *p = r->p + 1;
    while (p < r->end && (*p == ' ' || *p == '\t'))
        p++;
    if (p >= r->end || (*p != '\n' && *p != '\r'))
        return false;
    r->p++;
    while (r->p < r->end && (now(r) == ' ' || now(r) == '\t' || at_newline(r)))
        if (at_newline(r))
            newline(r);
        else
            r->p++;
    return true;
}

static bool quotes(const struct reader *r, char quote, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (r->p + i >= r->end || r->p[i] != quote)
            return false;
    return true;
}

/* The end of a text in three quotes may have one or two quotes of its own before it. */
static bool closes(struct reader *r, char quote, bool many, char *to, size_t *n)
{
    if (!quotes(r, quote, many ? 3 : 1))
        return false;
    for (int i = 0; many && i < 2 && quotes(r, quote, 4); i++) {
        to[(*n)++] = quote;
        r->p++;
    }
    r->p += many ? 3 : 1;
    return true;
}

static int text_char(struct reader *r, char quote, bool many, char *to, size_t *n)
{
    unsigned char c = (unsigned char)*r->p;
    if (c == '\\' && quote == '"')
        return many && continued(r) ? 0 : escape(r, to, n);
    if (at_newline(r)) {
        if (!many)
            return invalid(r, r->p, "a text without an end on its line");
        to[(*n)++] = '\n';
        newline(r);
        return 0;
    }
    if ((c < 0x20 && c != '\t') || c == 0x7F)
        return invalid(r, r->p, "a control character in a text");
    to[(*n)++] = (char)c;
    r->p++;
    return 0;
}

/* How many bytes there are up to the closing quotes: a text is never longer than what was written.
 */
static size_t written(const struct reader *r, char quote, bool many)
{
    const char *p = r->p;
    while (p < r->end && (many || *p != '\n')) {
        if (*p == quote && (!many || (r->end - p >= 3 && p[1] == quote && p[2] == quote)))
            break;
        p += *p == '\\' && quote == '"' && r->end - p > 1 ? 2 : 1;
    }
    return (size_t)(p - r->p);
}

static int take_text(struct reader *r, bool may_be_many, struct str *ret)
{
    char quote = *r->p;
    const char *start = r->p;
    bool many = quotes(r, quote, 3);
    if (many && !may_be_many)
        return invalid(r, start, "a key cannot have more than one line");
    r->p += many ? 3 : 1;
    if (many && r->p < r->end && at_newline(r))
        newline(r);
    auto_free char *to = try_alloc(written(r, quote, many) + 6);
    size_t n = 0;
    if (!to)
        return no_room(r);
    while (r->p < r->end) {
        if (closes(r, quote, many, to, &n)) {
            *ret = (struct str){ arena_strdup(r->arena, (struct str){ to, n }), n };
            return ret->p ? 0 : no_room(r);
        }
        int rc = text_char(r, quote, many, to, &n);
        if (rc < 0)
            return rc;
    }
    return invalid(r, r->p, "a text without an end");
}

static bool bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static int take_key(struct reader *r, struct str *ret)
{
    if (now(r) == '"' || now(r) == '\'')
        return take_text(r, false, ret);
    const char *start = r->p;
    while (r->p < r->end && bare(*r->p))
        r->p++;
    if (r->p == start)
        return invalid(r, start, "expected a key: letters, digits, \"_\", \"-\", or in quotes");
    *ret = (struct str){ arena_strdup(r->arena, (struct str){ start, (size_t)(r->p - start) }),
                         (size_t)(r->p - start) };
    return ret->p ? 0 : no_room(r);
}

/* ---- the tree ---- */

static struct node *find(const struct node *table, struct str key)
{
    for (struct node *n = table->first; n; n = n->next)
        if (str_eq(n->key, key))
            return n;
    return NULL;
}

static struct node *add(struct reader *r, struct node *to, struct str key, const char *at)
{
    struct node *n = ++r->nodes > TOML_NODES_MAX ? NULL : arena_alloc(r->arena, sizeof *n);
    if (!n)
        return NULL;
    n->key = key;
    n->line = r->line;
    n->column = column(r, at);
    n->value = (struct value){ .kind = VALUE_MAP, .line = n->line, .column = n->column };
    *(to->last ? &to->last->next : &to->first) = n;
    to->last = n;
    to->value.n++;
    return n;
}

static int taken(struct reader *r, const struct node *n, const char *at)
{
    return error_set(r->err, ERR_INVALID, 0,
                     "%s:%u:%u: \"%.*s\" is defined already at line %u; keep one", r->name, r->line,
                     column(r, at), (int)MIN(n->key.n, (size_t)80), n->key.p, n->line);
}

/* One step into a table, made if need be; *ret_at is where its name was written. */
static int enter(struct reader *r, struct node **table, struct str key, const char *at,
                 enum origin origin)
{
    struct node *n = find(*table, key);
    if (!n) {
        n = add(r, *table, key, at);
        if (!n)
            return no_room(r);
        n->origin = origin;
    } else if (n->origin == BY_LIST && origin == BY_PATH) {
        n = n->last;
    } else if (n->value.kind != VALUE_MAP || n->origin == BY_VALUE ||
               (origin == BY_KEY && n->origin == BY_HEADER)) {
        return taken(r, n, at);
    }
    *table = n;
    return 0;
}

/* ---- values ---- */

static int take_value(struct reader *r, size_t depth, struct node *to);
static int take_pair(struct reader *r, size_t depth, struct node *table);

static int take_array(struct reader *r, size_t depth, struct node *to)
{
    to->value.kind = VALUE_LIST;
    r->p++;
    for (;;) {
        gap(r);
        if (now(r) == ']') {
            r->p++;
            return 0;
        }
        struct node *item = add(r, to, (struct str){ 0 }, r->p);
        if (!item)
            return no_room(r);
        int rc = take_value(r, depth + 1, item);
        if (rc < 0)
            return rc;
        gap(r);
        if (now(r) == ',')
            r->p++;
        else if (now(r) != ']')
            return invalid(r, r->p, "expected \",\" or \"]\"");
    }
}

static void close_tables(struct node *table)
{
    for (struct node *n = table->first; n; n = n->next) {
        if (n->origin == BY_KEY)
            close_tables(n);
        n->origin = BY_VALUE;
    }
}

static int take_inline(struct reader *r, size_t depth, struct node *to)
{
    r->p++;
    blanks(r);
    bool more = now(r) != '}';
    r->p += !more;
    while (more) {
        blanks(r);
        int rc = take_pair(r, depth + 1, to);
        if (rc < 0)
            return rc;
        blanks(r);
        if (now(r) != ',' && now(r) != '}')
            return invalid(r, r->p, "expected \",\" or \"}\" on the same line");
        more = *r->p++ == ',';
    }
    close_tables(to);
    return 0;
}

static bool scalar_end(char c)
{
    return c == '\0' || strchr(" \t\r\n,]}#", c) != NULL;
}

/* Digits with single underscores between them, without leading zeros for base 10. */
static bool plain_digits(struct str s, const char *allowed, bool zeros)
{
    if (s.n == 0 || (!zeros && s.n > 1 && s.p[0] == '0'))
        return false;
    for (size_t i = 0; i < s.n; i++) {
        bool between = s.p[i] == '_' && i > 0 && i + 1 < s.n && s.p[i - 1] != '_';
        if (!between && !(s.p[i] && strchr(allowed, s.p[i])))
            return false;
    }
    return true;
}

static bool parse_based(struct str s, struct value *v)
{
    static const struct {
        char letter;
        unsigned base;
        const char *digits;
    } bases[] = { { 'x', 16, "0123456789abcdefABCDEF" }, { 'o', 8, "01234567" }, { 'b', 2, "01" } };
    for (size_t i = 0; i < ARRAY_LEN(bases); i++) {
        if (s.n < 3 || s.p[0] != '0' || s.p[1] != bases[i].letter ||
            !plain_digits((struct str){ s.p + 2, s.n - 2 }, bases[i].digits, true))
            continue;
        int64_t n = 0;
        for (size_t k = 2; k < s.n; k++) {
            uint32_t digit = 0;
            if (s.p[k] == '_' || !hex_digits(s.p + k, 1, &digit))
                continue;
            if (__builtin_mul_overflow(n, (int64_t)bases[i].base, &n) ||
                __builtin_add_overflow(n, (int64_t)digit, &n))
                return false;
        }
        v->kind = VALUE_INT;
        v->number = n;
        v->real = (double)n;
        return true;
    }
    return false;
}

/* A decimal number: whole, or with a fraction, an exponent or both. */
static bool parse_decimal(struct str s, struct value *v)
{
    static const char decimal[] = "0123456789";
    char text[128];
    size_t n = 0, i = s.n && (s.p[0] == '+' || s.p[0] == '-');
    struct str mantissa = { s.p + i, 0 };
    while (i < s.n && ((s.p[i] >= '0' && s.p[i] <= '9') || s.p[i] == '_'))
        i++;
    mantissa.n = (size_t)(s.p + i - mantissa.p);
    bool ok = plain_digits(mantissa, decimal, false), whole = i == s.n;
    if (ok && i < s.n && s.p[i] == '.') {
        struct str fraction = { s.p + i + 1, 0 };
        for (i++; i < s.n && s.p[i] != 'e' && s.p[i] != 'E'; i++)
            fraction.n++;
        ok = plain_digits(fraction, decimal, true);
    }
    if (ok && i < s.n) {
        ok = s.p[i] == 'e' || s.p[i] == 'E';
        i++;
        i += i < s.n && (s.p[i] == '+' || s.p[i] == '-');
        ok = ok && i <= s.n && plain_digits((struct str){ s.p + i, s.n - i }, decimal, true);
    }
    for (size_t k = s.n && s.p[0] == '+'; ok && k < s.n; k++)
        if (s.p[k] != '_' && n + 1 < sizeof text)
            text[n++] = s.p[k];
        else if (s.p[k] != '_')
            ok = false;
    text[n] = '\0';
    if (!ok || (whole && !str_to_i64((struct str){ text, n }, INT64_MIN, INT64_MAX, &v->number)))
        return false;
    v->kind = whole ? VALUE_INT : VALUE_REAL;
    v->real = whole ? (double)v->number : strtod(text, NULL);
    return v->real - v->real == 0;
}

static int take_scalar(struct reader *r, struct node *to)
{
    const char *start = r->p;
    while (r->p < r->end && !scalar_end(*r->p))
        r->p++;
    struct str s = { start, (size_t)(r->p - start) };
    to->value.text = (struct str){ arena_strdup(r->arena, s), s.n };
    if (!to->value.text.p)
        return no_room(r);
    if (str_is(s, "true") || str_is(s, "false")) {
        to->value.kind = VALUE_BOOL;
        to->value.boolean = s.p[0] == 't';
        return 0;
    }
    if (parse_based(s, &to->value) || parse_decimal(s, &to->value))
        return 0;
    return invalid(
        r, start,
        "expected a value: text in quotes, true, false, a number, [ or { (dates, inf and "
        "nan are not known here)");
}

static int take_value(struct reader *r, size_t depth, struct node *to)
{
    char c = now(r);
    to->origin = BY_VALUE;
    to->value.line = r->line;
    to->value.column = column(r, r->p);
    if ((c == '[' || c == '{') && depth >= TOML_DEPTH_MAX)
        return error_set(r->err, ERR_LIMIT, 0, "%s:%u: nested deeper than %d levels", r->name,
                         r->line, TOML_DEPTH_MAX);
    if (c == '[')
        return take_array(r, depth, to);
    if (c == '{')
        return take_inline(r, depth, to);
    if (c != '"' && c != '\'')
        return take_scalar(r, to);
    to->value.kind = VALUE_TEXT;
    return take_text(r, true, &to->value.text);
}

/* ---- lines ---- */

/* a.b.c: enters a and b; the last key and its place are the caller's. */
static int take_path(struct reader *r, struct node **table, enum origin origin, struct str *ret_key,
                     const char **ret_at)
{
    for (size_t steps = 0;; steps++) {
        *ret_at = r->p;
        int rc = take_key(r, ret_key);
        if (rc < 0)
            return rc;
        blanks(r);
        if (now(r) != '.')
            return 0;
        if (steps == TOML_DEPTH_MAX)
            return error_set(r->err, ERR_LIMIT, 0, "%s:%u: nested deeper than %d levels", r->name,
                             r->line, TOML_DEPTH_MAX);
        r->p++;
        blanks(r);
        rc = enter(r, table, *ret_key, *ret_at, origin);
        if (rc < 0)
            return rc;
    }
}

static int take_pair(struct reader *r, size_t depth, struct node *table)
{
    struct str key;
    const char *at;
    int rc = take_path(r, &table, BY_KEY, &key, &at);
    if (rc < 0)
        return rc;
    if (now(r) != '=')
        return invalid(r, r->p, "expected \"=\" after a key");
    r->p++;
    blanks(r);
    struct node *n = find(table, key);
    if (n)
        return taken(r, n, at);
    n = add(r, table, key, at);
    return n ? take_value(r, depth, n) : no_room(r);
}

static int enter_list(struct reader *r, struct node *table, struct str key, const char *at)
{
    struct node *list = find(table, key);
    if (list && list->origin != BY_LIST)
        return taken(r, list, at);
    if (!list)
        list = add(r, table, key, at);
    if (!list)
        return no_room(r);
    list->origin = BY_LIST;
    list->value.kind = VALUE_LIST;
    r->table = add(r, list, (struct str){ 0 }, at);
    if (!r->table)
        return no_room(r);
    r->table->origin = BY_HEADER;
    return 0;
}

static int take_header(struct reader *r)
{
    struct node *table = r->root;
    struct str key;
    const char *at;
    bool list = quotes(r, '[', 2);
    r->p += list ? 2 : 1;
    blanks(r);
    int rc = take_path(r, &table, BY_PATH, &key, &at);
    if (rc < 0)
        return rc;
    if (!quotes(r, ']', list ? 2 : 1))
        return invalid(r, r->p, list ? "expected \"]]\"" : "expected \"]\"");
    r->p += list ? 2 : 1;
    if (list)
        return enter_list(r, table, key, at);
    struct node *n = find(table, key);
    if (n && n->origin != BY_PATH)
        return taken(r, n, at);
    if (!n)
        n = add(r, table, key, at);
    if (!n)
        return no_room(r);
    n->origin = BY_HEADER;
    r->table = n;
    return 0;
}

static int take_lines(struct reader *r)
{
    for (;;) {
        gap(r);
        if (r->p >= r->end)
            return 0;
        int rc = now(r) == '[' ? take_header(r) : take_pair(r, 0, r->table);
        if (rc == 0)
            rc = line_end(r);
        if (rc < 0)
            return rc;
    }
}

/* ---- to a value tree ---- */

static bool to_value(struct arena *a, const struct node *from, struct value *to)
{
    *to = from->value;
    if (to->kind != VALUE_MAP && to->kind != VALUE_LIST)
        return true;
    size_t i = 0;
    if (to->kind == VALUE_MAP)
        to->members = arena_array(a, to->n ? to->n : 1, sizeof *to->members);
    else
        to->items = arena_array(a, to->n ? to->n : 1, sizeof *to->items);
    if (!to->members && !to->items)
        return false;
    for (const struct node *n = from->first; n; n = n->next, i++) {
        if (to->kind == VALUE_MAP) {
            to->members[i].key = n->key;
            to->members[i].line = n->line;
            to->members[i].column = n->column;
        }
        if (!to_value(a, n, to->kind == VALUE_MAP ? &to->members[i].value : &to->items[i]))
            return false;
    }
    return true;
}

static int check_bytes(struct reader *r, struct str text)
{
    if (text.n > TOML_BYTES_MAX)
        return error_set(r->err, ERR_LIMIT, 0, "%s: %zu bytes, at most %d are accepted", r->name,
                         text.n, TOML_BYTES_MAX);
    for (const char *p = r->p; p < r->end;) {
        size_t n = str_utf8((struct str){ p, (size_t)(r->end - p) });
        if (n == 0 || *p == '\0')
            return error_set(r->err, ERR_INVALID, 0, "%s: byte %zu is no text in UTF-8", r->name,
                             (size_t)(p - r->p));
        p += n;
    }
    return 0;
}

int toml_parse(struct arena *a, struct str text, const char *name, struct value **ret,
               struct error *err)
{
    struct node root = { .value = { .kind = VALUE_MAP, .line = 1, .column = 1 } };
    struct reader r = { .arena = a,
                        .name = name,
                        .p = text.p ? text.p : "",
                        .line = 1,
                        .root = &root,
                        .table = &root,
                        .err = err };
    r.end = r.p + text.n;
    r.line_start = r.counted = r.p;
    r.column = 1;
    int rc = check_bytes(&r, text);
    if (rc == 0)
        rc = take_lines(&r);
    if (rc < 0)
        return rc;
    struct value *v = arena_alloc(a, sizeof *v);
    if (!v || !to_value(a, &root, v))
        return no_room(&r);
    *ret = v;
    return 0;
}
