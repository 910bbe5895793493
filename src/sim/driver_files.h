/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What a driver installation consists of: libraries with their links, programs, firmware, the files
 * of graphics and OpenCL loaders. All but NVML and nvidia-smi are stand-ins. */
#include "sim/tree.h"

/* Puts everything below the world's driver root. `library`: the bytes of NVML, already patched;
 * `smi`: of nvidia-smi, or an empty text for a stand-in. */
void sim_driver_files_put(struct tree *t, const struct sim_world *w, struct str library,
                          struct str smi);

/* After a change of the version: files of `old` get the new names, links follow. */
int sim_driver_files_rename(const char *root, const struct sim_world *w, const char *old,
                            struct error *err) must_check;
