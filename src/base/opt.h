/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Option tables. A command has one const table; parsing, --help, the man page and bash completion
 * all come from it. Syntax as Go's urfave/cli accepts it: --name value, --name=value, -n value,
 * bool flags without value or as --flag=false, "--" ends options, an alias is as good as the name.
 * A single dash before a long name ("-name") is accepted too. Order of precedence for each value:
 * command line, environment, config file, default. A value counts as set also when it is set to the
 * empty text: string "" overrides; bool "" is false (from the environment: "--flag=" is an error);
 * list "" is one empty element; duration "" and int "" are ignored. Options and arguments may be
 * mixed. List values are cut at commas, blanks around an element do not count.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

enum opt_type { OPT_BOOL, OPT_STRING, OPT_INT, OPT_LIST, OPT_DURATION };

enum opt_source { OPT_FROM_DEFAULT, OPT_FROM_CONFIG, OPT_FROM_ENV, OPT_FROM_FLAG };

struct opt {
    const char *name; /* long name without dashes; NULL ends the table */
    char letter;      /* short name or 0 */
    enum opt_type type;
    const char *aliases[3]; /* further long names, NULL-terminated unless full */
    const char *env[3];     /* environment variables, first set one wins */
    const char *config_key; /* "flags.plugin.passDeviceSpecs" or NULL */
    const char *value_name; /* "DIR" in help; NULL: from the type */
    const char *deflt;   /* as written on a command line; NULL: unset ("" / false / empty list) */
    const char *choices; /* "none|single|mixed" or NULL; checked after precedence */
    const char *group;   /* heading in help and man page, NULL: general */
    const char *help;    /* one sentence, no full stop */
};

struct opt_value {
    enum opt_source source;
    const char *origin; /* "flag --x", "env X", "config.yaml:3:5 flags.x", "default"; never NULL */
    const char *text;   /* as given; lists joined by "," ; never NULL */
    bool boolean;       /* OPT_BOOL */
    int64_t number;     /* OPT_INT; OPT_DURATION in nanoseconds, INT64_MAX for "infinite" */
    const char *const *items; /* OPT_LIST */
    size_t n_items;
};

struct opts {
    struct arena arena;
    const struct opt *table;
    struct opt_value *values; /* one per table row, same order */
    size_t n;
    char **args; /* what is left, NULL-terminated, borrowed from argv */
    int n_args;
    bool help; /* --help or -h was given: nothing else was checked */
};

/* Parses argv[1..] and the environment (`env`: NULL-terminated "K=V" list, or NULL for the
 * process's). An unknown option is ERR_INVALID with the nearest known name; a bad value names
 * option or variable, value and what is allowed. max_args < 0: any number. */
int opts_parse(struct opts *o, const struct opt *table, int argc, char **argv, char *const *env,
               int max_args, struct error *err) must_check;
void opts_done(struct opts *o);

/* Looks up by long name (a name that is not in the table is a defect: aborts). Borrowed until
 * opts_done. */
const struct opt_value *opts_get(const struct opts *o, const char *name);
bool opts_bool(const struct opts *o, const char *name);
const char *opts_text(const struct opts *o, const char *name);
int64_t opts_int(const struct opts *o, const char *name);

/* Gives a value read from the config file to the option with that config_key, unless flag or
 * environment set it. `origin` as in opt_value. */
int opts_from_config(struct opts *o, const char *config_key, const char *const *items,
                     size_t n_items, const char *origin, struct error *err) must_check;
/* Checks `choices` of every value; call after the last opts_from_config (opts_parse does not). */
int opts_check(const struct opts *o, struct error *err) must_check;
/* The value of NAME in a list as of opts_parse; NULL when it is not set. */
const char *env_get(char *const *env, const char *name);
/* Whether `value` is among the row's choices (true when it has none). */
bool opt_allows(const struct opt *row, const char *value);

/* Go's time.ParseDuration ("1h15m", "300ms", "0"), or "infinite". Nanoseconds. */
int duration_parse(struct str s, int64_t *ret_ns, struct error *err) must_check;

/* A command. src/cmd has one file and one const struct for each. */
struct command {
    const char *name;    /* "agent", "sim create" */
    const char *summary; /* one line */
    const char *usage;   /* what follows the name in the synopsis: "[options] DIR" */
    const char *text; /* longer description for help and man page; paragraphs parted by blank lines;
                         may be NULL */
    const struct opt *options;
    int (*run)(int argc, char **argv); /* exit code */
};

void command_help(const struct command *c, const char *program,
                  struct buf *out); /* plain text, 80 columns */
void command_man(const struct command *c, const char *program,
                 struct buf *out); /* scdoc source of PROGRAM-NAME(1) */
void command_complete(const struct command *const *commands, size_t n, const char *program,
                      struct buf *out); /* bash */
