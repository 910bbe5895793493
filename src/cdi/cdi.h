/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/cdi: the CDI model, its writer, discovery of what a device needs on the host.
 * Not here: who gets a device.
 * may use: base data gpu spec elf
 *
 * For now: device nodes of gpus and parts (and the control nodes they share); the driver's files
 * come with the container side.
 */
#include "base/arena.h"
#include "base/buf.h"
#include "base/host.h"
#include "gpu/survey.h"
#include "spec/pluginconfig.h"

struct cdi_node {
    const char *path, *host_path;
    const char *permissions;
}; /* host_path NULL: same as path */
struct cdi_mount {
    const char *host_path, *container_path;
    const char *const *options;
    size_t n_options;
};
struct cdi_hook {
    const char *name, *path;
    const char *const *args;
    size_t n_args;
    const char *const *env;
    size_t n_env;
};
struct cdi_edits {
    const char **env;
    size_t n_env;
    struct cdi_node *nodes;
    size_t n_nodes;
    struct cdi_mount *mounts;
    size_t n_mounts;
    struct cdi_hook *hooks;
    size_t n_hooks;
};
struct cdi_device {
    const char *name;
    struct cdi_edits edits;
};
struct cdi_spec {
    const char *kind; /* "k8s.device-plugin.nvidia.com/gpu" */
    struct cdi_device *devices;
    size_t n_devices;
    struct cdi_edits common;
};

/* The specs the device plugin publishes (spec/device-plugin.md 3.4): class "gpu" always,
 * "imex-channel", "gdrcopy", "gds", "mofed" where asked for and present. Everything in the arena,
 * stable order. */
int cdi_build(struct arena *a, const struct host *h, const struct survey *s,
              const struct plugin_config *c, struct cdi_spec **ret, size_t *ret_n,
              struct error *err) must_check;
/* JSON with the least version that the content needs; deterministic bytes. */
int cdi_encode(const struct cdi_spec *spec, struct buf *out, struct error *err) must_check;
/* "k8s.device-plugin.nvidia.com-gpu.json" */
char *cdi_file_name(struct arena *a, const struct cdi_spec *spec);
