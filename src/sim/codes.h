/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* NVML's return codes by name, for the grammar of `mete sim set` and for nvmlErrorString. */
#include <stddef.h>
#include <stdint.h>

struct sim_code {
    uint32_t value;
    const char *name, *text; /* "GPU_IS_LOST", "GPU is lost" */
};
extern const struct sim_code sim_codes[];
extern const size_t n_sim_codes;

const struct sim_code *sim_code_of(uint32_t value); /* NULL: none */
