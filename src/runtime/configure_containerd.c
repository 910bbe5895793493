/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd: a runtime handler in a drop-in that config.toml imports. Config versions 1, 2 and 3
 * keep the CRI plugin in different places. Before containerd 2.1 the plugin's table of the last
 * file replaces those of the files before, so the drop-in carries all of it then.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "data/valueedit.h"
#include "runtime/configure.h"
#include "runtime/toml.h"

enum { FILES_MAX = 64 };

/* What containerd reads, in its order: config.toml, then its imports. */
struct files {
    const char *paths[FILES_MAX], *texts[FILES_MAX];
    struct value *docs[FILES_MAX];
    size_t n;
    int64_t version;
    const char *section; /* the CRI plugin's name */
};

static const char *const sections[] = { NULL, "cri", "io.containerd.grpc.v1.cri",
                                        "io.containerd.cri.v1.runtime" };

static int add_file(struct arena *a, const struct runtime_setup *s, struct files *f,
                    const char *path, struct error *err)
{
    mode_t ignored;
    if (f->n == FILES_MAX)
        return error_set(err, ERR_LIMIT, 0, "containerd imports more than %d files", FILES_MAX);
    f->paths[f->n] = path;
    int r = configure_read(a, s, path, &f->texts[f->n], &ignored, err);
    if (r == 0)
        r = toml_parse(a, str_of(f->texts[f->n] ? f->texts[f->n] : ""), path, &f->docs[f->n], err);
    f->n += r == 0;
    return r;
}

static bool listed(const struct files *f, const char *path)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->paths[i], path) == 0)
            return true;
    return false;
}

/* An import is a path or a pattern, absolute or beside the file that has it. */
static int add_import(struct arena *a, const struct runtime_setup *s, struct files *f,
                      const char *import, const char *ours, struct error *err)
{
    const char *main_path = f->paths[0], *slash = strrchr(main_path, '/');
    glob_t found;
    int r = 0;
    auto_free char *pattern =
        import[0] == '/'
            ? x_printf("%s%s", s->root, import)
            : x_printf("%s%.*s%s", s->root, (int)(slash - main_path + 1), main_path, import);
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; r == 0 && i < found.gl_pathc; i++) {
        char *path = arena_strdup(a, str_of(found.gl_pathv[i] + strlen(s->root)));
        if (!path)
            r = error_set(err, ERR_LIMIT, 0, "no memory for an import");
        else if (strcmp(path, ours) != 0 && !listed(f, path))
            r = add_file(a, s, f, path, err);
    }
    globfree(&found);
    return r;
}

static int read_files(struct arena *a, const struct runtime_setup *s, struct files *f,
                      const char *ours, struct error *err)
{
    *f = (struct files){ .version = 2 };
    int r = add_file(a, s, f, configure_main(s), err);
    if (r < 0)
        return r;
    const struct value *doc = f->docs[0], *version = value_get(doc, "version"),
                       *imports = value_get(doc, "imports");
    if (f->texts[0] && f->texts[0][0])
        f->version = version && version->kind == VALUE_INT ? version->number : version ? 0 : 1;
    if (f->version < 1 || f->version > 3)
        return error_set(err, ERR_UNSUPPORTED, 0,
                         "%s: version is %s; known are 1, 2 and 3 (containerd 1.x and 2.x)",
                         f->paths[0], version ? value_kind_name(version) : "missing");
    f->section = sections[f->version];
    for (size_t i = 0; r == 0 && imports && imports->kind == VALUE_LIST && i < imports->n; i++)
        r = add_import(a, s, f, value_text(&imports->items[i], ""), ours, err);
    return r;
}

/* The CRI plugin disabled means that kubelet cannot use this containerd at all. */
static int check_enabled(const struct files *f, struct error *err)
{
    static const char *const names[] = { "cri", "io.containerd.grpc.v1.cri",
                                         "io.containerd.cri.v1.runtime" };
    for (size_t i = 0; i < f->n; i++) {
        const struct value *off = value_get(f->docs[i], "disabled_plugins");
        for (size_t k = 0; off && off->kind == VALUE_LIST && k < off->n; k++)
            for (size_t n = 0; n < ARRAY_LEN(names); n++)
                if (strcmp(value_text(&off->items[k], ""), names[n]) == 0)
                    return error_set(err, ERR_CONFLICT, 0,
                                     "%s:%u: disabled_plugins has \"%s\": kubelet cannot use this "
                                     "containerd, whatever its runtimes are; take it out of the "
                                     "list (as packages of containerd have it: disabled_plugins = "
                                     "[]) and restart containerd",
                                     f->paths[i], off->items[k].line, names[n]);
    }
    return 0;
}

static const struct value *section_of(const struct files *f, size_t i)
{
    return value_get(value_get(f->docs[i], "plugins"), f->section);
}

/* The plugin's table as all files together make it. */
static int whole_section(struct arena *a, const struct files *f, struct value *ret,
                         struct findings *notes, struct error *err)
{
    size_t with = 0;
    *ret = (struct value){ .kind = VALUE_MAP };
    for (size_t i = 0; i < f->n; i++) {
        const struct value *section = section_of(f, i);
        if (!section || section->kind != VALUE_MAP)
            continue;
        int r = configure_merge(a, ret, section, err);
        if (r < 0)
            return r;
        with++;
    }
    if (with > 1)
        findings_add(notes, "runtime.several-sections", SEVERITY_WARNING, f->paths[0],
                     "look at \"containerd config dump\" before and after",
                     "several files set plugins.\"%s\": containerd before 2.1 takes only the last "
                     "one's, the drop-in puts them together",
                     f->section);
    return 0;
}

static struct value *runtimes_of(struct value *section)
{
    return value_edit(value_edit(section, "containerd"), "runtimes");
}

/* The table of the handler that containers have now: its cgroup driver and other settings are ours
 * too. */
static const struct value *model_of(struct value *section)
{
    const char *name =
        value_text(value_get(value_edit(section, "containerd"), "default_runtime_name"), "runc");
    const struct value *model = value_get(runtimes_of(section), name);
    if (!model || !value_get(model, "options"))
        model = value_get(runtimes_of(section), "runc");
    return model;
}

static int put_handler(struct arena *a, const struct runtime_setup *s, const struct value *model,
                       struct value *section, struct error *err)
{
    struct value *containerd, *runtimes, *handler, *options, *at;
    int r = value_submap(a, section, "containerd", &containerd, err);
    if (r == 0)
        r = value_submap(a, containerd, "runtimes", &runtimes, err);
    if (r == 0)
        r = value_member(a, runtimes, s->name, &handler, err);
    if (r == 0 && model)
        r = configure_copy(a, model, handler, err);
    else if (r == 0)
        *handler = (struct value){ .kind = VALUE_MAP };
    if (r == 0)
        r = value_member(a, handler, "runtime_type", &at, err);
    if (r == 0)
        *at = value_of_text(STR("io.containerd.runc.v2"));
    if (r == 0)
        r = value_submap(a, handler, "options", &options, err);
    if (r == 0)
        r = value_member(a, options, "BinaryName", &at, err);
    if (r == 0)
        *at = value_of_text(str_of(s->runtime_path));
    return r;
}

static int put_switches(struct arena *a, const struct runtime_setup *s, struct value *section,
                        struct error *err)
{
    struct value *containerd, *at;
    int r = value_submap(a, section, "containerd", &containerd, err);
    if (r == 0 && s->as_default)
        r = value_member(a, containerd, "default_runtime_name", &at, err);
    if (r == 0 && s->as_default)
        *at = value_of_text(str_of(s->name));
    if (r == 0 && s->cdi)
        r = value_member(a, section, "enable_cdi", &at, err);
    if (r == 0 && s->cdi)
        *at = value_of_bool(true);
    return r;
}

/* Who else defines the handler, and as what. */
static void tell_others(const struct runtime_setup *s, const struct files *f,
                        struct findings *notes)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct value *handler =
            value_get(value_get(value_get(section_of(f, i), "containerd"), "runtimes"), s->name);
        const char *binary = value_text(value_get(value_get(handler, "options"), "BinaryName"), "");
        if (handler && strcmp(binary, s->runtime_path) != 0)
            findings_add(notes, "runtime.defined-already", SEVERITY_WARNING, f->paths[i],
                         "remove it there once the new one works",
                         "runtime %s is defined here as %s; the drop-in replaces it", s->name,
                         binary[0] ? binary : "a runtime without BinaryName");
    }
}

/* A 1.7 or newer that does not know CDI devices needs --cdi for the CDI strategies only. */
static int drop_in_text(struct arena *a, const struct runtime_setup *s, struct files *f,
                        const char **ret, struct findings *notes, struct error *err)
{
    bool merges = s->engine_major > 2 || (s->engine_major == 2 && s->engine_minor >= 1);
    struct value whole, small = { .kind = VALUE_MAP }, doc = { .kind = VALUE_MAP }, *at, *plugins;
    auto_buf text;
    buf_init(&text, TOML_BYTES_MAX);
    int r = whole_section(a, f, &whole, notes, err);
    if (r < 0)
        return r;
    struct value *section = merges ? &small : &whole;
    r = put_handler(a, s, model_of(&whole), section, err);
    if (r == 0)
        r = put_switches(a, s, section, err);
    if (r == 0)
        r = value_member(a, &doc, "version", &at, err);
    if (r == 0) {
        *at = value_of_int(f->version);
        r = value_submap(a, &doc, "plugins", &plugins, err);
    }
    if (r == 0)
        r = value_member(a, plugins, f->section, &at, err);
    if (r < 0)
        return r;
    *at = *section;
    buf_fmt(&text, "# Written by \"mete runtime configure\"; \"--undo\" removes it.\n%s",
            merges
                ? ""
                : "# containerd before 2.1 takes this whole table instead of that of config.toml: "
                  "run the command\n# again after changes there.\n");
    toml_write(&text, &doc);
    r = buf_check(&text, "the drop-in", err);
    *ret = r == 0 ? arena_strdup(a, buf_view(&text)) : NULL;
    return r < 0 || *ret ? r : error_set(err, ERR_LIMIT, 0, "no memory for the drop-in");
}

/* ---- the import ---- */

static bool imports_pattern(const struct value *doc, const char *pattern)
{
    const struct value *imports = value_get(doc, "imports");
    for (size_t i = 0; imports && imports->kind == VALUE_LIST && i < imports->n; i++)
        if (strcmp(value_text(&imports->items[i], ""), pattern) == 0)
            return true;
    return false;
}

/* The byte of a line and column (counted in characters) of a text. */
static size_t byte_at(const char *text, uint32_t line, uint32_t column)
{
    const char *p = text;
    for (; line > 1 && *p; line--)
        p += strcspn(p, "\n") + 1;
    for (; column > 1 && *p; column--)
        do
            p++;
        while (((unsigned char)*p & 0xC0) == 0x80);
    return (size_t)(p - text);
}

/* After the version, else before everything but comments: a top-level key must stand before the
 * first table. */
static size_t place_for_imports(const char *text, const struct value *doc)
{
    const struct value *version = value_get(doc, "version");
    if (!version)
        return 0;
    size_t at = byte_at(text, version->line, version->column);
    return at + strcspn(text + at, "\n") + (text[at + strcspn(text + at, "\n")] == '\n');
}

static int insert(struct arena *a, const char *text, const struct value *doc, const char *pattern,
                  const char **ret, struct error *err)
{
    const struct value *imports = value_get(doc, "imports");
    auto_buf quoted;
    buf_init(&quoted, 8192);
    toml_text(&quoted, str_of(pattern));
    if (imports && imports->kind != VALUE_LIST)
        return error_set(err, ERR_INVALID, 0, "imports: expected a list of texts, found %s",
                         value_kind_name(imports));
    if (imports) {
        size_t at = byte_at(text, imports->line, imports->column) + 1;
        *ret = arena_printf(a, "%.*s%s%s%s", (int)at, text, quoted.p, imports->n ? ", " : "",
                            text + at);
    } else {
        size_t at = place_for_imports(text, doc);
        bool open_line = at > 0 && text[at - 1] != '\n';
        *ret = arena_printf(a, "%.*s%simports = [%s]\n%s", (int)at, text, open_line ? "\n" : "",
                            quoted.p, text + at);
    }
    return *ret ? 0 : error_set(err, ERR_LIMIT, 0, "no memory for the changed file");
}

/* Only the import may have changed. */
static bool only_import_added(const struct value *before, const struct value *after,
                              const char *pattern)
{
    size_t same = 0;
    for (size_t i = 0; i < before->n; i++) {
        const char *key = before->members[i].key.p;
        const struct value *other = value_get(after, key);
        if (strcmp(key, "imports") != 0 && other &&
            configure_same(&before->members[i].value, other))
            same++;
    }
    bool had = value_get(before, "imports") != NULL;
    const struct value *old = value_get(before, "imports"), *new = value_get(after, "imports");
    return same + had == before->n && after->n == before->n + !had &&
           imports_pattern(after, pattern) && new->n == (old ? old->n : 0) + 1;
}

int containerd_import(struct arena *a, const char *path, const char *text, const char *pattern,
                      const char **ret, struct error *err)
{
    struct value *doc, *after;
    /* A file that is not there yet says its version too. */
    const char *base = text[0] ? text : "version = 2\n";
    *ret = NULL;
    int r = pattern ? toml_parse(a, str_of(base), path, &doc, err)
                    : error_set(err, ERR_LIMIT, 0, "no memory for the changed file");
    if (r < 0 || imports_pattern(doc, pattern))
        return r;
    const char *changed = NULL;
    r = insert(a, base, doc, pattern, &changed, err);
    if (r == 0)
        r = toml_parse(a, str_of(changed), path, &after, err);
    if (r < 0)
        return error_wrap(err, "add the import to %s", path);
    if (!only_import_added(doc, after, pattern))
        return error_set(err, ERR_INTERNAL, 0,
                         "adding imports = [\"%s\"] to %s would change more than that; add it by "
                         "hand",
                         pattern, path);
    *ret = changed;
    return 0;
}

int containerd_plan(struct arena *a, const struct runtime_setup *s, struct runtime_plan *ret,
                    struct findings *notes, struct error *err)
{
    struct files f;
    const char *ours = configure_drop_in(a, s), *path = configure_main(s), *before;
    struct runtime_change drop_in = { .path = ours }, import = { .path = path };
    if (!ours)
        return error_set(err, ERR_LIMIT, 0, "no memory for the plan");
    int r = read_files(a, s, &f, ours, err);
    if (r == 0)
        r = check_enabled(&f, err);
    if (r == 0)
        r = drop_in_text(a, s, &f, &drop_in.after, notes, err);
    if (r == 0)
        r = configure_read(a, s, ours, &drop_in.before, &drop_in.mode, err);
    if (r == 0)
        r = configure_read(a, s, path, &import.before, &import.mode, err);
    before = r == 0 && import.before ? import.before : "";
    if (r == 0)
        r = containerd_import(a, path, before, configure_pattern(a, s), &import.after, err);
    if (r < 0)
        return r;
    tell_others(s, &f, notes);
    /* The drop-in first: an import of a folder without it changes nothing. */
    r = configure_add(ret, &drop_in, err);
    return r < 0 || !import.after ? r : configure_add(ret, &import, err);
}
