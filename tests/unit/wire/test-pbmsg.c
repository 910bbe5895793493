/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "wire/pbmsg.h"
#include "wire/pbreader.h"
#include "wire/pbwriter.h"

/* nanopb allocates with realloc only: the linker sends those calls here (see meson.build). */
static unsigned realloc_fail_at, realloc_calls;
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
    return ++realloc_calls == realloc_fail_at ? NULL : __real_realloc(p, n);
}

static const char allocate_request[] = "\x0a\x0c\x0a\x05GPU-a\x0a\x03"
                                       "b-c";

static void reads_a_request(void **state)
{
    auto_pb(dp_AllocateRequest) req = dp_AllocateRequest_init_zero;
    struct error err;
    assert_int_equal(pbmsg_read(dp_AllocateRequest, STR(allocate_request), 1024, &req, &err), 0);
    assert_int_equal(req.container_requests_count, 1);
    assert_int_equal(req.container_requests[0].devices_ids_count, 2);
    assert_string_equal(req.container_requests[0].devices_ids[0], "GPU-a");
    assert_string_equal(req.container_requests[0].devices_ids[1], "b-c");
}

static void refuses_what_is_wrong(void **state)
{
    static const struct {
        struct str in;
        size_t max;
        int code;
        const char *text;
    } cases[] = {
        { STR("\x0a\x0c"
              "abc"),
          99, ERR_INVALID, "AllocateRequest of 5 bytes does not decode" },
        { STR("\x0a"), 99, ERR_INVALID, "does not decode" },
        { STR("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), 99, ERR_INVALID, "does not decode" },
        { STR("\x0a\x00\x0a\x00"), 3, ERR_LIMIT, "has 4 bytes, at most 3" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        dp_AllocateRequest req = dp_AllocateRequest_init_zero;
        struct error err = { 0 };
        assert_int_equal(pbmsg_read(dp_AllocateRequest, cases[i].in, cases[i].max, &req, &err),
                         -cases[i].code);
        assert_non_null(strstr(err.text, cases[i].text));
        assert_null(req.container_requests);
    }
}

static void every_allocation_may_fail(void **state)
{
    for (unsigned k = 1;; k++) {
        dp_AllocateRequest req = dp_AllocateRequest_init_zero;
        struct error err;
        realloc_calls = 0;
        realloc_fail_at = k;
        int r = pbmsg_read(dp_AllocateRequest, STR(allocate_request), 1024, &req, &err);
        realloc_fail_at = 0;
        if (r == 0) {
            assert_true(k > 3);
            pb_release(dp_AllocateRequest_fields, &req);
            return;
        }
        assert_int_equal(r, -ERR_LIMIT);
    }
}

static void empty_messages(void **state)
{
    auto_pb(dp_AllocateRequest) req = dp_AllocateRequest_init_zero;
    struct error err;
    assert_int_equal(pbmsg_read(dp_AllocateRequest, ((struct str){ NULL, 0 }), 10, &req, &err), 0);
    assert_int_equal(req.container_requests_count, 0);
    dp_RegisterRequest reg = dp_RegisterRequest_init_zero;
    assert_string_equal(pbmsg_text(reg.version), "");
}

/* ---- writer against nanopb ---- */

static char *text_of(const char *s)
{
    return x_strdup(s);
}

static void fill(dp_ContainerAllocateResponse *c, size_t long_n)
{
    c->envs_count = 2;
    c->envs = x_alloc(2 * sizeof *c->envs);
    c->envs[0].key = text_of("NVIDIA_VISIBLE_DEVICES");
    c->envs[0].value = x_alloc(long_n + 1);
    memset(c->envs[0].value, 'x', long_n);
    c->envs[1].key = text_of("B");
    c->envs[1].value = text_of("1");
    c->mounts_count = 1;
    c->mounts = x_alloc(sizeof *c->mounts);
    c->mounts[0].container_path = text_of("/a");
    c->mounts[0].host_path = text_of("/dev/null");
    c->mounts[0].read_only = true;
    c->devices_count = 1;
    c->devices = x_alloc(sizeof *c->devices);
    c->devices[0].container_path = text_of("/dev/nvidia0");
    c->devices[0].host_path = text_of("/dev/nvidia0");
    c->devices[0].permissions = text_of("rw");
    c->cdi_devices_count = 1;
    c->cdi_devices = x_alloc(sizeof *c->cdi_devices);
    c->cdi_devices[0].name = text_of("nvidia.com/gpu=GPU-0");
}

static void write_container(struct buf *b, const dp_ContainerAllocateResponse *c)
{
    size_t whole = pbw_begin(b, 1);
    for (size_t i = 0; i < c->envs_count; i++)
        pbw_map(b, 1, str_of(c->envs[i].key), str_of(c->envs[i].value));
    for (size_t i = 0; i < c->mounts_count; i++) {
        size_t m = pbw_begin(b, 2);
        pbw_str(b, 1, str_of(c->mounts[i].container_path));
        pbw_str(b, 2, str_of(c->mounts[i].host_path));
        pbw_bool(b, 3, c->mounts[i].read_only);
        pbw_end(b, m);
    }
    for (size_t i = 0; i < c->devices_count; i++) {
        size_t m = pbw_begin(b, 3);
        pbw_str(b, 1, str_of(c->devices[i].container_path));
        pbw_str(b, 2, str_of(c->devices[i].host_path));
        pbw_str(b, 3, str_of(c->devices[i].permissions));
        pbw_end(b, m);
    }
    for (size_t i = 0; i < c->cdi_devices_count; i++) {
        size_t m = pbw_begin(b, 5);
        pbw_str(b, 1, str_of(c->cdi_devices[i].name));
        pbw_end(b, m);
    }
    pbw_end(b, whole);
}

static void writer_equals_nanopb(void **state)
{
    static const size_t sizes[] = {
        0, 1, 20, 60, 90, 126, 127, 128, 129, 300, 16383, 16384, 70000
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        auto_pb(dp_AllocateResponse) resp = dp_AllocateResponse_init_zero;
        resp.container_responses_count = 2;
        resp.container_responses = x_alloc(2 * sizeof *resp.container_responses);
        fill(&resp.container_responses[0], sizes[i]);
        fill(&resp.container_responses[1], 3);
        auto_buf theirs, ours;
        buf_init(&theirs, 1 << 20);
        buf_init(&ours, 1 << 20);
        struct error err;
        assert_int_equal(pbmsg_add(dp_AllocateResponse, &resp, &theirs, &err), 0);
        write_container(&ours, &resp.container_responses[0]);
        write_container(&ours, &resp.container_responses[1]);
        assert_int_equal(buf_check(&ours, "answer", &err), 0);
        /* nanopb leaves an empty map value out, we always write it as Go does. */
        if (sizes[i]) {
            assert_int_equal(ours.n, theirs.n);
            assert_memory_equal(ours.p, theirs.p, ours.n);
        }
        auto_pb(dp_AllocateResponse) back = dp_AllocateResponse_init_zero;
        assert_int_equal(pbmsg_read(dp_AllocateResponse, buf_view(&ours), 1 << 20, &back, &err), 0);
        assert_int_equal(strlen(pbmsg_text(back.container_responses[0].envs[0].value)), sizes[i]);
    }
}

static void writer_numbers(void **state)
{
    static const int64_t v[] = { 0, 1, 127, 128, 300, INT64_MAX, -1, INT64_MIN };
    auto_pb(podres_AllocatableResponse) resp = podres_AllocatableResponse_init_zero;
    resp.cpu_ids_count = ARRAY_LEN(v);
    resp.cpu_ids = x_alloc(sizeof v);
    memcpy(resp.cpu_ids, v, sizeof v);
    resp.memory_count = 1;
    resp.memory = x_alloc(sizeof *resp.memory);
    resp.memory[0].size = UINT64_MAX;
    auto_buf theirs, ours;
    buf_init(&theirs, 4096);
    buf_init(&ours, 4096);
    struct error err;
    assert_int_equal(pbmsg_add(podres_AllocatableResponse, &resp, &theirs, &err), 0);
    pbw_ints(&ours, 2, v, ARRAY_LEN(v));
    size_t m = pbw_begin(&ours, 3);
    pbw_uint(&ours, 2, UINT64_MAX);
    pbw_int(&ours, 9, 0);
    pbw_end(&ours, m);
    assert_int_equal(ours.n, theirs.n);
    assert_memory_equal(ours.p, theirs.p, ours.n);
    struct pbr r = pbr_of(buf_view(&ours));
    struct pbr_field f;
    assert_true(pbr_next(&r, &f));
    struct pbr packed = pbr_of(f.bytes);
    uint64_t n;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        assert_true(pbr_packed(&packed, &n));
        assert_true((int64_t)n == v[i]);
    }
    assert_false(pbr_packed(&packed, &n));
}

static void writer_stops_at_the_limit(void **state)
{
    for (size_t max = 0; max < 200; max++) {
        auto_buf b;
        struct error err;
        buf_init(&b, max);
        size_t m = pbw_begin(&b, 1);
        for (int i = 0; i < 30; i++)
            pbw_item(&b, 1, STR("abcd"));
        pbw_end(&b, m);
        size_t need = 1 + 2 + 30 * 6;
        assert_int_equal(buf_check(&b, "list", &err), max < need ? -ERR_LIMIT : 0);
    }
}

/* 131 072 devices, more than nanopb's lists hold. */
static void long_lists(void **state)
{
    enum { N = 131072 };
    auto_buf b;
    buf_init(&b, 64 << 20);
    for (int i = 0; i < N; i++) {
        size_t m = pbw_begin(&b, 1);
        char id[32];
        int n = snprintf(id, sizeof id, "GPU-%06d::%d", i / 64, i % 64);
        pbw_str(&b, 1, (struct str){ id, (size_t)n });
        pbw_str(&b, 2, STR("Healthy"));
        pbw_end(&b, m);
    }
    struct error err;
    assert_int_equal(buf_check(&b, "list", &err), 0);
    struct pbr r = pbr_of(buf_view(&b));
    size_t seen = 0;
    for (struct pbr_field f; pbr_next(&r, &f);)
        seen += f.tag == 1 && f.wire == PBR_BYTES;
    assert_int_equal(pbr_check(&r, "list", &err), 0);
    assert_int_equal(seen, N);
}

static void reader_kinds(void **state)
{
    static const struct str in =
        STR("\x08\x96\x01\x11\x01\x02\x03\x04\x05\x06\x07\x08\x1a\x02hi\x25"
            "\x01\x00\x00\x80");
    struct pbr r = pbr_of(in);
    struct pbr_field f;
    assert_true(pbr_next(&r, &f) && f.tag == 1 && f.number == 150);
    assert_true(pbr_next(&r, &f) && f.tag == 2 && f.number == 0x0807060504030201u);
    assert_true(pbr_next(&r, &f) && f.tag == 3 && str_is(f.bytes, "hi"));
    assert_true(pbr_next(&r, &f) && f.tag == 4 && f.number == 0x80000001u);
    assert_false(pbr_next(&r, &f));
    assert_int_equal(pbr_check(&r, "x", NULL), 0);
}

static void reader_refuses(void **state)
{
    static const struct str bad[] = {
        STR("\x00\x01"),                                     /* field number 0 */
        STR("\x0b"),                                         /* a group */
        STR("\x0c"),                                         /* its end */
        STR("\x0f"),                                         /* wire type 7 */
        STR("\x0a\x05"                                       /* */
            "abc"),                                          /* cut */
        STR("\x08"),                                         /* no number */
        STR("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), /* past 64 bits */
        STR("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), /* length of all ones */
        STR("\x15\x01\x02\x03"),                             /* 3 of 4 bytes */
        STR("\x11\x01\x02\x03\x04\x05\x06\x07"),             /* 7 of 8 bytes */
        STR("\xf8\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"), /* huge field number */
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct pbr r = pbr_of(bad[i]);
        struct pbr_field f;
        struct error err;
        assert_false(pbr_next(&r, &f));
        assert_int_equal(pbr_check(&r, "thing", &err), -ERR_INVALID);
        assert_non_null(strstr(err.text, "thing"));
        assert_false(pbr_next(&r, &f));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_request),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(empty_messages),
        cmocka_unit_test(writer_equals_nanopb),
        cmocka_unit_test(writer_numbers),
        cmocka_unit_test(writer_stops_at_the_limit),
        cmocka_unit_test(long_lists),
        cmocka_unit_test(reader_kinds),
        cmocka_unit_test(reader_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
