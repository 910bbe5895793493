/* SPDX-License-Identifier: Apache-2.0 */
#include "kubelet/env_conflict.h"

#include <stdio.h>
#include <string.h>

/* CDI names and mounts of two answers add up; device nodes do too, but the runtime then still gives
 * the libraries and capabilities of one answer only. */
static bool adds_up(const struct plugin_config *c)
{
    return c->list_strategies & (LIST_VOLUME_MOUNTS | LIST_CDI_ANNOTATIONS | LIST_CDI_CRI);
}

static bool counts(const struct inventory *inv, const struct device_use *u)
{
    return !u->pod_gone && inventory_resource(inv, u->resource);
}

static bool same_container(const struct device_use *a, const struct device_use *b)
{
    bool same_pod = a->pod_uid[0] && b->pod_uid[0]
                        ? strcmp(a->pod_uid, b->pod_uid) == 0
                        : a->pod_name[0] && strcmp(a->pod_name, b->pod_name) == 0 &&
                              strcmp(a->pod_namespace, b->pod_namespace) == 0;
    return same_pod && strcmp(a->container, b->container) == 0;
}

/* Another use of the same container that comes before i, of the same resource or of any. */
static bool told_before(const struct in_use *f, const struct inventory *inv, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (counts(inv, &f->uses[k]) && same_container(&f->uses[k], &f->uses[i]))
            return true;
    }
    return false;
}

static const char *other_resource(const struct in_use *f, const struct inventory *inv, size_t i)
{
    for (size_t k = i + 1; k < f->n; k++) {
        const struct device_use *u = &f->uses[k];
        if (counts(inv, u) && same_container(u, &f->uses[i]) &&
            strcmp(u->resource, f->uses[i].resource) != 0)
            return u->resource;
    }
    return NULL;
}

static void subject_of(const struct device_use *u, char *ret, size_t size)
{
    if (u->pod_name[0])
        snprintf(ret, size, "pod %s/%s container %s", u->pod_namespace, u->pod_name, u->container);
    else
        snprintf(ret, size, "pod %s container %s", u->pod_uid, u->container);
}

void plugin_env_conflicts(const struct in_use *facts, const struct plugin_config *config,
                          const struct inventory *inv, struct findings *out)
{
    char subject[800];
    if (adds_up(config) || inv->n_resources < 2)
        return;
    for (size_t i = 0; i < facts->n; i++) {
        const struct device_use *u = &facts->uses[i];
        if (!counts(inv, u) || told_before(facts, inv, i))
            continue;
        const char *other = other_resource(facts, inv, i);
        if (!other)
            continue;
        subject_of(u, subject, sizeof(subject));
        findings_add(out, "plugin.env-overwritten", SEVERITY_WARNING, subject,
                     "set deviceListStrategy to cdi-cri, cdi-annotations or volume-mounts, or ask "
                     "for one resource in a container",
                     "it holds devices of %s and of %s, but with deviceListStrategy envvar both "
                     "answers set NVIDIA_VISIBLE_DEVICES and it sees the devices of one only",
                     u->resource, other);
    }
}

static uint64_t hash(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

static bool remembered(const struct env_memory *m, uint64_t h)
{
    for (size_t i = 0; i < m->n; i++) {
        if (m->told[i] == h)
            return true;
    }
    return false;
}

void plugin_env_conflicts_new(struct env_memory *m, const struct in_use *facts,
                              const struct plugin_config *config, const struct inventory *inv,
                              struct findings *out)
{
    struct env_memory now = { .n = 0 };
    size_t from = out->n, kept = out->n;
    plugin_env_conflicts(facts, config, inv, out);
    for (size_t i = from; i < out->n; i++) {
        uint64_t h = hash(out->items[i].subject);
        if (now.n < sizeof(now.told) / sizeof(now.told[0]))
            now.told[now.n++] = h;
        if (!remembered(m, h))
            out->items[kept++] = out->items[i];
    }
    out->n = kept;
    *m = now;
}
