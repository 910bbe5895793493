#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# node-down.sh STATEDIR    stops kubelet, the containers, containerd, and removes their cgroups and data
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
[ -d "${1:?usage: node-down.sh STATEDIR}" ] || exit 0
STATE=$(cd "$1" && pwd)
. "$HERE/lib.sh"
[ -e "$STATE/pid/mountns" ] || [ -e "$STATE/pid/kubelet" ] || [ -e "$STATE/pid/containerd" ] || exit 0
stop kubelet 20
# every process of a pod is in this cgroup and nothing else is
CG=e2e-$E2E_BASE; procs() { find /sys/fs/cgroup/pids/$CG /sys/fs/cgroup/$CG -name cgroup.procs -exec cat {} + 2>/dev/null || true; }
for i in 1 2 3 4 5; do p=$(procs); [ -n "$p" ] || break; kill -KILL $p 2>/dev/null || true; sleep 0.3; done
# the shims: children of nothing, but each names this containerd's socket on its command line
for d in /proc/[0-9]*; do
    [ "$(readlink "$d/exe" 2>/dev/null | sed 's#.*/##; s# (deleted)##')" = containerd-shim-runc-v2 ] || continue
    tr '\0' '\n' <"$d/cmdline" | grep -qx "$STATE/c/s" && kill -KILL "${d#/proc/}" 2>/dev/null || true
done
stop containerd 10
stop mountns 2
for c in /sys/fs/cgroup/*/$CG /sys/fs/cgroup/$CG; do [ -d "$c" ] && find "$c" -depth -type d -exec rmdir {} \; 2>/dev/null || true; done
rm -rf --one-file-system "$STATE/k" "$STATE/c" "$STATE/podlogs" "$STATE/cni"
