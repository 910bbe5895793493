/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "make_survey.h"
#include "node/inventory.h"

static struct plugin_config plain_config(enum mig_strategy strategy)
{
    return (struct plugin_config){ .mig_strategy = strategy, .source = "config.yaml" };
}

static struct inventory *build(struct survey *s, const struct plugin_config *c,
                               const struct inventory *before)
{
    const struct inventory_input in = { .survey = s, .config = c, .before = before };
    struct inventory *inv = NULL;
    struct error err;
    if (inventory_build(&in, &inv, &err) < 0)
        fail_msg("%s", err.text);
    return inv;
}

static void refuse(struct survey *s, const struct plugin_config *c, enum error_code code,
                   const char *text)
{
    const struct inventory_input in = { .survey = s, .config = c };
    struct inventory *inv = NULL;
    struct error err;
    assert_int_equal(inventory_build(&in, &inv, &err), -(int)code);
    assert_null(inv);
    if (!strstr(err.text, text))
        fail_msg("'%s' is not in '%s'", text, err.text);
}

/* "nvidia.com/gpu:8/8 …": resource:healthy/devices, in order. */
static void assert_offer(const struct inventory *inv, const char *want)
{
    char got[1024] = "";
    size_t at = 0;
    for (size_t i = 0; i < inv->n_resources; i++) {
        const struct resource *r = &inv->resources[i];
        size_t healthy = 0;
        for (size_t d = 0; d < r->n_devices; d++) {
            healthy += r->devices[d].healthy;
            assert_true(r->devices[d].healthy == !r->devices[d].reason);
            assert_ptr_equal(resource_find(r, str_of(r->devices[d].id)), &r->devices[d]);
        }
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%s:%zu/%zu", at ? " " : "", r->name,
                               healthy, r->n_devices);
        assert_ptr_equal(inventory_resource(inv, r->name), r);
    }
    assert_string_equal(got, want);
}

static bool noted(const struct inventory *inv, const char *id, const char *text)
{
    for (size_t i = 0; i < inv->notes.n; i++)
        if (strcmp(inv->notes.items[i].id, id) == 0 && strstr(inv->notes.items[i].cause, text))
            return true;
    return false;
}

static void test_plain(void **state)
{
    struct survey *s = make_survey(8);
    struct plugin_config c = plain_config(MIG_STRATEGY_NONE);
    struct inventory *inv = build(s, &c, NULL), *again = build(s, &c, inv);
    assert_offer(inv, "nvidia.com/gpu:8/8");
    const struct resource *r = &inv->resources[0];
    assert_string_equal(r->socket, "nvidia-gpu.sock");
    assert_string_equal(r->base_name, "nvidia.com/gpu");
    assert_int_equal(r->replicas, 1);
    assert_int_equal(r->sharing, SHARING_NONE);
    assert_int_equal(r->n_bases, 8);
    const struct device *d = &r->devices[7];
    assert_string_equal(d->id, "GPU-01000100-0000-0000-0000-000000000007");
    assert_string_equal(d->base, d->id);
    assert_string_equal(d->index, "7");
    assert_int_equal(d->gpu, 7);
    assert_int_equal(d->part, UINT32_MAX);
    assert_int_equal(d->share, UINT32_MAX);
    assert_int_equal(d->base_number, 7);
    assert_null(resource_find(r, STR("GPU-no-such")));
    assert_null(resource_find(r, STR("GPU-01000100-0000-0000-0000-00000000000")));
    assert_null(resource_find(r, STR("GPU-01000100-0000-0000-0000-0000000000070")));
    assert_null(resource_find(r, STR("")));
    assert_null(inventory_resource(inv, "nvidia.com/gpu.shared"));
    assert_true(inventory_same(inv, again));
    assert_int_equal(inv->notes.n, 0);
    inventory_free(again);
    inventory_free(inv);
    survey_unref(s);
}

static void test_empty_host(void **state)
{
    struct survey *s = make_survey(0);
    struct plugin_config c = plain_config(MIG_STRATEGY_SINGLE);
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "");
    assert_null(inventory_resource(inv, "nvidia.com/gpu"));
    inventory_free(inv);
    survey_unref(s);
}

/* B-033: one MIG gpu with 3 parts, one without any, one gpu with MIG off. */
static void test_mig_strategies(void **state)
{
    struct survey *s = make_survey(3);
    for (int i = 0; i < 3; i++)
        make_part(s, 0, "2g.20gb");
    make_part(s, 1, NULL);
    struct plugin_config c = plain_config(MIG_STRATEGY_MIXED);
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:1/1 nvidia.com/mig-2g.20gb:3/3");
    assert_true(noted(inv, "mig.empty", "no MIG devices"));
    const struct device *d = &inv->resources[1].devices[2];
    assert_string_equal(d->id, "MIG-00000000-0000-0000-0000-000000000002");
    assert_string_equal(d->index, "0:2");
    assert_int_equal(d->part, 2);
    assert_string_equal(inv->resources[1].socket, "nvidia-mig-2g.20gb.sock");
    inventory_free(inv);

    /* As recorded: MIG is ignored, whole gpus are listed. */
    c = plain_config(MIG_STRATEGY_NONE);
    inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:3/3");
    assert_true(noted(inv, "mig.strategy-none", "(3 MIG devices)"));
    assert_true(noted(inv, "mig.strategy-none", "(0 MIG devices)"));
    inventory_free(inv);

    c = plain_config(MIG_STRATEGY_SINGLE);
    refuse(s, &c, ERR_INVALID,
           "invalid MIG configuration: at least one device with migEnabled=true was not configured "
           "correctly: error visiting device: device 1 has no MIG devices configured");
    refuse(s, &c, ERR_INVALID, "use MIG strategy mixed");
    survey_unref(s);
}

static void test_mig_single(void **state)
{
    struct plugin_config c = plain_config(MIG_STRATEGY_SINGLE);
    struct survey *s = make_survey(2);
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:2/2");
    inventory_free(inv);
    for (int i = 0; i < 7; i++)
        make_part(s, 0, "1g.10gb");
    refuse(s, &c, ERR_INVALID,
           "all devices on the node must be configured with the same migEnabled value: gpu 0 has "
           "MIG devices, gpu 1 has MIG mode off");
    /* A lost gpu has no say, and its mode is not known. */
    lose(s, 1);
    s->gpus[1].valid = 0;
    inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:7/8");
    inventory_free(inv);
    s->gpus[1].lost = 0;
    for (int i = 0; i < 2; i++)
        make_part(s, 1, "1g.10gb");
    inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:9/9");
    inventory_free(inv);
    s->gpus[1].parts[1].memory_mb++;
    refuse(s, &c, ERR_INVALID, "invalid MIG configuration: more than one MIG device type present");
    snprintf(s->gpus[1].parts[1].profile, 32, "2g.20gb");
    refuse(s, &c, ERR_INVALID, "1g.10gb on gpu 0, 2g.20gb on gpu 1");

    /* While it runs a layout that does not fit withdraws, and says why. */
    const struct inventory_input in = { .survey = s, .config = &c, .running = true };
    struct inventory *withdrawn;
    struct error err;
    assert_int_equal(inventory_build(&in, &withdrawn, &err), 0);
    assert_offer(withdrawn, "");
    assert_true(noted(withdrawn, "mig.not-single", "more than one MIG device type"));
    inventory_free(withdrawn);
    survey_unref(s);
}

/* B-014, B-035, pieces of GPU instances, unknown profiles. */
static void test_mig_mixed(void **state)
{
    struct plugin_config c = plain_config(MIG_STRATEGY_MIXED);
    struct survey *s = make_survey(4);
    make_part(s, 0, "1g.23gb+me");
    make_part(s, 0, "1c.3g.40gb");
    make_part(s, 0, "3g.40gb");
    make_part(s, 0, "");
    make_part(s, 1, NULL);
    snprintf(s->gpus[1].mig_text, sizeof s->gpus[1].mig_text, "no permission for nvidia-cap2");
    make_part(s, 3, "1g.24gb-me");
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:1/1 nvidia.com/mig-1g.23gb.me:1/1 "
                      "nvidia.com/mig-1g.24gb-me:1/1 nvidia.com/mig-3g.40gb:1/1");
    assert_true(noted(inv, "mig.piece", "1c.3g.40gb"));
    assert_true(noted(inv, "mig.profile-unknown", "''"));
    assert_true(noted(inv, "mig.unreadable", "no permission for nvidia-cap2"));
    inventory_free(inv);
    survey_unref(s);
}

static void test_patterns(void **state)
{
    static const struct resource_pattern gpus[] = {
        { "NVIDIA-A100*", "nvidia.com/hyphen", 4, 5 },
        { "*H100*", "nvidia.com/big", 5, 5 },
        { "*80GB*", "nvidia.com/second", 6, 5 },
    };
    static const struct resource_pattern migs[] = {
        { "1c.*", "nvidia.com/piece", 8, 5 },
        { "1g.*", "nvidia.com/small", 9, 5 },
    };
    struct plugin_config c = plain_config(MIG_STRATEGY_MIXED);
    c.gpu_patterns = gpus;
    c.n_gpu_patterns = ARRAY_LEN(gpus);
    c.mig_patterns = migs;
    c.n_mig_patterns = ARRAY_LEN(migs);
    struct survey *s = make_survey(4);
    snprintf(s->gpus[1].name, 96, "NVIDIA T4");
    make_part(s, 2, "1g.10gb");
    make_part(s, 2, "2g.20gb");
    make_part(s, 2, "1c.3g.40gb");
    snprintf(s->gpus[3].name, 96, "NVIDIA DGX Display");
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/big:1/1 nvidia.com/piece:1/1 nvidia.com/small:1/1");
    assert_true(noted(inv, "resources.no-pattern", "GPU name 'NVIDIA T4' does not match"));
    assert_true(noted(inv, "resources.no-pattern", "MIG profile '2g.20gb'"));
    /* B-017: a pattern without a match shows the names as they are. */
    assert_true(noted(inv, "pattern.unused", "\"NVIDIA H100 80GB HBM3\", \"NVIDIA T4\""));
    assert_true(noted(inv, "pattern.unused", "\"NVIDIA-A100*\""));
    assert_true(noted(inv, "pattern.unused", "because \"*H100*\" (line 5) comes before it"));
    assert_true(noted(inv, "pattern.matched", "\"*H100*\""));
    assert_true(noted(inv, "pattern.matched", "takes \"1g.10gb\""));
    assert_false(noted(inv, "pattern.unused", "DGX Display"));
    inventory_free(inv);
    survey_unref(s);
}

static void test_lost(void **state)
{
    struct plugin_config c = plain_config(MIG_STRATEGY_MIXED);
    struct survey *s = make_survey(8);
    make_part(s, 6, "1g.10gb");
    struct inventory *inv = build(s, &c, NULL);
    survey_unref(s);

    s = make_survey(8);
    lose(s, 3);
    lose(s, 6);
    lose(s, 7);
    for (size_t i = 3; i < 8; i += 3) { /* their facts are gone; one forgot its MIG mode too */
        s->gpus[i].valid = 0;
        s->gpus[i].name[0] = '\0';
    }
    s->gpus[7].uuid[0] = '\0';
    struct inventory *now = build(s, &c, inv);
    assert_offer(now, "nvidia.com/gpu:5/6 nvidia.com/mig-1g.10gb:0/0");
    assert_string_equal(now->resources[0].devices[3].reason, "lost");
    assert_true(noted(now, "gpu.no-uuid", "GPU is lost"));
    assert_true(noted(now, "gpu.lost", "not known"));
    assert_false(inventory_same(inv, now));
    /* And again: what was known of them is handed on. */
    struct inventory *later = build(s, &c, now);
    assert_true(inventory_same(now, later));
    assert_string_equal(later->gpus[3].name, "NVIDIA H100 80GB HBM3");
    inventory_free(inv);
    inventory_free(now);
    inventory_free(later);
    survey_unref(s);
}

static void test_driver_gone(void **state)
{
    struct plugin_config c = plain_config(MIG_STRATEGY_NONE);
    struct survey *s = make_survey(4), *gone = make_survey(0);
    gone->driver = DRIVER_NOT_LOADED;
    struct health *h;
    struct error err;
    assert_int_equal(health_new(&c, &h, &err), 0);
    health_survey(h, s, 1);
    struct inventory *inv = build(s, &c, NULL);
    health_survey(h, gone, 2);
    const struct inventory_input in = { .survey = gone, .config = &c, .health = h, .before = inv };
    struct inventory *now;
    assert_int_equal(inventory_build(&in, &now, &err), 0);
    assert_offer(now, "nvidia.com/gpu:0/4");
    assert_string_equal(now->resources[0].devices[0].reason, "driver-gone");
    inventory_free(now);
    /* Nothing was there before: nothing is there. */
    now = build(gone, &c, NULL);
    assert_offer(now, "");
    inventory_free(now);
    /* Seen with a good driver, the gpus are really gone: the resource stays, empty. */
    gone->driver = DRIVER_OK;
    now = build(gone, &c, inv);
    assert_offer(now, "nvidia.com/gpu:0/0");
    inventory_free(now);
    inventory_free(inv);
    survey_unref(gone);

    /* A driver that answers with errors lists the gpus it had as lost: offered for the grace. */
    gone = make_survey(4);
    gone->driver = DRIVER_ERROR;
    for (size_t i = 0; i < 4; i++)
        lose(gone, i);
    health_survey(h, s, 3);
    health_survey(h, gone, 4);
    const struct inventory_input failing = { .survey = gone, .config = &c, .health = h };
    assert_int_equal(inventory_build(&failing, &now, &err), 0);
    assert_offer(now, "nvidia.com/gpu:4/4");
    inventory_free(now);
    health_tick(h, INT64_C(31000000000));
    assert_int_equal(inventory_build(&failing, &now, &err), 0);
    assert_offer(now, "nvidia.com/gpu:0/4");
    assert_string_equal(now->resources[0].devices[3].reason, "driver-error");
    inventory_free(now);
    health_free(h);
    survey_unref(s);
    survey_unref(gone);
}

/* B-050: all shares of a gpu, exactly the parts meant. */
static void test_health(void **state)
{
    static const struct shared_resource four = { .name = "nvidia.com/gpu",
                                                 .all = true,
                                                 .replicas = 4 };
    struct plugin_config c = plain_config(MIG_STRATEGY_MIXED);
    c.sharing =
        (struct sharing){ .kind = SHARING_TIME_SLICING, .resources = &four, .n_resources = 1 };
    struct survey *s = make_survey(3);
    for (int i = 0; i < 3; i++)
        make_part(s, 2, "1g.10gb");
    struct health *h;
    struct error err;
    assert_int_equal(health_new(&c, &h, &err), 0);
    health_survey(h, s, 1);
    struct gpu_event e = { .kind = GPU_EVENT_XID, .gi = UINT32_MAX, .ci = UINT32_MAX, .value = 79 };
    snprintf(e.uuid, sizeof e.uuid, "%s", s->gpus[1].uuid);
    health_event(h, &e, 2);
    snprintf(e.uuid, sizeof e.uuid, "%s", s->gpus[2].uuid);
    e.gi = 2;
    e.ci = 0;
    health_event(h, &e, 3);
    const struct inventory_input in = { .survey = s, .config = &c, .health = h };
    struct inventory *inv;
    assert_int_equal(inventory_build(&in, &inv, &err), 0);
    assert_offer(inv, "nvidia.com/gpu:4/8 nvidia.com/mig-1g.10gb:2/3");
    assert_true(inv->resources[0].devices[3].healthy);
    for (int i = 4; i < 8; i++)
        assert_string_equal(inv->resources[0].devices[i].reason, "xid-79");
    assert_string_equal(inv->resources[1].devices[1].reason, "xid-79");
    inventory_free(inv);
    health_free(h);
    survey_unref(s);
}

/* What the ledger holds back is listed, but not offered. */
static void test_withheld(void **state)
{
    static const struct shared_resource two = { .name = "nvidia.com/gpu",
                                                .all = true,
                                                .replicas = 2 };
    struct plugin_config c = plain_config(MIG_STRATEGY_NONE);
    struct survey *s = make_survey(2);
    struct host host;
    const struct host_config where = { .root = "/" };
    struct ledger *l;
    struct error err;
    assert_int_equal(host_init(&host, &where, &err), 0);
    assert_int_equal(ledger_open(&host, NULL, OWNER_DEVICE_PLUGIN, &l, NULL, &err), 0);
    struct inventory_input in = { .survey = s, .config = &c, .ledger = l };
    struct inventory *inv;
    assert_int_equal(inventory_build(&in, &inv, &err), 0);
    assert_offer(inv, "nvidia.com/gpu:0/2"); /* not yet known to the ledger: nobody's */
    inventory_free(inv);
    ledger_survey(l, s);
    assert_int_equal(inventory_build(&in, &inv, &err), 0);
    assert_offer(inv, "nvidia.com/gpu:2/2");
    inventory_free(inv);

    const char *uuid = s->gpus[1].uuid;
    const struct grant_request g = { .resource = "nvidia.com/gpu",
                                     .ids = &uuid,
                                     .bases = &uuid,
                                     .gpu_uuids = &uuid,
                                     .n = 1,
                                     .exclusive = true };
    assert_int_equal(ledger_grant(l, &g, 1, &err), 0);
    c.sharing = (struct sharing){
        .kind = SHARING_TIME_SLICING, .rename_by_default = true, .resources = &two, .n_resources = 1
    };
    assert_int_equal(inventory_build(&in, &inv, &err), 0);
    assert_offer(inv, "nvidia.com/gpu.shared:2/4"); /* the other is whole in somebody's hand */
    assert_true(strlen(inv->resources[0].devices[3].reason) > 5);
    inventory_free(inv);
    ledger_free(l);
    host_done(&host);
    survey_unref(s);
}

static struct plugin_config shared_config(enum mig_strategy strategy, bool rename_by_default,
                                          const struct shared_resource *r, size_t n)
{
    struct plugin_config c = plain_config(strategy);
    c.sharing = (struct sharing){ .kind = SHARING_TIME_SLICING,
                                  .rename_by_default = rename_by_default,
                                  .resources = r,
                                  .n_resources = n };
    return c;
}

static void test_sharing(void **state)
{
    static const struct shared_resource some[] = {
        { .name = "nvidia.com/gpu", .all = true, .replicas = 12, .line = 5 },
        { .name = "nvidia.com/mig-1g.10gb",
          .rename = "nvidia.com/slice",
          .all = true,
          .replicas = 2,
          .line = 7 },
        { .name = "nvidia.com/mig-7g.80gb", .all = true, .replicas = 2, .line = 9 },
    };
    struct survey *s = make_survey(3);
    make_part(s, 1, "1g.10gb");
    make_part(s, 1, "3g.40gb");
    struct plugin_config c = shared_config(MIG_STRATEGY_MIXED, false, some, 3);
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:24/24 nvidia.com/mig-3g.40gb:1/1 nvidia.com/slice:2/2");
    const struct resource *r = &inv->resources[0];
    assert_int_equal(r->n_bases, 2);
    assert_int_equal(r->replicas, 12);
    assert_int_equal(r->sharing, SHARING_TIME_SLICING);
    assert_int_equal(inv->resources[1].sharing, SHARING_NONE);
    const struct device *d = &r->devices[23];
    assert_string_equal(d->id, "GPU-01000100-0000-0000-0000-000000000002::11");
    assert_string_equal(d->base, "GPU-01000100-0000-0000-0000-000000000002");
    assert_int_equal(d->share, 11);
    assert_int_equal(d->base_number, 1);
    assert_int_equal(d->gpu, 2);
    assert_string_equal(inv->resources[2].base_name, "nvidia.com/mig-1g.10gb");
    assert_string_equal(inv->resources[2].socket, "nvidia-slice.sock");
    assert_string_equal(inv->resources[2].devices[1].id,
                        "MIG-00000001-0000-0000-0000-000000000000::1");
    assert_true(noted(inv, "sharing.no-such-resource", "line 9"));
    assert_null(resource_find(r, STR("GPU-01000100-0000-0000-0000-000000000002")));
    assert_null(resource_find(r, STR("GPU-01000100-0000-0000-0000-000000000002::12")));
    /* B-022, and back: the resource that vanished stays, empty. */
    struct plugin_config renamed = shared_config(MIG_STRATEGY_NONE, true, some, 1);
    struct inventory *now = build(s, &renamed, inv);
    assert_offer(now, "nvidia.com/gpu:0/0 nvidia.com/gpu.shared:36/36 nvidia.com/mig-3g.40gb:0/0 "
                      "nvidia.com/slice:0/0");
    assert_string_equal(now->resources[1].socket, "nvidia-gpu.shared.sock");
    struct plugin_config plain = plain_config(MIG_STRATEGY_NONE);
    struct inventory *back = build(s, &plain, now);
    assert_int_equal(inventory_resource(back, "nvidia.com/gpu")->n_devices, 3);
    assert_int_equal(inventory_resource(back, "nvidia.com/gpu.shared")->n_devices, 0);
    inventory_free(back);
    inventory_free(now);
    inventory_free(inv);
    survey_unref(s);
}

/* B-020 and what can be wrong with `devices`. */
static void test_sharing_by_device(void **state)
{
    static const struct device_ref first[] = {
        { .kind = REF_INDEX, .gpu = 0, .line = 5, .column = 17 }
    };
    static const struct device_ref second[] = { { .kind = REF_UUID,
                                                  .uuid =
                                                      "GPU-01000100-0000-0000-0000-000000000001",
                                                  .line = 9,
                                                  .column = 17 } };
    static const struct shared_resource entries[] = {
        { .name = "nvidia.com/gpu",
          .rename = "nvidia.com/gpu-light",
          .refs = first,
          .n_refs = 1,
          .replicas = 2,
          .line = 4,
          .column = 9 },
        { .name = "nvidia.com/gpu",
          .rename = "nvidia.com/gpu-batch",
          .refs = second,
          .n_refs = 1,
          .replicas = 8,
          .line = 8,
          .column = 9 },
    };
    struct survey *s = make_survey(2);
    struct plugin_config c = shared_config(MIG_STRATEGY_NONE, false, entries, 2);
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu-batch:8/8 nvidia.com/gpu-light:2/2");
    inventory_free(inv);
    survey_unref(s);
    s = make_survey(4); /* the rest stays whole, under its own name */
    inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:2/2 nvidia.com/gpu-batch:8/8 nvidia.com/gpu-light:2/2");
    inventory_free(inv);

    static const struct device_ref absent[] = {
        { .kind = REF_INDEX, .gpu = 9, .line = 6, .column = 17 }
    };
    static const struct device_ref mig[] = {
        { .kind = REF_MIG_INDEX, .gpu = 0, .slot = 1, .line = 6, .column = 17 }
    };
    static const struct device_ref twice[] = {
        { .kind = REF_INDEX, .gpu = 1, .line = 6, .column = 17 },
        { .kind = REF_UUID,
          .uuid = "GPU-01000100-0000-0000-0000-000000000001",
          .line = 7,
          .column = 17 }
    };
    static const struct device_ref by_uuid[] = { { .kind = REF_UUID,
                                                   .uuid =
                                                       "GPU-01000100-0000-0000-0000-000000000000",
                                                   .line = 9,
                                                   .column = 19 } };
    const struct {
        struct shared_resource entry;
        const char *text;
    } bad[] = {
        { { .refs = absent, .n_refs = 1 },
          "config.yaml:6:17: sharing.timeSlicing.resources: device 9 matches none of "
          "nvidia.com/gpu; this host has 0, 1, 2, 3" },
        { { .refs = mig, .n_refs = 1 }, "device 0:1 matches none" },
        { { .refs = twice, .n_refs = 2 },
          "config.yaml:7:17: sharing.timeSlicing.resources: device 1 "
          "(GPU-01000100-0000-0000-0000-000000000001) is listed in this entry already, at 6:17" },
        { { .refs = by_uuid, .n_refs = 1 },
          "config.yaml:9:19: sharing.timeSlicing.resources: device 0 "
          "(GPU-01000100-0000-0000-0000-000000000000) is taken by another entry, at 5:17; a device "
          "may be in one entry only" },
        { { .all = true, .line = 3, .column = 9 },
          "config.yaml:3:9: sharing.timeSlicing.resources: "
          "device 0" },
        { { .count = 9, .line = 3, .column = 9 }, "is taken by another entry, at 5:17" },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct shared_resource both[2] = { entries[0], bad[i].entry };
        both[1].name = "nvidia.com/gpu";
        both[1].replicas = 3;
        c = shared_config(MIG_STRATEGY_NONE, false, both, 2);
        refuse(s, &c, ERR_INVALID, bad[i].text);
    }
    /* Served already, and a device vanished: a note, the others stay. */
    struct shared_resource gone = {
        .name = "nvidia.com/gpu", .refs = absent, .n_refs = 1, .replicas = 2
    };
    c = shared_config(MIG_STRATEGY_NONE, false, &gone, 1);
    const struct inventory_input in = { .survey = s, .config = &c, .running = true };
    struct error err;
    assert_int_equal(inventory_build(&in, &inv, &err), 0);
    assert_offer(inv, "nvidia.com/gpu:4/4");
    assert_true(noted(inv, "sharing.device-gone", "device 9"));
    inventory_free(inv);
    /* Served already, and the gpus were numbered anew, so that two entries now mean one: the first
     * keeps it. */
    struct shared_resource both[2] = { entries[0], entries[0] };
    both[1].rename = "nvidia.com/gpu-batch";
    both[1].refs = by_uuid;
    both[1].replicas = 8;
    c = shared_config(MIG_STRATEGY_NONE, false, both, 2);
    assert_int_equal(inventory_build(&in, &inv, &err), 0);
    assert_offer(inv, "nvidia.com/gpu:3/3 nvidia.com/gpu-light:2/2");
    assert_true(noted(inv, "sharing.device-twice", "at 5:17"));
    inventory_free(inv);
    survey_unref(s);
}

static void test_sharing_count_and_exclusive(void **state)
{
    static const struct device_ref migs[] = {
        { .kind = REF_MIG_INDEX, .gpu = 3, .slot = 1 },
        { .kind = REF_UUID, .uuid = "MIG-00000003-0000-0000-0000-000000000000" }
    };
    static const struct shared_resource entries[] = {
        { .name = "nvidia.com/gpu", .rename = "nvidia.com/gpu.part", .count = 2, .replicas = 3 },
        { .name = "nvidia.com/mig-1g.10gb", .refs = migs, .n_refs = 2, .replicas = 1 },
    };
    struct survey *s = make_survey(4);
    for (int i = 0; i < 3; i++)
        make_part(s, 3, "1g.10gb");
    struct plugin_config c = shared_config(MIG_STRATEGY_MIXED, true, entries, 2);
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:1/1 nvidia.com/gpu.part:6/6 nvidia.com/mig-1g.10gb:3/3");
    assert_string_equal(inv->resources[1].devices[3].id,
                        "GPU-01000100-0000-0000-0000-000000000001::0");
    assert_int_equal(inv->resources[2].sharing, SHARING_NONE);
    inventory_free(inv);

    struct shared_resource more = {
        .name = "nvidia.com/gpu", .count = 4, .replicas = 3, .line = 6, .column = 9
    };
    c = shared_config(MIG_STRATEGY_MIXED, true, &more, 1);
    refuse(s, &c, ERR_INVALID,
           "config.yaml:6:9: sharing.timeSlicing.resources: 4 devices of a "
           "resource are asked for, the host has 3");
    struct shared_resource clash = { .name = "nvidia.com/gpu",
                                     .rename = "nvidia.com/mig-1g.10gb",
                                     .all = true,
                                     .replicas = 3,
                                     .line = 6,
                                     .column = 9 };
    c = shared_config(MIG_STRATEGY_MIXED, true, &clash, 1);
    refuse(s, &c, ERR_INVALID,
           "would hold devices of nvidia.com/gpu and of nvidia.com/mig-1g.10gb");
    /* B-015 */
    struct shared_resource longer = {
        .name = "nvidia.com/gpu",
        .all = true,
        .replicas = 2,
        .rename = "nvidia.com/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    };
    c = shared_config(MIG_STRATEGY_MIXED, true, &longer, 1);
    refuse(s, &c, ERR_INVALID, "has 64 characters after the \"/\", 63 are allowed");
    longer.rename = "nvidia.com/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    inv = build(s, &c, NULL);
    assert_non_null(inventory_resource(inv, longer.rename));
    inventory_free(inv);
    survey_unref(s);
}

/* B-171 */
static void test_mps_without_memory(void **state)
{
    static const struct shared_resource entry = { .name = "nvidia.com/gpu",
                                                  .all = true,
                                                  .replicas = 4 };
    static const struct {
        enum sharing_kind kind;
        uint32_t valid;
        const char *says; /* NULL: nothing */
    } cases[] = {
        { SHARING_MPS, GPU_HAS_MEMORY, NULL },
        { SHARING_MPS, 0, "its memory is not known" },
        { SHARING_MPS, GPU_HAS_MEMORY | GPU_UNIFIED, "it has no memory of its own" },
        { SHARING_TIME_SLICING, GPU_UNIFIED, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct survey *s = make_survey(1);
        struct plugin_config c = shared_config(MIG_STRATEGY_NONE, false, &entry, 1);
        c.sharing.kind = cases[i].kind;
        s->gpus[0].valid &= ~(uint32_t)(GPU_HAS_MEMORY | GPU_UNIFIED);
        s->gpus[0].valid |= cases[i].valid;
        struct inventory *inv = build(s, &c, NULL);
        assert_offer(inv, "nvidia.com/gpu:4/4");
        assert_int_equal(noted(inv, "mps.no-memory-limit", cases[i].says ? cases[i].says : ""),
                         cases[i].says != NULL);
        inventory_free(inv);
        survey_unref(s);
    }
}

/* B-178 */
static void test_many_shares(void **state)
{
    struct survey *s = make_survey(8);
    struct shared_resource r = { .name = "nvidia.com/gpu", .all = true, .replicas = 16384 };
    struct plugin_config c = shared_config(MIG_STRATEGY_NONE, false, &r, 1);
    refuse(s, &c, ERR_LIMIT, "the list of its 131072 devices (8 x up to 16384 replicas) takes ");
    r.replicas = 4096;
    struct inventory *inv = build(s, &c, NULL);
    const struct resource *all = &inv->resources[0];
    assert_int_equal(all->n_devices, 32768);
    for (size_t i = 0; i < all->n_devices; i += 97)
        assert_ptr_equal(resource_find(all, str_of(all->devices[i].id)), &all->devices[i]);
    for (size_t i = 1; i < all->n_devices; i++)
        assert_true(strcmp(all->devices[all->by_id[i - 1]].id, all->devices[all->by_id[i]].id) < 0);
    assert_true(inv->arena.used < 6u * 1024 * 1024);
    inventory_free(inv);
    survey_unref(s);
}

/* Ids of which one is the beginning of another still sort. */
static void test_odd_ids(void **state)
{
    struct survey *s = make_survey(3);
    snprintf(s->gpus[0].uuid, UUID_TEXT_SIZE, "GPU-a!");
    snprintf(s->gpus[1].uuid, UUID_TEXT_SIZE, "GPU-a");
    snprintf(s->gpus[2].uuid, UUID_TEXT_SIZE, "GPU-a::1");
    struct shared_resource r = { .name = "nvidia.com/gpu", .all = true, .replicas = 120 };
    struct plugin_config c = shared_config(MIG_STRATEGY_NONE, false, &r, 1);
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:360/360");
    inventory_free(inv);
    survey_unref(s);
}

static void test_platforms(void **state)
{
    struct survey *s = make_survey(2);
    struct plugin_config c = plain_config(MIG_STRATEGY_NONE);
    snprintf(s->platform, sizeof s->platform, "wsl");
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:1/1");
    assert_string_equal(inv->resources[0].devices[0].id, "all");
    assert_string_equal(inv->resources[0].devices[0].index, "all");
    inventory_free(inv);
    struct shared_resource r = { .name = "nvidia.com/gpu", .all = true, .replicas = 2 };
    c = shared_config(MIG_STRATEGY_NONE, false, &r, 1);
    inv = build(s, &c, NULL);
    assert_string_equal(inv->resources[0].devices[1].id, "all::1");
    inventory_free(inv);
    snprintf(s->platform, sizeof s->platform, "tegra");
    refuse(s, &c, ERR_UNSUPPORTED, "Tegra (Jetson)");
    survey_unref(s);
}

static void test_socket_names(void **state)
{
    static const struct resource_pattern other[] = { { "*", "example.com/gpu", 1, 1 } };
    struct survey *s = make_survey(1);
    struct plugin_config c = plain_config(MIG_STRATEGY_NONE);
    c.gpu_patterns = other;
    c.n_gpu_patterns = 1;
    struct inventory *inv = build(s, &c, NULL), *again = build(s, &c, NULL);
    const char *socket = inv->resources[0].socket;
    assert_string_not_equal(socket, "nvidia-gpu.sock");
    assert_int_equal(strncmp(socket, "nvidia-gpu_", 11), 0);
    assert_true(strlen(socket) <= 64);
    assert_string_equal(socket, again->resources[0].socket);
    inventory_free(inv);
    inventory_free(again);
    survey_unref(s);
}

static void test_unmonitored(void **state)
{
    struct survey *s = make_survey(1);
    s->gpus[0].valid &= ~(uint32_t)GPU_HAS_EVENTS;
    struct plugin_config c = plain_config(MIG_STRATEGY_NONE);
    struct inventory *inv = build(s, &c, NULL);
    assert_offer(inv, "nvidia.com/gpu:1/1"); /* B-174 */
    assert_true(noted(inv, "gpu.unmonitored", "no XID events"));
    inventory_free(inv);
    survey_unref(s);
}

/* What a published list shows: ids, health, NUMA node. */
static void test_same(void **state)
{
    struct survey *s = make_survey(2), *t = make_survey(2);
    struct plugin_config c = plain_config(MIG_STRATEGY_NONE);
    struct inventory *a = build(s, &c, NULL);
    const struct {
        int what;
        bool same;
    } cases[] = { { 0, true }, { 1, false }, { 2, false }, { 3, false }, { 4, true } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        survey_unref(t);
        t = make_survey(2);
        if (cases[i].what == 1)
            t->gpus[1].numa = 7;
        else if (cases[i].what == 2)
            lose(t, 0);
        else if (cases[i].what == 3)
            t->gpus[0].uuid[8] = 'f';
        else if (cases[i].what == 4)
            t->gpus[0].memory_bytes = 5;
        struct inventory *b = build(t, &c, NULL);
        assert_int_equal(inventory_same(a, b), cases[i].same);
        inventory_free(b);
    }
    inventory_free(a);
    survey_unref(s);
    survey_unref(t);
}

/* Every allocation fails in turn: an error, never a crash or a half inventory. */
static void test_no_memory(void **state)
{
    struct survey *s = make_survey(4);
    make_part(s, 3, "1g.10gb");
    make_part(s, 2, NULL);
    struct shared_resource r = { .name = "nvidia.com/gpu", .all = true, .replicas = 1000 };
    struct plugin_config c = shared_config(MIG_STRATEGY_MIXED, true, &r, 1);
    const struct inventory_input in = { .survey = s, .config = &c };
    bool done = false;
    for (uint64_t k = 1; !done && k < 1000; k++) {
        struct inventory *inv = NULL;
        struct error err;
        mem_fail_at(k);
        int rc = inventory_build(&in, &inv, &err);
        done = mem_fail_at(0) < k;
        if (rc < 0) {
            assert_null(inv);
            assert_int_equal(err.code, ERR_LIMIT);
        } else {
            assert_int_equal(inv->n_resources, 2);
        }
        inventory_free(inv);
    }
    assert_true(done);
    survey_unref(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_empty_host),
        cmocka_unit_test(test_mig_strategies),
        cmocka_unit_test(test_mig_single),
        cmocka_unit_test(test_mig_mixed),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_driver_gone),
        cmocka_unit_test(test_health),
        cmocka_unit_test(test_withheld),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_sharing_by_device),
        cmocka_unit_test(test_sharing_count_and_exclusive),
        cmocka_unit_test(test_mps_without_memory),
        cmocka_unit_test(test_many_shares),
        cmocka_unit_test(test_odd_ids),
        cmocka_unit_test(test_platforms),
        cmocka_unit_test(test_socket_names),
        cmocka_unit_test(test_unmonitored),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
