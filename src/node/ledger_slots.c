/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of devices, by kind and share: open addressing, at most half full. */
#include <stdlib.h>

#include "base/mem.h"
#include "node/ledger_private.h"

enum { CAP_MIN = 64 };

/* Shares of one base come in runs; the multiplier spreads them over the table. */
static size_t hash(uint32_t gpu, uint32_t kind, uint32_t share)
{
    uint64_t h = ((uint64_t)gpu << 48) ^ ((uint64_t)kind << 32) ^ share;
    h *= UINT64_C(0x9E3779B97F4A7C15);
    h ^= h >> 32;
    h *= UINT64_C(0xD6E8FEB86659FD93);
    return (size_t)(h ^ (h >> 32));
}

static bool same(const struct slot *s, uint32_t gpu, uint32_t kind, uint32_t share)
{
    return s->gpu == gpu && s->kind == kind && s->share == share;
}

/* The slot of the key, or the free one where it would go. The table has a free slot. */
static struct slot *place(const struct slots *t, uint32_t gpu, uint32_t kind, uint32_t share)
{
    size_t i = hash(gpu, kind, share) & (t->cap - 1);
    while (t->at[i].gpu != SLOT_EMPTY && !same(&t->at[i], gpu, kind, share))
        i = (i + 1) & (t->cap - 1);
    return &t->at[i];
}

bool slots_reserve(struct slots *t, size_t more)
{
    size_t cap = MAX(t->cap, (size_t)CAP_MIN);
    while (cap / 2 < t->n + more) {
        if (cap > SIZE_MAX / 4 / sizeof *t->at)
            return false;
        cap *= 2;
    }
    if (cap == t->cap)
        return true;
    struct slots bigger = { .at = try_alloc(cap * sizeof *t->at), .n = t->n, .cap = cap };
    if (!bigger.at)
        return false;
    for (size_t i = 0; i < cap; i++)
        bigger.at[i].gpu = SLOT_EMPTY;
    for (size_t i = 0; i < t->cap; i++) {
        const struct slot *s = &t->at[i];
        if (s->gpu != SLOT_EMPTY)
            *place(&bigger, s->gpu, s->kind, s->share) = *s;
    }
    free(t->at);
    *t = bigger;
    return true;
}

struct slot *slots_find(const struct slots *t, uint32_t gpu, uint32_t kind, uint32_t share)
{
    struct slot *s = t->cap ? place(t, gpu, kind, share) : NULL;
    return s && s->gpu != SLOT_EMPTY ? s : NULL;
}

struct slot *slots_put(struct slots *t, uint32_t gpu, uint32_t kind, uint32_t share, bool *ret_new)
{
    struct slot *s = place(t, gpu, kind, share);
    *ret_new = s->gpu == SLOT_EMPTY;
    if (*ret_new) {
        *s = (struct slot){ .gpu = gpu, .kind = kind, .share = share };
        t->n++;
    }
    return s;
}

/* Moves later slots of the run up, so that no search ends early at the hole. */
void slots_remove(struct slots *t, struct slot *s)
{
    size_t mask = t->cap - 1, hole = (size_t)(s - t->at);
    for (size_t i = (hole + 1) & mask; t->at[i].gpu != SLOT_EMPTY; i = (i + 1) & mask) {
        const struct slot *next = &t->at[i];
        size_t home = hash(next->gpu, next->kind, next->share) & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        t->at[hole] = *next;
        hole = i;
    }
    t->at[hole].gpu = SLOT_EMPTY;
    t->n--;
}

void slots_done(struct slots *t)
{
    free(t->at);
    *t = (struct slots){ 0 };
}
