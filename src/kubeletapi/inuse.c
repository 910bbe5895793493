/* SPDX-License-Identifier: Apache-2.0 */
#include "kubeletapi/inuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum { ARENA_MAX = 192 * 1024 * 1024 };

struct in_use *in_use_new(void)
{
    struct in_use *u = x_alloc(sizeof *u);
    arena_init(&u->arena, ARENA_MAX);
    return u;
}

void in_use_free(struct in_use *u)
{
    if (!u)
        return;
    arena_done(&u->arena);
    free(u);
}

static const char *text(const char *s)
{
    return s ? s : "";
}

const char *use_pod_text(const struct device_use *u, char *buf, size_t size)
{
    if (text(u->pod_name)[0])
        snprintf(buf, size, "%s/%s", text(u->pod_namespace), u->pod_name);
    else if (text(u->pod_uid)[0])
        snprintf(buf, size, "with uid %s", u->pod_uid);
    else
        snprintf(buf, size, "of unknown name");
    return buf;
}

/* ---- one device, two pods ---- */

/* Without the share: what is held. */
static struct str base_of(const char *id)
{
    const char *at = strstr(id, "::");
    return at ? (struct str){ id, (size_t)(at - id) } : str_of(id);
}

static bool is_share(const char *id)
{
    return strstr(id, "::");
}

static int by_base(const void *a, const void *b)
{
    const struct device_use *const *x = a, *const *y = b;
    int c = str_cmp(base_of((*x)->id), base_of((*y)->id));
    if (!c) /* the whole before its shares */
        c = is_share((*x)->id) - is_share((*y)->id);
    if (!c)
        c = strcmp((*x)->id, (*y)->id);
    if (!c)
        c = strcmp(text((*x)->pod_uid), text((*y)->pod_uid));
    return c ? c : strcmp(text((*x)->pod_name), text((*y)->pod_name));
}

static bool same_pod(const struct device_use *a, const struct device_use *b)
{
    bool uids = text(a->pod_uid)[0] && text(b->pod_uid)[0];
    if (uids)
        return strcmp(a->pod_uid, b->pod_uid) == 0;
    bool names = text(a->pod_name)[0] && text(b->pod_name)[0];
    if (names)
        return strcmp(a->pod_name, b->pod_name) == 0 &&
               strcmp(text(a->pod_namespace), text(b->pod_namespace)) == 0;
    return false;
}

/* The one that kubelet does not run any more, else the later in order: nothing here tells which
 * came first. */
static const struct device_use *one_to_delete(const struct device_use *a,
                                              const struct device_use *b)
{
    return b->from_podresources && !a->from_podresources ? a : b;
}

static void tell(const struct device_use *a, const struct device_use *b, struct findings *out)
{
    char pod_a[320], pod_b[320], fix[480], del[320];
    const struct device_use *d = one_to_delete(a, b);
    const struct device_use *keep = d == a ? b : a;
    bool known = keep->from_podresources && !d->from_podresources;
    snprintf(fix, sizeof fix, "delete pod %s%s", use_pod_text(d, del, sizeof del),
             known ? ": kubelet does not list it as running any more"
                   : " (both run; if its work matters more, delete the other one)");
    findings_add(out, "in-use.duplicate", SEVERITY_ERROR, a->id, fix,
                 "%s is held by pod %s as %s%s%s and by pod %s as %s%s%s at the same time", a->id,
                 use_pod_text(a, pod_a, sizeof pod_a), text(a->resource),
                 text(a->container)[0] ? ", container " : "", text(a->container),
                 use_pod_text(b, pod_b, sizeof pod_b), text(b->resource),
                 text(b->container)[0] ? ", container " : "", text(b->container));
}

/* Other plugins number their devices as they like: equal ids of two of them are not one device. */
static bool names_gpu(const char *id)
{
    return strncmp(id, "GPU-", 4) == 0 || strncmp(id, "MIG-", 4) == 0;
}

/* Two uses in the order of by_base that cannot both be right. */
static bool clash(const struct device_use *a, const struct device_use *b)
{
    bool both = strcmp(a->id, b->id) == 0;
    bool whole = !is_share(a->id) && str_eq(base_of(a->id), base_of(b->id));
    return (both || whole) && !same_pod(a, b);
}

size_t in_use_duplicates(const struct in_use *u, struct findings *out)
{
    size_t n = 0, found = 0;
    auto_free const struct device_use **sorted = x_alloc((u->n + 1) * sizeof(void *));
    for (size_t i = 0; i < u->n; i++)
        if (use_holds(&u->uses[i]) && names_gpu(u->uses[i].id))
            sorted[n++] = &u->uses[i];
    qsort(sorted, n, sizeof(void *), by_base);
    size_t whole = 0; /* first use of the present base */
    for (size_t i = 1; i < n; i++) {
        if (!str_eq(base_of(sorted[whole]->id), base_of(sorted[i]->id)))
            whole = i;
        const struct device_use *before = sorted[i - 1];
        const struct device_use *other = clash(before, sorted[i])          ? before
                                         : clash(sorted[whole], sorted[i]) ? sorted[whole]
                                                                           : NULL;
        if (!other || other == sorted[i])
            continue;
        tell(other, sorted[i], out);
        found++;
    }
    return found;
}
