#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""count-tests.py TESTLOG.json   reads Meson's log of one run, prints what failed with its output, then "N passed, N failed".

A cmocka program counts one for each of its cases; a program that prints "N passed, N failed" counts what it says; any other
counts one. A program that ends badly without saying which case (a crash, a sanitizer, a time-out) counts as one failure more.
"""
import json
import re
import sys

CASE = re.compile(r"^\[\s*(OK|FAILED|SKIPPED|  ERROR )\s*\] (\S+)\s*$", re.M)
LINE = re.compile(r"^(?:\w+: )?(\d+) passed, (\d+) failed", re.M)


def count(test):
    out = test.get("stdout") or ""
    text = out + (test.get("stderr") or "")
    good = test["result"] in ("OK", "EXPECTEDFAIL")
    if test["result"] == "SKIP":
        return 0, 0, 1
    cases = {(m[2], m[1]) for m in CASE.finditer(text)}
    said = LINE.findall(out)
    if cases:
        passed = len({n for n, r in cases if r == "OK"})
        failed = len({n for n, r in cases if r == "FAILED"})
    elif said:
        passed, failed = map(int, said[-1])
    else:
        passed, failed = (1, 0) if good else (0, 1)
    if not good and failed == 0:
        failed = 1
    return passed, failed, len({n for n, r in cases if r == "SKIPPED"})


def main():
    total = [0, 0, 0]
    for line in open(sys.argv[1]):
        test = json.loads(line)
        got = count(test)
        total = [a + b for a, b in zip(total, got)]
        if got[1]:
            print(f"--- {test['name']}: {test['result']}, exit {test.get('returncode')}")
            text = (test.get("stdout") or "") + (test.get("stderr") or "")
            print(text[-6000:])
    print(f"{total[0]} passed, {total[1]} failed" + (f", {total[2]} skipped" if total[2] else ""))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
