# SPDX-License-Identifier: Apache-2.0
"""A log that nobody reads, floods of GPU events, and signals at any moment."""
import fcntl
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

from faults import GPU, PLAIN, SHARED, TIME_SLICING, FaultCase, cpu_seconds, private_kib, until


class Log(FaultCase):
    def start_into(self, fd, *args):
        """The agent with fd as its stderr."""
        command = [str(self.lab.mete), "agent", *self.lab.agent_options(), f"--config-file={self.config}", "--log-level=debug", *args]
        p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=fd, start_new_session=True)
        self.addCleanup(lambda: (p.kill(), p.wait(5)))
        return p

    def stir(self, rounds):
        for n in range(rounds):
            self.kubelet.try_ask("admit", pod=f"p{n}", container="c", resource=GPU, n=8)
            self.kubelet.try_ask("end", pod=f"p{n}")

    def blocked(self, reader, writer):
        os.set_blocking(reader, False)
        p = self.start_into(writer)
        os.close(writer)
        self.kubelet.wait(allocatable=8)
        self.stir(300)
        self.lab.set("gpu", "3", "xid", "79")
        self.kubelet.wait(allocatable=7, seconds=2)
        self.answers()
        self.assertIsNone(p.poll())
        text = b""
        end = time.monotonic() + 5
        while time.monotonic() < end and b"log.lost" not in text:
            try:
                text += os.read(reader, 65536)
            except BlockingIOError:
                time.sleep(0.02)
        self.assertTrue(b"log.lost lines=" in text and b"agent.starts" in text, f"{len(text)} bytes: {text[-200:]}")
        lines = text.decode().splitlines()
        self.assertTrue(all(line[:2] == "20" for line in lines), "a line was torn")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(10), 0)

    def test_full_pipe(self):
        r, w = os.pipe()
        fcntl.fcntl(w, 1031, 4096)  # F_SETPIPE_SZ
        self.addCleanup(os.close, r)
        self.blocked(r, w)

    def test_full_terminal(self):
        """A terminal that was stopped with ^S."""
        leader, terminal = os.openpty()
        self.addCleanup(os.close, leader)
        self.blocked(leader, terminal)

    def test_nobody_at_the_other_end(self):
        r, w = os.pipe()
        p = self.start_into(w)
        os.close(w)
        os.close(r)
        self.kubelet.wait(allocatable=8)
        self.stir(5)
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(10), 0)

    def test_full_disk(self):
        d = self.tmpfs(self.lab.dir / "log", size="16k")
        with open(d / "agent.log", "wb") as out:
            p = self.start_into(out.fileno())
        self.kubelet.wait(allocatable=8)
        self.stir(20)
        self.answers()
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(10), 0)


class Flood(FaultCase):
    def test_thousand_xids_a_second(self):
        """Answers stay quick, the log is bounded, and a gpu that fails in the middle leaves at once."""
        self.start()
        before = private_kib(self.agent.pid)
        over = threading.Event()
        sent = [0]

        def pour():
            while not over.is_set():
                self.lab.set("gpu", "all", "xid", "13")
                sent[0] += 8

        threads = [threading.Thread(target=pour, daemon=True) for _ in range(2)]
        for t in threads:
            t.start()
        began, cpu = time.monotonic(), cpu_seconds(self.agent.pid)
        time.sleep(1)
        for _ in range(4):
            self.answers(within=0.2)  # with the start of the program, on a machine that is busy with the flood
        asked = time.monotonic()
        self.assertIsNotNone(self.admit("p"))
        self.assertLess(time.monotonic() - asked, 0.5)
        self.lab.set("gpu", "3", "xid", "79")
        self.kubelet.wait(allocatable=7, seconds=2)
        took, used = time.monotonic() - began, cpu_seconds(self.agent.pid) - cpu
        over.set()
        for t in threads:
            t.join(10)
        rate = sent[0] / took
        self.assertGreater(rate, 100, "no flood")
        self.assertLess(used / took, 0.6)
        self.assertLess(len(self.agent.said().splitlines()), 150)
        self.assertIn("gpu.events-not-told", self.agent.said())
        self.assertLess(private_kib(self.agent.pid), before + 1024)
        self.lab.set("gpu", "3", "reset")
        self.settles(seconds=30)

    def test_reload_storm(self):
        """The config changes a hundred times a second: the last one is in force in the end, and answers stay quick."""
        self.start()
        for n in range(150):
            self.write_config(TIME_SLICING.replace("replicas: 4", f"replicas: {2 + n % 3}") if n % 4 else PLAIN)
            time.sleep(0.005)
            if n % 50 == 0:
                self.answers()
        self.write_config(TIME_SLICING)
        self.kubelet.wait(SHARED, allocatable=32, seconds=5)
        for _ in range(50):
            self.agent.popen.send_signal(signal.SIGHUP)
        self.answers()
        self.settles(32, SHARED)


class Signals(FaultCase):
    def sockets(self):
        return [p for p in (self.lab.kubelet_dir / "device-plugins").iterdir() if "nvidia" in p.name]

    def test_end_at_any_moment_of_the_start(self):
        """Exit code 0, sockets gone, CDI files stay, and the lock is free for the next."""
        rng = random.Random(3)
        for n in range(25):
            with self.subTest(n=n):
                self.start("--device-list-strategy=cdi-cri", allocatable=None)
                time.sleep(rng.uniform(0, 0.03))
                code = self.agent.end()
                # Before main has begun nobody can catch a signal.
                self.assertIn(code, (0,) if "agent.starts" in self.agent.said() else (0, -signal.SIGTERM), self.agent.said())
                self.assertEqual(self.sockets(), [])
                self.assertFalse((self.lab.state / "agent.sock").exists())
        self.start("--device-list-strategy=cdi-cri")
        self.assertEqual(self.agent.end(), 0)
        self.assertTrue(list(self.lab.cdi.iterdir()))

    def test_end_while_it_waits_for_the_lock(self):
        first = self.start()
        os.kill(first.pid, signal.SIGSTOP)
        second = self.launch(f"--config-file={self.config}")
        time.sleep(0.3)
        self.assertTrue(second.running())
        self.assertEqual(second.end(), 0)
        os.kill(first.pid, signal.SIGCONT)
        time.sleep(0.2)
        self.agent = first
        self.settles() if first.running() else self.start()

    def test_end_under_a_reload(self):
        for n in range(6):
            self.start(allocatable=None)
            self.agent.wait_said("plugin.listed")
            self.write_config(PLAIN if n % 2 else TIME_SLICING)
            time.sleep(0.002 * n)
            self.agent.popen.send_signal(signal.SIGHUP)
            self.assertEqual(self.agent.end(), 0)
            self.assertEqual(self.sockets(), [])

    def test_end_twice_and_by_each_signal(self):
        for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            self.start()
            self.agent.popen.send_signal(signo)
            self.assertEqual(self.agent.end(signo), 0)

    def test_end_under_a_storm_of_signals(self):
        """Told to end and to reload again and again until it is gone: exit code 0 all the same."""
        for _ in range(5):
            self.start()
            end = time.monotonic() + 10
            while self.agent.running() and time.monotonic() < end:
                for signo in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                    self.agent.popen.send_signal(signo)
            self.assertEqual(self.agent.end(), 0)

    def test_end_with_a_hung_driver(self):
        """A worker that hangs does not hold up the end, and does not outlive it."""
        self.start()
        worker = self.worker()
        self.lab.set("call", "nvmlDeviceGetUUID", "hang")
        self.request("survey")
        time.sleep(0.3)
        began = time.monotonic()
        self.assertEqual(self.agent.end(), 0)
        self.assertLess(time.monotonic() - began, 3)
        until(3, "the worker ends", lambda: not pathlib.Path(f"/proc/{worker}").exists())
        self.lab.set("call", "all", "ok")

    def test_only_own_sockets(self):
        """Another's socket under our name is not removed at the end."""
        self.start()
        path = self.lab.kubelet_dir / "device-plugins/nvidia-gpu.sock"
        os.kill(self.agent.pid, signal.SIGSTOP)
        path.unlink()
        path.write_text("another's")
        self.agent.popen.send_signal(signal.SIGTERM)
        os.kill(self.agent.pid, signal.SIGCONT)
        self.assertEqual(self.agent.end(), 0)
        self.assertEqual(path.read_text(), "another's")
