#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Includes never climb a floor.

Each folder of src has one main header that states within its first comment what the folder may use ("may use: base io").
This reads those lists and names every #include "folder/…" that is not in them. The lists themselves must not form a circle.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"/]+)/[^"]*"')


def may_use(header, folders):
    """The folders named after "may use:" in the header's first comment, or None if it says nothing."""
    comment = re.search(r"/\*(?! SPDX)(.*?)\*/", header.read_text(), re.S)
    text = re.sub(r"^\s*\*[ \t]?", "", comment[1], flags=re.M) if comment else ""
    found = re.search(r"may\s+use:\s*(.*?)(?:\n\s*\n|\Z)", text, re.S)
    if not found:
        return None
    used = set()
    for word in found[1].split():
        if word.strip("().,") not in folders:
            break
        used.add(word.strip("().,"))
    return used


def main():
    folders = {p.name for p in ROOT.iterdir() if p.is_dir()} | {"elf", "runtime", "hook", "cel", "kube", "alloc", "fleet",
                                                                "report", "controller"}
    allowed, faults = {}, []
    for folder in sorted(p for p in ROOT.iterdir() if p.is_dir()):
        stated = [(h, u) for h in sorted(folder.glob("*.h")) if (u := may_use(h, folders)) is not None]
        if len(stated) > 1:
            faults.append(f"src/{folder.name}: more than one header states what it may use: {', '.join(h.name for h, _ in stated)}")
        if stated:
            allowed[folder.name] = stated[0][1]
        elif any(folder.rglob("*.c")):
            faults.append(f'src/{folder.name}: no header states "may use: …" in its first comment')
            allowed[folder.name] = set()
        else:
            allowed[folder.name] = set()

    def climbs(start, at, seen):
        return any(n == start or (n not in seen and climbs(start, n, seen | {n})) for n in allowed.get(at, ()))

    for name in allowed:
        if climbs(name, name, {name}):
            faults.append(f"src/{name}: its \"may use\" list leads back to itself")

    for file in sorted([*ROOT.rglob("*.c"), *ROOT.rglob("*.h")]):
        own = file.relative_to(ROOT).parts[0]
        if own == file.name:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            m = INCLUDE.match(line)
            if m and m[1] in folders and m[1] != own and m[1] not in allowed[own]:
                faults.append(f"{file.relative_to(ROOT.parent)}:{number}: includes {m[1]}/, but src/{own} may use only: "
                              f"{' '.join(sorted(allowed[own])) or '(nothing)'}")
    for f in faults:
        print(f, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
