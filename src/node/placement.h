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
    bool require_distinct; /* shares: one of a gpu or part only, else refuse */
};

/* Chosen ids in *ret_ids (arena; the texts are the inventory's), stable order.
 *
 * Whole unshared gpus: the set with the best links (NVLink, also through NVSwitch, and PCIe), then
 * the one that leaves the other available gpus best connected, then the lowest index. Exact up to
 * 20 000 candidate sets, beyond that greedy with swaps. In index order. size ≤ 0, more than
 * available or fewer than must_include: none chosen, no error.
 *
 * Shares: each from the gpu or part that has the fewest (distributed) or most (packed) shares gone;
 * ties: picked least often in this call, then lowest index. Parts: the same with their gpu in the
 * place of the part. must_include first, then the picks. size ≤ 0 or fewer than must_include: none;
 * more than available: ERR_UNAVAILABLE with the peer's words.
 *
 * *ret_distinct is false when two chosen shares are on one gpu or part; with require_distinct that
 * is ERR_CONFLICT. Unknown must_include id: ERR_NOT_FOUND with the peer's words. Unknown available
 * ids and repeated ids are passed over. */
int placement_choose(struct arena *a, const struct inventory *inv, const struct resource *r,
                     enum placement_policy policy, const struct placement_request *req,
                     const struct str **ret_ids, size_t *ret_n, bool *ret_distinct,
                     struct error *err) must_check;
