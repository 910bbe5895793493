/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mete-hook ACTION [options]; as nvidia-cdi-hook ACTION, nvidia-ctk hook ACTION. Reads the
 * container state on standard input. An action that this version does not know ends with 0 and a
 * warning, so that older hooks survive newer CDI files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "hook/hook.h"

enum { FDS_MAX = 65536 };

typedef int action_fn(int rootfd, const struct hook_options *o, struct error *err);

static const struct {
    const char *name;
    action_fn *run;
} actions[] = {
    { "create-symlinks", hook_create_symlinks },
    { "update-ldcache", hook_update_ldcache },
    { "enable-cuda-compat", hook_enable_cuda_compat },
    { "disable-device-node-modification", hook_disable_device_node_modification },
    { "update-application-profile", hook_update_application_profile },
    { "create-soname-symlinks", hook_create_soname_symlinks },
    { "chmod", hook_chmod },
};

/* Options of the peer's hooks that change nothing here. */
static const char *const ignored[] = { "ldconfig-path", "container-spec", "cuda-compat-mode",
                                       "csv-filename", "container-driver-root" };
static const char *const flags[] = { "debug", "quiet", "d", "q" };

static int keep(struct hook_values *v, const char *name, const char *value, struct error *err)
{
    if (v->n == HOOK_VALUES_MAX)
        return error_set(err, ERR_LIMIT, 0, "--%s is given more than %d times", name,
                         HOOK_VALUES_MAX);
    v->items[v->n++] = value;
    return 0;
}

static int take(struct hook_options *o, const char *name, const char *value, struct error *err)
{
    if (strcmp(name, "link") == 0)
        return keep(&o->links, name, value, err);
    if (strcmp(name, "folder") == 0)
        return keep(&o->folders, name, value, err);
    if (strcmp(name, "path") == 0)
        return keep(&o->paths, name, value, err);
    if (strcmp(name, "mode") == 0)
        o->mode = value;
    else if (strcmp(name, "host-driver-version") == 0)
        o->host_driver_version = value;
    else
        for (size_t i = 0; i <= ARRAY_LEN(ignored); i++) {
            if (i == ARRAY_LEN(ignored))
                return error_set(err, ERR_INVALID, 0, "unknown option --%s", name);
            if (strcmp(name, ignored[i]) == 0)
                break;
        }
    return 0;
}

/* The name of an option, "" when it is none: --name, --name=value, -n. */
static const char *option_name(const char *arg, char name[64])
{
    size_t dashes = strspn(arg, "-"), n = strcspn(arg, "=");
    name[0] = '\0';
    if (dashes >= 1 && dashes <= 2 && n > dashes)
        snprintf(name, 64, "%.*s", (int)MIN(n - dashes, (size_t)63), arg + dashes);
    return name;
}

static bool is_flag(const char *arg)
{
    char name[64];
    option_name(arg, name);
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        if (strcmp(name, flags[i]) == 0)
            return true;
    return false;
}

static int parse(int argc, char **argv, struct hook_options *o, struct error *err)
{
    for (int i = 0; i < argc; i++) {
        char name[64];
        const char *arg = argv[i], *value = strchr(arg, '=');
        if (is_flag(arg))
            continue;
        if (!option_name(arg, name)[0])
            return error_set(err, ERR_INVALID, 0, "unexpected argument \"%s\"", arg);
        if (!value && ++i >= argc)
            return error_set(err, ERR_INVALID, 0, "--%s needs a value", name);
        int r = take(o, name, value ? value + 1 : argv[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Nothing that the caller has comes along: no variable, no descriptor but the three, no directory,
 * no mask; and nobody else in the container may look into this process. */
static void isolate(void)
{
    clearenv();
    if (close_range(3, ~0U, 0) < 0)
        for (int fd = 3; fd < FDS_MAX; fd++)
            close(fd);
    umask(022);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* Global flags of the peer's programs and the word "hook" of nvidia-ctk come before the action. */
static int action_at(int argc, char **argv)
{
    int at = 1;
    while (at < argc && is_flag(argv[at]))
        at++;
    if (at < argc && strcmp(argv[at], "hook") == 0)
        at++;
    while (at < argc && is_flag(argv[at]))
        at++;
    return at;
}

static int fail(const char *action, const struct error *err)
{
    fprintf(stderr, "mete-hook %s: %s\n", action, err->text);
    return 1;
}

int main(int argc, char **argv)
{
    static struct hook_options options;
    struct error err;
    isolate();
    hook_warn_fd = STDERR_FILENO;
    int at = action_at(argc, argv);
    if (argc <= at) {
        fprintf(stderr, "usage: mete-hook ACTION [--option=value …] < state.json\nactions:");
        for (size_t i = 0; i < ARRAY_LEN(actions); i++)
            fprintf(stderr, " %s", actions[i].name);
        fprintf(stderr, "\n");
        return 2;
    }
    for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
        if (strcmp(argv[at], actions[i].name) != 0)
            continue;
        int rootfd = -1;
        int r = parse(argc - at - 1, argv + at + 1, &options, &err);
        if (r == 0)
            r = hook_open_container(STDIN_FILENO, &rootfd, &err);
        if (r == 0)
            r = actions[i].run(rootfd, &options, &err);
        return r < 0 ? fail(argv[at], &err) : 0;
    }
    fprintf(stderr, "mete-hook: this version does not know the action \"%s\"; nothing was done\n",
            argv[at]);
    return 0;
}
