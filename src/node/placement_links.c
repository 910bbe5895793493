/* SPDX-License-Identifier: Apache-2.0 */
/* The best connected set of whole gpus. */
#include "node/placement_links.h"

#include <string.h>

#include "base/mem.h"

enum { EXACT_SETS_MAX = 20000, NVLINKS_MAX = 18, SWAP_ROUNDS_MAX = 16 };

/* Pair score (spec/device-plugin.md 3.5): nearer on PCIe is better, and one NVLink more than all of
 * PCIe. Links that end at the same switches count as the peer counts direct ones. */
uint32_t links_score(const struct gpu_link *l)
{
    static const struct {
        uint8_t level, score;
    } pcie[] = { { 0, 60 }, { 10, 50 }, { 20, 40 }, { 30, 30 }, { 40, 20 }, { 50, 10 } };
    uint32_t score = 0;
    if (!l)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(pcie); i++)
        if (pcie[i].level == l->ancestor)
            score = pcie[i].score;
    return score + 100u * MIN(l->nvlinks, NVLINKS_MAX);
}

struct search {
    const struct link_problem *p;
    uint32_t around[LINK_GPUS_MAX]; /* of each gpu: score with all the others */
    uint8_t chosen[LINK_GPUS_MAX], best[LINK_GPUS_MAX];
    size_t best_n;
    int64_t best_value;
};

/* One number for both aims: the score of the set, and below it what the rest keeps. Everything
 * between the rest's gpus is what is not in the set and not between set and rest, so the score
 * around the set's members says it all; it is subtracted. */
enum { SET_WEIGHT = 1 << 28 };

static int64_t value(uint32_t inside, uint32_t around)
{
    return (int64_t)inside * SET_WEIGHT - around;
}

static void keep(struct search *s, size_t n, uint32_t inside, uint32_t around)
{
    int64_t v = value(inside, around);
    if (s->best_n && v <= s->best_value)
        return;
    memcpy(s->best, s->chosen, n);
    s->best_n = n;
    s->best_value = v;
}

/* All sets in order of index, so that the first of equals is the lowest. `open` of the remaining
 * places are not taken by required gpus. */
static void visit(struct search *s, size_t n, size_t next, size_t open, uint32_t inside,
                  uint32_t around)
{
    const struct link_problem *p = s->p;
    if (n == p->size) {
        keep(s, n, inside, around);
        return;
    }
    for (size_t i = next; i < p->n && p->n - i >= p->size - n; i++) {
        bool required = p->required[i];
        if (required || open > 0) {
            uint32_t more = 0;
            for (size_t k = 0; k < n; k++)
                more += p->score[i][s->chosen[k]];
            s->chosen[n] = (uint8_t)i;
            visit(s, n + 1, i + 1, open - !required, inside + more, around + s->around[i]);
        }
        if (required) /* a required gpu is never left out */
            return;
    }
}

/* ---- beyond the exact search's limit ---- */

struct set {
    bool in[LINK_GPUS_MAX];
    uint32_t to[LINK_GPUS_MAX]; /* of each gpu: score with the members */
    uint32_t inside, around;
    size_t n;
};

static void set_change(const struct search *s, struct set *t, size_t gpu, bool add)
{
    const struct link_problem *p = s->p;
    t->in[gpu] = add;
    t->inside = add ? t->inside + t->to[gpu] : t->inside - t->to[gpu];
    t->around = add ? t->around + s->around[gpu] : t->around - s->around[gpu];
    t->n = add ? t->n + 1 : t->n - 1;
    for (size_t i = 0; i < p->n; i++)
        t->to[i] = add ? t->to[i] + p->score[i][gpu] : t->to[i] - p->score[i][gpu];
}

static void grow(const struct search *s, struct set *t)
{
    while (t->n < s->p->size) {
        size_t best = SIZE_MAX;
        int64_t best_value = 0;
        for (size_t i = 0; i < s->p->n; i++) {
            int64_t v = value(t->inside + t->to[i], t->around + s->around[i]);
            if (!t->in[i] && (best == SIZE_MAX || v > best_value)) {
                best = i;
                best_value = v;
            }
        }
        set_change(s, t, best, true);
    }
}

/* The best exchange of one member for one other; false when none is better. */
static bool swap(const struct search *s, struct set *t)
{
    const struct link_problem *p = s->p;
    int64_t best_value = value(t->inside, t->around);
    size_t out = SIZE_MAX, in = SIZE_MAX;
    for (size_t o = 0; o < p->n; o++) {
        if (!t->in[o] || p->required[o])
            continue;
        for (size_t i = 0; i < p->n; i++) {
            if (t->in[i])
                continue;
            int64_t v = value(t->inside - t->to[o] + t->to[i] - p->score[i][o],
                              t->around - s->around[o] + s->around[i]);
            if (v > best_value) {
                best_value = v;
                out = o;
                in = i;
            }
        }
    }
    if (out == SIZE_MAX)
        return false;
    set_change(s, t, out, false);
    set_change(s, t, in, true);
    return true;
}

static void search_by_swaps(struct search *s)
{
    const struct link_problem *p = s->p;
    for (size_t seed = 0; seed < p->n; seed++) {
        struct set t = { 0 };
        for (size_t i = 0; i < p->n; i++)
            if (p->required[i])
                set_change(s, &t, i, true);
        if (t.n < p->size && !t.in[seed])
            set_change(s, &t, seed, true);
        grow(s, &t);
        for (size_t round = 0; round < SWAP_ROUNDS_MAX && swap(s, &t); round++)
            ;
        size_t n = 0;
        for (size_t i = 0; i < p->n; i++)
            if (t.in[i])
                s->chosen[n++] = (uint8_t)i;
        keep(s, n, t.inside, t.around);
    }
}

/* How many ways to choose k of n, or `max` + 1 when more. */
static uint64_t ways(size_t n, size_t k, uint64_t max)
{
    uint64_t w = 1;
    k = MIN(k, n - k);
    for (size_t i = 1; i <= k; i++) {
        w = w * (n - k + i) / i;
        if (w > max)
            return max + 1;
    }
    return w;
}

void links_choose(const struct link_problem *p, uint8_t *ret_chosen)
{
    struct search s = { .p = p };
    size_t required = 0;
    for (size_t i = 0; i < p->n; i++) {
        required += p->required[i];
        for (size_t k = 0; k < p->n; k++)
            s.around[i] += i == k ? 0 : p->score[i][k];
    }
    if (ways(p->n - required, p->size - required, EXACT_SETS_MAX) <= EXACT_SETS_MAX)
        visit(&s, 0, 0, p->size - required, 0, 0);
    else
        search_by_swaps(&s);
    memcpy(ret_chosen, s.best, p->size);
}
