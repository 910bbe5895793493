/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What the simulated boards are: figures of real ones (spec/nvml-and-cuda.md 2.1 to 2.3,
 * h200-host-facts.txt, mig-geometry.json), and the hosts of the recordings. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "sim/simstate.h"
#include "sim/state_file.h"

struct sim_profile {                            /* a GPU instance profile of a board */
    const char *name;                           /* "1g.10gb+me" */
    uint8_t id, index, slices, size, instances; /* size in memory slots */
    uint8_t n_starts, starts[7];
    bool graphics;
    uint8_t copy_engines, decoders, jpegs, ofas;
    uint16_t multiprocessors;
    uint32_t memory_mib;
};

struct sim_geometry {
    const char *key;
    uint8_t memory_slots, slices;
    const struct sim_profile *profiles;
    uint8_t n_profiles;
};
extern const struct sim_geometry sim_geometries[];
extern const size_t n_sim_geometries;

/* The geometry of a gpu; NULL for a board that cannot be parted. */
const struct sim_geometry *sim_geometry_of(const struct sim_gpu *g);

/* Fills a fresh world: gpus, switches, driver, layout. ERR_INVALID names the known models. */
int sim_world_init(struct sim_world *w, const struct sim_create *c, struct error *err) must_check;

/* Events and calls that only newer drivers know; after a change of the version. */
void sim_driver_features(struct sim_world *w);

/* A UUID text from a seed and a tag, as version 4 ("xxxxxxxx-xxxx-4xxx-..."). */
void sim_uuid(uint64_t seed, uint64_t tag, char ret[37]);
uint64_t sim_hash(uint64_t x);
