/* SPDX-License-Identifier: Apache-2.0 */
#include "kubeletapi-help.h"

static void what_kubelet_writes(void **state)
{
    struct error err;
    auto_free char *text = checkpoint_text(
        "[" ENTRY("u-1", "main", "nvidia.com/gpu", "{\"-1\":[\"GPU-a\"],\"0\":[\"GPU-b\",\"GPU-c\"]}") "," ENTRY(
            "u-2", "init", "nvidia.com/gpu.shared",
            "{\"1\":[\"GPU-d::3\"]}") "," ENTRY("u-3", "main", "example.com/x",
                                                "{}") "," ENTRY("u-4", "main", "example.com/x",
                                                                "null") "," ENTRY("u-5", "main",
                                                                                  "example.com/"
                                                                                  "x",
                                                                                  "{\"0\":"
                                                                                  "null}") "," ENTRY("u-6",
                                                                                                     "old",
                                                                                                     "nvidia.com/gpu",
                                                                                                     "[\"GPU-e\"]") "]",
        "{\"nvidia.com/gpu\":[\"GPU-a\",\"GPU-b\"],\"example.com/x\":null,\"z\":[]}");
    struct in_use *u = in_use_new();
    assert_int_equal(parse(text, u, &err), 0);
    memset(text, 0xff, strlen(text)); /* nothing is borrowed */
    static const struct {
        const char *uid, *container, *resource, *id;
    } uses[] = {
        { "u-1", "main", "nvidia.com/gpu", "GPU-a" },
        { "u-1", "main", "nvidia.com/gpu", "GPU-b" },
        { "u-1", "main", "nvidia.com/gpu", "GPU-c" },
        { "u-2", "init", "nvidia.com/gpu.shared", "GPU-d::3" },
        { "u-6", "old", "nvidia.com/gpu", "GPU-e" },
    };
    assert_int_equal(u->n, ARRAY_LEN(uses));
    for (size_t i = 0; i < u->n; i++) {
        assert_string_equal(u->uses[i].pod_uid, uses[i].uid);
        assert_string_equal(u->uses[i].container, uses[i].container);
        assert_string_equal(u->uses[i].resource, uses[i].resource);
        assert_string_equal(u->uses[i].id, uses[i].id);
        assert_string_equal(u->uses[i].pod_name, "");
        assert_string_equal(u->uses[i].pod_namespace, "");
        assert_true(u->uses[i].from_checkpoint);
        assert_false(u->uses[i].from_podresources || u->uses[i].pod_gone);
    }
    assert_true(u->checkpoint_read);
    assert_int_equal(u->n_registered, 3);
    assert_string_equal(u->registered[0].resource, "nvidia.com/gpu");
    assert_int_equal(u->registered[0].n, 2);
    assert_string_equal(u->registered[0].ids[1], "GPU-b");
    assert_int_equal(u->registered[1].n, 0);
    in_use_free(u);
}

static void empty_ones(void **state)
{
    static const char *const cases[] = {
        "{\"Data\":{\"PodDeviceEntries\":null,\"RegisteredDevices\":{}},\"Checksum\":0}",
        "{\"Data\":{\"PodDeviceEntries\":[],\"RegisteredDevices\":null},\"Checksum\":0}",
        "{\"Data\":{},\"Checksum\":4294967295}",
        "{\"Data\":{\"PodDeviceEntries\":null,\"RegisteredDevices\":{},\"Later\":[1]}}",
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = { 0 };
        struct in_use *u = in_use_new();
        if (parse(cases[i], u, &err) < 0)
            fail_msg("%s: %s", cases[i], err.text);
        assert_true(u->checkpoint_read);
        assert_int_equal(u->n, 0);
        in_use_free(u);
    }
}

static void broken_ones(void **state)
{
    static const struct {
        const char *entries, *registered, *text;
    } cases[] = {
        { "{}", "{}", "PodDeviceEntries is" },
        { "[1]", "{}", "an entry is" },
        { "[{}]", "{}", "PodUID is" },
        { "[" ENTRY("", "main", "r", "{}") "]", "{}", "PodUID is" },
        { "[" ENTRY("u", "main", "", "{}") "]", "{}", "ResourceName is" },
        { "[" ENTRY("u\\u0000", "main", "r", "{}") "]", "{}", "PodUID is" },
        { "[" ENTRY("u", "main", "r", "{\"0\":\"x\"}") "]", "{}", "DeviceIDs is" },
        { "[" ENTRY("u", "main", "r", "{\"0\":[1]}") "]", "{}", "a device id is" },
        { "[" ENTRY("u", "main", "r", "{\"0\":[\"\"]}") "]", "{}", "a device id is" },
        { "[" ENTRY("u", "main", "r", "7") "]", "{}", "DeviceIDs is" },
        { "[]", "[]", "RegisteredDevices is" },
        { "[]", "{\"r\":{}}", "RegisteredDevices is" },
        { "[]", "{\"r\":[1]}", "a registered device is" },
        { "[", "{}", CHECKPOINT_FILE },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = { 0 };
        struct in_use *u = in_use_new();
        auto_free char *text = checkpoint_text(cases[i].entries, cases[i].registered);
        assert_int_equal(parse(text, u, &err), -ERR_INVALID);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s: %s", cases[i].entries, err.text);
        assert_false(u->checkpoint_read);
        assert_int_equal(u->n + u->n_registered, 0);
        in_use_free(u);
    }
    static const char *const whole[] = {
        "", "null", "[]", "{}", "{\"Data\":null}", "{\"Data\":[]}", "{\"Data\":{}} x"
    };
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
        struct error err = { 0 };
        struct in_use *u = in_use_new();
        assert_int_equal(parse(whole[i], u, &err), -ERR_INVALID);
        in_use_free(u);
    }
}

static void limits(void **state)
{
    struct error err;
    struct in_use *u = in_use_new();
    char *big = x_alloc(CHECKPOINT_MAX + 2);
    memset(big, ' ', CHECKPOINT_MAX + 1);
    memcpy(big, "{\"Data\":{}}", 11);
    assert_int_equal(parse(big, u, &err), -ERR_LIMIT);
    big[CHECKPOINT_MAX] = '\0';
    assert_int_equal(parse(big, u, &err), 0);
    in_use_free(u);
    free(big);

    /* An id past what any plugin may send. */
    u = in_use_new();
    char id[5000];
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    auto_free char *entries = x_printf("[{\"PodUID\":\"u\",\"ContainerName\":\"c\","
                                       "\"ResourceName\":\"r\",\"DeviceIDs\":[\"%s\"]}]",
                                       id);
    auto_free char *text = checkpoint_text(entries, "{}");
    assert_int_equal(parse(text, u, &err), -ERR_INVALID);
    in_use_free(u);
}

static void every_allocation(void **state)
{
    auto_free char *text = checkpoint_text(
        "[" ENTRY("u-1", "main", "nvidia.com/gpu", "{\"0\":[\"GPU-a\",\"GPU-b\"]}") "]",
        "{\"nvidia.com/gpu\":[\"GPU-a\"]}");
    bool through = false;
    for (uint64_t k = 1; !through; k++) {
        struct error err;
        assert_true(k < 1000);
        struct in_use *u = in_use_new();
        mem_fail_at(k);
        int r = parse(text, u, &err);
        through = mem_fail_at(0) < k;
        if (r < 0)
            assert_int_equal(r, -ERR_LIMIT);
        assert_int_equal(u->n, r == 0 ? 2 : 0);
        assert_true(r == 0 || !u->checkpoint_read);
        assert_true(r == 0 || !through);
        in_use_free(u);
    }
}

/* ---- B-104: one gpu, two pods ---- */

static void two_pods_on_one_device(void **state)
{
    static const struct {
        const char *what;
        struct device_use a, b;
        size_t found;
        const char *fix;
    } cases[] = {
        { "two pods",
          { .id = "GPU-a", .pod_uid = "u-1" },
          { .id = "GPU-a", .pod_uid = "u-2" },
          1,
          "delete pod with uid u-2" },
        { "only one of them runs",
          { .id = "GPU-a", .pod_uid = "u-1" },
          { .id = "GPU-a",
            .pod_uid = "u-2",
            .pod_name = "b",
            .pod_namespace = "ns",
            .from_podresources = true },
          1,
          "delete pod with uid u-1: kubelet does not list it" },
        { "both run, with names",
          { .id = "GPU-a",
            .pod_uid = "u-1",
            .pod_name = "a",
            .pod_namespace = "ns",
            .from_podresources = true },
          { .id = "GPU-a",
            .pod_uid = "u-2",
            .pod_name = "b",
            .pod_namespace = "ns",
            .from_podresources = true },
          1,
          "delete pod ns/b (both run" },
        { "one is gone",
          { .id = "GPU-a", .pod_uid = "u-1", .pod_gone = true },
          { .id = "GPU-a", .pod_uid = "u-2" },
          0,
          NULL },
        { "two containers of one pod",
          { .id = "GPU-a", .pod_uid = "u-1" },
          { .id = "GPU-a", .pod_uid = "u-1" },
          0,
          NULL },
        { "two shares",
          { .id = "GPU-a::0", .pod_uid = "u-1" },
          { .id = "GPU-a::1", .pod_uid = "u-2" },
          0,
          NULL },
        { "one share",
          { .id = "GPU-a::0", .pod_uid = "u-1" },
          { .id = "GPU-a::0", .pod_uid = "u-2" },
          1,
          "delete pod" },
        { "whole and share",
          { .id = "GPU-a", .pod_uid = "u-1" },
          { .id = "GPU-a::1", .pod_uid = "u-2" },
          1,
          "delete pod" },
        { "whole and share of one pod",
          { .id = "GPU-a", .pod_uid = "u-1" },
          { .id = "GPU-a::1", .pod_uid = "u-1" },
          0,
          NULL },
        { "two gpus",
          { .id = "GPU-a", .pod_uid = "u-1" },
          { .id = "GPU-b", .pod_uid = "u-2" },
          0,
          NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int turned = 0; turned < 2; turned++) {
            struct device_use uses[2] = { turned ? cases[i].b : cases[i].a,
                                          turned ? cases[i].a : cases[i].b };
            for (int k = 0; k < 2; k++) {
                uses[k].resource = "nvidia.com/gpu";
                uses[k].container = "main";
                uses[k].pod_name = uses[k].pod_name ? uses[k].pod_name : "";
                uses[k].pod_namespace = uses[k].pod_namespace ? uses[k].pod_namespace : "";
            }
            const struct in_use u = { .uses = uses, .n = 2 };
            auto_arena arena;
            arena_init(&arena, 65536);
            struct findings f;
            findings_init(&f, &arena, 10);
            size_t found = in_use_duplicates(&u, &f);
            if (found != cases[i].found || f.n != found)
                fail_msg("%s: %zu", cases[i].what, found);
            if (!found)
                continue;
            assert_string_equal(f.items[0].id, "in-use.duplicate");
            assert_int_equal(f.items[0].severity, SEVERITY_ERROR);
            if (!strstr(f.items[0].fix, cases[i].fix))
                fail_msg("%s: %s", cases[i].what, f.items[0].fix);
            char a[320], b[320];
            assert_non_null(strstr(f.items[0].cause, use_pod_text(&uses[0], a, sizeof a)));
            assert_non_null(strstr(f.items[0].cause, use_pod_text(&uses[1], b, sizeof b)));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_kubelet_writes), cmocka_unit_test(empty_ones),
        cmocka_unit_test(broken_ones),         cmocka_unit_test(limits),
        cmocka_unit_test(every_allocation),    cmocka_unit_test(two_pods_on_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
