#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# up.sh BINDIR STATEDIR    etcd + kube-apiserver + kube-controller-manager + kube-scheduler on 127.0.0.1
# After it: KUBECONFIG=STATEDIR/admin.kubeconfig.  Stop with down.sh STATEDIR.
# Environment: E2E_BASE (first port, 26440)  NODE_NAME  FEATURE_GATES (for all components)  RUNTIME_CONFIG (extra --runtime-config)
#              WITH_SCHEDULER=0 / WITH_KCM=0 leave one out
#              KCM_CONTROLLERS (a comma list; default: the ones a node agent's tests need, twice as fast to start as '*')
#              NODE_GRACE (24h: a made-up Node stays Ready with no kubelet; set 50s to have silent nodes tainted as in a real cluster)
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=$(cd "${1:?usage: up.sh BINDIR STATEDIR}" && pwd)
mkdir -p "${2:?usage: up.sh BINDIR STATEDIR}"; STATE=$(cd "$2" && pwd)
. "$HERE/lib.sh"
for n in etcd kube-apiserver; do alive $n && { echo "e2e: $n already runs from $STATE; run down.sh first" >&2; exit 1; }; done
T0=$(date +%s.%N); lap() { printf 'e2e: %-34s %6.2fs\n' "$1" "$(echo "$(date +%s.%N) $T0" | awk '{print $1-$2}')"; }
PKI="$STATE/pki"; mkdir -p "$PKI"; umask 077
API="https://127.0.0.1:$API_PORT"
ETCD=$BIN/etcd; [ -x "$ETCD" ] || ETCD=$(command -v etcd)

# --- certificates (EC P-256: quick to make), kept while the state directory is kept ----------------------------------
cert() { # cert NAME SUBJECT [SAN]
    local n=$1 subj=$2 san=${3:-}
    [ -s "$PKI/$n.crt" ] && return 0
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$PKI/$n.key" -out "$PKI/$n.csr" -subj "$subj" 2>/dev/null
    { echo "keyUsage=critical,digitalSignature,keyEncipherment"; echo "extendedKeyUsage=serverAuth,clientAuth"
        if [ -n "$san" ]; then echo "subjectAltName=$san"; fi; } >"$PKI/$n.ext"
    openssl x509 -req -in "$PKI/$n.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -days 3650 -extfile "$PKI/$n.ext" -out "$PKI/$n.crt" 2>/dev/null
    rm -f "$PKI/$n.csr" "$PKI/$n.ext"
}
kubeconfig() { # kubeconfig FILE CERTNAME
    cat >"$1" <<K
apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: "$API", certificate-authority-data: $(base64 -w0 <"$PKI/ca.crt")}}]
users: [{name: u, user: {client-certificate-data: $(base64 -w0 <"$PKI/$2.crt"), client-key-data: $(base64 -w0 <"$PKI/$2.key")}}]
contexts: [{name: e2e, context: {cluster: e2e, user: u}}]
current-context: e2e
K
}
if [ ! -s "$PKI/ca.crt" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=e2e-ca -keyout "$PKI/ca.key" -out "$PKI/ca.crt" 2>/dev/null
    openssl genrsa -out "$PKI/sa.key" 2048 2>/dev/null
    openssl rsa -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub" 2>/dev/null
fi
cert apiserver /CN=kube-apiserver "IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
cert apiserver-kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
cert front-proxy-client /CN=front-proxy-client
cert admin /O=system:masters/CN=admin
cert kcm /CN=system:kube-controller-manager
cert scheduler /CN=system:kube-scheduler
cert "node-$NODE_NAME" "/O=system:nodes/CN=system:node:$NODE_NAME" "IP:127.0.0.1,DNS:localhost,DNS:$NODE_NAME"
kubeconfig "$STATE/admin.kubeconfig" admin
kubeconfig "$STATE/kcm.kubeconfig" kcm
kubeconfig "$STATE/scheduler.kubeconfig" scheduler
kubeconfig "$STATE/node.kubeconfig" "node-$NODE_NAME"
lap certificates

# --- etcd --------------------------------------------------------------------------------------------------------------
spawn etcd "$ETCD" --name e2e --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls "http://127.0.0.1:$ETCD_PEER" --initial-advertise-peer-urls "http://127.0.0.1:$ETCD_PEER" \
    --initial-cluster "e2e=http://127.0.0.1:$ETCD_PEER"
ALIVE=etcd wait_for 30 etcd curl -fsS "http://127.0.0.1:$ETCD_PORT/health"; lap "etcd healthy"

# --- kube-apiserver ----------------------------------------------------------------------------------------------------
FG=(); [ -n "${FEATURE_GATES:-}" ] && FG=(--feature-gates="$FEATURE_GATES")
RC=(); [ -n "${RUNTIME_CONFIG:-}" ] && RC=(--runtime-config="$RUNTIME_CONFIG")
spawn kube-apiserver "$BIN/kube-apiserver" --bind-address=127.0.0.1 --secure-port="$API_PORT" --advertise-address=127.0.0.1 \
    --etcd-servers="http://127.0.0.1:$ETCD_PORT" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --client-ca-file="$PKI/ca.crt" --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --kubelet-certificate-authority="$PKI/ca.crt" --kubelet-client-certificate="$PKI/apiserver-kubelet-client.crt" \
    --kubelet-client-key="$PKI/apiserver-kubelet-client.key" --kubelet-preferred-address-types=Hostname \
    --requestheader-client-ca-file="$PKI/ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$PKI/front-proxy-client.crt" --proxy-client-key-file="$PKI/front-proxy-client.key" \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" \
    --service-cluster-ip-range=10.0.0.0/24 --allow-privileged=true --endpoint-reconciler-type=none --profiling=false "${FG[@]}" "${RC[@]}"
export KUBECONFIG="$STATE/admin.kubeconfig"
curl_api() { curl -fsS --cacert "$PKI/ca.crt" --cert "$PKI/admin.crt" --key "$PKI/admin.key" "$API$1"; }
ALIVE=kube-apiserver wait_for 90 "the API server's /readyz" curl_api /readyz || { tail -20 "$STATE/log/kube-apiserver.log" >&2; exit 1; }
lap "kube-apiserver ready"

# --- controller manager and scheduler ----------------------------------------------------------------------------------
KCM_CONTROLLERS=${KCM_CONTROLLERS:-$(echo {serviceaccount,serviceaccount-token,root-ca-certificate-publisher,namespace,garbage-collector,pod-garbage-collector,resourceclaim,device-taint-eviction,node-lifecycle,taint-eviction,daemonset,deployment,replicaset,job}-controller | tr ' ' ,)}
if [ "${WITH_KCM:-1}" = 1 ]; then
    spawn kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig="$STATE/kcm.kubeconfig" --bind-address=127.0.0.1 --secure-port="$KCM_PORT" \
        --authentication-kubeconfig="$STATE/kcm.kubeconfig" --authorization-kubeconfig="$STATE/kcm.kubeconfig" \
        --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
        --service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" --use-service-account-credentials=true \
        --leader-elect=false --profiling=false --node-monitor-grace-period="${NODE_GRACE:-24h}" --controllers="$KCM_CONTROLLERS" "${FG[@]}"
fi
if [ "${WITH_SCHEDULER:-1}" = 1 ]; then
    spawn kube-scheduler "$BIN/kube-scheduler" --kubeconfig="$STATE/scheduler.kubeconfig" --bind-address=127.0.0.1 --secure-port="$SCHED_PORT" \
        --authentication-kubeconfig="$STATE/scheduler.kubeconfig" --authorization-kubeconfig="$STATE/scheduler.kubeconfig" \
        --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --leader-elect=false --profiling=false "${FG[@]}"
    ALIVE=kube-scheduler wait_for 60 kube-scheduler curl -fsS --cacert "$PKI/ca.crt" "https://127.0.0.1:$SCHED_PORT/healthz"
fi
if [ "${WITH_KCM:-1}" = 1 ]; then
    ALIVE=kube-controller-manager wait_for 60 kube-controller-manager curl -fsS --cacert "$PKI/ca.crt" "https://127.0.0.1:$KCM_PORT/healthz"
    wait_for 60 "the default service account" curl_api /api/v1/namespaces/default/serviceaccounts/default
fi
lap "control plane ready"
rss etcd kube-apiserver kube-controller-manager kube-scheduler
