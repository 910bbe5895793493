/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The host as this process sees it: where its files are, and the seams through which time,
 * randomness and durable writes go, so that a whole run replays from a seed and a test can fail or
 * cut off any of them.
 *
 * Two views of one path: a "view" path is what this process opens, a "host" path is what is told to
 * kubelet and the container runtime.
 *   --host-root DIR            prefix of /proc, /sys and /dev as this process sees them; "/" when
 * it runs on the host itself
 *   --driver-root              host path of the driver installation ("/" or "/run/nvidia/driver"):
 * published
 *   --driver-root-ctr-path     where this process sees it; default: "/driver-root" if that exists,
 * else host root + driver root ("/driver-root" given but absent is the default too: the peer's
 * flag has that value when nobody set it)
 *   --dev-root                 host path whose /dev holds the nodes: published; default: where they
 * are. The nodes are seen at the driver root's view if its folder "dev" holds the driver's nodes
 * (or any, while the host's has none of the driver's either), else at the host root; the default of
 * --dev-root is then "/" (spec/device-plugin.md 2.1; the peer takes an empty folder too and then
 * finds no node).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/str.h"

struct host_seams {
    void *arg;
    int64_t (*mono_ns)(void *arg); /* CLOCK_MONOTONIC (boot time where the host has it) */
    int64_t (*real_ns)(void *arg); /* unix time */
    int (*random)(void *arg, void *p, size_t n); /* 0 or -errno */
    /* Every step of a durable write goes through these, with the meaning of the system call;
     * 0/fd/count or -errno. */
    int (*open_new)(void *arg, int dirfd, const char *name,
                    mode_t mode); /* O_CREAT|O_EXCL|O_WRONLY */
    ssize_t (*write)(void *arg, int fd, const void *p, size_t n);
    int (*fsync)(void *arg, int fd);
    int (*rename)(void *arg, int dirfd, const char *from, const char *to);
    int (*unlink)(void *arg, int dirfd, const char *name);
};
extern const struct host_seams host_seams_real;

struct host {
    char *root;             /* view prefix, "" for "/", never ends with '/' */
    char *driver_root;      /* host path, "/" or without trailing '/' */
    char *driver_root_view; /* view path, never empty */
    char *dev_root;         /* host path */
    char *dev_root_view;    /* view path; device nodes are at <dev_root_view>/dev */
    const struct host_seams *seams;
};

struct host_config {
    const char *root, *driver_root, *driver_root_view,
        *dev_root;                  /* NULL or "": the default above */
    const struct host_seams *seams; /* NULL: host_seams_real */
};

int host_init(struct host *h, const struct host_config *config,
              struct error *err) must_check; /* ERR_INVALID: a path that is not absolute */
void host_done(struct host *h);

/* "<root>/proc/driver/…" — heap text; sub starts with '/'. */
char *host_path(const struct host *h, const char *sub);

int64_t host_mono_ns(const struct host *h);
int64_t host_real_ns(const struct host *h);

enum { HOST_BOOT_ID_SIZE = 37 };
/* /proc/sys/kernel/random/boot_id of the host, under the host root. */
int host_boot_id(const struct host *h, char ret[HOST_BOOT_ID_SIZE], struct error *err) must_check;
int host_uuid4(const struct host *h, char ret[37], struct error *err) must_check;
