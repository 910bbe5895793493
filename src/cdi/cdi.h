/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/cdi: the CDI model, its writer, discovery of what a device needs on the host.
 * Not here: who gets a device.
 * may use: base data gpu spec elf
 *
 * generate.h: specs from what the host has; registry.h: CDI files as a container engine reads them;
 * apply.h: what a device does to a container's config; check.h: what is wrong with the files of a
 * host.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/host.h"
#include "gpu/survey.h"
#include "spec/pluginconfig.h"

struct cdi_node {
    const char *path, *host_path; /* host_path NULL: same as path */
    const char *permissions;      /* "rwm" */
    bool has_numbers;             /* major, minor and mode are known */
    uint32_t major, minor, mode;
    bool has_type; /* there is no node yet: "type" is written, so that the engine can make it */
};
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
    uint32_t *gids; /* groups that own nodes which are not open to everybody */
    size_t n_gids;
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

/* The specs the device plugin publishes (spec/device-plugin.md 3.4): class "gpu" if there is any
 * gpu or part, "imex-channel", "gdrcopy", "gds", "mofed" where asked for and present. (A spec
 * without devices is refused by every container engine, so there is none.) Each gpu and part has
 * its name by the id strategy and the other one too, and there is a device "all". Looks at device
 * nodes, sysfs and the driver's files. Everything in the arena, stable order. ERR_NOT_FOUND: there
 * are gpus, but no driver library that a container could use. */
int cdi_build(struct arena *a, const struct host *h, const struct survey *s,
              const struct plugin_config *c, struct cdi_spec **ret, size_t *ret_n,
              struct error *err) must_check;
/* JSON with the least version that the content needs; deterministic bytes. */
int cdi_encode(const struct cdi_spec *spec, struct buf *out, struct error *err) must_check;
/* "0.3.0", "0.5.0", … */
const char *cdi_version(const struct cdi_spec *spec);
/* "k8s.device-plugin.nvidia.com-gpu.json"; NULL when the arena is full */
char *cdi_file_name(struct arena *a, const struct cdi_spec *spec);

enum { CDI_NAME_MAX = 96 };
/* The name under which a gpu or part is published: the uuid or the index by strategy. A slash,
 * which old MIG ids hold and CDI does not allow, is written as a colon ("MIG-GPU-…:3:0"); a uuid
 * that is no name even so gives way to the index. Returns ret or index. */
const char *cdi_name_of(enum id_strategy strategy, const char *uuid, const char *index,
                        char ret[CDI_NAME_MAX]);
/* Is this gpu or part published (everything known that a container needs)? part NULL: the gpu. */
bool cdi_published(const struct gpu *g, const struct part *p, enum mig_strategy strategy);

/* What the host has, looked at once at publish time: the control nodes in the order in which device
 * specs name them, the IMEX channel, and the gated classes with content. */
struct cdi_facts {
    const char *control_nodes[4]; /* "/dev/nvidiactl", …: static text */
    size_t n_control_nodes;
    bool imex_channel0;
    uint32_t gated; /* bit 0 gdrcopy, 1 gds, 2 mofed */
};
/* ERR_NOT_FOUND when the config requires the IMEX channel and it is absent; *ret is filled then
 * too. */
int cdi_look(const struct host *h, const struct plugin_config *c, struct cdi_facts *ret,
             struct error *err) must_check;
