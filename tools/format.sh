#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# format.sh           formats every C file that git knows
# format.sh --check   says which are not formatted; 77 where there is no clang-format-14 (another version writes otherwise)
set -eu
cd "$(dirname "$0")/.."
command -v clang-format-14 >/dev/null || { echo "format: clang-format-14 is not installed" >&2; exit 77; }
mapfile -d '' files < <(git ls-files -z '*.c' '*.h' | grep -zvE '(^|/)wire/pb/|_generated\.[ch]$|\.pb\.[ch]$')
[ ${#files[@]} -gt 0 ] || exit 0
if [ "${1:-}" = --check ]; then
    clang-format-14 --dry-run -Werror "${files[@]}" 2>&1 | sed -n 's/^\([^:]*:[0-9]*\):.*/\1: not formatted (make format)/p' | sort -u -t: -k1,1 >/dev/stderr
    exit "${PIPESTATUS[0]}"
fi
clang-format-14 -i "${files[@]}"
