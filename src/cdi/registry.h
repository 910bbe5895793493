/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * CDI files as a container engine reads them: all of some directories, each device by its qualified
 * name. Source: Container Device Interface 1.1.0; where the engines' common reader differs from its
 * own text, what the engines do counts (spec/operator-mig-cdi.md 5.2 to 5.4), but for the defects
 * listed there.
 */
#include "base/finding.h"
#include "data/json.h"

enum { CDI_FILES_MAX = 1024, CDI_DEVICES_MAX = 65536, CDI_READ_MAX = 16 * 1024 * 1024 };

struct cdi_found {
    const char *name;           /* "vendor/class=device" */
    const char *file;           /* path it came from */
    uint32_t priority;          /* place of its directory in the list: later wins */
    bool conflict;              /* twice at the same priority: cannot be resolved */
    bool shadowed;              /* one of a later directory counts instead */
    const struct value *device; /* the device's containerEdits */
    const struct value *common; /* the file's containerEdits, or NULL */
};

struct cdi_registry {
    struct arena arena;
    struct cdi_found *devices; /* sorted by name; one for each name */
    size_t n;
    struct cdi_found *all; /* every definition: by name, then the one that counts first */
    size_t n_all;
    const char **files; /* read and valid, in the order read */
    const struct value **docs;
    size_t n_files;
};

/* Reads *.json and *.yaml directly in each directory, in order. A missing directory is fine. A file
 * that cannot be read or is not valid is left out with a finding that names file, line and what is
 * wrong; two files with the same device at the same priority are a finding naming both, also where
 * a later directory settles it here: the engines' common reader refuses the name even then. Never
 * fails for what a file holds. */
int cdi_registry_load(const char *const *dirs, size_t n_dirs, struct cdi_registry **ret,
                      struct findings *findings, struct error *err) must_check;
void cdi_registry_free(struct cdi_registry *r); /* NULL allowed */
const struct cdi_found *cdi_registry_find(const struct cdi_registry *r,
                                          struct str name); /* NULL: unknown */

/* Is the document a valid CDI spec? Every fault is a finding with `name`:line:column. Returns
 * ERR_INVALID when there is one. */
int cdi_validate(const struct value *doc, const char *name, struct findings *findings,
                 struct error *err) must_check;
/* Is it "vendor/class=device" by the rules for names? */
bool cdi_name_valid(struct str qualified);
