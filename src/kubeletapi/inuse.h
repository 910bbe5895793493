/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/kubeletapi: what kubelet knows: pod-resources client, its device checkpoint file, pod
 * cgroups. Not here: decisions. may use: base io data wire
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/host.h"
#include "io/loop.h"

struct device_use {
    const char *resource; /* "nvidia.com/gpu" */
    const char *id;       /* device id, share suffix included */
    const char *pod_uid;  /* "" when only pod-resources told it (it gives names) */
    const char *pod_name, *pod_namespace, *container; /* "" when unknown */
    bool from_checkpoint, from_podresources;
    bool pod_gone; /* proved: no cgroup of that pod UID under the host root */
};
struct registered_devices {
    const char *resource;
    const char *const *ids;
    size_t n;
};
struct in_use {
    struct arena arena;
    struct device_use *uses;
    size_t n;
    struct registered_devices *registered; /* RegisteredDevices of the checkpoint */
    size_t n_registered;
    bool checkpoint_read, podresources_read;
    char note[240]; /* what could not be read and why */
};
void in_use_free(struct in_use *u);

/* kubelet_internal_checkpoint (formats since 1.20: DeviceIDs per NUMA node; older: a plain list),
 * 16 MiB at most. Absent file: an empty result, checkpoint_read true. */
int checkpoint_parse(struct arena *a, struct str text, struct in_use *into,
                     struct error *err) must_check;

/* Reads checkpoint, cgroups and pod-resources without blocking the loop (file reads are bounded and
 * local; the RPC has 2 s), then calls done with a result to own, or NULL and an error. */
struct in_use_reader;
struct in_use_config {
    const struct host *host;
    const char *device_plugin_dir;   /* view path: /var/lib/kubelet/device-plugins */
    const char *podresources_socket; /* view path; NULL: not used */
};
int in_use_reader_new(struct loop *l, const struct in_use_config *config,
                      struct in_use_reader **ret, struct error *err) must_check;
void in_use_reader_free(struct in_use_reader *r);
void in_use_read(struct in_use_reader *r,
                 void (*done)(void *arg, struct in_use *u, const struct error *e),
                 void *arg); /* one at a time: a call during a run is joined to the next run */
