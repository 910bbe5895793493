/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Between survey and inventory, inside src/node: every gpu or part that goes into a resource
 * ("base"), first with the name that the MIG strategy and the patterns give it, then with what
 * sharing makes of it. inventory.c turns bases into devices.
 */
#include "node/inventory.h"

struct base {
    const char *id;                      /* uuid, or "all" */
    const char *index;                   /* "0", "0:1", "all" */
    const char *resource;                /* name before sharing */
    const char *name;                    /* name after sharing */
    const struct shared_resource *entry; /* NULL: not named in sharing */
    uint32_t line, column;               /* where the entry names it */
    enum sharing_kind sharing;
    uint32_t replicas;  /* 0: not shared */
    uint32_t gpu, part; /* as in struct device */
    bool healthy;
    const char *reason;
};

struct draft {
    const struct inventory_input *in;
    struct inventory *inv; /* its arena and notes */
    const struct survey *survey;
    struct base *bases; /* by gpu index, then part slot */
    size_t n, cap;
};

/* resources.c: fills bases. ERR_INVALID: MIG strategy single cannot be served; ERR_UNSUPPORTED:
 * platform; ERR_LIMIT: memory. */
int resources_collect(struct draft *d, struct error *err) must_check;

/* sharing.c: names and replicas. ERR_INVALID with file:line:column: an entry that matches nothing
 * or a device that two entries name. */
int sharing_apply(struct draft *d, struct error *err) must_check;

int draft_no_memory(struct error *err) must_check;
/* "gpu 3 (GPU-…)", in the arena; a fixed text without memory. */
const char *draft_subject(struct draft *d, const struct gpu *g);
