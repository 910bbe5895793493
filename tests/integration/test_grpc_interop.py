# SPDX-License-Identifier: Apache-2.0
"""Our gRPC in both roles against python3-grpcio, raw bytes on both sides."""
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from concurrent import futures

import grpc

BUILD = pathlib.Path(os.environ["METE_BUILD"]) / "tests" / "integration"
MIB = 1024 * 1024
WAIT = 20


def checksum(data):
    total = 0
    for byte in data:
        total = (total * 31 + byte) & 0xFFFFFFFF
    return total


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="mete-interop-")
        self.addCleanup(self.dir.cleanup)
        self.socket = os.path.join(self.dir.name, "s.sock")


class PythonCallsUs(Case):
    def setUp(self):
        super().setUp()
        self.server = subprocess.Popen([BUILD / "grpc-serve", self.socket], stdout=subprocess.PIPE)
        self.addCleanup(self.end)
        self.assertEqual(self.server.stdout.readline(), b"ready\n")
        self.channel = self.connect()

    def end(self):
        if self.server.poll() is None:
            self.server.kill()
        self.server.wait()
        self.server.stdout.close()

    def connect(self, *options):
        unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel("unix:" + self.socket, options=unlimited + list(options))
        self.addCleanup(channel.close)
        return channel

    def call(self, method, request=b"", channel=None, **kwargs):
        kwargs.setdefault("timeout", WAIT)
        return (channel or self.channel).unary_unary("/test.T/" + method)(request, **kwargs)

    def stream(self, method, request):
        return self.channel.unary_stream("/test.T/" + method)(request, timeout=WAIT)

    def fails(self, method, request=b"", channel=None, **kwargs):
        with self.assertRaises(grpc.RpcError) as caught:
            self.call(method, request, channel, **kwargs)
        return caught.exception

    def test_unary(self):
        for request in (b"", b"x", b"hello" * 1000, os.urandom(70000)):
            self.assertEqual(self.call("Echo", request), request)

    def test_big_messages(self):
        for size in (MIB, 4 * MIB - 1, 4 * MIB):
            request = os.urandom(size)
            self.assertEqual(self.call("Echo", request), request)

    def test_message_past_the_limit(self):
        e = self.fails("Echo", bytes(4 * MIB + 1))
        self.assertEqual(e.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn("4194305 bytes, at most 4194304", e.details())
        e = self.fails("Echo", bytes(40 * MIB))
        self.assertEqual(e.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertEqual(self.call("Echo", b"still there"), b"still there")

    def test_status_and_text(self):
        for code, text in ((5, "no such gpu"), (13, "größer als 100 % — 汉字\n\ttab"), (16, ""), (2, "x" * 3000)):
            e = self.fails("Fail", f"{code} {text}".encode())
            self.assertEqual(e.code().value[0], code)
            self.assertEqual(e.details(), text)

    def test_unknown_method(self):
        e = self.fails("Nothing")
        self.assertEqual(e.code(), grpc.StatusCode.UNIMPLEMENTED)
        self.assertIn("/test.T/Nothing", e.details())

    def test_compressed_request(self):
        e = self.fails("Echo", b"a" * 10000, compression=grpc.Compression.Gzip)
        self.assertEqual(e.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_large_metadata(self):
        e = self.fails("Echo", b"x", metadata=[("big", "v" * 20000)])
        self.assertIn(e.code(), (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL))
        self.assertEqual(self.call("Echo", b"y", metadata=[("some", "v" * 4000)]), b"y")

    def cancelled(self, at_least):
        for _ in range(200):
            if int(self.call("Cancelled")) >= at_least:
                return True
            time.sleep(0.01)
        return False

    def test_deadline(self):
        began = time.monotonic()
        e = self.fails("Never", timeout=0.2)
        self.assertEqual(e.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertLess(time.monotonic() - began, 5)
        self.assertTrue(self.cancelled(1))

    def test_cancel(self):
        call = self.channel.unary_unary("/test.T/Never").future(b"")
        time.sleep(0.05)
        call.cancel()
        self.assertTrue(self.cancelled(1))

    def test_stream_cancel(self):
        call = self.stream("Count", b"1000000 10")
        for _ in range(3):
            next(call)
        call.cancel()
        self.assertTrue(self.cancelled(1))

    def test_stream(self):
        got = [int(m.split()[0]) for m in self.stream("Count", b"50 100")]
        self.assertEqual(got, list(range(50)))
        self.assertEqual(list(self.stream("Count", b"0 0")), [])

    def test_big_stream(self):
        sizes = [len(m) for m in self.stream("Count", b"5 4194304")]
        self.assertEqual(sizes[-1], 4 * MIB)

    def test_slow_reader_gets_the_newest(self):
        call = self.stream("Burst", b"40 4194304")
        time.sleep(0.3)
        got = [int(m[:10].split()[0]) for m in call]
        self.assertEqual(got[-1], 39)
        self.assertLess(len(got), 5)

    def test_hundred_at_once(self):
        method = self.channel.unary_unary("/test.T/Echo")
        calls = [method.future(b"%d" % i * 50, timeout=WAIT) for i in range(100)]
        for i, call in enumerate(calls):
            self.assertEqual(call.result(), b"%d" % i * 50)

    def test_more_than_may_be_open(self):
        method = self.channel.unary_unary("/test.T/Sleep")
        calls = [method.future(b"100", timeout=WAIT) for _ in range(300)]
        for call in calls:
            self.assertEqual(call.result(), b"slept")

    def test_many_connections(self):
        channels = [self.connect() for _ in range(20)]
        calls = [c.unary_unary("/test.T/Echo").future(b"x" * 100000, timeout=WAIT) for c in channels for _ in range(5)]
        for call in calls:
            self.assertEqual(len(call.result()), 100000)

    def test_odd_authorities(self):
        for name in ("%2Fvar%2Flib%2Fkubelet%2Fdevice-plugins%2Fnvidia-gpu.sock", "/var/lib/x.sock", "x", "a b"):
            channel = self.connect(("grpc.default_authority", name))
            self.assertEqual(self.call("Echo", b"a", channel), b"a")

    def test_keepalive_pings(self):
        channel = self.connect(("grpc.keepalive_time_ms", 100), ("grpc.keepalive_timeout_ms", 1000),
                               ("grpc.http2.max_pings_without_data", 0), ("grpc.keepalive_permit_without_calls", 1))
        self.assertEqual(self.call("Sleep", b"1500", channel), b"slept")

    def test_drain(self):
        call = self.channel.unary_unary("/test.T/Sleep").future(b"400", timeout=WAIT)
        stream = self.stream("Count", b"1000000 10")
        next(stream)
        self.server.send_signal(signal.SIGTERM)
        for _ in range(200):
            if not os.path.exists(self.socket):
                break
            time.sleep(0.01)
        self.assertEqual(os.listdir(self.dir.name), [])
        with self.assertRaises(grpc.RpcError) as caught:
            list(stream)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(call.result(), b"slept")
        self.assertEqual(self.server.wait(WAIT), 0)

    def test_drain_with_a_call_that_never_ends(self):
        call = self.channel.unary_unary("/test.T/Never").future(b"", timeout=WAIT)
        time.sleep(0.1)
        self.server.send_signal(signal.SIGTERM)
        self.assertEqual(call.exception().code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(self.server.wait(WAIT), 0)

    def test_killed_server_leaves_a_socket_for_the_next(self):
        self.server.kill()
        self.server.wait()
        self.assertTrue(os.path.exists(self.socket))
        self.server.stdout.close()
        self.server = subprocess.Popen([BUILD / "grpc-serve", self.socket], stdout=subprocess.PIPE)
        self.assertEqual(self.server.stdout.readline(), b"ready\n")
        second = subprocess.run([BUILD / "grpc-serve", self.socket], capture_output=True, timeout=WAIT)
        self.assertEqual(second.returncode, 1)
        self.assertIn(b"another process answers", second.stderr)
        self.assertEqual(self.call("Echo", b"new", wait_for_ready=True), b"new")


class Handler(grpc.GenericRpcHandler):
    def __init__(self):
        self.gone = threading.Event()
        self.metadata = {}

    def service(self, details):
        name = details.method.rsplit("/", 1)[1]
        self.metadata = dict(details.invocation_metadata)
        if name == "Count":
            return grpc.unary_stream_rpc_method_handler(self.count)
        method = {"Echo": self.echo, "Fail": self.fail, "Never": self.never, "Large": self.large, "Sleep": self.sleep}.get(name)
        return grpc.unary_unary_rpc_method_handler(method) if method else None

    def echo(self, request, _):
        return request

    def fail(self, request, context):
        code, text = request.decode().split(" ", 1)
        context.abort({c.value[0]: c for c in grpc.StatusCode}[int(code)], text)

    def never(self, _, context):
        context.add_callback(self.gone.set)
        self.gone.wait(WAIT)
        return b""

    def sleep(self, request, _):
        time.sleep(int(request) / 1000)
        return b"slept"

    def large(self, request, _):
        return bytes(int(request))

    def count(self, request, context):
        number, size, code = (int(v) for v in request.split())
        for i in range(number):
            yield b"%d " % i + bytes(size)
        if code:
            context.abort(grpc.StatusCode.ABORTED, "gebührt — 了")


class WeCallPython(Case):
    def setUp(self):
        super().setUp()
        self.handler = Handler()
        unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self.server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[self.handler], options=unlimited)
        self.server.add_insecure_port("unix:" + self.socket)
        self.server.start()
        self.addCleanup(self.stop)

    def stop(self):
        self.handler.gone.set()
        self.server.stop(0).wait(WAIT)

    def start(self, method, timeout, count, request):
        return subprocess.Popen([BUILD / "grpc-call", self.socket, "/test.T/" + method, str(timeout), str(count), request], stdout=subprocess.PIPE)

    def call(self, method, request="", timeout=0, count=1):
        p = self.start(method, timeout, count, request)
        out, _ = p.communicate(timeout=WAIT)
        return out.decode().splitlines()

    def test_unary(self):
        self.assertEqual(self.call("Echo", "hello"), [f"message 5 {checksum(b'hello')} hello", "status 0 "])
        self.assertEqual(self.call("Echo", "", timeout=5000), ["message 0 0 ", "status 0 "])
        self.assertTrue(self.handler.metadata["user-agent"].startswith("mete/"))

    def test_many_at_once(self):
        lines = self.call("Echo", "hello", count=128)
        self.assertEqual(lines.count("status 0 "), 128)
        self.assertEqual(len(lines), 256)

    def test_big_messages(self):
        for size in (MIB, 4 * MIB):
            self.assertEqual(self.call("Echo", f"@{size}"), [f"message {size} 0 ", "status 0 "])

    def test_past_the_limit(self):
        self.assertEqual(self.call("Large", str(4 * MIB + 1)), ["status 8 message of 4194305 bytes, at most 4194304 are accepted"])
        lines = self.call("Echo", f"@{4 * MIB + 1}")
        self.assertEqual(len(lines), 1)
        self.assertIn("4194305 bytes, at most 4194304 are sent", lines[0])

    def test_status_and_text(self):
        self.assertEqual(self.call("Fail", "5 größer — 汉字 100 %"), ["status 5 größer — 汉字 100 %"])
        self.assertEqual(self.call("Fail", "14 "), ["status 14 "])

    def test_unknown_method(self):
        self.assertTrue(self.call("Nope")[0].startswith("status 12 "))

    def test_deadline(self):
        lines = self.call("Never", timeout=200)  # both sides keep the deadline: either one may be first
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], "^status 4 (no answer within 200 ms|Deadline Exceeded)$")
        self.assertTrue(self.handler.gone.wait(WAIT))

    def test_stream(self):
        lines = self.call("Count", "100 50 0", timeout="stream", count=0)
        self.assertEqual([int(line.split()[3].strip("\0")) for line in lines[:-1]], list(range(100)))
        self.assertEqual(lines[-1], "status 0 ")

    def test_stream_of_big_messages(self):
        lines = self.call("Count", "5 4000000 0", timeout="stream", count=0)
        self.assertEqual([line.split()[1] for line in lines[:-1]], ["4000002"] * 5)
        self.assertEqual(lines[-1], "status 0 ")

    def test_stream_with_an_error(self):
        lines = self.call("Count", "2 5 1", timeout="stream", count=0)
        self.assertEqual(len(lines), 3)
        self.assertEqual(lines[-1], "status 10 gebührt — 了")

    def test_server_stops(self):
        p = self.start("Sleep", 0, 1, "300")
        time.sleep(0.1)
        self.server.stop(WAIT)
        out, _ = p.communicate(timeout=WAIT)
        self.assertIn("status 0 ", out.decode().splitlines())

    def test_server_stops_a_stream(self):
        p = self.start("Count", "stream", 0, "100000000 5 0")
        p.stdout.readline()
        self.server.stop(0)
        out, _ = p.communicate(timeout=WAIT)
        self.assertRegex(out.decode().splitlines()[-1], "^(status (1|14) |closed)")

    def test_server_vanishes(self):
        script = ("import grpc,os,sys,threading\nfrom concurrent import futures\n"
                  "class H(grpc.GenericRpcHandler):\n"
                  "    def service(self, d): return grpc.unary_unary_rpc_method_handler(lambda r, c: os.kill(os.getpid(), 9))\n"
                  "s = grpc.server(futures.ThreadPoolExecutor(1), handlers=[H()])\n"
                  "s.add_insecure_port('unix:' + sys.argv[1]); s.start(); print('ready', flush=True); s.wait_for_termination()\n")
        path = os.path.join(self.dir.name, "v.sock")
        p = subprocess.Popen(["/usr/bin/python3", "-c", script, path], stdout=subprocess.PIPE)
        self.addCleanup(p.stdout.close)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        out = subprocess.run([BUILD / "grpc-call", path, "/test.T/X", "0", "3", "r"], capture_output=True, timeout=WAIT).stdout
        p.wait()
        self.assertEqual(out.decode().splitlines()[:3], ["status 14 the peer closed the connection"] * 3)
        out = subprocess.run([BUILD / "grpc-call", path, "/test.T/X", "0", "1", "r"], capture_output=True, timeout=WAIT).stdout
        self.assertIn("Connection refused", out.decode())
