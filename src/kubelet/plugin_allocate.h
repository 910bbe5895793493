/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Shared by the two halves of Allocate: plugin_allocate.c reads, checks and grants, plugin_put.c
 * writes the answer. */
#include "kubelet/plugin_answer.h"

struct container {
    size_t first, n; /* of allocation.devices: each device once */
    size_t n_whole;  /* of these, not shared */
    size_t asked;    /* as kubelet counted */
};

struct allocation {
    const struct plugin_context *c;
    const struct resource *r;
    const struct device **devices;
    const char **ids, **bases, **gpus; /* the same, as the ledger wants them: whole ones first */
    size_t n, total;
    uint16_t *device_marks; /* container + 1 that has the device */
    uint16_t *base_marks;   /* while reading: container + 1 that named the base last; while
                               answering: 1, the container has named it */
    struct container containers[CONTAINERS_MAX];
    size_t n_containers;
};

/* Has the platform a node for each gpu? WSL has one for all, Tegra none of this kind. */
bool allocation_has_nodes(const struct plugin_context *c);

/* Appends the answer of one container, in the order of spec/device-plugin.md 3.3. Whether it fitted
 * is told by buf_check. */
int allocation_put(struct allocation *a, const struct container *k, struct buf *b,
                   struct error *err) must_check;
