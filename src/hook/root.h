/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/hook: mete-hook, the static program that a container runtime calls while it makes a container
 * (CDI hooks). Not here: anything dynamic, any library but libc, any child process. Nothing that
 * the image controls is ever run or trusted. may use: base elf
 *
 * This file: paths inside the container's root. A path is resolved by the kernel with the root as
 * "/", so that "..", absolute links and magic links cannot leave it (openat2 with RESOLVE_IN_ROOT
 * and RESOLVE_NO_MAGICLINKS; Linux 5.6). Where openat2 is missing or forbidden the same rules are
 * kept by walking component by component with O_NOFOLLOW. What was opened is used through its
 * descriptor, never again by its name.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/error.h"

enum { ROOT_PATH_MAX = 4096, ROOT_LINKS_MAX = 40 };

/* Opens `path` (absolute or not: both begin at the root). flags as open(2); O_CLOEXEC is added. */
int root_open(int rootfd, const char *path, int flags, mode_t mode, int *ret_fd,
              struct error *err) must_check;
/* Opens the directory of `path`, making what is missing (mode 0755), and gives the last component.
 * ERR_INVALID for a path without one ("/", "a/.."). */
int root_open_parent(int rootfd, const char *path, int *ret_fd, char ret_name[256],
                     struct error *err) must_check;
/* Opens a regular file for reading, and never anything else: a device node of the image (a
 * watchdog, a tape) acts by being opened alone. ERR_INVALID for anything but a regular file. */
int root_open_file(int rootfd, const char *path, int *ret_fd, struct error *err) must_check;
/* The same for a name in an open directory, where a link is not followed; -1 and errno. */
int root_open_file_at(int dirfd, const char *name);

/* What a descriptor lies on: mounts can be told apart also where they show the same file system. */
struct root_mount {
    uint64_t id; /* 0: this kernel does not say (before Linux 5.8) */
    uint64_t device;
};
bool root_mount_of(int fd, const char *name, struct root_mount *ret); /* name "": fd itself */
bool root_same_mount(const struct root_mount *a, const struct root_mount *b);

enum { ROOT_LIST_MAX = 65536 };
/* Names in a directory that want() takes, sorted by compare (as qsort, of char *), in the arena. A
 * directory with more than ROOT_LIST_MAX entries, or more than `max` that are wanted, is ERR_LIMIT.
 */
int root_list(struct arena *a, int dirfd, bool (*want)(const char *name),
              int (*compare)(const void *, const void *), size_t max, char ***ret, size_t *ret_n,
              struct error *err) must_check;

/* Tests only: makes root_open take the walk. */
void root_without_openat2(int on);
