/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/json.h"

const struct doc_limits doc_limits_default = { .bytes = 1024 * 1024, .depth = 64, .nodes = 100000 };

const struct value *value_get(const struct value *map, const char *key)
{
    if (!map || map->kind != VALUE_MAP)
        return NULL;
    for (size_t i = 0; i < map->n; i++)
        if (str_is(map->members[i].key, key))
            return &map->members[i].value;
    return NULL;
}

const char *value_text(const struct value *v, const char *deflt)
{
    return v && v->kind == VALUE_TEXT ? v->text.p : deflt;
}

/* At most 48 bytes, whole characters, nothing that moves a terminal's cursor. */
static void printable(struct str s, char *ret, size_t size)
{
    size_t n = 0;
    bool cut = s.n > 48;
    s.n = MIN(s.n, (size_t)48);
    while (s.n) {
        size_t len = str_utf8(s);
        unsigned char c = (unsigned char)s.p[0];
        if (!len && cut && s.n < 4)
            break;
        if (!len || c < 0x20 || c == 0x7F) {
            ret[n++] = '?';
            len = 1;
        } else {
            memcpy(ret + n, s.p, len);
            n += len;
        }
        s.p += len;
        s.n -= len;
    }
    snprintf(ret + n, size - n, "%s", cut ? "…" : "");
}

const char *value_kind_name(const struct value *v)
{
    static __thread char texts[4][96]; /* several in one message */
    static __thread unsigned turn;
    char *ret = texts[turn++ % ARRAY_LEN(texts)];
    char inner[64];
    printable(v->text, inner, sizeof inner);
    switch (v->kind) {
    case VALUE_NULL:
        return "nothing (null)";
    case VALUE_BOOL:
        return v->boolean ? "the boolean true" : "the boolean false";
    case VALUE_LIST:
        return "a list";
    case VALUE_MAP:
        return "a map";
    case VALUE_TEXT:
        snprintf(ret, sizeof texts[0], "text \"%s\"", inner);
        return ret;
    case VALUE_INT:
    case VALUE_REAL:
        snprintf(ret, sizeof texts[0], "the number %s", inner);
        return ret;
    }
    return "nothing";
}

static int by_key(const void *a, const void *b)
{
    const struct member *const *x = a, *const *y = b;
    int c = str_cmp((*x)->key, (*y)->key);
    return c ? c : (*x > *y) - (*x < *y); /* document order among equals */
}

int value_duplicate_key(struct arena *a, const struct value *map, const struct member **ret,
                        struct error *err)
{
    enum { SMALL = 12 };
    *ret = NULL;
    const struct member *few[SMALL], **sorted = few;
    if (map->n < 2)
        return 0;
    if (map->n > SMALL)
        sorted = arena_array(a, map->n, sizeof *sorted);
    if (!sorted)
        return error_set(err, ERR_LIMIT, 0, "the document does not fit in %zu bytes of memory",
                         a->limit);
    for (size_t i = 0; i < map->n; i++)
        sorted[i] = &map->members[i];
    qsort(sorted, map->n, sizeof *sorted, by_key);
    for (size_t i = 1; i < map->n; i++) {
        bool same = str_eq(sorted[i - 1]->key, sorted[i]->key);
        if (same && (!*ret || sorted[i] < *ret))
            *ret = sorted[i];
    }
    return 0;
}
