# SPDX-License-Identifier: Apache-2.0
"""What the scenarios need of the bed: kubectl, the agent as a process, waiting with a limit, numbered checks."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

NODE = os.environ.get("NODE_NAME", "localhost")


class Failed(Exception):
    """A check did not hold; the text says what was seen instead."""


def until(seconds, what, look):
    """Calls look() until it returns something true (which is returned); an exception counts as "not yet"."""
    end, seen = time.monotonic() + seconds, None
    while True:
        try:
            seen = look()
            if seen:
                return seen
        except (Failed, subprocess.CalledProcessError, OSError, ValueError, KeyError) as e:
            seen = e
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s; last seen: {seen!r}")
        time.sleep(0.1)


def expect(what, got, wanted):
    if got != wanted:
        raise Failed(f"{what}: {got!r}, wanted {wanted!r}")


class Checks:
    """Runs numbered checks; prints one line each and, at the end, the closing line."""

    def __init__(self):
        self.passed = self.failed = 0

    def run(self, what, function, *args):
        start = time.monotonic()
        number = self.passed + self.failed + 1
        try:
            said = function(*args)
        except (Failed, subprocess.SubprocessError, OSError) as e:
            self.failed += 1
            print(f"FAIL  {number:2} {what}: {e}", flush=True)
            return False
        self.passed += 1
        print(f"ok    {number:2} {what}{f' ({said})' if said else ''}  {time.monotonic() - start:.1f} s", flush=True)
        return True

    def close(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed or not self.passed else 0


class Bed:
    def __init__(self, bindir, state):
        self.bin, self.state = pathlib.Path(bindir), pathlib.Path(state)
        self.env = {**os.environ, "KUBECONFIG": str(self.state / "admin.kubeconfig"), "PATH": f"{bindir}:{os.environ['PATH']}"}

    def kubectl(self, *args, stdin=None, seconds=30):
        r = subprocess.run([str(self.bin / "kubectl"), *args], input=stdin, capture_output=True, text=True, env=self.env, timeout=seconds)
        if r.returncode:
            raise Failed(f"kubectl {' '.join(args)}: {r.stderr.strip()[-400:]}")
        return r.stdout

    def get(self, *args):
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def apply(self, *objects):
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def script(self, name, *args, seconds=120):
        here = pathlib.Path(__file__).resolve().parent
        subprocess.run([str(here / name), *map(str, args)], check=True, timeout=seconds, stdout=subprocess.DEVNULL, env=self.env)

    def resource(self, name="nvidia.com/gpu"):
        """(capacity, allocatable) of a resource on the node; 0 when it is not there."""
        status = self.get("node", NODE)["status"]
        return int(status["capacity"].get(name, 0)), int(status["allocatable"].get(name, 0))

    def pods(self, namespace="default", selector=""):
        items = self.get("pod", "-n", namespace, *(["-l", selector] if selector else []))["items"]
        return {p["metadata"]["name"]: p for p in items}

    def phase(self, name, namespace="default"):
        return self.get("pod", name, "-n", namespace)["status"].get("phase")

    def logs(self, pod, namespace="default"):
        return self.kubectl("logs", "-n", namespace, pod)

    def probe(self, pod, namespace="default"):
        """What gpu-probe said in a pod: {"nodes": {path: (number, answer)}, "made": {number: answer}, "env": {name: value}}."""

        def whole():
            text = self.logs(pod, namespace)
            return text if "\ndone" in text or text.startswith("done") else None

        out = {"nodes": {}, "made": {}, "env": {}}
        for line in until(20, f"log of {pod}", whole).splitlines():
            word = line.split()
            if word[0] == "node":
                out["nodes"][word[1]] = (word[2], word[3])
            elif word[0] == "made":
                out["made"][word[1]] = word[2]
            elif word[0] == "env":
                name, _, value = line[4:].partition("=")
                out["env"][name] = value
        return out

    def delete_pods(self, namespace="default"):
        self.kubectl("delete", "pod", "--all", "-n", namespace, "--force", "--grace-period=0", seconds=60)
        until(30, f"no pod left in {namespace}", lambda: not self.pods(namespace))


class Agent:
    """mete agent against a simulated host, as on the node."""

    def __init__(self, mete, bed, host, *args):
        self.mete, self.bed, self.host, self.args, self.process = mete, bed, host, list(args), None
        self.log = bed.state / "log" / "agent.log"
        hook = pathlib.Path(mete).resolve().parent.parent / "hook" / "mete-hook"
        if hook.exists():  # the program that our CDI files name has to be on the host
            self.args.append(f"--nvidia-cdi-hook-path={hook}")

    def start(self, *more):
        self.offset = self.log.stat().st_size if self.log.exists() else 0
        command = [self.mete, "agent", f"--host-root={self.host}", f"--driver-root={self.host}", f"--driver-root-ctr-path={self.host}",
                   f"--kubelet-dir={self.bed.state}/k", f"--cdi-dir={self.bed.state}/cdi",
                   f"--state-dir={self.bed.state}/mete", f"--node-name={NODE}", *self.args, *more]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def said(self):
        """The log since the last start."""
        with open(self.log, "rb") as f:
            f.seek(self.offset)
            return f.read().decode(errors="replace")

    def wait_for(self, word, seconds=15):
        def look():
            if self.process.poll() is not None:
                raise Failed(f"the agent ended with {self.process.returncode}: {self.said()[-600:]}")
            return [line for line in self.said().splitlines() if word in line]

        return until(seconds, f"the agent's log says {word}", look)[0]

    def end(self, signo=signal.SIGTERM, seconds=15):
        if self.process is None or self.process.poll() is not None:
            return self.process and self.process.returncode
        self.process.send_signal(signo)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as e:
            self.process.kill()
            self.process.wait(5)
            raise Failed(f"the agent did not end within {seconds} s of signal {signo}") from e


if __name__ == "__main__":
    sys.exit("bed.py is imported by scenarios.py")
