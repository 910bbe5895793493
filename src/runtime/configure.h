/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Settings by which containerd or CRI-O know mete-runtime: planned first, then shown or written.
 * Everything of ours lies in one drop-in file; of the engine's own file at most the line that
 * imports drop-ins is changed. Facts: docs/runtime.md, spec/operator-mig-cdi.md 9.
 */
#include "base/finding.h"
#include "base/host.h"
#include "runtime/runtime.h"

enum runtime_engine { ENGINE_CONTAINERD, ENGINE_CRIO };
enum { RUNTIME_CHANGES_MAX = 4 };

struct runtime_setup {
    enum runtime_engine engine;
    const char *root;         /* where the host's files are seen, "" on the host itself */
    const char *config;       /* the engine's file; NULL: its default */
    const char *drop_in_dir;  /* NULL: its default */
    const char *name;         /* of the runtime handler: "nvidia" */
    const char *runtime_path; /* of mete-runtime on the host */
    bool as_default, cdi;
    /* containerd 2.1 and later put tables of several files together; before that the last file's
     * table of a plugin stands alone. 0: not known, taken as older. */
    unsigned engine_major, engine_minor;
};

struct runtime_change {
    const char *path;   /* on the host */
    const char *before; /* NULL: there is no such file */
    const char *after;  /* NULL: to be removed */
    mode_t mode;
};
struct runtime_plan {
    struct runtime_change changes[RUNTIME_CHANGES_MAX]; /* in the order in which they are written */
    size_t n;
};

/* What would be changed; n is 0 when everything is as it should be. Texts live in the arena.
 * `notes` tells what an administrator should know. ERR_INVALID: a file that cannot be read as the
 * engine reads it, a disabled CRI plugin, a runtime that is not there: nothing can be planned. */
int runtime_plan_make(struct arena *a, const struct runtime_setup *s, struct runtime_plan *ret,
                      struct findings *notes, struct error *err) must_check;
/* Takes back what runtime_plan_make and runtime_plan_write did: the drop-in is removed, and the
 * engine's own file is restored if nobody changed it since. */
int runtime_plan_undo(struct arena *a, const struct runtime_setup *s, struct runtime_plan *ret,
                      struct findings *notes, struct error *err) must_check;
/* Writes the plan, each file atomically, the old text of a changed file beside it first (as
 * FILE.mete-backup, unless there is one). When one fails, those before are put back. */
int runtime_plan_write(const struct host *h, const struct runtime_setup *s,
                       const struct runtime_plan *p, struct error *err) must_check;
/* The plan as text: for each file the lines that go (-) and come (+). */
void runtime_plan_print(const struct runtime_plan *p, struct buf *out);

/* ---- inside src/runtime only ---- */

/* Paths on the host: the engine's file, ours, and the import that finds ours (NULL: no memory). */
const char *configure_main(const struct runtime_setup *s);
const char *configure_drop_in(struct arena *a, const struct runtime_setup *s);
const char *configure_pattern(struct arena *a, const struct runtime_setup *s);

#define RUNTIME_BACKUP "mete-backup"

/* A text file of the host in the arena; *ret NULL when it is absent. */
int configure_read(struct arena *a, const struct runtime_setup *s, const char *path,
                   const char **ret, mode_t *ret_mode, struct error *err) must_check;
/* Puts `from`'s members into `to`, maps into maps; what both have, `from` decides. */
int configure_merge(struct arena *a, struct value *to, const struct value *from,
                    struct error *err) must_check;
/* A copy that can be changed without changing `from`. */
int configure_copy(struct arena *a, const struct value *from, struct value *to,
                   struct error *err) must_check;
int configure_add(struct runtime_plan *p, const struct runtime_change *c, struct error *err);
bool configure_same(const struct value *a, const struct value *b);

int containerd_plan(struct arena *a, const struct runtime_setup *s, struct runtime_plan *ret,
                    struct findings *notes, struct error *err) must_check;
/* The containerd file with the import added; NULL in *ret when it is there already. */
int containerd_import(struct arena *a, const char *path, const char *text, const char *pattern,
                      const char **ret, struct error *err) must_check;
int crio_plan(struct arena *a, const struct runtime_setup *s, struct runtime_plan *ret,
              struct findings *notes, struct error *err) must_check;
