# SPDX-License-Identifier: Apache-2.0
"""A simulated host, the small kubelet and the real agent as processes: for the demo and the integration tests.

    with Lab("build") as lab:
        lab.create_host("--gpus", "8", "--model", "h100-sxm")
        kubelet, agent = lab.start_kubelet(), lab.start_agent("--pass-device-specs")
        kubelet.wait("nvidia.com/gpu", allocatable=8)

Everything lives in one temporary folder and ends with the Lab. Standard library only.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time


class LabError(Exception):
    """Something did not happen as it should; the text says what was seen instead."""


def until(seconds, what, look, step=0.02):
    """Calls look() until it returns something true, which is returned. LabError after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end:
            raise LabError(f"{what}: not within {seconds} s")
        time.sleep(step)


class Process:
    """A program of the lab with its log; ended by the lab if nobody else did."""

    def __init__(self, name, command, log, env=None):
        self.name, self.command, self.log = name, [str(c) for c in command], pathlib.Path(log)
        self.offset = self.log.stat().st_size if self.log.exists() else 0
        self.started = time.monotonic()
        with open(self.log, "ab") as out:
            self.popen = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                                          env={**os.environ, **(env or {})})

    @property
    def pid(self):
        return self.popen.pid

    def said(self):
        """Its log since it was started."""
        with open(self.log, "rb") as f:
            f.seek(self.offset)
            return f.read().decode(errors="replace")

    def lines(self, word):
        return [line for line in self.said().splitlines() if word in line]

    def running(self):
        return self.popen.poll() is None

    def wait_said(self, word, seconds=10, count=1):
        """The count-th log line with `word`; gives up at once when the program ends before."""

        def look():
            found = self.lines(word)
            if len(found) >= count:
                return found[count - 1]
            if not self.running():
                raise LabError(f"{self.name} ended with {self.popen.returncode} before it said {word}: {self.said()[-800:]}")
            return None

        return until(seconds, f"{self.name} says {word}", look)

    def end(self, signo=signal.SIGTERM, seconds=15):
        """Its exit code after the signal."""
        if self.running():
            self.popen.send_signal(signo)
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired as e:
                self.popen.kill()
                self.popen.wait(5)
                raise LabError(f"{self.name} did not end within {seconds} s of signal {int(signo)}") from e
        return self.popen.returncode

    def kill(self):
        if self.running():
            self.popen.kill()
            self.popen.wait(5)


class Kubelet(Process):
    """The small kubelet, spoken to over its control socket."""

    def __init__(self, mete, directory, log, *args):
        self.dir = pathlib.Path(directory)
        self.dir.mkdir(parents=True, exist_ok=True)
        self.ctl = self.dir / "ctl.sock"
        super().__init__("the small kubelet", [mete, "sim", "kubelet", *args, directory], log)
        self.connection = None
        until(10, "the small kubelet's control socket", self._connect)

    def _connect(self):
        if not self.running():
            raise LabError(f"the small kubelet ended with {self.popen.returncode}: {self.said()[-800:]}")
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(str(self.ctl))
        except OSError:
            s.close()
            return False
        s.settimeout(150)
        self.connection = s.makefile("rw", encoding="utf-8", newline="\n")
        s.close()
        return True

    def try_ask(self, do, **fields):
        """The whole answer: {"ok": bool, "answer": …} or {"ok": False, "error": text}."""
        self.connection.write(json.dumps({"do": do, **fields}) + "\n")
        self.connection.flush()
        line = self.connection.readline()
        if not line:
            raise LabError("the small kubelet closed its control socket")
        return json.loads(line)

    def ask(self, do, **fields):
        got = self.try_ask(do, **fields)
        if not got["ok"]:
            raise LabError(f"{do} {fields}: {got['error']}")
        return got["answer"]

    def wait(self, resource="nvidia.com/gpu", allocatable=None, capacity=None, seconds=10):
        fields = {k: v for k, v in (("allocatable", allocatable), ("capacity", capacity)) if v is not None}
        got = self.try_ask("wait", resource=resource, ms=int(seconds * 1000), **fields)
        if not got["ok"]:
            raise LabError(f"{resource} {fields}: {got['error']}")
        return got["answer"]

    def admit(self, pod, resource="nvidia.com/gpu", n=1, container="c"):
        return self.ask("admit", pod=pod, container=container, resource=resource, n=n)

    def refusal(self, pod, resource="nvidia.com/gpu", n=1, container="c"):
        """The error of an admission that must fail."""
        got = self.try_ask("admit", pod=pod, container=container, resource=resource, n=n)
        if got["ok"]:
            raise LabError(f"pod {pod} was admitted with {got['answer']['ids']}, but should have been refused")
        return got["error"]

    def end_pod(self, pod):
        self.ask("end", pod=pod)

    def status(self):
        return self.ask("status")

    def resource(self, name="nvidia.com/gpu"):
        return next((r for r in self.status()["resources"] if r["name"] == name), None)

    def events(self, after=0):
        return self.ask("events", after=after)

    def close(self):
        if self.connection:
            self.connection.close()


class Lab:
    def __init__(self, build="build", keep=False):
        self.build = pathlib.Path(build).resolve()
        self.mete = self.build / "src/cmd/mete"
        if not self.mete.exists():
            raise LabError(f"{self.mete} is not there: build first (make)")
        self.keep = keep
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mete-lab-"))
        self.host, self.kubelet_dir, self.state, self.cdi = (self.dir / n for n in ("host", "kubelet", "state", "cdi"))
        self.cgroups = self.host / "sys/fs/cgroup"
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in reversed(self.processes):
            p.kill()
            if isinstance(p, Kubelet):
                p.close()
        if not self.keep:
            shutil.rmtree(self.dir, ignore_errors=True)

    def run(self, *args, seconds=30, code=0, env=None):
        """Output of one mete command; LabError when it exits with another code."""
        r = subprocess.run([str(self.mete), *map(str, args)], capture_output=True, text=True, timeout=seconds,
                           env={**os.environ, **(env or {})})
        if code is not None and r.returncode != code:
            raise LabError(f"mete {' '.join(map(str, args))} exited with {r.returncode}: {(r.stderr or r.stdout).strip()[-800:]}")
        return r.stdout

    def create_host(self, *args):
        self.run("sim", "create", self.host, *args)

    def set(self, *words):
        self.run("sim", "set", self.host, *words)

    def start_kubelet(self, *args):
        k = Kubelet(self.mete, self.kubelet_dir, self.dir / "kubelet.log", f"--cgroup-dir={self.cgroups}", *args)
        self.processes.append(k)
        return k

    def agent_options(self):
        return [f"--host-root={self.host}", f"--driver-root={self.host}", f"--driver-root-ctr-path={self.host}",
                f"--kubelet-dir={self.kubelet_dir}", f"--state-dir={self.state}", f"--cdi-dir={self.cdi}"]

    def start_agent(self, *args, env=None):
        a = Process("the agent", [self.mete, "agent", *self.agent_options(), *args], self.dir / "agent.log", env)
        self.processes.append(a)
        return a

    def status(self):
        return json.loads(self.run("status", f"--state-dir={self.state}", "-o", "json"))


if __name__ == "__main__":
    sys.exit("lab.py is imported by tools/demo and the integration tests")
