/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* GetPreferredAllocation: which of the available devices to take (spec/device-plugin.md 3.5).
 * Bounded work for any number of gpus, no driver call. */
#include "node/inventory.h"

struct placement_request {
    const struct str *available;
    size_t n_available;
    const struct str *must_include;
    size_t n_must_include;
    int64_t size;
};

/* Chosen ids in *ret_ids (arena), stable order. Whole unshared gpus: by links (NVLink, NVSwitch
 * counted, PCIe); size ≤ 0, too few or too many must_include: none chosen, no error. Shares and
 * parts: `policy`, spread over (or packed on) gpus. distinct is false when two chosen shares are on
 * one base. Unknown must_include id: ERR_NOT_FOUND with the peer's words. */
int placement_choose(struct arena *a, const struct inventory *inv, const struct resource *r,
                     enum placement_policy policy, const struct placement_request *req,
                     const struct str **ret_ids, size_t *ret_n, bool *ret_distinct,
                     struct error *err) must_check;
