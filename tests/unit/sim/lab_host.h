/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* For the tests of the lab: a simulated host in a directory of its own, and its library with every
 * call by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "gpu/nvml_calls.h"
#include "sim/simstate.h"
#include "sim/tree.h"

struct lab {
    char dir[64];
    void *library;
#define LAB_MEMBER(symbol, ...) nv_fn_##symbol symbol;
    NV_CALLS(LAB_MEMBER)
#undef LAB_MEMBER
};

static inline void lab_make(struct lab *l, struct sim_create c)
{
    struct error err = { 0 };
    memset(l, 0, sizeof(*l));
    snprintf(l->dir, sizeof(l->dir), "/tmp/mete-lab-XXXXXX");
    assert_non_null(mkdtemp(l->dir));
    c.dir = l->dir;
    if (sim_create(&c, &err) < 0)
        fail_msg("sim create: %s", err.text);
}

static inline void lab_load_from(struct lab *l, const char *sub)
{
    char path[256];
    snprintf(path, sizeof(path), "%s%s/libnvidia-ml.so.1", l->dir, sub);
    l->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->library)
        fail_msg("%s", dlerror());
#define LAB_SYMBOL(symbol, ...) l->symbol = (nv_fn_##symbol)(uintptr_t)dlsym(l->library, #symbol);
    NV_CALLS(LAB_SYMBOL)
#undef LAB_SYMBOL
}

static inline void lab_open(struct lab *l, struct sim_create c)
{
    lab_make(l, c);
    lab_load_from(l, c.profile ? "/run/nvidia/driver/usr/lib64"
#if defined(__aarch64__)
                               : "/usr/lib/aarch64-linux-gnu");
#else
                               : "/usr/lib/x86_64-linux-gnu");
#endif
}

static inline void lab_remove(struct lab *l)
{
    struct tree t;
    if (l->library)
        dlclose(l->library);
    assert_int_equal(0, tree_open(&t, l->dir, NULL));
    tree_prune(&t, ".", "");
    assert_int_equal(0, tree_close(&t));
    assert_int_equal(0, rmdir(l->dir));
}

/* One line of `mete sim set`; the words are parted by single spaces. Returns its result. */
static inline int lab_try(const struct lab *l, const char *line, struct error *err)
{
    char text[256], *words[24], *rest = text;
    int n = 0;
    snprintf(text, sizeof(text), "%s", line);
    while (rest && n < 24)
        words[n++] = strsep(&rest, " ");
    return sim_set(l->dir, n, words, err);
}

static inline void lab_set(const struct lab *l, const char *line)
{
    struct error err = { 0 };
    if (lab_try(l, line, &err) < 0)
        fail_msg("sim set %s: %s", line, err.text);
}

static inline nv_device lab_gpu(const struct lab *l, unsigned index)
{
    nv_device d = NULL;
    assert_int_equal(NV_OK, l->nvmlDeviceGetHandleByIndex_v2(index, &d));
    assert_non_null(d);
    return d;
}

/* The content of a file of the host; the test fails when there is none. */
__attribute__((returns_nonnull)) static inline char *lab_read(const struct lab *l, const char *sub)
{
    char path[256];
    static char text[8192];
    snprintf(path, sizeof(path), "%s%s", l->dir, sub);
    FILE *f = fopen(path, "re");
    if (!f) {
        fail_msg("there is no %s", path);
        return text;
    }
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    fclose(f);
    return text;
}

static inline bool lab_exists(const struct lab *l, const char *sub)
{
    char path[256];
    snprintf(path, sizeof(path), "%s%s", l->dir, sub);
    return access(path, F_OK) == 0;
}
