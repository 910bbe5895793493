/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Kubernetes names and values: what the API server would accept. */
#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

int kname_dns1123_label(struct str s, struct error *err) must_check; /* ≤ 63, [a-z0-9-] */
int kname_dns1123_subdomain(struct str s,
                            struct error *err) must_check; /* ≤ 253, labels joined by dots */
int kname_qualified(struct str s, struct error *err)
    must_check; /* [prefix/]name, name ≤ 63 of [A-Za-z0-9_.-], alphanumeric ends */
int kname_extended_resource(struct str s, struct error *err)
    must_check; /* domain/name, not *.kubernetes.io, no "requests." */
int kname_label_value(struct str s, struct error *err) must_check; /* ≤ 63, may be empty */
