#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# peer-accepts-sim.sh METE [PEER]: a program that stands on NVIDIA's own Go bindings sees the simulated hosts as `mete sim show`
# says they are, and gets their events. Exit 77: the program is not there (build it with `peer-accepts-sim.sh --build`).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
peers=${METE_PEERS:-/var/cache/mete/peers}

if [ "${1:-}" = --build ]; then
    mkdir -p "$peers"
    # The bindings' header marks old calls as deprecated and they wrap them all the same: nothing to see.
    cd "$here/peer-nvml" && CGO_CFLAGS="-O1 -w" exec nice -n 15 go build -p 1 -trimpath -o "$peers/peer-nvml" .
fi

mete=${1:?usage: peer-accepts-sim.sh METE [PEER]}
peer=${2:-$peers/peer-nvml}
if [ ! -x "$peer" ]; then
    echo "skipped: there is no $peer; build it with $0 --build"
    exit 77
fi

work=$(mktemp -d /tmp/mete-peer-XXXXXX)
trap 'rm -rf "$work"' EXIT
failed=0

check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "ok    $name"
    else
        echo "FAIL  $name"
        sed 's/^/      /' "$work/out"
        failed=$((failed + 1))
    fi
}

library() { # DIR: where its libnvidia-ml.so.1 lies
    dirname "$(find "$1" -name libnvidia-ml.so.1 | head -n 1)"
}

# What the program prints, line by line, against the state as JSON.
same_list() { # DIR
    LD_LIBRARY_PATH=$(library "$1") "$peer" list >"$work/list"
    "$mete" sim show "$1" >"$work/show"
    python3 - "$work/list" "$work/show" <<'EOF'
import json, sys
with open(sys.argv[1], encoding="utf-8") as f:
    got = [line.rstrip("\n") for line in f]
with open(sys.argv[2], encoding="utf-8") as f:
    show = json.load(f)
want = []
for g in show["gpus"]:
    memory = 0 if g["memory"] != "normal" else g["memoryMiB"]
    want.append((f'gpu {g["gpu"]} {g["uuid"]} minor {g["minor"]} pci {g["pci"]} memory {memory} cc ', f'name {g["name"]}'))
    if not g.get("mig"):
        continue
    parts = [(c["slot"], c["uuid"], i, c) for i in g["gpuInstances"] for c in i["computeInstances"]]
    for slot, uuid, i, c in sorted(parts, key=lambda p: p[0]):
        full = c["slices"] == int(i["profile"].split("g.")[0])
        profile = i["profile"] if full else f'{c["slices"]}c.{i["profile"]}'
        want.append((f'part {uuid} slot {slot} gi {i["id"]} ci {c["id"]} profile {profile} memory ', ""))
assert len(got) == len(want), f"{len(got)} lines, expected {len(want)}"
for line, (start, end) in zip(got, want):
    assert line.startswith(start) and line.endswith(end), f"{line!r} is not {start!r} ... {end!r}"
EOF
}

for model in a100-40 a100-80 a30 h100-sxm h100-pcie h100-nvl h200 b200 rtx-pro-6000 l40s t4 gb10; do
    "$mete" sim create --model "$model" "$work/$model"
    check "list $model" same_list "$work/$model"
done
for profile in h100 h100-mig a100 l40s t4 b200 gb200 gb300 h200; do
    "$mete" sim create --profile "$profile" "$work/p-$profile"
    check "list of the recorded host $profile" same_list "$work/p-$profile"
done

for layout in a100-40:3g.20gb@4,2g.10gb@0,1g.5gb@2 a30:2g.12gb@2,1g.6gb+me@0 h100-nvl:7g.94gb h200:4g.71gb,1g.35gb@6 \
              b200:1g.23gb@6,1g.45gb@0 rtx-pro-6000:2g.48gb@6,1g.24gb+gfx@0; do
    host=$work/${layout%%:*}
    "$mete" sim set "$host" gpu 0 mig "${layout#*:}"
    check "parts $layout" same_list "$host"
done
"$mete" sim set "$work/h100-sxm" gpu 2 mig on
"$mete" sim set "$work/h100-sxm" gpu 2 mig create-gi 3g.40gb@4
"$mete" sim set "$work/h100-sxm" gpu 2 mig create-ci gi 2 2
"$mete" sim set "$work/h100-sxm" gpu 2 mig create-ci gi 2 1
check "parts of parts" same_list "$work/h100-sxm"

# An old driver: the bindings look their symbols up one by one.
"$mete" sim create --hide-symbols 'nvmlGpm*,nvmlDeviceGetAddressingMode,nvmlDeviceGetMemoryInfo_v2' "$work/old"
check "list of an old driver" same_list "$work/old"

events() {
    LD_LIBRARY_PATH=$(library "$work/t4") "$peer" wait >"$work/events" &
    local pid=$!
    for _ in $(seq 100); do
        grep -q registered "$work/events" && break
        sleep 0.05
    done
    "$mete" sim set "$work/t4" gpu 1 xid 31 gi 4 ci 0
    "$mete" sim set "$work/t4" gpu 2 ecc double 1
    "$mete" sim set "$work/t4" gpu 3 xid 79
    wait "$pid"
    cat "$work/events"
    local uuids
    mapfile -t uuids < <("$mete" sim show "$work/t4" | sed -n 's/.*"uuid": "\(GPU-[^"]*\)".*/\1/p')
    diff - "$work/events" <<EOF
registered
xid 31 ${uuids[1]} gi 4 ci 0
xid 79 ${uuids[3]} gi 4294967295 ci 4294967295
EOF
}
check "events" events

gone() {
    "$mete" sim set "$work/t4" driver unload
    ! LD_LIBRARY_PATH=$(library "$work/t4") "$peer" list 2>"$work/error"
    grep -q 'Driver Not Loaded' "$work/error"
}
check "driver gone" gone

[ "$failed" -eq 0 ] || { echo "$failed failed"; exit 1; }
echo "all passed"
