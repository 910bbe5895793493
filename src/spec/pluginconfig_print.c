/* SPDX-License-Identifier: Apache-2.0 */
/* The config in force as the peer prints it at start, followed by where each value came from. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "data/json.h"
#include "spec/pluginconfig.h"

static void put_strategies(struct json_writer *w, uint32_t bits)
{
    static const char *const names[] = { "envvar", "volume-mounts", "cdi-annotations", "cdi-cri" };
    jw_key(w, "deviceListStrategy");
    jw_list(w);
    for (unsigned i = 0; i < ARRAY_LEN(names); i++)
        if (bits & (1u << i))
            jw_z(w, names[i]);
    jw_end(w);
}

static void put_gfd(struct json_writer *w, const struct plugin_config *c)
{
    int64_t ns = c->gfd.sleep_interval_ns;
    char interval[32] = "infinite";
    if (ns != INT64_MAX)
        snprintf(interval, sizeof interval, "%" PRId64 "%s", ns % 1000000000 ? ns : ns / 1000000000,
                 ns % 1000000000 ? "ns" : "s");
    jw_key(w, "gfd");
    jw_map(w);
    jw_kv_bool(w, "oneshot", c->gfd.oneshot);
    jw_kv_bool(w, "noTimestamp", c->gfd.no_timestamp);
    jw_kv(w, "sleepInterval", interval);
    jw_kv(w, "outputFile", c->gfd.output_file);
    jw_kv(w, "machineTypeFile", c->gfd.machine_type_file);
    jw_end(w);
}

static void put_flags(struct json_writer *w, const struct plugin_config *c)
{
    static const char *const mig[] = { "none", "single", "mixed" };
    jw_key(w, "flags");
    jw_map(w);
    jw_kv(w, "migStrategy", mig[c->mig_strategy]);
    jw_kv_bool(w, "failOnInitError", c->fail_on_init_error);
    jw_kv(w, "mpsRoot", c->mps_root);
    jw_kv(w, "nvidiaDriverRoot", c->driver_root);
    jw_kv(w, "nvidiaDevRoot", c->dev_root);
    jw_kv_bool(w, "gdrcopyEnabled", c->gdrcopy);
    jw_kv_bool(w, "gdsEnabled", c->gds);
    jw_kv_bool(w, "mofedEnabled", c->mofed);
    jw_kv_bool(w, "useNodeFeatureAPI", c->gfd.use_node_feature_api);
    jw_kv(w, "deviceDiscoveryStrategy", c->discovery);
    jw_key(w, "plugin");
    jw_map(w);
    jw_kv_bool(w, "passDeviceSpecs", c->pass_device_specs);
    put_strategies(w, c->list_strategies);
    jw_kv(w, "deviceIDStrategy", c->id_strategy == ID_INDEX ? "index" : "uuid");
    jw_kv(w, "cdiAnnotationPrefix", c->cdi_annotation_prefix);
    jw_kv(w, "nvidiaCTKPath", c->cdi_hook_path);
    jw_kv(w, "containerDriverRoot", c->driver_root_ctr_path);
    jw_kv(w, "sharedDevicesAllocationPolicy",
          c->shared_policy == PLACE_PACKED ? "packed" : "distributed");
    jw_end(w);
    put_gfd(w, c);
    jw_end(w);
}

static void put_patterns(struct json_writer *w, const char *key, const struct resource_pattern *p,
                         size_t n)
{
    jw_key(w, key);
    jw_list(w);
    for (size_t i = 0; i < n; i++) {
        jw_map(w);
        jw_kv(w, "pattern", p[i].pattern);
        jw_kv(w, "name", p[i].name);
        jw_end(w);
    }
    jw_end(w);
}

static void put_resources(struct json_writer *w, const struct plugin_config *c)
{
    static const struct resource_pattern every = { .pattern = "*", .name = "nvidia.com/gpu" };
    jw_key(w, "resources");
    jw_map(w);
    put_patterns(w, "gpus", c->n_gpu_patterns ? c->gpu_patterns : &every,
                 c->n_gpu_patterns ? c->n_gpu_patterns : 1);
    if (c->n_mig_patterns)
        put_patterns(w, "mig", c->mig_patterns, c->n_mig_patterns);
    jw_end(w);
}

static void put_devices(struct json_writer *w, const struct shared_resource *e)
{
    jw_key(w, "devices");
    if (e->all) {
        jw_z(w, "all");
        return;
    }
    if (e->count) {
        jw_int(w, e->count);
        return;
    }
    jw_list(w);
    for (size_t i = 0; i < e->n_refs; i++) {
        const struct device_ref *ref = &e->refs[i];
        char text[32];
        snprintf(text, sizeof text, ref->kind == REF_INDEX ? "%" PRIu32 : "%" PRIu32 ":%" PRIu32,
                 ref->gpu, ref->slot);
        jw_z(w, ref->kind == REF_UUID ? ref->uuid : text);
    }
    jw_end(w);
}

static void put_sharing(struct json_writer *w, const struct plugin_config *c)
{
    const struct sharing *s = &c->sharing;
    jw_key(w, "sharing");
    jw_map(w);
    if (c->require_distinct)
        jw_kv_bool(w, "requireDistinct", true);
    jw_key(w, s->kind == SHARING_MPS ? "mps" : "timeSlicing");
    jw_map(w);
    if (s->n_resources) {
        jw_kv_bool(w, "renameByDefault", s->rename_by_default);
        jw_kv_bool(w, "failRequestsGreaterThanOne", s->fail_requests_greater_than_one);
        jw_key(w, "resources");
        jw_list(w);
        for (size_t i = 0; i < s->n_resources; i++) {
            const struct shared_resource *e = &s->resources[i];
            jw_map(w);
            jw_kv(w, "name", e->name);
            if (e->rename)
                jw_kv(w, "rename", e->rename);
            put_devices(w, e);
            jw_kv_int(w, "replicas", e->replicas);
            jw_end(w);
        }
        jw_end(w);
    }
    jw_end(w);
    jw_end(w);
}

static void put_xids(struct json_writer *w, const char *key, bool all, const uint32_t *xids,
                     size_t n)
{
    jw_key(w, key);
    jw_list(w);
    if (all)
        jw_z(w, "all");
    for (size_t i = 0; i < n; i++)
        jw_int(w, xids[i]);
    jw_end(w);
}

void pluginconfig_print(const struct plugin_config *c, struct buf *out)
{
    struct json_writer w;
    jw_init(&w, out, 2);
    jw_map(&w);
    jw_kv(&w, "version", "v1");
    put_flags(&w, c);
    put_resources(&w, c);
    put_sharing(&w, c);
    jw_key(&w, "imex");
    jw_map(&w);
    jw_key(&w, "channelIDs");
    jw_list(&w);
    if (c->imex_channel0)
        jw_int(&w, 0);
    jw_end(&w);
    jw_kv_bool(&w, "required", c->imex_required);
    jw_end(&w);
    jw_key(&w, "health");
    jw_map(&w);
    put_xids(&w, "disabled", c->health.disable_all, c->health.disabled, c->health.n_disabled);
    put_xids(&w, "enabled", c->health.enable_all, c->health.enabled, c->health.n_enabled);
    jw_end(&w);
    jw_kv(&w, "source", c->source);
    jw_key(&w, "origins");
    jw_map(&w);
    for (size_t i = 0; i < c->n_origins; i++)
        jw_kv(&w, c->origins[i].key, c->origins[i].origin);
    jw_end(&w);
    jw_end(&w);
}
