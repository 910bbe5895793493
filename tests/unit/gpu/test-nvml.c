/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include "fake.h"
#include "gpu/nvml.h"

static void link_to(const struct fake *f, const char *target, const char *sub)
{
    auto_free char *path = x_printf("%s%s", f->dir, sub);
    if (symlink(target, path) < 0)
        abort();
}

static void resolve(void **state)
{
    struct fake f;
    char got[4096];
    fake_begin(&f, NULL);
    fake_file(&f, "/real/lib/thing", "x");
    fake_file(&f, "/a/b/c", "x");
    link_to(&f, "/real/lib", "/abs");                /* from the root of the driver */
    link_to(&f, "../../real", "/a/b/up");            /* relative */
    link_to(&f, "../../../../../../real", "/a/out"); /* cannot leave the root */
    link_to(&f, "/loop2", "/loop1");
    link_to(&f, "/loop1", "/loop2");
    link_to(&f, "/nowhere", "/dangling");
    const struct {
        const char *path, *want;
    } cases[] = {
        { "/real/lib/thing", "/real/lib/thing" },
        { "/abs/thing", "/real/lib/thing" },
        { "abs/./thing", "/real/lib/thing" },
        { "/a/b/up/lib/thing", "/real/lib/thing" },
        { "/a/out/lib/thing", "/real/lib/thing" },
        { "/a/../../../a/b/c", "/a/b/c" },
        { "/loop1/x", NULL },
        { "/dangling", NULL },
        { "/real/none", NULL },
        { "/real/lib/thing/more", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool ok = nvml_resolve(f.dir, cases[i].path, got, sizeof got);
        if (ok != (cases[i].want != NULL))
            fail_msg("%s: %s", cases[i].path, ok ? got : "not found");
        if (ok)
            assert_string_equal(got + strlen(f.dir), cases[i].want);
    }
    assert_true(nvml_resolve("/", "/proc/self", got, sizeof got));
    assert_memory_equal(got, "/proc/", 6);
    assert_false(nvml_resolve(f.dir, "/real/lib/thing", got, 8));
    fake_end(&f);
}

static void open_and_start(void **state)
{
    struct fake f;
    struct nvml *n = NULL;
    struct error err;
    fake_begin(&f, NULL);
    assert_int_equal(nvml_open(&f.host, &n, &err), DRIVER_NO_LIBRARY);
    assert_non_null(strstr(err.text, f.dir));
    fake_file(&f, "/lib64/libnvidia-ml.so.1", "no library at all");
    assert_int_equal(nvml_open(&f.host, &n, &err), DRIVER_BAD_LIBRARY);
    assert_null(n);
    /* usr/lib64 comes before lib64 */
    fake_library(&f, FAKE_NVML);
    assert_int_equal(nvml_open(&f.host, &n, &err), DRIVER_OK);
    assert_non_null(strstr(n->path, "/usr/lib64/libnvidia-ml.so.1"));
    assert_non_null(n->memory_v2);
    assert_null(n->serial);
    assert_int_equal(NVML_CALL(n, 0, serial, NULL, NULL, 0), NV_E_NOT_SUPPORTED);

    const struct {
        int code;
        enum driver_state state;
    } cases[] = {
        { 0, DRIVER_OK },
        { 9, DRIVER_NOT_LOADED },
        { 18, DRIVER_VERSION_MISMATCH },
        { 4, DRIVER_NO_PERMISSION },
        { 12, DRIVER_ERROR },
        { 999, DRIVER_ERROR },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char words[32];
        snprintf(words, sizeof words, "init=%d", cases[i].code);
        fake_set(&f, words);
        err.text[0] = '\0';
        assert_int_equal(nvml_start(n, &err), cases[i].state);
        if (cases[i].code)
            assert_int_equal(err.sys, cases[i].code);
    }
    nvml_close(n);
    nvml_close(NULL);
    fake_end(&f);
}

static void old_driver(void **state)
{
    struct fake f;
    struct nvml *n = NULL;
    struct error err;
    unsigned count = 0;
    fake_begin(&f, FAKE_NVML_OLD);
    assert_int_equal(nvml_open(&f.host, &n, &err), DRIVER_OK);
    assert_int_equal(nvml_start(n, &err), DRIVER_OK);
    assert_int_equal(NVML_CALL(n, NVML_NO_GPU, count, &count), NV_OK);
    assert_int_equal(count, 2);
    assert_null(n->memory_v2);
    assert_null(n->mig_mode);
    assert_null(n->events_wait_v2);
    assert_non_null(n->events_wait_v1);
    nvml_close(n);
    fake_end(&f);
}

static void codes(void **state)
{
    assert_int_equal(nvml_fold(NV_E_FUNCTION_NOT_FOUND), NV_E_NOT_SUPPORTED);
    assert_int_equal(nvml_fold(NV_E_DEPRECATED), NV_E_NOT_SUPPORTED);
    assert_int_equal(nvml_fold(NV_E_NO_PERMISSION), NV_E_NO_PERMISSION);
    for (int code = 0; code <= 30; code++)
        assert_string_not_equal(nvml_code_name(code), "not-in-table");
    assert_string_equal(nvml_code_name(15), "gpu-is-lost");
    assert_string_equal(nvml_code_name(77), "not-in-table");
    assert_string_equal(nvml_code_name(999), "unknown");
    assert_true(nvml_code_is_loss(15) && nvml_code_is_loss(16) && nvml_code_is_loss(28));
    assert_false(nvml_code_is_loss(0) || nvml_code_is_loss(999) || nvml_code_is_loss(3));
    assert_string_equal(nvml_symbol("by_index"), "nvmlDeviceGetHandleByIndex_v2");
    assert_string_equal(nvml_symbol("dlopen"), "dlopen");
}

static void progress(void **state)
{
    struct fake f;
    struct nvml *n = NULL;
    struct error err;
    struct nvml_progress p = { 0 };
    fake_begin(&f, FAKE_NVML);
    assert_int_equal(nvml_open(&f.host, &n, &err), DRIVER_OK);
    n->progress = &p;
    nvml_enter(n, "uuid", 3);
    assert_string_equal(p.call, "uuid");
    assert_int_equal(p.gpu, 3);
    assert_int_equal(p.calls, 1);
    assert_int_equal(nvml_leave(n, NV_E_DEPRECATED), NV_E_NOT_SUPPORTED);
    assert_string_equal(p.call, "");
    nvml_close(n);
    fake_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resolve), cmocka_unit_test(open_and_start), cmocka_unit_test(old_driver),
        cmocka_unit_test(codes),   cmocka_unit_test(progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
