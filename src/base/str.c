/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "base/mem.h"

bool str_starts(struct str s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.n >= n && memcmp(s.p, prefix, n) == 0;
}

bool str_ends(struct str s, const char *suffix)
{
    size_t n = strlen(suffix);
    return s.n >= n && memcmp(s.p + s.n - n, suffix, n) == 0;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool str_ieq(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b.p[i]))
            return false;
    return true;
}

int str_cmp(struct str a, struct str b)
{
    size_t n = MIN(a.n, b.n);
    int c = n ? memcmp(a.p, b.p, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct str str_trim(struct str s)
{
    while (s.n && blank(s.p[0]))
        s.p++, s.n--;
    while (s.n && blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

struct str str_cut(struct str *rest, char sep)
{
    const char *at = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    if (!at) {
        struct str all = *rest;
        *rest = (struct str){ NULL, 0 };
        return all;
    }
    struct str head = { rest->p, (size_t)(at - rest->p) };
    *rest = (struct str){ at + 1, rest->n - head.n - 1 };
    return head;
}

static int digit(char c, unsigned base)
{
    int v = c >= '0' && c <= '9'                 ? c - '0'
            : lower(c) >= 'a' && lower(c) <= 'f' ? lower(c) - 'a' + 10
                                                 : 99;
    return v < (int)base ? v : -1;
}

static bool number(struct str s, unsigned base, uint64_t max, uint64_t *ret)
{
    if (!s.n)
        return false;
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        int d = digit(s.p[i], base);
        if (d < 0 || __builtin_mul_overflow(v, base, &v) ||
            __builtin_add_overflow(v, (uint64_t)d, &v))
            return false;
    }
    if (v > max)
        return false;
    *ret = v;
    return true;
}

bool str_to_u64(struct str s, uint64_t max, uint64_t *ret)
{
    return number(s, 10, max, ret);
}

bool str_hex_to_u64(struct str s, uint64_t max, uint64_t *ret)
{
    if (str_starts(s, "0x") || str_starts(s, "0X"))
        s.p += 2, s.n -= 2;
    return number(s, 16, max, ret);
}

bool str_to_i64(struct str s, int64_t min, int64_t max, int64_t *ret)
{
    bool negative = s.n && s.p[0] == '-';
    if (negative || (s.n && s.p[0] == '+'))
        s.p++, s.n--;
    uint64_t v, most = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    if (!number(s, 10, most, &v))
        return false;
    int64_t r = negative ? (int64_t)(0 - v) : (int64_t)v;
    if (r < min || r > max)
        return false;
    *ret = r;
    return true;
}

bool str_to_bool(struct str s, bool *ret)
{
    static const char *const yes[] = { "1", "t", "T", "TRUE", "true", "True" };
    static const char *const no[] = { "0", "f", "F", "FALSE", "false", "False" };
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (str_is(s, yes[i]) || str_is(s, no[i])) {
            *ret = str_is(s, yes[i]);
            return true;
        }
    }
    return false;
}

size_t str_utf8(struct str s)
{
    if (!s.n)
        return 0;
    unsigned char c = (unsigned char)s.p[0];
    size_t n = c < 0x80                ? 1
               : c >= 0xC2 && c < 0xE0 ? 2
               : c >= 0xE0 && c < 0xF0 ? 3
               : c >= 0xF0 && c < 0xF5 ? 4
                                       : 0;
    if (n > s.n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if (((unsigned char)s.p[i] & 0xC0) != 0x80)
            return 0;
    unsigned char d = n > 1 ? (unsigned char)s.p[1] : 0;
    bool outside = (c == 0xE0 && d < 0xA0) || (c == 0xED && d >= 0xA0) || (c == 0xF0 && d < 0x90) ||
                   (c == 0xF4 && d >= 0x90);
    return outside ? 0 : n;
}

enum { DISTANCE_MAX = 64 };

size_t str_distance(struct str a, struct str b)
{
    if (a.n > DISTANCE_MAX || b.n > DISTANCE_MAX)
        return SIZE_MAX;
    unsigned char d[DISTANCE_MAX + 1][DISTANCE_MAX + 1];
    for (size_t i = 0; i <= a.n; i++)
        d[i][0] = (unsigned char)i;
    for (size_t j = 0; j <= b.n; j++)
        d[0][j] = (unsigned char)j;
    for (size_t i = 1; i <= a.n; i++) {
        for (size_t j = 1; j <= b.n; j++) {
            bool same = lower(a.p[i - 1]) == lower(b.p[j - 1]);
            unsigned best = MIN(d[i - 1][j] + 1u, d[i][j - 1] + 1u);
            best = MIN(best, d[i - 1][j - 1] + (same ? 0u : 1u));
            bool swapped = i > 1 && j > 1 && lower(a.p[i - 1]) == lower(b.p[j - 2]) &&
                           lower(a.p[i - 2]) == lower(b.p[j - 1]);
            if (swapped)
                best = MIN(best, d[i - 2][j - 2] + 1u);
            d[i][j] = (unsigned char)best;
        }
    }
    return d[a.n][b.n];
}

const char *str_nearest(struct str word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t allowed = MIN(MAX(word.n / 3, (size_t)1), (size_t)3), best_d = allowed + 1;
    for (size_t i = 0; i < n; i++) {
        size_t d = str_distance(word, str_of(candidates[i]));
        if (d < best_d)
            best = candidates[i], best_d = d;
    }
    return best;
}

bool str_glob(struct str pattern, struct str text)
{
    size_t p = 0, t = 0, star = SIZE_MAX, mark = 0;
    while (t < text.n) {
        if (p < pattern.n && pattern.p[p] == '*') {
            star = p++;
            mark = t;
        } else if (p < pattern.n && pattern.p[p] == text.p[t]) {
            p++, t++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            t = ++mark;
        } else {
            return false;
        }
    }
    while (p < pattern.n && pattern.p[p] == '*')
        p++;
    return p == pattern.n;
}
