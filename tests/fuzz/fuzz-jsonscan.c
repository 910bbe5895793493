/* SPDX-License-Identifier: Apache-2.0 */
/* The hook's small JSON reader: what it finds in a document that is JSON is what the tree reader
 * finds there too. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/json.h"
#include "hook/jsonscan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const path[] = { "root", "path", NULL };
    struct str text = { (const char *)data, size };
    struct error err;
    char got[256];
    auto_arena a;
    struct value *v = NULL;
    arena_init(&a, 16 << 20);
    int r = jsonscan_text(text, path, got, sizeof got, &err);
    if (json_parse(&a, text, "in", NULL, &v, &err) < 0)
        return 0;
    const struct value *want = value_get(value_get(v, "root"), "path");
    bool is_text = want && want->kind == VALUE_TEXT && want->text.n < sizeof got &&
                   !memchr(want->text.p, '\0', want->text.n);
    if (is_text != (r == 0) || (is_text && strcmp(got, want->text.p) != 0))
        abort();
    return 0;
}
