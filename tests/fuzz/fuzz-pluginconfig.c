/* SPDX-License-Identifier: Apache-2.0 */
/* A config either loads, and then prints as JSON, or is refused with at least one error finding. */
#include <stdlib.h>

#include "base/mem.h"
#include "data/json.h"
#include "spec/pluginconfig.h"

static const struct opt table[] = { PLUGINCONFIG_OPTIONS, { 0 } };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    char *argv[] = { (char[]){ "x" }, (char[]){ "--mps-root=/m" }, NULL };
    char *env[] = { (char[]){ "DP_DISABLE_HEALTHCHECKS=94" }, NULL };
    struct opts o;
    struct error err;
    auto_arena arena;
    struct findings findings;
    struct plugin_config *c = NULL;
    struct str text = { (const char *)p, n };
    if (opts_parse(&o, table, 2, argv, env, 0, &err) < 0)
        abort();
    arena_init(&arena, 16 * 1024 * 1024);
    findings_init(&findings, &arena, 50);
    int r = pluginconfig_load(&o, &text, env, &findings, &c, &err);
    if ((r == 0) != (findings_count(&findings, SEVERITY_ERROR) == 0) && r != -ERR_LIMIT)
        abort();
    if (r == 0) {
        auto_buf out;
        struct value *v;
        const struct doc_limits limits = { .bytes = 8 * 1024 * 1024,
                                           .depth = 32,
                                           .nodes = 1000000 };
        auto_arena again;
        arena_init(&again, SIZE_MAX);
        buf_init(&out, limits.bytes);
        pluginconfig_print(c, &out);
        if (out.failed || json_parse(&again, buf_view(&out), "printed", &limits, &v, &err) < 0)
            abort();
        for (size_t i = 0; i < c->sharing.n_resources; i++)
            if (!c->sharing.resources[i].name || c->sharing.resources[i].replicas < 1 ||
                c->sharing.resources[i].replicas > REPLICAS_MAX)
                abort();
    }
    pluginconfig_free(c);
    opts_done(&o);
    return 0;
}
