# SPDX-License-Identifier: Apache-2.0
"""Kubelet's own records are damaged, hang or are gone: what cannot be read counts as in use, and whole gpus are offered all the same."""
import os
import signal
import socket
import time

from faults import GPU, PLAIN, SHARED, TIME_SLICING, FaultCase, until


class Records(FaultCase):
    def checkpoint_path(self):
        return self.lab.kubelet_dir / "device-plugins/kubelet_internal_checkpoint"

    def damage(self, n):
        """Another thing in place of the checkpoint."""
        path = self.checkpoint_path()
        path.unlink(missing_ok=True)
        makes = (lambda: path.write_bytes(b""), lambda: path.write_bytes(b"{"), lambda: path.write_bytes(os.urandom(5000)), path.mkdir,
                 lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero"), lambda: path.write_bytes(b"[" * 200000),
                 lambda: path.write_bytes(b'{"Data":{"PodDeviceEntries":7},"Checksum":1}'), lambda: path.write_bytes(b"x" * (40 << 20)))
        makes[n]()
        return len(makes)

    def silent(self, path):
        path.unlink(missing_ok=True)
        s = socket.socket(socket.AF_UNIX)
        s.bind(str(path))
        s.listen(64)
        self.addCleanup(s.close)
        return s

    def test_damaged_checkpoint(self):
        """A pod has a whole gpu; the agent starts anew with shares and cannot read the checkpoint: the ledger's note keeps that gpu back."""
        self.start()
        gpu = self.admit("p")[0]
        time.sleep(0.3)
        good = self.checkpoint_path().read_bytes()
        self.write_config(TIME_SLICING)
        n, most = 0, 1
        while n < most:
            with self.subTest(n=n):
                self.agent.end(signal.SIGKILL)
                most = self.damage(n)
                self.start(allocatable=None)
                self.kubelet.wait(SHARED, capacity=32, allocatable=28, seconds=14)
                self.assertIn(gpu, str(self.lab.status()["notOffered"]))
                self.answers()
                path = self.checkpoint_path()
                path.rmdir() if path.is_dir() else path.unlink()
                path.write_bytes(good)
            n += 1
        self.end("p")
        self.kubelet.wait(SHARED, allocatable=32, seconds=20)

    def test_pod_resources_hang(self):
        """The pod-resources socket accepts and never answers: the start does not wait for it for long, and grants not at all."""
        self.silent(self.lab.kubelet_dir / "pod-resources/kubelet.sock")
        began = time.monotonic()
        self.start()
        self.assertLess(time.monotonic() - began, 8)
        for n in range(4):
            began = time.monotonic()
            self.assertIsNotNone(self.admit(f"p{n}"))
            self.assertLess(time.monotonic() - began, 0.5)
        self.write_config(TIME_SLICING)
        self.kubelet.wait(SHARED, capacity=32, allocatable=16, seconds=15)
        self.audit()

    def test_records_vanish(self):
        """Checkpoint and pod-resources gone under running pods: nothing that was granted is offered in another form at once."""
        self.start()
        held = {self.admit(f"p{n}")[0] for n in range(3)}
        self.checkpoint_path().unlink()
        (self.lab.kubelet_dir / "pod-resources/kubelet.sock").unlink()
        self.write_config(TIME_SLICING)
        self.kubelet.wait(SHARED, capacity=32, seconds=15)
        got = {self.admit(f"s{n}", SHARED)[0].split("::")[0] for n in range(10)}
        self.assertEqual(got & held, set())
        self.audit()

    def test_hundred_thousand_cgroups(self):
        """A host with very many cgroups does not slow the answers down."""
        pods = self.lab.cgroups / "kubepods.slice"
        for a in range(20):
            for b in range(200):
                (pods / f"burst-{a}" / f"pod{a}-{b}" / "c").mkdir(parents=True, exist_ok=True)
        self.start()
        self.admit("p")
        self.write_config(TIME_SLICING)
        self.kubelet.wait(SHARED, allocatable=28, seconds=15)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            self.answers()
            time.sleep(0.05)
        self.end("p")
        self.kubelet.wait(SHARED, allocatable=32, seconds=20)


__all__ = ["GPU", "PLAIN", "until"]
