/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the worker denies itself before it loads the driver's library: it dies with the agent, opens
 * no network socket, traces no process, mounts nothing, loads no kernel code, and writes no file
 * but below the host's /dev, /proc, /sys and /run. Each fence is optional: where the host does not
 * allow it the worker goes on, and says so.
 */
#include "base/buf.h"
#include "base/host.h"

/* Appends to *notes a text for each fence that could not be had. Before any thread is started. */
void fence_up(const struct host *h, struct buf *notes);
