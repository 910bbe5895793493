/* SPDX-License-Identifier: Apache-2.0 */
/* Is a document a CDI spec? One table of fields for each kind of object; what is not in the table
 * is an error, as in the engines' strict reader. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cdi/registry.h"

struct check {
    const char *file;
    struct findings *findings;
    bool failed;
    const char *needed; /* by the content so far */
    const char *needed_by;
};

struct field {
    const char *name;
    enum value_kind kind;
    bool required;
    const char *since; /* CDI version that has it; NULL: the first */
};

static void fault(struct check *c, const struct value *at, const char *fix, const char *fmt, ...)
    printf_like(4, 5);
static void fault(struct check *c, const struct value *at, const char *fix, const char *fmt, ...)
{
    char cause[400], place[320];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
    snprintf(place, sizeof place, "%s:%u:%u", c->file, at->line, at->column);
    findings_add(c->findings, "cdi.invalid", SEVERITY_ERROR, place, fix, "%s", cause);
    c->failed = true;
}

static const char *const kind_words[] = {
    [VALUE_NULL] = "null",     [VALUE_BOOL] = "true or false", [VALUE_INT] = "a whole number",
    [VALUE_REAL] = "a number", [VALUE_TEXT] = "text",          [VALUE_LIST] = "a list",
    [VALUE_MAP] = "a map",
};

static int version_order(const char *a, const char *b)
{
    static const char *const known[] = { "0.3.0", "0.4.0", "0.5.0", "0.6.0",
                                         "0.7.0", "0.8.0", "1.0.0", "1.1.0" };
    size_t x = 0, y = 0;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        x = strcmp(a, known[i]) == 0 ? i + 1 : x;
        y = strcmp(b, known[i]) == 0 ? i + 1 : y;
    }
    return (x > y) - (x < y);
}

static void needs(struct check *c, const char *version, const char *what)
{
    if (version && (!c->needed || version_order(version, c->needed) > 0)) {
        c->needed = version;
        c->needed_by = what;
    }
}

/* Looks at the members of a map by its table. */
static bool fields(struct check *c, const struct value *v, const char *what,
                   const struct field *table, size_t n)
{
    if (v->kind != VALUE_MAP) {
        fault(c, v, "write a map here", "%s: expected a map, found %s", what, value_kind_name(v));
        return false;
    }
    for (size_t i = 0; i < v->n; i++) {
        const struct member *m = &v->members[i];
        const struct field *f = NULL;
        for (size_t k = 0; k < n && !f; k++)
            if (str_is(m->key, table[k].name))
                f = &table[k];
        if (!f) {
            const char *names[32];
            for (size_t k = 0; k < n; k++)
                names[k] = table[k].name;
            const char *near = str_nearest(m->key, names, n);
            fault(c, &m->value, near ? near : "leave it out", "%s: unknown key \"%.*s\"%s%s%s",
                  what, STR_FMT(m->key), near ? ", did you mean \"" : "", near ? near : "",
                  near ? "\"?" : "");
        } else if (m->value.kind != f->kind && m->value.kind != VALUE_NULL) {
            fault(c, &m->value, "give it the right kind of value", "%s.%s: expected %s, found %s",
                  what, f->name, kind_words[f->kind], value_kind_name(&m->value));
        } else if (m->value.kind != VALUE_NULL) {
            needs(c, f->since, f->name);
        }
    }
    for (size_t k = 0; k < n; k++) {
        const struct value *got = value_get(v, table[k].name);
        if (table[k].required &&
            (!got || (got->kind == VALUE_TEXT && got->text.n == 0) || got->kind == VALUE_NULL))
            fault(c, v, "add it", "%s: \"%s\" is missing or empty", what, table[k].name);
    }
    return true;
}

static bool is_one_of(const char *word, const char *const *set, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, set[i]) == 0)
            return true;
    return false;
}

static void check_env(struct check *c, const struct value *list)
{
    for (size_t i = 0; list && list->kind == VALUE_LIST && i < list->n; i++) {
        const struct value *e = &list->items[i];
        if (e->kind != VALUE_TEXT || !memchr(e->text.p, '=', e->text.n) || e->text.p[0] == '=')
            fault(c, e, "write NAME=VALUE", "env: expected NAME=VALUE, found %s",
                  value_kind_name(e));
    }
}

static void check_texts(struct check *c, const struct value *list, const char *what)
{
    for (size_t i = 0; list && list->kind == VALUE_LIST && i < list->n; i++)
        if (list->items[i].kind != VALUE_TEXT)
            fault(c, &list->items[i], "write text here", "%s: expected text, found %s", what,
                  value_kind_name(&list->items[i]));
}

/* Whole numbers that fit into 32 bits without a sign. */
static void check_number(struct check *c, const struct value *v, const char *what)
{
    if (v && v->kind != VALUE_NULL &&
        (v->kind != VALUE_INT || v->number < 0 || v->number > UINT32_MAX))
        fault(c, v, "write a number from 0 to 4294967295", "%s: found %s", what,
              value_kind_name(v));
}

static void check_node(struct check *c, const struct value *v)
{
    static const struct field table[] = {
        { "path", VALUE_TEXT, true, NULL },         { "hostPath", VALUE_TEXT, false, "0.5.0" },
        { "type", VALUE_TEXT, false, NULL },        { "major", VALUE_INT, false, NULL },
        { "minor", VALUE_INT, false, NULL },        { "fileMode", VALUE_INT, false, NULL },
        { "permissions", VALUE_TEXT, false, NULL }, { "uid", VALUE_INT, false, NULL },
        { "gid", VALUE_INT, false, NULL },
    };
    static const char *const types[] = { "", "b", "c", "u", "p" };
    if (!fields(c, v, "deviceNodes", table, ARRAY_LEN(table)))
        return;
    const char *type = value_text(value_get(v, "type"), "");
    if (!is_one_of(type, types, ARRAY_LEN(types)))
        fault(c, v, "use b, c, u or p", "deviceNodes.type: \"%s\" is none of b, c, u, p", type);
    const char *permissions = value_text(value_get(v, "permissions"), "");
    if (strcmp(permissions, "none") != 0 && strspn(permissions, "rwm") != strlen(permissions))
        fault(c, v, "use letters of rwm, or none", "deviceNodes.permissions: \"%s\"", permissions);
    static const char *const numbers[] = { "major", "minor", "fileMode", "uid", "gid" };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        check_number(c, value_get(v, numbers[i]), numbers[i]);
}

static void check_hook(struct check *c, const struct value *v)
{
    static const struct field table[] = {
        { "hookName", VALUE_TEXT, true, NULL }, { "path", VALUE_TEXT, true, NULL },
        { "args", VALUE_LIST, false, NULL },    { "env", VALUE_LIST, false, NULL },
        { "timeout", VALUE_INT, false, NULL },
    };
    static const char *const names[] = { "prestart",       "createRuntime", "createContainer",
                                         "startContainer", "poststart",     "poststop" };
    if (!fields(c, v, "hooks", table, ARRAY_LEN(table)))
        return;
    const char *name = value_text(value_get(v, "hookName"), "");
    if (name[0] && !is_one_of(name, names, ARRAY_LEN(names)))
        fault(c, v, "use createContainer or another OCI hook name",
              "hooks.hookName: \"%s\" is no OCI hook", name);
    check_texts(c, value_get(v, "args"), "hooks.args");
    check_env(c, value_get(v, "env"));
}

static void check_net(struct check *c, const struct value *v)
{
    static const struct field table[] = {
        { "hostInterfaceName", VALUE_TEXT, true, NULL },
        { "name", VALUE_TEXT, true, NULL },
    };
    fields(c, v, "netDevices", table, ARRAY_LEN(table));
}

static void check_gid(struct check *c, const struct value *v)
{
    if (v->kind == VALUE_INT)
        check_number(c, v, "additionalGids");
    else
        fault(c, v, "write a group number", "additionalGids: found %s", value_kind_name(v));
}

static void check_mount(struct check *c, const struct value *v)
{
    static const struct field table[] = {
        { "hostPath", VALUE_TEXT, true, NULL },
        { "containerPath", VALUE_TEXT, true, NULL },
        { "options", VALUE_LIST, false, NULL },
        { "type", VALUE_TEXT, false, "0.4.0" },
    };
    if (fields(c, v, "mounts", table, ARRAY_LEN(table)))
        check_texts(c, value_get(v, "options"), "mounts.options");
}

static void check_each(struct check *c, const struct value *list,
                       void (*one)(struct check *c, const struct value *v))
{
    for (size_t i = 0; list && list->kind == VALUE_LIST && i < list->n; i++)
        one(c, &list->items[i]);
}

static void check_edits(struct check *c, const struct value *v)
{
    static const struct field table[] = {
        { "env", VALUE_LIST, false, NULL },
        { "deviceNodes", VALUE_LIST, false, NULL },
        { "hooks", VALUE_LIST, false, NULL },
        { "mounts", VALUE_LIST, false, NULL },
        { "intelRdt", VALUE_MAP, false, "0.7.0" },
        { "additionalGids", VALUE_LIST, false, "0.7.0" },
        { "netDevices", VALUE_LIST, false, "1.1.0" },
    };
    if (!v || !fields(c, v, "containerEdits", table, ARRAY_LEN(table)))
        return;
    check_env(c, value_get(v, "env"));
    check_each(c, value_get(v, "deviceNodes"), check_node);
    check_each(c, value_get(v, "hooks"), check_hook);
    check_each(c, value_get(v, "mounts"), check_mount);
    check_each(c, value_get(v, "netDevices"), check_net);
    check_each(c, value_get(v, "additionalGids"), check_gid);
}

static bool word(struct str s, bool digit_first, const char *more)
{
    if (!s.n)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char ch = s.p[i];
        bool digit = ch >= '0' && ch <= '9',
             letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
        bool edge = i == 0 || i == s.n - 1;
        if (i == 0 && digit && !digit_first)
            return false;
        if (!letter && !digit && (edge || !strchr(more, ch)))
            return false;
    }
    return true;
}

bool cdi_name_valid(struct str qualified)
{
    struct str rest = qualified, vendor = str_cut(&rest, '/');
    if (!rest.p)
        return false;
    struct str class = str_cut(&rest, '=');
    return rest.p && word(vendor, false, "_-.") && word(class, false, "_-.") &&
           word(rest, true, "_-.:");
}

/* Annotation keys as Kubernetes allows them: an optional DNS name and a slash, then a word. */
static void check_annotations(struct check *c, const struct value *map)
{
    for (size_t i = 0; map && map->kind == VALUE_MAP && i < map->n; i++) {
        const struct member *m = &map->members[i];
        struct str rest = m->key, first = str_cut(&rest, '/');
        struct str name = rest.p ? rest : first;
        bool prefix_fine = !rest.p || (first.n <= 253 && word(first, true, "-."));
        if (!prefix_fine || name.n > 63 || !word(name, true, "_-."))
            fault(c, &m->value, "use [dns.name/]word with letters, digits and _ - . inside",
                  "annotations: \"%.*s\" is no key", STR_FMT(m->key));
        if (m->value.kind != VALUE_TEXT)
            fault(c, &m->value, "write text here", "annotations: expected text, found %s",
                  value_kind_name(&m->value));
    }
}

static void check_device(struct check *c, const struct value *v)
{
    static const struct field table[] = {
        { "name", VALUE_TEXT, true, NULL },
        { "annotations", VALUE_MAP, false, "0.6.0" },
        { "containerEdits", VALUE_MAP, true, NULL },
    };
    if (!fields(c, v, "devices", table, ARRAY_LEN(table)))
        return;
    const struct value *name = value_get(v, "name"), *edits = value_get(v, "containerEdits");
    if (name && name->kind == VALUE_TEXT && !word(name->text, true, "_-.:"))
        fault(c, name, "use letters, digits and _ - . : inside",
              "devices.name: \"%.*s\" is no CDI name", STR_FMT(name->text));
    if (name && name->kind == VALUE_TEXT && name->text.n && name->text.p[0] >= '0' &&
        name->text.p[0] <= '9')
        needs(c, "0.5.0", "a name that begins with a digit");
    check_annotations(c, value_get(v, "annotations"));
    if (edits && edits->kind == VALUE_MAP && edits->n == 0)
        fault(c, edits, "say what the device needs", "devices: containerEdits of \"%s\" are empty",
              value_text(name, "?"));
    if (edits && edits->kind == VALUE_MAP)
        check_edits(c, edits);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(value_text(value_get(*(const struct value *const *)a, "name"), ""),
                  value_text(value_get(*(const struct value *const *)b, "name"), ""));
}

static void check_twice(struct check *c, const struct value *devices)
{
    if (!devices || devices->kind != VALUE_LIST || devices->n < 2)
        return;
    auto_free const struct value **sorted = try_alloc(devices->n * sizeof *sorted);
    if (!sorted) {
        fault(c, devices, "write fewer devices into one file", "no memory for %zu devices",
              devices->n);
        return;
    }
    for (size_t i = 0; i < devices->n; i++)
        sorted[i] = &devices->items[i];
    qsort(sorted, devices->n, sizeof *sorted, by_text);
    for (size_t i = 1; i < devices->n; i++)
        if (by_text(&sorted[i - 1], &sorted[i]) == 0)
            fault(c, MAX(sorted[i - 1], sorted[i]), "name each device once",
                  "devices: \"%s\" stands twice", value_text(value_get(sorted[i], "name"), ""));
}

int cdi_validate(const struct value *doc, const char *name, struct findings *findings,
                 struct error *err)
{
    static const struct field table[] = {
        { "cdiVersion", VALUE_TEXT, true, NULL },     { "kind", VALUE_TEXT, true, NULL },
        { "annotations", VALUE_MAP, false, "0.6.0" }, { "devices", VALUE_LIST, true, NULL },
        { "containerEdits", VALUE_MAP, false, NULL },
    };
    struct check c = { .file = name, .findings = findings };
    if (fields(&c, doc, "CDI spec", table, ARRAY_LEN(table))) {
        const char *version = value_text(value_get(doc, "cdiVersion"), "");
        version += version[0] == 'v';
        const struct value *kind = value_get(doc, "kind"), *devices = value_get(doc, "devices");
        if (version[0] && version_order(version, "") == 0)
            fault(&c, value_get(doc, "cdiVersion"), "use a version from 0.3.0 to 1.1.0",
                  "cdiVersion: \"%s\" is unknown", version);
        char probe[300];
        snprintf(probe, sizeof probe, "%s=x", value_text(kind, ""));
        if (kind && kind->kind == VALUE_TEXT && !cdi_name_valid(str_of(probe)))
            fault(&c, kind, "write vendor/class", "kind: \"%s\" is no vendor/class",
                  value_text(kind, ""));
        const char *class = strchr(value_text(kind, ""), '/');
        if (class && strchr(class, '.'))
            needs(&c, "0.6.0", "a dot in the class");
        if (devices && devices->kind == VALUE_LIST && devices->n == 0)
            fault(&c, devices, "remove the file", "devices: the list is empty");
        check_each(&c, devices, check_device);
        check_twice(&c, devices);
        check_annotations(&c, value_get(doc, "annotations"));
        const struct value *common = value_get(doc, "containerEdits");
        if (common && common->kind == VALUE_MAP)
            check_edits(&c, common);
        if (version[0] && c.needed && version_order(version, c.needed) < 0)
            fault(&c, value_get(doc, "cdiVersion"), c.needed,
                  "cdiVersion: %s is declared, but %s needs %s", version, c.needed_by, c.needed);
    }
    return c.failed ? error_set(err, ERR_INVALID, 0, "%s is no valid CDI spec", name) : 0;
}
