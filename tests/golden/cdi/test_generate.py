#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mete cdi generate on a host equal to the recorded one does the same as nvidia-ctk cdi generate.

usage: test_generate.py METE LIBRARY [CASES]     LIBRARY: the simulated NVML; CASES: .../shared/cases, to check the copies
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from same_effect import differences, load

HERE = pathlib.Path(__file__).resolve().parent
HOOK = "/opt/peer/bin/nvidia-cdi-hook"
METE, LIBRARY, CASES = "", "", None


def loader_cache(entries):
    """glibc's ld.so.cache: name and path of each library."""
    strings, rows, base = b"", b"", 48 + 24 * len(entries)
    for name, path in entries:
        at = [base + len(strings)]
        strings += name.encode() + b"\0"
        at.append(base + len(strings))
        strings += path.encode() + b"\0"
        rows += struct.pack("<iIIIQ", 0x0303, at[0], at[1], 0, 0)
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIBxxxIIII", len(entries), len(strings), 2, 0, 0, 0, 0)
    return head + rows + strings


class Host:
    """The recorded H200 host: driver in /opt/driver with lib64 and bin, an empty dev folder there, no nvidia-modeset."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder) / "host"
        self.driver = self.root / "opt/driver"
        run("sim", "create", "--profile=h200", f"--library={LIBRARY}", str(self.root))
        shutil.rmtree(self.driver / "dev")
        (self.driver / "dev").mkdir()
        (self.root / "dev/nvidia-modeset").unlink(missing_ok=True)
        shutil.rmtree(self.driver / "usr")
        shutil.rmtree(self.driver / "etc")

    def as_host_installation(self):
        """What a driver root of / sees: the loader knows the folder, graphics files are in /usr/share, firmware by the kernel's parameter."""
        files = {
            "etc/ld.so.cache": loader_cache([("libcuda.so.1", "/opt/driver/lib64/libcuda.so.1")]),
            "usr/share/vulkan/icd.d/nvidia_icd.json": b"{}",
            "usr/share/glvnd/egl_vendor.d/10_nvidia.json": b"{}",
            "sys/module/firmware_class/parameters/path": b"/opt/driver/firmware\n",
        }
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        # The driver's own library is found by the survey where a loader would find it.
        (self.root / "usr/lib64").mkdir(parents=True)
        os.symlink("/opt/driver/lib64/libnvidia-ml.so.1", self.root / "usr/lib64/libnvidia-ml.so.1")


def run(*args, status=0):
    done = subprocess.run([METE, *args], capture_output=True, text=True, timeout=60)
    if done.returncode != status:
        raise AssertionError(f"mete {' '.join(args)} ended with {done.returncode}: {done.stderr}{done.stdout}")
    return done


class Generate(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.host = Host(self.folder.name)

    def generate(self, *args, status=0):
        done = run("cdi", "generate", f"--host-root={self.host.root}", f"--nvidia-cdi-hook-path={HOOK}", *args, status=status)
        return done.stdout if status == 0 else done.stderr

    def same(self, text, recording):
        path = pathlib.Path(self.folder.name) / "ours.json"
        path.write_text(text)
        self.assertEqual(differences(load(HERE / recording), load(path)), [])

    def test_driver_root(self):
        self.same(self.generate("--driver-root=/opt/driver", "--format=json"), "nvidia-ctk-cdi-driver-root.json")

    def test_host_installation(self):
        self.host.as_host_installation()
        self.same(self.generate("--format=json"), "nvidia-ctk-cdi.json")

    def test_same_bytes(self):
        a, b = (self.generate("--driver-root=/opt/driver") for _ in range(2))
        self.assertEqual(a, b)

    def test_yaml_is_the_same(self):
        """The YAML form, read by mete itself, is the JSON form."""
        out = pathlib.Path(self.folder.name) / "cdi"
        out.mkdir()
        for name in ("a.json", "b.yaml"):
            self.generate("--driver-root=/opt/driver", f"--output={out / name}")
        self.assertEqual(oct((out / "a.json").stat().st_mode & 0o777), "0o644")
        self.assertEqual(sorted(p.name for p in out.iterdir()), ["a.json", "b.yaml"])
        self.assertTrue((out / "a.json").read_text().startswith('{"cdiVersion":"0.5.0"'))
        self.assertTrue((out / "b.yaml").read_text().startswith("cdiVersion: 0.5.0\n"))
        (pathlib.Path(self.folder.name) / "config.json").write_text("{}")
        applied = []
        for name in ("a.json", "b.yaml"):
            alone = pathlib.Path(self.folder.name) / name.split(".")[1]
            alone.mkdir()
            shutil.copy(out / name, alone)
            # numbers of nodes are in the file only where nodes are real
            applied.append(run("cdi", "apply", f"--spec-dir={alone}", f"--config={self.folder.name}/config.json",
                               "nvidia.com/gpu=0").stdout)
        self.assertEqual(applied[0], applied[1])
        self.assertIn("libcuda.so.580.159.04", applied[0])

    def test_options(self):
        def spec(*args):
            return json.loads(self.generate("--driver-root=/opt/driver", "--format=json", *args))

        def names(s):
            return [d["name"] for d in s["devices"]]

        def hooks(s):
            return [h["args"][1] for h in s["containerEdits"].get("hooks", [])]

        uuid = names(spec())[1]
        self.assertEqual(names(spec("--device-name-strategy=type-index", "--no-all-device")), ["gpu0"])
        self.assertEqual(names(spec("--device-name-strategy=uuid", "--device-name-strategy=type-index")), [uuid, "gpu0", "all"])
        self.assertEqual(names(spec("--device-id=none")), ["none"])
        self.assertEqual(names(spec(f"--device-id={uuid}")), ["0", uuid, "all"])
        self.assertEqual(spec("--vendor=example.org", "--class=x")["kind"], "example.org/x")
        self.assertEqual(hooks(spec("--disable-hook=all")), [])
        self.assertEqual(hooks(spec("--disable-hook=all", "--enable-hook=update-ldcache")), ["update-ldcache"])
        self.assertNotIn("enable-cuda-compat", hooks(spec("--disable-hook=enable-cuda-compat")))
        ctk = spec("--nvidia-ctk-path=/usr/bin/nvidia-ctk")["containerEdits"]["hooks"][0]
        self.assertEqual((ctk["path"], ctk["args"][:3]), ("/usr/bin/nvidia-ctk", ["nvidia-ctk", "hook", "create-symlinks"]))
        out = pathlib.Path(self.folder.name) / "coherent.json"
        self.generate("--driver-root=/opt/driver", "--feature-flag=enable-coherent-annotations", f"--output={out}")
        split = load(out.with_name("coherent.noncoherent.json"))
        self.assertEqual(split["kind"], "nvidia.com/gpu.noncoherent")
        self.assertEqual(names(split), names(load(out)))
        self.assertEqual(split["cdiVersion"], "0.6.0")

    def test_refusals(self):
        for args, text in (
            (["--mode=csv"], "Tegra"),
            (["--mode=nvmll"], "expected auto, nvml"),
            (["--device-name-strategy=name"], "index, uuid or type-index"),
            (["--disable-hook=update-ldcach"], 'did you mean "update-ldcache"'),
            (["--enable-hook=all"], "all"),
            (["--feature-flag=nothing"], "not known"),
            (["--vendor=1x"], "no kind"),
            (["--device-id=7"], 'no device "7"'),
            (["--mode=gds"], "/dev/nvidia-fs"),
            (["--format=toml"], "json"),
        ):
            status = {"--mode=csv": 8, "--device-id=7": 3, "--mode=gds": 3}.get(args[0], 2)
            self.assertIn(text, self.generate("--driver-root=/opt/driver", *args, status=status))
        self.assertIn("libcuda.so.", self.generate("--driver-root=/opt/driver", "--driver-root-ctr-path=/proc", "--mode=management", status=3))

    def test_management(self):
        s = json.loads(self.generate("--driver-root=/opt/driver", "--format=json", "--mode=management", "--vendor=management.nvidia.com"))
        self.assertEqual([d["name"] for d in s["devices"]], ["all"])
        nodes = [n["path"] for n in s["devices"][0]["containerEdits"]["deviceNodes"]]
        for path in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1"):
            self.assertIn(path, nodes)

    def test_check_and_list(self):
        """Old and fresh files for one kind, in two folders and in one (B-074); names nobody can resolve (B-065)."""
        self.host.as_host_installation()
        etc, var = self.host.root / "etc/cdi", self.host.root / "var/run/cdi"
        for d in (etc, var):
            d.mkdir(parents=True)
            self.generate(f"--output={d / 'nvidia.yaml'}")
        old = (etc / "nvidia.yaml").read_text().replace("580.159.04", "550.90.07")
        (etc / "nvidia.yaml").write_text(old)
        flags = [f"--host-root={self.host.root}"]
        rows = [line.split() for line in run("cdi", "list", *flags).stdout.splitlines()[1:]]
        self.assertEqual([r[1] for r in rows if r[0] == "nvidia.com/gpu=0"], ["ok", "shadowed"])
        self.assertIn("/var/run/cdi/", [r[2] for r in rows if r[1] == "ok"][0])
        said = run("cdi", "check", *flags, status=2).stdout
        for word in ("cdi.stale-driver", "550.90.07", "cdi.missing-file", "cdi.missing-hook", "cdi.shadowed"):
            self.assertIn(word, said)
        shutil.move(etc / "nvidia.yaml", var / "nvidia-old.yaml")
        states = [line.split()[1] for line in run("cdi", "list", *flags).stdout.splitlines()[1:]]
        self.assertEqual(set(states), {"conflict"})
        self.assertIn("cdi.conflict", run("cdi", "check", *flags, status=2).stdout)
        (var / "nvidia-old.yaml").unlink()
        said = run("cdi", "check", *flags, "nvidia.com/gpu=7", "other.org/x=1", status=2).stdout
        self.assertIn("has no such name; available: 0, GPU-", said)
        self.assertIn("no file has the kind other.org/x", said)

    def test_copies(self):
        """The recordings here are those of the originals, where these are at hand."""
        if not CASES or not CASES.is_dir():
            self.skipTest("no originals here")
        for name in ("nvidia-ctk-cdi.json", "nvidia-ctk-cdi-driver-root.json", "device-plugin-cdi.json"):
            self.assertEqual(load(HERE / name), load(CASES / "hardware-h200" / name))


class Tool(unittest.TestCase):
    """The comparison itself can fail."""

    def test_each_part_counts(self):
        base = load(HERE / "nvidia-ctk-cdi.json")

        def changed(change):
            copy = json.loads(json.dumps(base))
            change(copy)
            return differences(base, copy)

        common = "containerEdits"
        self.assertEqual(changed(lambda s: s[common]["mounts"].reverse()), [])
        self.assertEqual(changed(lambda s: s[common]["deviceNodes"][0].update(hostPath=s[common]["deviceNodes"][0]["path"])), [])
        self.assertEqual(changed(lambda s: s.update(cdiVersion="0.7.0")), [])
        for change in (
            lambda s: s["devices"].pop(),
            lambda s: s[common]["mounts"].pop(),
            lambda s: s[common]["mounts"][0]["options"].pop(),
            lambda s: s[common]["env"].pop(),
            lambda s: s[common]["hooks"].pop(),
            lambda s: s[common]["hooks"][1]["args"].pop(),
            lambda s: s[common]["hooks"][0]["env"].clear(),
            lambda s: s[common]["deviceNodes"][0].update(minor=7),
            lambda s: s.update(kind="x/y"),
            lambda s: s[common].update(additionalGids=[44]),
        ):
            self.assertNotEqual(changed(change), [])


if __name__ == "__main__":
    METE, LIBRARY = sys.argv[1:3]
    CASES = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    unittest.main(argv=sys.argv[:1])
