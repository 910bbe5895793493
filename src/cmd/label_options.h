/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What `mete labels` and `gpu-feature-discovery` share: their option rows, and the config that
 * follows from them and the config file, which is the device plugin's own. */
#include "base/finding.h"
#include "base/host.h"
#include "base/opt.h"
#include "gpu/survey.h"
#include "node/labels.h"
#include "spec/pluginconfig.h"

/* clang-format off */
#define LABEL_OPTIONS \
    { .name = "config-file", .type = OPT_STRING, .env = { "GFD_CONFIG_FILE", "CONFIG_FILE" }, .value_name = "FILE", \
      .help = "config file (YAML, version v1), the same as the device plugin's" }, \
    { .name = "mig-strategy", .type = OPT_STRING, .env = { "GFD_MIG_STRATEGY", "MIG_STRATEGY" }, .deflt = "none", \
      .choices = "none|single|mixed", .help = "how parts (MIG devices) are offered: not at all, as nvidia.com/gpu, " \
      "or as nvidia.com/mig-PROFILE" }, \
    { .name = "no-timestamp", .type = OPT_BOOL, .env = { "GFD_NO_TIMESTAMP" }, .deflt = "false", \
      .help = "leave out nvidia.com/gfd.timestamp" }, \
    { .name = "machine-type-file", .type = OPT_STRING, .env = { "GFD_MACHINE_TYPE_FILE" }, .value_name = "FILE", \
      .deflt = "/sys/class/dmi/id/product_name", .help = "file that tells the machine's type; empty: it is unknown" }, \
    { .name = "device-discovery-strategy", .type = OPT_STRING, .env = { "DEVICE_DISCOVERY_STRATEGY" }, \
      .deflt = "auto", .choices = "auto|nvml|tegra|vfio", .help = "how gpus are found; tegra and vfio are refused" }, \
    { .name = "labels-per-model", .type = OPT_BOOL, .env = { "METE_LABELS_PER_MODEL" }, .deflt = "false", \
      .help = "also labels for each gpu model (nvidia.com/gpu-model.MODEL.…), for nodes with several" }, \
    { .name = "host-root", .type = OPT_STRING, .env = { "METE_HOST_ROOT" }, .deflt = "/", .value_name = "DIR", \
      .group = "Paths", .help = "where this process sees the host's /proc, /sys and /dev" }, \
    { .name = "driver-root", .type = OPT_STRING, .aliases = { "nvidia-driver-root" }, \
      .env = { "NVIDIA_DRIVER_ROOT" }, .deflt = "/", .value_name = "DIR", .group = "Paths", \
      .help = "where the driver is installed, as a path of the host" }, \
    { .name = "driver-root-ctr-path", .type = OPT_STRING, .aliases = { "container-driver-root" }, \
      .env = { "DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT" }, .deflt = "/driver-root", .value_name = "DIR", \
      .group = "Paths", .help = "where this process sees the driver root" }, \
    { .name = "dev-root", .type = OPT_STRING, .aliases = { "nvidia-dev-root" }, .env = { "NVIDIA_DEV_ROOT" }, \
      .value_name = "DIR", .group = "Paths", \
      .help = "the host's directory whose dev/ holds the device nodes; empty: the driver root" }
/* clang-format on */

/* Reads the config file that the options name and puts what flags and environment say over it
 * (flag, environment, file, default). The config's gfd part gets the values of oneshot,
 * output-file, sleep-interval and use-node-feature-api only if the table has these rows.
 * *ret_per_model: labels-per-model, or agent.labelsPerModel of the file. ERR_UNSUPPORTED: a
 * discovery strategy that this version does not have. */
int label_config_load(const struct opts *o, struct findings *findings, struct plugin_config **ret,
                      bool *ret_per_model, struct error *err) must_check;

int label_host_init(const struct opts *o, const struct plugin_config *c, struct host *ret,
                    struct error *err) must_check;
