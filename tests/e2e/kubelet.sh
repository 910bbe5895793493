#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kubelet.sh STATEDIR stop|start|restart|kill    the kubelet alone, as node-up.sh started it; containers and containerd go on running
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
STATE=$(cd "${1:?usage: kubelet.sh STATEDIR stop|start|restart|kill}" && pwd)
. "$HERE/lib.sh"
start() {
    . "$STATE/kubelet.cmd"; [ -f "$STATE/log/kubelet.log" ] && cat "$STATE/log/kubelet.log" >>"$STATE/log/kubelet-before.log"
    spawn kubelet "${KUBELET[@]}"
    ALIVE=kubelet wait_for 60 "the kubelet's healthz" curl -fsS "http://127.0.0.1:$KUBELET_HEALTH/healthz"
}
case ${2:?} in
    stop) stop kubelet 20;;
    start) start;;
    restart) stop kubelet 20; start;;
    kill) kill -KILL "$(cat "$STATE/pid/kubelet")"; rm -f "$STATE/pid/kubelet";;
    *) exit 2;;
esac
