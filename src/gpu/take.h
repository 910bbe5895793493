/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Takes surveys in the worker process: NVML's answers together with what /proc and /sys say. It
 * remembers the survey before, so that a gpu that is lost keeps its name, and a reset is noticed.
 */
#include "gpu/hostfacts.h"
#include "gpu/nvml.h"

struct taker;
struct taker *taker_new(const struct host *h); /* h is borrowed */
void taker_free(struct taker *t);
/* What an earlier worker saw last. Takes a reference. */
void taker_seed(struct taker *t, struct survey *before);

/* A survey through a library that was started. One reference, the caller's. */
struct survey *taker_survey(struct taker *t, struct nvml *n);
/* A survey without a driver: the gpus known from before are in it, lost. n may be NULL. */
struct survey *taker_without_driver(struct taker *t, struct nvml *n, enum driver_state state,
                                    const char *text);
/* Only a new process can see more than this survey tells: the driver is not usable, all gpus are
 * lost, or one is still lost though it answers on the bus. */
bool taker_wants_restart(const struct taker *t);

/* ---- parts of it, each in its own file ---- */

struct found { /* one gpu while a survey is taken */
    struct gpu *gpu;
    nv_device device; /* NULL: no handle */
};

/* Notes the loss of a gpu, once: code and "<what>: <sentence> (NVML <code>)". */
void gpu_lost(struct gpu *g, int code, const char *what);
/* r == NV_OK; a code of loss marks the gpu. */
bool gpu_got(struct gpu *g, nv_return r, const char *what);

/* take_gpu.c: everything about one gpu but its parts and links. */
void take_gpu(const struct host *h, struct nvml *n, struct found *f);
/* take_parts.c: the gpu's MIG devices. */
void take_parts(struct nvml *n, struct found *f);
/* Minors of the capability nodes of all parts, and the reason text where reading was denied. */
void take_part_caps(const struct host *h, struct survey *s);
/* "1g.10gb", "1c.3g.20gb+me" by the rule of spec/device-plugin.md 2.2; "" when a figure is missing.
 */
void part_profile_name(char *ret, size_t size, uint32_t gi_slices, uint32_t ci_slices,
                       uint64_t memory_mb, uint64_t total_bytes, const char *suffix);

/* links.c: a matrix of n * n links, heap; pairs with a gpu that is lost come from `before`, and
 * all of them without n. NULL when there are fewer than two. */
struct gpu_link *take_links(struct nvml *n, const struct found *found, size_t n_found,
                            const struct survey *before);
/* Where one NVLink of a gpu ends. */
struct link_end {
    char pci[PCI_TEXT_SIZE]; /* "" not told */
    bool is_switch;          /* or anything else that is no gpu */
};
/* Links between two gpus from where each one's links end (b_pci: the other's address). */
struct gpu_link links_count(const struct link_end *a, size_t n_a, const char *a_pci,
                            const struct link_end *b, size_t n_b, const char *b_pci);
