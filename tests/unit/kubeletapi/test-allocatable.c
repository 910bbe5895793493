/* SPDX-License-Identifier: Apache-2.0 */
/* Kubelet's allocatable devices: counting them, and asking for them on a loop. */
#include "kubeletapi-help.h"
#include "kubeletapi/allocatable.h"
#include "wire/grpc.h"
#include "wire/pbwriter.h"

/* One ContainerDevices. */
static void put(struct buf *out, const char *resource, const char *const *ids, size_t n)
{
    size_t at = pbw_begin(out, 1);
    pbw_str(out, 1, str_of(resource));
    for (size_t i = 0; i < n; i++)
        pbw_item(out, 2, str_of(ids[i]));
    pbw_end(out, at);
}

static void put_answer(struct buf *out)
{
    static const char *const ids[] = { "GPU-a", "GPU-b", "GPU-c" };
    put(out, "nvidia.com/gpu", ids, 1);
    put(out, "example.com/nic", ids, 0);
    put(out, "nvidia.com/gpu", ids + 1, 2);
}

static void counts(void **state)
{
    auto_buf answer;
    auto_arena arena;
    struct allocatable_count *got;
    size_t n;
    struct error err;
    buf_init(&answer, 65536);
    arena_init(&arena, 1024 * 1024);
    assert_int_equal(allocatable_parse(STR(""), &arena, &got, &n, &err), 0);
    assert_int_equal(n, 0);
    put_answer(&answer);
    assert_int_equal(allocatable_parse(buf_view(&answer), &arena, &got, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(got[0].resource, "nvidia.com/gpu");
    assert_int_equal(got[0].n, 3);
    assert_string_equal(got[1].resource, "example.com/nic");
    assert_int_equal(got[1].n, 0);
}

static void broken(void **state)
{
    static const char nul[] = "\x0a\x05\x0a\x03"
                              "a\0b";
    const struct {
        struct str text;
        enum error_code code;
    } cases[] = {
        { STR("\x0a"), ERR_INVALID },
        { STR("\x0a\x7f"), ERR_INVALID },
        { STR("\x0a\x02\x0a\x09"), ERR_INVALID },
        { { nul, 7 }, ERR_INVALID },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_arena arena;
        struct allocatable_count *got;
        size_t n;
        struct error err;
        arena_init(&arena, 1024 * 1024);
        assert_int_equal(allocatable_parse(cases[i].text, &arena, &got, &n, &err),
                         -(int)cases[i].code);
    }
    auto_buf many;
    auto_arena arena;
    struct allocatable_count *got;
    size_t n;
    struct error err;
    char name[32];
    buf_init(&many, 1024 * 1024);
    arena_init(&arena, 1024 * 1024);
    for (int i = 0; i <= ALLOCATABLE_RESOURCES_MAX; i++) {
        snprintf(name, sizeof name, "example.com/%d", i);
        put(&many, name, NULL, 0);
    }
    assert_int_equal(allocatable_parse(buf_view(&many), &arena, &got, &n, &err), -ERR_LIMIT);
}

static void memory(void **state)
{
    auto_buf answer;
    buf_init(&answer, 65536);
    put_answer(&answer);
    bool through = false;
    for (unsigned k = 1; !through; k++) {
        auto_arena arena;
        struct allocatable_count *got;
        size_t n = 0;
        struct error err;
        arena_init(&arena, 1024 * 1024);
        mem_fail_at(k);
        int r = allocatable_parse(buf_view(&answer), &arena, &got, &n, &err);
        through = mem_fail_at(0) < k;
        assert_int_equal(r, r == 0 ? 0 : -ERR_LIMIT);
        assert_int_equal(n, r == 0 ? 2 : 0);
    }
}

/* ---- asking ---- */

struct bed {
    struct loop *loop;
    char *root, *socket;
    struct grpc_server *server;
    struct allocatable_reader *reader;
    enum { ANSWERS, REFUSES, SILENT } how;
    int calls;
    size_t n;
    enum error_code code;
};

static void serve(struct grpc_call *call, struct str request, void *arg)
{
    const struct bed *b = arg;
    if (b->how == REFUSES)
        grpc_fail(call, GRPC_UNKNOWN, "%s", "API GetAllocatableResources disabled");
    if (b->how != ANSWERS)
        return;
    auto_buf out;
    buf_init(&out, 65536);
    put_answer(&out);
    grpc_reply(call, buf_view(&out));
}

static void told(void *arg, const struct allocatable_count *c, size_t n, const struct error *e)
{
    struct bed *b = arg;
    b->calls++;
    b->n = n;
    b->code = e ? e->code : 0;
    assert_true(!e == !!c);
    allocatable_read(b->reader, told, b); /* not from in here */
    loop_stop(b->loop, 0);
}

static void asking(void **state)
{
    static const struct grpc_method methods[] = {
        { "/v1.PodResourcesLister/GetAllocatableResources", serve, false }
    };
    struct error err;
    struct bed b = { .root = temp_dir() };
    b.socket = x_printf("%s/kubelet.sock", b.root);
    assert_int_equal(loop_new(&b.loop, &err), 0);
    b.reader = allocatable_reader_new(b.loop, b.socket);
    allocatable_read(b.reader, told, &b); /* nobody there */
    loop_run(b.loop);
    assert_int_equal(b.code, ERR_NOT_FOUND);
    const struct grpc_server_config config = { .methods = methods, .n_methods = 1, .arg = &b };
    assert_int_equal(grpc_server_new(b.loop, b.socket, 0600, &config, &b.server, &err), 0);
    for (b.how = ANSWERS; b.how <= SILENT; b.how++) {
        b.calls = 0;
        allocatable_read(b.reader, told, &b);
        allocatable_read(b.reader, told, &b); /* at it already */
        loop_run(b.loop);
        assert_int_equal(b.calls, 1);
        assert_int_equal(b.code, b.how == ANSWERS ? 0 : ERR_UNAVAILABLE);
        assert_int_equal(b.n, b.how == ANSWERS ? 2 : 0);
    }
    allocatable_read(b.reader, told, &b); /* freed while it waits */
    allocatable_reader_free(b.reader);
    grpc_server_free(b.server);
    loop_free(b.loop);
    free(b.socket);
    remove_dir(b.root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(broken),
        cmocka_unit_test(memory),
        cmocka_unit_test(asking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
