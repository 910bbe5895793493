# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the agent and of its worker at any moment: no grant lost, no gpu given twice, recovery without a hand."""
import json
import os
import random
import signal
import threading
import time

from faults import GPU, PLAIN, SHARED, TIME_SLICING, FaultCase, descriptors, gone, until


class Storm(threading.Thread):
    """XIDs, resets and config changes until told to stop; daemon, so that a failed test does not wait for it."""

    def __init__(self, case, seed):
        super().__init__(daemon=True)
        self.case, self.random, self.over = case, random.Random(seed), threading.Event()

    def run(self):
        sharing = False
        while not self.over.wait(self.random.uniform(0, 0.05)):
            what = self.random.randrange(4)
            gpu = str(self.random.randrange(8))
            if what == 0:
                sharing = not sharing
                self.case.write_config(TIME_SLICING if sharing else PLAIN)
            elif what == 1:
                self.case.lab.set("gpu", gpu, "xid", "79")
            else:
                self.case.lab.set("gpu", gpu, "reset")

    def stop(self):
        self.over.set()
        self.join(20)


class AgentKilled(FaultCase):
    def test_at_random_moments_of_a_storm(self):
        """Admissions, ends, XIDs, resets and time slicing switched on and off, and kill -9 in between."""
        rng = random.Random(7)
        self.start()
        storm = Storm(self, 11)
        storm.start()
        admitted = 0
        try:
            n = -1
            while n < 40 or (admitted < 4 and n < 200):
                n += 1
                if self.held and rng.random() < 0.4:
                    self.end(rng.choice(sorted(self.held)))
                else:
                    resource = rng.choice((GPU, SHARED))
                    count = rng.choice((1, 1, 2)) if resource == GPU else 1
                    admitted += self.admit(f"p{n}", resource, count) is not None
                self.audit()
                if rng.random() < 0.6:
                    time.sleep(rng.uniform(0, 0.03))
                    self.agent.end(signal.SIGKILL)
                    self.start(allocatable=None)
                    if rng.random() < 0.7:
                        time.sleep(rng.uniform(0, 0.06))
        finally:
            storm.stop()
        self.audit()
        self.assertGreater(admitted, 0, "the storm left no room for a single pod")
        for pod in list(self.held):
            self.end(pod)
        self.lab.set("gpu", "all", "reset")
        self.write_config(PLAIN)
        # A grant that kubelet never confirmed, as of a pod that ended at once, counts as in use for 120 s (docs/formats.md).
        self.settles(seconds=150)

    def test_under_an_admission(self):
        """Killed while kubelet waits for Allocate: the pod has a gpu or none, and the next one is another."""
        self.start()
        for n in range(12):
            killer = threading.Timer(0.0004 * n, self.agent.popen.kill)
            killer.start()
            self.admit(f"p{n}")
            killer.join()
            self.agent.popen.wait(5)
            self.start(allocatable=None)
            self.kubelet.wait(allocatable=8)
            self.audit()
            if len(self.held) > 5:
                self.end(sorted(self.held)[0])

    def test_pod_of_a_moment(self):
        """Pods that live for a tenth of a second: their gpus are soon free for every form."""
        self.start()
        for n in range(8):
            self.admit(f"p{n}")
            time.sleep(0.1)
            self.end(f"p{n}")
        self.write_config(TIME_SLICING)
        self.kubelet.wait(SHARED, allocatable=32, seconds=8)

    def scenario(self, env):
        """A whole grant, then shares, then a grant of a share: every kind of ledger write. True if the agent lived through it."""
        self.write_config(PLAIN)
        self.start(allocatable=None, env=env)
        steps = (lambda: self.kubelet.try_ask("wait", resource=GPU, allocatable=8, ms=4000)["ok"],
                 lambda: self.admit("whole"),
                 lambda: self.write_config(TIME_SLICING),
                 lambda: self.kubelet.try_ask("wait", resource=SHARED, capacity=32, ms=4000)["ok"],
                 lambda: self.admit("share", SHARED),
                 lambda: self.end("whole") or True if "whole" in self.held else True,
                 lambda: time.sleep(0.05) or True)
        for step in steps:
            if not self.agent.running():
                return False
            if not step() and self.agent.running():
                time.sleep(0.05)
        return self.agent.running()

    def recover(self):
        """The next agent, with the same config: exactly once still holds."""
        self.agent.end(signal.SIGKILL)
        self.start(allocatable=None)
        self.kubelet.wait(SHARED if TIME_SLICING in self.config.read_text() else GPU, capacity=None, seconds=10)
        self.agent.wait_said("plugin.listed")
        self.audit()
        for n in range(3):
            self.admit(f"more{n}", SHARED)
            self.admit(f"else{n}", GPU)
        self.audit()
        text = (self.lab.state / "ledger.json").read_text()
        self.assertEqual(json.loads(text)["version"], 1)
        self.assertEqual([p.name for p in self.lab.state.iterdir() if "damaged" in p.name], [], "a killed write damaged the ledger")
        for pod in list(self.held):
            self.end(pod)
        self.agent.end(signal.SIGKILL)
        for path in self.lab.state.iterdir():
            path.unlink()

    def test_at_every_step_of_every_write_of_the_ledger(self):
        counted = self.lab.dir / "steps"
        self.assertTrue(self.scenario(self.fault(f"count {counted}", "ledger.json")))
        self.recover()
        total = counted.stat().st_size
        self.assertGreaterEqual(total, 5)  # one write of the file at the least; the more the scenario gets done, the more
        deaths = 0
        for when in ("before", "after"):
            for k in range(1, total + 1):
                with self.subTest(when=when, k=k):
                    deaths += not self.scenario(self.fault(f"kill-{when} {k}", "ledger.json"))
                    self.recover()
        self.assertGreater(deaths, total)


class WorkerKilled(FaultCase):
    def test_again_and_again(self):
        """The agent backs off, says so, offers everything meanwhile and keeps no descriptor of the dead."""
        self.start()
        before = descriptors(self.agent.pid)
        killed = 0
        end = time.monotonic() + 5
        while time.monotonic() < end:
            pid = self.worker()
            if pid:
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
            self.assertEqual(self.kubelet.resource()["allocatable"], 8)
        self.assertIsNotNone(self.admit("p"))
        self.assertLess(killed, 25, "no back-off between restarts")
        self.assertGreater(killed, 3)
        until(30, "a worker that lives", self.worker)
        self.settles()
        until(5, "as many descriptors as before", lambda: descriptors(self.agent.pid) <= before)

    def test_at_random_moments(self):
        """Also in the middle of its start and of a survey; in the end everything is known again."""
        self.start()
        rng = random.Random(5)
        for _ in range(12):
            self.request("survey")
            time.sleep(rng.uniform(0, 0.02))
            pid = self.worker()
            if pid:
                os.kill(pid, signal.SIGKILL)
            time.sleep(rng.uniform(0, 0.3))
        self.lab.set("gpu", "2", "xid", "79")
        self.kubelet.wait(allocatable=7, seconds=40)
        self.lab.set("gpu", "2", "reset")
        self.settles(seconds=40)

    def test_stopped(self):
        """SIGSTOP under a survey: a worker that hangs is found out, killed and replaced; grants go on meanwhile."""
        self.start()
        pid = self.worker()
        os.kill(pid, signal.SIGSTOP)
        self.request("survey")
        began = time.monotonic()
        self.assertIsNotNone(self.admit("p"))
        self.assertLess(time.monotonic() - began, 1)
        self.answers()
        until(15, "the stopped worker is killed", lambda: gone(pid), 0.1)
        until(15, "another worker", lambda: self.worker() not in (0, pid), 0.1)
        self.lab.set("gpu", "2", "xid", "79")
        self.kubelet.wait(allocatable=7, seconds=15)

    def test_deaf(self):
        """A wait for events that never ends costs the worker even if nobody asks for a survey: else no XID is heard again."""
        self.start()
        pid = self.worker()
        time.sleep(0.3)
        os.kill(pid, signal.SIGSTOP)
        until(30, "the stopped worker is killed", lambda: gone(pid), 0.2)
        self.lab.set("gpu", "2", "xid", "79")
        self.kubelet.wait(allocatable=7, seconds=15)

    def test_agent_killed_with_a_hung_worker(self):
        """Nothing of the dead agent goes on holding the driver."""
        self.start()
        pid = self.worker()
        self.lab.set("call", "nvmlDeviceGetUUID", "hang")
        self.request("survey")
        time.sleep(0.3)
        self.agent.end(signal.SIGKILL)
        until(5, "the worker ends with its agent", lambda: gone(pid))
        self.lab.set("call", "all", "ok")
        self.start()
