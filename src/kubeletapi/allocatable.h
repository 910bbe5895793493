/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What kubelet itself would hand out: pod-resources' GetAllocatableResources (kubelet-and-dra.md
 * 2.6), which lists the devices of every plugin that it holds for healthy. Where the method is
 * missing or switched off, the call fails and nothing is known. */
#include "base/arena.h"
#include "io/loop.h"

struct allocatable_count {
    const char *resource;
    size_t n; /* devices */
};
enum { ALLOCATABLE_RESOURCES_MAX = 1024 };

/* AllocatableResourcesResponse: one entry for each resource, in order of first sight, in the arena.
 * ERR_INVALID: broken; ERR_LIMIT: more resources than the limit, or no memory. */
int allocatable_parse(struct str message, struct arena *arena, struct allocatable_count **ret,
                      size_t *ret_n, struct error *err) must_check;

struct allocatable_reader;
/* socket: copied. */
struct allocatable_reader *allocatable_reader_new(struct loop *l, const char *socket);
void allocatable_reader_free(struct allocatable_reader *r); /* NULL allowed; done() is not called */
/* Asks kubelet; done() is called once, never before this returns: the counts (borrowed until it
 * returns), or an error. A call during one, done() included, is ignored. done() may not free the
 * reader. */
void allocatable_read(struct allocatable_reader *r,
                      void (*done)(void *arg, const struct allocatable_count *counts, size_t n,
                                   const struct error *e),
                      void *arg);
