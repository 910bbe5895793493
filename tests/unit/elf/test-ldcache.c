/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "elf/elffile.h"
#include "elf/ldcache.h"

enum { ARENA = 64 * 1024 * 1024 };

static void write_cache(struct ldcache *c, struct buf *out)
{
    struct error err;
    buf_init(out, LDCACHE_MAX);
    assert_int_equal(ldcache_write(c, out, &err), 0);
}

static void names_compare_as_the_loader_does(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int sign;
    } cases[] = {
        { "libc.so.6", "libc.so.6", 0 },
        { "libc.so.6", "libc.so.10", -1 },
        { "libc.so.06", "libc.so.6", 0 },
        { "liba.so", "libb.so", -1 },
        { "lib1.so", "liba.so", 1 },
        { "libx.so.1", "libx.so", 1 },
        { "libx.so.1.2", "libx.so.1.10", -1 },
        { "libx.so.99999999999999999999999", "libx.so.7", 1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int r = ldcache_compare_names(cases[i].a, cases[i].b);
        assert_int_equal((r > 0) - (r < 0), cases[i].sign);
        r = ldcache_compare_names(cases[i].b, cases[i].a);
        assert_int_equal((r > 0) - (r < 0), -cases[i].sign);
    }
}

static void written_cache_reads_back(void **state)
{
    (void)state;
    struct ldcache_entry entries[] = {
        { "libcuda.so.1", "/drv/libcuda.so.1", LDCACHE_X86_64, 0 },
        { "libz.so.1", "/lib/libz.so.1", LDCACHE_X86_64, 0 },
        { "libcuda.so.1", "/image/libcuda.so.1", LDCACHE_X86_64, 0 },
        { "libz.so.1", "/lib32/libz.so.1", LDCACHE_I386, 0 },
        { "libm.so.6", "/v3/libm.so.6", LDCACHE_X86_64, (1ULL << 62) | 0 },
        { "libm.so.6", "/lib/libm.so.6", LDCACHE_X86_64, 0 },
    };
    struct ldcache c = { .entries = entries, .n = ARRAY_LEN(entries), .n_hwcaps = 1 };
    c.hwcaps[0] = STR("x86-64-v3");
    auto_buf out;
    write_cache(&c, &out);

    struct error err;
    auto_arena arena;
    arena_init(&arena, ARENA);
    struct ldcache back;
    assert_int_equal(ldcache_parse(&arena, buf_view(&out), &back, &err), 0);
    assert_int_equal(back.n, 5); /* the second libcuda.so.1 is gone */
    assert_string_equal(ldcache_find(&back, "libcuda.so.1", LDCACHE_X86_64)->path,
                        "/drv/libcuda.so.1");
    assert_string_equal(ldcache_find(&back, "libm.so.6", LDCACHE_X86_64)->path, "/lib/libm.so.6");
    assert_string_equal(ldcache_find(&back, "libz.so.1", LDCACHE_I386)->path, "/lib32/libz.so.1");
    assert_null(ldcache_find(&back, "libcuda.so", LDCACHE_X86_64));
    assert_int_equal(back.n_hwcaps, 1);
    assert_true(str_is(back.hwcaps[0], "x86-64-v3"));
    for (size_t i = 1; i < back.n; i++)
        assert_true(ldcache_compare_names(back.entries[i - 1].soname, back.entries[i].soname) >= 0);
}

/* Every prefix and every changed byte of a good cache is refused or read, never more than that. */
static void damaged_caches_are_survived(void **state)
{
    (void)state;
    struct ldcache_entry entries[] = {
        { "liba.so.1", "/a/liba.so.1", LDCACHE_X86_64, 0 },
        { "libb.so.1", "/b/libb.so.1", LDCACHE_X86_64, 0 },
    };
    struct ldcache c = { .entries = entries, .n = 2, .n_hwcaps = 1 };
    c.hwcaps[0] = STR("x86-64-v2");
    auto_buf out;
    write_cache(&c, &out);
    for (size_t n = 0; n < out.n; n++) {
        struct error err;
        auto_arena arena;
        arena_init(&arena, ARENA);
        auto_free char *copy = x_alloc(n ? n : 1);
        memcpy(copy, out.p, n);
        struct ldcache back;
        int r = ldcache_parse(&arena, (struct str){ copy, n }, &back, &err);
        if (r < 0)
            assert_true(err.text[0] != '\0');
    }
    for (size_t at = 0; at < out.n; at++) {
        for (int bit = 0; bit < 8; bit++) {
            struct error err;
            auto_arena arena;
            arena_init(&arena, ARENA);
            out.p[at] ^= (char)(1 << bit);
            struct ldcache back;
            int r = ldcache_parse(&arena, buf_view(&out), &back, &err);
            assert_true(r <= 0);
            out.p[at] ^= (char)(1 << bit);
        }
    }
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    struct ldcache_entry entries[] = { { "liba.so.1", "/a/liba.so.1", LDCACHE_X86_64, 0 } };
    struct ldcache c = { .entries = entries, .n = 1 };
    auto_buf out;
    write_cache(&c, &out);
    for (uint64_t k = 1;; k++) {
        struct error err;
        auto_arena arena;
        arena_init(&arena, ARENA);
        auto_buf again;
        buf_init(&again, LDCACHE_MAX);
        struct ldcache back;
        mem_fail_at(k);
        int r = ldcache_parse(&arena, buf_view(&out), &back, &err);
        if (r == 0)
            r = ldcache_write(&back, &again, &err);
        mem_fail_at(0);
        if (r == 0)
            break;
        assert_int_equal(r, -ERR_LIMIT);
        assert_true(k < 100);
    }
}

static bool lists(const char *listing, const char *soname, const char *path)
{
    auto_free char *want = x_printf("\t%s (libc6,x86-64) => %s\n", soname, path);
    return strstr(listing, want) != NULL;
}

/* glibc's own reader is the judge. */
static void ldconfig_reads_what_we_write(void **state)
{
    (void)state;
    if (access("/sbin/ldconfig", X_OK) != 0 || access("/etc/ld.so.cache", R_OK) != 0)
        skip();
    struct error err;
    auto_free char *bytes = NULL;
    size_t n = 0;
    assert_int_equal(file_read("/etc/ld.so.cache", LDCACHE_MAX, &bytes, &n, &err), 0);
    auto_arena arena;
    arena_init(&arena, ARENA);
    struct ldcache c;
    assert_int_equal(ldcache_parse(&arena, (struct str){ bytes, n }, &c, &err), 0);
    struct ldcache_entry *more = x_alloc((c.n + 1) * sizeof *more);
    more[0] = (struct ldcache_entry){ "libmete-test.so.1", "/nowhere/libmete-test.so.1",
                                      LDCACHE_X86_64, 0 };
    memcpy(more + 1, c.entries, c.n * sizeof *more);
    c.entries = more;
    c.n++;
    auto_buf out;
    write_cache(&c, &out);
    char name[] = "/tmp/mete-ldcache-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, out.p, out.n), (ssize_t)out.n);
    close(fd);
    auto_free char *command = x_printf("/sbin/ldconfig -p -C %s", name);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    char *listing = x_alloc(4 * 1024 * 1024);
    size_t got = fread(listing, 1, 4 * 1024 * 1024 - 1, p);
    listing[got] = '\0';
    assert_int_equal(pclose(p), 0);
    unlink(name);
    assert_true(lists(listing, "libmete-test.so.1", "/nowhere/libmete-test.so.1"));
    const struct ldcache_entry *libc = ldcache_find(&c, "libc.so.6", LDCACHE_X86_64);
    assert_non_null(libc);
    assert_non_null(strstr(listing, libc->path));
    free(listing);
    free(more);
}

struct seen {
    size_t n, stop;
    char last[64];
};

static bool see(void *arg, const struct ldcache_entry *e)
{
    struct seen *s = arg;
    snprintf(s->last, sizeof s->last, "%s %s", e->soname, e->path);
    return ++s->n != s->stop;
}

static void entries_one_by_one(void **state)
{
    (void)state;
    struct ldcache_entry e[] = { { "liba.so.1", "/a/liba.so.1", LDCACHE_X86_64, 0 },
                                 { "libb.so.1", "/b/libb.so.1", LDCACHE_X86_64, 0 } };
    struct ldcache c = { .entries = e, .n = 2 };
    auto_buf bytes;
    struct error err;
    write_cache(&c, &bytes);
    struct seen all = { 0 }, first = { .stop = 1 };
    assert_int_equal(ldcache_each(buf_view(&bytes), see, &all, &err), 0);
    assert_int_equal(all.n, 2);
    assert_string_equal(all.last, "liba.so.1 /a/liba.so.1"); /* the loader's order: falling */
    assert_int_equal(ldcache_each(buf_view(&bytes), see, &first, &err), 0);
    assert_string_equal(first.last, "libb.so.1 /b/libb.so.1");
    assert_int_equal(ldcache_each((struct str){ bytes.p, 47 }, see, &all, &err), -ERR_INVALID);
}

/* Thousands of entries that all name the same long text must not cost time. */
static void overlapping_texts(void **state)
{
    (void)state;
    enum { N = 60000, TEXT = 8 * 1024 * 1024, HEAD = 48 + 24 * N };
    auto_free char *bytes = x_alloc(HEAD + TEXT);
    auto_arena a;
    struct ldcache c;
    struct error err;
    memcpy(bytes, "glibc-ld.so.cache1.1", 20);
    uint32_t n = N, at = HEAD;
    memcpy(bytes + 20, &n, 4);
    bytes[28] = 2;
    for (size_t i = 0; i < N; i++) {
        memcpy(bytes + 48 + 24 * i + 4, &at, 4);
        memcpy(bytes + 48 + 24 * i + 8, &at, 4);
    }
    memset(bytes + HEAD, 'x', TEXT - 1);
    arena_init(&a, ARENA);
    assert_int_equal(ldcache_parse(&a, (struct str){ bytes, HEAD + TEXT }, &c, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "4096"));
}

static void elf_facts_of_real_and_broken_files(void **state)
{
    (void)state;
    struct error err;
    struct elf_facts f;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(elf_read(fd, &f, &err), 0);
    assert_true(f.is64 == (sizeof(void *) == 8));
    assert_string_equal(f.soname, "");
    /* Each prefix of our own file: read or refused. */
    static char head[8192];
    ssize_t n = pread(fd, head, sizeof head, 0);
    close(fd);
    for (ssize_t cut = 0; cut < n; cut += 7) {
        char name[] = "/tmp/mete-elf-XXXXXX";
        int t = mkstemp(name);
        assert_true(t >= 0);
        assert_int_equal(write(t, head, (size_t)cut), cut);
        int r = elf_read(t, &f, &err);
        assert_true(r <= 0);
        if (cut < 64)
            assert_int_equal(r, -ERR_INVALID);
        close(t);
        unlink(name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_compare_as_the_loader_does),
        cmocka_unit_test(written_cache_reads_back),
        cmocka_unit_test(damaged_caches_are_survived),
        cmocka_unit_test(every_failed_allocation_is_an_error),
        cmocka_unit_test(ldconfig_reads_what_we_write),
        cmocka_unit_test(entries_one_by_one),
        cmocka_unit_test(overlapping_texts),
        cmocka_unit_test(elf_facts_of_real_and_broken_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
