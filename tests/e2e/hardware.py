#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hardware.py METE DRIVER_ROOT BIN STATE OUT   the agent on a host with a real GPU, under the cluster that gpu-host.sh brought up.

Only reads of the GPU: no mode, clock or MIG setting is changed. Results are written to OUT as they come. Ends with "N passed, N failed".
"""
import csv
import json
import pathlib
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bed import Agent, Bed, Checks, Failed, expect, until  # noqa: E402
from scenarios import GPU, gpu_nodes, pod  # noqa: E402

SMI = "index,uuid,name,pci.bus_id,memory.total,driver_version,mig.mode.current"


class RealAgent(Agent):
    """As bed.Agent, but the host is this one."""

    def __init__(self, mete, bed, driver_root, *args):
        super().__init__(mete, bed, "/", f"--driver-root={driver_root}", f"--driver-root-ctr-path={driver_root}", *args)

    def start(self, *more):
        self.offset = self.log.stat().st_size if self.log.exists() else 0
        command = [self.mete, "agent", f"--kubelet-dir={self.bed.state}/k", f"--cdi-dir={self.bed.state}/cdi",
                   f"--state-dir={self.bed.state}/mete",
                   f"--nvidia-cdi-hook-path={pathlib.Path(self.mete).resolve().parent}/mete-hook", *self.args, *more]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


class Hardware:
    def __init__(self, mete, driver_root, bindir, state, out):
        self.mete, self.root, self.out = mete, driver_root, pathlib.Path(out)
        self.bed, self.checks, self.agent = Bed(bindir, state), Checks(), None

    def survey(self):
        smi = shutil.which("nvidia-smi") or f"{self.root}/bin/nvidia-smi"
        text = subprocess.run([smi, f"--query-gpu={SMI}", "--format=csv,noheader,nounits"], check=True, capture_output=True, text=True, timeout=60).stdout
        (self.out / "nvidia-smi.csv").write_text(text)
        ours = subprocess.run([self.mete, "survey", "-o", "json", f"--driver-root={self.root}", f"--driver-root-ctr-path={self.root}"],
                              check=True, capture_output=True, text=True, timeout=60).stdout
        (self.out / "survey.json").write_text(ours)
        table = subprocess.run([self.mete, "survey", f"--driver-root={self.root}", f"--driver-root-ctr-path={self.root}"],
                               check=True, capture_output=True, text=True, timeout=60).stdout
        print(table)
        gpus = json.loads(ours)["gpus"]
        rows = [[c.strip() for c in r] for r in csv.reader(text.splitlines())]
        expect("number of gpus", len(gpus), len(rows))
        for g, r in zip(gpus, rows):
            flat = json.dumps(g)
            for value in (r[1], r[2], r[4]):
                if value not in flat:
                    raise Failed(f"nvidia-smi says {value}, mete survey {flat}")
            if r[3].lower().removeprefix("0000") not in flat.lower():
                raise Failed(f"nvidia-smi says bus {r[3]}, mete survey {flat}")
        if rows[0][5] not in ours:
            raise Failed(f"driver version {rows[0][5]} is not in {ours[:300]}")
        return f"{len(gpus)} gpu, driver {rows[0][5]}"

    def start(self, *args):
        if self.agent:
            self.agent.end()
        self.agent = RealAgent(self.mete, self.bed, self.root, *args)
        self.agent.start()
        line = self.agent.wait_for("plugin.listed")
        until(30, "allocatable", lambda: self.bed.resource(GPU)[1] >= 1)
        return line.split("plugin.listed", 1)[1].strip()

    def one_gpu(self, name, *args):
        """A pod that asks for one gpu has its nodes and no other."""
        said = self.start(*args)
        self.bed.delete_pods()
        self.bed.apply(pod(name, ["gpu-probe", "195:0", "195:1"]))
        try:
            until(30, f"{name} ends", lambda: self.bed.phase(name) in ("Succeeded", "Failed"))
        except Failed:
            print(self.bed.kubectl("describe", "pod", name)[-3000:])
            raise
        probe = self.bed.probe(name)
        (self.out / f"probe-{name}.json").write_text(json.dumps(probe, indent=1))
        nodes = gpu_nodes(probe)
        if len(nodes) != 1 or list(nodes.values())[0][1] != "OPEN":
            raise Failed(f"gpu nodes {nodes}")
        if probe["nodes"].get("/dev/nvidiactl", ("", ""))[1] != "OPEN":
            raise Failed(f"no usable /dev/nvidiactl: {probe}")
        expect("a node of another gpu", probe["made"].get("195:1"), "EPERM")
        expect("its own number made again", probe["made"].get("195:0"), "OPEN")
        return said

    def smi_in_container(self):
        """CDI brings the driver's files and the hooks make them known to the container's loader."""
        self.bed.delete_pods()
        self.bed.apply(pod("smi", ["nvidia-smi", "-L"]))
        try:
            until(30, "smi ends", lambda: self.bed.phase("smi") in ("Succeeded", "Failed"))
        except Failed:
            print(self.bed.kubectl("describe", "pod", "smi")[-3000:])
            raise
        said = self.bed.kubectl("logs", "smi")
        uuid = (self.out / "nvidia-smi.csv").read_text().split(",")[1].strip()
        if uuid not in said or said.count("GPU ") != 1:
            raise Failed(f"nvidia-smi -L in the container said: {said}")
        return said.strip().replace(uuid, "its own UUID")

    def held_once(self):
        """While one pod holds the gpu a second waits, also over a kill -9 of the agent."""
        self.bed.delete_pods()
        self.bed.apply(pod("first", ["gpu-probe"], hold=60))
        until(60, "first runs", lambda: self.bed.phase("first") == "Running")
        self.bed.apply(pod("second", ["gpu-probe"]))
        self.agent.process.send_signal(signal.SIGKILL)
        self.agent.process.wait(10)
        self.agent.start()
        self.agent.wait_for("plugin.listed")
        until(30, "allocatable again", lambda: self.bed.resource(GPU)[1] >= 1)
        expect("first", self.bed.phase("first"), "Running")
        expect("second", self.bed.phase("second"), "Pending")
        self.bed.kubectl("delete", "pod", "first", "--force", "--grace-period=0")
        until(60, "second runs to its end", lambda: self.bed.phase("second") == "Succeeded")

    def status(self):
        text = subprocess.run([self.mete, "status", f"--state-dir={self.bed.state}/mete"], check=True, capture_output=True, text=True, timeout=20).stdout
        print(text)
        return None

    def run(self):
        c = self.checks
        c.run("mete survey agrees with nvidia-smi", self.survey)
        c.run("cdi-cri: one gpu, no other", self.one_gpu, "cdi", "--device-list-strategy=cdi-cri")
        for f in (self.bed.state / "cdi").glob("*.json"):
            shutil.copy(f, self.out / f.name)
        c.run("cdi-cri: the driver's own nvidia-smi runs in the container", self.smi_in_container)
        c.run("device specs: one gpu, no other", self.one_gpu, "specs", "--pass-device-specs")
        c.run("held once, also over a killed agent", self.held_once)
        c.run("status", self.status)
        self.agent.end()
        shutil.copy(self.agent.log, self.out / "agent.log")
        return c.close()


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    sys.exit(Hardware(*sys.argv[1:]).run())
