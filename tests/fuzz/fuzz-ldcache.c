/* SPDX-License-Identifier: Apache-2.0 */
/* An ld.so.cache out of an image: what can be read can be written, and reads back the same. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "elf/ldcache.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static bool count(void *arg, const struct ldcache_entry *e)
{
    size_t *seen = arg;
    *seen += strlen(e->soname) + strlen(e->path) > 0;
    return true;
}

static void same(const struct ldcache *a, const struct ldcache *b)
{
    if (a->n != b->n || a->n_hwcaps != b->n_hwcaps)
        abort();
    for (size_t i = 0; i < a->n; i++) {
        const struct ldcache_entry *x = &a->entries[i], *y = &b->entries[i];
        if (strcmp(x->soname, y->soname) != 0 || strcmp(x->path, y->path) != 0 ||
            x->flags != y->flags || x->hwcap != y->hwcap)
            abort();
        if (!ldcache_find(b, x->soname, x->flags))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct str bytes = { (const char *)p, n };
    struct ldcache first, second;
    struct error err;
    auto_arena a;
    auto_buf out;
    size_t seen = 0;
    arena_init(&a, 64 << 20);
    buf_init(&out, LDCACHE_MAX);
    int each = ldcache_each(bytes, count, &seen, &err);
    if (ldcache_parse(&a, bytes, &first, &err) < 0)
        return 0;
    if (each < 0)
        abort();
    if (ldcache_write(&first, &out, &err) < 0)
        return 0;
    if (ldcache_parse(&a, buf_view(&out), &second, &err) < 0)
        abort();
    same(&first, &second);
    return 0;
}
