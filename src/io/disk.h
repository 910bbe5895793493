/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The disk thread: takes immutable bytes, replaces a file (base/file.h), tells the loop. The loop
 * never waits for fsync. Jobs run in the order given. */
#include "base/file.h"
#include "io/loop.h"

struct disk;
int disk_new(struct loop *l, const struct host *h, struct disk **ret, struct error *err) must_check;
/* Waits for the jobs given so far, then ends the thread. NULL allowed. Call-backs of unfinished
 * jobs are not made. */
void disk_free(struct disk *d);

/* Copies name and text. dirfd is borrowed until the call-back. done() runs on the loop with r = 0
 * or -code and err filled. */
int disk_replace(struct disk *d, int dirfd, const char *name, struct str text, mode_t mode,
                 enum file_sync sync, void (*done)(void *arg, int r, const struct error *e),
                 void *arg, struct error *err) must_check;
size_t disk_waiting(const struct disk *d); /* jobs not yet reported */
