/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* flock on a file, tried without waiting. */
#include "base/error.h"

/* *ret_fd holds the lock until closed. ERR_CONFLICT when another process has it; its pid, if the
 * file tells, is in the text. Writes our pid into the file. */
int lock_try(const char *path, int *ret_fd, struct error *err) must_check;
