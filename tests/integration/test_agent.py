# SPDX-License-Identifier: Apache-2.0
"""The agent's ways through the house, each against a simulated host and the small kubelet."""
import os
import signal
import stat
import time

from base import GPU, SHARED, LabCase
from lab import until

TIME_SLICING = """version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: 4
"""


class Publish(LabCase):
    def test_registers_and_lists(self):
        self.start()
        r = self.kubelet.resource()
        self.assertEqual((r["capacity"], r["allocatable"], r["endpoint"]), (8, 8, "nvidia-gpu.sock"))
        self.assertTrue(all(d["id"].startswith("GPU-") for d in r["devices"]))
        status = self.lab.status()
        self.assertEqual(sorted(g["uuid"] for g in status["gpus"]), sorted(d["id"] for d in r["devices"]))

    def test_end_leaves_nothing(self):
        self.start()
        self.assertEqual(self.agent.end(), 0)
        left = [p.name for p in (self.lab.kubelet_dir / "device-plugins").iterdir() if p.name.startswith("nvidia")]
        self.assertEqual(left, [])
        until(5, "kubelet sees it go", lambda: not self.kubelet.resource()["registered"])

    def test_starts_before_kubelet(self):
        self.kubelet.ask("stop")
        self.start(allocatable=None)
        time.sleep(0.5)
        self.kubelet.ask("start")
        self.kubelet.wait(allocatable=8)

    def test_drop_in_name(self):
        """As the chart starts it: by the peer's name, with its environment."""
        link = self.lab.dir / "nvidia-device-plugin"
        link.symlink_to(self.lab.mete)
        from lab import Process
        p = Process("nvidia-device-plugin", [link, *self.lab.agent_options()], self.lab.dir / "agent.log",
                    {"MIG_STRATEGY": "none", "FAIL_ON_INIT_ERROR": "true", "DEVICE_LIST_STRATEGY": "envvar"})
        self.lab.processes.append(p)
        self.kubelet.wait(allocatable=8)
        self.assertEqual(self.kubelet.admit("p")["envs"]["NVIDIA_VISIBLE_DEVICES"][:4], "GPU-")


class Grant(LabCase):
    def test_one_gpu_by_each_strategy(self):
        self.start("--device-list-strategy=envvar,cdi-cri", "--pass-device-specs")
        a = self.kubelet.admit("p")
        uuid = a["ids"][0]
        self.assertEqual(a["envs"]["NVIDIA_VISIBLE_DEVICES"], uuid)
        self.assertTrue(any(d.endswith("=" + uuid) for d in a["cdi_devices"]), a["cdi_devices"])
        gpu_nodes = [d for d in a["devices"] if d["container_path"].removeprefix("/dev/nvidia").isdigit()]
        self.assertEqual(len(gpu_nodes), 1)
        self.assertEqual(gpu_nodes[0]["host_path"], str(self.lab.host) + gpu_nodes[0]["container_path"])

    def test_eight_and_no_ninth(self):
        self.start()
        ids = [self.kubelet.admit(f"p{i}")["ids"][0] for i in range(8)]
        self.assertEqual(len(set(ids)), 8)
        self.assertIn("Available: 0", self.kubelet.refusal("ninth"))
        self.kubelet.end_pod("p3")
        self.assertEqual(self.kubelet.admit("tenth")["ids"], [ids[3]])

    def test_four_gpus_in_one_container(self):
        self.start()
        a = self.kubelet.admit("p", n=4)
        self.assertEqual(len(a["ids"]), 4)
        self.assertEqual(sorted(a["ids"]), sorted(a["preferred"]))


class Restarts(LabCase):
    def test_kubelet_restarts(self):
        self.start()
        held = self.kubelet.admit("p")["ids"]
        for _ in range(3):
            self.kubelet.ask("restart")
            self.kubelet.wait(allocatable=8)
        again = self.kubelet.admit("p")
        self.assertEqual((again["ids"], again["reused"]), (held, True))
        self.assertNotIn(held[0], self.kubelet.admit("q", n=7)["ids"])

    def test_kubelet_gone_for_a_while(self):
        self.start()
        self.kubelet.ask("stop")
        time.sleep(3)
        self.assertTrue(self.agent.running())
        self.kubelet.ask("start")
        self.kubelet.wait(allocatable=8, seconds=5)

    def test_socket_removed(self):
        """Somebody deletes our socket: it is made and registered anew."""
        self.start()
        before = self.kubelet.resource()["lists"]
        (self.lab.kubelet_dir / "device-plugins/nvidia-gpu.sock").unlink()
        until(10, "registered again", lambda: self.kubelet.resource()["lists"] > before)
        self.kubelet.wait(allocatable=8)
        self.kubelet.admit("p")

    def test_agent_killed(self):
        """Nothing granted is given again by the next agent."""
        self.start()
        held = {self.kubelet.admit(f"p{i}")["ids"][0] for i in range(3)}
        self.agent.end(signal.SIGKILL)
        self.start()
        rest = {self.kubelet.admit(f"q{i}")["ids"][0] for i in range(5)}
        self.assertEqual(held & rest, set())
        self.assertIn("Available: 0", self.kubelet.refusal("more"))

    def test_two_agents(self):
        """The second waits, the first hands over; kubelet never loses the list for good."""
        first = self.start()
        second = self.lab.start_agent()
        until(20, "the first ends", lambda: not first.running())
        self.assertEqual(first.end(), 0)
        second.wait_said("plugin.listed")
        self.kubelet.wait(allocatable=8)
        self.assertEqual(self.lab.status()["pid"], second.pid)


class Health(LabCase):
    def unhealthy(self):
        return {d["id"] for d in self.kubelet.resource()["devices"] if not d["healthy"]}

    def test_xid_and_reset(self):
        self.start()
        uuid = self.lab.status()["gpus"][3]["uuid"]
        self.lab.set("gpu", "3", "xid", "79")
        self.kubelet.wait(allocatable=7)
        self.assertEqual(self.unhealthy(), {uuid})
        self.assertIn("79", self.lab.status()["gpus"][3]["text"] + self.lab.status()["gpus"][3]["reason"])
        self.lab.set("gpu", "3", "reset")
        self.kubelet.wait(allocatable=8, seconds=30)

    def test_application_xid_changes_nothing(self):
        self.start()
        lists = self.kubelet.resource()["lists"]
        self.lab.set("gpu", "3", "xid", "13")
        self.agent.wait_said("gpu.event")
        time.sleep(0.3)
        r = self.kubelet.resource()
        self.assertEqual((r["allocatable"], r["lists"]), (8, lists))

    def test_lost_gpu(self):
        """A GPU whose handle fails is one lost GPU, not an empty node."""
        self.lab.set("gpu", "5", "lost")
        self.start(allocatable=7)
        self.assertEqual(len(self.lab.status()["gpus"]), 8)

    def test_worker_killed(self):
        self.start()
        pid = self.lab.status()["workerPid"]
        os.kill(pid, signal.SIGKILL)
        until(15, "a new worker", lambda: self.lab.status()["workerPid"] not in (0, pid))
        self.kubelet.wait(allocatable=8, seconds=15)
        self.assertTrue(self.agent.running())
        self.kubelet.admit("p")

    def test_driver_unloaded_and_back(self):
        self.start()
        self.lab.set("driver", "unload")
        self.kubelet.wait(allocatable=0, seconds=30)
        self.lab.set("driver", "load")
        self.kubelet.wait(allocatable=8, seconds=60)

    def test_hung_call(self):
        """A driver call that hangs costs the worker; answers to kubelet go on."""
        self.start()
        self.lab.set("call", "nvmlDeviceGetHandleByIndex_v2", "hang")
        os.kill(self.lab.status()["workerPid"], signal.SIGKILL)
        began = time.monotonic()
        self.assertEqual(len(self.kubelet.admit("p")["ids"]), 1)
        self.assertLess(time.monotonic() - began, 2)
        self.lab.set("call", "nvmlDeviceGetHandleByIndex_v2", "ok")
        self.kubelet.wait(allocatable=8, seconds=60)


class Config(LabCase):
    def test_hot_reload_on_change_and_on_sighup(self):
        config = self.write_config("version: v1\n")
        self.start(f"--config-file={config}")
        self.write_config(TIME_SLICING)
        self.kubelet.wait(SHARED, allocatable=32, seconds=15)
        self.kubelet.wait(GPU, allocatable=0)
        config.write_text(TIME_SLICING.replace("replicas: 4", "replicas: 2"))
        self.agent.popen.send_signal(signal.SIGHUP)
        self.kubelet.wait(SHARED, allocatable=16, seconds=15)

    def test_bad_config_changes_nothing(self):
        config = self.write_config(TIME_SLICING)
        self.start(f"--config-file={config}", allocatable=32, resource=SHARED)
        self.write_config(TIME_SLICING.replace("replicas: 4", "replicas: four"))
        line = self.agent.wait_said("config.rejected")
        self.assertIn("config.yaml:8:", line)
        self.kubelet.wait(SHARED, allocatable=32)
        self.write_config(TIME_SLICING.replace("replicas: 4", "replicas: 3"))
        self.kubelet.wait(SHARED, allocatable=24, seconds=15)

    def test_greedy_request(self):
        config = self.write_config(TIME_SLICING)
        self.start(f"--config-file={config}", allocatable=32, resource=SHARED)
        self.assertIn("maximum request size for shared resources is 1", self.kubelet.refusal("p", SHARED, 2))
        self.assertEqual(len(self.kubelet.admit("q", SHARED)["ids"]), 1)

    def test_unknown_key_names_the_nearest(self):
        config = self.write_config(TIME_SLICING.replace("replicas:", "replica:"))
        self.start(f"--config-file={config}", allocatable=None)
        until(10, "the agent ends", lambda: not self.agent.running())
        self.assertNotEqual(self.agent.end(), 0)
        said = self.agent.said()
        self.assertIn("config.yaml:8:", said)
        self.assertIn("replicas", said)


class State(LabCase):
    def test_read_only_state_directory(self):
        """Grants go on; the agent says that it cannot keep its records."""
        if os.geteuid() == 0:
            self.lab.state.mkdir()
            (self.lab.state / "ledger.json").mkdir()  # even root cannot replace a folder by a file
        else:
            self.lab.state.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
        self.start(allocatable=None)
        until(10, "it serves, or ends and says why", lambda: not self.agent.running() or (self.kubelet.resource() or {}).get("allocatable") == 8)
        self.assertIn("ledger", self.agent.said())
