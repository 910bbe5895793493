/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Kubernetes' resource.Quantity: "250m", "1.5Gi", "1e3". */
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

/* units + milli / 1000; both have the sign of the value, |milli| < 1000. */
struct quantity {
    int64_t units;
    int32_t milli;
    bool rounded; /* more precise than a thousandth: rounded away from zero, as Kubernetes does */
};

/* [+-]number[suffix]: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e/E and a whole exponent. ERR_LIMIT
 * when it does not fit. */
int quantity_parse(struct str s, struct quantity *ret, struct error *err) must_check;
/* False when the value in thousandths does not fit in 64 bits. */
bool quantity_milli(const struct quantity *q, int64_t *ret);
/* The value rounded up to a whole number; saturates. */
int64_t quantity_value(const struct quantity *q);
int quantity_cmp(const struct quantity *a, const struct quantity *b);
