/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cdi/root.h"
#include "tree.h"

static void fill(struct tmp_tree *t)
{
    tmp_tree_init(t);
    tmp_tree_file(t, "/secret", "outside");
    tmp_tree_file(t, "/root/usr/lib64/liba.so.5", "inside");
    tmp_tree_file(t, "/root-backup/liba.so.5", "the name begins alike");
    tmp_tree_link(t, "/root/usr/lib64/liba.so.1", "liba.so.5");
    tmp_tree_link(t, "/root/usr/lib64/liba.so", "liba.so.1");
    tmp_tree_link(t, "/root/lib64", "usr/lib64");
    tmp_tree_link(t, "/root/lib", "/usr/lib64");
    tmp_tree_link(t, "/root/up", "../../../../../../secret");
    tmp_tree_link(t, "/root/sibling", "../root-backup/liba.so.5");
    tmp_tree_link(t, "/root/etc-secret", "/secret");
    tmp_tree_link(t, "/root/a", "b");
    tmp_tree_link(t, "/root/b", "a");
    tmp_tree_link(t, "/root/self", "/");
    tmp_tree_link(t, "/root/dangling", "/nowhere");
}

static void links_stay_inside(void **state)
{
    static const struct {
        const char *path, *real; /* NULL: absent */
    } cases[] = {
        { "/usr/lib64/liba.so.5", "/usr/lib64/liba.so.5" },
        { "/usr/lib64/liba.so", "/usr/lib64/liba.so.5" },
        { "/lib64/liba.so", "/usr/lib64/liba.so.5" },
        { "/lib/liba.so.1", "/usr/lib64/liba.so.5" },
        { "usr//./lib64/../lib64/liba.so.5", "/usr/lib64/liba.so.5" },
        { "/self/self/lib64", "/usr/lib64" },
        { "/self", "/" },
        { "/", "/" },
        { "/../../..", "/" },
        { "/../../usr", "/usr" },
        { "/up", NULL },
        { "/etc-secret", NULL },
        { "/sibling", NULL },
        { "/a", NULL },
        { "/dangling", NULL },
        { "/usr/lib64/liba.so.5/", NULL },
        { "/usr/lib64/liba.so.5/x", NULL },
        { "/usr/none", NULL },
    };
    struct tmp_tree t;
    struct cdi_root r;
    struct error err;
    fill(&t);
    auto_free char *view = tmp_tree_path(&t, "/root");
    assert_int_equal(cdi_root_open(&r, view, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char real[CDI_PATH_MAX];
        struct stat st;
        bool found = cdi_root_resolve(&r, cases[i].path, real, &st);
        if (found != (cases[i].real != NULL))
            fail_msg("%s: %s", cases[i].path, found ? real : "absent");
        if (found)
            assert_string_equal(real, cases[i].real);
        int fd = cdi_root_open_file(&r, cases[i].path, O_RDONLY);
        if ((fd >= 0) != found)
            fail_msg("%s: open says %d", cases[i].path, fd);
        if (fd >= 0)
            close(fd);
    }
    cdi_root_close(&r);
    tmp_tree_done(&t);
}

/* As long as the kernel's own limits, and past them. */
static void long_paths_are_absent(void **state)
{
    struct tmp_tree t;
    struct cdi_root r;
    struct error err;
    char path[4 * CDI_PATH_MAX], real[CDI_PATH_MAX];
    fill(&t);
    auto_free char *view = tmp_tree_path(&t, "/root"), *none = tmp_tree_path(&t, "/none");
    assert_int_equal(cdi_root_open(&r, view, &err), 0);
    for (size_t n = CDI_PATH_MAX - 8; n < sizeof path; n += 100) {
        memset(path, 'x', n);
        path[0] = '/';
        path[n] = '\0';
        assert_false(cdi_root_resolve(&r, path, real, NULL));
    }
    /* many short steps that lead nowhere far */
    path[0] = '\0';
    for (size_t i = 0; i < 300; i++)
        memcpy(path + 5 * i, "/self", 6);
    assert_false(cdi_root_resolve(&r, path, real, NULL)); /* more than 40 links */
    cdi_root_close(&r);
    assert_int_equal(cdi_root_open(&r, none, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, none));
    cdi_root_close(&r);
    tmp_tree_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_stay_inside),
        cmocka_unit_test(long_paths_are_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
