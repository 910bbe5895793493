/* SPDX-License-Identifier: Apache-2.0 */
/* mete gpu-worker: the process that loads the driver's library. Started by the agent, not by hand.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/host.h"
#include "cmd/commands.h"
#include "gpu/worker.h"

static const struct opt options[] = {
    { .name = "host-root", .type = OPT_STRING, .deflt = "/", .help = "see mete agent" },
    { .name = "driver-root", .type = OPT_STRING, .deflt = "/", .help = "see mete agent" },
    { .name = "driver-root-ctr-path", .type = OPT_STRING, .help = "see mete agent" },
    { .name = "dev-root", .type = OPT_STRING, .help = "see mete agent" },
    { 0 },
};

static bool is_packet_socket(int fd)
{
    int type = 0;
    socklen_t n = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_SEQPACKET;
}

static int run(int argc, char **argv)
{
    struct opts o;
    struct host h;
    struct error err;
    int code = 0;
    if (!command_begin(&cmd_gpu_worker, &o, argc, argv, 0, true, &code))
        return code;
    const struct host_config paths = {
        .root = opts_text(&o, "host-root"),
        .driver_root = opts_text(&o, "driver-root"),
        .driver_root_view = opts_text(&o, "driver-root-ctr-path"),
        .dev_root = opts_text(&o, "dev-root"),
    };
    int r = is_packet_socket(3)
                ? host_init(&h, &paths, &err)
                : error_set(&err, ERR_INVALID, 0,
                            "descriptor 3 is no socket of an agent; this command is started by "
                            "\"mete agent\", \"mete survey\" shows the gpus");
    opts_done(&o);
    if (r < 0)
        return command_fail("mete gpu-worker", &err);
    code = gpu_worker_main(&h);
    host_done(&h);
    return code;
}

const struct command cmd_gpu_worker = {
    .name = "gpu-worker",
    .usage = "",
    .options = options,
    .run = run,
};
