/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/lock.h"

static char dir[] = "/tmp/mete-lock-XXXXXX", path[64];

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/mete-lock-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/agent.lock", dir);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(dir);
}

static void one_holder(void **state)
{
    int a, b;
    char text[32] = "", want[64];
    struct error err;
    assert_int_equal(lock_try(path, &a, &err), 0);
    assert_true(pread(a, text, sizeof text - 1, 0) > 0);
    snprintf(want, sizeof want, "%d\n", (int)getpid());
    assert_string_equal(text, want);
    assert_int_equal(lock_try(path, &b, &err), -ERR_CONFLICT);
    snprintf(want, sizeof want, "process %d holds it", (int)getpid());
    assert_non_null(strstr(err.text, want));
    close(a);
    assert_int_equal(lock_try(path, &b, &err), 0);
    assert_true(fcntl(b, F_GETFD) & FD_CLOEXEC);
    close(b);
}

/* A file that was removed under its holder is no lock for the next one. */
static void removed_file(void **state)
{
    int a, b;
    assert_int_equal(lock_try(path, &a, NULL), 0);
    unlink(path);
    assert_int_equal(lock_try(path, &b, NULL), 0);
    struct stat x, y;
    assert_int_equal(fstat(b, &x), 0);
    assert_int_equal(stat(path, &y), 0);
    assert_int_equal(x.st_ino, y.st_ino);
    close(a);
    close(b);
}

static void damaged_content(void **state)
{
    int a, b;
    struct error err;
    assert_int_equal(lock_try(path, &a, NULL), 0);
    assert_int_equal(pwrite(a, "garbage", 7, 0), 7);
    assert_int_equal(lock_try(path, &b, &err), -ERR_CONFLICT);
    assert_non_null(strstr(err.text, "another process"));
    close(a);
}

static void wrong_places(void **state)
{
    int fd;
    struct error err;
    char name[64];
    snprintf(name, sizeof name, "%s/none/lock", dir);
    assert_int_equal(lock_try(name, &fd, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, name));
    assert_true(lock_try(dir, &fd, &err) < 0);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_true(lock_try(path, &fd, &err) < 0); /* a link is not followed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_holder, setup, teardown),
        cmocka_unit_test_setup_teardown(removed_file, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_content, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_places, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
