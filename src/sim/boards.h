/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The tables behind sim/models.h: boards with figures of real ones, and the recorded hosts. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum far_end { FAR_NONE, FAR_SWITCH, FAR_PAIR };

struct model {
    const char *key, *name, *geometry, *driver, *part, *vbios;
    uint32_t usual, pci_id, subsystem, brand, arch, cc_major, cc_minor;
    uint32_t memory_mib, reserved_mib, bar1_mib, power_limit_w, multiprocessors, copy_engines;
    bool mig_cold, ecc, remap, fan, unified, fabric, c2c;
    uint32_t addressing, links, link_version, far_end, switches, pcie, sm_clock, memory_clock;
    int32_t cuda;
    uint8_t buses[8], modules[8]; /* in bus order; modules 0: the call is not supported */
};
extern const struct model sim_models[];
extern const size_t n_sim_models;

/* The hosts of the recordings (cases/README-recordings.md). What a field leaves 0 or NULL is the
 * model's. */
struct host_profile {
    const char *key, *model, *name, *driver, *uuid; /* uuid: all but the last digit, which counts */
    uint32_t gpus, memory_mib, major_uvm, major_caps, major_imex;
    int32_t cuda;
    uint8_t buses[8], roots[8];
    int8_t numa[8];
    bool mig_on, no_sysfs, real, clique;
    const char *driver_root, *lib_dir, *bin_dir, *gpu_name;
};
extern const struct host_profile sim_host_profiles[];
extern const size_t n_sim_host_profiles;
