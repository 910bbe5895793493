#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# selftest.sh BINDIR STATEDIR [--no-node]    proves the whole test bed: control plane, scheduler-level DRA, partitionable devices,
# and (unless --no-node) a real kubelet + containerd with a device plugin, a DRA plugin and CDI. Ends with 'N passed, N failed'.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=$(cd "${1:?usage: selftest.sh BINDIR STATEDIR [--no-node]}" && pwd); mkdir -p "$2"; STATE=$(cd "$2" && pwd)
. "$HERE/lib.sh"
export PATH="$BIN:$PATH" KUBECONFIG="$STATE/admin.kubeconfig"
pass=0 fail=0
check() { local what=$1; shift; if "$@"; then pass=$((pass+1)); echo "ok    $what"; else fail=$((fail+1)); echo "FAIL  $what"; fi; }
until_ok() { local limit=$1 i; shift; for ((i = 0; i < limit * 5; i++)); do "$@" >/dev/null 2>&1 && return 0; sleep 0.2; done; return 1; }
end() { for n in fakedev fakedra; do stop $n 5; done; "$HERE/down.sh" "$STATE"; }
trap end EXIT
MINOR=$(cut -d. -f2 "$BIN/.stamp/kube-apiserver")
[ "$MINOR" -ge 36 ] || export FEATURE_GATES=${FEATURE_GATES:-DRAPartitionableDevices=true}
jp() { kubectl get "$1" -o jsonpath="$2" 2>/dev/null; }

"$HERE/up.sh" "$BIN" "$STATE" || exit 1
check "the server says its version" test "$(kubectl version -o json | sed -n 's/.*"gitVersion": "\(.*\)".*/\1/p' | tail -1)" = "$(cat "$BIN/.stamp/kube-apiserver")"
check "resource.k8s.io/v1 is served" sh -c 'test "$(kubectl api-resources --api-group=resource.k8s.io -o name | grep -cE "^(deviceclasses|resourceslices|resourceclaims|resourceclaimtemplates)\.")" = 4'
"$HERE/fake-node.sh" fake-node
kubectl apply -f "$HERE/manifests/control-plane-dra.yaml" >/dev/null
allocated() { [ "$(jp resourceclaim '{.items[?(@.status.reservedFor[0].name=="wants-big-gpu")].status.allocation.devices.results[0].device}')" = gpu1 ]; }
check "the scheduler allocates by CEL on capacity and version" until_ok 20 allocated
bad() { ! kubectl create --dry-run=server -f - >/dev/null 2>&1 <<<'{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: bad}, spec: {selectors: [{cel: {expression: "device.nosuch"}}]}}'; }
check "server-side dry run refuses bad CEL" bad
bash "$HERE/manifests/partitionable.sh" "$MINOR" | kubectl apply -f - >/dev/null
halves() { [ "$(jp resourceclaim '{.items[*].status.allocation.devices.results[?(@.driver=="mig.fake.example.com")].device}' | tr ' ' '\n' | sort | xargs)" = "gpu0-half0 gpu0-half1" ]; }
check "counters: both halves are allocated" until_ok 20 halves
sleep 1
check "counters: the whole device is not allocated beside them" halves
kubectl delete pod --all --force --grace-period=0 >/dev/null 2>&1; kubectl delete node fake-node >/dev/null

if [ "${3:-}" != --no-node ]; then
    [ -s "$STATE/image.tar" ] || "$HERE/image.sh" "$STATE/image.tar"
    "$HERE/node-up.sh" "$BIN" "$STATE" "$STATE/image.tar"; check "kubelet and containerd: node Ready" test $? = 0
    spawn fakedev fakeplugin device -kubelet-dir "$STATE/k" -cdi-dir "$STATE/cdi"
    spawn fakedra fakeplugin dra -kubelet-dir "$STATE/k" -cdi-dir "$STATE/cdi" -cdi-kind example.com/claim -kubeconfig "$STATE/node.kubeconfig" -node "$NODE_NAME"
    four() { [ "$(jp "node/$NODE_NAME" '{.status.allocatable.example\.com/dev}')" = 4 ]; }
    check "device plugin: 4 devices allocatable" until_ok 20 four
    kubectl apply -f "$HERE/manifests/pods-device.yaml" -f "$HERE/manifests/pods-dra.yaml" >/dev/null
    for p in hello wants-dev wants-dra; do
        check "pod $p runs to its end" kubectl wait --for=jsonpath='{.status.phase}'=Succeeded "pod/$p" --timeout=40s
    done
    logs() { kubectl logs "$1" | grep -q "$2"; }
    check "logs come through the API server" logs hello "hello from hello"
    check "CDI device of the device plugin reached the container" logs wants-dev 'FOO=dev[0-3]'
    check "CDI device of the DRA plugin reached the container" logs wants-dra 'FOO=dra2'
    kubectl delete pod --all >/dev/null 2>&1
    check "the claim was unprepared" until_ok 20 grep -q unprepare "$STATE/log/fakedra.log"
    rss etcd kube-apiserver kube-controller-manager kube-scheduler containerd kubelet
fi
end; trap - EXIT
left() { ! ls -d /sys/fs/cgroup/*/e2e-$E2E_BASE /sys/fs/cgroup/e2e-$E2E_BASE >/dev/null 2>&1 && [ -z "$(ls "$STATE/pid")" ]; }
check "nothing is left behind" left
echo "$pass passed, $fail failed"
[ $fail = 0 ]
