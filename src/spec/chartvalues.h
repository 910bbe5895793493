/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Values of the DRA driver's chart (spec/dra-driver.md 9.1) that contradict each other: the chart
 * accepts most of them and the cluster is then without GPUs. Keys that are not looked at are not
 * judged. */
#include "base/arena.h"
#include "base/finding.h"
#include "data/json.h"

/* `doc`: the values as the user wrote them, without the chart's defaults; these are filled in here.
 * ERR_INVALID if there is an error finding. */
int chartvalues_check(const struct value *doc, const char *file, struct arena *arena,
                      struct findings *findings, struct error *err) must_check;
