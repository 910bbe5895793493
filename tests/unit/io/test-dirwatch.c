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
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/dirwatch.h"

/* No more inotify instances, as when a host's limit is reached. */
static bool no_inotify;
int __real_inotify_init1(int flags);
int __wrap_inotify_init1(int flags);
int __wrap_inotify_init1(int flags)
{
    if (no_inotify) {
        errno = EMFILE;
        return -1;
    }
    return __real_inotify_init1(flags);
}

struct world {
    struct loop *loop;
    struct dirwatch *watch;
    char base[64], dir[96];
    char seen[1024], notes[2048]; /* names told, each in brackets; NULL is [*] */
    bool free_in_callback;
};

static int setup(void **state)
{
    struct world *w = x_alloc(sizeof *w);
    snprintf(w->base, sizeof w->base, "/tmp/mete-dirwatch-XXXXXX");
    assert_non_null(mkdtemp(w->base));
    snprintf(w->dir, sizeof w->dir, "%s/d", w->base);
    assert_int_equal(loop_new(&w->loop, NULL), 0);
    no_inotify = false;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    dirwatch_free(w->watch);
    loop_free(w->loop);
    auto_free char *command = x_printf("rm -rf %s", w->base);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

static void changed(void *arg, const char *name)
{
    struct world *w = arg;
    size_t n = strlen(w->seen);
    snprintf(w->seen + n, sizeof w->seen - n, "[%s]", name ? name : "*");
    if (w->free_in_callback) {
        dirwatch_free(w->watch);
        w->watch = NULL;
    }
}

static void note(void *arg, const char *text)
{
    struct world *w = arg;
    size_t n = strlen(w->notes);
    snprintf(w->notes + n, sizeof w->notes - n, "%s\n", text);
}

static void begin(struct world *w)
{
    const struct dirwatch_events ev = { changed, note, w };
    struct error err;
    assert_int_equal(dirwatch_new(w->loop, w->dir, 20, &ev, &w->watch, &err), 0);
}

static void stop(void *arg)
{
    loop_stop(arg, 0);
}

static void run_for(struct world *w, int64_t ms)
{
    struct timer t;
    timer_init(&t, w->loop, stop, w->loop);
    timer_set(&t, ms);
    loop_run(w->loop);
    timer_done(&t);
}

static bool saw(struct world *w, const char *what)
{
    for (int i = 0; i < 200 && !strstr(w->seen, what); i++)
        run_for(w, 5);
    return strstr(w->seen, what) != NULL;
}

static void forget(struct world *w)
{
    run_for(w, 30);
    w->seen[0] = '\0';
}

static void touch(struct world *w, const char *name, const char *text)
{
    auto_free char *path = x_printf("%s/%s", w->dir, name);
    auto_close int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void make(struct world *w)
{
    assert_int_equal(mkdir(w->dir, 0700), 0);
}

static void entries(void **state)
{
    struct world *w = *state;
    make(w);
    begin(w);
    assert_false(dirwatch_polling(w->watch));
    touch(w, "kubelet.sock", "");
    assert_true(saw(w, "[kubelet.sock]"));
    forget(w);
    touch(w, "kubelet.sock", "x");
    assert_true(saw(w, "[kubelet.sock]"));
    auto_free char *a = x_printf("%s/kubelet.sock", w->dir), *b = x_printf("%s/other", w->dir);
    forget(w);
    assert_int_equal(rename(a, b), 0);
    assert_true(saw(w, "[kubelet.sock][other]"));
    forget(w);
    assert_int_equal(unlink(b), 0);
    assert_true(saw(w, "[other]"));
    assert_string_equal(w->notes, "");
}

static void not_there_yet(void **state)
{
    struct world *w = *state;
    begin(w);
    assert_true(dirwatch_polling(w->watch));
    assert_non_null(strstr(w->notes, "No such file or directory"));
    run_for(w, 100);
    assert_string_equal(w->seen, "");
    make(w);
    assert_true(saw(w, "[*]"));
    assert_false(dirwatch_polling(w->watch));
    assert_non_null(strstr(w->notes, "by events again"));
    touch(w, "f", "");
    assert_true(saw(w, "[f]"));
}

static void neither_is_its_parent(void **state)
{
    struct world *w = *state;
    snprintf(w->dir, sizeof w->dir, "%s/d/deeper", w->base);
    begin(w);
    auto_free char *up = x_printf("%s/d", w->base);
    assert_int_equal(mkdir(up, 0700), 0);
    make(w);
    touch(w, "f", "");
    assert_true(saw(w, "[*]"));
    assert_false(dirwatch_polling(w->watch));
}

static void removed_and_made_again(void **state)
{
    struct world *w = *state;
    make(w);
    begin(w);
    auto_close int open_elsewhere = open(w->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(rmdir(w->dir), 0);
    assert_true(saw(w, "[*]"));
    forget(w);
    assert_true(dirwatch_polling(w->watch));
    make(w);
    touch(w, "f", "");
    assert_true(saw(w, "[*]"));
    forget(w);
    touch(w, "g", "");
    assert_true(saw(w, "[g]"));
    assert_false(dirwatch_polling(w->watch));
    (void)open_elsewhere;
}

static void replaced_by_another(void **state)
{
    struct world *w = *state;
    make(w);
    begin(w);
    auto_free char *away = x_printf("%s/away", w->base), *fresh = x_printf("%s/new", w->base);
    assert_int_equal(mkdir(fresh, 0700), 0);
    assert_int_equal(rename(w->dir, away), 0);
    assert_int_equal(rename(fresh, w->dir), 0);
    assert_true(saw(w, "[*]"));
    forget(w);
    touch(w, "here", "");
    assert_true(saw(w, "[here]"));
}

static void configmap_swap(void **state)
{
    struct world *w = *state;
    make(w);
    auto_free char *script = x_printf(
        "cd %s && mkdir ..1 ..2 && echo a >..1/config.yaml && echo b >..2/config.yaml && "
        "ln -s ..1 ..data && ln -s ..data/config.yaml config.yaml && ln -s /etc/passwd other",
        w->dir);
    assert_int_equal(system(script), 0);
    begin(w);
    auto_free char *swap = x_printf("cd %s && ln -s ..2 ..tmp && mv -T ..tmp ..data", w->dir);
    assert_int_equal(system(swap), 0);
    assert_true(saw(w, "[config.yaml]"));
    assert_null(strstr(w->seen, "[other]"));
}

static void without_inotify(void **state)
{
    struct world *w = *state;
    make(w);
    touch(w, "f", "1");
    no_inotify = true;
    begin(w);
    assert_true(dirwatch_polling(w->watch));
    assert_non_null(strstr(w->notes, "Too many open files"));
    run_for(w, 100);
    assert_string_equal(w->seen, "");
    touch(w, "f", "22");
    assert_true(saw(w, "[*]"));
    forget(w);
    touch(w, "g", "");
    assert_true(saw(w, "[*]"));
    forget(w);
    auto_free char *path = x_printf("%s/g", w->dir);
    assert_int_equal(unlink(path), 0);
    assert_true(saw(w, "[*]"));
    no_inotify = false;
    for (int i = 0; i < 100 && dirwatch_polling(w->watch); i++)
        run_for(w, 10);
    assert_false(dirwatch_polling(w->watch));
    forget(w);
    touch(w, "h", "");
    assert_true(saw(w, "[h]"));
}

static void freed_in_its_callback(void **state)
{
    struct world *w = *state;
    make(w);
    begin(w);
    w->free_in_callback = true;
    touch(w, "a", "");
    touch(w, "b", "");
    run_for(w, 50);
    assert_string_equal(w->seen, "[a]");
}

static void many_events(void **state)
{
    struct world *w = *state;
    make(w);
    begin(w);
    for (int i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i % 3);
        touch(w, name, "x");
    }
    touch(w, "last", "");
    for (int i = 0; i < 400 && !strstr(w->seen, "[last]"); i++) {
        w->seen[0] = '\0';
        run_for(w, 5);
    }
    assert_non_null(strstr(w->seen, "[last]"));
}

static void odd_paths(void **state)
{
    struct world *w = *state;
    const struct dirwatch_events ev = { changed, NULL, w };
    struct error err;
    assert_int_equal(dirwatch_new(w->loop, "", 20, &ev, &w->watch, &err), -ERR_INVALID);
    assert_int_equal(dirwatch_new(w->loop, "/", 20, &ev, &w->watch, &err), 0);
    assert_false(dirwatch_polling(w->watch));
    dirwatch_free(w->watch);
    snprintf(w->dir, sizeof w->dir, "%s/d//", w->base);
    begin(w);
    make(w);
    assert_true(saw(w, "[*]"));
    dirwatch_free(NULL);
}

static void idle_costs_nothing(void **state)
{
    struct world *w = *state;
    struct rusage before, after;
    make(w);
    begin(w);
    run_for(w, 20);
    getrusage(RUSAGE_SELF, &before);
    run_for(w, 300);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_nvcsw - before.ru_nvcsw < 10);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(entries),
        T(not_there_yet),
        T(neither_is_its_parent),
        T(removed_and_made_again),
        T(replaced_by_another),
        T(configmap_swap),
        T(without_inotify),
        T(freed_in_its_callback),
        T(many_events),
        T(odd_paths),
        T(idle_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
