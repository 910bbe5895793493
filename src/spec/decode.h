/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the strict decoders share: every slip becomes a finding with file, line, column and key, and
 * decoding goes on, so that one run reports them all. Callers ask at the end whether there were
 * any.
 */
#include "base/arena.h"
#include "base/finding.h"
#include "data/json.h"

struct decode {
    struct findings *findings;
    const char *file;    /* for the subjects */
    struct arena *arena; /* keeps texts and arrays of the result */
    bool no_memory;      /* set when the arena was full; the result is then incomplete */
};

/* "flags.plugin" and "x" → "flags.plugin.x"; "" and "x" → "x". Lives in d's arena. */
const char *decode_path(struct decode *d, const char *path, struct str key);
const char *decode_item_path(struct decode *d, const char *path,
                             size_t i); /* "sharing.mps.resources[2]" */

/* A finding about the place line:column and the key `path`. */
void decode_say(struct decode *d, const char *id, enum severity severity, uint32_t line,
                uint32_t column, const char *path, const char *fix, const char *fmt, ...)
    printf_like(8, 9);

/* A key that is not known here: which key was probably meant. `paths` are all known full paths of
 * the document ("a.b[].c"), from which the allowed keys here and the places of equal keys elsewhere
 * follow. */
void decode_unknown_key(struct decode *d, const char *path, const struct member *m,
                        const char *const *paths, size_t n_paths);

/* Each takes what a value must be, or says "found X; expected Y" and returns false. */
bool decode_map(struct decode *d, const struct value *v,
                const char *path); /* null too: an empty map */
bool decode_list(struct decode *d, const struct value *v, const char *path);
bool decode_bool(struct decode *d, const struct value *v, const char *path, bool *ret);
bool decode_int(struct decode *d, const struct value *v, const char *path, int64_t min, int64_t max,
                int64_t *ret);
bool decode_text(struct decode *d, const struct value *v, const char *path, const char **ret);

/* "found A; expected B" for anything else. */
void decode_wrong_kind(struct decode *d, const struct value *v, const char *path,
                       const char *expected, const char *fix);

const char *decode_keep(struct decode *d, struct str s); /* copy in the arena; "" when it is full */
void *decode_array(struct decode *d, size_t n, size_t size); /* NULL when it is full */

/* Reads and parses a YAML document. An unreadable file or a syntax error becomes a finding; returns
 * NULL then. */
const struct value *decode_yaml(struct decode *d, struct str text, const struct doc_limits *limits);

/* 0, or ERR_INVALID with the first error finding as text and how many more there are; ERR_LIMIT
 * without memory. `before`: how many error findings there were when decoding began. */
int decode_result(const struct decode *d, size_t before, struct error *err) must_check;
