/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What is worth a line in the log, and what would only fill it. */
#include <stdbool.h>
#include <stdint.h>

/* One trouble that lasts: told when it begins, when its cause changes, and each minute. */
struct told {
    char *text;
    int64_t ns;
};
bool told_anew(struct told *t, const char *text, int64_t now_ns); /* true: tell it */
bool told_over(struct told *t); /* true: there was trouble that was told; also frees */

/* Lines that somebody else makes come: twenty at once, then two a second. */
struct flood {
    int64_t ns;
    int64_t room_ns;
    uint64_t hidden;
};
/* true: tell it, with *ret_hidden lines since the last that were not told. */
bool flood_lets(struct flood *f, int64_t now_ns, uint64_t *ret_hidden);
