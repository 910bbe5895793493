/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Device plugin answers, sans-I/O: one entry point for the server, the unit and golden tests, the
 * fuzzer and the bench. */
#include "kubelet/plugin.h"

struct plugin_context {
    const struct host *host;
    const struct inventory *inv;
    const struct plugin_config *config;
    struct ledger *ledger; /* NULL: nothing is recorded */
    int64_t now_ns;
    const char *const *control_nodes; /* device nodes found at publish time ("/dev/nvidiactl", …),
                                         so that no file is looked at on the grant path */
    size_t n_control_nodes;
    bool imex_channel0; /* asked for and present */
    uint32_t gated;     /* bit 0 gdrcopy, 1 gds, 2 mofed: CDI class has content */
    bool *not_distinct; /* set by plugin_allocate when a container got two shares of one gpu or
                           part; may be NULL */
};

enum {
    CONTAINERS_MAX = 256, /* container requests in one call; kubelet sends one */
    IDS_MIN = 256,        /* ids accepted of one call even when the resource has fewer devices */
};

/* All: request and answer are protobuf bytes. On failure err.text is the gRPC message (peer's
 * wording where it has one), always with status UNKNOWN as the peer's. */
int plugin_allocate(const struct plugin_context *c, const struct resource *r, struct str request,
                    struct buf *answer, struct error *err) must_check;
int plugin_preferred(const struct plugin_context *c, const struct resource *r, struct str request,
                     struct buf *answer, struct error *err) must_check;
int plugin_list(const struct resource *r, const struct survey *s, struct buf *answer,
                struct error *err) must_check;
int plugin_options(struct buf *answer, struct error *err) must_check;
int plugin_register_request(const struct resource *r, struct buf *request,
                            struct error *err) must_check;

/* The ids of one container of an AllocateRequest, joined by commas and cut at the buffer's end: for
 * notes. False when there is no such container. */
bool plugin_request_ids(struct str request, size_t container, char *ret, size_t size);
