#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Functions that the house rules forbid: name each call with its place and what to use instead."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BANNED = {
    **dict.fromkeys(["sprintf", "vsprintf", "strcpy", "strcat", "stpcpy"], "use a struct buf or snprintf"),
    **dict.fromkeys(["strtok", "strtok_r"], "use str_cut"),
    **dict.fromkeys(["atoi", "atol", "atoll", "strtol", "strtoll", "strtoul", "strtoull"], "use str_to_i64 or str_to_u64"),
    "gets": "use file_read",
    "alloca": "use an arena",
}
ENDS = dict.fromkeys(["exit", "_exit"], "only src/cmd ends the process")
CALL = re.compile(r"(?<![\w.>])(" + "|".join([*BANNED, *ENDS]) + r")\s*\(")
QUIET = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
LOUD_LOG = re.compile(r"(?<!\w)log_(info|warn|error)\s*\(")
MAY_LOG = {"kubelet", "agent", "cmd", "sim", "report", "controller"}
# The one handler of memory exhaustion; and the worker process, which ends from either of its threads when the agent is gone.
EXCEPTIONS = {("src/base/mem.c", "_exit"), ("src/gpu/worker_main.c", "_exit")}


def main():
    faults = []
    for file in sorted((ROOT / "src").rglob("*.[ch]")):
        name = str(file.relative_to(ROOT))
        if "/wire/pb/" in name:
            continue
        folder = file.relative_to(ROOT / "src").parts[0]
        code = QUIET.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), file.read_text())
        for m in CALL.finditer(code):
            if m[1] in ENDS and (folder == "cmd" or (name, m[1]) in EXCEPTIONS):
                continue
            line = code.count("\n", 0, m.start()) + 1
            faults.append(f"{name}:{line}: {m[1]}(): {BANNED.get(m[1]) or ENDS[m[1]]}")
        if folder not in MAY_LOG and file.name not in ("log.c", "log.h"):
            for m in LOUD_LOG.finditer(code):
                faults.append(f"{name}:{code.count(chr(10), 0, m.start()) + 1}: log_{m[1]}(): folders below src/kubelet log only at debug")
        if len(code.splitlines()) > 800:
            faults.append(f"{name}: {len(code.splitlines())} lines; past 800 it wants to be two rooms")
    for f in faults:
        print(f, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
