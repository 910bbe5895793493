/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Hosts equal to those on which the peers were recorded (cases/README-recordings.md), and hosts
 * with parts, for tests that need no driver: a survey made by hand and a folder tree with device
 * nodes. */
#include <stdbool.h>

#include "base/host.h"
#include "gpu/survey.h"

/* "a100", "h100", "h100-mig" (mode on, no instances), "h200" (one gpu), "parts" (two A100: one cut
 * into 3g.20gb, 2g.10gb, 1g.5gb and 1c.1g.5gb twins, one whole), "wsl". Unref'd by the caller. */
struct survey *fixture_survey(const char *profile);

struct fixture_host {
    char dir[64];
    struct host host;
};

enum fixture_nodes {
    FIXTURE_DRIVER_NODES = 1, /* device nodes below /driver-root */
    FIXTURE_DEV_NODES = 2,    /* below / */
    FIXTURE_MODESET = 4,      /* /dev/nvidia-modeset too: the H200 had none */
    FIXTURE_IMEX = 8,
};

/* A host root in a new folder. Paths as on the recorded host: "/driver-root" and "/" mean those of
 * the folder. driver_root, ctr_path, dev_root: NULL for the default. */
void fixture_host_init(struct fixture_host *f, const struct survey *s, int nodes,
                       const char *driver_root, const char *ctr_path, const char *dev_root);
void fixture_host_done(struct fixture_host *f); /* removes the folder */

/* Makes a device node (a plain file where that is not permitted), with its folders. */
void fixture_node(const struct fixture_host *f, const char *path, unsigned major_number,
                  unsigned minor_number);
void fixture_file(const struct fixture_host *f, const char *path, const char *text);
