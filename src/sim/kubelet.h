/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The small kubelet: enough of kubelet's device manager to run the agent against it without a
 * cluster: Registration server, dial-back, options, ListAndWatch, preferred allocation, Allocate,
 * its checkpoint file, pod-resources. `mete sim kubelet DIR` runs it; tests and the demo drive it
 * over a control socket or the C face below. Behaviour follows spec/kubelet-and-dra.md 2.2.
 */
#include "base/buf.h"
#include "io/loop.h"

struct sim_kubelet;
struct sim_kubelet_config {
    const char *dir; /* as /var/lib/kubelet: device-plugins/ and pod-resources/ are made below it */
    void *arg;
    void (*changed)(void *arg, const char *resource, size_t capacity,
                    size_t allocatable); /* after each list */
};
int sim_kubelet_new(struct loop *l, const struct sim_kubelet_config *c, struct sim_kubelet **ret,
                    struct error *err) must_check;
void sim_kubelet_free(struct sim_kubelet *k);
/* Admits a container asking for n of a resource: preferred allocation, Allocate. done gets the
 * decoded answer as JSON text, or an error. */
int sim_kubelet_admit(struct sim_kubelet *k, const char *pod, const char *container,
                      const char *resource, uint32_t n,
                      void (*done)(void *arg, const char *answer_json, const struct error *e),
                      void *arg, struct error *err) must_check;
void sim_kubelet_end_pod(struct sim_kubelet *k, const char *pod);
int sim_kubelet_restart(struct sim_kubelet *k, struct error *err)
    must_check; /* empties the directory, keeps the checkpoint, new socket */
void sim_kubelet_status(const struct sim_kubelet *k, struct buf *out_json);
