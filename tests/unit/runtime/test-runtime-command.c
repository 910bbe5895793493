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
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "runtime/runtime.h"

/* Cuts a line at blanks into arguments after "runc". */
static struct runtime_command of(char *line)
{
    char *argv[40] = { (char[]){ "runc" } };
    int argc = 1;
    for (char *p = line; *p; argc++) {
        argv[argc] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = '\0';
    }
    return runtime_command_of(argc, argv);
}

static void commands_are_read_as_the_runtimes_do(void **state)
{
    (void)state;
    static const struct {
        const char *line, *word;
        bool makes;
        const char *bundle, *config, *log, *format;
    } cases[] = {
        { "", NULL, false, ".", "config.json", NULL, NULL },
        { "--version", NULL, false, ".", "config.json", NULL, NULL },
        { "create x", "create", true, ".", "config.json", NULL, NULL },
        { "create --bundle /b x", "create", true, "/b", "config.json", NULL, NULL },
        { "create --bundle=/b x", "create", true, "/b", "config.json", NULL, NULL },
        { "create -b /b x", "create", true, "/b", "config.json", NULL, NULL },
        { "create -b=/b x", "create", true, "/b", "config.json", NULL, NULL },
        { "create -b/b=c x", "create", true, "/b=c", "config.json", NULL, NULL },
        { "create -bundle /b x", "create", true, "/b", "config.json", NULL, NULL },
        { "create x --bundle /b", "create", true, "/b", "config.json", NULL, NULL },
        { "create --bundle /a --bundle /b x", "create", true, "/b", "config.json", NULL, NULL },
        { "create -- --bundle /b", "create", true, ".", "config.json", NULL, NULL },
        { "run -d --pid-file /p -b /b x", "run", true, "/b", "config.json", NULL, NULL },
        { "create --pid-file --bundle x", "create", true, ".", "config.json", NULL, NULL },
        { "create --console-socket -b --bundle /b x", "create", true, "/b", "config.json", NULL,
          NULL },
        { "create --preserve-fds 3 --no-pivot -b /b x", "create", true, "/b", "config.json", NULL,
          NULL },
        { "create -f other.json -b /b x", "create", true, "/b", "other.json", NULL, NULL },
        /* as containerd's shim calls it */
        { "--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json --systemd-cgroup "
          "create --bundle /b --pid-file /b/init.pid abc",
          "create", true, "/b", "config.json", "/b/log.json", "json" },
        { "--log=/l --log-format=json --debug run x", "run", true, ".", "config.json", "/l",
          "json" },
        /* as CRI-O's conmon calls it, with crun */
        { "--systemd-cgroup --root=/run/crun --log-level debug create --bundle /b --pid-file /p x",
          "create", true, "/b", "config.json", NULL, NULL },
        { "--cgroup-manager cgroupfs create x", "create", true, ".", "config.json", NULL, NULL },
        /* words that are names or values here */
        { "delete create", "delete", false, ".", "config.json", NULL, NULL },
        { "--root create delete x", "delete", false, ".", "config.json", NULL, NULL },
        { "exec x create", "exec", false, ".", "config.json", NULL, NULL },
        { "state create", "state", false, ".", "config.json", NULL, NULL },
        { "--new-option value create -b /b x", "create", true, "/b", "config.json", NULL, NULL },
        { "--new-flag create -b /b x", "create", true, "/b", "config.json", NULL, NULL },
        { "-- create x", "create", true, ".", "config.json", NULL, NULL },
        { "--log", NULL, false, ".", "config.json", NULL, NULL },
        { "create --bundle", "create", true, ".", "config.json", NULL, NULL },
        { "- create", "-", false, ".", "config.json", NULL, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *line = x_strdup(cases[i].line);
        struct runtime_command c = of(line);
        bool ok =
            c.makes_container == cases[i].makes &&
            strcmp(c.word ? c.word : "", cases[i].word ? cases[i].word : "") == 0 &&
            strcmp(c.bundle, cases[i].bundle) == 0 && strcmp(c.config_name, cases[i].config) == 0 &&
            strcmp(c.log ? c.log : "", cases[i].log ? cases[i].log : "") == 0 &&
            strcmp(c.log_format ? c.log_format : "", cases[i].format ? cases[i].format : "") == 0;
        if (!ok)
            fail_msg("case %zu \"%s\": %s %d %s %s %s %s", i, cases[i].line, c.word,
                     c.makes_container, c.bundle, c.config_name, c.log, c.log_format);
    }
}

static void the_real_runtime_is_found(void **state)
{
    (void)state;
    char dir[] = "/tmp/mete-runtime-find-XXXXXX";
    assert_non_null(mkdtemp(dir));
    auto_free char *real = x_printf("%s/runc", dir), *plain = x_printf("%s/crun", dir),
                   *self = x_printf("%s/self", dir), *path = x_printf("relative::/nowhere:%s", dir);
    FILE *f = fopen(real, "w");
    fclose(f);
    chmod(real, 0755);
    f = fopen(plain, "w");
    fclose(f);
    chmod(plain, 0644);
    char exe[256] = { 0 };
    assert_true(readlink("/proc/self/exe", exe, sizeof exe - 1) > 0);
    assert_int_equal(symlink(exe, self), 0);
    const struct {
        const char *names[3];
        size_t n;
        const char *want; /* NULL: an error */
    } cases[] = {
        { { "runc" }, 1, real },         { { "crun", "runc" }, 2, real }, /* crun is not executable
                                                                           */
        { { "self", "runc" }, 2, real }, /* this program is not its own runtime */
        { { self }, 1, NULL },           { { real }, 1, real },           { { "./runc" }, 1, NULL },
        { { "absent" }, 1, NULL },       { { NULL }, 0, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_arena a;
        struct error err;
        const char *got = NULL;
        arena_init(&a, 65536);
        const struct runtime_texts names = { cases[i].names, cases[i].n };
        int r = runtime_find(&a, &names, path, &got, &err);
        assert_int_equal(r, cases[i].want ? 0 : -ERR_NOT_FOUND);
        if (r == 0)
            assert_string_equal(got, cases[i].want);
        else
            assert_non_null(strstr(err.text, path));
    }
    unlink(real);
    unlink(plain);
    unlink(self);
    rmdir(dir);
}

static void errors_are_said_as_runc_does(void **state)
{
    (void)state;
    char dir[] = "/tmp/mete-runtime-log-XXXXXX";
    assert_non_null(mkdtemp(dir));
    auto_free char *log = x_printf("%s/log", dir), *prefixed = x_printf("file:%s", log);
    const struct {
        struct runtime_command c;
        const char *want;
    } cases[] = {
        { { .log = log, .log_format = "json" },
          "{\"level\":\"error\",\"msg\":\"a \\\"b\\\"\",\"time\":\"2" },
        { { .log = log }, "level=error msg=\"a \\\"b\\\"\"" },
        { { .log = prefixed, .log_format = "text" }, "level=error msg=" },
        { { .log = "journald:x" }, NULL },
        { { 0 }, NULL },
    };
    int saved = dup(2), quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(quiet, 2);
    close(quiet);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *text = NULL;
        struct error err;
        unlink(log);
        runtime_report(&cases[i].c, "mete-runtime", "a \"b\"");
        int r = file_read(log, 65536, &text, NULL, &err);
        assert_int_equal(r == 0, cases[i].want != NULL);
        if (r == 0)
            assert_non_null(strstr(text, cases[i].want));
    }
    dup2(saved, 2);
    close(saved);
    unlink(log);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_are_read_as_the_runtimes_do),
        cmocka_unit_test(the_real_runtime_is_found),
        cmocka_unit_test(errors_are_said_as_runc_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
