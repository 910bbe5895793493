/* SPDX-License-Identifier: Apache-2.0 */
/* Publish: (survey, config, ledger, health) → inventory → CDI files → kubelet. A CDI file is on
 * disk before a device that it names is offered. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/log.h"
#include "base/mem.h"
#include "cdi/cdi.h"

enum { CDI_FILE_MAX = 4 * 1024 * 1024, CDI_ARENA_MAX = 16 * 1024 * 1024 };

static bool uses_cdi(const struct plugin_config *c)
{
    return c->list_strategies & (LIST_CDI_ANNOTATIONS | LIST_CDI_CRI);
}

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

static void hand_over(struct agent *a)
{
    struct inventory *old = a->inventory;
    a->inventory = steal(a->next);
    log_turns(old, a->inventory);
    if (!old || old->n_resources != a->inventory->n_resources)
        log_resources(a->inventory);
    plugin_set_publish(a->plugins, a->inventory, a->config);
    inventory_free(old);
    pluginconfig_free(steal(a->published_config));
    if (a->inventory->n_resources == 0)
        log_warn("inventory.empty",
                 KV("fix", "nothing is offered to kubelet; `mete survey` shows what was found"));
}

static void cdi_written(void *arg, int r, const struct error *e)
{
    struct agent *a = arg;
    a->cdi_waiting--;
    if (r < 0) {
        if (!a->cdi_failed)
            log_error(
                "cdi.not-written", KV("dir", a->cdi_dir), KV_ERR(e),
                KV("fix",
                   "make the directory writable or choose another with --cdi-dir; devices are not "
                   "offered until their CDI files exist"));
        a->cdi_failed = true;
        for (size_t i = 0; i < a->n_files; i++) {
            free(steal(a->files[i].name));
            free(steal(a->files[i].text));
        }
        a->n_files = 0;
        timer_set(&a->cdi_timer, RETRY_WRITE_MS);
        return;
    }
    if (a->cdi_waiting > 0)
        return;
    if (!a->cdi_failed && a->next)
        hand_over(a);
    if (a->publish_again)
        agent_changed(a);
    a->publish_again = false;
}

static struct written_file *written(struct agent *a, const char *name)
{
    for (size_t i = 0; i < a->n_files; i++)
        if (strcmp(a->files[i].name, name) == 0)
            return &a->files[i];
    return NULL;
}

/* Takes name and text over. */
static void remember(struct agent *a, char *name, char *text)
{
    struct written_file *f = written(a, name);
    if (f) {
        free(f->text);
        free(name);
        f->text = text;
    } else if (a->n_files < FILES_MAX) {
        a->files[a->n_files++] = (struct written_file){ name, text };
    } else {
        free(name);
        free(text);
    }
}

static int open_cdi_dir(struct agent *a, struct error *err)
{
    if (a->cdi_dirfd >= 0)
        return 0;
    int r = dir_make(a->cdi_dir, 0755, err);
    if (r < 0)
        return error_wrap(err, "CDI directory");
    a->cdi_dirfd = open(a->cdi_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return a->cdi_dirfd < 0 ? error_errno(err, errno, "open the CDI directory %s", a->cdi_dir) : 0;
}

/* Hands changed CDI files to the disk thread. *ret_waiting: how many. */
static int write_cdi(struct agent *a, const struct inventory *inv, struct error *err)
{
    auto_arena arena;
    arena_init(&arena, CDI_ARENA_MAX);
    struct cdi_spec *specs;
    size_t n;
    int r = open_cdi_dir(a, err);
    if (r == 0)
        r = cdi_build(&arena, &a->host, inv->survey, a->config, &specs, &n, err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        auto_buf text;
        buf_init(&text, CDI_FILE_MAX);
        char *name = cdi_file_name(&arena, &specs[i]);
        r = name ? cdi_encode(&specs[i], &text, err)
                 : error_set(err, ERR_LIMIT, 0, "CDI specs need more than %d bytes", CDI_ARENA_MAX);
        if (r < 0)
            break;
        struct written_file *had = written(a, name);
        if (had && strcmp(had->text, text.p) == 0)
            continue;
        r = disk_replace(a->disk, a->cdi_dirfd, name, buf_view(&text), 0644, FILE_SYNC_NONE,
                         cdi_written, a, err);
        if (r == 0) {
            a->cdi_waiting++;
            remember(a, x_strdup(name), x_strdup(text.p));
        }
    }
    return r;
}

/* What is offered when the config cannot be served: the resources there were, without devices. */
static int build_withdrawn(struct agent *a, struct inventory **ret, struct error *err)
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
            .config = a->config,
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
    return build_withdrawn(a, ret, err);
}

/* What the config requires of the host besides gpus. Later than at start, plugins tell it. */
static int check_required(struct agent *a, struct error *err)
{
    struct cdi_facts facts;
    return a->inventory ? 0 : cdi_look(&a->host, a->config, &facts, err);
}

static void publish(void *arg)
{
    struct agent *a = arg;
    /* Before kubelet's records were asked for, a gpu that a pod holds in another form could be
     * offered. */
    if (!a->started || a->ending || !a->survey || !a->facts_answered)
        return;
    if (a->cdi_waiting > 0) {
        a->publish_again = true;
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
    a->cdi_failed = false;
    if (uses_cdi(a->config)) {
        r = write_cdi(a, inv, &err);
        if (r < 0) {
            log_error("cdi.failed", KV("dir", a->cdi_dir), KV_ERR(&err));
            timer_set(&a->cdi_timer, RETRY_WRITE_MS);
            return;
        }
    }
    if (a->cdi_waiting == 0)
        hand_over(a);
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
    a->cdi_dirfd = -1;
}

void publish_done(struct agent *a)
{
    timer_done(&a->publish_timer);
    timer_done(&a->cdi_timer);
    inventory_free(steal(a->next));
    inventory_free(steal(a->inventory));
    pluginconfig_free(steal(a->published_config));
    for (size_t i = 0; i < a->n_files; i++) {
        free(a->files[i].name);
        free(a->files[i].text);
    }
    a->n_files = 0;
    if (a->cdi_dirfd >= 0)
        close(steal_fd(&a->cdi_dirfd));
    free(steal(a->refused));
}
