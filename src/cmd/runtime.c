/* SPDX-License-Identifier: Apache-2.0 */
/* mete runtime configure: containerd and CRI-O are told of mete-runtime. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/host.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "runtime/configure.h"

enum { ARENA_MAX_BYTES = 64 << 20, FINDINGS_MAX = 100, OUT_MAX = 16 << 20 };

static const struct opt options[] = {
    { .name = "runtime",
      .type = OPT_STRING,
      .env = { "NVIDIA_CTK_RUNTIME", "RUNTIME" },
      .deflt = "containerd",
      .choices = "containerd|crio",
      .value_name = "ENGINE",
      .help = "the container engine" },
    { .name = "runtime-name",
      .type = OPT_STRING,
      .aliases = { "nvidia-runtime-name" },
      .deflt = "nvidia",
      .value_name = "NAME",
      .help = "handler name, which a RuntimeClass names" },
    { .name = "runtime-path",
      .type = OPT_STRING,
      .aliases = { "nvidia-runtime-path" },
      .value_name = "FILE",
      .help = "mete-runtime on the host (default: beside this program, or where packages put it)" },
    { .name = "set-as-default",
      .type = OPT_BOOL,
      .aliases = { "nvidia-set-as-default" },
      .help = "containers without a RuntimeClass use it too" },
    { .name = "cdi",
      .type = OPT_BOOL,
      .aliases = { "enable-cdi", "cdi.enabled" },
      .help = "let the engine take CDI devices (containerd 1.7; later ones do so anyway)" },
    { .name = "dry-run",
      .type = OPT_BOOL,
      .help = "show what would be changed, and change nothing" },
    { .name = "undo", .type = OPT_BOOL, .help = "take back what this command did" },
    { .name = "config",
      .type = OPT_STRING,
      .group = "Paths",
      .value_name = "FILE",
      .help = "the engine's config file (default: /etc/containerd/config.toml or "
              "/etc/crio/crio.conf)" },
    { .name = "drop-in-dir",
      .type = OPT_STRING,
      .group = "Paths",
      .value_name = "DIR",
      .help = "where our file goes (default: /etc/containerd/conf.d or /etc/crio/crio.conf.d)" },
    { .name = "host-root",
      .type = OPT_STRING,
      .env = { "METE_HOST_ROOT" },
      .deflt = "/",
      .group = "Paths",
      .value_name = "DIR",
      .help = "where this process sees the host's files" },
    { .name = "engine-version",
      .type = OPT_STRING,
      .value_name = "VERSION",
      .help = "of containerd, such as 1.7 or 2.1 (default: as \"containerd --version\" says)" },
    { 0 },
};

/* ---- the setup ---- */

static bool parse_version(struct str text, struct runtime_setup *s)
{
    uint64_t major, minor;
    struct str rest = text, first = str_cut(&rest, '.'), second = str_cut(&rest, '.');
    if (first.n && first.p[0] == 'v') {
        first.p++;
        first.n--;
    }
    if (!str_to_u64(first, 1000, &major) || !str_to_u64(second, 1000, &minor))
        return false;
    s->engine_major = (unsigned)major;
    s->engine_minor = (unsigned)minor;
    return true;
}

/* "containerd github.com/containerd/containerd v1.7.24 …". Unknown is fine: taken as an old one. */
static void ask_version(struct runtime_setup *s)
{
    char line[512] = "";
    FILE *f = popen("containerd --version 2>/dev/null", "re");
    if (!f)
        return;
    struct str rest = fgets(line, sizeof line, f) ? str_trim(str_of(line)) : STR("");
    pclose(f);
    while (rest.p && !parse_version(str_cut(&rest, ' '), s))
        ;
}

/* The program as it lies after "make install", in a build folder, or in a package. */
static const char *find_runtime(struct arena *a, const struct host *h)
{
    static const char *const places[] = { "%s/../libexec/mete/mete-runtime", "%s/mete-runtime",
                                          "%s/../runtime/mete-runtime" },
                             *const fixed[] = { "/usr/local/libexec/mete/mete-runtime",
                                                "/usr/libexec/mete/mete-runtime",
                                                "/usr/bin/nvidia-container-runtime" };
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;
    for (size_t i = 0; slash && !h->root[0] && i < ARRAY_LEN(places); i++) {
        *slash = '\0';
        auto_free char *path = x_printf(places[i], self);
        char *real = realpath(path, NULL);
        char *kept = real && access(real, X_OK) == 0 ? arena_strdup(a, str_of(real)) : NULL;
        free(real);
        if (kept)
            return kept;
    }
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
        auto_free char *path = host_path(h, fixed[i]);
        if (access(path, X_OK) == 0)
            return fixed[i];
    }
    return fixed[0]; /* the plan says that it is not there */
}

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int set_up(struct arena *a, const struct opts *o, const struct host *h,
                  struct runtime_setup *s, struct error *err)
{
    const char *version = opts_text(o, "engine-version");
    *s = (struct runtime_setup){
        .engine = strcmp(opts_text(o, "runtime"), "crio") == 0 ? ENGINE_CRIO : ENGINE_CONTAINERD,
        .root = h->root,
        .config = or_null(opts_text(o, "config")),
        .drop_in_dir = or_null(opts_text(o, "drop-in-dir")),
        .name = opts_text(o, "runtime-name"),
        .runtime_path = opts_text(o, "runtime-path"),
        .as_default = opts_bool(o, "set-as-default"),
        .cdi = opts_bool(o, "cdi"),
    };
    if (!s->runtime_path[0])
        s->runtime_path = find_runtime(a, h);
    const char *const paths[] = { s->config, s->drop_in_dir };
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (paths[i] && paths[i][0] != '/')
            return error_set(err, ERR_INVALID, 0, "\"%s\": expected a path from the root",
                             paths[i]);
    if (version[0] && !parse_version(str_of(version), s))
        return error_set(err, ERR_INVALID, 0,
                         "--engine-version \"%s\": expected a version such as "
                         "1.7 or 2.1.4",
                         version);
    if (!version[0] && s->engine == ENGINE_CONTAINERD && !h->root[0])
        ask_version(s);
    return 0;
}

/* ---- the command ---- */

static void print_notes(const struct findings *notes)
{
    for (size_t i = 0; i < notes->n; i++) {
        const struct finding *f = &notes->items[i];
        fprintf(stderr, "%s: %s: %s\n", severity_name(f->severity), f->subject, f->cause);
        if (f->fix[0])
            fprintf(stderr, "  fix: %s\n", f->fix);
    }
}

static void print_plan(const struct runtime_plan *p)
{
    auto_buf out;
    buf_init(&out, OUT_MAX);
    runtime_plan_print(p, &out);
    fputs(out.p ? out.p : "", stdout);
}

static int act(struct arena *a, const struct opts *o, const struct host *h, struct error *err)
{
    struct runtime_setup s;
    struct runtime_plan plan;
    struct findings notes;
    bool dry = opts_bool(o, "dry-run"), undo = opts_bool(o, "undo");
    findings_init(&notes, a, FINDINGS_MAX);
    int r = set_up(a, o, h, &s, err);
    if (r == 0)
        r = undo ? runtime_plan_undo(a, &s, &plan, &notes, err)
                 : runtime_plan_make(a, &s, &plan, &notes, err);
    print_notes(&notes);
    if (r < 0)
        return r;
    print_plan(&plan);
    if (!dry)
        r = runtime_plan_write(h, &s, &plan, err);
    if (r < 0)
        return r;
    const char *engine = s.engine == ENGINE_CRIO ? "crio" : "containerd";
    if (plan.n == 0)
        printf("nothing to change\n");
    else if (dry)
        printf("nothing was written (--dry-run)\n");
    else
        printf("written; \"systemctl restart %s\" makes it count (running containers go on)\n",
               engine);
    return 0;
}

static int run(int argc, char **argv)
{
    struct opts o;
    struct host h;
    struct error err;
    int code;
    if (!command_begin(&cmd_runtime_configure, &o, argc, argv, 0, true, &code))
        return code;
    const struct host_config paths = { .root = opts_text(&o, "host-root") };
    auto_arena arena;
    arena_init(&arena, ARENA_MAX_BYTES);
    int r = host_init(&h, &paths, &err);
    if (r == 0) {
        r = act(&arena, &o, &h, &err);
        host_done(&h);
    }
    fflush(stdout);
    opts_done(&o);
    return r < 0 ? command_fail("mete runtime configure", &err) : 0;
}

const struct command cmd_runtime_configure = {
    .name = "runtime configure",
    .summary = "tell containerd or CRI-O of the runtime that RuntimeClass nvidia names",
    .usage = "[options]",
    .text = "Adds a runtime handler in a drop-in file of its own. Of the engine's own file at most "
            "the line that imports drop-ins is changed, and its old text is kept beside it. "
            "Settings that the present runtime has (the cgroup driver and others) are taken over. "
            "What is written is read again first, by the engine's rules.\n\n"
            "Look at it with --dry-run; --undo takes it back. The engine is not restarted.",
    .options = options,
    .run = run,
};
