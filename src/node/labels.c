/* SPDX-License-Identifier: Apache-2.0 */
/* The set of labels, what makes a text a legal value, and the labels of the node as a whole. */
#include "node/labels.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/kname.h"
#include "node/labels_private.h"

enum { ARENA_MAX = 8 * 1024 * 1024, NOTES_MAX = 64, FABRIC_COMPLETED = 3 };

/* ---- the set ---- */

static void add(struct label_draft *d, struct label l)
{
    if (!l.key || d->no_memory) {
        d->no_memory = true;
        return;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 64;
        struct draft_label *items = arena_array(&d->out->arena, cap, sizeof *items);
        if (!items) {
            d->no_memory = true;
            return;
        }
        if (d->n)
            memcpy(items, d->items, d->n * sizeof *items);
        d->items = items;
        d->cap = cap;
    }
    d->items[d->n] = (struct draft_label){ l, d->n };
    d->n++;
}

void label_put(struct label_draft *d, const char *key, const char *fmt, ...)
{
    char text[LABEL_VALUE_MAX + 1];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *value = arena_strdup(&d->out->arena, str_of(text));
    d->no_memory = d->no_memory || !value;
    add(d, (struct label){ .key = key, .value = value });
}

void label_drop(struct label_draft *d, const char *key)
{
    add(d, (struct label){ .key = key });
}

const char *label_key(struct label_draft *d, const char *prefix, const char *name)
{
    return arena_printf(&d->out->arena, "%s.%s", prefix, name);
}

void label_note(struct label_draft *d, const char *id, enum severity severity, const char *subject,
                const char *fix, const char *fmt, ...)
{
    char cause[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
    findings_add(&d->out->notes, id, severity, subject, fix, "%s", cause);
}

/* ---- legal values ---- */

static bool alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

char *label_clean(struct label_draft *d, const char *text)
{
    char *clean = arena_strdup(&d->out->arena, str_of(text));
    size_t n = 0;
    bool blank = false;
    for (const char *c = text; clean && *c; c++) {
        if (*c == ' ') {
            if (!blank)
                clean[n++] = '-';
            blank = true;
        } else if (alnum(*c) || strchr("-_.", *c)) {
            clean[n++] = *c;
            blank = false;
        }
    }
    if (clean)
        clean[n] = '\0';
    return clean;
}

/* How much of text is left when neither end is anything but a letter or a digit. */
static struct str trimmed(struct str s)
{
    while (s.n && !alnum(s.p[0]))
        s = (struct str){ s.p + 1, s.n - 1 };
    while (s.n && !alnum(s.p[s.n - 1]))
        s.n--;
    return s;
}

void label_put_text(struct label_draft *d, const char *key, const char *text, const char *suffix)
{
    struct arena *a = &d->out->arena;
    char *clean = label_clean(d, text);
    char *whole = clean ? arena_printf(a, "%s%s", clean, suffix) : NULL;
    size_t n_suffix = strlen(suffix);
    if (!whole || !key) {
        d->no_memory = true;
        return;
    }
    struct str value = trimmed(str_of(whole));
    if (value.n <= LABEL_VALUE_MAX) {
        add(d, (struct label){ .key = key, .value = arena_strdup(a, value) });
        return;
    }
    /* The end says what kind of device it is; what gives way is the end of the model's name. */
    size_t room = n_suffix < LABEL_VALUE_MAX ? LABEL_VALUE_MAX - n_suffix : 0;
    struct str head = trimmed((struct str){ clean, MIN(strlen(clean), room) });
    const char *cut = arena_printf(a, "%.*s%s", STR_FMT(head), room ? suffix : "");
    if (!room)
        cut = arena_strdup(a, trimmed((struct str){ clean, MIN(strlen(clean), 63u) }));
    add(d, (struct label){ .key = key, .value = cut, .full = whole });
    d->no_memory = d->no_memory || !cut;
    label_note(d, "labels.shortened", SEVERITY_INFO, key,
               "nothing; `mete labels -o json` shows the whole text",
               "\"%s\" has %zu characters, a label value may have %d: it is \"%s\"", whole,
               strlen(whole), LABEL_VALUE_MAX, cut ? cut : "");
}

static int by_key(const void *a, const void *b)
{
    const struct draft_label *x = a, *y = b;
    int r = strcmp(x->label.key, y->label.key);
    return r ? r : x->order < y->order ? -1 : 1;
}

/* A last look: one label that the API server refuses would take all others with it. */
static bool legal(struct label_draft *d, const struct label *l)
{
    struct error err;
    if (kname_qualified(str_of(l->key), &err) == 0 &&
        kname_label_value(str_of(l->value), &err) == 0)
        return true;
    label_note(d, "labels.left-out", SEVERITY_WARNING, l->key, "report it", "%s", err.text);
    return false;
}

static void settle(struct label_draft *d)
{
    struct labels *out = d->out;
    if (d->n)
        qsort(d->items, d->n, sizeof *d->items, by_key);
    out->items = arena_array(&out->arena, d->n + 1, sizeof *out->items);
    if (!out->items) {
        d->no_memory = true;
        return;
    }
    for (size_t i = 0; i < d->n; i++) {
        bool last = i + 1 == d->n || strcmp(d->items[i].label.key, d->items[i + 1].label.key) != 0;
        if (last && d->items[i].label.value && legal(d, &d->items[i].label))
            out->items[out->n++] = d->items[i].label;
    }
}

/* ---- the node ---- */

static void add_timestamp(struct label_draft *d)
{
    if (d->in->timestamp >= 0)
        label_put(d, "nvidia.com/gfd.timestamp", "%lld", (long long)d->in->timestamp);
}

static void add_machine(struct label_draft *d)
{
    const struct label_facts *f = d->in->facts;
    if (f->machine_text[0])
        label_note(d, "labels.machine-unknown", SEVERITY_INFO,
                   "nvidia.com/gpu.machine is \"unknown\"",
                   "name a readable file with --machine-type-file, or \"\" for none", "%s",
                   f->machine_text);
    const char *clean = label_clean(d, f->machine);
    bool empty = !clean || trimmed(str_of(clean)).n == 0;
    label_put_text(d, "nvidia.com/gpu.machine", empty ? "unknown" : f->machine, "");
}

static void add_driver_version(struct label_draft *d)
{
    const char *version = d->in->survey->driver_version;
    struct str rest = str_of(version), part[3] = { { NULL, 0 } };
    size_t n = 0;
    while (rest.p && n < 3)
        part[n++] = str_cut(&rest, '.');
    if (!version[0])
        return;
    label_put_text(d, "nvidia.com/cuda.driver-version.full", version, "");
    if (n < 2 || rest.p) {
        label_note(d, "labels.driver-version", SEVERITY_WARNING, "nvidia.com/cuda.driver-version",
                   "nothing; the labels for its parts are left out",
                   "the driver's version \"%s\" is not of the form X.Y or X.Y.Z", version);
        return;
    }
    static const struct {
        const char *key;
        size_t part;
    } rows[] = {
        { "nvidia.com/cuda.driver.major", 0 },
        { "nvidia.com/cuda.driver.minor", 1 },
        { "nvidia.com/cuda.driver.rev", 2 },
        { "nvidia.com/cuda.driver-version.major", 0 },
        { "nvidia.com/cuda.driver-version.minor", 1 },
        { "nvidia.com/cuda.driver-version.revision", 2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[sizeof d->in->survey->driver_version];
        snprintf(text, sizeof text, "%.*s", STR_FMT(part[rows[i].part]));
        label_put_text(d, rows[i].key, text, "");
    }
}

static void add_cuda_version(struct label_draft *d)
{
    int v = d->in->survey->cuda_version, major = v / 1000, minor = v % 1000 / 10;
    if (v <= 0)
        return;
    label_put(d, "nvidia.com/cuda.runtime.major", "%d", major);
    label_put(d, "nvidia.com/cuda.runtime.minor", "%d", minor);
    label_put(d, "nvidia.com/cuda.runtime-version.major", "%d", major);
    label_put(d, "nvidia.com/cuda.runtime-version.minor", "%d", minor);
    label_put(d, "nvidia.com/cuda.runtime-version.full", "%d.%d", major, minor);
}

static void add_vgpu(struct label_draft *d)
{
    const struct label_facts *f = d->in->facts;
    if (f->vgpu_text[0])
        label_note(d, "labels.vgpu-unknown", SEVERITY_INFO, "nvidia.com/vgpu",
                   "run it privileged (CAP_SYS_ADMIN) where gpus may be virtual", "%s",
                   f->vgpu_text);
    if (f->vgpu == VGPU_UNKNOWN)
        return;
    label_put(d, "nvidia.com/vgpu.present", "%s", f->vgpu == VGPU_GUEST ? "true" : "false");
    if (f->vgpu != VGPU_GUEST)
        return;
    if (f->vgpu_version[0])
        label_put_text(d, "nvidia.com/vgpu.host-driver-version", f->vgpu_version, "");
    if (f->vgpu_branch[0])
        label_put_text(d, "nvidia.com/vgpu.host-driver-branch", f->vgpu_branch, "");
}

/* ---- the whole ---- */

static void choose_gpus(struct label_draft *d)
{
    const struct survey *s = d->in->survey;
    d->gpus = arena_array(&d->out->arena, s->n_gpus + 1, sizeof *d->gpus);
    if (!d->gpus) {
        d->no_memory = true;
        return;
    }
    for (size_t i = 0; i < s->n_gpus && i < SURVEY_GPUS_MAX; i++) {
        const struct gpu *g = &s->gpus[i];
        char subject[UUID_TEXT_SIZE + 32];
        bool display =
            strcmp(g->name, "DGX Display") == 0 || strcmp(g->name, "NVIDIA DGX Display") == 0;
        if (display)
            continue;
        if (g->name[0]) {
            d->gpus[d->n_gpus++] = g;
            continue;
        }
        snprintf(subject, sizeof subject, "gpu %u (%s)", g->index,
                 g->uuid[0] ? g->uuid : "uuid not known");
        label_note(d, "labels.gpu-unknown", SEVERITY_WARNING, subject,
                   "reset the gpu or reboot the node",
                   "its model is not known, so it is in no label: %s",
                   g->lost ? g->lost_text : "the driver tells no name");
    }
}

static void build(struct label_draft *d)
{
    choose_gpus(d);
    add_timestamp(d);
    add_vgpu(d);
    bool none = d->n_gpus == 0 && d->in->survey->driver != DRIVER_OK;
    if (d->in->survey->n_gpus == 0 || none || d->no_memory)
        return;
    add_machine(d);
    add_driver_version(d);
    add_cuda_version(d);
    labels_add_gpus(d);
    labels_add_parts(d);
}

int labels_build(const struct label_input *in, struct labels **ret, struct error *err)
{
    struct labels *l = x_alloc(sizeof *l);
    struct label_draft d = { .in = in, .out = l };
    arena_init(&l->arena, ARENA_MAX);
    findings_init(&l->notes, &l->arena, NOTES_MAX);
    build(&d);
    if (!d.no_memory)
        settle(&d);
    if (d.no_memory) {
        labels_free(l);
        return error_set(err, ERR_LIMIT, 0, "the node's labels need more memory than we allow");
    }
    *ret = l;
    return 0;
}

void labels_free(struct labels *l)
{
    if (!l)
        return;
    arena_done(&l->arena);
    free(l);
}

const char *labels_get(const struct labels *l, const char *key)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i].key, key) == 0)
            return l->items[i].value;
    return NULL;
}

void labels_text(const struct labels *l, struct buf *out)
{
    for (size_t i = 0; i < l->n; i++)
        buf_fmt(out, "%s=%s\n", l->items[i].key, l->items[i].value);
}

void labels_notes_text(const struct labels *l, struct buf *out)
{
    for (size_t i = 0; i < l->notes.n; i++)
        buf_fmt(out, "%s %s %s\n", l->notes.items[i].id, l->notes.items[i].subject,
                l->notes.items[i].cause);
}

bool labels_unsettled(const struct survey *s)
{
    for (size_t i = 0; i < s->n_gpus; i++)
        if (!s->gpus[i].lost && s->gpus[i].valid & GPU_HAS_FABRIC &&
            s->gpus[i].fabric_state != FABRIC_COMPLETED)
            return true;
    return false;
}
