/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What is wrong with the CDI files of a host: files that no engine takes, names that nobody can
 * resolve, things they name that are not there, or not what they were. */
#include "cdi/registry.h"

struct cdi_check {
    const char *root; /* where the host's files are seen, "" for "/" */
    const char *const *dirs;
    size_t n_dirs; /* in the engines' order: later ones win; as this process sees them */
    const char *const *names;
    size_t n_names;             /* must resolve; may be none */
    const char *driver_version; /* of the loaded kernel module; "" when none is */
};

/* Everything found is a finding: cdi.invalid, cdi.unreadable, cdi.conflict, cdi.unresolvable,
 * cdi.missing-file, cdi.missing-node, cdi.node-changed, cdi.missing-hook, cdi.stale-driver
 * (errors), cdi.private, cdi.ignored-file (warnings), cdi.shadowed (info). Fails only for want of
 * memory. */
int cdi_check(const struct cdi_check *c, struct findings *findings, struct error *err) must_check;

/* Why a name does not resolve: "kind k exists, but not the name; available: all". */
void cdi_explain(const struct cdi_registry *r, const char *name, struct buf *out);
