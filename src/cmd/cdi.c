/* SPDX-License-Identifier: Apache-2.0 */
/* mete cdi list, check and apply: what container engines make of the CDI files of this host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "base/mem.h"
#include "cdi/apply.h"
#include "cdi/check.h"
#include "cdi/driver.h"
#include "cmd/commands.h"
#include "cmd/output.h"
#include "data/json.h"

enum {
    ARENA_MAX_BYTES = 256 << 20,
    TEXT_MAX_BYTES = 64 << 20,
    CONFIG_MAX_BYTES = 16 << 20,
    FINDINGS_MAX = 10000,
    DIRS_MAX = 32,
};

#define SPEC_OPTIONS                                                                               \
    { .name = "spec-dir",                                                                          \
      .type = OPT_LIST,                                                                            \
      .aliases = { "spec-dirs" },                                                                  \
      .env = { "NVIDIA_CTK_CDI_SPEC_DIRS" },                                                       \
      .deflt = "/etc/cdi,/var/run/cdi",                                                            \
      .value_name = "DIRS",                                                                        \
      .help =                                                                                      \
          "folders of the host with CDI files; of two definitions the later folder's counts" },    \
    {                                                                                              \
        .name = "host-root", .type = OPT_STRING, .env = { "METE_HOST_ROOT" }, .deflt = "/",        \
        .value_name = "DIR", .help = "where this process sees the host's files"                    \
    }

static const struct opt list_options[] = { SPEC_OPTIONS, OUTPUT_OPTION, { 0 } };
static const struct opt check_options[] = { SPEC_OPTIONS, OUTPUT_OPTION, { 0 } };
static const struct opt apply_options[] = {
    SPEC_OPTIONS,
    { .name = "config",
      .letter = 'c',
      .type = OPT_STRING,
      .deflt = "-",
      .value_name = "FILE",
      .help = "the OCI runtime config (config.json); -: standard input" },
    { .name = "diff",
      .type = OPT_BOOL,
      .help = "print what is added (+) and replaced (-) instead of the whole config" },
    { 0 },
};

/* What all three begin with. */
struct session {
    struct opts opts;
    struct host host;
    struct arena arena;
    struct findings findings;
    const char *dirs[DIRS_MAX];
    size_t n_dirs;
};

static int open_dirs(struct session *s, struct error *err)
{
    const struct opt_value *v = opts_get(&s->opts, "spec-dir");
    if (v->n_items > DIRS_MAX)
        return error_set(err, ERR_LIMIT, 0, "--spec-dir: %zu folders, at most %d", v->n_items,
                         DIRS_MAX);
    for (size_t i = 0; i < v->n_items; i++) {
        char *path = arena_printf(&s->arena, "%s%s", s->host.root, v->items[i]);
        if (v->items[i][0] != '/' || !path)
            return error_set(err, ERR_INVALID, 0,
                             "--spec-dir \"%s\": expected a path from the root", v->items[i]);
        s->dirs[s->n_dirs++] = path;
    }
    return 0;
}

/* False when the command is done, with *ret_exit. */
static bool begin(struct session *s, const struct command *c, int argc, char **argv, int max_args,
                  int *ret_exit)
{
    struct error err;
    *s = (struct session){ .n_dirs = 0 };
    if (!command_begin(c, &s->opts, argc, argv, max_args, true, ret_exit))
        return false;
    const struct host_config paths = { .root = opts_text(&s->opts, "host-root") };
    arena_init(&s->arena, ARENA_MAX_BYTES);
    findings_init(&s->findings, &s->arena, FINDINGS_MAX);
    int r = host_init(&s->host, &paths, &err);
    if (r == 0)
        r = open_dirs(s, &err);
    if (r == 0)
        return true;
    auto_free char *program = x_printf("mete %s", c->name);
    *ret_exit = command_fail(program, &err);
    host_done(&s->host);
    arena_done(&s->arena);
    opts_done(&s->opts);
    return false;
}

static int end(struct session *s, const char *program, int r, const struct error *err, int code)
{
    fflush(stdout);
    if (r < 0)
        code = command_fail(program, err);
    host_done(&s->host);
    arena_done(&s->arena);
    opts_done(&s->opts);
    return code;
}

static void print_findings(const struct findings *f, FILE *to)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *it = &f->items[i];
        fprintf(to, "%s: %s: %s [%s]\n", it->subject, severity_name(it->severity), it->cause,
                it->id);
        if (it->fix && it->fix[0])
            fprintf(to, "  fix: %s\n", it->fix);
    }
}

/* ---- list ---- */

static const char *state_of(const struct cdi_found *f)
{
    return f->shadowed ? "shadowed" : f->conflict ? "conflict" : "ok";
}

static void list_table(const struct cdi_registry *r, const struct opts *o)
{
    if (r->n_all == 0) {
        const struct opt_value *dirs = opts_get(o, "spec-dir");
        fprintf(stderr, "mete cdi list: no CDI device in");
        for (size_t i = 0; i < dirs->n_items; i++)
            fprintf(stderr, "%s %s", i ? "," : "", dirs->items[i]);
        fprintf(stderr, "\n");
        return;
    }
    size_t width = 4;
    for (size_t i = 0; i < r->n_all; i++)
        width = MAX(width, strlen(r->all[i].name));
    printf("%-*s  %-8s  %s\n", (int)width, "NAME", "STATE", "FILE");
    for (size_t i = 0; i < r->n_all; i++)
        printf("%-*s  %-8s  %s\n", (int)width, r->all[i].name, state_of(&r->all[i]),
               r->all[i].file);
}

static int list_document(struct session *s, const struct cdi_registry *r)
{
    auto_buf out;
    buf_init(&out, TEXT_MAX_BYTES);
    struct json_writer w;
    jw_init(&w, &out, 2);
    jw_map(&w);
    jw_key(&w, "devices");
    jw_list(&w);
    for (size_t i = 0; i < r->n_all; i++) {
        jw_map(&w);
        jw_kv(&w, "name", r->all[i].name);
        jw_kv(&w, "file", r->all[i].file);
        jw_kv(&w, "state", state_of(&r->all[i]));
        jw_end(&w);
    }
    jw_end(&w);
    jw_end(&w);
    return output_document(&s->opts, &out, "mete cdi list");
}

static int run_list(int argc, char **argv)
{
    struct session s;
    struct error err;
    struct cdi_registry *registry = NULL;
    int code = 0;
    if (!begin(&s, &cmd_cdi_list, argc, argv, 0, &code))
        return code;
    int r = cdi_registry_load(s.dirs, s.n_dirs, &registry, &s.findings, &err);
    if (r == 0) {
        if (output_table(&s.opts))
            list_table(registry, &s.opts);
        else
            code = list_document(&s, registry);
        print_findings(&s.findings, stderr);
        cdi_registry_free(registry);
    }
    return end(&s, "mete cdi list", r, &err, code);
}

/* ---- check ---- */

static int check_document(struct session *s)
{
    auto_buf out;
    buf_init(&out, TEXT_MAX_BYTES);
    struct json_writer w;
    jw_init(&w, &out, 2);
    jw_map(&w);
    jw_key(&w, "findings");
    jw_list(&w);
    for (size_t i = 0; i < s->findings.n; i++) {
        const struct finding *f = &s->findings.items[i];
        jw_map(&w);
        jw_kv(&w, "id", f->id);
        jw_kv(&w, "severity", severity_name(f->severity));
        jw_kv(&w, "subject", f->subject);
        jw_kv(&w, "cause", f->cause);
        jw_kv(&w, "fix", f->fix);
        jw_end(&w);
    }
    jw_end(&w);
    jw_end(&w);
    return output_document(&s->opts, &out, "mete cdi check");
}

static int run_check(int argc, char **argv)
{
    struct session s;
    struct error err;
    char version[64];
    int code = 0;
    if (!begin(&s, &cmd_cdi_check, argc, argv, -1, &code))
        return code;
    cdi_module_version(&s.host, version);
    const struct cdi_check c = {
        .root = s.host.root,
        .dirs = s.dirs,
        .n_dirs = s.n_dirs,
        .names = (const char *const *)s.opts.args,
        .n_names = (size_t)s.opts.n_args,
        .driver_version = version,
    };
    int r = cdi_check(&c, &s.findings, &err);
    if (r == 0) {
        size_t errors = findings_count(&s.findings, SEVERITY_ERROR);
        if (output_table(&s.opts)) {
            print_findings(&s.findings, stdout);
            printf("%zu errors, %zu warnings\n", errors,
                   findings_count(&s.findings, SEVERITY_WARNING));
        } else {
            code = check_document(&s);
        }
        code = code ? code : errors ? error_exit_code(ERR_INVALID) : 0;
    }
    return end(&s, "mete cdi check", r, &err, code);
}

/* ---- apply ---- */

static int read_config(const struct opts *o, char **ret, size_t *ret_n, struct error *err)
{
    const char *path = opts_text(o, "config");
    if (strcmp(path, "-") != 0)
        return file_read(path, CONFIG_MAX_BYTES, ret, ret_n, err);
    auto_buf in;
    char part[65536];
    buf_init(&in, CONFIG_MAX_BYTES);
    for (ssize_t n; (n = read(STDIN_FILENO, part, sizeof part)) > 0;)
        buf_add(&in, part, (size_t)n);
    int r = buf_check(&in, "standard input", err);
    if (r < 0)
        return r;
    *ret_n = in.n;
    *ret = buf_take(&in);
    return *ret ? 0 : error_set(err, ERR_INVALID, 0, "standard input is empty; give a config.json");
}

/* One line for each item of a list of the config: its place, and the item as compact JSON. */
static void put_lines(const struct value *list, const char *what, struct buf *out)
{
    for (size_t i = 0; list && list->kind == VALUE_LIST && i < list->n; i++) {
        struct json_writer w;
        buf_fmt(out, "%s ", what);
        jw_init(&w, out, 0);
        jw_value(&w, &list->items[i]);
        buf_ch(out, '\n');
    }
}

static void put_config(const struct value *oci, struct buf *out)
{
    static const char *const hooks[] = { "prestart",       "createRuntime", "createContainer",
                                         "startContainer", "poststart",     "poststop" };
    const struct value *process = value_get(oci, "process"), *linux_ = value_get(oci, "linux");
    put_lines(value_get(process, "env"), "env", out);
    put_lines(value_get(value_get(process, "user"), "additionalGids"), "group", out);
    put_lines(value_get(linux_, "devices"), "device", out);
    put_lines(value_get(value_get(linux_, "resources"), "devices"), "access", out);
    put_lines(value_get(oci, "mounts"), "mount", out);
    for (size_t i = 0; i < ARRAY_LEN(hooks); i++)
        put_lines(value_get(value_get(oci, "hooks"), hooks[i]), hooks[i], out);
}

static bool has_line(struct str text, struct str line)
{
    while (text.p)
        if (str_eq(str_cut(&text, '\n'), line))
            return true;
    return false;
}

static void print_lines(struct str of, struct str without, char sign)
{
    while (of.p) {
        struct str line = str_cut(&of, '\n');
        if (line.n && !has_line(without, line))
            printf("%c %.*s\n", sign, STR_FMT(line));
    }
}

static int print_result(struct session *s, const struct value *before, const struct value *after,
                        struct error *err)
{
    auto_buf was, is;
    buf_init(&was, TEXT_MAX_BYTES);
    buf_init(&is, TEXT_MAX_BYTES);
    if (opts_bool(&s->opts, "diff")) {
        put_config(before, &was);
        put_config(after, &is);
        print_lines(buf_view(&was), buf_view(&is), '-');
        print_lines(buf_view(&is), buf_view(&was), '+');
    } else {
        struct json_writer w;
        jw_init(&w, &is, 2);
        jw_value(&w, after);
        buf_ch(&is, '\n');
        fputs(is.p ? is.p : "", stdout);
    }
    int r = buf_check(&was, "the config", err);
    return r < 0 ? r : buf_check(&is, "the config", err);
}

static int explain_names(const struct cdi_registry *r, struct session *s, struct error *err)
{
    for (int i = 0; i < s->opts.n_args; i++) {
        auto_buf why;
        buf_init(&why, 4096);
        if (cdi_registry_find(r, str_of(s->opts.args[i])))
            continue;
        cdi_explain(r, s->opts.args[i], &why);
        return error_set(err, ERR_NOT_FOUND, 0, "%s: %s", s->opts.args[i], why.n ? why.p : "");
    }
    return 0;
}

static int apply(struct session *s, struct error *err)
{
    static const struct doc_limits limits = { CONFIG_MAX_BYTES, 64, 1000000 };
    const struct cdi_apply_options o = { .root = s->host.root };
    auto_free char *text = NULL;
    size_t n = 0;
    struct cdi_registry *registry = NULL;
    struct value *before, *after;
    int r = read_config(&s->opts, &text, &n, err);
    if (r == 0)
        r = json_parse(&s->arena, (struct str){ text, n }, "config.json", &limits, &before, err);
    if (r == 0)
        r = json_parse(&s->arena, (struct str){ text, n }, "config.json", &limits, &after, err);
    if (r == 0)
        r = cdi_registry_load(s->dirs, s->n_dirs, &registry, &s->findings, err);
    if (r < 0)
        return r;
    r = explain_names(registry, s, err);
    if (r == 0)
        r = cdi_apply(&s->arena, after, registry, (const char *const *)s->opts.args,
                      (size_t)s->opts.n_args, &o, err);
    if (r == 0)
        r = print_result(s, before, after, err);
    else
        print_findings(&s->findings, stderr);
    cdi_registry_free(registry);
    return r;
}

static int run_apply(int argc, char **argv)
{
    struct session s;
    struct error err;
    int code = 0;
    if (!begin(&s, &cmd_cdi_apply, argc, argv, -1, &code))
        return code;
    int r = s.opts.n_args > 0
                ? apply(&s, &err)
                : error_set(&err, ERR_INVALID, 0,
                            "name a device, as nvidia.com/gpu=0; \"mete cdi list\" shows all");
    return end(&s, "mete cdi apply", r, &err, code);
}

const struct command cmd_cdi_list = {
    .name = "cdi list",
    .summary = "list the CDI devices of this host, and which file counts",
    .usage = "[options]",
    .text =
        "Shows every definition of every device in all folders: \"ok\" is what container "
        "engines use, \"shadowed\" has another one in a later folder, \"conflict\" stands twice "
        "in one folder and is refused by engines. Files that no engine takes are told on "
        "standard error.",
    .options = list_options,
    .run = run_list,
};

const struct command cmd_cdi_check = {
    .name = "cdi check",
    .summary = "say what is wrong with the CDI files of this host",
    .usage = "[options] [DEVICE...]",
    .text = "Looks for files that no engine takes, names defined twice, files and nodes that are "
            "not on the host or have other numbers than the file says, hooks that are not "
            "installed, and libraries of another driver than the loaded one. Devices that are "
            "named must resolve.\n\n"
            "Exit code 0: no error; 2: there are errors.",
    .options = check_options,
    .run = run_check,
};

const struct command cmd_cdi_apply = {
    .name = "cdi apply",
    .summary = "show what CDI devices do to an OCI runtime config",
    .usage = "[options] DEVICE... < config.json",
    .text = "Prints the config as a container engine would hand it to the runtime, or with --diff "
            "only what the devices change. Nothing on the host is changed.",
    .options = apply_options,
    .run = run_apply,
};
