/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "data/json.h"
#include "data/yaml_scalar.h"

/* Text that would be read back as something else needs quotes. A few harmless ones get them too. */
static bool needs_quotes(struct str s)
{
    struct value v = { 0 };
    yaml_scalar_resolve(s, &v);
    if (v.kind != VALUE_TEXT || str_is(s, "<<") || str_is(s, "="))
        return true;
    if (strchr("-?:,[]{}#&*!|>'\"%@` \t", s.p[0]) || strchr(" \t:", s.p[s.n - 1]))
        return true;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool starts = c == '#' && (s.p[i - 1] == ' ' || s.p[i - 1] == '\t'); /* i > 0: see above */
        bool ends = c == ':' && (s.p[i + 1] == ' ' || s.p[i + 1] == '\t');   /* not the last one */
        if (c < 0x20 || c >= 0x7F || starts || ends || strchr(",[]{}", c))
            return true;
    }
    return str_is(s, "---") || str_is(s, "...");
}

static void put_text(struct buf *out, struct str s)
{
    if (!needs_quotes(s)) {
        buf_str(out, s);
        return;
    }
    struct json_writer w; /* a JSON string is a double-quoted YAML scalar */
    jw_init(&w, out, 0);
    jw_text(&w, s);
}

static void put_scalar(struct buf *out, const struct value *v)
{
    struct json_writer w;
    if (v->kind == VALUE_TEXT) {
        put_text(out, v->text);
        return;
    }
    jw_init(&w, out, 0);
    jw_value(&w, v);
}

static void put(struct buf *out, const struct value *v, size_t indent, bool after_dash);

static void put_child(struct buf *out, const struct value *v, size_t indent, bool in_list)
{
    bool nested = (v->kind == VALUE_MAP || v->kind == VALUE_LIST) && v->n;
    if (!nested) {
        buf_ch(out, ' ');
        if (v->kind == VALUE_MAP || v->kind == VALUE_LIST)
            buf_z(out, v->kind == VALUE_MAP ? "{}" : "[]");
        else
            put_scalar(out, v);
        buf_ch(out, '\n');
    } else if (in_list) {
        buf_ch(out, ' ');
        put(out, v, indent + 2, true);
    } else {
        buf_ch(out, '\n');
        put(out, v, v->kind == VALUE_LIST ? indent : indent + 2, false);
    }
}

/* A map or list with elements. after_dash: the first line is already indented by "- ". */
static void put(struct buf *out, const struct value *v, size_t indent, bool after_dash)
{
    for (size_t i = 0; i < v->n && !out->failed; i++) {
        if (i || !after_dash)
            buf_fmt(out, "%*s", (int)indent, "");
        if (v->kind == VALUE_LIST) {
            buf_ch(out, '-');
            put_child(out, &v->items[i], indent, true);
        } else {
            put_text(out, v->members[i].key);
            buf_ch(out, ':');
            put_child(out, &v->members[i].value, indent, false);
        }
    }
}

void value_to_yaml(const struct value *v, struct buf *out)
{
    bool nested = (v->kind == VALUE_MAP || v->kind == VALUE_LIST) && v->n;
    if (nested) {
        put(out, v, 0, false);
        return;
    }
    if (v->kind == VALUE_MAP || v->kind == VALUE_LIST)
        buf_z(out, v->kind == VALUE_MAP ? "{}" : "[]");
    else
        put_scalar(out, v);
    buf_ch(out, '\n');
}
