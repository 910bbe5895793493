# SPDX-License-Identifier: Apache-2.0
"""A config file that goes bad, moves, vanishes or is no file at all: the old config stays in force, whole, and the log says why."""
import os
import signal
import socket
import time

from faults import GPU, PLAIN, SHARED, TIME_SLICING, FaultCase, until


class ConfigFile(FaultCase):
    def start(self, *args, **kwargs):
        self.write_config(TIME_SLICING)
        self.seen = 0
        return super().start(*args, allocatable=32, resource=SHARED, **kwargs)

    def still_in_force(self):
        r = self.kubelet.resource(SHARED)
        self.assertEqual((r["capacity"], r["allocatable"]), (32, 32))
        self.assertTrue(self.agent.running())

    def rejected(self, *words):
        """Rejected since the last call, with all the words in the line."""
        until(15, f"rejected with {words}", lambda: any(all(w in line for w in words) for line in self.agent.lines("config.rejected")[self.seen:]))
        self.seen = len(self.agent.lines("config.rejected"))
        self.still_in_force()

    def replace(self, path):
        """`path` takes the config's place."""
        if self.config.is_dir() and not self.config.is_symlink():
            self.config.rmdir()
        elif path.is_dir() and not path.is_symlink():
            self.config.unlink()
        path.rename(self.config)

    def test_everything_but_a_config(self):
        self.start()
        new = self.lab.dir / "new"
        n = 0

        def text(content):
            new.write_bytes(content)

        def sock():
            s = socket.socket(socket.AF_UNIX)
            s.bind(str(new))
            s.close()

        bad = ((lambda: text(TIME_SLICING.replace("replicas: 4", "replicas: 0").encode()), "config.yaml:8"),
               (lambda: text(TIME_SLICING.replace("replicas: 4", "replicas: 2\n        replicas: 3").encode()), "config.yaml:9"),
               (lambda: text(TIME_SLICING.replace("nvidia.com/gpu", "nvidia.com/gpu/gpu").encode()), "config.yaml:7"),
               (lambda: text(b"version: v9\n"), "v9"),
               (lambda: text(b"version: v1\nflags: [\n"), "config.yaml:"),
               (lambda: text(b"\xff\xfe\x00"), "config.yaml"),
               (lambda: text(b"x" * (10 << 20)), "config.yaml"),
               (lambda: os.mkfifo(new), "pipe"),
               (lambda: new.mkdir(), "directory"),
               (sock, "config.yaml"),
               (lambda: new.symlink_to("/nonexistent/file"), "No such file"),
               (lambda: new.symlink_to("config.yaml"), "config.yaml"),
               (lambda: new.symlink_to("/dev/zero"), "config.yaml"))
        for make, word in bad:
            make()
            self.replace(new)
            n += 1
            with self.subTest(n=n, word=word):
                self.rejected(word)
        self.write_config(TIME_SLICING.replace("replicas: 4", "replicas: 2"))
        self.kubelet.wait(SHARED, capacity=16, allocatable=16, seconds=15)

    def test_emptied(self):
        """An empty file is no config: as while somebody writes it anew."""
        self.start()
        with open(self.config, "w"):
            pass
        self.rejected("empty")
        self.config.write_text(TIME_SLICING.replace("replicas: 4", "replicas: 3"))
        self.kubelet.wait(SHARED, allocatable=24, seconds=15)

    def test_deleted_and_back(self):
        self.start()
        self.config.unlink()
        self.rejected("No such file")
        self.write_config(TIME_SLICING.replace("replicas: 4", "replicas: 3"))
        self.kubelet.wait(SHARED, allocatable=24, seconds=15)

    def test_nothing_half_applied(self):
        """One wrong value at the end: the strategy before it is not taken either."""
        self.start("--device-list-strategy=envvar")
        self.write_config("version: v1\nflags:\n  plugin:\n    passDeviceSpecs: true\n" + TIME_SLICING.removeprefix("version: v1\n").replace("4", "no"))
        self.rejected("config.yaml:11")
        a = self.kubelet.admit("p", SHARED)
        self.assertEqual(a["devices"], [])
        self.agent.popen.send_signal(signal.SIGHUP)
        self.rejected("SIGHUP")
        self.assertEqual(self.kubelet.admit("q", SHARED)["devices"], [])

    def test_config_map(self):
        """As kubelet mounts one: the file is a link through ..data, and the swap of ..data is all that happens."""
        volume = self.lab.dir / "volume"
        volume.mkdir()

        def publish(n, text):
            d = volume / f"..2026_{n}"
            d.mkdir()
            (d / "config.yaml").write_text(text)
            (volume / "..data_tmp").symlink_to(d.name)
            (volume / "..data_tmp").rename(volume / "..data")

        publish(1, TIME_SLICING)
        (volume / "config.yaml").symlink_to("..data/config.yaml")
        self.config = volume / "config.yaml"
        FaultCase.start(self, allocatable=32, resource=SHARED)
        for n, replicas in ((2, 3), (3, 2), (4, 5)):
            publish(n, TIME_SLICING.replace("replicas: 4", f"replicas: {replicas}"))
            self.kubelet.wait(SHARED, capacity=8 * replicas, seconds=5)
        publish(5, "version: v1\nsharing: 7\n")
        self.agent.wait_said("config.rejected")
        self.assertEqual(self.kubelet.resource(SHARED)["allocatable"], 40)
        publish(6, PLAIN)
        self.kubelet.wait(GPU, allocatable=8, seconds=5)

    def test_link_to_another_folder(self):
        """The file behind a link changes: no event in the watched folder, found all the same."""
        other = self.lab.dir / "other"
        other.mkdir()
        (other / "real.yaml").write_text(TIME_SLICING)
        self.config = self.lab.dir / "linked.yaml"
        self.config.symlink_to(other / "real.yaml")
        FaultCase.start(self, allocatable=32, resource=SHARED)
        time.sleep(0.1)
        (other / "real.yaml").write_text(PLAIN)
        self.kubelet.wait(GPU, allocatable=8, seconds=25)

    def test_folder_replaced(self):
        """The config's folder itself is renamed away and made anew."""
        folder = self.lab.dir / "etc"
        folder.mkdir()
        self.config = folder / "config.yaml"
        self.config.write_text(TIME_SLICING)
        FaultCase.start(self, allocatable=32, resource=SHARED)
        folder.rename(self.lab.dir / "etc.old")
        time.sleep(0.2)
        folder.mkdir()
        self.config.write_text(TIME_SLICING.replace("replicas: 4", "replicas: 2"))
        self.kubelet.wait(SHARED, allocatable=16, seconds=25)

    def test_written_slowly(self):
        """Piece by piece in place, as a slow copy does it: the end counts, and halves are not in force."""
        self.start()
        text = TIME_SLICING.replace("replicas: 4", "replicas: 6")
        with open(self.config, "w") as f:
            for c in text:
                f.write(c)
                f.flush()
                time.sleep(0.001)
        self.kubelet.wait(SHARED, allocatable=48, seconds=5)
        lists = [e["text"] for e in self.kubelet.events() if e["kind"] == "list" and e["resource"] == SHARED]
        self.assertEqual(lists[-1], "capacity 48 allocatable 48")
        self.assertLess(len(lists), 4, lists)

    def test_bad_at_start(self):
        """At start nothing is in force yet: the agent ends and names place and value."""
        for text, words in ((TIME_SLICING.replace("replicas: 4", "replicas: -1"), ("config.yaml:8", "-1")), ("x" * (10 << 20), ("config.yaml",))):
            self.write_config(text)
            FaultCase.start(self, allocatable=None)
            until(10, "it ends", lambda: not self.agent.running())
            self.assertEqual(self.agent.end(), 1)
            for w in words:
                self.assertIn(w, self.agent.said())
