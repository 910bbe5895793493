/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A root folder of the host as this process sees it (a driver installation, the place of /dev):
 * paths are looked up inside it, and no link leads out of it. Paths begin with '/' and mean the
 * root; results hold no link, "." or "..".
 */
#include <stdbool.h>
#include <sys/stat.h>

#include "base/error.h"

enum { CDI_PATH_MAX = 1024 }; /* a longer path counts as absent */

struct cdi_root {
    int fd;
    const char *view; /* borrowed: for messages */
};

/* ERR_NOT_FOUND (or what open() says) naming the folder. */
int cdi_root_open(struct cdi_root *r, const char *view, struct error *err) must_check;
void cdi_root_close(struct cdi_root *r);

/* The path with every link followed, inside the root; false when there is no such file. `st` (of
 * the file itself) may be NULL. */
bool cdi_root_resolve(const struct cdi_root *r, const char *path, char ret[CDI_PATH_MAX],
                      struct stat *st);
/* The same for a name below a folder that is such a result ("/" too): the folder is not walked
 * again. */
bool cdi_root_resolve_in(const struct cdi_root *r, const char *real_dir, const char *name,
                         char ret[CDI_PATH_MAX], struct stat *st);
/* Opens a path; flags as for open(2), O_CLOEXEC and O_NOCTTY are added. -1 with errno. */
int cdi_root_open_file(const struct cdi_root *r, const char *path, int flags);
