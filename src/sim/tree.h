/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The proc, sys and dev trees of a simulated host, made from its world: written where they differ,
 * what no longer belongs there is removed. So it serves creation and every change alike. */
#include <sys/types.h>

#include "base/str.h"
#include "sim/state_file.h"

int sim_tree_sync(const char *root, const struct sim_world *w, struct error *err) must_check;

/* "0000:1a:00.0" */
void sim_bdf(const struct sim_gpu *g, char ret[20]);
/* The minor of a capability node; ci -1: of the GPU instance. */
uint32_t sim_cap_minor(uint32_t gpu_minor, uint32_t gi, int ci);

/* Writing below a directory: parents are made, equal content is left alone. After the first failure
 * the others do nothing; ask at the end. */
struct tree {
    const char *root;
    int fd;
    int result;
    struct error *err;
    char **kept; /* every path that was put, for pruning */
    size_t n_kept, cap_kept;
    bool sorted;
};
int tree_open(struct tree *t, const char *root, struct error *err) must_check;
int tree_close(struct tree *t) must_check; /* the first failure */
void tree_put(struct tree *t, struct str text, mode_t mode, const char *path, ...)
    __attribute__((format(printf, 4, 5)));
void tree_text(struct tree *t, const char *path, const char *fmt, ...) printf_like(3, 4);
void tree_link(struct tree *t, const char *target, const char *path, ...) printf_like(3, 4);
/* A character device when `real`, else an empty file. */
void tree_node(struct tree *t, bool real, uint32_t major, uint32_t minor, mode_t mode,
               const char *path, ...) printf_like(6, 7);
/* Removes every entry of `dir` (with what is below) whose name starts with `prefix` and that was
 * not put. */
void tree_prune(struct tree *t, const char *dir, const char *prefix);
