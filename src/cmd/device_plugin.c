/* SPDX-License-Identifier: Apache-2.0 */
/* nvidia-device-plugin: the agent under the name, flags, environment and defaults of the peer's
 * program. It keeps no state directory unless it is given one, since the peer's chart mounts none.
 */
#define AGENT_STATE_DIR_DEFAULT ""

#include <stdio.h>
#include <string.h>

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
    /* The peer's command line library answers these two before anything else. */
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-v") == 0) {
            puts("nvidia-device-plugin version 0.20.0 (mete " METE_VERSION ")");
            return 0;
        }
    }
    const struct agent_setup setup = {
        .program = "nvidia-device-plugin",
        .command = &cmd_nvidia_device_plugin,
        .table = options,
        .argc = argc,
        .argv = argv,
    };
    return agent_run(&setup);
}

const struct command cmd_nvidia_device_plugin = {
    .name = "nvidia-device-plugin",
    .summary = "the agent by the name and with the defaults of NVIDIA's device plugin",
    .usage = "[options]",
    .text = "The same program as \"mete agent\". It is what runs when the executable is called "
            "nvidia-device-plugin, "
            "so that charts and manifests made for that program keep working. Unlike \"mete "
            "agent\" it keeps no "
            "state directory unless one is given.",
    .options = options,
    .run = run,
};
