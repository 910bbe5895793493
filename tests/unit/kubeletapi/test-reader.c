/* SPDX-License-Identifier: Apache-2.0 */
/* The reader on a loop: files on a thread, pod-resources from a real server. */
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

#include "kubeletapi-help.h"
#include "wire/grpc.h"
#include "wire/pbwriter.h"

struct bed {
    struct loop *loop;
    struct host host;
    char *root, *dir, *socket;
    struct grpc_server *server;
    struct in_use_reader *reader;
    struct in_use *got;
    struct error err;
    int calls, stop_after;
    bool mute; /* the server does not answer */
    struct timer guard;
};

static void late(void *arg)
{
    fail_msg("the reader did not report");
}

static void list(struct grpc_call *call, struct str request, void *arg)
{
    struct bed *b = arg;
    if (b->mute)
        return;
    auto_buf out;
    buf_init(&out, 65536);
    size_t pod = pbw_begin(&out, 1);
    pbw_str(&out, 1, STR("trainer"));
    pbw_str(&out, 2, STR("default"));
    size_t container = pbw_begin(&out, 3);
    pbw_str(&out, 1, STR("main"));
    size_t devices = pbw_begin(&out, 2);
    pbw_str(&out, 1, STR("nvidia.com/gpu"));
    pbw_item(&out, 2, STR("GPU-a"));
    pbw_end(&out, devices);
    pbw_end(&out, container);
    pbw_end(&out, pod);
    grpc_reply(call, buf_view(&out));
}

static const struct grpc_method methods[] = { { "/v1.PodResourcesLister/List", list, false } };

static void serve(struct bed *b)
{
    struct error err = { 0 };
    const struct grpc_server_config config = { .methods = methods, .n_methods = 1, .arg = b };
    if (grpc_server_new(b->loop, b->socket, 0600, &config, &b->server, &err) < 0)
        fail_msg("%s", err.text);
}

static void set_up(struct bed *b, bool podresources)
{
    struct error err;
    *b = (struct bed){ .root = temp_dir(), .stop_after = 1 };
    host_at(&b->host, b->root);
    b->dir = x_printf("%s/device-plugins", b->root);
    b->socket = x_printf("%s/kubelet.sock", b->root);
    make_dir(b->root, "/device-plugins");
    assert_int_equal(loop_new(&b->loop, &err), 0);
    timer_init(&b->guard, b->loop, late, b);
    timer_set(&b->guard, 20000);
    const struct in_use_config config = { .host = &b->host,
                                          .device_plugin_dir = b->dir,
                                          .podresources_socket = podresources ? b->socket : NULL };
    assert_int_equal(in_use_reader_new(b->loop, &config, &b->reader, &err), 0);
}

static void tear_down(struct bed *b)
{
    in_use_free(b->got);
    in_use_reader_free(b->reader);
    grpc_server_free(b->server);
    timer_done(&b->guard);
    loop_free(b->loop);
    host_done(&b->host);
    free(b->dir);
    free(b->socket);
    remove_dir(b->root);
}

static void done(void *arg, struct in_use *u, const struct error *e)
{
    struct bed *b = arg;
    assert_true(!u == !!e);
    in_use_free(b->got);
    b->got = u;
    if (e)
        b->err = *e;
    if (++b->calls == b->stop_after)
        loop_stop(b->loop, 0);
}

static void read_once(struct bed *b)
{
    in_use_read(b->reader, done, b);
    loop_run(b->loop);
}

static void put_checkpoint(struct bed *b, bool old)
{
    auto_free char *text =
        checkpoint_text("[" ENTRY("u-1", "main", "nvidia.com/gpu", "[\"GPU-a\"]") "," ENTRY(
                            "u-2", "main", "nvidia.com/gpu", "[\"GPU-b\"]") "]",
                        "{}");
    put_file(b->dir, CHECKPOINT_FILE, text);
    struct timeval times[2] = { { .tv_sec = time(NULL) - (old ? 1000 : 0) } };
    times[1] = times[0];
    auto_free char *path = x_printf("%s/%s", b->dir, CHECKPOINT_FILE);
    assert_int_equal(utimes(path, times), 0);
}

static void fresh_kubelet(void **state)
{
    struct bed b;
    set_up(&b, false);
    int64_t before = host_mono_ns(&b.host);
    read_once(&b);
    assert_non_null(b.got);
    assert_true(b.got->checkpoint_read);
    assert_int_equal(b.got->n, 0);
    assert_string_equal(b.got->note, "");
    assert_true(b.got->began_ns >= before && b.got->began_ns <= host_mono_ns(&b.host));
    tear_down(&b);
}

static void both_sources(void **state)
{
    struct bed b;
    set_up(&b, true);
    serve(&b);
    put_checkpoint(&b, false);
    make_dir(b.root, "/sys/fs/cgroup/kubepods/podu-9");
    read_once(&b);
    assert_non_null(b.got);
    assert_true(b.got->checkpoint_read && b.got->podresources_read);
    assert_int_equal(b.got->n, 2);
    assert_string_equal(b.got->uses[0].pod_name, "trainer");
    assert_true(use_holds(&b.got->uses[0])); /* listed, though it has no cgroup yet */
    assert_false(use_holds(&b.got->uses[1]));
    assert_string_equal(b.got->note, "");
    tear_down(&b);
}

/* kubelet writes the checkpoint before it makes the cgroup: only its list, or time, proves. */
static void young_checkpoint_without_a_list(void **state)
{
    for (int old = 0; old < 2; old++) {
        struct bed b;
        set_up(&b, old == 0);
        put_checkpoint(&b, old);
        make_dir(b.root, "/sys/fs/cgroup/kubepods/podu-1");
        read_once(&b);
        assert_true(b.got->checkpoint_read);
        assert_false(b.got->podresources_read);
        assert_true(use_holds(&b.got->uses[0]));
        assert_int_equal(use_holds(&b.got->uses[1]), !old);
        if (!old)
            assert_non_null(strstr(b.got->note, "pod-resources"));
        tear_down(&b);
    }
}

static void broken_checkpoint(void **state)
{
    for (int served = 0; served < 2; served++) {
        struct bed b;
        set_up(&b, true);
        put_file(b.dir, CHECKPOINT_FILE, "{\"Data\":");
        if (served)
            serve(&b);
        read_once(&b);
        if (served) {
            assert_false(b.got->checkpoint_read);
            assert_true(b.got->podresources_read);
            assert_int_equal(b.got->n, 1);
            assert_non_null(strstr(b.got->note, CHECKPOINT_FILE));
        } else {
            assert_null(b.got);
            assert_int_equal(b.err.code, ERR_UNAVAILABLE);
            assert_non_null(strstr(b.err.text, CHECKPOINT_FILE));
            assert_non_null(strstr(b.err.text, "pod-resources"));
        }
        tear_down(&b);
    }
}

static void hung_kubelet(void **state)
{
    struct bed b;
    set_up(&b, true);
    b.mute = true;
    serve(&b);
    put_checkpoint(&b, true);
    int64_t before = host_mono_ns(&b.host);
    read_once(&b);
    assert_true(host_mono_ns(&b.host) - before < INT64_C(4000000000));
    assert_true(b.got->checkpoint_read);
    assert_false(b.got->podresources_read);
    assert_non_null(strstr(b.got->note, "pod-resources"));
    tear_down(&b);
}

/* Any number of calls during a reading: one more. */
static void calls_are_joined(void **state)
{
    struct bed b;
    set_up(&b, false);
    b.stop_after = 2;
    for (int i = 0; i < 5; i++)
        in_use_read(b.reader, done, &b);
    loop_run(b.loop);
    assert_int_equal(b.calls, 2);
    b.stop_after = 3;
    read_once(&b);
    assert_int_equal(b.calls, 3);
    tear_down(&b);
}

static void freed_in_the_middle(void **state)
{
    for (int i = 0; i < 20; i++) {
        struct bed b;
        set_up(&b, false);
        put_checkpoint(&b, true);
        in_use_read(b.reader, done, &b);
        if (i % 2)
            usleep(1000);
        tear_down(&b);
    }
    usleep(20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_kubelet),
        cmocka_unit_test(both_sources),
        cmocka_unit_test(young_checkpoint_without_a_list),
        cmocka_unit_test(broken_checkpoint),
        cmocka_unit_test(hung_kubelet),
        cmocka_unit_test(calls_are_joined),
        cmocka_unit_test(freed_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
