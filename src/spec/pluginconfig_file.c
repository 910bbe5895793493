/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over the config file. Which scalar keys there are follows from the option table, so that
 * a command with more options than the peer's (agent.stateDir) has their keys too. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "spec/pluginconfig_internal.h"

enum { PATHS_MAX = 160, DEPTH_MAX = 8 };

/* Keys that are no option of the plugin. Those of feature discovery are read for it. */
static const char *const fixed_paths[] = {
    "version",
    "resources.gpus",
    "resources.gpus[].pattern",
    "resources.gpus[].name",
    "resources.mig",
    "resources.mig[].pattern",
    "resources.mig[].name",
    "sharing.requireDistinct",
    "sharing.timeSlicing",
    "sharing.timeSlicing.renameByDefault",
    "sharing.timeSlicing.failRequestsGreaterThanOne",
    "sharing.timeSlicing.resources",
    "sharing.timeSlicing.resources[].name",
    "sharing.timeSlicing.resources[].rename",
    "sharing.timeSlicing.resources[].devices",
    "sharing.timeSlicing.resources[].replicas",
    "sharing.mps",
    "sharing.mps.renameByDefault",
    "sharing.mps.failRequestsGreaterThanOne",
    "sharing.mps.resources",
    "sharing.mps.resources[].name",
    "sharing.mps.resources[].rename",
    "sharing.mps.resources[].devices",
    "sharing.mps.resources[].replicas",
    "flags.useNodeFeatureAPI",
    "flags.gfd.oneshot",
    "flags.gfd.noTimestamp",
    "flags.gfd.sleepInterval",
    "flags.gfd.outputFile",
    "flags.gfd.machineTypeFile",
};

struct walk {
    struct decode *d;
    struct opts *o;
    struct plugin_config *c;
    const char *paths[PATHS_MAX];
    size_t n_paths;
};

static void collect_paths(struct walk *w)
{
    for (size_t i = 0; i < ARRAY_LEN(fixed_paths); i++)
        w->paths[w->n_paths++] = fixed_paths[i];
    for (size_t i = 0; i < w->o->n && w->n_paths < PATHS_MAX; i++)
        if (w->o->table[i].config_key)
            w->paths[w->n_paths++] = w->o->table[i].config_key;
}

static bool is_section(const struct walk *w, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < w->n_paths; i++)
        if (strncmp(w->paths[i], path, n) == 0 && w->paths[i][n] == '.')
            return true;
    return false;
}

/* ---- one option's value ---- */

/* The value as the words an option takes. Null when it does not fit; then a finding says so. */
static const char *const *items_of(struct walk *w, const struct opt *row, const struct value *v,
                                   const char *path, size_t *ret_n)
{
    struct decode *d = w->d;
    const char **items = decode_array(d, v->kind == VALUE_LIST ? v->n : 1, sizeof *items);
    bool good = items != NULL, boolean = false;
    *ret_n = 1;
    if (!good)
        return NULL;
    switch (row->type) {
    case OPT_BOOL:
        good = decode_bool(d, v, path, &boolean);
        items[0] = boolean ? "true" : "false";
        break;
    case OPT_STRING:
        good = decode_text(d, v, path, &items[0]);
        break;
    case OPT_INT: {
        int64_t ignored;
        good = decode_int(d, v, path, INT64_MIN, INT64_MAX, &ignored);
        items[0] = v->text.p;
        break;
    }
    case OPT_DURATION: /* a number means nanoseconds */
        if (v->kind == VALUE_INT)
            items[0] = arena_printf(d->arena, "%" PRId64 "ns", v->number);
        else
            good = decode_text(d, v, path, &items[0]);
        break;
    case OPT_LIST:
        if (v->kind == VALUE_TEXT) {
            items[0] = v->text.p;
            break;
        }
        good = decode_list(d, v, path);
        *ret_n = v->n;
        for (size_t i = 0; good && i < v->n; i++) {
            const struct value *item = &v->items[i];
            if (item->kind == VALUE_INT)
                items[i] = arena_printf(d->arena, "%" PRId64, item->number);
            else
                good = decode_text(d, item, decode_item_path(d, path, i), &items[i]);
            if (good && !items[i])
                d->no_memory = true;
        }
        break;
    }
    return good && !d->no_memory ? items : NULL;
}

static void list_choices(const struct opt *row, struct buf *out)
{
    struct str rest = str_of(row->choices);
    while (rest.p) {
        struct str word = str_cut(&rest, '|');
        buf_fmt(out, "%s%.*s", out->n ? ", " : "", STR_FMT(word));
    }
}

/* Words of the file that the option does not know. A value that flag or environment override does
 * no harm today. */
static bool check_choices(struct walk *w, size_t row, const struct value *v, const char *path,
                          const char *const *items, size_t n)
{
    const struct opt *opt = &w->o->table[row];
    const struct opt_value *in_force = &w->o->values[row];
    bool overridden = in_force->source > OPT_FROM_CONFIG, good = true;
    for (size_t i = 0; i < n; i++) {
        if (opt_allows(opt, items[i]))
            continue;
        const struct value *at = v->kind == VALUE_LIST ? &v->items[i] : v;
        auto_buf allowed, fix;
        buf_init(&allowed, 600);
        buf_init(&fix, 300);
        list_choices(opt, &allowed);
        const char *words[16];
        size_t n_words = 0;
        struct str rest = str_of(opt->choices);
        while (rest.p && n_words < ARRAY_LEN(words))
            words[n_words++] = decode_keep(w->d, str_cut(&rest, '|'));
        const char *near = str_nearest(str_of(items[i]), words, n_words);
        if (opt->type == OPT_LIST && strchr(items[i], ','))
            buf_z(&fix, "write several words as a list");
        else if (near)
            buf_fmt(&fix, "did you mean \"%s\"?", near);
        else
            buf_z(&fix, "choose one of these");
        decode_say(w->d, "config.invalid-value", overridden ? SEVERITY_WARNING : SEVERITY_ERROR,
                   at->line, at->column, path, fix.p, "found %s; allowed: %s%s%s",
                   value_kind_name(at), allowed.p,
                   overridden ? "; not in force because it is set by " : "",
                   overridden ? in_force->origin : "");
        good = false;
    }
    return good;
}

static void decode_option(struct walk *w, size_t row, const struct member *m, const char *path)
{
    const struct value *v = &m->value;
    size_t n = 0;
    if (v->kind == VALUE_NULL) /* as if it were not written */
        return;
    const char *const *items = items_of(w, &w->o->table[row], v, path, &n);
    if (!items || !check_choices(w, row, v, path, items, n))
        return;
    struct error e;
    const char *origin = arena_printf(w->d->arena, "%s:%" PRIu32 ":%" PRIu32 " %s", w->d->file,
                                      m->line, m->column, path);
    if (!origin) {
        w->d->no_memory = true;
    } else if (opts_from_config(w->o, path, items, n, origin, &e) < 0) {
        size_t skip = str_starts(str_of(e.text), origin) ? strlen(origin) + 2 : 0;
        decode_say(w->d, "config.invalid-value", SEVERITY_ERROR, v->line, v->column, path,
                   "correct the value", "%s", e.text + MIN(skip, strlen(e.text)));
    }
}

/* ---- keys of feature discovery ---- */

static bool decode_gfd(struct walk *w, const struct value *v, const char *path)
{
    struct decode *d = w->d;
    struct plugin_config *c = w->c;
    const struct {
        const char *path;
        bool *boolean;
        const char **text;
    } keys[] = {
        { "flags.useNodeFeatureAPI", &c->gfd.use_node_feature_api, NULL },
        { "flags.gfd.oneshot", &c->gfd.oneshot, NULL },
        { "flags.gfd.noTimestamp", &c->gfd.no_timestamp, NULL },
        { "flags.gfd.outputFile", NULL, &c->gfd.output_file },
        { "flags.gfd.machineTypeFile", NULL, &c->gfd.machine_type_file },
    };
    if (strcmp(path, "flags.gfd.sleepInterval") == 0) {
        const char *text = NULL;
        struct error e;
        if (v->kind == VALUE_INT)
            c->gfd.sleep_interval_ns = v->number;
        else if (v->kind != VALUE_NULL && decode_text(d, v, path, &text) &&
                 duration_parse(str_of(text), &c->gfd.sleep_interval_ns, &e) < 0)
            decode_say(d, "config.invalid-value", SEVERITY_ERROR, v->line, v->column, path,
                       "correct the value", "%s", e.text);
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strcmp(path, keys[i].path) != 0)
            continue;
        if (v->kind != VALUE_NULL && keys[i].boolean)
            (void)decode_bool(d, v, path, keys[i].boolean);
        else if (v->kind != VALUE_NULL && decode_text(d, v, path, keys[i].text))
            *keys[i].text = decode_keep(d, str_of(*keys[i].text));
        return true;
    }
    return false;
}

/* ---- the tree ---- */

static bool decode_structure(struct walk *w, const struct value *v, const char *path)
{
    struct plugin_config *c = w->c;
    if (strcmp(path, "version") == 0) {
        bool good = v->kind == VALUE_NULL ||
                    (v->kind == VALUE_TEXT && (!v->text.n || str_is(v->text, "v1")));
        if (!good && v->kind == VALUE_TEXT)
            decode_say(w->d, "config.version", SEVERITY_ERROR, v->line, v->column, path,
                       "write version: v1", "unknown version: %.80s; allowed: v1", v->text.p);
        else if (!good)
            decode_wrong_kind(w->d, v, path, "text \"v1\"", "write version: v1");
    } else if (strcmp(path, "sharing.requireDistinct") == 0) {
        if (v->kind != VALUE_NULL)
            (void)decode_bool(w->d, v, path, &c->require_distinct);
    } else if (strcmp(path, "sharing.timeSlicing") == 0 || strcmp(path, "sharing.mps") == 0) {
        config_decode_sharing(w->d, v, path, w->paths, w->n_paths, c);
    } else if (strcmp(path, "resources.gpus") == 0) {
        config_decode_patterns(w->d, v, path, w->paths, w->n_paths, &c->gpu_patterns,
                               &c->n_gpu_patterns);
    } else if (strcmp(path, "resources.mig") == 0) {
        config_decode_patterns(w->d, v, path, w->paths, w->n_paths, &c->mig_patterns,
                               &c->n_mig_patterns);
    } else {
        return false;
    }
    return true;
}

static size_t option_row(const struct opts *o, const char *path)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->table[i].config_key && strcmp(o->table[i].config_key, path) == 0)
            return i;
    return o->n;
}

static void decode_section(struct walk *w, const struct value *v, const char *path, int depth)
{
    if (depth > DEPTH_MAX || !decode_map(w->d, v, path))
        return;
    for (size_t i = 0; i < v->n && !w->d->no_memory; i++) {
        const struct member *m = &v->members[i];
        const char *full = decode_path(w->d, path, m->key);
        /* A key with a dot must not pass for a path, nor one with a NUL for what stands before it.
         */
        bool plain = !memchr(m->key.p, '.', m->key.n) && !memchr(m->key.p, '\0', m->key.n);
        size_t row = plain ? option_row(w->o, full) : w->o->n;
        if (row < w->o->n)
            decode_option(w, row, m, full);
        else if (plain && (decode_structure(w, &m->value, full) || decode_gfd(w, &m->value, full)))
            continue;
        else if (plain && is_section(w, full))
            decode_section(w, &m->value, full, depth + 1);
        else
            decode_unknown_key(w->d, path, m, w->paths, w->n_paths);
    }
}

void config_decode_file(struct decode *d, const struct value *root, struct opts *o,
                        struct plugin_config *c)
{
    struct walk w = { .d = d, .o = o, .c = c };
    collect_paths(&w);
    decode_section(&w, root, "", 0);
}
