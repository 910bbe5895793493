/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread uint64_t try_calls, fail_call;

static void __attribute__((noreturn)) exhausted(void)
{
    static const char text[] =
        "mete: out of memory: a small allocation failed; raise the memory limit of this process\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    abort();
}

void *x_alloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    if (!p)
        exhausted();
    return p;
}

void *x_realloc(void *p, size_t n)
{
    void *q = realloc(p, n ? n : 1);
    if (!q)
        exhausted();
    return q;
}

char *x_strdup(const char *s)
{
    return x_strndup(s, strlen(s));
}

char *x_strndup(const char *s, size_t n)
{
    n = strnlen(s, n);
    char *p = x_alloc(n + 1);
    memcpy(p, s, n);
    return p;
}

char *x_printf(const char *fmt, ...)
{
    va_list ap;
    char *p = NULL;
    va_start(ap, fmt);
    int n = vasprintf(&p, fmt, ap);
    va_end(ap);
    if (n < 0 || !p)
        exhausted();
    return p;
}

static int must_fail(void)
{
    return ++try_calls == fail_call;
}

void *try_alloc(size_t n)
{
    return must_fail() ? NULL : calloc(1, n ? n : 1);
}

void *try_realloc(void *p, size_t n)
{
    return must_fail() ? NULL : realloc(p, n ? n : 1);
}

uint64_t mem_fail_at(uint64_t k)
{
    uint64_t made = try_calls;
    try_calls = 0;
    fail_call = k;
    return made;
}

void mem_free_p(void *pp)
{
    void *p;
    memcpy(&p, pp, sizeof p);
    free(p);
}

void mem_close_p(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
