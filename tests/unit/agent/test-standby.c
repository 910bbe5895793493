/* SPDX-License-Identifier: Apache-2.0 */
/* Two agents at once: each in a process of its own, over a real directory, lock and socket. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/standby.h"
#include "agent/standby_private.h"
#include "base/mem.h"

static char *temp_dir(void)
{
    char *path = x_strdup("/tmp/mete-standby-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static void remove_dir(char *path)
{
    auto_free char *command = x_printf("rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
    free(path);
}

/* ---- an agent ---- */

struct agent {
    struct loop *loop;
    struct standby *standby;
    struct timer end;
    int log; /* one letter for each thing that happens */
    int64_t drain_ms;
    bool deaf; /* does not leave when asked */
};

static void say(struct agent *a, char c)
{
    assert_int_equal(write(a->log, &c, 1), 1);
}

static void acquired(void *arg)
{
    say(arg, 'A');
}

static void end(void *arg)
{
    struct agent *a = arg;
    say(a, 'E');
    standby_release(a->standby);
    loop_stop(a->loop, 0);
}

static void asked(void *arg)
{
    struct agent *a = arg;
    say(a, 'L');
    if (!a->deaf)
        timer_set(&a->end, a->drain_ms);
}

static void note(void *arg, const char *text)
{
    say(arg, strstr(text, "does not answer") ? 'N' : 'n');
}

static void status(void *arg, struct buf *out)
{
    buf_fmt(out, "{\"pid\": %d}", (int)getpid());
}

static void driver(void *arg, bool release)
{
    say(arg, release ? 'r' : 'a');
}

static void survey(void *arg)
{
    say(arg, 's');
}

static void told_to_end(void *arg)
{
    end(arg);
}

static int agent_main(const char *dir, int log, int64_t drain_ms, bool deaf)
{
    struct host host;
    struct error err;
    struct agent a = { .log = log, .drain_ms = drain_ms, .deaf = deaf };
    const struct standby_config config = { .host = &host,
                                           .state_dir = dir,
                                           .arg = &a,
                                           .acquired = acquired,
                                           .asked_to_leave = asked,
                                           .note = note,
                                           .status = status,
                                           .driver = driver,
                                           .survey = survey };
    const struct host_config host_config = { 0 };
    if (host_init(&host, &host_config, &err) < 0 || loop_new(&a.loop, &err) < 0)
        return 1;
    timer_init(&a.end, a.loop, end, &a);
    if (loop_signal(a.loop, SIGTERM, told_to_end, &a, &err) < 0 ||
        standby_new(a.loop, &config, &a.standby, &err) < 0)
        return 1;
    loop_run(a.loop);
    timer_done(&a.end);
    standby_free(a.standby);
    loop_free(a.loop);
    host_done(&host);
    return 0;
}

struct child {
    pid_t pid;
    int log;
};

static struct child start(const char *dir, int64_t drain_ms, bool deaf)
{
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(p[0]);
        alarm(60);
        _exit(agent_main(dir, p[1], drain_ms, deaf));
    }
    close(p[1]);
    return (struct child){ pid, p[0] };
}

static char next(struct child *c)
{
    char ch = '\0'; /* the end */
    while (read(c->log, &ch, 1) < 0 && errno == EINTR)
        ;
    return ch;
}

static void ended(struct child *c, int signo)
{
    int how;
    assert_int_equal(waitpid(c->pid, &how, 0), c->pid);
    if (signo)
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == signo);
    else
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    close(c->log);
}

static void stop(struct child *c, int signo)
{
    assert_int_equal(kill(c->pid, signo), 0);
    ended(c, signo == SIGKILL ? SIGKILL : 0);
}

/* ---- ways of two agents ---- */

static void successor_takes_over(void **state)
{
    char *dir = temp_dir();
    auto_free char *sub = x_printf("%s/state", dir);
    struct child a = start(sub, 200, false);
    assert_int_equal(next(&a), 'A');
    for (int i = 0; i < 3; i++) { /* again and again */
        struct child b = start(sub, 200, false);
        assert_int_equal(next(&a), 'L');
        assert_int_equal(next(&a), 'E');
        assert_int_equal(next(&b), 'A');
        ended(&a, 0);
        a = b;
    }
    stop(&a, SIGTERM);
    auto_free char *socket = x_printf("%s/%s", sub, AGENT_SOCKET);
    assert_int_equal(access(socket, F_OK), -1);
    remove_dir(dir);
}

/* While the holder drains the successor does nothing. */
static void never_both(void **state)
{
    char *dir = temp_dir();
    struct child a = start(dir, 1500, false), b;
    assert_int_equal(next(&a), 'A');
    b = start(dir, 0, false);
    assert_int_equal(next(&a), 'L');
    usleep(500000);
    assert_int_equal(fcntl(b.log, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(next(&b), '\0');
    assert_int_equal(fcntl(b.log, F_SETFL, 0), 0);
    assert_int_equal(next(&a), 'E');
    assert_int_equal(next(&b), 'A');
    ended(&a, 0);
    stop(&b, SIGTERM);
    remove_dir(dir);
}

static void killed_holder(void **state)
{
    char *dir = temp_dir();
    struct child a = start(dir, 0, false);
    assert_int_equal(next(&a), 'A');
    stop(&a, SIGKILL); /* leaves lock file and socket behind */
    struct child b = start(dir, 0, false);
    assert_int_equal(next(&b), 'A');
    char *text = NULL;
    struct error err;
    assert_int_equal(agent_ask(dir, "status", 5000, &text, &err), 0);
    free(text);
    stop(&b, SIGTERM);
    remove_dir(dir);
}

/* Stopped, or of a version without a socket. */
static void holder_that_does_not_answer(void **state)
{
    char *dir = temp_dir();
    struct child a = start(dir, 0, false);
    assert_int_equal(next(&a), 'A');
    assert_int_equal(kill(a.pid, SIGSTOP), 0);
    struct child b = start(dir, 0, false);
    assert_int_equal(next(&b), 'N');
    assert_int_equal(kill(a.pid, SIGCONT), 0); /* wakes up to the request */
    assert_int_equal(next(&a), 'L');
    assert_int_equal(next(&b), 'A');
    next(&a);
    ended(&a, 0);
    stop(&b, SIGTERM);

    auto_free char *path = x_printf("%s/%s", dir, AGENT_LOCK);
    int fd = open(path, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    b = start(dir, 0, false);
    assert_int_equal(next(&b), 'N');
    assert_int_equal(flock(fd, LOCK_UN), 0); /* the child has the descriptor too */
    close(fd);
    assert_int_equal(next(&b), 'A');
    stop(&b, SIGTERM);
    remove_dir(dir);
}

static void holder_that_is_slow_to_leave(void **state)
{
    char *dir = temp_dir();
    struct child a = start(dir, 0, true);
    assert_int_equal(next(&a), 'A');
    struct child b = start(dir, 0, false);
    assert_int_equal(next(&a), 'L'); /* told once, however often it is asked */
    assert_int_equal(next(&b), 'n');
    stop(&a, SIGTERM);
    assert_int_equal(next(&b), 'A');
    stop(&b, SIGTERM);
    remove_dir(dir);
}

/* Without a file that can be locked the directory itself is. */
static void read_only_directory(void **state)
{
    bool own = unshare(CLONE_NEWNS) == 0 && mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    if (!own)
        skip();
    char *dir = temp_dir();
    if (mount("none", dir, "tmpfs", MS_RDONLY, NULL) < 0) {
        remove_dir(dir);
        skip();
    }
    struct child a = start(dir, 0, false);
    assert_int_equal(next(&a), 'n'); /* why there is no lock file */
    assert_int_equal(next(&a), 'n'); /* and no socket */
    assert_int_equal(next(&a), 'A');
    struct child b = start(dir, 0, false);
    assert_int_equal(next(&b), 'N');
    stop(&a, SIGTERM);
    assert_int_equal(next(&b), 'n');
    assert_int_equal(next(&b), 'n');
    assert_int_equal(next(&b), 'A');
    stop(&b, SIGTERM);
    assert_int_equal(umount(dir), 0);
    remove_dir(dir);
}

/* What it does next; that it has to wait a little is no more than a note. */
static int next_step(struct child *c)
{
    int said = next(c);
    while (said == 'n')
        said = next(c);
    return said;
}

/* Deleted under the holder, as by a careless clean-up: it takes a new lock under the old name. */
static void directory_that_is_deleted(void **state)
{
    char *dir = temp_dir();
    auto_free char *sub = x_printf("%s/state", dir), *command = x_printf("rm -rf %s", sub);
    auto_free char *lock = x_printf("%s/%s", sub, AGENT_LOCK);
    struct child a = start(sub, 0, false);
    assert_int_equal(next_step(&a), 'A');
    assert_int_equal(system(command), 0);
    for (int i = 0; access(lock, F_OK) < 0; i++) {
        assert_true(i < 1500);
        usleep(10000);
    }
    struct child b = start(sub, 0, false);
    assert_int_equal(next_step(&a), 'L');
    assert_int_equal(next_step(&a), 'E');
    assert_int_equal(next_step(&b), 'A');
    ended(&a, 0);

    /* Somebody else was quicker. */
    assert_int_equal(system(command), 0);
    struct child c = start(sub, 0, false);
    assert_int_equal(next_step(&c), 'A');
    assert_int_equal(next_step(&b), 'L');
    assert_int_equal(next_step(&b), 'E');
    ended(&b, 0);
    stop(&c, SIGTERM);
    remove_dir(dir);
}

/* A path longer than any socket address. */
static void long_path(void **state)
{
    char *dir = temp_dir();
    auto_free char *sub = x_printf("%s/%0100d/%0100d", dir, 1, 2);
    struct child a = start(sub, 0, false);
    assert_int_equal(next(&a), 'A');
    char *text = NULL;
    struct error err;
    assert_int_equal(agent_ask(sub, "status", 5000, &text, &err), 0);
    free(text);
    stop(&a, SIGTERM);
    remove_dir(dir);
}

/* ---- the protocol ---- */

static void commands(void **state)
{
    static const struct {
        const char *request;
        int r;
        char hears;
        const char *text;
    } cases[] = {
        { "status", 0, 0, "{\"pid\": " },
        { "driver release", 0, 'r', "" },
        { "driver acquire", 0, 'a', "" },
        { "survey", 0, 's', "" },
        { "driver", -ERR_INVALID, 0, "the agent says: unknown request" },
        { "", -ERR_INVALID, 0, "unknown request" },
        { "status ", -ERR_INVALID, 0, "unknown request" },
    };
    char *dir = temp_dir();
    struct error err;
    char *text = NULL;
    assert_int_equal(agent_ask(dir, "status", 1000, &text, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no agent is running"));
    auto_free char *nowhere = x_printf("%s/x", dir);
    assert_int_equal(agent_ask(nowhere, "status", 1000, &text, &err), -ERR_NOT_FOUND);
    struct child a = start(dir, 0, false);
    assert_int_equal(next(&a), 'A');
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        text = NULL;
        int r = agent_ask(dir, cases[i].request, 5000, &text, &err);
        if (r != cases[i].r)
            fail_msg("%s: %d %s", cases[i].request, r, r < 0 ? err.text : text);
        assert_non_null(strstr(r < 0 ? err.text : text, cases[i].text));
        if (cases[i].hears)
            assert_int_equal(next(&a), cases[i].hears);
        free(text);
    }
    auto_free char *overlong = x_printf("%0300d", 1);
    assert_int_equal(agent_ask(dir, overlong, 1000, &text, &err), -ERR_LIMIT);
    stop(&a, SIGKILL);
    assert_int_equal(agent_ask(dir, "status", 1000, &text, &err), -ERR_NOT_FOUND);
    remove_dir(dir);
}

static int raw_connect(const char *dir)
{
    int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
    struct error err = { 0 };
    for (int i = 0; socket_connect(dirfd, &fd, &err) < 0; i++) {
        if (err.sys != EAGAIN || i > 1000)
            fail_msg("%s", err.text);
        usleep(1000);
    }
    fcntl(fd, F_SETFL, 0);
    close(dirfd);
    return fd;
}

/* Rude callers: it goes on serving the others. */
static void rude_callers(void **state)
{
    char *dir = temp_dir();
    struct child a = start(dir, 0, false);
    struct error err;
    assert_int_equal(next(&a), 'A');
    for (int i = 0; i < 40; i++) { /* gone before the answer */
        int fd = raw_connect(dir);
        assert_int_equal(send(fd, "status\n", 7, MSG_NOSIGNAL), 7);
        close(fd);
    }
    int fd = raw_connect(dir); /* no end of line */
    char junk[4096], answer[200];
    memset(junk, 'x', sizeof junk);
    ssize_t sent = send(fd, junk, sizeof junk, MSG_NOSIGNAL);
    assert_true(sent > 0);
    ssize_t n = recv(fd, answer, sizeof answer - 1, 0);
    if (n > 0) { /* or reset: the rest was never read */
        answer[n] = '\0';
        assert_true(strncmp(answer, "error invalid ", 14) == 0);
    }
    close(fd);
    fd = raw_connect(dir); /* one letter at a time */
    for (const char *p = "survey\n"; *p; p++) {
        assert_int_equal(send(fd, p, 1, MSG_NOSIGNAL), 1);
        usleep(1000);
    }
    assert_int_equal(next(&a), 's');
    n = recv(fd, answer, sizeof answer, 0);
    assert_true(n == 5 && memcmp(answer, "ok 0\n", 5) == 0);
    close(fd);
    int idle[30]; /* more than it keeps */
    for (size_t i = 0; i < ARRAY_LEN(idle); i++)
        idle[i] = raw_connect(dir);
    usleep(100000);
    for (size_t i = 0; i < ARRAY_LEN(idle); i++)
        close(idle[i]);
    usleep(100000);
    char *text = NULL;
    assert_int_equal(agent_ask(dir, "status", 5000, &text, &err), 0);
    free(text);
    stop(&a, SIGTERM);
    remove_dir(dir);
}

/* The directory keeps strangers out; should somebody have opened it, the agent still does. */
static void strangers_are_refused(void **state)
{
    if (geteuid() != 0)
        skip();
    char *dir = temp_dir();
    auto_free char *socket = x_printf("%s/%s", dir, AGENT_SOCKET);
    struct child a = start(dir, 0, false);
    assert_int_equal(next(&a), 'A');
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(chmod(socket, 0666), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *text = NULL;
        struct error err = { 0 };
        if (setresuid(65534, 65534, 65534) < 0)
            _exit(1);
        int r = agent_ask(dir, "leave", 5000, &text, &err);
        _exit(r == -ERR_DENIED && strstr(err.text, "only root") ? 0 : 2);
    }
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    char *text = NULL;
    struct error err;
    assert_int_equal(agent_ask(dir, "status", 5000, &text, &err), 0);
    free(text);
    stop(&a, SIGTERM);
    remove_dir(dir);
}

static void answers_of_any_shape(void **state)
{
    static const struct {
        const char *in;
        int r;
        enum error_code code;
        size_t head, n;
    } cases[] = {
        { "", 0, 0, 0, 0 },
        { "ok", 0, 0, 0, 0 },
        { "ok 12", 0, 0, 0, 0 },
        { "ok 12\n", 1, ERR_NONE, 6, 12 },
        { "ok 0\nrest", 1, ERR_NONE, 5, 0 },
        { "error denied 3\nno!", 1, ERR_DENIED, 15, 3 },
        { "error what 3\nno!", 1, ERR_INTERNAL, 13, 3 },
        { "ok -1\n", -ERR_INVALID, 0, 0, 0 },
        { "ok 4194305\n", -ERR_INVALID, 0, 0, 0 },
        { "ok 99999999999999999999\n", -ERR_INVALID, 0, 0, 0 },
        { "ok\n", -ERR_INVALID, 0, 0, 0 },
        { "\n", -ERR_INVALID, 0, 0, 0 },
        { "error 3\n", -ERR_INVALID, 0, 0, 0 },
        { "HTTP/1.1 400 Bad Request\r\n", -ERR_INVALID, 0, 0, 0 },
        { "0123456789012345678901234567890123456789012345678901234567890123", -ERR_INVALID, 0, 0,
          0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum error_code code = ERR_NONE;
        size_t head = 0, n = 0;
        struct error err;
        int r = answer_parse(str_of(cases[i].in), &code, &head, &n, &err);
        if (r != cases[i].r || code != cases[i].code || head != cases[i].head || n != cases[i].n)
            fail_msg("%s: %d %d %zu %zu", cases[i].in, r, (int)code, head, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(successor_takes_over),
        cmocka_unit_test(never_both),
        cmocka_unit_test(killed_holder),
        cmocka_unit_test(holder_that_does_not_answer),
        cmocka_unit_test(holder_that_is_slow_to_leave),
        cmocka_unit_test(read_only_directory),
        cmocka_unit_test(directory_that_is_deleted),
        cmocka_unit_test(long_path),
        cmocka_unit_test(commands),
        cmocka_unit_test(rude_callers),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(answers_of_any_shape),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
