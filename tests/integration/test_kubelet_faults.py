# SPDX-License-Identifier: Apache-2.0
"""Public reports of the group "kubelet restart and registration": what must hold whatever kubelet does."""
import os
import signal
import time

from base import GPU, SHARED, LabCase
from lab import LabError, until
from test_agent import TIME_SLICING


class Kubelet(LabCase):
    def descriptors(self):
        return len(os.listdir(f"/proc/{self.agent.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.agent.pid}/task"))

    def test_fifty_restarts(self):
        """B-098: after each restart the whole list is there again; nothing is leaked."""
        self.start()
        self.kubelet.ask("restart")
        self.kubelet.wait(allocatable=8)
        time.sleep(0.3)
        before = self.descriptors(), self.threads()
        for _ in range(50):
            self.kubelet.ask("restart")
            self.kubelet.wait(allocatable=8, seconds=5)
        until(5, "as many descriptors and threads as before", lambda: (self.descriptors(), self.threads()) == before)

    def test_kubelet_closes_the_stream(self):
        """B-099: kubelet's side goes, its socket stays: the agent notices and registers again."""
        self.start()
        for _ in range(3):
            self.kubelet.ask("drop")
            self.kubelet.wait(allocatable=8, seconds=10)

    def test_plugin_directory_replaced(self):
        """B-099: the watched directory is moved away and made anew: without a watch the poll finds it."""
        self.start()
        plugins = self.lab.kubelet_dir / "device-plugins"
        self.kubelet.kill()
        self.kubelet.close()
        plugins.rename(self.lab.kubelet_dir / "old")
        self.kubelet = self.lab.start_kubelet()
        self.kubelet.wait(allocatable=8, seconds=30)
        self.kubelet.admit("p")

    def test_absent_then_slow_then_refusing(self):
        """B-103: no kubelet, then one that answers late, then one that knows no such version: the agent stays and says so."""
        self.kubelet.ask("stop")
        self.start(allocatable=None)
        time.sleep(2)
        self.assertTrue(self.agent.running())
        self.kubelet.ask("behave", register_ms=6000)
        self.kubelet.ask("start")
        self.kubelet.wait(allocatable=8, seconds=30)
        text = 'requested API version "v1beta1" is not supported by kubelet. Supported version is ["v2"]'
        self.kubelet.ask("behave", refuse=text)
        self.kubelet.ask("restart")
        line = self.agent.wait_said("refused the registration: requested API version")
        self.assertIn("v2", line)
        self.assertIn("device plugin API v1beta1", line)  # what is supported here
        self.assertTrue(self.agent.running())
        self.kubelet.ask("behave")  # as it should be
        self.kubelet.ask("restart")
        self.kubelet.wait(allocatable=8, seconds=10)

    def test_restart_while_a_gpu_is_bad(self):
        """B-101: the first list after a restart already says what is unhealthy."""
        self.start()
        self.lab.set("gpu", "3", "xid", "79")
        self.kubelet.wait(allocatable=7)
        last = self.kubelet.events()[-1]["number"]
        self.kubelet.ask("restart")
        self.kubelet.wait(capacity=8, allocatable=7)
        lists = [e["text"] for e in self.kubelet.events(last) if e["kind"] == "list"]
        self.assertEqual(lists, ["capacity 8 allocatable 7"])

    def test_kubelet_killed_under_a_grant(self):
        """The small kubelet ends without a word and starts with its checkpoint: what was granted stays granted."""
        self.start()
        held = {self.kubelet.admit(f"p{i}")["ids"][0] for i in range(3)}
        self.kubelet.kill()
        self.kubelet.close()
        self.kubelet = self.lab.start_kubelet()
        self.kubelet.wait(allocatable=8)
        rest = {self.kubelet.admit(f"q{i}")["ids"][0] for i in range(5)}
        self.assertEqual(held & rest, set())


class ExactlyOnce(LabCase):
    """Kubelet keeps one resource's devices apart; only the agent can keep two resources apart."""

    def gpu_of(self, device):
        return device.split("::")[0]

    def test_whole_gpus_and_shares_never_meet(self):
        config = self.write_config("version: v1\n")
        self.start(f"--config-file={config}")
        whole = {self.kubelet.admit(f"whole{i}")["ids"][0] for i in range(3)}
        for kill in (None, self.kill_worker, self.kill_agent):
            if kill:
                kill(config)
            self.write_config(TIME_SLICING)
            self.kubelet.wait(SHARED, capacity=32, allocatable=20, seconds=20)
            shares = set()
            for i in range(20):
                shares.add(self.gpu_of(self.kubelet.admit(f"share{i}", SHARED)["ids"][0]))
            self.assertEqual(shares & whole, set())
            self.assertIn("Available: 0", self.kubelet.refusal("share-more", SHARED))
            self.write_config("version: v1\n")
            # The five gpus with shares on them are not offered whole; the three whole ones stay what they are.
            self.kubelet.wait(GPU, capacity=8, allocatable=3, seconds=20)
            self.assertIn("Available: 0", self.kubelet.refusal("whole-more", GPU))
            # A pod that ends before the agent saw it run keeps its gpu back for two minutes.
            until(20, "the agent has seen every share run", lambda: "not confirmed" not in str(self.lab.status()["notOffered"]), 0.2)
            for i in range(20):
                self.kubelet.end_pod(f"share{i}")
            self.kubelet.wait(GPU, allocatable=8, seconds=30)

    def kill_worker(self, config):
        os.kill(self.lab.status()["workerPid"], signal.SIGKILL)

    def kill_agent(self, config):
        self.agent.end(signal.SIGKILL)
        self.start(f"--config-file={config}")

    def test_agent_killed_again_and_again(self):
        """kill -9 at any moment, between and under admissions: no gpu is given twice, none is lost."""
        self.start()
        held = {}
        for n in range(25):
            if n % 5 == 4 and held:
                pod = sorted(held)[0]
                self.kubelet.end_pod(pod)
                del held[pod]
            elif len(held) < 8:
                got = self.kubelet.try_ask("admit", pod=f"p{n}", container="c", resource=GPU, n=1)
                if got["ok"]:
                    held[f"p{n}"] = got["answer"]["ids"][0]
            self.assertEqual(len(set(held.values())), len(held), held)
            if n % 2:
                time.sleep(0.003 * (n % 7))
                self.agent.end(signal.SIGKILL)
                self.start(allocatable=None if n % 3 else 8)
        self.kubelet.wait(allocatable=8)
        free = 8 - len(held)
        for i in range(free):
            self.kubelet.admit(f"last{i}")
        self.assertRaises(LabError, self.kubelet.admit, "too-many")
