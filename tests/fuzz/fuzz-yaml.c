/* SPDX-License-Identifier: Apache-2.0 */
/* What yaml_parse accepts value_to_yaml writes, and that text reads back as the same values. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* Values that the writer does not give back: a key with a NUL, an infinity. */
static bool plain(const struct value *v)
{
    if (v->kind == VALUE_REAL)
        return isfinite(v->real);
    for (size_t i = 0; v->kind == VALUE_LIST && i < v->n; i++)
        if (!plain(&v->items[i]))
            return false;
    for (size_t i = 0; v->kind == VALUE_MAP && i < v->n; i++)
        if (memchr(v->members[i].key.p, '\0', v->members[i].key.n) || !plain(&v->members[i].value))
            return false;
    return true;
}

static void as_json(const struct value *v, struct buf *out)
{
    struct json_writer w;
    jw_init(&w, out, 0);
    jw_value(&w, v);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct doc_limits limits = { .bytes = 64 * 1024, .depth = 32, .nodes = 10000 };
    static const struct doc_limits wide = { .bytes = 4 * 1024 * 1024, .depth = 32, .nodes = 20000 };
    auto_arena a;
    auto_buf yaml, first, second;
    struct value *v, *again;
    struct error err;
    arena_init(&a, 32 * 1024 * 1024);
    buf_init(&yaml, 4 * 1024 * 1024);
    buf_init(&first, 4 * 1024 * 1024);
    buf_init(&second, 4 * 1024 * 1024);
    if (yaml_parse(&a, (struct str){ (const char *)p, n }, "x", &limits, &v, &err) < 0 || !plain(v))
        return 0;
    value_to_yaml(v, &yaml);
    as_json(v, &first);
    if (yaml.failed || first.failed)
        return 0;
    if (yaml_parse(&a, buf_view(&yaml), "y", &wide, &again, &err) < 0) {
        if (err.code == ERR_LIMIT)
            return 0;
        abort();
    }
    as_json(again, &second);
    if (!str_eq(buf_view(&first), buf_view(&second)))
        abort();
    return 0;
}
