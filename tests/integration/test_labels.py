# SPDX-License-Identifier: Apache-2.0
"""Labels: the program under the peer's name against simulated hosts, `mete labels`, and the agent's feature file."""
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import unittest

from base import LabCase
from lab import Lab, LabError, Process, until

RECORDINGS = pathlib.Path(__file__).resolve().parent.parent / "golden/gfd"
MACHINE = "Test Machine 9000 (rev. B)"
TIMESTAMP = re.compile(r"^nvidia\.com/gfd\.timestamp=.*$", re.M)


def parse(text):
    return dict(line.split("=", 1) for line in text.splitlines())


def without_time(text):
    return TIMESTAMP.sub("nvidia.com/gfd.timestamp=TIME", text)


class LabelCase(unittest.TestCase):
    HOST = ("--gpus", "4", "--model", "h100-sxm")
    DRIVER_ROOT = "/"

    def setUp(self):
        self.lab = Lab(os.environ["METE_BUILD"])
        self.addCleanup(self.lab.__exit__)
        if self.HOST:
            self.lab.create_host(*self.HOST)
        self.program = self.lab.dir / "gpu-feature-discovery"
        self.program.symlink_to(self.lab.mete)
        self.features = self.lab.dir / "features.d"
        self.file = self.features / "gfd"

    def paths(self, host=None, driver_root=None):
        return [f"--host-root={host or self.lab.host}", f"--driver-root={driver_root or self.DRIVER_ROOT}"]

    def once(self, *args, host=None, driver_root=None, code=0, env=None):
        """What one oneshot run prints."""
        r = subprocess.run([self.program, "--oneshot", "--output-file=", *self.paths(host, driver_root), *args], timeout=60,
                           capture_output=True, text=True, env={**os.environ, **(env or {})})
        if r.returncode != code:
            raise LabError(f"gpu-feature-discovery exited with {r.returncode}: {r.stderr[-800:]}")
        self.stderr = r.stderr
        return r.stdout

    def start(self, *args, env=None):
        p = Process("gpu-feature-discovery", [self.program, *self.paths(), f"--output-file={self.file}",
                                              "--use-node-feature-api=false", *args], self.lab.dir / "gfd.log", env)
        self.lab.processes.append(p)
        return p

    def labels(self):
        return parse(self.file.read_text()) if self.file.exists() else {}

    def wait_label(self, key, value, seconds=15):
        """Until the file has that value for nvidia.com/<key>; None: until it has no such label."""
        until(seconds, f"{key}={value}", lambda: self.file.exists() and self.labels().get("nvidia.com/" + key) == value)

    def write_config(self, text):
        path = self.lab.dir / "config.yaml"
        new = path.with_suffix(".new")
        new.write_text(text)
        new.rename(path)
        return path


class Recordings(LabelCase):
    """Every recorded run of the peer, on an equal simulated host."""

    HOST = None

    def run_one(self, profile, path):
        head, _, wanted = path.read_text().partition("\n")
        flags, _, config = head.split(": ", 1)[1].partition(" ; config ")
        host = self.hosts.get((profile, "sysfs GPUs absent" in head))
        machine = self.lab.dir / "machine"
        if MACHINE in head:
            machine.write_text(MACHINE + "\n")
        args = [f for f in flags.split(" ; ")[0].split() if f.startswith("--") and f != "--oneshot"]
        args.append(f"--machine-type-file={machine if MACHINE in head else '/nowhere'}")
        if config:
            args.append(f"--config-file={self.write_config(config.replace('|', chr(10)))}")
        root = "/opt/driver" if profile == "h200" else "/run/nvidia/driver"
        got = self.once(*args, host=host, driver_root=root)
        self.assertEqual(without_time(got), wanted, f"{profile}/{path.name}")
        stamp = parse(got).get("nvidia.com/gfd.timestamp")
        self.assertEqual(stamp is None, "--no-timestamp" in args)
        self.assertTrue(stamp is None or abs(int(stamp) - self.now()) < 600)

    @staticmethod
    def now():
        return int(subprocess.check_output(["date", "+%s"]))

    def test_all(self):
        self.hosts, runs = {}, 0
        for profile in sorted(p.name for p in RECORDINGS.iterdir()):
            for no_sysfs in (False, True):
                host = self.lab.dir / f"{profile}-{no_sysfs}"
                self.lab.run("sim", "create", host, "--profile", profile)
                if no_sysfs:
                    shutil.rmtree(host / "sys/bus/pci/devices", ignore_errors=True)
                self.hosts[profile, no_sysfs] = host
            for path in sorted((RECORDINGS / profile).iterdir()):
                with self.subTest(profile=profile, variant=path.stem):
                    self.run_one(profile, path)
                    runs += 1
        self.assertEqual(runs, 40)


class Options(LabelCase):
    def test_precedence(self):
        config = self.write_config("version: v1\nflags:\n  migStrategy: mixed\n  gfd: {noTimestamp: true}\n")
        args = [f"--config-file={config}"]
        self.assertIn("mig.strategy=mixed", self.once(*args))
        self.assertNotIn("gfd.timestamp", self.once(*args))
        self.assertIn("mig.strategy=single", self.once(*args, env={"MIG_STRATEGY": "single"}))
        self.assertNotIn("mig.strategy", self.once(*args, env={"MIG_STRATEGY": "single", "GFD_MIG_STRATEGY": "none"}))
        self.assertIn("mig.strategy=mixed", self.once(*args, "--mig-strategy=mixed", env={"GFD_MIG_STRATEGY": "none"}))
        self.assertIn("gfd.timestamp", self.once(*args, "--no-timestamp=false"))
        self.assertIn("gfd.timestamp", self.once(*args, env={"GFD_NO_TIMESTAMP": ""}))

    def test_the_agents_config_file_is_taken(self):
        config = self.write_config("version: v1\nflags:\n  plugin: {deviceListStrategy: cdi-cri}\nagent: {stateDir: /x, labelsPerModel: true}\n"
                                   "sharing:\n  mps:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n")
        got = parse(self.once(f"--config-file={config}", env={"DEVICE_LIST_STRATEGY": "nonsense"}))
        self.assertEqual(got["nvidia.com/gpu.sharing-strategy"], "mps")
        self.assertEqual(got["nvidia.com/gpu-model.NVIDIA-H100-80GB-HBM3.count"], "4")

    def test_refused(self):
        for args, word in ((("--mig-strategy=all",), "none"), (("--no-such",), "no-such"),
                           (("--device-discovery-strategy=vfio",), "keep"), (("--config-file=/nowhere",), "nowhere"),
                           (("--sleep-interval=soon",), "soon")):
            with self.subTest(args=args):
                r = subprocess.run([self.program, "--oneshot", *args], capture_output=True, text=True, timeout=60)
                self.assertNotEqual(r.returncode, 0)
                self.assertIn(word, r.stderr)

    def test_file_mode_and_its_notice(self):
        """The NodeFeature API is the peer's default; what is done instead is said."""
        file = self.lab.dir / "deep/er/gfd"
        os.umask(0o077)
        self.addCleanup(os.umask, 0o022)
        r = subprocess.run([self.program, "--oneshot", *self.paths(), "-o", file], capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("labels.node-feature-api", r.stderr)
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o644)
        self.assertEqual(os.listdir(file.parent), ["gfd"])
        self.assertEqual(r.stdout, "")
        self.once("--use-node-feature-api=false")
        self.assertNotIn("node-feature-api", self.stderr)

    def test_unwritable(self):
        (self.lab.dir / "in-the-way").write_text("")
        r = subprocess.run([self.program, "--oneshot", *self.paths(), f"--output-file={self.lab.dir}/in-the-way/gfd"],
                           capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 1)
        self.assertIn("in-the-way", r.stderr)

    def test_same_host_same_bytes(self):
        self.assertEqual(self.once("--no-timestamp"), self.once("--no-timestamp"))


class Driver(LabelCase):
    def test_absent(self):
        self.lab.set("driver", "unload")
        self.once(code=1)
        self.assertIn("driver.not-usable", self.stderr)
        got = parse(self.once("--fail-on-init-error=false"))
        self.assertEqual(sorted(got), ["nvidia.com/gfd.timestamp", "nvidia.com/vgpu.present"])

    def test_comes_later(self):
        self.lab.set("driver", "unload")
        p = self.start("--fail-on-init-error=false")
        p.wait_said("labels.written")
        self.assertNotIn("nvidia.com/gpu.count", self.labels())
        self.lab.set("driver", "load")
        self.wait_label("gpu.count", "4")

    def test_labels_stay_while_the_driver_is_exchanged(self):
        p = self.start("--no-timestamp")
        self.wait_label("gpu.count", "4")
        before = self.file.read_text()
        self.lab.set("driver", "unload")
        p.wait_said("labels.kept", seconds=40)
        self.assertEqual(self.file.read_text(), before)
        self.lab.set("driver", "version", "580.65.06")
        self.lab.set("driver", "load")
        self.wait_label("cuda.driver-version.full", "580.65.06", seconds=45)
        self.assertEqual(len(p.lines("labels.kept")), 1)

    def test_lost_gpu(self):
        self.lab.set("gpu", "2", "lost")
        got = parse(self.once("--no-timestamp"))
        self.assertEqual(got["nvidia.com/gpu.product"], "NVIDIA-H100-80GB-HBM3")
        self.assertEqual(got["nvidia.com/gpu.mode"], "compute")
        self.assertEqual(got["nvidia.com/gpu.machine"] != "", True)


class Life(LabelCase):
    def test_mig_without_polling(self):
        p = self.start("--mig-strategy=mixed", "--sleep-interval=1h")
        self.wait_label("mig.strategy", "mixed")
        self.lab.set("gpu", "1", "mig", "3g.40gb,1g.10gb,1g.10gb")
        self.wait_label("mig-1g.10gb.count", "2")
        got = self.labels()
        self.assertEqual(got["nvidia.com/mig-3g.40gb.product"], "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb")
        self.assertEqual(got["nvidia.com/mig-3g.40gb.slices.gi"], "3")
        self.assertEqual(got["nvidia.com/gpu.count"], "4")
        self.assertEqual(got["nvidia.com/gpu.replicas"], "1")
        self.lab.set("gpu", "1", "mig", "off")
        self.wait_label("mig-1g.10gb.count", None)
        self.assertEqual(p.end(), 0)

    def test_single_becomes_valid(self):
        for gpu in range(4):
            self.lab.set("gpu", gpu, "mig", "on")
        self.start("--mig-strategy=single", "--sleep-interval=1h")
        self.wait_label("gpu.product", "NVIDIA-H100-80GB-HBM3-MIG-INVALID")
        for gpu in range(4):
            self.lab.set("gpu", gpu, "mig", "1g.10gb,1g.10gb")
        self.wait_label("gpu.product", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")
        self.assertEqual(self.labels()["nvidia.com/gpu.count"], "8")

    def test_config_changes(self):
        """B-022: replicas, strategy and product change together, without a restart."""
        shared = "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: {}\n    resources: [{{name: nvidia.com/gpu, replicas: 4}}]\n"
        config = self.write_config("version: v1\n")
        p = self.start(f"--config-file={config}")
        product = "NVIDIA-H100-80GB-HBM3"
        for text, wanted in (("version: v1\n", ("1", "none", product)), (shared.format("false"), ("4", "time-slicing", product + "-SHARED")),
                             (shared.format("true"), ("4", "time-slicing", product)), ("version: v1\n", ("1", "none", product))):
            self.write_config(text)

            def look(wanted=wanted):
                got = self.labels()
                is_now = tuple(got.get("nvidia.com/gpu." + k) for k in ("replicas", "sharing-strategy", "product"))
                # Never a mixture of two configs.
                self.assertIn(is_now, [(None, None, None), ("1", "none", product), ("4", "time-slicing", product + "-SHARED"),
                                       ("4", "time-slicing", product)])
                return is_now == wanted

            until(15, str(wanted), look)
        before = self.file.read_text()
        self.write_config("version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: many}]}}\n")
        p.wait_said("config.rejected")
        self.assertEqual(without_time(self.file.read_text()), without_time(before))
        self.assertTrue(p.running())

    def test_sighup(self):
        p = self.start()
        self.wait_label("gpu.count", "4")
        stamp = self.labels()["nvidia.com/gfd.timestamp"]
        self.lab.set("product", "Other Machine")
        until(5, "another second", lambda: str(Recordings.now()) != stamp)
        p.popen.send_signal(signal.SIGHUP)
        self.wait_label("gpu.machine", "Other-Machine")
        self.assertGreater(int(self.labels()["nvidia.com/gfd.timestamp"]), int(stamp))

    def test_file_stays(self):
        p = self.start()
        self.wait_label("gpu.count", "4")
        self.assertEqual(p.end(), 0)
        self.assertTrue(self.file.exists())
        p = self.start("--delete-output-on-exit")
        p.wait_said("labels.written")
        self.assertEqual(p.end(), 0)
        self.assertFalse(self.file.exists())

    def test_file_taken_away(self):
        """A predecessor that cleans up after itself takes nothing from us."""
        self.start()
        self.wait_label("gpu.count", "4")
        self.file.unlink()
        self.wait_label("gpu.count", "4")

    def test_write_fails_for_a_while(self):
        self.features.write_text("in the way")
        p = self.start()
        p.wait_said("labels.not-written")
        self.features.unlink()
        self.wait_label("gpu.count", "4")
        self.assertEqual(len(p.lines("labels.not-written")), 1)

    def test_idle_costs_nothing(self):
        p = self.start()
        self.wait_label("gpu.count", "4")
        stat_of = lambda: pathlib.Path(f"/proc/{p.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = lambda: sum(map(int, stat_of()[11:13]))
        switches = lambda: int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", pathlib.Path(f"/proc/{p.pid}/status").read_text(), re.M)[1])
        before, wakes, written = ticks(), switches(), self.file.stat().st_ino
        try:
            until(3, "nothing", lambda: False)
        except LabError:
            pass
        self.assertLessEqual(ticks() - before, 1)
        self.assertLessEqual(switches() - wakes, 3)
        self.assertEqual(self.file.stat().st_ino, written)

    def test_fabric_forms_later(self):
        """No event tells of it: looked at again every sleep-interval, until it is there."""
        for gpu in range(4):
            self.lab.set("gpu", gpu, "fabric", "in-progress")
        self.start("--sleep-interval=1s")
        self.wait_label("gpu.count", "4")
        self.assertNotIn("nvidia.com/gpu.clique", self.labels())
        for gpu in range(4):
            self.lab.set("gpu", gpu, "fabric", "completed", "clique", "7", "cluster", "01234567-89ab-cdef-0123-456789abcdef")
        self.wait_label("gpu.clique", "01234567-89ab-cdef-0123-456789abcdef.7")


class UnifiedMemory(LabelCase):
    HOST = ("--model", "gb10", "--gpus", "1")

    def test_no_memory_label(self):
        """B-125, B-170: left out, and said once."""
        p = self.start("--sleep-interval=1s")
        self.wait_label("gpu.product", "NVIDIA-GB10")
        self.assertNotIn("nvidia.com/gpu.memory", self.labels())
        self.lab.set("product", "x")
        for _ in range(2):
            count = len(p.lines("labels.written"))
            self.lab.set("driver", "reload")
            try:
                p.wait_said("labels.written", seconds=3, count=count + 1)
            except LabError:
                pass
        self.assertEqual(len(p.lines("labels.no-memory")), 1)

    def test_zero_is_not_a_size(self):
        self.lab.set("gpu", "0", "memory", "zero")
        got = parse(self.once())
        self.assertNotIn("nvidia.com/gpu.memory", got)
        self.assertEqual(got["nvidia.com/gpu.count"], "1")


class Command(LabelCase):
    def mete(self, *args, code=0):
        return self.lab.run("labels", *self.paths(), *args, code=code)

    def test_formats(self):
        as_file = parse(self.mete("--no-timestamp", "-o", "file"))
        self.assertEqual(as_file, parse(self.once("--no-timestamp")))
        document = json.loads(self.mete("--no-timestamp", "-o", "json", "--mig-strategy=mixed"))
        self.assertEqual(document["labels"], {**as_file, "nvidia.com/mig.strategy": "mixed"})
        self.assertEqual([n["id"] for n in document["notes"]], ["labels.no-mig"])
        table = self.mete("--no-timestamp")
        self.assertEqual(dict(line.split() for line in table.splitlines()), as_file)
        self.assertIn("nvidia.com/gpu.count: \"4\"", self.mete("-o", "yaml"))

    def test_driver_gone(self):
        self.lab.set("driver", "unload")
        self.mete(code=5)

    def test_too_long(self):
        host = self.lab.dir / "pro"
        self.lab.run("sim", "create", host, "--model", "rtx-pro-6000", "--gpus", "1")
        self.lab.run("sim", "set", host, "gpu", "0", "mig", "1g.24gb")
        config = self.write_config("version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n")
        document = json.loads(self.lab.run("labels", *self.paths(host), "--mig-strategy=single", f"--config-file={config}", "-o", "json"))
        value = document["labels"]["nvidia.com/gpu.product"]
        self.assertLessEqual(len(value), 63)
        self.assertTrue(value.endswith("-MIG-1g.24gb-SHARED"), value)


class Agent(LabCase):
    """The agent writes the same file when it is asked to."""

    def test_label_file(self):
        file = self.lab.dir / "features.d/mete"
        config = self.write_config("version: v1\n")
        agent = self.start(f"--label-file={file}", f"--config-file={config}", "--mig-strategy=mixed")
        agent.wait_said("labels.written")
        until(5, "the label file", file.exists)
        wanted = self.lab.run("labels", f"--host-root={self.lab.host}", "--mig-strategy=mixed", "--no-timestamp", "-o", "file")
        got = parse(file.read_text())
        self.assertTrue(got.pop("nvidia.com/gfd.timestamp"))
        self.assertEqual(got, parse(wanted))
        inode = file.stat().st_ino
        self.lab.set("gpu", "3", "xid", "79")
        self.kubelet.wait(allocatable=7)
        self.assertEqual(file.stat().st_ino, inode)
        self.lab.set("gpu", "2", "mig", "1g.10gb")
        until(15, "MIG labels", lambda: parse(file.read_text()).get("nvidia.com/mig-1g.10gb.count") == "1")
        self.write_config("version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 2}]\n")
        until(15, "shared", lambda: parse(file.read_text()).get("nvidia.com/gpu.replicas") == "2")
        file.unlink()
        until(15, "the file again", file.exists)
        agent.end()
        self.assertTrue(file.exists())

    def test_off_by_default(self):
        agent = self.start()
        self.assertEqual(agent.lines("labels."), [])
