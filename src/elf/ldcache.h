/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * glibc's ld.so.cache, format "glibc-ld.so.cache1.1" (and the same behind an old-format part).
 * Source: what the loader of glibc 2.32 and later reads; docs/formats.md has the layout. Tests hold
 * the writer against glibc's own loader and ldconfig -p.
 */
#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

enum {
    LDCACHE_MAX = 16 * 1024 * 1024, /* bytes of a cache that is read or written */
    LDCACHE_ENTRIES_MAX = 65536,
    LDCACHE_X86_64 = 0x0303, /* flags of an entry: ELF libc6 | architecture */
    LDCACHE_AARCH64 = 0x0a03,
    LDCACHE_I386 = 0x0003,
};

struct ldcache_entry {
    const char *soname; /* key */
    const char *path;   /* value */
    int32_t flags;
    uint64_t
        hwcap; /* kept as it was read: index into the cache's hardware names, or an old bit mask */
};

struct ldcache {
    struct ldcache_entry *entries;
    size_t n;
    struct str
        hwcaps[64]; /* names of glibc-hwcaps subdirectories, in the order that hwcap counts them */
    size_t n_hwcaps;
};

/* Texts are copied into the arena. ERR_INVALID with the byte where it does not fit. An
 * old-format-only cache (before glibc 2.2) is ERR_UNSUPPORTED. */
int ldcache_parse(struct arena *a, struct str bytes, struct ldcache *ret,
                  struct error *err) must_check;

/* Gives each entry to take() without a copy: the texts live in `bytes`. Ends when take() says
 * false. Errors as ldcache_parse; entries before a damaged one were given then. */
int ldcache_each(struct str bytes, bool (*take)(void *arg, const struct ldcache_entry *e),
                 void *arg, struct error *err) must_check;

/* Sorts the entries as the loader's binary search needs them (in place) and writes the file. Of two
 * entries alike in name and flags and hwcap the first given wins. */
int ldcache_write(struct ldcache *c, struct buf *out, struct error *err) must_check;

/* First entry of that name and flags, as the loader would pick without hardware subdirectories;
 * NULL. */
const struct ldcache_entry *ldcache_find(const struct ldcache *c, const char *soname,
                                         int32_t flags);

/* The loader's order of names: runs of digits compare as numbers. */
int ldcache_compare_names(const char *a, const char *b);
