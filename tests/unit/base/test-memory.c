/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"

static void test_fail_at(void **state)
{
    mem_fail_at(2);
    void *a = try_alloc(1), *b = try_alloc(1), *c = try_alloc(1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    assert_int_equal(mem_fail_at(0), 3);
    free(a);
    free(c);
    assert_int_equal(mem_fail_at(0), 0);
}

static void test_steal(void **state)
{
    auto_free char *p = x_strdup("text");
    char *q = steal(p);
    assert_null(p);
    assert_string_equal(q, "text");
    free(q);
    auto_free char *r = x_strndup("text", 2);
    assert_string_equal(r, "te");
    auto_free char *s = x_printf("%d-%s", 7, r);
    assert_string_equal(s, "7-te");
    int fd = 5;
    assert_int_equal(steal_fd(&fd), 5);
    assert_int_equal(fd, -1);
}

static void test_arena(void **state)
{
    auto_arena a;
    arena_init(&a, 100000);
    char *small = arena_strdup(&a, STR("abc"));
    char *large = arena_alloc(&a, 50000);
    char *after = arena_strdup(&a, STR("def"));
    assert_string_equal(small, "abc");
    assert_string_equal(after, "def");
    assert_int_equal((uintptr_t)large % 16, 0);
    for (size_t i = 0; i < 50000; i++)
        assert_int_equal(large[i], 0);
    assert_int_equal(after - small, 16); /* the large one did not end the block in use */
    assert_null(arena_alloc(&a, 60000));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 20));
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 3), "x-3");
    assert_string_equal(arena_strdup(&a, (struct str){ NULL, 0 }), "");
    arena_done(&a);
    assert_int_equal(a.used, 0);
    assert_non_null(arena_alloc(&a, 60000));
    mem_fail_at(1);
    assert_null(arena_alloc(&a, 30000));
    mem_fail_at(0);
    assert_non_null(arena_alloc(&a, 30000));
}

/* Every byte given out is writable and nobody else's (ASan sees the rest). */
static void test_arena_many(void **state)
{
    auto_arena a;
    arena_init(&a, 4 * 1024 * 1024);
    unsigned char *p[2000];
    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        size_t n = 1 + i % 700;
        p[i] = arena_alloc(&a, n);
        assert_non_null(p[i]);
        memset(p[i], (int)(i % 251), n);
    }
    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        for (size_t k = 0; k < 1 + i % 700; k++)
            assert_int_equal(p[i][k], i % 251);
}

static void test_buf(void **state)
{
    auto_buf b;
    struct error e;
    buf_init(&b, 10);
    buf_z(&b, "12345");
    buf_ch(&b, '6');
    buf_fmt(&b, "%d", 789);
    assert_string_equal(b.p, "123456789");
    assert_int_equal(buf_check(&b, "it", &e), 0);
    buf_z(&b, "ab"); /* one too many */
    assert_true(b.failed);
    assert_string_equal(b.p, "123456789");
    buf_ch(&b, 'a'); /* would fit, but failed is for good */
    assert_int_equal(b.n, 9);
    assert_int_equal(buf_check(&b, "the answer", &e), -ERR_LIMIT);
    assert_non_null(strstr(e.text, "the answer"));
    assert_non_null(strstr(e.text, "10"));
    assert_null(buf_take(&b));
    buf_z(&b, "1234567890");
    assert_false(b.failed);
    buf_drop(&b, 4);
    assert_string_equal(b.p, "567890");
    buf_drop(&b, 99);
    assert_string_equal(b.p, "");
    buf_reset(&b);
    auto_free char *taken = buf_take(&b);
    assert_string_equal(taken, "");
    buf_add(&b, NULL, 0);
    assert_string_equal(b.p, "");
}

static void test_buf_memory(void **state)
{
    auto_buf b;
    buf_init(&b, 1000);
    mem_fail_at(1);
    buf_z(&b, "a");
    mem_fail_at(0);
    assert_true(b.failed);
    assert_null(b.p);
    buf_reset(&b);
    buf_z(&b, "a");
    mem_fail_at(1);
    for (int i = 0; i < 100; i++)
        buf_z(&b, "b");
    mem_fail_at(0);
    assert_true(b.failed);
    assert_string_equal(b.p, "abbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_at), cmocka_unit_test(test_steal),
        cmocka_unit_test(test_arena),   cmocka_unit_test(test_arena_many),
        cmocka_unit_test(test_buf),     cmocka_unit_test(test_buf_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
