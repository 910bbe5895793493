/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Between the files that make labels, inside src/node only. */
#include "node/labels.h"

#define LABEL_GPU "nvidia.com/gpu"

struct draft_label {
    struct label label; /* value NULL: the key is taken back */
    size_t order;
};

struct label_draft {
    const struct label_input *in;
    struct labels *out;
    struct draft_label *items;
    size_t n, cap;
    bool no_memory;
    const struct gpu **gpus; /* those that have labels: with a name, no display boards */
    size_t n_gpus;
};

/* A value that is legal as it stands. A later value of the same key wins. */
void label_put(struct label_draft *d, const char *key, const char *fmt, ...) printf_like(3, 4);
/* Any text: made legal as the peer does, then cut to size (docs/labels.md). `suffix` is kept whole;
 * "" for none. */
void label_put_text(struct label_draft *d, const char *key, const char *text, const char *suffix);
void label_drop(struct label_draft *d, const char *key);
/* "<prefix>.<name>", in the arena. */
const char *label_key(struct label_draft *d, const char *prefix, const char *name);
/* Deletes what no label may hold and makes one "-" of each run of blanks. In the arena; NULL
 * without memory. */
char *label_clean(struct label_draft *d, const char *text);
void label_note(struct label_draft *d, const char *id, enum severity severity, const char *subject,
                const char *fix, const char *fmt, ...) printf_like(6, 7);

/* labels_gpu.c: models of whole gpus. */
void labels_add_gpus(struct label_draft *d);
/* labels_mig.c: parts, by the MIG strategy. */
void labels_add_parts(struct label_draft *d);

/* labels_share.c: how the config shares a resource. */
struct label_base {
    const struct gpu *gpu;
    const struct part *part; /* NULL: the whole gpu */
};
struct label_share {
    uint32_t replicas; /* 1: not shared */
    bool renamed;      /* all of it is published under another name */
};
/* `model`: only gpus of this name count; NULL: all. bases: all of the resource, in index order. */
struct label_share label_share_of(const struct plugin_config *c, const char *resource,
                                  const struct label_base *bases, size_t n, const char *model);
/* Name of the resource under which the config offers a whole gpu. */
const char *label_gpu_resource(const struct plugin_config *c, const struct gpu *g);

/* product, count, replicas and sharing-strategy of one resource. `middle`: "", or what stands
 * between model and "-SHARED". share NULL: nothing of it can be had as a whole (replicas 0). */
void labels_add_base(struct label_draft *d, const char *prefix, const char *model,
                     const char *middle, size_t count, const struct label_share *share);
