#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lint.sh   the checks that run no program of ours; each is one test case. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/.."
pass=0 fail=0 skip=0
check() {
    local what=$1 rc
    shift
    "$@"
    rc=$?
    case $rc in
    0) pass=$((pass + 1)) && echo "ok    $what" ;;
    77) skip=$((skip + 1)) && echo "skip  $what" ;;
    *) fail=$((fail + 1)) && echo "FAIL  $what" ;;
    esac
}
# The kubelet messages are committed as nanopb's generator made them: made again, they must be the same.
generated() {
    # Each version of the generator says its own number in what it writes.
    [ "$(dpkg-query -W -f='${Version}' nanopb 2>/dev/null | cut -d- -f1)" = 0.4.7 ] || return 77
    tools/regen-proto.sh --check
}
spdx() {
    local missing
    missing=$(git ls-files 'src/*.[ch]' 'tests/*.[ch]' 'tests/*.py' 'tests/*.sh' 'tools/*' Makefile '*meson.build' |
        grep -v '/wire/pb/' | while read -r f; do
        [ ! -f "$f" ] || head -3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f"
    done)
    [ -z "$missing" ] || { echo "no SPDX line: $missing" >&2; return 1; }
}
shell_syntax() {
    local f r=0
    while read -r f; do
        case $(head -n 1 "$f") in
        '#!/bin/bash'*) bash -n "$f" || r=1 ;;
        '#!/bin/sh'*) sh -n "$f" || r=1 ;;
        esac
    done < <(git ls-files tools tests .ci | grep -vE '/(corpus|golden)/' | xargs grep -lI '^#!/')
    return $r
}

check "includes never climb a floor" tools/check-includes.py
check "no banned function" tools/check-banned.py
check "every file states its licence" spdx
check "shell scripts parse" shell_syntax
check "docs/bug-reports.md names tests that are there" tools/check-bug-reports.py
check "formatted" tools/format.sh --check
check "kubelet messages are as generated" generated
echo "$pass passed, $fail failed$([ $skip = 0 ] || echo ", $skip skipped")"
[ $fail = 0 ]
