/* SPDX-License-Identifier: Apache-2.0 */
/* TOML: what is read and written again reads to the same document. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "runtime/toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void to_toml(const struct value *v, struct buf *out)
{
    buf_init(out, 16 << 20);
    toml_write(out, v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena a;
    struct value *v = NULL, *again = NULL;
    struct error err;
    arena_init(&a, 64 << 20);
    if (toml_parse(&a, (struct str){ (const char *)data, size }, "in", &v, &err) < 0)
        return 0;
    auto_buf one, two;
    to_toml(v, &one);
    if (toml_parse(&a, (struct str){ one.p, one.n }, "again", &again, &err) < 0) {
        if (err.code == ERR_LIMIT) /* headers take room that dotted keys did not */
            return 0;
        abort();
    }
    to_toml(again, &two);
    if (one.n != two.n || (one.n && memcmp(one.p, two.p, one.n) != 0))
        abort();
    return 0;
}
