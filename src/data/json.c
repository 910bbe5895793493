/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only includer of yyjson. It checks and decodes, but keeps no positions: while its tree is
 * copied out, a small scanner walks the text, which is known to be valid by then, alongside.
 */
#include <yyjson.h>

#include "base/mem.h"
#include "data/json.h"

static void *alc_malloc(void *ctx, size_t n)
{
    return try_realloc(NULL, n);
}

static void *alc_realloc(void *ctx, void *p, size_t old_n, size_t n)
{
    return try_realloc(p, n);
}

static void alc_free(void *ctx, void *p)
{
    free(p);
}

/* Where the scanner is. Columns count characters, as the YAML reader's do. */
struct scan {
    const char *p, *end;
    uint32_t line, column;
};

struct reader {
    struct arena *arena;
    const char *name;
    const struct doc_limits *limits;
    struct scan scan;
    struct error *err;
};

static void step(struct scan *s)
{
    unsigned char c = (unsigned char)*s->p++;
    if (c == '\n') {
        s->line++;
        s->column = 1;
    } else if ((c & 0xC0) != 0x80) {
        s->column++;
    }
}

static void skip_to(struct scan *s, const char *at)
{
    while (s->p < at && s->p < s->end)
        step(s);
}

/* To the next value, key or closing bracket. */
static void skip_between(struct scan *s)
{
    while (s->p < s->end && strchr(" \t\r\n,:", *s->p))
        step(s);
}

/* Over the scalar that starts here; returns its text as written. */
static struct str skip_scalar(struct scan *s)
{
    const char *start = s->p;
    if (s->p < s->end && *s->p == '"') {
        step(s);
        while (s->p < s->end && *s->p != '"') {
            if (*s->p == '\\')
                step(s);
            step(s);
        }
        if (s->p < s->end)
            step(s);
    } else {
        while (s->p < s->end && !strchr(" \t\r\n,]}", *s->p))
            step(s);
    }
    return (struct str){ start, (size_t)(s->p - start) };
}

static int too_large(struct reader *r)
{
    return error_set(r->err, ERR_LIMIT, 0, "%s: the document does not fit in %zu bytes of memory",
                     r->name, r->arena->limit);
}

static int copy_text(struct reader *r, const char *p, size_t n, struct str *ret)
{
    *ret = (struct str){ arena_strdup(r->arena, (struct str){ p, n }), n };
    return ret->p ? 0 : too_large(r);
}

static int copy_value(struct reader *r, yyjson_val *from, size_t depth, struct value *to);

static int copy_list(struct reader *r, yyjson_val *from, size_t depth, struct value *to)
{
    to->kind = VALUE_LIST;
    to->n = yyjson_arr_size(from);
    to->items = arena_array(r->arena, to->n, sizeof *to->items);
    if (!to->items)
        return too_large(r);
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(from, i, n, item)
    {
        int rc = copy_value(r, item, depth + 1, &to->items[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int copy_map(struct reader *r, yyjson_val *from, size_t depth, struct value *to)
{
    to->kind = VALUE_MAP;
    to->n = yyjson_obj_size(from);
    to->members = arena_array(r->arena, to->n, sizeof *to->members);
    if (!to->members)
        return too_large(r);
    size_t i, n;
    yyjson_val *key, *item;
    yyjson_obj_foreach(from, i, n, key, item)
    {
        struct member *m = &to->members[i];
        skip_between(&r->scan);
        m->line = r->scan.line;
        m->column = r->scan.column;
        skip_scalar(&r->scan);
        int rc = copy_text(r, yyjson_get_str(key), yyjson_get_len(key), &m->key);
        if (rc == 0)
            rc = copy_value(r, item, depth + 1, &m->value);
        if (rc < 0)
            return rc;
    }
    const struct member *twice;
    int rc = value_duplicate_key(r->arena, to, &twice, r->err);
    if (rc < 0)
        return error_wrap(r->err, "%s", r->name);
    if (twice)
        return error_set(
            r->err, ERR_INVALID, 0, "%s:%u:%u: key \"%.*s\" appears twice in one object; keep one",
            r->name, twice->line, twice->column, (int)MIN(twice->key.n, (size_t)80), twice->key.p);
    return 0;
}

static int copy_scalar(struct reader *r, yyjson_val *from, struct value *to)
{
    struct str written = skip_scalar(&r->scan);
    if (yyjson_is_str(from)) {
        to->kind = VALUE_TEXT;
        return copy_text(r, yyjson_get_str(from), yyjson_get_len(from), &to->text);
    }
    if (yyjson_is_bool(from)) {
        to->kind = VALUE_BOOL;
        to->boolean = yyjson_get_bool(from);
    } else if (yyjson_is_sint(from) ||
               (yyjson_is_uint(from) && yyjson_get_uint(from) <= INT64_MAX)) {
        to->kind = VALUE_INT;
        to->number = yyjson_get_sint(from);
        to->real = (double)to->number;
    } else if (yyjson_is_num(from)) {
        to->kind = VALUE_REAL;
        to->real = yyjson_get_num(from);
    }
    return copy_text(r, written.p, written.n, &to->text);
}

static int copy_value(struct reader *r, yyjson_val *from, size_t depth, struct value *to)
{
    skip_between(&r->scan);
    *to = (struct value){ .line = r->scan.line, .column = r->scan.column };
    bool nested = yyjson_is_ctn(from);
    if (!nested)
        return copy_scalar(r, from, to);
    if (depth >= r->limits->depth)
        return error_set(r->err, ERR_LIMIT, 0, "%s:%u:%u: nested deeper than %zu levels", r->name,
                         to->line, to->column, r->limits->depth);
    step(&r->scan);
    int rc = yyjson_is_arr(from) ? copy_list(r, from, depth, to) : copy_map(r, from, depth, to);
    skip_between(&r->scan);
    step(&r->scan);
    return rc;
}

static int parse_error(struct reader *r, const yyjson_read_err *e)
{
    if (e->code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return error_set(r->err, ERR_LIMIT, 0, "%s: out of memory", r->name);
    skip_to(&r->scan, r->scan.p + MIN(e->pos, (size_t)(r->scan.end - r->scan.p)));
    return error_set(r->err, ERR_INVALID, 0, "%s:%u:%u: no valid JSON: %s", r->name, r->scan.line,
                     r->scan.column, e->msg);
}

int json_parse(struct arena *a, struct str text, const char *name, const struct doc_limits *limits,
               struct value **ret, struct error *err)
{
    static const yyjson_alc alc = { .malloc = alc_malloc,
                                    .realloc = alc_realloc,
                                    .free = alc_free };
    struct reader r = {
        .arena = a, .name = name, .limits = limits ? limits : &doc_limits_default, .err = err
    };
    r.scan = (struct scan){ text.p, text.p + text.n, 1, 1 };
    if (text.n > r.limits->bytes)
        return error_set(err, ERR_LIMIT, 0, "%s: %zu bytes, at most %zu are accepted", name, text.n,
                         r.limits->bytes);
    if (!str_trim(text).n)
        return error_set(err, ERR_INVALID, 0, "%s:1:1: no valid JSON: the text is empty", name);

    yyjson_read_err e = { 0 };
    /* Without YYJSON_READ_INSITU the text is only read. */
    yyjson_doc *doc =
        yyjson_read_opts((char *)(uintptr_t)text.p, text.n, YYJSON_READ_NOFLAG, &alc, &e);
    if (!doc)
        return parse_error(&r, &e);
    int rc = 0;
    struct value *root = NULL;
    if (yyjson_doc_get_val_count(doc) > r.limits->nodes)
        rc = error_set(err, ERR_LIMIT, 0, "%s: %zu values, at most %zu are accepted", name,
                       yyjson_doc_get_val_count(doc), r.limits->nodes);
    else if (!(root = arena_alloc(a, sizeof *root)))
        rc = too_large(&r);
    else
        rc = copy_value(&r, yyjson_doc_get_root(doc), 0, root);
    yyjson_doc_free(doc);
    if (rc == 0)
        *ret = root;
    return rc;
}
