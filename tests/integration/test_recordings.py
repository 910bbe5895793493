# SPDX-License-Identifier: Apache-2.0
"""Every recorded run of NVIDIA's device plugin 0.20.0, repeated by the real agent under that name on an equal simulated host.

The runs are in tests/golden/device-plugin (packed by tests/golden/import.py), the rules for comparing in shared/cases/README-recordings.md.
What may differ is in DIFFERENCES, each under its name in docs/differences.md; one that no run shows is an error too.
"""
import fnmatch
import json
import os
import pathlib
import re
import shutil
import sys
import unittest

from deviceplugin import PyKubelet
from lab import Lab, LabError, Process, until

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests/golden/cdi"))
from same_effect import effect
RUNS = ROOT / "tests/golden/device-plugin"
DRIVER_ROOT = {"h200": "opt/driver"}  # on the simulated host; others: as recorded
UNKNOWN = "rpc error: code = Unknown desc = "

# name in docs/differences.md, pattern over "PROFILE/VARIANT step", how our text begins
DIFFERENCES = [
    ("same-device-two-containers", "h200/* edge two containers", UNKNOWN + 'invalid allocation request for "nvidia.com/gpu": invalid request: device '),
    ("preferred-unknown-shared", "*/ts* edge preferred unknown must", UNKNOWN + "error getting list of preferred allocation devices: "),
    ("preferred-unknown-shared", "*/mps* edge preferred unknown must", UNKNOWN + "error getting list of preferred allocation devices: "),
    ("refusal-says-more", "*/*gt-one *", ""),
    ("refusal-says-more", "*/mps4 *", ""),
    ("mig-mixed-empty", "h100-mig/mig-mixed-on-empty failure", ""),
    ("mig-single-empty-says-more", "h100-mig/mig-single-on-empty failure", ""),
    ("imex-required-says-more", "*/imex0-required-absent failure", ""),
    ("cdi-more-names", "*/* cdi names gpu", ""),
]


class Host:
    """A simulated host equal to a recorded one, and a kubelet, for all runs of a profile."""

    def __init__(self, profile):
        self.profile = profile
        self.lab = Lab(os.environ["METE_BUILD"])
        self.lab.create_host("--profile", profile)
        self.driver = self.lab.host / DRIVER_ROOT.get(profile, "run/nvidia/driver")
        if profile == "h200":  # had no such node, and other ids
            for dev in (self.driver, self.lab.host):
                (dev / "dev/nvidia-modeset").unlink(missing_ok=True)
        else:
            self.lab.set("imex-channels", "1")
        (self.lab.host / "usr").symlink_to(self.driver.relative_to(self.lab.host) / "usr")  # there the peer let the loader find NVML
        self.name = self.lab.dir / "nvidia-device-plugin"
        self.name.symlink_to(self.lab.mete)
        self.kubelet = PyKubelet(self.lab.kubelet_dir)

    def close(self):
        self.kubelet.stop()
        self.lab.__exit__()

    def nodes_in_dev(self, wanted):
        """NS_DEV=1: the recorded container had the device nodes in its own /dev as well."""
        dev, away = self.lab.host / "dev", self.lab.host / "dev.away"
        if wanted and away.exists():
            away.rename(dev)
        elif not wanted and dev.exists():
            dev.rename(away)

    def seen_here(self, flag):
        """A path of the recorded container as this host has it."""
        for option in ("--driver-root-ctr-path=", "DRIVER_ROOT_CTR_PATH="):
            if flag.startswith(option):
                return option + str(self.lab.host if flag == option + "/" else self.driver)
        return flag

    def start(self, case):
        self.nodes_in_dev("NS_DEV=1" in case["env"])
        flags = [self.seen_here(f) for f in case["flags"]]
        env = dict(self.seen_here(e).split("=", 1) for e in case["env"] if not e.startswith("NS_"))
        if not any("CTR_PATH" in e or "ctr-path" in e for e in case["flags"] + case["env"]):
            env["DRIVER_ROOT_CTR_PATH"] = str(self.driver)
        if "config" in case:
            config = self.lab.dir / "config.yaml"
            config.write_text(case["config"])
            env["CONFIG_FILE"] = str(config)
        self.kubelet.forget()
        shutil.rmtree(self.lab.cdi, ignore_errors=True)
        ours = [f"--host-root={self.lab.host}", f"--kubelet-dir={self.lab.kubelet_dir}", f"--cdi-dir={self.lab.cdi}", "--log-format=json"]
        agent = Process("nvidia-device-plugin", [self.name, *ours, *flags], self.lab.dir / "agent.log", env)
        self.lab.processes.append(agent)
        return agent


# ---- what is compared, in a form without what the peer leaves to chance ----

def plain_container(c, by_index):
    c = json.loads(json.dumps(c))
    if c.get("annotations"):
        c["annotations"] = {re.sub(r"_[0-9a-fA-FRANDOM-]+(UUID)?$", "_RANDOM", k): v for k, v in c["annotations"].items()}
    if by_index:  # there the peer's order is random
        for kind in ("envs", "annotations"):
            if c.get(kind):
                c[kind] = {k: sorted(v.split(",")) for k, v in c[kind].items()}
    for kind in ("mounts", "devices", "cdi_devices"):
        if kind in c:
            c[kind] = sorted(c[kind], key=lambda e: json.dumps(e, sort_keys=True))
    return c


def plain_answer(answer, by_index):
    return [plain_container(c, by_index) for c in answer.get("container_responses", [])]


def shares_per_gpu(ids):
    counts = {}
    for i in ids:
        base = i.split("::")[0]
        counts[base] = counts.get(base, 0) + 1
    return sorted(counts.values())


def plain_preferred(answer):
    ids = [i for c in answer.get("container_responses", []) for i in c.get("deviceIDs", [])]
    return shares_per_gpu(ids) if any("::" in i for i in ids) else sorted(ids)


def plain_list(devices):
    out = []
    for d in devices:
        nodes = [n.get("ID", 0) for n in d.get("topology", {}).get("nodes", [])]
        out.append((d["ID"], d["health"], [int(n) for n in nodes]))
    return sorted(out)


def cdi_effect(spec, names):
    """What the file does to a container that gets the devices `names`. No numbers: the simulated nodes are plain files."""
    lines = (re.sub(r" \d+:\d+ mode \d+", "", line) for line in effect(spec))
    return sorted(line for line in lines if not line.startswith("device ") or line.split()[1].rstrip(":") in names)


class Recordings(unittest.TestCase):
    seen = set()

    def differs(self, where, ours, theirs):
        for i, (_, pattern, begins) in enumerate(DIFFERENCES):
            if fnmatch.fnmatchcase(where, pattern) and ours.startswith(begins):
                self.seen.add(i)
                return
        self.fail(f"{where}\n ours:   {ours}\n theirs: {theirs}")

    def same(self, where, ours, theirs):
        """Lists: what only one of them has is told."""
        if ours != theirs:
            mine, others = ([e for e in a if e not in b] or "the same in another number or order" for a, b in ((ours, theirs), (theirs, ours)))
            self.differs(where, json.dumps(mine, sort_keys=True), json.dumps(others, sort_keys=True))

    def refused(self, where, ours, theirs):
        if "error" not in ours:
            self.fail(f"{where}: the peer refuses: {theirs}; ours answers {ours}")
        if ours["error"] == theirs:
            return
        if not ours["error"].startswith(theirs):
            self.fail(f"{where}\n ours:   {ours['error']}\n theirs: {theirs}")
        self.differs(where, ours["error"], theirs)

    def answered(self, where, ours, recorded, plain):
        if "error" in recorded:
            self.refused(where, ours, recorded["error"])
        elif "error" in ours:
            self.differs(where, ours["error"], "an answer")
        else:
            self.same(where, plain(ours), plain(recorded["response"]))

    def one_resource(self, where, host, name, recorded, by_index):
        register = host.kubelet.wait(10)
        self.assertIsNotNone(register, f"{where}: nothing was registered")
        self.assertEqual(register, recorded["register"], where)
        plugin = host.kubelet.plugin(register["endpoint"])
        try:
            self.assertEqual(plugin.options(), recorded["options"], where)
            devices = plugin.first_list()
            self.same(f"{where} list", plain_list(devices), plain_list(recorded["list"]))
            self.calls(where, plugin, recorded, sorted(d["ID"] for d in devices), by_index)
        finally:
            plugin.close()

    def cdi_files(self, where, host, recorded):
        prefix = "k8s.device-plugin.nvidia.com-"
        files = {p.name[len(prefix):-len(".json")]: p for p in host.lab.cdi.glob("*")}
        self.assertEqual(sorted(files), sorted(recorded), where)
        for name, theirs in recorded.items():
            ours = json.loads(files[name].read_text())
            names = {d["name"] for d in theirs["devices"]}
            self.same(f"{where} cdi effect {name}", cdi_effect(ours, names), cdi_effect(theirs, names))
            self.same(f"{where} cdi version {name}", [ours["cdiVersion"]], [theirs["cdiVersion"]])
            self.same(f"{where} cdi names {name}", sorted(d["name"] for d in ours["devices"]), sorted(names))

    def calls(self, where, plugin, recorded, ids, by_index):
        for n, call in recorded["allocate"].items():
            self.answered(f"{where} allocate {n}", plugin.allocate(call["request"]), call, lambda a: plain_answer(a, by_index))
        for what, call in recorded["edge"].items():
            step = f"{where} edge {what}"
            if what.startswith("preferred"):
                self.assertEqual(len(ids), call["available"], step)
                ours = plugin.preferred(ids, call["must"], call["size"])
                self.answered(step, ours, call, plain_preferred)
                chosen = [i for c in ours.get("container_responses", []) for i in c.get("deviceIDs", [])]
                self.assertTrue(not chosen or set(call["must"] or []) <= set(chosen), step)
            else:
                self.answered(step, plugin.allocate(call["request"]), call, lambda a: plain_answer(a, by_index))

    def failed(self, where, host, agent, theirs):
        where += " failure"
        if "exit status 1" not in theirs:  # the peer lives on and says nothing
            note = agent.wait_said("MIG mode is on but it has no MIG devices")
            self.assertTrue(agent.running(), where)
            self.assertIsNone(host.kubelet.wait(0.3), where)
            self.differs(where, note, theirs)
            return
        until(10, f"{where}: the agent ends", lambda: not agent.running())
        self.assertEqual(agent.end(), 1, where)
        said = [json.loads(line) for line in agent.lines("agent.cannot-start")]
        self.assertEqual(len(said), 1, agent.said())
        text = said[0]["error"]
        cause = re.split(r" *[;(]", text)[0]
        self.assertIn(cause, theirs, where)
        self.assertIsNone(host.kubelet.wait(0), where)
        self.differs(where, text, theirs)

    def one_run(self, host, path):
        where = f"{host.profile}/{path.stem}"
        case = json.loads(path.read_text())
        agent = host.start(case)
        try:
            if "failure" in case:
                self.failed(where, host, agent, case["failure"])
                return
            by_index = "--device-id-strategy=index" in case["flags"]
            for name, recorded in case["resources"].items():
                self.one_resource(where, host, name, recorded, by_index)
            if "cdi" in case and host.profile != "h200":  # whose driver's files: tests/golden/cdi
                self.cdi_files(where, host, case["cdi"])
            self.assertIsNone(host.kubelet.wait(0), f"{where}: more resources than the peer's")
            self.assertEqual(agent.end(), 0)
        except (AssertionError, LabError):
            print(f"{where}: the agent's log:\n{agent.said()[-3000:]}", flush=True)
            raise
        finally:
            agent.kill()

    def profile(self, name):
        host = Host(name)
        self.addCleanup(host.close)
        paths = sorted((RUNS / name).glob("*.json"))
        self.assertTrue(paths)
        for path in paths:
            with self.subTest(run=f"{name}/{path.stem}"):
                self.one_run(host, path)

    def test_1_a100(self):
        self.profile("a100")

    def test_1_h100(self):
        self.profile("h100")

    def test_1_h100_mig(self):
        self.profile("h100-mig")

    def test_1_h200(self):
        self.profile("h200")

    def test_2_differences_are_told(self):
        """Runs last: each difference was seen, and docs/differences.md explains it."""
        text = (ROOT / "docs/differences.md").read_text()
        for i, (name, pattern, _) in enumerate(DIFFERENCES):
            self.assertIn(f"`{name}`", text)
            self.assertTrue(not self.seen or i in self.seen, f"no run shows {name} at {pattern}")


# The runbook's values and its time-slicing fragment, word for word.
SEED_VALUES = {"MIG_STRATEGY": "none", "FAIL_ON_INIT_ERROR": "true", "DEVICE_LIST_STRATEGY": "envvar"}
SEED_SHARING = """# Fragment of device-plugin configuration, not a Kubernetes resource.
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: 4
"""


class Seed(unittest.TestCase):
    def serve(self, **case):
        host = Host("h100")
        self.addCleanup(host.close)
        agent = host.start({"flags": [], "env": [f"{k}={v}" for k, v in SEED_VALUES.items()], **case})
        register = host.kubelet.wait(10)
        self.assertIsNotNone(register, agent.said())
        plugin = host.kubelet.plugin(register["endpoint"])
        self.addCleanup(plugin.close)
        return agent, register, plugin

    def test_values(self):
        agent, register, plugin = self.serve()
        self.assertEqual(register["resource_name"], "nvidia.com/gpu")
        ids = sorted(d["ID"] for d in plugin.first_list())
        self.assertEqual(len(ids), 8)
        answer = plugin.allocate({"container_requests": [{"devices_ids": ids[:1]}]})
        self.assertEqual(answer, {"container_responses": [{"envs": {"NVIDIA_VISIBLE_DEVICES": ids[0]}}]})
        self.assertEqual(agent.lines('"warn"'), [])

    def test_time_slicing(self):
        agent, register, plugin = self.serve(config=SEED_SHARING)
        self.assertEqual(register["resource_name"], "nvidia.com/gpu.shared")
        self.assertEqual(register["endpoint"], "nvidia-gpu.shared.sock")
        ids = sorted(d["ID"] for d in plugin.first_list())
        self.assertEqual(len(ids), 32)
        answer = plugin.allocate({"container_requests": [{"devices_ids": ids[:1]}]})
        self.assertEqual(answer["container_responses"][0]["envs"]["NVIDIA_VISIBLE_DEVICES"], ids[0].split("::")[0])
        refused = plugin.allocate({"container_requests": [{"devices_ids": ids[:2]}]})
        self.assertTrue(refused["error"].startswith(UNKNOWN + 'invalid allocation request for "nvidia.com/gpu.shared": invalid request: '
                                                    "maximum request size for shared resources is 1; found 2"), refused)

    def test_failing_driver_ends_it(self):
        """failOnInitError: true; exit code 1 and nothing registered."""
        host = Host("h100")
        self.addCleanup(host.close)
        host.lab.set("driver", "unload")
        agent = host.start({"flags": [], "env": [f"{k}={v}" for k, v in SEED_VALUES.items()]})
        until(10, "the agent ends", lambda: not agent.running())
        self.assertEqual(agent.end(), 1)
        self.assertIsNone(host.kubelet.wait(0))
        self.assertIn("--fail-on-init-error=false", agent.said())
