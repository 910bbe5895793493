#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the recorded runs of the peer's device plugin into one file a variant.

usage: import.py CASES OUT          CASES: .../shared/cases, OUT: tests/golden/device-plugin
       import.py --check CASES OUT  exit 1 when OUT differs, 77 when there is no CASES

A packed file: flags, env, config (text of the config file), failure (text), resources: name ->
{register, options, list, allocate: {N: {request, response | error}}, edge}, cdi: class -> spec.
"""
import json
import pathlib
import sys

# The recorded H200 runs have no setup.txt; what they were run with is told in README-recordings.md.
H200 = {
    "device-plugin-plain": [],
    "device-plugin-specs": ["--pass-device-specs"],
    "device-plugin-cdi": ["--device-list-strategy=cdi-annotations,cdi-cri"],
    "device-plugin-cdi0": ["--device-list-strategy=cdi-cri"],
}


def load(path):
    return json.loads(path.read_text())


def resources_of(folder):
    out = {}
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith("cdi-"):
            continue
        name, what = path.name[: -len(".json")].rsplit(".", 1)
        r = out.setdefault(name.replace("_", "/", 1), {"allocate": {}})
        data = load(path)
        if what == "list":
            r["list"] = data["listAndWatch_sorted_by_id"].get("devices", [])
            r["register"] = data["register"]
            r["options"] = data["options"]
        elif what == "edge":
            r["edge"] = data
        else:
            r["allocate"][what.split("-")[1]] = data
    return out


def cdi_of(folder):
    prefix = "cdi-k8s.device-plugin.nvidia.com-"
    return {p.name[len(prefix) : -len(".json")]: load(p) for p in sorted(folder.glob(prefix + "*"))}


def setup_of(folder):
    setup = {"flags": [], "env": []}
    for line in (folder / "setup.txt").read_text().splitlines():
        key, _, rest = line.partition(" ")
        if key in setup:
            setup[key] = rest.split()
    return setup


def pack(folder, setup, profile):
    case = {"profile": profile, **setup}
    config, failure = folder / "config.yaml", folder / "failure.txt"
    if config.exists():
        case["config"] = config.read_text()
    if failure.exists():
        case["failure"] = failure.read_text()
    else:
        case["resources"] = resources_of(folder)
    cdi = cdi_of(folder)
    if cdi:
        case["cdi"] = cdi
    return case


def write(path, case):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(case)


def check(path, case):
    if not path.exists() or path.read_text() != case:
        sys.exit(f"{path} is not what the recording says: run import.py again")


def main():
    args = sys.argv[1:]
    checking = args[0] == "--check"
    cases, out = (pathlib.Path(p) for p in args[-2:])
    if checking and not cases.is_dir():
        sys.exit(77)
    keep = check if checking else write
    for path, case in packed(cases):
        keep(out / path, json.dumps(case, separators=(",", ":"), sort_keys=True) + "\n")


def packed(cases):
    for profile in sorted((cases / "device-plugin").iterdir()):
        for variant in sorted(profile.iterdir()):
            yield (f"{profile.name}/{variant.name}.json",
                   pack(variant, setup_of(variant), profile.name))
    for name, flags in H200.items():
        folder = cases / "hardware-h200" / name
        case = pack(folder, {"flags": flags, "env": ["NS_DEV=1"]}, "h200")
        if name == "device-plugin-cdi":
            case["cdi"] = {"gpu": load(cases / "hardware-h200" / "device-plugin-cdi.json")}
        yield f"h200/{name[len('device-plugin-'):]}.json", case


if __name__ == "__main__":
    main()
