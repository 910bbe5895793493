/* SPDX-License-Identifier: Apache-2.0 */
/* The hook against images that try to get out of their root. Each case runs with openat2 and with
 * the walk that stands in for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "elf/ldcache.h"
#include "hook/hook.h"
#include "hook/jsonscan.h"
#include "hook/root.h"
#include "place.h"

static void links_are_made_and_replaced(void **state)
{
    struct place *p = *state;
    struct error err;
    for (int walk = 0; walk < 2; walk++) {
        root_without_openat2(walk);
        place_shell("rm -rf %s/*; mkdir -p %s/usr/lib; echo old > %s/usr/lib/b", p->root, p->root,
                    p->root);
        struct hook_options o = place_link("../x.so.1::/usr/lib/deep/er/a");
        assert_int_equal(hook_create_symlinks(p->rootfd, &o, &err), 0);
        o = place_link("y::/usr/lib/b");
        assert_int_equal(hook_create_symlinks(p->rootfd, &o, &err), 0);
        assert_int_equal(hook_create_symlinks(p->rootfd, &o, &err), 0); /* twice is as once */
        char to[64] = { 0 };
        auto_free char *b = x_printf("%s/usr/lib/b", p->root);
        assert_int_equal(readlink(b, to, sizeof to - 1), 1);
        assert_string_equal(to, "y");
        assert_true(place_has(p, "/usr/lib/deep/er/a"));
        place_shell("test \"$(ls -A %s/usr/lib | wc -l)\" = 2",
                    p->root); /* nothing temporary is left */
    }
}

static void bad_links_are_refused(void **state)
{
    struct place *p = *state;
    struct error err;
    static const char *const bad[] = { "",     "a",     "a::",        "::b",
                                       "a::/", "a::..", "a::/x/../y", "a::/x/.." };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct hook_options o = place_link(bad[i]);
        assert_int_equal(hook_create_symlinks(p->rootfd, &o, &err), -ERR_INVALID);
    }
}

/* Images whose directories are links to somewhere else: everything lands inside the root. */
static void nothing_leaves_the_root(void **state)
{
    struct place *p = *state;
    const char *traps[] = {
        "ln -s %s %s/etc",                     /* an absolute host path */
        "ln -s ../../../../../../..%s %s/etc", /* a chain of ".." */
        "ln -s /proc/self/root%s %s/etc",      /* a magic link */
        "ln -s /proc/self/cwd%s %s/etc",
        "ln -s /proc/1/root%s %s/etc",
    };
    for (int walk = 0; walk < 2; walk++) {
        root_without_openat2(walk);
        for (size_t i = 0; i < ARRAY_LEN(traps); i++) {
            struct error err;
            place_shell("rm -rf %s/*", p->root);
            char command[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(command, sizeof command, traps[i], p->host, p->root);
#pragma GCC diagnostic pop
            assert_int_equal(system(command), 0);
            struct hook_options o = place_link("t::/etc/made");
            int r = hook_create_symlinks(p->rootfd, &o, &err);
            assert_true(r <= 0);
            o = place_folder("/drv");
            r = hook_update_ldcache(p->rootfd, &o, &err);
            assert_true(r <= 0);
            assert_true(place_host_untouched(p));
        }
    }
}

static void a_link_in_the_last_place_is_replaced_not_followed(void **state)
{
    struct place *p = *state;
    struct error err;
    for (int walk = 0; walk < 2; walk++) {
        root_without_openat2(walk);
        place_shell(
            "rm -rf %s/*; mkdir -p %s/etc %s/drv; ln -s %s/victim %s/etc/ld.so.cache; ln -s "
            "%s/victim2 %s/etc/ld.so.conf",
            p->root, p->root, p->root, p->host, p->root, p->host, p->root);
        struct hook_options o = place_folder("/drv");
        assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), 0);
        assert_true(place_host_untouched(p));
        struct stat st;
        auto_free char *cache = x_printf("%s/etc/ld.so.cache", p->root);
        assert_int_equal(lstat(cache, &st), 0);
        assert_true(S_ISREG(st.st_mode));
    }
}

static void loops_and_odd_files_end_in_errors(void **state)
{
    struct place *p = *state;
    struct error err;
    for (int walk = 0; walk < 2; walk++) {
        root_without_openat2(walk);
        place_shell("rm -rf %s/*; ln -s b %s/a; ln -s a %s/b; mkfifo %s/fifo", p->root, p->root,
                    p->root, p->root);
        struct hook_options o = place_link("t::/a/libcuda.so.1");
        assert_true(hook_create_symlinks(p->rootfd, &o, &err) < 0);
        int fd;
        assert_true(root_open(p->rootfd, "/a", O_RDONLY, 0, &fd, &err) < 0);
        char *text;
        assert_int_equal(hook_read(p->rootfd, "/fifo", 100, &text, NULL, &err), -ERR_INVALID);
    }
}

static void the_loaders_cache_names_the_drivers_libraries(void **state)
{
    struct place *p = *state;
    struct error err;
    place_shell(
        "mkdir -p %s/drv %s/etc && cp -L /lib/x86_64-linux-gnu/libc.so.6 %s/drv/libfoo.so.550.1 "
        "&& echo text > %s/drv/libbar.so "
        "&& ln -s /etc/passwd %s/drv/libout.so",
        p->root, p->root, p->root, p->root, p->root);
    struct hook_options o = place_folder("/drv");
    assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), 0);
    auto_free char *cache = x_printf("%s/etc/ld.so.cache", p->root);
    auto_free char *bytes = NULL;
    size_t n;
    assert_int_equal(file_read(cache, LDCACHE_MAX, &bytes, &n, &err), 0);
    auto_arena arena;
    arena_init(&arena, 1 << 20);
    struct ldcache c;
    assert_int_equal(ldcache_parse(&arena, (struct str){ bytes, n }, &c, &err), 0);
    assert_int_equal(c.n, 1);
    assert_string_equal(c.entries[0].soname, "libc.so.6");
    assert_string_equal(c.entries[0].path, "/drv/libc.so.6");
    assert_true(place_has(p, "/drv/libc.so.6")); /* the SONAME link */
    assert_true(place_has(p, "/etc/ld.so.conf.d/00-nvcr-mete.conf"));
}

static void compat_is_taken_only_when_newer(void **state)
{
    struct place *p = *state;
    struct error err;
    static const struct {
        const char *file, *host;
        bool taken;
    } cases[] = {
        { "libcuda.so.560.1", "550.163.01", true },  { "libcuda.so.550.1", "550.163.01", false },
        { "libcuda.so.535.1", "550.163.01", false }, { "libcuda.so.1", "550.163.01", false },
        { "libcuda.so.560.1", "", false },           { "libcuda.so.560.1", "not-a-version", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        place_shell(
            "rm -rf %s/*; mkdir -p %s/usr/local/cuda/compat; touch %s/usr/local/cuda/compat/%s",
            p->root, p->root, p->root, cases[i].file);
        struct hook_options o = { .host_driver_version = cases[i].host };
        assert_int_equal(hook_enable_cuda_compat(p->rootfd, &o, &err), 0);
        auto_free char *command =
            x_printf("ls %s/etc/ld.so.conf.d/00-compat-*.conf >/dev/null 2>&1", p->root);
        assert_int_equal(system(command) == 0, cases[i].taken);
    }
}

static void mode_is_changed_inside_only(void **state)
{
    struct place *p = *state;
    struct error err;
    place_shell("touch %s/file; mkdir -p %s/d; chmod 600 %s/file; ln -s /file %s/link; ln -s "
                "../../../..%s %s/out",
                p->root, p->root, p->root, p->root, p->host, p->root);
    struct hook_options o = { .mode = "755" };
    o.paths.items[o.paths.n++] = "/link";
    assert_int_equal(hook_chmod(p->rootfd, &o, &err), 0);
    struct stat st;
    auto_free char *file = x_printf("%s/file", p->root);
    stat(file, &st);
    assert_int_equal(st.st_mode & 07777, 0755);
    stat(p->host, &st);
    mode_t before = st.st_mode;
    o.mode = "000";
    o.paths.items[0] = "/out";
    assert_int_equal(hook_chmod(p->rootfd, &o, &err),
                     0); /* nothing of that name in the container */
    stat(p->host, &st);
    assert_int_equal(st.st_mode, before);
    static const char *const bad[] = { "", "8", "77777", "-1", "0x1", "7 " };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        o.mode = bad[i];
        assert_int_equal(hook_chmod(p->rootfd, &o, &err), -ERR_INVALID);
    }
}

struct swapper {
    const struct place *p;
    atomic_bool end;
};

static void *swap(void *arg)
{
    struct swapper *s = arg;
    auto_free char *a = x_printf("%s/lib", s->p->root), *b = x_printf("%s/lib2", s->p->root);
    while (!atomic_load(&s->end))
        renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
    return NULL;
}

/* A second thread swaps a directory with a link to the host all the time. */
static void a_race_does_not_get_out(void **state)
{
    struct place *p = *state;
    for (int walk = 0; walk < 2; walk++) {
        root_without_openat2(walk);
        place_shell("rm -rf %s/*; mkdir -p %s/lib; ln -s ../../../../../../../..%s %s/lib2",
                    p->root, p->root, p->host, p->root);
        struct swapper s = { .p = p };
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, swap, &s), 0);
        for (int i = 0; i < 2000; i++) {
            struct error err;
            struct hook_options o = place_link("t::/lib/sub/made");
            int r = hook_create_symlinks(p->rootfd, &o, &err);
            assert_true(r <= 0);
        }
        atomic_store(&s.end, true);
        pthread_join(t, NULL);
        assert_true(place_host_untouched(p));
    }
}

static void state_tells_the_root(void **state)
{
    struct place *p = *state;
    struct error err;
    static const struct {
        const char *text; /* %s: the place's directory */
        bool ok;
    } cases[] = {
        { "{\"ociVersion\":\"1.2\",\"id\":\"x\",\"bundle\":\"%s\"}", true },
        { "{\"bundle\":\"/nowhere\",\"root\":\"%s/root\"}", true },
        { "{\"annotations\":{\"bundle\":\"}{\"},\"bundle\":\"%s\"}", true },
        { "{\"bundle\":\"%s", false },
        { "{}%.0s", false },
        { "[]%.0s", false },
        { "{\"bundle\":7}%.0s", false },
        { "{\"root\":\"relative\"}%.0s", false },
        { "{\"root\":\"root\",\"bundle\":\"%s\"}", true }, /* as crun tells it */
        { "{\"root\":\"root\",\"bundle\":\"tmp\"}%.0s", false },
        { "{\"root\":\"\",\"bundle\":\"\"}%.0s", false },
    };
    place_shell(
        "echo '{\"process\":{\"args\":[\"root\"]},\"root\":{\"readonly\":true,\"path\":\"root\"}}' "
        "> %s/config.json",
        p->dir);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *file = x_printf("%s/state", p->dir);
        FILE *f = fopen(file, "w");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        fprintf(f, cases[i].text, p->dir);
#pragma GCC diagnostic pop
        fclose(f);
        int fd = open(file, O_RDONLY | O_CLOEXEC), rootfd = -1;
        int r = hook_open_container(fd, &rootfd, &err);
        close(fd);
        assert_int_equal(r == 0, cases[i].ok);
        if (rootfd >= 0) {
            struct stat a, b;
            fstat(rootfd, &a);
            fstat(p->rootfd, &b);
            assert_true(a.st_ino == b.st_ino);
            close(rootfd);
        }
    }
}

static void json_texts_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *doc, *want; /* want NULL: an error */
    } cases[] = {
        { "{\"a\":{\"b\":\"x\"}}", "x" },
        { " { \"z\" : [1,{\"a\":2}] , \"a\" : { \"b\" : \"y\" } } ", "y" },
        { "{\"a\":{\"b\":\"\\u00e9\\ud83d\\ude00\\n\"}}", "\xC3\xA9\xF0\x9F\x98\x80\n" },
        { "{\"a\":{\"b\":\"\\ud800\"}}", "\xEF\xBF\xBD" },
        { "{\"a\":{\"b\":\"\\u0000\"}}", NULL },
        { "{\"a\":{\"b\":1}}", NULL },
        { "{\"a\":{}}", NULL },
        { "{\"a\":\"b\"}", NULL },
        { "{\"x\":]}", NULL },
        { "{\"x\":\"unended", NULL },
        { "{\"a\":{\"b\":\"123456789012345678901234567890123\"}}", NULL },
        { "", NULL },
    };
    static const char *const path[] = { "a", "b", NULL };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        char got[32];
        int r = jsonscan_text(str_of(cases[i].doc), path, got, sizeof got, &err);
        assert_int_equal(r == 0, cases[i].want != NULL);
        if (r == 0)
            assert_string_equal(got, cases[i].want);
    }
    struct error err;
    char got[32], deep[1000];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"x\":", 5);
    assert_int_equal(jsonscan_text((struct str){ deep, sizeof deep }, path, got, sizeof got, &err),
                     -ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(links_are_made_and_replaced, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(bad_links_are_refused, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(nothing_leaves_the_root, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(a_link_in_the_last_place_is_replaced_not_followed,
                                        place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(loops_and_odd_files_end_in_errors, place_set_up,
                                        place_tear_down),
        cmocka_unit_test_setup_teardown(the_loaders_cache_names_the_drivers_libraries, place_set_up,
                                        place_tear_down),
        cmocka_unit_test_setup_teardown(compat_is_taken_only_when_newer, place_set_up,
                                        place_tear_down),
        cmocka_unit_test_setup_teardown(mode_is_changed_inside_only, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(a_race_does_not_get_out, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(state_tells_the_root, place_set_up, place_tear_down),
        cmocka_unit_test(json_texts_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
