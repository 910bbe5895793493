# SPDX-License-Identifier: Apache-2.0
"""Kubelet gone for long, other things in place of its socket, servers that misbehave; two agents at once."""
import os
import signal
import socket
import threading
import time

import grpc
from faults import GPU, FaultCase, cpu_seconds, descriptors, private_kib, threads, until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Stranger(threading.Thread):
    """A server on kubelet.sock that is none; `talk` gets each connection."""

    def __init__(self, path, talk):
        super().__init__(daemon=True)
        self.talk, self.path, self.count, self.kept = talk, path, 0, []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(16)

    def run(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            self.count += 1
            s.settimeout(5)
            try:
                self.talk(self, s)
            except OSError:
                pass

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in self.kept:
            s.close()
        self.path.unlink(missing_ok=True)


def keep_silent(me, s):
    me.kept.append(s)


def close_at_once(me, s):
    s.close()


def close_in_the_middle(me, s):
    s.recv(30)
    s.sendall(b"\0\0\0\4\0\0\0\0\0")
    s.recv(10)
    s.close()


def other_protocol(me, s):
    s.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    s.close()


def garbage(me, s):
    s.sendall(os.urandom(65536))
    s.close()


def settings_then_garbage(me, s):
    s.sendall(b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\1\4\0\0\0\1" + b"\xff" * 8)
    me.kept.append(s)


def endless(me, s):
    s.sendall(b"\0\0\0\4\0\0\0\0\0")
    for _ in range(2000):
        s.sendall(b"\0\0\x08\6\0\0\0\0\0" + b"p" * 8)  # PING
    me.kept.append(s)


def goes_away(me, s):
    s.sendall(b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\7\0\0\0\0\0" + b"\0\0\0\0\0\0\0\x0b")
    me.kept.append(s)


class OtherSockets(FaultCase):
    def socket_path(self):
        return self.lab.kubelet_dir / "device-plugins/kubelet.sock"

    def calm(self, began, cpu, seconds):
        """It waits in a back-off: no spinning, no flood of lines."""
        time.sleep(max(0, began + seconds - time.monotonic()))
        self.assertTrue(self.agent.running(), self.agent.said()[-800:])
        self.assertLess(cpu_seconds(self.agent.pid) - cpu, 0.25)
        self.assertLess(len(self.agent.said().splitlines()), 40)
        self.answers()

    def test_no_socket_at_all(self):
        """A file, a dangling link, a folder, a pipe where the socket should be; then kubelet comes."""
        path = self.socket_path()
        self.kubelet.ask("stop")
        makes = (lambda: path.write_text("x"), lambda: path.symlink_to("/nonexistent/kubelet.sock"), path.mkdir, lambda: os.mkfifo(path))
        makes[0]()
        self.start(allocatable=None)
        for make in makes:
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
            make()
            began, cpu = time.monotonic(), cpu_seconds(self.agent.pid)
            self.calm(began, cpu, 0.7)
        path.unlink()
        self.kubelet.ask("start")
        self.settles(seconds=5)

    def test_strangers(self):
        """Servers that say nothing, hang up, speak HTTP/1 or rubbish. Kubelet's return is noticed at once, whatever was there before."""
        self.kubelet.ask("stop")
        path = self.socket_path()
        path.unlink(missing_ok=True)
        self.start(allocatable=None)
        for talk in (keep_silent, close_at_once, close_in_the_middle, other_protocol, garbage, settings_then_garbage, endless, goes_away):
            with self.subTest(talk=talk.__name__):
                stranger = Stranger(path, talk)
                stranger.start()
                began, cpu = time.monotonic(), cpu_seconds(self.agent.pid)
                until(3, "it is dialled", lambda: stranger.count)
                self.calm(began, cpu, 1.2)
                self.assertLess(stranger.count, 60)
                stranger.stop()
                self.kubelet.ask("start")
                self.kubelet.wait(allocatable=8, seconds=3)
                self.kubelet.ask("stop")
                path.unlink(missing_ok=True)
        self.assertLess(threads(self.agent.pid), 5)

    def test_refuses_the_version(self):
        """Told once, not tried again until kubelet's socket is another."""
        text = 'requested API version "v1beta1" is not supported by kubelet. Supported version is ["v3"]'
        self.kubelet.ask("behave", refuse=text)
        self.start(allocatable=None)
        self.agent.wait_said("v3")
        began = time.monotonic()
        time.sleep(1)
        tries = [e for e in self.kubelet.events() if e["kind"] == "refused" or "refuse" in e["text"]]
        self.assertLess(len(tries), 3)
        self.calm(began, cpu_seconds(self.agent.pid), 0.2)
        self.kubelet.ask("behave")
        self.kubelet.ask("restart")
        self.settles(seconds=5)

    def test_two_hundred_restarts(self):
        """Nothing is leaked: descriptors, threads, memory."""
        self.start()
        for _ in range(20):
            self.kubelet.ask("restart")
            self.kubelet.wait(allocatable=8)
        time.sleep(0.3)
        before = descriptors(self.agent.pid), threads(self.agent.pid)
        memory = private_kib(self.agent.pid)
        for n in range(200):
            self.kubelet.ask("restart")
            if n % 3:
                self.kubelet.wait(allocatable=8, seconds=5)
        self.kubelet.wait(allocatable=8, seconds=5)
        until(5, "as many descriptors and threads as before", lambda: (descriptors(self.agent.pid), threads(self.agent.pid)) == before)
        self.assertLess(private_kib(self.agent.pid), memory + 128)

    def test_gone_for_long(self):
        """No kubelet directory at all, then an empty one, then kubelet."""
        self.start()
        self.kubelet.kill()
        self.kubelet.close()
        plugins = self.lab.kubelet_dir / "device-plugins"
        plugins.rename(self.lab.kubelet_dir / "away")
        began, cpu = time.monotonic(), cpu_seconds(self.agent.pid)
        self.lab.set("gpu", "3", "xid", "79")
        self.calm(began, cpu, 3)
        plugins.mkdir()
        time.sleep(0.5)
        self.kubelet = self.lab.start_kubelet()
        self.kubelet.wait(allocatable=7, seconds=15)
        self.lab.set("gpu", "3", "reset")
        self.settles(seconds=30)


class TwoAgents(FaultCase):
    def sockets(self):
        return sorted(p.name for p in (self.lab.kubelet_dir / "device-plugins").iterdir() if "nvidia" in p.name)

    def test_ten_updates_under_load(self):
        """A rolling update, ten times, with pods coming and going: registered again within a moment, one socket, exactly once."""
        agents = [self.start()]
        over, refused = threading.Event(), []

        def load():
            n = 0
            while not over.is_set():
                pod = f"p{n % 6}"
                got = self.kubelet.try_ask("admit", pod=pod, container="c", resource=GPU, n=1)
                if not got["ok"]:
                    refused.append(got["error"])
                self.kubelet.try_ask("end", pod=pod)
                n += 1
                time.sleep(0.01)

        t = threading.Thread(target=load, daemon=True)
        t.start()
        gaps = []
        try:
            for _ in range(10):
                new = self.launch(f"--config-file={self.config}")
                until(10, "the one before ends", lambda: not agents[-1].running())
                left = time.monotonic()
                self.assertEqual(agents[-1].end(), 0)
                new.wait_said("plugin.listed")
                gaps.append(time.monotonic() - left)
                agents.append(new)
                self.assertEqual(self.sockets(), ["nvidia-gpu.sock"])
                self.assertEqual(self.lab.status()["pid"], new.pid)
        finally:
            over.set()
            t.join(10)
        self.settles()
        self.assertLess(sorted(gaps)[5], 0.5, gaps)
        self.audit()

    def test_predecessor_that_hangs(self):
        """The successor waits and says for whom; when that is gone it works. Never two at once."""
        first = self.start()
        os.kill(first.pid, signal.SIGSTOP)
        second = self.launch(f"--config-file={self.config}")
        line = second.wait_said("agent.standby", seconds=15)
        self.assertIn(str(first.pid), line)
        self.assertFalse(second.lines("plugin.registered"))
        first.kill()
        second.wait_said("plugin.listed", seconds=5)
        self.settles()
        self.assertEqual(self.lab.status()["pid"], second.pid)

    def test_five_at_once(self):
        """All started in one moment: one of them works in the end, the others have ended cleanly or wait."""
        agents = [self.launch(f"--config-file={self.config}") for _ in range(5)]
        self.kubelet.wait(allocatable=8, seconds=15)
        until(30, "one is left", lambda: sum(a.running() for a in agents) == 1, 0.1)
        self.agent = next(a for a in agents if a.running())
        self.assertEqual({a.end() for a in agents if a is not self.agent}, {0})
        self.settles()
        self.assertEqual(self.sockets(), ["nvidia-gpu.sock"])
        self.assertEqual(self.lab.status()["pid"], self.agent.pid)
        self.assertIsNotNone(self.admit("p"))

    def test_other_state_directory(self):
        """Two agents that do not know of each other: the second does not take over the first one's socket."""
        first = self.start()
        self.lab.state = self.lab.dir / "state2"
        second = self.launch(f"--config-file={self.config}")
        second.wait_said("plugin.not-registered", seconds=10)
        time.sleep(1)
        self.assertEqual(self.sockets(), ["nvidia-gpu.sock"])
        self.assertIsNotNone(self.admit("p"))
        self.assertEqual(second.end(), 0)
        self.assertEqual(self.sockets(), ["nvidia-gpu.sock"])
        self.agent = first
        self.settles()


class HostileClients(FaultCase):
    """Whoever can open our socket: limits hold, and kubelet is served."""

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(5)
        s.connect(str(self.lab.kubelet_dir / "device-plugins/nvidia-gpu.sock"))
        return s

    def served(self, within=0.5):
        began = time.monotonic()
        self.assertIsNotNone(self.admit(f"p{began}"))
        self.end(f"p{began}")
        self.assertLess(time.monotonic() - began, within)
        self.answers(within=0.15)

    def headers(self, stream, path, flags=4):
        """A HEADERS frame of a gRPC call, literal fields without compression."""
        block = b""
        for name, value in ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
                            ("content-type", "application/grpc"), ("te", "trailers")):
            block += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        return len(block).to_bytes(3, "big") + bytes([1, flags]) + stream.to_bytes(4, "big") + block

    def call(self, stream, path, body=b""):
        message = b"\0" + len(body).to_bytes(4, "big") + body
        return self.headers(stream, path) + len(message).to_bytes(3, "big") + b"\0\1" + stream.to_bytes(4, "big") + message

    def start_call(self, path="/v1beta1.DevicePlugin/ListAndWatch", window=None):
        s = self.connect()
        settings = b"" if window is None else b"\0\4" + window.to_bytes(4, "big")
        s.sendall(PREFACE + len(settings).to_bytes(3, "big") + b"\4\0\0\0\0\0" + settings + self.call(1, path))
        return s

    def test_slow_readers(self):
        """Streams that never read, over thousands of changes: only the newest list is kept for them."""
        self.start()
        slow = [self.start_call(window=w) for w in (0, 0, 1, 100, 65535, 65535)]
        time.sleep(0.2)
        memory = private_kib(self.agent.pid)
        for n in range(150):
            self.lab.set("gpu", str(n % 8), "xid", "79")
            self.lab.set("gpu", str(n % 8), "reset")
        self.lab.set("gpu", "3", "xid", "79")
        self.lab.set("gpu", "all", "xid", "79")
        self.kubelet.wait(allocatable=0, seconds=5)
        self.assertLess(private_kib(self.agent.pid), memory + 1024)
        self.lab.set("gpu", "all", "reset")
        for s in slow:
            s.close()
        self.settles(seconds=40)

    def test_thousand_connections(self):
        self.start()
        socks = []
        for _ in range(1000):
            try:
                s = self.connect()
                s.sendall(PREFACE + b"\0\0\0\4\0\0\0\0\0")
            except OSError:
                continue
            socks.append(s)
            if len(socks) % 250 == 0:
                self.answers(within=0.15)
        self.assertLess(descriptors(self.agent.pid), 200)
        self.served()
        for s in socks:
            s.close()
        until(5, "descriptors are given back", lambda: descriptors(self.agent.pid) < 60)
        self.kubelet.ask("restart")
        self.settles(seconds=5)

    def test_half_open(self):
        """Half a preface, half a frame, half a message, then nothing."""
        self.start()
        whole = PREFACE + b"\0\0\0\4\0\0\0\0\0" + self.call(1, "/v1beta1.DevicePlugin/Allocate", b"x" * 300)
        socks = []
        for n in range(0, len(whole) - 1, 23):
            s = self.connect()
            s.sendall(whole[:n])
            socks.append(s)
        self.served()
        for s in socks:
            s.close()
        self.served()

    def test_floods(self):
        """Frames without end of each kind that costs the sender little."""
        self.start()
        zero4 = b"\0\0\0\0"
        floods = {
            "ping": b"\0\0\x08\6\0" + zero4 + b"12345678",
            "settings": b"\0\0\0\4\0" + zero4,
            "reset": None,
            "empty data": self.headers(1, "/v1beta1.DevicePlugin/Allocate") + b"\0\0\0\0\0\0\0\0\1",
            "priority": b"\0\0\5\2\0\0\0\0\1" + zero4 + b"\1",
            "continuation": self.headers(1, "/x", flags=0) + b"\0\0\1\x09\0\0\0\0\1\0",
            "unknown": b"\0\0\4\xee\0" + zero4 + zero4,
        }
        memory = private_kib(self.agent.pid)
        for name, frame in floods.items():
            with self.subTest(name=name):
                s = self.connect()
                s.settimeout(0.5)
                sent, stream = 0, 1
                try:
                    s.sendall(PREFACE + b"\0\0\0\4\0" + zero4)
                    for _ in range(4000):
                        if frame is None:
                            part = self.headers(stream, "/v1beta1.DevicePlugin/ListAndWatch", flags=5) + b"\0\0\4\3\0" + stream.to_bytes(4, "big") + zero4
                            stream += 2
                        else:
                            part = frame
                        s.sendall(part)
                        sent += 1
                except OSError:
                    pass
                self.served()
                s.close()
        self.assertLess(private_kib(self.agent.pid), memory + 2048)
        self.settles(seconds=5)

    def test_many_calls_and_large_messages(self):
        """Streams up to the limit on one connection, messages past it, requests that are no requests."""
        self.start()
        channel = grpc.insecure_channel(f"unix:{self.lab.kubelet_dir}/device-plugins/nvidia-gpu.sock", options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)])
        self.addCleanup(channel.close)
        base = "/v1beta1.DevicePlugin/"
        for body in (b"x" * (5 << 20), os.urandom(1 << 20), b"\x0a\xff\xff\xff\xff\x0f", b"\x0a" * 100000, b"\x0a\x00" * 200000):
            for method in ("Allocate", "GetPreferredAllocation", "GetDevicePluginOptions", "PreStartContainer", "Nothing"):
                try:
                    channel.unary_unary(base + method)(body, timeout=5)
                except grpc.RpcError as e:
                    self.assertIsNot(e.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        streams = [channel.unary_stream(base + "ListAndWatch")(b"", timeout=30) for _ in range(300)]
        time.sleep(0.5)
        self.served()
        for s in streams:
            s.cancel()
        until(5, "the streams are let go", lambda: True)
        self.served()
        self.settles(seconds=5)

    def test_agent_sock(self):
        """The command socket: many connections, half requests, readers that do not read, nonsense."""
        self.start()
        path = str(self.lab.state / "agent.sock")
        socks = []
        for n in range(100):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(1)
            try:
                s.connect(path)
                s.sendall((b"", b"stat", b"status\n", b"\0" * 300, b"leave", b"nonsense\n")[n % 6])
            except OSError:
                pass
            socks.append(s)
        self.assertIsNotNone(self.admit("p"))
        for s in socks:
            s.close()
        until(3, "it answers", lambda: self.lab.run("status", f"--state-dir={self.lab.state}", "-o", "json", code=None))
        self.answers()
        self.settles()
