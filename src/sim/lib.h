/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Inside the simulated libnvidia-ml.so.1: session, handles, faults. The exported calls are in
 * lib_*.c, one file for each duty. Nothing here may use more than libc, src/base and the state.
 */
#include <stdbool.h>

#include "gpu/nvml_calls.h"
#include "sim/mig.h"
#include "sim/models.h"
#include "sim/state_file.h"

#define LIB_EXPORT                 __attribute__((visibility("default")))
#define LIB_PROTOTYPE(symbol, ...) LIB_EXPORT nv_return symbol(__VA_ARGS__);
NV_CALLS(LIB_PROTOTYPE)
#undef LIB_PROTOTYPE
LIB_EXPORT const char *nvmlErrorString(nv_return code);

enum lib_kind { LIB_GPU = 1, LIB_MIG = 2, LIB_GI = 4, LIB_CI = 8 };

/* What a call works on: a copy of the gpu, and which instance the handle meant. */
struct lib_view {
    struct sim_gpu gpu;
    uint32_t number; /* of the gpu, in the state */
    enum lib_kind kind;
    uint32_t gi, ci; /* ids; UINT32_MAX where the handle names none */
};

struct sim_map *lib_map(void); /* valid once a call has passed lib_enter */

/* First thing in every call that needs a session but no device. */
nv_return lib_enter(const char *call);
/* In the middle of a wait: is the session still good, was a fault set meanwhile? */
nv_return lib_still(const char *call);
/* Without a session: faults only. For init and the few calls that work before it. */
nv_return lib_enter_early(const char *call);

/* First thing in every call on a device: session, faults, handle, loss. `args` false: a pointer
 * that must not be NULL is. Takes gpus and MIG devices. */
nv_return lib_device(const char *call, nv_device d, bool args, struct lib_view *v);
/* The same for calls that MIG devices do not know: those get NV_E_NOT_SUPPORTED. */
nv_return lib_whole(const char *call, nv_device d, bool args, struct lib_view *v);
nv_return lib_instance(const char *call, nv_gi gi, bool args, struct lib_view *v,
                       struct sim_gi *ret);
nv_return lib_compute(const char *call, nv_ci ci, bool args, struct lib_view *v,
                      struct sim_gi *ret_gi, struct sim_ci *ret_ci);

/* Handles of this session; one object has one handle. */
nv_device lib_gpu_handle(uint32_t number);
nv_device lib_mig_handle(uint32_t number, const struct sim_gi *gi, const struct sim_ci *ci);
nv_gi lib_gi_handle(uint32_t number, const struct sim_gi *gi);
nv_ci lib_ci_handle(uint32_t number, const struct sim_gi *gi, const struct sim_ci *ci);

/* Takes a handle for a gpu: what it answers when the gpu cannot be brought up. */
nv_return lib_take(const char *call, uint32_t number, nv_device *ret);
uint32_t lib_count(void);                       /* gpus of this session */
bool lib_number(uint32_t index, uint32_t *ret); /* the gpu behind an index */
uint32_t lib_index(uint32_t number);
uint64_t lib_energy(const struct lib_view *v); /* mJ since the driver's load or the gpu's reset */
bool lib_lost(uint32_t number, const struct sim_gpu *g);

void lib_read_gpu(uint32_t number, struct sim_gpu *ret);
void lib_read_mig(uint32_t number, struct sim_mig *ret);
bool lib_may_monitor(void); /* reading MIG instances is permitted */

/* What the faults set for a call do to it, before anything else: waits as long as it hangs or is
 * slow, returns the code that it must fail with. gpu -1: faults of the call on any gpu. `again`:
 * further on in the same call, which is slow only once. */
nv_return lib_suffer(const char *call, int32_t gpu);
nv_return lib_suffer_again(const char *call, int32_t gpu, bool again);

/* Alters the world: at most one thread of this process at a time. NV_E_NO_PERMISSION when the state
 * may not be written (not root on that host). */
nv_return lib_change(struct sim_world **ret);
void lib_commit(bool trees); /* trees: proc, sys and dev follow */
void lib_abandon(void);

nv_return lib_text(char *to, unsigned size, const char *text);
nv_return lib_version(uint32_t got, uint32_t wanted);

/* Events, lib_event.c */
void lib_events_reset(void); /* at shutdown */
