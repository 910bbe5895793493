/* SPDX-License-Identifier: Apache-2.0 */
/* The bundle: config.json read, changed, and written in one step or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cdi/apply.h"
#include "data/valueedit.h"
#include "runtime/runtime.h"

enum { ARENA_MAX = 512 * 1024 * 1024 };

/* ---- reading ---- */

struct bundle {
    const char *path, *name;
    int dirfd;
    struct stat st;
    char *text;
    size_t n;
};

static void bundle_done(struct bundle *b)
{
    if (b->dirfd >= 0)
        close(b->dirfd);
    free(b->text);
}

static int read_text(struct bundle *b, int fd, struct error *err)
{
    size_t size = (size_t)b->st.st_size;
    b->text = try_alloc(size + 1);
    if (!b->text)
        return error_set(err, ERR_LIMIT, 0, "no memory for %zu bytes of %s/%s", size, b->path,
                         b->name);
    while (b->n < size) {
        ssize_t got = read(fd, b->text + b->n, size - b->n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, errno, "read %s/%s", b->path, b->name);
        if (got == 0)
            break;
        b->n += (size_t)got;
    }
    return 0;
}

/* *ret_there is false when there is nothing that could be read: the real runtime says so. */
static int bundle_read(struct bundle *b, bool *ret_there, struct error *err)
{
    *ret_there = false;
    b->dirfd = open(b->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->dirfd < 0)
        return 0;
    auto_close int fd =
        openat(b->dirfd, b->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        return error_set(err, ERR_INVALID, 0, "%s/%s is a link, expected a file", b->path, b->name);
    if (fd < 0)
        return 0;
    if (fstat(fd, &b->st) < 0)
        return error_errno(err, errno, "stat %s/%s", b->path, b->name);
    if (!S_ISREG(b->st.st_mode))
        return error_set(err, ERR_INVALID, 0, "%s/%s is no regular file", b->path, b->name);
    if (b->st.st_size > RUNTIME_CONFIG_MAX)
        return error_set(err, ERR_LIMIT, 0, "%s/%s has %lld bytes, at most %d are read", b->path,
                         b->name, (long long)b->st.st_size, RUNTIME_CONFIG_MAX);
    *ret_there = true;
    return read_text(b, fd, err);
}

/* ---- changing ---- */

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

/* ---- writing ---- */

static int write_all(int fd, struct str text)
{
    while (text.n) {
        ssize_t n = write(fd, text.p, text.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        text.p += n;
        text.n -= (size_t)n;
    }
    return 0;
}

/* The bundle lies on a file system in memory and is made anew after a crash: no fsync. */
static int bundle_write(const struct bundle *b, struct str text, struct error *err)
{
    char temp[64];
    uint64_t salt;
    if (getrandom(&salt, sizeof salt, 0) != (ssize_t)sizeof salt)
        return error_errno(err, errno, "get random bytes");
    snprintf(temp, sizeof temp, ".config.%016llx", (unsigned long long)salt);
    auto_close int fd =
        openat(b->dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, errno, "make %s/%s", b->path, temp);
    int r = write_all(fd, text);
    if (r == 0 && fchown(fd, b->st.st_uid, b->st.st_gid) < 0 &&
        (b->st.st_uid != geteuid() || b->st.st_gid != getegid()))
        r = -errno;
    if (r == 0 && fchmod(fd, b->st.st_mode & 07777) < 0)
        r = -errno;
    if (r == 0 && renameat(b->dirfd, temp, b->dirfd, b->name) < 0)
        r = -errno;
    if (r == 0)
        return 0;
    unlinkat(b->dirfd, temp, 0);
    return error_errno(err, -r, "write %s/%s", b->path, b->name);
}

static int change(struct arena *a, const struct bundle *b, struct value *oci,
                  const struct runtime_request *q, const struct runtime_config *c, const char *root,
                  struct runtime_outcome *out, struct error *err)
{
    auto_buf text;
    struct json_writer w;
    struct cdi_registry *registry = NULL;
    buf_init(&text, RUNTIME_CONFIG_MAX);
    int r = inject(a, oci, q, c, root, out, &registry, err);
    if (r == 0) {
        jw_init(&w, &text, 0);
        jw_value(&w, oci);
    }
    cdi_registry_free(registry); /* what was applied borrows its texts until here */
    if (r == 0)
        r = buf_check(&text, "the container's changed config.json", err);
    if (r == 0)
        r = bundle_write(b, buf_view(&text), err);
    out->written = r == 0;
    return r;
}

static int look(const struct bundle *b, const struct runtime_config *c,
                const struct error *why_config, const char *root, struct runtime_outcome *out,
                struct error *err)
{
    static const struct doc_limits limits = { RUNTIME_CONFIG_MAX, 64, 2000000 };
    auto_arena arena;
    struct value *oci;
    struct runtime_request q;
    arena_init(&arena, ARENA_MAX);
    int r = json_parse(&arena, (struct str){ b->text, b->n }, b->name, &limits, &oci, err);
    if (r == 0)
        r = runtime_request_read(&arena, oci, c, &q, err);
    if (r < 0)
        return error_wrap(err, "bundle %s", b->path);
    if (q.refused)
        snprintf(out->text, sizeof out->text,
                 "%s is ignored: the container is not privileged, and "
                 "accept-nvidia-visible-devices-envvar-when-unprivileged is false",
                 q.source);
    if (runtime_request_empty(&q))
        return 0;
    if (why_config)
        return error_set(err, why_config->code, why_config->sys, "%s", why_config->text);
    return change(&arena, b, oci, &q, c, root, out, err);
}

int runtime_prepare(const char *bundle, const char *config_name, const struct runtime_config *c,
                    const struct error *why_config, const char *root, struct runtime_outcome *ret,
                    struct error *err)
{
    struct bundle b = { .path = bundle, .name = config_name, .dirfd = -1 };
    bool there = false;
    *ret = (struct runtime_outcome){ 0 };
    int r = bundle_read(&b, &there, err);
    if (r == 0 && there && runtime_may_ask((struct str){ b.text, b.n }, c))
        r = look(&b, c, why_config, root, ret, err);
    bundle_done(&b);
    return r;
}
