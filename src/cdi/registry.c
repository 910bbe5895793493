/* SPDX-License-Identifier: Apache-2.0 */
#include "cdi/registry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cdi/list.h"
#include "data/yaml.h"

enum { REGISTRY_ARENA = 256 * 1024 * 1024 };

struct load {
    struct cdi_registry *registry;
    struct findings *findings;
    size_t files;
    bool full;
    uint32_t priority;
};

static bool is_spec_name(const char *name)
{
    struct str s = str_of(name);
    return name[0] != '.' && (str_ends(s, ".json") || str_ends(s, ".yaml"));
}

static void left_out(struct load *l, const char *path, const struct error *err)
{
    findings_add(l->findings, "cdi.unreadable", SEVERITY_ERROR, path, "correct or remove the file",
                 "%s", err->text);
}

static int no_room(struct error *err)
{
    return error_set(err, ERR_LIMIT, 0,
                     "the CDI files need more than %d bytes, or hold more than "
                     "%d devices",
                     REGISTRY_ARENA, CDI_DEVICES_MAX);
}

static int add_device(struct load *l, const char *kind, const char *path,
                      const struct value *device, const struct value *common, struct error *err)
{
    struct cdi_registry *r = l->registry;
    struct cdi_found *at = CDI_PUSH(&r->arena, &l->full, CDI_DEVICES_MAX, r->all, r->n_all);
    char *name = arena_printf(&r->arena, "%s=%s", kind, value_text(value_get(device, "name"), ""));
    if (!at || !name)
        return no_room(err);
    *at = (struct cdi_found){ .name = name,
                              .file = path,
                              .priority = l->priority,
                              .device = value_get(device, "containerEdits"),
                              .common = common };
    return 0;
}

static int add_file(struct load *l, const char *path, const struct value *doc, struct error *err)
{
    struct cdi_registry *r = l->registry;
    size_t n = r->n_files;
    const char **file = CDI_PUSH(&r->arena, &l->full, CDI_DEVICES_MAX, r->files, n);
    const struct value **at = CDI_PUSH(&r->arena, &l->full, CDI_DEVICES_MAX, r->docs, r->n_files);
    if (!file || !at)
        return no_room(err);
    *file = path;
    *at = doc;
    return 0;
}

/* JSON is YAML, but its own reader is many times faster: a container start waits for it. */
static int parse(struct arena *a, struct str text, const char *path, struct value **ret,
                 struct error *err)
{
    static const struct doc_limits limits = { CDI_READ_MAX, 64, 1000000 };
    struct error ignored;
    if (str_starts(str_trim(text), "{") && json_parse(a, text, path, &limits, ret, &ignored) == 0)
        return 0;
    return yaml_parse(a, text, path, &limits, ret, err);
}

static int take_file(struct load *l, int dirfd, const char *name, const char *path,
                     struct error *err)
{
    auto_free char *text = NULL;
    size_t n = 0;
    struct value *doc = NULL;
    struct error why;
    struct arena *a = &l->registry->arena;
    int r = file_read_at(dirfd, name, CDI_READ_MAX, &text, &n, &why);
    if (r == 0)
        r = parse(a, (struct str){ text, n }, path, &doc, &why);
    if (r < 0) {
        left_out(l, path, &why);
        return 0;
    }
    if (cdi_validate(doc, path, l->findings, &why) < 0)
        return 0;
    const char *kind = value_text(value_get(doc, "kind"), "");
    const struct value *devices = value_get(doc, "devices");
    r = add_file(l, path, doc, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < devices->n; i++) {
        r = add_device(l, kind, path, &devices->items[i], value_get(doc, "containerEdits"), err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int take_dir(struct load *l, const char *dir, struct error *err)
{
    auto_close int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0) {
        struct error why;
        if (errno != ENOENT) {
            (void)error_errno(&why, errno, "open");
            left_out(l, dir, &why);
        }
        return 0;
    }
    struct dirent **names = NULL;
    int n = scandirat(dirfd, ".", &names, NULL, alphasort), r = 0;
    for (int i = 0; i < n; i++) {
        bool wanted = r == 0 && is_spec_name(names[i]->d_name);
        if (wanted && l->files++ >= CDI_FILES_MAX)
            r = error_set(err, ERR_LIMIT, 0,
                          "more than %d CDI files, the last one looked at is in %s", CDI_FILES_MAX,
                          dir);
        char *path = wanted && r == 0
                         ? arena_printf(&l->registry->arena, "%s/%s", dir, names[i]->d_name)
                         : NULL;
        if (wanted && r == 0 && !path)
            r = no_room(err);
        if (path)
            r = take_file(l, dirfd, names[i]->d_name, path, err);
        free(names[i]);
    }
    free(names);
    return r;
}

static int by_name(const void *pa, const void *pb)
{
    const struct cdi_found *a = pa, *b = pb;
    int c = strcmp(a->name, b->name);
    if (c == 0)
        c = (a->priority < b->priority) - (a->priority > b->priority);
    return c ? c : strcmp(a->file, b->file);
}

static void conflict(struct load *l, struct cdi_found *a, struct cdi_found *b)
{
    if (!a->conflict)
        findings_add(l->findings, "cdi.conflict", SEVERITY_ERROR, a->name,
                     "remove one of the two files",
                     "defined by %s and by %s; container engines refuse it", a->file, b->file);
    a->conflict = b->conflict = true;
}

/* Of each name the highest priority is kept. */
static int settle(struct load *l, struct error *err)
{
    struct cdi_registry *r = l->registry;
    if (r->n_all == 0)
        return 0;
    qsort(r->all, r->n_all, sizeof *r->all, by_name);
    r->devices = arena_array(&r->arena, r->n_all, sizeof *r->devices);
    if (!r->devices)
        return no_room(err);
    for (size_t i = 1; i < r->n_all; i++) {
        struct cdi_found *before = &r->all[i - 1], *at = &r->all[i];
        if (strcmp(before->name, at->name) != 0)
            continue;
        at->shadowed = before->shadowed || before->priority != at->priority;
        if (before->priority == at->priority)
            conflict(l, before, at);
    }
    for (size_t i = 0; i < r->n_all; i++)
        if (i == 0 || strcmp(r->all[i - 1].name, r->all[i].name) != 0)
            r->devices[r->n++] = r->all[i];
    return 0;
}

int cdi_registry_load(const char *const *dirs, size_t n_dirs, struct cdi_registry **ret,
                      struct findings *findings, struct error *err)
{
    struct cdi_registry *registry = x_alloc(sizeof *registry);
    struct load l = { .registry = registry, .findings = findings };
    arena_init(&registry->arena, REGISTRY_ARENA);
    int r = 0;
    for (size_t i = 0; r == 0 && i < n_dirs; i++) {
        l.priority = (uint32_t)i;
        r = take_dir(&l, dirs[i], err);
    }
    if (r == 0)
        r = settle(&l, err);
    if (r < 0) {
        cdi_registry_free(registry);
        return r;
    }
    *ret = registry;
    return 0;
}

void cdi_registry_free(struct cdi_registry *r)
{
    if (!r)
        return;
    arena_done(&r->arena);
    free(r);
}

const struct cdi_found *cdi_registry_find(const struct cdi_registry *r, struct str name)
{
    size_t lo = 0, hi = r->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = str_cmp(str_of(r->devices[mid].name), name);
        if (c == 0)
            return &r->devices[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
