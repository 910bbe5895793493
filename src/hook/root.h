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
#include <sys/types.h>

#include "base/error.h"

enum { ROOT_PATH_MAX = 4096, ROOT_LINKS_MAX = 40 };

/* Opens `path` (absolute or not: both begin at the root). flags as open(2); O_CLOEXEC is added. */
int root_open(int rootfd, const char *path, int flags, mode_t mode, int *ret_fd,
              struct error *err) must_check;
/* Opens the directory of `path`, making what is missing (mode 0755), and gives the last component.
 * ERR_INVALID for a path without one ("/", "a/.."). */
int root_open_parent(int rootfd, const char *path, int *ret_fd, char ret_name[256],
                     struct error *err) must_check;
/* Tests only: makes root_open take the walk. */
void root_without_openat2(int on);
