/* SPDX-License-Identifier: Apache-2.0 */
#include "cdi/apply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/mem.h"
#include "data/valueedit.h"

enum { NAMES_MAX = 4096 };

struct apply {
    struct arena *arena;
    struct value *oci;
    const struct cdi_apply_options *options;
    const char *device; /* for messages */
};

/* ---- env ---- */

static bool same_variable(const struct value *item, void *arg)
{
    const struct str *name = arg;
    return item->kind == VALUE_TEXT && item->text.n > name->n && item->text.p[name->n] == '=' &&
           memcmp(item->text.p, name->p, name->n) == 0;
}

static int apply_env(struct apply *p, const struct value *edits, struct error *err)
{
    const struct value *add = value_get(edits, "env");
    struct value *process, *env;
    if (!add || add->n == 0)
        return 0;
    int r = value_submap(p->arena, p->oci, "process", &process, err);
    if (r == 0)
        r = value_sublist(p->arena, process, "env", &env, err);
    for (size_t i = 0; r == 0 && i < add->n; i++) {
        struct str rest = add->items[i].text, name = str_cut(&rest, '=');
        value_remove_if(env, same_variable, &name);
        r = value_append(p->arena, env, &add->items[i], err);
    }
    return r;
}

/* ---- device nodes ---- */

static bool same_path(const struct value *item, void *arg)
{
    return strcmp(value_text(value_get(item, "path"), ""), arg) == 0;
}

static int put(struct apply *p, struct value *map, const char *key, struct value v,
               struct error *err)
{
    struct value *at;
    int r = value_member(p->arena, map, key, &at, err);
    if (r == 0)
        *at = v;
    return r;
}

static int put_copy(struct apply *p, struct value *map, const char *key, const struct value *from,
                    struct error *err)
{
    const struct value *v = value_get(from, key);
    return v && v->kind != VALUE_NULL ? put(p, map, key, *v, err) : 0;
}

struct numbers {
    char type[2];
    int64_t major, minor;
};

/* What the file does not say is read off the host's node, which must not be a link. */
static int read_numbers(struct apply *p, const struct value *node, struct numbers *ret,
                        struct error *err)
{
    const char *path =
        value_text(value_get(node, "hostPath"), value_text(value_get(node, "path"), ""));
    const struct value *given_major = value_get(node, "major"),
                       *given_minor = value_get(node, "minor");
    const char *type = value_text(value_get(node, "type"), "");
    *ret = (struct numbers){ { type[0], 0 },
                             given_major ? given_major->number : 0,
                             given_minor ? given_minor->number : 0 };
    bool numbered = ret->major != 0 || ret->minor != 0;
    if (type[0] && (numbered || type[0] == 'p'))
        return 0;
    struct stat st;
    auto_free char *seen = x_printf("%s%s", p->options->root ? p->options->root : "", path);
    if (lstat(seen, &st) < 0)
        return error_errno(err, errno, "device node %s of %s", seen, p->device);
    const char *found = S_ISCHR(st.st_mode)    ? "c"
                        : S_ISBLK(st.st_mode)  ? "b"
                        : S_ISFIFO(st.st_mode) ? "p"
                                               : NULL;
    if (!found)
        return error_set(err, ERR_INVALID, 0, "device node %s of %s is %s, expected a device node",
                         seen, p->device, S_ISLNK(st.st_mode) ? "a symbolic link" : "no device");
    if (type[0] && strcmp(type, "u") != 0 && type[0] != found[0])
        return error_set(err, ERR_CONFLICT, 0,
                         "device node %s of %s has type %s, the CDI file says %s", seen, p->device,
                         found, type);
    if (!type[0])
        ret->type[0] = found[0];
    if (!numbered) {
        ret->major = (int64_t)major(st.st_rdev);
        ret->minor = (int64_t)minor(st.st_rdev);
    }
    return 0;
}

/* The node's owner is the process's user unless the file says otherwise. */
static int put_owner(struct apply *p, struct value *device, const struct value *node,
                     const char *key, struct error *err)
{
    const struct value *user = value_get(value_get(p->oci, "process"), "user"),
                       *own = value_get(user, key);
    if (value_get(node, key))
        return put_copy(p, device, key, node, err);
    return own && own->kind == VALUE_INT && own->number > 0
               ? put(p, device, key, value_of_int(own->number), err)
               : 0;
}

static int put_device(struct apply *p, struct value *devices, const struct value *node,
                      const struct numbers *n, struct error *err)
{
    struct value device = { .kind = VALUE_MAP };
    const struct value *path = value_get(node, "path");
    char *type = arena_strdup(p->arena, str_of(n->type));
    if (!type)
        return error_set(err, ERR_LIMIT, 0, "the container's config is too large");
    int r = put(p, &device, "path", *path, err);
    if (r == 0)
        r = put(p, &device, "type", value_of_text(str_of(type)), err);
    if (r == 0 && n->type[0] != 'p')
        r = put(p, &device, "major", value_of_int(n->major), err);
    if (r == 0 && n->type[0] != 'p')
        r = put(p, &device, "minor", value_of_int(n->minor), err);
    if (r == 0)
        r = put_copy(p, &device, "fileMode", node, err);
    if (r == 0)
        r = put_owner(p, &device, node, "uid", err);
    if (r == 0)
        r = put_owner(p, &device, node, "gid", err);
    if (r < 0)
        return r;
    union {
        const char *in;
        void *out;
    } key = { .in = path->text.p };
    value_remove_if(devices, same_path, key.out);
    return value_append(p->arena, devices, &device, err);
}

static int put_rule(struct apply *p, struct value *rules, const struct value *node,
                    const struct numbers *n, struct error *err)
{
    const char *access = value_text(value_get(node, "permissions"), "");
    struct value rule = { .kind = VALUE_MAP };
    char *type = arena_strdup(p->arena, str_of(n->type[0] == 'u' ? "c" : n->type));
    if (strcmp(access, "none") == 0 || n->type[0] == 'p')
        return 0;
    if (!type)
        return error_set(err, ERR_LIMIT, 0, "the container's config is too large");
    int r = put(p, &rule, "allow", value_of_bool(true), err);
    if (r == 0)
        r = put(p, &rule, "type", value_of_text(str_of(type)), err);
    if (r == 0)
        r = put(p, &rule, "major", value_of_int(n->major), err);
    if (r == 0)
        r = put(p, &rule, "minor", value_of_int(n->minor), err);
    if (r == 0)
        r = put(p, &rule, "access", value_of_text(access[0] ? str_of(access) : STR("rwm")), err);
    return r < 0 ? r : value_append(p->arena, rules, &rule, err);
}

static int apply_nodes(struct apply *p, const struct value *edits, struct error *err)
{
    const struct value *nodes = value_get(edits, "deviceNodes");
    struct value *linux_, *devices, *resources, *rules;
    if (!nodes || nodes->n == 0)
        return 0;
    int r = value_submap(p->arena, p->oci, "linux", &linux_, err);
    if (r == 0)
        r = value_sublist(p->arena, linux_, "devices", &devices, err);
    for (size_t i = 0; r == 0 && i < nodes->n; i++) {
        struct numbers n;
        r = read_numbers(p, &nodes->items[i], &n, err);
        /* Adding members moves a map's storage: places are looked up again each time. */
        if (r == 0)
            r = value_sublist(p->arena, linux_, "devices", &devices, err);
        if (r == 0)
            r = put_device(p, devices, &nodes->items[i], &n, err);
        if (r == 0)
            r = value_submap(p->arena, linux_, "resources", &resources, err);
        if (r == 0)
            r = value_sublist(p->arena, resources, "devices", &rules, err);
        if (r == 0)
            r = put_rule(p, rules, &nodes->items[i], &n, err);
    }
    return r;
}

/* ---- mounts ---- */

static bool same_destination(const struct value *item, void *arg)
{
    return strcmp(value_text(value_get(item, "destination"), ""), arg) == 0;
}

static size_t depth_of(const struct value *mount)
{
    struct str rest = str_of(value_text(value_get(mount, "destination"), ""));
    size_t n = 0;
    while (rest.p)
        n += str_cut(&rest, '/').n > 0;
    return n;
}

/* Parents before what lies in them; equals stay in order. */
static void sort_mounts(struct value *mounts)
{
    for (size_t i = 1; i < mounts->n; i++) {
        struct value m = mounts->items[i];
        size_t depth = depth_of(&m), k = i;
        for (; k > 0 && depth_of(&mounts->items[k - 1]) > depth; k--)
            mounts->items[k] = mounts->items[k - 1];
        mounts->items[k] = m;
    }
}

/* Files of the host belong to ids that a container with a user namespace does not know: a bind
 * mount gets the runtime's id mapping, unless its options say otherwise. */
static int put_idmap(struct apply *p, struct value *mount, const struct value *edit,
                     struct error *err)
{
    const struct value *spaces = value_get(value_get(p->oci, "linux"), "namespaces"),
                       *options = value_get(edit, "options");
    bool user = false, bind = strcmp(value_text(value_get(edit, "type"), ""), "bind") == 0;
    for (size_t i = 0; spaces && spaces->kind == VALUE_LIST && i < spaces->n; i++)
        user = user || strcmp(value_text(value_get(&spaces->items[i], "type"), ""), "user") == 0;
    for (size_t i = 0; options && i < options->n; i++) {
        struct str o = options->items[i].text;
        bind = bind || str_is(o, "bind") || str_is(o, "rbind");
        if (str_is(o, "idmap") || str_is(o, "ridmap"))
            return 0;
    }
    if (!user || !bind)
        return 0;
    struct value list = { .kind = VALUE_LIST }, word = value_of_text(STR("idmap"));
    int r = 0;
    for (size_t i = 0; r == 0 && options && i < options->n; i++)
        r = value_append(p->arena, &list, &options->items[i], err);
    if (r == 0)
        r = value_append(p->arena, &list, &word, err);
    return r < 0 ? r : put(p, mount, "options", list, err);
}

static int put_mount(struct apply *p, struct value *mounts, const struct value *edit,
                     struct error *err)
{
    struct value mount = { .kind = VALUE_MAP };
    const struct value *to = value_get(edit, "containerPath"), *from = value_get(edit, "hostPath");
    int r = put(p, &mount, "destination", *to, err);
    if (r == 0)
        r = put_copy(p, &mount, "type", edit, err);
    if (r == 0)
        r = put(p, &mount, "source", *from, err);
    if (r == 0)
        r = put_copy(p, &mount, "options", edit, err);
    if (r == 0)
        r = put_idmap(p, &mount, edit, err);
    if (r < 0)
        return r;
    union {
        const char *in;
        void *out;
    } key = { .in = to->text.p };
    value_remove_if(mounts, same_destination, key.out);
    return value_append(p->arena, mounts, &mount, err);
}

static int apply_mounts(struct apply *p, const struct value *edits, struct error *err)
{
    const struct value *add = value_get(edits, "mounts");
    struct value *mounts;
    if (!add || add->n == 0)
        return 0;
    int r = value_sublist(p->arena, p->oci, "mounts", &mounts, err);
    for (size_t i = 0; r == 0 && i < add->n; i++)
        r = put_mount(p, mounts, &add->items[i], err);
    if (r == 0)
        sort_mounts(mounts);
    return r;
}

/* ---- hooks, groups, the rest ---- */

static int apply_hooks(struct apply *p, const struct value *edits, struct error *err)
{
    static const char *const keys[] = { "path", "args", "env", "timeout" };
    const struct value *add = value_get(edits, "hooks");
    for (size_t i = 0; add && i < add->n; i++) {
        struct value *hooks, *list, hook = { .kind = VALUE_MAP };
        int r = value_submap(p->arena, p->oci, "hooks", &hooks, err);
        if (r == 0)
            r = value_sublist(p->arena, hooks,
                              value_text(value_get(&add->items[i], "hookName"), ""), &list, err);
        for (size_t k = 0; r == 0 && k < ARRAY_LEN(keys); k++)
            r = put_copy(p, &hook, keys[k], &add->items[i], err);
        if (r == 0)
            r = value_append(p->arena, list, &hook, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int apply_gids(struct apply *p, const struct value *edits, struct error *err)
{
    const struct value *add = value_get(edits, "additionalGids");
    for (size_t i = 0; add && i < add->n; i++) {
        struct value *process, *user, *gids;
        int r = value_submap(p->arena, p->oci, "process", &process, err);
        if (r == 0)
            r = value_submap(p->arena, process, "user", &user, err);
        if (r == 0)
            r = value_sublist(p->arena, user, "additionalGids", &gids, err);
        bool there = add->items[i].number == 0;
        for (size_t k = 0; r == 0 && k < gids->n; k++)
            there = there || gids->items[k].number == add->items[i].number;
        if (r == 0 && !there)
            r = value_append(p->arena, gids, &add->items[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int apply_rdt(struct apply *p, const struct value *edits, struct error *err)
{
    const struct value *rdt = value_get(edits, "intelRdt");
    struct value *linux_;
    if (!rdt || rdt->kind == VALUE_NULL)
        return 0;
    int r = value_submap(p->arena, p->oci, "linux", &linux_, err);
    return r < 0 ? r : put(p, linux_, "intelRdt", *rdt, err);
}

static int apply_net(struct apply *p, const struct value *edits, struct error *err)
{
    const struct value *add = value_get(edits, "netDevices");
    for (size_t i = 0; add && i < add->n; i++) {
        struct value *linux_, *devices, device = { .kind = VALUE_MAP };
        const char *host = value_text(value_get(&add->items[i], "hostInterfaceName"), "");
        const struct value *name = value_get(&add->items[i], "name");
        int r = value_submap(p->arena, p->oci, "linux", &linux_, err);
        if (r == 0)
            r = value_submap(p->arena, linux_, "netDevices", &devices, err);
        if (r == 0 && name)
            r = put(p, &device, "name", *name, err);
        if (r == 0)
            r = put(p, devices, host, device, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int apply_edits(struct apply *p, const struct value *edits, struct error *err)
{
    static int (*const parts[])(struct apply *, const struct value *, struct error *) = {
        apply_env, apply_nodes, apply_mounts, apply_hooks, apply_gids, apply_rdt, apply_net,
    };
    for (size_t i = 0; edits && i < ARRAY_LEN(parts); i++) {
        int r = parts[i](p, edits, err);
        if (r < 0)
            return error_wrap(err, "apply CDI device %s", p->device);
    }
    return 0;
}

static int check_names(const struct cdi_registry *r, const char *const *names, size_t n,
                       struct error *err)
{
    char missing[300] = "";
    if (n > NAMES_MAX)
        return error_set(err, ERR_LIMIT, 0, "%zu CDI devices asked for, at most %d", n, NAMES_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct cdi_found *f = cdi_registry_find(r, str_of(names[i]));
        if (f && f->conflict)
            return error_set(err, ERR_CONFLICT, 0,
                             "CDI device %s is defined by two files of the same directory level, "
                             "one is %s; remove one",
                             names[i], f->file);
        size_t used = strlen(missing);
        if (!f)
            snprintf(missing + used, sizeof missing - used, "%s%s", used ? ", " : "", names[i]);
    }
    if (missing[0])
        return error_set(err, ERR_NOT_FOUND, 0, "no CDI file defines %s", missing);
    return 0;
}

int cdi_apply(struct arena *a, struct value *oci, const struct cdi_registry *r,
              const char *const *names, size_t n, const struct cdi_apply_options *o,
              struct error *err)
{
    struct apply p = { .arena = a, .oci = oci, .options = o };
    int rc = check_names(r, names, n, err);
    if (rc < 0)
        return rc;
    const char **done = arena_array(a, n ? n : 1, sizeof *done);
    if (!done)
        return error_set(err, ERR_LIMIT, 0, "no memory for %zu CDI devices", n);
    size_t n_done = 0;
    for (size_t i = 0; i < n; i++) {
        const struct cdi_found *f = cdi_registry_find(r, str_of(names[i]));
        bool first = true;
        for (size_t k = 0; k < n_done; k++)
            first = first && strcmp(done[k], f->file) != 0;
        p.device = f->name;
        if (first) {
            done[n_done++] = f->file;
            rc = apply_edits(&p, f->common, err);
        }
        if (rc == 0)
            rc = apply_edits(&p, f->device, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
