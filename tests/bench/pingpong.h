/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The yardstick of the benches: a bare 64-byte ping-pong between two processes, on CPUs that are
 * kept awake. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One busy process a CPU at the lowest priority: an idle CPU that fell asleep costs more to wake
 * than what is measured. */
struct awake {
    pid_t pids[256];
    size_t n;
};
void awake_start(struct awake *a);
void awake_stop(struct awake *a);

int64_t bench_now_ns(void);
/* n round trips over an AF_UNIX stream pair, each one's ns in t. 0 or -1. */
int pingpong(int64_t *t, size_t n);
/* Sorts t. p from 0 to 1. */
double percentile_us(int64_t *t, size_t n, double p);
