# SPDX-License-Identifier: Apache-2.0
"""The agent's part of the container runtime: programs installed on the host, a CDI file for mete-runtime, and the whole way from
kubelet's request to a container that sees its GPU under the envvar strategy."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

from base import LabCase
from lab import until
from test_runtime import Container, needs, sh

FILE, PLUGIN_FILE = "mete-nvidia.com-gpu.json", "k8s.device-plugin.nvidia.com-gpu.json"


def kind_file(path, kind="nvidia.com/gpu", name="theirs"):
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name("." + path.name)
    new.write_text(json.dumps({"cdiVersion": "0.3.0", "kind": kind, "devices": [{"name": name, "containerEdits": {"env": ["A=b"]}}]}))
    new.rename(path)


class Installing(LabCase):
    HOST = ("--gpus", "1")

    def setUp(self):
        super().setUp()
        self.dir = self.lab.dir / "opt/mete"

    def versions(self):
        return sorted(p.name for p in self.dir.iterdir() if re.fullmatch(r"\d.*-[0-9a-f]{16}", p.name))

    def cycle(self, *args):
        agent = self.start(f"--install-dir={self.dir}", *args, allocatable=1)
        agent.popen.terminate()
        agent.popen.wait(10)
        return agent

    def test_the_programs_and_their_names(self):
        self.cycle()
        [version] = self.versions()
        self.assertEqual(os.readlink(self.dir / "current"), version)
        files = {p.name: os.readlink(p) if p.is_symlink() else oct(p.stat().st_mode & 0o777) for p in (self.dir / version).iterdir()}
        self.assertEqual(files, {"mete-hook": "0o755", "mete-runtime": "0o755", "nvidia-cdi-hook": "mete-hook", "nvidia-ctk": "mete-hook",
                                 "nvidia-container-runtime": "mete-runtime", "nvidia-container-runtime.cdi": "mete-runtime",
                                 "nvidia-container-runtime.legacy": "mete-runtime"})
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), [version, "current"])
        self.assertIn("does not know the action", sh(self.dir / "current/nvidia-cdi-hook", "future-action") or
                      subprocess.run([self.dir / "current/nvidia-cdi-hook", "future-action"], capture_output=True, text=True, check=True).stderr)

    def test_a_second_start_changes_nothing(self):
        self.cycle()
        before = {p: p.lstat().st_ino for p in self.dir.rglob("*")}
        agent = self.cycle()
        self.assertEqual({p: p.lstat().st_ino for p in self.dir.rglob("*")}, before)
        self.assertEqual(agent.lines("install.done"), [])

    def test_a_damaged_version_is_made_anew(self):
        self.cycle()
        hook = self.dir / "current/mete-hook"
        whole = hook.read_bytes()
        for damage in (lambda: hook.write_bytes(whole[:1000]), hook.unlink, lambda: hook.chmod(0o600),
                       lambda: (self.dir / "current/nvidia-ctk").unlink()):
            damage()
            self.cycle()
            self.assertEqual(hook.read_bytes(), whole)
            self.assertEqual(hook.stat().st_mode & 0o777, 0o755)
            self.assertEqual(os.readlink(self.dir / "current/nvidia-ctk"), "mete-hook")
            self.assertEqual(len(self.versions()), 1)

    def test_cdi_files_name_the_version(self):
        self.cycle("--device-list-strategy=cdi-cri")
        spec = json.loads((self.lab.cdi / PLUGIN_FILE).read_text())
        self.assertEqual({h["path"] for h in spec["containerEdits"]["hooks"]}, {f"{self.dir}/{self.versions()[0]}/nvidia-cdi-hook"})
        # unless somebody says another one
        self.cycle("--device-list-strategy=cdi-cri", "--nvidia-cdi-hook-path=/opt/own")
        spec = json.loads((self.lab.cdi / PLUGIN_FILE).read_text())
        self.assertEqual({h["path"] for h in spec["containerEdits"]["hooks"]}, {"/opt/own"})

    def test_old_versions_go_when_nothing_names_them(self):
        day = time.time() - 25 * 3600
        for n, name in enumerate(("0.0.1-0000000000000001", "0.0.1-0000000000000002", "0.0.1-0000000000000003", "0.0.1-short", "other")):
            (self.dir / name).mkdir(parents=True)
            (self.dir / name / "mete-hook").write_text("old")
            if n != 2:
                os.utime(self.dir / name, (day, day))
        self.lab.cdi.mkdir(exist_ok=True)
        (self.lab.cdi / "x.json").write_text(f'{{"path":"{self.dir}/0.0.1-0000000000000002/nvidia-cdi-hook"}}')
        self.cycle()
        left = {p.name for p in self.dir.iterdir()} - {"current", *self.versions()[-1:]}
        self.assertEqual(left, {"0.0.1-0000000000000002", "0.0.1-0000000000000003", "0.0.1-short", "other"})

    def test_a_folder_that_cannot_be_written_is_an_error_at_start(self):
        (self.lab.dir / "file").write_text("")
        for args, says in (([f"--install-dir={self.lab.dir}/file/x"], "install to --install-dir"), (["--install-dir=x"], "expected a path from the root")):
            agent = self.lab.start_agent(*args)
            self.assertNotEqual(agent.popen.wait(10), 0)
            self.assertIn(says, agent.said())


class ForTheRuntime(LabCase):
    HOST = ("--gpus", "2", "--nodes")

    def names(self, file=FILE):
        return [d["name"] for d in json.loads((self.lab.cdi / file).read_text())["devices"]]

    def files(self):
        return sorted(p.name for p in self.lab.cdi.iterdir() if p.name.endswith(".json"))

    def wait_files(self, *names):
        until(5, f"CDI files {names}", lambda: self.files() == sorted(names))

    @needs
    def test_under_the_envvar_strategy(self):
        self.start("--runtime-cdi", allocatable=2)
        self.assertEqual(self.files(), [FILE])
        names = self.names()
        self.assertIn("all", names)
        self.assertEqual(len([n for n in names if n.startswith("GPU-")]), 2)
        self.assertEqual({"0", "1"} - set(names), set())

    @needs
    def test_both_kinds_under_a_cdi_strategy(self):
        self.start("--runtime-cdi", "--device-list-strategy=envvar,cdi-cri", allocatable=2)
        self.assertEqual(self.files(), [PLUGIN_FILE, FILE])

    @needs
    def test_not_beside_another_file_of_the_kind(self):
        agent = self.start("--runtime-cdi", allocatable=2)
        theirs = self.lab.cdi / "nvidia.yaml"
        kind_file(theirs)
        self.wait_files(PLUGIN_FILE)          # mete-runtime finds the gpus there
        self.assertIn("all", self.names(PLUGIN_FILE))
        agent.wait_said("cdi.kind-elsewhere")
        theirs.unlink()
        agent.wait_said("cdi.kind-ours-again")
        until(5, "our file", lambda: FILE in self.files())
        # of another kind it is no matter
        kind_file(self.lab.cdi / "other.json", "management.nvidia.com/gpu", "all")
        time.sleep(0.3)
        self.assertIn(FILE, self.files())
        self.kubelet.wait(allocatable=2)

    @needs
    def test_a_file_in_etc_counts_at_start_and_a_left_over_one_goes(self):
        self.lab.cdi.mkdir()
        shutil.copy(__file__, self.lab.cdi / FILE)
        kind_file(self.lab.host / "etc/cdi/n.json")
        self.start("--runtime-cdi", allocatable=2)
        self.assertEqual(self.files(), [PLUGIN_FILE])

    @needs
    def test_a_deleted_file_comes_back(self):
        self.start("--runtime-cdi", allocatable=2)
        (self.lab.cdi / FILE).unlink()
        until(5, "the file again", lambda: FILE in self.files())

    @needs
    def test_from_kubelets_request_to_the_container(self):
        """RuntimeClass nvidia: Allocate's variable, mete-runtime by its installed name, the installed hook, the real runc."""
        dir_ = self.lab.dir / "opt/mete"
        self.start("--runtime-cdi", f"--install-dir={dir_}", f"--dev-root={self.lab.host}", allocatable=2)
        seen = {}
        for pod in ("one", "two"):
            envs = self.kubelet.admit(pod)["envs"]
            c = Container(self)
            c.toml.write_text(f"[nvidia-container-runtime.modes.cdi]\nspec-dirs = [\"{self.lab.cdi}\"]\n")
            c.spec("sh", "-c", "ls /dev/nvidia?; readlink /usr/lib/*/libcuda.so.1", env=[f"{k}={v}" for k, v in envs.items()])
            r = subprocess.run([dir_ / "current/nvidia-container-runtime", "run", "-b", c.dir, c.dir.name], capture_output=True, text=True,
                               timeout=60, check=False, env={**os.environ, "NVIDIA_CTK_CONFIG_FILE_PATH": str(c.toml)})
            self.assertEqual(r.returncode, 0, r.stderr)
            node, link = r.stdout.split()
            self.assertTrue(link.startswith("libcuda.so."))
            seen[pod] = node
        self.assertEqual(sorted(seen.values()), ["/dev/nvidia0", "/dev/nvidia1"])
        self.assertTrue(pathlib.Path(dir_ / "current").is_symlink())
