/* SPDX-License-Identifier: Apache-2.0 */
/* The sections "sharing" and "resources" of the config file: lists of resources. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/kname.h"
#include "spec/pluginconfig_internal.h"

/* The name with its domain, checked as a resource name, or NULL with a finding. A MIG profile may
 * be spelled with the plus signs that NVML writes. */
static const char *resource_name(struct decode *d, const struct value *v, const char *path)
{
    const char *text = NULL;
    struct error e;
    if (!decode_text(d, v, path, &text))
        return NULL;
    const char *slash = strchr(text, '/');
    bool prefixed = strncmp(text, RESOURCE_PREFIX, sizeof RESOURCE_PREFIX - 1) == 0;
    if (slash && !prefixed) {
        decode_say(d, "config.resource-name", SEVERITY_ERROR, v->line, v->column, path,
                   "write the name with nvidia.com/ or without a domain",
                   "\"%.100s\" has another domain; allowed: nvidia.com/NAME, or NAME alone", text);
        return NULL;
    }
    const char *part = prefixed ? slash + 1 : text;
    char *name = arena_printf(d->arena, RESOURCE_PREFIX "%s", part);
    if (!name) {
        d->no_memory = true;
        return NULL;
    }
    char *suffix = name + sizeof RESOURCE_PREFIX - 1;
    bool plus = strncmp(suffix, "mig-", 4) == 0 && strchr(suffix, '+');
    for (char *at = suffix; plus && *at; at++)
        *at = *at == '+' ? '.' : *at;
    if (plus)
        decode_say(d, "config.mig-name", SEVERITY_INFO, v->line, v->column, path,
                   "request it by that name",
                   "a resource name has no plus sign: \"%.100s\" is the resource %s", text, name);
    size_t n = strlen(suffix);
    if (n > RESOURCE_NAME_PART_MAX) {
        decode_say(
            d, "config.resource-name", SEVERITY_ERROR, v->line, v->column, path,
            "choose a shorter name",
            "the resource name %.100s has %zu characters after the \"/\"; at most %d are allowed",
            name, n, RESOURCE_NAME_PART_MAX);
        return NULL;
    }
    if (kname_dns1123_subdomain(str_of(suffix), &e) < 0) {
        decode_say(d, "config.resource-name", SEVERITY_ERROR, v->line, v->column, path,
                   "choose another name", "no resource name: %s", e.text);
        return NULL;
    }
    return name;
}

static void missing(struct decode *d, const struct value *entry, const char *path, const char *key,
                    const char *fix)
{
    decode_say(d, "config.missing-key", SEVERITY_ERROR, entry->line, entry->column, path, fix,
               "the key \"%s\" is missing here", key);
}

/* ---- resources.gpus, resources.mig ---- */

static void decode_pattern(struct decode *d, const struct value *v, const char *path,
                           const char *const *paths, size_t n_paths, struct resource_pattern *p)
{
    if (!decode_map(d, v, path))
        return;
    p->line = v->line;
    p->column = v->column;
    bool has_pattern = false, has_name = false;
    for (size_t i = 0; i < v->n; i++) {
        const struct member *m = &v->members[i];
        const char *full = decode_path(d, path, m->key), *text = NULL;
        if (str_is(m->key, "pattern")) {
            has_pattern = true;
            if (decode_text(d, &m->value, full, &text))
                p->pattern = decode_keep(d, str_of(text));
        } else if (str_is(m->key, "name")) {
            has_name = true;
            p->name = resource_name(d, &m->value, full);
        } else {
            decode_unknown_key(d, path, m, paths, n_paths);
        }
    }
    if (!has_pattern)
        missing(d, v, path, "pattern",
                "write the pattern of names that NVML reports, such as \"*H100*\"");
    if (!has_name)
        missing(d, v, path, "name", "write the resource name, such as gpu-large");
    if (p->pattern && !p->pattern[0])
        decode_say(d, "config.pattern", SEVERITY_ERROR, v->line, v->column, path,
                   "write \"*\" for every name", "the pattern is empty and would match nothing");
}

/* At most CONFIG_RESOURCES_MAX elements; says so past it. */
static bool fits(struct decode *d, const struct value *v, const char *path)
{
    if (v->n <= CONFIG_RESOURCES_MAX)
        return true;
    decode_say(d, "config.too-many", SEVERITY_ERROR, v->line, v->column, path, "use fewer entries",
               "found %zu entries; at most %d are accepted", v->n, CONFIG_RESOURCES_MAX);
    return false;
}

void config_decode_patterns(struct decode *d, const struct value *v, const char *path,
                            const char *const *paths, size_t n_paths,
                            const struct resource_pattern **ret, size_t *ret_n)
{
    if (v->kind == VALUE_NULL || !decode_list(d, v, path) || !fits(d, v, path))
        return;
    struct resource_pattern *list = decode_array(d, v->n, sizeof *list);
    if (!list)
        return;
    for (size_t i = 0; i < v->n; i++)
        decode_pattern(d, &v->items[i], decode_item_path(d, path, i), paths, n_paths, &list[i]);
    *ret = list;
    *ret_n = v->n;
}

/* ---- sharing.timeSlicing, sharing.mps ---- */

static void decode_replicas(struct decode *d, const struct value *v, const char *path,
                            struct shared_resource *e)
{
    int64_t n = 0;
    if (v->kind == VALUE_INT && v->number > REPLICAS_MAX) {
        decode_say(d, "config.replicas", SEVERITY_ERROR, v->line, v->column, path,
                   "use fewer replicas; slicing memory by many replicas limits nothing anyway",
                   "found %lld; at most %d are accepted, because kubelet takes a device list of at "
                   "most 4 MiB",
                   (long long)v->number, REPLICAS_MAX);
    } else if (v->kind == VALUE_INT && v->number < 1) {
        decode_say(d, "config.replicas", SEVERITY_ERROR, v->line, v->column, path,
                   "leave the entry out, or write 1, when the devices shall not be shared",
                   "found %lld; the number of replicas must be at least 2, or 1 for devices that "
                   "are not shared",
                   (long long)v->number);
    } else if (decode_int(d, v, path, 1, REPLICAS_MAX, &n)) {
        e->replicas = (uint32_t)n;
    }
}

static void decode_entry_key(struct decode *d, const struct member *m, const char *full,
                             struct shared_resource *e)
{
    if (str_is(m->key, "name"))
        e->name = resource_name(d, &m->value, full);
    else if (str_is(m->key, "rename") && m->value.kind != VALUE_NULL)
        e->rename = resource_name(d, &m->value, full);
    else if (str_is(m->key, "devices"))
        config_decode_devices(d, &m->value, full, e);
    else if (str_is(m->key, "replicas"))
        decode_replicas(d, &m->value, full, e);
}

static bool has_key(const struct value *map, const char *key)
{
    return value_get(map, key) != NULL;
}

static void decode_entry(struct decode *d, const struct value *v, const char *path,
                         const char *const *paths, size_t n_paths, struct shared_resource *e)
{
    static const char *const known[] = { "name", "rename", "devices", "replicas" };
    *e = (struct shared_resource){ .all = true, .line = v->line, .column = v->column };
    if (!decode_map(d, v, path))
        return;
    for (size_t i = 0; i < v->n; i++) {
        const struct member *m = &v->members[i];
        bool is_known = false;
        for (size_t k = 0; k < ARRAY_LEN(known); k++)
            is_known = is_known || str_is(m->key, known[k]);
        if (is_known)
            decode_entry_key(d, m, decode_path(d, path, m->key), e);
        else
            decode_unknown_key(d, path, m, paths, n_paths);
    }
    if (!has_key(v, "name"))
        missing(d, v, path, "name", "write the resource that is shared, such as nvidia.com/gpu");
    if (!has_key(v, "replicas"))
        missing(d, v, path, "replicas", "write into how many shares each device is cut");
    if (e->replicas == 1)
        decode_say(d, "config.not-shared", SEVERITY_INFO, v->line, v->column, path,
                   "nothing; leaving the entry out means the same",
                   "replicas: 1 means not shared: the devices are handed out whole%s%s",
                   e->rename ? " as " : ", as ",
                   e->rename ? e->rename
                   : e->name ? e->name
                             : "before");
}

/* The name under which an entry's devices are offered must fit, with the suffix that renaming adds.
 */
static void check_final_name(struct decode *d, const char *path, size_t i,
                             const struct shared_resource *e, bool rename)
{
    if (!e->name || e->rename || !rename || e->replicas < 2)
        return;
    size_t n = strlen(e->name) - (sizeof RESOURCE_PREFIX - 1) + strlen(".shared");
    if (n > RESOURCE_NAME_PART_MAX)
        decode_say(d, "config.resource-name", SEVERITY_ERROR, e->line, e->column,
                   decode_item_path(d, path, i),
                   "choose a shorter name with \"rename\", or switch renameByDefault off",
                   "renameByDefault makes the resource name %s.shared, which has %zu characters "
                   "after the \"/\"; at "
                   "most %d are allowed",
                   e->name, n, RESOURCE_NAME_PART_MAX);
}

static void decode_entries(struct decode *d, const struct value *v, const char *path,
                           const char *const *paths, size_t n_paths, struct sharing *s)
{
    if (!decode_list(d, v, path) || !fits(d, v, path))
        return;
    struct shared_resource *list = decode_array(d, v->n, sizeof *list);
    if (!list)
        return;
    for (size_t i = 0; i < v->n; i++)
        decode_entry(d, &v->items[i], decode_item_path(d, path, i), paths, n_paths, &list[i]);
    for (size_t i = 0; i < v->n; i++)
        check_final_name(d, path, i, &list[i], s->rename_by_default);
    config_check_overlap(d, path, list, v->n);
    s->resources = list;
    s->n_resources = v->n;
}

static void decode_switches(struct decode *d, const struct value *v, const char *path,
                            const char *const *paths, size_t n_paths, struct sharing *s)
{
    for (size_t i = 0; i < v->n; i++) {
        const struct member *m = &v->members[i];
        const char *full = decode_path(d, path, m->key);
        bool is_null = m->value.kind == VALUE_NULL;
        if (str_is(m->key, "renameByDefault")) {
            if (!is_null)
                (void)decode_bool(d, &m->value, full, &s->rename_by_default);
        } else if (str_is(m->key, "failRequestsGreaterThanOne")) {
            if (!is_null)
                (void)decode_bool(d, &m->value, full, &s->fail_requests_greater_than_one);
        } else if (!str_is(m->key, "resources")) {
            decode_unknown_key(d, path, m, paths, n_paths);
        }
    }
}

/* Sharing counts as on when an entry makes several devices of one, or gives devices another name.
 */
static bool does_anything(const struct sharing *s)
{
    for (size_t i = 0; i < s->n_resources; i++)
        if (s->resources[i].replicas > 1 || s->resources[i].rename)
            return true;
    return false;
}

void config_decode_sharing(struct decode *d, const struct value *v, const char *path,
                           const char *const *paths, size_t n_paths, struct plugin_config *c)
{
    bool mps = strcmp(path, "sharing.mps") == 0;
    if (mps && v->kind == VALUE_NULL)
        return; /* as if it were not written */
    if (!decode_map(d, v, path))
        return;
    if (!mps && v->n == 0) {
        decode_say(d, "config.shares-nothing", SEVERITY_WARNING, v->line, v->column, path,
                   "list resources inside it, or remove it",
                   "this section is empty: no resources specified, so nothing "
                   "is shared");
        return;
    }
    /* The peer's default for MPS; time slicing's is false. */
    struct sharing s = { .kind = mps ? SHARING_MPS : SHARING_TIME_SLICING,
                         .fail_requests_greater_than_one = mps };
    const struct value *resources = value_get(v, "resources");
    decode_switches(d, v, path, paths, n_paths, &s);
    if (!resources || resources->kind == VALUE_NULL ||
        (resources->kind == VALUE_LIST && !resources->n))
        decode_say(d, "config.missing-key", SEVERITY_ERROR, resources ? resources->line : v->line,
                   resources ? resources->column : v->column, path,
                   "list at least one resource with name and replicas", "no resources specified");
    else
        decode_entries(d, resources, decode_path(d, path, STR("resources")), paths, n_paths, &s);
    if (c->sharing.n_resources && s.n_resources) {
        decode_say(d, "config.sharing-twice", SEVERITY_ERROR, v->line, v->column, path,
                   "keep one of sharing.timeSlicing and sharing.mps",
                   "sharing.timeSlicing and sharing.mps are both set; they exclude each other");
        return;
    }
    if (!c->sharing.n_resources) {
        c->sharing = s;
        if (!does_anything(&s))
            c->sharing.kind = SHARING_NONE;
    }
}
