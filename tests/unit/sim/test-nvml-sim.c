/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated library as a client of NVML sees it: sessions, enumeration, identity, telemetry. */
#include "lab_host.h"

#include <link.h>
#include <sys/wait.h>

static void test_every_call_is_exported(void **state)
{
    struct lab l;
    lab_open(&l, (struct sim_create){ .gpus = 1 });
#define CHECK(symbol, ...)                                                                         \
    if (!l.symbol)                                                                                 \
        fail_msg("%s is not exported", #symbol);
    NV_CALLS(CHECK)
#undef CHECK
    struct link_map *map;
    assert_int_equal(0, dlinfo(l.library, RTLD_DI_LINKMAP, &map));
    assert_non_null(strstr(map->l_name, "libnvidia-ml.so.1"));
    lab_remove(&l);
}

static void test_sessions_are_counted(void **state)
{
    struct lab l;
    unsigned n;
    lab_open(&l, (struct sim_create){ .gpus = 2 });
    assert_int_equal(NV_E_UNINITIALIZED, l.nvmlShutdown());
    assert_int_equal(NV_E_UNINITIALIZED, l.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlShutdown());
    assert_int_equal(NV_OK, l.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(2, n);
    nv_device d = lab_gpu(&l, 0);
    assert_int_equal(NV_OK, l.nvmlShutdown());
    assert_int_equal(NV_E_UNINITIALIZED, l.nvmlShutdown());
    /* A handle belongs to the session that gave it. */
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetIndex(d, &n));
    assert_int_equal(NV_OK, l.nvmlShutdown());
    lab_remove(&l);
}

static void test_a_child_has_no_session(void **state)
{
    struct lab l;
    lab_open(&l, (struct sim_create){ .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    pid_t pid = fork();
    if (pid == 0) {
        unsigned n;
        int first = l.nvmlDeviceGetCount_v2(&n);
        int second = l.nvmlInit_v2();
        _exit(first == NV_E_UNINITIALIZED && second == NV_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(pid, waitpid(pid, &status, 0));
    assert_int_equal(0, status);
    lab_remove(&l);
}

static void test_handles_are_checked(void **state)
{
    struct lab l;
    unsigned value;
    lab_open(&l, (struct sim_create){ .gpus = 2 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 1);
    assert_ptr_equal(d, lab_gpu(&l, 1));
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetIndex(NULL, &value));
    assert_int_equal(NV_E_ARGUMENT,
                     l.nvmlDeviceGetIndex((nv_device)(void *)((char *)d + 1), &value));
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetIndex((nv_device)(void *)&l, &value));
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetIndex(d, NULL));
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetHandleByIndex_v2(2, &d));
    assert_int_equal(NV_E_NOT_FOUND, l.nvmlDeviceGetHandleByUUID("GPU-none", &d));
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetHandleByPciBusId_v2("nonsense", &d));
    lab_remove(&l);
}

/* Nothing may be taken for anything else: four numberings that all differ. */
static void test_numberings_differ(void **state)
{
    struct lab l;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 8 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    unsigned minors = 0, modules = 0, ascending = 0, same_minor = 0, same_module = 0, last_bus = 0;
    for (unsigned i = 0; i < 8; i++) {
        unsigned index, minor, module;
        struct nv_pci_info pci;
        nv_device d = lab_gpu(&l, i);
        assert_int_equal(NV_OK, l.nvmlDeviceGetIndex(d, &index));
        assert_int_equal(NV_OK, l.nvmlDeviceGetMinorNumber(d, &minor));
        assert_int_equal(NV_OK, l.nvmlDeviceGetModuleId(d, &module));
        assert_int_equal(NV_OK, l.nvmlDeviceGetPciInfo_v3(d, &pci));
        assert_int_equal(i, index);
        assert_in_range(minor, 0, 7);
        assert_in_range(module, 1, 8);
        minors |= 1u << minor;
        modules |= 1u << module;
        same_minor += minor == i;
        same_module += module == i || module == minor;
        ascending += pci.bus > last_bus;
        last_bus = pci.bus;
    }
    assert_int_equal(0xff, minors);
    assert_int_equal(0x1fe, modules);
    assert_in_range(same_minor, 0, 7);
    assert_in_range(same_module, 0, 7);
    assert_in_range(ascending, 0, 7);
    lab_remove(&l);
}

static const struct {
    const char *name, *product;
    unsigned gpus;
    uint64_t mib;
    int major, minor, cuda;
    const char *uuid, *buses;
} profiles[] = {
    { "h100", "NVIDIA H100 80GB HBM3", 8, 81920, 9, 0, 12040,
      "GPU-01000100-0000-0000-0000-00000000000", "1a1b4a4b8a8bcacb" },
    { "a100", "NVIDIA A100-SXM4-40GB", 8, 40960, 8, 0, 12040,
      "GPU-12345678-1234-1234-1234-12345678000", "070f474e8790b7bd" },
    { "l40s", "NVIDIA L40S", 8, 49152, 8, 9, 12040, "GPU-14050000-0000-0000-0000-00000000000",
      "1731b1ca1832b2cb" },
    { "t4", "NVIDIA T4", 4, 16384, 7, 5, 12040, "GPU-00000074-0000-0000-0000-00000000000",
      "3b86afd8" },
    { "b200", "NVIDIA B200", 8, 196608, 10, 0, 12060, "GPU-0b200000-0000-0000-0000-00000000000",
      NULL },
    { "gb200", "NVIDIA GB200", 8, 196608, 10, 0, 13000, "GPU-0b200001-0000-0000-0000-00000000000",
      NULL },
    { "gb300", "NVIDIA GB300 NVL", 8, 294912, 10, 0, 12080,
      "GPU-0b300001-0000-0000-0000-00000000000", NULL },
};

static void check_profile_gpu(const struct lab *l, size_t k, unsigned i)
{
    char text[96], expected[96];
    unsigned minor;
    int major, small;
    struct nv_memory m;
    struct nv_pci_info pci;
    nv_device d = lab_gpu(l, i);
    assert_int_equal(NV_OK, l->nvmlDeviceGetName(d, text, sizeof(text)));
    assert_string_equal(profiles[k].product, text);
    assert_int_equal(NV_OK, l->nvmlDeviceGetUUID(d, text, sizeof(text)));
    snprintf(expected, sizeof(expected), "%s%u", profiles[k].uuid, i);
    assert_string_equal(expected, text);
    assert_int_equal(NV_OK, l->nvmlDeviceGetMinorNumber(d, &minor));
    assert_int_equal(i, minor);
    assert_int_equal(NV_OK, l->nvmlDeviceGetCudaComputeCapability(d, &major, &small));
    assert_int_equal(profiles[k].major, major);
    assert_int_equal(profiles[k].minor, small);
    assert_int_equal(NV_OK, l->nvmlDeviceGetMemoryInfo(d, &m));
    assert_int_equal(profiles[k].mib << 20, m.total);
    assert_int_equal(NV_OK, l->nvmlDeviceGetPciInfo_v3(d, &pci));
    assert_int_equal(0x233010DE, pci.pci_device);
    if (profiles[k].buses) {
        snprintf(expected, sizeof(expected), "00000000:%.2s:00.0", profiles[k].buses + 2 * i);
        assert_true(str_ieq(str_of(expected), str_of(pci.bus_id)));
    }
}

static void test_profiles_are_the_recorded_hosts(void **state)
{
    for (size_t k = 0; k < ARRAY_LEN(profiles); k++) {
        struct lab l;
        unsigned n, mig, pending;
        int cuda;
        lab_open(&l, (struct sim_create){ .profile = profiles[k].name });
        assert_int_equal(NV_OK, l.nvmlInit_v2());
        assert_int_equal(NV_OK, l.nvmlDeviceGetCount_v2(&n));
        assert_int_equal(profiles[k].gpus, n);
        assert_int_equal(NV_OK, l.nvmlSystemGetCudaDriverVersion_v2(&cuda));
        assert_int_equal(profiles[k].cuda, cuda);
        for (unsigned i = 0; i < n; i++)
            check_profile_gpu(&l, k, i);
        /* The recorded mock says of every board that it could do MIG. */
        assert_int_equal(NV_OK, l.nvmlDeviceGetMigMode(lab_gpu(&l, 0), &mig, &pending));
        assert_int_equal(0, mig);
        lab_remove(&l);
    }
}

/* Against what was read on the real board (h200-host-facts.txt). */
static void test_the_measured_h200(void **state)
{
    struct lab l;
    char text[96];
    unsigned value;
    int cuda;
    struct nv_memory m;
    struct nv_memory_v2 m2 = { .version = NV_VERSION(struct nv_memory_v2, 2) };
    struct nv_pci_info pci;
    struct nv_addressing_mode mode = { .version = 7 };
    struct nv_field_value f = { .field = NV_FIELD_RECOVERY_ACTION };
    lab_make(&l, (struct sim_create){ .profile = "h200" });
    lab_load_from(&l, "/opt/driver/lib64");
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 0);
    assert_int_equal(NV_OK, l.nvmlDeviceGetName(d, text, sizeof(text)));
    assert_string_equal("NVIDIA H200", text);
    assert_int_equal(NV_OK, l.nvmlSystemGetNVMLVersion(text, sizeof(text)));
    assert_string_equal("13.580.159.04", text);
    assert_int_equal(NV_OK, l.nvmlSystemGetCudaDriverVersion(&cuda));
    assert_int_equal(13000, cuda);
    assert_int_equal(NV_OK, l.nvmlDeviceGetMemoryInfo(d, &m));
    assert_int_equal(UINT64_C(150754820096), m.total);
    assert_int_equal(UINT64_C(150109880320), m.free);
    assert_int_equal(UINT64_C(644939776), m.used);
    assert_int_equal(NV_OK, l.nvmlDeviceGetMemoryInfo_v2(d, &m2));
    assert_int_equal(UINT64_C(644939776), m2.reserved);
    assert_int_equal(0, m2.used);
    assert_int_equal(NV_OK, l.nvmlDeviceGetBrand(d, &value));
    assert_int_equal(14, value);
    assert_int_equal(NV_OK, l.nvmlDeviceGetArchitecture(d, &value));
    assert_int_equal(9, value);
    assert_int_equal(NV_OK, l.nvmlDeviceGetMaxMigDeviceCount(d, &value));
    assert_int_equal(0, value);
    assert_int_equal(NV_E_VERSION, l.nvmlDeviceGetAddressingMode(d, &mode));
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetNumaNodeId(d, &value));
    assert_int_equal(NV_OK, l.nvmlDeviceGetModuleId(d, &value));
    assert_int_equal(5, value);
    assert_int_equal(NV_OK, l.nvmlDeviceGetPciInfo_v3(d, &pci));
    assert_string_equal("0000:00:06.0", pci.bus_id_legacy);
    assert_string_equal("00000000:00:06.0", pci.bus_id);
    assert_int_equal(NV_OK, l.nvmlDeviceGetFieldValues(d, 1, &f));
    assert_int_equal(NV_OK, f.ret);
    assert_int_equal(NV_VALUE_U32, f.type);
    assert_int_equal(0, f.value.u32);
    lab_remove(&l);
}

static void test_unified_memory(void **state)
{
    struct lab l;
    struct nv_memory m;
    struct nv_memory_v2 m2 = { .version = NV_VERSION(struct nv_memory_v2, 2),
                               .total = 7,
                               .used = 7 };
    struct nv_bar1_memory bar;
    struct nv_pci_info pci;
    unsigned a, b;
    lab_open(&l, (struct sim_create){ .model = "gb10" });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 0);
    memset(&m, 1, sizeof(m));
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetMemoryInfo(d, &m));
    assert_int_equal(0, m.total);
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetMemoryInfo_v2(d, &m2));
    assert_int_equal(0, m2.total);
    lab_set(&l, "gpu 0 memory zero");
    assert_int_equal(NV_OK, l.nvmlDeviceGetMemoryInfo_v2(d, &m2));
    assert_int_equal(0, m2.total);
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetBAR1MemoryInfo(d, &bar));
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetMigMode(d, &a, &b));
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetEccMode(d, &a, &b));
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetFanSpeed(d, &a));
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceGetEnforcedPowerLimit(d, &a));
    assert_int_equal(NV_OK, l.nvmlDeviceGetPowerUsage(d, &a));
    assert_int_equal(NV_OK, l.nvmlDeviceGetPciInfo_v3(d, &pci));
    assert_string_equal("0000000F:01:00.0", pci.bus_id);
    assert_non_null(strstr(lab_read(&l, "/proc/meminfo"), "MemTotal:       124609375 kB"));
    lab_remove(&l);
}

static void test_text_buffers(void **state)
{
    struct lab l;
    char text[96];
    lab_open(&l, (struct sim_create){ .model = "l40s", .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 0);
    size_t n = sizeof("NVIDIA L40S");
    memset(text, '#', sizeof(text));
    assert_int_equal(NV_E_SIZE, l.nvmlDeviceGetName(d, text, (unsigned)n - 1));
    assert_int_equal('#', text[0]);
    assert_int_equal(NV_OK, l.nvmlDeviceGetName(d, text, (unsigned)n));
    assert_int_equal('#', text[n]);
    lab_remove(&l);
}

/* A struct of an older version is never written past its end, and a strange one not at all. */
static void test_struct_versions(void **state)
{
    struct lab l;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 2 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 0);

    unsigned char raw[256];
    struct nv_fabric_info_v2 *f = (void *)raw;
    memset(raw, 0xa5, sizeof(raw));
    f->version = NV_VERSION(struct nv_fabric_info_v2, 2);
    assert_int_equal(NV_OK, l.nvmlDeviceGetGpuFabricInfoV(d, f));
    assert_int_equal(NV_FABRIC_COMPLETED, f->state);
    for (size_t i = sizeof(*f); i < sizeof(raw); i++)
        assert_int_equal(0xa5, raw[i]);

    struct nv_gi_profile_info_v2 p2 = { .version = NV_VERSION(struct nv_gi_profile_info_v2, 2) };
    struct nv_gi_profile_info_v3 p3 = { .version = NV_VERSION(struct nv_gi_profile_info_v3, 3) };
    assert_int_equal(NV_OK, l.nvmlDeviceGetGpuInstanceProfileInfoV(d, NV_GI_3_SLICE, &p2));
    assert_int_equal(NV_OK, l.nvmlDeviceGetGpuInstanceProfileInfoV(d, NV_GI_3_SLICE, &p3));
    assert_string_equal("MIG 3g.40gb", p2.name);
    assert_string_equal("MIG 3g.40gb", p3.name);
    assert_int_equal(9, p2.id);
    assert_int_equal(9, p3.id);

    struct nv_memory_v2 m = { .version = 2 };
    assert_int_equal(NV_E_VERSION, l.nvmlDeviceGetMemoryInfo_v2(d, &m));
    lab_set(&l, "lenient magic on");
    assert_int_equal(NV_OK, l.nvmlDeviceGetMemoryInfo_v2(d, &m));
    assert_int_equal(2, m.version);
    m.version = NV_VERSION(struct nv_memory_v2, 3);
    assert_int_equal(NV_E_VERSION, l.nvmlDeviceGetMemoryInfo_v2(d, &m));
    lab_remove(&l);
}

static void test_fields_have_codes_of_their_own(void **state)
{
    struct lab l;
    struct nv_field_value f[] = { { .field = NV_FIELD_LINK_COUNT },
                                  { .field = NV_FIELD_REMAP_PENDING },
                                  { .field = 5 },
                                  { .field = 9999 },
                                  { .field = NV_FIELD_RESET_STATUS },
                                  { .field = NV_FIELD_LINK_STATE, .scope = 99 } };
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 2 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "gpu 0 remap pending 1");
    assert_int_equal(NV_OK, l.nvmlDeviceGetFieldValues(lab_gpu(&l, 0), 6, f));
    assert_int_equal(NV_OK, f[0].ret);
    assert_int_equal(18, f[0].value.u32);
    assert_int_equal(NV_OK, f[1].ret);
    assert_int_equal(1, f[1].value.u32);
    assert_int_equal(NV_E_NOT_SUPPORTED, f[2].ret);
    assert_int_equal(NV_E_ARGUMENT, f[3].ret);
    assert_int_equal(NV_E_DEPRECATED, f[4].ret);
    assert_int_equal(NV_E_NOT_SUPPORTED, f[5].ret);
    assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetFieldValues(lab_gpu(&l, 0), 0, f));
    lab_remove(&l);
}

static void test_links_and_neighbours(void **state)
{
    struct lab l;
    unsigned value, version;
    struct nv_pci_info pci, peer;
    lab_open(&l, (struct sim_create){ .model = "h100-nvl", .gpus = 3 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    unsigned bridged = 0;
    for (unsigned i = 0; i < 3; i++) {
        nv_device d = lab_gpu(&l, i);
        assert_int_equal(NV_OK, l.nvmlDeviceGetNvLinkState(d, 0, &value));
        assert_int_equal(NV_E_ARGUMENT, l.nvmlDeviceGetNvLinkState(d, 18, &version));
        bridged += value;
        if (!value)
            continue;
        /* A bridge shows the other gpu, and that one shows this. */
        nv_device other;
        assert_int_equal(NV_OK, l.nvmlDeviceGetNvLinkRemotePciInfo_v2(d, 0, &pci));
        assert_int_equal(NV_OK, l.nvmlDeviceGetHandleByPciBusId_v2(pci.bus_id, &other));
        assert_int_equal(NV_OK, l.nvmlDeviceGetNvLinkRemotePciInfo_v2(other, 0, &peer));
        nv_device back;
        assert_int_equal(NV_OK, l.nvmlDeviceGetHandleByPciBusId_v2(peer.bus_id, &back));
        assert_ptr_equal(d, back);
        assert_int_equal(NV_OK, l.nvmlDeviceGetTopologyCommonAncestor(d, other, &value));
        assert_int_equal(NV_TOPOLOGY_SWITCH, value);
    }
    assert_int_equal(2, bridged);
    lab_remove(&l);
}

static void test_processes_and_sizes(void **state)
{
    struct lab l;
    struct nv_process p[4];
    unsigned n = 0;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 2 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 1);
    assert_int_equal(NV_OK, l.nvmlDeviceGetComputeRunningProcesses_v3(d, &n, NULL));
    lab_set(&l, "gpu 1 client 1234 memory 100");
    lab_set(&l, "gpu 1 client 1235");
    n = 0;
    assert_int_equal(NV_E_SIZE, l.nvmlDeviceGetComputeRunningProcesses_v3(d, &n, NULL));
    assert_int_equal(2, n);
    n = 4;
    assert_int_equal(NV_OK, l.nvmlDeviceGetComputeRunningProcesses_v3(d, &n, p));
    assert_int_equal(2, n);
    assert_int_equal(1234, p[0].pid);
    assert_int_equal(100 << 20, p[0].used_memory);
    assert_int_equal(NV_NO_INSTANCE, p[0].gi);
    lab_remove(&l);
}

static void test_metrics_of_two_samples(void **state)
{
    struct lab l;
    nv_gpm_sample a, b;
    static struct nv_gpm_metrics m;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "gpu 0 util 42");
    nv_device d = lab_gpu(&l, 0);
    assert_int_equal(NV_OK, l.nvmlGpmSampleAlloc(&a));
    assert_int_equal(NV_OK, l.nvmlGpmSampleAlloc(&b));
    assert_int_equal(NV_OK, l.nvmlGpmSampleGet(d, a));
    assert_int_equal(NV_OK, l.nvmlGpmSampleGet(d, b));
    m = (struct nv_gpm_metrics){ .version = 1, .n = 2, .sample1 = a, .sample2 = b };
    m.items[0].metric = 2;
    m.items[1].metric = 300;
    m.items[2].metric = 77;
    assert_int_equal(NV_OK, l.nvmlGpmMetricsGet(&m));
    assert_int_equal(42, (int)m.items[0].value);
    assert_int_equal(NV_E_NOT_SUPPORTED, m.items[1].ret);
    assert_int_equal(0, m.items[2].ret);
    assert_int_equal(NV_OK, l.nvmlGpmSampleFree(a));
    assert_int_equal(NV_OK, l.nvmlGpmSampleFree(b));
    lab_remove(&l);
}

static void test_many_gpus(void **state)
{
    struct lab l;
    unsigned n;
    lab_open(&l, (struct sim_create){ .model = "b200", .gpus = 64 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(64, n);
    uint64_t minors = 0;
    for (unsigned i = 0; i < 64; i++) {
        unsigned minor;
        struct nv_pci_info pci;
        nv_device d = lab_gpu(&l, i), again;
        assert_int_equal(NV_OK, l.nvmlDeviceGetMinorNumber(d, &minor));
        assert_int_equal(NV_OK, l.nvmlDeviceGetPciInfo_v3(d, &pci));
        assert_int_equal(NV_OK, l.nvmlDeviceGetHandleByPciBusId_v2(pci.bus_id, &again));
        assert_ptr_equal(d, again);
        minors |= UINT64_C(1) << minor;
    }
    assert_true(minors == UINT64_MAX);
    lab_remove(&l);
}

static void test_state_by_environment(void **state)
{
    struct lab a, b;
    unsigned n;
    lab_open(&a, (struct sim_create){ .gpus = 1 });
    lab_make(&b, (struct sim_create){ .gpus = 5 });
    setenv("METE_SIM_STATE", b.dir, 1);
    assert_int_equal(NV_OK, a.nvmlInit_v2());
    assert_int_equal(NV_OK, a.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(5, n);
    unsetenv("METE_SIM_STATE");
    assert_int_equal(NV_OK, a.nvmlShutdown());
    assert_int_equal(NV_OK, a.nvmlInit_v2());
    assert_int_equal(NV_OK, a.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(1, n);
    setenv("METE_SIM_STATE", "/nonexistent", 1);
    assert_int_equal(NV_OK, a.nvmlShutdown());
    assert_int_equal(NV_E_DRIVER_NOT_LOADED, a.nvmlInit_v2());
    unsetenv("METE_SIM_STATE");
    lab_remove(&a);
    lab_remove(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_is_exported),
        cmocka_unit_test(test_sessions_are_counted),
        cmocka_unit_test(test_a_child_has_no_session),
        cmocka_unit_test(test_handles_are_checked),
        cmocka_unit_test(test_numberings_differ),
        cmocka_unit_test(test_profiles_are_the_recorded_hosts),
        cmocka_unit_test(test_the_measured_h200),
        cmocka_unit_test(test_unified_memory),
        cmocka_unit_test(test_text_buffers),
        cmocka_unit_test(test_struct_versions),
        cmocka_unit_test(test_fields_have_codes_of_their_own),
        cmocka_unit_test(test_links_and_neighbours),
        cmocka_unit_test(test_processes_and_sizes),
        cmocka_unit_test(test_metrics_of_two_samples),
        cmocka_unit_test(test_many_gpus),
        cmocka_unit_test(test_state_by_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
