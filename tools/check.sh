#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check.sh   every test that needs no cluster, then one line "N passed, N failed". Logs stay in build*/meson-logs.
#   Environment: CHECK_SANITIZE=0 leaves the sanitizer builds out (for a quick look; make check never does).
set -u
cd "$(dirname "$0")/.."
tools/deps.sh build test || exit 1
pass=0 fail=0 skip=0 t0=$SECONDS

# add WHAT LINE: adds up a closing line "N passed, N failed[, N skipped]"; anything else is one failure
add() {
    if [[ $2 =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
        pass=$((pass + BASH_REMATCH[1])) fail=$((fail + BASH_REMATCH[2])) skip=$((skip + ${BASH_REMATCH[4]:-0}))
        printf '%-34s %s   (%ds)\n' "$1" "$2" $((SECONDS - t0))
    else
        fail=$((fail + 1))
        printf '%-34s ended without a count: %s\n' "$1" "$2"
    fi
}
# run WHAT COMMAND...: shows the command's output, adds up its last line
run() {
    local what=$1 out rc
    shift
    out=$(mktemp)
    echo "== $what"
    timeout -k 10 1200 "$@" 2>&1 </dev/null | tee "$out"
    rc=${PIPESTATUS[0]}
    local last
    last=$(tail -n 1 "$out")
    rm -f "$out"
    add "$what" "$last"
    [ "$rc" = 0 ] || [[ $last != *" 0 failed"* ]] || { fail=$((fail + 1)) && echo "$what: exit code $rc"; }
}
# meson_tests WHAT DIR [MESON-TEST-ARGUMENT...]
meson_tests() {
    local what=$1 dir=$2
    shift 2
    echo "== $what"
    rm -f "$dir/meson-logs/testlog.json"
    timeout -k 10 600 meson test -C "$dir" --no-rebuild --num-processes 2 --print-errorlogs -q "$@" >"$dir/meson-logs/check.txt" 2>&1 </dev/null
    local rc=$? last
    [ -f "$dir/meson-logs/testlog.json" ] || { cat "$dir/meson-logs/check.txt" && add "$what" "no test log (exit $rc)" && return; }
    tools/count-tests.py "$dir/meson-logs/testlog.json" >"$dir/meson-logs/counted.txt"
    last=$(tail -n 1 "$dir/meson-logs/counted.txt")
    sed '$d' "$dir/meson-logs/counted.txt"
    add "$what" "$last"
    [ $rc = 0 ] || [[ $last != *" 0 failed"* ]] || { fail=$((fail + 1)) && tail -n 20 "$dir/meson-logs/check.txt"; }
}
# What tests load at run time is made for them alone: newer Mesons leave it out of "all".
everything="all meson-test-prereq"
build() { # build DIR OPTION...: a build that fails is one failure, and its tests are not run
    tools/build.sh "$@" && return 0
    add "build $1" "0 passed, 1 failed"
    return 1
}

run "static checks" tools/lint.sh
if BUILD_TARGETS=$everything build build -Dtests=true; then
    meson_tests "unit, golden, corpus replay" build
    run "integration" tests/integration/run build
fi
if [ "${CHECK_SANITIZE:-1}" != 0 ]; then
    export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=0
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    if BUILD_TARGETS=$everything build build-asan -Dtests=true -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debug -Doptimization=1; then
        meson_tests "the same under ASan and UBSan" build-asan
    fi
    # Threads live in the disk thread, the worker's event wait and the reader of kubelet's files.
    threaded=(io/test-disk gpu/test-worker gpu/test-worker-sim kubeletapi/test-reader)
    if BUILD_TARGETS="${threaded[*]/#/tests/unit/} tests/unit/gpu/libfake-nvml.so tests/unit/gpu/libfake-nvml-old.so src/sim/libnvidia-ml-sim.so" \
        build build-tsan -Dtests=true -Db_sanitize=thread -Db_lundef=false -Dbuildtype=debug -Doptimization=1; then
        TSAN_OPTIONS=halt_on_error=1 meson_tests "threads under TSan" build-tsan disk gpu-worker gpu-worker-sim reader
    fi
fi
[ $skip = 0 ] || echo "$skip skipped"
echo "took $((SECONDS - t0)) s"
echo "$pass passed, $fail failed"
[ $fail = 0 ]
