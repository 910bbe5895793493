#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says whether two CDI files do the same to a container.

usage: same_effect.py A B     prints what differs, one line each ("-" only A has it, "+" only B); exit 1 when there is any

Compared: the kind; for each device and for the part common to all: device nodes, mounts, variables, hooks, groups. Defaults
count as written (hostPath is path, permissions rwm, minor 0), order does not: neither of lists nor of the links of one hook.
The declared version does not count. JSON is read, and YAML where PyYAML is installed.
"""
import json
import pathlib
import sys


def load(path):
    text = pathlib.Path(path).read_text()
    if text.lstrip().startswith("{"):
        return json.loads(text)
    import yaml

    return yaml.safe_load(text)


def node_line(n):
    words = [n["path"], "<", n.get("hostPath") or n["path"], n.get("permissions") or "rwm"]
    if "major" in n:
        words += [f"{n['major']}:{n.get('minor', 0)}", f"mode {n.get('fileMode', 0):o}"]
    words += [f"{k} {n[k]}" for k in ("uid", "gid") if k in n]
    return "node " + " ".join(words)


def mount_line(m):
    kind = f" type {m['type']}" if m.get("type") else ""
    return f"mount {m['hostPath']} -> {m['containerPath']} {','.join(sorted(m.get('options') or []))}{kind}"


def hook_lines(h):
    """A hook with links is one line for each link, so that a report names the link."""
    args, links, plain = list(h.get("args") or []), [], []
    while args:
        word = args.pop(0)
        if word == "--link" and args:
            links.append(args.pop(0))
        else:
            plain.append(word)
    line = f"hook {h['hookName']} {h['path']} {' '.join(plain)} env {' '.join(sorted(h.get('env') or []))}"
    return [f"{line} link {x}" for x in sorted(set(links))] or [line]


def edit_lines(where, edits):
    edits = edits or {}
    lines = [node_line(n) for n in edits.get("deviceNodes") or []]
    lines += [mount_line(m) for m in edits.get("mounts") or []]
    lines += [f"env {e}" for e in edits.get("env") or []]
    lines += [f"group {g}" for g in edits.get("additionalGids") or []]
    for h in edits.get("hooks") or []:
        lines += hook_lines(h)
    for key in ("intelRdt", "netDevices"):
        if edits.get(key):
            lines.append(f"{key} {json.dumps(edits[key], sort_keys=True)}")
    return {f"{where}: {line}" for line in lines}


def effect(spec):
    """The set of lines that say what a file does."""
    out = {f"kind {spec['kind']}"}
    out |= edit_lines("common", spec.get("containerEdits"))
    for d in spec.get("devices") or []:
        out.add(f"device {d['name']}")
        out |= edit_lines(f"device {d['name']}", d.get("containerEdits"))
    return out


def differences(a, b):
    """Lines of a difference, none when both have the same effect."""
    x, y = effect(a), effect(b)
    return [f"- {line}" for line in sorted(x - y)] + [f"+ {line}" for line in sorted(y - x)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = differences(load(sys.argv[1]), load(sys.argv[2]))
    print("\n".join(found) if found else "same effect")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
