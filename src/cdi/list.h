/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Inside src/cdi only: lists that grow in an arena. Room doubles whenever the number is a power of
 * two, so a list is a pointer and a number. */
#include "base/arena.h"

/* A zeroed item at the end of `list`, or NULL (and *full) without memory or past `max` items. */
#define CDI_PUSH(arena, full, max, list, n)                                                        \
    ({                                                                                             \
        void *grown_ = cdi_list_grow(arena, full, list, n, max, sizeof *(list));                   \
        if (grown_)                                                                                \
            (list) = grown_;                                                                       \
        grown_ ? &(list)[(n)++] : NULL;                                                            \
    })
void *cdi_list_grow(struct arena *a, bool *full, const void *list, size_t n, size_t max,
                    size_t size);
