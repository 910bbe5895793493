/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Memory. Two kinds, as the house rules say:
 *   small and bounded by us      → x_alloc and friends: never return NULL, end the process through
 * one handler; sized by a peer or a file    → try_alloc and friends, an arena or a buf: may fail,
 * the caller answers ERR_LIMIT. mem_fail_at() makes the k-th try_* allocation fail, so that a test
 * can walk through every allocation of a parser.
 */
#include <stddef.h>
#include <stdint.h>

void *x_alloc(size_t n) __attribute__((malloc, returns_nonnull)); /* zeroed */
void *x_realloc(void *p, size_t n) __attribute__((returns_nonnull));
char *x_strdup(const char *s) __attribute__((malloc, returns_nonnull));
char *x_strndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));
char *x_printf(const char *fmt, ...) __attribute__((malloc, returns_nonnull, format(printf, 1, 2)));

void *try_alloc(size_t n);            /* zeroed; NULL on exhaustion or by order of mem_fail_at */
void *try_realloc(void *p, size_t n); /* as realloc; on NULL the old block is still valid */

/* Lets the k-th try_* call from now on fail (k = 1: the next one), once; 0 switches it off. Returns
 * how many calls were made since the last mem_fail_at. Per thread. */
uint64_t mem_fail_at(uint64_t k);

/* Cleanup attributes and the only way out of them. */
void mem_free_p(void *pp);
void mem_close_p(int *fd);
#define auto_free  __attribute__((cleanup(mem_free_p)))
#define auto_close __attribute__((cleanup(mem_close_p)))

/* Moves a pointer out of its variable: returns it and leaves NULL behind. */
#define steal(p)                                                                                   \
    ({                                                                                             \
        __typeof__(p) stolen_ = (p);                                                               \
        (p) = NULL;                                                                                \
        stolen_;                                                                                   \
    })

/* The same for a file descriptor: leaves -1 behind. */
static inline int steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))
