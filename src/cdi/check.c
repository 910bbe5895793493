/* SPDX-License-Identifier: Apache-2.0 */
#include "cdi/check.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cdi/driver.h"
#include "cdi/root.h"

enum { LISTED_MAX = 12, SHOWN_MAX = 3 };

struct look {
    const struct cdi_check *c;
    struct findings *findings;
    struct cdi_root root;
    const char *file;
    struct buf missing; /* the first few paths */
    size_t n_missing;
    char stale[64]; /* another driver's version that the file names */
};

/* ---- names ---- */

static struct str kind_of(const char *name)
{
    struct str rest = str_of(name);
    return str_cut(&rest, '=');
}

void cdi_explain(const struct cdi_registry *r, const char *name, struct buf *out)
{
    struct str kind = kind_of(name), before = { 0 };
    size_t listed = 0, same = 0;
    if (!cdi_name_valid(str_of(name))) {
        buf_fmt(out, "\"%s\" is no CDI name; expected vendor/class=device", name);
        return;
    }
    for (size_t i = 0; i < r->n; i++)
        same += str_eq(kind_of(r->devices[i].name), kind);
    if (same > 0)
        buf_fmt(out, "kind %.*s exists, but has no such name; available: ", STR_FMT(kind));
    else
        buf_fmt(out, "no file has the kind %.*s; kinds there are: ", STR_FMT(kind));
    for (size_t i = 0; i < r->n; i++) {
        struct str k = kind_of(r->devices[i].name);
        bool shown = same ? str_eq(k, kind) : !str_eq(k, before);
        before = k;
        if (!shown || listed++ >= LISTED_MAX)
            continue;
        buf_z(out, listed > 1 ? ", " : "");
        buf_str(out, same ? str_of(r->devices[i].name + kind.n + 1) : k);
    }
    if (listed > LISTED_MAX)
        buf_fmt(out, " and %zu more", listed - LISTED_MAX);
    if (listed == 0)
        buf_z(out, "none");
}

static void check_names(const struct cdi_registry *r, const struct cdi_check *c,
                        struct findings *findings)
{
    for (size_t i = 0; i < c->n_names; i++) {
        auto_buf why;
        buf_init(&why, 4096);
        if (cdi_registry_find(r, str_of(c->names[i])))
            continue; /* a conflict was told when the files were read */
        cdi_explain(r, c->names[i], &why);
        findings_add(findings, "cdi.unresolvable", SEVERITY_ERROR, c->names[i],
                     "ask for a name there is, or let the component that owns the kind write its "
                     "file anew",
                     "%s", why.n ? why.p : "");
    }
}

/* ---- what a file names ---- */

static bool on_host(struct look *l, const char *path, struct stat *st)
{
    char real[CDI_PATH_MAX];
    return path[0] == '/' && cdi_root_resolve(&l->root, path, real, st);
}

static void note_missing(struct look *l, const char *path)
{
    if (l->n_missing++ < SHOWN_MAX)
        buf_fmt(&l->missing, "%s%s", l->missing.n ? ", " : "", path);
}

/* "…/libcuda.so.550.163.01": the version says which driver the file was written for. */
static void note_version(struct look *l, const char *path)
{
    static const char *const names[] = { "libcuda.so.", "libnvidia-ml.so." };
    const char *name = path_name(path);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t n = strlen(names[i]);
        if (strncmp(name, names[i], n) == 0 && cdi_is_version(str_of(name + n)) &&
            l->c->driver_version[0] && strcmp(name + n, l->c->driver_version) != 0)
            snprintf(l->stale, sizeof l->stale, "%s", name + n);
    }
}

static void check_mount(struct look *l, const struct value *m)
{
    const char *path = value_text(value_get(m, "hostPath"), "");
    struct stat st;
    note_version(l, path);
    if (!on_host(l, path, &st))
        note_missing(l, path);
}

static bool is_number(const struct value *v, uint32_t is)
{
    return !v || v->kind != VALUE_INT || v->number == is;
}

static void check_node(struct look *l, const struct value *n)
{
    const char *path = value_text(value_get(n, "hostPath"), value_text(value_get(n, "path"), ""));
    const struct value *major_ = value_get(n, "major"), *minor_ = value_get(n, "minor");
    bool complete = major_ && value_get(n, "type");
    struct stat st;
    if (!on_host(l, path, &st)) {
        findings_add(l->findings, "cdi.missing-node", complete ? SEVERITY_WARNING : SEVERITY_ERROR,
                     path, "run nvidia-modprobe, or write the file anew if the gpu is gone",
                     "%s names it, but there is no such node%s", l->file,
                     complete ? "; engines make it from its numbers" : "; containers do not start");
        return;
    }
    if (!S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode)) {
        findings_add(l->findings, "cdi.missing-node", SEVERITY_ERROR, path,
                     "remove the file and make the node anew (nvidia-modprobe)",
                     "%s names it, but it is no device node", l->file);
        return;
    }
    if (!is_number(major_, major(st.st_rdev)) || (major_ && !is_number(minor_, minor(st.st_rdev))))
        findings_add(l->findings, "cdi.node-changed", SEVERITY_ERROR, path,
                     "write the file anew: numbers of nodes change when the driver is loaded again",
                     "%s says %lld:%lld, the node is %u:%u", l->file, (long long)major_->number,
                     (long long)(minor_ ? minor_->number : 0), major(st.st_rdev),
                     minor(st.st_rdev));
}

static void check_hook(struct look *l, const struct value *h)
{
    const char *path = value_text(value_get(h, "path"), "");
    struct stat st;
    bool there = on_host(l, path, &st);
    if (there && S_ISREG(st.st_mode) && (st.st_mode & 0111))
        return;
    findings_add(l->findings, "cdi.missing-hook", SEVERITY_ERROR, path,
                 "install the program there, or write the file with another hook path",
                 "%s calls it, but %s; containers do not start", l->file,
                 there ? "it is no executable file" : "there is no such file");
}

static void each(struct look *l, const struct value *list,
                 void (*one)(struct look *l, const struct value *v))
{
    for (size_t i = 0; list && list->kind == VALUE_LIST && i < list->n; i++)
        one(l, &list->items[i]);
}

static void check_edits(struct look *l, const struct value *edits)
{
    each(l, value_get(edits, "mounts"), check_mount);
    each(l, value_get(edits, "deviceNodes"), check_node);
}

static bool first_with(const struct value *devices, size_t at, const struct value *node)
{
    const char *text = value_text(value_get(node, "path"), "");
    for (size_t i = 0; i < at && i < 256; i++) {
        const struct value *other =
            value_get(value_get(&devices->items[i], "containerEdits"), "deviceNodes");
        for (size_t k = 0; other && other->kind == VALUE_LIST && k < other->n; k++)
            if (strcmp(value_text(value_get(&other->items[k], "path"), ""), text) == 0)
                return false;
    }
    return true;
}

/* A node is looked at once, however many devices of the file have it. */
static void check_devices(struct look *l, const struct value *devices)
{
    for (size_t i = 0; i < devices->n; i++) {
        const struct value *edits = value_get(&devices->items[i], "containerEdits"),
                           *nodes = value_get(edits, "deviceNodes");
        each(l, value_get(edits, "mounts"), check_mount);
        for (size_t k = 0; nodes && nodes->kind == VALUE_LIST && k < nodes->n; k++)
            if (first_with(devices, i, &nodes->items[k]))
                check_node(l, &nodes->items[k]);
    }
}

/* Hooks of one file call the same program again and again: each program once. */
static void check_hooks(struct look *l, const struct value *doc)
{
    const char *before = "";
    const struct value *devices = value_get(doc, "devices");
    for (size_t i = 0; i <= devices->n; i++) {
        const struct value *hooks =
            value_get(value_get(i ? &devices->items[i - 1] : doc, "containerEdits"), "hooks");
        for (size_t k = 0; hooks && hooks->kind == VALUE_LIST && k < hooks->n; k++) {
            const char *path = value_text(value_get(&hooks->items[k], "path"), "");
            if (strcmp(path, before) != 0)
                check_hook(l, &hooks->items[k]);
            before = path;
        }
    }
}

static void check_readers(struct look *l)
{
    struct stat st;
    if (stat(l->file, &st) == 0 && !(st.st_mode & 0004))
        findings_add(l->findings, "cdi.private", SEVERITY_WARNING, l->file, "chmod 0644 the file",
                     "mode is %04o: engines of other users (rootless containers) cannot read it",
                     st.st_mode & 07777);
}

static void check_file(struct look *l, const struct value *doc)
{
    l->n_missing = 0;
    l->stale[0] = '\0';
    buf_reset(&l->missing);
    check_readers(l);
    check_edits(l, value_get(doc, "containerEdits"));
    check_devices(l, value_get(doc, "devices"));
    check_hooks(l, doc);
    if (l->n_missing > 0)
        findings_add(l->findings, "cdi.missing-file", SEVERITY_ERROR, l->file,
                     "write the file anew (mete cdi generate, or restart the component that owns "
                     "it); containers that use it do not start",
                     "%zu of the files it mounts are not on the host: %s%s", l->n_missing,
                     l->missing.n ? l->missing.p : "", l->n_missing > SHOWN_MAX ? ", …" : "");
    if (l->stale[0])
        findings_add(l->findings, "cdi.stale-driver", SEVERITY_ERROR, l->file,
                     "write the file anew: it was made for another driver",
                     "names libraries of driver %s, the loaded kernel module is %s", l->stale,
                     l->c->driver_version);
}

/* ---- shadows, names that engines skip ---- */

static void check_shadows(const struct cdi_registry *r, struct findings *findings)
{
    for (size_t i = 1; i < r->n_all; i++) {
        const struct cdi_found *at = &r->all[i];
        size_t winner = i;
        while (winner > 0 && strcmp(r->all[winner - 1].name, at->name) == 0)
            winner--;
        if (at->shadowed)
            findings_add(findings, "cdi.shadowed", SEVERITY_INFO, at->name,
                         "remove it from the file that does not count, if it is old",
                         "%s counts; the definition in %s is shadowed", r->all[winner].file,
                         at->file);
    }
}

static void check_ignored(const struct cdi_check *c, struct findings *findings)
{
    for (size_t i = 0; i < c->n_dirs; i++) {
        DIR *dir = opendir(c->dirs[i]);
        size_t looked = 0;
        for (struct dirent *e; dir && looked++ < CDI_FILES_MAX && (e = readdir(dir));) {
            if (!str_ends(str_of(e->d_name), ".yml"))
                continue;
            auto_free char *path = x_printf("%s/%s", c->dirs[i], e->d_name);
            findings_add(findings, "cdi.ignored-file", SEVERITY_WARNING, path,
                         "name it .yaml if it should count",
                         "engines read only names that end in .json or .yaml");
        }
        if (dir)
            closedir(dir);
    }
}

int cdi_check(const struct cdi_check *c, struct findings *findings, struct error *err)
{
    struct cdi_registry *r = NULL;
    struct look l = { .c = c, .findings = findings };
    int rc = cdi_root_open(&l.root, c->root[0] ? c->root : "/", err);
    if (rc < 0)
        return rc;
    rc = cdi_registry_load(c->dirs, c->n_dirs, &r, findings, err);
    buf_init(&l.missing, 2048);
    for (size_t i = 0; rc == 0 && i < r->n_files; i++) {
        l.file = r->files[i];
        check_file(&l, r->docs[i]);
    }
    if (rc == 0) {
        check_shadows(r, findings);
        check_ignored(c, findings);
        check_names(r, c, findings);
    }
    buf_done(&l.missing);
    cdi_root_close(&l.root);
    cdi_registry_free(r);
    return rc;
}
