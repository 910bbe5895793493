/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A folder for one test, with files by path. */
#include <stdbool.h>
#include <sys/stat.h>

struct tmp_tree {
    char dir[64];
};

void tmp_tree_init(struct tmp_tree *t);
void tmp_tree_done(struct tmp_tree *t); /* removes everything */
/* Path of a file below the folder; heap. */
char *tmp_tree_path(const struct tmp_tree *t, const char *path);
void tmp_tree_file(const struct tmp_tree *t, const char *path, const char *text);
void tmp_tree_link(const struct tmp_tree *t, const char *path, const char *target);
