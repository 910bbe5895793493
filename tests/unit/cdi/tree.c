/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tree.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

void tmp_tree_init(struct tmp_tree *t)
{
    snprintf(t->dir, sizeof t->dir, "/tmp/mete-cdi-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *ftw)
{
    return remove(path);
}

void tmp_tree_done(struct tmp_tree *t)
{
    nftw(t->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

char *tmp_tree_path(const struct tmp_tree *t, const char *path)
{
    return x_printf("%s%s", t->dir, path);
}

static char *place(const struct tmp_tree *t, const char *path)
{
    char *full = tmp_tree_path(t, path);
    char *slash = strrchr(full, '/');
    struct error err;
    *slash = '\0';
    if (dir_make(full, 0755, &err) < 0)
        fail_msg("%s", err.text);
    *slash = '/';
    return full;
}

void tmp_tree_file(const struct tmp_tree *t, const char *path, const char *text)
{
    auto_free char *full = place(t, path);
    FILE *out = fopen(full, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

void tmp_tree_link(const struct tmp_tree *t, const char *path, const char *target)
{
    auto_free char *full = place(t, path);
    assert_int_equal(symlink(target, full), 0);
}
