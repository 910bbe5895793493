/* SPDX-License-Identifier: Apache-2.0 */
/* mete agent: the node agent. */
#define AGENT_STATE_DIR_DEFAULT "/var/lib/mete"

#include "agent/agent.h"
#include "cmd/commands.h"
#include "spec/pluginconfig.h"

static const struct opt options[] = {
    PLUGINCONFIG_OPTIONS,
    AGENT_OPTIONS,
    { 0 },
};

static int run(int argc, char **argv)
{
    const struct agent_setup setup = {
        .program = "mete agent",
        .command = &cmd_agent,
        .table = options,
        .argc = argc,
        .argv = argv,
    };
    return agent_run(&setup);
}

const struct command cmd_agent = {
    .name = "agent",
    .summary = "own this node's GPUs and hand them out to kubelet",
    .usage = "[options]",
    .text = "Surveys the node's GPUs through a worker process, registers them with kubelet through "
            "the device "
            "plugin API and answers its requests. A GPU that fails leaves the list and comes back "
            "when the fault "
            "is proved gone.\n\n"
            "A value is taken from the command line, else from the environment, else from the "
            "config file, else "
            "the default. SIGHUP or a change of the config file reloads it; a config with an error "
            "is refused as a "
            "whole, says why, and leaves the old one in force. SIGTERM ends the agent; running "
            "containers keep "
            "their GPUs.",
    .options = options,
    .run = run,
};
