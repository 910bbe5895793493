/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What a driver installation has for containers: libraries with the links their users open them by,
 * programs, firmware, configuration of graphics loaders, sockets. Facts: spec/operator-mig-cdi.md
 * 6.3. Only looks: no program is run, no library is loaded, no link leads out of the driver root.
 */
#include "base/arena.h"
#include "base/finding.h"
#include "base/host.h"

enum cdi_file_kind {
    CDI_FILE_LIBRARY,
    CDI_FILE_XORG,
    CDI_FILE_PROGRAM,
    CDI_FILE_FIRMWARE,
    CDI_FILE_CONFIG,
    CDI_FILE_SOCKET,
};

struct cdi_file {
    enum cdi_file_kind kind;
    const char *container; /* where a container sees it */
    const char *real;      /* in the driver root, without links */
};

struct cdi_link {
    const char *target, *path; /* path in the container; target as it is written into the link */
};

struct cdi_driver {
    const char *version;
    struct cdi_file *files; /* one for each container path, parents' level first, then by name */
    size_t n_files;
    struct cdi_link *links; /* of libraries */
    size_t n_links;
    struct cdi_link *graphics_links;
    size_t n_graphics_links;
    const char **cuda_dirs; /* folders of libcuda (of libnvidia-ml where there is no libcuda) */
    size_t n_cuda_dirs;
    const char **library_dirs; /* folders that the container's loader must know */
    size_t n_library_dirs;
};

struct cdi_driver_options {
    const char *version;             /* as the driver tells it; NULL or "": from the
                                        names of libcuda.so.V and libnvidia-ml.so.V */
    const char *const *library_dirs; /* searched before the usual ones */
    size_t n_library_dirs;
    const char *const *config_dirs; /* searched instead of the usual ones */
    size_t n_config_dirs;
    bool explicit_libraries; /* also the vendor-neutral loaders (libGL.so, …) */
    bool no_sockets, no_graphics;
};

/* Everything in the arena, in a stable order. ERR_NOT_FOUND when there is no driver library of that
 * version: the text says where was looked and what was found instead. `notes` (NULL allowed) gets
 * what is missing by capability. */
int cdi_driver_find(struct arena *a, const struct host *h, const struct cdi_driver_options *o,
                    struct cdi_driver *ret, struct findings *notes, struct error *err) must_check;

/* "550.163.01": two or more numbers parted by dots. */
bool cdi_is_version(struct str s);
/* The kernel module's version by <host root>/proc/driver/nvidia/version; "" when none is loaded. */
void cdi_module_version(const struct host *h, char ret[64]);
