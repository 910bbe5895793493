/* SPDX-License-Identifier: Apache-2.0 */
#include "io/disk.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

enum { STACK_SIZE = 256 * 1024 };

struct job {
    struct job *next;
    int dirfd;
    char *name;
    char *text;
    size_t n;
    mode_t mode;
    enum file_sync sync;
    void (*done)(void *arg, int r, const struct error *e);
    void *arg;
    int r;
    struct error err;
};

struct queue {
    struct job *first, **tail;
};

struct disk {
    const struct host *host;
    struct watch watch;
    int eventfd;
    pthread_t thread;
    size_t waiting;       /* loop thread only */
    bool running, dead;   /* freed while a call-back runs: ends when that is over */
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t more;  /* something in `todo`, or `end` */
    struct queue todo, ended;
    bool end;
};

static void queue_init(struct queue *q)
{
    q->first = NULL;
    q->tail = &q->first;
}

static void queue_add(struct queue *q, struct job *j)
{
    j->next = NULL;
    *q->tail = j;
    q->tail = &j->next;
}

static struct job *queue_pop(struct queue *q)
{
    struct job *j = q->first;
    if (j) {
        q->first = j->next;
        if (!q->first)
            q->tail = &q->first;
    }
    return j;
}

static void job_free(struct job *j)
{
    free(j->name);
    free(j->text);
    free(j);
}

static void wake_loop(struct disk *d)
{
    uint64_t one = 1;
    while (write(d->eventfd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void *run(void *arg)
{
    struct disk *d = arg;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        struct job *j = queue_pop(&d->todo);
        if (!j && d->end)
            break;
        if (!j) {
            pthread_cond_wait(&d->more, &d->lock);
            continue;
        }
        pthread_mutex_unlock(&d->lock);
        j->r = file_replace(d->host, j->dirfd, j->name, (struct str){ j->text, j->n }, j->mode,
                            j->sync, &j->err);
        pthread_mutex_lock(&d->lock);
        queue_add(&d->ended, j);
        wake_loop(d);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static struct job *take_ended(struct disk *d)
{
    pthread_mutex_lock(&d->lock);
    struct job *j = queue_pop(&d->ended);
    pthread_mutex_unlock(&d->lock);
    return j;
}

static void destroy(struct disk *d)
{
    watch_done(&d->watch);
    close(d->eventfd);
    for (struct job *j; (j = queue_pop(&d->ended));)
        job_free(j);
    pthread_cond_destroy(&d->more);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* A call-back may give further jobs, or free the disk thread. */
static void ended_ready(void *arg, int what)
{
    struct disk *d = arg;
    uint64_t count;
    if (read(d->eventfd, &count, sizeof count) < 0)
        return;
    d->running = true;
    struct job *j;
    while (!d->dead && (j = take_ended(d))) {
        d->waiting--;
        j->done(j->arg, j->r, &j->err);
        job_free(j);
    }
    d->running = false;
    if (d->dead)
        destroy(d);
}

/* Signals are for the loop's thread. */
static int start_thread(struct disk *d)
{
    sigset_t all, before;
    pthread_attr_t attr;
    sigfillset(&all);
    int r = pthread_attr_init(&attr);
    if (r)
        return r;
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&d->thread, &attr, run, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return r;
}

int disk_new(struct loop *l, const struct host *h, struct disk **ret, struct error *err)
{
    auto_close int efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (efd < 0)
        return error_errno(err, errno, "start the disk thread: eventfd");
    struct disk *d = x_alloc(sizeof *d);
    d->host = h;
    d->eventfd = efd;
    queue_init(&d->todo);
    queue_init(&d->ended);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->more, NULL);
    int r = start_thread(d);
    if (r) {
        pthread_cond_destroy(&d->more);
        pthread_mutex_destroy(&d->lock);
        free(d);
        return error_errno(err, r, "start the disk thread");
    }
    watch_init(&d->watch, l, efd, ended_ready, d);
    watch_want(&d->watch, IO_READ);
    steal_fd(&efd);
    *ret = d;
    return 0;
}

void disk_free(struct disk *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->end = true;
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    d->dead = true;
    if (!d->running)
        destroy(d);
}

int disk_replace(struct disk *d, int dirfd, const char *name, struct str text, mode_t mode,
                 enum file_sync sync, void (*done)(void *arg, int r, const struct error *e),
                 void *arg, struct error *err)
{
    char *copy = try_alloc(text.n + 1);
    if (!copy)
        return error_set(err, ERR_LIMIT, 0, "write %s: no memory for %zu bytes", name, text.n);
    if (text.n)
        memcpy(copy, text.p, text.n);
    struct job *j = x_alloc(sizeof *j);
    *j = (struct job){ .dirfd = dirfd,
                       .name = x_strdup(name),
                       .text = copy,
                       .n = text.n,
                       .mode = mode,
                       .sync = sync,
                       .done = done,
                       .arg = arg };
    d->waiting++;
    pthread_mutex_lock(&d->lock);
    queue_add(&d->todo, j);
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

size_t disk_waiting(const struct disk *d)
{
    return d->waiting;
}
