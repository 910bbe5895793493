# SPDX-License-Identifier: Apache-2.0
"""Kubelet's side of the device plugin API on python3-grpcio: another implementation than ours on every byte.

Messages are dicts in the JSON form of the recordings: names of the .proto file, empty fields left out.
"""
import pathlib
import queue
from concurrent import futures

import grpc

TEXT, INT, BOOL = "text", "int", "bool"
OPTIONS = {1: ("pre_start_required", BOOL), 2: ("get_preferred_allocation_available", BOOL)}
REGISTER = {1: ("version", TEXT), 2: ("endpoint", TEXT), 3: ("resource_name", TEXT), 4: ("options", OPTIONS)}
DEVICE = {1: ("ID", TEXT), 2: ("health", TEXT), 3: ("topology", {1: ("nodes", [{1: ("ID", INT)}])})}
LIST = {1: ("devices", [DEVICE])}
PREFERRED = {1: ("container_requests", [{1: ("available_deviceIDs", [TEXT]), 2: ("must_include_deviceIDs", [TEXT]), 3: ("allocation_size", INT)}])}
PREFERRED_ANSWER = {1: ("container_responses", [{1: ("deviceIDs", [TEXT])}])}
ALLOCATE = {1: ("container_requests", [{1: ("devices_ids", [TEXT])}])}
PAIR = {1: ("key", TEXT), 2: ("value", TEXT)}
MOUNT = {1: ("container_path", TEXT), 2: ("host_path", TEXT), 3: ("read_only", BOOL)}
SPEC = {1: ("container_path", TEXT), 2: ("host_path", TEXT), 3: ("permissions", TEXT)}
ALLOCATE_ANSWER = {1: ("container_responses", [{1: ("envs", {"map": PAIR}), 2: ("mounts", [MOUNT]), 3: ("devices", [SPEC]),
                                                4: ("annotations", {"map": PAIR}), 5: ("cdi_devices", [{1: ("name", TEXT)}])}])}


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def encode_field(number, kind, value):
    if isinstance(kind, list):
        return b"".join(encode_field(number, kind[0], v) for v in value)
    if kind in (INT, BOOL):
        return varint(number << 3) + varint(int(value))
    body = value.encode() if kind == TEXT else encode(kind, value)
    return varint(number << 3 | 2) + varint(len(body)) + body


def encode(schema, message):
    return b"".join(encode_field(number, kind, message[name]) for number, (name, kind) in schema.items() if message.get(name) is not None)


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def decode(schema, data):
    out, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        name, kind = schema[tag >> 3]
        value, at = read_varint(data, at)
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        if isinstance(kind, list):
            out.setdefault(name, []).append(value.decode() if kind[0] == TEXT else decode(kind[0], value))
        elif isinstance(kind, dict) and "map" in kind:
            pair = decode(kind["map"], value)
            out.setdefault(name, {})[pair.get("key", "")] = pair.get("value", "")
        else:
            out[name] = decode(kind, value) if isinstance(kind, dict) else value.decode() if kind == TEXT else bool(value) if kind == BOOL else value
    return out


class Plugin:
    """What kubelet does with one registered plugin."""

    def __init__(self, socket):
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1)])

    def close(self):
        self.channel.close()

    def call(self, method, request, answer, message):
        """The decoded answer; {"error": text} as the recordings write it when the call fails."""
        try:
            raw = self.channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")(encode(request, message), timeout=10)
        except grpc.RpcError as e:
            return {"error": f"rpc error: code = {e.code().name.title().replace('_', '')} desc = {e.details()}"}
        return decode(answer, raw)

    def options(self):
        return self.call("GetDevicePluginOptions", {}, OPTIONS, {})

    def stream(self):
        return self.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"", timeout=60)

    def first_list(self):
        stream = self.stream()
        try:
            return decode(LIST, next(stream)).get("devices", [])
        finally:
            stream.cancel()

    def preferred(self, available, must, size):
        request = {"available_deviceIDs": available, "must_include_deviceIDs": must or [], "allocation_size": size}
        return self.call("GetPreferredAllocation", PREFERRED, PREFERRED_ANSWER, {"container_requests": [request]})

    def allocate(self, request):
        return self.call("Allocate", ALLOCATE, ALLOCATE_ANSWER, request)


class PyKubelet:
    """A Registration server; registrations come out of wait()."""

    def __init__(self, kubelet_dir):
        self.dir = pathlib.Path(kubelet_dir) / "device-plugins"
        self.dir.mkdir(parents=True, exist_ok=True)
        self.seen = queue.Queue()
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        method = grpc.unary_unary_rpc_method_handler(self.register)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method}),))
        self.server.add_insecure_port(f"unix:{self.dir / 'kubelet.sock'}")
        self.server.start()

    def register(self, raw, _):
        self.seen.put(decode(REGISTER, raw))
        return b""

    def wait(self, seconds):
        """The next registration, or None."""
        try:
            return self.seen.get(timeout=seconds)
        except queue.Empty:
            return None

    def forget(self):
        while not self.seen.empty():
            self.seen.get()

    def plugin(self, endpoint):
        return Plugin(self.dir / endpoint)

    def stop(self):
        self.server.stop(None).wait()
