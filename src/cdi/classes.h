/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Inside src/cdi only: classes with one device and a few nodes beside the gpus. */
#include "cdi/maker.h"

/* Its nodes: fixed names, and names by prefix and number from one folder. */
struct node_class {
    const char *class, *what; /* "gds"; the nodes in words */
    const char *fixed[2];
    const char *dir, *prefix;
    const char *mounts[2]; /* files of the driver root, if there is any node */
};
const struct node_class *class_of(enum cdi_mode mode); /* NULL: no such class */
void class_edits(struct maker *m, enum cdi_mode mode, struct cdi_edits *e);
bool class_present(struct maker *m, enum cdi_mode mode);
