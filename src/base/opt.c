/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

enum { OPTS_BYTES_MAX = 8 * 1024 * 1024, LIST_ITEMS_MAX = 4096, SHOWN_MAX = 80, ROWS_MAX = 256 };

static int no_memory(struct error *err)
{
    return error_set(err, ERR_LIMIT, 0, "the options do not fit in %d bytes", OPTS_BYTES_MAX);
}

static size_t count_rows(const struct opt *table)
{
    size_t n = 0;
    while (table[n].name)
        n++;
    return n;
}

/* What may be written for a value of this row, for messages. */
static void allowed_text(const struct opt *row, char *ret, size_t size)
{
    static const char *const by_type[] = {
        [OPT_BOOL] = "true or false",
        [OPT_STRING] = "text",
        [OPT_INT] = "a whole number",
        [OPT_LIST] = "words parted by commas",
        [OPT_DURATION] = "a duration such as 90s, 1h15m or \"infinite\"",
    };
    struct str rest = str_of(row->choices ? row->choices : by_type[row->type]);
    size_t n = 0;
    ret[0] = '\0';
    while (rest.p && n < size) {
        struct str word = str_cut(&rest, '|');
        int wrote = snprintf(ret + n, size - n, "%s%.*s", n ? ", " : "", STR_FMT(word));
        n += wrote > 0 ? (size_t)wrote : 0;
    }
}

static int bad_value(const struct opt *row, const char *origin, struct str value, struct error *err)
{
    char allowed[200];
    allowed_text(row, allowed, sizeof allowed);
    value.n = MIN(value.n, (size_t)SHOWN_MAX);
    if (!value.n)
        return error_set(err, ERR_INVALID, 0, "%s: the value is empty; allowed: %s", origin,
                         allowed);
    return error_set(err, ERR_INVALID, 0, "%s: \"%.*s\" is not allowed; allowed: %s", origin,
                     STR_FMT(value), allowed);
}

/* Cuts the text at commas into o's arena. */
static int split_list(struct opts *o, const char *text, struct opt_value *v, struct error *err)
{
    struct str rest = str_of(text);
    size_t n = 1;
    for (size_t i = 0; i < rest.n; i++)
        n += rest.p[i] == ',';
    if (n > LIST_ITEMS_MAX)
        return error_set(err, ERR_LIMIT, 0, "%s: %zu elements, at most %d are accepted", v->origin,
                         n, LIST_ITEMS_MAX);
    const char **items = arena_array(&o->arena, n, sizeof *items);
    if (!items)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        items[i] = arena_strdup(&o->arena, str_trim(str_cut(&rest, ',')));
        if (!items[i])
            return no_memory(err);
    }
    v->items = items;
    v->n_items = n;
    return 0;
}

/* Reads v->text by the row's type. `strict`: the empty text is no bool (a flag "--x="). */
static int convert(struct opts *o, const struct opt *row, struct opt_value *v, bool strict,
                   struct error *err)
{
    struct str text = str_of(v->text);
    struct error inner;
    switch (row->type) {
    case OPT_STRING:
        return 0;
    case OPT_BOOL:
        v->boolean = false;
        if (!text.n && !strict)
            return 0;
        return str_to_bool(text, &v->boolean) ? 0 : bad_value(row, v->origin, text, err);
    case OPT_INT:
        return str_to_i64(text, INT64_MIN, INT64_MAX, &v->number)
                   ? 0
                   : bad_value(row, v->origin, text, err);
    case OPT_DURATION:
        if (duration_parse(text, &v->number, &inner) < 0)
            return error_set(err, ERR_INVALID, 0, "%s: %s", v->origin, inner.text);
        return 0;
    case OPT_LIST:
        return split_list(o, v->text, v, err);
    }
    return error_set(err, ERR_INTERNAL, 0, "option --%s has no type", row->name);
}

static bool ignores_empty(const struct opt *row)
{
    return row->type == OPT_DURATION || row->type == OPT_INT;
}

static int set_defaults(struct opts *o, struct error *err)
{
    for (size_t i = 0; i < o->n; i++) {
        const struct opt *row = &o->table[i];
        struct opt_value *v = &o->values[i];
        *v = (struct opt_value){ .source = OPT_FROM_DEFAULT, .origin = "default", .text = "" };
        if (!row->deflt)
            continue;
        v->text = row->deflt;
        if (convert(o, row, v, false, err) < 0)
            return -(int)err->code;
    }
    return 0;
}

const char *env_get(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

static int set_from_env(struct opts *o, char *const *env, struct error *err)
{
    for (size_t i = 0; i < o->n; i++) {
        const struct opt *row = &o->table[i];
        for (size_t k = 0; k < ARRAY_LEN(row->env) && row->env[k]; k++) {
            const char *text = env_get(env, row->env[k]);
            if (!text)
                continue;
            if (!text[0] && ignores_empty(row))
                break;
            struct opt_value *v = &o->values[i];
            *v = (struct opt_value){ .source = OPT_FROM_ENV };
            v->text = arena_strdup(&o->arena, str_of(text));
            v->origin = arena_printf(&o->arena, "env %s", row->env[k]);
            if (!v->text || !v->origin)
                return no_memory(err);
            int r = convert(o, row, v, false, err);
            if (r < 0)
                return r;
            break;
        }
    }
    return 0;
}

static bool has_name(const struct opt *row, struct str name)
{
    if (str_is(name, row->name))
        return true;
    for (size_t k = 0; k < ARRAY_LEN(row->aliases) && row->aliases[k]; k++)
        if (str_is(name, row->aliases[k]))
            return true;
    return false;
}

/* The row that `name` stands for, or o->n. One letter after one dash may be a short name. */
static size_t find_row(const struct opts *o, struct str name, bool one_dash)
{
    for (size_t i = 0; i < o->n; i++)
        if (has_name(&o->table[i], name) ||
            (one_dash && name.n == 1 && o->table[i].letter && o->table[i].letter == name.p[0]))
            return i;
    return o->n;
}

static int unknown_option(const struct opts *o, const char *arg, struct str name, struct error *err)
{
    const char *names[ROWS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < o->n; i++) {
        const struct opt *row = &o->table[i];
        if (n < ARRAY_LEN(names))
            names[n++] = row->name;
        for (size_t k = 0; k < ARRAY_LEN(row->aliases) && row->aliases[k] && n < ARRAY_LEN(names);
             k++)
            names[n++] = row->aliases[k];
    }
    const char *near = name.n > 1 ? str_nearest(name, names, n) : NULL;
    int shown = (int)MIN(strcspn(arg, "="), (size_t)SHOWN_MAX);
    if (near)
        return error_set(err, ERR_INVALID, 0, "unknown option %.*s; did you mean --%s?", shown, arg,
                         near);
    return error_set(err, ERR_INVALID, 0, "unknown option %.*s; --help lists all", shown, arg);
}

static int set_from_flag(struct opts *o, size_t i, const char *value, struct error *err)
{
    const struct opt *row = &o->table[i];
    struct opt_value *v = &o->values[i];
    bool again = v->source == OPT_FROM_FLAG && row->type == OPT_LIST;
    const char *text = again ? arena_printf(&o->arena, "%s,%s", v->text, value)
                             : arena_strdup(&o->arena, str_of(value));
    const char *origin = again ? v->origin : arena_printf(&o->arena, "flag --%s", row->name);
    if (!text || !origin)
        return no_memory(err);
    *v = (struct opt_value){ .source = OPT_FROM_FLAG, .text = text, .origin = origin };
    return 0;
}

/* Handles argv[at], which starts with a dash; moves *at past what it took. */
static int parse_flag(struct opts *o, int argc, char **argv, int *at, struct error *err)
{
    const char *arg = argv[*at];
    bool one_dash = arg[1] != '-';
    const char *word = arg + (one_dash ? 1 : 2);
    struct str name = { word, strcspn(word, "=") };
    const char *value = word[name.n] ? word + name.n + 1 : NULL;
    ++*at;

    size_t i = find_row(o, name, one_dash);
    if (i == o->n) {
        if (str_is(name, "help") || (one_dash && str_is(name, "h"))) {
            o->help = true;
            return 0;
        }
        return unknown_option(o, arg, name, err);
    }
    if (!value && o->table[i].type == OPT_BOOL)
        value = "true";
    else if (!value && *at < argc)
        value = argv[(*at)++];
    if (!value)
        return error_set(err, ERR_INVALID, 0, "option %s needs a value", arg);
    return set_from_flag(o, i, value, err);
}

static int parse_arguments(struct opts *o, int argc, char **argv, int max_args, struct error *err)
{
    o->args = arena_array(&o->arena, (size_t)argc + 1, sizeof *o->args);
    if (!o->args)
        return no_memory(err);
    bool only_args = false;
    for (int at = 1; at < argc && !o->help;) {
        const char *arg = argv[at];
        if (!only_args && strcmp(arg, "--") == 0) {
            only_args = true;
            at++;
        } else if (!only_args && arg[0] == '-' && arg[1]) {
            int r = parse_flag(o, argc, argv, &at, err);
            if (r < 0)
                return r;
        } else {
            o->args[o->n_args++] = argv[at++];
        }
    }
    if (!o->help && max_args >= 0 && o->n_args > max_args)
        return error_set(
            err, ERR_INVALID, 0, "unexpected argument \"%.*s\"; %s", SHOWN_MAX, o->args[max_args],
            max_args ? "there are already as many as are taken" : "only options are taken here");
    return 0;
}

static int convert_flags(struct opts *o, struct error *err)
{
    for (size_t i = 0; i < o->n; i++) {
        struct opt_value *v = &o->values[i];
        if (v->source != OPT_FROM_FLAG)
            continue;
        int r = !v->text[0] && ignores_empty(&o->table[i])
                    ? bad_value(&o->table[i], v->origin, str_of(v->text), err)
                    : convert(o, &o->table[i], v, true, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int parse_all(struct opts *o, int argc, char **argv, char *const *env, int max_args,
                     struct error *err)
{
    if (!o->values)
        return no_memory(err);
    int r = set_defaults(o, err);
    if (r < 0)
        return r;
    /* The line first: --help and a mistyped option are answered whatever the environment holds. */
    r = parse_arguments(o, argc, argv, max_args, err);
    if (r < 0 || o->help)
        return r;
    struct opt_value *from_flags = o->values;
    o->values = arena_array(&o->arena, o->n, sizeof *o->values);
    if (!o->values)
        return no_memory(err);
    memcpy(o->values, from_flags, o->n * sizeof *o->values);
    r = set_from_env(o, env, err);
    for (size_t i = 0; i < o->n; i++)
        if (from_flags[i].source == OPT_FROM_FLAG)
            o->values[i] = from_flags[i];
    return r < 0 ? r : convert_flags(o, err);
}

int opts_parse(struct opts *o, const struct opt *table, int argc, char **argv, char *const *env,
               int max_args, struct error *err)
{
    struct error ignored;
    *o = (struct opts){ .table = table, .n = count_rows(table) };
    arena_init(&o->arena, OPTS_BYTES_MAX);
    o->values = arena_array(&o->arena, MAX(o->n, (size_t)1), sizeof *o->values);
    int r = parse_all(o, argc, argv, env ? env : environ, max_args, err ? err : &ignored);
    if (r < 0)
        opts_done(o);
    return r;
}

void opts_done(struct opts *o)
{
    arena_done(&o->arena);
    *o = (struct opts){ 0 };
}

const struct opt_value *opts_get(const struct opts *o, const char *name)
{
    for (size_t i = 0; i < o->n; i++)
        if (strcmp(o->table[i].name, name) == 0)
            return &o->values[i];
    fprintf(stderr, "mete: defect: no option --%s in this table\n", name);
    abort();
}

bool opts_bool(const struct opts *o, const char *name)
{
    return opts_get(o, name)->boolean;
}

const char *opts_text(const struct opts *o, const char *name)
{
    return opts_get(o, name)->text;
}

int64_t opts_int(const struct opts *o, const char *name)
{
    return opts_get(o, name)->number;
}

static const char *join(struct arena *a, const char *const *items, size_t n)
{
    const char *text = n ? items[0] : "";
    for (size_t i = 1; i < n && text; i++)
        text = arena_printf(a, "%s,%s", text, items[i]);
    return text ? arena_strdup(a, str_of(text)) : NULL;
}

/* An element from the file stays as it is, also with a comma in it. */
static int config_list(struct opts *o, const char *const *items, size_t n, struct opt_value *v,
                       struct error *err)
{
    const char **copy = arena_array(&o->arena, MAX(n, (size_t)1), sizeof *copy);
    if (!copy)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        copy[i] = arena_strdup(&o->arena, str_of(items[i]));
        if (!copy[i])
            return no_memory(err);
    }
    v->items = copy;
    v->n_items = n;
    return 0;
}

int opts_from_config(struct opts *o, const char *config_key, const char *const *items,
                     size_t n_items, const char *origin, struct error *err)
{
    for (size_t i = 0; i < o->n; i++) {
        const struct opt *row = &o->table[i];
        if (!row->config_key || strcmp(row->config_key, config_key) != 0)
            continue;
        if (row->type != OPT_LIST && n_items != 1)
            return error_set(err, ERR_INVALID, 0, "%s: %zu values, expected one", origin, n_items);
        struct opt_value v = { .source = OPT_FROM_CONFIG };
        v.text = join(&o->arena, items, n_items);
        v.origin = arena_strdup(&o->arena, str_of(origin));
        if (!v.text || !v.origin)
            return no_memory(err);
        int r = row->type == OPT_LIST ? config_list(o, items, n_items, &v, err)
                                      : convert(o, row, &v, true, err);
        if (r < 0)
            return r;
        if (o->values[i].source < OPT_FROM_CONFIG)
            o->values[i] = v;
        return 0;
    }
    return error_set(err, ERR_NOT_FOUND, 0, "%s: no option takes the key %s", origin, config_key);
}

bool opt_allows(const struct opt *row, const char *value)
{
    struct str rest = str_of(row->choices);
    bool found = !row->choices;
    while (rest.p && !found)
        found = str_is(str_cut(&rest, '|'), value);
    return found;
}

static int check_row(const struct opt *row, const struct opt_value *v, struct error *err)
{
    if (v->source == OPT_FROM_DEFAULT)
        return 0;
    if (row->type != OPT_LIST)
        return opt_allows(row, v->text) ? 0 : bad_value(row, v->origin, str_of(v->text), err);
    for (size_t i = 0; i < v->n_items; i++)
        if (!opt_allows(row, v->items[i]))
            return bad_value(row, v->origin, str_of(v->items[i]), err);
    return 0;
}

int opts_check(const struct opts *o, struct error *err)
{
    for (size_t i = 0; i < o->n; i++) {
        int r = check_row(&o->table[i], &o->values[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}
