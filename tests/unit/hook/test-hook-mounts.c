/* SPDX-License-Identifier: Apache-2.0 */
/* What the hook does with mounts, in a mount namespace of the test's own: the driver's params, the
 * driver's libraries as CDI mounts them, roots that cannot be written. */
#include "place.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "elf/ldcache.h"
#include "hook/root.h"

/* In the child a failed assertion must end it. */
#define MUST(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static const char before[] = "ResmanDebugLevel: 1\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n",
                  after[] = "ResmanDebugLevel: 1\nModifyDeviceFiles: 0\nDeviceFileMode: 438\n";
static const char params[] = "/proc/driver/nvidia/params";

static void make_dirs(const char *path)
{
    MUST(dir_make(path, 0755, NULL) == 0);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    MUST(f && fwrite(text, 1, strlen(text), f) == strlen(text));
    fclose(f);
}

/* The container's proc (a tmpfs stands for it) and the host's. */
static void put_params(struct place *p, const char *text)
{
    auto_free char *proc = x_printf("%s/proc", p->root),
                   *dir = x_printf("%s/proc/driver/nvidia", p->root),
                   *file = x_printf("%s%s", p->root, params),
                   *hdir = x_printf("%s/driver/nvidia", p->host),
                   *hfile = x_printf("%s/driver/nvidia/params", p->host);
    make_dirs(proc);
    MUST(mount("none", proc, "tmpfs", 0, NULL) == 0);
    make_dirs(dir);
    put(file, text);
    make_dirs(hdir);
    put(hfile, text);
}

static bool reads(const struct place *p, const char *text)
{
    auto_free char *got = place_read(p, params);
    return got && strcmp(got, text) == 0;
}

static size_t mounts_below(const char *dir)
{
    auto_free char *text = NULL;
    size_t n = 0;
    MUST(file_read("/proc/self/mountinfo", 1 << 20, &text, NULL, NULL) == 0);
    for (const char *at = text; (at = strstr(at, dir)); at++)
        n++;
    return n;
}

static struct hook_options with_host(struct place *p, bool old)
{
    return (struct hook_options){ .proc_root = p->host, .old_kernel = old };
}

static void cover(struct place *p, bool old)
{
    struct error err = { 0 };
    struct hook_options o = with_host(p, old);
    auto_free char *file = x_printf("%s%s", p->root, params);
    put_params(p, before);
    size_t n = mounts_below(p->root);
    int r = hook_disable_device_node_modification(p->rootfd, &o, &err);
    if (r < 0)
        fprintf(stderr, "%s\n", err.text);
    MUST(r == 0 && reads(p, after));
    MUST(mounts_below(p->root) == n + 1);
    /* root in the container cannot write it, not even after a change of mode */
    int changed = chmod(file, 0666);
    MUST(changed < 0 && open(file, O_WRONLY | O_CLOEXEC) < 0);
    struct stat st;
    auto_free char *dir = x_printf("%s/proc/driver/nvidia", p->root);
    MUST(stat(file, &st) == 0 && (st.st_mode & 07777) == 0444);
    MUST(stat(dir, &st) == 0);
    /* a second run finds it done */
    MUST(hook_disable_device_node_modification(p->rootfd, &o, &err) == 0 && reads(p, after));
}

static void cover_new(struct place *p)
{
    cover(p, false);
}

static void cover_old(struct place *p)
{
    cover(p, true);
}

static void params_are_covered(void **state)
{
    place_in_namespace(state, cover_new);
}

static void params_are_covered_on_old_kernels(void **state)
{
    place_in_namespace(state, cover_old);
}

/* The container's proc is shared with another namespace, as with rshared propagation: what is
 * mounted must not appear there. */
static void cover_shared(struct place *p)
{
    auto_free char *proc = x_printf("%s/proc", p->root);
    put_params(p, before);
    MUST(mount(NULL, proc, NULL, MS_SHARED, NULL) == 0);
    for (int old = 0; old < 2; old++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct hook_options o = with_host(p, old);
            struct error err;
            MUST(unshare(CLONE_NEWNS) == 0);
            int rootfd = open(p->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            MUST(hook_disable_device_node_modification(rootfd, &o, &err) == 0);
            MUST(reads(p, after));
            _exit(0);
        }
        int status;
        MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        MUST(reads(p, before));
    }
}

static void nothing_spreads_to_other_namespaces(void **state)
{
    place_in_namespace(state, cover_shared);
}

/* ---- when there is nothing to do ---- */

static void leave_alone(struct place *p)
{
    static const char *const texts[] = { "ModifyDeviceFiles: 0\n", " ModifyDeviceFiles: 1\n",
                                         "ModifyDeviceFiles: 1 \n", "ModifyDeviceFiles: 11\n", "" };
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct hook_options o = with_host(p, false);
        put_params(p, texts[i]);
        size_t n = mounts_below(p->root);
        MUST(hook_disable_device_node_modification(p->rootfd, &o, &err) == 0);
        MUST(reads(p, texts[i]) && mounts_below(p->root) == n);
    }
}

static void params_that_need_no_change_are_left_alone(void **state)
{
    place_in_namespace(state, leave_alone);
}

/* An image without a proc, but with a file of that name; with links; without anything. */
static void leave_images_alone(struct place *p)
{
    struct error err;
    struct hook_options o = with_host(p, false);
    put_params(p, before);
    auto_free char *proc = x_printf("%s/proc", p->root),
                   *dir = x_printf("%s/proc/driver/nvidia", p->root),
                   *file = x_printf("%s%s", p->root, params),
                   *out = x_printf("%s/driver/nvidia/params", p->host);
    MUST(umount2(proc, MNT_DETACH) == 0);
    MUST(hook_disable_device_node_modification(p->rootfd, &o, &err) == 0); /* nothing there */
    make_dirs(dir);
    put(file, before);
    MUST(hook_disable_device_node_modification(p->rootfd, &o, &err) == 0);
    MUST(reads(p, before));
    MUST(unlink(file) == 0 && symlink(out, file) == 0);
    MUST(hook_disable_device_node_modification(p->rootfd, &o, &err) == 0);
    auto_free char *host = NULL;
    MUST(file_read(out, 4096, &host, NULL, NULL) == 0 && strcmp(host, before) == 0);
    MUST(mounts_below(p->host) == 0);
}

static void images_with_a_proc_of_their_own_get_nothing(void **state)
{
    place_in_namespace(state, leave_images_alone);
}

static void params_too_large_or_absent(void **state)
{
    struct place *p = *state;
    struct error err;
    struct hook_options o = with_host(p, false);
    assert_int_equal(hook_disable_device_node_modification(p->rootfd, &o, &err), 0);
    place_shell("mkdir -p %s/driver/nvidia; head -c 70000 /dev/zero > %s/driver/nvidia/params",
                p->host, p->host);
    assert_int_equal(hook_disable_device_node_modification(p->rootfd, &o, &err), -ERR_LIMIT);
}

/* ---- libraries that are mounted ---- */

static size_t entries(const struct place *p, struct arena *a, struct ldcache *c)
{
    auto_free char *path = x_printf("%s/etc/ld.so.cache", p->root), *bytes = NULL;
    size_t n;
    MUST(file_read(path, LDCACHE_MAX, &bytes, &n, NULL) == 0);
    char *copy = arena_strdup(a, (struct str){ bytes, n });
    MUST(ldcache_parse(a, (struct str){ copy, n }, c, NULL) == 0);
    return c->n;
}

/* A folder of the system holds the image's libraries and, mounted, the driver's. */
static void mounted_driver(struct place *p)
{
    struct error err;
    struct ldcache c;
    auto_arena a;
    char to[256] = { 0 };
    arena_init(&a, 1 << 20);
    place_shell("mkdir -p %s/usr/lib; cp -L /lib/*-linux-gnu/libm.so.6 %s/usr/lib/libm.so.6; cp -L "
                "/lib/*-linux-gnu/libc.so.6 %s/host.so; touch %s/usr/lib/libcuda.so.580.1; ln -s "
                "libcuda.so.535 "
                "%s/usr/lib/libc.so.6",
                p->root, p->root, p->dir, p->root, p->root);
    auto_free char *from = x_printf("%s/host.so", p->dir),
                   *at = x_printf("%s/usr/lib/libcuda.so.580.1", p->root),
                   *link = x_printf("%s/usr/lib/libc.so.6", p->root);
    MUST(mount(from, at, NULL, MS_BIND, NULL) == 0);
    struct hook_options o = place_folder("/usr/lib");
    MUST(hook_update_ldcache(p->rootfd, &o, &err) == 0);
    /* the image's own library needs no entry: the loader looks there anyway */
    MUST(entries(p, &a, &c) == 1);
    MUST(strcmp(c.entries[0].path, "/usr/lib/libc.so.6") == 0);
    /* the image's link led to another version */
    MUST(readlink(link, to, sizeof to - 1) > 0 && strcmp(to, "libcuda.so.580.1") == 0);
}

static void mounted_libraries_win_over_the_images_links(void **state)
{
    place_in_namespace(state, mounted_driver);
}

/* ---- roots that cannot be written ---- */

static void read_only_root(struct place *p)
{
    struct error err;
    place_shell("mkdir -p %s/usr/lib %s/drv; touch %s/usr/lib/libcuda.so.1", p->root, p->root,
                p->root);
    MUST(mount(p->root, p->root, NULL, MS_BIND, NULL) == 0);
    MUST(mount(NULL, p->root, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    int rootfd = open(p->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct hook_options o = place_folder("/usr/lib");
    MUST(hook_update_ldcache(rootfd, &o, &err) == 0); /* the loader looks there anyway */
    o = place_folder("/drv");
    MUST(hook_update_ldcache(rootfd, &o, &err) < 0 && strstr(err.text, "LD_LIBRARY_PATH=/drv"));
    o = place_link("x::/usr/lib/libEGL.so");
    MUST(hook_create_symlinks(rootfd, &o, &err) == 0); /* left out */
    o = place_link("x::/usr/lib/libcuda.so.1");
    MUST(hook_create_symlinks(rootfd, &o, &err) == 0); /* there already */
    o = place_link("x::/usr/lib/libcuda.so");
    MUST(hook_create_symlinks(rootfd, &o, &err) < 0);
    MUST(hook_update_application_profile(rootfd, &o, &err) == 0);
}

static void roots_that_cannot_be_written(void **state)
{
    place_in_namespace(state, read_only_root);
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, place_set_up, place_tear_down)
    const struct CMUnitTest tests[] = {
        IN_PLACE(params_are_covered),
        IN_PLACE(params_are_covered_on_old_kernels),
        IN_PLACE(nothing_spreads_to_other_namespaces),
        IN_PLACE(params_that_need_no_change_are_left_alone),
        IN_PLACE(images_with_a_proc_of_their_own_get_nothing),
        IN_PLACE(params_too_large_or_absent),
        IN_PLACE(mounted_libraries_win_over_the_images_links),
        IN_PLACE(roots_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
