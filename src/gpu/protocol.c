/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "gpu/bytes.h"

static const char magic[4] = { 'M', 'W', 'P', '1' };

enum {
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE,
    FDS_MAX = 4, /* that we take off a message, to close them */
    PROGRESS_SIZE = 4096,
};

void message_done(struct message *m)
{
    free(m->memory);
    m->memory = NULL;
}

/* ---- sending ---- */

static int body_memfd(struct str body, int *ret, struct error *err)
{
    auto_close int fd = memfd_create("mete-survey", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_errno(err, errno, "memfd for a message of %zu bytes", body.n);
    for (size_t at = 0; at < body.n;) {
        ssize_t n = write(fd, body.p + at, body.n - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, errno, "write a message of %zu bytes", body.n);
        at += (size_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return error_errno(err, errno, "seal a message");
    *ret = steal_fd(&fd);
    return 0;
}

static int send_packet(int fd, struct iovec *parts, size_t n, int attached, struct error *err)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr m = { .msg_iov = parts, .msg_iovlen = n };
    if (attached >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof attached);
        memcpy(CMSG_DATA(c), &attached, sizeof attached);
    }
    while (sendmsg(fd, &m, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            return error_errno(err, errno, "send to the other side of the worker's socket");
    return 0;
}

int message_send(int fd, enum message_kind kind, uint32_t flags, uint32_t id, struct str body,
                 struct error *err)
{
    bool large = body.n > MESSAGE_MAX - MESSAGE_HEADER;
    auto_close int attached = -1;
    if (body.n > SURVEY_BYTES_MAX + MESSAGE_HEADER * 16)
        return error_set(err, ERR_LIMIT, 0, "message of %zu bytes is too large", body.n);
    int r = large ? body_memfd(body, &attached, err) : 0;
    if (r < 0)
        return r;

    auto_buf head;
    buf_init(&head, MESSAGE_HEADER);
    buf_add(&head, magic, sizeof magic);
    bytes_put(&head, kind, 2);
    bytes_put(&head, flags | (large ? MESSAGE_LARGE : 0), 2);
    bytes_put(&head, id, 4);
    bytes_put(&head, body.n, 4);
    char *text;
    memcpy(&text, &body.p, sizeof text); /* iovec is not const */
    struct iovec parts[] = { { head.p, head.n }, { text, body.n } };
    return send_packet(fd, parts, large || body.n == 0 ? 1 : 2, attached, err);
}

bool message_peer_gone(const struct error *err)
{
    return err->sys == EPIPE || err->sys == ECONNRESET;
}

/* ---- receiving ---- */

enum { BODY_MAX = SURVEY_BYTES_MAX + MESSAGE_HEADER * 16 };

int message_parse(struct str bytes, struct message *ret, struct error *err)
{
    struct str rest = bytes;
    uint64_t kind, flags, id, n;
    const unsigned char *p = bytes_take(&rest, sizeof magic);
    if (!p || memcmp(p, magic, sizeof magic) != 0 || !bytes_take_number(&rest, 2, &kind) ||
        !bytes_take_number(&rest, 2, &flags) || !bytes_take_number(&rest, 4, &id) ||
        !bytes_take_number(&rest, 4, &n))
        return error_set(err, ERR_INVALID, 0, "message of %zu bytes without our header", bytes.n);
    if (kind < MESSAGE_START || kind > MESSAGE_EVENT)
        return error_set(err, ERR_INVALID, 0, "message of an unknown kind %u", (unsigned)kind);
    if (flags & ~(uint64_t)(MESSAGE_LARGE | MESSAGE_RESTART))
        return error_set(err, ERR_INVALID, 0, "message with unknown flags %#x", (unsigned)flags);
    bool large = flags & MESSAGE_LARGE;
    if (n > BODY_MAX || (large ? rest.n != 0 || n <= MESSAGE_MAX - MESSAGE_HEADER : n != rest.n))
        return error_set(err, ERR_INVALID, 0,
                         "message whose length %u does not fit the %zu bytes that came",
                         (unsigned)n, rest.n);
    ret->kind = (enum message_kind)kind;
    ret->flags = (uint32_t)flags;
    ret->id = (uint32_t)id;
    ret->body = large ? (struct str){ NULL, (size_t)n } : rest;
    return 0;
}

/* Takes the first descriptor; closes the others, which nobody should have sent. */
static int take_fds(struct msghdr *m, int *ret_fd)
{
    int count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++, count++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (count == 0)
                *ret_fd = fd;
            else
                close(fd);
        }
    }
    return count;
}

/* Size first, so that memory is taken only for what is there. */
static int packet_size(int fd, size_t *ret, struct error *err)
{
    ssize_t n;
    do
        n = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return error_set(err, ERR_UNAVAILABLE, EAGAIN, "no message yet");
    if (n < 0 && errno != ECONNRESET)
        return error_errno(err, errno, "receive on the worker's socket");
    *ret = n < 0 ? 0 : (size_t)n;
    if (*ret > MESSAGE_MAX)
        return error_set(err, ERR_LIMIT, 0, "message of %zu bytes, at most %d", *ret, MESSAGE_MAX);
    return 0;
}

static int receive_packet(int fd, char *to, size_t n, int *ret_fd, struct error *err)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = { to, n };
    struct msghdr m = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control.bytes,
    };
    ssize_t got;
    do
        got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return error_errno(err, errno, "receive on the worker's socket");
    int fds = take_fds(&m, ret_fd);
    if ((size_t)got != n || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || fds > 1)
        return error_set(err, ERR_INVALID, 0, "message that was cut, or with %d descriptors", fds);
    return 0;
}

static int read_memfd(int fd, struct message *m, struct error *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return error_set(err, ERR_INVALID, 0, "large message that is not in a sealed memfd");
    if (fstat(fd, &st) < 0 || st.st_size != (off_t)m->body.n)
        return error_set(err, ERR_INVALID, 0, "large message of %lld bytes announced as %zu",
                         (long long)st.st_size, m->body.n);
    char *memory = try_alloc(m->body.n);
    if (!memory)
        return error_set(err, ERR_LIMIT, 0, "no memory for a message of %zu bytes", m->body.n);
    for (size_t at = 0; at < m->body.n;) {
        ssize_t n = pread(fd, memory + at, m->body.n - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            free(memory);
            return error_set(err, ERR_INVALID, 0, "large message that cannot be read");
        }
        at += (size_t)n;
    }
    free(m->memory);
    m->memory = memory;
    m->body.p = memory;
    return 0;
}

static int receive(int fd, size_t n, struct message *m, struct error *err)
{
    auto_close int attached = -1;
    m->memory = try_alloc(n);
    if (!m->memory)
        return error_set(err, ERR_LIMIT, 0, "no memory for a message of %zu bytes", n);
    int r = receive_packet(fd, m->memory, n, &attached, err);
    if (r < 0)
        return r;
    r = message_parse((struct str){ m->memory, n }, m, err);
    if (r < 0)
        return r;
    bool large = m->flags & MESSAGE_LARGE;
    if (large != (attached >= 0))
        return error_set(err, ERR_INVALID, 0,
                         large ? "large message without its memfd"
                               : "small message with a descriptor");
    return large ? read_memfd(attached, m, err) : 0;
}

int message_receive(int fd, struct message *ret, struct error *err)
{
    size_t n;
    int r = packet_size(fd, &n, err);
    if (r < 0)
        return r;
    if (n == 0)
        return 0;
    *ret = (struct message){ 0 };
    r = receive(fd, n, ret, err);
    if (r < 0) {
        message_done(ret);
        return r;
    }
    return 1;
}

/* ---- bodies ---- */

void hello_encode(const struct hello *h, struct buf *out)
{
    bytes_put(out, h->version, 4);
    bytes_put_text(out, h->build, sizeof h->build - 1);
    bytes_put_text(out, h->notes, sizeof h->notes - 1);
}

int hello_decode(struct str body, struct hello *ret, struct error *err)
{
    struct hello h = { 0 };
    if (!bytes_take_u32(&body, &h.version))
        return error_set(err, ERR_INVALID, 0, "hello of the worker without a version");
    *ret = h; /* a newer layout still tells its version */
    if (h.version != PROTOCOL_VERSION)
        return 0;
    if (!bytes_take_text(&body, h.build, sizeof h.build, true) ||
        !bytes_take_text(&body, h.notes, sizeof h.notes, false) || body.n > 0)
        return error_set(err, ERR_INVALID, 0, "hello of the worker that cannot be read");
    *ret = h;
    return 0;
}

void start_encode(const struct start *s, struct buf *out)
{
    bytes_put(out, s->version, 4);
    bytes_put_text(out, s->build, sizeof s->build - 1);
    bytes_put(out, s->watch, 1);
    buf_str(out, s->survey);
}

int start_decode(struct str body, struct start *ret, struct error *err)
{
    struct start s = { 0 };
    uint64_t watch;
    if (!bytes_take_u32(&body, &s.version) || s.version != PROTOCOL_VERSION)
        return error_set(err, ERR_UNSUPPORTED, 0, "agent speaks version %u, this worker %d",
                         s.version, PROTOCOL_VERSION);
    if (!bytes_take_text(&body, s.build, sizeof s.build, true) ||
        !bytes_take_number(&body, 1, &watch) || watch > 1)
        return error_set(err, ERR_INVALID, 0, "start message that cannot be read");
    s.watch = watch;
    s.survey = body;
    *ret = s;
    return 0;
}

void event_encode(const struct gpu_event *e, struct buf *out)
{
    bytes_put(out, e->kind, 4);
    bytes_put_text(out, e->uuid, sizeof e->uuid - 1);
    bytes_put(out, e->gi, 4);
    bytes_put(out, e->ci, 4);
    bytes_put(out, e->value, 8);
}

int event_decode(struct str body, struct gpu_event *ret, struct error *err)
{
    struct gpu_event e = { 0 };
    uint32_t kind;
    if (!bytes_take_u32(&body, &kind) || kind > GPU_EVENT_WAIT_FAILED ||
        !bytes_take_text(&body, e.uuid, sizeof e.uuid, true) || !bytes_take_u32(&body, &e.gi) ||
        !bytes_take_u32(&body, &e.ci) || !bytes_take_number(&body, 8, &e.value) || body.n > 0)
        return error_set(err, ERR_INVALID, 0, "event of the worker that cannot be read");
    e.kind = (enum gpu_event_kind)kind;
    *ret = e;
    return 0;
}

/* ---- who we are ---- */

static int find_note(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct buf *out = arg;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_NOTE)
            continue;
        struct str rest = { (const char *)(info->dlpi_addr + h->p_vaddr), h->p_memsz };
        uint32_t n_name, n_data, type;
        while (bytes_take_u32(&rest, &n_name) && bytes_take_u32(&rest, &n_data) &&
               bytes_take_u32(&rest, &type)) {
            const unsigned char *name = bytes_take(&rest, ((size_t)n_name + 3) & ~(size_t)3);
            const unsigned char *data = bytes_take(&rest, ((size_t)n_data + 3) & ~(size_t)3);
            if (!name || !data)
                break;
            if (type != NT_GNU_BUILD_ID || n_name != 4 || memcmp(name, "GNU", 4) != 0)
                continue;
            buf_ch(out, '+');
            for (size_t k = 0; k < n_data; k++)
                buf_fmt(out, "%02x", data[k]);
            return 1;
        }
    }
    return 1; /* the first object is the program itself */
}

void build_id(char ret[BUILD_ID_SIZE])
{
    auto_buf out;
    buf_init(&out, BUILD_ID_SIZE - 1);
    buf_z(&out, METE_VERSION);
    dl_iterate_phdr(find_note, &out);
    snprintf(ret, BUILD_ID_SIZE, "%s", out.p ? out.p : "?");
}

/* ---- progress ---- */

static struct nvml_progress *map(int fd)
{
    void *p = mmap(NULL, PROGRESS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

int progress_new(int *ret_fd, struct nvml_progress **ret, struct error *err)
{
    auto_close int fd = memfd_create("mete-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, PROGRESS_SIZE) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return error_errno(err, errno, "memory shared with the worker");
    struct nvml_progress *p = map(fd);
    if (!p)
        return error_errno(err, errno, "map memory shared with the worker");
    *ret_fd = steal_fd(&fd);
    *ret = p;
    return 0;
}

struct nvml_progress *progress_map(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size != PROGRESS_SIZE)
        return NULL;
    return map(fd);
}

void progress_free(struct nvml_progress *p)
{
    if (p)
        munmap(p, PROGRESS_SIZE);
}
