/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/configure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/valueedit.h"
#include "runtime/toml.h"

/* ---- helpers of both engines ---- */

static char *seen(const struct runtime_setup *s, const char *path)
{
    return x_printf("%s%s", s->root, path);
}

int configure_read(struct arena *a, const struct runtime_setup *s, const char *path,
                   const char **ret, mode_t *ret_mode, struct error *err)
{
    auto_free char *full = seen(s, path), *text = NULL;
    struct error why;
    struct stat st;
    size_t n;
    *ret = NULL;
    *ret_mode = 0644;
    int r = file_read(full, TOML_BYTES_MAX, &text, &n, &why);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r < 0)
        return error_set(err, why.code, why.sys, "%s", why.text);
    if (memchr(text, '\0', n))
        return error_set(err, ERR_INVALID, 0, "%s holds a NUL byte", path);
    if (stat(full, &st) == 0)
        *ret_mode = st.st_mode & 07777;
    *ret = arena_strdup(a, (struct str){ text, n });
    return *ret ? 0 : error_set(err, ERR_LIMIT, 0, "no memory to read %s", path);
}

int configure_copy(struct arena *a, const struct value *from, struct value *to, struct error *err)
{
    *to = *from;
    if (from->kind != VALUE_MAP)
        return 0; /* lists are replaced whole, never changed in place */
    to->members = NULL;
    to->n = 0;
    return configure_merge(a, to, from, err);
}

int configure_merge(struct arena *a, struct value *to, const struct value *from, struct error *err)
{
    for (size_t i = 0; i < from->n; i++) {
        const struct member *m = &from->members[i];
        struct value *at;
        int r = value_member(a, to, m->key.p, &at, err);
        if (r == 0 && at->kind == VALUE_MAP && m->value.kind == VALUE_MAP)
            r = configure_merge(a, at, &m->value, err);
        else if (r == 0)
            r = configure_copy(a, &m->value, at, err);
        if (r < 0)
            return r;
    }
    return 0;
}

bool configure_same(const struct value *a, const struct value *b)
{
    if (a->kind != b->kind || a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *other = a->kind == VALUE_LIST  ? &b->items[i]
                                    : a->kind == VALUE_MAP ? value_get(b, a->members[i].key.p)
                                                           : NULL;
        const struct value *mine = a->kind == VALUE_LIST ? &a->items[i] : &a->members[i].value;
        if (!other || !configure_same(mine, other))
            return false;
    }
    return a->kind == VALUE_LIST || a->kind == VALUE_MAP || a->kind == VALUE_NULL ||
           (a->kind == VALUE_BOOL  ? a->boolean == b->boolean
            : a->kind == VALUE_INT ? a->number == b->number
                                   : str_eq(a->text, b->text));
}

int configure_add(struct runtime_plan *p, const struct runtime_change *c, struct error *err)
{
    if (c->before && c->after && strcmp(c->before, c->after) == 0)
        return 0;
    if (p->n == RUNTIME_CHANGES_MAX || !c->path)
        return error_set(err, ERR_LIMIT, 0, "no memory for the plan");
    p->changes[p->n++] = *c;
    return 0;
}

/* ---- planning ---- */

static int check_setup(const struct runtime_setup *s, struct error *err)
{
    struct stat st;
    auto_free char *full = seen(s, s->runtime_path);
    struct str name = str_of(s->name);
    for (size_t i = 0; i < name.n; i++)
        if (!(name.p[i] >= 'a' && name.p[i] <= 'z') && !(name.p[i] >= '0' && name.p[i] <= '9') &&
            name.p[i] != '-')
            return error_set(err, ERR_INVALID, 0,
                             "runtime name \"%s\": a RuntimeClass handler has lower-case letters, "
                             "digits and dashes",
                             s->name);
    if (!name.n || strcmp(s->name, "runc") == 0 || strcmp(s->name, "crun") == 0)
        return error_set(err, ERR_INVALID, 0, "runtime name \"%s\": choose another, such as nvidia",
                         s->name);
    if (s->runtime_path[0] != '/')
        return error_set(err, ERR_INVALID, 0, "runtime path \"%s\": expected a path from the root",
                         s->runtime_path);
    if (stat(full, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & 0111))
        return error_set(err, ERR_NOT_FOUND, 0,
                         "%s is no program on this host; install mete-runtime there, or name it "
                         "with --runtime-path",
                         s->runtime_path);
    return 0;
}

int runtime_plan_make(struct arena *a, const struct runtime_setup *s, struct runtime_plan *ret,
                      struct findings *notes, struct error *err)
{
    *ret = (struct runtime_plan){ 0 };
    int r = check_setup(s, err);
    if (r < 0)
        return r;
    return s->engine == ENGINE_CONTAINERD ? containerd_plan(a, s, ret, notes, err)
                                          : crio_plan(a, s, ret, notes, err);
}

/* ---- taking back ---- */

const char *configure_main(const struct runtime_setup *s)
{
    return s->config                        ? s->config
           : s->engine == ENGINE_CONTAINERD ? "/etc/containerd/config.toml"
                                            : "/etc/crio/crio.conf";
}

static const char *drop_in_dir(const struct runtime_setup *s)
{
    return s->drop_in_dir                   ? s->drop_in_dir
           : s->engine == ENGINE_CONTAINERD ? "/etc/containerd/conf.d"
                                            : "/etc/crio/crio.conf.d";
}

/* The last name of all: later files win. */
const char *configure_drop_in(struct arena *a, const struct runtime_setup *s)
{
    return arena_printf(a, "%s/zz-mete-%s.%s", drop_in_dir(s), s->name,
                        s->engine == ENGINE_CONTAINERD ? "toml" : "conf");
}

const char *configure_pattern(struct arena *a, const struct runtime_setup *s)
{
    return arena_printf(a, "%s/*.toml", drop_in_dir(s));
}

/* The engine's own file goes back to its backup when it is still what was written then. */
static int undo_main(struct arena *a, const struct runtime_setup *s, struct runtime_plan *p,
                     struct findings *notes, struct error *err)
{
    const char *path = configure_main(s), *now, *old, *written = NULL;
    const char *backup = arena_printf(a, "%s." RUNTIME_BACKUP, path);
    mode_t mode, ignored;
    int r = configure_read(a, s, path, &now, &mode, err);
    if (r == 0)
        r = configure_read(a, s, backup, &old, &ignored, err);
    if (r < 0 || !now || !old)
        return r;
    struct error why;
    /* An empty backup stands for a file that was not there. */
    if (containerd_import(a, path, old, configure_pattern(a, s), &written, &why) < 0 || !written ||
        strcmp(written, now) != 0) {
        findings_add(notes, "runtime.changed-since", SEVERITY_WARNING, path,
                     "take the import out by hand if nothing else needs it",
                     "%s was changed after the import was added and is left as it is; what it was "
                     "before is in %s",
                     path, backup);
        return 0;
    }
    const struct runtime_change restore = { path, now, old[0] ? old : NULL, mode },
                                forget = { backup, old, NULL, ignored };
    r = configure_add(p, &restore, err);
    return r < 0 ? r : configure_add(p, &forget, err);
}

int runtime_plan_undo(struct arena *a, const struct runtime_setup *s, struct runtime_plan *ret,
                      struct findings *notes, struct error *err)
{
    struct runtime_change drop_in = { .path = configure_drop_in(a, s) };
    *ret = (struct runtime_plan){ 0 };
    int r = s->engine == ENGINE_CONTAINERD ? undo_main(a, s, ret, notes, err) : 0;
    if (r == 0 && !drop_in.path)
        r = error_set(err, ERR_LIMIT, 0, "no memory for the plan");
    if (r == 0)
        r = configure_read(a, s, drop_in.path, &drop_in.before, &drop_in.mode, err);
    return r < 0 || !drop_in.before ? r : configure_add(ret, &drop_in, err);
}

/* ---- writing ---- */

static int put(const struct host *h, const struct runtime_setup *s, const char *path,
               const char *text, mode_t mode, struct error *err)
{
    auto_free char *full = seen(s, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    int r = text ? dir_make(full, 0755, err) : 0;
    auto_close int dirfd = r == 0 ? open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (r < 0)
        return r;
    if (dirfd < 0)
        return error_errno(err, errno, "open %s", full);
    return text ? file_replace(h, dirfd, slash + 1, str_of(text), mode, FILE_SYNC_ALL, err)
                : file_remove(h, dirfd, slash + 1, FILE_SYNC_ALL, err);
}

static int back_up(const struct host *h, const struct runtime_setup *s,
                   const struct runtime_change *c, struct error *err)
{
    auto_free char *path = x_printf("%s." RUNTIME_BACKUP, c->path), *full = seen(s, path);
    if (strcmp(c->path, configure_main(s)) != 0 || !c->after || file_exists(full))
        return 0;
    return put(h, s, path, c->before ? c->before : "", c->mode, err);
}

int runtime_plan_write(const struct host *h, const struct runtime_setup *s,
                       const struct runtime_plan *p, struct error *err)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct runtime_change *c = &p->changes[i];
        int r = back_up(h, s, c, err);
        if (r == 0)
            r = put(h, s, c->path, c->after, c->mode, err);
        if (r == 0)
            continue;
        struct error ignored;
        for (size_t k = i; k-- > 0;)
            if (put(h, s, p->changes[k].path, p->changes[k].before, p->changes[k].mode, &ignored) <
                0)
                return error_wrap(err, "%s could not be put back (%s)", p->changes[k].path,
                                  ignored.text);
        return r;
    }
    return 0;
}

/* ---- showing ---- */

static void print_lines(struct buf *out, char mark, const char *from, const char *to)
{
    while (from < to) {
        size_t n = strcspn(from, "\n");
        n = MIN(n, (size_t)(to - from));
        buf_fmt(out, "%c%.*s\n", mark, (int)n, from);
        from += n + (from + n < to);
    }
}

static size_t line_length(const char *p)
{
    size_t n = strcspn(p, "\n");
    return n + (p[n] == '\n');
}

/* The start of the line that ends before `end`. */
static const char *line_before(const char *start, const char *end)
{
    const char *p = end - 1;
    while (p > start && p[-1] != '\n')
        p--;
    return p;
}

/* Lines alike at both ends are left out. */
static void print_change(struct buf *out, const char *before, const char *after)
{
    for (size_t n = line_length(before);
         n && n == line_length(after) && memcmp(before, after, n) == 0; n = line_length(before)) {
        before += n;
        after += n;
    }
    const char *b = before + strlen(before), *e = after + strlen(after);
    while (b > before && e > after) {
        const char *x = line_before(before, b), *y = line_before(after, e);
        if (b - x != e - y || memcmp(x, y, (size_t)(b - x)) != 0)
            break;
        b = x;
        e = y;
    }
    print_lines(out, '-', before, b);
    print_lines(out, '+', after, e);
}

void runtime_plan_print(const struct runtime_plan *p, struct buf *out)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct runtime_change *c = &p->changes[i];
        buf_fmt(out, "%s%s:\n", c->path, !c->before ? " (new)" : !c->after ? " (removed)" : "");
        print_change(out, c->before ? c->before : "", c->after ? c->after : "");
    }
}
