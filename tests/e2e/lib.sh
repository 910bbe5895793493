# SPDX-License-Identifier: Apache-2.0
# lib.sh   shared by up.sh, down.sh, node-up.sh: ports, start and stop of one process by its pid file
E2E_BASE=${E2E_BASE:-26440}          # ports BASE+0.. on 127.0.0.1
ETCD_PORT=$((E2E_BASE+0)) ETCD_PEER=$((E2E_BASE+1)) API_PORT=$((E2E_BASE+3))
KCM_PORT=$((E2E_BASE+4)) SCHED_PORT=$((E2E_BASE+5)) KUBELET_PORT=$((E2E_BASE+6)) KUBELET_HEALTH=$((E2E_BASE+7))
NODE_NAME=${NODE_NAME:-localhost}    # must resolve to 127.0.0.1: the API server dials the kubelet by host name

# spawn NAME PROGRAM ARGS...   in its own session, log and pid under $STATE
spawn() {
    local name=$1; shift
    mkdir -p "$STATE/log" "$STATE/pid"
    setsid "$@" >"$STATE/log/$name.log" 2>&1 </dev/null &
    echo $! >"$STATE/pid/$name"
}
# alive NAME: the recorded pid runs, and it is a process that was started from this state directory's record
alive() {
    local pid; pid=$(cat "$STATE/pid/$1" 2>/dev/null) || return 1
    [ -d "/proc/$pid" ] && [ "$(sed 's/^.*) \(.\) .*/\1/' "/proc/$pid/stat" 2>/dev/null)" != Z ]
}
stop() {  # stop NAME [SECONDS]: TERM, wait, then KILL
    local pid i; pid=$(cat "$STATE/pid/$1" 2>/dev/null) || return 0
    if alive "$1"; then
        kill -TERM "$pid" 2>/dev/null || true
        for ((i = 0; i < ${2:-10} * 10; i++)); do alive "$1" || break; sleep 0.1; done
        alive "$1" && { echo "e2e: $1 ($pid) ignored TERM, killed" >&2; kill -KILL "$pid" 2>/dev/null || true; }
    fi
    rm -f "$STATE/pid/$1"
}
wait_for() {  # wait_for SECONDS WHAT COMMAND...   (with ALIVE=NAME set: gives up at once when that process ends)
    local limit=$1 what=$2 i; shift 2
    for ((i = 0; i < limit * 5; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        if [ -n "${ALIVE:-}" ] && ! alive "$ALIVE"; then echo "e2e: $ALIVE ended while waiting for $what" >&2; return 1; fi
        sleep 0.2
    done
    echo "e2e: gave up waiting for $what after ${limit}s" >&2; return 1
}
rss() {  # rss NAME...: resident and peak memory of each
    local n pid
    for n; do alive "$n" || continue; pid=$(cat "$STATE/pid/$n")
        awk -v n="$n" '/^VmHWM/{h=$2} /^VmRSS/{r=$2} END{printf "  %-26s rss %4d MiB  peak %4d MiB\n", n, r/1024, h/1024}' "/proc/$pid/status"
    done
}
