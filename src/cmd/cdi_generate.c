/* SPDX-License-Identifier: Apache-2.0 */
/* mete cdi generate: CDI files of this host, with the options of nvidia-ctk cdi generate. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "base/mem.h"
#include "cdi/generate.h"
#include "cdi/registry.h"
#include "cmd/commands.h"
#include "data/json.h"
#include "gpu/worker.h"

enum { ARENA_MAX_BYTES = 64 << 20, FILE_MAX_BYTES = 16 << 20, FINDINGS_MAX = 200 };

static const char program[] = "mete cdi generate";

static const struct opt options[] = {
    { .name = "output",
      .letter = 'o',
      .type = OPT_STRING,
      .env = { "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH" },
      .value_name = "FILE",
      .help = "write this file, atomically and with mode 0644; empty: standard output" },
    { .name = "format",
      .type = OPT_STRING,
      .env = { "NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT" },
      .choices = "json|yaml",
      .value_name = "FORMAT",
      .help = "json or yaml (default: by the file's name, else yaml)" },
    { .name = "mode",
      .type = OPT_STRING,
      .aliases = { "discovery-mode" },
      .env = { "NVIDIA_CTK_CDI_GENERATE_MODE" },
      .deflt = "auto",
      .value_name = "MODE",
      .help = "what to look for: auto, nvml, wsl, management, gds, gdrcopy, mofed, imex or "
              "nvswitch" },
    { .name = "vendor",
      .type = OPT_STRING,
      .aliases = { "cdi-vendor" },
      .env = { "NVIDIA_CTK_CDI_GENERATE_VENDOR" },
      .deflt = "nvidia.com",
      .value_name = "NAME",
      .help = "first part of the devices' names" },
    { .name = "class",
      .type = OPT_STRING,
      .aliases = { "cdi-class" },
      .env = { "NVIDIA_CTK_CDI_GENERATE_CLASS" },
      .value_name = "NAME",
      .help = "second part of the devices' names (default: gpu, or that of the mode)" },
    { .name = "device-name-strategy",
      .type = OPT_LIST,
      .env = { "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES" },
      .deflt = "index,uuid",
      .value_name = "WORDS",
      .help = "names of each device: index (0, 0:1), uuid, type-index (gpu0, mig0:1); several may "
              "be given" },
    { .name = "device-id",
      .type = OPT_LIST,
      .aliases = { "device-ids", "device", "devices" },
      .env = { "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS" },
      .deflt = "all",
      .value_name = "IDS",
      .help = "only these: uuids, indexes, all, or none (a device that gives nothing)" },
    { .name = "no-all-device",
      .type = OPT_BOOL,
      .env = { "NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE" },
      .help = "leave out the device \"all\"" },
    { .name = "driver-root",
      .type = OPT_STRING,
      .aliases = { "nvidia-driver-root" },
      .env = { "NVIDIA_CTK_DRIVER_ROOT", "NVIDIA_DRIVER_ROOT" },
      .deflt = "/",
      .value_name = "DIR",
      .help = "where the driver is installed, as a path of the host",
      .group = "Paths" },
    { .name = "driver-root-ctr-path",
      .type = OPT_STRING,
      .env = { "DRIVER_ROOT_CTR_PATH" },
      .value_name = "DIR",
      .help = "where this process sees the driver root",
      .group = "Paths" },
    { .name = "dev-root",
      .type = OPT_STRING,
      .aliases = { "nvidia-dev-root" },
      .env = { "NVIDIA_CTK_DEV_ROOT", "NVIDIA_DEV_ROOT" },
      .value_name = "DIR",
      .help = "the host's directory whose dev/ holds the device nodes (default: where they are)",
      .group = "Paths" },
    { .name = "host-root",
      .type = OPT_STRING,
      .env = { "METE_HOST_ROOT" },
      .deflt = "/",
      .value_name = "DIR",
      .help = "where this process sees the host's /proc, /sys and /dev",
      .group = "Paths" },
    { .name = "library-search-path",
      .type = OPT_LIST,
      .env = { "NVIDIA_CTK_CDI_GENERATE_LIBRARY_SEARCH_PATHS" },
      .value_name = "DIRS",
      .help = "folders of the driver root to look for libraries in, before the usual ones",
      .group = "Paths" },
    { .name = "config-search-path",
      .type = OPT_LIST,
      .env = { "NVIDIA_CTK_CDI_GENERATE_CONFIG_SEARCH_PATHS" },
      .value_name = "DIRS",
      .help =
          "folders of the driver root to look for configuration of graphics loaders in, instead "
          "of /etc, /usr/local/share and /usr/share",
      .group = "Paths" },
    { .name = "nvidia-cdi-hook-path",
      .type = OPT_STRING,
      .aliases = { "nvidia-ctk-path" },
      .env = { "NVIDIA_CTK_CDI_HOOK_PATH" },
      .value_name = "FILE",
      .help = "the host's program that hooks call (default: the first there is of mete-hook, "
              "nvidia-cdi-hook and nvidia-ctk)",
      .group = "Hooks" },
    { .name = "disable-hook",
      .type = OPT_LIST,
      .aliases = { "disable-hooks" },
      .env = { "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS" },
      .value_name = "NAMES",
      .help = "hooks to leave out; all: every hook",
      .group = "Hooks" },
    { .name = "enable-hook",
      .type = OPT_LIST,
      .aliases = { "enable-hooks" },
      .env = { "NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS" },
      .value_name = "NAMES",
      .help = "hooks to have although they are disabled, or off unless asked for (chmod)",
      .group = "Hooks" },
    { .name = "ldconfig-path",
      .type = OPT_STRING,
      .env = { "NVIDIA_CTK_CDI_GENERATE_LDCONFIG_PATH" },
      .value_name = "FILE",
      .help = "accepted and not used: the hook writes the loader's cache itself",
      .group = "Hooks" },
    { .name = "feature-flag",
      .type = OPT_LIST,
      .aliases = { "feature-flags" },
      .env = { "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS" },
      .value_name = "FLAGS",
      .help = "no-additional-gids-for-device-nodes, enable-explicit-driver-libraries, "
              "enable-coherent-annotations, disable-ipc-discoverer, disable-nvsandbox-utils" },
    { .name = "timeout",
      .type = OPT_DURATION,
      .deflt = "30s",
      .help = "how long the driver may take" },
    { 0 },
};

static struct cdi_texts texts_of(const struct opts *o, const char *name)
{
    const struct opt_value *v = opts_get(o, name);
    struct cdi_texts t = { v->items, v->n_items };
    return t.n == 1 && !t.items[0][0] ? (struct cdi_texts){ 0 } : t; /* set to nothing */
}

/* ---- words that must be known ---- */

static int check_words(const struct cdi_texts *t, const char *option, const char *const *known,
                       size_t n, bool all, struct error *err)
{
    for (size_t i = 0; i < t->n; i++) {
        bool fine = all && strcmp(t->items[i], "all") == 0;
        for (size_t k = 0; k < n && !fine; k++)
            fine = strcmp(t->items[i], known[k]) == 0;
        if (fine)
            continue;
        const char *near = str_nearest(str_of(t->items[i]), known, n);
        return error_set(err, ERR_INVALID, 0, "--%s \"%s\" is not known%s%s%s; --help lists all",
                         option, t->items[i], near ? "; did you mean \"" : "", near ? near : "",
                         near ? "\"?" : "");
    }
    return 0;
}

static int read_namings(const struct opts *o, enum cdi_naming *namings, size_t max, size_t *ret_n,
                        struct error *err)
{
    struct cdi_texts t = texts_of(o, "device-name-strategy");
    if (t.n == 0 || t.n > max)
        return error_set(err, ERR_INVALID, 0,
                         "--device-name-strategy: give one to %zu of index, uuid and type-index",
                         max);
    for (size_t i = 0; i < t.n; i++)
        if (!cdi_naming_of(str_of(t.items[i]), &namings[i]))
            return error_set(err, ERR_INVALID, 0,
                             "--device-name-strategy \"%s\": expected index, uuid or type-index",
                             t.items[i]);
    *ret_n = t.n;
    return 0;
}

static const char *default_class(enum cdi_mode mode)
{
    static const char *const classes[] = {
        [CDI_MODE_GDS] = "gds",           [CDI_MODE_GDRCOPY] = "gdrcopy",
        [CDI_MODE_MOFED] = "mofed",       [CDI_MODE_IMEX] = "imex-channel",
        [CDI_MODE_NVSWITCH] = "nvswitch",
    };
    return (size_t)mode < ARRAY_LEN(classes) && classes[mode] ? classes[mode] : "gpu";
}

/* ---- the hook's path ---- */

static char *beside_us(const char *name)
{
    char exe[1024];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (!slash)
        return NULL;
    *slash = '\0';
    static const char *const places[] = { "../libexec/mete", ".", "../hook" };
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        auto_free char *path = x_printf("%s/%s/%s", exe, places[i], name);
        char *real = access(path, X_OK) == 0 ? realpath(path, NULL) : NULL;
        if (real)
            return real;
    }
    return NULL;
}

/* As the host sees it; heap. */
static char *hook_path(const struct opts *o, const struct host *h)
{
    static const char *const dirs[] = { "/usr/bin", "/usr/local/bin", "/usr/sbin",
                                        "/usr/local/nvidia/toolkit", "/opt/bin" };
    static const char *const usual[] = { "nvidia-cdi-hook", "nvidia-ctk" };
    const char *given = opts_text(o, "nvidia-cdi-hook-path");
    if (strchr(given, '/'))
        return x_strdup(given);
    char *ours = given[0] || h->root[0] ? NULL : beside_us("mete-hook");
    if (ours)
        return ours;
    for (size_t k = 0; k < (given[0] ? 1 : ARRAY_LEN(usual)); k++) {
        for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
            char *path = x_printf("%s/%s", dirs[i], given[0] ? given : usual[k]);
            auto_free char *seen = host_path(h, path);
            if (access(seen, X_OK) == 0)
                return path;
            free(path);
        }
    }
    return x_printf("/usr/bin/%s", given[0] ? given : usual[0]);
}

/* ---- output ---- */

static int to_yaml(struct arena *a, struct buf *text, struct error *err)
{
    static const struct doc_limits limits = { FILE_MAX_BYTES, 16, 4000000 };
    struct value *v;
    int r = json_parse(a, buf_view(text), "spec", &limits, &v, err);
    if (r < 0)
        return r;
    auto_buf yaml;
    buf_init(&yaml, FILE_MAX_BYTES);
    value_to_yaml(v, &yaml);
    r = buf_check(&yaml, "the CDI file", err);
    buf_reset(text);
    buf_str(text, buf_view(&yaml));
    return r;
}

static bool wants_yaml(const struct opts *o)
{
    const char *format = opts_text(o, "format");
    struct str name = str_of(opts_text(o, "output"));
    if (format[0])
        return strcmp(format, "yaml") == 0;
    return !str_ends(name, ".json");
}

/* "nvidia.yaml" and class "gpu.coherent" → "nvidia.coherent.yaml". */
static char *file_of(const char *output, const struct cdi_spec *spec, bool first)
{
    const char *name = path_name(output), *dot = strrchr(name, '.'),
               *infix = strrchr(spec->kind, '.');
    if (first)
        return x_strdup(output);
    size_t n = dot && dot != name ? (size_t)(dot - output) : strlen(output);
    return x_printf("%.*s%s%s", (int)n, output, infix, output + n);
}

static int write_file(const struct host *h, const char *path, struct str text, struct error *err)
{
    const char *name = path_name(path);
    auto_free char *dir = path_parent(path);
    if (!name[0])
        return error_set(err, ERR_INVALID, 0, "--output \"%s\" names a folder", path);
    auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "open the folder of %s", path);
    return file_replace(h, fd, name, text, 0644, FILE_SYNC_FILE, err);
}

static int put_spec(const struct opts *o, const struct host *h, struct arena *a,
                    const struct cdi_spec *spec, bool first, struct error *err)
{
    const char *output = opts_text(o, "output");
    auto_buf text;
    buf_init(&text, FILE_MAX_BYTES);
    int r = cdi_encode(spec, &text, err);
    if (r == 0 && wants_yaml(o))
        r = to_yaml(a, &text, err);
    else if (r == 0)
        buf_ch(&text, '\n');
    if (r < 0)
        return r;
    if (!output[0]) {
        if (!first && wants_yaml(o))
            puts("---");
        fputs(text.p, stdout);
        return 0;
    }
    auto_free char *path = file_of(output, spec, first);
    r = write_file(h, path, buf_view(&text), err);
    if (r == 0)
        fprintf(stderr, "%s: wrote %s: %s, %zu devices, version %s\n", program, path, spec->kind,
                spec->n_devices, cdi_version(spec));
    return r;
}

/* ---- the command ---- */

static void print_notes(const struct findings *notes)
{
    for (size_t i = 0; i < notes->n; i++)
        if (notes->items[i].severity != SEVERITY_INFO)
            fprintf(stderr, "%s: %s: %s (%s)\n", program, severity_name(notes->items[i].severity),
                    notes->items[i].cause, notes->items[i].fix);
}

static int read_options(const struct opts *o, struct cdi_generate *g, enum cdi_naming *namings,
                        struct error *err)
{
    const char *mode = opts_text(o, "mode");
    if (strcmp(mode, "csv") == 0)
        return error_set(err, ERR_UNSUPPORTED, 0,
                         "--mode csv is for Tegra, which is not supported; use nvidia-ctk there");
    if (!cdi_mode_of(str_of(mode), &g->mode))
        return error_set(err, ERR_INVALID, 0, "--mode \"%s\": expected %s", mode, cdi_mode_words);
    g->hooks_off = texts_of(o, "disable-hook");
    g->hooks_on = texts_of(o, "enable-hook");
    g->flags = texts_of(o, "feature-flag");
    g->library_dirs = texts_of(o, "library-search-path");
    g->config_dirs = texts_of(o, "config-search-path");
    g->ids = texts_of(o, "device-id");
    g->all_device = !opts_bool(o, "no-all-device");
    g->namings = namings;
    int r = read_namings(o, namings, 3, &g->n_namings, err);
    if (r == 0)
        r = check_words(&g->hooks_off, "disable-hook", cdi_hooks, n_cdi_hooks, true, err);
    if (r == 0)
        r = check_words(&g->hooks_on, "enable-hook", cdi_hooks, n_cdi_hooks, false, err);
    return r < 0 ? r : check_words(&g->flags, "feature-flag", cdi_flags, n_cdi_flags, false, err);
}

static bool needs_survey(enum cdi_mode mode)
{
    return mode == CDI_MODE_AUTO || mode == CDI_MODE_GPU || mode == CDI_MODE_WSL;
}

static int generate(const struct opts *o, const struct host *h, struct cdi_generate *g,
                    struct error *err)
{
    auto_arena a;
    struct findings notes;
    struct survey *s = NULL;
    struct cdi_spec *specs;
    size_t n = 0;
    arena_init(&a, ARENA_MAX_BYTES);
    findings_init(&notes, &a, FINDINGS_MAX);
    auto_free char *hook = hook_path(o, h),
                   *kind = x_printf("%s/%s", opts_text(o, "vendor"),
                                    opts_text(o, "class")[0] ? opts_text(o, "class")
                                                             : default_class(g->mode)),
                   *probe = x_printf("%s=x", kind);
    g->hook_path = hook;
    g->kind = kind;
    if (!cdi_name_valid(str_of(probe)))
        return error_set(err, ERR_INVALID, 0,
                         "\"%s\" is no kind; --vendor and --class begin with a letter, and hold "
                         "letters, digits and _ - . inside",
                         kind);
    int64_t ms = opts_int(o, "timeout") / 1000000;
    int r = needs_survey(g->mode) ? gpu_survey_once(h, MAX(ms, (int64_t)1), &s, err) : 0;
    if (r == 0)
        r = cdi_generate(&a, h, s, g, &specs, &n, &notes, err);
    print_notes(&notes);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = put_spec(o, h, &a, &specs[i], i == 0, err);
    survey_unref(s);
    return r;
}

static int run(int argc, char **argv)
{
    struct opts o;
    struct host h;
    struct error err;
    int code = 0;
    if (!command_begin(&cmd_cdi_generate, &o, argc, argv, 0, false, &code))
        return code;
    enum cdi_naming namings[3];
    struct cdi_generate g = { 0 };
    int r = opts_text(&o, "format")[0] ? opts_check(&o, &err) : 0;
    if (r == 0)
        r = read_options(&o, &g, namings, &err);
    if (r == 0) {
        const struct host_config paths = {
            .root = opts_text(&o, "host-root"),
            .driver_root = opts_text(&o, "driver-root"),
            .driver_root_view = opts_text(&o, "driver-root-ctr-path"),
            .dev_root = opts_text(&o, "dev-root"),
        };
        r = host_init(&h, &paths, &err);
        if (r == 0) {
            r = generate(&o, &h, &g, &err);
            host_done(&h);
        }
    }
    opts_done(&o);
    fflush(stdout);
    return r < 0 ? command_fail(program, &err) : 0;
}

const struct command cmd_cdi_generate = {
    .name = "cdi generate",
    .summary = "write the CDI file of this host's gpus and driver",
    .usage = "[options]",
    .text = "Looks at gpus, device nodes and the driver's files, and writes what a container "
            "engine has to do for each device. Options and variables are those of \"nvidia-ctk "
            "cdi generate\". Nothing is run and no link is followed out of the driver root. The "
            "same host gives the same bytes.\n\n"
            "What a container may miss (a library of the driver that is not there, a node) is a "
            "warning on standard error. The exit code is 0 when the file was written.",
    .options = options,
    .run = run,
};
