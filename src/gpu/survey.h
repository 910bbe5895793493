/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/gpu: NVML's ABI and symbol table, the GPU worker and its protocol, the survey, events, link
 * topology, MIG geometry. Not here: what a GPU is used for, who owns it, what an event means for
 * its health. may use: base io data
 *
 * A survey is an immutable picture of the host's gpus and parts at one moment, made by the worker.
 * Absent facts are absent by their validity bit, never by a magic number.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum {
    SURVEY_GPUS_MAX = 64,
    SURVEY_PARTS_MAX = 16,         /* of one gpu */
    SURVEY_BYTES_MAX = 512 * 1024, /* of an encoded survey: a full one of the largest texts fits */
    UUID_TEXT_SIZE = 80,
};

enum driver_state {
    DRIVER_OK,
    DRIVER_NO_LIBRARY,       /* libnvidia-ml.so.1 not found under the driver root */
    DRIVER_BAD_LIBRARY,      /* found, but cannot be loaded or lacks nvmlInit */
    DRIVER_NOT_LOADED,       /* library fine, kernel module absent (NVML 9) */
    DRIVER_VERSION_MISMATCH, /* library and kernel module differ (18) */
    DRIVER_NO_PERMISSION,    /* 4 */
    DRIVER_RELEASED,         /* the worker was told to let go */
    DRIVER_HUNG,             /* a call did not return within its deadline */
    DRIVER_STUCK,            /* workers could not be killed: stuck in the kernel */
    DRIVER_ERROR,            /* anything else; see driver_text */
};
const char *driver_state_name(enum driver_state s); /* "ok", "no-library", … */

enum gpu_valid { /* bits of gpu.valid */
                 GPU_HAS_MINOR = 1 << 0,
                 GPU_HAS_MODULE = 1 << 1,
                 GPU_HAS_PCI = 1 << 2,
                 GPU_HAS_MEMORY =
                     1
                     << 3, /* memory_bytes from NVML v2 or v1, or (GPU_UNIFIED set) from MemTotal */
                 GPU_HAS_CC = 1 << 4,
                 GPU_HAS_NUMA = 1 << 5, /* sysfs numa_node ≥ 0 */
                 GPU_HAS_MIG = 1 << 6,  /* MIG-capable: mig_current / mig_pending are valid */
                 GPU_HAS_SERIAL = 1 << 7,
                 GPU_HAS_RECOVERY = 1 << 8, /* recovery action (field 230) */
                 GPU_HAS_EVENTS = 1 << 9,   /* XID events can be registered */
                 GPU_HAS_FABRIC = 1 << 10,
                 GPU_HAS_REMAP = 1 << 11, /* remapped rows */
                 GPU_HAS_ADDRESSING = 1 << 12,
                 GPU_UNIFIED = 1 << 13, /* no memory of its own: memory_bytes is the system's */
                 GPU_HAS_PCI_CLASS = 1 << 14,
                 GPU_HAS_ARCH = 1 << 15,
                 GPU_HAS_BRAND = 1 << 16,
                 GPU_HAS_COMPUTE_MODE = 1 << 17,
                 GPU_HAS_ECC = 1 << 18, /* ecc_uncorrected */
                 GPU_HAS_ENERGY = 1 << 19,
};

enum part_valid {
    PART_HAS_ATTRIBUTES = 1 << 0,
    PART_HAS_CAPS = 1 << 1, /* gi_cap / ci_cap minors from /proc/driver/nvidia-caps/mig-minors */
    PART_HAS_PLACEMENT = 1 << 2,
};

struct part { /* a MIG device: GPU instance with its compute instance */
    char uuid[UUID_TEXT_SIZE];
    uint32_t valid;
    uint32_t slot;    /* index among the gpu's MIG devices; display "<gpu index>:<slot>" */
    uint32_t gi, ci;  /* instance ids */
    char profile[32]; /* "1g.10gb", "1c.3g.20gb", "1g.10gb+me" */
    uint32_t gi_slices, ci_slices;
    uint64_t memory_mb;
    uint32_t multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    uint32_t placement_start, placement_size; /* memory slices */
    uint32_t gi_cap, ci_cap;                  /* minors of /dev/nvidia-caps/nvidia-capN */
};

struct gpu {
    char uuid[UUID_TEXT_SIZE]; /* "" only for a lost gpu whose UUID is not known from anywhere */
    uint32_t index;            /* NVML index; display and device nodes only */
    uint32_t valid;
    int lost; /* 0, or the nvmlReturn_t (GPU_IS_LOST 15, …) with which handle or calls failed: then
                 the rest may be stale or empty */
    char lost_text[160]; /* why, in words */
    char name[96], serial[32];
    uint32_t minor, module;
    char pci[20];        /* sysfs form "0000:1b:00.0", lower case */
    uint32_t pci_device; /* device << 16 | vendor as NVML packs it */
    uint32_t pci_class;  /* sysfs class, 0x030200 */
    uint64_t memory_bytes;
    char memory_source[16]; /* "nvml-v2", "nvml-v1", "meminfo" */
    uint32_t cc_major, cc_minor, arch, brand, compute_mode;
    int32_t numa;
    uint32_t mig_current, mig_pending; /* 0 off, 1 on */
    uint32_t recovery_action;          /* nvml-and-cuda.md 1.6 */
    uint32_t fabric_state, fabric_status, fabric_clique, fabric_health;
    unsigned char fabric_cluster[16];
    uint32_t remap_corrected, remap_uncorrected, remap_pending, remap_failed;
    uint64_t ecc_uncorrected; /* volatile, total */
    uint32_t addressing;      /* 0 none, 1 HMM, 2 ATS */
    uint64_t energy_mj;       /* used since the driver or the gpu last started; counts up only */
    uint64_t generation; /* changes when the gpu was reset or re-enumerated since the agent first
                            saw it (evidence of a reset): it was lost in a way that only a reset
                            ends (survey_loss_proves_reset) and answers again, the driver went away
                            and came back, or its energy counter or its volatile ECC counter went
                            backwards. On a real driver a reset ("nvidia-smi -r", reboot of the
                            kernel module) starts both counters at zero. */
    struct part *parts;
    size_t n_parts;
    char mig_text[200]; /* why parts could not be read ("" = fine): no permission for nvidia-cap2, …
                         */
};

struct gpu_link {     /* between two gpus of the survey */
    uint8_t ancestor; /* NVML topology level 0 10 20 30 40 50; 255 unknown */
    uint8_t nvlinks;  /* direct links, or links of both to the same switches (the smaller count) */
    bool through_switch;
};

struct survey {
    uint64_t serial;  /* counts surveys of one worker; for the log */
    int64_t taken_ns; /* CLOCK_MONOTONIC of the worker */
    enum driver_state driver;
    char driver_text[480]; /* cause and what was tried, when driver != DRIVER_OK */
    char driver_version[80], nvml_version[80];
    int cuda_version;  /* 1000 * major + 10 * minor; 0 unknown */
    char library[256]; /* path of the loaded library, as the worker sees it */
    char platform[16]; /* "nvml", "wsl", "tegra", "unknown" */
    struct gpu *gpus;  /* in index order */
    size_t n_gpus;
    struct gpu_link
        *links;    /* n_gpus * n_gpus, row-major, symmetric; NULL when n_gpus < 2 or not read */
    unsigned refs; /* of survey_ref; 0: not on the heap, ref and unref do nothing */
};

/* Reference-counted, never changed once it was handed on. A new one is empty, with one reference;
 * whoever fills it gives it gpus, parts and links from the heap. One thread only. */
struct survey *survey_new(void);
struct survey *survey_ref(struct survey *s);
void survey_unref(struct survey *s);

/* One flat block: used for the worker's answer and for golden files. Decoding trusts nothing: every
 * length, count, enum, and text end is checked. */
int survey_encode(const struct survey *s, struct buf *out, struct error *err) must_check;
int survey_decode(struct str bytes, struct survey **ret, struct error *err) must_check;

const struct gpu *survey_gpu(const struct survey *s, const char *uuid); /* NULL: none */
/* A gpu that was lost with this nvmlReturn_t and answers again was reset or enumerated anew. Codes
 * of a call that just failed (unknown, timeout, no permission, …) say nothing of the kind. */
bool survey_loss_proves_reset(int code);
const struct part *survey_part(const struct survey *s, const char *uuid,
                               const struct gpu **ret_gpu); /* ret_gpu may be NULL */
const struct gpu_link *survey_link(const struct survey *s, size_t a, size_t b); /* NULL: unknown */
