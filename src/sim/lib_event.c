/* SPDX-License-Identifier: Apache-2.0 */
/* Event sets. A set sees only what was posted after a gpu was registered in it, and only the types
 * asked for. Waiting sleeps on the futex of the state. */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "sim/lib.h"

struct registration {
    uint64_t mask, since; /* events from this number on */
};

struct set {
    struct set *next;
    unsigned users; /* one for the caller, one for each wait in progress */
    bool freed, system;
    uint64_t at;                                   /* the next event to look at */
    struct registration gpus[SIM_GPUS_MAX], whole; /* `whole`: events of the system */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set *sets;

static uint64_t posted(void)
{
    return atomic_load_explicit(&lib_map()->state->event_seq, memory_order_acquire);
}

static struct set *set_new(bool system)
{
    struct set *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->users = 1;
    s->system = system;
    s->at = posted();
    pthread_mutex_lock(&lock);
    s->next = sets;
    sets = s;
    pthread_mutex_unlock(&lock);
    return s;
}

/* Under the lock: is this pointer one of ours? */
static struct set *set_of(const void *p, bool system)
{
    struct set *s = sets;
    while (s && s != p)
        s = s->next;
    return s && !s->freed && s->system == system ? s : NULL;
}

static void release(struct set *s)
{
    if (--s->users > 0)
        return;
    struct set **p = &sets;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    free(s);
}

/* Waits of this process sleep on the word that all processes share. */
static void wake_waiters(void)
{
    struct sim_map *m = lib_map();
    if (m->writable)
        atomic_fetch_add(&m->state->futex, 1);
    syscall(SYS_futex, &m->state->futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static nv_return set_free(const void *p, bool system)
{
    pthread_mutex_lock(&lock);
    struct set *s = set_of(p, system);
    if (s) {
        s->freed = true;
        release(s);
    }
    pthread_mutex_unlock(&lock);
    if (s)
        wake_waiters();
    return s ? NV_OK : NV_E_ARGUMENT;
}

void lib_events_reset(void)
{
    pthread_mutex_lock(&lock);
    for (struct set *s = sets, *next; s; s = next) {
        next = s->next;
        if (!s->freed) {
            s->freed = true;
            release(s);
        }
    }
    pthread_mutex_unlock(&lock);
    wake_waiters();
}

nv_return nvmlEventSetCreate(nv_event_set *set)
{
    nv_return r = lib_enter(__func__);
    if (r != NV_OK)
        return r;
    if (!set)
        return NV_E_ARGUMENT;
    struct set *s = set_new(false);
    if (!s)
        return NV_E_MEMORY;
    *set = (nv_event_set)(void *)s;
    return NV_OK;
}

nv_return nvmlEventSetFree(nv_event_set set)
{
    nv_return r = lib_enter(__func__);
    /* Also when the driver is gone: the set is ours. */
    return r == NV_E_UNINITIALIZED ? r : set_free(set, false);
}

nv_return nvmlDeviceGetSupportedEventTypes(nv_device d, unsigned long long *mask)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, mask != NULL, &v);
    if (r == NV_OK)
        *mask = v.gpu.event_mask;
    return r;
}

nv_return nvmlDeviceRegisterEvents(nv_device d, unsigned long long mask, nv_event_set set)
{
    struct lib_view v;
    nv_return r = lib_whole(__func__, d, set != NULL, &v);
    if (r != NV_OK)
        return r;
    if (mask & ~(unsigned long long)v.gpu.event_mask)
        return NV_E_NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    struct set *s = set_of(set, false);
    if (s) {
        struct registration *g = &s->gpus[v.number];
        if (!g->mask)
            g->since = posted();
        g->mask |= mask;
    }
    pthread_mutex_unlock(&lock);
    return s ? NV_OK : NV_E_ARGUMENT;
}

/* Under the lock: the next event that the set is registered for. */
static bool next_event(struct set *s, struct sim_event *ret)
{
    uint64_t end = posted();
    if (end - s->at > SIM_EVENTS_KEPT)
        s->at = end - SIM_EVENTS_KEPT; /* who does not fetch them loses the oldest */
    for (; s->at < end; s->at++) {
        struct sim_event e;
        if (!sim_event_at(lib_map(), s->at, &e))
            continue;
        const struct registration *g =
            e.gpu == UINT32_MAX ? &s->whole : &s->gpus[e.gpu % SIM_GPUS_MAX];
        if (!(g->mask & e.type) || s->at < g->since)
            continue;
        s->at++;
        *ret = e;
        return true;
    }
    return false;
}

/* A gpu of the set that fell off the bus: the wait says so, but not which. */
static bool any_lost(const struct set *s)
{
    for (uint32_t i = 0; i < SIM_GPUS_MAX; i++) {
        struct sim_gpu g;
        if (!s->gpus[i].mask)
            continue;
        lib_read_gpu(i, &g);
        if (lib_lost(i, &g))
            return true;
    }
    return false;
}

/* One look: NV_E_TIMEOUT when there is nothing yet. */
static nv_return look(struct set *s, struct sim_event *ret)
{
    pthread_mutex_lock(&lock);
    nv_return r = s->freed ? NV_E_UNINITIALIZED : next_event(s, ret) ? NV_OK : NV_E_TIMEOUT;
    if (r == NV_E_TIMEOUT && any_lost(s))
        r = NV_E_GPU_IS_LOST;
    pthread_mutex_unlock(&lock);
    return r;
}

static nv_return wait_in(const char *call, struct set *s, unsigned ms, struct sim_event *ret)
{
    int64_t deadline = ms == UINT_MAX ? INT64_MAX : sim_now_ns() + (int64_t)ms * 1000000;
    for (;;) {
        uint32_t word = sim_wake_word(lib_map());
        nv_return r = look(s, ret);
        if (r == NV_E_TIMEOUT) {
            nv_return alive = lib_still(call);
            r = alive != NV_OK ? alive : r;
        }
        if (r != NV_E_TIMEOUT || ms == 0 || sim_now_ns() >= deadline)
            return r;
        sim_sleep(lib_map(), word, deadline);
    }
}

static nv_return wait_for(const char *call, const void *set, bool system, unsigned ms,
                          struct sim_event *ret)
{
    nv_return r = lib_enter(call);
    if (r != NV_OK)
        return r;
    pthread_mutex_lock(&lock);
    struct set *s = set_of(set, system);
    if (s)
        s->users++;
    pthread_mutex_unlock(&lock);
    if (!s)
        return NV_E_ARGUMENT;
    r = wait_in(call, s, ms, ret);
    pthread_mutex_lock(&lock);
    release(s);
    pthread_mutex_unlock(&lock);
    return r;
}

nv_return nvmlEventSetWait_v2(nv_event_set set, struct nv_event_data *data, unsigned ms)
{
    struct sim_event e;
    if (!data)
        return NV_E_ARGUMENT;
    nv_return r = wait_for(__func__, set, false, ms, &e);
    if (r == NV_OK)
        *data = (struct nv_event_data){ lib_gpu_handle(e.gpu), e.type, e.data, e.gi, e.ci };
    return r;
}

nv_return nvmlEventSetWait(nv_event_set set, struct nv_event_data_v1 *data, unsigned ms)
{
    struct sim_event e;
    if (!data)
        return NV_E_ARGUMENT;
    nv_return r = wait_for(__func__, set, false, ms, &e);
    if (r == NV_OK)
        *data = (struct nv_event_data_v1){ lib_gpu_handle(e.gpu), e.type, e.data };
    return r;
}

/* ---- events of the system: a gpu bound or unbound ---- */

nv_return nvmlSystemEventSetCreate(struct nv_system_event_create *request)
{
    nv_return r = lib_enter(__func__);
    if (r == NV_OK && !request)
        r = NV_E_ARGUMENT;
    if (r == NV_OK)
        r = lib_version(request->version, NV_VERSION(struct nv_system_event_create, 1));
    if (r != NV_OK)
        return r;
    request->set = (nv_system_event_set)(void *)set_new(true);
    return request->set ? NV_OK : NV_E_MEMORY;
}

nv_return nvmlSystemEventSetFree(struct nv_system_event_free *request)
{
    nv_return r = lib_enter(__func__);
    if (r == NV_OK && !request)
        r = NV_E_ARGUMENT;
    if (r == NV_OK)
        r = lib_version(request->version, NV_VERSION(struct nv_system_event_free, 1));
    return r != NV_OK ? r : set_free(request->set, true);
}

nv_return nvmlSystemRegisterEvents(struct nv_system_event_register *request)
{
    nv_return r = lib_enter(__func__);
    if (r == NV_OK && !request)
        r = NV_E_ARGUMENT;
    if (r == NV_OK)
        r = lib_version(request->version, NV_VERSION(struct nv_system_event_register, 1));
    if (r != NV_OK)
        return r;
    if (request->types & ~(uint64_t)(NV_SYSTEM_DRIVER_BIND | NV_SYSTEM_DRIVER_UNBIND))
        return NV_E_ARGUMENT;
    pthread_mutex_lock(&lock);
    struct set *s = set_of(request->set, true);
    if (s) {
        s->whole.since = s->whole.mask ? s->whole.since : posted();
        s->whole.mask |= request->types;
    }
    pthread_mutex_unlock(&lock);
    return s ? NV_OK : NV_E_ARGUMENT;
}

nv_return nvmlSystemEventSetWait(struct nv_system_event_wait *request)
{
    if (!request || !request->data || request->data_size == 0)
        return NV_E_ARGUMENT;
    nv_return r = lib_version(request->version, NV_VERSION(struct nv_system_event_wait, 1));
    struct sim_event e;
    if (r == NV_OK)
        r = wait_for(__func__, request->set, true, request->timeout_ms, &e);
    request->n_events = r == NV_OK;
    if (r == NV_OK)
        request->data[0] = (struct nv_system_event_data){ e.type, (uint32_t)e.data };
    return r;
}
