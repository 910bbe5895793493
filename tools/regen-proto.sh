#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes src/wire/pb/*.pb.{c,h} from proto/*.proto with nanopb (Debian packages nanopb,
# protobuf-compiler, python3-protobuf).
#   tools/regen-proto.sh           writes them
#   tools/regen-proto.sh --check   compares instead; exit 1 and the difference when they are stale
#                                  exit 77 when the generator is not installed
set -eu
cd "$(dirname "$0")/.."
generator=/usr/bin/nanopb_generator.py
if [ ! -e "$generator" ] || ! command -v protoc >/dev/null; then
    echo "regen-proto: needs nanopb_generator.py and protoc (apt-get install nanopb protobuf-compiler)" >&2
    exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
/usr/bin/python3 "$generator" --quiet --no-timestamp --proto-path=proto --output-dir="$out" \
    --options-file=proto/kubelet.options proto/*.proto
for file in "$out"/*.pb.[ch]; do
    [ -s "$file" ] || { echo "regen-proto: $file was not made" >&2; exit 1; }
done
if [ "${1:-}" = --check ]; then
    diff -ru src/wire/pb "$out"
    echo "regen-proto: src/wire/pb is what proto/ says"
else
    mkdir -p src/wire/pb
    cp "$out"/*.pb.[ch] src/wire/pb/
fi
