/* SPDX-License-Identifier: Apache-2.0 */
/* The only includer of libyaml. Events are composed to values; nothing is kept of the events. */
#include "data/yaml.h"

#include <yaml.h>

#include "base/mem.h"
#include "data/yaml_scalar.h"

struct anchor {
    struct anchor *next;
    struct str name;
    const struct value *value;
    size_t nodes; /* what one use of it counts */
};

struct reader {
    struct arena *arena;
    const char *name;
    struct str text;
    const struct doc_limits *limits;
    yaml_parser_t parser;
    struct anchor *anchors;
    size_t nodes;
    struct error *err;
};

static uint32_t from_one(size_t n)
{
    return n < UINT32_MAX ? (uint32_t)n + 1 : UINT32_MAX;
}

static int too_large(struct reader *r)
{
    return error_set(r->err, ERR_LIMIT, 0, "%s: the document does not fit in %zu bytes of memory",
                     r->name, r->arena->limit);
}

static int say(struct reader *r, yaml_mark_t at, const char *text)
{
    return error_set(r->err, ERR_INVALID, 0, "%s:%u:%u: %s", r->name, from_one(at.line),
                     from_one(at.column), text);
}

static struct str line_at(struct str text, size_t line)
{
    struct str rest = text, found = { NULL, 0 };
    for (size_t i = 0; i <= line && rest.p; i++)
        found = str_cut(&rest, '\n');
    return found;
}

/* The column (from 0) of a tab among the blanks that a line starts with. */
static bool tab_in_indent(struct str line, size_t *ret)
{
    for (size_t i = 0; i < line.n && (line.p[i] == ' ' || line.p[i] == '\t'); i++) {
        if (line.p[i] == '\t') {
            *ret = i;
            return true;
        }
    }
    return false;
}

/* libyaml's own words, but a tab used as indentation is called that: it is the commonest cause and
 * libyaml names many other things for it. */
static int parser_error(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return error_set(r->err, ERR_LIMIT, 0, "%s: out of memory", r->name);
    if (p->error == YAML_READER_ERROR)
        return error_set(r->err, ERR_INVALID, 0, "%s: no valid YAML: %s (byte %zu)", r->name,
                         p->problem, p->problem_offset);
    size_t line = p->problem_mark.line, tab;
    for (size_t back = 0; back <= 1 && back <= line; back++)
        if (tab_in_indent(line_at(r->text, line - back), &tab))
            return error_set(
                r->err, ERR_INVALID, 0,
                "%s:%u:%u: a tab is not allowed here: YAML is indented with blanks only", r->name,
                from_one(line - back), from_one(tab));
    return error_set(r->err, ERR_INVALID, 0, "%s:%u:%u: no valid YAML: %s%s%s", r->name,
                     from_one(line), from_one(p->problem_mark.column), p->context ? p->context : "",
                     p->context ? ": " : "", p->problem ? p->problem : "");
}

static void event_done(yaml_event_t *e)
{
    yaml_event_delete(e); /* also right for one that was never filled */
}
#define auto_event __attribute__((cleanup(event_done))) yaml_event_t

static int next_event(struct reader *r, yaml_event_t *e)
{
    *e = (yaml_event_t){ 0 };
    return yaml_parser_parse(&r->parser, e) ? 0 : parser_error(r);
}

static int count_nodes(struct reader *r, size_t n, yaml_mark_t at)
{
    r->nodes += n;
    if (r->nodes <= r->limits->nodes)
        return 0;
    return error_set(r->err, ERR_LIMIT, 0,
                     "%s:%u:%u: more than %zu values (an alias counts as what it stands for)",
                     r->name, from_one(at.line), from_one(at.column), r->limits->nodes);
}

static int keep_text(struct reader *r, const yaml_char_t *p, size_t n, struct str *ret)
{
    *ret = (struct str){ arena_strdup(r->arena, (struct str){ (const char *)p, n }), n };
    return ret->p ? 0 : too_large(r);
}

static int remember(struct reader *r, const yaml_char_t *name, const struct value *v, size_t nodes)
{
    if (!name)
        return 0;
    struct anchor *a = arena_alloc(r->arena, sizeof *a);
    if (!a)
        return too_large(r);
    *a = (struct anchor){ .next = r->anchors, .value = v, .nodes = nodes };
    r->anchors = a; /* the newest of a name is found first */
    return keep_text(r, name, strlen((const char *)name), &a->name);
}

static int use_alias(struct reader *r, const yaml_event_t *e, struct value *to)
{
    struct str name = str_of((const char *)e->data.alias.anchor);
    for (const struct anchor *a = r->anchors; a; a = a->next) {
        if (!str_eq(a->name, name))
            continue;
        *to = *a->value;
        to->line = from_one(e->start_mark.line);
        to->column = from_one(e->start_mark.column);
        return count_nodes(r, a->nodes, e->start_mark);
    }
    return error_set(r->err, ERR_INVALID, 0,
                     "%s:%u:%u: the alias *%.*s has no anchor &%.*s that is complete before it",
                     r->name, from_one(e->start_mark.line), from_one(e->start_mark.column),
                     (int)MIN(name.n, 60u), name.p, (int)MIN(name.n, 60u), name.p);
}

/* An explicit tag of YAML's core schema that the value must fit. */
static int apply_tag(struct reader *r, const yaml_event_t *e, const char *tag, struct value *v)
{
    static const struct {
        const char *tag;
        enum value_kind kind;
    } known[] = {
        { YAML_STR_TAG, VALUE_TEXT },   { YAML_INT_TAG, VALUE_INT },
        { YAML_FLOAT_TAG, VALUE_REAL }, { YAML_BOOL_TAG, VALUE_BOOL },
        { YAML_NULL_TAG, VALUE_NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(tag, known[i].tag) != 0)
            continue;
        if (known[i].kind == VALUE_REAL && v->kind == VALUE_INT)
            v->kind = VALUE_REAL;
        if (known[i].kind == VALUE_TEXT)
            v->kind = VALUE_TEXT;
        return v->kind == known[i].kind ? 0
                                        : say(r, e->start_mark, "the value does not fit its tag");
    }
    return error_set(r->err, ERR_INVALID, 0,
                     "%s:%u:%u: the tag %.80s is not supported; leave it out", r->name,
                     from_one(e->start_mark.line), from_one(e->start_mark.column), tag);
}

static int compose_scalar(struct reader *r, const yaml_event_t *e, struct value *v)
{
    const char *tag = (const char *)e->data.scalar.tag;
    v->kind = VALUE_TEXT;
    int rc = keep_text(r, e->data.scalar.value, e->data.scalar.length, &v->text);
    if (rc < 0 || (!tag && e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) ||
        (tag && strcmp(tag, "!") == 0))
        return rc;
    yaml_scalar_resolve(v->text, v);
    return tag ? apply_tag(r, e, tag, v) : 0;
}

static int compose(struct reader *r, yaml_event_t *e, size_t depth, struct value *v);

/* Room for one element more, by doubling in the arena. */
static void *grown(struct reader *r, void *items, size_t n, size_t size)
{
    bool full = n == 0 || (n >= 4 && (n & (n - 1)) == 0);
    if (!full)
        return items;
    void *more = arena_array(r->arena, n ? n * 2 : 4, size);
    if (more && n)
        memcpy(more, items, n * size);
    return more;
}

static int compose_list(struct reader *r, size_t depth, struct value *v)
{
    v->kind = VALUE_LIST;
    for (;;) {
        auto_event e;
        int rc = next_event(r, &e);
        if (rc < 0 || e.type == YAML_SEQUENCE_END_EVENT)
            return rc;
        struct value *items = grown(r, v->items, v->n, sizeof *items);
        if (!items)
            return too_large(r);
        v->items = items;
        rc = compose(r, &e, depth + 1, &v->items[v->n]);
        if (rc < 0)
            return rc;
        v->n++;
    }
}

/* Keys become text as JSON has them: true, 12. A list, map or null cannot. */
static int compose_key(struct reader *r, yaml_event_t *e, struct member *m, bool *ret_merge)
{
    struct value key = { 0 };
    m->line = from_one(e->start_mark.line);
    m->column = from_one(e->start_mark.column);
    *ret_merge = false;
    if (e->type != YAML_SCALAR_EVENT && e->type != YAML_ALIAS_EVENT)
        return say(r, e->start_mark, "a list or map cannot be a key");
    int rc = compose(r, e, 0, &key);
    if (rc < 0)
        return rc;
    m->key = key.text;
    switch (key.kind) {
    case VALUE_TEXT:
        *ret_merge = e->type == YAML_SCALAR_EVENT &&
                     e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && str_is(key.text, "<<");
        return 0;
    case VALUE_BOOL:
        m->key = key.boolean ? STR("true") : STR("false");
        return 0;
    case VALUE_INT:
        m->key.p = arena_printf(r->arena, "%lld", (long long)key.number);
        m->key.n = m->key.p ? strlen(m->key.p) : 0;
        return m->key.p ? 0 : too_large(r);
    case VALUE_REAL:
        return 0;
    case VALUE_NULL:
    case VALUE_LIST:
    case VALUE_MAP:
        break;
    }
    return say(r, e->start_mark, "a key must be text");
}

static int add_member(struct reader *r, struct value *map, const struct member *m)
{
    struct member *members = grown(r, map->members, map->n, sizeof *members);
    if (!members)
        return too_large(r);
    map->members = members;
    map->members[map->n++] = *m;
    return 0;
}

/* "<<": the members of a map, or of several, as far as the map has no such key itself. */
static int merge(struct reader *r, struct value *map, const struct value *from, yaml_mark_t at)
{
    bool list = from->kind == VALUE_LIST;
    size_t n = list ? from->n : 1;
    for (size_t i = 0; i < n; i++) {
        const struct value *one = list ? &from->items[i] : from;
        if (one->kind != VALUE_MAP)
            return say(r, at, "the merge key \"<<\" takes a map or a list of maps");
        for (size_t k = 0; k < one->n; k++) {
            if (value_get(map, one->members[k].key.p))
                continue;
            int rc = count_nodes(r, 1, at);
            if (rc == 0)
                rc = add_member(r, map, &one->members[k]);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int check_unique(struct reader *r, const struct value *map)
{
    const struct member *twice;
    int rc = value_duplicate_key(r->arena, map, &twice, r->err);
    if (rc < 0)
        return error_wrap(r->err, "%s", r->name);
    if (twice)
        return error_set(
            r->err, ERR_INVALID, 0, "%s:%u:%u: key \"%.*s\" appears twice in one map; keep one",
            r->name, twice->line, twice->column, (int)MIN(twice->key.n, (size_t)80), twice->key.p);
    return 0;
}

static int compose_map(struct reader *r, size_t depth, struct value *v)
{
    struct value merged = { .kind = VALUE_NULL };
    yaml_mark_t merged_at = { 0 };
    v->kind = VALUE_MAP;
    for (;;) {
        auto_event key = { 0 };
        auto_event e = { 0 };
        struct member m = { 0 };
        bool is_merge = false;
        int rc = next_event(r, &key);
        if (rc < 0)
            return rc;
        if (key.type == YAML_MAPPING_END_EVENT)
            break;
        rc = compose_key(r, &key, &m, &is_merge);
        if (rc == 0)
            rc = next_event(r, &e);
        if (rc == 0)
            rc = compose(r, &e, depth + 1, &m.value);
        if (rc < 0)
            return rc;
        if (is_merge && merged.kind != VALUE_NULL)
            return say(r, key.start_mark, "key \"<<\" appears twice in one map; give it a list");
        if (is_merge) {
            merged = m.value;
            merged_at = key.start_mark;
            continue;
        }
        rc = add_member(r, v, &m);
        if (rc < 0)
            return rc;
    }
    int rc = check_unique(r, v);
    return rc < 0 || merged.kind == VALUE_NULL ? rc : merge(r, v, &merged, merged_at);
}

static int compose_nested(struct reader *r, yaml_event_t *e, size_t depth, struct value *v)
{
    bool list = e->type == YAML_SEQUENCE_START_EVENT;
    const char *tag = (const char *)(list ? e->data.sequence_start.tag : e->data.mapping_start.tag);
    if (depth >= r->limits->depth)
        return error_set(r->err, ERR_LIMIT, 0, "%s:%u:%u: nested deeper than %zu levels", r->name,
                         v->line, v->column, r->limits->depth);
    if (tag && strcmp(tag, list ? YAML_SEQ_TAG : YAML_MAP_TAG) != 0 && strcmp(tag, "!") != 0)
        return error_set(r->err, ERR_INVALID, 0,
                         "%s:%u:%u: the tag %.80s is not supported; leave it out", r->name, v->line,
                         v->column, tag);
    return list ? compose_list(r, depth, v) : compose_map(r, depth, v);
}

static int compose(struct reader *r, yaml_event_t *e, size_t depth, struct value *v)
{
    size_t nodes = r->nodes;
    *v = (struct value){ .line = from_one(e->start_mark.line),
                         .column = from_one(e->start_mark.column) };
    if (e->type == YAML_ALIAS_EVENT)
        return use_alias(r, e, v);
    int rc = count_nodes(r, 1, e->start_mark);
    if (rc < 0)
        return rc;
    const yaml_char_t *anchor = NULL;
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        rc = compose_scalar(r, e, v);
    } else if (e->type == YAML_SEQUENCE_START_EVENT || e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->type == YAML_SEQUENCE_START_EVENT ? e->data.sequence_start.anchor
                                                      : e->data.mapping_start.anchor;
        rc = compose_nested(r, e, depth, v);
    } else {
        rc = say(r, e->start_mark, "no valid YAML: a value is missing here");
    }
    if (rc < 0 || !anchor)
        return rc;
    struct value *copy =
        arena_alloc(r->arena, sizeof *copy); /* v itself may move when its list grows */
    if (!copy)
        return too_large(r);
    *copy = *v;
    return remember(r, anchor, copy, r->nodes - nodes);
}

/* All documents of the stream into a list. */
static int read_stream(struct reader *r, struct value *list)
{
    list->kind = VALUE_LIST;
    for (;;) {
        auto_event e;
        int rc = next_event(r, &e);
        if (rc < 0)
            return rc;
        if (e.type == YAML_STREAM_END_EVENT)
            return 0;
        if (e.type != YAML_DOCUMENT_START_EVENT)
            continue;
        auto_event first;
        rc = next_event(r, &first);
        if (rc < 0)
            return rc;
        struct value *items = grown(r, list->items, list->n, sizeof *items);
        if (!items)
            return too_large(r);
        list->items = items;
        r->anchors = NULL;
        rc = compose(r, &first, 0, &list->items[list->n]);
        if (rc < 0)
            return rc;
        list->n++;
    }
}

static int parse_stream(struct arena *a, struct str text, const char *name,
                        const struct doc_limits *limits, struct value *list, struct error *err)
{
    struct reader r = { .arena = a, .name = name, .text = text, .err = err };
    r.limits = limits ? limits : &doc_limits_default;
    if (text.n > r.limits->bytes)
        return error_set(err, ERR_LIMIT, 0, "%s: %zu bytes, at most %zu are accepted", name, text.n,
                         r.limits->bytes);
    if (!yaml_parser_initialize(&r.parser))
        return error_set(err, ERR_LIMIT, 0, "%s: out of memory", name);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)(text.p ? text.p : ""), text.n);
    int rc = read_stream(&r, list);
    yaml_parser_delete(&r.parser);
    return rc;
}

/* JSON allows what libyaml does not (surrogate pairs in escapes), so what looks like it is tried as
 * such. */
static bool looks_like_json(struct str text)
{
    struct str t = str_trim(text);
    return t.n > 1 && (t.p[0] == '{' || t.p[0] == '[');
}

int yaml_parse_all(struct arena *a, struct str text, const char *name,
                   const struct doc_limits *limits, struct value **ret_list, struct error *err)
{
    struct value *list = arena_alloc(a, sizeof *list), *json = NULL;
    struct error ignored, e;
    if (!list)
        return error_set(err, ERR_LIMIT, 0, "%s: the document does not fit in %zu bytes of memory",
                         name, a->limit);
    if (looks_like_json(text) && json_parse(a, text, name, limits, &json, &ignored) == 0)
        *list = (struct value){ .kind = VALUE_LIST, .items = json, .n = 1 };
    else if (parse_stream(a, text, name, limits, list, &e) < 0)
        return error_set(err, e.code, e.sys, "%s", e.text);
    *ret_list = list;
    return 0;
}

int yaml_parse(struct arena *a, struct str text, const char *name, const struct doc_limits *limits,
               struct value **ret, struct error *err)
{
    struct value *list = NULL;
    int rc = yaml_parse_all(a, text, name, limits, &list, err);
    if (rc < 0)
        return rc;
    if (list->n > 1)
        return error_set(err, ERR_INVALID, 0,
                         "%s:%u:%u: a second document starts here; expected one", name,
                         list->items[1].line, list->items[1].column);
    struct value *v = list->n ? list->items : arena_alloc(a, sizeof *v);
    if (!v)
        return error_set(err, ERR_LIMIT, 0, "%s: the document does not fit in %zu bytes of memory",
                         name, a->limit);
    *ret = v;
    return 0;
}
