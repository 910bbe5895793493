/* SPDX-License-Identifier: Apache-2.0 */
/* Publish: (survey, config, ledger, health) → inventory → CDI files → kubelet. A CDI file is on
 * disk before a device that it names is offered. */
#include <stdlib.h>
#include <string.h>

#include "agent/internal.h"
#include "base/log.h"
#include "base/mem.h"
#include "cdi/cdi.h"

static bool noted_before(const struct inventory *before, const struct finding *f)
{
    for (size_t i = 0; before && i < before->notes.n; i++) {
        const struct finding *was = &before->notes.items[i];
        if (strcmp(was->id, f->id) == 0 && strcmp(was->subject, f->subject) == 0 &&
            strcmp(was->cause, f->cause) == 0)
            return true;
    }
    return false;
}

/* What the inventory before did not say already. */
static void log_notes(const struct inventory *before, const struct inventory *inv)
{
    for (size_t i = 0; i < inv->notes.n; i++) {
        const struct finding *f = &inv->notes.items[i];
        enum log_level level = f->severity == SEVERITY_INFO ? LOG_INFO_ : LOG_WARN_;
        if (!noted_before(before, f))
            log_at(level, "inventory.note", KV("id", f->id), KV("subject", f->subject),
                   KV("cause", f->cause), KV("fix", f->fix));
    }
}

static void log_resources(const struct inventory *inv)
{
    for (size_t i = 0; i < inv->n_resources; i++) {
        const struct resource *r = &inv->resources[i];
        size_t healthy = 0;
        for (size_t d = 0; d < r->n_devices; d++)
            healthy += r->devices[d].healthy;
        log_info("inventory.resource", KV("resource", r->name), KV_I("devices", r->n_devices),
                 KV_I("healthy", healthy));
    }
}

static const struct device *device_before(const struct inventory *before, const char *resource,
                                          const char *id)
{
    const struct resource *r = before ? inventory_resource(before, resource) : NULL;
    return r ? resource_find(r, str_of(id)) : NULL;
}

/* One line for each device whose state turned; the first inventory is told as a whole by
 * log_resources. */
static void log_turns(const struct inventory *before, const struct inventory *now)
{
    for (size_t i = 0; i < now->n_resources; i++) {
        const struct resource *r = &now->resources[i];
        for (size_t d = 0; d < r->n_devices; d++) {
            const struct device *is = &r->devices[d];
            const struct device *was = device_before(before, r->name, is->id);
            bool was_healthy = was ? was->healthy : true;
            if (was_healthy == is->healthy || (is->share != UINT32_MAX && is->share != 0))
                continue;
            if (is->healthy)
                log_info("device.healthy", KV("resource", r->name), KV("device", is->base));
            else
                log_warn("device.unhealthy", KV("resource", r->name), KV("device", is->base),
                         KV("reason", is->reason));
        }
    }
}

/* The config that belongs to what is published now. */
static struct plugin_config *config_in_force(const struct agent *a)
{
    return a->published_config ? a->published_config : a->config;
}

static void show(struct agent *a, struct inventory *inv, const struct plugin_config *config)
{
    struct inventory *old = a->inventory;
    a->inventory = inv;
    log_turns(old, inv);
    if (!old || old->n_resources != inv->n_resources)
        log_resources(inv);
    plugin_set_publish(a->plugins, inv, config);
    inventory_free(old);
}

static void hand_over(struct agent *a)
{
    show(a, steal(a->next), a->config);
    pluginconfig_free(steal(a->published_config));
    if (a->inventory->n_resources == 0)
        log_warn("inventory.empty",
                 KV("fix", "nothing is offered to kubelet; `mete survey` shows what was found"));
}

/* What is offered when the config cannot be served: the resources there were, without devices. */
static int build_withdrawn(struct agent *a, const struct plugin_config *config,
                           struct inventory **ret, struct error *err)
{
    const struct survey nothing = { .driver = a->survey->driver };
    auto_buf bytes;
    buf_init(&bytes, 64 * 1024);
    struct survey *empty = NULL;
    int r = survey_encode(&nothing, &bytes, err);
    if (r == 0)
        r = survey_decode(buf_view(&bytes), &empty, err);
    if (r == 0) {
        const struct inventory_input in = {
            .survey = empty,
            .config = config,
            .ledger = a->ledger,
            .health = a->health,
            .before = a->inventory,
        };
        r = inventory_build(&in, ret, err);
    }
    survey_unref(empty);
    return r;
}

static int build(struct agent *a, struct inventory **ret, struct error *err)
{
    const struct inventory_input in = {
        .survey = a->survey,
        .config = a->config,
        .ledger = a->ledger,
        .health = a->health,
        .before = a->inventory,
        .running = a->inventory != NULL, /* a new config was tried on its own: reload.c */
    };
    int r = inventory_build(&in, ret, err);
    if (r == 0) {
        if (a->refused)
            log_info("inventory.served-again");
        free(steal(a->refused));
        return 0;
    }
    if (!a->inventory && a->config->fail_on_init_error)
        return r;
    if (!a->refused || strcmp(a->refused, err->text) != 0)
        log_error("inventory.refused", KV_ERR(err),
                  KV("fix", "nothing is offered until the config or the GPUs' MIG layout changes"));
    free(a->refused);
    a->refused = x_strdup(err->text);
    return build_withdrawn(a, a->config, ret, err);
}

/* What the config requires of the host besides gpus. Later than at start, plugins tell it. */
static int check_required(struct agent *a, struct error *err)
{
    struct cdi_facts facts;
    return a->inventory ? 0 : cdi_look(&a->host, a->config, &facts, err);
}

static void only_what_was_offered(struct inventory *inv, const struct inventory *before)
{
    for (size_t i = 0; i < inv->n_resources; i++) {
        struct resource *r = &inv->resources[i];
        for (size_t d = 0; d < r->n_devices; d++) {
            struct device *is = &r->devices[d];
            const struct device *was = device_before(before, r->name, is->id);
            if (!is->healthy || (was && was->healthy))
                continue;
            is->healthy = false;
            is->reason = "cdi-file-not-written";
        }
    }
}

/* While CDI files are being written, or cannot be: what went bad is withdrawn at once, nothing new
 * is offered, and a new config waits. */
static void withdraw_only(struct agent *a)
{
    struct error err;
    struct inventory *inv = NULL;
    const struct plugin_config *config = config_in_force(a);
    if (!a->inventory)
        return;
    const struct inventory_input in = {
        .survey = a->survey,
        .config = config,
        .ledger = a->ledger,
        .health = a->health,
        .before = a->inventory,
        .running = true,
    };
    if (inventory_build(&in, &inv, &err) < 0 && build_withdrawn(a, config, &inv, &err) < 0) {
        log_error("inventory.not-built", KV_ERR(&err));
        return;
    }
    only_what_was_offered(inv, a->inventory);
    if (inventory_same(inv, a->inventory))
        inventory_free(inv);
    else
        show(a, inv, config);
}

void agent_cdi_settled(struct agent *a)
{
    bool again = a->publish_again || a->next_of != a->config_number;
    a->publish_again = false;
    if (a->cdi_failed)
        timer_set(&a->cdi_timer, RETRY_WRITE_MS);
    else if (a->next && !again)
        hand_over(a);
    if (again)
        agent_changed(a);
}

static void publish(void *arg)
{
    struct agent *a = arg;
    /* Before kubelet's records were asked for, a gpu that a pod holds in another form could be
     * offered. */
    if (!a->started || a->ending || !a->survey || !a->facts_answered)
        return;
    if (a->reload_later) {
        a->reload_later = false;
        agent_reload(a, "asked for before the gpus were known");
    }
    agent_labels(a);
    if (a->cdi_waiting > 0) {
        a->publish_again = true;
        withdraw_only(a);
        return;
    }
    struct error err;
    struct inventory *inv = NULL;
    int r = check_required(a, &err);
    if (r == 0)
        r = build(a, &inv, &err);
    if (r < 0) {
        log_error("agent.cannot-start", KV_ERR(&err));
        agent_end(a, 1);
        return;
    }
    log_notes(a->inventory, inv);
    inventory_free(a->next);
    a->next = inv;
    a->next_of = a->config_number;
    if (!agent_wants_cdi(a)) {
        hand_over(a);
        return;
    }
    cdi_files_write(a, inv);
    if (a->next)
        withdraw_only(a);
}

static void retry(void *arg)
{
    agent_changed(arg);
}

void agent_changed(struct agent *a)
{
    timer_set(&a->publish_timer, 0);
}

void publish_init(struct agent *a)
{
    timer_init(&a->publish_timer, a->loop, publish, a);
    timer_init(&a->cdi_timer, a->loop, retry, a);
    cdi_files_init(a);
}

void publish_done(struct agent *a)
{
    agent_labels_done(a);
    timer_done(&a->publish_timer);
    timer_done(&a->cdi_timer);
    inventory_free(steal(a->next));
    inventory_free(steal(a->inventory));
    pluginconfig_free(steal(a->published_config));
    cdi_files_done(a);
    free(steal(a->refused));
}
