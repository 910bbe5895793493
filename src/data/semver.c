/* SPDX-License-Identifier: Apache-2.0 */
#include "data/semver.h"

#include "base/mem.h"

static int malformed(struct str s, struct error *err)
{
    s.n = MIN(s.n, (size_t)60);
    return error_set(err, ERR_INVALID, 0,
                     "\"%.*s\" is no semantic version; expected MAJOR.MINOR.PATCH such as 1.34.0",
                     STR_FMT(s));
}

static bool all_digits(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n > 0;
}

static bool number(struct str s, bool loose, uint64_t *ret)
{
    bool zeros = s.n > 1 && s.p[0] == '0';
    return (loose || !zeros) && str_to_u64(s, UINT64_MAX, ret);
}

/* Dot-separated words of letters, digits and hyphens. */
static bool good_words(struct str s, bool numbers_strict)
{
    while (s.p) {
        struct str word = str_cut(&s, '.');
        if (!word.n || (numbers_strict && word.n > 1 && word.p[0] == '0' && all_digits(word)))
            return false;
        for (size_t i = 0; i < word.n; i++) {
            char c = word.p[i];
            bool good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                        (c >= 'A' && c <= 'Z') || c == '-';
            if (!good)
                return false;
        }
    }
    return true;
}

static int parse(struct str s, bool loose, struct semver *ret, struct error *err)
{
    struct semver v = { 0 };
    struct str build = s;
    if (loose && s.n && (s.p[0] == 'v' || s.p[0] == 'V'))
        build.p++, build.n--;
    struct str pre = str_cut(&build, '+');
    struct str core = str_cut(&pre, '-');
    uint64_t *parts[] = { &v.major, &v.minor, &v.patch };
    size_t n = 0;
    for (struct str rest = core; rest.p; n++)
        if (n >= ARRAY_LEN(parts) || !number(str_cut(&rest, '.'), loose, parts[n]))
            return malformed(s, err);
    if (n < (loose ? 1u : 3u) || (pre.p && !good_words(pre, !loose)) ||
        (build.p && !good_words(build, false)))
        return malformed(s, err);
    v.pre = pre;
    v.build = build;
    *ret = v;
    return 0;
}

int semver_parse(struct str s, struct semver *ret, struct error *err)
{
    return parse(s, false, ret, err);
}

int semver_parse_loose(struct str s, struct semver *ret, struct error *err)
{
    return parse(s, true, ret, err);
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Numbers by value (any length) and below words; words bytewise. */
static int compare_words(struct str a, struct str b)
{
    bool na = all_digits(a), nb = all_digits(b);
    if (na != nb)
        return na ? -1 : 1;
    if (!na)
        return str_cmp(a, b);
    while (a.n && a.p[0] == '0')
        a.p++, a.n--;
    while (b.n && b.p[0] == '0')
        b.p++, b.n--;
    int c = compare(a.n, b.n);
    return c ? c : str_cmp(a, b);
}

static int compare_pre(struct str a, struct str b)
{
    if (!a.n || !b.n)
        return (a.n == 0) - (b.n == 0);
    while (a.p && b.p) {
        int c = compare_words(str_cut(&a, '.'), str_cut(&b, '.'));
        if (c)
            return c;
    }
    return (a.p != NULL) - (b.p != NULL);
}

int semver_cmp(const struct semver *a, const struct semver *b)
{
    int c = compare(a->major, b->major);
    c = c ? c : compare(a->minor, b->minor);
    c = c ? c : compare(a->patch, b->patch);
    c = c ? c : compare_pre(a->pre, b->pre);
    return (c > 0) - (c < 0);
}
