/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/survey.h"

/* n gpus with n_parts parts each; every text as long as it can be when `full`. */
static struct survey *sample(size_t n, size_t n_parts, bool full)
{
    struct survey *s = survey_new();
    s->serial = 7;
    s->taken_ns = -5;
    s->cuda_version = 13000;
    snprintf(s->driver_version, sizeof s->driver_version, "580.1");
    snprintf(s->platform, sizeof s->platform, "nvml");
    if (full) {
        memset(s->driver_text, 'x', sizeof s->driver_text - 1);
        memset(s->library, 'x', sizeof s->library - 1);
    }
    s->n_gpus = n;
    s->gpus = x_alloc(MAX(n, 1U) * sizeof *s->gpus);
    for (size_t i = 0; i < n; i++) {
        struct gpu *g = &s->gpus[i];
        snprintf(g->uuid, sizeof g->uuid, "GPU-%zu", i);
        g->index = (uint32_t)(2 * i);
        g->valid = GPU_HAS_MEMORY | GPU_HAS_NUMA;
        g->memory_bytes = 0x1122334455667788u;
        g->numa = -3;
        g->fabric_cluster[15] = 0xFF;
        snprintf(g->name, sizeof g->name, "NVIDIA H100 80GB HBM3 \xC3\xA4");
        if (full) {
            memset(g->lost_text, 'y', sizeof g->lost_text - 1);
            memset(g->mig_text, 'y', sizeof g->mig_text - 1);
            memset(g->name, 'y', sizeof g->name - 1);
            memset(g->serial, 'y', sizeof g->serial - 1);
        }
        g->n_parts = n_parts;
        g->parts = x_alloc(MAX(n_parts, 1U) * sizeof *g->parts);
        for (size_t k = 0; k < n_parts; k++) {
            struct part *p = &g->parts[k];
            int used = snprintf(p->uuid, sizeof p->uuid, "MIG-%zu-%zu", i, k);
            if (full)
                memset(p->uuid + used, 'z', sizeof p->uuid - 1 - (size_t)used);
            snprintf(p->profile, sizeof p->profile, "1g.10gb");
            p->gi = (uint32_t)k;
            p->memory_mb = 9984;
        }
    }
    if (n > 1) {
        s->links = x_alloc(n * n * sizeof *s->links);
        for (size_t i = 0; i < n * n; i++)
            if (i / n != i % n)
                s->links[i] = (struct gpu_link){ 40, 18, true };
    }
    return s;
}

static void encode(const struct survey *s, struct buf *out)
{
    struct error err;
    buf_init(out, SURVEY_BYTES_MAX);
    assert_int_equal(survey_encode(s, out, &err), 0);
}

static void round_trip(void **state)
{
    struct survey *s = sample(3, 2, false), *back;
    struct buf bytes, again;
    struct error err;
    encode(s, &bytes);
    assert_int_equal(survey_decode(buf_view(&bytes), &back, &err), 0);
    assert_int_equal(back->serial, 7);
    assert_int_equal(back->taken_ns, -5);
    assert_int_equal(back->n_gpus, 3);
    assert_int_equal(back->gpus[1].index, 2);
    assert_int_equal(back->gpus[1].numa, -3);
    assert_true(back->gpus[1].memory_bytes == 0x1122334455667788u);
    assert_int_equal(back->gpus[2].fabric_cluster[15], 0xFF);
    assert_string_equal(back->gpus[0].name, s->gpus[0].name);
    assert_string_equal(back->gpus[2].parts[1].uuid, "MIG-2-1");
    assert_int_equal(survey_link(back, 0, 2)->nvlinks, 18);
    assert_true(survey_link(back, 0, 2)->through_switch);
    encode(back, &again);
    assert_true(str_eq(buf_view(&bytes), buf_view(&again)));
    buf_done(&bytes);
    buf_done(&again);
    survey_unref(s);
    survey_unref(back);
}

static void largest_fits(void **state)
{
    struct survey *s = sample(SURVEY_GPUS_MAX, SURVEY_PARTS_MAX, true), *back;
    struct buf bytes;
    struct error err;
    encode(s, &bytes);
    assert_true(bytes.n < SURVEY_BYTES_MAX);
    assert_int_equal(survey_decode(buf_view(&bytes), &back, &err), 0);
    assert_int_equal(back->n_gpus, SURVEY_GPUS_MAX);
    buf_done(&bytes);
    survey_unref(s);
    survey_unref(back);
}

static void too_many(void **state)
{
    struct survey *s = sample(2, 1, false);
    struct buf bytes;
    struct error err;
    buf_init(&bytes, SURVEY_BYTES_MAX);
    s->n_gpus = SURVEY_GPUS_MAX + 1;
    assert_int_equal(survey_encode(s, &bytes, &err), -ERR_LIMIT);
    s->n_gpus = 2;
    s->gpus[1].n_parts = SURVEY_PARTS_MAX + 1;
    assert_int_equal(survey_encode(s, &bytes, &err), -ERR_LIMIT);
    s->gpus[1].n_parts = 1;
    buf_done(&bytes);
    buf_init(&bytes, 100);
    assert_int_equal(survey_encode(s, &bytes, &err), -ERR_LIMIT);
    buf_done(&bytes);
    survey_unref(s);
}

/* Every cut and every changed byte: refused, or a survey that keeps the promises of the face. */
static void damage(void **state)
{
    struct survey *s = sample(2, 2, false), *back;
    struct buf bytes;
    size_t refused = 0;
    encode(s, &bytes);
    for (size_t n = 0; n < bytes.n; n++)
        assert_true(survey_decode((struct str){ bytes.p, n }, &back, NULL) < 0);
    for (size_t i = 0; i < bytes.n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes.p[i] = (char)(bytes.p[i] ^ 1 << bit);
            if (survey_decode(buf_view(&bytes), &back, NULL) < 0) {
                refused++;
            } else {
                assert_true(back->n_gpus <= SURVEY_GPUS_MAX);
                assert_true(back->gpus[0].index < back->gpus[1].index);
                assert_string_not_equal(back->gpus[0].uuid, back->gpus[1].uuid);
                survey_unref(back);
            }
            bytes.p[i] = (char)(bytes.p[i] ^ 1 << bit);
        }
    }
    assert_true(refused > 100);
    buf_add(&bytes, "", 1);
    assert_true(survey_decode(buf_view(&bytes), &back, NULL) < 0);
    buf_done(&bytes);
    survey_unref(s);
}

static void broken(const char *what, void (*harm)(struct survey *s))
{
    struct survey *s = sample(3, 2, false), *back;
    struct buf bytes;
    struct error err;
    harm(s);
    encode(s, &bytes);
    if (survey_decode(buf_view(&bytes), &back, &err) != -ERR_INVALID)
        fail_msg("%s was accepted", what);
    buf_done(&bytes);
    survey_unref(s);
}

static void harm_same_uuid(struct survey *s)
{
    snprintf(s->gpus[2].uuid, sizeof s->gpus[2].uuid, "GPU-0");
}
static void harm_no_uuid(struct survey *s)
{
    s->gpus[1].uuid[0] = '\0';
}
static void harm_order(struct survey *s)
{
    s->gpus[1].index = 0;
}
static void harm_same_part(struct survey *s)
{
    snprintf(s->gpus[2].parts[0].uuid, sizeof s->gpus[2].parts[0].uuid, "MIG-0-1");
}
static void harm_no_part_uuid(struct survey *s)
{
    s->gpus[2].parts[0].uuid[0] = '\0';
}
static void harm_links(struct survey *s)
{
    s->links[1].nvlinks = 3;
}
static void harm_state(struct survey *s)
{
    s->driver = (enum driver_state)(DRIVER_ERROR + 1);
}
static void harm_word(struct survey *s)
{
    s->gpus[0].uuid[1] = ' ';
}
static void harm_text(struct survey *s)
{
    s->gpus[0].name[1] = '\n';
}

static void rules(void **state)
{
    broken("one uuid twice", harm_same_uuid);
    broken("a gpu without uuid", harm_no_uuid);
    broken("gpus out of order", harm_order);
    broken("one part twice", harm_same_part);
    broken("a part without uuid", harm_no_part_uuid);
    broken("links by direction", harm_links);
    broken("an unknown driver state", harm_state);
    broken("a space in an id", harm_word);
    broken("a line end in a name", harm_text);
}

static void lost_without_uuid(void **state)
{
    struct survey *s = sample(2, 0, false), *back;
    struct buf bytes;
    struct error err;
    s->gpus[0].uuid[0] = s->gpus[1].uuid[0] = '\0';
    s->gpus[0].lost = s->gpus[1].lost = 15;
    encode(s, &bytes);
    assert_int_equal(survey_decode(buf_view(&bytes), &back, &err), 0);
    assert_null(survey_gpu(back, ""));
    buf_done(&bytes);
    survey_unref(s);
    survey_unref(back);
}

static void every_allocation(void **state)
{
    struct survey *s = sample(3, 2, true), *back;
    struct buf bytes;
    struct error err;
    int r = -1;
    encode(s, &bytes);
    for (uint64_t k = 1; r < 0; k++) {
        mem_fail_at(k);
        r = survey_decode(buf_view(&bytes), &back, &err);
        if (r < 0)
            assert_int_equal(r, -ERR_LIMIT);
        assert_true(k < 100);
    }
    assert_true(mem_fail_at(0) > 4);
    buf_done(&bytes);
    survey_unref(s);
    survey_unref(back);
}

static void references(void **state)
{
    struct survey *s = sample(2, 1, false);
    assert_ptr_equal(survey_ref(s), s);
    survey_unref(s);
    assert_int_equal(s->refs, 1);
    const struct gpu *g;
    assert_ptr_equal(survey_part(s, "MIG-1-0", &g), &s->gpus[1].parts[0]);
    assert_ptr_equal(g, &s->gpus[1]);
    assert_null(survey_part(s, "MIG-9-0", NULL));
    assert_ptr_equal(survey_gpu(s, "GPU-1"), &s->gpus[1]);
    assert_null(survey_gpu(s, "GPU-9"));
    assert_null(survey_link(s, 1, 1));
    assert_null(survey_link(s, 0, 2));
    survey_unref(s);
    survey_unref(NULL);
    struct survey fixed = { 0 }; /* of a test or a table: nobody frees it */
    assert_ptr_equal(survey_ref(&fixed), &fixed);
    survey_unref(&fixed);
    survey_unref(&fixed);
}

static void names(void **state)
{
    assert_string_equal(driver_state_name(DRIVER_OK), "ok");
    assert_string_equal(driver_state_name(DRIVER_ERROR), "error");
    assert_string_equal(driver_state_name((enum driver_state)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(largest_fits),
        cmocka_unit_test(too_many),
        cmocka_unit_test(damage),
        cmocka_unit_test(rules),
        cmocka_unit_test(lost_without_uuid),
        cmocka_unit_test(every_allocation),
        cmocka_unit_test(references),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
