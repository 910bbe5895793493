/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/lib.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sim/tree.h"

enum { HANDLES_MAX = 4096 };

struct handle {
    uint32_t kind, number, gi, ci, serial;
    uint32_t session;
};

static struct {
    pthread_mutex_t lock;        /* inits, handles, opening the map */
    pthread_mutex_t change_lock; /* the file lock is per process */
    struct sim_map map;
    dev_t device;
    ino_t inode;
    _Atomic uint32_t inits; /* 0: no session */
    _Atomic uint32_t session;
    _Atomic uint32_t epoch; /* of the driver, when the session began */
    _Atomic uint32_t n_gpus, numbers[SIM_GPUS_MAX], lost_count[SIM_GPUS_MAX];
    uint32_t n_handles, next_handle;
    struct handle handles[HANDLES_MAX];
    struct sim_world *staged;
} lib = { .lock = PTHREAD_MUTEX_INITIALIZER,
          .change_lock = PTHREAD_MUTEX_INITIALIZER,
          .map = { .fd = -1 } };

struct sim_map *lib_map(void)
{
    return &lib.map;
}

/* ---- finding the host ---- */

static bool has_state(const char *dir, struct stat *st)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof(path), "%s/" SIM_STATE_PATH, dir) < (int)sizeof(path) &&
           stat(path, st) == 0;
}

/* The directory whose .mete-sim/state is meant by METE_SIM_STATE (the file or the host directory),
 * or the nearest one above the place from which this library was loaded. */
static bool find_host(char dir[PATH_MAX], struct stat *st)
{
    const char *given = getenv("METE_SIM_STATE");
    if (given && given[0]) {
        struct str s = str_of(given);
        if (str_ends(s, "/" SIM_STATE_PATH))
            s.n -= sizeof("/" SIM_STATE_PATH) - 1;
        snprintf(dir, PATH_MAX, "%.*s", (int)s.n, s.p);
        return has_state(dir, st);
    }
    Dl_info info;
    if (!dladdr(&lib, &info) || !info.dli_fname || !realpath(info.dli_fname, dir))
        return false;
    for (char *slash; (slash = strrchr(dir, '/')) != NULL;) {
        *slash = 0;
        if (has_state(dir, st))
            return true;
    }
    return false;
}

static nv_return open_host(void)
{
    char dir[PATH_MAX];
    struct stat st;
    if (!find_host(dir, &st))
        return NV_E_DRIVER_NOT_LOADED;
    if (lib.map.state && st.st_dev == lib.device && st.st_ino == lib.inode)
        return NV_OK;
    struct sim_map fresh;
    if (sim_map_open(&fresh, dir, NULL) < 0)
        return NV_E_UNKNOWN;
    /* An old mapping stays: a thread may still wait in it. */
    lib.map = fresh;
    lib.device = st.st_dev;
    lib.inode = st.st_ino;
    return NV_OK;
}

__attribute__((constructor)) static void load(void);
__attribute__((destructor)) static void unload(void)
{
    if (lib.map.state)
        lib_events_reset();
    sim_map_close(&lib.map);
}

/* ---- the session ---- */

static void after_fork(void)
{
    /* A child has no session of its own, and perhaps a lock held by a thread that it lacks. */
    atomic_store(&lib.inits, 0);
    pthread_mutex_init(&lib.lock, NULL);
    pthread_mutex_init(&lib.change_lock, NULL);
}

static void load(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static nv_return driver_state(uint32_t *ret_epoch)
{
    uint32_t both[2];
    _Static_assert(offsetof(struct sim_world, driver_epoch) ==
                       offsetof(struct sim_world, driver) + 4,
                   "read as one");
    sim_read(&lib.map, offsetof(struct sim_world, driver), sizeof(both), both, NULL);
    *ret_epoch = both[1];
    return both[0] == SIM_DRIVER_UNLOADED   ? NV_E_DRIVER_NOT_LOADED
           : both[0] == SIM_DRIVER_MISMATCH ? NV_E_VERSION_MISMATCH
                                            : NV_OK;
}

static void begin_session(void)
{
    atomic_fetch_add(&lib.session, 1);
    lib.n_gpus = 0;
    uint32_t n;
    sim_read_member(&lib.map, n_gpus, &n);
    for (uint32_t i = 0; i < n && i < SIM_GPUS_MAX; i++) {
        struct sim_gpu g;
        lib_read_gpu(i, &g);
        lib.lost_count[i] = g.lost_count;
        if (g.present)
            lib.numbers[lib.n_gpus++] = i;
    }
}

/* nvmlInit brings every gpu up at once and fails with the first that does not come. */
static nv_return all_good(void)
{
    for (uint32_t i = 0; i < lib.n_gpus; i++) {
        struct sim_gpu g;
        lib_read_gpu(lib.numbers[i], &g);
        if (g.lost || g.handle_code)
            return g.lost ? NV_E_GPU_IS_LOST : (nv_return)g.handle_code;
    }
    return NV_OK;
}

static nv_return init_locked(unsigned flags, bool bring_up)
{
    if (atomic_load(&lib.inits) == 0) {
        uint32_t epoch;
        nv_return r = driver_state(&epoch);
        if (r != NV_OK)
            return r;
        lib.epoch = epoch;
        begin_session();
        if (lib.n_gpus == 0 && !(flags & NV_INIT_NO_GPUS))
            return NV_E_NOT_FOUND;
        if (bring_up && (r = all_good()) != NV_OK)
            return r;
    }
    atomic_fetch_add(&lib.inits, 1);
    return NV_OK;
}

static nv_return init(const char *call, unsigned flags, bool bring_up)
{
    pthread_mutex_lock(&lib.lock);
    nv_return r = atomic_load(&lib.inits) == 0 ? open_host() : NV_OK;
    pthread_mutex_unlock(&lib.lock);
    if (r != NV_OK || (r = lib_suffer(call, -1)) != NV_OK)
        return r;
    pthread_mutex_lock(&lib.lock);
    r = init_locked(flags, bring_up);
    pthread_mutex_unlock(&lib.lock);
    return r;
}

nv_return nvmlInit(void)
{
    return init(__func__, 0, true);
}

nv_return nvmlInit_v2(void)
{
    return init(__func__, 0, false);
}

nv_return nvmlInitWithFlags(unsigned flags)
{
    return init(__func__, flags, false);
}

nv_return nvmlShutdown(void)
{
    if (atomic_load(&lib.inits) == 0)
        return NV_E_UNINITIALIZED;
    nv_return r = lib_suffer(__func__, -1);
    if (r != NV_OK)
        return r;
    pthread_mutex_lock(&lib.lock);
    uint32_t inits = atomic_load(&lib.inits);
    if (inits > 0)
        atomic_store(&lib.inits, inits - 1);
    pthread_mutex_unlock(&lib.lock);
    if (inits == 1)
        lib_events_reset();
    return inits > 0 ? NV_OK : NV_E_UNINITIALIZED;
}

static nv_return enter(const char *call, bool again)
{
    if (atomic_load(&lib.inits) == 0)
        return NV_E_UNINITIALIZED;
    nv_return r = lib_suffer_again(call, -1, again);
    if (r != NV_OK)
        return r;
    uint32_t epoch;
    r = driver_state(&epoch);
    if (r == NV_E_DRIVER_NOT_LOADED)
        return r;
    /* A session does not survive the driver that it was opened with; a library that was replaced
     * under a running process goes on working. */
    return epoch == lib.epoch ? NV_OK : NV_E_UNINITIALIZED;
}

nv_return lib_enter(const char *call)
{
    return enter(call, false);
}

nv_return lib_still(const char *call)
{
    return enter(call, true);
}

nv_return lib_enter_early(const char *call)
{
    pthread_mutex_lock(&lib.lock);
    nv_return r = lib.map.state ? NV_OK : open_host();
    pthread_mutex_unlock(&lib.lock);
    return r == NV_OK ? lib_suffer(call, -1) : r;
}

/* ---- handles ---- */

/* Finds or makes the handle of an object; `serial` tells an instance from a later one in its place.
 */
static uint32_t handle_for(uint32_t kind, uint32_t number, uint32_t gi, uint32_t ci,
                           uint32_t serial)
{
    uint32_t session = atomic_load(&lib.session), at;
    for (at = 0; at < lib.n_handles; at++) {
        const struct handle *h = &lib.handles[at];
        if (h->session == session && h->kind == kind && h->number == number && h->gi == gi &&
            h->ci == ci && h->serial == serial)
            return at;
    }
    do /* gpus keep theirs; of instances only the last few thousand do */
        at = lib.next_handle++ % HANDLES_MAX;
    while (at < lib.n_handles && lib.handles[at].session == session &&
           lib.handles[at].kind == LIB_GPU);
    lib.n_handles = MAX(lib.n_handles, at + 1);
    lib.handles[at] = (struct handle){
        .kind = kind, .number = number, .gi = gi, .ci = ci, .serial = serial, .session = session
    };
    return at;
}

static void *handle_get(uint32_t kind, uint32_t number, uint32_t gi, uint32_t ci, uint32_t serial)
{
    pthread_mutex_lock(&lib.lock);
    uint32_t at = handle_for(kind, number, gi, ci, serial);
    pthread_mutex_unlock(&lib.lock);
    return &lib.handles[at];
}

nv_device lib_gpu_handle(uint32_t number)
{
    return handle_get(LIB_GPU, number, UINT32_MAX, UINT32_MAX, 0);
}

nv_device lib_mig_handle(uint32_t number, const struct sim_gi *gi, const struct sim_ci *ci)
{
    return handle_get(LIB_MIG, number, gi->id, ci->id, ci->serial);
}

nv_gi lib_gi_handle(uint32_t number, const struct sim_gi *gi)
{
    return handle_get(LIB_GI, number, gi->id, UINT32_MAX, gi->serial);
}

nv_ci lib_ci_handle(uint32_t number, const struct sim_gi *gi, const struct sim_ci *ci)
{
    return handle_get(LIB_CI, number, gi->id, ci->id, ci->serial);
}

/* What a caller hands in may be anything: it is looked at only if it points into the table. */
static const struct handle *handle_of(const void *p, uint32_t kinds)
{
    uintptr_t base = (uintptr_t)lib.handles, at = (uintptr_t)p;
    if (at < base || at >= base + sizeof(lib.handles) || (at - base) % sizeof(struct handle))
        return NULL;
    const struct handle *h = &lib.handles[(at - base) / sizeof(struct handle)];
    return h->session == atomic_load(&lib.session) && h->session && (h->kind & kinds) ? h : NULL;
}

void lib_read_gpu(uint32_t number, struct sim_gpu *ret)
{
    sim_read(&lib.map, offsetof(struct sim_world, gpus) + number * sizeof(*ret), sizeof(*ret), ret,
             NULL);
}

void lib_read_mig(uint32_t number, struct sim_mig *ret)
{
    sim_read(&lib.map, offsetof(struct sim_world, mig) + number * sizeof(*ret), sizeof(*ret), ret,
             NULL);
}

static uint32_t leniency(void)
{
    uint32_t bits;
    sim_read_member(&lib.map, leniency, &bits);
    return bits;
}

/* A gpu that fell off the bus stays lost for the sessions that saw it fall, also after its reset.
 */
bool lib_lost(uint32_t number, const struct sim_gpu *g)
{
    if (g->lost || !g->present)
        return true;
    return g->lost_count != lib.lost_count[number] && !(leniency() & SIM_LENIENT_LOST);
}

static nv_return view_of(const char *call, const void *p, uint32_t kinds, bool args,
                         struct lib_view *v, uint32_t *ret_serial)
{
    nv_return r = lib_enter(call);
    if (r != NV_OK)
        return r;
    const struct handle *h = handle_of(p, kinds);
    if (!h || !args)
        return NV_E_ARGUMENT;
    v->number = h->number;
    v->kind = (enum lib_kind)h->kind;
    v->gi = h->gi;
    v->ci = h->ci;
    *ret_serial = h->serial;
    if ((r = lib_suffer(call, (int32_t)h->number)) != NV_OK)
        return r;
    lib_read_gpu(h->number, &v->gpu);
    return lib_lost(h->number, &v->gpu) ? NV_E_GPU_IS_LOST : NV_OK;
}

bool lib_may_monitor(void)
{
    uint32_t deny;
    sim_read_member(&lib.map, monitor_deny, &deny);
    return !deny;
}

nv_return lib_device(const char *call, nv_device d, bool args, struct lib_view *v)
{
    uint32_t serial;
    nv_return r = view_of(call, d, LIB_GPU | LIB_MIG, args, v, &serial);
    if (r != NV_OK || v->kind == LIB_GPU)
        return r;
    struct sim_mig mig;
    lib_read_mig(v->number, &mig);
    struct sim_gi *gi = sim_gi_by_id(&mig, v->gi);
    struct sim_ci *ci = gi ? sim_ci_by_id(gi, v->ci) : NULL;
    return ci && ci->serial == serial ? NV_OK : NV_E_ARGUMENT;
}

nv_return lib_whole(const char *call, nv_device d, bool args, struct lib_view *v)
{
    nv_return r = lib_device(call, d, args, v);
    return r == NV_OK && v->kind == LIB_MIG ? NV_E_NOT_SUPPORTED : r;
}

nv_return lib_instance(const char *call, nv_gi handle, bool args, struct lib_view *v,
                       struct sim_gi *ret)
{
    uint32_t serial;
    nv_return r = view_of(call, handle, LIB_GI, args, v, &serial);
    if (r != NV_OK)
        return r;
    struct sim_mig mig;
    lib_read_mig(v->number, &mig);
    struct sim_gi *gi = sim_gi_by_id(&mig, v->gi);
    if (!gi || gi->serial != serial)
        return NV_E_ARGUMENT;
    *ret = *gi;
    return lib_may_monitor() ? NV_OK : NV_E_NO_PERMISSION;
}

nv_return lib_compute(const char *call, nv_ci handle, bool args, struct lib_view *v,
                      struct sim_gi *ret_gi, struct sim_ci *ret_ci)
{
    uint32_t serial;
    nv_return r = view_of(call, handle, LIB_CI, args, v, &serial);
    if (r != NV_OK)
        return r;
    struct sim_mig mig;
    lib_read_mig(v->number, &mig);
    struct sim_gi *gi = sim_gi_by_id(&mig, v->gi);
    struct sim_ci *ci = gi ? sim_ci_by_id(gi, v->ci) : NULL;
    if (!ci || ci->serial != serial)
        return NV_E_ARGUMENT;
    *ret_gi = *gi;
    *ret_ci = *ci;
    return lib_may_monitor() ? NV_OK : NV_E_NO_PERMISSION;
}

nv_return lib_take(const char *call, uint32_t number, nv_device *ret)
{
    nv_return r = lib_suffer(call, (int32_t)number);
    if (r != NV_OK)
        return r;
    struct sim_gpu g;
    lib_read_gpu(number, &g);
    if (lib_lost(number, &g))
        return NV_E_GPU_IS_LOST;
    if (g.handle_code)
        return (nv_return)g.handle_code;
    *ret = lib_gpu_handle(number);
    return NV_OK;
}

uint32_t lib_count(void)
{
    return lib.n_gpus;
}

bool lib_number(uint32_t index, uint32_t *ret)
{
    if (index >= lib.n_gpus)
        return false;
    *ret = lib.numbers[index];
    return true;
}

uint32_t lib_index(uint32_t number)
{
    uint32_t i = 0;
    while (i < lib.n_gpus && lib.numbers[i] != number)
        i++;
    return i;
}

/* ---- changes ---- */

nv_return lib_change(struct sim_world **ret)
{
    pthread_mutex_lock(&lib.change_lock);
    if (sim_change(&lib.map, ret, NULL) == 0) {
        lib.staged = *ret;
        return NV_OK;
    }
    pthread_mutex_unlock(&lib.change_lock);
    return NV_E_NO_PERMISSION;
}

void lib_commit(bool trees)
{
    /* Best effort: in a container the host directory may be out of reach. */
    if (trees)
        (void)!sim_tree_sync(lib.map.root, lib.staged, NULL);
    sim_commit(&lib.map);
    pthread_mutex_unlock(&lib.change_lock);
}

void lib_abandon(void)
{
    sim_abandon(&lib.map);
    pthread_mutex_unlock(&lib.change_lock);
}

/* ---- small things that every duty needs ---- */

nv_return lib_text(char *to, unsigned size, const char *text)
{
    size_t n = strlen(text) + 1;
    if (!to)
        return NV_E_ARGUMENT;
    if (size < n)
        return NV_E_SIZE;
    memcpy(to, text, n);
    return NV_OK;
}

nv_return lib_version(uint32_t got, uint32_t wanted)
{
    if (got == wanted)
        return NV_OK;
    /* Real drivers were seen to take the bare number. */
    return got == wanted >> 24 && (leniency() & SIM_LENIENT_MAGIC) ? NV_OK : NV_E_VERSION;
}
