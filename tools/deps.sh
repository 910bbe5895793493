#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deps.sh [GROUP...]   installs the Debian or Ubuntu packages that are missing, and only those (needs root for that).
#   GROUP: build, test, docs, fuzz, e2e   (default: build test)
# Nothing missing: returns in milliseconds without touching apt. Works on Debian 12 and 13 and Ubuntu 24.04.
# libyyjson (and, for e2e, Go) are taken from Debian 13 where Debian itself has none: from the mirror that the
# system already uses, with a pin that lets nothing else in.
set -eu

build=(gcc libc6-dev make meson ninja-build pkgconf python3 libnghttp2-dev libnanopb-dev libevent-dev libyaml-dev libyyjson-dev)
test=(git libcmocka-dev python3-grpcio python3-protobuf protobuf-compiler nanopb)
docs=(scdoc)
e2e=(runc busybox-static openssl curl util-linux procps ca-certificates)
GO_FLOOR=1.24

say() { echo "deps: $*" >&2; }

missing() { # missing PACKAGE...: prints those that are not installed
    local have
    have=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' || true)
    printf '%s\n' "$@" | grep -vxF -f <(printf '%s\n' "$have") || true
}

go_is_enough() { # in PATH, or where Debian puts a Go beside its default (tests/e2e/build.sh looks in the same places)
    local v
    compgen -G '/usr/lib/go-1.2[4-9]/bin/go' >/dev/null && return 0
    v=$(go env GOVERSION 2>/dev/null) || return 1
    [ "$(printf '%s\n' "$GO_FLOOR" "${v#go}" | sort -V | head -1)" = "$GO_FLOOR" ]
}

candidate() { # can apt install this package from what is configured?
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [^(]'
}

# The first main mirror of this system's own release, as "URI<newline>keyring".
own_mirror() {
    local f
    for f in /etc/apt/sources.list.d/*.sources; do
        [ -f "$f" ] || continue
        awk -v suite="$VERSION_CODENAME" 'BEGIN { RS = ""; FS = "\n" }
            { uri = key = ""; hit = 0
              for (i = 1; i <= NF; i++) {
                  if ($i ~ /^URIs:/) { split($i, u, /[ \t]+/); uri = u[2] }
                  if ($i ~ /^Suites:/ && (" " substr($i, 8) " ") ~ (" " suite " ")) hit = 1
                  if ($i ~ /^Signed-By:/) { split($i, k, /[ \t]+/); key = k[2] }
              }
              if (hit && uri != "") { print uri; print key; exit } }' "$f" | grep . && return 0
    done
    for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$f" ] || continue
        sed -nE "s#^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([a-z+]+[:/][^[:space:]]*)[[:space:]]+$VERSION_CODENAME[[:space:]]+.*#\2#p" "$f" |
            head -1 | grep . && return 0
    done
    return 1
}

# from_trixie NAME PACKAGE...   lets exactly these packages come from Debian 13
from_trixie() {
    local name=$1 found uri key
    shift
    . /etc/os-release
    if [ "${ID:-}" != debian ]; then
        say "${PRETTY_NAME:-this system} has no package $1, and it is not Debian: no other source is used."
        say "Install it by hand (yyjson 0.10 with its pkg-config file), then run this again."
        exit 1
    fi
    found=$(own_mirror) || { say "no Debian mirror found in /etc/apt for $VERSION_CODENAME: add one, then run this again"; exit 1; }
    uri=$(sed -n 1p <<<"$found")
    key=$(sed -n 2p <<<"$found")
    cat >"/etc/apt/sources.list.d/mete-$name.sources" <<X
# Written by Mete's tools/deps.sh: only the packages named in ../preferences.d/mete-$name come from here.
Types: deb
URIs: $uri
Suites: trixie
Components: main
Signed-By: ${key:-/usr/share/keyrings/debian-archive-keyring.gpg}
X
    cat >"/etc/apt/preferences.d/mete-$name" <<X
Package: *
Pin: release n=trixie
Pin-Priority: -10

Package: $*
Pin: release n=trixie
Pin-Priority: 500
X
    say "$* will come from Debian 13 (pinned in /etc/apt/preferences.d/mete-$name)"
    apt-get -qq update
}

[ $# -gt 0 ] || set -- build test
want=() wish=() need_go='' need_clang=''
for group; do
    case $group in
    build) want+=("${build[@]}") ;;
    docs) want+=("${docs[@]}") ;;
    test) want+=("${test[@]}") && wish+=(clang-format-14) ;; # another version formats differently
    fuzz) compgen -G '/usr/bin/clang*-1[4-9]' >/dev/null || need_clang=1 ;;
    e2e) want+=("${e2e[@]}") && { go_is_enough || need_go=1; } ;;
    *) say "unknown group $group (build, test, docs, fuzz, e2e)" && exit 2 ;;
    esac
done
command -v dpkg-query >/dev/null || { say "only Debian and Ubuntu are known here; needed: ${want[*]}"; exit 1; }
mapfile -t need < <(missing "${want[@]}")
[ ${#need[@]} -gt 0 ] || [ -n "$need_go$need_clang" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    say "packages are missing; run this again as root, or install them:"
    say "  sudo apt-get install --no-install-recommends ${need[*]} ${need_clang:+clang-14 libclang-rt-14-dev} ${need_go:+golang-go}"
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
if [ -n "$need_clang" ]; then
    for v in 14 19 18; do
        candidate clang-$v && need+=("clang-$v" "libclang-rt-$v-dev") && break
    done
fi
if [ -n "$need_go" ]; then
    go_package=
    for v in 26 25 24; do
        candidate golang-1.$v-go && go_package=golang-1.$v-go && break
    done
    . /etc/os-release
    if [ -z "$go_package" ] && [ "${ID:-}" = debian ]; then
        from_trixie golang golang-1.24-go golang-1.24-src
        go_package=golang-1.24-go
    fi
    # Elsewhere an older Go fetches the newer toolchain as a module by itself (GOTOOLCHAIN=auto, since Go 1.21).
    need+=("${go_package:-golang-go}")
fi
for p in "${need[@]}"; do
    [ "$p" != libyyjson-dev ] || candidate $p || from_trixie yyjson libyyjson-dev libyyjson0
done
for p in "${wish[@]}"; do
    candidate "$p" && need+=("$p")
done
say "installing ${need[*]}"
apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${need[@]}" >/dev/null
