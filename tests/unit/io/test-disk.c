/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/disk.h"

struct world {
    struct loop *loop;
    struct disk *disk;
    char dir[64];
    int dirfd, count, last, stop_at;
    struct error err;
    bool free_in_callback;
};

static struct host_seams seams;
static bool slow, full;

static int slow_fsync(void *arg, int fd)
{
    if (slow)
        usleep(150 * 1000);
    return full ? -ENOSPC : fsync(fd) < 0 ? -errno : 0;
}

static struct host host = { .seams = &seams };

static int setup(void **state)
{
    struct world *w = x_alloc(sizeof *w);
    seams = host_seams_real;
    seams.fsync = slow_fsync;
    slow = full = false;
    snprintf(w->dir, sizeof w->dir, "/tmp/mete-disk-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    w->dirfd = open(w->dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    assert_int_equal(loop_new(&w->loop, NULL), 0);
    assert_int_equal(disk_new(w->loop, &host, &w->disk, NULL), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    disk_free(w->disk);
    loop_free(w->loop);
    unlinkat(w->dirfd, "f", 0);
    close(w->dirfd);
    assert_int_equal(rmdir(w->dir), 0);
    free(w);
    return 0;
}

static void done(void *arg, int r, const struct error *e)
{
    struct world *w = arg;
    w->count++;
    w->last = r;
    w->err = *e;
    if (w->free_in_callback) {
        disk_free(w->disk);
        w->disk = NULL;
    }
    if (w->count == w->stop_at || w->free_in_callback)
        loop_stop(w->loop, 0);
}

static void content(struct world *w, char *text, size_t max)
{
    int fd = openat(w->dirfd, "f", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, max - 1);
    text[n] = '\0';
    close(fd);
}

static void give(struct world *w, const char *text)
{
    assert_int_equal(
        disk_replace(w->disk, w->dirfd, "f", str_of(text), 0600, FILE_SYNC_ALL, done, w, NULL), 0);
}

static void in_order(void **state)
{
    struct world *w = *state;
    char text[32];
    for (int i = 0; i < 20; i++) {
        char t[16];
        snprintf(t, sizeof t, "v%d", i);
        give(w, t);
    }
    assert_int_equal(disk_waiting(w->disk), 20);
    w->stop_at = 20;
    loop_run(w->loop);
    assert_int_equal(w->last, 0);
    assert_int_equal(disk_waiting(w->disk), 0);
    content(w, text, sizeof text);
    assert_string_equal(text, "v19");
}

static void tick(void *arg)
{
    struct world *w = arg;
    loop_stop(w->loop, 5);
}

static void loop_does_not_wait_for_fsync(void **state)
{
    struct world *w = *state;
    struct timer t;
    slow = true;
    timer_init(&t, w->loop, tick, w);
    timer_set(&t, 5);
    give(w, "slow");
    assert_int_equal(loop_run(w->loop), 5); /* the timer came first */
    assert_int_equal(w->count, 0);
    assert_int_equal(disk_waiting(w->disk), 1);
    w->stop_at = 1;
    loop_run(w->loop);
    assert_int_equal(w->count, 1);
    timer_done(&t);
}

static void failure_is_told(void **state)
{
    struct world *w = *state;
    full = true;
    give(w, "x");
    w->stop_at = 1;
    loop_run(w->loop);
    assert_int_equal(w->last, -ERR_LIMIT);
    assert_int_equal(w->err.sys, ENOSPC);
    assert_int_equal(faccessat(w->dirfd, "f", F_OK, 0), -1);
}

static void freeing_waits_but_does_not_tell(void **state)
{
    struct world *w = *state;
    char text[32];
    slow = true;
    give(w, "one");
    give(w, "two");
    disk_free(w->disk);
    w->disk = NULL;
    assert_int_equal(w->count, 0);
    content(w, text, sizeof text);
    assert_string_equal(text, "two");
}

static void freed_in_its_callback(void **state)
{
    struct world *w = *state;
    w->free_in_callback = true;
    give(w, "a");
    give(w, "b");
    loop_run(w->loop);
    assert_int_equal(w->count, 1);
}

static void no_memory(void **state)
{
    struct world *w = *state;
    struct error err;
    mem_fail_at(1);
    int r = disk_replace(w->disk, w->dirfd, "f", STR("x"), 0600, FILE_SYNC_NONE, done, w, &err);
    mem_fail_at(0);
    assert_int_equal(r, -ERR_LIMIT);
    assert_int_equal(disk_waiting(w->disk), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(in_order),
        T(loop_does_not_wait_for_fsync),
        T(failure_is_told),
        T(freeing_waits_but_does_not_tell),
        T(freed_in_its_callback),
        T(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
