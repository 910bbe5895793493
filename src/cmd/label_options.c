/* SPDX-License-Identifier: Apache-2.0 */
#define AGENT_STATE_DIR_DEFAULT ""

#include "cmd/label_options.h"

#include <string.h>

#include "agent/agent.h"
#include "base/mem.h"

/* The file is read as the agent reads it, so that one file serves both. */
static const struct opt file_table[] = { PLUGINCONFIG_OPTIONS, AGENT_OPTIONS, { 0 } };

static const struct opt_value *given(const struct opts *o, const char *name)
{
    for (size_t i = 0; i < o->n; i++)
        if (strcmp(o->table[i].name, name) == 0 && o->values[i].source > OPT_FROM_CONFIG)
            return &o->values[i];
    return NULL;
}

static int read_file(const struct opts *o, struct findings *findings, struct plugin_config **ret,
                     bool *ret_per_model, struct error *err)
{
    /* Labels need no MPS root; a config without one is none of our business. */
    auto_free char *file = x_printf("--config-file=%s", opts_text(o, "config-file"));
    char *argv[] = { (char[]){ "labels" }, file, (char[]){ "--mps-root=/mps" }, NULL };
    char *env[] = { NULL };
    struct opts in_file;
    int r = opts_parse(&in_file, file_table, 3, argv, env, 0, err);
    if (r < 0)
        return r;
    r = pluginconfig_load(&in_file, NULL, env, findings, ret, err);
    *ret_per_model = opts_bool(&in_file, "labels-per-model");
    opts_done(&in_file);
    return r;
}

static int check_discovery(const struct opts *o, const struct plugin_config *c, struct error *err)
{
    const struct opt_value *v = given(o, "device-discovery-strategy");
    const char *strategy = v ? v->text : c->discovery;
    if (strcmp(strategy, "auto") == 0 || strcmp(strategy, "nvml") == 0)
        return 0;
    return error_set(err, ERR_UNSUPPORTED, 0,
                     "device discovery strategy \"%s\" (%s) is not part of this version; keep "
                     "NVIDIA's gpu-feature-discovery on such nodes",
                     strategy, v ? v->origin : "config file");
}

/* Flags and environment over the file. */
static int put_over(const struct opts *o, struct plugin_config *c, bool *per_model,
                    struct error *err)
{
    static const char *const strategies[] = { "none", "single", "mixed" };
    const struct {
        const char *name;
        bool *to;
    } booleans[] = {
        { "fail-on-init-error", &c->fail_on_init_error },
        { "oneshot", &c->gfd.oneshot },
        { "no-timestamp", &c->gfd.no_timestamp },
        { "use-node-feature-api", &c->gfd.use_node_feature_api },
        { "labels-per-model", per_model },
    };
    const struct {
        const char *name;
        const char **to;
    } texts[] = {
        { "output-file", &c->gfd.output_file },
        { "machine-type-file", &c->gfd.machine_type_file },
        { "driver-root", &c->driver_root },
        { "driver-root-ctr-path", &c->driver_root_ctr_path },
        { "dev-root", &c->dev_root },
    };
    const struct opt_value *v;
    for (size_t i = 0; i < ARRAY_LEN(booleans); i++)
        if ((v = given(o, booleans[i].name)))
            *booleans[i].to = v->boolean;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (!(v = given(o, texts[i].name)))
            continue;
        *texts[i].to = arena_strdup(&c->arena, str_of(v->text));
        if (!*texts[i].to)
            return error_set(err, ERR_LIMIT, 0, "the config needs more memory than we allow");
    }
    if ((v = given(o, "sleep-interval")))
        c->gfd.sleep_interval_ns = v->number;
    v = given(o, "mig-strategy");
    for (size_t i = 0; v && i < ARRAY_LEN(strategies); i++)
        if (strcmp(v->text, strategies[i]) == 0)
            c->mig_strategy = (enum mig_strategy)i;
    return 0;
}

int label_config_load(const struct opts *o, struct findings *findings, struct plugin_config **ret,
                      bool *ret_per_model, struct error *err)
{
    struct plugin_config *c = NULL;
    int r = opts_check(o, err);
    if (r == 0)
        r = read_file(o, findings, &c, ret_per_model, err);
    if (r == 0)
        r = check_discovery(o, c, err);
    if (r == 0)
        r = put_over(o, c, ret_per_model, err);
    if (r < 0)
        pluginconfig_free(c);
    else
        *ret = c;
    return r;
}

int label_host_init(const struct opts *o, const struct plugin_config *c, struct host *ret,
                    struct error *err)
{
    const struct host_config paths = {
        .root = opts_text(o, "host-root"),
        .driver_root = c->driver_root,
        .driver_root_view = c->driver_root_ctr_path,
        .dev_root = given(o, "dev-root") ? c->dev_root : NULL,
    };
    return host_init(ret, &paths, err);
}
