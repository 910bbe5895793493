#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh DIR [-DOPTION=VALUE...]   installs what is missing, configures DIR once, builds it. Quiet when all is well.
#   Environment: BUILD_TARGETS (all): what ninja is to make
set -eu
cd "$(dirname "$0")/.."
dir=${1:?usage: build.sh DIR [-Doption=value...]}
shift
tools/deps.sh build

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }; }

# Warnings are errors with the compiler that the code is written against: a newer one knows warnings that we do not, and a
# sanitizer's checks mislead some of them.
case "$(gcc -dumpversion 2>/dev/null | cut -d. -f1) $*" in
*-Db_sanitize=*) ;;
12\ *) set -- "$@" -Dwerror=true ;;
esac
# The first caller may not want the tests (make demo): cmocka is needed for those only.
case " $* " in *" -Dtests="*) ;; *) pkgconf --exists cmocka || set -- "$@" -Dtests=false ;; esac
set -- "$@" "-Dprefix=${PREFIX:-/usr}"
if [ ! -f "$dir/build.ninja" ]; then
    quietly meson setup "$dir" "$@"
elif [ "$(cat "$dir/.mete-options" 2>/dev/null)" != "$*" ]; then
    quietly meson configure "$dir" "$@"
fi
printf '%s' "$*" >"$dir/.mete-options"
if [ -t 1 ]; then # one line that is rewritten
    # shellcheck disable=SC2086
    ninja -C "$dir" ${BUILD_TARGETS:-all} | sed -un 's/^\[\([0-9/]*\)\] .*/\1/p' | while read -r n; do printf '\r\033[Kbuilding %s' "$n"; done
    printf '\r\033[K'
fi
# shellcheck disable=SC2086
quietly ninja --quiet -C "$dir" ${BUILD_TARGETS:-all}
