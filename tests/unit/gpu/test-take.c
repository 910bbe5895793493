/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include "fake.h"
#include "gpu/take.h"

/* ---- without a driver ---- */

/* Figures: spec/nvml-and-cuda.md 2.3; names: mig-geometry.json. */
static void profile_names(void **state)
{
    const uint64_t a30 = 24258, a100 = 40960, a100_80 = 81920, h100 = 81559, h200 = 143771,
                   b200 = 183359;
    const struct {
        uint32_t gi, ci;
        uint64_t mb, total_mib;
        const char *suffix, *want;
    } cases[] = {
        { 1, 1, 4864, a100, "", "1g.5gb" },
        { 1, 1, 4864, a100, "+me", "1g.5gb+me" },
        { 1, 1, 9856, a100, "", "1g.10gb" },
        { 2, 2, 9856, a100, "", "2g.10gb" },
        { 3, 3, 19968, a100, "", "3g.20gb" },
        { 7, 7, 40192, a100, "", "7g.40gb" },
        { 1, 1, 9856, a100_80, "", "1g.10gb" },
        { 7, 7, 80384, a100_80, "", "7g.80gb" },
        { 1, 1, 5836, a30, "", "1g.6gb" },
        { 2, 2, 11672, a30, "", "2g.12gb" },
        { 4, 4, 23344, a30, "", "4g.24gb" },
        { 1, 1, 9984, h100, "", "1g.10gb" },
        { 3, 3, 40448, h100, "", "3g.40gb" },
        { 3, 1, 40448, h100, "", "1c.3g.40gb" },
        { 7, 7, 81152, h100, "", "7g.80gb" },
        { 1, 1, 16384, h200, "", "1g.18gb" },
        { 1, 1, 33024, h200, "", "1g.35gb" },
        { 3, 3, 71168, h200, "", "3g.71gb" },
        { 7, 7, 143104, h200, "", "7g.141gb" },
        { 1, 1, 22528, b200, "", "1g.23gb" },
        { 1, 1, 20992, b200, "", "1g.23gb" },
        { 2, 2, 45312, b200, "", "2g.45gb" },
        { 1, 1, 0, b200, "", "" },
        { 0, 1, 1, b200, "", "" },
        { 1, 1, UINT64_MAX, b200, "", "" },
        { 1, 1, 1, 0, "", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char name[32];
        part_profile_name(name, sizeof name, cases[i].gi, cases[i].ci, cases[i].mb,
                          cases[i].total_mib << 20, cases[i].suffix);
        if (strcmp(name, cases[i].want) != 0)
            fail_msg("case %zu: %s, want %s", i, name, cases[i].want);
    }
    char small[5];
    part_profile_name(small, sizeof small, 1, 1, 9984, h100 << 20, "");
    assert_string_equal(small, ""); /* never a cut name */
}

static void link_counts(void **state)
{
    const struct link_end a[] = { { "s1", true }, { "s1", true }, { "s2", true }, { "b", false } };
    const struct link_end b[] = { { "s1", true }, { "s2", true }, { "s2", true }, { "a", false } };
    const struct link_end unnamed[] = { { "", true }, { "", true } };
    struct gpu_link l = links_count(a, 3, "a", b, 3, "b");
    assert_int_equal(l.nvlinks, 2); /* one by each switch */
    assert_true(l.through_switch);
    l = links_count(a, 4, "a", b, 4, "b");
    assert_int_equal(l.nvlinks, 1); /* a direct link is nearer */
    assert_false(l.through_switch);
    l = links_count(a, 4, "a", b, 3, "b"); /* only one end tells of it */
    assert_int_equal(l.nvlinks, 2);
    assert_true(l.through_switch);
    l = links_count(a, 0, "a", b, 4, "b");
    assert_int_equal(l.nvlinks, 0);
    assert_false(l.through_switch);
    l = links_count(unnamed, 2, "", unnamed, 1, "");
    assert_int_equal(l.nvlinks, 1);
}

struct minors {
    struct mig_minor got[8];
    size_t n;
};

static void keep_minor(void *arg, const struct mig_minor *m)
{
    struct minors *k = arg;
    assert_true(k->n < ARRAY_LEN(k->got));
    k->got[k->n++] = *m;
}

static void mig_minors(void **state)
{
    struct minors k = { 0 };
    uint32_t monitor;
    mig_minors_parse(STR("config 1\nmonitor 2\ngpu3/gi3/access 435\ngpu3/gi3/ci3/access 439\n"
                         "gpu6/gi11/ci7/access 920\ngpu/gi1/access 5\ngpu1/gi/access 5\n"
                         "gpu1/gi1/ci/access 5\ngpu1/gi1/access\ngpu1/gi1/access 5 6\n"
                         "gpu1/gi1/ci1/ci2/access 5\ngpu1/access 5\ngpu1/gi1/access -1\n"
                         "gpu99999999999/gi1/access 5\n"),
                     keep_minor, &k, &monitor);
    assert_int_equal(monitor, 2);
    assert_int_equal(k.n, 3);
    assert_int_equal(k.got[0].ci, UINT32_MAX);
    assert_int_equal(k.got[0].minor, 435);
    assert_int_equal(k.got[1].gpu_minor, 3);
    assert_int_equal(k.got[1].ci, 3);
    assert_int_equal(k.got[2].gi, 11);
    assert_int_equal(k.got[2].minor, 920);
    mig_minors_parse(STR(""), keep_minor, &k, &monitor);
    assert_int_equal(monitor, UINT32_MAX);
}

static void proc_information(void **state)
{
    struct proc_gpu p = { 0 };
    proc_gpu_parse(STR("Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-1234\nBus Location: \t "
                       "0000:00:06.0\nDevice Minor: \t 3\nGPU Excluded:\t Yes\n"),
                   &p);
    assert_string_equal(p.uuid, "GPU-1234");
    assert_true(p.has_minor && p.excluded);
    assert_int_equal(p.minor, 3);
    p = (struct proc_gpu){ 0 };
    proc_gpu_parse(STR("GPU UUID: GPU-????????"
                       "-????\nDevice Minor: x\nGPU Excluded: No"),
                   &p);
    assert_string_equal(p.uuid, "");
    assert_false(p.has_minor || p.excluded);
}

static void pci_addresses(void **state)
{
    char text[PCI_TEXT_SIZE];
    pci_text(0, 0x1b, 0, text);
    assert_string_equal(text, "0000:1b:00.0");
    pci_text(0x10000, 0xff, 0x1f, text);
    assert_string_equal(text, "10000:ff:1f.0");
    assert_true(pci_text_valid("0000:1b:00.0") && pci_text_valid("10000:1b:00.0"));
    assert_false(pci_text_valid("0000:1B:00.0") || pci_text_valid("..") ||
                 pci_text_valid("0000:1b:00") || pci_text_valid("000:1b:00.0") ||
                 pci_text_valid("0000:1b:00.0x"));
}

/* ---- against the fake driver ---- */

struct bench {
    struct fake f;
    struct nvml *n;
    struct taker *t;
};

static void bench_begin(struct bench *b, const char *library, const char *words)
{
    struct error err;
    *b = (struct bench){ 0 };
    fake_begin(&b->f, library);
    fake_set(&b->f, words);
    if (nvml_open(&b->f.host, &b->n, &err) != DRIVER_OK || nvml_start(b->n, &err) != DRIVER_OK)
        fail_msg("%s", err.text);
    b->t = taker_new(&b->f.host);
}

static void bench_end(struct bench *b)
{
    taker_free(b->t);
    nvml_close(b->n);
    fake_end(&b->f);
}

static struct survey *again(struct bench *b, const char *words)
{
    fake_set(&b->f, words);
    return taker_survey(b->t, b->n);
}

static void all_facts(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML, "gpus=4");
    fake_file(&b.f, "/sys/bus/pci/devices/0000:1b:00.0/class", "0x030200\n");
    fake_file(&b.f, "/sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    fake_file(&b.f, "/sys/bus/pci/devices/0000:1a:00.0/numa_node", "-1\n");
    struct survey *s = taker_survey(b.t, b.n);
    assert_int_equal(s->driver, DRIVER_OK);
    assert_string_equal(s->driver_version, "580.3.4");
    assert_int_equal(s->cuda_version, 13000);
    assert_string_equal(s->platform, "nvml");
    assert_non_null(strstr(s->library, "libnvidia-ml.so.1"));
    assert_int_equal(s->n_gpus, 4);
    const struct gpu *g = &s->gpus[1];
    assert_string_equal(g->uuid, "GPU-0000-1");
    assert_string_equal(g->name, "NVIDIA Test");
    assert_string_equal(g->pci, "0000:1b:00.0");
    assert_int_equal(g->index, 1);
    assert_int_equal(g->minor, 5);
    assert_int_equal(g->pci_class, 0x030200);
    assert_int_equal(g->numa, 1);
    assert_string_equal(g->memory_source, "nvml-v2");
    assert_int_equal(g->fabric_clique, 7);
    assert_int_equal(g->fabric_cluster[0], 0xAB);
    const uint32_t want = GPU_HAS_MINOR | GPU_HAS_PCI | GPU_HAS_MEMORY | GPU_HAS_CC | GPU_HAS_NUMA |
                          GPU_HAS_MIG | GPU_HAS_RECOVERY | GPU_HAS_EVENTS | GPU_HAS_FABRIC |
                          GPU_HAS_PCI_CLASS | GPU_HAS_ECC | GPU_HAS_ENERGY;
    assert_int_equal(g->valid, want);
    assert_false(s->gpus[0].valid & (GPU_HAS_NUMA | GPU_HAS_PCI_CLASS));
    assert_int_equal(survey_link(s, 0, 3)->ancestor, NV_TOPOLOGY_NODE);
    assert_int_equal(survey_link(s, 0, 3)->nvlinks, 4);
    assert_true(survey_link(s, 0, 3)->through_switch);
    assert_false(taker_wants_restart(b.t));
    survey_unref(s);
    bench_end(&b);
}

static void direct_links(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML_OLD, "gpus=4 direct=1 ancestor=3");
    struct survey *s = taker_survey(b.t, b.n);
    assert_int_equal(survey_link(s, 0, 1)->nvlinks, 4);
    assert_false(survey_link(s, 0, 1)->through_switch);
    assert_int_equal(survey_link(s, 0, 1)->ancestor, 255);
    assert_int_equal(survey_link(s, 0, 2)->nvlinks, 0);
    survey_unref(s);
    bench_end(&b);
}

static void old_driver(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML_OLD, "");
    struct survey *s = taker_survey(b.t, b.n);
    assert_int_equal(s->driver, DRIVER_OK);
    assert_int_equal(s->n_gpus, 2);
    assert_int_equal(s->gpus[0].lost, 0);
    assert_string_equal(s->gpus[0].memory_source, "nvml-v1");
    assert_false(s->gpus[0].valid & (GPU_HAS_MIG | GPU_HAS_FABRIC | GPU_HAS_RECOVERY));
    assert_true(s->gpus[0].valid & GPU_HAS_EVENTS);
    survey_unref(s);
    bench_end(&b);
}

/* cases/bug-reports.md B-170: order v2, v1, system memory; the source is told; nothing is 0. */
static void memory(void **state)
{
    const struct {
        const char *words;
        uint64_t bytes;
        const char *source;
        bool unified;
    } cases[] = {
        { "memory2_=81559000000", 81559000000u, "nvml-v2", false },
        { "memory2_code=3 memory1_=5000", 5000, "nvml-v1", false },
        { "memory2_=0 memory1_=5000", 5000, "nvml-v1", false },
        { "memory2_code=3 memory1_code=3", 124610000ull * 1024, "meminfo", true },
        { "memory2_=0 memory1_=0", 124610000ull * 1024, "meminfo", true },
        { "memory2_=0 memory1_code=3", 124610000ull * 1024, "meminfo", true },
        { "memory2_code=13 memory1_code=13", 124610000ull * 1024, "meminfo", true },
        { "memory2_code=4 memory1_code=4", 0, "", false },
        { "memory2_code=999 memory1_=0", 0, "", false },
        { "memory2_code=3 memory1_code=3 bar1_=4096", 0, "", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bench b;
        bench_begin(&b, FAKE_NVML, cases[i].words);
        struct survey *s = taker_survey(b.t, b.n);
        const struct gpu *g = &s->gpus[0];
        if (g->memory_bytes != cases[i].bytes || strcmp(g->memory_source, cases[i].source) != 0 ||
            !(g->valid & GPU_HAS_MEMORY) != !cases[i].bytes ||
            !(g->valid & GPU_UNIFIED) != !cases[i].unified || g->lost)
            fail_msg("%s: %llu from \"%s\", valid %#x", cases[i].words,
                     (unsigned long long)g->memory_bytes, g->memory_source, g->valid);
        survey_unref(s);
        bench_end(&b);
    }
}

static void one_lost(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML, "gpus=4");
    survey_unref(taker_survey(b.t, b.n));
    /* Its handle fails: the others work, and it keeps what was known. */
    struct survey *s = again(&b, "gpus=4 handle2=15");
    assert_int_equal(s->driver, DRIVER_OK);
    assert_int_equal(s->n_gpus, 4);
    assert_int_equal(s->gpus[2].lost, 15);
    assert_non_null(strstr(s->gpus[2].lost_text, "NVML 15"));
    assert_string_equal(s->gpus[2].uuid, "GPU-0000-2");
    assert_string_equal(s->gpus[2].name, "NVIDIA Test");
    assert_int_equal(s->gpus[3].lost, 0);
    assert_int_equal(survey_link(s, 2, 3)->nvlinks, 4);
    assert_int_equal(s->gpus[2].generation, 0);
    assert_false(taker_wants_restart(b.t));
    survey_unref(s);
    /* Still lost though the bus shows it: only a new session could see it. */
    s = again(&b, "gpus=4 handle2=15");
    assert_true(taker_wants_restart(b.t));
    survey_unref(s);
    fake_file(&b.f, "/sys/bus/pci/devices/0000:1c:00.0/config", "\xFF\xFF\xFF\xFF");
    s = again(&b, "gpus=4 handle2=15");
    assert_false(taker_wants_restart(b.t));
    survey_unref(s);
    s = again(&b, "gpus=4");
    assert_int_equal(s->gpus[2].lost, 0);
    assert_int_equal(s->gpus[2].generation, 1); /* it came back: evidence of a reset */
    assert_int_equal(s->gpus[3].generation, 0);
    survey_unref(s);
    /* A handle that failed once for a reason that may pass: no reset is proved by its return. */
    s = again(&b, "gpus=4 handle2=999");
    assert_int_equal(s->gpus[2].lost, 999);
    survey_unref(s);
    s = again(&b, "gpus=4");
    assert_int_equal(s->gpus[2].lost, 0);
    assert_int_equal(s->gpus[2].generation, 1);
    survey_unref(s);
    /* A call fails although the handle works. */
    s = again(&b, "gpus=4 call1=16");
    assert_int_equal(s->gpus[1].lost, 16);
    assert_string_equal(s->gpus[1].uuid, "GPU-0000-1");
    survey_unref(s);
    /* All are lost. */
    s = again(&b, "gpus=4 handle=15");
    assert_int_equal(s->driver, DRIVER_OK);
    assert_int_equal(s->n_gpus, 4);
    assert_true(taker_wants_restart(b.t));
    survey_unref(s);
    bench_end(&b);
}

static void put_proc(struct bench *b, const char *pci, const char *uuid, int minor, bool node)
{
    auto_free char *sub = x_printf("/proc/driver/nvidia/gpus/%s/information", pci);
    auto_free char *text = x_printf("GPU UUID: %s\nDevice Minor: %d\n", uuid, minor);
    auto_free char *dev = x_printf("/dev/nvidia%d", minor);
    fake_file(&b->f, sub, text);
    if (node)
        fake_file(&b->f, dev, "");
}

/* Lost from the start: /proc tells who it is. */
static void lost_at_start(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML, "gpus=3 handle1=15");
    put_proc(&b, "0000:1a:00.0", "GPU-0000-0", 4, true);
    put_proc(&b, "0000:1b:00.0", "GPU-0000-1", 5, true);
    put_proc(&b, "0000:1c:00.0", "GPU-0000-2", 6, true);
    struct survey *s = taker_survey(b.t, b.n);
    assert_int_equal(s->n_gpus, 3);
    assert_int_equal(s->gpus[1].lost, 15);
    assert_string_equal(s->gpus[1].uuid, "GPU-0000-1");
    assert_string_equal(s->gpus[1].pci, "0000:1b:00.0");
    assert_int_equal(s->gpus[1].minor, 5);
    survey_unref(s);
    bench_end(&b);
}

/* cases/bug-reports.md B-052: PCI shows one more than NVML counts. */
static void uncounted(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML, "gpus=2");
    put_proc(&b, "0000:1a:00.0", "GPU-0000-0", 4, true);
    put_proc(&b, "0000:1b:00.0", "GPU-0000-1", 5, true);
    put_proc(&b, "0000:1c:00.0", "GPU-????????", 6, true);
    put_proc(&b, "0000:1d:00.0", "GPU-0000-3", 7, false); /* no node: not ours to use */
    struct survey *s = taker_survey(b.t, b.n);
    assert_int_equal(s->n_gpus, 3);
    assert_int_equal(s->gpus[2].lost, NV_E_GPU_NOT_FOUND);
    assert_string_equal(s->gpus[2].uuid, "");
    assert_string_equal(s->gpus[2].pci, "0000:1c:00.0");
    assert_non_null(strstr(s->gpus[2].lost_text, "0000:1c:00.0"));
    survey_unref(s);
    bench_end(&b);
}

/* A gpu that a new session does not show any more stays as lost, unless it was given away. */
static void vanished(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML, "gpus=3");
    struct survey *before = taker_survey(b.t, b.n);
    taker_free(b.t);
    b.t = taker_new(&b.f.host);
    taker_seed(b.t, before);
    struct survey *s = again(&b, "gpus=2");
    assert_int_equal(s->n_gpus, 3);
    assert_int_equal(s->gpus[1].lost, 0);
    assert_string_equal(s->gpus[2].uuid, "GPU-0000-2");
    assert_int_equal(s->gpus[2].lost, NV_E_GPU_NOT_FOUND);
    survey_unref(s);
    /* Another card at its address: it was replaced. */
    taker_free(b.t);
    b.t = taker_new(&b.f.host);
    taker_seed(b.t, before);
    s = again(&b, "gpus=3 uuid2=7");
    assert_int_equal(s->n_gpus, 3);
    assert_string_equal(s->gpus[2].uuid, "GPU-0000-7");
    assert_int_equal(s->gpus[2].lost, 0);
    survey_unref(s);

    auto_free char *driver = x_printf("%s/sys/bus/pci/devices/0000:1c:00.0/driver", b.f.dir);
    fake_file(&b.f, "/sys/bus/pci/devices/0000:1c:00.0/class", "0x030200");
    if (symlink("../../../bus/pci/drivers/vfio-pci", driver) < 0)
        abort();
    taker_free(b.t);
    b.t = taker_new(&b.f.host);
    taker_seed(b.t, before);
    s = again(&b, "gpus=2");
    assert_int_equal(s->n_gpus, 2);
    survey_unref(s);
    survey_unref(before);
    bench_end(&b);
}

static void displays_and_names(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML, "gpus=3 name1=1 name2=3");
    put_proc(&b, "0000:1b:00.0", "GPU-0000-1", 5, true);
    struct survey *s = taker_survey(b.t, b.n);
    assert_int_equal(s->n_gpus, 2);
    assert_int_equal(s->gpus[1].index, 2); /* the others keep their index */
    assert_string_equal(s->gpus[1].name, "Bad?name?");
    survey_unref(s);
    bench_end(&b);
}

static void same_uuid(void **state)
{
    struct bench b;
    struct buf bytes;
    struct error err;
    bench_begin(&b, FAKE_NVML, "gpus=3 uuid2=0");
    struct survey *s = taker_survey(b.t, b.n), *back;
    assert_int_equal(s->gpus[0].lost, 0);
    assert_true(s->gpus[2].lost != 0);
    assert_string_equal(s->gpus[2].uuid, "");
    buf_init(&bytes, SURVEY_BYTES_MAX);
    assert_int_equal(survey_encode(s, &bytes, &err), 0);
    assert_int_equal(survey_decode(buf_view(&bytes), &back, &err), 0);
    survey_unref(back);
    survey_unref(s);
    buf_done(&bytes);
    bench_end(&b);
}

static void mig(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML, "mig0=0x46"); /* slots 1, 2 and 6 */
    fake_file(&b.f, "/proc/driver/nvidia-caps/mig-minors",
              "config 1\nmonitor 2\ngpu4/gi8/access 75\ngpu4/gi8/ci0/access 76\n"
              "gpu4/gi9/access 84\ngpu4/gi9/ci0/access 85\ngpu5/gi13/access 300\n");
    struct survey *s = taker_survey(b.t, b.n);
    const struct gpu *g = &s->gpus[0];
    assert_int_equal(g->mig_current, 1);
    assert_int_equal(g->n_parts, 3);
    assert_int_equal(g->parts[0].slot, 1);
    assert_int_equal(g->parts[2].slot, 6);
    assert_string_equal(g->parts[0].uuid, "MIG-0000-0-1");
    assert_string_equal(g->parts[0].profile, "1g.10gb");
    assert_string_equal(g->parts[1].profile, "1g.10gb+me");
    assert_int_equal(g->parts[1].gi, 9);
    assert_int_equal(g->parts[1].gi_cap, 84);
    assert_int_equal(g->parts[1].ci_cap, 85);
    assert_int_equal(g->parts[1].placement_start, 2);
    assert_int_equal(g->parts[0].valid, PART_HAS_ATTRIBUTES | PART_HAS_CAPS | PART_HAS_PLACEMENT);
    assert_false(g->parts[2].valid & PART_HAS_CAPS); /* no lines for it */
    assert_string_equal(g->mig_text, "");
    assert_int_equal(s->gpus[1].n_parts, 0);
    survey_unref(s);

    /* B-036: one made, one destroyed; who stays keeps its id. */
    s = again(&b, "mig0=0x45");
    assert_int_equal(s->gpus[0].n_parts, 3);
    assert_string_equal(s->gpus[0].parts[0].uuid, "MIG-0000-0-0");
    assert_string_equal(s->gpus[0].parts[2].uuid, "MIG-0000-0-6");
    survey_unref(s);

    /* B-035 */
    s = again(&b, "mig0=0x45 mig_code=4");
    assert_int_equal(s->driver, DRIVER_OK);
    assert_int_equal(s->gpus[0].lost, 0);
    assert_int_equal(s->gpus[0].n_parts, 0);
    assert_non_null(strstr(s->gpus[0].mig_text, "nvidia-cap2"));
    assert_non_null(strstr(s->gpus[0].mig_text, "monitor"));
    assert_non_null(strstr(s->gpus[0].mig_text, "NVIDIA_MIG_MONITOR_DEVICES"));
    assert_string_equal(s->gpus[1].mig_text, "");
    survey_unref(s);

    s = again(&b, "mig0=0x45 handle0=15"); /* a lost gpu keeps its parts */
    assert_int_equal(s->gpus[0].lost, 15);
    survey_unref(s);
    bench_end(&b);
}

static void generations(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML, "energy=500 ecc1=3");
    survey_unref(taker_survey(b.t, b.n));
    struct survey *s = again(&b, "energy=600 ecc1=3");
    assert_int_equal(s->gpus[0].generation, 0);
    survey_unref(s);
    s = again(&b, "energy=700 energy0=20 ecc1=3");
    assert_int_equal(s->gpus[0].generation, 1);
    assert_int_equal(s->gpus[1].generation, 0);
    survey_unref(s);
    s = again(&b, "energy=700 energy0=20 ecc1=0");
    assert_int_equal(s->gpus[0].generation, 1);
    assert_int_equal(s->gpus[1].generation, 1);
    survey_unref(s);
    bench_end(&b);
}

/* A loss that proves nothing by itself: the counter does, over the time of the loss too. */
static void reset_while_lost(void **state)
{
    struct bench b;
    bench_begin(&b, FAKE_NVML, "energy=500");
    survey_unref(taker_survey(b.t, b.n));
    survey_unref(again(&b, "energy=600 handle0=999"));
    struct survey *s = again(&b, "energy=700 energy0=20");
    assert_int_equal(s->gpus[0].generation, 1);
    assert_int_equal(s->gpus[1].generation, 0);
    survey_unref(s);
    survey_unref(again(&b, "energy=700 handle0=999"));
    s = again(&b, "energy=800");
    assert_int_equal(s->gpus[0].generation, 1);
    survey_unref(s);
    bench_end(&b);
}

static void driver_gone(void **state)
{
    static const struct {
        const char *words;
        enum driver_state state;
    } cases[] = {
        { "count=1", DRIVER_NOT_LOADED },  { "count=9", DRIVER_NOT_LOADED },
        { "count=999", DRIVER_ERROR },     { "handle=9", DRIVER_NOT_LOADED },
        { "handle=1", DRIVER_NOT_LOADED },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bench b;
        bench_begin(&b, FAKE_NVML, "");
        survey_unref(taker_survey(b.t, b.n));
        struct survey *s = again(&b, cases[i].words);
        assert_int_equal(s->driver, cases[i].state);
        assert_int_equal(s->n_gpus, 2); /* known ones stay, as lost */
        assert_true(s->gpus[0].lost && s->gpus[1].lost);
        assert_string_equal(s->gpus[1].uuid, "GPU-0000-1");
        assert_true(s->driver_text[0]);
        assert_true(taker_wants_restart(b.t));
        survey_unref(s);
        s = again(&b, "");
        assert_int_equal(s->driver, DRIVER_OK);
        /* An error that passed is no new driver. */
        assert_int_equal(s->gpus[0].generation, cases[i].state == DRIVER_NOT_LOADED);
        survey_unref(s);
        bench_end(&b);
    }
}

static void platforms(void **state)
{
    static const struct {
        const char *file, *text, *words;
        bool library;
        const char *platform;
        enum driver_state state;
    } cases[] = {
        { NULL, NULL, "", true, "nvml", DRIVER_OK },
        { NULL, NULL, "", false, "unknown", DRIVER_NO_LIBRARY },
        { "/usr/lib/wsl/lib/libdxcore.so", "x", "", true, "wsl", DRIVER_OK },
        { "/etc/nv_tegra_release", "# R36", "", false, "tegra", DRIVER_ERROR },
        { "/sys/devices/soc0/family", "Tegra\n", "", false, "tegra", DRIVER_ERROR },
        { "/proc/device-tree/compatible", "nvidia,tegra264", "", false, "tegra", DRIVER_ERROR },
        { "/proc/device-tree/compatible", "nvidia,tegra264", "no_pci=1", true, "tegra",
          DRIVER_ERROR },
        { "/etc/nv_tegra_release", "# R36", "", true, "nvml", DRIVER_OK }, /* with a PCI gpu */
        { NULL, NULL, "name=2", true, "tegra", DRIVER_ERROR },             /* NVIDIA Thor */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bench b;
        bench_begin(&b, FAKE_NVML, cases[i].words);
        if (cases[i].file)
            fake_file(&b.f, cases[i].file, cases[i].text);
        struct survey *s = cases[i].library
                               ? taker_survey(b.t, b.n)
                               : taker_without_driver(b.t, NULL, DRIVER_NO_LIBRARY, "none");
        if (strcmp(s->platform, cases[i].platform) != 0 || s->driver != cases[i].state)
            fail_msg("case %zu: %s, %s", i, s->platform, driver_state_name(s->driver));
        if (strcmp(s->platform, "tegra") == 0) {
            assert_non_null(strstr(s->driver_text, "not supported on Jetson"));
            assert_int_equal(s->n_gpus, 0);
        }
        survey_unref(s);
        bench_end(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profile_names), cmocka_unit_test(link_counts),
        cmocka_unit_test(mig_minors),    cmocka_unit_test(proc_information),
        cmocka_unit_test(pci_addresses), cmocka_unit_test(all_facts),
        cmocka_unit_test(direct_links),  cmocka_unit_test(old_driver),
        cmocka_unit_test(memory),        cmocka_unit_test(one_lost),
        cmocka_unit_test(lost_at_start), cmocka_unit_test(uncounted),
        cmocka_unit_test(vanished),      cmocka_unit_test(displays_and_names),
        cmocka_unit_test(same_uuid),     cmocka_unit_test(mig),
        cmocka_unit_test(generations),   cmocka_unit_test(reset_while_lost),
        cmocka_unit_test(driver_gone),   cmocka_unit_test(platforms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
