/* SPDX-License-Identifier: Apache-2.0 */
/* Picks the command: by the program's own name (drop-in names), else by the first one or two words.
 */
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cmd/commands.h"

const struct command *const commands[] = {
    &cmd_agent,
    &cmd_survey,
    &cmd_labels,
    &cmd_status,
    &cmd_config_check,
    &cmd_config_show,
    &cmd_cdi_generate,
    &cmd_cdi_list,
    &cmd_cdi_check,
    &cmd_cdi_apply,
    &cmd_driver_release,
    &cmd_driver_acquire,
    &cmd_runtime_configure,
    &cmd_sim_create,
    &cmd_sim_set,
    &cmd_sim_show,
    &cmd_sim_kubelet,
    &cmd_version,
    &cmd_help,
    &cmd_nvidia_device_plugin,
    &cmd_gpu_feature_discovery,
    &cmd_gpu_worker,
};
const size_t n_commands = ARRAY_LEN(commands);

const struct alias aliases[] = {
    { "nvidia-device-plugin", &cmd_nvidia_device_plugin },
    { "gpu-feature-discovery", &cmd_gpu_feature_discovery },
    { "gpu-kubelet-plugin", NULL },
    { "nvidia-mig-parted", NULL },
    { "nvidia-cdi-hook", NULL },
    { "nvidia-ctk", NULL },
    { "nvidia-container-runtime", NULL },
};
const size_t n_aliases = ARRAY_LEN(aliases);

static bool named(const char *name, int argc, char **argv, int *ret_words)
{
    struct str rest = str_of(name);
    int words = 0;
    while (rest.p) {
        struct str word = str_cut(&rest, ' ');
        if (words + 1 >= argc || !str_is(word, argv[words + 1]))
            return false;
        words++;
    }
    *ret_words = words;
    return true;
}

const struct command *command_find(int argc, char **argv, int *ret_words)
{
    for (size_t i = 0; i < n_commands; i++)
        if (named(commands[i]->name, argc, argv, ret_words))
            return commands[i];
    return NULL;
}

int command_fail(const char *program, const struct error *err)
{
    fprintf(stderr, "%s: %s\n", program, err->text);
    return error_exit_code(err->code);
}

bool command_begin(const struct command *c, struct opts *o, int argc, char **argv, int max_args,
                   bool check, int *ret_exit)
{
    struct error err;
    int r = opts_parse(o, c->options, argc, argv, NULL, max_args, &err);
    if (r == 0 && !o->help && check)
        r = opts_check(o, &err);
    if (r == 0 && !o->help)
        return true;
    if (r < 0) {
        auto_free char *program = x_printf("mete %s", c->name);
        *ret_exit = command_fail(program, &err);
    } else {
        auto_buf out;
        buf_init(&out, 256 * 1024);
        command_help(c, "mete", &out);
        fputs(out.p ? out.p : "", stdout);
        *ret_exit = 0;
    }
    opts_done(o);
    return false;
}

static int unknown_command(const char *word)
{
    const char *names[ARRAY_LEN(commands)];
    for (size_t i = 0; i < n_commands; i++)
        names[i] = commands[i]->name;
    const char *near = str_nearest(str_of(word), names, n_commands);
    if (near)
        fprintf(stderr, "mete: there is no command \"%s\"; did you mean \"mete %s\"?\n", word,
                near);
    else
        fprintf(stderr, "mete: there is no command \"%s\"; \"mete help\" lists all\n", word);
    return 2;
}

/* Commands whose first word is `word` ("sim"), when the second is missing or wrong. */
static int incomplete_command(const char *word, const char *second)
{
    size_t n = strlen(word);
    bool any = false;
    for (size_t i = 0; i < n_commands; i++) {
        const char *name = commands[i]->name;
        if (strncmp(name, word, n) != 0 || name[n] != ' ')
            continue;
        if (!any && second)
            fprintf(stderr, "mete: there is no command \"%s %s\"; there are:\n", word, second);
        else if (!any)
            fprintf(stderr, "mete: \"%s\" needs one word more:\n", word);
        any = true;
        fprintf(stderr, "  mete %-18s %s\n", name,
                commands[i]->summary ? commands[i]->summary : "");
    }
    return any ? 2 : unknown_command(word);
}

static int by_name(const char *program, int argc, char **argv)
{
    for (size_t i = 0; i < n_aliases; i++) {
        if (strcmp(program, aliases[i].name) != 0)
            continue;
        if (aliases[i].command)
            return aliases[i].command->run(argc, argv);
        fprintf(stderr,
                "%s: this version of mete (" METE_VERSION
                ") does not do the work of %s yet; keep the original program for it\n",
                program, program);
        return error_exit_code(ERR_UNSUPPORTED);
    }
    return -1;
}

int main(int argc, char **argv)
{
    /* One arena, and big blocks given back at once: a node agent must be as small after a big list
     * as before it. */
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);

    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *program = slash ? slash + 1 : argc > 0 ? argv[0] : "mete";
    int code = by_name(program, argc, argv);
    if (code >= 0)
        return code;

    char *help[] = { argc > 0 ? argv[0] : (char[]){ "mete" }, (char[]){ "help" }, NULL };
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return cmd_help.run(1, help + 1) == 0 && argc >= 2 ? 0 : 2;
    if (strcmp(argv[1], "--version") == 0)
        return cmd_version.run(1, argv + 1);

    int words = 0;
    const struct command *c = command_find(argc, argv, &words);
    if (!c)
        return incomplete_command(argv[1], argc > 2 ? argv[2] : NULL);
    return c->run(argc - words, argv + words);
}
