/* SPDX-License-Identifier: Apache-2.0 */
/* Files on a thread of their own, then the call to kubelet on the loop. In this order: what kubelet
 * lists afterwards has no older state than the files. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "kubeletapi/inuse.h"
#include "wire/grpc.h"

enum {
    STACK_SIZE = 256 * 1024,
    SCRATCH_MAX = 512 * 1024 * 1024,
    RPC_MS = 2000,
    RPC_GIVE_UP_MS = 2500, /* should the client itself not report */
};

/* One look at the files. The thread owns it until `finished`; a reader that is freed before leaves
 * it behind, since a read of a broken disk cannot be called back. */
struct job {
    pthread_mutex_t lock;
    bool finished, orphan; /* under lock */
    int wake_fd;           /* borrowed from the reader; not used once orphan */
    struct host host;      /* root and seams only */
    char *checkpoint;
    struct in_use *result;
    bool young; /* the checkpoint was written a short time ago */
    struct error err;
};

struct in_use_reader {
    struct loop *loop;
    const struct host *host;
    char *checkpoint, *socket; /* socket NULL: not used */
    int wake_fd;
    struct watch watch;
    struct timer turn, give_up;
    struct job *job;
    struct in_use *result;
    struct error err;
    bool young, running, again;
    struct grpc_client *client;
    void (*done)(void *arg, struct in_use *u, const struct error *e);
    void *arg;
    void (*next_done)(void *arg, struct in_use *u, const struct error *e);
    void *next_arg;
};

/* ---- on the thread ---- */

static void job_free(struct job *j)
{
    pthread_mutex_destroy(&j->lock);
    in_use_free(j->result);
    free(j->host.root);
    free(j->checkpoint);
    free(j);
}

static void add_note(struct in_use *u, const struct error *e)
{
    size_t n = strlen(u->note);
    snprintf(u->note + n, sizeof u->note - n, "%s%s", n ? "; " : "", e->text);
}

static bool is_young(const struct host *h, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return true;
    int64_t age = host_real_ns(h) / 1000000000 - st.st_mtime;
    return age < YOUNG_CHECKPOINT_S;
}

static int read_checkpoint(struct job *j)
{
    auto_free char *text = NULL;
    size_t n;
    int r = file_read(j->checkpoint, CHECKPOINT_MAX, &text, &n, &j->err);
    if (r == -ERR_NOT_FOUND) {
        j->result->checkpoint_read = true;
        return 0;
    }
    if (r < 0)
        return r;
    auto_arena scratch;
    arena_init(&scratch, SCRATCH_MAX);
    r = checkpoint_parse(&scratch, (struct str){ text, n }, j->result, &j->err);
    return r < 0 ? error_wrap(&j->err, "%s", j->checkpoint) : 0;
}

static void read_files(struct job *j)
{
    struct in_use *u = j->result;
    u->began_ns = host_mono_ns(&j->host);
    j->young = is_young(&j->host, j->checkpoint);
    if (read_checkpoint(j) < 0)
        add_note(u, &j->err);
    if (!u->n)
        return;
    struct error e;
    if (pods_gone_mark(&j->host, u, &e) < 0)
        add_note(u, &e);
    pods_name(&j->host, u);
}

static void *run(void *arg)
{
    struct job *j = arg;
    read_files(j);
    pthread_mutex_lock(&j->lock);
    j->finished = true;
    bool orphan = j->orphan;
    uint64_t one = 1;
    while (!orphan && write(j->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    pthread_mutex_unlock(&j->lock);
    if (orphan)
        job_free(j);
    return NULL;
}

/* ---- on the loop ---- */

static int start_thread(struct job *j)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    int r = pthread_attr_init(&attr);
    if (r)
        return r;
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the loop's thread */
    r = pthread_create(&thread, &attr, run, j);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return r;
}

static void start(struct in_use_reader *r)
{
    struct job *j = x_alloc(sizeof *j);
    pthread_mutex_init(&j->lock, NULL);
    j->wake_fd = r->wake_fd;
    j->host = (struct host){ .root = x_strdup(r->host->root), .seams = r->host->seams };
    j->checkpoint = x_strdup(r->checkpoint);
    j->result = in_use_new();
    r->running = true;
    r->young = true;
    r->err = (struct error){ 0 };
    int sys = start_thread(j);
    if (!sys) {
        r->job = j;
        return;
    }
    job_free(j);
    error_errno(&r->err, sys, "start a thread to read kubelet's checkpoint");
    timer_set(&r->turn, 0);
}

/* Nobody listed the pods: then one without a cgroup may just have been admitted. */
static void doubt_young(struct in_use_reader *r)
{
    struct in_use *u = r->result;
    for (size_t i = 0; u && r->young && !u->podresources_read && i < u->n; i++)
        u->uses[i].pod_gone = false;
}

/* The reading ends on a turn of its own, so that no client is freed inside its call-back. */
static void finish(void *arg)
{
    struct in_use_reader *r = arg;
    timer_stop(&r->give_up);
    grpc_client_free(steal(r->client));
    doubt_young(r);
    struct in_use *u = steal(r->result);
    if (u && !u->checkpoint_read && !u->podresources_read) {
        error_set(&r->err, ERR_UNAVAILABLE, r->err.sys, "what is in use could not be read: %s",
                  u->note);
        in_use_free(steal(u));
    }
    struct error err = r->err;
    void (*done)(void *, struct in_use *, const struct error *) = r->done;
    void *done_arg = r->arg;
    r->running = false;
    if (r->again) {
        r->again = false;
        r->done = r->next_done;
        r->arg = r->next_arg;
        start(r);
    }
    done(done_arg, u, u ? NULL : &err);
}

static void rpc_failed(struct in_use_reader *r, const char *why)
{
    struct error e;
    if (timer_pending(&r->turn))
        return;
    error_set(&e, ERR_UNAVAILABLE, 0, "pod-resources (%s): %s", r->socket, why);
    add_note(r->result, &e);
    timer_set(&r->turn, 0);
}

static void rpc_closed(void *arg, const struct error *why)
{
    rpc_failed(arg, why ? why->text : "the connection ended");
}

static void rpc_late(void *arg)
{
    rpc_failed(arg, "no answer in time");
}

static void rpc_done(void *arg, enum grpc_status status, const char *text, struct str message)
{
    struct in_use_reader *r = arg;
    struct error e;
    if (timer_pending(&r->turn))
        return;
    if (status != GRPC_OK) {
        rpc_failed(r, text && text[0] ? text : "the call failed");
        return;
    }
    if (podresources_parse(message, r->result, &e) < 0)
        add_note(r->result, &e);
    timer_set(&r->turn, 0);
}

static void ask_kubelet(struct in_use_reader *r)
{
    struct error e;
    int rc = grpc_client_new(r->loop, r->socket, rpc_closed, r, &r->client, &e);
    if (rc == 0)
        rc = grpc_client_call(r->client, "/v1.PodResourcesLister/List", STR(""), RPC_MS, rpc_done,
                              r, &e);
    if (rc < 0)
        rpc_failed(r, e.text);
    else
        timer_set(&r->give_up, RPC_GIVE_UP_MS);
}

static void files_read(void *arg, int what)
{
    struct in_use_reader *r = arg;
    uint64_t count;
    struct job *j = r->job;
    if (read(r->wake_fd, &count, sizeof count) < 0 || !j)
        return;
    pthread_mutex_lock(&j->lock); /* the thread is past its last use once it let go */
    pthread_mutex_unlock(&j->lock);
    r->job = NULL;
    r->result = steal(j->result);
    r->young = j->young;
    r->err = j->err;
    job_free(j);
    if (r->socket)
        ask_kubelet(r);
    else
        timer_set(&r->turn, 0);
}

int in_use_reader_new(struct loop *l, const struct in_use_config *config,
                      struct in_use_reader **ret, struct error *err)
{
    auto_close int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return error_errno(err, errno, "start reading what is in use: eventfd");
    struct in_use_reader *r = x_alloc(sizeof *r);
    r->loop = l;
    r->host = config->host;
    r->checkpoint = x_printf("%s/%s", config->device_plugin_dir, CHECKPOINT_FILE);
    r->socket = config->podresources_socket && config->podresources_socket[0]
                    ? x_strdup(config->podresources_socket)
                    : NULL;
    r->wake_fd = steal_fd(&fd);
    watch_init(&r->watch, l, r->wake_fd, files_read, r);
    watch_want(&r->watch, IO_READ);
    timer_init(&r->turn, l, finish, r);
    timer_init(&r->give_up, l, rpc_late, r);
    *ret = r;
    return 0;
}

/* The thread may be anywhere: it or we free the job, whoever is later. */
static void abandon(struct job *j)
{
    pthread_mutex_lock(&j->lock);
    j->orphan = true;
    bool finished = j->finished;
    pthread_mutex_unlock(&j->lock);
    if (finished)
        job_free(j);
}

void in_use_reader_free(struct in_use_reader *r)
{
    if (!r)
        return;
    if (r->job)
        abandon(r->job);
    grpc_client_free(r->client);
    timer_done(&r->turn);
    timer_done(&r->give_up);
    watch_done(&r->watch);
    close(r->wake_fd);
    in_use_free(r->result);
    free(r->checkpoint);
    free(r->socket);
    free(r);
}

void in_use_read(struct in_use_reader *r,
                 void (*done)(void *arg, struct in_use *u, const struct error *e), void *arg)
{
    if (r->running) {
        r->again = true;
        r->next_done = done;
        r->next_arg = arg;
        return;
    }
    r->done = done;
    r->arg = arg;
    start(r);
}
