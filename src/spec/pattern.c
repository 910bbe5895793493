/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/pattern.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { LIST_MAX = 1500, NAME_MAX_ = 256 };

size_t pattern_first(const struct resource_pattern *patterns, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (str_glob(str_of(patterns[i].pattern), str_of(name)))
            return i;
    return n;
}

/* Blanks as hyphens, letters in lower case. */
static void folded(const char *text, char ret[NAME_MAX_])
{
    size_t n = 0;
    for (; text[n] && n < NAME_MAX_ - 1; n++) {
        char c = text[n] == ' ' ? '-' : text[n];
        ret[n] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    ret[n] = '\0';
}

static bool nearly(const char *pattern, const char *name)
{
    char p[NAME_MAX_], t[NAME_MAX_];
    folded(pattern, p);
    folded(name, t);
    return str_glob(str_of(p), str_of(t));
}

static void add_name(struct buf *b, const char *name)
{
    buf_fmt(b, "%s\"%s\"", b->n ? ", " : "", name);
}

static bool seen_before(const char *const *names, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(names[k], names[i]) == 0)
            return true;
    return false;
}

static void explain_one(const struct resource_pattern *patterns, size_t i, const char *subject,
                        const char *what, const char *const *names, size_t n_names,
                        struct findings *findings)
{
    const struct resource_pattern *p = &patterns[i];
    auto_buf taken, all, near;
    buf_init(&taken, LIST_MAX);
    buf_init(&all, LIST_MAX);
    buf_init(&near, LIST_MAX);
    size_t hidden = i; /* an earlier pattern that took a name of this one */
    for (size_t k = 0; k < n_names; k++) {
        size_t first = pattern_first(patterns, i + 1, names[k]);
        bool matches = str_glob(str_of(p->pattern), str_of(names[k]));
        if (matches && first < i)
            hidden = first;
        if (seen_before(names, k))
            continue;
        add_name(&all, names[k]);
        if (first == i)
            add_name(&taken, names[k]);
        else if (!matches && nearly(p->pattern, names[k]))
            add_name(&near, names[k]);
    }
    if (taken.n) {
        findings_add(findings, "pattern.matched", SEVERITY_INFO, subject, "nothing",
                     "\"%s\" → %s takes %s", p->pattern, p->name, taken.p);
    } else if (hidden < i) {
        findings_add(findings, "pattern.unused", SEVERITY_WARNING, subject,
                     "write the narrower pattern first: the first that matches counts",
                     "\"%s\" → %s takes nothing, because \"%s\" (line %" PRIu32 ") comes before it",
                     p->pattern, p->name, patterns[hidden].pattern, patterns[hidden].line);
    } else if (near.n) {
        findings_add(
            findings, "pattern.unused", SEVERITY_WARNING, subject,
            "write the pattern as NVML spells the name, with its blanks, hyphens and capitals",
            "\"%s\" → %s matches no %s, but would match %s if blanks and hyphens and letter cases "
            "were the same",
            p->pattern, p->name, what, near.p);
    } else {
        findings_add(findings, "pattern.unused", SEVERITY_WARNING, subject,
                     "correct the pattern, or leave it if the config serves other nodes too",
                     "\"%s\" → %s matches no %s; this host has %s", p->pattern, p->name, what,
                     all.n ? all.p : "none");
    }
}

void pattern_explain(const struct resource_pattern *patterns, size_t n, const char *file,
                     const char *what, const char *const *names, size_t n_names,
                     struct findings *findings)
{
    for (size_t i = 0; i < n; i++) {
        char subject[300];
        snprintf(subject, sizeof subject, "%.200s:%" PRIu32 ":%" PRIu32 " resources",
                 file ? file : "config", patterns[i].line, patterns[i].column);
        explain_one(patterns, i, subject, what, names, n_names, findings);
    }
}
