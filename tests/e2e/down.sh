#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# down.sh STATEDIR [--keep]    stops what up.sh and node-up.sh started from STATEDIR, and removes its data (not its logs)
#   --keep: leave etcd's data and the certificates, so that the next up.sh starts with the same objects
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
[ -d "${1:?usage: down.sh STATEDIR [--keep]}" ] || exit 0
STATE=$(cd "$1" && pwd)
. "$HERE/lib.sh"
[ -x "$HERE/node-down.sh" ] && "$HERE/node-down.sh" "$STATE"
for n in kube-scheduler kube-controller-manager kube-apiserver etcd; do stop $n; done
[ "${2:-}" = --keep ] || rm -rf "$STATE/etcd" "$STATE/pki" "$STATE"/*.kubeconfig "$STATE/cdi" "$STATE/manifests" "$STATE/containerd.toml" "$STATE/kubelet.yaml" "$STATE/kubelet.cmd"
