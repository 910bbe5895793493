/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/pluginconfig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "spec/pluginconfig_internal.h"

enum { CONFIG_ARENA_MAX = 16 * 1024 * 1024 };

/* A finding about an option's value, whoever set it. */
static void say_value(struct decode *d, const char *id, enum severity severity,
                      const struct opt_value *v, const char *fix, const char *cause)
{
    findings_add(d->findings, id, severity, v->origin, fix, "%s", cause);
}

/* ---- values of the command line and the environment ---- */

static const char *choices_text(struct decode *d, const struct opt *row)
{
    auto_buf b;
    buf_init(&b, 1000);
    struct str rest = str_of(row->choices);
    while (rest.p) {
        struct str word = str_cut(&rest, '|');
        buf_fmt(&b, "%s%.*s", b.n ? ", " : "", STR_FMT(word));
    }
    return decode_keep(d, buf_view(&b));
}

/* The file's own values were checked with their position. What only names parts of CDI files may
 * come from a newer peer: that is said and left out, not refused. */
static void check_choices(struct decode *d, const struct opts *o)
{
    for (size_t i = 0; i < o->n; i++) {
        const struct opt *row = &o->table[i];
        const struct opt_value *v = &o->values[i];
        if (!row->choices || v->source <= OPT_FROM_CONFIG)
            continue;
        bool optional = row->type == OPT_LIST && !row->config_key;
        size_t n = row->type == OPT_LIST ? v->n_items : 1;
        for (size_t k = 0; k < n; k++) {
            const char *word = row->type == OPT_LIST ? v->items[k] : v->text;
            if (opt_allows(row, word) || (optional && !word[0]))
                continue;
            bool strategy = strcmp(row->name, "device-list-strategy") == 0;
            char cause[700];
            snprintf(cause, sizeof cause, "%s--%s: %s\"%.80s\" is not allowed; allowed: %s",
                     strategy ? "invalid " : "", row->name, strategy ? "invalid strategy: " : "",
                     word, choices_text(d, row));
            say_value(d, optional ? "config.unknown-word" : "config.invalid-value",
                      optional ? SEVERITY_WARNING : SEVERITY_ERROR, v,
                      optional ? "it has no effect; check the spelling" : "choose one of these",
                      cause);
        }
    }
}

/* ---- from options to the config ---- */

static const char *text_of(struct decode *d, const struct opts *o, const char *name)
{
    return decode_keep(d, str_of(opts_text(o, name)));
}

/* A directory of the host; empty means `deflt`. */
static const char *root_of(struct decode *d, const struct opts *o, const char *name,
                           const char *deflt)
{
    const struct opt_value *v = opts_get(o, name);
    char cause[300];
    if (v->text[0] && v->text[0] != '/') {
        snprintf(cause, sizeof cause, "--%s: \"%.200s\" is not an absolute path", name, v->text);
        say_value(d, "config.invalid-value", SEVERITY_ERROR, v, "write the path from \"/\" on",
                  cause);
    }
    return v->text[0] ? decode_keep(d, str_of(v->text)) : deflt;
}

static const char *const *list_of(struct decode *d, const struct opts *o, const char *name,
                                  size_t *ret_n)
{
    const struct opt_value *v = opts_get(o, name);
    const char **items = decode_array(d, v->n_items, sizeof *items);
    *ret_n = 0;
    if (!items)
        return NULL;
    for (size_t i = 0; i < v->n_items; i++)
        if (v->items[i][0])
            items[(*ret_n)++] = decode_keep(d, str_of(v->items[i]));
    return items;
}

/* The place of the value among the choices of its option; the default's when it is none (a finding
 * was made then). */
static unsigned choice_of(const struct opts *o, const char *name)
{
    for (size_t i = 0; i < o->n; i++) {
        if (strcmp(o->table[i].name, name) != 0)
            continue;
        struct str rest = str_of(o->table[i].choices);
        for (unsigned k = 0; rest.p; k++)
            if (str_is(str_cut(&rest, '|'), o->values[i].text))
                return k;
    }
    return 0;
}

static uint32_t list_strategies(struct decode *d, const struct opts *o)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } known[] = {
        { "envvar", LIST_ENVVAR },
        { "volume-mounts", LIST_VOLUME_MOUNTS },
        { "cdi-annotations", LIST_CDI_ANNOTATIONS },
        { "cdi-cri", LIST_CDI_CRI },
    };
    const struct opt_value *v = opts_get(o, "device-list-strategy");
    uint32_t bits = 0;
    for (size_t i = 0; i < v->n_items; i++)
        for (size_t k = 0; k < ARRAY_LEN(known); k++)
            if (strcmp(v->items[i], known[k].name) == 0)
                bits |= known[k].bit;
    if (!v->n_items)
        say_value(d, "config.invalid-value", SEVERITY_ERROR, v,
                  "name at least one, or leave the key out",
                  "the list of device list strategies is empty");
    return bits;
}

static bool imex_channel0(struct decode *d, const struct opts *o)
{
    const struct opt_value *v = opts_get(o, "imex-channel-ids");
    if (v->n_items == 0)
        return false;
    if (v->n_items == 1 && strcmp(v->items[0], "0") == 0)
        return true;
    char cause[300];
    snprintf(cause, sizeof cause,
             "--imex-channel-ids: found [%.100s]; allowed: [] (no channel) or [0]", v->text);
    say_value(d, "config.invalid-value", SEVERITY_ERROR, v, "write 0 or leave it out", cause);
    return false;
}

static void take_options(struct decode *d, const struct opts *o, struct plugin_config *c)
{
    static const char *const discoveries[] = { "auto", "nvml", "tegra" };
    c->mig_strategy = (enum mig_strategy)choice_of(o, "mig-strategy");
    c->fail_on_init_error = opts_bool(o, "fail-on-init-error");
    c->driver_root = root_of(d, o, "driver-root", "/");
    c->dev_root = root_of(d, o, "dev-root", c->driver_root);
    c->driver_root_ctr_path = root_of(d, o, "driver-root-ctr-path", "");
    c->mps_root = root_of(d, o, "mps-root", "");
    c->pass_device_specs = opts_bool(o, "pass-device-specs");
    c->list_strategies = list_strategies(d, o);
    c->id_strategy = choice_of(o, "device-id-strategy") ? ID_INDEX : ID_UUID;
    c->gdrcopy = opts_bool(o, "gdrcopy-enabled");
    c->gds = opts_bool(o, "gds-enabled");
    c->mofed = opts_bool(o, "mofed-enabled");
    c->cdi_annotation_prefix = text_of(d, o, "cdi-annotation-prefix");
    c->cdi_hook_path = text_of(d, o, "nvidia-cdi-hook-path");
    c->shared_policy =
        choice_of(o, "shared-devices-allocation-policy") ? PLACE_PACKED : PLACE_DISTRIBUTED;
    c->discovery = discoveries[MIN(choice_of(o, "device-discovery-strategy"), 2u)];
    c->imex_channel0 = imex_channel0(d, o);
    c->imex_required = opts_bool(o, "imex-required");
    c->cdi_feature_flags = list_of(d, o, "cdi-feature-flags", &c->n_cdi_feature_flags);
    c->cdi_disabled_hooks = list_of(d, o, "cdi-disable-hooks", &c->n_cdi_disabled_hooks);
}

static void check_mps(struct decode *d, const struct opts *o, const struct plugin_config *c)
{
    if (c->sharing.kind != SHARING_MPS)
        return;
    const char *place = "sharing.mps";
    if (c->mig_strategy == MIG_STRATEGY_MIXED)
        say_value(d, "config.mps-mixed", SEVERITY_ERROR, opts_get(o, "mig-strategy"),
                  "choose another MIG strategy, or share by time slicing",
                  "using --mig-strategy=mixed is not supported with MPS");
    if (!c->mps_root[0])
        decode_say(d, "config.mps-root", SEVERITY_ERROR, c->sharing.resources[0].line,
                   c->sharing.resources[0].column, place,
                   "set flags.mpsRoot in the config file, --mps-root or MPS_ROOT (usually "
                   "/run/nvidia/mps) and mount "
                   "that path of the host into the container as /mps",
                   "using MPS requires --mps-root to be specified");
}

static void take_origins(struct decode *d, const struct opts *o, struct plugin_config *c)
{
    struct config_origin *list = decode_array(d, o->n, sizeof *list);
    if (!list)
        return;
    for (size_t i = 0; i < o->n; i++) {
        const struct opt *row = &o->table[i];
        const char *key =
            row->config_key ? row->config_key : arena_printf(d->arena, "--%s", row->name);
        list[i].key = decode_keep(d, str_of(key));
        list[i].origin = decode_keep(d, str_of(o->values[i].origin));
    }
    c->origins = list;
    c->n_origins = o->n;
}

/* ---- the whole ---- */

static const struct value *read_document(struct decode *d, const char *path, const struct str *text,
                                         char **ret_buffer)
{
    static const struct doc_limits limits = { .bytes = CONFIG_FILE_MAX,
                                              .depth = 32,
                                              .nodes = 50000 };
    struct error e;
    if (text)
        return decode_yaml(d, *text, &limits);
    if (file_read(path, CONFIG_FILE_MAX, ret_buffer, NULL, &e) == 0)
        return decode_yaml(d, str_of(*ret_buffer), &limits);
    findings_add(d->findings, "config.unreadable", SEVERITY_ERROR, path,
                 "mount the config file there, or correct --config-file / CONFIG_FILE", "%s",
                 e.text);
    return NULL;
}

int pluginconfig_load(struct opts *o, const struct str *text, char *const *env,
                      struct findings *findings, struct plugin_config **ret, struct error *err)
{
    const char *path = opts_text(o, "config-file");
    struct plugin_config *c = x_alloc(sizeof *c);
    arena_init(&c->arena, CONFIG_ARENA_MAX);
    struct decode d = { .findings = findings,
                        .arena = &c->arena,
                        .file = path[0] ? path : "config" };
    size_t before = findings_count(findings, SEVERITY_ERROR);
    env = env ? env : environ;
    c->gfd.sleep_interval_ns = INT64_C(60) * 1000000000;
    c->gfd.use_node_feature_api = true;
    c->gfd.output_file = "/etc/kubernetes/node-feature-discovery/features.d/gfd";
    c->gfd.machine_type_file = "/sys/class/dmi/id/product_name";

    auto_free char *buffer = NULL;
    const struct value *root = text || path[0] ? read_document(&d, path, text, &buffer) : NULL;
    if (root)
        config_decode_file(&d, root, o, c);
    if (text || path[0])
        c->source = decode_keep(&d, str_of(d.file));
    check_choices(&d, o);
    take_options(&d, o, c);
    check_mps(&d, o, c);
    config_decode_health(&d, env, c);
    config_find_stray(&d, env);
    take_origins(&d, o, c);

    int r = decode_result(&d, before, err);
    if (r < 0) {
        pluginconfig_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void pluginconfig_free(struct plugin_config *c)
{
    if (!c)
        return;
    arena_done(&c->arena);
    free(c);
}
