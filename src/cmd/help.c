/* SPDX-License-Identifier: Apache-2.0 */
/* mete help: the list of commands, one command's help, and the sources of man pages and completion.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/commands.h"

static const struct opt options[] = {
    { .name = "scdoc",
      .type = OPT_BOOL,
      .help = "print the man page of the command as scdoc source" },
    { .name = "bash-completion", .type = OPT_BOOL, .help = "print the completion script for bash" },
    { 0 },
};

static void list(struct buf *out)
{
    buf_z(out, "mete owns the GPUs of a Kubernetes node and hands each out exactly once.\n\n"
               "usage: mete COMMAND [options]\n\n");
    for (size_t i = 0; i < n_commands; i++)
        if (commands[i]->summary)
            buf_fmt(out, "  %-22s %s\n", commands[i]->name, commands[i]->summary);
    buf_z(out, "\n\"mete help COMMAND\" tells all about one command.\nBy these names mete does "
               "another program's work:");
    for (size_t i = 0; i < n_aliases; i++)
        if (aliases[i].command)
            buf_fmt(out, " %s", aliases[i].name);
    buf_z(out, "\n");
}

/* The commands that begin with `word` ("sim"); false when there is none. */
static bool list_group(const char *word, struct buf *out)
{
    size_t n = strlen(word);
    bool any = false;
    for (size_t i = 0; i < n_commands; i++) {
        const char *name = commands[i]->name;
        if (!commands[i]->summary || strncmp(name, word, n) != 0 || name[n] != ' ')
            continue;
        buf_fmt(out, "  mete %-17s %s\n", name, commands[i]->summary);
        any = true;
    }
    if (any)
        buf_fmt(out, "\n\"mete help %s COMMAND\" tells all about one.\n", word);
    return any;
}

static int run(int argc, char **argv)
{
    struct opts o;
    int code = 0;
    if (!command_begin(&cmd_help, &o, argc, argv, 2, true, &code))
        return code;
    auto_buf out;
    buf_init(&out, 1024 * 1024);
    const struct command *c = NULL;
    bool group = false;
    if (opts_bool(&o, "bash-completion")) {
        command_complete(commands, n_commands, "mete", &out);
    } else if (o.n_args == 0) {
        list(&out);
    } else {
        char *words[] = { NULL, o.args[0], o.n_args > 1 ? o.args[1] : NULL };
        int used = 0;
        c = command_find(o.n_args + 1, words, &used);
        group = !c && o.n_args == 1 && list_group(o.args[0], &out);
        if (!c && !group)
            fprintf(stderr, "mete help: there is no command \"%s%s%s\"; \"mete help\" lists all\n",
                    o.args[0], o.n_args > 1 ? " " : "", o.n_args > 1 ? o.args[1] : "");
        else if (c && opts_bool(&o, "scdoc"))
            command_man(c, "mete", &out);
        else if (c)
            command_help(c, "mete", &out);
    }
    if (out.p)
        fputs(out.p, stdout);
    code = o.n_args > 0 && !c && !group && !opts_bool(&o, "bash-completion") ? 2 : 0;
    opts_done(&o);
    return code;
}

const struct command cmd_help = {
    .name = "help",
    .summary = "list the commands, or tell all about one",
    .usage = "[COMMAND]",
    .options = options,
    .run = run,
};
