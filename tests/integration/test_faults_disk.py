# SPDX-License-Identifier: Apache-2.0
"""Full, read-only, vanishing and damaged state and CDI directories; slow disks; too few descriptors, watches and memory."""
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import grpc
from faults import GPU, PLAIN, SHARED, TIME_SLICING, FaultCase, fill, threads, until

CDI = "--device-list-strategy=envvar,cdi-cri"


class StateDirectory(FaultCase):
    def ledger(self):
        try:
            return json.loads((self.lab.state / "ledger.json").read_text())
        except (OSError, ValueError):
            return None

    def lines_bounded(self, most=60):
        self.assertLess(len(self.agent.said().splitlines()), most, "the log grows with every retry")

    def test_full_at_start(self):
        """Grants go on from memory; what could not be written is written when there is room."""
        self.tmpfs(self.lab.state)
        hog = fill(self.lab.state)
        self.start()
        self.assertIsNotNone(self.admit("p"))
        self.agent.wait_said("ledger.not-written")
        self.answers()
        hog.unlink()
        until(10, "the ledger is written", self.ledger)
        self.lines_bounded()

    def test_fills_up_later_then_kill(self):
        """A grant that could not be noted, then kill -9 and another sharing: kubelet's record alone keeps the gpu from being given again."""
        self.tmpfs(self.lab.state)
        self.start()
        fill(self.lab.state)
        gpu = self.admit("p")[0]
        time.sleep(0.1)
        self.agent.end(signal.SIGKILL)
        self.write_config(TIME_SLICING)
        self.start(allocatable=28, resource=SHARED)
        got = [self.admit(f"s{i}", SHARED)[0] for i in range(28)]
        self.assertNotIn(gpu, {i.split("::")[0] for i in got})
        self.assertIsNone(self.admit("more", SHARED))
        self.audit()

    def test_read_only(self):
        self.tmpfs(self.lab.state)
        (self.lab.state / "junk").write_text("x")
        subprocess.run(["mount", "-o", "remount,ro", str(self.lab.state)], check=True)
        self.start()
        self.assertIsNotNone(self.admit("p"))
        self.agent.wait_said("ledger.not-written")
        self.agent.end(signal.SIGKILL)
        self.start(allocatable=None)
        self.kubelet.wait(allocatable=8)
        self.assertIsNotNone(self.admit("q"))
        self.audit()
        subprocess.run(["mount", "-o", "remount,rw", str(self.lab.state)], check=True)
        until(10, "the ledger is written", self.ledger)
        until(10, "it answers commands", lambda: (self.lab.state / "agent.sock").exists())
        self.assertEqual(self.lab.status()["pid"], self.agent.pid)

    def delete(self, path):
        """The agent may put a file there meanwhile: then once more."""
        try:
            shutil.rmtree(path)
        except OSError:
            return False
        return True

    def test_vanishes(self):
        """Somebody deletes the whole directory: it is made anew, lock, socket and ledger in it, and a second agent still has to wait."""
        self.start()
        self.admit("p")
        until(5, "all of it is deleted", lambda: self.delete(self.lab.state))
        until(10, "it answers commands", lambda: (self.lab.state / "agent.sock").exists())
        self.lab.set("gpu", "3", "xid", "79")
        self.kubelet.wait(allocatable=7)
        until(10, "the ledger is written", self.ledger)
        until(10, "the fault is written", lambda: "xid" in (self.lab.state / "health.json").read_text() if (self.lab.state / "health.json").exists() else False)
        self.assertEqual(self.lab.status()["pid"], self.agent.pid)
        self.settles(allocatable=7)

    def test_wrong_kinds_of_files(self):
        """Folders, pipes, links and sockets where files should be: the agent serves, or ends at once and names the place."""
        def link(p):
            p.symlink_to("/nonexistent/place")

        def sock(p):
            s = socket.socket(socket.AF_UNIX)
            s.bind(str(p))
            s.close()

        makes = (os.mkdir, os.mkfifo, link, sock, lambda p: p.symlink_to("/dev/zero"))
        for name in ("ledger.json", "health.json", "agent.lock", "agent.sock"):
            for k, make in enumerate(makes):
                with self.subTest(name=name, kind=k):
                    self.lab.state.mkdir()
                    make(self.lab.state / name)
                    self.start(allocatable=None)
                    until(10, "it serves or ends", lambda: not self.agent.running() or self.served())
                    self.assertTrue(self.agent.running(), self.agent.said())
                    self.assertIsNotNone(self.admit("p"))
                    self.audit()
                    self.end("p")
                    self.assertEqual(self.agent.end(), 0)
                    subprocess.run(["rm", "-rf", self.lab.state], check=True)
        self.lab.state.write_text("no directory")
        self.start(allocatable=8)
        self.assertIn(str(self.lab.state), self.agent.said())

    def served(self):
        r = self.kubelet.resource()
        return r and r["registered"] and r["allocatable"] == 8

    def test_damaged_ledger(self):
        """Set aside and rebuilt from kubelet's record: what pods hold stays theirs, all else is offered again."""
        self.start()
        self.admit("whole", n=3)
        self.admit("other")
        self.agent.end()
        good = (self.lab.state / "ledger.json").read_bytes()
        deep = b"[" * 100000
        bad = (b"", b"{", good[:len(good) // 2], good.replace(b'"device-plugin"', b'"nobody"', 1), b"\0" * 4096, deep, b"x" * (5 << 20),
               good.replace(b'"version": 1', b'"version": "1"'), os.urandom(3000), good + good)
        for n, text in enumerate(bad):
            with self.subTest(n=n):
                (self.lab.state / "ledger.json").write_bytes(text)
                self.write_config(TIME_SLICING)
                self.start(allocatable=16, resource=SHARED)
                # Kubelet may still show the last agent's list for a moment: what the new one did is looked for until it is there.
                self.agent.wait_said("plugin.listed")
                self.assertTrue([p for p in self.lab.state.iterdir() if "damaged" in p.name])
                self.assertIsNotNone(self.admit("s", SHARED))
                self.audit()
                self.end("s")
                self.assertEqual(self.agent.end(), 0)
                for p in self.lab.state.iterdir():
                    if "damaged" in p.name:
                        p.unlink()

    def test_newer_ledger(self):
        """Refused with the version that is needed, and left as it is."""
        self.lab.state.mkdir()
        text = '{"version": 9, "min_reader": 9, "owners": {}}'
        (self.lab.state / "ledger.json").write_text(text)
        self.start(allocatable=None)
        until(10, "it ends", lambda: not self.agent.running())
        self.assertEqual(self.agent.end(), 1)
        self.assertIn("9", next(line for line in self.agent.lines("agent.cannot-start")))
        self.assertEqual((self.lab.state / "ledger.json").read_text(), text)

    def test_damaged_and_newer_health(self):
        """Faults are taken from the driver then; the agent serves."""
        for text in (b"{", b"", os.urandom(2000), b"[" * 50000, b'{"version":9,"min_reader":9,"gpus":[]}', b"x" * (2 << 20)):
            with self.subTest(text=text[:20]):
                self.lab.state.mkdir(exist_ok=True)
                (self.lab.state / "health.json").write_bytes(text)
                self.start()
                self.agent.wait_said("health.not-read")
                self.assertEqual(self.agent.end(), 0)

    def test_not_permitted(self):
        """Not root, and the directory is another's: said, and served from memory."""
        if os.geteuid() or not shutil.which("setpriv"):
            self.skipTest("needs root and setpriv")
        self.lab.state.mkdir(mode=0o700)
        for p in (self.lab.dir, self.lab.kubelet_dir / "device-plugins", self.lab.kubelet_dir / "device-plugins/kubelet.sock",
                  self.lab.kubelet_dir):
            p.chmod(0o777)
        (self.lab.dir / "agent.log").touch()
        (self.lab.dir / "agent.log").chmod(0o666)
        self.launch(f"--config-file={self.config}", prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
        try:
            until(10, "it serves or ends", lambda: not self.agent.running() or self.served())
        except Exception:
            print(self.agent.said())
            raise
        self.assertIn(str(self.lab.state), self.agent.said())


class CdiDirectory(FaultCase):
    def files(self):
        return sorted(p.name for p in self.lab.cdi.iterdir() if p.name.endswith(".json")) if self.lab.cdi.exists() else []

    def test_full_at_start(self):
        """No device is offered before its CDI file is there; with room it is, without a hand."""
        self.tmpfs(self.lab.cdi)
        hog = fill(self.lab.cdi)
        self.start(CDI, allocatable=None)
        self.agent.wait_said("cdi.not-written")
        self.assertEqual((self.kubelet.resource() or {"allocatable": 0})["allocatable"], 0)
        self.answers()
        hog.unlink()
        self.settles(seconds=12)
        self.assertTrue(self.files())

    def test_full_later(self):
        """A fault is told at once, whatever the CDI directory does; files that could not be written hold nothing back that was offered."""
        self.tmpfs(self.lab.cdi)
        self.start(CDI)
        hog = fill(self.lab.cdi)
        before = {p: (self.lab.cdi / p).read_bytes() for p in self.files()}
        self.lab.set("gpu", "1", "minor", "77")  # the files would have to change
        self.request("survey")
        self.agent.wait_said("cdi.not-written")
        self.assertEqual(self.kubelet.resource()["allocatable"], 8)
        self.lab.set("gpu", "3", "xid", "79")
        self.kubelet.wait(allocatable=7, seconds=2)
        self.lab.set("gpu", "5", "lost")
        self.kubelet.wait(allocatable=6, seconds=5)
        self.write_config(TIME_SLICING)
        self.agent.wait_said("config.loaded")
        self.assertEqual({p: (self.lab.cdi / p).read_bytes() for p in self.files()}, before)
        self.answers()
        hog.unlink()
        self.kubelet.wait(SHARED, allocatable=24, seconds=12)

    def test_vanishes(self):
        """The directory is deleted, as a reboot or a cleaner does: the files are there again, without a hand."""
        self.start(CDI)
        had = self.files()
        shutil.rmtree(self.lab.cdi)
        until(15, "the CDI files are back", lambda: self.files() == had)
        (self.lab.cdi / had[0]).unlink()
        until(8, "the CDI file is back", lambda: self.files() == had)
        (self.lab.cdi / had[0]).write_text("{}")
        until(8, "the CDI file is whole again", lambda: (self.lab.cdi / had[0]).read_text() != "{}")
        self.settles()
        self.assertEqual(self.agent.end(), 0)
        self.assertEqual(self.files(), had, "running containers may be started anew by these files")

    def test_is_a_file(self):
        self.lab.cdi.write_text("")
        self.start(CDI, allocatable=None)
        self.agent.wait_said("cdi.")
        time.sleep(1)
        self.assertLess(len(self.agent.said().splitlines()), 30)
        self.lab.cdi.unlink()
        self.settles(seconds=12)

    def test_read_only(self):
        self.tmpfs(self.lab.cdi, options=",ro")
        self.start(CDI, allocatable=None)
        self.agent.wait_said("cdi.")
        subprocess.run(["mount", "-o", "remount,rw", str(self.lab.cdi)], check=True)
        self.settles(seconds=12)

    def test_kill_leaves_whole_files(self):
        """At each step of a write: every CDI file that is there can be read."""
        for k in range(1, 9):
            with self.subTest(k=k):
                self.start(CDI, allocatable=None, env=self.fault(f"kill-before {k}", "/cdi/"))
                until(5, "it lives or dies", lambda: not self.agent.running() or (self.kubelet.resource() or {}).get("allocatable") == 8)
                for name in self.files():
                    json.loads((self.lab.cdi / name).read_text())
                self.agent.end(signal.SIGKILL)
                for p in self.lab.cdi.iterdir():
                    p.unlink()
        (self.lab.cdi / ".k8s.device-plugin.nvidia.com-gpu.json.0123456789abcdef").write_text("left by a killed write")
        self.start(CDI)
        self.assertEqual([p.name for p in self.lab.cdi.iterdir() if p.name.startswith(".")], [])


class SlowDisk(FaultCase):
    def call(self, stub, method, request=b""):
        began = time.monotonic()
        stub.unary_unary("/v1beta1.DevicePlugin/" + method)(request, timeout=5)
        return time.monotonic() - began

    def test_sync_takes_five_seconds(self):
        """Options, Allocate, status and the list answer within 100 ms while a sync stalls; the end waits for it and is clean."""
        self.start(env=self.fault("stall 5000", str(self.lab.dir)))
        channel = grpc.insecure_channel(f"unix:{self.lab.kubelet_dir}/device-plugins/nvidia-gpu.sock",
                                        options=[("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        self.call(channel, "GetDevicePluginOptions")
        self.assertIsNotNone(self.admit("p"))
        slowest = 0
        for n in range(8):
            slowest = max(slowest, self.call(channel, "GetDevicePluginOptions"))
            gpu = str(n % 4)
            began = time.monotonic()
            self.lab.set("gpu", gpu, "xid", "79")
            self.kubelet.wait(allocatable=7 - min(n, 3))
            self.assertLess(time.monotonic() - began, 2)
            self.answers()
        # Blocked, each would wait for the 5 s of the sync; how fast they are is a figure (0.1 s wanted), not a test.
        print(f"      slowest answer while a sync stalls: {slowest * 1000:.1f} ms", flush=True)
        self.assertLess(slowest, 1.5)
        self.assertEqual(self.agent.end(seconds=25), 0)
        self.assertTrue((self.lab.state / "ledger.json").exists())

    def test_fault_ends_while_it_is_written(self):
        """A gpu is lost and back before the sync of its fault returns: that it is over gets to the disk too."""
        self.start(env=self.fault("stall 6000", "health.json"))
        health = self.lab.state / "health.json"
        until(20, "the first state is written", health.exists)
        self.lab.set("gpu", "2", "lost")
        until(5, "a survey shows it", lambda: self.lab.status()["gpus"][2].get("reason") == "lost")
        self.lab.set("gpu", "2", "reset")
        self.kubelet.wait(allocatable=8, seconds=20)
        until(12, "the fault is written", lambda: "lost" in health.read_text())
        until(15, "its end is written", lambda: "lost" not in health.read_text())


class Limits(FaultCase):
    def test_no_inotify(self):
        """Where the limit of watches is reached, polls find kubelet's restart and the new config."""
        self.start(env=self.fault("no-inotify"))
        self.kubelet.ask("restart")
        self.kubelet.wait(allocatable=8, seconds=5)
        self.write_config(TIME_SLICING)
        self.kubelet.wait(SHARED, allocatable=32, seconds=15)

    def test_few_descriptors(self):
        """With few descriptors left connections wait, and the agent serves again when they are free; with none it says so and ends."""
        if not shutil.which("prlimit"):
            self.skipTest("needs prlimit")
        for most in range(4, 26, 3):
            self.launch(f"--config-file={self.config}", prefix=("prlimit", f"--nofile={most}"))
            until(8, "it serves, or ends and says why", lambda: not self.agent.running() or self.lists() or self.agent.lines(" error "))
            if not self.agent.running():
                self.assertEqual(self.agent.end(), 1, self.agent.said())
                self.assertIn("open files", self.agent.said())
            self.agent.end(signal.SIGKILL)
        self.launch(f"--config-file={self.config}", prefix=("prlimit", "--nofile=40"))
        self.kubelet.wait(allocatable=8)
        socks = []
        for _ in range(60):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(1)
            try:
                s.connect(str(self.lab.kubelet_dir / "device-plugins/nvidia-gpu.sock"))
            except OSError:
                break
            socks.append(s)
        time.sleep(0.5)
        for s in socks:
            s.close()
        time.sleep(0.3)
        self.assertIsNotNone(self.admit("p"))
        self.kubelet.ask("restart")
        self.settles(seconds=10)
        self.answers()

    def lists(self):
        r = self.kubelet.resource()
        return r and r["registered"] and r["allocatable"] == 8

    def test_little_memory(self):
        """Hostile files of many megabytes under a limit of memory: refused with their limit, nothing else suffers."""
        if not shutil.which("prlimit"):
            self.skipTest("needs prlimit")
        self.launch(f"--config-file={self.config}", prefix=("prlimit", f"--as={96 << 20}"))
        self.kubelet.wait(allocatable=8)
        self.assertIsNotNone(self.admit("p"))
        junk = (b"x" * (10 << 20), b"- " * (5 << 20), b"{" * (1 << 20), b"a: &a [" * 100000, b"k: v\n" * 200000,
                ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9))).encode())
        for n, text in enumerate(junk):
            self.config.with_suffix(".new").write_bytes(text)
            self.config.with_suffix(".new").rename(self.config)
            self.agent.wait_said("config.rejected", count=n + 1)
            self.answers()
        self.write_config(PLAIN)
        self.assertIsNotNone(self.admit("q"))
        self.audit()
        self.assertTrue(self.agent.running())
        self.assertLess(threads(self.agent.pid), 5)
