/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The rules by which a simulated board is parted (spec/nvml-and-cuda.md 2.3): memory slots as
 * half-open intervals, a budget of compute slices, at most so many instances of a profile. Used by
 * the library's calls and by `mete sim set`. Codes are NVML's.
 */
#include "gpu/nvml_abi.h"
#include "sim/models.h"
#include "sim/state_file.h"

/* Row of the geometry with that name ("3g.40gb"), profile id or NVML index; -1: none. */
int sim_profile_named(const struct sim_geometry *geo, const char *name);
int sim_profile_with_id(const struct sim_geometry *geo, uint32_t id);
int sim_profile_with_index(const struct sim_geometry *geo, uint32_t index);

/* How many more instances of the profile fit now. */
uint32_t sim_gi_capacity(const struct sim_geometry *geo, const struct sim_mig *mig, int profile);

/* Makes a GPU instance at `start` (memory slots; -1: where a driver
 * would put it). NV_E_RESOURCES when the
 * place or the slices are taken, NV_E_ARGUMENT for a start that the profile does not have. */
nv_return sim_gi_create(struct sim_world *w, uint32_t gpu, int profile, int start,
                        struct sim_gi **ret);
/* NV_E_IN_USE while compute instances or clients live in it. */
nv_return sim_gi_destroy(struct sim_world *w, uint32_t gpu, struct sim_gi *gi);

/* Compute instance profiles of a GPU instance with that many compute slices: by NVML's index
 * (NV_CI_1_SLICE ...), slices each. 0: the GPU instance has no such profile. */
uint32_t sim_ci_slices(uint32_t index);
bool sim_ci_profile_fits(uint32_t gi_slices, uint32_t index);
uint32_t sim_ci_profile_id(uint32_t index);
int sim_ci_profile_with_id(uint32_t id); /* NVML's index; -1 none */
/* Possible starts on an empty GPU instance; returns their number (at most SIM_CI_MAX). */
uint32_t sim_ci_starts(uint32_t gi_slices, uint32_t index, uint32_t starts[SIM_CI_MAX]);
uint32_t sim_ci_capacity(const struct sim_gi *gi, uint32_t gi_slices, uint32_t index);
nv_return sim_ci_create(struct sim_world *w, uint32_t gpu, struct sim_gi *gi, uint32_t index,
                        int start, struct sim_ci **ret);
nv_return sim_ci_destroy(struct sim_world *w, uint32_t gpu, struct sim_gi *gi, struct sim_ci *ci);

struct sim_gi *sim_gi_by_id(struct sim_mig *mig, uint32_t id);
struct sim_ci *sim_ci_by_id(struct sim_gi *gi, uint32_t id);
uint32_t sim_gi_count(const struct sim_mig *mig);

/* Asks for MIG mode on or off. *ret_activation is what the change into force came to: NV_OK,
 * NV_E_IN_USE (clients), NV_E_RESET_REQUIRED (boards that must be reset). The pending mode is set
 * in every case. Returns NV_E_NOT_SUPPORTED for a board without MIG, NV_E_IN_USE while instances
 * live and the mode is to go off. */
nv_return sim_mig_mode(struct sim_world *w, uint32_t gpu, uint32_t on, nv_return *ret_activation);
/* Lets the pending mode come into force (reset, reboot): all instances go. */
void sim_mig_apply(struct sim_world *w, uint32_t gpu);
bool sim_has_clients(const struct sim_gpu *g, uint32_t gi, uint32_t ci); /* UINT32_MAX: any */
