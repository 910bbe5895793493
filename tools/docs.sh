#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs.sh BUILDDIR OUTDIR       man pages and bash completion from the option tables of BUILDDIR's mete
# docs.sh --install OUTDIR PREFIX   puts them where man and bash look, and the systemd unit where systemd does
set -eu
cd "$(dirname "$0")/.."
if [ "$1" = --install ]; then
    install -Dm644 -t "$3/share/man/man1" "$2"/*.1
    install -Dm644 "$2/mete.bash" "$3/share/bash-completion/completions/mete"
    mkdir -p "$3/lib/systemd/system"
    sed "s#/usr/bin/mete#${PREFIX:-/usr}/bin/mete#" deploy/systemd/mete-agent.service >"$3/lib/systemd/system/mete-agent.service"
    install -Dm644 -t "$3/share/doc/mete" LICENSE README.md CHANGELOG.md ARCHITECTURE.md
    install -Dm644 -t "$3/share/doc/mete/docs" docs/*.md
    exit 0
fi
tools/deps.sh docs
mete=$1/src/cmd/mete out=$2
mkdir -p "$out"
"$mete" help --bash-completion >"$out/mete.bash"
"$mete" help | sed -n 's/^  \([a-z][a-z -]*[a-z]\)  *  .*/\1/p' | while read -r name; do
    page=mete-${name// /-}
    # shellcheck disable=SC2086
    "$mete" help --scdoc $name >"$out/$page.scd"
    scdoc <"$out/$page.scd" >"$out/$page.1"
done
for page in man/*.scd; do
    scdoc <"$page" >"$out/$(basename "$page" .scd)"
done
