/* SPDX-License-Identifier: Apache-2.0 */
#include "data/yaml_scalar.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

enum { NUMBER_MAX = 120 }; /* a longer run of digits is text */

static bool one_of(struct str s, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(s, words[i]))
            return true;
    return false;
}

static bool resolve_word(struct str s, struct value *v)
{
    static const char *const nulls[] = { "", "~", "null", "Null", "NULL" };
    static const char *const yes[] = { "y",    "Y",    "yes", "Yes", "YES", "true",
                                       "True", "TRUE", "on",  "On",  "ON" };
    static const char *const no[] = { "n",     "N",     "no",  "No",  "NO", "false",
                                      "False", "FALSE", "off", "Off", "OFF" };
    if (one_of(s, nulls, ARRAY_LEN(nulls))) {
        v->kind = VALUE_NULL;
        return true;
    }
    bool is_yes = one_of(s, yes, ARRAY_LEN(yes));
    if (is_yes || one_of(s, no, ARRAY_LEN(no))) {
        v->kind = VALUE_BOOL;
        v->boolean = is_yes;
        return true;
    }
    return false;
}

/* ".inf", "-.Inf", ".nan" */
static bool resolve_special(struct str s, struct value *v)
{
    static const char *const inf[] = { ".inf", ".Inf", ".INF" };
    static const char *const nan_words[] = { ".nan", ".NaN", ".NAN" };
    if (one_of(s, nan_words, ARRAY_LEN(nan_words))) {
        v->kind = VALUE_REAL;
        v->real = NAN;
        return true;
    }
    bool negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+'))
        s.p++, s.n--;
    if (!one_of(s, inf, ARRAY_LEN(inf)))
        return false;
    v->kind = VALUE_REAL;
    v->real = negative ? -INFINITY : INFINITY;
    return true;
}

/* Digits of the base that the prefix names: 0x, 0o, 0b, or a leading 0 for octal. */
static bool magnitude(struct str s, uint64_t *ret)
{
    unsigned base = 10;
    if (s.n > 2 && s.p[0] == '0' && strchr("xXoObB", s.p[1])) {
        base = s.p[1] == 'x' || s.p[1] == 'X' ? 16 : s.p[1] == 'o' || s.p[1] == 'O' ? 8 : 2;
        s.p += 2;
        s.n -= 2;
    } else if (s.n > 1 && s.p[0] == '0') {
        base = 8;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                            : 99;
        if (d >= base || __builtin_mul_overflow(sum, base, &sum) ||
            __builtin_add_overflow(sum, d, &sum))
            return false;
    }
    *ret = sum;
    return s.n > 0;
}

static bool resolve_int(struct str s, struct value *v)
{
    bool negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+'))
        s.p++, s.n--;
    uint64_t m;
    if (!magnitude(s, &m))
        return false;
    if (m > (uint64_t)INT64_MAX + negative) {
        v->kind = VALUE_REAL;
        v->real = negative ? -(double)m : (double)m;
        return true;
    }
    v->kind = VALUE_INT;
    v->number = negative ? (int64_t)(0 - m) : (int64_t)m;
    v->real = (double)v->number;
    return true;
}

static size_t digits(const char *p)
{
    return strspn(p, "0123456789");
}

/* [-+]digits[.digits][e[-+]digits]: z is terminated. */
static bool looks_real(const char *z)
{
    z += *z == '-' || *z == '+';
    size_t whole = digits(z);
    z += whole;
    size_t part = 0;
    if (*z == '.') {
        part = digits(z + 1);
        z += 1 + part;
    }
    if (!whole && !part)
        return false;
    if (*z == 'e' || *z == 'E') {
        z++;
        z += *z == '-' || *z == '+';
        size_t n = digits(z);
        if (!n)
            return false;
        z += n;
    }
    return *z == '\0';
}

static bool resolve_real(const char *z, struct value *v)
{
    if (!looks_real(z))
        return false;
    v->kind = VALUE_REAL;
    v->real = strtod(z, NULL); /* the program never leaves the C locale */
    /* "08" is no octal number; Kubernetes' reader falls back to 8.0, which JSON writes as 8. */
    int64_t whole;
    if (!strpbrk(z, ".eE") && str_to_i64(str_of(z), INT64_MIN, INT64_MAX, &whole)) {
        v->kind = VALUE_INT;
        v->number = whole;
    }
    return true;
}

void yaml_scalar_resolve(struct str text, struct value *v)
{
    v->kind = VALUE_TEXT;
    if (resolve_word(text, v) || resolve_special(text, v))
        return;
    if (text.n > NUMBER_MAX || !strchr("+-.0123456789", text.p[0]) || memchr(text.p, '\0', text.n))
        return;
    char z[NUMBER_MAX + 1];
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] != '_' || i == 0)
            z[n++] = text.p[i];
    z[n] = '\0';
    struct str plain = { z, n };
    if (!resolve_int(plain, v))
        resolve_real(z, v);
}
