/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the device plugin API: the first byte chooses the call and the config, the rest is
 * the message as kubelet would send it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kubelet/plugin_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { GPUS = 4, PARTS = 2, ANSWER_MAX = 64 * 1024 };

static struct survey *make_survey(void)
{
    struct part parts[PARTS] = { 0 };
    struct gpu gpus[GPUS] = { 0 };
    for (uint32_t i = 0; i < PARTS; i++) {
        snprintf(parts[i].uuid, sizeof(parts[i].uuid), "MIG-%u", i);
        snprintf(parts[i].profile, sizeof(parts[i].profile), "1g.10gb");
        parts[i].valid = PART_HAS_CAPS;
        parts[i].slot = parts[i].gi = i;
        parts[i].gi_slices = parts[i].ci_slices = 1;
    }
    for (uint32_t i = 0; i < GPUS; i++) {
        snprintf(gpus[i].uuid, sizeof(gpus[i].uuid), "GPU-%u", i);
        gpus[i].index = gpus[i].minor = i;
        gpus[i].valid = GPU_HAS_MINOR | GPU_HAS_MIG | GPU_HAS_EVENTS;
    }
    gpus[GPUS - 1].mig_current = 1;
    gpus[GPUS - 1].parts = parts;
    gpus[GPUS - 1].n_parts = PARTS;
    const struct survey s = {
        .driver = DRIVER_OK, .platform = "nvml", .gpus = gpus, .n_gpus = GPUS
    };
    struct survey *ret = NULL;
    struct error err;
    auto_buf bytes;
    buf_init(&bytes, 1024 * 1024);
    if (survey_encode(&s, &bytes, &err) < 0 || survey_decode(buf_view(&bytes), &ret, &err) < 0)
        abort();
    return ret;
}

static struct inventory *make_inventory(struct survey *s, const struct plugin_config *c)
{
    const struct inventory_input in = { .survey = s, .config = c };
    struct inventory *inv = NULL;
    struct error err;
    if (inventory_build(&in, &inv, &err) < 0)
        abort();
    return inv;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct shared_resource shared = { "nvidia.com/gpu", NULL, .all = true,
                                                   .replicas = 3 };
    static struct plugin_config config = { .cdi_annotation_prefix = "cdi.k8s.io/",
                                           .mps_root = "/mps",
                                           .mig_strategy = MIG_STRATEGY_MIXED };
    static char slash[] = "/";
    static const struct host host = { .root = slash + 1,
                                      .dev_root = slash,
                                      .seams = &host_seams_real };
    static const char *const nodes[] = { "/dev/nvidiactl" };
    static struct survey *survey;
    static struct inventory *plain, *sharing;
    static struct ledger *ledger;
    struct error err;
    if (!survey) {
        survey = make_survey();
        plain = make_inventory(survey, &config);
        config.sharing = (struct sharing){ .kind = SHARING_TIME_SLICING,
                                           .resources = &shared,
                                           .n_resources = 1 };
        sharing = make_inventory(survey, &config);
    }
    if (size == 0)
        return 0;
    if (ledger_open(&host, NULL, OWNER_DEVICE_PLUGIN, &ledger, NULL, &err) < 0)
        abort();
    ledger_survey(ledger, survey);
    config.list_strategies = data[0] & 15 ? data[0] & 15u : LIST_ENVVAR;
    config.pass_device_specs = data[0] & 16;
    config.id_strategy = data[0] & 32 ? ID_INDEX : ID_UUID;
    const struct inventory *inv = data[0] & 64 ? sharing : plain;
    const struct plugin_context c = {
        .host = &host,
        .inv = inv,
        .config = &config,
        .ledger = ledger,
        .control_nodes = nodes,
        .n_control_nodes = 1,
        .imex_channel0 = data[0] & 32,
        .gated = data[0] & 7,
    };
    const struct str request = { (const char *)data + 1, size - 1 };
    for (size_t i = 0; i < inv->n_resources; i++) {
        auto_buf answer;
        char ids[64];
        buf_init(&answer, ANSWER_MAX);
        int r = data[0] & 128 ? plugin_preferred(&c, &inv->resources[i], request, &answer, &err)
                              : plugin_allocate(&c, &inv->resources[i], request, &answer, &err);
        if (r < 0 && strnlen(err.text, sizeof(err.text)) == 0)
            abort(); /* a refusal says why */
        (void)plugin_request_ids(request, data[0] & 3, ids, sizeof(ids));
    }
    ledger_free(ledger);
    return 0;
}
