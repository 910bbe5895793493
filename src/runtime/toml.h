/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * TOML 1.0 as config files of container runtimes use it: everything but dates, times, inf and nan,
 * which are errors that say so. Strict: what the standard forbids is refused with
 * `name`:line:column. Source: toml.io v1.0.0.
 */
#include "base/error.h"
#include "data/json.h"

enum { TOML_BYTES_MAX = 1024 * 1024, TOML_DEPTH_MAX = 32, TOML_NODES_MAX = 10000 };

/* The document as a map in the arena; keys and tables in the order in which they were first named,
 * each with its place. */
int toml_parse(struct arena *a, struct str text, const char *name, struct value **ret,
               struct error *err) must_check;
/* Writes a key: bare where it may be, else in quotes. */
void toml_key(struct buf *out, struct str key);
/* Writes a text as a basic string. */
void toml_text(struct buf *out, struct str text);
/* Writes a map as TOML: scalars first, then its tables, each under its whole header `[prefix.key]`;
 * lists of maps as inline tables. Null members are left out. */
void toml_write(struct buf *out, const struct value *map);
