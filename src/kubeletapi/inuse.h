/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/kubeletapi: what kubelet knows: pod-resources client, its device checkpoint file, pod
 * cgroups. Not here: decisions. may use: base io data wire
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/finding.h"
#include "base/host.h"
#include "io/loop.h"

struct device_use {
    const char *resource; /* "nvidia.com/gpu" */
    const char *id;       /* device id, share suffix included */
    const char *pod_uid;  /* "" when only pod-resources told it (it gives names) */
    const char *pod_name, *pod_namespace, *container; /* "" when unknown; never NULL */
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
    int64_t began_ns; /* host_mono_ns when the reading began: what happened later may be missing */
    char note[240];   /* what could not be read and why; "" when all was read */
};
struct in_use *in_use_new(void);
void in_use_free(struct in_use *u); /* NULL allowed */

/* Is this use alive: listed by pod-resources, or its pod not proved gone? */
static inline bool use_holds(const struct device_use *u)
{
    return u->from_podresources || !u->pod_gone;
}

/* "default/trainer" or "uid 1234-…", for messages; into buf, which it returns. */
const char *use_pod_text(const struct device_use *u, char *buf, size_t size);

/* One gpu or part that two pods hold at once, or a base held whole by one pod and as a share by
 * another: findings "in-use.duplicate" that name both pods and the one to delete. Containers of one
 * pod may have the same device. Returns how many were found. */
size_t in_use_duplicates(const struct in_use *u, struct findings *out);

enum {
    CHECKPOINT_MAX = 16 * 1024 * 1024, /* bytes of the file, and of a pod-resources answer */
    IN_USE_MAX = 512 * 1024,           /* uses, and registered ids */
};
#define CHECKPOINT_FILE "kubelet_internal_checkpoint"

/* kubelet_internal_checkpoint (formats since 1.20: DeviceIDs per NUMA node; older: a plain list),
 * CHECKPOINT_MAX at most; its checksum (a hash over Go's memory layout) is not checked. Adds to
 * `into`, whose arena gets all texts; `scratch` holds the document and may be dropped afterwards.
 * On an error `into` is as before, but for arena memory. */
int checkpoint_parse(struct arena *scratch, struct str text, struct in_use *into,
                     struct error *err) must_check;
/* ListPodResourcesResponse (v1), merged into `into`: a use known from the checkpoint gets the names
 * of its pod, others are added. */
int podresources_parse(struct str message, struct in_use *into, struct error *err) must_check;
/* Sets pod_gone on each use whose pod has no cgroup directory under <host root>/sys/fs/cgroup (v1
 * and v2, named by systemd or by cgroupfs). A tree that cannot be read whole, or without any
 * "kubepods" directory (another cgroup namespace, kubelet not up yet), proves nothing: an error,
 * and nothing is set. */
int pods_gone_mark(const struct host *h, struct in_use *u, struct error *err) must_check;

/* Names of pods by their UID, from the directories <host
 * root>/var/log/pods/<namespace>_<name>_<uid>. What cannot be read stays nameless. */
void pods_name(const struct host *h, struct in_use *u);

/* Reads checkpoint, cgroups and then pod-resources without blocking the loop (files on a thread of
 * its own; the RPC has 2 s and GRPC_MESSAGE_MAX), then calls done with a result to own, or NULL and
 * an error when neither source could be read. An absent checkpoint is read and empty. Without
 * pod-resources a pod without cgroup counts as gone only when the checkpoint was not written for
 * YOUNG_CHECKPOINT_S: kubelet writes it before it makes the pod's cgroup. */
enum { YOUNG_CHECKPOINT_S = 120 };
struct in_use_reader;
struct in_use_config {
    const struct host *host;
    const char *device_plugin_dir;   /* view path: /var/lib/kubelet/device-plugins */
    const char *podresources_socket; /* view path; NULL: not used */
};
int in_use_reader_new(struct loop *l, const struct in_use_config *config,
                      struct in_use_reader **ret, struct error *err) must_check;
void in_use_reader_free(struct in_use_reader *r);
/* One reading at a time; a call during one makes one more follow it, whose result goes to the
 * done() given last. done() may call in_use_read again, and may free the reader. */
void in_use_read(struct in_use_reader *r,
                 void (*done)(void *arg, struct in_use *u, const struct error *e), void *arg);
