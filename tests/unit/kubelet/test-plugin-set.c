/* SPDX-License-Identifier: Apache-2.0 */
/* The servers and their registration against a kubelet that misbehaves on order. Times are printed,
 * not judged, but for a bound that only a hang passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../golden/answer_text.h"
#include "../../golden/fixture.h"
#include "base/file.h"
#include "base/mem.h"
#include "kubelet/plugin.h"
#include "wire/grpc.h"
#include "wire/pbreader.h"

enum { HANG_MS = 8000, TEXT = 1024 * 1024 };

#define G0 "GPU-12345678-1234-1234-1234-123456780000"

/* ---- kubelet ---- */

enum mood { WELCOME, REFUSE_VERSION, REFUSE_ONCE, NEVER_ANSWER, NO_STREAM };

struct kubelet {
    struct loop *loop;
    char socket[200], dir[160];
    enum mood mood;
    struct grpc_server *server;
    struct grpc_client *client; /* to the plugin registered last */
    struct grpc_call *waiting;
    size_t registrations, lists;
    struct buf list; /* newest, as text */
    bool stream_ended;
};

static void list_came(void *arg, struct str message)
{
    struct kubelet *k = arg;
    k->lists++;
    buf_reset(&k->list);
    buf_z(&k->list, "");
    list_text(message, &k->list);
}

static void stream_ended(void *arg, enum grpc_status status, const char *text)
{
    ((struct kubelet *)arg)->stream_ended = true;
}

static void hang_up(struct kubelet *k)
{
    grpc_client_free(steal(k->client));
}

static void open_stream(struct kubelet *k, struct str endpoint)
{
    char path[400];
    struct error err;
    snprintf(path, sizeof(path), "%s/%.*s", k->dir, STR_FMT(endpoint));
    hang_up(k);
    k->stream_ended = false;
    if (grpc_client_new(k->loop, path, NULL, NULL, &k->client, &err) < 0)
        return; /* a plugin that stopped meanwhile */
    if (grpc_client_stream(k->client, "/v1beta1.DevicePlugin/ListAndWatch", STR(""), list_came,
                           stream_ended, k, &err) < 0)
        fail_msg("dial back: %s", err.text);
}

static void registered_with(struct grpc_call *call, struct str request, void *arg)
{
    struct kubelet *k = arg;
    k->registrations++;
    bool refuse_once = k->mood == REFUSE_ONCE;
    if (refuse_once)
        k->mood = WELCOME;
    if (refuse_once || k->mood == REFUSE_VERSION) {
        grpc_fail(call, GRPC_UNKNOWN, "%s",
                  refuse_once ? "try later"
                              : "requested API version \"v1beta1\" is not supported by kubelet. "
                                "Supported version is \"v2\"");
        return;
    }
    struct str endpoint = { NULL, 0 };
    struct pbr r = pbr_of(request);
    for (struct pbr_field f; pbr_next(&r, &f);) {
        if (f.tag == 2)
            endpoint = f.bytes;
    }
    if (k->mood != NO_STREAM)
        open_stream(k, endpoint);
    if (k->mood == NEVER_ANSWER)
        k->waiting = call;
    else
        grpc_reply(call, STR(""));
}

static void register_cancelled(struct grpc_call *call, void *arg)
{
    ((struct kubelet *)arg)->waiting = NULL;
}

static void kubelet_start(struct kubelet *k)
{
    static const struct grpc_method methods[] = {
        { "/v1beta1.Registration/Register", registered_with, false },
    };
    const struct grpc_server_config c = {
        .methods = methods, .n_methods = 1, .arg = k, .cancelled = register_cancelled
    };
    struct error err;
    if (grpc_server_new(k->loop, k->socket, 0, &c, &k->server, &err) < 0)
        fail_msg("%s", err.text);
}

static void kubelet_stop(struct kubelet *k)
{
    hang_up(k);
    grpc_server_free(steal(k->server));
}

/* As kubelet does when it starts: the plugin directory is emptied. */
static void wipe(const char *dir)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
}

/* ---- the scene ---- */

struct scene {
    struct loop *loop;
    struct survey *survey;
    struct fixture_host host;
    struct plugin_config config;
    struct inventory *inv;
    struct plugin_set_config set_config;
    struct plugin_set *set;
    struct kubelet kubelet;
    struct timer tick;
    bool (*until)(struct scene *s);
    int64_t deadline_ns;
    size_t acknowledged, first_lists, failures, permanent;
    char failure[600], granted[200], grant_error[400];
    bool stopped;
};

static void on_registered(void *arg, const char *resource, size_t devices)
{
    ((struct scene *)arg)->acknowledged++;
}

static void on_first_list(void *arg, const char *resource)
{
    ((struct scene *)arg)->first_lists++;
}

static void on_failed(void *arg, const char *resource, bool permanent, const char *why)
{
    struct scene *s = arg;
    s->failures++;
    s->permanent += permanent;
    snprintf(s->failure, sizeof(s->failure), "%s", why);
}

static void on_granted(void *arg, const char *resource, const char *ids, const char *error)
{
    struct scene *s = arg;
    snprintf(s->granted, sizeof(s->granted), "%s %s", resource, ids);
    snprintf(s->grant_error, sizeof(s->grant_error), "%s", error ? error : "");
}

static void on_stopped(void *arg)
{
    ((struct scene *)arg)->stopped = true;
}

static void tick(void *arg)
{
    struct scene *s = arg;
    if (s->until(s))
        loop_stop(s->loop, 1);
    else if (host_mono_ns(&s->host.host) > s->deadline_ns)
        loop_stop(s->loop, 0);
    else
        timer_set(&s->tick, 1);
}

static bool reached(struct scene *s, bool (*until)(struct scene *s), int64_t ms)
{
    s->until = until;
    s->deadline_ns = host_mono_ns(&s->host.host) + ms * 1000000;
    timer_set(&s->tick, 0);
    return loop_run(s->loop) == 1;
}

#define wait_for(s, until)                                                                         \
    do {                                                                                           \
        if (!reached(s, until, HANG_MS))                                                           \
            fail_msg("%s: hangs; last failure: %s", #until, (s)->failure);                         \
    } while (0)

static bool never(struct scene *s)
{
    return false;
}

static void publish(struct scene *s)
{
    struct inventory *before = s->inv;
    const struct inventory_input in = { .survey = s->survey,
                                        .config = &s->config,
                                        .before = before };
    struct error err;
    if (inventory_build(&in, &s->inv, &err) < 0)
        fail_msg("%s", err.text);
    plugin_set_publish(s->set, s->inv, &s->config);
    inventory_free(before);
}

static void scene_init(struct scene *s, const char *profile)
{
    struct error err;
    memset(s, 0, sizeof(*s));
    s->survey = fixture_survey(profile);
    fixture_host_init(&s->host, s->survey, 0, NULL, "/", NULL);
    s->config.list_strategies = LIST_ENVVAR;
    assert_int_equal(loop_new(&s->loop, &err), 0);
    timer_init(&s->tick, s->loop, tick, s);
    struct kubelet *k = &s->kubelet;
    k->loop = s->loop;
    snprintf(k->dir, sizeof(k->dir), "%s/device-plugins", s->host.dir);
    snprintf(k->socket, sizeof(k->socket), "%s/kubelet.sock", k->dir);
    assert_int_equal(mkdir(k->dir, 0755), 0);
    buf_init(&k->list, TEXT);
    buf_z(&k->list, "");
    s->set_config = (struct plugin_set_config){
        .host = &s->host.host,
        .device_plugin_dir = k->dir,
        .kubelet_socket = k->socket,
        .arg = s,
        .registered = on_registered,
        .first_list = on_first_list,
        .failed = on_failed,
        .granted = on_granted,
    };
}

static void scene_start(struct scene *s)
{
    struct error err;
    if (plugin_set_new(s->loop, &s->set_config, &s->set, &err) < 0)
        fail_msg("%s", err.text);
    publish(s);
}

static void scene_done(struct scene *s)
{
    plugin_set_free(s->set);
    kubelet_stop(&s->kubelet);
    buf_done(&s->kubelet.list);
    inventory_free(s->inv);
    timer_done(&s->tick);
    loop_free(s->loop);
    survey_unref(s->survey);
    fixture_host_done(&s->host);
}

static struct plugin_status status_of(const struct scene *s)
{
    struct plugin_status st[4];
    assert_int_equal(plugin_set_status(s->set, st, 4), 1);
    return st[0];
}

static bool socket_there(const struct scene *s, const char *name)
{
    char path[400];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", s->kubelet.dir, name);
    return lstat(path, &st) == 0;
}

static bool listed(struct scene *s)
{
    return s->kubelet.lists > 0 && s->acknowledged > 0;
}

/* ---- tests ---- */

static void test_register_and_list(void **state)
{
    struct scene s;
    scene_init(&s, "a100");
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);
    assert_int_equal(s.kubelet.registrations, 1);
    assert_int_equal(s.first_lists, 1);
    assert_int_equal(s.failures, 0);
    assert_true(str_starts(str_of(s.kubelet.list.p), G0 " Healthy numa 3\n"));
    struct plugin_status st = status_of(&s);
    assert_string_equal(st.resource, "nvidia.com/gpu");
    assert_true(st.registered && st.stream_open);
    assert_int_equal(st.devices, 8);
    assert_int_equal(st.healthy, 8);
    assert_null(st.last_error);

    /* the same again sends nothing */
    publish(&s);
    assert_false(reached(&s, never, 20));
    assert_int_equal(s.kubelet.lists, 1);
    scene_done(&s);
}

static bool unhealthy_listed(struct scene *s)
{
    return strstr(s->kubelet.list.p, G0 " Unhealthy numa 3\n") != NULL;
}

static bool healthy_listed(struct scene *s)
{
    return strstr(s->kubelet.list.p, G0 " Healthy numa 3\n") != NULL;
}

static void test_change(void **state)
{
    struct scene s;
    scene_init(&s, "a100");
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);
    s.survey->gpus[0].lost = 15;
    publish(&s);
    wait_for(&s, unhealthy_listed);
    assert_int_equal(status_of(&s).healthy, 7);
    s.survey->gpus[0].lost = 0;
    publish(&s);
    wait_for(&s, healthy_listed);
    assert_int_equal(s.kubelet.registrations, 1);
    scene_done(&s);
}

static size_t open_files(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* B-098: kubelet restarts, wipes the directory, new inode; fifty times. */
static void test_fifty_restarts(void **state)
{
    struct scene s;
    int64_t took[50];
    size_t files = 0;
    scene_init(&s, "a100");
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);
    for (size_t i = 0; i < ARRAY_LEN(took); i++) {
        kubelet_stop(&s.kubelet);
        wipe(s.kubelet.dir);
        if (i % 2)
            assert_false(reached(&s, never, 5)); /* our sockets come back before kubelet does */
        s.kubelet.lists = s.acknowledged = 0;
        int64_t from = host_mono_ns(&s.host.host);
        kubelet_start(&s.kubelet);
        wait_for(&s, listed);
        took[i] = host_mono_ns(&s.host.host) - from;
        assert_true(str_starts(str_of(s.kubelet.list.p), G0 " Healthy numa 3\n"));
        assert_false(reached(&s, never, 5));
        if (i == 5)
            files = open_files();
    }
    assert_true(open_files() <= files + 2);
    assert_true(socket_there(&s, "nvidia-gpu.sock"));
    qsort(took, ARRAY_LEN(took), sizeof(took[0]), by_value);
    print_message("kubelet.sock re-created -> list: median %.1f ms, slowest %.1f ms\n",
                  (double)took[25] / 1e6, (double)took[49] / 1e6);
    scene_done(&s);
}

/* A dial between bind and listen is refused: here the name is there and nobody behind it. */
static void test_name_before_listener(void **state)
{
    struct scene s;
    int64_t slowest = 0;
    scene_init(&s, "a100");
    char behind[200];
    snprintf(behind, sizeof(behind), "%s/kubelet-behind.sock", s.host.dir);
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);
    for (int i = 0; i < 12; i++) {
        kubelet_stop(&s.kubelet);
        wipe(s.kubelet.dir);
        char name[200];
        snprintf(name, sizeof(name), "%s/kubelet.sock", s.kubelet.dir);
        assert_int_equal(symlink(behind, name), 0);
        assert_false(reached(&s, never, i));
        s.kubelet.lists = s.acknowledged = 0;
        snprintf(s.kubelet.socket, sizeof(s.kubelet.socket), "%s", behind);
        int64_t from = host_mono_ns(&s.host.host);
        kubelet_start(&s.kubelet);
        wait_for(&s, listed);
        slowest = MAX(slowest, host_mono_ns(&s.host.host) - from);
    }
    print_message("listening -> list: slowest %.1f ms\n", (double)slowest / 1e6);
    scene_done(&s);
}

static bool registered_again(struct scene *s)
{
    return s->kubelet.registrations >= 2 && s->kubelet.lists >= 2;
}

static bool refused_for_good(struct scene *s)
{
    return s->permanent > 0;
}

/* B-099: the stream ends, kubelet.sock stays. */
static void test_stream_lost(void **state)
{
    struct scene s;
    scene_init(&s, "a100");
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);
    hang_up(&s.kubelet);
    wait_for(&s, registered_again);
    assert_true(status_of(&s).stream_open);
    scene_done(&s);
}

/* B-099: everything is open and well, and kubelet has lost our devices all the same. */
static void test_register_again(void **state)
{
    struct scene s;
    scene_init(&s, "a100");
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);
    plugin_set_register_again(s.set, "nvidia.com/no-such");
    assert_false(reached(&s, registered_again, 100));
    plugin_set_register_again(s.set, "nvidia.com/gpu");
    plugin_set_register_again(s.set, "nvidia.com/gpu"); /* at it already */
    wait_for(&s, registered_again);
    assert_int_equal(s.kubelet.registrations, 2);
    assert_true(status_of(&s).stream_open);
    assert_int_equal(s.failures, 0);
    kubelet_stop(&s.kubelet);
    s.kubelet.mood = REFUSE_VERSION; /* then not even when asked */
    kubelet_start(&s.kubelet);
    wait_for(&s, refused_for_good);
    plugin_set_register_again(s.set, "nvidia.com/gpu");
    assert_false(reached(&s, never, 100));
    assert_int_equal(s.kubelet.registrations, 3);
    scene_done(&s);
}

/* Our socket is deleted while kubelet lives: made again, registered again; the old stream is not
 * cut before the new one is there. */
static void test_socket_deleted(void **state)
{
    struct scene s;
    char path[400];
    scene_init(&s, "a100");
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);
    snprintf(path, sizeof(path), "%s/nvidia-gpu.sock", s.kubelet.dir);
    s.kubelet.mood = NO_STREAM;
    assert_int_equal(unlink(path), 0);
    assert_false(reached(&s, never, 100));
    assert_int_equal(s.kubelet.registrations, 2);
    assert_true(socket_there(&s, "nvidia-gpu.sock"));
    assert_false(s.kubelet.stream_ended);
    s.survey->gpus[0].lost = 15;
    publish(&s);
    wait_for(&s, unhealthy_listed);
    s.kubelet.mood = WELCOME;
    assert_int_equal(unlink(path), 0);
    wait_for(&s, registered_again);
    scene_done(&s);
}

/* B-103: a version that kubelet does not take. */
static void test_version_refused(void **state)
{
    struct scene s;
    scene_init(&s, "a100");
    s.kubelet.mood = REFUSE_VERSION;
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, refused_for_good);
    assert_non_null(strstr(s.failure, "Supported version is \"v2\""));
    assert_non_null(strstr(s.failure, "Supported here: device plugin API v1beta1"));
    assert_false(reached(&s, never, 600));
    assert_int_equal(s.kubelet.registrations, 1);
    assert_int_equal(s.failures, 1);
    assert_false(status_of(&s).registered);
    assert_non_null(status_of(&s).last_error);

    kubelet_stop(&s.kubelet);
    s.kubelet.mood = WELCOME;
    kubelet_start(&s.kubelet);
    wait_for(&s, listed);
    assert_null(status_of(&s).last_error);
    scene_done(&s);
}

static void test_refused_once(void **state)
{
    struct scene s;
    scene_init(&s, "a100");
    s.kubelet.mood = REFUSE_ONCE;
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);
    assert_int_equal(s.kubelet.registrations, 2);
    assert_int_equal(s.failures, 1);
    assert_string_equal(s.failure, "kubelet refused the registration: try later (status 2)");
    scene_done(&s);
}

static bool told_absent(struct scene *s)
{
    return s->failures > 0;
}

static void test_kubelet_absent(void **state)
{
    struct scene s;
    scene_init(&s, "a100");
    scene_start(&s);
    wait_for(&s, told_absent);
    assert_non_null(strstr(s.failure, "kubelet does not answer at "));
    assert_false(reached(&s, never, 400));
    assert_int_equal(s.failures, 1); /* once per cause, however often it was tried */
    assert_true(socket_there(&s, "nvidia-gpu.sock"));
    kubelet_start(&s.kubelet);
    wait_for(&s, listed);
    scene_done(&s);
}

static bool streaming(struct scene *s)
{
    return s->kubelet.lists > 0;
}

/* A kubelet that reads the list but is slow to answer Register has registered us. */
static void test_stream_before_answer(void **state)
{
    struct scene s;
    scene_init(&s, "a100");
    s.kubelet.mood = NEVER_ANSWER;
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, streaming);
    assert_true(status_of(&s).registered);
    assert_int_equal(s.acknowledged, 0);
    scene_done(&s);
}

static void test_no_stream(void **state)
{
    struct scene s;
    scene_init(&s, "a100");
    s.kubelet.mood = NO_STREAM;
    s.set_config.expect_ms = 50;
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, told_absent);
    assert_non_null(strstr(s.failure, "did not open the device list within 50 ms"));
    s.kubelet.mood = WELCOME;
    wait_for(&s, streaming);
    assert_int_equal(s.kubelet.registrations, 2);
    scene_done(&s);
}

/* ---- calls ---- */

struct answer {
    bool there;
    enum grpc_status status;
    char text[400];
    struct buf message;
};

static struct answer *awaited;

static bool answer_there(struct scene *s)
{
    return awaited->there;
}

static void answer_came(void *arg, enum grpc_status status, const char *text, struct str message)
{
    struct answer *a = arg;
    a->there = true;
    a->status = status;
    snprintf(a->text, sizeof(a->text), "%s", text ? text : "");
    buf_str(&a->message, message);
}

static void call(struct scene *s, const char *method, struct str request, struct answer *a)
{
    char path[100];
    struct error err;
    *a = (struct answer){ .there = false };
    buf_init(&a->message, TEXT);
    snprintf(path, sizeof(path), "/v1beta1.DevicePlugin/%s", method);
    if (grpc_client_call(s->kubelet.client, path, request, 2000, answer_came, a, &err) < 0)
        fail_msg("%s", err.text);
    awaited = a;
    wait_for(s, answer_there);
}

static void test_calls(void **state)
{
    static const char *const known[] = { G0, NULL }, *const unknown[] = { "GPU-x", NULL };
    const char *const *request_known[] = { known }, *const * request_unknown[] = { unknown };
    struct scene s;
    struct answer a;
    auto_buf request, text;
    buf_init(&request, TEXT);
    buf_init(&text, TEXT);
    scene_init(&s, "a100");
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);

    call(&s, "GetDevicePluginOptions", STR(""), &a);
    assert_int_equal(a.status, GRPC_OK);
    assert_memory_equal(a.message.p, "\x10\x01", 2);
    buf_done(&a.message);

    call(&s, "PreStartContainer", STR(""), &a);
    assert_int_equal(a.status, GRPC_OK);
    assert_int_equal(a.message.n, 0);
    buf_done(&a.message);

    allocate_request(&request, request_known, 1);
    call(&s, "Allocate", buf_view(&request), &a);
    assert_int_equal(a.status, GRPC_OK);
    answer_text(buf_view(&a.message), &text);
    assert_string_equal(text.p, "container 0\nenv NVIDIA_VISIBLE_DEVICES=" G0 "\n");
    assert_string_equal(s.granted, "nvidia.com/gpu " G0);
    assert_string_equal(s.grant_error, "");
    buf_done(&a.message);

    buf_reset(&request);
    allocate_request(&request, request_unknown, 1);
    call(&s, "Allocate", buf_view(&request), &a);
    assert_int_equal(a.status, GRPC_UNKNOWN);
    assert_string_equal(a.text, "invalid allocation request for \"nvidia.com/gpu\": invalid "
                                "request: unknown device: GPU-x");
    assert_string_equal(s.granted, "nvidia.com/gpu GPU-x");
    assert_string_equal(s.grant_error, a.text);
    buf_done(&a.message);

    buf_reset(&request);
    buf_reset(&text);
    preferred_request(&request, known, 1, NULL, 0, 1);
    call(&s, "GetPreferredAllocation", buf_view(&request), &a);
    assert_int_equal(a.status, GRPC_OK);
    preferred_text(buf_view(&a.message), &text);
    assert_string_equal(text.p, G0 "\n");
    buf_done(&a.message);

    call(&s, "NoSuchMethod", STR(""), &a);
    assert_int_equal(a.status, GRPC_UNIMPLEMENTED);
    buf_done(&a.message);
    scene_done(&s);
}

/* ---- resources that go, the end ---- */

static bool empty_listed(struct scene *s)
{
    return s->kubelet.lists > 0 && s->kubelet.list.n == 0;
}

static bool socket_gone(struct scene *s)
{
    return !socket_there(s, "nvidia-gpu.sock");
}

static bool parts_served(struct scene *s)
{
    return socket_there(s, "nvidia-mig-1g.5gb.sock");
}

static bool socket_back(struct scene *s)
{
    return !socket_gone(s);
}

/* A resource that vanishes is emptied, served on for a while, then ended; it may come back. */
static void test_vanished(void **state)
{
    struct scene s;
    scene_init(&s, "h200");
    s.set_config.grace_ms = 100;
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, listed);
    struct survey *full = s.survey;
    s.survey->n_gpus = 0;
    publish(&s);
    wait_for(&s, empty_listed);
    assert_true(socket_there(&s, "nvidia-gpu.sock"));
    assert_int_equal(status_of(&s).devices, 0);
    wait_for(&s, socket_gone);
    publish(&s); /* empty as before: nothing starts */
    assert_false(reached(&s, never, 20));
    assert_true(socket_gone(&s));
    full->n_gpus = 1;
    s.kubelet.lists = s.acknowledged = 0;
    publish(&s);
    wait_for(&s, socket_back);
    wait_for(&s, listed);
    assert_true(s.kubelet.list.n > 0);

    full->n_gpus = 0; /* gone and back within the grace: nothing ends */
    publish(&s);
    wait_for(&s, empty_listed);
    full->n_gpus = 1;
    s.kubelet.lists = 0;
    publish(&s);
    wait_for(&s, listed);
    assert_false(reached(&s, never, 150));
    assert_true(socket_there(&s, "nvidia-gpu.sock"));
    scene_done(&s);
}

static void test_many_resources(void **state)
{
    struct scene s;
    scene_init(&s, "parts");
    s.config.mig_strategy = MIG_STRATEGY_MIXED;
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, parts_served);
    struct plugin_status st[8];
    assert_int_equal(plugin_set_status(s.set, st, 8), 4);
    assert_int_equal(plugin_set_status(s.set, st, 2), 2);
    scene_done(&s);
}

static bool stopped(struct scene *s)
{
    return s->stopped;
}

static void test_stop(void **state)
{
    struct scene s;
    scene_init(&s, "parts");
    s.config.mig_strategy = MIG_STRATEGY_MIXED;
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, parts_served);
    fixture_file(&s.host, "/device-plugins/nvidia-other.sock", "");
    plugin_set_stop(s.set, on_stopped, &s);
    assert_false(s.stopped);
    wait_for(&s, stopped);
    assert_false(socket_there(&s, "nvidia-gpu.sock"));
    assert_false(socket_there(&s, "nvidia-mig-1g.5gb.sock"));
    assert_true(socket_there(&s, "nvidia-other.sock"));
    publish(&s); /* too late: ignored */
    assert_false(socket_there(&s, "nvidia-gpu.sock"));
    scene_done(&s);

    scene_init(&s, "h200"); /* nothing published yet */
    struct error err;
    assert_int_equal(plugin_set_new(s.loop, &s.set_config, &s.set, &err), 0);
    plugin_set_stop(s.set, on_stopped, &s);
    wait_for(&s, stopped);
    scene_done(&s);
}

/* A socket on which somebody else answers is not taken away. */
static void test_foreign_socket(void **state)
{
    struct scene s;
    struct kubelet other = { .registrations = 0 };
    scene_init(&s, "h200");
    other.loop = s.loop;
    snprintf(other.socket, sizeof(other.socket), "%s/nvidia-gpu.sock", s.kubelet.dir);
    kubelet_start(&other);
    kubelet_start(&s.kubelet);
    scene_start(&s);
    wait_for(&s, told_absent);
    assert_non_null(strstr(s.failure, "nvidia-gpu.sock"));
    assert_int_equal(s.kubelet.registrations, 0);
    kubelet_stop(&other);
    wait_for(&s, listed);
    scene_done(&s);
}

static void test_no_registration(void **state)
{
    struct scene s;
    scene_init(&s, "h200");
    s.set_config.kubelet_socket = "";
    kubelet_start(&s.kubelet);
    scene_start(&s);
    assert_false(reached(&s, never, 50));
    assert_int_equal(s.kubelet.registrations, 0);
    assert_true(socket_there(&s, "nvidia-gpu.sock"));
    assert_false(status_of(&s).registered);
    scene_done(&s);
}

/* kubelet.sock elsewhere than our sockets: both directories are watched. */
static void test_socket_elsewhere(void **state)
{
    struct scene s;
    char dir[160];
    scene_init(&s, "h200");
    snprintf(dir, sizeof(dir), "%s/elsewhere", s.host.dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(s.kubelet.socket, sizeof(s.kubelet.socket), "%s/kubelet.sock", dir);
    scene_start(&s);
    wait_for(&s, told_absent);
    kubelet_start(&s.kubelet);
    wait_for(&s, listed);
    scene_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_register_and_list),
        cmocka_unit_test(test_change),
        cmocka_unit_test(test_fifty_restarts),
        cmocka_unit_test(test_name_before_listener),
        cmocka_unit_test(test_stream_lost),
        cmocka_unit_test(test_register_again),
        cmocka_unit_test(test_socket_deleted),
        cmocka_unit_test(test_version_refused),
        cmocka_unit_test(test_refused_once),
        cmocka_unit_test(test_kubelet_absent),
        cmocka_unit_test(test_stream_before_answer),
        cmocka_unit_test(test_no_stream),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_vanished),
        cmocka_unit_test(test_many_resources),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_foreign_socket),
        cmocka_unit_test(test_no_registration),
        cmocka_unit_test(test_socket_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
