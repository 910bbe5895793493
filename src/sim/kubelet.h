/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The small kubelet: enough of kubelet's device manager to run the agent against it without a
 * cluster: Registration server, dial-back, options, ListAndWatch, preferred allocation, Allocate,
 * pre-start, its checkpoint file, pod-resources. `mete sim kubelet DIR` runs it; tests and the demo
 * drive it over a control socket or the C face below. Behaviour and error texts follow
 * spec/kubelet-and-dra.md 2.2 and 2.6.
 */
#include "base/buf.h"
#include "io/loop.h"

struct sim_kubelet;
struct sim_kubelet_config {
    const char *dir; /* as /var/lib/kubelet: device-plugins/ and pod-resources/ are made below it */
    const char *cgroup_dir; /* NULL, or a host's sys/fs/cgroup: a running pod has a folder there */
    int64_t grace_ms; /* how long a resource stays listed after its plugin went; 0: 5 min as kubelet
                       */
    void *arg;
    /* After each list; may be NULL. It may not stop or free the kubelet. */
    void (*changed)(void *arg, const char *resource, size_t capacity, size_t allocatable);
};
/* Makes the directories, reads the checkpoint, serves both sockets. */
int sim_kubelet_new(struct loop *l, const struct sim_kubelet_config *c, struct sim_kubelet **ret,
                    struct error *err) must_check;
void sim_kubelet_free(struct sim_kubelet *k); /* NULL allowed; the checkpoint stays */
/* Admits a container asking for n of a resource: preferred allocation, Allocate, pre-start. `pod`
 * is "name" or "namespace/name". Admissions run one after the other, as kubelet's do. A container
 * that has its devices already keeps them and Allocate is not called again. done gets the decoded
 * answer as JSON text, or an error, exactly once, never before this returns. */
int sim_kubelet_admit(struct sim_kubelet *k, const char *pod, const char *container,
                      const char *resource, uint32_t n,
                      void (*done)(void *arg, const char *answer_json, const struct error *e),
                      void *arg, struct error *err) must_check;
/* The pod's containers end. Nobody tells the plugin, and the checkpoint names them until the next
 * admission. `pod` as above, or a pod's UID. ERR_NOT_FOUND when there is none. */
int sim_kubelet_end_pod(struct sim_kubelet *k, const char *pod, struct error *err) must_check;
/* As if the kubelet's process had ended: sockets and connections close; pods run on. */
void sim_kubelet_stop(struct sim_kubelet *k);
/* As when it starts: empties the plugin directory but for the checkpoint, reads that, makes new
 * sockets. */
int sim_kubelet_start(struct sim_kubelet *k, struct error *err) must_check;
int sim_kubelet_restart(struct sim_kubelet *k, struct error *err) must_check; /* both */

/* Kubelet's side closes its connections to the plugins; its own socket stays. */
void sim_kubelet_drop(struct sim_kubelet *k);
/* Kubelet loses what it knows of a resource's devices while its connection to the plugin stays (a
 * defect that real kubelets had). ERR_NOT_FOUND: no such resource. */
int sim_kubelet_forget(struct sim_kubelet *k, const char *resource, struct error *err) must_check;
/* How Register is answered from now on: so many milliseconds later (0: at once), and, unless NULL
 * or "", with this error text. */
void sim_kubelet_behave(struct sim_kubelet *k, int64_t register_ms, const char *refuse);

/* Resources with their devices, pods with theirs. */
void sim_kubelet_status(const struct sim_kubelet *k, struct buf *out_json);
/* What happened since event number `after` (0: all that is kept): registrations, lists, grants, …
 */
void sim_kubelet_events(const struct sim_kubelet *k, uint64_t after, struct buf *out_json);

/* The control socket: one JSON line a request, one JSON line an answer, in order
 * (requests: kubelet_ctl.c). quit() is called when a client asks the program to end. */
struct sim_kubelet_ctl;
int sim_kubelet_ctl_new(struct loop *l, struct sim_kubelet *k, const char *path,
                        void (*quit)(void *arg), void *arg, struct sim_kubelet_ctl **ret,
                        struct error *err) must_check;
void sim_kubelet_ctl_free(struct sim_kubelet_ctl *c); /* NULL allowed; before the kubelet */
/* After anything changed: requests that wait for a state look again. */
void sim_kubelet_ctl_changed(struct sim_kubelet_ctl *c);
