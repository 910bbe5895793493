/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The labels that describe a node's gpus (GPU feature discovery, spec/device-plugin.md 7): a pure
 * function of survey, config and what the host says. Same inputs, same bytes, sorted by key.
 * Where the peer's result is a defect, docs/differences.md has the line.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/finding.h"
#include "base/host.h"
#include "gpu/survey.h"
#include "spec/pluginconfig.h"

enum {
    LABEL_VALUE_MAX = 63, /* as Kubernetes limits it */
    LABEL_FILE_MAX = 1024 * 1024,
    VGPU_TEXT_SIZE = 11,
};

struct label {
    const char *key, *value; /* what the API server accepts */
    const char *full; /* the text before it was shortened to 63 characters; NULL: it was not */
};

struct labels {
    struct arena arena;
    struct label *items; /* by key, each key once */
    size_t n;
    struct findings notes; /* what could not be told and why */
};

/* ---- what the host says beside the survey ---- */

enum vgpu_state {
    VGPU_UNKNOWN, /* PCI configuration space cannot be read */
    VGPU_NONE,
    VGPU_GUEST,
};

struct label_facts {
    char machine[256];      /* as in the file, without blanks at the ends; "": not known */
    char machine_text[480]; /* why it could not be read; "": it could, or was not asked for */
    enum vgpu_state vgpu;
    char vgpu_version[VGPU_TEXT_SIZE], vgpu_branch[VGPU_TEXT_SIZE]; /* of the hypervisor's driver */
    char vgpu_text[480]; /* why vgpu is unknown, or why version and branch are not there */
};

/* Reads the machine type file and the PCI configuration space of the survey's gpus; of all display
 * controllers of NVIDIA when the survey has none with a PCI address. A machine type file below
 * /sys, /proc or /dev is the host's (host root), any other path is this process's own; "": none.
 * Never fails: what is not there is not known. */
void label_facts_read(const struct host *h, const char *machine_type_file, const struct survey *s,
                      struct label_facts *ret);

/* Is this the configuration space (n bytes) of a vGPU? A vendor-specific capability with the
 * letters VF says so; its record 0 holds the two texts ("" when there is none). VGPU_UNKNOWN below
 * 256 bytes, which is what an unprivileged reader gets. */
enum vgpu_state vgpu_look(const void *config, size_t n, char version[VGPU_TEXT_SIZE],
                          char branch[VGPU_TEXT_SIZE]);

/* ---- labels ---- */

struct label_input {
    const struct survey *survey;
    const struct plugin_config *config;
    const struct label_facts *facts;
    int64_t timestamp; /* unix seconds; below 0: no label */
    bool per_model;    /* also labels for each gpu model (ours) */
};

/* ERR_LIMIT: more than a node can have. */
int labels_build(const struct label_input *in, struct labels **ret, struct error *err) must_check;
void labels_free(struct labels *l); /* NULL allowed */

const char *labels_get(const struct labels *l, const char *key); /* NULL: there is none */
/* "key=value\n" for each, as NFD reads it from its features.d. */
void labels_text(const struct labels *l, struct buf *out);
/* The notes in one text, to tell whether there is something new to say. */
void labels_notes_text(const struct labels *l, struct buf *out);
/* A fabric that is still forming: its clique comes without any event. */
bool labels_unsettled(const struct survey *s);
