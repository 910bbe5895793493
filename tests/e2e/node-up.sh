#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# node-up.sh BINDIR STATEDIR IMAGE.tar   containerd + kubelet as one node of the control plane that up.sh started from STATEDIR.
# Both run in one private mount namespace, under the cgroup /e2e-<port>, with every directory of theirs under STATEDIR:
#   STATEDIR/k   the kubelet's /var/lib/kubelet (device-plugins/kubelet.sock, plugins, plugins_registry, pod-resources)
#   STATEDIR/cdi CDI specs    STATEDIR/c containerd    STATEDIR/cni
# Keep STATEDIR short: unix socket paths end at 107 characters.
# Environment: FEATURE_GATES  NODE_NAME  RUNTIME (runc; a path or name)
#   NVIDIA_RUNTIME (the handler "nvidia" of a RuntimeClass; default: RUNTIME)  KUBELET_EXTRA (more KubeletConfiguration yaml)
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=$(cd "${1:?usage: node-up.sh BINDIR STATEDIR IMAGE.tar}" && pwd)
STATE=$(cd "$2" && pwd); IMAGE=$(realpath "${3:?usage: node-up.sh BINDIR STATEDIR IMAGE.tar}")
. "$HERE/lib.sh"
RUNTIME=$(command -v "${RUNTIME:-runc}")
NVIDIA_RUNTIME=$(command -v "${NVIDIA_RUNTIME:-$RUNTIME}")
T0=$(date +%s.%N); lap() { printf 'e2e: %-34s %6.2fs\n' "$1" "$(echo "$(date +%s.%N) $T0" | awk '{print $1-$2}')"; }
for n in containerd kubelet; do alive $n && { echo "e2e: $n already runs from $STATE; run node-down.sh first" >&2; exit 1; }; done
K=$STATE/k C=$STATE/c; mkdir -p "$K" "$C" "$STATE/cdi" "$STATE/cni" "$STATE/log" "$STATE/pid" "$STATE/manifests"
CGROOT=e2e-$E2E_BASE

# --- one private mount namespace for both: a holder process keeps it open ------------------------------------------------
# The kubelet's device manager listens on /var/lib/kubelet/device-plugins/kubelet.sock whatever --root-dir says, containerd's
# shims use /run/containerd, and the kubelet links logs into /var/log/containers. Inside the namespace /run, /var/log and
# /var/lib are empty tmpfs, and STATEDIR/k is bound on /var/lib/kubelet; the host sees the same sockets under STATEDIR/k.
case $STATE/ in /run/*|/var/run/*|/var/log/*|/var/lib/*) echo "e2e: STATEDIR may not be under /run, /var/log or /var/lib" >&2; exit 2;; esac
if ! alive mountns; then
    setsid unshare --mount --propagation private sh -euc '
        for d in /run /var/log /var/lib; do mount -t tmpfs -o mode=755 tmpfs $d; done
        mkdir -p /var/lib/kubelet /var/log/containers /run/lock
        mount --make-rshared /
        mount --bind "$1/k" /var/lib/kubelet
        : >"$1/pid/mountns.ready"; exec sleep infinity' - "$STATE" >"$STATE/log/mountns.log" 2>&1 </dev/null &
    echo $! >"$STATE/pid/mountns"
    wait_for 10 "the mount namespace" test -e "$STATE/pid/mountns.ready" || { cat "$STATE/log/mountns.log" >&2; exit 1; }
    rm -f "$STATE/pid/mountns.ready"
fi
NS=(nsenter --mount="/proc/$(cat "$STATE/pid/mountns")/ns/mnt" --wd=/)

# --- containerd ----------------------------------------------------------------------------------------------------------
# Pods get a network namespace with lo alone, brought up by containerd itself; nothing is set up on the host. The CRI plugin
# insists on an "eth0" with an address in the CNI result, so this CNI plugin of our own reports one that it does not make.
cat >"$STATE/cni/e2e-none" <<'X'
#!/bin/sh
case $CNI_COMMAND in
ADD) printf '{"cniVersion":"1.0.0","interfaces":[{"name":"%s","sandbox":"%s"}],"ips":[{"address":"127.0.0.1/32","interface":0}]}' "$CNI_IFNAME" "$CNI_NETNS";;
VERSION) printf '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}';;
esac
X
chmod 755 "$STATE/cni/e2e-none"
cat >"$STATE/cni/10-e2e.conflist" <<X
{"cniVersion": "1.0.0", "name": "e2e", "plugins": [{"type": "e2e-none"}]}
X
cat >"$STATE/containerd.toml" <<X
version = 3
root = "$C/root"
state = "$C/state"
[grpc]
  address = "$C/s"
[ttrpc]
  address = "$C/t"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "${SNAPSHOTTER:-overlayfs}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "localhost/e2e/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["$STATE/cdi"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["$STATE/cni"]
    conf_dir = "$STATE/cni"
    use_internal_loopback = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "$RUNTIME"
        SystemdCgroup = false
        Root = "$C/runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
        BinaryName = "$NVIDIA_RUNTIME"
        SystemdCgroup = false
        Root = "$C/runc"
[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.internal.v1.opt"]
  path = "$C/opt"
X
PATH="$BIN:$PATH" spawn containerd "${NS[@]}" "$BIN/containerd" --config "$STATE/containerd.toml"
ALIVE=containerd wait_for 30 containerd "$BIN/ctr" -a "$C/s" version || { tail -20 "$STATE/log/containerd.log" >&2; exit 1; }
lap "containerd up"
"${NS[@]}" "$BIN/ctr" -a "$C/s" -n k8s.io images import --no-unpack --local "$IMAGE" >"$STATE/log/import.log" 2>&1 || { cat "$STATE/log/import.log" >&2; exit 1; }
lap "images imported"

# --- kubelet -------------------------------------------------------------------------------------------------------------
# the kubelet wants its cgroup root to exist, in every v1 hierarchy
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$CGROOT"
else
    for h in cpu cpuacct cpuset memory systemd pids devices freezer blkio hugetlb perf_event net_cls net_prio; do
        [ -d "/sys/fs/cgroup/$h" ] && mkdir -p "/sys/fs/cgroup/$h/$CGROOT"
    done
    for f in cpuset.cpus cpuset.mems; do cat "/sys/fs/cgroup/cpuset/$f" >"/sys/fs/cgroup/cpuset/$CGROOT/$f"; done
fi
FGY=; if [ -n "${FEATURE_GATES:-}" ]; then FGY="featureGates: {$(echo "$FEATURE_GATES" | sed 's/=/: /g; s/,/, /g')}"; fi
cat >"$STATE/kubelet.yaml" <<X
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: $KUBELET_PORT
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: $KUBELET_HEALTH
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $STATE/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $STATE/pki/node-$NODE_NAME.crt
tlsPrivateKeyFile: $STATE/pki/node-$NODE_NAME.key
containerRuntimeEndpoint: unix://$C/s
staticPodPath: $STATE/manifests
podLogsDir: $STATE/podlogs
volumePluginDir: /var/lib/kubelet/volume-plugins
resolvConf: ""
clusterDNS: []
cgroupDriver: cgroupfs
cgroupRoot: /$CGROOT
cgroupsPerQOS: true
failCgroupV1: false
enforceNodeAllocatable: []
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
localStorageCapacityIsolation: false
failSwapOn: false
protectKernelDefaults: false
makeIPTablesUtilChains: false
oomScoreAdj: -500
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 10s
syncFrequency: 5s
registerNode: true
maxPods: 50
shutdownGracePeriod: 0s
serializeImagePulls: false
$FGY
${KUBELET_EXTRA:-}
X
KUBELET=("${NS[@]}" "$BIN/kubelet" --config="$STATE/kubelet.yaml" --kubeconfig="$STATE/node.kubeconfig" --root-dir=/var/lib/kubelet
    --cert-dir="$STATE/pki" --hostname-override="$NODE_NAME" --v="${KUBELET_V:-2}")
declare -p KUBELET >"$STATE/kubelet.cmd"     # for kubelet.sh
spawn kubelet "${KUBELET[@]}"
export KUBECONFIG="$STATE/admin.kubeconfig"
ALIVE=kubelet wait_for 60 "the kubelet's healthz" curl -fsS "http://127.0.0.1:$KUBELET_HEALTH/healthz" || { tail -30 "$STATE/log/kubelet.log" >&2; exit 1; }
lap "kubelet healthy"
ALIVE=kubelet wait_for 90 "node $NODE_NAME Ready" sh -c "'$BIN/kubectl' get node '$NODE_NAME' -o jsonpath='{.status.conditions[?(@.type==\"Ready\")].status}' | grep -qx True" \
    || { "$BIN/kubectl" get nodes -o wide >&2; tail -30 "$STATE/log/kubelet.log" >&2; exit 1; }
lap "node Ready"
rss containerd kubelet
