/* SPDX-License-Identifier: Apache-2.0 */
#include "base/finding.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"

void findings_init(struct findings *f, struct arena *arena, size_t max)
{
    *f = (struct findings){ .arena = arena, .max = max };
}

/* The next free place, or NULL. */
static struct finding *place(struct findings *f)
{
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 16;
        struct finding *items = arena_array(f->arena, cap, sizeof *items);
        if (!items)
            return NULL;
        if (f->n)
            memcpy(items, f->items, f->n * sizeof *items);
        f->items = items;
        f->cap = cap;
    }
    return &f->items[f->n];
}

static bool store(struct findings *f, const char *id, enum severity severity, const char *subject,
                  const char *fix, char *cause)
{
    struct finding *at = place(f);
    if (!at || !cause)
        return false;
    *at = (struct finding){
        .id = arena_strdup(f->arena, str_of(id)),
        .severity = severity,
        .subject = arena_strdup(f->arena, str_of(subject)),
        .cause = cause,
        .fix = arena_strdup(f->arena, str_of(fix)),
    };
    if (!at->id || !at->subject || !at->fix)
        return false;
    f->n++;
    return true;
}

void findings_add(struct findings *f, const char *id, enum severity severity, const char *subject,
                  const char *fix, const char *fmt, ...)
{
    if (f->n >= f->max) {
        if (f->n == f->max) {
            char *cause =
                arena_printf(f->arena, "more than %zu findings: the rest is not shown", f->max);
            (void)store(f, "limit.findings", SEVERITY_WARNING, subject,
                        "fix these first and run again", cause);
        }
        f->dropped[severity]++;
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    char *cause = arena_vprintf(f->arena, fmt, ap);
    va_end(ap);
    if (!store(f, id, severity, subject, fix, cause))
        f->dropped[severity]++;
}

size_t findings_count(const struct findings *f, enum severity severity)
{
    size_t count = f->dropped[severity];
    for (size_t i = 0; i < f->n; i++)
        count += f->items[i].severity == severity;
    return count;
}

const char *severity_name(enum severity severity)
{
    static const char *const names[SEVERITY_COUNT] = { "info", "warning", "error", "unknown" };
    return severity < SEVERITY_COUNT ? names[severity] : names[SEVERITY_UNKNOWN];
}
