/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Inside src/cdi only: one search of a driver root, shared by driver.c and libraries.c. */
#include "cdi/driver.h"
#include "cdi/list.h"
#include "cdi/root.h"

enum {
    SEARCH_DIRS_MAX = 64,
    SEARCH_FILES_MAX = 4096,     /* that are published */
    SEARCH_ENTRIES_MAX = 100000, /* of one folder that are looked at */
    SEARCH_CACHE_MAX = 16 * 1024 * 1024,
};

struct search {
    struct arena *arena;
    struct cdi_root root;
    const struct cdi_driver_options *options;
    struct cdi_driver *found;
    struct findings *notes;            /* or NULL */
    const char *dirs[SEARCH_DIRS_MAX]; /* library folders that exist, real paths */
    size_t n_dirs;
    bool full; /* no memory, or more files than we publish */
};

#define SEARCH_PUSH(s, list, n) CDI_PUSH((s)->arena, &(s)->full, SEARCH_FILES_MAX, list, n)

/* "/" (and s->full) without memory or when it is too long. */
const char *search_text(struct search *s, const char *fmt, ...) printf_like(2, 3);
void search_add_file(struct search *s, enum cdi_file_kind kind, const char *container,
                     const char *real);
void search_add_link(struct search *s, bool graphics, const char *dir, const char *name,
                     const char *target);
/* Adds a text to a list of texts unless it is there. */
void search_add_once(struct search *s, const char ***list, size_t *n, const char *text);

/* Fills dirs, version, library files, links and folders. */
int search_libraries(struct search *s, struct error *err) must_check;
