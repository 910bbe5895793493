# SPDX-License-Identifier: Apache-2.0
"""The device plugin's flags, variables and config keys (spec/device-plugin.md 1.1): each is there, and flag beats variable beats file beats default."""
import json
import os
import subprocess
import unittest

from base import LabCase
from deviceplugin import PyKubelet
from lab import Lab, Process, until

# flag, aliases, variables in order, default, config key; values for file, variable and flag
OPTIONS = (
    ("mig-strategy", (), ("MIG_STRATEGY",), "none", "flags.migStrategy", ("single", "mixed", "none")),
    ("fail-on-init-error", (), ("FAIL_ON_INIT_ERROR",), True, "flags.failOnInitError", (False, True, False)),
    ("driver-root", ("nvidia-driver-root",), ("NVIDIA_DRIVER_ROOT",), "/", "flags.nvidiaDriverRoot", ("/file", "/env", "/flag")),
    ("dev-root", ("nvidia-dev-root",), ("NVIDIA_DEV_ROOT",), "/", "flags.nvidiaDevRoot", ("/file", "/env", "/flag")),
    ("pass-device-specs", (), ("PASS_DEVICE_SPECS",), False, "flags.plugin.passDeviceSpecs", (True, False, True)),
    ("device-list-strategy", (), ("DEVICE_LIST_STRATEGY",), ["envvar"], "flags.plugin.deviceListStrategy", (["cdi-cri"], ["volume-mounts"], ["cdi-annotations"])),
    ("device-id-strategy", (), ("DEVICE_ID_STRATEGY",), "uuid", "flags.plugin.deviceIDStrategy", ("index", "uuid", "index")),
    ("gdrcopy-enabled", (), ("GDRCOPY_ENABLED",), False, "flags.gdrcopyEnabled", (True, False, True)),
    ("gds-enabled", (), ("GDS_ENABLED",), False, "flags.gdsEnabled", (True, False, True)),
    ("mofed-enabled", (), ("MOFED_ENABLED",), False, "flags.mofedEnabled", (True, False, True)),
    ("cdi-annotation-prefix", (), ("CDI_ANNOTATION_PREFIX",), "cdi.k8s.io/", "flags.plugin.cdiAnnotationPrefix", ("file/", "env/", "flag/")),
    ("nvidia-cdi-hook-path", ("nvidia-ctk-path",), ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"), "/usr/bin/nvidia-ctk", "flags.plugin.nvidiaCTKPath",
     ("/file", "/env", "/flag")),
    ("driver-root-ctr-path", ("container-driver-root",), ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"), "/driver-root", "flags.plugin.containerDriverRoot",
     ("/file", "/env", "/flag")),
    ("mps-root", (), ("MPS_ROOT",), "", "flags.mpsRoot", ("/file", "/env", "/flag")),
    ("shared-devices-allocation-policy", (), ("SHARED_DEVICES_ALLOCATION_POLICY",), "distributed", "flags.plugin.sharedDevicesAllocationPolicy",
     ("packed", "distributed", "packed")),
    ("device-discovery-strategy", (), ("DEVICE_DISCOVERY_STRATEGY",), "auto", "flags.deviceDiscoveryStrategy", ("nvml", "auto", "nvml")),
    ("imex-channel-ids", (), ("IMEX_CHANNEL_IDS",), [], "imex.channelIDs", ([0], [0], [0])),
    ("imex-required", (), ("IMEX_REQUIRED",), False, "imex.required", (True, False, True)),
    ("kubelet-socket", (), ("KUBELET_SOCKET",), None, None, (None, "/env.sock", "/flag.sock")),
    ("config-file", (), ("CONFIG_FILE",), None, None, None),
    ("cdi-feature-flags", (), ("CDI_FEATURE_FLAGS",), None, None, (None, "disable-ipc-discoverer", "enable-coherent-annotations")),
    ("cdi-disable-hooks", (), ("CDI_DISABLE_HOOKS",), None, None, (None, "all", "chmod")),
)


def text(value):
    return ",".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value


def at(config, key):
    for word in key.split("."):
        config = config[word]
    return config


class Table(unittest.TestCase):
    def setUp(self):
        self.lab = Lab(os.environ["METE_BUILD"])
        self.addCleanup(self.lab.__exit__)
        self.clean = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME")}

    def mete(self, *args, env=None):
        r = subprocess.run([str(self.lab.mete), *args], capture_output=True, text=True, timeout=30, env={**self.clean, **(env or {})})
        self.assertEqual(r.returncode, 0, r.stderr + r.stdout)
        return r.stdout

    def file_with(self, key, value):
        path = self.lab.dir / "config.yaml"
        nested = value
        for word in reversed(key.split(".")):
            nested = {word: nested}
        path.write_text(json.dumps(nested))
        return path

    def shown(self, *args, env=None):
        return json.loads(self.mete("config", "show", *args, env=env))

    def test_help_names_all(self):
        for command in (("agent",), ("nvidia-device-plugin",)):
            said = " ".join(self.mete("help", *command).split())
            for flag, aliases, variables, default, key, _ in OPTIONS:
                with self.subTest(command=command, flag=flag):
                    self.assertIn("--" + ", --".join((flag, *aliases)), said)
                    self.assertIn("env: " + ", ".join(variables), said)
                    if key:
                        self.assertIn(f"config: {key}", said)
                    if default and flag != "dev-root":
                        self.assertIn(f"default: {text(default)}", said.split("--" + flag)[1][:1000])

    def test_precedence(self):
        """default, then each of file, variable and flag laid over it; with aliases and the order of two variables."""
        for flag, aliases, variables, default, key, values in OPTIONS:
            if not values:
                continue
            in_file, in_env, in_flag = values
            given = []
            env = {}
            steps = [("default", default)]
            if key:
                steps.append((in_file, in_file))
            steps += [(in_env, in_env), (in_flag, in_flag)]
            for number, (value, want) in enumerate(steps):
                source = ["default", *(["file"] if key else []), "env", "flag"][number]
                if source == "file":
                    given = [f"--config-file={self.file_with(key, value)}"]
                elif source == "env":
                    env = dict.fromkeys(variables, "/later")  # the first variable counts
                    env[variables[0]] = text(value)
                elif source == "flag":
                    given.append(f"--{(aliases or (flag,))[0]}={text(value)}")
                with self.subTest(option=flag, source=source):
                    config = self.shown(*given, env=env)
                    if key:
                        self.assertEqual(at(config, key), want)
                    origin = config["origins"][key or f"--{flag}"]
                    self.assertTrue(origin.startswith({"default": "default", "file": str(self.lab.dir), "env": "env ", "flag": "flag "}[source]), origin)

    def test_set_to_empty(self):
        """A variable that is set to nothing is set: false, the empty text, or an error where a word is needed."""
        file = f"--config-file={self.file_with('flags', {'failOnInitError': True, 'mpsRoot': '/file', 'plugin': {'cdiAnnotationPrefix': 'file/'}})}"
        config = self.shown(file, env={"FAIL_ON_INIT_ERROR": "", "MPS_ROOT": "", "CDI_ANNOTATION_PREFIX": ""})
        self.assertEqual((config["flags"]["failOnInitError"], config["flags"]["mpsRoot"], config["flags"]["plugin"]["cdiAnnotationPrefix"]), (False, "", ""))
        for variable in ("MIG_STRATEGY", "DEVICE_LIST_STRATEGY", "DEVICE_ID_STRATEGY", "SHARED_DEVICES_ALLOCATION_POLICY"):
            r = subprocess.run([str(self.lab.mete), "config", "check"], capture_output=True, text=True, env={**self.clean, variable: ""}, timeout=30)
            self.assertEqual(r.returncode, 2, variable)
            self.assertIn(f"env {variable}", r.stdout)


class Agent(LabCase):
    """The same through the real agent and kubelet's API."""

    HOST = ("--gpus", "2", "--model", "h100-sxm")

    def setUp(self):
        super().setUp()
        self.kubelet.kill()
        self.py = PyKubelet(self.lab.dir / "k")
        self.addCleanup(self.py.stop)
        self.name = self.lab.dir / "nvidia-device-plugin"
        self.name.symlink_to(self.lab.mete)

    def run_one(self, *flags, env=None):
        ours = [f"--host-root={self.lab.host}", f"--driver-root={self.lab.host}", f"--driver-root-ctr-path={self.lab.host}",
                f"--kubelet-dir={self.lab.dir / 'k'}", f"--cdi-dir={self.lab.cdi}"]
        agent = Process("nvidia-device-plugin", [self.name, *ours, *flags], self.lab.dir / "agent.log", env)
        self.lab.processes.append(agent)
        return agent

    def answer(self, *flags, env=None):
        """What one gpu is answered with."""
        self.py.forget()
        agent = self.run_one(*flags, env=env)
        register = self.py.wait(10)
        self.assertIsNotNone(register, agent.said())
        plugin = self.py.plugin(register["endpoint"])
        try:
            first = sorted(d["ID"] for d in plugin.first_list())[0]
            return plugin.allocate({"container_requests": [{"devices_ids": [first]}]})["container_responses"][0]
        finally:
            plugin.close()
            self.assertEqual(agent.end(), 0)

    def test_precedence(self):
        config = f"--config-file={self.write_config('flags: {plugin: {deviceListStrategy: volume-mounts, passDeviceSpecs: true}}')}"
        plain = self.answer()
        self.assertEqual(list(plain), ["envs"])
        self.assertTrue(plain["envs"]["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-"))
        in_file = self.answer(config)
        self.assertIn("mounts", in_file)
        self.assertIn("devices", in_file)
        in_env = self.answer(config, env={"DEVICE_LIST_STRATEGY": "cdi-annotations", "PASS_DEVICE_SPECS": ""})
        self.assertEqual(list(in_env), ["annotations"])
        in_flag = self.answer(config, "--device-list-strategy=cdi-cri,envvar", "--pass-device-specs",
                              env={"DEVICE_LIST_STRATEGY": "cdi-annotations", "PASS_DEVICE_SPECS": "false"})
        self.assertEqual(sorted(in_flag), ["cdi_devices", "devices", "envs"])

    def test_set_to_empty(self):
        self.lab.set("driver", "unload")
        agent = self.run_one(env={"FAIL_ON_INIT_ERROR": ""})  # false, where unset is true
        agent.wait_said("driver.waiting")
        self.assertEqual(agent.end(), 0)
        agent = self.run_one(env={"DEVICE_LIST_STRATEGY": ""})
        until(10, "the agent ends", lambda: not agent.running())
        self.assertEqual(agent.end(), 1)
        self.assertIn("DEVICE_LIST_STRATEGY", agent.said())
