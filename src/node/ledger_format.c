/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.json: docs/formats.md. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/json.h"
#include "node/ledger_private.h"

enum {
    VERSION = 1,    /* of the format that is written */
    MIN_READER = 1, /* the oldest reader that understands it */
    ARENA_MAX = 64 * 1024 * 1024,
    GRANTED_MAX = 64, /* remembered kinds of one gpu */
};

/* ---- out ---- */

static void encode_granted(struct json_writer *w, const struct entry *e)
{
    bool any = false;
    for (uint32_t i = 0; i < e->n_kinds; i++)
        any = any || e->kinds[i].remembered;
    if (!any)
        return;
    jw_key(w, "granted_as");
    jw_list(w);
    for (uint32_t i = 0; i < e->n_kinds; i++) {
        const struct kind *k = &e->kinds[i];
        if (!k->remembered)
            continue;
        jw_map(w);
        jw_kv(w, "resource", k->resource);
        jw_kv(w, "base", k->base);
        jw_kv_bool(w, "shared", k->shared);
        jw_end(w);
    }
    jw_end(w);
}

static void encode_entry(struct json_writer *w, const struct entry *e)
{
    jw_map(w);
    jw_kv(w, "uuid", e->uuid);
    jw_kv(w, "owner", owner_name(e->owner));
    if (e->step == STEP_DRAINING) {
        jw_key(w, "handover");
        jw_map(w);
        jw_kv(w, "step", "draining");
        jw_kv(w, "from", owner_name(e->owner));
        jw_kv(w, "to", owner_name(e->to));
        jw_kv_int(w, "started", e->started_real_ns / 1000000000);
        jw_end(w);
    }
    encode_granted(w, e);
    jw_end(w);
}

void ledger_encode(const struct ledger *l, struct buf *out)
{
    struct json_writer w;
    jw_init(&w, out, 2);
    jw_map(&w);
    jw_kv_int(&w, "version", VERSION);
    jw_kv_int(&w, "min_reader", MIN_READER);
    jw_kv(&w, "boot", l->boot);
    if (l->damaged)
        jw_kv_bool(&w, "damaged", true);
    jw_key(&w, "gpus");
    jw_list(&w);
    for (size_t i = 0; i < l->n_bases; i++) {
        const struct entry *e = &l->entries[l->bases[i].gpu];
        if (strcmp(e->uuid, l->bases[i].uuid) == 0)
            encode_entry(&w, e);
    }
    jw_end(&w);
    jw_end(&w);
    buf_ch(out, '\n');
}

/* ---- in ---- */

static int wrong(struct error *err, const struct value *at, const char *what, const char *expected)
{
    return error_set(err, ERR_INVALID, 0, "%s:%u:%u: %s is %s, expected %s", LEDGER_FILE,
                     at ? at->line : 0, at ? at->column : 0, what,
                     at ? value_kind_name(at) : "missing", expected);
}

static int get_text(const struct value *map, const char *key, size_t max, const char **ret,
                    struct error *err)
{
    const struct value *v = value_get(map, key);
    bool fits = v && v->kind == VALUE_TEXT && v->text.n > 0 && v->text.n <= max &&
                !memchr(v->text.p, '\0', v->text.n);
    if (!fits)
        return wrong(err, v ? v : map, key, "a text that is not empty and not overlong");
    *ret = v->text.p;
    return 0;
}

static int get_owner(const struct value *map, const char *key, enum owner *ret, struct error *err)
{
    static const enum owner owners[] = { OWNER_NONE, OWNER_DEVICE_PLUGIN, OWNER_DRA,
                                         OWNER_FOREIGN };
    const char *text = NULL;
    int r = get_text(map, key, 64, &text, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_LEN(owners); i++) {
        if (strcmp(text, owner_name(owners[i])) == 0) {
            *ret = owners[i];
            return 0;
        }
    }
    return wrong(err, value_get(map, key), key, "none, device-plugin, dra or foreign");
}

static int get_int(const struct value *map, const char *key, int64_t *ret, struct error *err)
{
    const struct value *v = value_get(map, key);
    if (!v || v->kind != VALUE_INT || v->number < 0)
        return wrong(err, v ? v : map, key, "a whole number, not negative");
    *ret = v->number;
    return 0;
}

static int get_bool(const struct value *map, const char *key, bool *ret, struct error *err)
{
    const struct value *v = value_get(map, key);
    if (!v || v->kind != VALUE_BOOL)
        return wrong(err, v ? v : map, key, "true or false");
    *ret = v->boolean;
    return 0;
}

static int decode_handover(const struct value *v, struct entry *e, struct error *err)
{
    const char *step = NULL;
    enum owner from = OWNER_NONE;
    int64_t started = 0;
    if (v->kind != VALUE_MAP)
        return wrong(err, v, "handover", "a map");
    int r = get_text(v, "step", 64, &step, err);
    if (r == 0 && strcmp(step, "draining") != 0)
        r = wrong(err, value_get(v, "step"), "step", "draining");
    if (r == 0)
        r = get_owner(v, "from", &from, err);
    if (r == 0 && from != e->owner)
        r = wrong(err, value_get(v, "from"), "from", "the gpu's owner");
    if (r == 0)
        r = get_owner(v, "to", &e->to, err);
    if (r == 0 && (e->to == e->owner || e->to == OWNER_FOREIGN))
        r = wrong(err, value_get(v, "to"), "to", "another owner: none, device-plugin or dra");
    if (r == 0)
        r = get_int(v, "started", &started, err);
    if (r == 0 && started > INT64_MAX / 1000000000)
        r = wrong(err, value_get(v, "started"), "started", "seconds since 1970");
    if (r == 0) {
        e->step = STEP_DRAINING;
        e->started_real_ns = started * 1000000000;
    }
    return r;
}

static int decode_granted(const struct value *v, struct entry *e, struct error *err)
{
    if (v->kind != VALUE_LIST || v->n > GRANTED_MAX)
        return wrong(err, v, "granted_as", "a short list");
    for (size_t i = 0; i < v->n; i++) {
        const char *resource = NULL, *base = NULL;
        bool shared = false;
        int r = get_text(&v->items[i], "resource", 512, &resource, err);
        if (r == 0)
            r = get_text(&v->items[i], "base", UUID_TEXT_SIZE - 1, &base, err);
        if (r == 0)
            r = get_bool(&v->items[i], "shared", &shared, err);
        if (r < 0)
            return r;
        struct kind *k = kind_get(e, resource, shared, base);
        k->remembered = k->earlier = true;
    }
    return 0;
}

static int decode_entry(struct ledger *l, const struct value *v, struct error *err)
{
    const char *uuid = NULL;
    enum owner owner = OWNER_NONE;
    int r = get_text(v, "uuid", UUID_TEXT_SIZE - 1, &uuid, err);
    if (r == 0 && ledger_entry(l, uuid))
        r = wrong(err, value_get(v, "uuid"), "uuid", "a gpu that was not named before");
    if (r == 0)
        r = get_owner(v, "owner", &owner, err);
    if (r < 0)
        return r;
    struct entry *e = ledger_entry_add(l, uuid);
    if (!e)
        return error_set(err, ERR_LIMIT, 0, "%s: more than %d gpus", LEDGER_FILE, LEDGER_GPUS_MAX);
    e->owner = owner;
    e->rebuilt = l->damaged;
    const struct value *handover = value_get(v, "handover");
    const struct value *granted = value_get(v, "granted_as");
    if (handover)
        r = decode_handover(handover, e, err);
    if (r == 0 && granted)
        r = decode_granted(granted, e, err);
    return r;
}

static int check_version(const struct value *doc, struct error *err)
{
    int64_t version = 0, reader = 0;
    int r = get_int(doc, "version", &version, err);
    if (r == 0)
        r = get_int(doc, "min_reader", &reader, err);
    if (r < 0)
        return r;
    if (version < 1 || reader < 1 || reader > version)
        return error_set(err, ERR_INVALID, 0,
                         "%s: version %" PRId64 " with min_reader %" PRId64 " makes no sense",
                         LEDGER_FILE, version, reader);
    if (reader > VERSION)
        return error_set(err, ERR_UNSUPPORTED, 0,
                         "the ledger was written in format %" PRId64
                         ", which needs a program that reads format %" PRId64
                         "; this one reads up to %d: install the newer version again, or move the "
                         "file away when no pod uses a gpu",
                         version, reader, VERSION);
    return 0;
}

int ledger_decode(struct ledger *l, struct str text, struct error *err)
{
    static const struct doc_limits limits = { LEDGER_TEXT_MAX, 16, 500000 };
    auto_arena arena;
    arena_init(&arena, ARENA_MAX);
    struct value *doc = NULL;
    int r = json_parse(&arena, text, LEDGER_FILE, &limits, &doc, err);
    if (r == 0)
        r = doc->kind == VALUE_MAP ? check_version(doc, err)
                                   : wrong(err, doc, "the whole", "a map");
    if (r < 0)
        return r;
    const struct value *gpus = value_get(doc, "gpus");
    if (!gpus || gpus->kind != VALUE_LIST)
        return wrong(err, gpus ? gpus : doc, "gpus", "a list");
    if (value_get(doc, "damaged"))
        r = get_bool(doc, "damaged", &l->damaged, err);
    for (size_t i = 0; r == 0 && i < gpus->n; i++)
        r = decode_entry(l, &gpus->items[i], err);
    return r;
}
