/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong on a simulated host: events, losses, hangs, slow calls, the driver coming and
 * going, symbols that are not there, processes that are killed. */
#include "lab_host.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "sim/state_file.h"

static double now_ms(void)
{
    return (double)sim_now_ns() / 1e6;
}

static nv_event_set set_with(const struct lab *l, unsigned gpu, unsigned long long mask)
{
    nv_event_set set;
    assert_int_equal(NV_OK, l->nvmlEventSetCreate(&set));
    assert_int_equal(NV_OK, l->nvmlDeviceRegisterEvents(lab_gpu(l, gpu), mask, set));
    return set;
}

/* ---- events ---- */

static void test_events_reach_who_asked(void **state)
{
    struct lab l;
    struct nv_event_data e;
    unsigned long long mask;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 4 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "gpu 1 xid 13"); /* before the registration: gone */
    nv_event_set a = set_with(&l, 1, NV_EVENT_XID),
                 b = set_with(&l, 2, NV_EVENT_XID | NV_EVENT_ECC_DOUBLE);
    assert_int_equal(NV_OK, l.nvmlDeviceGetSupportedEventTypes(lab_gpu(&l, 1), &mask));
    assert_int_equal(NV_E_NOT_SUPPORTED, l.nvmlDeviceRegisterEvents(lab_gpu(&l, 1), ~mask, a));
    assert_int_equal(NV_E_TIMEOUT, l.nvmlEventSetWait_v2(a, &e, 0));
    lab_set(&l, "gpu 1 xid 31 gi 2 ci 0");
    lab_set(&l, "gpu 1 ecc double 2"); /* not asked for by a */
    lab_set(&l, "gpu 2 ecc double 3");
    lab_set(&l, "gpu 3 xid 48");
    assert_int_equal(NV_OK, l.nvmlEventSetWait_v2(a, &e, 100));
    assert_ptr_equal(lab_gpu(&l, 1), e.device);
    assert_int_equal(NV_EVENT_XID, e.type);
    assert_int_equal(31, e.data);
    assert_int_equal(2, e.gi);
    assert_int_equal(0, e.ci);
    assert_int_equal(NV_E_TIMEOUT, l.nvmlEventSetWait_v2(a, &e, 0));
    assert_int_equal(NV_OK, l.nvmlEventSetWait_v2(b, &e, 100));
    assert_int_equal(NV_EVENT_ECC_DOUBLE, e.type);
    lab_set(&l, "gpu 2 xid 79");
    assert_int_equal(NV_OK, l.nvmlEventSetWait_v2(b, &e, 100));
    assert_int_equal(NV_NO_INSTANCE, e.gi);
    assert_int_equal(NV_OK, l.nvmlEventSetFree(a));
    assert_int_equal(NV_E_ARGUMENT, l.nvmlEventSetFree(a));
    assert_int_equal(NV_E_ARGUMENT, l.nvmlEventSetWait_v2(a, &e, 0));
    lab_remove(&l);
}

static void test_many_events_in_order(void **state)
{
    struct lab l;
    struct nv_event_data e;
    char line[40];
    lab_open(&l, (struct sim_create){ .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_event_set set = set_with(&l, 0, NV_EVENT_XID);
    for (unsigned i = 1; i <= 150; i++) {
        snprintf(line, sizeof(line), "gpu 0 event 8 %u", i);
        lab_set(&l, line);
    }
    for (unsigned i = 1; i <= 150; i++) {
        assert_int_equal(NV_OK, l.nvmlEventSetWait_v2(set, &e, 0));
        assert_int_equal(i, e.data);
    }
    /* Who does not fetch them loses the oldest, never the newest. */
    for (unsigned i = 1; i <= 600; i++) {
        snprintf(line, sizeof(line), "gpu 0 event 8 %u", i);
        lab_set(&l, line);
    }
    unsigned last = 0;
    while (l.nvmlEventSetWait_v2(set, &e, 0) == NV_OK) {
        assert_int_equal(last ? last + 1 : e.data, e.data);
        last = (unsigned)e.data;
    }
    assert_int_equal(600, last);
    lab_remove(&l);
}

/* Another process posts; this one sleeps without burning time, and wakes at once. */
static void test_waiting_sleeps_and_wakes_quickly(void **state)
{
    struct lab l;
    struct nv_event_data e;
    struct rusage before, after;
    double waited[9];
    lab_open(&l, (struct sim_create){ .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_event_set set = set_with(&l, 0, NV_EVENT_XID);
    getrusage(RUSAGE_THREAD, &before);
    assert_int_equal(NV_E_TIMEOUT, l.nvmlEventSetWait_v2(set, &e, 300));
    getrusage(RUSAGE_THREAD, &after);
    long us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
              (after.ru_utime.tv_usec - before.ru_utime.tv_usec);
    assert_in_range(us, 0, 5000);
    assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 0, 20);
    for (size_t i = 0; i < ARRAY_LEN(waited); i++) {
        int pipes[2];
        double posted;
        assert_int_equal(0, pipe(pipes));
        pid_t pid = fork();
        if (pid == 0) {
            usleep(20000);
            struct error err;
            posted = now_ms();
            int r = lab_try(&l, "gpu 0 xid 13", &err);
            _exit(r == 0 && write(pipes[1], &posted, sizeof(posted)) == sizeof(posted) ? 0 : 1);
        }
        assert_int_equal(NV_OK, l.nvmlEventSetWait_v2(set, &e, 10000));
        double woken = now_ms();
        assert_int_equal(sizeof(posted), read(pipes[0], &posted, sizeof(posted)));
        waited[i] = woken - posted;
        waitpid(pid, NULL, 0);
        close(pipes[0]);
        close(pipes[1]);
    }
    for (size_t i = 0; i < ARRAY_LEN(waited); i++) /* the middle one, by insertion */
        for (size_t k = i; k > 0 && waited[k] < waited[k - 1]; k--) {
            double x = waited[k];
            waited[k] = waited[k - 1];
            waited[k - 1] = x;
        }
    print_message("woken %.3f ms after the change was begun (median)\n", waited[4]);
    lab_remove(&l);
}

struct waiter {
    const struct lab *lab;
    nv_event_set set;
    nv_return result;
};

static void *wait_long(void *arg)
{
    struct waiter *w = arg;
    struct nv_event_data e;
    w->result = w->lab->nvmlEventSetWait_v2(w->set, &e, 60000);
    return NULL;
}

static void test_a_wait_ends_with_its_set_and_its_driver(void **state)
{
    static const struct {
        const char *line; /* NULL: shutdown */
        nv_return result;
    } cases[] = { { "driver unload", NV_E_DRIVER_NOT_LOADED },
                  { "driver reload", NV_E_UNINITIALIZED },
                  { "gpu 0 lost", NV_E_GPU_IS_LOST },
                  { "call nvmlEventSetWait_v2 fail UNKNOWN", NV_E_UNKNOWN },
                  { NULL, NV_E_UNINITIALIZED } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct lab l;
        pthread_t thread;
        lab_open(&l, (struct sim_create){ .model = "l40s", .gpus = 1 });
        assert_int_equal(NV_OK, l.nvmlInit_v2());
        struct waiter w = { &l, set_with(&l, 0, NV_EVENT_XID), NV_OK };
        assert_int_equal(0, pthread_create(&thread, NULL, wait_long, &w));
        usleep(30000);
        double from = now_ms();
        if (cases[i].line)
            lab_set(&l, cases[i].line);
        else
            assert_int_equal(NV_OK, l.nvmlShutdown());
        assert_int_equal(0, pthread_join(thread, NULL));
        assert_int_equal(cases[i].result, w.result);
        assert_true(now_ms() - from < 30000);
        lab_remove(&l);
    }
}

static void test_recovery_action_follows_the_xid(void **state)
{
    static const struct {
        const char *line;
        unsigned action;
    } cases[] = { { "gpu 0 xid 13", NV_RECOVERY_NONE },
                  { "gpu 0 xid 119", NV_RECOVERY_RESET },
                  { "gpu 0 reset", NV_RECOVERY_NONE },
                  { "gpu 0 xid 79", NV_RECOVERY_REBOOT },
                  { "gpu 0 xid 95", NV_RECOVERY_REBOOT },
                  { "gpu 0 recovery drain-reset", NV_RECOVERY_DRAIN_RESET } };
    struct lab l;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_event_set set = set_with(&l, 0, NV_EVENT_RECOVERY);
    unsigned changes = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct nv_field_value f = { .field = NV_FIELD_RECOVERY_ACTION };
        struct nv_event_data e;
        lab_set(&l, cases[i].line);
        assert_int_equal(NV_OK, l.nvmlDeviceGetFieldValues(lab_gpu(&l, 0), 1, &f));
        assert_int_equal(cases[i].action, f.value.u32);
        while (l.nvmlEventSetWait_v2(set, &e, 0) == NV_OK)
            changes++;
    }
    assert_int_equal(4, changes);
    /* An old driver has no such field and no such event. */
    lab_set(&l, "driver version 550.163.01");
    assert_int_equal(NV_OK, l.nvmlShutdown());
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    struct nv_field_value f = { .field = NV_FIELD_RECOVERY_ACTION };
    assert_int_equal(NV_OK, l.nvmlDeviceGetFieldValues(lab_gpu(&l, 0), 1, &f));
    assert_int_equal(NV_E_NOT_SUPPORTED, f.ret);
    lab_remove(&l);
}

static void test_gpus_bound_and_unbound(void **state)
{
    struct lab l;
    struct nv_system_event_data data;
    struct nv_system_event_create c = { .version = NV_VERSION(struct nv_system_event_create, 1) };
    lab_open(&l, (struct sim_create){ .gpus = 3 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlSystemEventSetCreate(&c));
    struct nv_system_event_register reg = { NV_VERSION(struct nv_system_event_register, 1),
                                            NV_SYSTEM_DRIVER_BIND | NV_SYSTEM_DRIVER_UNBIND,
                                            c.set };
    struct nv_system_event_wait w = {
        NV_VERSION(struct nv_system_event_wait, 1), 0, c.set, &data, 1, 0
    };
    assert_int_equal(NV_OK, l.nvmlSystemRegisterEvents(&reg));
    assert_int_equal(NV_E_TIMEOUT, l.nvmlSystemEventSetWait(&w));
    lab_set(&l, "gpu 1 removed");
    assert_int_equal(NV_OK, l.nvmlSystemEventSetWait(&w));
    assert_int_equal(NV_SYSTEM_DRIVER_UNBIND, data.type);
    /* Indices stay until the next init. */
    unsigned n;
    nv_device d;
    assert_int_equal(NV_OK, l.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(3, n);
    assert_int_equal(NV_E_GPU_IS_LOST, l.nvmlDeviceGetHandleByIndex_v2(1, &d));
    assert_int_equal(NV_OK, l.nvmlShutdown());
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(2, n);
    lab_set(&l, "gpu 0 removed");
    lab_set(&l, "gpu 2 removed");
    assert_int_equal(NV_OK, l.nvmlShutdown());
    assert_int_equal(NV_E_NOT_FOUND, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlInitWithFlags(NV_INIT_NO_GPUS));
    lab_remove(&l);
}

/* ---- losses ---- */

static void test_one_bad_gpu_among_good_ones(void **state)
{
    struct lab l;
    nv_device d;
    unsigned n;
    lab_open(&l, (struct sim_create){ .gpus = 4 });
    lab_set(&l, "gpu 2 handle IRQ_ISSUE");
    assert_int_equal(NV_E_IRQ, l.nvmlInit()); /* the old init wants all of them */
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(4, n);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(i == 2 ? NV_E_IRQ : NV_OK, l.nvmlDeviceGetHandleByIndex_v2(i, &d));
    lab_set(&l, "gpu 2 handle NO_PERMISSION");
    assert_int_equal(NV_OK, l.nvmlDeviceGetCount(&n));
    assert_int_equal(3, n);
    lab_set(&l, "gpu 2 handle ok");
    assert_int_equal(NV_OK, l.nvmlDeviceGetHandleByIndex_v2(2, &d));
    lab_remove(&l);
}

static void test_lost_and_back_after_a_reset(void **state)
{
    struct lab l;
    char text[80], path[80];
    unsigned value;
    struct nv_pci_info pci;
    lab_open(&l, (struct sim_create){ .gpus = 4 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 3), other = lab_gpu(&l, 1), again;
    assert_int_equal(NV_OK, l.nvmlDeviceGetPciInfo_v3(d, &pci));
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:00.0/config", pci.domain, pci.bus);
    assert_int_equal(0xde, (unsigned char)lab_read(&l, path)[0]);
    lab_set(&l, "gpu 3 lost");
    assert_int_equal(0xff, (unsigned char)lab_read(&l, path)[0]);
    assert_int_equal(NV_E_GPU_IS_LOST, l.nvmlDeviceGetUUID(d, text, sizeof(text)));
    assert_int_equal(NV_E_GPU_IS_LOST, l.nvmlDeviceGetHandleByIndex_v2(3, &again));
    assert_int_equal(NV_OK, l.nvmlDeviceGetUUID(other, text, sizeof(text)));
    lab_set(&l, "gpu 3 reset");
    assert_int_equal(0xde, (unsigned char)lab_read(&l, path)[0]);
    /* This session saw it fall: only a new one gets it back. */
    assert_int_equal(NV_E_GPU_IS_LOST, l.nvmlDeviceGetIndex(d, &value));
    lab_set(&l, "lenient lost on");
    assert_int_equal(NV_OK, l.nvmlDeviceGetIndex(d, &value));
    lab_set(&l, "lenient lost off");
    assert_int_equal(NV_OK, l.nvmlShutdown());
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlDeviceGetHandleByIndex_v2(3, &again));
    lab_remove(&l);
}

/* ---- the driver ---- */

static void test_driver_unloaded_and_back(void **state)
{
    struct lab l;
    unsigned n;
    nv_event_set set;
    lab_open(&l, (struct sim_create){ .gpus = 2 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    nv_device d = lab_gpu(&l, 0);
    assert_int_equal(NV_OK, l.nvmlEventSetCreate(&set));
    assert_true(lab_exists(&l, "/proc/driver/nvidia/version"));
    lab_set(&l, "driver unload");
    assert_false(lab_exists(&l, "/proc/driver/nvidia"));
    assert_false(lab_exists(&l, "/sys/module/nvidia"));
    assert_null(strstr(lab_read(&l, "/proc/devices"), "nvidia"));
    assert_null(strstr(lab_read(&l, "/proc/modules"), "nvidia"));
    assert_int_equal(NV_E_DRIVER_NOT_LOADED, l.nvmlDeviceGetIndex(d, &n));
    assert_int_equal(NV_E_DRIVER_NOT_LOADED, l.nvmlDeviceGetCount_v2(&n));
    assert_int_equal(NV_OK, l.nvmlEventSetFree(set));
    lab_set(&l, "driver load");
    assert_true(lab_exists(&l, "/proc/driver/nvidia/version"));
    assert_int_equal(NV_E_UNINITIALIZED, l.nvmlDeviceGetIndex(d, &n));
    assert_int_equal(NV_OK, l.nvmlShutdown());
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlDeviceGetCount_v2(&n));
    lab_set(&l, "driver unload");
    assert_int_equal(NV_OK, l.nvmlShutdown());
    assert_int_equal(NV_E_DRIVER_NOT_LOADED, l.nvmlInit_v2());
    lab_remove(&l);
}

static void test_library_and_module_differ(void **state)
{
    struct lab l;
    unsigned n;
    lab_open(&l, (struct sim_create){ .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "driver mismatch");
    assert_int_equal(NV_OK, l.nvmlDeviceGetCount_v2(&n)); /* who has it open goes on */
    assert_int_equal(NV_OK, l.nvmlShutdown());
    assert_int_equal(NV_E_VERSION_MISMATCH, l.nvmlInit_v2());
    lab_set(&l, "driver reload");
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_remove(&l);
}

static void test_another_version(void **state)
{
    struct lab l;
    char text[80], path[120];
    lab_open(&l, (struct sim_create){ .gpus = 1 });
    lab_set(&l, "driver version 999.1");
    assert_non_null(strstr(lab_read(&l, "/proc/driver/nvidia/version"), "999.1"));
    assert_string_equal("999.1\n", lab_read(&l, "/sys/module/nvidia/version"));
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlSystemGetDriverVersion(text, sizeof(text)));
    assert_string_equal("999.1", text);
#if defined(__aarch64__)
    snprintf(path, sizeof(path), "%s/usr/lib/aarch64-linux-gnu/libcuda.so.1", l.dir);
#else
    snprintf(path, sizeof(path), "%s/usr/lib/x86_64-linux-gnu/libcuda.so.1", l.dir);
#endif
    ssize_t n = readlink(path, text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = 0;
    assert_string_equal("libcuda.so.999.1", text);
    assert_int_equal(0, access(path, R_OK));
    lab_remove(&l);
}

/* ---- calls ---- */

static void test_calls_fail_on_demand(void **state)
{
    struct lab l;
    unsigned a, b;
    struct nv_memory m;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 3 });
    lab_set(&l, "call nvmlInit_v2 fail UNKNOWN");
    assert_int_equal(NV_E_UNKNOWN, l.nvmlInit_v2());
    lab_set(&l, "call nvmlInit_v2 ok");
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "call nvmlDeviceGetMigMode fail FUNCTION_NOT_FOUND gpu 1");
    assert_int_equal(NV_OK, l.nvmlDeviceGetMigMode(lab_gpu(&l, 0), &a, &b));
    assert_int_equal(NV_E_FUNCTION_NOT_FOUND, l.nvmlDeviceGetMigMode(lab_gpu(&l, 1), &a, &b));
    lab_set(&l, "call nvmlDeviceGetMem* fail 999");
    assert_int_equal(NV_E_UNKNOWN, l.nvmlDeviceGetMemoryInfo(lab_gpu(&l, 0), &m));
    lab_set(&l, "call nvmlDeviceGetHandleByIndex_v2 fail 15 gpu 2");
    nv_device d;
    assert_int_equal(NV_OK, l.nvmlDeviceGetHandleByIndex_v2(1, &d));
    assert_int_equal(NV_E_GPU_IS_LOST, l.nvmlDeviceGetHandleByIndex_v2(2, &d));
    lab_set(&l, "call all ok");
    assert_int_equal(NV_OK, l.nvmlDeviceGetMemoryInfo(lab_gpu(&l, 0), &m));
    lab_remove(&l);
}

static void test_calls_are_slow_on_demand(void **state)
{
    struct lab l;
    unsigned n;
    lab_open(&l, (struct sim_create){ .gpus = 1 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    lab_set(&l, "call nvmlDeviceGetCount_v2 slow 80");
    double from = now_ms();
    assert_int_equal(NV_OK, l.nvmlDeviceGetCount_v2(&n));
    assert_true(now_ms() - from >= 80);
    lab_remove(&l);
}

/* A hanging call stands through signals and goes on when it is cleared. */
static void test_a_hang_lasts_until_it_is_cleared(void **state)
{
    struct lab l;
    int status;
    lab_open(&l, (struct sim_create){ .gpus = 2 });
    lab_set(&l, "call nvmlDeviceGetHandleByIndex_v2 hang gpu 1");
    pid_t pid = fork();
    if (pid == 0) {
        nv_device d;
        int first = l.nvmlInit_v2();
        int good = l.nvmlDeviceGetHandleByIndex_v2(0, &d);
        int hung = l.nvmlDeviceGetHandleByIndex_v2(1, &d);
        _exit(first | good | hung);
    }
    usleep(60000);
    kill(pid, SIGTERM);
    kill(pid, SIGUSR1);
    usleep(60000);
    assert_int_equal(0, waitpid(pid, &status, WNOHANG));
    lab_set(&l, "call all ok");
    assert_int_equal(pid, waitpid(pid, &status, 0));
    assert_true(WIFSIGNALED(status)); /* the signals that waited take effect now */
    /* And one that nobody clears can be killed. */
    lab_set(&l, "call nvmlInit_v2 hang");
    pid = fork();
    if (pid == 0)
        _exit(l.nvmlInit_v2());
    usleep(60000);
    kill(pid, SIGKILL);
    assert_int_equal(pid, waitpid(pid, &status, 0));
    assert_int_equal(SIGKILL, WTERMSIG(status));
    lab_remove(&l);
}

static void test_an_old_library_lacks_symbols(void **state)
{
    struct lab l;
    nv_device d;
    struct nv_memory m;
    lab_open(&l, (struct sim_create){
                     .gpus = 1,
                     .hide_symbols =
                         "nvmlDeviceGetMemoryInfo_v2, nvmlGpm*,nvmlDeviceGetAddressingMode" });
    assert_null(l.nvmlDeviceGetMemoryInfo_v2);
    assert_null(l.nvmlGpmSampleGet);
    assert_null(l.nvmlGpmMetricsGet);
    assert_null(l.nvmlDeviceGetAddressingMode);
    assert_non_null(l.nvmlDeviceGetMemoryInfo);
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    assert_int_equal(NV_OK, l.nvmlDeviceGetHandleByIndex_v2(0, &d));
    assert_int_equal(NV_OK, l.nvmlDeviceGetMemoryInfo(d, &m));
    lab_remove(&l);

    struct error err = { 0 };
    struct sim_create c = { .dir = "/tmp/mete-lab-never",
                            .gpus = 1,
                            .hide_symbols = "nvmlNothing" };
    assert_int_equal(-ERR_NOT_FOUND, sim_create(&c, &err));
    assert_non_null(strstr(err.text, "nvmlNothing"));
    assert_int_equal(-1, access(c.dir, F_OK));
}

/* ---- processes that die ---- */

/* Writers and readers are killed at any moment; whoever comes next finds a whole world. */
static void test_killed_processes_leave_a_whole_world(void **state)
{
    struct lab l;
    struct error err;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 8 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    for (int round = 0; round < 40; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (unsigned i = 0;; i++) /* both members change together or not at all */
                if (lab_try(&l, i & 1 ? "gpu all util 11" : "gpu all util 77", &err) < 0 ||
                    lab_try(&l, i & 1 ? "gpu 0 mig 3g.40gb,1g.10gb" : "gpu 0 mig destroy all",
                            &err) < 0)
                    _exit(1);
        }
        usleep(1000 + 577 * (unsigned)round % 9000);
        kill(pid, SIGKILL);
        assert_int_equal(pid, waitpid(pid, NULL, 0));
        double from = now_ms();
        lab_set(&l, "gpu 0 temperature 50");
        assert_true(now_ms() - from < 5000);
        auto_sim_map map;
        auto_free struct sim_world *w = x_alloc(sizeof(*w));
        assert_int_equal(0, sim_map_open(&map, l.dir, &err));
        sim_read(&map, 0, sizeof(*w), w, NULL);
        for (uint32_t i = 1; i < w->n_gpus; i++)
            assert_int_equal(w->gpus[0].util_gpu, w->gpus[i].util_gpu);
    }
    lab_set(&l, "gpu 0 mig destroy all");
    assert_false(lab_exists(&l, "/proc/driver/nvidia/capabilities/gpu0"));
    lab_remove(&l);
}

/* Eight threads call while another process changes the world. */
struct caller {
    const struct lab *lab;
    _Atomic bool *stop;
    unsigned calls, torn;
};

static void *call_much(void *arg)
{
    struct caller *c = arg;
    while (!*c->stop) {
        nv_device d;
        struct nv_utilization u;
        if (c->lab->nvmlDeviceGetHandleByIndex_v2(c->calls % 8, &d) != NV_OK ||
            c->lab->nvmlDeviceGetUtilizationRates(d, &u) != NV_OK ||
            (u.gpu != 77 && u.gpu != 11 && u.gpu != 0))
            c->torn++;
        c->calls++;
    }
    return NULL;
}

static void test_threads_and_processes_at_once(void **state)
{
    struct lab l;
    struct error err;
    pthread_t threads[8];
    struct caller callers[8];
    _Atomic bool stop = false;
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 8 });
    assert_int_equal(NV_OK, l.nvmlInit_v2());
    pid_t pid = fork();
    if (pid == 0) {
        for (unsigned i = 0; i < 300; i++)
            if (lab_try(&l, i & 1 ? "gpu all util 11" : "gpu all util 77", &err) < 0)
                _exit(1);
        _exit(0);
    }
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        callers[i] = (struct caller){ .lab = &l, .stop = &stop };
        assert_int_equal(0, pthread_create(&threads[i], NULL, call_much, &callers[i]));
    }
    int status;
    assert_int_equal(pid, waitpid(pid, &status, 0));
    assert_int_equal(0, status);
    stop = true;
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(0, callers[i].torn);
        assert_in_range(callers[i].calls, 1, UINT32_MAX);
    }
    lab_remove(&l);
}

/* Without write access to the state one may read and wait, not change. */
static void test_reading_only(void **state)
{
    struct lab l;
    int status;
    char path[120];
    if (geteuid() != 0)
        skip();
    lab_open(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 1 });
    snprintf(path, sizeof(path), "%s/" SIM_STATE_PATH, l.dir);
    assert_int_equal(0, chmod(l.dir, 0755));
    assert_int_equal(0, chmod(path, 0644));
    pid_t pid = fork();
    if (pid == 0) {
        nv_return activation;
        nv_event_set set;
        struct nv_event_data e;
        nv_device d;
        if (setuid(65534) < 0)
            _exit(2);
        bool good = l.nvmlInit_v2() == NV_OK && l.nvmlDeviceGetHandleByIndex_v2(0, &d) == NV_OK &&
                    l.nvmlDeviceSetMigMode(d, 1, &activation) == NV_E_NO_PERMISSION &&
                    l.nvmlEventSetCreate(&set) == NV_OK &&
                    l.nvmlDeviceRegisterEvents(d, NV_EVENT_XID, set) == NV_OK &&
                    l.nvmlEventSetWait_v2(set, &e, 5000) == NV_OK && e.data == 13 &&
                    l.nvmlEventSetFree(set) == NV_OK && l.nvmlShutdown() == NV_OK;
        _exit(good ? 0 : 1);
    }
    for (int i = 0; i < 20 && waitpid(pid, &status, WNOHANG) == 0; i++) {
        lab_set(&l, "gpu 0 xid 13");
        usleep(50000);
    }
    assert_int_equal(0, status);
    lab_remove(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_reach_who_asked),
        cmocka_unit_test(test_many_events_in_order),
        cmocka_unit_test(test_waiting_sleeps_and_wakes_quickly),
        cmocka_unit_test(test_a_wait_ends_with_its_set_and_its_driver),
        cmocka_unit_test(test_recovery_action_follows_the_xid),
        cmocka_unit_test(test_gpus_bound_and_unbound),
        cmocka_unit_test(test_one_bad_gpu_among_good_ones),
        cmocka_unit_test(test_lost_and_back_after_a_reset),
        cmocka_unit_test(test_driver_unloaded_and_back),
        cmocka_unit_test(test_library_and_module_differ),
        cmocka_unit_test(test_another_version),
        cmocka_unit_test(test_calls_fail_on_demand),
        cmocka_unit_test(test_calls_are_slow_on_demand),
        cmocka_unit_test(test_a_hang_lasts_until_it_is_cleared),
        cmocka_unit_test(test_an_old_library_lacks_symbols),
        cmocka_unit_test(test_killed_processes_leave_a_whole_world),
        cmocka_unit_test(test_threads_and_processes_at_once),
        cmocka_unit_test(test_reading_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
