/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "gpu/bytes.h"
#include "gpu/protocol.h"

static void pair(int fds[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        abort();
}

static int open_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void round_trip(void **state)
{
    static const size_t sizes[] = {
        0, 1, 100, MESSAGE_MAX - MESSAGE_HEADER, MESSAGE_MAX - MESSAGE_HEADER + 1, SURVEY_BYTES_MAX
    };
    int fds[2], before = open_fds();
    pair(fds);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct error err;
        auto_free char *text = x_alloc(sizes[i] + 1);
        memset(text, (int)i + 'a', sizes[i]);
        assert_int_equal(message_send(fds[0], MESSAGE_SURVEY, MESSAGE_RESTART, 77,
                                      (struct str){ text, sizes[i] }, &err),
                         0);
        auto_message m = { 0 };
        assert_int_equal(message_receive(fds[1], &m, &err), 1);
        assert_int_equal(m.kind, MESSAGE_SURVEY);
        assert_int_equal(m.id, 77);
        assert_true(m.flags & MESSAGE_RESTART);
        assert_true(str_eq(m.body, (struct str){ text, sizes[i] }));
        assert_int_equal(message_receive(fds[1], &m, &err), -ERR_UNAVAILABLE);
    }
    auto_free char *huge = x_alloc(2 * SURVEY_BYTES_MAX);
    assert_int_equal(message_send(fds[0], MESSAGE_SURVEY, 0, 1,
                                  (struct str){ huge, 2 * SURVEY_BYTES_MAX }, NULL),
                     -ERR_LIMIT);
    close(fds[0]);
    struct message m;
    assert_int_equal(message_receive(fds[1], &m, NULL), 0);
    assert_true(message_send(fds[1], MESSAGE_HELLO, 0, 0, STR("x"), NULL) < 0);
    close(fds[1]);
    assert_int_equal(open_fds(), before);
}

/* ---- a hostile other side ---- */

static void send_raw(int fd, struct str bytes, const int *attached, size_t n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = { 0 };
    char *p;
    memcpy(&p, &bytes.p, sizeof p);
    struct iovec part = { p, bytes.n };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
    if (n) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), attached, n * sizeof(int));
    }
    if (sendmsg(fd, &m, 0) != (ssize_t)bytes.n)
        abort();
}

static void head(struct buf *out, const char *magic, unsigned kind, unsigned flags, size_t length)
{
    buf_init(out, MESSAGE_MAX);
    buf_add(out, magic, 4);
    bytes_put(out, kind, 2);
    bytes_put(out, flags, 2);
    bytes_put(out, 5, 4);
    bytes_put(out, length, 4);
}

static int memfd(size_t size, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0 || (seals && fcntl(fd, F_ADD_SEALS, seals) < 0))
        abort();
    return fd;
}

static void refused(const char *what, const char *magic, unsigned kind, unsigned flags,
                    size_t length, size_t body, const int *attached, size_t n)
{
    int fds[2];
    auto_buf bytes;
    struct message m;
    struct error err;
    pair(fds);
    int before = open_fds();
    head(&bytes, magic, kind, flags, length);
    for (size_t i = 0; i < body; i++)
        buf_ch(&bytes, 'x');
    send_raw(fds[0], buf_view(&bytes), attached, n);
    int r = message_receive(fds[1], &m, &err);
    if (r >= 0 || r == -ERR_UNAVAILABLE)
        fail_msg("%s: answer %d", what, r);
    assert_int_equal(open_fds(), before); /* what came along is closed */
    close(fds[0]);
    close(fds[1]);
}

static void hostile(void **state)
{
    const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    const size_t large = 100000;
    int sealed = memfd(large, all), open_end = memfd(large, F_SEAL_SHRINK | F_SEAL_GROW),
        empty = memfd(0, all), plain = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int several[] = { sealed, empty, plain, open_end, sealed, sealed };
    refused("wrong magic", "MWP2", MESSAGE_EVENT, 0, 4, 4, NULL, 0);
    refused("kind 0", "MWP1", 0, 0, 4, 4, NULL, 0);
    refused("kind 6", "MWP1", MESSAGE_EVENT + 1, 0, 4, 4, NULL, 0);
    refused("unknown flag", "MWP1", MESSAGE_EVENT, 4, 4, 4, NULL, 0);
    refused("length too large", "MWP1", MESSAGE_EVENT, 0, 5, 4, NULL, 0);
    refused("length too small", "MWP1", MESSAGE_EVENT, 0, 3, 4, NULL, 0);
    refused("length of all ones", "MWP1", MESSAGE_EVENT, 0, UINT32_MAX, 4, NULL, 0);
    refused("large without memfd", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, large, 0, NULL, 0);
    refused("large with a body", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, large, 4, &sealed, 1);
    refused("large past the limit", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, 1 << 30, 0, &sealed, 1);
    refused("large that is small", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, 8, 0, &sealed, 1);
    refused("not sealed against writing", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, large, 0,
            &open_end, 1);
    refused("shorter than announced", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, large + 1, 0, &sealed,
            1);
    refused("empty", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, large, 0, &empty, 1);
    refused("no memfd at all", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, large, 0, &plain, 1);
    refused("small with a descriptor", "MWP1", MESSAGE_EVENT, 0, 4, 4, &sealed, 1);
    refused("two descriptors", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, large, 0, several, 2);
    refused("six descriptors", "MWP1", MESSAGE_SURVEY, MESSAGE_LARGE, large, 0, several, 6);

    int fds[2];
    struct message m;
    pair(fds);
    send_raw(fds[0], STR("MWP1"), NULL, 0);
    assert_int_equal(message_receive(fds[1], &m, NULL), -ERR_INVALID);
    auto_free char *big = x_alloc(MESSAGE_MAX + 1);
    send_raw(fds[0], (struct str){ big, MESSAGE_MAX + 1 }, NULL, 0);
    assert_int_equal(message_receive(fds[1], &m, NULL), -ERR_LIMIT);
    close(fds[0]);
    close(fds[1]);
    close(sealed);
    close(open_end);
    close(empty);
    close(plain);
}

static void no_memory(void **state)
{
    int fds[2];
    struct message m;
    pair(fds);
    auto_free char *text = x_alloc(100000);
    for (uint64_t k = 1; k <= 2; k++) {
        assert_int_equal(
            message_send(fds[0], MESSAGE_SURVEY, 0, 1, (struct str){ text, 100000 }, NULL), 0);
        mem_fail_at(k);
        assert_int_equal(message_receive(fds[1], &m, NULL), -ERR_LIMIT);
        mem_fail_at(0);
        if (k == 1) /* nothing was taken off the socket yet */
            assert_int_equal(message_receive(fds[1], &m, NULL), 1);
        if (k == 1)
            message_done(&m);
    }
    close(fds[0]);
    close(fds[1]);
}

/* ---- bodies ---- */

static void bodies(void **state)
{
    struct error err;
    auto_buf b;
    buf_init(&b, MESSAGE_MAX);
    struct hello h = { .version = PROTOCOL_VERSION, .build = "0.1+ab", .notes = "seccomp: no" }, h2;
    hello_encode(&h, &b);
    assert_int_equal(hello_decode(buf_view(&b), &h2, &err), 0);
    assert_string_equal(h2.build, "0.1+ab");
    assert_string_equal(h2.notes, "seccomp: no");
    for (size_t n = 0; n < b.n; n++)
        assert_int_equal(hello_decode((struct str){ b.p, n }, &h2, &err), -ERR_INVALID);
    buf_reset(&b);
    bytes_put(&b, PROTOCOL_VERSION + 1, 4);
    buf_z(&b, "whatever a later version says");
    assert_int_equal(hello_decode(buf_view(&b), &h2, &err), 0);
    assert_int_equal(h2.version, PROTOCOL_VERSION + 1);

    struct gpu_event e = { GPU_EVENT_XID, "GPU-1", 3, UINT32_MAX, 79 }, e2;
    buf_reset(&b);
    event_encode(&e, &b);
    assert_int_equal(event_decode(buf_view(&b), &e2, &err), 0);
    assert_int_equal(e2.kind, GPU_EVENT_XID);
    assert_string_equal(e2.uuid, "GPU-1");
    assert_int_equal(e2.gi, 3);
    assert_int_equal(e2.ci, UINT32_MAX);
    assert_int_equal(e2.value, 79);
    for (size_t n = 0; n < b.n; n++)
        assert_int_equal(event_decode((struct str){ b.p, n }, &e2, &err), -ERR_INVALID);
    buf_ch(&b, 'x');
    assert_int_equal(event_decode(buf_view(&b), &e2, &err), -ERR_INVALID);
    buf_reset(&b);
    e.kind = (enum gpu_event_kind)(GPU_EVENT_WAIT_FAILED + 1);
    event_encode(&e, &b);
    assert_int_equal(event_decode(buf_view(&b), &e2, &err), -ERR_INVALID);
    buf_reset(&b);
    e = (struct gpu_event){ GPU_EVENT_XID, "GPU\n1", 0, 0, 0 };
    event_encode(&e, &b);
    assert_int_equal(event_decode(buf_view(&b), &e2, &err), -ERR_INVALID);

    struct start s = { PROTOCOL_VERSION, "b", true, STR("survey") }, s2;
    buf_reset(&b);
    start_encode(&s, &b);
    assert_int_equal(start_decode(buf_view(&b), &s2, &err), 0);
    assert_true(s2.watch);
    assert_true(str_is(s2.survey, "survey"));
    b.p[0]++;
    assert_int_equal(start_decode(buf_view(&b), &s2, &err), -ERR_UNSUPPORTED);
    assert_true(start_decode(STR(""), &s2, &err) < 0);
}

static void build(void **state)
{
    char id[BUILD_ID_SIZE], again[BUILD_ID_SIZE];
    build_id(id);
    build_id(again);
    assert_string_equal(id, again);
    assert_true(str_starts(str_of(id), METE_VERSION));
}

static void progress(void **state)
{
    int fd = -1, small = memfd(100, 0);
    struct nvml_progress *a;
    struct error err;
    assert_int_equal(progress_new(&fd, &a, &err), 0);
    struct nvml_progress *b = progress_map(fd);
    assert_non_null(b);
    a->calls = 5;
    assert_int_equal(b->calls, 5);
    assert_int_equal(ftruncate(fd, 0), -1); /* sealed: nobody can take the memory away */
    assert_null(progress_map(small));
    assert_null(progress_map(-1));
    progress_free(a);
    progress_free(b);
    progress_free(NULL);
    close(fd);
    close(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip), cmocka_unit_test(hostile), cmocka_unit_test(no_memory),
        cmocka_unit_test(bodies),     cmocka_unit_test(build),   cmocka_unit_test(progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
