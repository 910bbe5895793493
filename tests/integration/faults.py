# SPDX-License-Identifier: Apache-2.0
"""What the test_faults*.py share: a simulated host with a config file, kubelet's record as the truth, and things that go wrong."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import time

from base import GPU, SHARED, LabCase
from lab import Process, until

PLAIN = "version: v1\n"
TIME_SLICING = """version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: 4
"""
PRELOAD = pathlib.Path(os.environ["METE_BUILD"]) / "tests/integration/libfault-preload.so"


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def private_kib(pid):
    rows = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(r.split()[1]) for r in rows if r.startswith("Private_"))


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def gone(pid):
    """True once the process has ended; a zombie has."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


class FaultCase(LabCase):
    def setUp(self):
        super().setUp()
        self.config = self.write_config(PLAIN)
        self.held = {}  # pod: (resource, ids) as kubelet answered

    def launch(self, *args, prefix=(), env=None, command=None):
        """The agent behind another program (prlimit, valgrind, …)."""
        self.agent = Process("the agent", [*prefix, self.lab.mete, "agent", *self.lab.agent_options(), *args], self.lab.dir / "agent.log", env)
        self.lab.processes.append(self.agent)
        return self.agent

    def start(self, *args, **kwargs):
        return super().start(f"--config-file={self.config}", *args, **kwargs)

    def fault(self, what, path=""):
        """Environment of an agent that suffers it (fault-preload.c)."""
        if not PRELOAD.exists():
            self.skipTest(f"{PRELOAD.name} is not built here")
        env = {"LD_PRELOAD": str(PRELOAD), "METE_FAULT": what}
        return {**env, "METE_FAULT_PATH": path} if path else env

    # ---- the truth ----

    def admit(self, pod, resource=GPU, n=1):
        """The ids, or None when kubelet or the agent refused."""
        got = self.kubelet.try_ask("admit", pod=pod, container="c", resource=resource, n=n)
        if not got["ok"]:
            return None
        self.held[pod] = (resource, got["answer"]["ids"])
        return got["answer"]["ids"]

    def end(self, pod):
        self.held.pop(pod, None)
        self.kubelet.end_pod(pod)

    def checkpoint(self):
        """Kubelet's own file: {(resource, id): [pod uid, …]}."""
        text = (self.lab.kubelet_dir / "device-plugins/kubelet_internal_checkpoint").read_text()
        found = {}
        for e in json.loads(text)["Data"]["PodDeviceEntries"] or []:
            for ids in e["DeviceIDs"].values():
                for i in ids:
                    found.setdefault((e["ResourceName"], i), []).append(e["PodUID"])
        return found

    def audit(self):
        """Every pod still has what it got, and no gpu is used twice, nor whole and in shares at once."""
        running = {p["name"]: p for p in self.kubelet.status()["pods"] if p["running"]}
        forms, users = {}, {}
        for pod, (resource, ids) in self.held.items():
            self.assertIn(pod, running, "a pod's grant was lost")
            got = [c for c in running[pod]["containers"] if c["resource"] == resource]
            self.assertEqual(sorted(got[0]["ids"]), sorted(ids), f"the grant of {pod} is another one now")
        for p in running.values():
            for c in p["containers"]:
                for i in c["ids"]:
                    users.setdefault(i, []).append(p["name"])
                    forms.setdefault(i.split("::")[0], set()).add("::" in i)
        self.assertEqual({i: u for i, u in users.items() if len(u) > 1}, {}, "a device was given twice")
        self.assertEqual([g for g, f in forms.items() if len(f) > 1], [], "a gpu is used whole and in shares")

    # ---- what an agent in trouble still has to do ----

    def answers(self, within=1.5):
        """`mete status` answers, and soon: the time of the best of three calls, each with the start of the program."""
        best = 9.0
        for _ in range(3):
            began = time.monotonic()
            status = self.lab.status()
            best = min(best, time.monotonic() - began)
        self.assertLess(best, within)
        return status

    def settles(self, allocatable=8, resource=GPU, seconds=20):
        """Without a hand: everything is offered again and a pod gets a gpu."""
        self.kubelet.wait(resource, allocatable=allocatable, seconds=seconds)
        self.assertTrue(self.agent.running(), self.agent.said()[-800:])

    def request(self, line):
        """One request to agent.sock, as docs/formats.md has it; the whole answer."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(str(self.lab.state / "agent.sock"))
            s.sendall(line.encode() + b"\n")
            return b"".join(iter(lambda: s.recv(65536), b"")).decode()

    def worker(self):
        return self.lab.status()["workerPid"]

    def tmpfs(self, path, size="64k", options=""):
        path.mkdir(exist_ok=True)
        r = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}{options}", "none", str(path)], capture_output=True)
        if r.returncode:
            self.skipTest("mounting needs more rights: " + r.stderr.decode().strip())
        self.addCleanup(subprocess.run, ["umount", "-l", str(path)], capture_output=True)
        return path


def fill(path):
    """Not a byte is left in the file system of the folder; returns the file that takes it."""
    hog = path / "hog"
    with open(hog, "ab", buffering=0) as f:
        for size in (4096, 512, 1):
            try:
                while True:
                    f.write(b"x" * size)
            except OSError:
                pass
    return hog


def program(name):
    return shutil.which(name)


__all__ = ["GPU", "SHARED", "PLAIN", "TIME_SLICING", "FaultCase", "cpu_seconds", "descriptors", "fill", "gone", "private_kib", "program", "threads", "until"]
