/* SPDX-License-Identifier: Apache-2.0 */
#include "answer_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/pbreader.h"
#include "wire/pbwriter.h"

enum { TEXT_MAX = 32 * 1024 * 1024, UUID_SIZE = 36 };

static int line_cmp(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static void sort_from(struct buf *text, size_t from)
{
    struct str *lines = x_alloc((text->n - from + 1) * sizeof(*lines));
    auto_free char *copy = x_strndup(text->n ? text->p + from : "", text->n - from);
    struct str rest = str_of(copy);
    size_t n = 0;
    while (rest.n > 0)
        lines[n++] = str_cut(&rest, '\n');
    qsort(lines, n, sizeof(*lines), line_cmp);
    text->n = from;
    for (size_t i = 0; i < n; i++) {
        buf_str(text, lines[i]);
        buf_ch(text, '\n');
    }
    free(lines);
}

void sort_lines(struct buf *text)
{
    sort_from(text, 0);
}

static struct str field(struct str message, uint32_t tag)
{
    struct pbr r = pbr_of(message);
    struct str found = { "", 0 };
    for (struct pbr_field f; pbr_next(&r, &f);) {
        if (f.tag == tag && f.wire == PBR_BYTES)
            found = f.bytes;
    }
    return found;
}

static uint64_t number(struct str message, uint32_t tag)
{
    struct pbr r = pbr_of(message);
    uint64_t found = 0;
    for (struct pbr_field f; pbr_next(&r, &f);) {
        if (f.tag == tag && f.wire == PBR_VARINT)
            found = f.number;
    }
    return found;
}

static void put_annotation(struct str entry, struct buf *out)
{
    struct str key = field(entry, 1), value = field(entry, 2);
    if (key.n > UUID_SIZE)
        buf_fmt(out, "annotation %.*sRANDOM-UUID=%.*s\n", (int)(key.n - UUID_SIZE), key.p,
                STR_FMT(value));
}

static void container_text(struct str container, struct buf *out)
{
    struct pbr r = pbr_of(container);
    size_t from = out->n;
    for (struct pbr_field f; pbr_next(&r, &f);) {
        struct str a = field(f.bytes, 1), b = field(f.bytes, 2), c = field(f.bytes, 3);
        if (f.tag == 1)
            buf_fmt(out, "env %.*s=%.*s\n", STR_FMT(a), STR_FMT(b));
        else if (f.tag == 2)
            buf_fmt(out, "mount %.*s<%.*s%s\n", STR_FMT(a), STR_FMT(b),
                    number(f.bytes, 3) ? " ro" : "");
        else if (f.tag == 3)
            buf_fmt(out, "node %.*s<%.*s %.*s\n", STR_FMT(a), STR_FMT(b), STR_FMT(c));
        else if (f.tag == 4)
            put_annotation(f.bytes, out);
        else if (f.tag == 5)
            buf_fmt(out, "cdi %.*s\n", STR_FMT(a));
    }
    if (r.bad)
        buf_z(out, "broken\n");
    sort_from(out, from);
}

void answer_text(struct str answer, struct buf *out)
{
    struct pbr r = pbr_of(answer);
    size_t n = 0;
    for (struct pbr_field f; pbr_next(&r, &f);) {
        buf_fmt(out, "container %zu\n", n++);
        container_text(f.bytes, out);
    }
    if (r.bad)
        buf_z(out, "broken\n");
}

static void device_text(struct str device, struct buf *out)
{
    struct str id = field(device, 1), health = field(device, 2);
    buf_fmt(out, "%.*s %.*s", STR_FMT(id), STR_FMT(health));
    struct pbr r = pbr_of(device);
    for (struct pbr_field f; pbr_next(&r, &f);) {
        if (f.tag == 3)
            buf_fmt(out, " numa %llu", (unsigned long long)number(field(f.bytes, 1), 1));
    }
    buf_z(out, r.bad ? " broken\n" : "\n");
}

void list_text(struct str list, struct buf *out)
{
    struct pbr r = pbr_of(list);
    for (struct pbr_field f; pbr_next(&r, &f);)
        device_text(f.bytes, out);
    if (r.bad)
        buf_z(out, "broken\n");
    sort_lines(out);
}

void preferred_text(struct str answer, struct buf *out)
{
    struct str container = field(answer, 1);
    struct pbr r = pbr_of(container);
    for (struct pbr_field f; pbr_next(&r, &f);)
        buf_fmt(out, "%.*s\n", STR_FMT(f.bytes));
    if (r.bad)
        buf_z(out, "broken\n");
}

void register_text(struct str request, struct buf *out)
{
    struct str version = field(request, 1), endpoint = field(request, 2),
               resource = field(request, 3), options = field(request, 4);
    buf_fmt(out, "%.*s %.*s %.*s%s%s", STR_FMT(version), STR_FMT(endpoint), STR_FMT(resource),
            number(options, 1) ? " prestart" : "", number(options, 2) ? " preferred" : "");
}

void allocate_request(struct buf *out, const char *const *const *containers, size_t n_containers)
{
    for (size_t i = 0; i < n_containers; i++) {
        size_t m = pbw_begin(out, 1);
        for (const char *const *id = containers[i]; *id; id++)
            pbw_item(out, 1, str_of(*id));
        pbw_end(out, m);
    }
}

void preferred_request(struct buf *out, const char *const *available, size_t n_available,
                       const char *const *must, size_t n_must, int size)
{
    size_t m = pbw_begin(out, 1);
    for (size_t i = 0; i < n_available; i++)
        pbw_item(out, 1, str_of(available[i]));
    for (size_t i = 0; i < n_must; i++)
        pbw_item(out, 2, str_of(must[i]));
    pbw_int(out, 3, size);
    pbw_end(out, m);
}
