/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that hang, are slow or fail because somebody wants them to. */
#include "sim/lib.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

static bool call_matches(const char *pattern, const char *call)
{
    size_t n = strlen(pattern);
    if (n > 0 && pattern[n - 1] == '*')
        return strncmp(pattern, call, n - 1) == 0;
    return strcmp(pattern, call) == 0;
}

static bool find_fault(const char *call, int32_t gpu, struct sim_fault *ret)
{
    uint32_t n;
    struct sim_fault faults[SIM_FAULTS_MAX];
    sim_read_member(lib_map(), n_faults, &n);
    if (n == 0)
        return false;
    sim_read_member(lib_map(), faults, faults);
    for (uint32_t i = 0; i < n && i < SIM_FAULTS_MAX; i++) {
        if (faults[i].gpu != gpu || !call_matches(faults[i].call, call))
            continue;
        *ret = faults[i];
        return true;
    }
    return false;
}

/* As a thread that sleeps in the kernel: no signal but SIGKILL gets through. */
static void hang(const char *call, int32_t gpu)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (;;) {
        uint32_t word = sim_wake_word(lib_map());
        struct sim_fault f;
        if (!find_fault(call, gpu, &f) || f.kind != SIM_FAULT_HANG)
            break;
        sim_sleep(lib_map(), word, INT64_MAX);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

nv_return lib_suffer_again(const char *call, int32_t gpu, bool again)
{
    struct sim_fault f;
    if (!find_fault(call, gpu, &f))
        return NV_OK;
    if (f.kind == SIM_FAULT_FAIL)
        return (nv_return)f.value;
    if (f.kind == SIM_FAULT_HANG)
        hang(call, gpu);
    if (f.kind == SIM_FAULT_SLOW && !again) {
        int64_t until = sim_now_ns() + (int64_t)f.value * 1000000;
        struct timespec t = { .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000 };
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
            ;
    }
    return NV_OK;
}

nv_return lib_suffer(const char *call, int32_t gpu)
{
    return lib_suffer_again(call, gpu, false);
}
