/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

static int map_file(struct sim_map *m, const char *path, struct error *err)
{
    m->writable = true;
    auto_close int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM)) {
        m->writable = false;
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0)
        return error_errno(err, errno, "open %s", path);

    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_errno(err, errno, "look at %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size != (off_t)sizeof(struct sim_state))
        return error_set(err, ERR_INVALID, 0,
                         "%s is not the state of a simulated host of this version (%lld bytes, "
                         "expected %zu); create the host anew",
                         path, (long long)st.st_size, sizeof(struct sim_state));

    int protection = m->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *p = mmap(NULL, sizeof(struct sim_state), protection, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return error_errno(err, errno, "map %s", path);
    m->state = p;
    m->fd = steal_fd(&fd);
    if (m->state->magic == SIM_STATE_MAGIC && m->state->version == SIM_STATE_VERSION &&
        m->state->size == sizeof(struct sim_state))
        return 0;
    sim_map_close(m);
    return error_set(
        err, ERR_INVALID, 0,
        "%s is not the state of a simulated host of this version; create the host anew", path);
}

int sim_map_open(struct sim_map *m, const char *dir, struct error *err)
{
    *m = (struct sim_map){ .fd = -1 };
    char path[sizeof(m->root) + sizeof(SIM_STATE_PATH) + 1];
    if (snprintf(m->root, sizeof(m->root), "%s", dir) >= (int)sizeof(m->root))
        return error_set(err, ERR_LIMIT, 0, "the path %.40s... is longer than %zu bytes", dir,
                         sizeof(m->root) - 1);
    snprintf(path, sizeof(path), "%s/" SIM_STATE_PATH, m->root);
    int r = map_file(m, path, err);
    if (r == -ERR_NOT_FOUND)
        return error_set(
            err, ERR_NOT_FOUND, ENOENT,
            "%s is no simulated host (there is no %s); make one with \"mete sim create\"", dir,
            path);
    return r;
}

void sim_map_close(struct sim_map *m)
{
    if (m->state)
        munmap(m->state, sizeof(struct sim_state));
    if (m->fd >= 0)
        close(m->fd);
    m->state = NULL;
    m->fd = -1;
}

void auto_sim_map_close(struct sim_map *m)
{
    sim_map_close(m);
}

static const struct sim_world *world_of(const struct sim_map *m, uint64_t generation)
{
    return &m->state->worlds[generation & 1];
}

void sim_read(const struct sim_map *m, size_t offset, size_t n, void *to, uint64_t *ret_generation)
{
    for (;;) {
        uint64_t g = atomic_load_explicit(&m->state->generation, memory_order_acquire);
        memcpy(to, (const char *)world_of(m, g) + offset, n);
        atomic_thread_fence(memory_order_acquire);
        /* The place that was copied is written again only after the next generation is out. */
        if (atomic_load_explicit(&m->state->generation, memory_order_relaxed) == g) {
            if (ret_generation)
                *ret_generation = g;
            return;
        }
    }
}

static int lock_file(int fd, short type)
{
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET };
    int r;
    do
        r = fcntl(fd, F_OFD_SETLKW, &lock);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

int sim_change(struct sim_map *m, struct sim_world **ret, struct error *err)
{
    if (!m->writable)
        return error_set(err, ERR_DENIED, EACCES,
                         "%s/" SIM_STATE_PATH " may not be written by this user", m->root);
    int r = lock_file(m->fd, F_WRLCK);
    if (r < 0)
        return error_errno(err, -r, "lock %s/" SIM_STATE_PATH, m->root);
    m->n_posted = 0;
    uint64_t g = atomic_load_explicit(&m->state->generation, memory_order_relaxed);
    /* What is written now must not be seen before the generation that retired this place. */
    atomic_thread_fence(memory_order_seq_cst);
    struct sim_world *next = &m->state->worlds[(g + 1) & 1];
    memcpy(next, world_of(m, g), sizeof(*next));
    *ret = next;
    return 0;
}

void sim_commit(struct sim_map *m)
{
    atomic_fetch_add_explicit(&m->state->generation, 1, memory_order_seq_cst);
    atomic_fetch_add_explicit(&m->state->event_seq, m->n_posted, memory_order_seq_cst);
    m->n_posted = 0;
    atomic_fetch_add_explicit(&m->state->futex, 1, memory_order_seq_cst);
    syscall(SYS_futex, &m->state->futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    sim_abandon(m);
}

void sim_abandon(struct sim_map *m)
{
    lock_file(m->fd, F_UNLCK);
}

void sim_post(struct sim_map *m, uint32_t gpu, uint64_t type, uint64_t data, uint32_t gi,
              uint32_t ci)
{
    uint64_t seq = atomic_load_explicit(&m->state->event_seq, memory_order_relaxed) + m->n_posted++;
    m->state->events[seq % SIM_EVENTS_MAX] =
        (struct sim_event){ .gpu = gpu, .gi = gi, .ci = ci, .type = type, .data = data };
}

bool sim_event_at(const struct sim_map *m, uint64_t seq, struct sim_event *ret)
{
    uint64_t end = atomic_load_explicit(&m->state->event_seq, memory_order_acquire);
    if (seq >= end || end - seq > SIM_EVENTS_KEPT)
        return false;
    *ret = m->state->events[seq % SIM_EVENTS_MAX];
    atomic_thread_fence(memory_order_acquire);
    end = atomic_load_explicit(&m->state->event_seq, memory_order_relaxed);
    return end - seq <= SIM_EVENTS_KEPT;
}

uint32_t sim_wake_word(const struct sim_map *m)
{
    return atomic_load_explicit(&m->state->futex, memory_order_seq_cst);
}

int64_t sim_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool sim_sleep(const struct sim_map *m, uint32_t word, int64_t deadline_ns)
{
    struct timespec t = { .tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000 };
    /* FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, so an interrupted wait does not
     * stretch. The word is shared between processes: not FUTEX_PRIVATE. */
    long r = syscall(SYS_futex, &m->state->futex, FUTEX_WAIT_BITSET, word,
                     deadline_ns == INT64_MAX ? NULL : &t, NULL, FUTEX_BITSET_MATCH_ANY);
    return !(r < 0 && errno == ETIMEDOUT);
}
