/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader of mete-runtime against the one that yyjson stands behind: both take a text, with
 * the same tree and the same positions, or both refuse it. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* json_small.c is built under this name here. */
int json_small_parse(struct arena *a, struct str text, const char *name,
                     const struct doc_limits *limits, struct value **ret, struct error *err);

static bool same_text(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static bool same(const struct value *a, const struct value *b)
{
    if (a->kind != b->kind || a->line != b->line || a->column != b->column || a->n != b->n ||
        !same_text(a->text, b->text))
        return false;
    if (a->boolean != b->boolean || a->number != b->number ||
        memcmp(&a->real, &b->real, sizeof a->real) != 0)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (a->kind == VALUE_LIST && !same(&a->items[i], &b->items[i]))
            return false;
        if (a->kind != VALUE_MAP)
            continue;
        const struct member *x = &a->members[i], *y = &b->members[i];
        if (!same_text(x->key, y->key) || x->line != y->line || x->column != y->column ||
            !same(&x->value, &y->value))
            return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena one, two;
    struct value *a = NULL, *b = NULL;
    struct error e, f;
    arena_init(&one, 8 << 20);
    arena_init(&two, 8 << 20);
    struct str text = { (const char *)data, size };
    int r = json_parse(&one, text, "in", NULL, &a, &e);
    int s = json_small_parse(&two, text, "in", NULL, &b, &f);
    /* Which of two limits is met first may differ. */
    if (r == s ? r == 0 && !same(a, b) : r != -ERR_LIMIT && s != -ERR_LIMIT)
        abort();
    return 0;
}
