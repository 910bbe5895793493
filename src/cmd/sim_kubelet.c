/* SPDX-License-Identifier: Apache-2.0 */
/* mete sim kubelet: the small kubelet as a program of its own. */
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "sim/kubelet.h"

static const struct opt options[] = {
    { .name = "ctl",
      .type = OPT_STRING,
      .value_name = "SOCKET",
      .help = "where to listen for requests (default: DIR/ctl.sock)" },
    { .name = "cgroup-dir",
      .type = OPT_STRING,
      .value_name = "DIR",
      .help = "a simulated host's sys/fs/cgroup: each running pod gets a folder there" },
    { .name = "grace",
      .type = OPT_DURATION,
      .deflt = "5m",
      .help = "how long a resource stays listed after its plugin went" },
    { 0 },
};

struct program {
    struct loop *loop;
    struct sim_kubelet *kubelet;
    struct sim_kubelet_ctl *ctl;
};

static void changed(void *arg, const char *resource, size_t capacity, size_t allocatable)
{
    const struct program *p = arg;
    log_info("sim.kubelet", KV("resource", resource), KV_I("capacity", capacity),
             KV_I("allocatable", allocatable));
    if (p->ctl)
        sim_kubelet_ctl_changed(p->ctl);
}

static void quit(void *arg)
{
    const struct program *p = arg;
    loop_stop(p->loop, 0);
}

static int serve(struct program *p, const struct opts *o, struct error *err)
{
    const char *cgroups = opts_text(o, "cgroup-dir");
    int64_t grace_ms = opts_int(o, "grace") / 1000000;
    const struct sim_kubelet_config config = {
        .dir = o->args[0],
        .cgroup_dir = cgroups[0] ? cgroups : NULL,
        .grace_ms = grace_ms > 0 ? grace_ms : 1,
        .arg = p,
        .changed = changed,
    };
    auto_free char *beside = x_printf("%s/ctl.sock", o->args[0]);
    const char *ctl = opts_text(o, "ctl");
    signal(SIGPIPE, SIG_IGN);
    int r = loop_new(&p->loop, err);
    if (r == 0)
        r = loop_signal(p->loop, SIGTERM, quit, p, err);
    if (r == 0)
        r = loop_signal(p->loop, SIGINT, quit, p, err);
    if (r == 0)
        r = sim_kubelet_new(p->loop, &config, &p->kubelet, err);
    if (r == 0)
        r = sim_kubelet_ctl_new(p->loop, p->kubelet, ctl[0] ? ctl : beside, quit, p, &p->ctl, err);
    if (r == 0) {
        log_info("sim.kubelet", KV("serves", o->args[0]), KV("requests", ctl[0] ? ctl : beside));
        loop_run(p->loop);
    }
    sim_kubelet_ctl_free(p->ctl);
    p->ctl = NULL;
    sim_kubelet_free(p->kubelet);
    loop_free(p->loop);
    return r;
}

static int run(int argc, char **argv)
{
    struct opts o;
    int code;
    struct error err;
    if (!command_begin(&cmd_sim_kubelet, &o, argc, argv, 1, true, &code))
        return code;
    struct program p = { 0 };
    int r = o.n_args == 1 ? serve(&p, &o, &err)
                          : error_set(&err, ERR_INVALID, 0,
                                      "give one folder, which stands for /var/lib/kubelet");
    code = r < 0 ? command_fail("mete sim kubelet", &err) : 0;
    opts_done(&o);
    return code;
}

const struct command cmd_sim_kubelet = {
    .name = "sim kubelet",
    .summary = "a small kubelet for a simulated host",
    .usage = "[options] DIR",
    .text =
        "Serves the device plugin registration and the pod-resources API below DIR as kubelet does "
        "below /var/lib/kubelet, dials plugins back, watches their lists, keeps kubelet's device "
        "checkpoint, and admits containers when asked to over its control socket: one JSON line a "
        "request, one JSON line an answer, as {\"do\": \"admit\", \"pod\": \"demo/train\", "
        "\"resource\": \"nvidia.com/gpu\", \"n\": 1}. All requests are in docs/lab.md.\n\n"
        "Point an agent at it with --kubelet-dir DIR. SIGTERM or SIGINT ends it.",
    .options = options,
    .run = run,
};
