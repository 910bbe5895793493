/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Inside src/node: the best connected set of whole gpus, on plain numbers. */
#include "gpu/survey.h"

enum { LINK_GPUS_MAX = SURVEY_GPUS_MAX };

struct link_problem {
    size_t n, size; /* gpus to choose from; how many: number required ≤ size ≤ n */
    bool required[LINK_GPUS_MAX];                 /* must be in the set */
    uint32_t score[LINK_GPUS_MAX][LINK_GPUS_MAX]; /* symmetric, ≤ 2000 each */
};

/* Score of one pair; 0 for NULL (unknown). */
uint32_t links_score(const struct gpu_link *l);

/* Writes `size` numbers, rising. Of all sets the one with the highest sum of pair scores; of equals
 * the one that leaves the most between the rest; of equals the lowest. Exact up to 20 000 sets,
 * then greedy from every start, improved by swaps; bounded in both cases. */
void links_choose(const struct link_problem *p, uint8_t *ret_chosen);
