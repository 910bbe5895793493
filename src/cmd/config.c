/* SPDX-License-Identifier: Apache-2.0 */
/* mete config check, mete config show: what is wrong with a config, and which values are in force
 * and why. Needs no GPU. */
#define AGENT_STATE_DIR_DEFAULT "/var/lib/mete"

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "spec/pluginconfig.h"

static const struct opt options[] = { PLUGINCONFIG_OPTIONS, AGENT_OPTIONS, { 0 } };

enum { FINDINGS_MAX = 1000, FINDINGS_ARENA = 4 * 1024 * 1024 };

static void print_findings(const struct findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *it = &f->items[i];
        printf("%s: %s: %s\n", it->subject, severity_name(it->severity), it->cause);
        if (it->fix && it->fix[0])
            printf("  fix: %s\n", it->fix);
    }
}

/* `mete config check FILE` is `--config-file FILE` with the findings on standard output. */
static int run(const struct command *c, int argc, char **argv, bool show)
{
    struct opts o;
    int code = 0;
    if (!command_begin(c, &o, argc, argv, 1, false, &code))
        return code;
    struct error err;
    int r = 0;
    if (o.n_args > 0) {
        auto_free char **again = x_alloc(((size_t)argc + 3) * sizeof *again);
        auto_free char *flag = x_printf("--config-file=%s", o.args[0]);
        char *name = o.args[0];
        int n = 0;
        for (int i = 0; i < argc; i++)
            if (argv[i] != name)
                again[n++] = argv[i];
        again[n++] = flag;
        opts_done(&o);
        r = opts_parse(&o, options, n, again, NULL, 0, &err);
        if (r < 0)
            return command_fail(c->name, &err);
    }
    auto_arena arena;
    arena_init(&arena, FINDINGS_ARENA);
    struct findings findings;
    findings_init(&findings, &arena, FINDINGS_MAX);
    struct plugin_config *config = NULL;
    r = pluginconfig_load(&o, NULL, NULL, &findings, &config, &err);
    print_findings(&findings);
    if (r < 0 && findings_count(&findings, SEVERITY_ERROR) == 0)
        fprintf(stderr, "mete %s: %s\n", c->name, err.text);
    if (r == 0 && show) {
        auto_buf out;
        buf_init(&out, 4 * 1024 * 1024);
        pluginconfig_print(config, &out);
        puts(out.p ? out.p : "");
    } else if (r == 0) {
        printf("%s: %zu warnings, no error\n", config->source ? config->source : "no config file",
               findings_count(&findings, SEVERITY_WARNING));
    }
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
            "line, column, key, what was found and what is allowed. Exit code 0: the agent would "
            "take it; 2: it would not.",
    .options = options,
    .run = run_check,
};

const struct command cmd_config_show = {
    .name = "config show",
    .summary = "print the config in force and where each value comes from",
    .usage = "[options] [FILE]",
    .options = options,
    .run = run_show,
};
