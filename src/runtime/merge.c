/* SPDX-License-Identifier: Apache-2.0 */
/* A container's config with what its CDI devices do to it. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cdi/apply.h"
#include "data/valueedit.h"
#include "runtime/runtime.h"

enum { ARENA_MAX = 512 * 1024 * 1024 };

static bool same(const struct value *a, const struct value *b)
{
    if (a->kind != b->kind || a->n != b->n)
        return false;
    switch (a->kind) {
    case VALUE_NULL:
        return true;
    case VALUE_BOOL:
        return a->boolean == b->boolean;
    case VALUE_INT:
        return a->number == b->number;
    case VALUE_REAL:
    case VALUE_TEXT:
        return str_eq(a->text, b->text);
    case VALUE_LIST:
        for (size_t i = 0; i < a->n; i++)
            if (!same(&a->items[i], &b->items[i]))
                return false;
        return true;
    case VALUE_MAP:
        for (size_t i = 0; i < a->n; i++) {
            const struct value *other = value_get(b, a->members[i].key.p);
            if (!other || !same(&a->members[i].value, other))
                return false;
        }
        return true;
    }
    return false;
}

/* Takes out what is in a list twice, from `from` on. An engine that applied the same CDI devices
 * itself and passed the annotation on would have every hook run twice. */
static void once(struct value *list, size_t from)
{
    size_t kept = from;
    if (!list || list->kind != VALUE_LIST)
        return;
    for (size_t i = from; i < list->n; i++) {
        bool there = false;
        for (size_t k = 0; k < kept && !there; k++)
            there = same(&list->items[k], &list->items[i]);
        if (!there)
            list->items[kept++] = list->items[i];
    }
    list->n = MIN(kept, list->n);
}

static const char *const hook_kinds[] = { "prestart",       "createRuntime", "createContainer",
                                          "startContainer", "poststart",     "poststop" };

struct lengths {
    size_t hooks[ARRAY_LEN(hook_kinds)], rules;
};

static struct value *rules_of(struct value *oci)
{
    return value_edit(value_edit(value_edit(oci, "linux"), "resources"), "devices");
}

static size_t length(const struct value *list)
{
    return list && list->kind == VALUE_LIST ? list->n : 0;
}

static struct lengths lengths_of(struct value *oci)
{
    struct lengths l = { .rules = length(rules_of(oci)) };
    for (size_t i = 0; i < ARRAY_LEN(hook_kinds); i++)
        l.hooks[i] = length(value_edit(value_edit(oci, "hooks"), hook_kinds[i]));
    return l;
}

static void drop_doubles(struct value *oci, const struct lengths *before)
{
    once(rules_of(oci), before->rules);
    for (size_t i = 0; i < ARRAY_LEN(hook_kinds); i++)
        once(value_edit(value_edit(oci, "hooks"), hook_kinds[i]), before->hooks[i]);
}

/* "none": what a kind's file does for every device, and no device. */
static int apply_driver(struct arena *a, struct value *oci, const struct cdi_registry *r,
                        const struct runtime_config *c, const struct cdi_apply_options *o,
                        struct error *err)
{
    static const struct value nothing = { .kind = VALUE_MAP };
    for (size_t k = 0; k < c->kinds.n; k++)
        for (size_t i = 0; i < r->n; i++) {
            struct cdi_found found = r->devices[i];
            size_t n = strlen(c->kinds.items[k]);
            if (strncmp(found.name, c->kinds.items[k], n) != 0 || found.name[n] != '=' ||
                found.conflict)
                continue;
            found.device = &nothing;
            const struct cdi_registry only = { .devices = &found, .n = 1 };
            return cdi_apply(a, oci, &only, &found.name, 1, o, err);
        }
    return error_set(
        err, ERR_NOT_FOUND, 0,
        "NVIDIA_VISIBLE_DEVICES is \"none\", which needs the driver's files, but there "
        "is no CDI file of kind %s",
        c->kinds.n ? c->kinds.items[0] : "(none)");
}

/* Files that were left out may hold what is missing. */
static int explain(const struct findings *f, struct error *err)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->items[i].severity == SEVERITY_ERROR && strncmp(f->items[i].id, "cdi.", 4) == 0 &&
            strcmp(f->items[i].id, "cdi.conflict") != 0) {
            size_t n = strlen(err->text);
            snprintf(err->text + n, sizeof err->text - n, " (left out: %s: %s)",
                     f->items[i].subject, f->items[i].cause);
            break;
        }
    return -(int)err->code;
}

static void tell(struct runtime_outcome *out, const struct runtime_request *q,
                 const struct runtime_texts *names, const char *notes)
{
    size_t at = (size_t)snprintf(out->text, sizeof out->text, "%s:", q->source);
    for (size_t i = 0; i < names->n && at < sizeof out->text; i++)
        at += (size_t)snprintf(out->text + at, sizeof out->text - at, " %s", names->items[i]);
    if (q->driver_only && at < sizeof out->text)
        at += (size_t)snprintf(out->text + at, sizeof out->text - at, " the driver's files only");
    if (notes[0] && at < sizeof out->text)
        snprintf(out->text + at, sizeof out->text - at, "; %s", notes);
}

static int inject(struct arena *a, struct value *oci, const struct runtime_request *q,
                  const struct runtime_config *c, const char *root, struct runtime_outcome *out,
                  struct cdi_registry **ret_registry, struct error *err)
{
    struct findings findings;
    struct runtime_texts names;
    struct error why;
    char notes[160];
    const struct cdi_apply_options o = { .root = root };
    findings_init(&findings, a, 20);
    int r = cdi_registry_load(c->spec_dirs.items, c->spec_dirs.n, ret_registry, &findings, &why);
    const struct cdi_registry *registry = *ret_registry;
    if (r == 0)
        r = runtime_resolve(a, q, c, registry, &names, notes, sizeof notes, &why);
    if (r == -ERR_NOT_FOUND)
        r = explain(&findings, &why);
    const struct lengths before = lengths_of(oci);
    if (r == 0 && q->driver_only)
        r = apply_driver(a, oci, registry, c, &o, &why);
    if (r == 0 && names.n)
        r = cdi_apply(a, oci, registry, names.items, names.n, &o, &why);
    if (r == 0) {
        drop_doubles(oci, &before);
        tell(out, q, &names, notes);
    }
    return r < 0 ? error_set(err, why.code, why.sys, "%s", why.text) : 0;
}

static int change(struct arena *a, struct value *oci, const struct runtime_request *q,
                  const struct runtime_config *c, const char *root, struct buf *out,
                  struct runtime_outcome *outcome, struct error *err)
{
    struct json_writer w;
    struct cdi_registry *registry = NULL;
    int r = inject(a, oci, q, c, root, outcome, &registry, err);
    if (r == 0) {
        jw_init(&w, out, 0);
        jw_value(&w, oci);
    }
    cdi_registry_free(registry); /* what was applied borrows its texts until here */
    return r < 0 ? r : buf_check(out, "the container's changed config.json", err);
}

int runtime_merge(struct str text, const char *name, const struct runtime_config *c,
                  const struct error *why_config, const char *root, struct buf *out,
                  struct runtime_outcome *ret, struct error *err)
{
    static const struct doc_limits limits = { RUNTIME_CONFIG_MAX, 64, 2000000 };
    auto_arena arena;
    struct value *oci;
    struct runtime_request q;
    arena_init(&arena, ARENA_MAX);
    int r = json_parse(&arena, text, name, &limits, &oci, err);
    if (r == 0)
        r = runtime_request_read(&arena, oci, c, &q, err);
    if (r < 0)
        return r;
    if (q.refused)
        snprintf(ret->text, sizeof ret->text,
                 "%s is ignored: the container is not privileged, and "
                 "accept-nvidia-visible-devices-envvar-when-unprivileged is false",
                 q.source);
    if (runtime_request_empty(&q))
        return 0;
    if (why_config)
        return error_set(err, why_config->code, why_config->sys, "%s", why_config->text);
    return change(&arena, oci, &q, c, root, out, ret, err);
}
