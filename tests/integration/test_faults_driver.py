# SPDX-License-Identifier: Apache-2.0
"""The driver fails: each NVML call that we use fails, is slow or hangs in turn; unloads, mismatches, lost gpus under the agent."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

from faults import GPU, FaultCase, cpu_seconds, until
from lab import LabError

HEADER = pathlib.Path(__file__).resolve().parents[2] / "src/gpu/nvml.h"
CALLS = sorted(set(re.findall(r"nv_fn_(nvml\w+)", HEADER.read_text())))
# Without these there is no survey at all: the node has no usable driver, and that is said.
VITAL = {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}
UNKNOWN, NO_PERMISSION, LOST, NOT_SUPPORTED, IRQ, MEMORY = "999", "4", "15", "3", "11", "20"


class EachCall(FaultCase):
    def survey(self, *args, code=None):
        r = subprocess.run([self.lab.mete, "survey", f"--host-root={self.lab.host}", f"--driver-root={self.lab.host}",
                            f"--driver-root-ctr-path={self.lab.host}", "-o", "json", *args], capture_output=True, text=True, timeout=60)
        self.assertGreaterEqual(r.returncode, 0, f"it crashed: {r.stderr}")
        return json.loads(r.stdout) if r.stdout.strip() else {"gpus": [], "text": r.stderr}

    def usable(self, survey):
        return sum(not g.get("lost") for g in survey["gpus"])

    def test_fails_for_one_gpu(self):
        """Whatever fails for gpu 5, the other seven are as good as before."""
        self.assertEqual(self.usable(self.survey()), 8)
        for code in (UNKNOWN, LOST, NOT_SUPPORTED):
            for call in CALLS:
                with self.subTest(call=call, code=code):
                    self.lab.set("call", call, "fail", code, "gpu", "5")
                    s = self.survey()
                    self.assertEqual(len(s["gpus"]), 8)
                    self.assertGreaterEqual(self.usable(s), 7)
                    self.lab.set("call", "all", "ok")

    def test_fails_for_all(self):
        """Nothing crashes; but for the vital calls, all gpus are there still, if need be as lost ones with the reason."""
        for code in (UNKNOWN, NO_PERMISSION, IRQ, MEMORY):
            for call in CALLS:
                with self.subTest(call=call, code=code):
                    self.lab.set("call", call, "fail", code)
                    s = self.survey()
                    if call not in VITAL:
                        self.assertEqual(len(s["gpus"]), 8, s)
                    self.lab.set("call", "all", "ok")

    def test_hangs(self):
        """Each call hangs, all at once on as many hosts: every survey ends in time and names the call."""
        hosts = []
        began = time.monotonic()
        for n, call in enumerate(CALLS):
            host = self.lab.dir / f"h{n}"
            self.lab.run("sim", "create", host, "--gpus", "2", "--model", "h100-sxm")
            self.lab.run("sim", "set", host, "call", call, "hang")
            p = subprocess.Popen([self.lab.mete, "survey", f"--host-root={host}", f"--driver-root={host}", f"--driver-root-ctr-path={host}",
                                  "--timeout=6s", "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            hosts.append((call, p))
        named = 0
        for call, p in hosts:
            with self.subTest(call=call):
                out, err = p.communicate(timeout=30)
                self.assertGreaterEqual(p.returncode, 0, f"it crashed: {err}")
                if p.returncode:
                    self.assertIn(call, err + out)
                    named += 1
                else:
                    self.assertEqual(len(json.loads(out)["gpus"]), 2)
        self.assertGreater(named, 10)
        self.assertLess(time.monotonic() - began, 60)

    def test_agent_with_bad_calls(self):
        """The agent itself, over failing calls of its survey: pods get gpus all the time, and afterwards all is offered."""
        self.start()
        rng = random.Random(1)
        for call in rng.sample(CALLS, 25):
            self.lab.set("call", call, "fail", rng.choice((UNKNOWN, IRQ)), "gpu", "5")
            self.request("survey")
            time.sleep(0.12)
            pod = f"p-{call}"
            self.assertIsNotNone(self.admit(pod), self.agent.said()[-600:])
            self.end(pod)
            self.assertGreaterEqual(self.kubelet.resource()["allocatable"], 7)
            self.lab.set("call", "all", "ok")
        self.request("survey")
        self.settles(seconds=30)


class Slow(FaultCase):
    def test_slow_calls(self):
        """Calls that take 150 ms each are slow, not hung: the same worker, and answers as quick as ever."""
        self.start()
        pid = self.worker()
        self.lab.set("call", "nvmlDeviceGetU*", "slow", "150")
        self.request("survey")
        for n in range(5):
            began = time.monotonic()
            self.assertIsNotNone(self.admit(f"p{n}"))
            self.assertLess(time.monotonic() - began, 0.3)
            self.answers()
        time.sleep(2)
        self.assertEqual(self.worker(), pid)
        self.lab.set("gpu", "3", "xid", "79")
        self.kubelet.wait(allocatable=7, seconds=2)

    def test_hang_under_the_agent(self):
        """A call hangs for as long as it likes: devices stay as they are for a while, then leave, and all comes back by itself."""
        self.start()
        pid = self.worker()
        self.lab.set("call", "nvmlDeviceGetTotalEnergyConsumption", "hang")
        self.lab.set("call", "nvmlDeviceGetName", "hang")
        self.request("survey")
        self.agent.wait_said("has not answered", seconds=15)
        self.assertNotEqual(self.worker(), pid)
        self.assertIsNotNone(self.admit("p"))
        cpu, began = cpu_seconds(self.agent.pid), time.monotonic()
        time.sleep(1)
        self.assertLess((cpu_seconds(self.agent.pid) - cpu) / (time.monotonic() - began), 0.2)
        self.lab.set("call", "all", "ok")
        self.settles(seconds=40)
        self.audit()


class Driver(FaultCase):
    def healthy(self):
        return self.kubelet.resource()["allocatable"]

    def test_reload_again_and_again(self):
        """Unloaded and loaded ten times, at any moment, with pods on the gpus: nothing is lost, all comes back."""
        self.start()
        held = [self.admit(f"p{n}") for n in range(3)]
        rng = random.Random(9)
        for _ in range(8):
            self.lab.set("driver", "unload")
            time.sleep(rng.uniform(0, 0.4))
            self.lab.set("driver", "load")
            time.sleep(rng.uniform(0, 0.4))
        self.lab.set("driver", "reload")
        self.settles(seconds=60)
        self.audit()
        rest = [self.admit(f"q{n}") for n in range(5)]
        self.assertEqual(len({i for ids in held + rest for i in ids}), 8)

    def test_another_version(self):
        """A driver upgrade under the agent: mismatch first, then the new one."""
        self.start()
        self.lab.set("driver", "mismatch")
        os.kill(self.worker(), signal.SIGKILL)
        self.agent.wait_said("version-mismatch", seconds=10)
        self.lab.set("driver", "version", "590.44.01")
        self.lab.set("driver", "load")
        self.settles(seconds=60)
        until(20, "the new version", lambda: self.lab.status()["driverVersion"] == "590.44.01", 0.2)

    def test_lost_and_back(self):
        self.start()
        self.admit("p")
        self.lab.set("gpu", "5", "lost")
        self.lab.set("gpu", "5", "xid", "79")
        self.kubelet.wait(allocatable=7, seconds=10)
        self.lab.set("gpu", "5", "reset")
        self.settles(seconds=40)

    def test_lost_for_a_while_and_back(self):
        """The worker's session never sees the gpu again: it is opened anew, however often somebody else asks for a survey."""
        self.start()
        self.lab.set("gpu", "5", "lost")
        self.kubelet.wait(allocatable=7, seconds=10)
        end = time.monotonic() + 6
        while time.monotonic() < end:
            self.request("survey")
            time.sleep(0.3)
        self.lab.set("gpu", "5", "reset")
        end = time.monotonic() + 20
        while time.monotonic() < end and self.healthy() != 8:
            self.request("survey")
            time.sleep(0.3)
        self.settles(seconds=1)

    def test_pulled_and_put_back(self):
        self.start()
        self.lab.set("gpu", "2", "removed")
        self.kubelet.wait(allocatable=7, seconds=40)
        self.lab.set("gpu", "2", "present")
        self.settles(seconds=40)

    def test_release_for_a_reset(self):
        """The agent lets go of the driver, an operator resets, the agent takes it again; pods and sockets live on."""
        self.start()
        self.admit("p")
        self.lab.run("driver", "release", f"--state-dir={self.lab.state}")
        until(10, "no worker", lambda: self.worker() == 0)
        self.lab.set("gpu", "6", "reset")
        self.assertIsNone(self.admit("q"), "a gpu under a reset was given out")
        self.lab.run("driver", "acquire", f"--state-dir={self.lab.state}")
        self.settles(seconds=30)
        self.audit()

    def test_no_driver_at_all(self):
        """No library: with failOnInitError the agent ends and says where it looked, without it waits for one."""
        self.lab.set("driver", "unload")
        self.start(allocatable=None)
        until(15, "it ends", lambda: not self.agent.running())
        self.assertEqual(self.agent.end(), 1)
        self.assertIn("driver.not-usable", self.agent.said())
        self.start("--fail-on-init-error=false", allocatable=None)
        self.agent.wait_said("driver.waiting")
        time.sleep(1)
        self.assertTrue(self.agent.running())
        self.lab.set("driver", "load")
        self.settles(seconds=40)


__all__ = ["GPU", "LabError"]
