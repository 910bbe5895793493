/* SPDX-License-Identifier: Apache-2.0 */
#include "data/quantity.h"

#include "base/mem.h"

typedef unsigned __int128 u128;

enum { EXPONENT_MAX = 60 };

static const struct {
    const char *suffix;
    int ten, two; /* times 10^ten, times 2^two */
} suffixes[] = {
    { "", 0, 0 },    { "n", -9, 0 },  { "u", -6, 0 },  { "m", -3, 0 },
    { "k", 3, 0 },   { "M", 6, 0 },   { "G", 9, 0 },   { "T", 12, 0 },
    { "P", 15, 0 },  { "E", 18, 0 },  { "Ki", 0, 10 }, { "Mi", 0, 20 },
    { "Gi", 0, 30 }, { "Ti", 0, 40 }, { "Pi", 0, 50 }, { "Ei", 0, 60 },
};

static int malformed(struct str s, struct error *err)
{
    s.n = MIN(s.n, (size_t)60);
    return error_set(err, ERR_INVALID, 0,
                     "\"%.*s\" is no quantity; allowed: a number with one of the suffixes n u m k "
                     "M G T P E, Ki Mi Gi Ti "
                     "Pi Ei, or an exponent such as e3",
                     STR_FMT(s));
}

static int too_large(struct str s, struct error *err)
{
    s.n = MIN(s.n, (size_t)60);
    return error_set(err, ERR_LIMIT, 0, "\"%.*s\" is larger or more precise than 64 bits can hold",
                     STR_FMT(s));
}

/* Digits with at most one dot: the digits as a number, and how many of them follow the dot. */
static bool take_number(struct str *s, u128 *ret, int *ret_scale, bool *ret_fits)
{
    u128 sum = 0;
    int scale = 0;
    bool any = false, dot = false, fits = true;
    for (; s->n; s->p++, s->n--) {
        char c = s->p[0];
        if (c == '.' && !dot) {
            dot = true;
            continue;
        }
        if (c < '0' || c > '9')
            break;
        any = true;
        fits = fits && !__builtin_mul_overflow(sum, 10, &sum) &&
               !__builtin_add_overflow(sum, (u128)(unsigned)(c - '0'), &sum);
        scale += dot;
        while (fits && scale && sum % 10 == 0 && s->n == 1) { /* zeros at the end say nothing */
            sum /= 10;
            scale--;
        }
    }
    *ret = sum;
    *ret_scale = scale;
    *ret_fits = fits;
    return any;
}

static bool take_suffix(struct str s, int *ret_ten, int *ret_two)
{
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        if (str_is(s, suffixes[i].suffix)) {
            *ret_ten = suffixes[i].ten;
            *ret_two = suffixes[i].two;
            return true;
        }
    }
    int64_t exponent;
    if (s.n < 2 || (s.p[0] != 'e' && s.p[0] != 'E') ||
        !str_to_i64((struct str){ s.p + 1, s.n - 1 }, -EXPONENT_MAX, EXPONENT_MAX, &exponent))
        return false;
    *ret_ten = (int)exponent;
    *ret_two = 0;
    return true;
}

/* number · 10^ten · 2^two in thousandths, rounded up. False when it does not fit. */
static bool scaled(u128 number, int ten, int two, u128 *ret, bool *ret_rounded)
{
    ten += 3;
    *ret_rounded = false;
    for (; two > 0 && number; two--)
        if (__builtin_mul_overflow(number, 2, &number))
            return false;
    for (; ten > 0 && number; ten--)
        if (__builtin_mul_overflow(number, 10, &number))
            return false;
    for (; ten < 0 && number; ten++) {
        *ret_rounded = *ret_rounded || number % 10;
        number /= 10;
    }
    *ret = number + *ret_rounded;
    return true;
}

int quantity_parse(struct str s, struct quantity *ret, struct error *err)
{
    struct str whole = s;
    bool negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+'))
        s.p++, s.n--;
    u128 number = 0, milli = 0;
    int scale, ten, two;
    bool fits, rounded;
    if (!take_number(&s, &number, &scale, &fits) || !take_suffix(s, &ten, &two))
        return malformed(whole, err);
    if (!fits || !scaled(number, ten - scale, two, &milli, &rounded) ||
        milli / 1000 > (u128)INT64_MAX)
        return too_large(whole, err);
    int64_t units = (int64_t)(milli / 1000);
    int32_t rest = (int32_t)(milli % 1000);
    *ret = (struct quantity){ negative ? -units : units, negative ? -rest : rest, rounded };
    return 0;
}

bool quantity_milli(const struct quantity *q, int64_t *ret)
{
    int64_t m;
    if (__builtin_mul_overflow(q->units, 1000, &m) || __builtin_add_overflow(m, q->milli, &m))
        return false;
    *ret = m;
    return true;
}

int64_t quantity_value(const struct quantity *q)
{
    return q->milli > 0 && q->units < INT64_MAX ? q->units + 1 : q->units;
}

int quantity_cmp(const struct quantity *a, const struct quantity *b)
{
    int c = (a->units > b->units) - (a->units < b->units);
    return c ? c : (a->milli > b->milli) - (a->milli < b->milli);
}
