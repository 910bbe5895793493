/* SPDX-License-Identifier: Apache-2.0 */
#include "elf/ldcache.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const char magic[] = "glibc-ld.so.cache1.1";
static const char old_magic[] = "ld.so-1.7.0";
static const char generator[] = "mete";

enum {
    HEADER_SIZE = 48,
    ENTRY_SIZE = 24,
    OLD_HEADER_SIZE = 16,
    OLD_ENTRY_SIZE = 12,
    LITTLE_ENDIAN_FLAG = 2,
    EXTENSION_MAGIC = (int)0xEAA42174,
    TAG_GENERATOR = 0,
    TAG_HWCAPS = 1,
    EXTENSION_SECTIONS_MAX = 16,
    TEXT_MAX = 4096, /* of one name or path: overlapping long texts must not cost time */
};

static uint32_t get32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static uint64_t get64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

static void put32(struct buf *out, uint32_t v)
{
    v = htole32(v);
    buf_add(out, &v, sizeof v);
}

static void put64(struct buf *out, uint64_t v)
{
    v = htole64(v);
    buf_add(out, &v, sizeof v);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Takes a run of digits; a run that overflows counts as the largest number, as no library is
 * numbered so. */
static uint64_t take_number(const char **p)
{
    uint64_t v = 0;
    for (; is_digit(**p); (*p)++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v))
            v = UINT64_MAX / 10;
    return v;
}

int ldcache_compare_names(const char *a, const char *b)
{
    while (*a) {
        if (is_digit(*a) && is_digit(*b)) {
            uint64_t x = take_number(&a), y = take_number(&b);
            if (x != y)
                return x < y ? -1 : 1;
        } else if (is_digit(*a) != is_digit(*b)) {
            return is_digit(*a) ? 1 : -1;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return *b ? -1 : 0;
}

static int wrong(struct error *err, size_t at, const char *what)
{
    return error_set(err, ERR_INVALID, 0, "ld.so.cache: at byte %zu: %s", at, what);
}

/* A terminated text at an offset from the new part's begin. */
static int text_at(struct str part, uint32_t at, const char **ret, struct error *err)
{
    if (at >= part.n || !memchr(part.p + at, '\0', MIN(part.n - at, (size_t)TEXT_MAX + 1)))
        return wrong(err, at, "a text runs past the end of the file, or past 4096 bytes");
    *ret = part.p + at;
    return 0;
}

/* Skips an old-format part before the new one, which begins at the next multiple of 8. */
static int find_part(struct str bytes, struct str *ret, struct error *err)
{
    *ret = bytes;
    if (bytes.n >= OLD_HEADER_SIZE && memcmp(bytes.p, old_magic, sizeof old_magic - 1) == 0) {
        uint64_t n = get32(bytes.p + 12);
        uint64_t at = (OLD_HEADER_SIZE - 4 + 4 + n * OLD_ENTRY_SIZE + 7) & ~(uint64_t)7;
        if (at > bytes.n || bytes.n - at < HEADER_SIZE)
            return error_set(err, ERR_UNSUPPORTED, 0,
                             "ld.so.cache has only the format from before glibc 2.2");
        *ret = (struct str){ bytes.p + at, bytes.n - (size_t)at };
    }
    if (ret->n < HEADER_SIZE || memcmp(ret->p, magic, sizeof magic - 1) != 0)
        return wrong(err, (size_t)(ret->p - bytes.p), "expected \"glibc-ld.so.cache1.1\"");
    return 0;
}

static int parse_hwcaps(struct arena *a, struct str part, uint32_t at, uint32_t size,
                        struct ldcache *c, struct error *err)
{
    if (size % 4 != 0 || size / 4 > ARRAY_LEN(c->hwcaps) || at > part.n || size > part.n - at)
        return wrong(err, at, "the list of hardware names does not fit");
    for (uint32_t i = 0; i < size / 4; i++) {
        const char *name;
        int r = text_at(part, get32(part.p + at + 4 * i), &name, err);
        if (r < 0)
            return r;
        char *copy = arena_strdup(a, str_of(name));
        if (!copy)
            return error_set(err, ERR_LIMIT, 0, "ld.so.cache needs more than the %zu bytes allowed",
                             a->limit);
        c->hwcaps[c->n_hwcaps++] = str_of(copy);
    }
    return 0;
}

static int parse_extension(struct arena *a, struct str part, struct ldcache *c, struct error *err)
{
    uint32_t at = get32(part.p + 32);
    if (at == 0)
        return 0;
    if (at > part.n || part.n - at < 8 || get32(part.p + at) != (uint32_t)EXTENSION_MAGIC)
        return wrong(err, at, "the extension part is not where the header says");
    uint32_t n = get32(part.p + at + 4);
    if (n > EXTENSION_SECTIONS_MAX || part.n - at - 8 < (size_t)n * 16)
        return wrong(err, at, "the extension part has too many sections");
    for (uint32_t i = 0; i < n; i++) {
        const char *s = part.p + at + 8 + 16 * i;
        if (get32(s) != TAG_HWCAPS || c->n_hwcaps > 0)
            continue;
        int r = parse_hwcaps(a, part, get32(s + 8), get32(s + 12), c, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The part of the loader's format, with its number of entries checked. */
static int open_part(struct str bytes, struct str *part, uint32_t *ret_n, struct error *err)
{
    if (bytes.n > LDCACHE_MAX)
        return error_set(err, ERR_LIMIT, 0, "ld.so.cache has %zu bytes, at most %d are accepted",
                         bytes.n, LDCACHE_MAX);
    int r = find_part(bytes, part, err);
    if (r < 0)
        return r;
    *ret_n = get32(part->p + 20);
    if (*ret_n > LDCACHE_ENTRIES_MAX || (part->n - HEADER_SIZE) / ENTRY_SIZE < *ret_n)
        return wrong(err, 20, "more entries than fit in the file");
    unsigned char endian = (unsigned char)part->p[28] & 3;
    if (endian != 0 && endian != LITTLE_ENDIAN_FLAG)
        return error_set(err, ERR_UNSUPPORTED, 0, "ld.so.cache is not little-endian");
    return 0;
}

static int entry_at(struct str part, uint32_t i, struct ldcache_entry *ret, struct error *err)
{
    const char *e = part.p + HEADER_SIZE + (size_t)i * ENTRY_SIZE;
    *ret = (struct ldcache_entry){ .flags = (int32_t)get32(e), .hwcap = get64(e + 16) };
    int r = text_at(part, get32(e + 4), &ret->soname, err);
    return r < 0 ? r : text_at(part, get32(e + 8), &ret->path, err);
}

int ldcache_each(struct str bytes, bool (*take)(void *arg, const struct ldcache_entry *e),
                 void *arg, struct error *err)
{
    struct str part;
    uint32_t n;
    int r = open_part(bytes, &part, &n, err);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        struct ldcache_entry e;
        r = entry_at(part, i, &e, err);
        if (r == 0 && !take(arg, &e))
            break;
    }
    return r;
}

static int no_room(const struct arena *a, struct error *err)
{
    return error_set(err, ERR_LIMIT, 0, "ld.so.cache needs more than the %zu bytes allowed",
                     a->limit);
}

int ldcache_parse(struct arena *a, struct str bytes, struct ldcache *ret, struct error *err)
{
    struct ldcache c = { 0 };
    struct str part;
    uint32_t n;
    int r = open_part(bytes, &part, &n, err);
    if (r < 0)
        return r;
    c.entries = arena_array(a, n ? n : 1, sizeof *c.entries);
    if (!c.entries)
        return no_room(a, err);
    for (uint32_t i = 0; i < n; i++) {
        struct ldcache_entry *to = &c.entries[c.n];
        r = entry_at(part, i, to, err);
        if (r < 0)
            return r;
        to->soname = arena_strdup(a, str_of(to->soname));
        to->path = arena_strdup(a, str_of(to->path));
        if (!to->soname || !to->path)
            return no_room(a, err);
        c.n++;
    }
    r = parse_extension(a, part, &c, err);
    if (r == 0)
        *ret = c;
    return r;
}

/* Names descending, then flags and hardware level descending: the order in which the loader's
 * search walks. */
static int compare_entries(const void *pa, const void *pb)
{
    const struct ldcache_entry *a = pa, *b = pb;
    int by_name = ldcache_compare_names(b->soname, a->soname);
    if (by_name)
        return by_name;
    if (a->flags != b->flags)
        return a->flags < b->flags ? 1 : -1;
    if (a->hwcap != b->hwcap)
        return a->hwcap < b->hwcap ? 1 : -1;
    return 0;
}

static bool alike(const struct ldcache_entry *a, const struct ldcache_entry *b)
{
    return compare_entries(a, b) == 0;
}

static void merge(struct ldcache_entry *to, const struct ldcache_entry *e, size_t lo, size_t mid,
                  size_t hi)
{
    size_t i = lo, j = mid, k = lo;
    while (i < mid && j < hi)
        to[k++] = compare_entries(&e[i], &e[j]) <= 0 ? e[i++] : e[j++];
    while (i < mid)
        to[k++] = e[i++];
    while (j < hi)
        to[k++] = e[j++];
}

/* Merges the runs that are there: mostly an image's cache, in order already, and what some folders
 * add. Equals keep the given order, so the first given survives. */
static bool sort_stable(struct ldcache_entry *e, size_t n)
{
    auto_free struct ldcache_entry *spare = try_alloc((n + 1) * sizeof *e);
    auto_free uint32_t *starts = try_alloc((n + 2) * sizeof *starts);
    size_t runs = 0;
    if (!spare || !starts)
        return false;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || compare_entries(&e[i - 1], &e[i]) > 0)
            starts[runs++] = (uint32_t)i;
    starts[runs] = (uint32_t)n;
    for (; runs > 1; runs = (runs + 1) / 2) {
        for (size_t i = 0; i < runs; i += 2) {
            size_t mid = starts[i + 1], hi = i + 2 <= runs ? starts[i + 2] : mid;
            merge(spare, e, starts[i], mid, hi);
        }
        memcpy(e, spare, n * sizeof *e);
        for (size_t i = 0; 2 * i < runs; i++)
            starts[i] = starts[2 * i];
        starts[(runs + 1) / 2] = (uint32_t)n;
    }
    return true;
}

/* Places of the texts behind the entries, in the order they are written. */
static uint32_t add_text(struct buf *strings, uint32_t base, const char *text)
{
    uint32_t at = base + (uint32_t)strings->n;
    buf_add(strings, text, strlen(text) + 1);
    return at;
}

static void put_extension(struct buf *out, const struct ldcache *c, const uint32_t *names,
                          uint32_t begin)
{
    bool hwcaps = c->n_hwcaps > 0;
    uint32_t sections = hwcaps ? 2 : 1;
    uint32_t list = begin + 8 + 16 * sections, maker = list + 4 * (uint32_t)c->n_hwcaps;
    put32(out, (uint32_t)EXTENSION_MAGIC);
    put32(out, sections);
    put32(out, TAG_GENERATOR);
    put32(out, 0);
    put32(out, maker);
    put32(out, sizeof generator - 1);
    if (hwcaps) {
        put32(out, TAG_HWCAPS);
        put32(out, 0);
        put32(out, list);
        put32(out, 4 * (uint32_t)c->n_hwcaps);
    }
    for (size_t i = 0; i < c->n_hwcaps; i++)
        put32(out, names[i]);
    buf_add(out, generator, sizeof generator - 1);
}

int ldcache_write(struct ldcache *c, struct buf *out, struct error *err)
{
    if (c->n > LDCACHE_ENTRIES_MAX)
        return error_set(err, ERR_LIMIT, 0,
                         "ld.so.cache would have %zu entries, at most %d are written", c->n,
                         LDCACHE_ENTRIES_MAX);
    if (!sort_stable(c->entries, c->n))
        return error_set(err, ERR_LIMIT, 0, "no memory to sort %zu entries of ld.so.cache", c->n);
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++)
        if (kept == 0 || !alike(&c->entries[kept - 1], &c->entries[i]))
            c->entries[kept++] = c->entries[i];
    c->n = kept;

    auto_buf strings, rows;
    buf_init(&strings, LDCACHE_MAX);
    buf_init(&rows, LDCACHE_MAX);
    uint32_t base = (uint32_t)(HEADER_SIZE + ENTRY_SIZE * c->n), names[ARRAY_LEN(c->hwcaps)];
    for (size_t i = 0; i < c->n_hwcaps; i++)
        names[i] = add_text(&strings, base, c->hwcaps[i].p);
    for (size_t i = 0; i < c->n; i++) {
        const struct ldcache_entry *e = &c->entries[i];
        put32(&rows, (uint32_t)e->flags);
        put32(&rows, add_text(&strings, base, e->soname));
        put32(&rows, add_text(&strings, base, e->path));
        put32(&rows, 0);
        put64(&rows, e->hwcap);
    }
    while (strings.n % 4 != 0 && !strings.failed)
        buf_ch(&strings, '\0');
    uint32_t extension = base + (uint32_t)strings.n;
    buf_add(out, magic, sizeof magic - 1);
    put32(out, (uint32_t)c->n);
    put32(out, (uint32_t)strings.n);
    put32(out, LITTLE_ENDIAN_FLAG); /* one byte of flags, three of padding */
    put32(out, extension);
    for (int i = 0; i < 3; i++)
        put32(out, 0);
    buf_str(out, buf_view(&rows));
    buf_str(out, buf_view(&strings));
    put_extension(out, c, names, extension);
    if (strings.failed || rows.failed)
        out->failed = true;
    return buf_check(out, "ld.so.cache", err);
}

const struct ldcache_entry *ldcache_find(const struct ldcache *c, const char *soname, int32_t flags)
{
    const struct ldcache_entry *found = NULL;
    for (size_t i = 0; i < c->n; i++)
        if (c->entries[i].flags == flags && strcmp(c->entries[i].soname, soname) == 0 &&
            (!found || c->entries[i].hwcap == 0))
            found = &c->entries[i];
    return found;
}
