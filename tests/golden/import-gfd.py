#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies what the peer's feature discovery wrote.

usage: import-gfd.py CASES OUT          CASES: .../shared/cases, OUT: tests/golden/gfd
       import-gfd.py --check CASES OUT  exit 1 when OUT differs, 77 when there is no CASES

One file a run: a comment with flags, set-up and config ("|" for a line's end), then the labels, sorted; the time is "TIME".
"""
import pathlib
import sys

# The file from the hardware has no such line; what it was run with is told in README-recordings.md.
H200 = "# h200: --oneshot --use-node-feature-api=false --no-timestamp ; machine-type file absent; sysfs GPUs present\n"


def copies(cases):
    for path in sorted((cases / "gfd").glob("*/*.txt")):
        yield path.relative_to(cases / "gfd"), path.read_text()
    yield pathlib.Path("h200/plain.txt"), H200 + (cases / "hardware-h200/gfd-labels.txt").read_text()


def main():
    args = sys.argv[1:]
    cases, out = (pathlib.Path(p) for p in args[-2:])
    if args[0] == "--check" and not cases.is_dir():
        sys.exit(77)
    for name, text in copies(cases):
        path = out / name
        if args[0] != "--check":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path} is not what the recording says: run import-gfd.py again")


if __name__ == "__main__":
    main()
