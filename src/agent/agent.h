/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/agent: the node agent's wiring: which part hears of what, and in which order things start and
 * end. Not here: rules. Each decision is made in the folder that owns it. may use: base io data gpu
 * spec kubeletapi node cdi kubelet
 *
 * The four ways through the house (ARCHITECTURE.md 4) meet here:
 *   publish   worker's survey → ledger, health → inventory → CDI files → kubelet/
 *   grant     kubelet/ asks the ledger itself; the agent only hears of it for the log
 *   health    worker's event → health → inventory → kubelet/
 *   reload    SIGHUP or a changed file → new config → trial inventory → inventory → kubelet/
 */
#include "base/opt.h"

/* The rows that only the agent has; the peer's own are PLUGINCONFIG_OPTIONS. */
#define AGENT_OPTIONS                                                                              \
    { .name = "host-root",                                                                         \
      .type = OPT_STRING,                                                                          \
      .env = { "METE_HOST_ROOT" },                                                                 \
      .config_key = "agent.hostRoot",                                                              \
      .value_name = "DIR",                                                                         \
      .deflt = "/",                                                                                \
      .group = "Paths",                                                                            \
      .help = "where this process sees the host's /proc, /sys and /dev" },                         \
        { .name = "kubelet-dir",                                                                   \
          .type = OPT_STRING,                                                                      \
          .env = { "METE_KUBELET_DIR" },                                                           \
          .config_key = "agent.kubeletDir",                                                        \
          .value_name = "DIR",                                                                     \
          .deflt = "/var/lib/kubelet",                                                             \
          .group = "Paths",                                                                        \
          .help = "kubelet's root directory: device-plugins/ and pod-resources/ are below it" },   \
        { .name = "state-dir",                                                                     \
          .type = OPT_STRING,                                                                      \
          .env = { "METE_STATE_DIR" },                                                             \
          .config_key = "agent.stateDir",                                                          \
          .value_name = "DIR",                                                                     \
          .deflt = AGENT_STATE_DIR_DEFAULT,                                                        \
          .group = "Paths",                                                                        \
          .help = "where the ledger is kept; empty: nothing is kept over a restart" },             \
        { .name = "cdi-dir",                                                                       \
          .type = OPT_STRING,                                                                      \
          .env = { "METE_CDI_DIR" },                                                               \
          .config_key = "agent.cdiDir",                                                            \
          .value_name = "DIR",                                                                     \
          .deflt = "/var/run/cdi",                                                                 \
          .group = "Paths",                                                                        \
          .help = "where CDI files are written" },                                                 \
        { .name = "runtime-cdi",                                                                   \
          .type = OPT_BOOL,                                                                        \
          .env = { "METE_RUNTIME_CDI" },                                                           \
          .config_key = "agent.runtimeCDI",                                                        \
          .deflt = "false",                                                                        \
          .group = "Container runtime",                                                            \
          .help = "write a CDI file of kind nvidia.com/gpu for mete-runtime, under any device "    \
                  "list strategy; not while another file has that kind" },                         \
        { .name = "install-dir",                                                                   \
          .type = OPT_STRING,                                                                      \
          .env = { "METE_INSTALL_DIR" },                                                           \
          .config_key = "agent.installDir",                                                        \
          .value_name = "DIR",                                                                     \
          .group = "Container runtime",                                                            \
          .help = "install mete-hook and mete-runtime in this folder of the host, which this "     \
                  "process sees under the same path; empty: do not" },                             \
        { .name = "node-name",                                                                     \
          .type = OPT_STRING,                                                                      \
          .env = { "NODE_NAME" },                                                                  \
          .config_key = "agent.nodeName",                                                          \
          .value_name = "NAME",                                                                    \
          .help = "name of this node in Kubernetes, for messages" },                               \
        { .name = "label-file",                                                                    \
          .type = OPT_STRING,                                                                      \
          .env = { "METE_LABEL_FILE" },                                                            \
          .config_key = "agent.labelFile",                                                         \
          .value_name = "FILE",                                                                    \
          .group = "Labels",                                                                       \
          .help = "write the node's labels to this feature file of NFD; empty: do not" },          \
        { .name = "labels-per-model",                                                              \
          .type = OPT_BOOL,                                                                        \
          .env = { "METE_LABELS_PER_MODEL" },                                                      \
          .config_key = "agent.labelsPerModel",                                                    \
          .deflt = "false",                                                                        \
          .group = "Labels",                                                                       \
          .help = "also labels for each gpu model, for nodes with several" },                      \
        { .name = "log-level",                                                                     \
          .type = OPT_STRING,                                                                      \
          .env = { "METE_LOG_LEVEL" },                                                             \
          .config_key = "agent.logLevel",                                                          \
          .deflt = "info",                                                                         \
          .choices = "debug|info|warn|error",                                                      \
          .group = "Logging",                                                                      \
          .help = "least level that is logged" },                                                  \
    {                                                                                              \
        .name = "log-format", .type = OPT_STRING, .env = { "METE_LOG_FORMAT" },                    \
        .config_key = "agent.logFormat", .deflt = "text", .choices = "text|json",                  \
        .group = "Logging", .help = "form of a log line"                                           \
    }

struct agent_setup {
    const char *program;           /* for messages: "mete agent", "nvidia-device-plugin" */
    const struct command *command; /* for --help */
    const struct opt *table;       /* PLUGINCONFIG_OPTIONS and AGENT_OPTIONS */
    int argc;
    char **argv; /* kept: a reload parses them again */
};

/* Runs until it is told to end. Returns the exit code: 0 after SIGTERM, SIGINT or SIGQUIT, 1 when
 * it could not start or had to end. */
int agent_run(const struct agent_setup *setup);
