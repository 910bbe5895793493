/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The one file that all processes of a simulated host map: DIR/.mete-sim/state.
 *
 * It holds two copies of the world. A change is made by one process at a time (an open-file lock,
 * which the kernel drops when its holder dies): it copies the current world into the other place,
 * alters it there, and publishes it by one atomic store of `generation`. A reader copies what it
 * needs and looks whether the generation is still the same. So a process killed at any instruction
 * leaves either the old world or the new one, and nobody waits for it.
 *
 * Events stand beside it in a ring: written first, published by one store of `event_seq`.
 * `futex` counts changes and events; whoever waits (event waits, hanging calls) sleeps on it.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    SIM_GPUS_MAX = 64,
    SIM_GI_MAX = 15, /* GI ids 0..14: what the minor numbers have room for */
    SIM_CI_MAX = 8,
    SIM_LINKS_MAX = 36,
    SIM_SWITCHES_MAX = 16,
    SIM_CLIENTS_MAX = 16,
    SIM_FAULTS_MAX = 64,
    SIM_EVENTS_MAX = 256,
    SIM_EVENTS_KEPT = 192, /* older ones may be overwritten by events not yet published */
    SIM_CALL_NAME_SIZE = 64,
    SIM_STATE_VERSION = 1,
};
#define SIM_STATE_MAGIC UINT64_C(0x314d4953455445) /* "ETESIM1" */
#define SIM_STATE_PATH  ".mete-sim/state"

enum sim_driver_state { SIM_DRIVER_LOADED, SIM_DRIVER_UNLOADED, SIM_DRIVER_MISMATCH };
enum sim_memory_mode { SIM_MEMORY_NORMAL, SIM_MEMORY_UNSUPPORTED, SIM_MEMORY_ZERO };
enum sim_fault_kind { SIM_FAULT_NONE, SIM_FAULT_HANG, SIM_FAULT_SLOW, SIM_FAULT_FAIL };
enum sim_client_kind { SIM_CLIENT_COMPUTE, SIM_CLIENT_GRAPHICS, SIM_CLIENT_MPS };
enum sim_leniency { SIM_LENIENT_MAGIC = 1, SIM_LENIENT_LOST = 2 };

struct sim_fault {
    uint32_t kind;                 /* enum sim_fault_kind */
    int32_t gpu;                   /* -1: any */
    uint32_t value;                /* milliseconds, or the code to answer */
    char call[SIM_CALL_NAME_SIZE]; /* exported name, or the beginning of one followed by '*' */
};

struct sim_client {
    uint32_t pid, kind, gi, ci; /* pid 0: free; UINT32_MAX outside MIG */
    uint64_t memory;
};

struct sim_link {
    uint8_t active, remote_type; /* enum nv_link_remote */
    uint8_t remote;              /* gpu, or number of the switch */
    uint8_t errors;
};

struct sim_gpu {
    uint32_t present;     /* 0: pulled out; not enumerated at the next init */
    uint32_t lost;        /* calls answer GPU_IS_LOST */
    uint32_t handle_code; /* 0, or what taking a handle answers */
    uint32_t lost_count;  /* how often it was lost or pulled out */
    uint64_t resets;      /* how often it was reset */

    char uuid[48], name[64], serial[32], part_number[32], vbios[32], inforom[16];
    uint32_t domain, bus, device, pci_id, subsystem, pci_class;
    char pci_root[16];     /* "pci0000:15" */
    uint32_t switch_group; /* gpus of equal number share one PCIe switch */
    int32_t numa;          /* sysfs; -1 none */
    uint32_t minor, module, brand, arch, cc_major, cc_minor;

    uint64_t memory_total, memory_reserved, memory_used, bar1_total; /* bytes */
    uint32_t memory_mode;                                            /* enum sim_memory_mode */
    uint32_t has_ecc, ecc_current, ecc_pending;
    uint64_t ecc[2][2];     /* [corrected, uncorrected][volatile, aggregate] */
    uint32_t sram_exceeded; /* uncorrectable SRAM threshold */
    uint32_t has_remap, remap_corrected, remap_uncorrected, remap_pending, remap_failed,
        remap_banks;
    uint32_t retired_single, retired_double,
        retired_pending; /* pages, where there is no remapping */

    uint32_t mig_capable, mig_current, mig_pending,
        mig_cold;     /* cold: a mode change needs a reset */
    int32_t geometry; /* row of sim_geometries; -1 none */

    uint32_t has_fabric, fabric_state, fabric_status, fabric_clique, fabric_health, fabric_summary;
    uint8_t fabric_cluster[16];
    uint32_t has_addressing, addressing, has_c2c, unified;
    uint32_t virtualization, persistence, compute_mode;

    uint32_t power_mw, power_limit_mw, has_power_limit, temperature, memory_temperature, has_fan;
    uint32_t util_gpu, util_memory, sm_clock, sm_clock_max, memory_clock, pstate;
    uint64_t clock_reasons, energy_mj; /* energy: what the counter began with */
    int64_t
        energy_from_ns; /* when it began: the last reset; earlier than the driver's load: then */
    uint32_t pcie_generation, pcie_generation_max, pcie_width, pcie_width_max, pcie_replays;
    uint32_t recovery_action, event_mask;
    uint32_t multiprocessors, copy_engines;

    uint32_t n_links, link_version;
    struct sim_link links[SIM_LINKS_MAX];
    struct sim_client clients[SIM_CLIENTS_MAX];
};

struct sim_ci {
    uint32_t used, id, profile, start, size; /* profile: enum nv_ci_profile; in compute slices */
    uint32_t slot, serial;                   /* slot: index of the MIG device */
    char uuid[44];
};

struct sim_gi {
    uint32_t used, id, profile, start, size, serial; /* profile: row of the geometry */
    struct sim_ci ci[SIM_CI_MAX];
};

struct sim_mig {
    struct sim_gi gi[SIM_GI_MAX];
};

struct sim_switch {
    uint32_t bus;
};

struct sim_world {
    uint32_t driver;       /* enum sim_driver_state */
    uint32_t driver_epoch; /* counts loads: a session belongs to one */
    char driver_version[32], nvml_version[48];
    int32_t cuda_version;
    int64_t loaded_ns; /* CLOCK_MONOTONIC */
    char boot_id[40];

    uint32_t leniency;     /* enum sim_leniency, bits */
    uint32_t monitor_deny; /* reading MIG instances answers NO_PERMISSION */
    uint32_t moves_minor;  /* a MIG mode change gives the gpu another minor */
    uint32_t next_serial;  /* of instances */

    /* how the host directory is laid out */
    char model[24], profile[24], driver_root[128], lib_dir[64], bin_dir[64], product[64];
    uint32_t nodes; /* device nodes are real ones */
    uint32_t bare;  /* driver files: only the few of the recorded hosts, empty */
    uint32_t no_sysfs_gpus;
    uint32_t major_uvm, major_caps, major_imex, major_switch;
    uint32_t imex_channels; /* how many nodes exist */
    uint64_t system_memory; /* bytes; /proc/meminfo */
    uint32_t n_cpus, n_numa;
    uint32_t numa_nodes[16];

    uint32_t n_faults, pad;
    struct sim_fault faults[SIM_FAULTS_MAX];
    char hidden[1024]; /* patterns of symbols that the library lacks */

    uint32_t n_switches;
    struct sim_switch switches[SIM_SWITCHES_MAX];

    uint32_t n_gpus;
    struct sim_gpu gpus[SIM_GPUS_MAX]; /* in the order of NVML's index */
    struct sim_mig mig[SIM_GPUS_MAX];
};

struct sim_event {
    uint32_t gpu; /* UINT32_MAX: of the system */
    uint32_t gi, ci, pad;
    uint64_t type, data;
};

struct sim_state {
    uint64_t magic;
    uint32_t version, size;
    _Atomic uint64_t generation;
    _Atomic uint64_t event_seq; /* events so far; event i is at events[i % SIM_EVENTS_MAX] */
    _Atomic uint32_t futex;
    uint32_t pad;
    struct sim_event events[SIM_EVENTS_MAX];
    struct sim_world worlds[2];
};

/* ---- access; state.c, used by the library and by the commands ---- */

struct sim_map {
    struct sim_state *state;
    int fd;
    bool writable;
    uint32_t n_posted; /* events that the next commit publishes */
    char root[4000];   /* the host directory */
};

/* Maps DIR/.mete-sim/state. ERR_NOT_FOUND: no simulated host there; ERR_INVALID: another layout. */
int sim_map_open(struct sim_map *m, const char *dir, struct error *err) must_check;
void sim_map_close(struct sim_map *m);

/* Copies `n` bytes that lie at `offset` of the current world; `ret_generation` may be NULL. */
void sim_read(const struct sim_map *m, size_t offset, size_t n, void *to, uint64_t *ret_generation);
#define sim_read_member(m, member, to)                                                             \
    sim_read((m), offsetof(struct sim_world, member), sizeof(((struct sim_world *)0)->member),     \
             (to), NULL)

/* Begins a change: takes the lock (waits for a holder, who may be killed meanwhile), and gives the
 * copy to alter. Exactly one of sim_commit and sim_abandon must follow. */
int sim_change(struct sim_map *m, struct sim_world **ret, struct error *err) must_check;
void sim_commit(struct sim_map *m); /* publishes, wakes, and gives up the lock */
void sim_abandon(struct sim_map *m);

/* Appends an event, only between sim_change and sim_commit; the commit publishes it after the world
 * that it belongs to. */
void sim_post(struct sim_map *m, uint32_t gpu, uint64_t type, uint64_t data, uint32_t gi,
              uint32_t ci);
/* Event number `seq`; false when it was overwritten or is not there yet. */
bool sim_event_at(const struct sim_map *m, uint64_t seq, struct sim_event *ret);

/* The value to hand to sim_sleep: read it before looking at what one waits for. */
uint32_t sim_wake_word(const struct sim_map *m);
/* Sleeps until the word changes or `deadline_ns` (CLOCK_MONOTONIC; INT64_MAX: for ever). Returns
 * false when the deadline has passed. */
bool sim_sleep(const struct sim_map *m, uint32_t word, int64_t deadline_ns);
int64_t sim_now_ns(void);

void auto_sim_map_close(struct sim_map *m);
#define auto_sim_map __attribute__((cleanup(auto_sim_map_close))) struct sim_map
