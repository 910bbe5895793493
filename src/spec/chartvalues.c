/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/chartvalues.h"

#include "base/mem.h"
#include "spec/decode.h"
#include "spec/featuregates.h"

/* One boolean of the values, with the place where it was written. */
struct flag {
    bool on, written;
    uint32_t line, column;
};

static const struct value *find(const struct value *doc, const char *path)
{
    struct str rest = str_of(path);
    while (doc && rest.p) {
        struct str key = str_cut(&rest, '.');
        const struct value *next = NULL;
        for (size_t i = 0; doc->kind == VALUE_MAP && i < doc->n; i++)
            if (str_eq(doc->members[i].key, key))
                next = &doc->members[i].value;
        doc = next;
    }
    return doc;
}

static struct flag read_flag(struct decode *d, const struct value *doc, const char *path,
                             bool deflt)
{
    struct flag f = { .on = deflt };
    const struct value *v = find(doc, path);
    if (!v || v->kind == VALUE_NULL)
        return f;
    f.written = true;
    f.line = v->line;
    f.column = v->column;
    (void)decode_bool(d, v, path, &f.on); /* text would count as true in a template, "false" too */
    return f;
}

static void check_gpus(struct decode *d, const struct flag *override, const struct flag *gpus,
                       const struct flag *domains)
{
    static const char override_key[] = "gpuResourcesEnabledOverride",
                      gpus_key[] = "resources.gpus.enabled";
    if (override->on && !gpus->on)
        decode_say(
            d, "chart.gpus-half-enabled", SEVERITY_ERROR, gpus->line, gpus->column, gpus_key,
            "set resources.gpus.enabled: true to publish GPUs, or remove "
            "gpuResourcesEnabledOverride",
            "contradictory: %s=true only lifts the chart's guard against a device plugin on the "
            "same nodes; %s=false "
            "switches the GPU half off: no DeviceClass gpu.nvidia.com, no ResourceSlice of GPUs%s",
            override_key, gpus_key, domains->on ? "; only compute domains would run" : "");
    else if (!override->on && gpus->on)
        decode_say(
            d, "chart.gpus-guard", SEVERITY_ERROR, override->line, override->column, override_key,
            "set gpuResourcesEnabledOverride: true once no device plugin serves these nodes, or "
            "resources.gpus.enabled: false",
            "%s is true%s, but %s is false%s: the chart refuses to install, to keep GPUs from "
            "being handed out by two "
            "drivers",
            gpus_key, gpus->written ? "" : " by default", override_key,
            override->written ? "" : " by default");
    else if (!gpus->on && !domains->on)
        decode_say(d, "chart.nothing-enabled", SEVERITY_WARNING, domains->line, domains->column,
                   "resources.computeDomains.enabled", "enable one of the two",
                   "neither GPUs nor compute domains are enabled: the driver would do nothing");
}

static void check_refused(struct decode *d, const struct value *doc)
{
    static const struct {
        const char *key, *fix;
    } refused[] = {
        { "namespace", "give the namespace to helm with --namespace, or use namespaceOverride" },
        { "nvidiaCtkPath", "use nvidiaCDIHookPath" },
    };
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const struct value *v = find(doc, refused[i].key);
        if (v && v->kind != VALUE_NULL && !(v->kind == VALUE_TEXT && !v->text.n))
            decode_say(d, "chart.refused-key", SEVERITY_ERROR, v->line, v->column, refused[i].key,
                       refused[i].fix, "the chart refuses to install when this value is set");
    }
}

int chartvalues_check(const struct value *doc, const char *file, struct arena *arena,
                      struct findings *findings, struct error *err)
{
    struct decode d = { .findings = findings, .file = file, .arena = arena };
    size_t before = findings_count(findings, SEVERITY_ERROR);
    if (decode_map(&d, doc, "")) {
        struct flag override = read_flag(&d, doc, "gpuResourcesEnabledOverride", false);
        struct flag gpus = read_flag(&d, doc, "resources.gpus.enabled", true);
        struct flag domains = read_flag(&d, doc, "resources.computeDomains.enabled", true);
        if (findings_count(findings, SEVERITY_ERROR) == before)
            check_gpus(&d, &override, &gpus, &domains);
        check_refused(&d, doc);
        const struct value *gates = find(doc, "featureGates");
        struct feature_gates ignored;
        struct error e;
        /* The chart does not check them; the pods would crash again and again. */
        const char *origin =
            gates ? arena_printf(arena, "%s:%u:%u featureGates", file, gates->line, gates->column)
                  : NULL;
        if (gates && !origin)
            d.no_memory = true;
        else if (gates)
            (void)(featuregates_from_map(gates, origin, findings, &ignored, &e) < 0);
    }
    return decode_result(&d, before, err);
}
