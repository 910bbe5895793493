/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side against real worker processes, which are this very program ("gpu-worker"), with
 * the fake driver in them. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "fake.h"
#include "gpu/bytes.h"
#include "gpu/protocol.h"
#include "worker-bench.h"

static void prepare(struct bench *b, const char *words)
{
    *b = (struct bench){ 0 };
    fake_begin(&b->f, FAKE_NVML);
    fake_set(&b->f, words);
    b->host = &b->f.host;
    bench_config(b);
}

static void begin(struct bench *b, const char *words)
{
    struct error err;
    prepare(b, words);
    if (gpu_worker_new(b->loop, &b->config, &b->w, &err) < 0)
        fail_msg("%s", err.text);
}

static void end(struct bench *b)
{
    bench_done(b);
    fake_end(&b->f);
    unsetenv("METE_SIM_EVIL");
}

static bool is_fine(struct bench *b)
{
    return b->state == DRIVER_OK && !b->stale && b->last && b->last->n_gpus == 2 &&
           !b->last->gpus[0].lost && !b->last->gpus[1].lost;
}
static bool is_stale(struct bench *b)
{
    return b->stale;
}
static bool is_hung(struct bench *b)
{
    return b->state == DRIVER_HUNG;
}
static bool is_stuck(struct bench *b)
{
    return b->state == DRIVER_STUCK;
}
static bool is_released(struct bench *b)
{
    return b->state == DRIVER_RELEASED;
}
static bool is_not_loaded(struct bench *b)
{
    return b->state == DRIVER_NOT_LOADED && b->last && b->last->driver == DRIVER_NOT_LOADED;
}
static bool has_event(struct bench *b)
{
    return b->events > 0;
}
static bool has_failure(struct bench *b)
{
    return b->failed.kind == GPU_EVENT_WAIT_FAILED;
}
static bool has_xid(struct bench *b)
{
    return b->xids > 0;
}
/* ---- the usual ---- */

static void survey_and_events(void **st)
{
    struct bench b;
    begin(&b, "");
    assert_true(wait_for(&b, is_fine));
    assert_int_equal(b.surveys, 1);
    assert_int_equal(b.last->serial, 1);
    assert_true(gpu_worker_pid(b.w) > 0);

    gpu_worker_survey(b.w);
    gpu_worker_survey(b.w);
    gpu_worker_survey(b.w);
    run_for(&b, 400);
    assert_int_equal(b.surveys, 2); /* three wishes, one survey */

    fake_set(&b.f, "event_seq=1 event_gpu=1 event_data=79 event_gi=3");
    assert_true(wait_for(&b, has_event));
    assert_int_equal(b.event.kind, GPU_EVENT_XID);
    assert_string_equal(b.event.uuid, "GPU-0000-1");
    assert_int_equal(b.event.value, 79);
    assert_int_equal(b.event.gi, 3);
    assert_int_equal(b.event.ci, UINT32_MAX);
    assert_int_equal(b.surveys, 2);

    b.events = 0;
    fake_set(&b.f, "event_seq=2 event_anonymous=1 event_type=2");
    assert_true(wait_for(&b, has_event));
    assert_int_equal(b.event.kind, GPU_EVENT_ECC_DOUBLE);
    assert_string_equal(b.event.uuid, "");
    assert_int_equal(b.event.gi, UINT32_MAX);

    /* The MIG layout changed: a survey follows by itself. */
    b.events = 0;
    fake_set(&b.f, "event_seq=3 event_type=0x100 mig0=3");
    assert_true(wait_for(&b, has_event));
    assert_int_equal(b.event.kind, GPU_EVENT_MIG_CHANGE);
    run_for(&b, 400);
    assert_int_equal(b.surveys, 3);
    assert_int_equal(b.last->gpus[0].n_parts, 2);
    assert_int_equal(b.states, 1);
    end(&b);
}

static bool has_old_survey(struct bench *b)
{
    return b->surveys == 1 && b->last->driver == DRIVER_OK;
}

static void old_driver(void **st)
{
    struct bench b;
    struct error err;
    prepare(&b, "");
    fake_library(&b.f, FAKE_NVML_OLD);
    assert_int_equal(gpu_worker_new(b.loop, &b.config, &b.w, &err), 0);
    assert_true(wait_for(&b, has_old_survey));
    fake_set(&b.f, "event_seq=1 event_gpu=1 event_data=48 event_gi=3");
    assert_true(wait_for(&b, has_event));
    assert_int_equal(b.event.value, 48);
    assert_int_equal(b.event.gi, UINT32_MAX); /* the old call does not tell */
    end(&b);
}

/* B-036: made and destroyed without an event; the directories tell. */
static bool has_two_parts(struct bench *b)
{
    return b->last && b->last->gpus[0].n_parts == 2;
}
static bool has_one_part(struct bench *b)
{
    return b->last && b->last->gpus[0].n_parts == 1;
}

/* A survey by a worker that has taken no other. */
static bool restarted(struct bench *b)
{
    return b->surveys > 2 && b->last->serial == 1;
}

static void mig_by_directory(void **st)
{
    struct bench b;
    prepare(&b, "mig0=3 events=8");
    struct error err;
    fake_file(&b.f, "/proc/driver/nvidia/capabilities/gpu4/mig/gi7/access", "");
    fake_file(&b.f, "/proc/driver/nvidia/capabilities/gpu4/mig/gi8/access", "");
    assert_int_equal(gpu_worker_new(b.loop, &b.config, &b.w, &err), 0);
    assert_true(wait_for(&b, has_two_parts));
    run_for(&b, 300);
    assert_int_equal(b.surveys, 1); /* nothing changed, nothing asked */
    fake_set(&b.f, "mig0=2 events=8");
    auto_free char *gone = x_printf("%s/proc/driver/nvidia/capabilities/gpu4/mig/gi7", b.f.dir);
    auto_free char *file = x_printf("%s/access", gone);
    unlink(file);
    rmdir(gone);
    assert_true(wait_for(&b, has_one_part));
    assert_string_equal(b.last->gpus[0].parts[0].uuid, "MIG-0000-0-1");
    /* a gpu was bound: NVML has to start anew to see it */
    pid_t pid = gpu_worker_pid(b.w);
    fake_set(&b.f, "gpus=2 mig0=0 events=8");
    fake_file(&b.f, "/proc/driver/nvidia/gpus/0000:1c:00.0/information", "x");
    assert_true(wait_for(&b, restarted));
    assert_true(is_fine(&b));
    assert_int_not_equal(gpu_worker_pid(b.w), pid);
    end(&b);
}

/* ---- faults ---- */

static bool one_is_lost(struct bench *b)
{
    return b->last && b->last->driver == DRIVER_OK && b->last->n_gpus == 2 && b->last->gpus[1].lost;
}

static void gpu_lost_and_back(void **st)
{
    struct bench b;
    begin(&b, "");
    assert_true(wait_for(&b, is_fine));
    fake_set(&b.f, "handle1=15");
    gpu_worker_survey(b.w);
    assert_true(wait_for(&b, one_is_lost));
    assert_string_equal(b.last->gpus[1].uuid, "GPU-0000-1");
    assert_int_equal(b.state, DRIVER_OK);
    pid_t pid = gpu_worker_pid(b.w);
    run_for(&b, 800);
    assert_true(b.surveys >= 4); /* looked at again by itself, by a fresh worker too */
    assert_int_not_equal(gpu_worker_pid(b.w), pid);
    assert_true(one_is_lost(&b));
    assert_string_equal(b.last->gpus[1].uuid, "GPU-0000-1"); /* known over workers */
    fake_set(&b.f, "");
    assert_true(wait_for(&b, is_fine));
    assert_true(b.last->gpus[1].generation >= 1);
    size_t n = b.surveys;
    run_for(&b, 500);
    assert_int_equal(b.surveys, n); /* all is well: quiet again */
    end(&b);
}

static void worker_killed(void **st)
{
    struct bench b;
    begin(&b, "");
    assert_true(wait_for(&b, is_fine));
    for (int i = 0; i < 3; i++) {
        kill(gpu_worker_pid(b.w), SIGKILL);
        assert_true(wait_for(&b, is_stale));
        assert_int_equal(b.state, DRIVER_OK); /* of the driver nothing bad is known */
        assert_non_null(strstr(b.why, "signal 9"));
        assert_true(wait_for(&b, is_fine));
    }
    end(&b);
}

static void call_hangs(void **st)
{
    struct bench b;
    struct error err;
    prepare(&b, "");
    b.config.call_timeout_ms = 400;
    assert_int_equal(gpu_worker_new(b.loop, &b.config, &b.w, &err), 0);
    assert_true(wait_for(&b, is_fine));
    pid_t pid = gpu_worker_pid(b.w);
    fake_set(&b.f, "hang_handle1=1");
    gpu_worker_survey(b.w);
    assert_true(wait_for(&b, is_hung));
    assert_true(b.stale);
    assert_non_null(strstr(b.why, "nvmlDeviceGetHandleByIndex_v2 for gpu 1"));
    fake_set(&b.f, "");
    assert_true(wait_for(&b, is_fine));
    assert_int_not_equal(gpu_worker_pid(b.w), pid);
    assert_int_equal(kill(pid, 0), -1);
    end(&b);
}

/* Slow calls that return are not hung: 4 × 200 ms with a limit of 500 ms for each. */
static bool four_gpus(struct bench *b)
{
    return b->last && b->last->n_gpus == 4 && b->last->driver == DRIVER_OK;
}

static void slow_is_not_hung(void **st)
{
    struct bench b;
    struct error err;
    prepare(&b, "gpus=4 slow_handle=200");
    b.config.call_timeout_ms = 500;
    b.config.watch_events = false;
    assert_int_equal(gpu_worker_new(b.loop, &b.config, &b.w, &err), 0);
    assert_true(wait_for(&b, four_gpus));
    assert_int_equal(b.states, 1);
    end(&b);
}

/* All calls return in time and there are too many of them: what is said must not be "no answer". */
static void slow_without_end(void **st)
{
    struct bench b;
    struct error err;
    prepare(&b, "gpus=16 slow_handle=200");
    b.config.call_timeout_ms = 400;
    b.config.watch_events = false;
    assert_int_equal(gpu_worker_new(b.loop, &b.config, &b.w, &err), 0);
    assert_true(wait_for(&b, is_hung));
    assert_non_null(strstr(b.why, "the survey"));
    assert_non_null(strstr(b.why, "2400 ms"));
    end(&b);
}

/* ---- workers that refuse to die ---- */

static pid_t immortal[8];
static size_t n_immortal;

static void kill_nothing(void *arg, pid_t pid, int signo)
{
    if (n_immortal < ARRAY_LEN(immortal) && signo == SIGKILL)
        immortal[n_immortal++] = pid;
}

static void unkillable(void **st)
{
    struct bench b;
    struct error err;
    const struct gpu_worker_seams seams = { .kill = kill_nothing, .proc = b.f.dir };
    n_immortal = 0;
    prepare(&b, "hang_init=1");
    b.config.seams = &seams;
    b.config.call_timeout_ms = 200;
    b.config.reap_ms = 200;
    assert_int_equal(gpu_worker_new(b.loop, &b.config, &b.w, &err), 0);
    auto_free char *where = x_printf("/%d/wchan", (int)gpu_worker_pid(b.w));
    fake_file(&b.f, where, "nv_stuck_here");
    assert_true(wait_for(&b, is_hung));
    assert_non_null(strstr(b.why, "nvmlInit"));
    assert_non_null(strstr(b.why, "nv_stuck_here"));
    assert_true(wait_for(&b, is_stuck));
    assert_true(b.stale);
    assert_non_null(strstr(b.why, "reboot"));
    assert_int_equal(n_immortal, 2);
    assert_int_equal(gpu_worker_pid(b.w), 0);
    run_for(&b, 1000);
    assert_int_equal(n_immortal, 2); /* no third one */
    gpu_worker_survey(b.w);
    run_for(&b, 200);
    assert_int_equal(b.surveys, 0);
    /* One of them comes out of the kernel at last: there is room for a new one. */
    fake_set(&b.f, "");
    kill(immortal[0], SIGKILL);
    kill(immortal[1], SIGKILL);
    assert_true(wait_for(&b, is_fine));
    b.config.seams = NULL;
    gpu_worker_release(b.w);
    assert_true(wait_for(&b, is_released));
    end(&b);
}

/* ---- letting go ---- */

static void release_and_acquire(void **st)
{
    struct bench b;
    begin(&b, "");
    assert_true(wait_for(&b, is_fine));
    pid_t pid = gpu_worker_pid(b.w);
    gpu_worker_release(b.w);
    gpu_worker_release(b.w);
    assert_true(wait_for(&b, is_released));
    assert_false(b.stale);
    assert_int_equal(gpu_worker_pid(b.w), 0);
    assert_int_equal(kill(pid, 0), -1); /* nothing holds the driver */
    size_t n = b.surveys;
    gpu_worker_survey(b.w);
    run_for(&b, 300);
    assert_int_equal(b.surveys, n);
    gpu_worker_acquire(b.w);
    gpu_worker_acquire(b.w);
    assert_true(wait_for(&b, is_fine));
    gpu_worker_release(b.w);
    gpu_worker_acquire(b.w); /* before the old one has ended */
    run_for(&b, 300);
    assert_true(is_fine(&b));
    assert_true(gpu_worker_pid(b.w) > 0);
    end(&b);
}

static bool new_version(struct bench *b)
{
    return is_fine(b) && strcmp(b->last->driver_version, "590.1.2") == 0;
}

static void driver_gone_and_back(void **st)
{
    struct bench b;
    begin(&b, "");
    assert_true(wait_for(&b, is_fine));
    fake_set(&b.f, "count=9 init=9");
    gpu_worker_survey(b.w);
    assert_true(wait_for(&b, is_not_loaded));
    assert_false(b.stale);
    assert_int_equal(b.last->n_gpus, 2);
    assert_true(b.last->gpus[0].lost != 0);
    run_for(&b, 200);
    /* mismatch first, then fine, with another version: a new process loaded the new library */
    fake_set(&b.f, "init=18");
    run_for(&b, 600);
    assert_int_equal(b.state, DRIVER_VERSION_MISMATCH);
    fake_set(&b.f, "new_driver=1");
    assert_true(wait_for(&b, new_version));
    assert_int_equal(b.last->gpus[0].generation, 1);
    fake_set(&b.f, "new_driver=1 event_seq=1");
    assert_true(wait_for(&b, has_event)); /* events are watched again */
    end(&b);
}

static bool no_library(struct bench *b)
{
    return b->state == DRIVER_NO_LIBRARY;
}

static void library_appears(void **st)
{
    struct bench b;
    struct error err;
    prepare(&b, "");
    fake_library(&b.f, NULL);
    assert_int_equal(gpu_worker_new(b.loop, &b.config, &b.w, &err), 0);
    assert_true(wait_for(&b, no_library));
    assert_non_null(strstr(b.why, b.f.dir));
    fake_library(&b.f, FAKE_NVML);
    assert_true(wait_for(&b, is_fine));
    end(&b);
}

/* B-053, B-056 */
static void events_fail(void **st)
{
    struct bench b;
    begin(&b, "wait=999");
    assert_true(wait_for(&b, has_failure));
    assert_int_equal(b.failed.value, 999);
    run_for(&b, 1500);
    assert_true(b.events < 8); /* backs off: a driver that fails at once is no flood */
    assert_true(b.surveys > 1);
    fake_set(&b.f, "event_seq=1");
    assert_true(wait_for(&b, has_xid));
    end(&b);

    begin(&b, "set_code=999");
    assert_true(wait_for(&b, has_failure));
    assert_true(wait_for(&b, is_fine)); /* the survey is there all the same */
    end(&b);

    begin(&b, "register0=999 event_seq=1 event_gpu=1");
    assert_true(wait_for(&b, has_failure));
    assert_string_equal(b.failed.uuid, "GPU-0000-0");
    assert_true(wait_for(&b, has_xid)); /* the other gpu is watched */
    end(&b);

    begin(&b, "register=3"); /* a vGPU: not offered is no failure (B-174) */
    assert_true(wait_for(&b, is_fine));
    run_for(&b, 300);
    assert_int_equal(b.events, 0);
    end(&b);
}

/* ---- a worker that lies ---- */

static void evil(const char *how)
{
    struct error err;
    struct hello h = { .version = PROTOCOL_VERSION };
    struct gpu_event e = { 0 };
    auto_buf body;
    build_id(h.build);
    buf_init(&body, MESSAGE_MAX);
    if (strcmp(how, "version") == 0)
        h.version++;
    if (strcmp(how, "build") == 0)
        snprintf(h.build, sizeof h.build, "other");
    if (strcmp(how, "exit") == 0)
        _exit(3);
    if (strcmp(how, "close") == 0) {
        close(3);
        sleep(60);
    }
    hello_encode(&h, &body);
    if (strcmp(how, "nohello") != 0 &&
        message_send(3, MESSAGE_HELLO, 0, 0, buf_view(&body), &err) < 0)
        _exit(1);
    buf_reset(&body);
    event_encode(&e, &body);
    int r = 0;
    if (strcmp(how, "nohello") == 0)
        r = message_send(3, MESSAGE_EVENT, 0, 0, buf_view(&body), &err);
    if (strcmp(how, "event") == 0)
        r = message_send(3, MESSAGE_EVENT, 0, 0, STR("xx"), &err);
    if (strcmp(how, "survey") == 0)
        r = message_send(3, MESSAGE_SURVEY, 0, 1, STR("MSV1xxxx"), &err);
    if (strcmp(how, "unasked") == 0)
        r = message_send(3, MESSAGE_SURVEY, 0, 99, STR("MSV1xxxx"), &err);
    if (strcmp(how, "kind") == 0)
        r = message_send(3, MESSAGE_START, 0, 1, STR("x"), &err);
    if (strcmp(how, "raw") == 0)
        r = send(3, "rubbish", 7, 0) == 7 ? 0 : -1;
    if (strcmp(how, "flood") == 0)
        while (r == 0)
            r = message_send(3, MESSAGE_EVENT, 0, 0, buf_view(&body), &err);
    sleep(r < 0 ? 0 : 60);
    _exit(0);
}

static void liars(void **st)
{
    static const struct {
        const char *how, *want;
    } cases[] = {
        { "version", "version" },
        { "build", "build other" },
        { "exit", "exit code 3" },
        { "close", "closed its socket" },
        { "nohello", "before its hello" },
        { "event", "event of the worker" },
        { "survey", "encoded survey" },
        { "unasked", "nobody asked" },
        { "kind", "kind" },
        { "raw", "header" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bench b;
        setenv("METE_SIM_EVIL", cases[i].how, 1);
        begin(&b, "");
        if (!wait_for(&b, is_stale) || !strstr(b.why, cases[i].want))
            fail_msg("%s: %s", cases[i].how, b.why);
        assert_int_equal(b.surveys, 0);
        unsetenv("METE_SIM_EVIL"); /* the next one is honest */
        assert_true(wait_for(&b, is_fine));
        end(&b);
    }
}

static bool thousand_events(struct bench *b)
{
    return b->events >= 1000;
}

static void flood(void **st)
{
    struct bench b;
    setenv("METE_SIM_EVIL", "flood", 1);
    begin(&b, "");
    assert_true(wait_for(&b, thousand_events));
    gpu_worker_release(b.w); /* other work gets its turn */
    assert_true(wait_for(&b, is_released));
    end(&b);
}

/* ---- one survey ---- */

static void once(void **st)
{
    struct bench b;
    struct survey *s;
    struct error err;
    prepare(&b, "");
    assert_int_equal(gpu_survey_once(&b.f.host, 5000, &s, &err), 0);
    assert_int_equal(s->n_gpus, 2);
    survey_unref(s);
    fake_set(&b.f, "hang_handle0=1");
    assert_int_equal(gpu_survey_once(&b.f.host, 500, &s, &err), -ERR_UNAVAILABLE);
    assert_non_null(strstr(err.text, "nvmlDeviceGetHandleByIndex_v2 for gpu 0"));
    fake_set(&b.f, "init=9");
    assert_int_equal(gpu_survey_once(&b.f.host, 5000, &s, &err), 0);
    assert_int_equal(s->driver, DRIVER_NOT_LOADED);
    survey_unref(s);
    end(&b);
}

/* ---- the fence ---- */

static void no_children_left(void **st)
{
    int status;
    pid_t pid;
    for (int i = 0; i < 200; i++) {
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD)
            return;
        nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
    }
    fail_msg("a worker is still there");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "gpu-worker") == 0) {
        const char *how = getenv("METE_SIM_EVIL");
        if (how)
            evil(how);
        return bench_worker(argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survey_and_events),
        cmocka_unit_test(old_driver),
        cmocka_unit_test(mig_by_directory),
        cmocka_unit_test(gpu_lost_and_back),
        cmocka_unit_test(worker_killed),
        cmocka_unit_test(call_hangs),
        cmocka_unit_test(slow_is_not_hung),
        cmocka_unit_test(slow_without_end),
        cmocka_unit_test(unkillable),
        cmocka_unit_test(release_and_acquire),
        cmocka_unit_test(driver_gone_and_back),
        cmocka_unit_test(library_appears),
        cmocka_unit_test(events_fail),
        cmocka_unit_test(liars),
        cmocka_unit_test(flood),
        cmocka_unit_test(once),
        cmocka_unit_test(no_children_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
