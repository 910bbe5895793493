/* SPDX-License-Identifier: Apache-2.0 */
/* Durations as Go's time.ParseDuration reads them. */
#include "base/mem.h"
#include "base/opt.h"

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {
    { "ns", 1 },           { "us", 1000 },      { "\xC2\xB5s", 1000 }, /* micro sign */
    { "\xCE\xBCs", 1000 },                                             /* Greek mu */
    { "ms", 1000000 },     { "s", 1000000000 }, { "m", 60000000000 },  { "h", 3600000000000 },
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The unit at the start of s: the longest run without digit and dot. */
static uint64_t take_unit(struct str *s)
{
    struct str name = { s->p, 0 };
    while (name.n < s->n && !is_digit(s->p[name.n]) && s->p[name.n] != '.')
        name.n++;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (str_is(name, units[i].name)) {
            s->p += name.n;
            s->n -= name.n;
            return units[i].ns;
        }
    }
    return 0;
}

/* One "1.5h". False when it is malformed or too large. */
static bool take_term(struct str *s, uint64_t *sum)
{
    uint64_t whole = 0, part = 0, scale = 1;
    bool digits = false, dot = false;
    for (; s->n && (is_digit(s->p[0]) || (s->p[0] == '.' && !dot)); s->p++, s->n--) {
        if (s->p[0] == '.') {
            dot = true;
            continue;
        }
        uint64_t d = (uint64_t)(s->p[0] - '0');
        digits = true;
        if (!dot) {
            if (__builtin_mul_overflow(whole, 10, &whole) ||
                __builtin_add_overflow(whole, d, &whole))
                return false;
        } else if (scale < UINT64_C(100000000000000)) { /* further digits are below a nanosecond */
            part = part * 10 + d;
            scale *= 10;
        }
    }
    uint64_t unit = digits ? take_unit(s) : 0;
    uint64_t ns;
    if (!unit || __builtin_mul_overflow(whole, unit, &ns))
        return false;
    ns += (uint64_t)((unsigned __int128)part * unit / scale);
    return !__builtin_add_overflow(*sum, ns, sum) && *sum <= (uint64_t)INT64_MAX;
}

int duration_parse(struct str s, int64_t *ret_ns, struct error *err)
{
    struct str whole = s;
    if (str_is(s, "infinite")) {
        *ret_ns = INT64_MAX;
        return 0;
    }
    bool negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+'))
        s.p++, s.n--;
    uint64_t sum = 0;
    bool good = s.n > 0;
    if (str_is(s, "0"))
        s.n = 0;
    while (good && s.n)
        good = take_term(&s, &sum);
    if (!good) {
        whole.n = MIN(whole.n, (size_t)80);
        return error_set(err, ERR_INVALID, 0,
                         "\"%.*s\" is no duration; allowed: numbers with a unit (ns, us, ms, s, m, "
                         "h) such as 90s or "
                         "1h15m, up to 292 years, or \"infinite\"",
                         STR_FMT(whole));
    }
    *ret_ns = negative ? -(int64_t)sum : (int64_t)sum;
    return 0;
}
