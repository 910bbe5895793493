/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mete-runtime, also as nvidia-container-runtime, nvidia-container-runtime.cdi and .legacy (all
 * alike: the CDI files say what a GPU needs). Takes the arguments of runc and gives them to runc
 * (or crun) as they are.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/runtime.h"

static int prepare(const struct runtime_command *command, const struct runtime_config *config,
                   const struct error *why_config, const char *program)
{
    struct runtime_outcome outcome;
    struct error err;
    if (!command->makes_container)
        return 0;
    int r = runtime_prepare(command->bundle, command->config_name, config, why_config, "", &outcome,
                            &err);
    if (r < 0) {
        runtime_note(config, "error", err.text);
        runtime_report(command, program, err.text);
        return 1;
    }
    if (outcome.text[0] && (config->verbose || !outcome.written))
        runtime_note(config, outcome.written ? "debug" : "warning", outcome.text);
    return 0;
}

int main(int argc, char **argv)
{
    auto_arena arena;
    struct runtime_config config;
    struct error err, why_config;
    const char *real = NULL, *slash = argc > 0 ? strrchr(argv[0], '/') : NULL,
               *program = slash      ? slash + 1
                          : argc > 0 ? argv[0]
                                     : "mete-runtime";
    struct runtime_command command = runtime_command_of(argc, argv);
    arena_init(&arena, 16 * 1024 * 1024);
    const char *path = runtime_config_path(&arena);
    bool config_ok = path && runtime_config_read(&arena, path, &config, &why_config) == 0;
    if (!path) {
        config = runtime_config_default;
        (void)error_set(&why_config, ERR_LIMIT, 0, "no memory for the path of config.toml");
    }
    int code = prepare(&command, &config, config_ok ? NULL : &why_config, program);
    if (code)
        return code;
    if (runtime_find(&arena, &config.runtimes, getenv("PATH"), &real, &err) < 0) {
        runtime_report(&command, program, err.text);
        return 1;
    }
    union {
        const char *in;
        char *out;
    } name = { .in = real };
    if (argc > 0)
        argv[0] = name.out;
    execv(real, argv);
    (void)error_errno(&err, errno, "become %s", real);
    runtime_report(&command, program, err.text);
    return 1;
}
