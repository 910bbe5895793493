#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu-host.sh PACKDIR WORKDIR   unpacks pack.sh's archives on a host with a GPU (root, no network needed), brings up control plane and node, and leaves them running.
# Seen on a virtual machine with one H200 (Ubuntu 24.04, cgroup v2, 16 cores): control plane 5.1 s, node Ready 1.4 s, a pod with nvidia.com/gpu: 1 through the Go device plugin
# (cdi-cri) ran nvidia-smi -L and ended 2.6 s after it was created.
# The image gets the host's libc so that the driver's own programs run in it. A plugin runs inside the node's mount namespace:
#   nsenter --mount=/proc/$(cat WORKDIR/s/pid/mountns)/ns/mnt --wd=/ PROGRAM ...
# CDI files must end up in WORKDIR/s/cdi, which containerd reads.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
PACK=$(cd "${1:?usage: gpu-host.sh PACKDIR WORKDIR}" && pwd); mkdir -p "${2:?usage: gpu-host.sh PACKDIR WORKDIR}/bin"; W=$(cd "$2" && pwd)
xz -T4 -dc "$PACK/k8s.xz" > "$W/bin/k8s"; xz -dc "$PACK/rest.tar.xz" | tar x -C "$W/bin"
for p in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$W/bin/k8s" $p > "$W/bin/$p"; done
chmod +x "$W"/bin/*; export PATH="$W/bin:$PATH"
"$HERE/up.sh" "$W/bin" "$W/s"
L=/lib/x86_64-linux-gnu; files=("$HERE/gpu-probe" /lib64/ld-linux-x86-64.so.2:/lib64/ld-linux-x86-64.so.2)
for l in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do files+=("$L/$l:$L/$l"); done
"$HERE/image.sh" "$W/image.tar" "${files[@]}"
"$HERE/node-up.sh" "$W/bin" "$W/s" "$W/image.tar"
echo "export KUBECONFIG=$W/s/admin.kubeconfig PATH=$W/bin:\$PATH"
