/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/kubelet: the two faces to kubelet: device plugin and (later) DRA; registration.
 * Not here: what is offered (node/), who owns it (node/ledger).
 * may use: base io data wire gpu spec kubeletapi node cdi
 *
 * The device plugin API v1beta1, whole (spec/device-plugin.md 3, kubelet-and-dra.md 2.2).
 * plugin_answer.h has the sans-I/O part: request bytes in, answer bytes out.
 */
#include "base/host.h"
#include "io/loop.h"
#include "node/inventory.h"
#include "node/ledger.h"

struct plugin_set; /* one server for each resource of the inventory */

struct plugin_set_config {
    const struct host *host;
    const char *device_plugin_dir; /* view path where our sockets are made:
                                      /var/lib/kubelet/device-plugins */
    const char *kubelet_socket;    /* view path; "" = do not register (spec 3.1) */
    struct ledger *ledger;
    int64_t grace_ms;  /* an emptied resource is served so long; 0: 30 s */
    int64_t expect_ms; /* after an acknowledgement kubelet must open the list; 0: 10 s */
    void *arg;
    void (*registered)(void *arg, const char *resource,
                       size_t devices);                  /* each time kubelet acknowledged */
    void (*first_list)(void *arg, const char *resource); /* the first list of a stream left */
    void (*failed)(void *arg, const char *resource, bool permanent,
                   const char *why); /* registration refused or kubelet absent; once per cause */
    void (*granted)(void *arg, const char *resource, const char *ids,
                    const char *error); /* each container of an Allocate; error NULL when granted */
    void (*not_distinct)(void *arg, const char *resource,
                         const char *ids); /* granted, but two shares are of one gpu; may be NULL */
};

int plugin_set_new(struct loop *l, const struct plugin_set_config *config, struct plugin_set **ret,
                   struct error *err) must_check;
/* Publishes: starts servers of new resources, sends new lists on changed ones, empties and then
 * ends those that vanished. Both are borrowed until the next call. */
void plugin_set_publish(struct plugin_set *p, const struct inventory *inv,
                        const struct plugin_config *config);
/* Withdraws politely: drains, unlinks our sockets, then done(). */
void plugin_set_stop(struct plugin_set *p, void (*done)(void *arg), void *arg);
void plugin_set_free(struct plugin_set *p);

/* Kubelet does not know of this resource what was sent to it: registers it anew. */
void plugin_set_register_again(struct plugin_set *p, const char *resource);

struct plugin_status {
    const char *resource;
    bool registered, stream_open;
    size_t devices, healthy;
    const char *last_error; /* NULL */
};
size_t plugin_set_status(const struct plugin_set *p, struct plugin_status *ret, size_t max);
