#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# partitionable.sh MINOR   prints a whole device and two halves of it on one counter set, a class, a template and three pods:
# with DRAPartitionableDevices two pods get the halves and the third stays pending; no pod gets the whole device beside a half.
# In 1.34 (gate off by default) counters and devices stand in one slice; from 1.35 on they must stand in two slices of one pool.
set -eu
N=$([ "${1:?minor version, e.g. 34}" -ge 35 ] && echo 2 || echo 1)
cat <<Y
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: mig.fake.example.com}, spec: {selectors: [{cel: {expression: 'device.driver == "mig.fake.example.com"'}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: fake-node-mig}
spec:
  driver: mig.fake.example.com
  nodeName: fake-node
  pool: {name: fake-node-mig, generation: 1, resourceSliceCount: $N}
  sharedCounters: [{name: gpu0, counters: {memory: {value: 80Gi}}}]
Y
[ $N = 1 ] || cat <<Y
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: fake-node-mig-devices}
spec:
  driver: mig.fake.example.com
  nodeName: fake-node
  pool: {name: fake-node-mig, generation: 1, resourceSliceCount: $N}
Y
cat <<Y
  devices:
  - {name: gpu0-half0, attributes: {type: {string: mig}}, consumesCounters: [{counterSet: gpu0, counters: {memory: {value: 40Gi}}}]}
  - {name: gpu0-half1, attributes: {type: {string: mig}}, consumesCounters: [{counterSet: gpu0, counters: {memory: {value: 40Gi}}}]}
  - {name: gpu0, attributes: {type: {string: gpu}}, consumesCounters: [{counterSet: gpu0, counters: {memory: {value: 80Gi}}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: mig, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: mig.fake.example.com}}]}}}
Y
for i in 1 2 3; do cat <<Y
---
apiVersion: v1
kind: Pod
metadata: {name: mig$i, namespace: default}
spec:
  automountServiceAccountToken: false
  nodeSelector: {kubernetes.io/hostname: fake-node}
  resourceClaims: [{name: r, resourceClaimTemplateName: mig}]
  containers: [{name: c, image: localhost/e2e/busybox:1, imagePullPolicy: Never, resources: {claims: [{name: r}]}}]
Y
done
