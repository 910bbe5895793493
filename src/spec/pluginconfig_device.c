/* SPDX-License-Identifier: Apache-2.0 */
/* "devices" of a shared resource: all, a count, or a list of indices and UUIDs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "spec/pluginconfig_internal.h"

enum { DEVICES_MAX = 4096, INDEX_MAX = 65535 };

static const char allowed[] = "all, a number of devices, or a list of indices (0, \"0\"), parts "
                              "(\"0:1\") and UUIDs (GPU-…, MIG-…)";

/* 8-4-4-4-12 hexadecimal digits at the start; how long, or 0. */
static size_t uuid_length(const char *p)
{
    for (size_t i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? p[i] != '-' : !p[i] || !strchr("0123456789abcdefABCDEF", p[i]))
            return 0;
    }
    return 36;
}

/* GPU-<uuid>, MIG-<uuid> or MIG-GPU-<uuid>/<gi>/<ci>. */
static bool is_uuid(const char *text)
{
    if (strncmp(text, "GPU-", 4) == 0 ||
        (strncmp(text, "MIG-", 4) == 0 && strncmp(text, "MIG-GPU-", 8) != 0))
        return uuid_length(text + 4) && text[40] == '\0';
    if (strncmp(text, "MIG-GPU-", 8) != 0 || !uuid_length(text + 8) || text[44] != '/')
        return false;
    struct str ci = str_of(text + 45);
    struct str gi = str_cut(&ci, '/');
    uint64_t ignored;
    return str_to_u64(gi, UINT32_MAX, &ignored) && str_to_u64(ci, UINT32_MAX, &ignored);
}

static bool parse_index(struct str text, struct device_ref *ref)
{
    struct str slot = text;
    struct str gpu = str_cut(&slot, ':');
    uint64_t g, s = 0;
    if (!str_to_u64(gpu, INDEX_MAX, &g) || (slot.p && !str_to_u64(slot, INDEX_MAX, &s)))
        return false;
    ref->kind = slot.p ? REF_MIG_INDEX : REF_INDEX;
    ref->gpu = (uint32_t)g;
    ref->slot = (uint32_t)s;
    return true;
}

static bool decode_ref(struct decode *d, const struct value *v, const char *path,
                       struct device_ref *ref)
{
    *ref = (struct device_ref){ .line = v->line, .column = v->column };
    if (v->kind == VALUE_INT && v->number >= 0 && v->number <= INDEX_MAX) {
        ref->gpu = (uint32_t)v->number;
        return true;
    }
    if (v->kind == VALUE_TEXT && !memchr(v->text.p, '\0', v->text.n)) {
        if (parse_index(v->text, ref))
            return true;
        ref->kind = REF_UUID;
        ref->uuid = decode_keep(d, v->text);
        if (is_uuid(v->text.p))
            return true;
    }
    decode_say(d, "config.devices", SEVERITY_ERROR, v->line, v->column, path,
               "name the device by its index or by its full UUID", "found %s; allowed: %s",
               value_kind_name(v), allowed);
    return false;
}

static bool same_ref(const struct device_ref *a, const struct device_ref *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == REF_UUID)
        return str_ieq(str_of(a->uuid), str_of(b->uuid));
    return a->gpu == b->gpu && (a->kind == REF_INDEX || a->slot == b->slot);
}

static void ref_text(const struct device_ref *ref, char *ret, size_t size)
{
    if (ref->kind == REF_UUID)
        snprintf(ret, size, "%s", ref->uuid);
    else if (ref->kind == REF_INDEX)
        snprintf(ret, size, "%" PRIu32, ref->gpu);
    else
        snprintf(ret, size, "%" PRIu32 ":%" PRIu32, ref->gpu, ref->slot);
}

static void twice_in_entry(struct decode *d, const char *path, const struct device_ref *refs,
                           size_t n)
{
    for (size_t i = 1; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            if (!same_ref(&refs[i], &refs[k]))
                continue;
            char text[80];
            ref_text(&refs[i], text, sizeof text);
            decode_say(d, "config.device-twice", SEVERITY_ERROR, refs[i].line, refs[i].column,
                       decode_item_path(d, path, i), "remove it here or there",
                       "device %s is listed a second time; the first is at line %" PRIu32, text,
                       refs[k].line);
            break;
        }
    }
}

static void decode_refs(struct decode *d, const struct value *v, const char *path,
                        struct shared_resource *e)
{
    if (v->n == 0 || v->n > DEVICES_MAX) {
        decode_say(d, "config.devices", SEVERITY_ERROR, v->line, v->column, path,
                   "list the devices, or write all",
                   "found a list of %zu devices; allowed: 1 to %d", v->n, DEVICES_MAX);
        return;
    }
    struct device_ref *refs = decode_array(d, v->n, sizeof *refs);
    if (!refs)
        return;
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        n += decode_ref(d, &v->items[i], decode_item_path(d, path, i), &refs[n]);
    e->all = false;
    e->refs = refs;
    e->n_refs = n;
    if (n == v->n && n <= 512) /* longer lists are compared when they meet the host's devices */
        twice_in_entry(d, path, refs, n);
}

void config_decode_devices(struct decode *d, const struct value *v, const char *path,
                           struct shared_resource *e)
{
    if (v->kind == VALUE_NULL || (v->kind == VALUE_TEXT && str_is(v->text, "all")))
        return;
    if (v->kind == VALUE_INT && v->number > 0 && v->number <= DEVICES_MAX) {
        e->all = false;
        e->count = (uint32_t)v->number;
    } else if (v->kind == VALUE_LIST) {
        decode_refs(d, v, path, e);
    } else {
        decode_say(d, "config.devices", SEVERITY_ERROR, v->line, v->column, path,
                   v->kind == VALUE_TEXT ? "put it in a list, or write all" : "correct the value",
                   "found %s; allowed: %s", value_kind_name(v), allowed);
    }
}

/* Whether two entries of one resource surely name the same device; a UUID and an index are compared
 * on the host. */
static bool overlap(const struct shared_resource *a, const struct shared_resource *b, char *ret,
                    size_t size)
{
    snprintf(ret, size, "some devices");
    if (a->all || b->all || (a->count && b->count))
        return true;
    if (a->count || b->count) {
        const struct shared_resource *counted = a->count ? a : b, *listed = a->count ? b : a;
        for (size_t i = 0; i < listed->n_refs; i++) {
            bool first_ones =
                listed->refs[i].kind == REF_INDEX && listed->refs[i].gpu < counted->count;
            if (first_ones) {
                ref_text(&listed->refs[i], ret, size);
                return true;
            }
        }
        return false;
    }
    for (size_t i = 0; i < a->n_refs; i++) {
        for (size_t k = 0; k < b->n_refs; k++) {
            if (same_ref(&a->refs[i], &b->refs[k])) {
                ref_text(&a->refs[i], ret, size);
                return true;
            }
        }
    }
    return false;
}

void config_check_overlap(struct decode *d, const char *path, const struct shared_resource *entries,
                          size_t n)
{
    size_t work = 0; /* bounded: a hostile file must not make this slow */
    for (size_t i = 1; i < n; i++) {
        for (size_t k = 0; k < i && work < 4000000; k++) {
            const struct shared_resource *a = &entries[k], *b = &entries[i];
            char what[80];
            if (!a->name || !b->name || strcmp(a->name, b->name) != 0)
                continue;
            work += a->n_refs * b->n_refs + 1;
            if (!overlap(a, b, what, sizeof what))
                continue;
            decode_say(d, "config.device-twice", SEVERITY_ERROR, b->line, b->column,
                       decode_item_path(d, path, i), "list different devices in each entry",
                       "this entry names %s%s of %s, which %s[%zu] (line %" PRIu32
                       ") names already",
                       strcmp(what, "some devices") == 0 ? "" : "device ", what, b->name, path, k,
                       a->line);
            break;
        }
    }
}
