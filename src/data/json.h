/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/data: JSON (yyjson behind this face), YAML, durations, quantities, Kubernetes names.
 * Not here: what any document means.
 * may use: base
 *
 * Values keep the position where they were written (line and column, from 1; 0 when unknown), so
 * that a decoder can say where. YAML is composed to the same values (data/yaml.h).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

enum value_kind {
    VALUE_NULL,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_REAL,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_MAP
};

struct value {
    enum value_kind kind;
    uint32_t line, column;
    bool boolean;
    int64_t number;         /* VALUE_INT; what does not fit is VALUE_REAL, exact in `text` */
    double real;            /* VALUE_REAL */
    struct str text;        /* VALUE_TEXT, terminated by a NUL too; other scalars: as written */
    struct member *members; /* VALUE_MAP: in document order */
    struct value *items;    /* VALUE_LIST */
    size_t n;               /* members or items */
};
struct member {
    struct str key; /* terminated too */
    uint32_t line, column;
    struct value value;
};

struct doc_limits {
    size_t bytes, depth, nodes;
};
extern const struct doc_limits doc_limits_default; /* 1 MiB, 64, 100 000 */

/* Parses one JSON document into the arena. Duplicate keys, trailing text, NaN and comments are
 * errors with `name`:line:column. */
int json_parse(struct arena *a, struct str text, const char *name, const struct doc_limits *limits,
               struct value **ret, struct error *err) must_check;

const struct value *value_get(const struct value *map,
                              const char *key); /* NULL if absent or not a map; case-sensitive */
const char *value_text(const struct value *v,
                       const char *deflt);          /* deflt if v is NULL or no text */
const char *value_kind_name(const struct value *v); /* "a list", "text \"abc\"", "the number 3": for
                                                       messages; static or thread-local text */

/* The first member whose key an earlier one has too, or NULL. Large maps are sorted for it in the
 * arena; ERR_LIMIT when that is full. */
int value_duplicate_key(struct arena *a, const struct value *map, const struct member **ret,
                        struct error *err) must_check;

/* Writing: a stack-free writer that keeps commas and indentation right. indent 0: compact. More
 * than 63 levels make the buffer fail. */
struct json_writer {
    struct buf *out;
    int indent, depth;
    uint64_t has_items, in_map; /* one bit per level */
    bool after_key;
};
void jw_init(struct json_writer *w, struct buf *out, int indent);
void jw_map(struct json_writer *w);
void jw_list(struct json_writer *w);
void jw_end(struct json_writer *w);
void jw_key(struct json_writer *w, const char *key);
void jw_text(struct json_writer *w, struct str s); /* not valid UTF-8: replaced by U+FFFD */
void jw_z(struct json_writer *w, const char *z);   /* NULL writes null */
void jw_int(struct json_writer *w, int64_t v);
void jw_uint(struct json_writer *w, uint64_t v);
void jw_bool(struct json_writer *w, bool v);
void jw_null(struct json_writer *w);
void jw_value(struct json_writer *w, const struct value *v);
void jw_kv(struct json_writer *w, const char *key, const char *z); /* key and text */
void jw_kv_int(struct json_writer *w, const char *key, int64_t v);
void jw_kv_bool(struct json_writer *w, const char *key, bool v);
/* The same tree as YAML (block style), for -o yaml; yaml_parse gives it back. A command writes its
 * document once as JSON and parses it for this. */
void value_to_yaml(const struct value *v, struct buf *out);
