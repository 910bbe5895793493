/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A finding: one thing that is wrong or worth knowing, with one cause and one fix. check, audit,
 * lint, explain and the config decoders all produce this struct; src/report renders it. */
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"

enum severity { SEVERITY_INFO, SEVERITY_WARNING, SEVERITY_ERROR, SEVERITY_UNKNOWN, SEVERITY_COUNT };

struct finding {
    const char *id; /* stable, dotted, lower case: "config.unknown-key" */
    enum severity severity;
    const char *subject;  /* what it is about: "config.yaml:7:5 sharing.resources", "gpu GPU-…" */
    const char *cause;    /* what was found and what is allowed */
    const char *fix;      /* what to do */
    const char *evidence; /* where it was read; may be NULL */
};

struct findings {
    struct arena *arena; /* owns all texts */
    struct finding *items;
    size_t n, cap,
        max; /* past max one last finding "limit.findings" is added and later ones are dropped */
    size_t dropped[SEVERITY_COUNT]; /* past max or for want of memory: still counted */
};

void findings_init(struct findings *f, struct arena *arena, size_t max);
/* Copies the texts into the arena (id too; subject and fix may be NULL: ""). fmt builds `cause`. */
void findings_add(struct findings *f, const char *id, enum severity severity, const char *subject,
                  const char *fix, const char *fmt, ...) printf_like(6, 7);
/* How many of that severity were added, dropped ones included. */
size_t findings_count(const struct findings *f, enum severity severity);
const char *severity_name(enum severity severity); /* "info", "warning", "error", "unknown" */
