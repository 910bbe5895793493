/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "runtime/toml.h"

void toml_text(struct buf *out, struct str text)
{
    static const char letters[] = "btnfr", values[] = "\b\t\n\f\r";
    buf_ch(out, '"');
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        const char *known = c ? strchr(values, c) : NULL;
        if (c == '"' || c == '\\')
            buf_fmt(out, "\\%c", c);
        else if (known)
            buf_fmt(out, "\\%c", letters[known - values]);
        else if (c < 0x20 || c == 0x7F)
            buf_fmt(out, "\\u%04x", c);
        else
            buf_ch(out, (char)c);
    }
    buf_ch(out, '"');
}

void toml_key(struct buf *out, struct str key)
{
    bool bare = key.n > 0;
    for (size_t i = 0; bare && i < key.n; i++) {
        char c = key.p[i];
        bare = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
    }
    if (bare)
        buf_str(out, key);
    else
        toml_text(out, key);
}

static void write_value(struct buf *out, const struct value *v);

static void write_inline(struct buf *out, const struct value *map)
{
    bool first = true;
    buf_ch(out, '{');
    for (size_t i = 0; i < map->n; i++) {
        if (map->members[i].value.kind == VALUE_NULL)
            continue;
        buf_z(out, first ? " " : ", ");
        first = false;
        toml_key(out, map->members[i].key);
        buf_z(out, " = ");
        write_value(out, &map->members[i].value);
    }
    buf_z(out, first ? "}" : " }");
}

static void write_value(struct buf *out, const struct value *v)
{
    switch (v->kind) {
    case VALUE_TEXT:
        toml_text(out, v->text);
        break;
    case VALUE_BOOL:
        buf_z(out, v->boolean ? "true" : "false");
        break;
    case VALUE_INT:
        buf_fmt(out, "%" PRId64, v->number);
        break;
    case VALUE_REAL:
        buf_str(out, v->text);
        break;
    case VALUE_LIST:
        buf_ch(out, '[');
        for (size_t i = 0; i < v->n; i++) {
            buf_z(out, i ? ", " : "");
            write_value(out, &v->items[i]);
        }
        buf_ch(out, ']');
        break;
    case VALUE_MAP:
        write_inline(out, v);
        break;
    case VALUE_NULL:
        break;
    }
}

/* The way down to a table; it lives on the stack of the calls. */
struct prefix {
    const struct prefix *up;
    struct str key;
};

static void write_prefix(struct buf *out, const struct prefix *p)
{
    if (p->up) {
        write_prefix(out, p->up);
        buf_ch(out, '.');
    }
    toml_key(out, p->key);
}

static void write_table(struct buf *out, const struct value *map, const struct prefix *way)
{
    bool any = false, tables = false;
    for (size_t i = 0; i < map->n; i++) {
        any |= map->members[i].value.kind != VALUE_MAP;
        tables |= map->members[i].value.kind == VALUE_MAP;
    }
    if (way && (any || !tables)) {
        buf_z(out, out->n ? "\n[" : "[");
        write_prefix(out, way);
        buf_z(out, "]\n");
    }
    for (size_t i = 0; i < map->n; i++) {
        const struct value *v = &map->members[i].value;
        if (v->kind == VALUE_MAP || v->kind == VALUE_NULL)
            continue;
        toml_key(out, map->members[i].key);
        buf_z(out, " = ");
        write_value(out, v);
        buf_ch(out, '\n');
    }
    for (size_t i = 0; i < map->n; i++) {
        const struct prefix down = { way, map->members[i].key };
        if (map->members[i].value.kind == VALUE_MAP)
            write_table(out, &map->members[i].value, &down);
    }
}

void toml_write(struct buf *out, const struct value *map)
{
    write_table(out, map, NULL);
}
