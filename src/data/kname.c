/* SPDX-License-Identifier: Apache-2.0 */
#include "data/kname.h"

#include "base/mem.h"

enum { LABEL_MAX = 63, SUBDOMAIN_MAX = 253, SHOWN_MAX = 100 };

static bool lower_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool alnum(char c)
{
    return lower_alnum(c) || (c >= 'A' && c <= 'Z');
}

static struct str shown(struct str s)
{
    s.n = MIN(s.n, (size_t)SHOWN_MAX);
    return s;
}

static int wrong(struct error *err, struct str s, const char *allowed)
{
    return error_set(err, ERR_INVALID, 0, "\"%.*s\" is not allowed; allowed: %s", STR_FMT(shown(s)),
                     allowed);
}

static int check_length(struct error *err, struct str s, size_t min, size_t max, const char *what)
{
    if (s.n < min)
        return error_set(err, ERR_INVALID, 0, "%s is empty", what);
    if (s.n > max)
        return error_set(err, ERR_INVALID, 0,
                         "\"%.*s\" has %zu characters, %s may have at most %zu", STR_FMT(shown(s)),
                         s.n, what, max);
    return 0;
}

/* Alphanumeric at both ends, these and `extra` between. */
static bool well_formed(struct str s, bool (*letter)(char), const char *extra)
{
    for (size_t i = 0; i < s.n; i++) {
        bool inside = i > 0 && i + 1 < s.n && s.p[i] && strchr(extra, s.p[i]);
        if (!letter(s.p[i]) && !inside)
            return false;
    }
    return s.n > 0;
}

int kname_dns1123_label(struct str s, struct error *err)
{
    int r = check_length(err, s, 1, LABEL_MAX, "a DNS label");
    if (r < 0)
        return r;
    return well_formed(s, lower_alnum, "-")
               ? 0
               : wrong(err, s,
                       "lower-case letters, digits and \"-\", a letter or digit at both ends");
}

int kname_dns1123_subdomain(struct str s, struct error *err)
{
    int r = check_length(err, s, 1, SUBDOMAIN_MAX, "a DNS name");
    if (r < 0)
        return r;
    struct str rest = s;
    while (rest.p)
        if (!well_formed(str_cut(&rest, '.'), lower_alnum, "-"))
            return wrong(err, s,
                         "lower-case letters, digits, \"-\" and \".\", a letter or digit at both "
                         "ends of each part");
    return 0;
}

int kname_qualified(struct str s, struct error *err)
{
    const char *slash = s.n ? memrchr(s.p, '/', s.n) : NULL;
    struct str name = s;
    if (slash) {
        struct str prefix = { s.p, (size_t)(slash - s.p) };
        name = (struct str){ slash + 1, s.n - prefix.n - 1 };
        int r = kname_dns1123_subdomain(prefix, err);
        if (r < 0)
            return error_wrap(err, "before the \"/\"");
    }
    int r = check_length(err, name, 1, LABEL_MAX, "a name");
    if (r < 0)
        return r;
    return well_formed(name, alnum, "-_.")
               ? 0
               : wrong(err, name,
                       "letters, digits, \"-\", \"_\" and \".\", a letter or digit at both ends");
}

int kname_extended_resource(struct str s, struct error *err)
{
    const char *slash = s.n ? memchr(s.p, '/', s.n) : NULL;
    if (!slash)
        return error_set(err, ERR_INVALID, 0,
                         "\"%.*s\" has no domain; expected DOMAIN/NAME such as nvidia.com/gpu",
                         STR_FMT(shown(s)));
    struct str domain = { s.p, (size_t)(slash - s.p) };
    if (str_is(domain, "kubernetes.io") || str_ends(domain, ".kubernetes.io"))
        return error_set(err, ERR_INVALID, 0,
                         "\"%.*s\": the domain kubernetes.io is Kubernetes' own",
                         STR_FMT(shown(s)));
    if (str_starts(s, "requests."))
        return error_set(err, ERR_INVALID, 0,
                         "\"%.*s\": \"requests.\" at the start is kept for quotas",
                         STR_FMT(shown(s)));
    return kname_qualified(s, err);
}

int kname_label_value(struct str s, struct error *err)
{
    int r = check_length(err, s, 0, LABEL_MAX, "a label value");
    if (r < 0 || !s.n)
        return r;
    return well_formed(s, alnum, "-_.")
               ? 0
               : wrong(err, s,
                       "letters, digits, \"-\", \"_\" and \".\", a letter or digit at both ends");
}
