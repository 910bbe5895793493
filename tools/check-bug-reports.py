#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every test that docs/bug-reports.md names exists. usage: check-bug-reports.py [ROOT]"""
import pathlib
import re
import sys

SHORT = {"U": "tests/unit", "I": "tests/integration"}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    text = (root / "docs/bug-reports.md").read_text()
    named = re.findall(r"`([UI])/([^`:]+): ([A-Za-z0-9_]+)`", text)
    wrong = []
    for short, path, test in named:
        file = root / SHORT[short] / path
        if not file.exists():
            wrong.append(f"{file.relative_to(root)} is not there")
        elif not re.search(rf"\b{test}\(", file.read_text()):
            wrong.append(f"{file.relative_to(root)} has no {test}")
    cases = re.findall(r"^\| B-(\d+)", text, re.M)
    if len(named) < 20 or len(set(cases)) != len(cases):
        wrong.append("docs/bug-reports.md: too few tests, or a case twice")
    print("\n".join(wrong) if wrong else f"{len(cases)} cases, {len(named)} tests named, all there")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
