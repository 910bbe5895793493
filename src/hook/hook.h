/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The hook's actions. Each works on the root of a container that is being made (before pivot_root),
 * through descriptors. Facts: docs/hooks.md. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/error.h"

enum { HOOK_STATE_MAX = 1024 * 1024, HOOK_CONFIG_MAX = 16 * 1024 * 1024, HOOK_VALUES_MAX = 1024 };

/* Values of a repeatable option, in order; borrowed from argv. */
struct hook_values {
    const char *items[HOOK_VALUES_MAX];
    size_t n;
};

struct hook_options {
    struct hook_values links;   /* --link target::path */
    struct hook_values folders; /* --folder dir */
    struct hook_values paths;   /* --path file */
    const char *mode;           /* --mode octal */
    const char *host_driver_version;
    const char *proc_root; /* where the host's proc is: "/proc"; tests give another */
    bool old_kernel;       /* tests: as if the mount calls of Linux 5.2 were not there */
};

/* Reads the container state (OCI runtime spec) from a descriptor and opens the container's root:
 * `root` of the state, else root.path of <bundle>/config.json. */
int hook_open_container(int state_fd, int *ret_rootfd, struct error *err) must_check;

int hook_create_symlinks(int rootfd, const struct hook_options *o, struct error *err) must_check;
int hook_update_ldcache(int rootfd, const struct hook_options *o, struct error *err) must_check;
int hook_enable_cuda_compat(int rootfd, const struct hook_options *o, struct error *err) must_check;
int hook_disable_device_node_modification(int rootfd, const struct hook_options *o,
                                          struct error *err) must_check;
int hook_update_application_profile(int rootfd, const struct hook_options *o,
                                    struct error *err) must_check;
int hook_create_soname_symlinks(int rootfd, const struct hook_options *o,
                                struct error *err) must_check;
int hook_chmod(int rootfd, const struct hook_options *o, struct error *err) must_check;

/* Writes a file in a directory of the container: a new file beside it, then a rename, so that an
 * existing name, also a link, is replaced and never followed. */
int hook_write(int dirfd, const char *name, struct str text, mode_t mode,
               struct error *err) must_check;
/* Makes a link, or replaces what has its name; one that is right already is left alone. */
int hook_link(int dirfd, const char *name, const char *target, struct error *err) must_check;
/* What does not stop the container; goes to hook_warn_fd, nowhere while that is -1. */
extern int hook_warn_fd;
void hook_warn(const char *fmt, ...) printf_like(1, 2);
/* Reads a regular file inside the root, at most max bytes; heap, terminated. */
int hook_read(int rootfd, const char *path, size_t max, char **ret_text, size_t *ret_n,
              struct error *err) must_check;
