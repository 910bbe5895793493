/* SPDX-License-Identifier: Apache-2.0 */
/* The small kubelet against a plugin made here, over real sockets on one loop. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/json.h"
#include "kubeletapi/inuse.h"
#include "sim/kubelet.h"
#include "wire/grpc.h"
#include "wire/pbmsg.h"
#include "wire/pbwriter.h"

#define RES "example.com/dev"

static struct {
    char dir[64], cgroups[96];
    struct loop *loop;
    struct timer limit;
    struct sim_kubelet *kubelet;
    /* the plugin */
    struct grpc_server *server;
    struct grpc_call *stream;
    struct grpc_client *client;
    bool preferred, pre_start, fail_preferred, fail_allocate, no_containers, never_answer;
    int allocates, pre_starts;
    char allocated[256]; /* ids of the last Allocate, joined by "," */
    /* what came back */
    enum grpc_status status;
    char text[512];
    bool called;
    char *answer;
    struct error refused;
    bool decided;
    size_t capacity, allocatable;
    int lists;
} t;

static void woken(void);

/* ---- the plugin ---- */

static void add_device(struct buf *b, const char *id, const char *health, int64_t numa)
{
    size_t m = pbw_begin(b, 1);
    pbw_item(b, 1, str_of(id));
    pbw_item(b, 2, str_of(health));
    if (numa >= 0) {
        size_t topology = pbw_begin(b, 3), node = pbw_begin(b, 1);
        pbw_int(b, 1, numa);
        pbw_end(b, node);
        pbw_end(b, topology);
    }
    pbw_end(b, m);
}

static void send_list(const char *health_of_d2)
{
    struct error err;
    auto_buf b;
    buf_init(&b, 65536);
    add_device(&b, "d3", "Healthy", 1);
    add_device(&b, "d0", "Healthy", 0);
    add_device(&b, "d1", "Healthy", -1);
    add_device(&b, "d2", health_of_d2, 1);
    assert_int_equal(0, grpc_send_latest(t.stream, buf_view(&b), &err));
}

static void plugin_options(struct grpc_call *call, struct str request, void *arg)
{
    (void)request, (void)arg;
    auto_buf b;
    buf_init(&b, 64);
    pbw_bool(&b, 1, t.pre_start);
    pbw_bool(&b, 2, t.preferred);
    grpc_reply(call, buf_view(&b));
}

static void plugin_watch(struct grpc_call *call, struct str request, void *arg)
{
    (void)request, (void)arg;
    t.stream = call;
    send_list("Unhealthy");
}

/* Always d3 first, then something that nobody has. */
static void plugin_preferred(struct grpc_call *call, struct str request, void *arg)
{
    (void)request, (void)arg;
    if (t.fail_preferred) {
        grpc_fail(call, GRPC_UNKNOWN, "no preference today");
        return;
    }
    auto_buf b;
    buf_init(&b, 1024);
    size_t m = pbw_begin(&b, 1);
    pbw_item(&b, 1, STR("d3"));
    pbw_item(&b, 1, STR("elsewhere"));
    pbw_end(&b, m);
    grpc_reply(call, buf_view(&b));
}

static void plugin_allocate(struct grpc_call *call, struct str request, void *arg)
{
    (void)arg;
    struct error err;
    if (t.never_answer) {
        t.allocates++;
        woken();
        return;
    }
    auto_pb(dp_AllocateRequest) q = dp_AllocateRequest_init_zero;
    assert_int_equal(0, pbmsg_read(dp_AllocateRequest, request, GRPC_MESSAGE_MAX, &q, &err));
    assert_int_equal(1, q.container_requests_count);
    t.allocates++;
    t.allocated[0] = 0;
    auto_buf b;
    buf_init(&b, 4096);
    size_t m = pbw_begin(&b, 1);
    for (size_t i = 0; i < q.container_requests[0].devices_ids_count; i++) {
        const char *id = q.container_requests[0].devices_ids[i];
        size_t n = strlen(t.allocated);
        snprintf(t.allocated + n, sizeof t.allocated - n, "%s%s", n ? "," : "", id);
    }
    pbw_map(&b, 1, STR("VISIBLE"), str_of(t.allocated));
    size_t spec = pbw_begin(&b, 3);
    pbw_item(&b, 1, STR("/dev/x"));
    pbw_item(&b, 2, STR("/host/dev/x"));
    pbw_item(&b, 3, STR("rw"));
    pbw_end(&b, spec);
    pbw_end(&b, m);
    if (t.fail_allocate)
        grpc_fail(call, GRPC_UNKNOWN, "not \"today\"");
    else if (t.no_containers)
        grpc_reply(call, (struct str){ 0 });
    else
        grpc_reply(call, buf_view(&b));
}

static void plugin_pre_start(struct grpc_call *call, struct str request, void *arg)
{
    (void)request, (void)arg;
    t.pre_starts++;
    grpc_reply(call, (struct str){ 0 });
}

static const struct grpc_method plugin_methods[] = {
    { .path = "/v1beta1.DevicePlugin/GetDevicePluginOptions", .handle = plugin_options },
    { .path = "/v1beta1.DevicePlugin/ListAndWatch", .handle = plugin_watch, .stream = true },
    { .path = "/v1beta1.DevicePlugin/GetPreferredAllocation", .handle = plugin_preferred },
    { .path = "/v1beta1.DevicePlugin/Allocate", .handle = plugin_allocate },
    { .path = "/v1beta1.DevicePlugin/PreStartContainer", .handle = plugin_pre_start },
};

static void plugin_cancelled(struct grpc_call *call, void *arg)
{
    (void)arg;
    if (call == t.stream)
        t.stream = NULL;
}

static void plugin_serve(void)
{
    struct error err;
    const struct grpc_server_config c = { .methods = plugin_methods,
                                          .n_methods = ARRAY_LEN(plugin_methods),
                                          .cancelled = plugin_cancelled };
    auto_free char *path = x_printf("%s/device-plugins/fake.sock", t.dir);
    assert_int_equal(0, grpc_server_new(t.loop, path, 0, &c, &t.server, &err));
}

/* ---- running the loop ---- */

static void too_late(void *arg)
{
    (void)arg;
    loop_stop(t.loop, 1);
}

/* Runs until somebody calls woken(); fails after 5 s. */
static void run(void)
{
    timer_set(&t.limit, 5000);
    assert_int_equal(0, loop_run(t.loop));
    timer_stop(&t.limit);
}

static void woken(void)
{
    loop_stop(t.loop, 0);
}

static void pause_over(void *arg)
{
    (void)arg;
    woken();
}

static void run_for(int64_t ms)
{
    struct timer p;
    timer_init(&p, t.loop, pause_over, NULL);
    timer_set(&p, ms);
    run();
    timer_done(&p);
}

static void changed(void *arg, const char *resource, size_t capacity, size_t allocatable)
{
    (void)arg;
    assert_string_equal(RES, resource);
    t.capacity = capacity;
    t.allocatable = allocatable;
    t.lists++;
    woken();
}

static void called(void *arg, enum grpc_status status, const char *text, struct str message)
{
    (void)arg, (void)message;
    t.status = status;
    snprintf(t.text, sizeof t.text, "%s", text ? text : "");
    t.called = true;
    woken();
}

static void never(void *arg, const struct error *why)
{
    (void)arg, (void)why;
}

static void register_as(const char *version, const char *resource, const char *endpoint)
{
    struct error err;
    auto_free char *path = x_printf("%s/device-plugins/kubelet.sock", t.dir);
    auto_buf b;
    buf_init(&b, 1024);
    pbw_str(&b, 1, str_of(version));
    pbw_str(&b, 2, str_of(endpoint));
    pbw_str(&b, 3, str_of(resource));
    grpc_client_free(steal(t.client));
    t.called = false;
    assert_int_equal(0, grpc_client_new(t.loop, path, never, NULL, &t.client, &err));
    assert_int_equal(0, grpc_client_call(t.client, "/v1beta1.Registration/Register", buf_view(&b),
                                         5000, called, NULL, &err));
    while (!t.called)
        run();
}

static void register_well(void)
{
    int lists = t.lists;
    register_as("v1beta1", RES, "fake.sock");
    assert_int_equal(GRPC_OK, t.status);
    while (t.lists == lists)
        run();
}

static void decided(void *arg, const char *answer_json, const struct error *e)
{
    (void)arg;
    free(t.answer);
    t.answer = answer_json ? x_strdup(answer_json) : NULL;
    t.refused = e ? *e : (struct error){ 0 };
    t.decided = true;
    woken();
}

/* True when the container was admitted. */
static bool admit(const char *pod, uint32_t n)
{
    struct error err;
    t.decided = false;
    assert_int_equal(0, sim_kubelet_admit(t.kubelet, pod, "c", RES, n, decided, NULL, &err));
    while (!t.decided)
        run();
    return t.answer != NULL;
}

/* ---- set-up ---- */

static int set_up_with(int64_t grace_ms)
{
    struct error err;
    memset(&t, 0, sizeof t);
    snprintf(t.dir, sizeof t.dir, "/tmp/mete-test-kubelet-XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    snprintf(t.cgroups, sizeof t.cgroups, "%s/cgroup", t.dir);
    assert_int_equal(0, loop_new(&t.loop, &err));
    timer_init(&t.limit, t.loop, too_late, NULL);
    const struct sim_kubelet_config c = {
        .dir = t.dir, .cgroup_dir = t.cgroups, .grace_ms = grace_ms, .changed = changed
    };
    assert_int_equal(0, sim_kubelet_new(t.loop, &c, &t.kubelet, &err));
    plugin_serve();
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return set_up_with(0);
}

static int tear_down(void **state)
{
    (void)state;
    grpc_client_free(t.client);
    grpc_server_free(t.server);
    sim_kubelet_free(t.kubelet);
    timer_done(&t.limit);
    loop_free(t.loop);
    free(t.answer);
    auto_free char *clean = x_printf("rm -rf %s", t.dir);
    return system(clean);
}

/* ---- tests ---- */

static void test_list(void **state)
{
    (void)state;
    register_well();
    assert_int_equal(4, t.capacity);
    assert_int_equal(3, t.allocatable);
    send_list("Healthy");
    run();
    assert_int_equal(4, t.allocatable);
}

static void test_refused_registrations(void **state)
{
    (void)state;
    static const struct {
        const char *version, *resource, *endpoint, *text;
    } cases[] = {
        { "v1", RES, "fake.sock",
          "requested API version \"v1\" is not supported by kubelet. Supported version is "
          "[\"v1beta1\"]" },
        { "v1beta1", "cpu", "fake.sock", "the ResourceName \"cpu\" is invalid" },
        { "v1beta1", "kubernetes.io/x", "fake.sock",
          "the ResourceName \"kubernetes.io/x\" is invalid" },
        { "v1beta1", RES, "../fake.sock", "the Endpoint \"../fake.sock\" is not a file name" },
        { "v1beta1", RES, "", "the Endpoint \"\" is not a file name" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        register_as(cases[i].version, cases[i].resource, cases[i].endpoint);
        assert_int_equal(GRPC_UNKNOWN, t.status);
        assert_string_equal(cases[i].text, t.text);
    }
    assert_int_equal(0, t.lists);
}

static void test_admission_without_preference(void **state)
{
    (void)state;
    register_well();
    assert_true(admit("p", 2));
    assert_string_equal("d0,d1", t.allocated); /* d2 is not healthy */
    assert_non_null(strstr(t.answer, "\"ids\":[\"d0\",\"d1\"]"));
    assert_non_null(strstr(t.answer, "\"envs\":{\"VISIBLE\":\"d0,d1\"}"));
    assert_non_null(strstr(t.answer, "{\"container_path\":\"/dev/x\",\"host_path\":\"/host/dev/x\","
                                     "\"permissions\":\"rw\"}"));
}

static void test_preference_is_filtered_and_filled_up(void **state)
{
    (void)state;
    t.preferred = true;
    register_well();
    assert_true(admit("p", 2));
    assert_string_equal("d3,d0", t.allocated);
    assert_non_null(strstr(t.answer, "\"preferred\":[\"d3\",\"elsewhere\"]"));
    assert_true(admit("q", 1));
    assert_string_equal("d1", t.allocated); /* d3 is taken */
}

static void expect_refusal(const char *pod, uint32_t n, const char *text)
{
    assert_false(admit(pod, n));
    assert_string_equal(text, t.refused.text);
}

static void test_refused_admissions(void **state)
{
    (void)state;
    expect_refusal("early", 1, "cannot allocate unregistered device " RES);
    t.preferred = true;
    register_well();
    expect_refusal(
        "p", 4, "requested number of devices unavailable for " RES ". Requested: 4, Available: 3");
    t.fail_preferred = true;
    expect_refusal("p", 1,
                   "device plugin GetPreferredAllocation rpc failed with err: rpc error: "
                   "code = 2 desc = no preference today");
    t.fail_preferred = false;
    t.fail_allocate = true;
    expect_refusal("p", 1,
                   "Allocate failed due to rpc error: code = 2 desc = not \"today\", which "
                   "is unexpected");
    t.fail_allocate = false;
    t.no_containers = true;
    expect_refusal("p", 1, "no containers return in allocation response");
    t.no_containers = false;
    assert_true(admit("p", 3)); /* nothing stayed behind of those that failed */
}

static void test_admissions_queue(void **state)
{
    (void)state;
    struct error err;
    t.preferred = true;
    register_well();
    static const char *const pods[] = { "a", "b", "c", "d" };
    for (size_t i = 0; i < ARRAY_LEN(pods); i++)
        assert_int_equal(0,
                         sim_kubelet_admit(t.kubelet, pods[i], "c", RES, 1, decided, NULL, &err));
    while (t.allocates < 3)
        run();
    run_for(30);
    assert_false(t.decided &&
                 t.answer); /* the fourth was refused: three devices, never one twice */
    assert_string_equal("requested number of devices unavailable for " RES
                        ". Requested: 1, Available: 0",
                        t.refused.text);
}

static void test_pre_start(void **state)
{
    (void)state;
    t.pre_start = true;
    register_well();
    assert_true(admit("p", 1));
    assert_int_equal(1, t.pre_starts);
}

static char *read_checkpoint(void)
{
    struct error err;
    char *text = NULL;
    auto_free char *path = x_printf("%s/device-plugins/kubelet_internal_checkpoint", t.dir);
    assert_int_equal(0, file_read(path, 1 << 20, &text, NULL, &err));
    return text;
}

static void test_checkpoint(void **state)
{
    (void)state;
    struct error err;
    register_well();
    assert_true(admit("space/p", 3));
    auto_free char *text = read_checkpoint();
    /* "d0" on node 0, "d1" on none, "d3" on node 1 */
    assert_non_null(strstr(text, "\"DeviceIDs\":{\"0\":[\"d0\"],\"-1\":[\"d1\"],\"1\":[\"d3\"]}"));
    assert_non_null(strstr(text, "\"RegisteredDevices\":{\"" RES "\":[\"d0\",\"d1\",\"d3\"]}"));

    struct in_use u = { 0 };
    arena_init(&u.arena, 1 << 20);
    assert_int_equal(0, checkpoint_parse(&u.arena, str_of(text), &u, &err));
    assert_int_equal(3, u.n);
    assert_string_equal(RES, u.uses[0].resource);
    arena_done(&u.arena);
}

static void test_ended_pod_stays_in_the_checkpoint(void **state)
{
    (void)state;
    struct error err;
    register_well();
    assert_true(admit("p", 3));
    const char *at = strstr(t.answer, "\"uid\":\"");
    assert_non_null(at);
    auto_free char *cgroup = x_printf("%s/kubepods/pod%.36s", t.cgroups, at + 7);
    assert_true(file_exists(cgroup));
    assert_int_equal(0, sim_kubelet_end_pod(t.kubelet, "p", &err));
    assert_false(file_exists(cgroup));
    auto_free char *text = read_checkpoint();
    assert_non_null(strstr(text, "\"ResourceName\":\"" RES "\""));
    assert_int_equal(-ERR_NOT_FOUND, sim_kubelet_end_pod(t.kubelet, "p", &err));
    assert_true(admit("q", 3)); /* and its devices are free */
}

static void pod_resources_came(void *arg, enum grpc_status status, const char *text,
                               struct str message)
{
    struct error err;
    (void)text;
    assert_int_equal(GRPC_OK, status);
    assert_int_equal(0, pbmsg_read(podres_ListResponse, message, GRPC_MESSAGE_MAX,
                                   (podres_ListResponse *)arg, &err));
    t.called = true;
    woken();
}

static void list_pod_resources(podres_ListResponse *ret)
{
    struct error err;
    auto_free char *path = x_printf("%s/pod-resources/kubelet.sock", t.dir);
    struct grpc_client *c = NULL;
    t.called = false;
    assert_int_equal(0, grpc_client_new(t.loop, path, never, NULL, &c, &err));
    assert_int_equal(0, grpc_client_call(c, "/v1.PodResourcesLister/List", (struct str){ 0 }, 5000,
                                         pod_resources_came, ret, &err));
    while (!t.called)
        run();
    grpc_client_free(c);
}

static void test_pod_resources(void **state)
{
    (void)state;
    struct error err;
    register_well();
    assert_true(admit("space/p", 2));
    assert_true(admit("q", 1));
    assert_int_equal(0, sim_kubelet_end_pod(t.kubelet, "q", &err));
    auto_pb(podres_ListResponse) list = podres_ListResponse_init_zero;
    list_pod_resources(&list);
    assert_int_equal(1, list.pod_resources_count);
    const podres_PodResources *p = &list.pod_resources[0];
    assert_string_equal("p", p->name);
    assert_string_equal("space", p->namespace);
    assert_int_equal(1, p->containers_count);
    assert_int_equal(2, p->containers[0].devices_count);
    assert_string_equal(RES, p->containers[0].devices[0].resource_name);
    assert_string_equal("d0", p->containers[0].devices[0].device_ids[0]);
}

static void test_restart(void **state)
{
    (void)state;
    struct error err;
    register_well();
    assert_true(admit("p", 2));
    assert_int_equal(1, t.allocates);
    assert_int_equal(0, sim_kubelet_restart(t.kubelet, &err));
    run_for(20);
    auto_free char *path = x_printf("%s/device-plugins/fake.sock", t.dir);
    assert_false(file_exists(path)); /* a plugin has to make its socket again */
    assert_int_equal(0, t.allocatable);
    grpc_server_free(steal(t.server));
    plugin_serve();
    register_well();
    assert_int_equal(3, t.allocatable);
    assert_true(admit("p", 2)); /* what it had, without asking */
    assert_int_equal(1, t.allocates);
    assert_non_null(strstr(t.answer, "\"reused\":true"));
    assert_non_null(strstr(t.answer, "\"envs\":{\"VISIBLE\":\"d0,d1\"}"));
    assert_true(admit("q", 1));
    assert_string_equal("d3", t.allocated);
}

static void test_restart_with_broken_checkpoint(void **state)
{
    (void)state;
    struct error err;
    register_well();
    assert_true(admit("p", 2));
    sim_kubelet_stop(t.kubelet);
    auto_free char *path = x_printf("%s/device-plugins/kubelet_internal_checkpoint", t.dir);
    assert_int_equal(0, truncate(path, 40));
    assert_int_equal(0, sim_kubelet_start(t.kubelet, &err));
    auto_buf events;
    buf_init(&events, 1 << 20);
    sim_kubelet_events(t.kubelet, 0, &events);
    assert_non_null(strstr(events.p, "checkpoint-unreadable"));
    assert_int_equal(-ERR_CONFLICT, sim_kubelet_start(t.kubelet, &err));
}

static void test_plugin_goes(void **state)
{
    (void)state;
    tear_down(NULL);
    set_up_with(40);
    register_well();
    grpc_server_free(steal(t.server));
    run();
    assert_int_equal(4, t.capacity); /* still listed */
    assert_int_equal(0, t.allocatable);
    expect_refusal("p", 1, "no healthy devices present; cannot allocate unhealthy devices " RES);
    run(); /* the grace period ends */
    assert_int_equal(0, t.capacity);
}

static void test_drop(void **state)
{
    (void)state;
    register_well();
    sim_kubelet_drop(t.kubelet);
    assert_int_equal(0, t.allocatable);
    run_for(20);
    assert_null(t.stream); /* the plugin sees it */
    register_well();
    assert_int_equal(3, t.allocatable);
}

/* The plugin goes while it was asked: that admission, and the one behind it, end; exactly once. */
static void test_plugin_goes_under_an_admission(void **state)
{
    (void)state;
    struct error err;
    static const bool dropped[] = { false, true };
    for (size_t i = 0; i < ARRAY_LEN(dropped); i++) {
        t.never_answer = true;
        register_well();
        t.decided = false;
        int before = t.allocates;
        assert_int_equal(0, sim_kubelet_admit(t.kubelet, "p", "c", RES, 1, decided, NULL, &err));
        while (t.allocates == before)
            run();
        if (dropped[i])
            sim_kubelet_drop(t.kubelet);
        else
            grpc_server_free(steal(t.server));
        while (!t.decided)
            run();
        assert_null(t.answer);
        expect_refusal("q", 1,
                       "no healthy devices present; cannot allocate unhealthy devices " RES);
        t.never_answer = false;
        grpc_server_free(steal(t.server));
        plugin_serve();
        register_well();
        assert_true(admit("r", 3));
        assert_int_equal(0, sim_kubelet_end_pod(t.kubelet, "r", &err));
    }
}

static void test_behave(void **state)
{
    (void)state;
    sim_kubelet_behave(t.kubelet, 30, "not now");
    register_as("v1beta1", RES, "fake.sock");
    assert_int_equal(GRPC_UNKNOWN, t.status);
    assert_string_equal("not now", t.text);
    sim_kubelet_behave(t.kubelet, 30, NULL);
    register_well();
    assert_int_equal(3, t.allocatable);
}

static void test_second_registration_replaces_the_first(void **state)
{
    (void)state;
    register_well();
    register_well();
    run_for(20);
    assert_int_equal(3, t.allocatable);
    assert_true(admit("p", 1));
}

/* ---- the control socket ---- */

struct talk {
    struct watch watch;
    char text[4096];
    size_t n;
};

static void talk_ready(void *arg, int what)
{
    struct talk *talk = arg;
    (void)what;
    ssize_t n = recv(talk->watch.fd, talk->text + talk->n, sizeof talk->text - 1 - talk->n, 0);
    if (n > 0)
        talk->n += (size_t)n;
    if (n == 0)
        watch_want(&talk->watch, 0);
    talk->text[talk->n] = 0;
    woken();
}

static void ask(struct talk *talk, const char *line)
{
    talk->n = 0;
    talk->text[0] = 0;
    assert_int_equal(strlen(line), send(talk->watch.fd, line, strlen(line), MSG_NOSIGNAL));
    while (!strchr(talk->text, '\n'))
        run();
}

static void test_control_socket(void **state)
{
    (void)state;
    struct error err;
    struct sim_kubelet_ctl *ctl = NULL;
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s/ctl.sock", t.dir);
    assert_int_equal(0, sim_kubelet_ctl_new(t.loop, t.kubelet, a.sun_path, NULL, NULL, &ctl, &err));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(0, connect(fd, (struct sockaddr *)&a, sizeof a));
    struct talk talk = { 0 };
    watch_init(&talk.watch, t.loop, fd, talk_ready, &talk);
    watch_want(&talk.watch, IO_READ);
    register_well();

    ask(&talk, "{\"do\":\"admit\",\"pod\":\"p\",\"resource\":\"" RES "\",\"n\":2}\n");
    assert_non_null(strstr(talk.text, "{\"ok\":true,\"answer\":{\"uid\":"));
    assert_non_null(strstr(talk.text, "\"ids\":[\"d0\",\"d1\"]"));
    ask(&talk, "{\"do\":\"admit\",\"pod\":\"q\",\"resource\":\"" RES "\",\"n\":2}\n");
    assert_non_null(strstr(talk.text, "{\"ok\":false,\"error\":\"requested number of devices"));
    ask(&talk, "{\"do\":\"wait\",\"resource\":\"" RES "\",\"allocatable\":3,\"ms\":1000}\n");
    assert_string_equal("{\"ok\":true,\"answer\":{\"capacity\":4,\"allocatable\":3}}\n", talk.text);
    ask(&talk, "{\"do\":\"wait\",\"resource\":\"" RES "\",\"allocatable\":9,\"ms\":20}\n");
    assert_string_equal("{\"ok\":false,\"error\":\"not in time; now capacity 4, allocatable 3\"}\n",
                        talk.text);
    ask(&talk, "{\"do\":\"dance\"}\n");
    assert_non_null(strstr(talk.text, "unknown request \\\"dance\\\""));
    ask(&talk, "no json\n");
    assert_non_null(strstr(talk.text, "\"ok\":false"));
    ask(&talk, "{\"do\":\"status\"}\n");
    assert_non_null(strstr(talk.text, "\"name\":\"" RES "\",\"registered\":true"));

    /* A peer that goes while its admission is under way. */
    const char *late = "{\"do\":\"admit\",\"pod\":\"late\",\"resource\":\"" RES "\"}\n";
    assert_true(send(fd, late, strlen(late), MSG_NOSIGNAL) > 0);
    int before = t.allocates;
    watch_done(&talk.watch);
    close(fd);
    run_for(30);
    assert_int_equal(before + 1, t.allocates);
    sim_kubelet_ctl_free(ctl);
    assert_false(file_exists(a.sun_path));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_list),
        TEST(test_refused_registrations),
        TEST(test_admission_without_preference),
        TEST(test_preference_is_filtered_and_filled_up),
        TEST(test_refused_admissions),
        TEST(test_admissions_queue),
        TEST(test_pre_start),
        TEST(test_checkpoint),
        TEST(test_ended_pod_stays_in_the_checkpoint),
        TEST(test_pod_resources),
        TEST(test_restart),
        TEST(test_restart_with_broken_checkpoint),
        TEST(test_plugin_goes),
        TEST(test_drop),
        TEST(test_behave),
        TEST(test_plugin_goes_under_an_admission),
        TEST(test_second_registration_replaces_the_first),
        TEST(test_control_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
