/* SPDX-License-Identifier: Apache-2.0 */
#include "cdi/list.h"

#include <string.h>

void *cdi_list_grow(struct arena *a, bool *full, const void *list, size_t n, size_t max,
                    size_t size)
{
    if (n >= max) {
        *full = true;
        return NULL;
    }
    if (n > 0 && (n & (n - 1)) != 0) {
        union {
            const void *in;
            void *out;
        } same = { .in = list };
        return same.out;
    }
    void *grown = arena_array(a, n ? 2 * n : 1, size);
    if (grown && n)
        memcpy(grown, list, n * size);
    *full |= !grown;
    return grown;
}
