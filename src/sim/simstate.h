/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/sim: the lab: our own libnvidia-ml.so.1, simulated hosts, the small kubelet.
 * Not here: anything the product itself needs on a real host.
 * may use: base io data wire gpu
 *
 * A simulated host is a directory DIR:
 * - DIR/.mete-sim/state: one file mapped by every process of the host (layout: sim/state_file.h); a
 *   futex in it wakes event waits.
 * - DIR/usr/lib/<triplet>/: libnvidia-ml.so.1 (ours) and stand-ins of the driver's other files.
 * - DIR/usr/bin, DIR/dev, DIR/proc, DIR/sys.
 *
 * The library finds its state by walking up from where it was loaded, or by METE_SIM_STATE.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct sim_create {
    const char *dir;
    const char *model;   /* a100-40 a100-80 a30 h100-sxm h100-pcie h100-nvl h200 b200 rtx-pro-6000
                            l40s t4   gb10; NULL: the profile's, or h100-sxm */
    uint32_t gpus;       /* 0: as many as the model's usual host has */
    uint64_t seed;       /* 0: fixed ids */
    const char *library; /* path of our libnvidia-ml.so.1; NULL: found beside the executable */
    const char *driver_version; /* NULL: the model's */
    bool nodes;                 /* make real device nodes (needs CAP_MKNOD); else plain files */
    const char *profile;        /* "h100", "a100", …: ids, bus numbers, NUMA as in the recordings
                                   (cases/README-recordings.md); NULL: the model's own */
    const char *driver_root;    /* "/run/nvidia/driver": driver files below that; NULL or "/": DIR
                                   itself (a profile has its own) */
    const char *hide_symbols;   /* "nvmlDeviceGetMemoryInfo_v2,nvmlGpm*": an old driver's library
                                   lacks   these; NULL: all are there */
};
int sim_create(const struct sim_create *c, struct error *err) must_check;
/* One change: "gpu 3 xid 79", "gpu 3 lost", "gpu 3 reset", "driver unload", "gpu 0 mig on", "gpu 0
 * mig 3g.40gb,1g.10gb", "call nvmlDeviceGetHandleByIndex_v2 hang" … (docs/lab.md). */
int sim_set(const char *dir, int argc, char *const *argv, struct error *err) must_check;
int sim_show(const char *dir, struct buf *out_json, struct error *err) must_check;
