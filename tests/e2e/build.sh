#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh BINDIR [WHAT...]   builds the end-to-end test bed's programs from Go modules.
#   WHAT: any of  kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet etcd containerd fakeplugin   (default: all)
# Environment: K8S_VERSION (v1.34.3)  ETCD_VERSION (v3.6.5)  CONTAINERD_VERSION (v2.2.9)
#              SCRATCH (BINDIR/../src)  go's own GOMODCACHE, GOCACHE, GOFLAGS, GOPROXY are respected.
# A program that is already in BINDIR, stamped with the wanted version, is not built again.
set -eu
TAGS=selinux,notest,grpcnotrace   # as Kubernetes' own release build; the same for fakeplugin, so that it finds its packages compiled
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${1:?usage: build.sh BINDIR [what...]}; shift
mkdir -p "$BIN"; BIN=$(cd "$BIN" && pwd)
K8S_VERSION=${K8S_VERSION:-v1.34.3}
ETCD_VERSION=${ETCD_VERSION:-v3.6.5}
CONTAINERD_VERSION=${CONTAINERD_VERSION:-v2.2.9}
SCRATCH=${SCRATCH:-$(dirname "$BIN")/src}
[ $# -gt 0 ] || set -- etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet containerd fakeplugin
# Debian puts a Go newer than its default into a folder of its own (tools/deps.sh)
command -v go >/dev/null && [ "$(printf '%s\n' go1.24 "$(go env GOVERSION)" | sort -V | head -1)" = go1.24 ] ||
    for g in /usr/lib/go-1.2[4-9]/bin; do [ ! -x "$g/go" ] || PATH=$g:$PATH; done
export CGO_ENABLED=${CGO_ENABLED:-0} GOWORK=off
mkdir -p "$SCRATCH" "$BIN/.stamp"

have() { [ -x "$BIN/$1" ] && [ "$(cat "$BIN/.stamp/$1" 2>/dev/null)" = "$2" ]; }
stamp() { echo "$2" >"$BIN/.stamp/$1"; }
lap() { local t0=$1 what=$2; printf 'e2e-build %-26s %5ss  %s\n' "$what" $(( $(date +%s) - t0 )) "$(du -h "$BIN/${3:-$what}" | cut -f1)"; }

k8s_module() {  # a module that has k8s.io/kubernetes as a dependency, staging modules at their released versions
    local d="$SCRATCH/k8s-$K8S_VERSION" v0 src m
    [ -f "$d/.ready" ] && { cd "$d"; return; }
    rm -rf "$d"; mkdir -p "$d"; cd "$d"
    v0=v0.${K8S_VERSION#v1.}
    printf 'module scratch\n\ngo 1.24\n' >go.mod
    src=$(go mod download -json "k8s.io/kubernetes@$K8S_VERSION" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    install -m 644 "$src/go.mod" go.mod
    install -m 644 "$src/go.sum" go.sum
    go mod edit -module=scratch -require="k8s.io/kubernetes@$K8S_VERSION"
    # the released go.mod replaces each staging module by ./staging/...; a module zip has none of those
    sed -i -E "s#^([[:space:]]*)(k8s.io/[a-z-]+) => ./staging/src/.*#\1\2 => \2 $v0#; s#^(replace[[:space:]]+)(k8s.io/[a-z-]+) => ./staging/src/.*#\1\2 => \2 $v0#" go.mod
    # newer releases carry no replace lines (they rely on go.work): add what is missing
    for m in $(sed -n -E 's#^[[:space:]]*(k8s.io/[a-z-]+) v0\.0\.0( //.*)?$#\1#p' go.mod); do
        grep -q "^[[:space:]]*\(replace \)\?$m => " go.mod || go mod edit -replace="$m=$m@$v0"
    done
    # and require the released versions, not v0.0.0: else go itself raises some of them later (with fakeplugin), the paths that
    # -trimpath writes change with them, and everything is compiled a second time
    sed -i -E "s#^([[:space:]]*k8s.io/[a-z-]+) v0\.0\.0( //.*)?\$#\1 $v0\2#" go.mod
    go mod edit -dropreplace=k8s.io/sample-cli-plugin -dropreplace=k8s.io/sample-controller
    touch .ready
}

build_k8s() {  # all the wanted programs in one go build: compiling and linking overlap
    local p t0 minor pk flags= need=()
    for p; do have "$p" "$K8S_VERSION" || need+=("$p"); done
    [ ${#need[@]} -gt 0 ] || return 0
    t0=$(date +%s); k8s_module
    minor=${K8S_VERSION#v1.}; minor=${minor%%.*}
    for pk in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $pk.gitVersion=$K8S_VERSION -X $pk.gitMajor=1 -X $pk.gitMinor=$minor"
        flags+=" -X $pk.gitTreeState=clean -X $pk.buildDate=1970-01-01T00:00:00Z"
    done
    go build -mod=mod -trimpath -tags $TAGS -ldflags "-s -w $flags" -o "$BIN/" "${need[@]/#/k8s.io/kubernetes/cmd/}"
    for p in "${need[@]}"; do stamp "$p" "$K8S_VERSION"; lap "$t0" "$p"; done
}

build_fakeplugin() {  # our own test peer, in the same module so that it shares the compiled packages
    local t0 sum; sum=$K8S_VERSION-$(sha256sum <"$HERE/fakeplugin/main.go" | cut -c1-16)
    have fakeplugin "$sum" && return 0
    t0=$(date +%s); k8s_module; mkdir -p fakeplugin; cp "$HERE/fakeplugin/main.go" fakeplugin/
    go build -mod=mod -trimpath -tags $TAGS -ldflags '-s -w' -o "$BIN/fakeplugin" ./fakeplugin
    stamp fakeplugin "$sum"; lap "$t0" fakeplugin
}

plain_module() {  # plain_module NAME MODULE VERSION
    mkdir -p "$SCRATCH/$1-$3"; cd "$SCRATCH/$1-$3"
    [ -f .ready ] && return
    printf 'module scratch\n\ngo 1.24\n' >go.mod
    local src; src=$(go mod download -json "$2@$3" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    install -m 644 "$src/go.mod" go.mod; install -m 644 "$src/go.sum" go.sum
    go mod edit -module=scratch -require="$2@$3"
    touch .ready
}

build_etcd() {
    have etcd "$ETCD_VERSION" && return 0
    local t0; t0=$(date +%s)
    plain_module etcd go.etcd.io/etcd/server/v3 "$ETCD_VERSION"
    local m; for m in api client/pkg client/v3 pkg; do
        case $m in client/v3) go mod edit -dropreplace=go.etcd.io/etcd/client/v3;; *) go mod edit -dropreplace="go.etcd.io/etcd/$m/v3";; esac
    done
    go build -mod=mod -trimpath -ldflags '-s -w' -o "$BIN/etcd" go.etcd.io/etcd/server/v3
    stamp etcd "$ETCD_VERSION"; lap "$t0" etcd
}

build_containerd() {
    local t0 p need=()
    for p in containerd containerd-shim-runc-v2 ctr; do have "$p" "$CONTAINERD_VERSION" || need+=("$p"); done
    [ ${#need[@]} -gt 0 ] || return 0
    t0=$(date +%s)
    plain_module containerd github.com/containerd/containerd/v2 "$CONTAINERD_VERSION"
    go mod edit -dropreplace=github.com/containerd/containerd/api
    go build -mod=mod -trimpath -tags "no_btrfs no_devmapper no_zfs no_aufs" \
        -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$CONTAINERD_VERSION" \
        -o "$BIN/" "${need[@]/#/github.com/containerd/containerd/v2/cmd/}"
    for p in "${need[@]}"; do stamp "$p" "$CONTAINERD_VERSION"; lap "$t0" "$p"; done
}

K8S=() REST=()
for what; do
    case $what in
        kube-apiserver|kube-controller-manager|kube-scheduler|kubectl|kubelet|kubemark|kube-proxy) K8S+=("$what");;
        etcd|containerd|fakeplugin) REST+=("$what");;
        *) echo "build.sh: unknown: $what" >&2; exit 2;;
    esac
done
[ ${#K8S[@]} -eq 0 ] || build_k8s "${K8S[@]}"
for what in "${REST[@]}"; do "build_$what"; done
