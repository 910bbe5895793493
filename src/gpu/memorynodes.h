/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The host's memory nodes. On coherent systems (GH200, GB200 and their like) the memory of a gpu
 * can be one: a node without CPUs. */
#include "base/host.h"
#include "gpu/survey.h"

struct memory_node {
    uint32_t number;
    bool has_cpus;
    uint64_t bytes; /* 0: not told */
};
enum { MEMORY_NODES_MAX = 256 };

/* /sys/devices/system/node/node*, by number; at most max. 0 also when the directory is not there.
 */
size_t memory_nodes(const struct host *h, struct memory_node *ret, size_t max);

/* What somebody who runs Kubernetes there should know of this gpu's memory; false: nothing. */
bool memory_note(const struct gpu *g, const struct memory_node *nodes, size_t n, char *ret,
                 size_t size);
