/* SPDX-License-Identifier: Apache-2.0 */
/* mete sim create, set and show: simulated hosts. */
#include <stdio.h>

#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/output.h"
#include "sim/simstate.h"

enum { SHOW_MAX = 4 << 20 };

static int missing(const char *program, const char *what)
{
    struct error err;
    error_set(&err, ERR_INVALID, 0, "%s; see \"%s --help\"", what, program);
    return command_fail(program, &err);
}

static const char *text_or_null(const struct opts *o, const char *name)
{
    const char *text = opts_text(o, name);
    return text[0] ? text : NULL;
}

/* ---- create ---- */

static const struct opt create_options[] = {
    { .name = "model",
      .type = OPT_STRING,
      .value_name = "MODEL",
      .choices = "a100-40|a100-80|a30|h100-sxm|h100-pcie|h100-nvl|h200|b200|rtx-pro-6000|l40s|t4|"
                 "gb10",
      .help = "what the gpus are; without --model and --profile: h100-sxm" },
    { .name = "profile",
      .type = OPT_STRING,
      .value_name = "PROFILE",
      .choices = "h100|h100-mig|a100|l40s|t4|b200|gb200|gb300|h200",
      .help =
          "instead of a model: a host as in the recordings, with its ids, bus numbers, NUMA nodes "
          "and driver" },
    { .name = "gpus",
      .type = OPT_INT,
      .value_name = "N",
      .help = "how many, 1 to 64 (default: as the model's usual host)" },
    { .name = "driver-version",
      .type = OPT_STRING,
      .value_name = "VERSION",
      .help = "of the driver, as 580.159.04" },
    { .name = "driver-root",
      .type = OPT_STRING,
      .value_name = "PATH",
      .help = "where the driver is installed on the simulated host, as /run/nvidia/driver "
              "(default: /)" },
    { .name = "hide-symbols",
      .type = OPT_STRING,
      .value_name = "NAMES",
      .help = "symbols that the library must lack, as an old driver's: names parted by commas, "
              "with * for "
              "any text" },
    { .name = "nodes",
      .type = OPT_BOOL,
      .help = "make real device nodes (needs root) instead of plain files" },
    { .name = "seed",
      .type = OPT_INT,
      .value_name = "N",
      .help = "other UUIDs, numbers and order of the gpus" },
    { .name = "library",
      .type = OPT_STRING,
      .value_name = "FILE",
      .env = { "METE_SIM_LIBRARY" },
      .help = "the simulated libnvidia-ml.so.1 (default: the one beside this program)" },
    { 0 },
};

static int create(const struct opts *o, struct error *err)
{
    int64_t gpus = opts_int(o, "gpus");
    bool given = opts_get(o, "gpus")->source != OPT_FROM_DEFAULT;
    if (gpus < given || gpus > UINT32_MAX)
        return error_set(err, ERR_INVALID, 0, "--gpus %lld must be a number from 1 to 64",
                         (long long)gpus);
    const struct sim_create c = {
        .dir = o->args[0],
        .model = text_or_null(o, "model"),
        .profile = text_or_null(o, "profile"),
        .gpus = (uint32_t)gpus,
        .seed = (uint64_t)opts_int(o, "seed"),
        .library = text_or_null(o, "library"),
        .driver_version = text_or_null(o, "driver-version"),
        .driver_root = text_or_null(o, "driver-root"),
        .hide_symbols = text_or_null(o, "hide-symbols"),
        .nodes = opts_bool(o, "nodes"),
    };
    return sim_create(&c, err);
}

static int run_create(int argc, char **argv)
{
    struct opts o;
    struct error err;
    int code;
    if (!command_begin(&cmd_sim_create, &o, argc, argv, 1, true, &code))
        return code;
    if (o.n_args != 1)
        code = missing("mete sim create", "the directory is missing");
    else
        code = create(&o, &err) == 0 ? 0 : command_fail("mete sim create", &err);
    opts_done(&o);
    return code;
}

const struct command cmd_sim_create = {
    .name = "sim create",
    .summary = "make a simulated host: driver library, device nodes, proc and sys",
    .usage = "[options] DIR",
    .text = "Makes DIR a host with gpus: a libnvidia-ml.so.1 that any program can load, stand-ins "
            "of the driver's "
            "other files, and the proc, sys and dev trees. All processes that load the library see "
            "the same "
            "gpus; \"mete sim set\" changes them while they run.\n\n"
            "Point an agent at it with --host-root DIR (and --driver-root as it was given here).",
    .options = create_options,
    .run = run_create,
};

/* ---- set ---- */

static const struct opt no_options[] = { { 0 } };

static int run_set(int argc, char **argv)
{
    struct opts o;
    struct error err;
    int code;
    if (!command_begin(&cmd_sim_set, &o, argc, argv, -1, true, &code))
        return code;
    if (o.n_args < 2)
        code = missing("mete sim set",
                       o.n_args == 0 ? "the directory is missing" : "the change is missing");
    else
        code = sim_set(o.args[0], o.n_args - 1, o.args + 1, &err) == 0
                   ? 0
                   : command_fail("mete sim set", &err);
    opts_done(&o);
    return code;
}

const struct command cmd_sim_set = {
    .name = "sim set",
    .summary = "change a simulated host while programs use it",
    .usage = "DIR CHANGE...",
    .text =
        "One change, all or nothing, seen by every process of that host at once. Some changes:\n\n"
        "gpu 3 xid 79 | gpu 3 lost | gpu 3 reset | gpu 3 ecc double 1 | gpu 2 recovery reset\n\n"
        "gpu 0 mig on | gpu 0 mig 3g.40gb,2g.20gb,1g.10gb | gpu 0 mig destroy gi 1 | gpu 0 client "
        "1234\n\n"
        "gpu 0 memory unsupported | gpu 3 numa 1 | gpu 3 handle IRQ_ISSUE | gpu all util 50\n\n"
        "driver unload | driver reload | driver mismatch | driver version 999.1 | monitor-cap deny "
        "| reboot\n\n"
        "call nvmlDeviceGetHandleByUUID slow 10000 | call nvmlDeviceGetMemoryInfo_v2 hang gpu 2 | "
        "call all ok\n\n"
        "The whole grammar is in docs/lab.md; a wrong word is answered with the words that may "
        "stand there.",
    .options = no_options,
    .run = run_set,
};

/* ---- show ---- */

static const struct opt show_options[] = {
    { .name = "output",
      .letter = 'o',
      .type = OPT_STRING,
      .deflt = "json",
      .choices = "json|yaml",
      .value_name = "FORMAT",
      .help = "print JSON or YAML" },
    { 0 },
};

static int run_show(int argc, char **argv)
{
    struct opts o;
    struct error err;
    int code;
    auto_buf json;
    buf_init(&json, SHOW_MAX);
    if (!command_begin(&cmd_sim_show, &o, argc, argv, 1, true, &code))
        return code;
    if (o.n_args != 1)
        code = missing("mete sim show", "the directory is missing");
    else if (sim_show(o.args[0], &json, &err) < 0)
        code = command_fail("mete sim show", &err);
    else
        code = output_document(&o, &json, "mete sim show");
    opts_done(&o);
    return code;
}

const struct command cmd_sim_show = {
    .name = "sim show",
    .summary = "print the state of a simulated host",
    .usage = "[options] DIR",
    .options = show_options,
    .run = run_show,
};
