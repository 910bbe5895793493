/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A survey as one flat block: "MSV" and a format digit, then the fields of the tables below in
 * order, numbers little-endian, texts with a 16-bit length; after the survey's own fields its gpus,
 * each followed by its parts, then the links. The reader is the agent, the writer a process that
 * runs the driver's code: nothing in the block is trusted.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/bytes.h"
#include "gpu/survey.h"

static const char magic[4] = { 'M', 'S', 'V', '1' };

enum kind {
    FIELD_U32,
    FIELD_U64,
    FIELD_STATE, /* enum driver_state */
    FIELD_INT,   /* int, int32_t */
    FIELD_WORD,  /* text of visible ASCII: ids, versions, paths of the kernel */
    FIELD_TEXT,  /* text without control characters */
    FIELD_BYTES,
};

struct field {
    const char *name;
    enum kind kind;
    uint16_t at, size;
};

#define AT(type, member, kind_)                                                                    \
    {                                                                                              \
        .name = #type "." #member, .kind = (kind_), .at = offsetof(struct type, member),           \
        .size = sizeof(((struct type *)NULL)->member)                                              \
    }

static const struct field survey_fields[] = {
    AT(survey, serial, FIELD_U64),          AT(survey, taken_ns, FIELD_U64),
    AT(survey, driver, FIELD_STATE),        AT(survey, driver_text, FIELD_TEXT),
    AT(survey, driver_version, FIELD_TEXT), AT(survey, nvml_version, FIELD_TEXT),
    AT(survey, cuda_version, FIELD_INT),    AT(survey, library, FIELD_TEXT),
    AT(survey, platform, FIELD_WORD),
};

static const struct field gpu_fields[] = {
    AT(gpu, uuid, FIELD_WORD),
    AT(gpu, index, FIELD_U32),
    AT(gpu, valid, FIELD_U32),
    AT(gpu, lost, FIELD_INT),
    AT(gpu, lost_text, FIELD_TEXT),
    AT(gpu, name, FIELD_TEXT),
    AT(gpu, serial, FIELD_TEXT),
    AT(gpu, minor, FIELD_U32),
    AT(gpu, module, FIELD_U32),
    AT(gpu, pci, FIELD_WORD),
    AT(gpu, pci_device, FIELD_U32),
    AT(gpu, pci_class, FIELD_U32),
    AT(gpu, memory_bytes, FIELD_U64),
    AT(gpu, memory_source, FIELD_WORD),
    AT(gpu, cc_major, FIELD_U32),
    AT(gpu, cc_minor, FIELD_U32),
    AT(gpu, arch, FIELD_U32),
    AT(gpu, brand, FIELD_U32),
    AT(gpu, compute_mode, FIELD_U32),
    AT(gpu, numa, FIELD_INT),
    AT(gpu, mig_current, FIELD_U32),
    AT(gpu, mig_pending, FIELD_U32),
    AT(gpu, recovery_action, FIELD_U32),
    AT(gpu, fabric_state, FIELD_U32),
    AT(gpu, fabric_status, FIELD_U32),
    AT(gpu, fabric_clique, FIELD_U32),
    AT(gpu, fabric_health, FIELD_U32),
    AT(gpu, fabric_cluster, FIELD_BYTES),
    AT(gpu, remap_corrected, FIELD_U32),
    AT(gpu, remap_uncorrected, FIELD_U32),
    AT(gpu, remap_pending, FIELD_U32),
    AT(gpu, remap_failed, FIELD_U32),
    AT(gpu, ecc_uncorrected, FIELD_U64),
    AT(gpu, addressing, FIELD_U32),
    AT(gpu, energy_mj, FIELD_U64),
    AT(gpu, generation, FIELD_U64),
    AT(gpu, mig_text, FIELD_TEXT),
};

static const struct field part_fields[] = {
    AT(part, uuid, FIELD_WORD),
    AT(part, valid, FIELD_U32),
    AT(part, slot, FIELD_U32),
    AT(part, gi, FIELD_U32),
    AT(part, ci, FIELD_U32),
    AT(part, profile, FIELD_WORD),
    AT(part, gi_slices, FIELD_U32),
    AT(part, ci_slices, FIELD_U32),
    AT(part, memory_mb, FIELD_U64),
    AT(part, multiprocessors, FIELD_U32),
    AT(part, copy_engines, FIELD_U32),
    AT(part, decoders, FIELD_U32),
    AT(part, encoders, FIELD_U32),
    AT(part, jpegs, FIELD_U32),
    AT(part, ofas, FIELD_U32),
    AT(part, placement_start, FIELD_U32),
    AT(part, placement_size, FIELD_U32),
    AT(part, gi_cap, FIELD_U32),
    AT(part, ci_cap, FIELD_U32),
};

/* ---- writing ---- */

static uint64_t load_number(const void *p, size_t bytes)
{
    uint32_t u32;
    uint64_t u64;
    if (bytes == sizeof u32) {
        memcpy(&u32, p, sizeof u32);
        return u32;
    }
    memcpy(&u64, p, sizeof u64);
    return u64;
}

static void put_field(struct buf *out, const struct field *f, const void *object)
{
    const char *p = (const char *)object + f->at;
    if (f->kind == FIELD_BYTES) {
        buf_add(out, p, f->size);
    } else if (f->kind == FIELD_WORD || f->kind == FIELD_TEXT) {
        bytes_put_text(out, p, f->size - 1U);
    } else {
        bytes_put(out, load_number(p, f->size), f->size);
    }
}

static void put_fields(struct buf *out, const struct field *f, size_t n, const void *object)
{
    for (size_t i = 0; i < n; i++)
        put_field(out, &f[i], object);
}

static void put_links(struct buf *out, const struct survey *s)
{
    bytes_put(out, s->links ? 1 : 0, 1);
    for (size_t i = 0; s->links && i < s->n_gpus * s->n_gpus; i++) {
        bytes_put(out, s->links[i].ancestor, 1);
        bytes_put(out, s->links[i].nvlinks, 1);
        bytes_put(out, s->links[i].through_switch ? 1 : 0, 1);
    }
}

int survey_encode(const struct survey *s, struct buf *out, struct error *err)
{
    if (s->n_gpus > SURVEY_GPUS_MAX)
        return error_set(err, ERR_LIMIT, 0, "survey of %zu gpus: at most %d", s->n_gpus,
                         SURVEY_GPUS_MAX);
    buf_add(out, magic, sizeof magic);
    put_fields(out, survey_fields, ARRAY_LEN(survey_fields), s);
    bytes_put(out, s->n_gpus, 4);
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        if (g->n_parts > SURVEY_PARTS_MAX)
            return error_set(err, ERR_LIMIT, 0, "gpu %u with %zu parts: at most %d", g->index,
                             g->n_parts, SURVEY_PARTS_MAX);
        put_fields(out, gpu_fields, ARRAY_LEN(gpu_fields), g);
        bytes_put(out, g->n_parts, 4);
        for (size_t k = 0; k < g->n_parts; k++)
            put_fields(out, part_fields, ARRAY_LEN(part_fields), &g->parts[k]);
    }
    put_links(out, s);
    return buf_check(out, "an encoded survey", err);
}

/* ---- reading ---- */

struct reader {
    struct str rest;
    size_t total;
    struct error *err;
};

static int bad(struct reader *r, const char *what)
{
    return error_set(r->err, ERR_INVALID, 0, "encoded survey, byte %zu: %s", r->total - r->rest.n,
                     what);
}

static int take_text(struct reader *r, const struct field *f, char *to)
{
    struct str at = r->rest;
    if (bytes_take_text(&r->rest, to, f->size, f->kind == FIELD_WORD))
        return 0;
    r->rest = at;
    return error_set(r->err, ERR_INVALID, 0,
                     "encoded survey, byte %zu: %s is cut off, longer than %d bytes or holds a "
                     "forbidden character",
                     r->total - at.n, f->name, f->size - 1);
}

static int take_field(struct reader *r, const struct field *f, void *object)
{
    char *to = (char *)object + f->at;
    if (f->kind == FIELD_WORD || f->kind == FIELD_TEXT)
        return take_text(r, f, to);
    if (f->kind == FIELD_BYTES) {
        const unsigned char *p = bytes_take(&r->rest, f->size);
        if (!p)
            return bad(r, "cut off in a block of bytes");
        memcpy(to, p, f->size);
        return 0;
    }
    uint64_t v;
    if (!bytes_take_number(&r->rest, f->size, &v))
        return bad(r, "cut off in a number");
    if (f->kind == FIELD_STATE && v > DRIVER_ERROR)
        return bad(r, "a driver state that is in no table");
    uint32_t u32 = (uint32_t)v;
    if (f->size == sizeof u32)
        memcpy(to, &u32, sizeof u32);
    else
        memcpy(to, &v, sizeof v);
    return 0;
}

static int take_fields(struct reader *r, const struct field *f, size_t n, void *object)
{
    for (size_t i = 0; i < n; i++) {
        int code = take_field(r, &f[i], object);
        if (code < 0)
            return code;
    }
    return 0;
}

/* A list's length, and room for it. An empty list stays NULL. */
static int take_list(struct reader *r, size_t max, size_t size, void **ret, size_t *ret_n)
{
    uint64_t n;
    if (!bytes_take_number(&r->rest, 4, &n))
        return bad(r, "cut off in a count");
    if (n > max)
        return bad(r, "a count past the limit");
    if (n > r->rest.n)
        return bad(r, "a count that the rest cannot hold");
    if (n == 0)
        return 0;
    *ret = try_alloc((size_t)n * size);
    if (!*ret)
        return error_set(r->err, ERR_LIMIT, 0, "encoded survey: no memory for %u entries",
                         (unsigned)n);
    *ret_n = (size_t)n;
    return 0;
}

static int take_gpu(struct reader *r, struct gpu *g)
{
    int code = take_fields(r, gpu_fields, ARRAY_LEN(gpu_fields), g);
    if (code < 0)
        return code;
    void *parts = NULL;
    code = take_list(r, SURVEY_PARTS_MAX, sizeof *g->parts, &parts, &g->n_parts);
    g->parts = parts;
    for (size_t k = 0; code == 0 && k < g->n_parts; k++)
        code = take_fields(r, part_fields, ARRAY_LEN(part_fields), &g->parts[k]);
    return code;
}

static int take_links(struct reader *r, struct survey *s)
{
    uint64_t has;
    if (!bytes_take_number(&r->rest, 1, &has) || has > 1)
        return bad(r, "no sign whether links follow");
    if (!has)
        return 0;
    size_t n = s->n_gpus * s->n_gpus;
    if (s->n_gpus < 2 || r->rest.n != 3 * n)
        return bad(r, "links that do not fit the number of gpus");
    s->links = try_alloc(n * sizeof *s->links);
    if (!s->links)
        return error_set(r->err, ERR_LIMIT, 0, "encoded survey: no memory for %zu links", n);
    for (size_t i = 0; i < n; i++) {
        const unsigned char *p = bytes_take(&r->rest, 3);
        if (!p || p[2] > 1)
            return bad(r, "a link that is neither through a switch nor not");
        s->links[i] = (struct gpu_link){ p[0], p[1], p[2] == 1 };
    }
    return 0;
}

static bool same_link(const struct gpu_link *a, const struct gpu_link *b)
{
    return a->ancestor == b->ancestor && a->nvlinks == b->nvlinks &&
           a->through_switch == b->through_switch;
}

/* What callers rely on beyond the single fields. */
static int check_whole(struct reader *r, const struct survey *s)
{
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        if (i > 0 && g->index <= s->gpus[i - 1].index)
            return bad(r, "gpus that are not in index order");
        if (!g->uuid[0] && !g->lost)
            return bad(r, "a gpu without uuid that is not lost");
        if (survey_gpu(s, g->uuid) != (g->uuid[0] ? g : NULL))
            return bad(r, "two gpus with one uuid");
        for (size_t k = 0; k < g->n_parts; k++)
            if (!g->parts[k].uuid[0] || survey_part(s, g->parts[k].uuid, NULL) != &g->parts[k])
                return bad(r, "a part without uuid, or two parts with one");
        for (size_t k = 0; s->links && k < i; k++)
            if (!same_link(survey_link(s, i, k), survey_link(s, k, i)))
                return bad(r, "links that differ by direction");
    }
    return 0;
}

static int decode(struct reader *r, struct survey *s)
{
    const unsigned char *p = bytes_take(&r->rest, sizeof magic);
    if (!p || memcmp(p, magic, sizeof magic) != 0)
        return bad(r, "not a survey of this version");
    int code = take_fields(r, survey_fields, ARRAY_LEN(survey_fields), s);
    if (code < 0)
        return code;
    void *gpus = NULL;
    code = take_list(r, SURVEY_GPUS_MAX, sizeof *s->gpus, &gpus, &s->n_gpus);
    s->gpus = gpus;
    for (size_t i = 0; code == 0 && i < s->n_gpus; i++)
        code = take_gpu(r, &s->gpus[i]);
    if (code == 0)
        code = take_links(r, s);
    if (code == 0 && r->rest.n > 0)
        code = bad(r, "more bytes than a survey has");
    return code < 0 ? code : check_whole(r, s);
}

int survey_decode(struct str bytes, struct survey **ret, struct error *err)
{
    if (bytes.n > SURVEY_BYTES_MAX)
        return error_set(err, ERR_LIMIT, 0, "encoded survey of %zu bytes: at most %d", bytes.n,
                         SURVEY_BYTES_MAX);
    struct reader r = { .rest = bytes, .total = bytes.n, .err = err };
    struct survey *s = try_alloc(sizeof *s);
    if (!s)
        return error_set(err, ERR_LIMIT, 0, "encoded survey: no memory");
    s->refs = 1;
    int code = decode(&r, s);
    if (code < 0) {
        survey_unref(s);
        return code;
    }
    *ret = s;
    return 0;
}
