/* SPDX-License-Identifier: Apache-2.0 */
/* Kubelet keeps the logs of each pod in a directory named <namespace>_<name>_<uid>: the only place
 * on the host that ties a pod's UID to its name without asking anybody. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "kubeletapi/inuse.h"

enum { ENTRIES_MAX = 20 * 1000 };

static int by_uid(const void *a, const void *b)
{
    const struct device_use *const *x = a, *const *y = b;
    return strcmp((*x)->pod_uid, (*y)->pod_uid);
}

static int uid_cmp(const void *key, const void *member)
{
    const struct device_use *const *u = member;
    return strcmp(key, (*u)->pod_uid);
}

static void name_uses(struct in_use *u, struct device_use **sorted, size_t n, const char *entry)
{
    struct str rest = str_of(entry);
    struct str ns = str_cut(&rest, '_');
    struct str name = str_cut(&rest, '_');
    if (!rest.p || !ns.n || !name.n || !rest.n)
        return;
    struct device_use **at = bsearch(rest.p, sorted, n, sizeof *sorted, uid_cmp);
    if (!at)
        return;
    while (at > sorted && strcmp(at[-1]->pod_uid, rest.p) == 0)
        at--;
    const char *ns_z = arena_strdup(&u->arena, ns), *name_z = arena_strdup(&u->arena, name);
    if (!ns_z || !name_z)
        return;
    for (; at < sorted + n && strcmp((*at)->pod_uid, rest.p) == 0; at++) {
        (*at)->pod_namespace = ns_z;
        (*at)->pod_name = name_z;
    }
}

void pods_name(const struct host *h, struct in_use *u)
{
    auto_free struct device_use **sorted = u->n ? try_alloc(u->n * sizeof(void *)) : NULL;
    if (!sorted)
        return;
    size_t n = 0;
    for (size_t i = 0; i < u->n; i++)
        if (u->uses[i].pod_uid[0] && !u->uses[i].pod_name[0])
            sorted[n++] = &u->uses[i];
    qsort(sorted, n, sizeof(void *), by_uid);
    auto_free char *path = host_path(h, "/var/log/pods");
    DIR *d = n ? opendir(path) : NULL;
    if (!d)
        return;
    const struct dirent *e;
    for (size_t i = 0; i < ENTRIES_MAX && (e = readdir(d)); i++)
        name_uses(u, sorted, n, e->d_name);
    closedir(d);
}
