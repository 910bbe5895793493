/* SPDX-License-Identifier: Apache-2.0 */
/* Images that hold odd things where the hook looks: device nodes, pipes, huge directories, files in
 * the way. */
#include "place.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "elf/ldcache.h"
#include "hook/root.h"

/* The number of a watched file that was opened, or -1. (A file that is replaced tells so too.) */
static int opened(int watch)
{
    char events[8192];
    ssize_t n = read(watch, events, sizeof events);
    for (ssize_t at = 0; at < n;) {
        struct inotify_event e;
        memcpy(&e, events + at, sizeof e);
        if (e.mask & IN_OPEN)
            return e.wd;
        at += (ssize_t)(sizeof e + e.len);
    }
    return -1;
}

/* Opening a device acts by itself (a watchdog starts to run, a tape rewinds). Every place where the
 * hook reads a file of the image holds a device node or a pipe here, and is watched. */
static void devices_and_pipes_are_never_opened(void **state)
{
    struct place *p = *state;
    static const char *const places[] = { "/etc/ld.so.cache", "/drv/libfoo.so.1",
                                          "/usr/local/cuda/compat/libcuda.so.999.1",
                                          "/etc/ld.so.conf.d/00-compat-x.conf",
                                          "/etc/ld-musl-x86_64.path" };
    if (geteuid() != 0)
        skip();
    for (int walk = 0; walk < 2; walk++)
        for (int pipe = 0; pipe < 2; pipe++) {
            struct hook_options o = place_folder("/drv");
            struct error err;
            root_without_openat2(walk);
            place_shell("rm -rf %s/*; mkdir -p %s/etc/ld.so.conf.d %s/drv %s/usr/local/cuda/compat "
                        "%s/lib; touch "
                        "%s/lib/ld-musl-x86_64.so.1",
                        p->root, p->root, p->root, p->root, p->root, p->root);
            int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
            assert_true(watch >= 0);
            for (size_t i = 0; i < ARRAY_LEN(places); i++) {
                auto_free char *path = x_printf("%s%s", p->root, places[i]);
                assert_int_equal(
                    mknod(path, pipe ? S_IFIFO | 0666 : S_IFCHR | 0666, pipe ? 0 : makedev(1, 3)),
                    0);
                assert_true(inotify_add_watch(watch, path, IN_OPEN) >= 0);
            }
            o.host_driver_version = "550.1";
            assert_int_equal(hook_enable_cuda_compat(p->rootfd, &o, &err), 0);
            assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), 0);
            assert_int_equal(hook_create_soname_symlinks(p->rootfd, &o, &err), 0);
            assert_int_equal(opened(watch), -1);
            close(watch);
        }
}

static void files_in_the_way_of_links(void **state)
{
    struct place *p = *state;
    struct error err;
    static const struct {
        const char *before, *link, *to; /* `to`: where it points afterwards; NULL: no link */
        bool ok;
    } cases[] = {
        /* a graphics link with another target (toolkit #772) */
        { "ln -s libGLX_mesa.so.0 usr/lib/libGLX_indirect.so.0",
          "libGLX_nvidia.so.535.1::/usr/lib/libGLX_indirect.so.0", "libGLX_nvidia.so.535.1", true },
        { "mkdir usr/lib/libGLX_indirect.so.0", "x::/usr/lib/libGLX_indirect.so.0", NULL, true },
        { "mkdir usr/lib/libcuda.so.1", "x::/usr/lib/libcuda.so.1", NULL,
          true }, /* something is there */
        { "ln -s nowhere usr/lib/d", "x::/usr/lib/d/libcuda.so.1", NULL, false },
        { "touch usr/lib/f", "x::/usr/lib/f/libcuda.so.1", NULL, false },
        { "touch usr/lib/f", "x::/usr/lib/f/libEGL.so", NULL, true },
        { "echo real > usr/lib/libcuda.so", "libcuda.so.1::/usr/lib/libcuda.so", "libcuda.so.1",
          true },
        { "true", "libcuda.so.1::/opt/new/libcuda.so", "libcuda.so.1", true },
        { "true", "../../../../../../../../etc/passwd::/usr/lib/x",
          "../../../../../../../../etc/passwd", true },
    };
    for (int walk = 0; walk < 2; walk++)
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            root_without_openat2(walk);
            place_shell("rm -rf %s/*; mkdir -p %s/usr/lib; cd %s && %s", p->root, p->root, p->root,
                        cases[i].before);
            struct hook_options o = place_link(cases[i].link);
            int r = hook_create_symlinks(p->rootfd, &o, &err);
            if ((r == 0) != cases[i].ok)
                fail_msg("case %zu: %d", i, r);
            char got[256] = { 0 };
            auto_free char *path = x_printf("%s%s", p->root, strstr(cases[i].link, "::") + 2);
            ssize_t n = readlink(path, got, sizeof got - 1);
            assert_int_equal(n >= 0, cases[i].to != NULL);
            if (n >= 0)
                assert_string_equal(got, cases[i].to);
            assert_true(place_host_untouched(p));
        }
}

/* Images without any configuration of a loader: distroless, busybox (toolkit #1326, #1471). */
static void an_empty_image_gets_what_a_loader_needs(void **state)
{
    struct place *p = *state;
    struct error err;
    place_shell("mkdir -p %s/drv; cp -L /lib/*-linux-gnu/libc.so.6 %s/drv/libcuda.so.550.1",
                p->root, p->root);
    struct hook_options o = place_folder("/drv");
    assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), 0);
    auto_free char *conf = place_read(p, "/etc/ld.so.conf"),
                   *dropin = place_read(p, "/etc/ld.so.conf.d/00-nvcr-mete.conf");
    assert_string_equal(conf, "include /etc/ld.so.conf.d/*.conf\n");
    assert_string_equal(dropin, "/drv\n");
    assert_true(place_has(p, "/etc/ld.so.cache"));
}

static void a_configured_image_keeps_its_configuration(void **state)
{
    struct place *p = *state;
    struct error err;
    place_shell("mkdir -p %s/etc; echo /opt/own > %s/etc/ld.so.conf", p->root, p->root);
    struct hook_options o = place_folder("/usr/lib");
    assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), 0);
    auto_free char *conf = place_read(p, "/etc/ld.so.conf"),
                   *dropin = place_read(p, "/etc/ld.so.conf.d/zz-nvcr-mete.conf");
    assert_string_equal(conf, "/opt/own\n");
    assert_string_equal(dropin, "/usr/lib\n"); /* a folder of the system goes last */
}

static void musl_gets_its_path_once(void **state)
{
    struct place *p = *state;
    struct error err;
    place_shell("mkdir -p %s/lib; touch %s/lib/ld-musl-x86_64.so.1", p->root, p->root);
    struct hook_options o = place_folder("/drv");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), 0);
        auto_free char *text = place_read(p, "/etc/ld-musl-x86_64.path");
        assert_string_equal(text, "/lib:/usr/local/lib:/usr/lib\n/drv\n");
    }
}

/* The newest of several files with one SONAME; a link that the image has is left alone. */
static void of_several_versions_the_newest_is_named(void **state)
{
    struct place *p = *state;
    struct error err;
    place_shell("mkdir -p %s/drv; cd %s/drv; cp -L /lib/*-linux-gnu/libc.so.6 libx.so.9.1; cp "
                "libx.so.9.1 libx.so.10.1; "
                "cp libx.so.9.1 libx.so.8",
                p->root, p->root);
    struct hook_options o = place_folder("/drv");
    assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), 0);
    char got[64] = { 0 };
    auto_free char *link = x_printf("%s/drv/libc.so.6", p->root);
    assert_true(readlink(link, got, sizeof got - 1) > 0);
    assert_string_equal(got, "libx.so.10.1");
}

static void huge_directories_end_in_an_error(void **state)
{
    struct place *p = *state;
    struct error err;
    place_shell("mkdir -p %s/drv; cd %s/drv; seq -f lib%%g.so 9000 | xargs touch", p->root,
                p->root);
    struct hook_options o = place_folder("/drv");
    assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), -ERR_LIMIT);
    assert_false(place_has(p, "/etc/ld.so.cache")); /* nothing half done */
    /* the same by way of a drop-in that the image brought along */
    place_shell("mkdir -p %s/etc/ld.so.conf.d; echo /drv > %s/etc/ld.so.conf.d/00-compat-x.conf",
                p->root, p->root);
    o = place_folder("/other");
    assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), -ERR_LIMIT);
    place_shell("mkdir -p %s/dev; cd %s/dev; seq -f nvidia%%g 2000 | xargs touch", p->root,
                p->root);
    assert_int_equal(hook_update_application_profile(p->rootfd, &o, &err), 0);
    assert_false(place_has(p, "/etc/nvidia"));
}

/* Caches that an image made up: a wrong one counts as none. */
static void a_made_up_cache_is_replaced(void **state)
{
    struct place *p = *state;
    struct error err;
    static const struct {
        const char *bytes;
        size_t n;
    } caches[] = {
        { "", 0 },
        { "glibc-ld.so.cache1.1", 20 },
        { "glibc-ld.so.cache1."
          "1\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
          48 },
        { "ld.so-1.7.0\0\xFF\xFF\xFF\xFF", 16 },
    };
    for (size_t i = 0; i < ARRAY_LEN(caches); i++) {
        place_shell("mkdir -p %s/etc", p->root);
        auto_free char *path = x_printf("%s/etc/ld.so.cache", p->root), *bytes = NULL;
        FILE *f = fopen(path, "w");
        fwrite(caches[i].bytes, 1, caches[i].n, f);
        fclose(f);
        struct hook_options o = place_folder("/drv");
        assert_int_equal(hook_update_ldcache(p->rootfd, &o, &err), 0);
        size_t n;
        auto_arena a;
        struct ldcache c;
        arena_init(&a, 1 << 20);
        assert_int_equal(file_read(path, LDCACHE_MAX, &bytes, &n, &err), 0);
        assert_int_equal(ldcache_parse(&a, (struct str){ bytes, n }, &c, &err), 0);
        assert_int_equal(c.n, 0);
    }
}

static void the_graphics_profile_names_the_containers_gpus(void **state)
{
    struct place *p = *state;
    struct error err;
    struct hook_options o = { 0 };
    if (geteuid() != 0)
        skip();
    assert_int_equal(hook_update_application_profile(p->rootfd, &o, &err), 0); /* no /dev */
    place_shell("mkdir -p %s/dev; cd %s/dev; mknod nvidia3 c 195 3; mknod nvidia0 c 195 0; mknod "
                "nvidiactl c 195 255; "
                "mknod nvidia7 c 1 3; touch nvidia1; ln -s nvidia0 nvidia2; mknod nvidia9 c 195 64",
                p->root, p->root);
    assert_int_equal(hook_update_application_profile(p->rootfd, &o, &err), 0);
    auto_free char *text =
        place_read(p, "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf");
    assert_string_equal(
        text,
        "{\"profiles\":[{\"name\":\"_container_\",\"settings\":[\"EGLVisibleDGPUDevices\",9]}],"
        "\"rules\":[{\"pattern\":[],\"profile\":\"_container_\"}]}\n");
    /* nothing that an image does here stops a container */
    place_shell("rm -rf %s/etc; ln -s %s %s/etc", p->root, p->host, p->root);
    assert_int_equal(hook_update_application_profile(p->rootfd, &o, &err), 0);
    assert_true(place_host_untouched(p));
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, place_set_up, place_tear_down)
    const struct CMUnitTest tests[] = {
        IN_PLACE(devices_and_pipes_are_never_opened),
        IN_PLACE(files_in_the_way_of_links),
        IN_PLACE(an_empty_image_gets_what_a_loader_needs),
        IN_PLACE(a_configured_image_keeps_its_configuration),
        IN_PLACE(musl_gets_its_path_once),
        IN_PLACE(of_several_versions_the_newest_is_named),
        IN_PLACE(huge_directories_end_in_an_error),
        IN_PLACE(a_made_up_cache_is_replaced),
        IN_PLACE(the_graphics_profile_names_the_containers_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
