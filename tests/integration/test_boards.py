# SPDX-License-Identifier: Apache-2.0
"""Other hosts than eight whole H100s: parts, unified memory, old drivers, very many devices."""
import json
import signal

from base import GPU, SHARED, LabCase
from lab import until


class Parts(LabCase):
    HOST = ("--gpus", "4", "--model", "a100-40")

    def resources(self):
        return {r["name"]: (r["capacity"], r["allocatable"]) for r in self.kubelet.status()["resources"] if r["capacity"]}

    def layout(self, gpu, profiles):
        self.lab.set("gpu", str(gpu), "mig", "on")
        self.lab.set("gpu", str(gpu), "reset")  # Ampere changes the mode by a reset only
        if profiles:
            self.lab.set("gpu", str(gpu), "mig", profiles)

    def test_mixed(self):
        self.layout(0, "3g.20gb@4,2g.10gb@0,1g.5gb@2,1g.5gb@3")
        self.start("--mig-strategy=mixed", allocatable=3)
        wanted = {GPU: (3, 3), "nvidia.com/mig-3g.20gb": (1, 1), "nvidia.com/mig-2g.10gb": (1, 1), "nvidia.com/mig-1g.5gb": (2, 2)}
        until(5, "all resources", lambda: self.resources() == wanted)
        a = self.kubelet.admit("p", "nvidia.com/mig-1g.5gb")
        self.assertTrue(a["envs"]["NVIDIA_VISIBLE_DEVICES"].startswith("MIG-"), a["envs"])

    def test_single(self):
        for gpu in range(4):
            self.layout(gpu, "1g.5gb," * 6 + "1g.5gb")
        self.start("--mig-strategy=single", allocatable=28)
        self.assertEqual(self.resources(), {GPU: (28, 28)})

    def test_mig_gpu_without_parts(self):
        """B-033: one gpu with MIG on and nothing on it does not take the others along."""
        self.layout(0, "2g.10gb,2g.10gb,2g.10gb")
        self.layout(1, "")
        self.start("--mig-strategy=mixed", allocatable=2)
        until(5, "parts and whole gpus", lambda: self.resources() == {GPU: (2, 2), "nvidia.com/mig-2g.10gb": (3, 3)})

    def test_parts_made_and_destroyed_while_running(self):
        """B-036: seen without a restart; the part in use keeps its id."""
        self.layout(0, "2g.10gb,2g.10gb")
        self.start("--mig-strategy=mixed", allocatable=3)
        name = "nvidia.com/mig-2g.10gb"
        self.kubelet.wait(name, allocatable=2)
        held = self.kubelet.admit("p", name)["ids"][0]
        self.lab.set("gpu", "0", "mig", "create-gi", "2g.10gb")
        shown = json.loads(self.lab.run("sim", "show", "-o", "json", self.lab.host))["gpus"][0]["gpuInstances"]
        new = next(str(i["id"]) for i in shown if not i["computeInstances"])
        self.lab.set("gpu", "0", "mig", "create-ci", "gi", new, "2")
        self.kubelet.wait(name, allocatable=3, seconds=20)
        self.assertIn(held, {d["id"] for d in self.kubelet.resource(name)["devices"]})
        self.lab.set("gpu", "0", "mig", "destroy", "gi", new)
        self.kubelet.wait(name, capacity=2, allocatable=2, seconds=20)
        self.assertTrue(next(d for d in self.kubelet.resource(name)["devices"] if d["id"] == held)["healthy"])


class UnifiedMemory(LabCase):
    HOST = ("--gpus", "1", "--model", "gb10")

    def test_served(self):
        self.start(allocatable=1)
        self.assertEqual(self.kubelet.admit("p")["envs"]["NVIDIA_VISIBLE_DEVICES"][:4], "GPU-")


class MemoryTold(LabCase):
    HOST = ("--gpus", "2", "--model", "l40s")

    def test_memory_unsupported(self):
        """B-170: a gpu whose memory cannot be read is a gpu all the same."""
        self.lab.set("gpu", "0", "memory", "unsupported")
        self.start(allocatable=2)


class OldDriver(LabCase):
    HOST = ("--gpus", "2", "--model", "t4", "--hide-symbols", "nvmlDeviceGetMemoryInfo_v2,nvmlEventSetWait_v2,nvmlGpm*,nvmlSystemGetCudaDriverVersion_v2")

    def test_symbols_missing(self):
        """What an old library lacks costs that feature, not the node."""
        self.start(allocatable=2)
        self.lab.set("gpu", "1", "lost")
        self.kubelet.wait(allocatable=1, seconds=60)


class Mismatch(LabCase):
    HOST = ("--gpus", "2", "--model", "h200")

    def test_version_mismatch_and_back(self):
        """The driver's library was upgraded under the running module: nothing is offered until the reload."""
        self.lab.set("driver", "mismatch")
        self.start("--fail-on-init-error=false", allocatable=None)
        self.agent.wait_said("driver.waiting")
        self.lab.set("driver", "reload")
        self.kubelet.wait(allocatable=2, seconds=60)

    def test_no_driver_ends_with_a_reason(self):
        self.lab.set("driver", "unload")
        self.start(allocatable=None)
        until(20, "the agent ends", lambda: not self.agent.running())
        self.assertEqual(self.agent.end(), 1)
        self.assertIn("--fail-on-init-error=false", self.agent.said())


class Many(LabCase):
    HOST = ("--gpus", "16", "--model", "h100-sxm")

    def config(self, replicas):
        return self.write_config("version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    resources:\n"
                                 f"      - name: nvidia.com/gpu\n        replicas: {replicas}\n")

    def test_sixteen_gpus(self):
        self.start(allocatable=16)
        a = self.kubelet.admit("p", n=16)
        self.assertEqual(len(set(a["ids"])), 16)

    def test_thousands_of_shares(self):
        config = self.config(1000)
        self.start(f"--config-file={config}", allocatable=16000, resource=SHARED)
        a = self.kubelet.admit("p", SHARED)
        self.assertEqual(len(a["ids"]), 1)
        self.lab.set("gpu", "2", "xid", "79")
        self.kubelet.wait(SHARED, allocatable=15000)

    def test_more_than_kubelet_accepts(self):
        """B-178: a list that kubelet would not take is refused with its size, before it is sent."""
        config = self.config(16384)
        self.start(f"--config-file={config}", allocatable=None)
        until(20, "the agent ends or says why it serves nothing", lambda: not self.agent.running() or self.agent.lines(" error "))
        said = self.agent.said()
        self.assertIn("16384", said)
        self.assertIsNone(self.kubelet.resource(SHARED))
        self.agent.end(signal.SIGTERM)
