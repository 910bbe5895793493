/* SPDX-License-Identifier: Apache-2.0 */
/* The loader's cache of an image: read, written and read again, it names the same libraries, and
 * the loader's search finds each of them. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "elf/ldcache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena a;
    struct ldcache c, again;
    struct error err;
    arena_init(&a, 64 << 20);
    if (ldcache_parse(&a, (struct str){ (const char *)data, size }, &c, &err) < 0)
        return 0;
    auto_buf out;
    buf_init(&out, LDCACHE_MAX);
    if (ldcache_write(&c, &out, &err) < 0) {
        if (err.code != ERR_LIMIT && err.code != ERR_INVALID)
            abort();
        return 0;
    }
    if (ldcache_parse(&a, buf_view(&out), &again, &err) < 0 || again.n > c.n)
        abort();
    for (size_t i = 0; i < c.n; i++)
        if (!ldcache_find(&again, c.entries[i].soname, c.entries[i].flags))
            abort();
    for (size_t i = 1; i < again.n; i++) /* the order that the loader's binary search needs */
        if (ldcache_compare_names(again.entries[i - 1].soname, again.entries[i].soname) < 0)
            abort();
    return 0;
}
