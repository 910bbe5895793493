/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../../golden/answer_text.h"
#include "../../golden/fixture.h"
#include "base/mem.h"
#include "kubelet/plugin_answer.h"
#include "wire/pbwriter.h"

enum { ANSWER_MAX = 4 * 1024 * 1024 };

#define G0 "GPU-12345678-1234-1234-1234-123456780000"
#define G1 "GPU-12345678-1234-1234-1234-123456780001"
#define G7 "GPU-12345678-1234-1234-1234-123456780007"
#define M0 "MIG-00000000-0000-0000-0000-000000000000"
#define M2 "MIG-00000000-0000-0000-0000-000000000002"
#define M3 "MIG-00000000-0000-0000-0000-000000000003"

/* One host with one config, and what answers need. */
struct bench {
    struct survey *survey;
    struct fixture_host host;
    struct plugin_config config;
    struct shared_resource shared;
    struct inventory *inv;
    struct plugin_context c;
    struct buf answer, text, request;
    struct error err;
};

static const char *const control_nodes[] = { "/dev/nvidiactl", "/dev/nvidia-uvm" };

static void bench_build(struct bench *b)
{
    const struct inventory_input in = { .survey = b->survey, .config = &b->config };
    inventory_free(steal(b->inv));
    if (inventory_build(&in, &b->inv, &b->err) < 0)
        fail_msg("%s", b->err.text);
    b->c.inv = b->inv;
}

static void bench_init(struct bench *b, const char *profile)
{
    memset(b, 0, sizeof(*b));
    b->survey = fixture_survey(profile);
    fixture_host_init(&b->host, b->survey, 0, NULL, NULL, NULL);
    b->config.list_strategies = LIST_ENVVAR;
    b->config.cdi_annotation_prefix = "cdi.k8s.io/";
    b->config.mps_root = "/run/nvidia/mps";
    b->c.host = &b->host.host;
    b->c.config = &b->config;
    b->c.control_nodes = control_nodes;
    b->c.n_control_nodes = ARRAY_LEN(control_nodes);
    buf_init(&b->answer, ANSWER_MAX);
    buf_init(&b->text, ANSWER_MAX);
    buf_init(&b->request, ANSWER_MAX);
    bench_build(b);
}

static void bench_done(struct bench *b)
{
    inventory_free(b->inv);
    fixture_host_done(&b->host);
    survey_unref(b->survey);
    buf_done(&b->answer);
    buf_done(&b->text);
    buf_done(&b->request);
}

static void share(struct bench *b, enum sharing_kind kind, uint32_t replicas)
{
    b->shared =
        (struct shared_resource){ "nvidia.com/gpu", NULL, .all = true, .replicas = replicas };
    b->config.sharing.kind = kind;
    b->config.sharing.resources = &b->shared;
    b->config.sharing.n_resources = 1;
    bench_build(b);
}

static const struct resource *resource_of(const struct bench *b, const char *name)
{
    const struct resource *r = inventory_resource(b->inv, name);
    assert_non_null(r);
    return r;
}

static int allocate_two(struct bench *b, const char *resource, const char *const *first,
                        const char *const *second)
{
    const char *const *containers[] = { first, second };
    buf_reset(&b->request);
    buf_reset(&b->answer);
    buf_reset(&b->text);
    buf_z(&b->text, "");
    allocate_request(&b->request, containers, second ? 2 : 1);
    int r = plugin_allocate(&b->c, resource_of(b, resource), buf_view(&b->request), &b->answer,
                            &b->err);
    if (r == 0)
        answer_text(buf_view(&b->answer), &b->text);
    return r;
}

#define IDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define NO_IDS   ((const char *const[]){ NULL })

static void check(struct bench *b, const char *resource, const char *const *ids,
                  const char *expected)
{
    if (allocate_two(b, resource, ids, NULL) < 0)
        fail_msg("%s", b->err.text);
    assert_string_equal(b->text.p, expected);
}

static void check_refused(struct bench *b, const char *resource, const char *const *ids,
                          const char *expected)
{
    assert_true(allocate_two(b, resource, ids, NULL) < 0);
    assert_string_equal(b->err.text, expected);
}

#define CDI  "k8s.device-plugin.nvidia.com/"
#define HEAD "invalid allocation request for \"nvidia.com/gpu\": "

/* ---- strategies ---- */

static void test_strategies(void **state)
{
    static const struct {
        uint32_t strategies;
        enum id_strategy ids;
        bool specs, imex;
        uint32_t gated;
        const char *expected;
    } cases[] = {
        { LIST_ENVVAR, ID_UUID, false, false, 0, "env NVIDIA_VISIBLE_DEVICES=" G1 "," G0 "\n" },
        { LIST_ENVVAR, ID_INDEX, false, false, 0, "env NVIDIA_VISIBLE_DEVICES=1,0\n" },
        { LIST_ENVVAR, ID_UUID, false, true, 0,
          "env NVIDIA_IMEX_CHANNELS=0\nenv NVIDIA_VISIBLE_DEVICES=" G1 "," G0 "\n" },
        { LIST_VOLUME_MOUNTS, ID_UUID, false, true, 0,
          "env NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices\n"
          "mount /var/run/nvidia-container-devices/" G0 "</dev/null\n"
          "mount /var/run/nvidia-container-devices/" G1 "</dev/null\n"
          "mount /var/run/nvidia-container-devices/imex/0</dev/null\n" },
        { LIST_VOLUME_MOUNTS | LIST_ENVVAR, ID_INDEX, false, false, 0,
          "env NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices\n"
          "mount /var/run/nvidia-container-devices/0</dev/null\n"
          "mount /var/run/nvidia-container-devices/1</dev/null\n" },
        /* device specs are for the others: with CDI alone the container engine adds the nodes */
        { LIST_CDI_CRI, ID_UUID, true, true, 5,
          "cdi " CDI "gdrcopy=all\ncdi " CDI "gpu=" G0 "\ncdi " CDI "gpu=" G1 "\ncdi " CDI
          "imex-channel=0\ncdi " CDI "mofed=all\n" },
        { LIST_CDI_ANNOTATIONS, ID_INDEX, false, false, 0,
          "annotation cdi.k8s.io/nvidia-device-plugin_RANDOM-UUID=" CDI "gpu=1," CDI "gpu=0\n" },
        { LIST_CDI_ANNOTATIONS | LIST_CDI_CRI, ID_UUID, false, true, 7,
          "annotation cdi.k8s.io/nvidia-device-plugin_RANDOM-UUID=" CDI "gpu=" G1 "," CDI "gpu=" G0
          "," CDI "imex-channel=0," CDI "gdrcopy=all," CDI "gds=all," CDI "mofed=all\n"
          "cdi " CDI "gdrcopy=all\ncdi " CDI "gds=all\ncdi " CDI "gpu=" G0 "\ncdi " CDI "gpu=" G1
          "\ncdi " CDI "imex-channel=0\ncdi " CDI "mofed=all\n" },
        { LIST_CDI_CRI | LIST_ENVVAR, ID_UUID, true, true, 0,
          "cdi " CDI "gpu=" G0 "\ncdi " CDI "gpu=" G1 "\ncdi " CDI "imex-channel=0\n"
          "env NVIDIA_IMEX_CHANNELS=0\nenv NVIDIA_VISIBLE_DEVICES=" G1 "," G0 "\n"
          "node /dev/nvidia-caps-imex-channels/channel0</dev/nvidia-caps-imex-channels/channel0 "
          "rw\n"
          "node /dev/nvidia-uvm</dev/nvidia-uvm rw\nnode /dev/nvidia0</dev/nvidia0 rw\n"
          "node /dev/nvidia1</dev/nvidia1 rw\nnode /dev/nvidiactl</dev/nvidiactl rw\n" },
    };
    struct bench b;
    bench_init(&b, "a100");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        b.config.list_strategies = cases[i].strategies;
        b.config.id_strategy = cases[i].ids;
        b.config.pass_device_specs = cases[i].specs;
        b.c.imex_channel0 = cases[i].imex;
        b.c.gated = cases[i].gated;
        auto_buf expected;
        buf_init(&expected, 4096);
        buf_fmt(&expected, "container 0\n%s", cases[i].expected);
        check(&b, "nvidia.com/gpu", IDS(G1, G0), expected.p);
    }
    bench_done(&b);
}

static void test_gates_env(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    b.config.gdrcopy = b.config.gds = b.config.mofed = true;
    b.config.list_strategies = LIST_CDI_CRI;
    check(&b, "nvidia.com/gpu", NO_IDS,
          "container 0\nenv NVIDIA_GDRCOPY=enabled\nenv NVIDIA_GDS=enabled\n"
          "env NVIDIA_MOFED=enabled\n");
    bench_done(&b);
}

static void test_host_paths(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    struct host moved = b.host.host;
    char root[] = "/run/nvidia/driver";
    moved.dev_root = root;
    b.c.host = &moved;
    b.config.pass_device_specs = true;
    b.c.n_control_nodes = 1;
    check(&b, "nvidia.com/gpu", IDS(G7),
          "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G7 "\n"
          "node /dev/nvidia7</run/nvidia/driver/dev/nvidia7 rw\n"
          "node /dev/nvidiactl</run/nvidia/driver/dev/nvidiactl rw\n");
    bench_done(&b);
}

static void test_edges(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    check(&b, "nvidia.com/gpu", NO_IDS, "container 0\nenv NVIDIA_VISIBLE_DEVICES=\n");
    check(&b, "nvidia.com/gpu", IDS(G0, G0, G0),
          "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G0 "\n");
    b.config.list_strategies = LIST_CDI_CRI | LIST_CDI_ANNOTATIONS;
    check(&b, "nvidia.com/gpu", NO_IDS, "container 0\n");
    b.config.list_strategies = LIST_ENVVAR;
    assert_int_equal(allocate_two(&b, "nvidia.com/gpu", IDS(G0), IDS(G7)), 0);
    assert_string_equal(b.text.p, "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G0
                                  "\ncontainer 1\nenv NVIDIA_VISIBLE_DEVICES=" G7 "\n");
    check_refused(&b, "nvidia.com/gpu", IDS("GPU-no-such"),
                  HEAD "invalid request: unknown device: GPU-no-such");
    check_refused(&b, "nvidia.com/gpu", IDS(G0 "::0"),
                  HEAD "invalid request: unknown device: " G0 "::0");
    check_refused(&b, "nvidia.com/gpu", IDS(""), HEAD "invalid request: unknown device: ");

    /* no container at all: an empty answer */
    buf_reset(&b.answer);
    assert_int_equal(
        plugin_allocate(&b.c, resource_of(&b, "nvidia.com/gpu"), STR(""), &b.answer, &b.err), 0);
    assert_int_equal(b.answer.n, 0);
    bench_done(&b);
}

/* Given twice is never right, also within one call. */
static void test_twice_in_one_call(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    assert_int_equal(allocate_two(&b, "nvidia.com/gpu", IDS(G0, G1), IDS(G7, G1)), -ERR_CONFLICT);
    assert_string_equal(b.err.text,
                        HEAD "invalid request: device " G1 " is asked for by two containers");
    bench_done(&b);
}

/* ---- shares ---- */

static void test_shares(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    share(&b, SHARING_TIME_SLICING, 4);
    check(&b, "nvidia.com/gpu", IDS(G0 "::0", G0 "::1", G1 "::3"),
          "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G0 "," G1 "\n");
    b.config.pass_device_specs = true;
    check(&b, "nvidia.com/gpu", IDS(G0 "::0", G0 "::1"),
          "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G0 "\n"
          "node /dev/nvidia-uvm</dev/nvidia-uvm rw\nnode /dev/nvidia0</dev/nvidia0 rw\n"
          "node /dev/nvidiactl</dev/nvidiactl rw\n");
    check_refused(&b, "nvidia.com/gpu", IDS(G0), HEAD "invalid request: unknown device: " G0);
    bench_done(&b);
}

/* B-021: the sentence names the rule and what to do. */
static void test_more_than_one(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    b.config.sharing.fail_requests_greater_than_one = true;
    check(&b, "nvidia.com/gpu", IDS(G0, G1),
          "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G0 "," G1 "\n"); /* nothing is shared */
    share(&b, SHARING_TIME_SLICING, 4);
    check(&b, "nvidia.com/gpu", IDS(G0 "::0"), "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G0 "\n");
    check_refused(&b, "nvidia.com/gpu", IDS(G0 "::0", G0 "::0"),
                  HEAD "invalid request: maximum request size for shared resources is 1; found 2 "
                       "(rule: sharing.timeSlicing.failRequestsGreaterThanOne is true on this "
                       "node, because a second share gives no more of a gpu; ask for 1 in the "
                       "container's limits)");
    share(&b, SHARING_MPS, 4);
    assert_true(allocate_two(&b, "nvidia.com/gpu", IDS(G0 "::0", G1 "::0", G7 "::1"), NULL) < 0);
    assert_non_null(strstr(b.err.text, "is 1; found 3 (rule: sharing.mps.failRequests"));
    bench_done(&b);
}

/* B-018: two shares of one gpu are told, or refused by a rule that the text names. */
static void test_distinct(void **state)
{
    static const struct {
        const char *ids[4];
        bool doubled;
    } cases[] = {
        { { G0 "::0", G1 "::0" }, false },
        { { G0 "::0", G0 "::0" }, false }, /* one share, named twice */
        { { G1 "::0", G0 "::3", G0 "::2" }, true },
    };
    struct bench b;
    bool doubled;
    bench_init(&b, "a100");
    share(&b, SHARING_TIME_SLICING, 4);
    b.c.not_distinct = &doubled;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        b.config.require_distinct = false;
        assert_int_equal(allocate_two(&b, "nvidia.com/gpu", cases[i].ids, NULL), 0);
        assert_int_equal(doubled, cases[i].doubled);
        b.config.require_distinct = true;
        assert_int_equal(allocate_two(&b, "nvidia.com/gpu", cases[i].ids, NULL),
                         cases[i].doubled ? -ERR_CONFLICT : 0);
        if (cases[i].doubled)
            assert_string_equal(b.err.text, HEAD
                                "invalid request: two of the shares are of " G0
                                " (rule: sharing.requireDistinct is true on this node); ask for "
                                "fewer or wait until other gpus have free shares");
    }
    /* two containers may share a gpu */
    assert_int_equal(allocate_two(&b, "nvidia.com/gpu", IDS(G0 "::0"), IDS(G0 "::1")), 0);
    assert_false(doubled);
    bench_done(&b);
}

static void test_mps(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    share(&b, SHARING_MPS, 4);
    check(&b, "nvidia.com/gpu", IDS(G0 "::2"),
          "container 0\nenv CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe\n"
          "env NVIDIA_VISIBLE_DEVICES=" G0 "\n"
          "mount /dev/shm</run/nvidia/mps/shm\n"
          "mount /mps/nvidia.com/gpu/pipe</run/nvidia/mps/nvidia.com/gpu/pipe\n");
    bench_done(&b);

    /* a resource of the node that is not shared has no daemon: nothing to point to */
    bench_init(&b, "parts");
    b.config.mig_strategy = MIG_STRATEGY_MIXED;
    share(&b, SHARING_MPS, 4);
    check(&b, "nvidia.com/mig-1g.5gb", IDS(M2), "container 0\nenv NVIDIA_VISIBLE_DEVICES=" M2 "\n");
    bench_done(&b);
}

/* More ids than the small path holds, in one container and in all. */
static void test_many(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    share(&b, SHARING_TIME_SLICING, 200);
    const struct resource *r = resource_of(&b, "nvidia.com/gpu");
    const char **ids = x_alloc((r->n_devices + 1) * sizeof(*ids));
    for (size_t i = 0; i < r->n_devices; i++)
        ids[i] = r->devices[r->n_devices - 1 - i].id;
    assert_int_equal(allocate_two(&b, "nvidia.com/gpu", ids, NULL), 0);
    assert_non_null(strstr(b.text.p, "NVIDIA_VISIBLE_DEVICES=" G7 ","));
    assert_null(strstr(b.text.p, "::"));

    struct buf small; /* an answer that does not fit */
    buf_init(&small, 100);
    assert_int_equal(plugin_allocate(&b.c, r, buf_view(&b.request), &small, &b.err), -ERR_LIMIT);
    buf_done(&small);

    mem_fail_at(1); /* the one allocation of the large path */
    buf_reset(&b.answer);
    assert_int_equal(plugin_allocate(&b.c, r, buf_view(&b.request), &b.answer, &b.err), -ERR_LIMIT);
    mem_fail_at(0);
    free(ids);

    /* limits: containers and ids */
    buf_reset(&b.request);
    for (int i = 0; i < CONTAINERS_MAX + 1; i++)
        pbw_end(&b.request, pbw_begin(&b.request, 1));
    assert_int_equal(plugin_allocate(&b.c, r, buf_view(&b.request), &b.answer, &b.err), -ERR_LIMIT);
    assert_string_equal(b.err.text, HEAD "more than 256 containers in one request");
    buf_reset(&b.request);
    size_t m = pbw_begin(&b.request, 1);
    for (size_t i = 0; i < 2 * r->n_devices + 1; i++)
        pbw_item(&b.request, 1, STR(G0 "::0"));
    pbw_end(&b.request, m);
    assert_int_equal(plugin_allocate(&b.c, r, buf_view(&b.request), &b.answer, &b.err), -ERR_LIMIT);
    assert_string_equal(b.err.text, HEAD "more than 3200 device ids in one request; the resource "
                                         "has 1600 devices");
    bench_done(&b);
}

static void test_broken_requests(void **state)
{
    static const struct str broken[] = {
        STR("\x0a"),     STR("\x0a\x05\x0a\x01"),
        STR("\x0b\x00"), STR("\x0a\x03\x0a\x05g"),
        STR("\x00\x00"), STR("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    };
    struct bench b;
    bench_init(&b, "a100");
    const struct resource *r = resource_of(&b, "nvidia.com/gpu");
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        assert_int_equal(plugin_allocate(&b.c, r, broken[i], &b.answer, &b.err), -ERR_INVALID);
        assert_string_equal(b.err.text, HEAD "not an AllocateRequest message of v1beta1");
        assert_int_equal(plugin_preferred(&b.c, r, broken[i], &b.answer, &b.err), -ERR_INVALID);
    }
    /* unknown fields are skipped */
    buf_reset(&b.answer);
    assert_int_equal(plugin_allocate(&b.c, r, STR("\x10\x07\x0a\x02\x10\x01"), &b.answer, &b.err),
                     0);
    bench_done(&b);
}

/* ---- parts ---- */

static void test_parts(void **state)
{
    struct bench b;
    bench_init(&b, "parts");
    b.config.mig_strategy = MIG_STRATEGY_MIXED;
    b.config.pass_device_specs = true;
    b.c.n_control_nodes = 1;
    bench_build(&b);
    check(&b, "nvidia.com/mig-1g.5gb", IDS(M3, M2),
          "container 0\nenv NVIDIA_VISIBLE_DEVICES=" M3 "," M2 "\n"
          "node /dev/nvidia-caps/nvidia-cap84</dev/nvidia-caps/nvidia-cap84 rw\n"
          "node /dev/nvidia-caps/nvidia-cap85</dev/nvidia-caps/nvidia-cap85 rw\n"
          "node /dev/nvidia-caps/nvidia-cap93</dev/nvidia-caps/nvidia-cap93 rw\n"
          "node /dev/nvidia-caps/nvidia-cap94</dev/nvidia-caps/nvidia-cap94 rw\n"
          "node /dev/nvidia0</dev/nvidia0 rw\n"
          "node /dev/nvidiactl</dev/nvidiactl rw\n");
    b.config.id_strategy = ID_INDEX;
    b.config.list_strategies = LIST_ENVVAR | LIST_CDI_CRI;
    b.config.pass_device_specs = false;
    check(&b, "nvidia.com/mig-3g.20gb", IDS(M0),
          "container 0\ncdi " CDI "gpu=0:0\nenv NVIDIA_VISIBLE_DEVICES=0:0\n");
    bench_done(&b);
}

/* Without its capability minors a part would start and find nothing. */
static void test_part_without_caps(void **state)
{
    struct bench b;
    bench_init(&b, "parts");
    b.config.mig_strategy = MIG_STRATEGY_MIXED;
    bench_build(&b);
    b.survey->gpus[0].parts[0].valid &= ~(uint32_t)PART_HAS_CAPS;
    check(&b, "nvidia.com/mig-3g.20gb", IDS(M0),
          "container 0\nenv NVIDIA_VISIBLE_DEVICES=" M0 "\n");
    b.config.list_strategies = LIST_CDI_CRI;
    check_refused(&b, "nvidia.com/mig-3g.20gb", IDS(M0),
                  "invalid allocation request for \"nvidia.com/mig-3g.20gb\": "
                  "/proc/driver/nvidia-caps/mig-minors has no entry for part " M0
                  ", so its device nodes are not known");
    bench_done(&b);
}

static void test_wsl(void **state)
{
    struct bench b;
    bench_init(&b, "wsl");
    b.config.pass_device_specs = true;
    b.config.list_strategies = LIST_ENVVAR | LIST_CDI_CRI;
    check(&b, "nvidia.com/gpu", IDS("all"),
          "container 0\ncdi " CDI "gpu=all\nenv NVIDIA_VISIBLE_DEVICES=all\n"
          "node /dev/dxg</dev/dxg rw\n");
    bench_done(&b);
}

/* ---- health and ledger ---- */

static void test_unhealthy(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    struct device *d = &inventory_resource(b.inv, "nvidia.com/gpu")->devices[0];
    d->healthy = false;
    d->reason = "xid-79";
    check_refused(&b, "nvidia.com/gpu", IDS(G1, G0),
                  HEAD "device " G0 " is withdrawn: xid-79; it is offered again when that is over");
    auto_buf list;
    buf_init(&list, ANSWER_MAX);
    assert_int_equal(plugin_list(resource_of(&b, "nvidia.com/gpu"), b.survey, &list, &b.err), 0);
    buf_reset(&b.text);
    list_text(buf_view(&list), &b.text);
    assert_non_null(strstr(b.text.p, G0 " Unhealthy numa 3\n" G1 " Healthy numa 3\n"));
    bench_done(&b);
}

static void test_ledger(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    assert_int_equal(
        ledger_open(&b.host.host, NULL, OWNER_DEVICE_PLUGIN, &b.c.ledger, NULL, &b.err), 0);
    ledger_survey(b.c.ledger, b.survey);
    check(&b, "nvidia.com/gpu", IDS(G0), "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G0 "\n");
    assert_int_equal(ledger_grants(b.c.ledger), 1);

    /* the same gpus as shares of another resource: held, and nothing of the call stays granted */
    b.config.sharing.rename_by_default = true;
    share(&b, SHARING_TIME_SLICING, 2);
    const char *resource = "nvidia.com/gpu.shared";
    b.config.sharing.fail_requests_greater_than_one = false;
    assert_int_equal(allocate_two(&b, resource, IDS(G7 "::0"), IDS(G1 "::0", G0 "::1")),
                     -ERR_CONFLICT);
    assert_non_null(strstr(b.err.text, "invalid allocation request for \"nvidia.com/gpu.shared\": "
                                       "gpu " G0 " cannot be given out"));
    assert_int_equal(ledger_grants(b.c.ledger), 1);
    assert_int_equal(allocate_two(&b, resource, IDS(G7 "::0"), IDS(G1 "::0", G1 "::1")), 0);
    assert_int_equal(ledger_grants(b.c.ledger), 4);

    /* an answer that cannot be given is no grant */
    struct buf small;
    buf_init(&small, 10);
    const char *const *one[] = { IDS("GPU-12345678-1234-1234-1234-123456780003::1") };
    buf_reset(&b.request);
    allocate_request(&b.request, one, 1);
    assert_int_equal(
        plugin_allocate(&b.c, resource_of(&b, resource), buf_view(&b.request), &small, &b.err),
        -ERR_LIMIT);
    assert_int_equal(ledger_grants(b.c.ledger), 4);
    buf_done(&small);
    ledger_free(b.c.ledger);
    bench_done(&b);
}

/* A resource of which only some gpus are shared: both forms in one container. */
static void test_mixed_forms(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    static const struct device_ref first = { .kind = REF_INDEX, .gpu = 0 };
    b.shared = (struct shared_resource){ "nvidia.com/gpu", NULL, .refs = &first, .n_refs = 1,
                                         .replicas = 2 };
    b.config.sharing =
        (struct sharing){ .kind = SHARING_TIME_SLICING, .resources = &b.shared, .n_resources = 1 };
    bench_build(&b);
    assert_int_equal(
        ledger_open(&b.host.host, NULL, OWNER_DEVICE_PLUGIN, &b.c.ledger, NULL, &b.err), 0);
    ledger_survey(b.c.ledger, b.survey);
    check(&b, "nvidia.com/gpu", IDS(G0 "::1", G7, G0 "::0", G1),
          "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G0 "," G7 "," G1 "\n");
    assert_int_equal(ledger_grants(b.c.ledger), 4);
    ledger_free(b.c.ledger);
    bench_done(&b);
}

/* ---- lists, options, registration, preferred ---- */

static void test_list(void **state)
{
    struct bench b;
    bench_init(&b, "h100");
    const struct resource *r = resource_of(&b, "nvidia.com/gpu");
    auto_buf list;
    buf_init(&list, ANSWER_MAX);
    assert_int_equal(plugin_list(r, b.survey, &list, &b.err), 0);
    list_text(buf_view(&list), &b.text);
    assert_non_null(strstr(b.text.p, "GPU-01000100-0000-0000-0000-000000000000 Healthy numa 0\n"));
    assert_non_null(strstr(b.text.p, "GPU-01000100-0000-0000-0000-000000000007 Healthy numa 1\n"));
    /* NUMA node 0 is an empty message, as proto3 writes a zero */
    assert_non_null(memmem(list.p, list.n, "\x1a\x02\x0a\x00", 4));

    struct buf small;
    buf_init(&small, 100);
    assert_int_equal(plugin_list(r, b.survey, &small, &b.err), -ERR_LIMIT);
    assert_string_equal(b.err.text, "the list of the 8 devices of nvidia.com/gpu is larger than "
                                    "the 100 bytes that kubelet takes; lower its replicas (now 1)");
    buf_done(&small);
    bench_done(&b);
}

static void test_register(void **state)
{
    struct bench b;
    bench_init(&b, "h100");
    assert_int_equal(plugin_options(&b.answer, &b.err), 0);
    assert_int_equal(b.answer.n, 2);
    assert_memory_equal(b.answer.p, "\x10\x01", 2);
    assert_int_equal(plugin_register_request(resource_of(&b, "nvidia.com/gpu"), &b.request, &b.err),
                     0);
    register_text(buf_view(&b.request), &b.text);
    assert_string_equal(b.text.p, "v1beta1 nvidia-gpu.sock nvidia.com/gpu preferred");
    bench_done(&b);
}

static int prefer(struct bench *b, const char *const *must, size_t n_must, int size)
{
    const struct resource *r = resource_of(b, "nvidia.com/gpu");
    const char **ids = x_alloc((r->n_devices + 1) * sizeof(*ids));
    for (size_t i = 0; i < r->n_devices; i++)
        ids[i] = r->devices[i].id;
    buf_reset(&b->request);
    buf_reset(&b->answer);
    buf_reset(&b->text);
    buf_z(&b->text, "");
    preferred_request(&b->request, ids, r->n_devices, must, n_must, size);
    free(ids);
    int rc = plugin_preferred(&b->c, r, buf_view(&b->request), &b->answer, &b->err);
    if (rc == 0)
        preferred_text(buf_view(&b->answer), &b->text);
    return rc;
}

#define PREFERRED "error getting list of preferred allocation devices: "

static void test_preferred(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    assert_int_equal(prefer(&b, NULL, 0, 2), 0);
    assert_string_equal(b.text.p, G0 "\n" G1 "\n");
    assert_int_equal(prefer(&b, NULL, 0, 9), 0);
    assert_string_equal(b.text.p, "");
    assert_int_equal(prefer(&b, NULL, 0, -1), 0);
    assert_string_equal(b.text.p, "");
    assert_true(prefer(&b, IDS("GPU-no-such"), 1, 1) < 0);
    assert_string_equal(b.err.text, PREFERRED "unable to retrieve list of required devices: no "
                                              "device with uuid: GPU-no-such");
    share(&b, SHARING_TIME_SLICING, 4);
    assert_true(prefer(&b, NULL, 0, 33) < 0);
    assert_string_equal(b.err.text, PREFERRED "not enough available devices to satisfy allocation");

    /* as many answers as requests, and limits */
    buf_reset(&b.request);
    buf_reset(&b.answer);
    preferred_request(&b.request, NULL, 0, NULL, 0, 0);
    preferred_request(&b.request, NULL, 0, NULL, 0, 0);
    const struct resource *r = resource_of(&b, "nvidia.com/gpu");
    assert_int_equal(plugin_preferred(&b.c, r, buf_view(&b.request), &b.answer, &b.err), 0);
    assert_int_equal(b.answer.n, 4);
    assert_memory_equal(b.answer.p, "\x0a\x00\x0a\x00", 4);
    buf_reset(&b.request);
    const char *many[IDS_MIN + 1];
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = G0;
    preferred_request(&b.request, many, ARRAY_LEN(many), NULL, 0, 1);
    assert_int_equal(plugin_preferred(&b.c, r, buf_view(&b.request), &b.answer, &b.err),
                     -ERR_LIMIT);
    bench_done(&b);
}

/* Every allocation of the preferred path fails in turn. */
static void test_preferred_memory(void **state)
{
    struct bench b;
    bench_init(&b, "a100");
    int r = -1;
    for (uint64_t k = 1; r != 0; k++) {
        assert_true(k < 200);
        (void)prefer(&b, NULL, 0, 0); /* builds the request */
        buf_done(&b.answer);
        mem_fail_at(k);
        r = plugin_preferred(&b.c, resource_of(&b, "nvidia.com/gpu"), buf_view(&b.request),
                             &b.answer, &b.err);
        mem_fail_at(0);
        assert_true(r == 0 || r == -ERR_LIMIT);
    }
    bench_done(&b);
}

static void test_request_ids(void **state)
{
    char text[16];
    auto_buf request;
    buf_init(&request, 1024);
    const char *const *containers[] = { IDS("a", "bb"), NO_IDS,
                                        IDS("0123456789", "x", "yyyyyyyy") };
    allocate_request(&request, containers, 3);
    assert_true(plugin_request_ids(buf_view(&request), 0, text, sizeof(text)));
    assert_string_equal(text, "a,bb");
    assert_true(plugin_request_ids(buf_view(&request), 1, text, sizeof(text)));
    assert_string_equal(text, "");
    assert_true(plugin_request_ids(buf_view(&request), 2, text, sizeof(text)));
    assert_string_equal(text, "0123456789,x,yy");
    assert_false(plugin_request_ids(buf_view(&request), 3, text, sizeof(text)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategies),
        cmocka_unit_test(test_gates_env),
        cmocka_unit_test(test_host_paths),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_twice_in_one_call),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_more_than_one),
        cmocka_unit_test(test_distinct),
        cmocka_unit_test(test_mps),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_broken_requests),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_part_without_caps),
        cmocka_unit_test(test_wsl),
        cmocka_unit_test(test_unhealthy),
        cmocka_unit_test(test_ledger),
        cmocka_unit_test(test_mixed_forms),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_register),
        cmocka_unit_test(test_preferred),
        cmocka_unit_test(test_preferred_memory),
        cmocka_unit_test(test_request_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
