/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Views of text that somebody else owns, and bounded parsing of numbers in them. No function here
 * allocates. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p; /* not terminated; may be NULL when n is 0 */
    size_t n;
};

#define STR(literal) ((struct str){ (literal), sizeof(literal) - 1 })
#define STR_FMT(s)   (int)(s).n, (s).p ? (s).p : "" /* for "%.*s" */

static inline struct str str_of(const char *z)
{
    return (struct str){ z, z ? strlen(z) : 0 };
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool str_is(struct str a, const char *z)
{
    return str_eq(a, str_of(z));
}

bool str_starts(struct str s, const char *prefix);
bool str_ends(struct str s, const char *suffix);
bool str_ieq(struct str a, struct str b); /* ASCII letters compared without case */
int str_cmp(struct str a, struct str b);  /* bytewise, shorter first */
struct str str_trim(struct str s);        /* without spaces, tabs, CR and LF at both ends */

/* Cuts *rest at the first `sep`: returns what is before it and leaves in *rest what is after.
 * Without `sep` the whole text is returned and *rest becomes { NULL, 0 } — test rest->p to tell
 * "nothing more" from "one empty field more". */
struct str str_cut(struct str *rest, char sep);

/* Whole text must be one number within [min, max]; base 10, or 16 with hex. Return false (and leave
 * *ret) otherwise. */
bool str_to_i64(struct str s, int64_t min, int64_t max, int64_t *ret);
bool str_to_u64(struct str s, uint64_t max, uint64_t *ret);
bool str_hex_to_u64(struct str s, uint64_t max, uint64_t *ret); /* with or without 0x */

/* Go's strconv.ParseBool: 1 t T TRUE true True / 0 f F FALSE false False. */
bool str_to_bool(struct str s, bool *ret);

/* Damerau–Levenshtein distance of two words up to 64 bytes (longer: SIZE_MAX), letters without
 * case. */
size_t str_distance(struct str a, struct str b);

/* The candidate nearest to `word`, or NULL when none is near enough to be a likely slip (a third of
 * the letters, at most 3). */
const char *str_nearest(struct str word, const char *const *candidates, size_t n);

/* Length (1..4) of the valid UTF-8 sequence at the start of s, or 0 when there is none: empty text,
 * a stray or missing continuation byte, an overlong form, a surrogate, past U+10FFFF. */
size_t str_utf8(struct str s);

/* Go path.Match with `*` only, everything else literal, anchored at both ends, case-sensitive. */
bool str_glob(struct str pattern, struct str text);
