/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Inside src/data only: what a plain YAML scalar means, as Kubernetes' YAML library (YAML 1.1
 * words, Go's integer spellings) reads it. */
#include "data/json.h"

/* Fills kind, boolean, number and real of *v from the text; VALUE_TEXT when it is nothing else. */
void yaml_scalar_resolve(struct str text, struct value *v);
