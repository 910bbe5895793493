# SPDX-License-Identifier: Apache-2.0
"""Public bug reports through the real programs: what no narrower test can show. docs/bug-reports.md lists all of them."""
import json
import subprocess
import time

from base import GPU, SHARED, LabCase
from lab import until


class Command(LabCase):
    """Commands that need neither agent nor kubelet."""

    HOST = ("--profile", "h100")

    def setUp(self):
        super().setUp()
        self.kubelet.kill()

    def mete(self, *args, env=None):
        """Exit code and all that was printed."""
        r = subprocess.run([str(self.lab.mete), *map(str, args)], capture_output=True, text=True, timeout=30, env=env)
        return r.returncode, r.stdout + r.stderr

    def check(self, text, *args, env=None):
        path = self.write_config(text)
        code, said = self.mete("config", "check", *args, path, env=env)
        return code, said.replace(str(path), "config.yaml")

    def test_config_check(self):
        """B-002, B-003, B-005, B-011, B-015, B-178: told offline, with the place, and by the exit code."""
        time_slicing = "sharing:\n  timeSlicing:\n    {}\n"
        entry = "resources: [{{name: {}, replicas: {}}}]"
        cases = (
            ("sharing:\n\ttimeSlicing:\n", {}, 2, ("config.yaml:2:1", "tab")),
            ("sharing:\n  timeSlicing:\n  resources: [{name: nvidia.com/gpu, replicas: 10}]\n", {}, 2,
             ("config.yaml:3:3", "sharing.resources", "timeSlicing")),
            (time_slicing.format(entry.format("nvidia.com/gpu", 1)), {}, 0, ("not shared",)),
            (time_slicing.format(entry.format("nvidia.com/gpu", 0)), {}, 2, ("sharing.timeSlicing.resources[0].replicas", "leave the entry out")),
            ("sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n", {}, 2, ("flags.mpsRoot", "--mps-root", "MPS_ROOT")),
            ("version: v1\n", {"DP_DISABLE_HEALTHCHECKS": "94;109"}, 2, ("DP_DISABLE_HEALTHCHECKS", "94;109")),
            ("version: v1\n", {"DP_DISABLE_HEALTHCHECKS": "94, 109"}, 0, ("0 warnings",)),
            ("version: v1\n", {"DP_DISABLE_HEALTHCHECKS": "all"}, 0, ("all health checking is off", "1 warnings")),
            (time_slicing.format("renameByDefault: true\n    " + entry.format("a" * 60, 2)), {}, 2, ("67", "63", ".shared")),
            (time_slicing.format(entry.format("nvidia.com/gpu", 16385)), {}, 2, ("16384", "4 MiB")),
        )
        for text, env, code, words in cases:
            with self.subTest(words=words):
                got, said = self.check(text, env=env)
                self.assertEqual(got, code, said)
                for word in words:
                    self.assertIn(word, said)

    def test_patterns(self):
        """B-017: which name each pattern takes, and the real names beside one that takes none."""
        config = "resources: {gpus: [{pattern: 'Tesla-V100*', name: gpu-v100}, {pattern: '*', name: gpu}]}\n"
        code, said = self.check(config, "--gpu-name=Tesla V100-SXM2-16GB,NVIDIA T4")
        self.assertEqual(code, 0, said)
        self.assertIn('"Tesla-V100*" → nvidia.com/gpu-v100 matches no GPU name, but would match "Tesla V100-SXM2-16GB"', said)
        self.assertIn('"*" → nvidia.com/gpu takes "Tesla V100-SXM2-16GB", "NVIDIA T4"', said)
        self.assertIn("1 warnings", said)
        host = (f"--host-root={self.lab.host}", "--driver-root=/run/nvidia/driver", "--survey")
        code, said = self.check(config, *host)
        self.assertEqual(code, 0, said)
        self.assertIn('this host has "NVIDIA H100 80GB HBM3"', said)
        self.assertIn("this host would offer nvidia.com/gpu: 8", said)

    def test_one_gpu_by_two_names(self):
        """B-020: one gpu by index here and by UUID there, told against a host, with both places."""
        uuid = "GPU-01000100-0000-0000-0000-000000000000"
        entries = "\n".join(f"      - {{name: gpu, rename: {n}, replicas: 2, devices: [{d}]}}" for n, d in (("light", 0), ("batch", uuid)))
        code, said = self.check(f"sharing:\n  timeSlicing:\n    resources:\n{entries}\n", f"--host-root={self.lab.host}",
                                "--driver-root=/run/nvidia/driver", "--survey")
        self.assertEqual(code, 2, said)
        self.assertIn(f"config.yaml:5:59: sharing.timeSlicing.resources: device 0 ({uuid}) is taken by another entry, at 4:59", said)

    def test_jetson(self):
        """B-172: several hints; a plain word and an exit code, never a crash loop without a reason."""
        library = self.lab.host / "run/nvidia/driver/usr/lib64"
        library.rename(library.with_name("away"))  # where there is NVML, it decides
        hints = {"etc/nv_tegra_release": "# R36\n", "sys/devices/soc0/family": "Tegra\n", "proc/device-tree/compatible": "nvidia,p3971\0nvidia,tegra264\0"}
        for path, text in hints.items():
            with self.subTest(hint=path):
                file = self.lab.host / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
                options = (f"--host-root={self.lab.host}", "--driver-root=/run/nvidia/driver")
                code, said = self.mete("survey", *options)
                self.assertEqual(code, 8, said)
                self.assertIn("not supported", said)
                agent = self.lab.start_agent("--driver-root=/run/nvidia/driver", f"--driver-root-ctr-path={self.lab.host}/run/nvidia/driver")
                until(10, "the agent ends", lambda: not agent.running())
                self.assertEqual(agent.end(), 1)
                self.assertIn("not supported on Jetson", agent.said())
                self.assertNotIn("seen-at", agent.said())
                file.unlink()

    def test_memory_of_gpus(self):
        """B-173: what `mete survey` says of memory that the host counts as its own."""
        options = (f"--host-root={self.lab.host}", "--driver-root=/run/nvidia/driver")
        self.lab.set("gpu", "0", "addressing", "ats")
        code, said = self.mete("survey", *options)
        self.assertEqual(code, 0, said)
        self.assertNotIn("NVreg", said)  # no such memory node: the driver keeps it apart
        node = self.lab.host / "sys/devices/system/node/node2"
        node.mkdir()
        (node / "cpulist").write_text("\n")
        (node / "meminfo").write_text("Node 2 MemTotal:       98304000 kB\n")
        code, said = self.mete("survey", *options)
        self.assertIn("gpu 0: addressing mode ATS, and the host has memory nodes without CPUs (2: 96000 MiB)", said)
        self.assertIn("NVreg_CoherentGPUMemoryMode=driver", said)
        code, said = self.mete("survey", *options, "-o", "json")
        gpu = json.loads(said)["gpus"][0]
        self.assertEqual(gpu["addressing"], "ATS")
        self.assertIn("memoryNote", gpu)


class Sharing(LabCase):
    HOST = ("--gpus", "2", "--model", "h100-sxm")

    def shared(self, replicas, more=""):
        return self.write_config(f"sharing:\n  timeSlicing:\n    {more}\n    resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]\n")

    def gpu_of(self, pod):
        return self.kubelet.admit(pod)["ids"][0].split("::")[0]

    def test_two_shares_on_two_gpus(self):
        """B-018: one share of each gpu; when only one gpu is left, told, or refused by the rule that the text names."""
        config = self.shared(3)
        self.start(f"--config-file={config}", allocatable=6)
        ids = self.kubelet.admit("p", n=2)["ids"]
        self.assertEqual(len({i.split("::")[0] for i in ids}), 2)
        self.assertEqual(self.agent.lines("grant.not-distinct"), [])
        self.kubelet.admit("q", n=3)
        self.agent.wait_said("grant.not-distinct")

    def test_distinct_required(self):
        """B-018: with requireDistinct the request that would get one gpu twice is refused."""
        config = self.write_config("sharing:\n  requireDistinct: true\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 2}]\n")
        self.start(f"--config-file={config}", allocatable=4)
        self.assertIn("requireDistinct", self.kubelet.refusal("p", n=3))

    def test_packed(self):
        """B-019: one card is filled before the next; a share that came back is used first."""
        config = self.shared(4)
        self.start(f"--config-file={config}", "--shared-devices-allocation-policy=packed", allocatable=8)
        first = [self.gpu_of(f"p{i}") for i in range(5)]
        self.assertEqual(len(set(first[:4])), 1)
        self.assertNotEqual(first[4], first[0])
        self.kubelet.end_pod("p1")
        self.assertEqual(self.gpu_of("again"), first[0])

    def test_per_gpu(self):
        """B-020: another number of shares for each gpu, under its own name."""
        config = self.write_config("sharing:\n  timeSlicing:\n    resources:\n      - {name: nvidia.com/gpu, devices: ['0'], replicas: 2, rename: gpu-light}\n"
                                   "      - {name: nvidia.com/gpu, devices: ['1'], replicas: 8, rename: gpu-batch}\n")
        self.start(f"--config-file={config}", allocatable=2, resource="nvidia.com/gpu-light")
        self.kubelet.wait("nvidia.com/gpu-batch", allocatable=8)
        light, batch = ({d["id"].split("::")[0] for d in self.kubelet.resource(f"nvidia.com/gpu-{n}")["devices"]} for n in ("light", "batch"))
        self.assertEqual((len(light), len(batch), light & batch), (1, 1, set()))

    def test_greedy(self):
        """B-021: what the pod's admission error says names the rule."""
        config = self.shared(4, "failRequestsGreaterThanOne: true")
        self.start(f"--config-file={config}", allocatable=8)
        said = self.kubelet.refusal("p", n=2)
        self.assertIn("maximum request size for shared resources is 1; found 2", said)
        self.assertIn("failRequestsGreaterThanOne", said)

    def test_labels_follow(self):
        """B-022: replicas, strategy and the product's suffix change in one step with the sharing."""
        file, config = self.lab.dir / "gfd", self.write_config("version: v1\n")
        self.start(f"--config-file={config}", f"--label-file={file}", allocatable=2)

        def now():
            read = dict(line.split("=", 1) for line in file.read_text().splitlines()) if file.exists() else {}
            product = read.get("nvidia.com/gpu.product", "")
            return read.get("nvidia.com/gpu.replicas"), read.get("nvidia.com/gpu.sharing-strategy"), product.endswith("-SHARED")

        seen = []
        for sharing, want in ((None, ("1", "none", False)), ("renameByDefault: false", ("4", "time-slicing", True)),
                              ("renameByDefault: true", ("4", "time-slicing", False)), (None, ("1", "none", False))):
            if sharing:
                self.shared(4, sharing)
            else:
                self.write_config("version: v1\n")
            until(15, f"labels {want}", lambda: (seen.append(now()), seen[-1] == want)[1], step=0.002)
        self.assertLessEqual(set(seen), {(None, None, False), ("1", "none", False), ("4", "time-slicing", True), ("4", "time-slicing", False)})


class Config(LabCase):
    HOST = ("--gpus", "1", "--model", "h100-sxm")

    def test_origin_is_shown(self):
        """B-004: that no config file was read, and where each value comes from, in one line of the log and in `mete status`."""
        self.start(env={"PASS_DEVICE_SPECS": "true"}, allocatable=1)
        line = self.agent.wait_said("config.in-force")
        self.assertIn("file=none", line)
        self.assertIn("pass-device-specs=true (env PASS_DEVICE_SPECS)", line)
        status = self.lab.status()
        self.assertEqual(status["config"], "")
        self.assertIn({"option": "pass-device-specs", "value": "true", "origin": "env PASS_DEVICE_SPECS"}, status["configValues"])
        self.agent.end()
        config = self.write_config("flags: {plugin: {deviceIDStrategy: index}}\n")
        self.start(f"--config-file={config}", allocatable=1)
        self.assertIn(f"file={config}", self.agent.wait_said("config.in-force"))
        self.assertIn({"option": "device-id-strategy", "value": "index", "origin": f"{config}:1:18 flags.plugin.deviceIDStrategy"},
                      self.lab.status()["configValues"])

    def test_config_in_the_environment(self):
        """B-004: a ConfigMap that was imported as environment variables is told."""
        self.start(env={"any": "version: v1\nsharing:\n  timeSlicing:\n    resources: []\n"}, allocatable=1)
        line = self.agent.wait_said("config.finding")
        self.assertIn("--config-file", line)

    def test_health_off_is_shown(self):
        """B-011: in the log at start and in `mete status`."""
        self.start(env={"DP_DISABLE_HEALTHCHECKS": "xids"}, allocatable=1)
        self.assertIn("all health checking is off", self.agent.wait_said("config.health-off"))
        self.assertEqual(self.lab.status()["healthChecks"], "off")
        self.assertIn("health checks are off", self.lab.run("status", f"--state-dir={self.lab.state}"))

    def test_evidence_is_shown(self):
        """What the policy passes over is still seen."""
        self.start(allocatable=1)
        self.lab.set("gpu", "0", "xid", "13")
        self.agent.wait_said("gpu.event")
        until(5, "the XID is counted", lambda: self.lab.status()["gpus"][0].get("xidsPassedOver") == 1)
        self.assertIn("1 XIDs passed over, the last was 13", self.lab.run("status", f"--state-dir={self.lab.state}"))


class Registration(LabCase):
    def test_kubelet_forgets(self):
        """B-099: the stream is open and kubelet has no devices: registered anew, and told once."""
        self.start()
        self.kubelet.ask("forget", resource=GPU)
        self.kubelet.wait(allocatable=0)
        self.kubelet.wait(allocatable=8, seconds=20)
        self.assertEqual(len(self.agent.lines("plugin.kubelet-disagrees")), 1)
        self.assertIn("nvidia.com/gpu: 8 offered, kubelet has 0", self.agent.said())

    def test_young_kubelet(self):
        """B-101: what a node shows right after kubelet's start is told to be settling."""
        self.start()
        self.assertTrue(self.lab.status()["kubelet"]["settling"])
        self.assertIn("is settling", self.lab.run("status", f"--state-dir={self.lab.state}"))

    def test_one_gpu_two_pods(self):
        """B-104: kubelet's checkpoint names one gpu for two pods: told in the log and by `mete status`, with both."""
        self.start()
        held = self.kubelet.admit("first")["ids"][0]
        self.assertEqual(self.agent.end(), 0)
        self.kubelet.ask("stop")
        path = self.lab.kubelet_dir / "device-plugins/kubelet_internal_checkpoint"
        checkpoint = json.loads(path.read_text())
        entries = checkpoint["Data"]["PodDeviceEntries"]
        entries.append({**entries[0], "PodUID": "11111111-2222-3333-4444-555555555555"})
        path.write_text(json.dumps(checkpoint))
        (self.lab.cgroups / "kubepods/pod11111111-2222-3333-4444-555555555555").mkdir()
        self.start(allocatable=None)
        line = self.agent.wait_said("in-use.duplicate")
        for word in (held, entries[0]["PodUID"], "11111111-2222-3333-4444-555555555555", "delete pod"):
            self.assertIn(word, line)
        found = [f for f in self.lab.status()["findings"] if f["id"] == "in-use.duplicate"]
        self.assertEqual(len(found), 1)
        self.assertEqual((found[0]["severity"], found[0]["subject"]), ("error", held))
        self.assertIn("is held by pod", self.lab.run("status", f"--state-dir={self.lab.state}"))


class Scale(LabCase):
    HOST = ("--gpus", "16", "--model", "h100-sxm")

    def test_no_driver_call_for_a_grant(self):
        """B-181: four claims of four gpus and a burst, with every driver call hanging: nothing is enumerated anew."""
        self.start(allocatable=16)
        self.lab.set("call", "nvml*", "hang")
        groups = [self.kubelet.admit(f"p{i}", n=4)["ids"] for i in range(4)]
        self.assertEqual(len({i for g in groups for i in g}), 16)
        for i in range(4):
            self.kubelet.end_pod(f"p{i}")
        self.assertEqual(len({self.kubelet.admit(f"q{i}")["ids"][0] for i in range(16)}), 16)
        self.lab.set("call", "all", "ok")
