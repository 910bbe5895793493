/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/finding.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

static int ends[2];

/* A datagram socket: one write(2), one message. */
static int setup(void **state)
{
    int size = 4 * 1024 * 1024;
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    log_to_fd(ends[1]);
    return 0;
}

static int teardown(void **state)
{
    log_to_fd(2);
    log_setup(LOG_INFO_, LOG_TEXT);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

/* The next line without its time and line break. */
static const char *line(bool json)
{
    static char text[70000];
    ssize_t n = recv(ends[0], text, sizeof text - 1, MSG_DONTWAIT);
    if (n < 0)
        return "";
    assert_true(n > 30 && text[n - 1] == '\n');
    text[n - 1] = '\0';
    assert_null(strchr(text, '\n'));
    size_t time_at = json ? strlen("{\"time\":\"") : 0;
    assert_int_equal(text[time_at + 10], 'T');
    assert_int_equal(text[time_at + 23], 'Z');
    return text + time_at + 24;
}

static void test_text(void **state)
{
    log_setup(LOG_INFO_, LOG_TEXT);
    log_debug("not.shown", KV("a", "b"));
    log_info("plugin.registered", KV("resource", "nvidia.com/gpu"), KV_I("devices", -8));
    assert_string_equal(line(false), " info plugin.registered resource=nvidia.com/gpu devices=-8");
    log_warn("a", KV("empty", ""), KV("none", NULL), KV_SECRET("token", "abc"));
    assert_string_equal(line(false), " warn a empty=\"\" none=- token=***");
    log_error("b", KV("t", "say \"hi\" a=b\n\x1b[31m \\"));
    assert_string_equal(line(false), " error b t=\"say \\\"hi\\\" a=b\\n\\u001b[31m \\\\\"");
    log_info("alone");
    assert_string_equal(line(false), " info alone");
    assert_string_equal(line(false), "");
}

static void test_json(void **state)
{
    log_setup(LOG_DEBUG_, LOG_JSON);
    log_debug("e", KV("k\"", "a\"b\\\t\x01\x7F"), KV_I("n", INT64_MIN), KV("null", NULL),
              KV_SECRET("s", "x"));
    assert_string_equal(
        line(true),
        "\",\"level\":\"debug\",\"event\":\"e\",\"k\\\"\":\"a\\\"b\\\\\\t\\u0001\\u007f\","
        "\"n\":-9223372036854775808,\"null\":null,\"s\":\"***\"}");
    log_info("é", KV("bad", "a\xFF\xC3z"), KV("good", "€"));
    assert_string_equal(
        line(true), "\",\"level\":\"info\",\"event\":\"é\",\"bad\":\"a\xEF\xBF\xBD\xEF\xBF\xBDz\","
                    "\"good\":\"€\"}");
}

static void test_long(void **state)
{
    char text[5000];
    memset(text, 'x', sizeof text);
    memcpy(text + 1023, "\xC3\xA9", 2); /* the limit lies inside this character */
    text[sizeof text - 1] = '\0';
    log_setup(LOG_INFO_, LOG_JSON);
    log_info("e", KV("k", text));
    const char *got = line(true);
    assert_true(str_ends(str_of(got), "xxx…\"}"));
    assert_true(strlen(got) < 1100);

    /* Past the line's limit whole pairs are left out, and the line is still JSON. */
    struct log_kv many[64];
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = KV("key", text);
    log_write(LOG_INFO_, "e", many, ARRAY_LEN(many));
    got = line(true);
    assert_true(str_ends(str_of(got), "xxx…\",\"cut\":true}"));
    assert_true(strlen(got) < 16 * 1024);
    log_setup(LOG_INFO_, LOG_TEXT);
    log_write(LOG_INFO_, "e", many, ARRAY_LEN(many));
    assert_true(str_ends(str_of(line(false)), "xxx…\" cut=true"));
}

static void *writer(void *arg)
{
    for (int i = 0; i < 50; i++)
        log_info("threads", KV_I("i", i), KV("text", "some words"));
    return NULL;
}

static void test_threads(void **state)
{
    log_setup(LOG_INFO_, LOG_TEXT);
    pthread_t t[2];
    size_t whole = 0;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, writer, NULL), 0);
    while (whole < 100) {
        const char *got = line(false);
        if (!got[0])
            continue;
        assert_true(str_ends(str_of(got), " text=\"some words\""));
        whole++;
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
}

static void test_findings(void **state)
{
    auto_arena a;
    arena_init(&a, 64 * 1024);
    struct findings f;
    findings_init(&f, &a, 3);
    char id[] = "config.x";
    for (int i = 0; i < 5; i++)
        findings_add(&f, id, i == 4 ? SEVERITY_ERROR : SEVERITY_WARNING, "file:1:2 key", NULL,
                     "found %d", i);
    id[0] = '!'; /* texts are copies */
    assert_int_equal(f.n, 4);
    assert_string_equal(f.items[0].id, "config.x");
    assert_string_equal(f.items[2].cause, "found 2");
    assert_string_equal(f.items[0].fix, "");
    assert_string_equal(f.items[3].id, "limit.findings");
    assert_int_equal(findings_count(&f, SEVERITY_WARNING), 5); /* 4, and the note itself */
    assert_int_equal(findings_count(&f, SEVERITY_ERROR), 1);
    assert_string_equal(severity_name(SEVERITY_UNKNOWN), "unknown");
    assert_string_equal(severity_name((enum severity)77), "unknown");
}

/* Without memory a finding loses its text, but not its weight. */
static void test_findings_memory(void **state)
{
    for (uint64_t k = 1; k < 10; k++) {
        auto_arena a;
        arena_init(&a, 1024 * 1024);
        struct findings f;
        findings_init(&f, &a, 100);
        mem_fail_at(k);
        for (int i = 0; i < 60; i++)
            findings_add(&f, "id", SEVERITY_ERROR, "s", "f", "%.900d", i);
        mem_fail_at(0);
        assert_int_equal(findings_count(&f, SEVERITY_ERROR), 60);
        for (size_t i = 0; i < f.n; i++)
            assert_true(f.items[i].id && f.items[i].subject && f.items[i].cause && f.items[i].fix);
    }
}

/* ---- a reader that does not read ---- */

static int n_stalled;

static void on_stalled(void *arg)
{
    *(int *)arg += 1;
}

/* All that can be read now, as one text. */
static size_t read_all(int fd, char *text, size_t size)
{
    size_t n = 0;
    for (ssize_t got; n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
    return n;
}

static void make_pipe(int fds[2])
{
    assert_int_equal(pipe(fds), 0);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
}

static void make_stream(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
}

/* The numbers of the lines are 0, 1, 2, … as long as lines were kept, and the rest is counted. */
static void check_never_waits(void (*make)(int fds[2]))
{
    enum { LINES = 20000 };
    static char text[4 * 1024 * 1024];
    int fds[2];
    make(fds);
    n_stalled = 0;
    log_to_fd(fds[1]);
    log_never_wait(on_stalled, &n_stalled);
    for (int i = 0; i < LINES; i++)
        log_info("count", KV_I("i", i), KV("text", "some more that makes the line as long as any"));
    assert_int_equal(n_stalled, 1);
    assert_false(log_flush());
    size_t n = 0;
    do
        n += read_all(fds[0], text + n, sizeof text - n);
    while (!log_flush());
    n += read_all(fds[0], text + n, sizeof text - n);
    int next = 0, lost = -1;
    for (char *at = text; *at;) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        *end = '\0';
        const char *i = strstr(at, " count i="), *l = strstr(at, " log.lost lines=");
        assert_true(i || l);
        if (i) {
            assert_int_equal(lost, -1);
            assert_int_equal(strtol(i + strlen(" count i="), NULL, 10), next++);
        } else {
            lost = (int)strtol(l + strlen(" log.lost lines="), NULL, 10);
        }
        at = end + 1;
    }
    assert_int_equal(next + lost, LINES);
    assert_true(next > 64 * 1024 / 150);
    log_info("again");
    assert_true(read_all(fds[0], text, sizeof text) > 20);
    assert_non_null(strstr(text, "again"));
    assert_int_equal(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0); /* others write there too */
    log_to_fd(ends[1]);
    close(fds[0]);
    close(fds[1]);
}

static void test_pipe_never_waits(void **state)
{
    check_never_waits(make_pipe);
}

static void test_socket_never_waits(void **state)
{
    check_never_waits(make_stream);
}

static void test_reader_gone(void **state)
{
    int fds[2];
    signal(SIGPIPE, SIG_IGN);
    make_pipe(fds);
    log_to_fd(fds[1]);
    log_never_wait(NULL, NULL);
    close(fds[0]);
    for (int i = 0; i < 3000; i++)
        log_info("nobody.reads");
    assert_true(log_flush());
    log_to_fd(ends[1]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_findings),
        cmocka_unit_test(test_findings_memory),
        cmocka_unit_test(test_pipe_never_waits),
        cmocka_unit_test(test_socket_never_waits),
        cmocka_unit_test(test_reader_gone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
