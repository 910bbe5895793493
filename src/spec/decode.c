/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/decode.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/yaml.h"

enum { KEYS_MAX = 128 };

const char *decode_keep(struct decode *d, struct str s)
{
    const char *p = arena_strdup(d->arena, s);
    if (!p)
        d->no_memory = true;
    return p ? p : "";
}

void *decode_array(struct decode *d, size_t n, size_t size)
{
    void *p = arena_array(d->arena, n, size);
    if (!p)
        d->no_memory = true;
    return p;
}

static struct str shown(struct str s)
{
    s.n = MIN(s.n, (size_t)100);
    return s;
}

const char *decode_path(struct decode *d, const char *path, struct str key)
{
    const char *p =
        arena_printf(d->arena, "%s%s%.*s", path, path[0] ? "." : "", STR_FMT(shown(key)));
    if (!p)
        d->no_memory = true;
    return p ? p : path;
}

const char *decode_item_path(struct decode *d, const char *path, size_t i)
{
    const char *p = arena_printf(d->arena, "%s[%zu]", path, i);
    if (!p)
        d->no_memory = true;
    return p ? p : path;
}

void decode_say(struct decode *d, const char *id, enum severity severity, uint32_t line,
                uint32_t column, const char *path, const char *fix, const char *fmt, ...)
{
    char place[32] = "";
    if (line)
        snprintf(place, sizeof place, ":%" PRIu32 ":%" PRIu32, line, column);
    const char *subject =
        arena_printf(d->arena, "%s%s%s%s", d->file, place, path[0] ? " " : "", path);
    char cause[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
    findings_add(d->findings, id, severity, subject ? subject : path, fix, "%s", cause);
}

/* The last key of a full path, without "[]". */
static struct str last_key(const char *path)
{
    const char *dot = strrchr(path, '.');
    struct str key = str_of(dot ? dot + 1 : path);
    if (str_ends(key, "[]"))
        key.n -= 2;
    return key;
}

/* The path in front of the last key. */
static struct str parent(const char *path)
{
    const char *dot = strrchr(path, '.');
    return (struct str){ path, dot ? (size_t)(dot - path) : 0 };
}

/* If `full` lies below `path`, the key that follows there. `path` has "[2]" where `full` has "[]".
 */
static bool key_below(const char *path, const char *full, struct str *ret)
{
    const char *p = path;
    while (*p && *p == *full) {
        bool index = *p == '[';
        p++, full++;
        if (index)
            p += strcspn(p, "]");
    }
    if (*p)
        return false;
    if (path[0] && *full != '.')
        return false;
    full += path[0] != '\0';
    *ret = (struct str){ full, strcspn(full, ".[") };
    return ret->n > 0;
}

struct keys {
    const char *names[KEYS_MAX];
    size_t n;
};

static void allowed_here(struct decode *d, const char *path, const char *const *paths,
                         size_t n_paths, struct keys *keys)
{
    for (size_t i = 0; i < n_paths; i++) {
        struct str key;
        if (!key_below(path, paths[i], &key))
            continue;
        bool seen = false;
        for (size_t k = 0; k < keys->n && !seen; k++)
            seen = str_is(key, keys->names[k]);
        if (!seen && keys->n < KEYS_MAX)
            keys->names[keys->n++] = decode_keep(d, key);
    }
}

/* Joins "a, b or c" into text. */
static void add_word(struct buf *b, struct str word, const char *sep)
{
    if (b->n)
        buf_z(b, sep);
    buf_str(b, word);
}

/* Where the same key is known: below `path` first, else anywhere. */
static void places_of(const char *path, struct str key, const char *const *paths, size_t n_paths,
                      struct buf *out)
{
    for (int below = 1; below >= 0 && !out->n; below--) {
        for (size_t i = 0; i < n_paths; i++) {
            struct str ignored;
            if (!str_eq(last_key(paths[i]), key) || (below && !key_below(path, paths[i], &ignored)))
                continue;
            struct str at = parent(paths[i]);
            if (str_ends(at, "[]")) {
                at.n -= 2;
                add_word(out, STR("an entry of "), " or ");
                buf_str(out, at);
            } else {
                add_word(out, at.n ? at : STR("the top level"), " or ");
            }
        }
    }
}

void decode_unknown_key(struct decode *d, const char *path, const struct member *m,
                        const char *const *paths, size_t n_paths)
{
    struct keys keys = { .n = 0 };
    allowed_here(d, path, paths, n_paths, &keys);
    auto_buf allowed, fix;
    buf_init(&allowed, 1000);
    buf_init(&fix, 400);
    for (size_t i = 0; i < keys.n; i++)
        add_word(&allowed, str_of(keys.names[i]), ", ");
    auto_buf elsewhere;
    buf_init(&elsewhere, 300);
    places_of(path, m->key, paths, n_paths, &elsewhere);

    const char *near = str_nearest(m->key, keys.names, keys.n);
    bool letter_case = near && str_ieq(m->key, str_of(near));
    if (letter_case)
        buf_fmt(&fix, "did you mean \"%s\"? Keys are compared with their letter case", near);
    else if (elsewhere.n)
        buf_fmt(&fix, "it belongs inside %s", elsewhere.p);
    else if (near)
        buf_fmt(&fix, "did you mean \"%s\"?", near);
    else
        buf_z(&fix, "remove it");
    const char *full = decode_path(d, path, m->key);
    decode_say(d, "config.unknown-key", SEVERITY_ERROR, m->line, m->column, full,
               fix.p ? fix.p : "", "unknown key \"%.*s\"; allowed %s%s: %s", STR_FMT(shown(m->key)),
               path[0] ? "in " : "at the top level", path, allowed.p ? allowed.p : "none");
}

void decode_wrong_kind(struct decode *d, const struct value *v, const char *path,
                       const char *expected, const char *fix)
{
    decode_say(d, "config.wrong-type", SEVERITY_ERROR, v->line, v->column, path, fix,
               "found %s; expected %s", value_kind_name(v), expected);
}

bool decode_map(struct decode *d, const struct value *v, const char *path)
{
    if (v->kind == VALUE_MAP || v->kind == VALUE_NULL)
        return true;
    decode_wrong_kind(d, v, path, "a map (lines \"key: value\" indented below it)",
                      "check the indentation");
    return false;
}

bool decode_list(struct decode *d, const struct value *v, const char *path)
{
    if (v->kind == VALUE_LIST)
        return true;
    decode_wrong_kind(d, v, path, "a list (lines that start with \"- \")", "write it as a list");
    return false;
}

bool decode_bool(struct decode *d, const struct value *v, const char *path, bool *ret)
{
    if (v->kind == VALUE_BOOL) {
        *ret = v->boolean;
        return true;
    }
    bool ignored;
    bool in_quotes = v->kind == VALUE_TEXT && str_to_bool(v->text, &ignored);
    decode_wrong_kind(d, v, path, "true or false",
                      in_quotes ? "write it without quotes" : "write true or false");
    return false;
}

bool decode_int(struct decode *d, const struct value *v, const char *path, int64_t min, int64_t max,
                int64_t *ret)
{
    if (v->kind == VALUE_INT && v->number >= min && v->number <= max) {
        *ret = v->number;
        return true;
    }
    char expected[80];
    if (max == INT64_MAX)
        snprintf(expected, sizeof expected, "a whole number of at least %" PRId64, min);
    else
        snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, min,
                 max);
    int64_t ignored;
    bool in_quotes = v->kind == VALUE_TEXT && str_to_i64(v->text, min, max, &ignored);
    if (v->kind == VALUE_INT)
        decode_say(d, "config.out-of-range", SEVERITY_ERROR, v->line, v->column, path,
                   "choose a number in that range", "found %" PRId64 "; expected %s", v->number,
                   expected);
    else
        decode_wrong_kind(d, v, path, expected,
                          in_quotes ? "write it without quotes" : "write a whole number");
    return false;
}

bool decode_text(struct decode *d, const struct value *v, const char *path, const char **ret)
{
    if (v->kind == VALUE_TEXT && !memchr(v->text.p, '\0', v->text.n)) {
        *ret = v->text.p;
        return true;
    }
    bool scalar = v->kind == VALUE_BOOL || v->kind == VALUE_INT || v->kind == VALUE_REAL;
    decode_wrong_kind(d, v, path, "text", scalar ? "put it in quotes" : "write a text value");
    return false;
}

/* The reader's message starts with "FILE:LINE:COLUMN: "; the place becomes the finding's subject.
 */
static void say_syntax(struct decode *d, const struct error *e)
{
    size_t n = strlen(d->file);
    const char *text = e->text;
    if (strncmp(text, d->file, n) != 0 || text[n] != ':') {
        findings_add(d->findings, "config.syntax", SEVERITY_ERROR, d->file, "correct the file",
                     "%s", text);
        return;
    }
    size_t place = n + 1 + strspn(text + n + 1, "0123456789:");
    struct str subject = { text, text[place - 1] == ':' ? place - 1 : place };
    const char *kept = decode_keep(d, subject);
    findings_add(d->findings, "config.syntax", SEVERITY_ERROR, kept, "correct the file", "%s",
                 text + place + strspn(text + place, ": "));
}

const struct value *decode_yaml(struct decode *d, struct str text, const struct doc_limits *limits)
{
    struct value *root = NULL;
    struct error e;
    if (yaml_parse(d->arena, text, d->file, limits, &root, &e) == 0)
        return root;
    say_syntax(d, &e);
    return NULL;
}

int decode_result(const struct decode *d, size_t before, struct error *err)
{
    const struct findings *f = d->findings;
    size_t errors = findings_count(f, SEVERITY_ERROR) - before;
    if (d->no_memory)
        return error_set(err, ERR_LIMIT, 0, "%s: too large: it does not fit in %zu bytes of memory",
                         d->file, d->arena->limit);
    if (!errors)
        return 0;
    char more[48] = "";
    if (errors > 1)
        snprintf(more, sizeof more, " (and %zu more)", errors - 1);
    const struct finding *first = NULL;
    for (size_t i = 0, seen = 0; i < f->n && !first; i++)
        if (f->items[i].severity == SEVERITY_ERROR && seen++ == before)
            first = &f->items[i];
    if (!first)
        return error_set(err, ERR_INVALID, 0, "%s: %zu errors", d->file, errors);
    return error_set(err, ERR_INVALID, 0, "%s: %s%s%s%s", first->subject, first->cause,
                     first->fix[0] ? "; " : "", first->fix, more);
}
