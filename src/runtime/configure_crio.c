/* SPDX-License-Identifier: Apache-2.0 */
/* CRI-O reads every file of its drop-in folder by itself and puts tables together: one file of ours
 * is all. CDI is always on there. */
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/valueedit.h"
#include "runtime/configure.h"
#include "runtime/toml.h"

static int merge_file(struct arena *a, const struct runtime_setup *s, const char *path,
                      struct value *whole, struct findings *notes, struct error *err)
{
    const char *text;
    mode_t ignored;
    struct value *doc;
    int r = configure_read(a, s, path, &text, &ignored, err);
    if (r < 0 || !text)
        return r;
    r = toml_parse(a, str_of(text), path, &doc, err);
    if (r < 0)
        return r;
    const struct value *handler =
        value_get(value_get(value_get(value_get(doc, "crio"), "runtime"), "runtimes"), s->name);
    const char *binary = value_text(value_get(handler, "runtime_path"), "");
    if (handler && strcmp(binary, s->runtime_path) != 0)
        findings_add(notes, "runtime.defined-already", SEVERITY_WARNING, path,
                     "remove it there once the new one works",
                     "runtime %s is defined here as %s; the drop-in replaces it", s->name,
                     binary[0] ? binary : "a runtime without runtime_path");
    return configure_merge(a, whole, doc, err);
}

/* crio.conf, then the folder's files in the order of their names. */
static int read_files(struct arena *a, const struct runtime_setup *s, const char *ours,
                      struct value *whole, struct findings *notes, struct error *err)
{
    glob_t found;
    *whole = (struct value){ .kind = VALUE_MAP };
    int r = merge_file(a, s, configure_main(s), whole, notes, err);
    auto_free char *pattern = x_printf("%s%.*s/*", s->root, (int)(strrchr(ours, '/') - ours), ours);
    if (r < 0 || glob(pattern, 0, NULL, &found) != 0)
        return r;
    for (size_t i = 0; r == 0 && i < found.gl_pathc; i++) {
        char *path = arena_strdup(a, str_of(found.gl_pathv[i] + strlen(s->root)));
        if (!path)
            r = error_set(err, ERR_LIMIT, 0, "no memory for a file of CRI-O");
        else if (strcmp(path, ours) != 0)
            r = merge_file(a, s, path, whole, notes, err);
    }
    globfree(&found);
    return r;
}

/* What the runtime has that containers have now: monitor, annotations and so on are ours too. */
static const struct value *model_of(struct value *whole)
{
    const struct value *runtime = value_edit(value_edit(whole, "crio"), "runtime"),
                       *runtimes = value_get(runtime, "runtimes");
    const char *name = value_text(value_get(runtime, "default_runtime"), "crun");
    const struct value *model = value_get(runtimes, name);
    if (!model)
        model = value_get(runtimes, "runc");
    return model && model->kind == VALUE_MAP ? model : NULL;
}

static int put(struct arena *a, struct value *map, const char *key, const char *text,
               struct error *err)
{
    struct value *at;
    int r = value_member(a, map, key, &at, err);
    if (r == 0)
        *at = value_of_text(str_of(text));
    return r;
}

static int build(struct arena *a, const struct runtime_setup *s, const struct value *model,
                 struct value *doc, struct error *err)
{
    struct value *crio, *runtime, *runtimes, *handler;
    *doc = (struct value){ .kind = VALUE_MAP };
    int r = value_submap(a, doc, "crio", &crio, err);
    if (r == 0)
        r = value_submap(a, crio, "runtime", &runtime, err);
    if (r == 0 && s->as_default)
        r = put(a, runtime, "default_runtime", s->name, err);
    if (r == 0)
        r = value_submap(a, runtime, "runtimes", &runtimes, err);
    if (r == 0)
        r = value_member(a, runtimes, s->name, &handler, err);
    if (r < 0)
        return r;
    *handler = (struct value){ .kind = VALUE_MAP };
    if (model)
        r = configure_copy(a, model, handler, err);
    if (r == 0)
        r = put(a, handler, "runtime_path", s->runtime_path, err);
    return r < 0 ? r : put(a, handler, "runtime_type", "oci", err);
}

int crio_plan(struct arena *a, const struct runtime_setup *s, struct runtime_plan *ret,
              struct findings *notes, struct error *err)
{
    struct runtime_change drop_in = { .path = configure_drop_in(a, s) };
    struct value whole, doc;
    auto_buf text;
    buf_init(&text, TOML_BYTES_MAX);
    if (!drop_in.path)
        return error_set(err, ERR_LIMIT, 0, "no memory for the plan");
    int r = read_files(a, s, drop_in.path, &whole, notes, err);
    if (r < 0)
        return r;
    const struct value *model = model_of(&whole);
    const char *real = value_text(value_get(model, "runtime_path"), "");
    r = build(a, s, model, &doc, err);
    if (r < 0)
        return r;
    if (real[0])
        findings_add(notes, "runtime.real", SEVERITY_INFO, drop_in.path,
                     "name it in /etc/nvidia-container-runtime/config.toml, "
                     "nvidia-container-runtime.runtimes, if it lies outside PATH",
                     "containers run under %s now; mete-runtime looks for runc, then crun, in PATH",
                     real);
    if (s->cdi)
        findings_add(notes, "runtime.cdi", SEVERITY_INFO, drop_in.path, "",
                     "CRI-O always knows CDI devices: nothing to set");
    buf_z(&text, "# Written by \"mete runtime configure\"; \"--undo\" removes it.\n");
    toml_write(&text, &doc);
    r = buf_check(&text, "the drop-in", err);
    if (r == 0)
        r = configure_read(a, s, drop_in.path, &drop_in.before, &drop_in.mode, err);
    drop_in.after = r == 0 ? arena_strdup(a, buf_view(&text)) : NULL;
    if (r == 0 && !drop_in.after)
        r = error_set(err, ERR_LIMIT, 0, "no memory for the drop-in");
    return r < 0 ? r : configure_add(ret, &drop_in, err);
}
