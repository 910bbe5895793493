/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The server of one resource: its socket, the open device list streams, and its registration. */
#include "cdi/cdi.h"
#include "kubelet/plugin.h"
#include "kubelet/registration.h"

/* What all servers of a set share: what they publish and whom they tell. */
struct plugin_shared {
    struct loop *loop;
    struct plugin_set_config config;
    const struct inventory *inv; /* NULL before the first publication */
    const struct plugin_config *plugin_config;
    struct cdi_facts facts;
    struct buf answer; /* reused, so that a call costs no allocation */
};

struct plugin_server;

/* Listens and registers as soon as it can; what fails is tried again and told through `failed`.
 * ended(): the server drained and may be freed. */
struct plugin_server *plugin_server_new(struct plugin_shared *shared, const struct resource *r,
                                        void (*ended)(void *arg, struct plugin_server *s),
                                        void *arg);
void plugin_server_free(struct plugin_server *s);

/* The resource as it is now (NULL: it vanished); borrowed until the next call. Sends the list where
 * it differs. Kept empty for a while, the server ends by itself. */
void plugin_server_update(struct plugin_server *s, const struct resource *r);
void plugin_server_kubelet_new(struct plugin_server *s);
void plugin_server_register_again(struct plugin_server *s);
void plugin_server_check_socket(struct plugin_server *s); /* made again when somebody deleted it */
void plugin_server_end(struct plugin_server *s);          /* drains, then ended() */

const char *plugin_server_resource(const struct plugin_server *s);
const char *plugin_server_socket(const struct plugin_server *s);
struct plugin_status plugin_server_status(const struct plugin_server *s);
