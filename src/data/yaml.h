/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* YAML to values, as Kubernetes' tools read it: YAML 1.1 scalars (yes/no/on/off are booleans, 0o7
 * and 017, 1_000, ~), one document unless asked for more, duplicate keys refused, aliases limited,
 * tabs answered with line and column and the word "tab". */
#include "data/json.h"

int yaml_parse(struct arena *a, struct str text, const char *name, const struct doc_limits *limits,
               struct value **ret,
               struct error *err) must_check; /* an empty document gives VALUE_NULL */
int yaml_parse_all(struct arena *a, struct str text, const char *name,
                   const struct doc_limits *limits, struct value **ret_list, struct error *err)
    must_check; /* a VALUE_LIST of documents; also reads JSON, which is YAML */
