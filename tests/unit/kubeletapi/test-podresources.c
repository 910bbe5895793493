/* SPDX-License-Identifier: Apache-2.0 */
#include "kubeletapi-help.h"
#include "wire/pbwriter.h"

struct item {
    const char *ns, *pod, *container, *resource, *id;
};

/* One pod for each item, with fields that we do not read around it. */
static void encode(struct buf *b, const struct item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t pod = pbw_begin(b, 1);
        pbw_str(b, 1, str_of(items[i].pod));
        pbw_str(b, 2, str_of(items[i].ns));
        size_t container = pbw_begin(b, 3);
        pbw_str(b, 1, str_of(items[i].container));
        size_t devices = pbw_begin(b, 2);
        pbw_str(b, 1, str_of(items[i].resource));
        pbw_item(b, 2, str_of(items[i].id));
        size_t topology = pbw_begin(b, 3);
        pbw_int(b, 1, 7);
        pbw_end(b, topology);
        pbw_end(b, devices);
        pbw_ints(b, 3, (const int64_t[]){ 1, 2, 3 }, 3);
        pbw_end(b, container);
        pbw_ints(b, 4, (const int64_t[]){ 4 }, 1);
        pbw_end(b, pod);
    }
}

static void expect(const struct device_use *u, const char *uid, const char *ns, const char *pod,
                   bool checkpoint, bool podresources)
{
    assert_string_equal(u->pod_uid, uid);
    assert_string_equal(u->pod_namespace, ns);
    assert_string_equal(u->pod_name, pod);
    assert_int_equal(u->from_checkpoint, checkpoint);
    assert_int_equal(u->from_podresources, podresources);
}

static struct in_use *from_checkpoint(const char *entries)
{
    struct error err;
    struct in_use *u = in_use_new();
    auto_free char *text = checkpoint_text(entries, "{}");
    assert_int_equal(parse(text, u, &err), 0);
    return u;
}

static void merged_with_the_checkpoint(void **state)
{
    static const struct item items[] = {
        { "default", "a", "main", "nvidia.com/gpu", "GPU-a" },
        { "default", "b", "main", "nvidia.com/gpu", "GPU-new" },
        { "default", "c", "main", "other.com/gpu", "GPU-b" },
    };
    struct error err;
    struct in_use *u =
        from_checkpoint("[" ENTRY("u-1", "init", "nvidia.com/gpu", "[\"GPU-a\"]") "," ENTRY(
            "u-1", "main", "nvidia.com/gpu",
            "[\"GPU-a\"]") "," ENTRY("u-2", "main", "nvidia.com/gpu", "[\"GPU-b\"]") "]");
    auto_buf b;
    buf_init(&b, 65536);
    encode(&b, items, ARRAY_LEN(items));
    assert_int_equal(podresources_parse(buf_view(&b), u, &err), 0);
    buf_done(&b); /* nothing is borrowed */
    assert_true(u->podresources_read);
    assert_int_equal(u->n, 5);
    expect(&u->uses[0], "u-1", "", "", true, false); /* the init container is not listed */
    expect(&u->uses[1], "u-1", "default", "a", true, true);
    expect(&u->uses[2], "u-2", "", "", true, false); /* another resource */
    expect(&u->uses[3], "", "default", "b", false, true);
    expect(&u->uses[4], "", "default", "c", false, true);
    assert_string_equal(u->uses[4].resource, "other.com/gpu");
    assert_string_equal(u->uses[3].id, "GPU-new");
    assert_string_equal(u->uses[3].container, "main");
    in_use_free(u);
}

/* Two pods have one device: the name of one must not stick to the other. */
static void doubt_gives_no_name(void **state)
{
    static const struct item items[] = { { "ns", "second", "main", "nvidia.com/gpu", "GPU-a" } };
    struct error err;
    auto_buf b;
    buf_init(&b, 65536);
    encode(&b, items, 1);
    for (int named = 0; named < 2; named++) {
        struct in_use *u =
            from_checkpoint("[" ENTRY("u-1", "main", "nvidia.com/gpu", "[\"GPU-a\"]") "," ENTRY(
                "u-2", "main", "nvidia.com/gpu", "[\"GPU-a\"]") "]");
        if (named) { /* the log directories told it */
            u->uses[0].pod_name = "first";
            u->uses[1].pod_name = "second";
            u->uses[0].pod_namespace = u->uses[1].pod_namespace = "ns";
        }
        assert_int_equal(podresources_parse(buf_view(&b), u, &err), 0);
        assert_int_equal(u->n, 2);
        expect(&u->uses[0], "u-1", named ? "ns" : "", named ? "first" : "", true, !named);
        expect(&u->uses[1], "u-2", named ? "ns" : "", named ? "second" : "", true, true);
        in_use_free(u);
    }
}

static void alone(void **state)
{
    struct error err;
    struct in_use *u = in_use_new();
    assert_int_equal(podresources_parse(STR(""), u, &err), 0);
    assert_true(u->podresources_read);
    assert_false(u->checkpoint_read);
    assert_int_equal(u->n, 0);
    auto_buf b;
    buf_init(&b, 1 << 22);
    auto_free struct item *items = x_alloc(3000 * sizeof *items);
    for (size_t i = 0; i < 3000; i++)
        items[i] = (struct item){ "n", "p", "c", "r", x_printf("id-%zu", i) };
    encode(&b, items, 3000);
    assert_int_equal(podresources_parse(buf_view(&b), u, &err), 0);
    assert_int_equal(u->n, 3000);
    for (size_t i = 0; i < 3000; i++)
        assert_string_equal(u->uses[i].id, items[i].id);
    /* Again: the same uses, not twice as many. */
    assert_int_equal(podresources_parse(buf_view(&b), u, &err), 0);
    assert_int_equal(u->n, 3000);
    in_use_free(u);
    for (size_t i = 0; i < 3000; i++) {
        char *id;
        memcpy(&id, &items[i].id, sizeof id);
        free(id);
    }
}

static void broken_answers_change_nothing(void **state)
{
    static const struct item items[] = {
        { "default", "a", "main", "nvidia.com/gpu", "GPU-a" },
        { "default", "b", "main", "nvidia.com/gpu", "GPU-b" },
    };
    auto_buf b;
    buf_init(&b, 65536);
    encode(&b, items, 2);
    size_t bad = 0;
    for (size_t n = 1; n < b.n; n++) { /* cut anywhere */
        struct error err;
        struct in_use *u =
            from_checkpoint("[" ENTRY("u-1", "main", "nvidia.com/gpu", "[\"GPU-a\"]") "]");
        int r = podresources_parse((struct str){ b.p, n }, u, &err);
        if (r < 0) {
            bad++;
            assert_int_equal(r, -ERR_INVALID);
            assert_int_equal(u->n, 1);
            expect(&u->uses[0], "u-1", "", "", true, false);
            assert_false(u->podresources_read);
        }
        in_use_free(u);
    }
    assert_true(bad > b.n - 5);

    static const struct item empty = { "ns", "p", "c", "r", "" };
    struct error err;
    struct in_use *u = in_use_new();
    buf_reset(&b);
    encode(&b, &empty, 1);
    assert_int_equal(podresources_parse(buf_view(&b), u, &err), -ERR_INVALID);
    assert_int_equal(u->n, 0);
    in_use_free(u);
}

static void every_allocation(void **state)
{
    static const struct item items[] = {
        { "default", "a", "main", "nvidia.com/gpu", "GPU-a" },
        { "default", "b", "main", "nvidia.com/gpu", "GPU-b" },
    };
    auto_buf b;
    buf_init(&b, 65536);
    encode(&b, items, 2);
    bool through = false;
    for (uint64_t k = 1; !through; k++) {
        struct error err;
        assert_true(k < 100);
        struct in_use *u = in_use_new();
        mem_fail_at(k);
        int r = podresources_parse(buf_view(&b), u, &err);
        through = mem_fail_at(0) < k;
        assert_int_equal(r, through ? 0 : -ERR_LIMIT);
        assert_int_equal(u->n, through ? 2 : 0);
        in_use_free(u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_with_the_checkpoint),
        cmocka_unit_test(doubt_gives_no_name),
        cmocka_unit_test(alone),
        cmocka_unit_test(every_allocation),
        cmocka_unit_test(broken_answers_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
