/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The rows of the device plugin's command line (spec/device-plugin.md 1.1), for the const option
 * table of each command that takes a plugin config. Names, aliases, variables and defaults are the
 * peer's. Choices are checked by pluginconfig_load, after the config file was read.
 */
/* clang-format off */
#define PLUGINCONFIG_OPTIONS \
    { .name = "config-file", .type = OPT_STRING, .env = { "CONFIG_FILE" }, .value_name = "FILE", \
      .help = "config file (YAML, version v1) with values for most of these options and the sharing of gpus" }, \
    { .name = "mig-strategy", .type = OPT_STRING, .env = { "MIG_STRATEGY" }, .config_key = "flags.migStrategy", \
      .deflt = "none", .choices = "none|single|mixed", .group = "Devices", \
      .help = "how parts (MIG devices) are offered: not at all, as nvidia.com/gpu, or as nvidia.com/mig-PROFILE" }, \
    { .name = "fail-on-init-error", .type = OPT_BOOL, .env = { "FAIL_ON_INIT_ERROR" }, \
      .config_key = "flags.failOnInitError", .deflt = "true", .group = "Devices", \
      .help = "end with an error when the driver cannot be used at start, instead of waiting for it" }, \
    { .name = "device-discovery-strategy", .type = OPT_STRING, .env = { "DEVICE_DISCOVERY_STRATEGY" }, \
      .config_key = "flags.deviceDiscoveryStrategy", .deflt = "auto", .choices = "auto|nvml|tegra", \
      .group = "Devices", .help = "how gpus are found" }, \
    { .name = "shared-devices-allocation-policy", .type = OPT_STRING, \
      .env = { "SHARED_DEVICES_ALLOCATION_POLICY" }, \
      .config_key = "flags.plugin.sharedDevicesAllocationPolicy", .deflt = "distributed", \
      .choices = "distributed|packed", .group = "Devices", \
      .help = "which share is preferred: one on the least used gpu, or one on the most used" }, \
    { .name = "driver-root", .type = OPT_STRING, .aliases = { "nvidia-driver-root" }, \
      .env = { "NVIDIA_DRIVER_ROOT" }, .config_key = "flags.nvidiaDriverRoot", .value_name = "DIR", \
      .deflt = "/", .group = "Paths", .help = "where the driver is installed, as a path of the host" }, \
    { .name = "driver-root-ctr-path", .type = OPT_STRING, .aliases = { "container-driver-root" }, \
      .env = { "DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT" }, \
      .config_key = "flags.plugin.containerDriverRoot", .value_name = "DIR", .deflt = "/driver-root", \
      .group = "Paths", .help = "where this process sees the driver root" }, \
    { .name = "dev-root", .type = OPT_STRING, .aliases = { "nvidia-dev-root" }, .env = { "NVIDIA_DEV_ROOT" }, \
      .config_key = "flags.nvidiaDevRoot", .value_name = "DIR", .group = "Paths", \
      .help = "the host's directory whose dev/ holds the device nodes; empty: the driver root" }, \
    { .name = "mps-root", .type = OPT_STRING, .env = { "MPS_ROOT" }, .config_key = "flags.mpsRoot", \
      .value_name = "DIR", .group = "Paths", \
      .help = "the host's directory for MPS pipes and logs; needed when the config file shares by MPS" }, \
    { .name = "nvidia-cdi-hook-path", .type = OPT_STRING, .aliases = { "nvidia-ctk-path" }, \
      .env = { "NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH" }, .config_key = "flags.plugin.nvidiaCTKPath", \
      .value_name = "FILE", .deflt = "/usr/bin/nvidia-ctk", .group = "Paths", \
      .help = "the host's program that CDI hooks call" }, \
    { .name = "kubelet-socket", .type = OPT_STRING, .env = { "KUBELET_SOCKET" }, .value_name = "SOCKET", \
      .deflt = "/var/lib/kubelet/device-plugins/kubelet.sock", .group = "Paths", \
      .help = "kubelet's registration socket; empty: do not register" }, \
    { .name = "device-list-strategy", .type = OPT_LIST, .env = { "DEVICE_LIST_STRATEGY" }, \
      .config_key = "flags.plugin.deviceListStrategy", .deflt = "envvar", \
      .choices = "envvar|volume-mounts|cdi-annotations|cdi-cri", .group = "Answers to kubelet", \
      .help = "how the granted devices are passed to the container runtime, one or several ways at once" }, \
    { .name = "device-id-strategy", .type = OPT_STRING, .env = { "DEVICE_ID_STRATEGY" }, \
      .config_key = "flags.plugin.deviceIDStrategy", .deflt = "uuid", .choices = "uuid|index", \
      .group = "Answers to kubelet", .help = "what the granted devices are called in the answer" }, \
    { .name = "pass-device-specs", .type = OPT_BOOL, .env = { "PASS_DEVICE_SPECS" }, \
      .config_key = "flags.plugin.passDeviceSpecs", .deflt = "false", .group = "Answers to kubelet", \
      .help = "also list the device nodes in the answer, so that kubelet and the runtime know them" }, \
    { .name = "gdrcopy-enabled", .type = OPT_BOOL, .env = { "GDRCOPY_ENABLED" }, \
      .config_key = "flags.gdrcopyEnabled", .deflt = "false", .group = "Answers to kubelet", \
      .help = "give GDRCopy's device to containers that get a gpu" }, \
    { .name = "gds-enabled", .type = OPT_BOOL, .env = { "GDS_ENABLED" }, .config_key = "flags.gdsEnabled", \
      .deflt = "false", .group = "Answers to kubelet", \
      .help = "give GPUDirect Storage's devices to containers that get a gpu" }, \
    { .name = "mofed-enabled", .type = OPT_BOOL, .env = { "MOFED_ENABLED" }, .config_key = "flags.mofedEnabled", \
      .deflt = "false", .group = "Answers to kubelet", \
      .help = "give the InfiniBand devices to containers that get a gpu" }, \
    { .name = "imex-channel-ids", .type = OPT_LIST, .env = { "IMEX_CHANNEL_IDS" }, \
      .config_key = "imex.channelIDs", .group = "Answers to kubelet", \
      .help = "IMEX channels given to containers that get a gpu: none, or channel 0" }, \
    { .name = "imex-required", .type = OPT_BOOL, .env = { "IMEX_REQUIRED" }, .config_key = "imex.required", \
      .deflt = "false", .group = "Answers to kubelet", \
      .help = "end with an error when the IMEX channel's device is missing" }, \
    { .name = "cdi-annotation-prefix", .type = OPT_STRING, .env = { "CDI_ANNOTATION_PREFIX" }, \
      .config_key = "flags.plugin.cdiAnnotationPrefix", .deflt = "cdi.k8s.io/", .group = "CDI", \
      .help = "what the key of a CDI annotation starts with" }, \
    { .name = "cdi-feature-flags", .type = OPT_LIST, .env = { "CDI_FEATURE_FLAGS" }, .group = "CDI", \
      .choices = "enable-explicit-driver-libraries|disable-nvsandboxutils|disable-nvsandbox-utils|" \
                 "enable-coherent-annotations|disable-multiple-csv-devices|" \
                 "no-additional-gids-for-device-nodes|disable-ipc-discoverer", \
      .help = "switches for what goes into the CDI files" }, \
    { .name = "cdi-disable-hooks", .type = OPT_LIST, .env = { "CDI_DISABLE_HOOKS" }, .group = "CDI", \
      .choices = "all|create-symlinks|enable-cuda-compat|update-ldcache|disable-device-node-modification|" \
                 "update-application-profile|chmod", \
      .help = "hooks that are left out of the CDI files" }
/* clang-format on */
