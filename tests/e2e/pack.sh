#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pack.sh BINDIR OUTDIR   the whole bed in two archives of about 45 MB for a GPU host without a network: k8s.xz (API server, scheduler,
# controllers, kubelet and kubectl in one program, allinone/) and rest.tar.xz (containerd, shim, ctr, etcd, runc, busybox; one dictionary: 20 MB instead of 32).
# Run build.sh first (its module and caches are used). Takes about 5 minutes on 2 cores, most of it xz.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=$(cd "${1:?usage: pack.sh BINDIR OUTDIR}" && pwd); mkdir -p "${2:?usage: pack.sh BINDIR OUTDIR}"; OUT=$(cd "$2" && pwd)
K8S_VERSION=${K8S_VERSION:-v1.34.3}; SCRATCH=${SCRATCH:-$(dirname "$BIN")/src}
D=$SCRATCH/k8s-$K8S_VERSION; minor=${K8S_VERSION#v1.}; minor=${minor%%.*}; flags=
for pk in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $pk.gitVersion=$K8S_VERSION -X $pk.gitMajor=1 -X $pk.gitMinor=$minor -X $pk.gitTreeState=clean -X $pk.buildDate=1970-01-01T00:00:00Z"
done
mkdir -p "$D/allinone"; cp "$HERE/allinone/main.go" "$D/allinone/"
(cd "$D" && CGO_ENABLED=0 GOWORK=off go build -mod=mod -trimpath -tags selinux,notest,grpcnotrace -ldflags "-s -w $flags" -o "$BIN/k8s" ./allinone)
xz -T1 -c --x86 --lzma2=preset=9e "$BIN/k8s" > "$OUT/k8s.xz"
cp "$(command -v runc)" "$(command -v busybox)" "$BIN/" 2>/dev/null || true
tar cf - -C "$BIN" containerd ctr containerd-shim-runc-v2 etcd runc busybox | xz -T1 -c --x86 --lzma2=preset=9e,dict=192MiB > "$OUT/rest.tar.xz"
ls -la "$OUT"
