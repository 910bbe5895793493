/* SPDX-License-Identifier: Apache-2.0 */
/* Which container is made from which bundle, read off the arguments of runc, crun and their like.
 */
#include <string.h>

#include "base/mem.h"
#include "runtime/runtime.h"

/* Options that take the next argument as their value. */
static const char *const global_values[] = { "log",  "log-format", "log-level", "root",
                                             "criu", "rootless",   "config",    "cgroup-manager" };
static const char *const create_values[] = {
    "bundle", "b", "console-socket", "pid-file", "pidfd-socket", "preserve-fds", "config", "f"
};
/* Words that end the global options. What is not among them after an option that is not known here
 * is that option's value. */
static const char *const words[] = { "checkpoint", "create", "delete", "events",  "exec",
                                     "features",   "help",   "init",   "kill",    "list",
                                     "mounts",     "pause",  "ps",     "restore", "resume",
                                     "run",        "spec",   "start",  "state",   "update",
                                     "version" };

static bool is_one_of(struct str name, const char *const *set, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, set[i]))
            return true;
    return false;
}

/* "--name=value", "-name value", …: the name, and the value if it is in the same argument. */
static struct str option_name(const char *arg, const char **ret_value)
{
    const char *name = arg + (arg[1] == '-' ? 2 : 1), *equal = strchr(name, '=');
    *ret_value = equal ? equal + 1 : NULL;
    return (struct str){ name, equal ? (size_t)(equal - name) : strlen(name) };
}

static bool is_option(const char *arg)
{
    return arg[0] == '-' && arg[1] != '\0';
}

static void keep_global(struct runtime_command *c, struct str name, const char *value)
{
    if (str_is(name, "log"))
        c->log = value;
    else if (str_is(name, "log-format"))
        c->log_format = value;
}

/* Walks the global options; returns the index of the command word, or argc. */
static int take_global(struct runtime_command *c, int argc, char *const *argv)
{
    int i = 1;
    for (; i < argc && is_option(argv[i]); i++) {
        const char *value;
        struct str name = option_name(argv[i], &value);
        if (strcmp(argv[i], "--") == 0)
            return i + 1;
        if (value) {
            keep_global(c, name, value);
            continue;
        }
        bool valued = is_one_of(name, global_values, ARRAY_LEN(global_values));
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!valued && next && !is_option(next) &&
            !is_one_of(str_of(next), words, ARRAY_LEN(words)) && i + 2 < argc &&
            is_one_of(str_of(argv[i + 2]), words, ARRAY_LEN(words)))
            valued = true;
        if (valued && next) {
            keep_global(c, name, next);
            i++;
        }
    }
    return i;
}

static void keep_create(struct runtime_command *c, struct str name, const char *value)
{
    if (str_is(name, "bundle") || str_is(name, "b"))
        c->bundle = value;
    else if (str_is(name, "config") || str_is(name, "f"))
        c->config_name = value;
}

/* "-bDIR", as crun takes it. */
static bool joined_letter(const char *arg)
{
    return (arg[1] == 'b' || arg[1] == 'f') && arg[2] != '\0' && arg[2] != '=' &&
           strncmp(arg, "-bundle", 7) != 0;
}

static void take_create(struct runtime_command *c, int argc, char *const *argv, int i)
{
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *value;
        if (!is_option(argv[i]))
            continue;
        struct str name = option_name(argv[i], &value);
        if (joined_letter(argv[i]))
            keep_create(c, (struct str){ argv[i] + 1, 1 }, argv[i] + 2);
        else if (value)
            keep_create(c, name, value);
        else if (is_one_of(name, create_values, ARRAY_LEN(create_values)) && i + 1 < argc)
            keep_create(c, name, argv[++i]);
    }
}

struct runtime_command runtime_command_of(int argc, char *const *argv)
{
    struct runtime_command c = { .bundle = ".", .config_name = "config.json" };
    int at = take_global(&c, argc, argv);
    if (at >= argc)
        return c;
    c.word = argv[at];
    c.makes_container = strcmp(c.word, "create") == 0 || strcmp(c.word, "run") == 0;
    if (c.makes_container)
        take_create(&c, argc, argv, at + 1);
    return c;
}
