/* SPDX-License-Identifier: Apache-2.0 */
/* mete config check, mete config show: what is wrong with a config, and which values are in force
 * and why. Needs no GPU. */
#define AGENT_STATE_DIR_DEFAULT "/var/lib/mete"

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "gpu/worker.h"
#include "node/inventory.h"
#include "spec/pattern.h"
#include "spec/pluginconfig.h"

static const struct opt show_options[] = { PLUGINCONFIG_OPTIONS, AGENT_OPTIONS, { 0 } };

static const struct opt check_options[] = {
    PLUGINCONFIG_OPTIONS,
    AGENT_OPTIONS,
    { .name = "gpu-name",
      .type = OPT_LIST,
      .value_name = "NAMES",
      .group = "Check",
      .help =
          "names of gpus as the driver tells them, to see which patterns of resources.gpus take "
          "them" },
    { .name = "mig-profile",
      .type = OPT_LIST,
      .value_name = "PROFILES",
      .group = "Check",
      .help = "MIG profiles, to see which patterns of resources.mig take them" },
    { .name = "survey",
      .type = OPT_BOOL,
      .deflt = "false",
      .group = "Check",
      .help = "also try the config on this host's gpus" },
    { 0 },
};

enum { FINDINGS_MAX = 1000, FINDINGS_ARENA = 4 * 1024 * 1024, SURVEY_MS = 30000 };

/* Returns how many of them are warnings. */
static size_t print_findings(const struct findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *it = &f->items[i];
        printf("%s: %s: %s\n", it->subject, severity_name(it->severity), it->cause);
        if (it->fix && it->fix[0] && strcmp(it->fix, "nothing") != 0)
            printf("  fix: %s\n", it->fix);
    }
    return findings_count(f, SEVERITY_WARNING);
}

/* ---- against names, against a host ---- */

static size_t check_names(const struct opts *o, const struct plugin_config *c)
{
    const struct opt_value *gpus = opts_get(o, "gpu-name"), *parts = opts_get(o, "mig-profile");
    auto_arena arena;
    struct findings found;
    arena_init(&arena, FINDINGS_ARENA);
    findings_init(&found, &arena, FINDINGS_MAX);
    if (gpus->n_items)
        pattern_explain(c->gpu_patterns, c->n_gpu_patterns, c->source, "GPU name", gpus->items,
                        gpus->n_items, &found);
    if (parts->n_items)
        pattern_explain(c->mig_patterns, c->n_mig_patterns, c->source, "MIG profile", parts->items,
                        parts->n_items, &found);
    return print_findings(&found);
}

static int try_on(struct survey *s, const struct plugin_config *c, size_t *warnings,
                  struct error *err)
{
    if (s->driver != DRIVER_OK)
        return error_set(err, ERR_UNAVAILABLE, 0, "the host's gpus cannot be surveyed: %s",
                         s->driver_text);
    const struct inventory_input in = { .survey = s, .config = c };
    struct inventory *inv = NULL;
    int r = inventory_build(&in, &inv, err);
    if (r < 0)
        return r;
    *warnings += print_findings(&inv->notes);
    for (size_t i = 0; i < inv->n_resources; i++)
        printf("this host would offer %s: %zu\n", inv->resources[i].name,
               inv->resources[i].n_devices);
    if (inv->n_resources == 0)
        puts("this host would offer nothing");
    inventory_free(inv);
    return 0;
}

static int check_host(const struct opts *o, const struct plugin_config *c, size_t *warnings,
                      struct error *err)
{
    const struct opt_value *view = opts_get(o, "driver-root-ctr-path");
    const struct host_config paths = {
        .root = opts_text(o, "host-root"),
        .driver_root = c->driver_root,
        .driver_root_view = view->source == OPT_FROM_DEFAULT ? NULL : view->text,
        .dev_root = opts_text(o, "dev-root"),
    };
    struct host h;
    int r = host_init(&h, &paths, err);
    if (r < 0)
        return r;
    struct survey *s = NULL;
    r = gpu_survey_once(&h, SURVEY_MS, &s, err);
    if (r == 0)
        r = try_on(s, c, warnings, err);
    survey_unref(s);
    host_done(&h);
    return r;
}

/* ---- the commands ---- */

/* `mete config check FILE` is `--config-file FILE` with the findings on standard output. */
static int parse(const struct command *c, struct opts *o, int argc, char **argv, struct error *err)
{
    auto_free char **again = x_alloc(((size_t)argc + 3) * sizeof *again);
    auto_free char *flag = x_printf("--config-file=%s", o->args[0]);
    char *name = o->args[0];
    int n = 0;
    for (int i = 0; i < argc; i++)
        if (argv[i] != name)
            again[n++] = argv[i];
    again[n++] = flag;
    opts_done(o);
    return opts_parse(o, c->options, n, again, NULL, 0, err);
}

static void print_config(const struct plugin_config *config)
{
    auto_buf out;
    buf_init(&out, 4 * 1024 * 1024);
    pluginconfig_print(config, &out);
    puts(out.p ? out.p : "");
}

static int run(const struct command *c, int argc, char **argv, bool show)
{
    struct opts o;
    int code = 0;
    if (!command_begin(c, &o, argc, argv, 1, false, &code))
        return code;
    struct error err;
    int r = o.n_args > 0 ? parse(c, &o, argc, argv, &err) : 0;
    if (r < 0)
        return command_fail(c->name, &err);
    auto_arena arena;
    arena_init(&arena, FINDINGS_ARENA);
    struct findings findings;
    findings_init(&findings, &arena, FINDINGS_MAX);
    struct plugin_config *config = NULL;
    r = pluginconfig_load(&o, NULL, NULL, &findings, &config, &err);
    size_t warnings = print_findings(&findings);
    bool told = findings_count(&findings, SEVERITY_ERROR) > 0;
    if (r == 0 && show)
        print_config(config);
    else if (r == 0)
        warnings += check_names(&o, config);
    if (r == 0 && !show && opts_bool(&o, "survey"))
        r = check_host(&o, config, &warnings, &err);
    if (r < 0 && !told)
        fprintf(stderr, "mete %s: %s\n", c->name, err.text);
    if (r == 0 && !show)
        printf("%s: %zu warnings, no error\n", config->source ? config->source : "no config file",
               warnings);
    pluginconfig_free(config);
    opts_done(&o);
    return r < 0 ? error_exit_code(err.code) : 0;
}

static int run_check(int argc, char **argv)
{
    return run(&cmd_config_check, argc, argv, false);
}

static int run_show(int argc, char **argv)
{
    return run(&cmd_config_show, argc, argv, true);
}

const struct command cmd_config_check = {
    .name = "config check",
    .summary = "say what is wrong with a config file, without a GPU or a cluster",
    .usage = "[options] [FILE]",
    .text = "Reads the file as the agent would, with the same flags and environment, and prints "
            "each fault with file, "
            "line, column, key, what was found and what is allowed. With --gpu-name or "
            "--mig-profile it says which of these names each pattern takes; with --survey it tries "
            "the config on this host's gpus. Exit code 0: the agent would take it; 2: it would "
            "not.",
    .options = check_options,
    .run = run_check,
};

const struct command cmd_config_show = {
    .name = "config show",
    .summary = "print the config in force and where each value comes from",
    .usage = "[options] [FILE]",
    .options = show_options,
    .run = run_show,
};
