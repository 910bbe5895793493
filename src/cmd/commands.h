/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/cmd: one file for each subcommand, exporting one const struct command; main.c picks by
 * argv[0] and argv[1]. Not here: anything that a second command could want. may use: base io data
 * wire gpu spec kubeletapi node cdi runtime kubelet report sim agent
 */
#include "base/opt.h"

extern const struct command cmd_agent;
extern const struct command cmd_cdi_apply;
extern const struct command cmd_cdi_check;
extern const struct command cmd_cdi_generate;
extern const struct command cmd_cdi_list;
extern const struct command cmd_config_check;
extern const struct command cmd_config_show;
extern const struct command cmd_driver_acquire;
extern const struct command cmd_driver_release;
extern const struct command cmd_gpu_feature_discovery;
extern const struct command cmd_gpu_worker; /* hidden: summary NULL */
extern const struct command cmd_help;
extern const struct command cmd_labels;
extern const struct command cmd_nvidia_device_plugin;
extern const struct command cmd_runtime_configure;
extern const struct command cmd_sim_create;
extern const struct command cmd_sim_kubelet;
extern const struct command cmd_sim_set;
extern const struct command cmd_sim_show;
extern const struct command cmd_status;
extern const struct command cmd_survey;
extern const struct command cmd_version;

/* Every command in the order of help, hidden ones last. */
extern const struct command *const commands[];
extern const size_t n_commands;

/* The commands that Mete answers to by another program's name. */
struct alias {
    const char *name;              /* basename of argv[0] */
    const struct command *command; /* NULL: known, but not part of this version */
};
extern const struct alias aliases[];
extern const size_t n_aliases;

/* NULL when there is none. `words` is 1 or 2: how many arguments the name took. */
const struct command *command_find(int argc, char **argv, int *ret_words);

/* Prints "PROGRAM: text" on stderr and returns the exit code that stands for the error. */
int command_fail(const char *program, const struct error *err);
/* What every command does first: parses its options (argv[0] is the command's name), answers
 * --help, prints an error. False when the command is done: *ret_exit is then its exit code and `o`
 * is already freed. `check`: also check the choices, as commands without a config file want. */
bool command_begin(const struct command *c, struct opts *o, int argc, char **argv, int max_args,
                   bool check, int *ret_exit);
