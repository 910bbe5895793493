# SPDX-License-Identifier: Apache-2.0
"""mete-runtime and mete-hook with the real runc (and crun, where it is): containers from small roots, CDI files of a simulated
host, and images that try to get out."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["METE_BUILD"]).resolve()
RUNTIME, HOOK = BUILD / "src/runtime/mete-runtime", BUILD / "src/hook/mete-hook"
PROBE, MARKER = BUILD / "tests/integration/dlopen-probe", BUILD / "tests/integration/libmarker-preload.so"
TRIPLET = f"{os.uname().machine}-linux-gnu"
# crun refuses hosts with both cgroup versions, as this test may run on: it gets a view with the second alone.
CRUN = ["unshare", "-m", "sh", "-c", "umount -R /sys/fs/cgroup 2>/dev/null; mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"", "sh"]
needs = unittest.skipUnless(os.geteuid() == 0 and shutil.which("runc") and shutil.which("busybox"), "needs root, runc and busybox")


def sh(*command, **options):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, timeout=60, **options).stdout


class Container:
    """A bundle with its own CDI directories and config.toml."""

    def __init__(self, case, runtime="runc"):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mete-bundle-"))
        case.addCleanup(shutil.rmtree, self.dir, True)
        self.runtime, self.cdi, self.root, self.config = runtime, self.dir / "cdi", self.dir / "rootfs", self.dir / "config.json"
        self.cdi.mkdir()
        self.host = self.dir / "host"          # what nothing in a container may touch
        self.host.mkdir()
        for d in ("bin", "proc", "dev", "sys", "tmp"):
            (self.root / d).mkdir(parents=True)
        shutil.copy("/bin/busybox", self.root / "bin/busybox")
        for name in ("sh", "ls", "cat", "readlink", "true", "env", "stat", "mount"):
            (self.root / "bin" / name).symlink_to("busybox")
        self.toml = self.dir / "config.toml"
        self.write_toml()

    def write_toml(self, top="", runtimes=None):
        self.toml.write_text(f"{top}\n[nvidia-container-runtime]\nruntimes = [\"{runtimes or self.runtime}\"]\n"
                             f"[nvidia-container-runtime.modes.cdi]\nspec-dirs = [\"{self.cdi}\"]\n")

    def glibc(self):
        """The root gets a loader, a libc and a program that asks its loader for libraries."""
        loader = pathlib.Path(sh("readelf", "-p", ".interp", "/bin/true").split("]")[1].split()[0])
        for file in (loader, pathlib.Path(f"/lib/{TRIPLET}/libc.so.6")):
            to = self.root / str(file)[1:]
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(file), to)
        shutil.copy(PROBE, self.root / "bin/probe")

    def spec(self, *args, env=(), annotations=None, mounts=(), caps=None):
        """Writes config.json as runc's own `spec` does, with what the container runs."""
        self.config.unlink(missing_ok=True)
        sh("runc", "spec", "-b", self.dir)
        c = json.loads(self.config.read_text())
        c["process"].update(terminal=False, args=list(args), env=["PATH=/bin", *env])
        c["root"]["readonly"] = False
        c["annotations"] = annotations or {}
        c["mounts"] += list(mounts)
        if caps is not None:
            c["process"]["capabilities"]["bounding"] = caps
        self.config.write_text(json.dumps(c, indent=3))

    def run(self, *options):
        env = {**os.environ, "NVIDIA_CTK_CONFIG_FILE_PATH": str(self.toml)}
        command = [RUNTIME, *options]
        if self.runtime == "crun":
            command = [*CRUN, RUNTIME, "--cgroup-manager=disabled", *options]
        return subprocess.run([str(c) for c in [*command, "run", "--bundle", self.dir, self.dir.name]], env=env, text=True,
                              capture_output=True, timeout=60, stdin=subprocess.DEVNULL)

    def say(self, *options):
        r = self.run(*options)
        if r.returncode:
            raise AssertionError(f"exit {r.returncode}: {r.stderr or r.stdout}")
        return r.stdout

    def write_cdi(self, name="nvidia.com-gpu.json", **edits):
        kind = edits.pop("kind", "nvidia.com/gpu")
        spec = {"cdiVersion": "0.5.0", "kind": kind, "containerEdits": edits,
                "devices": [{"name": n, "containerEdits": {"env": [f"GOT={n}"]}} for n in ("0", "GPU-a", "all")]}
        (self.cdi / name).write_text(json.dumps(spec))

    def hook(self, action, *args):
        return {"hookName": "createContainer", "path": str(HOOK), "args": ["mete-hook", action, *args], "env": ["A=b"]}

    def host_untouched(self):
        return not list(self.host.iterdir())


def each_runtime(test):
    """Runs a case under runc and, where it is there, under crun."""
    def run(self):
        for runtime in ("runc", "crun"):
            if shutil.which(runtime):
                with self.subTest(runtime=runtime):
                    test(self, runtime)
    return needs(run)


class OnASimulatedHost(unittest.TestCase):
    """The whole way: simulated host, CDI file of `mete cdi generate`, runtime, hooks, container."""

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="mete-host-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, True)
        cls.sim, cls.spec = cls.dir / "host", cls.dir / "nvidia.json"
        mete = BUILD / "src/cmd/mete"
        sh(mete, "sim", "create", "--gpus", "3", "--nodes", "--library", BUILD / "src/sim/libnvidia-ml-sim.so", cls.sim)
        # The driver root is the host's; its libraries are published under a folder that no loader looks in by itself.
        sh(mete, "cdi", "generate", "--host-root", cls.sim, "--driver-root", cls.sim, "--driver-root-ctr-path", cls.sim, "--dev-root",
           cls.sim, "--nvidia-cdi-hook-path", HOOK, "--format", "json", "--output", cls.spec)
        text = cls.spec.read_text()
        cls.devices = {d["name"]: d for d in json.loads(text)["devices"]}
        moved = text.replace(f'"containerPath":"/usr/lib/{TRIPLET}', '"containerPath":"/opt/driver')
        moved = moved.replace(f'"containerPath": "/usr/lib/{TRIPLET}', '"containerPath": "/opt/driver')
        moved = moved.replace(f"::/usr/lib/{TRIPLET}", "::/opt/driver").replace(f'"/usr/lib/{TRIPLET}"', '"/opt/driver"')
        (cls.dir / "moved.json").write_text(moved)

    def node_of(self, name):
        return [n["path"] for n in self.devices[name]["containerEdits"]["deviceNodes"]]

    @each_runtime
    def test_a_gpu_by_uuid_and_nothing_else(self, runtime):
        uuid = next(n for n in self.devices if n.startswith("GPU-"))
        c = Container(self, runtime)
        shutil.copy(self.spec, c.cdi)
        c.spec("sh", "-c", "ls /dev/nvidia*; env; ls -l /usr/lib/*/libcuda.so*; cat /etc/nvidia/*/10-container.conf", env=[f"NVIDIA_VISIBLE_DEVICES={uuid}"])
        out = c.say()
        nodes = {w for w in out.split() if w.startswith("/dev/nvidia")}
        self.assertEqual(nodes, {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", *self.node_of(uuid)})
        self.assertIn("NVIDIA_VISIBLE_DEVICES=void", out)
        self.assertIn("libcuda.so.1 -> libcuda.so.", out)
        minor = int(self.node_of(uuid)[0].removeprefix("/dev/nvidia"))
        self.assertIn(f"\"EGLVisibleDGPUDevices\",{1 << minor}]", out)

    @each_runtime
    def test_the_containers_own_loader_finds_the_driver(self, runtime):
        c = Container(self, runtime)
        c.glibc()
        shutil.copy(self.dir / "moved.json", c.cdi)
        c.spec("/bin/probe", "libnvidia-ml.so.1", "libnvidia-ml.so", env=["NVIDIA_VISIBLE_DEVICES=all"])
        self.assertEqual(c.say(), "libnvidia-ml.so.1 /opt/driver/libnvidia-ml.so.1\nlibnvidia-ml.so missing: libnvidia-ml.so: cannot open "
                                  "shared object file: No such file or directory\n")

    @each_runtime
    def test_an_images_own_cache_stays(self, runtime):
        c = Container(self, runtime)
        c.glibc()
        (c.root / "opt/own").mkdir(parents=True)
        (c.root / "etc").mkdir()
        shutil.copy(MARKER, c.root / "opt/own/libown.so")
        (c.root / "etc/ld.so.conf").write_text("/opt/own\n")
        sh("/sbin/ldconfig", "-r", c.root)
        shutil.copy(self.dir / "moved.json", c.cdi)
        c.spec("/bin/probe", "libnvidia-ml.so.1", "libmarker-preload.so", env=["NVIDIA_VISIBLE_DEVICES=0"])
        self.assertEqual(c.say(), "libnvidia-ml.so.1 /opt/driver/libnvidia-ml.so.1\nlibmarker-preload.so /opt/own/libmarker-preload.so\n")
        # and the host's ldconfig reads what was written
        self.assertIn("libmarker-preload.so", sh("/sbin/ldconfig", "-p", "-C", c.root / "etc/ld.so.cache"))


class Asking(unittest.TestCase):
    @each_runtime
    def test_no_gpu_no_change(self, runtime):
        c = Container(self, runtime)
        c.write_cdi()
        for env in ([], ["NVIDIA_VISIBLE_DEVICES=void"], ["NVIDIA_VISIBLE_DEVICES="]):
            c.spec("env", env=env)
            before = c.config.read_bytes(), c.config.stat().st_ino
            self.assertNotIn("GOT", c.say())
            self.assertEqual((c.config.read_bytes(), c.config.stat().st_ino), before)

    @each_runtime
    def test_annotations_mounts_and_variables(self, runtime):
        c = Container(self, runtime)
        c.write_cdi()
        c.spec("env", annotations={"cdi.k8s.io/x_1": "nvidia.com/gpu=0"}, env=["NVIDIA_VISIBLE_DEVICES=GPU-a"])
        self.assertIn("GOT=0\n", c.say())
        c.write_toml("accept-nvidia-visible-devices-as-volume-mounts = true\naccept-nvidia-visible-devices-envvar-when-unprivileged = false\n")
        c.spec("env", env=["NVIDIA_VISIBLE_DEVICES=all"],
               mounts=[{"destination": "/var/run/nvidia-container-devices/GPU-a", "type": "bind", "source": "/dev/null", "options": ["bind"]}])
        self.assertIn("GOT=GPU-a\n", c.say())
        c.spec("env", env=["NVIDIA_VISIBLE_DEVICES=all"])
        self.assertNotIn("GOT", c.say())

    @needs
    def test_an_unknown_id_is_told_where_the_caller_looks(self):
        c, log = Container(self), None
        c.write_cdi()
        c.spec("env", env=["NVIDIA_VISIBLE_DEVICES=GPU-b"])
        before = c.config.read_bytes()
        log = c.dir / "log.json"
        r = c.run("--log", log, "--log-format", "json")
        self.assertNotEqual(r.returncode, 0)
        said = json.loads(log.read_text())
        self.assertEqual(said["level"], "error")
        self.assertIn("NVIDIA_VISIBLE_DEVICES asks for \"GPU-b\", which no CDI file in", said["msg"])
        self.assertIn("nvidia.com/gpu has 0, GPU-a, all", said["msg"])
        self.assertEqual(r.stderr, f"mete-runtime: {said['msg']}\n")
        self.assertEqual(c.config.read_bytes(), before)
        self.assertEqual(sorted(p.name for p in c.dir.iterdir()), ["cdi", "config.json", "config.toml", "host", "log.json", "rootfs"])

    @needs
    def test_a_broken_config_file_stops_only_containers_that_ask(self):
        c = Container(self)
        c.write_cdi()
        c.toml.write_text("nonsense\n")
        c.spec("env")
        self.assertIn("PATH=/bin", c.say())
        c.spec("env", env=["NVIDIA_VISIBLE_DEVICES=0"])
        r = c.run()
        self.assertNotEqual(r.returncode, 0)
        self.assertIn(f"{c.toml}:1:9: expected \"=\"", r.stderr)

    @needs
    def test_everything_else_goes_to_the_real_runtime(self):
        c = Container(self)
        for args in (["--version"], ["state", "no-such-container"], ["nonsense"], [], ["create", "--help"]):
            real = subprocess.run(["runc", *args], capture_output=True, text=True, check=False)
            ours = subprocess.run([RUNTIME, *args], capture_output=True, text=True, check=False,
                                  env={**os.environ, "NVIDIA_CTK_CONFIG_FILE_PATH": str(c.toml)})
            self.assertEqual(ours.returncode, real.returncode, args)
            self.assertEqual(ours.stdout.replace(str(RUNTIME), "runc"), real.stdout.replace(str(RUNTIME), "runc"), args)

    @needs
    def test_by_the_names_of_the_peer(self):
        c = Container(self)
        c.write_cdi()
        for name in ("nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy"):
            (c.dir / name).symlink_to(RUNTIME)
            c.spec("env", env=["NVIDIA_VISIBLE_DEVICES=0"])
            out = subprocess.run([c.dir / name, "run", "-b", c.dir, c.dir.name], capture_output=True, text=True, check=True,
                                 env={**os.environ, "NVIDIA_CTK_CONFIG_FILE_PATH": str(c.toml)}).stdout
            self.assertIn("GOT=0\n", out)

    @needs
    def test_it_does_not_become_itself(self):
        c = Container(self)
        (c.dir / "runc").symlink_to(RUNTIME)
        c.spec("env")
        c.write_toml(runtimes=c.dir / "runc")
        r = c.run()
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("no OCI runtime found: tried", r.stderr)


class HostileImages(unittest.TestCase):
    """The test plan of spec/operator-mig-cdi.md 8: each with an image that tries it."""

    def edits(self, c, folder="/opt/driver"):
        c.write_cdi(hooks=[c.hook("create-symlinks", "--link", f"libcuda.so.1::{folder}/libcuda.so"),
                           c.hook("enable-cuda-compat", "--host-driver-version=550.1"),
                           c.hook("update-ldcache", "--folder", folder),
                           c.hook("disable-device-node-modification"), c.hook("update-application-profile")])

    @each_runtime
    def test_variables_that_load_libraries(self, runtime):
        c = Container(self, runtime)
        self.edits(c)
        for place in (c.dir, c.root, c.root / "lib"):
            place.mkdir(exist_ok=True)
            shutil.copy(MARKER, place / "x.so")
        c.spec("true", env=["NVIDIA_VISIBLE_DEVICES=0", "LD_PRELOAD=/proc/self/cwd/x.so", "LD_LIBRARY_PATH=/proc/self/cwd",
                            f"LD_AUDIT={c.dir}/x.so", "GLIBC_TUNABLES=glibc.malloc.check=3", "GCONV_PATH=/proc/self/cwd"])
        c.say()
        self.assertEqual(list(c.dir.rglob("*.loaded")), [])

    @each_runtime
    def test_directories_that_lead_out(self, runtime):
        up = "../" * 20
        for n, (link, to) in enumerate([("etc", "{host}"), ("etc", up + "{host}"), ("etc", "/proc/self/root{host}"),
                                        ("etc", "/proc/1/root{host}"), ("etc", "/proc/self/cwd/host"), ("opt", "{host}"),
                                        ("opt/driver", "{host}"), ("etc/ld.so.conf.d", "{host}"), ("etc/nvidia", up + "{host}"),
                                        ("etc/ld.so.cache", "{host}/cache"), ("etc/ld.so.conf", "{host}/conf"),
                                        ("opt/driver/libcuda.so", "{host}/cuda"), ("usr/local/cuda/compat", "{host}"),
                                        ("etc", "etc"), ("opt", "/opt")]):
            with self.subTest(link=link, to=to):
                c = Container(self, runtime)
                self.edits(c)
                path = c.root / link
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(to.format(host=c.host))
                c.spec("true", env=["NVIDIA_VISIBLE_DEVICES=0"])
                r = c.run()              # whether such an image starts is its own affair
                self.assertTrue(c.host_untouched(), f"case {n}: {list(c.host.iterdir())}: {r.stderr}")

    @each_runtime
    def test_compat_libraries_are_links_or_many(self, runtime):
        """CVE-2024-0132, CVE-2025-23359: nothing of the image is mounted, and only one regular file counts."""
        for make in (lambda d, h: (d / "libcuda.so.999.1").symlink_to("/etc/passwd"),
                     lambda d, h: (d / "libcuda.so.999.1").mkdir(),
                     lambda d, h: [(d / f"libcuda.so.999.{i}").write_text("") for i in range(2)],
                     lambda d, h: os.mkfifo(d / "libcuda.so.999.1"),
                     lambda d, h: os.mknod(d / "libcuda.so.999.1", 0o20666, os.makedev(1, 3))):
            c = Container(self, runtime)
            self.edits(c)
            d = c.root / "usr/local/cuda/compat"
            d.mkdir(parents=True)
            make(d, c.host)
            c.spec("sh", "-c", "ls /etc/ld.so.conf.d; cat /proc/self/mountinfo", env=["NVIDIA_VISIBLE_DEVICES=0"])
            out = c.say()
            self.assertNotIn("00-compat", out)
            self.assertNotIn("cuda", out)

    @each_runtime
    def test_odd_files_as_libraries(self, runtime):
        c = Container(self, runtime)
        self.edits(c)
        d = c.root / "opt/driver"
        d.mkdir(parents=True)
        os.mkfifo(d / "libfifo.so.1")
        os.mknod(d / "libdevice.so.1", 0o20666, os.makedev(1, 5))
        (d / "libdir.so.1").mkdir()
        (d / "liblink.so.1").symlink_to("/dev/zero")
        (d / "libhuge.so.1").touch()
        os.truncate(d / "libhuge.so.1", 1 << 40)
        (d / "libtext.so.1").write_text("INPUT(libc.so.6)")
        (d / "libcut.so.1").write_bytes(MARKER.read_bytes()[:100])
        c.spec("true", env=["NVIDIA_VISIBLE_DEVICES=0"])
        c.say()

    @needs
    def test_no_mount_of_a_hook_reaches_the_host(self):
        c = Container(self)
        self.edits(c)
        for propagation in ("private", "rshared", "shared", "slave"):
            c.spec("true", env=["NVIDIA_VISIBLE_DEVICES=0"])
            config = json.loads(c.config.read_text())
            config["linux"]["rootfsPropagation"] = propagation
            c.config.write_text(json.dumps(config))
            before = pathlib.Path("/proc/self/mountinfo").read_text().count("\n")
            c.run()
            self.assertEqual(pathlib.Path("/proc/self/mountinfo").read_text().count("\n"), before, propagation)


class Configure(unittest.TestCase):
    """mete runtime configure."""

    SITE = ("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"registry.local/pause:1\"\n"
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n"
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n")

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mete-configure-"))
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.config, self.drop_in = self.dir / "config.toml", self.dir / "conf.d/zz-mete-nvidia.toml"
        self.config.write_text(self.SITE)

    def mete(self, *args, code=0):
        r = subprocess.run([BUILD / "src/cmd/mete", "runtime", "configure", "--config", self.config, "--drop-in-dir", self.dir / "conf.d",
                            "--runtime-path", RUNTIME, *args], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(r.returncode, code, r.stderr)
        return r.stdout + r.stderr

    def test_shown_written_taken_back(self):
        shown = self.mete("--dry-run", "--cdi")
        self.assertIn("+enable_cdi = true", shown)
        self.assertIn(f"+BinaryName = \"{RUNTIME}\"", shown)
        self.assertIn(f"+imports = [\"{self.dir}/conf.d/*.toml\"]", shown)
        self.assertIn("nothing was written (--dry-run)", shown)
        self.assertEqual([p.name for p in self.dir.iterdir()], ["config.toml"])
        self.assertIn("systemctl restart containerd", self.mete())
        self.assertIn("nothing to change", self.mete())
        self.assertIn("(removed)", self.mete("--undo"))
        self.assertEqual(self.config.read_text(), self.SITE)
        self.assertFalse(self.drop_in.exists())
        self.assertIn("nothing to change", self.mete("--undo"))

    def test_refused(self):
        for args, says in ((["--runtime", "docker"], "docker"), (["--engine-version", "x"], "expected a version"),
                           (["--runtime-path", "/nowhere"], "/nowhere is no program on this host"), (["--drop-in-dir", "x"], "from the root")):
            out = subprocess.run([BUILD / "src/cmd/mete", "runtime", "configure", "--config", self.config, *args], capture_output=True,
                                 text=True, timeout=30, check=False)
            self.assertNotEqual(out.returncode, 0)
            self.assertIn(says, out.stderr)
        self.config.write_text("disabled_plugins = [\"cri\"]\n")
        self.assertIn("kubelet cannot use this containerd", self.mete(code=4))

    @unittest.skipUnless(shutil.which("containerd"), "needs containerd")
    def test_containerd_itself_reads_it(self):
        self.mete("--set-as-default")
        dump = sh("containerd", "--config", self.config, "config", "dump")
        for line in ("registry.local/pause:1", f'BinaryName = "{RUNTIME}"', 'default_runtime_name = "nvidia"'):
            self.assertIn(line, dump.replace("'", '"'))
        self.assertEqual(dump.count("SystemdCgroup = true"), 2)


class HookProgram(unittest.TestCase):
    def call(self, *args, state=None, **options):
        return subprocess.run([HOOK, *args], input=state or "{}", capture_output=True, text=True, timeout=20, check=False, **options)

    def test_static_and_small(self):
        for program, limit in ((HOOK, 1 << 20), (RUNTIME, 2 << 20)):
            text = sh("readelf", "-W", "-d", "-l", program)
            self.assertNotIn("(NEEDED)", text)
            self.assertNotIn("INTERP", text)
            with tempfile.TemporaryDirectory() as d:
                sh("strip", "-o", f"{d}/x", program)
                self.assertLess(os.stat(f"{d}/x").st_size, limit)

    def test_arguments(self):
        with tempfile.TemporaryDirectory() as d:
            state = json.dumps({"root": d})
            for args, code, says in (([], 2, "usage:"),
                                     (["no-such-action", "--x=y"], 0, "does not know the action \"no-such-action\""),
                                     (["hook", "no-such-action"], 0, "does not know"),
                                     (["create-symlinks", "--link"], 1, "--link needs a value"),
                                     (["create-symlinks", "--nonsense=1"], 1, "unknown option --nonsense"),
                                     (["create-symlinks", "word"], 1, "unexpected argument \"word\""),
                                     (["create-symlinks", *["--link=a::/b"] * 1025], 1, "more than 1024 times"),
                                     (["create-symlinks", "--link", "a::/b"], 0, ""),
                                     (["--quiet", "hook", "--debug=true", "create-symlinks", "--debug", "--link=a::/c"], 0, ""),
                                     (["update-ldcache", "--ldconfig-path", "/sbin/ldconfig", "--folder=/x"], 0, "")):
                r = self.call(*args, state=state)
                self.assertEqual(r.returncode, code, (args[:3], r.stderr))
                self.assertIn(says, r.stderr)
            self.assertEqual(os.readlink(f"{d}/b"), "a")
            self.assertEqual(os.readlink(f"{d}/c"), "a")

    def test_states(self):
        for state, says in (("", "container state"), ("{}", "nothing called \"bundle\""), ('{"root":"x"}', "not an absolute path"),
                            ('{"bundle":"/nowhere"}', "/nowhere/config.json"), ('{"root":"/nowhere"}', "open the container's root"),
                            ('{"root":"/' + "a" * 5000 + '"}', "at most 4095"), ('{"root":"x","bundle":"y"}', "not an absolute path"), (" " * (1 << 20) + " {}", "1048576")):
            r = self.call("create-symlinks", state=state)
            self.assertEqual(r.returncode, 1, r.stderr)
            self.assertIn(says, r.stderr)

    @needs
    def test_nothing_comes_along(self):
        """Variables, descriptors and the mask of the caller."""
        with tempfile.TemporaryDirectory() as d:
            os.mkfifo(f"{d}/pipe")
            fd = os.open(f"{d}/pipe", os.O_RDWR)
            os.set_inheritable(fd, True)
            trace = subprocess.run(["strace", "-e", "trace=close_range,prctl,openat", HOOK,
                                    "create-symlinks", "--link=a::/new/b"], input=json.dumps({"root": d}), capture_output=True, text=True, env={},
                                   pass_fds=[fd], preexec_fn=lambda: os.umask(0o777), check=False).stderr if shutil.which("strace") else ""
            os.close(fd)
            if trace:
                self.assertRegex(trace, r"close_range\(3, 4294967295, 0\) += 0")
                self.assertIn("PR_SET_DUMPABLE, SUID_DUMP_DISABLE", trace)
                self.assertLess(trace.index("close_range"), trace.index(f'"{d}"'))
                self.assertEqual(os.stat(f"{d}/new").st_mode & 0o777, 0o755)


if __name__ == "__main__":
    unittest.main()
