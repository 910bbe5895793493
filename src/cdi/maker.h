/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Inside src/cdi only: puts edits together. Everything goes into one arena; the first allocation
 * that fails sets `full`, and what is made after that is not used. */
#include "cdi/driver.h"
#include "cdi/generate.h"
#include "cdi/list.h"

enum { MAKER_ITEMS_MAX = 8192 }; /* of one list */

struct maker {
    struct arena *arena;
    const struct host *host;
    const struct cdi_generate *o;
    struct findings *notes; /* or NULL */
    bool gids;              /* publish groups of nodes */
    bool full;
    /* Majors by /proc/devices, read once; 0: not registered. */
    bool majors_read;
    uint32_t major_gpu, major_uvm, major_caps, major_imex;
};

#define MAKER_PUSH(m, list, n) CDI_PUSH((m)->arena, &(m)->full, MAKER_ITEMS_MAX, list, n)

/* "" (and m->full) without memory or when it is too long. */
const char *maker_text(struct maker *m, const char *fmt, ...) printf_like(2, 3);
bool maker_flag(const struct maker *m, const char *flag);

/* ---- nodes.c ---- */

/* Adds a device node as the host has it. One that is absent is left out unless `always`: then its
 * numbers come from what the driver has registered, so that the container engine can make it, or,
 * where it has registered nothing, it is named alone and the engine says that it is missing. */
void maker_node(struct maker *m, struct cdi_edits *e, const char *path, bool always);
void maker_gpu(struct maker *m, const struct gpu *g, struct cdi_edits *e);
void maker_part(struct maker *m, const struct gpu *g, const struct part *p, struct cdi_edits *e);
void maker_control_nodes(struct maker *m, struct cdi_edits *e);
/* Nodes of a folder whose names begin with `prefix` and go on with a digit ("" at the end too). */
void maker_numbered(struct maker *m, struct cdi_edits *e, const char *dir, const char *prefix);
/* Every node for administration. */
void maker_management_nodes(struct maker *m, struct cdi_edits *e);
void maker_sort(struct cdi_edits *e);
/* Adds what `from` has and `to` has not. */
void maker_merge(struct maker *m, struct cdi_edits *to, const struct cdi_edits *from);

/* Names in a folder below a root that begin with `prefix`, in natural order ("card2" before
 * "card10"), into the arena. */
const char **maker_names(struct maker *m, const char *root, const char *dir, const char *prefix,
                         size_t *ret_n);
bool maker_node_exists(const struct host *h, const char *path);

extern const char *const control_nodes[4]; /* in the order in which the peer lists device specs */
#define IMEX_CHANNEL_DIR "/dev/nvidia-caps-imex-channels"

/* ---- hooks.c ---- */

/* Adds a hook unless it is switched off; `args` (n of them) follow its name and are kept. */
void maker_hook(struct maker *m, struct cdi_edits *e, const char *name, const char *const *args,
                size_t n);
void maker_env(struct maker *m, struct cdi_edits *e, const char *text);
void maker_mount(struct maker *m, struct cdi_edits *e, const char *real, const char *container,
                 bool socket);
void maker_links(struct maker *m, struct cdi_edits *e, const struct cdi_link *links, size_t n);
/* The driver's files with what makes them usable. `whole`: also what only graphics needs. */
int maker_driver(struct maker *m, const char *version, bool whole, struct cdi_edits *e,
                 struct error *err) must_check;
int maker_wsl(struct maker *m, struct cdi_edits *e, struct error *err) must_check;
