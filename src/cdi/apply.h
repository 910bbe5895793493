/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What CDI devices do to an OCI runtime config (config.json). Source: CDI 1.1.0 "Container Edits"
 * and spec/operator-mig-cdi.md 5.5. */
#include "cdi/registry.h"
#include "data/json.h"

struct cdi_apply_options {
    const char
        *root; /* where the host's files are seen, "" for "/": device numbers are read there */
};

/* Applies the named devices in order: each file's common edits once, then each device's. All or
 * nothing: on an error `oci` is not to be used (the caller writes nothing). ERR_NOT_FOUND names
 * every device that no file defines; ERR_CONFLICT one that two files define. New parts of the tree
 * live in the arena; texts of the registry are borrowed. */
int cdi_apply(struct arena *a, struct value *oci, const struct cdi_registry *r,
              const char *const *names, size_t n, const struct cdi_apply_options *o,
              struct error *err) must_check;
