/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/host.h"
#include "base/mem.h"

static char dir[64];
static int dirfd_;

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/mete-test-file.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dirfd_ < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    auto_free char *command = x_printf("rm -rf %s", dir);
    close(dirfd_);
    return system(command);
}

static char *path(const char *name)
{
    static char text[108];
    snprintf(text, sizeof text, "%s/%s", dir, name);
    return text;
}

static void put(const char *name, const char *text, size_t n)
{
    FILE *f = fopen(path(name), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void test_read(void **state)
{
    struct error e;
    size_t n = 0;
    char big[5000];
    memset(big, 'x', sizeof big);
    put("big", big, sizeof big);
    auto_free char *text = NULL;
    assert_int_equal(file_read_at(dirfd_, "big", 5000, &text, &n, &e), 0);
    assert_int_equal(n, 5000);
    assert_int_equal(text[5000], '\0');
    auto_free char *other = NULL;
    assert_int_equal(file_read_at(dirfd_, "big", 4999, &other, &n, &e), -ERR_LIMIT);
    assert_null(other);
    assert_non_null(strstr(e.text, "4999"));
    assert_int_equal(file_read_at(dirfd_, "none", 10, &other, NULL, &e), -ERR_NOT_FOUND);
    assert_int_equal(e.sys, ENOENT);
    assert_non_null(strstr(e.text, "none"));

    put("empty", "", 0);
    assert_int_equal(file_read(path("empty"), 0, &other, NULL, &e), 0);
    assert_string_equal(other, "");
    free(steal(other));

    put("nul", "a\0b", 3);
    assert_int_equal(file_read(path("nul"), 10, &other, NULL, &e), -ERR_INVALID);
    assert_int_equal(file_read(path("nul"), 10, &other, &n, &e), 0);
    assert_int_equal(n, 3);
}

/* Files of /proc claim no size. */
static void test_read_proc(void **state)
{
    struct error e;
    size_t n = 0;
    auto_free char *text = NULL, *small = NULL;
    assert_int_equal(file_read("/proc/self/maps", 1024 * 1024, &text, &n, &e), 0);
    assert_true(n > 600);
    assert_int_equal(file_read("/proc/self/maps", 600, &small, &n, &e), -ERR_LIMIT);
}

/* None of these may make us wait. */
static void test_read_special(void **state)
{
    struct error e;
    auto_free char *text = NULL;
    assert_int_equal(mkfifo(path("fifo"), 0600), 0);
    assert_int_equal(file_read(path("fifo"), 10, &text, NULL, &e), -ERR_INVALID);
    assert_non_null(strstr(e.text, "named pipe"));
    assert_int_equal(file_read("/dev/zero", 10, &text, NULL, &e), -ERR_INVALID);
    assert_non_null(strstr(e.text, "device"));
    assert_int_equal(file_read(dir, 10, &text, NULL, &e), -ERR_INVALID);
    assert_non_null(strstr(e.text, "directory"));
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path("sock"));
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(file_read(path("sock"), 10, &text, NULL, &e), -ERR_INVALID);
    assert_null(text);
}

static void test_read_memory(void **state)
{
    struct error e;
    for (uint64_t k = 1;; k++) {
        auto_free char *text = NULL;
        mem_fail_at(k);
        int r = file_read("/proc/self/maps", 1024 * 1024, &text, NULL, &e);
        uint64_t calls = mem_fail_at(0);
        if (calls < k) {
            assert_int_equal(r, 0);
            assert_true(k > 2); /* the reading did grow its buffer */
            return;
        }
        assert_int_equal(r, -ERR_LIMIT);
        assert_null(text);
    }
}

/* ---- replace: the n-th step fails ---- */

struct faulty {
    int fail_at, step, sys;
    char log[16];
    bool short_writes;
};

static int step(struct faulty *f, char what)
{
    f->log[f->step % 15] = what;
    return ++f->step == f->fail_at ? -f->sys : 0;
}

static int f_random(void *arg, void *p, size_t n)
{
    struct faulty *f = arg;
    memset(p, 0xAB, n);
    return step(f, 'r');
}

static int f_open_new(void *arg, int at, const char *name, mode_t mode)
{
    int r = step(arg, 'o');
    return r < 0 ? r : host_seams_real.open_new(NULL, at, name, mode);
}

static ssize_t f_write(void *arg, int fd, const void *p, size_t n)
{
    struct faulty *f = arg;
    int r = step(f, 'w');
    return r < 0 ? r : host_seams_real.write(NULL, fd, p, f->short_writes ? MIN(n, (size_t)2) : n);
}

static int f_fsync(void *arg, int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    int r = step(arg, S_ISDIR(st.st_mode) ? 'D' : 'f');
    return r < 0 ? r : host_seams_real.fsync(NULL, fd);
}

static int f_rename(void *arg, int at, const char *from, const char *to)
{
    int r = step(arg, 'm');
    return r < 0 ? r : host_seams_real.rename(NULL, at, from, to);
}

static int f_unlink(void *arg, int at, const char *name)
{
    step(arg, 'u');
    return host_seams_real.unlink(NULL, at, name);
}

static const struct host_seams faulty_seams = {
    .random = f_random,
    .open_new = f_open_new,
    .write = f_write,
    .fsync = f_fsync,
    .rename = f_rename,
    .unlink = f_unlink,
};

static size_t count_entries(void)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void assert_content(const char *name, const char *want)
{
    struct error e;
    auto_free char *text = NULL;
    assert_int_equal(file_read_at(dirfd_, name, 100, &text, NULL, &e), 0);
    assert_string_equal(text, want);
}

static void test_replace(void **state)
{
    static const struct {
        enum file_sync sync;
        const char *steps;
    } kinds[] = { { FILE_SYNC_NONE, "rowm" },
                  { FILE_SYNC_FILE, "rowfm" },
                  { FILE_SYNC_ALL, "rowfmD" } };
    struct error e;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct faulty f = { .fail_at = 0 };
        struct host_seams seams = faulty_seams;
        seams.arg = &f;
        struct host h = { .seams = &seams };
        mode_t old = umask(077);
        assert_int_equal(file_replace(&h, dirfd_, "name", STR("new"), 0644, kinds[i].sync, &e), 0);
        umask(old);
        assert_string_equal(f.log, kinds[i].steps);
        assert_content("name", "new");
        assert_int_equal(count_entries(), 1);
        struct stat st;
        assert_int_equal(stat(path("name"), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0644);
    }
}

static void test_replace_fails(void **state)
{
    static const int errors[] = { ENOSPC, EIO, EROFS };
    for (size_t s = 0; s < ARRAY_LEN(errors); s++) {
        for (int at = 1; at <= 8; at++) {
            struct faulty f = { .fail_at = at, .sys = errors[s], .short_writes = true };
            struct host_seams seams = faulty_seams;
            seams.arg = &f;
            struct host h = { .seams = &seams };
            struct error e;
            put("name", "old", 3);
            int r = file_replace(&h, dirfd_, "name", STR("newer"), 0600, FILE_SYNC_ALL, &e);
            assert_int_equal(count_entries(), 1); /* no temporary is left */
            bool renamed = at > 7;                /* r o w w w f m D */
            assert_content("name", renamed ? "newer" : "old");
            assert_true(r < 0);
            assert_int_equal(e.sys, errors[s]);
            assert_non_null(strstr(e.text, "name"));
        }
    }
}

static void test_replace_other(void **state)
{
    struct faulty f = { .fail_at = 3, .sys = EINTR, .short_writes = true };
    struct host_seams seams = faulty_seams;
    seams.arg = &f;
    struct host h = { .seams = &seams };
    struct error e;
    assert_int_equal(file_replace(&h, dirfd_, "a", STR("text"), 0600, FILE_SYNC_NONE, &e),
                     0); /* EINTR: again */
    assert_content("a", "text");
    assert_int_equal(file_replace(&h, dirfd_, "../a", STR("text"), 0600, FILE_SYNC_NONE, &e),
                     -ERR_INVALID);
    char name[300];
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    assert_true(file_replace(&h, dirfd_, name, STR("text"), 0600, FILE_SYNC_NONE, &e) < 0);
    assert_int_equal(count_entries(), 1);
    assert_int_equal(file_remove(&h, dirfd_, "a", FILE_SYNC_ALL, &e), 0);
    assert_int_equal(file_remove(&h, dirfd_, "a", FILE_SYNC_ALL, &e), 0);
    assert_int_equal(count_entries(), 0);
}

static void test_dirs(void **state)
{
    struct error e;
    assert_int_equal(dir_make(path("a/b/c"), 0755, &e), 0);
    assert_int_equal(dir_make(path("a/b/c/"), 0755, &e), 0);
    assert_true(file_exists(path("a/b/c")));
    put("a/file", "x", 1);
    assert_int_equal(dir_make(path("a/file"), 0755, &e), -ERR_CONFLICT);
    assert_true(dir_make(path("a/file/x"), 0755, &e) < 0);
    assert_int_equal(dir_make("/", 0755, &e), 0);
    assert_false(file_exists(path("nothing")));
}

/* ---- host ---- */

static void test_host_paths(void **state)
{
    struct error e;
    struct host h;
    const struct host_config plain = { 0 };
    assert_int_equal(host_init(&h, &plain, &e), 0);
    assert_string_equal(h.root, "");
    assert_string_equal(h.driver_root, "/");
    assert_string_equal(h.dev_root, "/");
    assert_string_equal(h.driver_root_view, file_exists("/driver-root") ? "/driver-root" : "/");
    assert_string_equal(h.dev_root_view, "/");
    auto_free char *p = host_path(&h, "/proc/x");
    assert_string_equal(p, "/proc/x");
    host_done(&h);

    assert_int_equal(dir_make(path("dev"), 0755, &e), 0);
    assert_int_equal(dir_make(path("run/nvidia/driver/dev"), 0755, &e), 0);
    auto_free char *root = x_printf("%s//", dir), *view = x_printf("%s/run/nvidia/driver", dir);
    const struct host_config container = { .root = root, .driver_root = "/run/nvidia/driver/" };
    assert_int_equal(host_init(&h, &container, &e), 0);
    assert_string_equal(h.root, dir);
    assert_string_equal(h.driver_root, "/run/nvidia/driver");
    assert_string_equal(h.driver_root_view, view);
    assert_string_equal(h.dev_root, "/"); /* where the nodes are; an empty dev folder holds none */
    assert_string_equal(h.dev_root_view, dir);
    host_done(&h);

    put("run/nvidia/driver/dev/null", "", 0); /* a driver container whose nodes are still to come */
    assert_int_equal(host_init(&h, &container, &e), 0);
    assert_string_equal(h.dev_root, "/run/nvidia/driver");
    assert_string_equal(h.dev_root_view, view);
    host_done(&h);
    put("dev/nvidiactl", "", 0);
    assert_int_equal(host_init(&h, &container, &e), 0);
    assert_string_equal(h.dev_root, "/");
    assert_string_equal(h.dev_root_view, dir);
    host_done(&h);

    put("run/nvidia/driver/dev/nvidiactl", "", 0);
    const struct host_config given = { .root = root, .driver_root_view = view, .dev_root = "/x" };
    assert_int_equal(host_init(&h, &given, &e), 0);
    assert_string_equal(h.driver_root, "/");
    assert_string_equal(h.driver_root_view, view);
    assert_string_equal(h.dev_root, "/x");
    assert_string_equal(h.dev_root_view, view);
    host_done(&h);

    const struct host_config wrong = { .dev_root = "dev" };
    assert_int_equal(host_init(&h, &wrong, &e), -ERR_INVALID);
    assert_non_null(strstr(e.text, "--dev-root"));
    assert_non_null(strstr(e.text, "\"dev\""));
}

static void test_host_ids(void **state)
{
    struct error e;
    struct host h;
    const struct host_config config = { .root = dir };
    char id[HOST_BOOT_ID_SIZE], a[37], b[37];
    assert_int_equal(host_init(&h, &config, &e), 0);
    assert_int_equal(host_boot_id(&h, id, &e), -ERR_NOT_FOUND);
    assert_int_equal(dir_make(path("proc/sys/kernel/random"), 0755, &e), 0);
    put("proc/sys/kernel/random/boot_id", "123\n", 4);
    assert_int_equal(host_boot_id(&h, id, &e), -ERR_INVALID);
    put("proc/sys/kernel/random/boot_id", "0123abcd-0000-4000-8000-0123456789ab\n", 37);
    assert_int_equal(host_boot_id(&h, id, &e), 0);
    assert_string_equal(id, "0123abcd-0000-4000-8000-0123456789ab");
    assert_int_equal(host_uuid4(&h, a, &e), 0);
    assert_int_equal(host_uuid4(&h, b, &e), 0);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 36);
    assert_int_equal(a[14], '4');
    assert_non_null(strchr("89ab", a[19]));
    int64_t mono = host_mono_ns(&h);
    assert_true(mono > 0 && host_mono_ns(&h) >= mono);
    assert_true(host_real_ns(&h) > INT64_C(1600000000) * 1000000000);
    host_done(&h);
}

static void test_paths(void **state)
{
    static const struct {
        const char *path, *name, *parent;
    } cases[] = {
        { "/a/b/c", "c", "/a/b" }, { "/a", "a", "/" }, { "a/b", "b", "a" }, { "a", "a", "." },
        { "/", "", "/" },          { "a/", "", "a" },  { "", "", "." },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *parent = path_parent(cases[i].path);
        assert_string_equal(path_name(cases[i].path), cases[i].name);
        assert_string_equal(parent, cases[i].parent);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_read),       T(test_read_proc),     T(test_read_special),  T(test_read_memory),
        T(test_replace),    T(test_replace_fails), T(test_replace_other), T(test_dirs),
        T(test_host_paths), T(test_host_ids),      T(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
