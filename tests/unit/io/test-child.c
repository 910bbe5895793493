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
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/child.h"

struct end {
    struct loop *loop;
    int status, count;
};

static void ended(void *arg, int status)
{
    struct end *e = arg;
    e->status = status;
    e->count++;
    loop_stop(e->loop, 0);
}

static char *const no_env[] = { NULL };

static struct child *start(struct loop *l, const char *script, const int *fds, size_t n_fds,
                           struct end *e)
{
    char sh[] = "/bin/sh", minus_c[] = "-c";
    char *text = x_strdup(script);
    char *argv[] = { sh, minus_c, text, NULL };
    const struct child_spec spec = { "/bin/sh", argv, no_env, fds, n_fds };
    struct child *c;
    struct error err;
    assert_int_equal(child_start(l, &spec, ended, e, &c, &err), 0);
    free(text);
    return c;
}

static void exit_codes_and_signals(void **state)
{
    struct end e = { 0 };
    assert_int_equal(loop_new(&e.loop, NULL), 0);
    struct child *c = start(e.loop, "exit 7", NULL, 0, &e);
    assert_true(child_pid(c) > 0);
    loop_run(e.loop);
    assert_true(WIFEXITED(e.status) && WEXITSTATUS(e.status) == 7);
    assert_int_equal(child_pid(c), 0);
    child_kill(c, SIGKILL); /* nothing there any more: no effect */
    child_forget(c);
    c = start(e.loop, "sleep 60", NULL, 0, &e);
    child_kill(c, SIGKILL);
    loop_run(e.loop);
    assert_true(WIFSIGNALED(e.status) && WTERMSIG(e.status) == SIGKILL);
    child_forget(c);
    assert_int_equal(e.count, 2);
    loop_free(e.loop);
}

static size_t read_all(int fd, char *text, size_t max)
{
    size_t n = 0;
    for (ssize_t r; n + 1 < max && (r = read(fd, text + n, max - 1 - n)) > 0;)
        n += (size_t)r;
    text[n] = '\0';
    return n;
}

/* The child has 0, 1, 2 and what was handed over, in that order, whatever numbers those had. */
static void descriptors(void **state)
{
    struct end e = { 0 };
    int a[2], b[2];
    char text[256];
    assert_int_equal(loop_new(&e.loop, NULL), 0);
    assert_int_equal(pipe(a), 0); /* without close-on-exec: must not leak */
    assert_int_equal(pipe2(b, O_CLOEXEC), 0);
    int leak = fcntl(a[0], F_DUPFD, 50);
    const int fds[] = { b[1], a[1] };
    struct child *c =
        start(e.loop, "ls /proc/self/fd | tr '\\n' ' ' >&3; echo four >&4", fds, 2, &e);
    loop_run(e.loop);
    close(b[1]);
    close(a[1]);
    read_all(b[0], text, sizeof text);
    assert_non_null(strstr(text, "3 "));
    assert_null(strstr(text, "50"));
    read_all(a[0], text, sizeof text);
    assert_string_equal(text, "four\n");
    child_forget(c);
    close(a[0]), close(b[0]), close(leak);
    loop_free(e.loop);
}

/* What is handed over stands on places that others have to take. */
static void crossed_descriptors(void **state)
{
    enum { N = 12 };
    struct end e = { 0 };
    int p[2], fds[N];
    char text[64], script[64];
    assert_int_equal(loop_new(&e.loop, NULL), 0);
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_true(p[1] < 3 + N && null < 3 + N);
    for (int i = 0; i < N; i++)
        fds[i] = 3 + i == p[1] ? null : p[1];
    snprintf(script, sizeof script, "echo lost >&%d; echo here >&%d; echo there >&%d", p[1], null,
             null == 3 ? 4 : 3);
    struct child *c = start(e.loop, script, fds, N, &e);
    close(p[1]);
    loop_run(e.loop);
    read_all(p[0], text, sizeof text);
    assert_string_equal(text, "here\nthere\n");
    child_forget(c);
    close(p[0]), close(null);
    loop_free(e.loop);
}

static void missing_program(void **state)
{
    struct loop *l;
    char name[] = "x";
    char *argv[] = { name, NULL };
    const struct child_spec spec = { "/nowhere/x", argv, no_env, NULL, 0 };
    struct child *c;
    struct error err;
    assert_int_equal(loop_new(&l, NULL), 0);
    assert_int_equal(child_start(l, &spec, ended, NULL, &c, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/x"));
    loop_free(l);
}

static void stop(void *arg)
{
    loop_stop(arg, 0);
}

static void run_for(struct loop *l, int64_t ms)
{
    struct timer t;
    timer_init(&t, l, stop, l);
    timer_set(&t, ms);
    loop_run(l);
    timer_done(&t);
}

static void forgotten_is_still_reaped(void **state)
{
    struct end e = { 0 };
    assert_int_equal(loop_new(&e.loop, NULL), 0);
    struct child *c = start(e.loop, "exit 3", NULL, 0, &e);
    pid_t pid = child_pid(c);
    child_forget(c);
    for (int i = 0; i < 200 && kill(pid, 0) == 0; i++)
        run_for(e.loop, 10);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(e.count, 0);
    loop_free(e.loop);
}

static void several_loops(void **state)
{
    struct end a = { 0 }, b = { 0 };
    assert_int_equal(loop_new(&a.loop, NULL), 0);
    assert_int_equal(loop_new(&b.loop, NULL), 0);
    struct child *ca = start(a.loop, "exit 1", NULL, 0, &a);
    struct child *cb = start(b.loop, "exit 2", NULL, 0, &b);
    loop_run(b.loop);
    loop_run(a.loop);
    assert_int_equal(WEXITSTATUS(a.status), 1);
    assert_int_equal(WEXITSTATUS(b.status), 2);
    loop_free(a.loop); /* first the loop, then its child */
    child_forget(ca);
    child_forget(cb);
    loop_free(b.loop);
}

static void loop_ends_before_the_child(void **state)
{
    struct end e = { 0 };
    assert_int_equal(loop_new(&e.loop, NULL), 0);
    struct child *c = start(e.loop, "sleep 60", NULL, 0, &e);
    struct child *d = start(e.loop, "sleep 60", NULL, 0, &e);
    pid_t pid[] = { child_pid(c), child_pid(d) };
    child_forget(d);
    loop_free(e.loop);
    child_forget(c);
    for (int i = 0; i < 2; i++) {
        kill(pid[i], SIGKILL);
        assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
    }
}

static void too_many_descriptors(void **state)
{
    struct loop *l;
    struct child *c;
    struct error err;
    int fds[17] = { 0 };
    const struct child_spec spec = { "/bin/true", no_env, no_env, fds, 17 };
    assert_int_equal(loop_new(&l, NULL), 0);
    assert_int_equal(child_start(l, &spec, ended, NULL, &c, &err), -ERR_LIMIT);
    loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes_and_signals),     cmocka_unit_test(descriptors),
        cmocka_unit_test(crossed_descriptors),        cmocka_unit_test(missing_program),
        cmocka_unit_test(forgotten_is_still_reaped),  cmocka_unit_test(several_loops),
        cmocka_unit_test(loop_ends_before_the_child), cmocka_unit_test(too_many_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
