/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* For the files of src/io only: who wants to hear that the loop ends. */
#include "io/loop.h"

struct loop_guest {
    struct loop_guest *prev, *next;
    void (*loop_gone)(struct loop_guest *g); /* once; g is already out of the list, may be freed */
};
void loop_guest_add(struct loop *l, struct loop_guest *g);
void loop_guest_remove(struct loop *l, struct loop_guest *g);
