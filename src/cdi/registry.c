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
#include "data/yaml.h"

enum { REGISTRY_ARENA = 256 * 1024 * 1024 };

struct load {
    struct cdi_registry *registry;
    struct findings *findings;
    size_t cap, files;
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

static int add_device(struct load *l, const char *kind, const char *path,
                      const struct value *device, const struct value *common, struct error *err)
{
    struct cdi_registry *r = l->registry;
    if (r->n == CDI_DEVICES_MAX)
        return error_set(err, ERR_LIMIT, 0, "more than %d CDI devices", CDI_DEVICES_MAX);
    if (r->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct cdi_found *grown = arena_array(&r->arena, cap, sizeof *grown);
        if (!grown)
            return error_set(err, ERR_LIMIT, 0, "no memory for %zu CDI devices", cap);
        if (r->n)
            memcpy(grown, r->devices, r->n * sizeof *grown);
        r->devices = grown;
        l->cap = cap;
    }
    char *name = arena_printf(&r->arena, "%s=%s", kind, value_text(value_get(device, "name"), ""));
    if (!name)
        return error_set(err, ERR_LIMIT, 0, "no memory for a CDI device's name");
    r->devices[r->n++] = (struct cdi_found){ .name = name,
                                             .file = path,
                                             .priority = l->priority,
                                             .device = value_get(device, "containerEdits"),
                                             .common = common };
    return 0;
}

static int take_file(struct load *l, int dirfd, const char *name, const char *path,
                     struct error *err)
{
    static const struct doc_limits limits = { CDI_READ_MAX, 64, 1000000 };
    auto_free char *text = NULL;
    size_t n = 0;
    struct value *doc = NULL;
    struct error why;
    struct arena *a = &l->registry->arena;
    int r = file_read_at(dirfd, name, CDI_READ_MAX, &text, &n, &why);
    if (r == 0)
        r = yaml_parse(a, (struct str){ text, n }, path, &limits, &doc, &why);
    if (r < 0) {
        left_out(l, path, &why);
        return 0;
    }
    if (cdi_validate(doc, path, l->findings, &why) < 0)
        return 0;
    const char *kind = value_text(value_get(doc, "kind"), "");
    const struct value *devices = value_get(doc, "devices");
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
    return c ? c : (a->priority < b->priority) - (a->priority > b->priority);
}

/* Of each name the highest priority is kept. Unlike the common reader, a conflict below does not
 * hide a single definition above it. */
static void settle(struct load *l)
{
    struct cdi_registry *r = l->registry;
    size_t kept = 0;
    if (r->n)
        qsort(r->devices, r->n, sizeof *r->devices, by_name);
    for (size_t i = 0; i < r->n; i++) {
        struct cdi_found *last = kept ? &r->devices[kept - 1] : NULL;
        if (!last || strcmp(last->name, r->devices[i].name) != 0) {
            r->devices[kept++] = r->devices[i];
        } else if (last->priority == r->devices[i].priority && !last->conflict) {
            last->conflict = true;
            findings_add(l->findings, "cdi.conflict", SEVERITY_ERROR, last->name,
                         "remove one of the two files",
                         "defined by %s and by %s; container engines refuse it", last->file,
                         r->devices[i].file);
        }
    }
    r->n = kept;
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
    if (r < 0) {
        cdi_registry_free(registry);
        return r;
    }
    settle(&l);
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
