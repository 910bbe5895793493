#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""scenarios.py BINDIR STATEDIR METE   the agent under a real kubelet, on a simulated host with eight H100s.

The bed (up.sh, node-up.sh with an image that holds gpu-probe) must be up. Ends with "N passed, N failed".
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bed import NODE, Agent, Bed, Checks, Failed, expect, until  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
# The runbook's time-slicing fragment, word for word.
TIME_SLICING = """version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: 4
"""


def gpu_nodes(probe):
    """Only the nodes of gpus: {"/dev/nvidia3": ("195:3", "ENXIO")}."""
    return {p: v for p, v in probe["nodes"].items() if p.removeprefix("/dev/nvidia").isdigit()}


def pod(name, command, count=1, resource=GPU, hold=0):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "gpu"}}, "spec": {
        "restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "localhost/e2e/busybox:1", "imagePullPolicy": "Never", "command": command,
                        "env": [{"name": "HOLD", "value": str(hold)}] if hold else [],
                        "resources": {"limits": {resource: str(count)}}}]}}


class Scenarios:
    def __init__(self, bindir, state, mete):
        self.bed, self.mete, self.checks = Bed(bindir, state), mete, Checks()
        self.host = pathlib.Path(state) / "host"
        self.config = pathlib.Path(state) / "config.yaml"
        self.agent = None

    # ---- helpers ----

    def sim(self, *args):
        r = subprocess.run([self.mete, "sim", *map(str, args)], capture_output=True, text=True, timeout=30)
        if r.returncode:
            raise Failed(f"mete sim {' '.join(map(str, args))}: {r.stderr.strip()}")
        return r.stdout

    def wait_resource(self, allocatable, resource=GPU, seconds=30):
        def look():
            got = self.bed.resource(resource)[1]
            if got != allocatable:
                raise Failed(f"{resource} allocatable is {got}")
            return True

        until(seconds, f"{resource} allocatable {allocatable}", look)

    def restart_agent(self, *args):
        if self.agent:
            self.agent.end()
        self.agent = Agent(self.mete, self.bed, self.host, *args)
        self.agent.start()
        self.agent.wait_for("plugin.listed")

    def smoke_job(self, name, resource=GPU):
        """Runs the runbook's Job to its end; what its probe saw."""
        text = (HERE / "manifests/smoke-job.yaml").read_text().replace("@NAME@", name).replace("@RESOURCE@", resource)
        self.bed.kubectl("apply", "-f", "-", stdin=text)

        def ended():
            s = self.bed.get("job", name, "-n", "ai-workloads")["status"]
            if s.get("failed"):
                raise Failed(f"the Job failed: {s.get('conditions')}")
            return s.get("succeeded") == 1

        until(60, f"Job {name} succeeds", ended)
        pods = self.bed.pods("ai-workloads", f"job-name={name}")
        return self.bed.probe(next(iter(pods)), "ai-workloads")

    # ---- the scenarios, in order ----

    def node_of(self, gpu):
        """Where the device node of a gpu is: its minor number need not be its index."""
        shown = json.loads(self.sim("show", "-o", "json", self.host))
        return f"/dev/nvidia{shown['gpus'][gpu]['minor']}"

    def make_host(self):
        self.sim("create", self.host, "--gpus", "8", "--model", "h100-sxm", "--nodes")
        for i in range(8):
            st = os.stat(self.host / f"dev/nvidia{i}")
            expect(f"dev/nvidia{i}", (os.major(st.st_rdev), os.minor(st.st_rdev)), (195, i))
        # Pods' cgroups are this machine's; the agent looks for them on its simulated host.
        cgroups = self.host / "sys/fs/cgroup"
        cgroups.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--rbind", "--make-rslave", "/sys/fs/cgroup", str(cgroups)], check=True, timeout=10)

    def registers(self):
        self.agent = Agent(self.mete, self.bed, self.host)
        self.agent.start()
        line = self.agent.wait_for("plugin.registered")
        self.wait_resource(8)
        expect("capacity", self.bed.resource(), (8, 8))
        return line.split("plugin.registered", 1)[1].strip()

    def smoke_env(self):
        """Defaults (envvar): without NVIDIA's runtime in between only the environment can arrive, and it does."""
        probe = self.smoke_job("smoke-env")
        if not probe["env"].get("NVIDIA_VISIBLE_DEVICES", "").startswith("GPU-"):
            raise Failed(f"NVIDIA_VISIBLE_DEVICES: {probe['env']}")
        expect("gpu device nodes", gpu_nodes(probe), {})

    def one_node(self, probe):
        nodes = gpu_nodes(probe)
        if len(nodes) != 1:
            raise Failed(f"{len(nodes)} gpu device nodes, wanted one: {probe}")
        (path, (number, answer)), = nodes.items()
        expect(f"open {path} (allowed, no driver behind it)", answer, "ENXIO")
        expect(f"number of {path}", number, f"195:{path.removeprefix('/dev/nvidia')}")
        return path

    def smoke_specs(self):
        self.restart_agent("--pass-device-specs")
        self.wait_resource(8)
        return self.one_node(self.smoke_job("smoke-specs"))

    def others_forbidden(self):
        """With CAP_MKNOD a pod makes the node of every gpu: only its own may be opened."""
        numbers = [f"195:{i}" for i in range(8)]
        self.bed.apply(pod("curious", ["gpu-probe", *numbers]))
        until(30, "pod curious ends", lambda: self.bed.phase("curious") == "Succeeded")
        probe = self.bed.probe("curious")
        own = self.one_node(probe).removeprefix("/dev/nvidia")
        expect("answers", probe["made"], {n: "ENXIO" if n == f"195:{own}" else "EPERM" for n in numbers})
        self.bed.delete_pods()
        return f"own gpu {own}"

    def smoke_cdi(self):
        self.restart_agent("--device-list-strategy=cdi-cri")
        self.wait_resource(8)
        return self.one_node(self.smoke_job("smoke-cdi"))

    def eight_at_once(self):
        self.bed.apply(*[pod(f"gpu-{i}", ["gpu-probe"], hold=3600) for i in range(8)])
        until(60, "eight pods run", lambda: all(self.bed.phase(f"gpu-{i}") == "Running" for i in range(8)))
        self.held = {f"gpu-{i}": self.one_node(self.bed.probe(f"gpu-{i}")) for i in range(8)}
        expect("different gpus", sorted(self.held.values()), [f"/dev/nvidia{i}" for i in range(8)])

    def ninth_waits(self):
        self.bed.apply(pod("ninth", ["gpu-probe"], hold=3600))

        def refused():
            c = self.bed.get("pod", "ninth")["status"].get("conditions", [])
            return [x for x in c if x["type"] == "PodScheduled" and "Insufficient nvidia.com/gpu" in x.get("message", "")]

        until(20, "the scheduler says why", refused)
        expect("phase", self.bed.phase("ninth"), "Pending")

    def still_held(self):
        """The eight run on, and the ninth has nothing."""
        for name in self.held:
            expect(f"phase of {name}", self.bed.phase(name), "Running")
        expect("phase of ninth", self.bed.phase("ninth"), "Pending")

    def agent_restarts(self):
        expect("exit code after SIGTERM", self.agent.end(), 0)
        self.agent.start()
        self.agent.wait_for("plugin.listed")
        self.wait_resource(8)
        self.still_held()

    def agent_killed(self):
        self.agent.end(signal.SIGKILL)
        self.agent.start()
        self.agent.wait_for("plugin.listed")
        self.wait_resource(8)
        self.still_held()

    def freed_gpu_goes_on(self):
        """One of the eight ends: the ninth gets exactly its gpu, from an agent that was killed in between."""
        name, node = sorted(self.held.items())[3]
        self.bed.kubectl("delete", "pod", name, seconds=60)
        until(40, "the ninth runs", lambda: self.bed.phase("ninth") == "Running")
        expect("its gpu", self.one_node(self.bed.probe("ninth")), node)
        del self.held[name]
        self.held["ninth"] = node
        return node

    def kubelet_restarts(self):
        start = time.monotonic()
        self.bed.script("kubelet.sh", self.bed.state, "restart")
        until(20, "registered again", lambda: self.agent.said().count("plugin.registered") >= 2)
        seconds = time.monotonic() - start
        self.wait_resource(8)
        for name in self.held:
            expect(f"phase of {name}", self.bed.phase(name), "Running")
        self.bed.apply(pod("tenth", ["gpu-probe"]))
        until(20, "a tenth is refused", lambda: "Insufficient nvidia.com/gpu" in str(self.bed.get("pod", "tenth")["status"]))
        return f"kubelet down and up and registered again in {seconds:.1f} s"

    def xid_lowers(self):
        self.bed.delete_pods()
        self.wait_resource(8)
        self.sim("set", self.host, "gpu", "3", "xid", "79")
        self.wait_resource(7)
        self.bed.apply(*[pod(f"gpu-{i}", ["gpu-probe"], hold=3600) for i in range(7)])
        until(60, "seven pods run", lambda: all(self.bed.phase(f"gpu-{i}") == "Running" for i in range(7)))
        used = sorted(self.one_node(self.bed.probe(f"gpu-{i}")) for i in range(7))
        expect("gpus in use", used, sorted({self.node_of(i) for i in range(8)} - {self.node_of(3)}))

    def reset_brings_back(self):
        """Seven are held: a pod can only get the one that came back."""
        self.sim("set", self.host, "gpu", "3", "reset")
        self.wait_resource(8, seconds=60)
        self.bed.apply(pod("again", ["gpu-probe"], hold=3600))
        until(30, "a pod runs on it", lambda: self.bed.phase("again") == "Running")
        expect("its gpu", self.one_node(self.bed.probe("again")), self.node_of(3))
        self.bed.delete_pods()

    def time_slicing(self):
        """Hot: the config file changes under the running agent."""
        self.bed.delete_pods()
        self.config.write_text("version: v1\n")
        self.restart_agent("--pass-device-specs", f"--config-file={self.config}")
        self.wait_resource(8)
        new = self.config.with_suffix(".new")
        new.write_text(TIME_SLICING)
        new.rename(self.config)
        self.wait_resource(32, SHARED)
        self.wait_resource(0, GPU)
        return self.one_node(self.smoke_job("smoke-shared", SHARED))

    def greedy_is_refused(self):
        self.bed.apply(pod("greedy", ["gpu-probe"], count=2, resource=SHARED))

        def refused():
            s = self.bed.get("pod", "greedy")["status"]
            return s.get("phase") == "Failed" and s.get("message")

        message = until(30, "two shares are refused", refused)
        self.bed.delete_pods()
        return message[-160:]

    def bad_config(self):
        """A bad new config keeps the old one running and says why."""
        self.config.write_text(TIME_SLICING.replace("replicas: 4", "replicas: four"))
        self.agent.wait_for("config", 10)
        line = until(10, "the agent names the line", lambda: [x for x in self.agent.said().splitlines() if "config.yaml:8" in x])[0]
        expect("shares", self.bed.resource(SHARED), (32, 32))
        return line[-200:]

    def clean_stop(self):
        expect("exit code", self.agent.end(), 0)
        sockets = [p.name for p in (self.bed.state / "k/device-plugins").iterdir() if p.name.startswith("nvidia")]
        expect("sockets left", sockets, [])
        self.wait_resource(0, SHARED)

    def run(self):
        bed, check = self.bed, self.checks.run
        bed.kubectl("apply", "-f", str(HERE / "manifests/cluster.yaml"))
        bed.kubectl("label", "--overwrite", "node", NODE, "eks.amazonaws.com/compute-type=hybrid",
                    "workload.example.com/gpu-allocation=device-plugin")
        if not check("a simulated host with eight H100s", self.make_host) or \
                not check("the agent registers: capacity 8", self.registers):
            return
        check("the smoke Job runs (envvar)", self.smoke_env)
        check("the smoke Job sees exactly its device node (device specs)", self.smoke_specs)
        check("another gpu's node is forbidden", self.others_forbidden)
        check("the smoke Job sees exactly its device node (CDI)", self.smoke_cdi)
        if check("eight at once on eight different gpus", self.eight_at_once):
            check("a ninth waits", self.ninth_waits)
            check("the agent restarts under running pods", self.agent_restarts)
            check("the agent is killed under running pods", self.agent_killed)
            check("a freed gpu goes to the one who waits", self.freed_gpu_goes_on)
            check("kubelet restarts", self.kubelet_restarts)
        check("an XID takes one gpu off the list", self.xid_lowers)
        check("its reset brings it back", self.reset_brings_back)
        check("time slicing by the runbook's config, hot", self.time_slicing)
        check("two shares for one container are refused", self.greedy_is_refused)
        check("a bad config changes nothing", self.bad_config)
        check("a clean stop", self.clean_stop)

    def close(self):
        if self.agent:
            try:
                self.agent.end()
            except Failed as e:
                print(e)
        subprocess.run(["umount", "-R", str(self.host / "sys/fs/cgroup")], stderr=subprocess.DEVNULL, timeout=10)
        subprocess.run(["rm", "-rf", "--one-file-system", str(self.host)], timeout=60)
        return self.checks.close()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    s = Scenarios(*sys.argv[1:])
    try:
        s.run()
    except Exception as e:  # what stands outside the checks: still a counted failure
        s.checks.failed += 1
        print(f"FAIL  {e}")
    finally:
        code = s.close()
    sys.exit(code)


if __name__ == "__main__":
    main()
