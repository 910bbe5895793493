/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Semantic Versioning 2.0. */
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct semver {
    uint64_t major, minor, patch;
    struct str pre, build; /* views of the parsed text, without "-" and "+"; n 0: none */
};

/* MAJOR.MINOR.PATCH[-PRE][+BUILD], to the letter. */
int semver_parse(struct str s, struct semver *ret, struct error *err) must_check;
/* The same for versions as programs write them: a "v" in front, missing minor or patch (0), leading
 * zeros: "v1.34", "595.58.03". */
int semver_parse_loose(struct str s, struct semver *ret, struct error *err) must_check;
/* Precedence (chapter 11): a pre-release is lower than its release; build is ignored. */
int semver_cmp(const struct semver *a, const struct semver *b);
