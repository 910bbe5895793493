/* SPDX-License-Identifier: Apache-2.0 */
/* What kubelet's own records say: which devices are in use, who holds what twice, and whether
 * kubelet knows of us what we told it. */
#include <stdlib.h>
#include <string.h>

#include "agent/internal.h"
#include "base/log.h"
#include "base/mem.h"

enum { FACTS_ARENA = 256 * 1024, FACTS_MAX = 50, STATUS_ROWS = 256 };

/* ---- in use ---- */

void agent_watch_ledger(struct agent *a)
{
    int64_t next = ledger_next_ns(a->ledger), now = host_mono_ns(&a->host);
    if (next == INT64_MAX)
        timer_stop(&a->ledger_timer);
    else
        timer_set(&a->ledger_timer, next <= now ? 1 : (next - now) / 1000000 + 1);
}

bool agent_withholds(const struct agent *a)
{
    if (!a->inventory)
        return false;
    for (size_t i = 0; i < a->inventory->n_resources; i++) {
        const struct resource *r = &a->inventory->resources[i];
        for (size_t d = 0; d < r->n_devices; d++)
            if (r->devices[d].withheld)
                return true;
    }
    return false;
}

/* Containers that got devices of two resources but see those of one (B-038). */
static void log_env_conflicts(struct agent *a, const struct in_use *u)
{
    if (!a->inventory)
        return;
    auto_arena arena;
    struct findings found;
    arena_init(&arena, 64 * 1024);
    findings_init(&found, &arena, 20);
    plugin_env_conflicts_new(&a->env_told, u, a->config, a->inventory, &found);
    for (size_t i = 0; i < found.n; i++)
        log_warn(found.items[i].id, KV("subject", found.items[i].subject),
                 KV("cause", found.items[i].cause), KV("fix", found.items[i].fix));
}

static bool has_finding(const struct findings *f, const struct finding *like)
{
    for (size_t i = 0; f && i < f->n; i++)
        if (strcmp(f->items[i].subject, like->subject) == 0 &&
            strcmp(f->items[i].cause, like->cause) == 0)
            return true;
    return false;
}

/* Devices that two pods hold (B-104): told in the log when they come up, shown by `mete status` for
 * as long as they last. */
static void see_duplicates(struct agent *a, const struct in_use *u)
{
    struct facts *now = x_alloc(sizeof *now), *before = a->facts;
    arena_init(&now->arena, FACTS_ARENA);
    findings_init(&now->found, &now->arena, FACTS_MAX);
    in_use_duplicates(u, &now->found);
    for (size_t i = 0; i < now->found.n; i++) {
        const struct finding *f = &now->found.items[i];
        if (!has_finding(before ? &before->found : NULL, f))
            log_error(f->id, KV("device", f->subject), KV("cause", f->cause), KV("fix", f->fix));
    }
    if (before && before->found.n > 0 && now->found.n == 0)
        log_info("in-use.duplicates-over");
    facts_free(before);
    a->facts = now;
}

void facts_free(struct facts *f)
{
    if (!f)
        return;
    arena_done(&f->arena);
    free(f);
}

static void in_use_seen(void *arg, struct in_use *u, const struct error *e)
{
    struct agent *a = arg;
    if (!u) {
        log_debug("in-use.unread", KV_ERR(e));
    } else {
        log_env_conflicts(a, u);
        see_duplicates(a, u);
    }
    if (ledger_seen(a->ledger, u, host_mono_ns(&a->host)) || !a->facts_answered)
        agent_changed(a);
    a->facts_answered = true;
    in_use_free(u);
    agent_save(a);
    if (agent_withholds(a))
        timer_set(&a->in_use_timer, IN_USE_WHILE_HELD_MS);
    else if (ledger_wants_facts(a->ledger))
        timer_set(&a->in_use_timer, GRANT_CHECK_MS);
    agent_watch_ledger(a);
}

void agent_facts_late(void *arg)
{
    struct agent *a = arg;
    if (a->facts_answered || a->ending)
        return;
    log_warn("in-use.late", KV("dir", a->plugin_dir),
             KV("cause", "kubelet's records could not be read within 10 s"),
             KV("next", "gpus are offered by what the ledger knows"),
             KV("fix", "see whether the disk of that directory answers"));
    a->facts_answered = true;
    (void)ledger_seen(a->ledger, NULL, host_mono_ns(&a->host));
    agent_changed(a);
}

void agent_read_in_use(struct agent *a)
{
    if (a->in_use && !a->ending)
        in_use_read(a->in_use, in_use_seen, a);
}

/* ---- does kubelet know what we told it? ---- */

static size_t kubelet_has(const struct allocatable_count *counts, size_t n, const char *resource)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(counts[i].resource, resource) == 0)
            return counts[i].n;
    return 0;
}

/* "nvidia.com/gpu: 8 here, 0 there; …" of the resources whose list kubelet reads; "" when all
 * agree. A device that is unhealthy is not among kubelet's. */
static void compare(const struct agent *a, const struct allocatable_count *counts, size_t n,
                    struct buf *out)
{
    struct plugin_status rows[STATUS_ROWS];
    size_t n_rows = plugin_set_status(a->plugins, rows, STATUS_ROWS);
    for (size_t i = 0; i < n_rows; i++) {
        size_t there = kubelet_has(counts, n, rows[i].resource);
        if (rows[i].stream_open && rows[i].healthy != there)
            buf_fmt(out, "%s%s: %zu offered, kubelet has %zu", out->n ? "; " : "", rows[i].resource,
                    rows[i].healthy, there);
    }
}

static void register_differing(struct agent *a, const struct allocatable_count *counts, size_t n)
{
    struct plugin_status rows[STATUS_ROWS];
    size_t n_rows = plugin_set_status(a->plugins, rows, STATUS_ROWS);
    for (size_t i = 0; i < n_rows; i++)
        if (rows[i].stream_open && rows[i].healthy != kubelet_has(counts, n, rows[i].resource))
            plugin_set_register_again(a->plugins, rows[i].resource);
}

/* One difference may be a list on its way; the same one twice is a kubelet that lost something. */
static void compared(void *arg, const struct allocatable_count *counts, size_t n,
                     const struct error *e)
{
    struct agent *a = arg;
    auto_buf text;
    buf_init(&text, 4096);
    if (e)
        log_debug("kubelet.not-asked", KV_ERR(e));
    else
        compare(a, counts, n, &text);
    const char *now = text.n ? text.p : "";
    bool again = now[0] && a->disagreed && strcmp(a->disagreed, now) == 0;
    if (again && !a->disagreement_told)
        log_warn("plugin.kubelet-disagrees", KV("cause", now),
                 KV("next", "registered anew, now and every minute until kubelet has the list"));
    if (again)
        register_differing(a, counts, n);
    if (!now[0] && !e && a->disagreement_told)
        log_info("plugin.kubelet-agrees");
    a->disagreement_told = (a->disagreement_told && (now[0] || e)) || again;
    free(a->disagreed);
    a->disagreed = now[0] ? x_strdup(now) : NULL;
    timer_set(&a->compare_timer, now[0] && !again ? COMPARE_AGAIN_MS : COMPARE_MS);
}

void agent_compare(void *arg)
{
    struct agent *a = arg;
    if (a->plugins && !a->ending)
        allocatable_read(a->allocatable, compared, a);
}

void agent_compare_soon(struct agent *a)
{
    if (a->allocatable && !a->ending && !a->disagreement_told)
        timer_set(&a->compare_timer, COMPARE_FIRST_MS);
}
