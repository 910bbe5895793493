/* SPDX-License-Identifier: Apache-2.0 */
/* MIG on the simulated boards: modes, profiles, placements, instances, and the trees that follow.
 */
#include "lab_host.h"

#include "sim/mig.h"
#include "sim/models.h"

/* An independent count of the placement sets, as in mig-geometry.json: no overlap and at most so
 * many of a profile. Checks table and rules. */
struct count {
    const struct sim_geometry *geo;
    uint32_t skip; /* profiles left out, one bit each */
    unsigned sets;
};

static void count_sets(struct count *c, unsigned used, unsigned first, unsigned *instances)
{
    unsigned at = 0;
    for (unsigned p = 0; p < c->geo->n_profiles; p++)
        for (unsigned s = 0; s < c->geo->profiles[p].n_starts; s++, at++) {
            const struct sim_profile *row = &c->geo->profiles[p];
            unsigned mask = ((1u << row->size) - 1) << row->starts[s];
            if (at < first || (used & mask) || instances[p] == row->instances || (c->skip >> p & 1))
                continue;
            c->sets++;
            instances[p]++;
            count_sets(c, used | mask, at + 1, instances);
            instances[p]--;
        }
}

static void test_the_table_against_published_counts(void **state)
{
    static const struct {
        const char *key, *skip[3];
        unsigned sets;
    } cases[] = {
        { "H200-141", { "1g.18gb+me", "1g.35gb", NULL }, 297 },
        { "H200-141", { "1g.18gb+me", NULL }, 722 },
        { "H200-141", { NULL }, 2318 },
        { "A30-24", { "1g.6gb+me", "2g.12gb+me", NULL }, 25 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct count c = { 0 };
        unsigned instances[16] = { 0 };
        for (size_t k = 0; k < n_sim_geometries; k++)
            if (strcmp(sim_geometries[k].key, cases[i].key) == 0)
                c.geo = &sim_geometries[k];
        for (size_t k = 0; cases[i].skip[k]; k++)
            c.skip |= 1u << sim_profile_named(c.geo, cases[i].skip[k]);
        count_sets(&c, 0, 0, instances);
        assert_int_equal(cases[i].sets, c.sets);
    }
}

/* The names follow from the memory by the rule that NVML's clients use. */
static void test_names_follow_from_memory(void **state)
{
    static const char *const models[] = { "a100-40",  "a100-80", "a30",  "h100-sxm",    "h100-pcie",
                                          "h100-nvl", "h200",    "b200", "rtx-pro-6000" };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct lab l;
        struct nv_memory m;
        lab_open(&l, (struct sim_create){ .model = models[i], .gpus = 1 });
        assert_int_equal(NV_OK, l.nvmlInit_v2());
        nv_device d = lab_gpu(&l, 0);
        assert_int_equal(NV_OK, l.nvmlDeviceGetMemoryInfo(d, &m));
        unsigned total_mib = (unsigned)(m.total >> 20), gib = (total_mib + 1023) / 1024, found = 0;
        for (unsigned p = 0; p < NV_GI_PROFILES; p++) {
            struct nv_gi_profile_info_v3 info = { .version =
                                                      NV_VERSION(struct nv_gi_profile_info_v3, 3) };
            nv_return r = l.nvmlDeviceGetGpuInstanceProfileInfoV(d, p, &info);
            if (r == NV_E_NOT_SUPPORTED)
                continue;
            assert_int_equal(NV_OK, r);
            unsigned eighths = (unsigned)((8 * info.memory_mb + total_mib - 1) / total_mib);
            unsigned gb = (2 * eighths * gib + 8) / 16;
            char expected[40];
            snprintf(expected, sizeof(expected), "MIG %ug.%ugb", info.slices, gb);
            if (strncmp(expected, info.name, strlen(expected)) != 0)
                fail_msg("%s: %s should be %s", models[i], info.name, expected);
            found++;
        }
        assert_in_range(found, 5, 11);
        assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetGpuInstanceProfileInfo(
                                            d, NV_GI_PROFILES, &(struct nv_gi_profile_info){ 0 }));
        lab_remove(&l);
    }
}

static void test_placements_of_a_profile_id(void **state)
{
    struct lab l;
    struct nv_placement p[8];
    unsigned n = 0;
    lab_open(&l, (struct sim_create){ .model = "h200", .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 0);
    /* Works with MIG off, takes the id (15), not the index (9). */
    assert_int_equal(NV_OK, l.nvmlDeviceGetGpuInstancePossiblePlacements_v2(d, 15, NULL, &n));
    assert_int_equal(4, n);
    n = 3;
    assert_int_equal(NV_E_SIZE, l.nvmlDeviceGetGpuInstancePossiblePlacements_v2(d, 15, p, &n));
    n = 8;
    assert_int_equal(NV_OK, l.nvmlDeviceGetGpuInstancePossiblePlacements_v2(d, 15, p, &n));
    assert_int_equal(4, n);
    assert_int_equal(6, p[3].start);
    assert_int_equal(2, p[3].size);
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetGpuInstancePossiblePlacements_v2(d, 1, p, &n));
    lab_remove(&l);
}

static void test_modes_pending_and_current(void **state)
{
    struct lab l;
    unsigned current, pending;
    nv_return activation;
    lab_open(&l, (struct sim_create){ .model = "a100-40", .gpus = 2 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 0);
    assert_int_equal(NV_OK, l.nvmlDeviceSetMigMode(d, 1, &activation));
    assert_int_equal(NV_E_RESET_REQUIRED, activation);
    assert_int_equal(NV_OK, l.nvmlDeviceGetMigMode(d, &current, &pending));
    assert_int_equal(0, current);
    assert_int_equal(1, pending);
    lab_set(&l, "gpu 0 reset");
    assert_int_equal(NV_OK, l.nvmlDeviceGetMigMode(d, &current, &pending));
    assert_int_equal(1, current);

    lab_set(&l, "gpu 1 client 77");
    nv_device other = lab_gpu(&l, 1);
    assert_int_equal(NV_OK, l.nvmlDeviceSetMigMode(other, 1, &activation));
    assert_int_equal(NV_E_IN_USE, activation);
    lab_remove(&l);

    lab_open(&l, (struct sim_create){ .model = "t4", .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_E_NOT_SUPPORTED,
                     l.nvmlDeviceGetMigMode(lab_gpu(&l, 0), &current, &pending));
    lab_remove(&l);
}

static void test_the_minor_may_move(void **state)
{
    struct lab l;
    unsigned before, after;
    nv_return activation;
    char path[64];
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 4 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "moves-minor on");
    nv_device d = lab_gpu(&l, 2);
    assert_int_equal(NV_OK, l.nvmlDeviceGetMinorNumber(d, &before));
    assert_int_equal(NV_OK, l.nvmlDeviceSetMigMode(d, 1, &activation));
    assert_int_equal(NV_OK, activation);
    assert_int_equal(NV_OK, l.nvmlDeviceGetMinorNumber(d, &after));
    assert_int_equal(4, after);
    snprintf(path, sizeof(path), "/dev/nvidia%u", before);
    assert_false(lab_exists(&l, path));
    assert_true(lab_exists(&l, "/dev/nvidia4"));
    lab_remove(&l);
}

static void test_instances_overlap_and_budget(void **state)
{
    struct lab l;
    nv_gi a, b, c;
    unsigned n;
    struct nv_placement at = { 4, 4 };
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 0);
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceCreateGpuInstance(d, 9, &a));
    lab_set(&l, "gpu 0 mig on");
    assert_int_equal(NV_OK, l.nvmlDeviceGetGpuInstanceRemainingCapacity(d, 19, &n));
    assert_int_equal(7, n);
    assert_int_equal(NV_OK, l.nvmlDeviceCreateGpuInstanceWithPlacement(d, 9, &at, &a));
    assert_int_equal(NV_E_RESOURCES, l.nvmlDeviceCreateGpuInstanceWithPlacement(d, 9, &at, &b));
    at = (struct nv_placement){ 2, 4 };
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceCreateGpuInstanceWithPlacement(d, 9, &at, &b));
    at = (struct nv_placement){ 0, 4 };
    assert_int_equal(NV_OK,
                     l.nvmlDeviceCreateGpuInstanceWithPlacement(d, 5, &at, &b)); /* 4g: 3 + 4 = 7 */
    assert_int_equal(NV_E_RESOURCES, l.nvmlDeviceCreateGpuInstance(d, 19, &c));
    assert_int_equal(NV_OK, l.nvmlGpuInstanceDestroy(b));
    assert_int_equal(NV_E_ARGUMENT, l.nvmlGpuInstanceDestroy(b));
    /* Four more 1g fit below the 3g at 4..7; memory is then full, one compute slice is left. */
    for (int i = 0; i < 4; i++)
        assert_int_equal(NV_OK, l.nvmlDeviceCreateGpuInstance(d, 19, &c));
    assert_int_equal(NV_E_RESOURCES, l.nvmlDeviceCreateGpuInstance(d, 19, &c));
    nv_gi list[8];
    n = 99;
    assert_int_equal(NV_OK, l.nvmlDeviceGetGpuInstances(d, 19, list, &n));
    assert_int_equal(4, n);
    assert_int_equal(NV_OK, l.nvmlDeviceGetGpuInstanceRemainingCapacity(d, 19, &n));
    assert_int_equal(0, n);
    lab_remove(&l);
}

/* Places that drivers were seen to choose. */
static void test_the_driver_picks_places(void **state)
{
    static const struct {
        unsigned profile, n, starts[7];
    } cases[] = { { 19, 7, { 6, 4, 5, 0, 1, 2, 3 } }, { 14, 3, { 4, 0, 2 } }, { 9, 2, { 0, 4 } } };
    struct lab l;
    lab_open(&l, (struct sim_create){ .model = "a100-40", .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "gpu 0 mig on");
    lab_set(&l, "gpu 0 reset");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (unsigned k = 0; k < cases[i].n; k++) {
            nv_gi gi;
            struct nv_gi_info info;
            assert_int_equal(NV_OK,
                             l.nvmlDeviceCreateGpuInstance(lab_gpu(&l, 0), cases[i].profile, &gi));
            assert_int_equal(NV_OK, l.nvmlGpuInstanceGetInfo(gi, &info));
            assert_int_equal(cases[i].starts[k], info.placement.start);
        }
        lab_set(&l, "gpu 0 mig destroy all");
    }
    lab_remove(&l);
}

static void test_slots_and_ids_are_sparse(void **state)
{
    struct lab l;
    unsigned n, found = 0, value;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 2 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "gpu 1 mig 3g.40gb@4,2g.20gb@0,1g.10gb@3");
    nv_device d = lab_gpu(&l, 1), mig[8];
    assert_int_equal(NV_OK, l.nvmlDeviceGetMaxMigDeviceCount(d, &n));
    assert_int_equal(7, n);
    for (unsigned i = 0; i < n; i++) {
        nv_return r = l.nvmlDeviceGetMigDeviceHandleByIndex(d, i, &mig[i]);
        assert_int_equal(i == 0 || i == 3 || i == 4 ? NV_OK : NV_E_NOT_FOUND, r);
        if (r != NV_OK)
            continue;
        char uuid[80], name[96];
        nv_device parent, same;
        unsigned gi, ci;
        struct nv_attributes a;
        assert_int_equal(NV_OK, l.nvmlDeviceGetUUID(mig[i], uuid, sizeof(uuid)));
        assert_true(str_starts(str_of(uuid), "MIG-"));
        assert_int_equal(NV_OK, l.nvmlDeviceGetHandleByUUID(uuid, &same));
        assert_ptr_equal(mig[i], same);
        assert_int_equal(NV_OK, l.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig[i], &parent));
        assert_ptr_equal(d, parent);
        assert_int_equal(NV_OK, l.nvmlDeviceGetIndex(mig[i], &value));
        assert_int_equal(i, value);
        assert_int_equal(NV_OK, l.nvmlDeviceGetGpuInstanceId(mig[i], &gi));
        assert_int_equal(NV_OK, l.nvmlDeviceGetComputeInstanceId(mig[i], &ci));
        assert_int_equal(0, ci);
        assert_int_equal(i == 0 ? 3 : i == 3 ? 10 : 2, gi);
        assert_int_equal(NV_OK, l.nvmlDeviceGetAttributes_v2(mig[i], &a));
        assert_int_equal(i == 0 ? 2 : i == 3 ? 1 : 3, a.gi_slices);
        assert_int_equal(a.gi_slices, a.ci_slices);
        assert_int_equal(i == 0 ? 20096 : i == 3 ? 9984 : 40448, a.memory_mb);
        assert_int_equal(NV_OK, l.nvmlDeviceGetName(mig[i], name, sizeof(name)));
        assert_non_null(strstr(name, "NVIDIA H100 80GB HBM3 MIG "));
        assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetPowerUsage(mig[i], &value));
        assert_int_equal(NV_OK, l.nvmlDeviceIsMigDeviceHandle(mig[i], &value));
        assert_int_equal(1, value);
        found++;
    }
    assert_int_equal(3, found);
    struct nv_utilization u;
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetUtilizationRates(d, &u));

    /* A handle dies with its instance; a new one in its place is another, with the same UUID. */
    char before[80], after[80];
    assert_int_equal(NV_OK, l.nvmlDeviceGetUUID(mig[3], before, sizeof(before)));
    lab_set(&l, "gpu 1 mig destroy gi 10");
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetUUID(mig[3], after, sizeof(after)));
    lab_set(&l, "gpu 1 mig create-gi 1g.10gb@3");
    lab_set(&l, "gpu 1 mig create-ci gi 10 1");
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetUUID(mig[3], after, sizeof(after)));
    assert_int_equal(NV_OK, l.nvmlDeviceGetMigDeviceHandleByIndex(d, 3, &mig[3]));
    assert_int_equal(NV_OK, l.nvmlDeviceGetUUID(mig[3], after, sizeof(after)));
    assert_string_equal(before, after);
    lab_remove(&l);
}

static void test_compute_instances(void **state)
{
    struct lab l;
    nv_gi gi;
    nv_ci ci[4], more;
    unsigned n;
    struct nv_placement places[8];
    struct nv_ci_info info;
    char uuid[80];
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "gpu 0 mig on");
    nv_device d = lab_gpu(&l, 0);
    struct nv_placement at = { 4, 4 };
    assert_int_equal(NV_OK, l.nvmlDeviceCreateGpuInstanceWithPlacement(d, 9, &at, &gi));
    n = 8;
    assert_int_equal(NV_OK,
                     l.nvmlGpuInstanceGetComputeInstancePossiblePlacements(gi, 0, places, &n));
    assert_int_equal(3, n);
    for (int i = 0; i < 3; i++)
        assert_int_equal(NV_OK, l.nvmlGpuInstanceCreateComputeInstance(gi, 0, &ci[i]));
    assert_int_equal(NV_E_RESOURCES, l.nvmlGpuInstanceCreateComputeInstance(gi, 0, &more));
    assert_int_equal(NV_E_ARGUMENT,
                     l.nvmlGpuInstanceCreateComputeInstance(gi, 3, &more)); /* 4c in 3g */
    assert_int_equal(NV_E_IN_USE, l.nvmlGpuInstanceDestroy(gi));
    assert_int_equal(NV_OK, l.nvmlComputeInstanceGetInfo_v2(ci[1], &info));
    assert_int_equal(1, info.placement.start);
    assert_ptr_equal(gi, info.gi);
    assert_int_equal(NV_OK, l.nvmlDeviceGetUUID(info.device, uuid, sizeof(uuid)));
    assert_true(str_starts(str_of(uuid), "MIG-"));
    struct nv_attributes a;
    assert_int_equal(NV_OK, l.nvmlDeviceGetAttributes_v2(info.device, &a));
    assert_int_equal(1, a.ci_slices);
    assert_int_equal(3, a.gi_slices);
    assert_int_equal(20, a.multiprocessors);
    lab_set(&l, "gpu 0 client 5 gi 2 ci 1");
    assert_int_equal(NV_E_IN_USE, l.nvmlComputeInstanceDestroy(ci[1]));
    lab_set(&l, "gpu 0 client none");
    for (int i = 0; i < 3; i++)
        assert_int_equal(NV_OK, l.nvmlComputeInstanceDestroy(ci[i]));
    assert_int_equal(NV_OK, l.nvmlGpuInstanceDestroy(gi));
    lab_remove(&l);
}

static void test_capabilities_follow(void **state)
{
    struct lab l;
    unsigned minor;
    char path[120];
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 8 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlDeviceGetMinorNumber(lab_gpu(&l, 3), &minor));
    lab_set(&l, "gpu 3 mig 2g.20gb@0");
    unsigned gi_cap = 3 + 135 * minor + 9 * 3;
    snprintf(path, sizeof(path), "/proc/driver/nvidia/capabilities/gpu%u/mig/gi3/ci0/access",
             minor);
    char expected[80];
    snprintf(expected, sizeof(expected), "DeviceFileMinor: %u\n", gi_cap + 1);
    assert_non_null(strstr(lab_read(&l, path), expected));
    snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", gi_cap);
    assert_true(lab_exists(&l, path));
    lab_set(&l, "gpu 3 mig destroy all");
    assert_false(lab_exists(&l, path));
    snprintf(path, sizeof(path), "/proc/driver/nvidia/capabilities/gpu%u", minor);
    assert_false(lab_exists(&l, path));
    /* The same when a program makes the instances. */
    nv_gi gi;
    assert_int_equal(NV_OK, l.nvmlDeviceCreateGpuInstance(lab_gpu(&l, 3), 14, &gi));
    assert_true(lab_exists(&l, path));
    /* Two published pairs of the numbering. */
    assert_int_equal(439, sim_cap_minor(3, 3, 3));
    assert_int_equal(920, sim_cap_minor(6, 11, 7));
    lab_remove(&l);
}

static void test_reading_instances_may_be_denied(void **state)
{
    struct lab l;
    nv_device mig;
    nv_gi gi;
    unsigned n;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "gpu 0 mig 7g.80gb");
    lab_set(&l, "monitor-cap deny");
    nv_device d = lab_gpu(&l, 0);
    assert_int_equal(NV_OK, l.nvmlDeviceGetMaxMigDeviceCount(d, &n));
    assert_int_equal(NV_E_NO_PERMISSION, l.nvmlDeviceGetMigDeviceHandleByIndex(d, 0, &mig));
    assert_int_equal(NV_E_NO_PERMISSION, l.nvmlDeviceGetGpuInstanceById(d, 0, &gi));
    lab_set(&l, "monitor-cap allow");
    assert_int_equal(NV_OK, l.nvmlDeviceGetMigDeviceHandleByIndex(d, 0, &mig));
    lab_remove(&l);
}

static void test_all_placements_of_all_profiles(void **state)
{
    static const char *const models[] = { "a30", "h200", "b200", "rtx-pro-6000" };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct lab l;
        unsigned pairs = 0;
        lab_open(&l, (struct sim_create){ .model = models[i], .gpus = 1 });
        assert_int_equal(NV_OK, l.nvmlInit_v2());
        lab_set(&l, "gpu 0 mig on");
        lab_set(&l, "gpu 0 reset");
        nv_device d = lab_gpu(&l, 0);
        for (unsigned p = 0; p < NV_GI_PROFILES; p++) {
            struct nv_gi_profile_info info;
            struct nv_placement places[16];
            unsigned n = 16;
            if (l.nvmlDeviceGetGpuInstanceProfileInfo(d, p, &info) != NV_OK)
                continue;
            assert_int_equal(
                NV_OK, l.nvmlDeviceGetGpuInstancePossiblePlacements_v2(d, info.id, places, &n));
            for (unsigned k = 0; k < n; k++, pairs++) {
                nv_gi gi;
                struct nv_gi_info made;
                assert_int_equal(
                    NV_OK, l.nvmlDeviceCreateGpuInstanceWithPlacement(d, info.id, &places[k], &gi));
                assert_int_equal(NV_OK, l.nvmlGpuInstanceGetInfo(gi, &made));
                assert_int_equal(places[k].start, made.placement.start);
                assert_int_equal(info.id, made.profile);
                assert_int_equal(NV_OK, l.nvmlGpuInstanceDestroy(gi));
            }
        }
        if (i == 1 || i == 2)
            assert_int_equal(25, pairs); /* what dynamic MIG publishes for one board */
        lab_remove(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table_against_published_counts),
        cmocka_unit_test(test_names_follow_from_memory),
        cmocka_unit_test(test_placements_of_a_profile_id),
        cmocka_unit_test(test_modes_pending_and_current),
        cmocka_unit_test(test_the_minor_may_move),
        cmocka_unit_test(test_instances_overlap_and_budget),
        cmocka_unit_test(test_the_driver_picks_places),
        cmocka_unit_test(test_slots_and_ids_are_sparse),
        cmocka_unit_test(test_compute_instances),
        cmocka_unit_test(test_capabilities_follow),
        cmocka_unit_test(test_reading_instances_may_be_denied),
        cmocka_unit_test(test_all_placements_of_all_profiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
