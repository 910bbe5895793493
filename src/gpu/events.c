/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/events.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "gpu/hostfacts.h"

enum {
    BACKOFF_MS = 100,
    BACKOFF_MAX_MS = 5000,
    STACK_SIZE = 256 * 1024, /* address space; only what the driver touches costs memory */
    SEEN_MAX = 16,
};

#define WANTED                                                                                     \
    (NV_EVENT_XID | NV_EVENT_ECC_DOUBLE | NV_EVENT_ECC_SINGLE | NV_EVENT_MIG_CONFIG |              \
     NV_EVENT_RECOVERY | NV_EVENT_UNAVAILABLE)

struct watched {
    nv_device device;
    char uuid[UUID_TEXT_SIZE];
};

struct set {
    nv_event_set handle; /* NULL: nothing can be watched */
    struct watched gpus[SURVEY_GPUS_MAX];
    size_t n;
};

struct events {
    struct nvml nvml; /* symbols, without the first thread's progress */
    void (*emit)(void *arg, const struct gpu_event *e);
    void *arg;

    pthread_mutex_t mutex; /* for what follows */
    pthread_cond_t ready;
    struct set *next; /* made, not yet taken over */
    struct watched armed[SURVEY_GPUS_MAX];
    size_t n_armed;
    bool want_arm;

    /* The event thread's own. While two sets are open, both hear of an event: what the old one
     * told is not told again by the new one. */
    struct set *current;
    struct nv_event_data seen[SEEN_MAX];
    size_t n_seen;
    bool fresh;                     /* `current` has not run dry since it was taken over */
    struct nvml_progress *progress; /* only `waits` is ours; NULL: not wanted */
};

/* ---- making a set: first thread ---- */

static void emit_failed(struct events *e, const char *uuid, nv_return r)
{
    struct gpu_event event = {
        .kind = GPU_EVENT_WAIT_FAILED,
        .gi = UINT32_MAX,
        .ci = UINT32_MAX,
        .value = (uint64_t)r,
    };
    copy_word(event.uuid, sizeof event.uuid, uuid);
    e->emit(e->arg, &event);
}

enum registered { REGISTERED, NOT_OFFERED, SET_BROKEN };

static enum registered add_gpu(struct events *e, struct nvml *n, struct set *s,
                               const struct watched *w, uint32_t index, nv_return *ret)
{
    unsigned long long mask = 0;
    nv_return r = NVML_CALL(n, index, events_supported, w->device, &mask);
    mask &= WANTED;
    if (r != NV_OK || !mask)
        return NOT_OFFERED;
    r = NVML_CALL(n, index, events_register, w->device, mask, s->handle);
    *ret = r;
    if (r == NV_OK)
        return REGISTERED;
    /* "Not supported" leaves the set usable, a lost gpu is the survey's to tell; after anything
     * else the set may be unusable (spec 1.7). */
    return r == NV_E_NOT_SUPPORTED || nvml_code_is_loss((int)r) ? NOT_OFFERED : SET_BROKEN;
}

static void list_gpus(struct nvml *n, struct set *s)
{
    unsigned count = 0;
    if (NVML_CALL(n, NVML_NO_GPU, count, &count) != NV_OK)
        return;
    for (uint32_t i = 0; i < count && s->n < ARRAY_LEN(s->gpus); i++) {
        struct watched *w = &s->gpus[s->n];
        char uuid[NV_UUID_SIZE] = "";
        if (NVML_CALL(n, i, by_index, i, &w->device) != NV_OK ||
            NVML_CALL(n, i, uuid, w->device, uuid, sizeof uuid) != NV_OK)
            continue;
        copy_word(w->uuid, sizeof w->uuid, uuid);
        s->n++;
    }
}

/* Registers all gpus but those marked; false: one broke the set, and is marked now. */
static bool fill_set(struct events *e, struct nvml *n, struct set *s, bool *bad, bool *any)
{
    *any = false;
    for (size_t i = 0; i < s->n; i++) {
        nv_return r = NV_OK;
        enum registered done = NOT_OFFERED;
        if (!bad[i])
            done = add_gpu(e, n, s, &s->gpus[i], (uint32_t)i, &r);
        *any = *any || done == REGISTERED;
        if (done != SET_BROKEN)
            continue;
        bad[i] = true;
        emit_failed(e, s->gpus[i].uuid, r);
        return false;
    }
    return true;
}

static bool make_set(struct events *e, struct nvml *n, struct set *s)
{
    bool bad[SURVEY_GPUS_MAX] = { false }, any = false;
    list_gpus(n, s);
    for (size_t tries = 0; tries <= s->n; tries++) {
        nv_return r = NVML_CALL(n, NVML_NO_GPU, events_create, &s->handle);
        if (r != NV_OK) {
            s->handle = NULL;
            if (r == NV_E_NOT_SUPPORTED)
                return true;
            emit_failed(e, "", r);
            return false;
        }
        bool whole = fill_set(e, n, s, bad, &any);
        if (whole && any)
            return true;
        NVML_CALL(n, NVML_NO_GPU, events_free, s->handle);
        s->handle = NULL;
        if (whole)
            return true; /* no gpu here has events */
    }
    return true;
}

void events_arm(struct events *e, struct nvml *n)
{
    struct set *s = x_alloc(sizeof *s);
    bool made = make_set(e, n, s);
    pthread_mutex_lock(&e->mutex);
    struct set *unused = e->next;
    e->next = s;
    e->want_arm = !made;
    e->n_armed = s->n;
    memcpy(e->armed, s->gpus, sizeof e->armed);
    pthread_cond_signal(&e->ready);
    pthread_mutex_unlock(&e->mutex);
    if (unused && unused->handle)
        NVML_CALL(n, NVML_NO_GPU, events_free, unused->handle);
    free(unused);
}

bool events_want_arm(struct events *e, const struct survey *s)
{
    pthread_mutex_lock(&e->mutex);
    bool want = e->want_arm;
    for (size_t i = 0; s && i < s->n_gpus && !want; i++) {
        bool armed = false;
        for (size_t k = 0; k < e->n_armed && !armed; k++)
            armed = strcmp(e->armed[k].uuid, s->gpus[i].uuid) == 0;
        want = !armed && !s->gpus[i].lost;
    }
    pthread_mutex_unlock(&e->mutex);
    return want;
}

/* ---- waiting: event thread ---- */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void want_arm(struct events *e)
{
    pthread_mutex_lock(&e->mutex);
    e->want_arm = true;
    pthread_mutex_unlock(&e->mutex);
}

/* Takes a new set over; while there is nothing to watch, waits for one. */
static void take_over(struct events *e)
{
    pthread_mutex_lock(&e->mutex);
    while (!e->next && (!e->current || !e->current->handle))
        pthread_cond_wait(&e->ready, &e->mutex);
    struct set *old = e->next ? e->current : NULL;
    if (e->next) {
        e->current = steal(e->next);
        e->fresh = true;
    }
    pthread_mutex_unlock(&e->mutex);
    if (!old)
        return;
    if (old->handle)
        NVML_CALL(&e->nvml, NVML_NO_GPU, events_free, old->handle);
    free(old);
}

static nv_return wait_any(struct events *e, struct nv_event_data *ret)
{
    if (e->nvml.events_wait_v2)
        return e->nvml.events_wait_v2(e->current->handle, ret, EVENTS_WAIT_MS);
    struct nv_event_data_v1 v1 = { 0 };
    nv_return r = e->nvml.events_wait_v1(e->current->handle, &v1, EVENTS_WAIT_MS);
    *ret = (struct nv_event_data){ v1.device, v1.type, v1.data, NV_NO_INSTANCE, NV_NO_INSTANCE };
    return r;
}

/* The agent sees from the count that this thread is alive. */
static nv_return wait_one(struct events *e, struct nv_event_data *ret)
{
    if (e->progress)
        atomic_fetch_add(&e->progress->waits, 1);
    nv_return r = wait_any(e, ret);
    if (e->progress)
        atomic_fetch_add(&e->progress->waits, 1);
    return r;
}

static const struct {
    uint64_t bit;
    enum gpu_event_kind kind;
} kinds[] = {
    { NV_EVENT_XID, GPU_EVENT_XID },
    { NV_EVENT_ECC_SINGLE, GPU_EVENT_ECC_SINGLE },
    { NV_EVENT_ECC_DOUBLE, GPU_EVENT_ECC_DOUBLE },
    { NV_EVENT_MIG_CONFIG, GPU_EVENT_MIG_CHANGE },
    { NV_EVENT_RECOVERY, GPU_EVENT_RECOVERY },
    { NV_EVENT_UNAVAILABLE, GPU_EVENT_UNAVAILABLE },
};

static bool same_event(const struct nv_event_data *a, const struct nv_event_data *b)
{
    return a->device == b->device && a->type == b->type && a->data == b->data && a->gi == b->gi &&
           a->ci == b->ci;
}

static bool told_before(struct events *e, const struct nv_event_data *d)
{
    for (size_t i = 0; e->fresh && i < e->n_seen; i++) {
        if (!same_event(&e->seen[i], d))
            continue;
        e->seen[i] = e->seen[--e->n_seen];
        return true;
    }
    return false;
}

static void remember(struct events *e, const struct nv_event_data *d)
{
    pthread_mutex_lock(&e->mutex);
    bool two_sets = e->next;
    pthread_mutex_unlock(&e->mutex);
    if (two_sets && e->n_seen < SEEN_MAX)
        e->seen[e->n_seen++] = *d;
}

static void tell(struct events *e, const struct nv_event_data *d)
{
    struct gpu_event event = { .gi = d->gi, .ci = d->ci, .value = d->data };
    for (size_t i = 0; i < e->current->n; i++)
        if (e->current->gpus[i].device == d->device)
            memcpy(event.uuid, e->current->gpus[i].uuid, sizeof event.uuid);
    char uuid[NV_UUID_SIZE] = "";
    if (!event.uuid[0] && d->device &&
        NVML_CALL(&e->nvml, NVML_NO_GPU, uuid, d->device, uuid, sizeof uuid) == NV_OK)
        copy_word(event.uuid, sizeof event.uuid, uuid);
    if (d->type & NV_EVENT_MIG_CONFIG)
        want_arm(e);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!(d->type & kinds[i].bit))
            continue;
        event.kind = kinds[i].kind;
        e->emit(e->arg, &event);
    }
}

static void pause_ms(int64_t ms)
{
    struct timespec left = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

static void *run(void *arg)
{
    struct events *e = arg;
    int64_t backoff = 0;
    for (;;) {
        take_over(e);
        if (!e->current->handle)
            continue;
        struct nv_event_data d = { .gi = NV_NO_INSTANCE, .ci = NV_NO_INSTANCE };
        int64_t begun = now_ms();
        nv_return r = wait_one(e, &d);
        if (r == NV_OK) {
            if (!told_before(e, &d)) {
                remember(e, &d);
                tell(e, &d);
            }
            backoff = 0;
            continue;
        }
        if (r == NV_E_TIMEOUT && e->fresh)
            e->n_seen = 0;
        e->fresh = false;
        if (r == NV_E_TIMEOUT && now_ms() - begun >= EVENTS_WAIT_MS / 10) {
            backoff = 0;
            continue;
        }
        if (r != NV_E_TIMEOUT) {
            want_arm(e);
            emit_failed(e, "", r);
        }
        /* A failure, or a driver whose wait does not wait: neither may spin, a new set neither. */
        backoff = backoff ? MIN(2 * backoff, (int64_t)BACKOFF_MAX_MS) : BACKOFF_MS;
        pause_ms(backoff);
    }
    return NULL;
}

int events_new(struct nvml *n, void (*emit)(void *arg, const struct gpu_event *e), void *arg,
               struct events **ret, struct error *err)
{
    struct events *e = x_alloc(sizeof *e);
    e->nvml = *n;
    e->progress = steal(e->nvml.progress);
    e->emit = emit;
    e->arg = arg;
    e->want_arm = true;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->ready, NULL);

    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int r = pthread_create(&thread, &attr, run, e);
    pthread_attr_destroy(&attr);
    if (r) {
        pthread_cond_destroy(&e->ready);
        pthread_mutex_destroy(&e->mutex);
        free(e);
        return error_errno(err, r, "start the thread that waits for events");
    }
    *ret = e;
    return 0;
}
