/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Files read whole within a limit, and files replaced so that a crash leaves the old or the new
 * one. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/host.h"
#include "base/str.h"

/* Reads all of a regular, proc or sysfs file. *ret_text is terminated, the caller frees it; *ret_n
 * may be NULL. ERR_LIMIT past `max` bytes, ERR_INVALID if it holds a NUL and ret_n is NULL. A FIFO,
 * socket or device is refused, never waited for. */
int file_read(const char *path, size_t max, char **ret_text, size_t *ret_n,
              struct error *err) must_check;
int file_read_at(int dirfd, const char *name, size_t max, char **ret_text, size_t *ret_n,
                 struct error *err) must_check;

enum file_sync {
    FILE_SYNC_NONE, /* for what is lost at reboot anyway */
    FILE_SYNC_FILE, /* data durable, the new name perhaps not yet */
    FILE_SYNC_ALL,  /* file and directory */
};
/* Writes `name` in the directory through a temporary file of its own (".<name>.<random>"), which is
 * removed on every failure. Errors name the directory entry and the step. */
int file_replace(const struct host *h, int dirfd, const char *name, struct str text, mode_t mode,
                 enum file_sync sync, struct error *err) must_check;
int file_remove(const struct host *h, int dirfd, const char *name, enum file_sync sync,
                struct error *err) must_check; /* absent: 0 */

bool file_exists(const char *path); /* follows links */

/* The last part of a path, "" when it ends in a slash; borrowed from `path`. */
const char *path_name(const char *path);
/* The directory that path_name() is in, "." when the path has no slash; the caller frees it. */
char *path_parent(const char *path);
int dir_make(const char *path, mode_t mode,
             struct error *err) must_check; /* with parents; existing is fine */
