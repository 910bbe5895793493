#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fake-node.sh NAME [LABEL=VALUE...]   a Ready Node object with no kubelet behind it (needs kubectl in PATH, KUBECONFIG, up.sh's NODE_GRACE)
set -eu
N=${1:?usage: fake-node.sh NAME [label=value...]}; shift
kubectl create -f - <<Y >/dev/null
{apiVersion: v1, kind: Node, metadata: {name: "$N", labels: {kubernetes.io/hostname: "$N", kubernetes.io/os: linux, kubernetes.io/arch: amd64}}}
Y
R='{"cpu": "16", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}'
NOW=$(date -u +%FT%TZ)
kubectl patch node "$N" --subresource=status --type=merge -p "{\"status\": {\"capacity\": $R, \"allocatable\": $R, \"nodeInfo\": {\"kubeletVersion\": \"v0.0.0-fake\"},
  \"conditions\": [{\"type\": \"Ready\", \"status\": \"True\", \"reason\": \"Fake\", \"message\": \"no kubelet\", \"lastHeartbeatTime\": \"$NOW\", \"lastTransitionTime\": \"$NOW\"}]}}" >/dev/null
# without a controller manager nobody else takes the not-ready taint off
kubectl patch node "$N" --type=merge -p '{"spec": {"taints": null}}' >/dev/null
[ $# -eq 0 ] || kubectl label node "$N" "$@" >/dev/null
