/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The agent's state, shared by the files of this folder. The loop's thread owns all of it. */
#include <signal.h>

#include "agent/agent.h"
#include "agent/standby.h"
#include "agent/told.h"
#include "base/buf.h"
#include "base/host.h"
#include "gpu/worker.h"
#include "io/dirwatch.h"
#include "io/disk.h"
#include "io/loop.h"
#include "kubelet/env_conflict.h"
#include "kubelet/plugin.h"
#include "kubeletapi/allocatable.h"
#include "kubeletapi/inuse.h"
#include "node/health.h"
#include "node/inventory.h"
#include "node/ledger.h"
#include "spec/pluginconfig.h"

enum {
    LOG_DRAIN_MS = 200,     /* at the end */
    LOG_AGAIN_MS = 100,     /* while nobody reads the log */
    EXIT_AFTER_MS = 5000,   /* open calls get this long when the agent ends */
    RETRY_WRITE_MS = 5000,  /* after a state or CDI file could not be written */
    FACTS_FIRST_MS = 10000, /* the first publication waits so long for kubelet */
    IN_USE_WHILE_HELD_MS =
        2000, /* in-use facts are read again while something is withheld because of them */
    GRANT_CHECK_MS = 10000, /* after an Allocate: did kubelet record it? */
    GRANT_WRITE_MS = 5,
    FILES_MAX = 8,           /* CDI classes */
    COMPARE_FIRST_MS = 3000, /* after a list left: does kubelet have what it says? */
    COMPARE_AGAIN_MS = 1000, /* after a difference, which may be a list on its way */
    COMPARE_MS = 60000,
};

#define HEALTH_FILE "health.json"

/* A CDI file as it was handed to the disk thread last. */
struct cdi_file {
    struct agent *agent;
    char *name, *text;
    bool on_disk; /* written, and nobody else has touched it since */
};

/* The config file, links followed, as it was when it was read last. */
struct config_identity {
    bool there;
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec modified, changed;
};

/* What kubelet's records showed last. */
struct facts {
    struct arena arena;
    struct findings found; /* devices that two pods hold */
};

struct agent {
    const struct agent_setup *setup;
    struct loop *loop;
    struct opts opts;
    struct plugin_config *config;
    struct host host;
    char *plugin_dir, *kubelet_socket, *pod_resources, *cdi_dir,
        *state_dir; /* view paths; state_dir "" for none */

    struct standby *standby;
    struct disk *disk;
    struct gpu_worker *worker;
    struct ledger *ledger;
    struct health *health;
    struct in_use_reader *in_use;
    struct plugin_set *plugins;
    struct dirwatch *config_watch, *checkpoint_watch;

    struct survey *survey;       /* latest; NULL until the first */
    struct inventory *inventory; /* what plugins publish; NULL until the first */
    struct plugin_config
        *published_config;  /* what plugins borrow, when it is older than config; else NULL */
    struct inventory *next; /* waits until its CDI files are written */
    struct config_identity config_seen;
    uint64_t config_number, next_of; /* of config, of the config that next was built from */
    char *refused;                   /* why the config cannot be served on this host; NULL */

    struct label_file *labels; /* NULL: no feature file is asked for */
    uint64_t config_serial;    /* counts reloads */

    struct env_memory env_told; /* containers told of in the log */
    struct facts *facts;        /* NULL until the first reading */

    struct allocatable_reader *allocatable;
    char *disagreed; /* what kubelet has otherwise than we, seen once; NULL */
    bool disagreement_told;

    struct cdi_file files[FILES_MAX];
    size_t n_files;
    int cdi_dirfd;
    struct dirwatch *cdi_watch;
    size_t cdi_waiting;
    bool cdi_failed, publish_again;
    struct survey *cdi_survey; /* for which the files were made, and the number of the config */
    uint64_t cdi_config;
    struct told cdi_told, ledger_told, health_told;
    struct flood events, refusals;
    int64_t cdi_repaired_ns;
    bool runtime_cdi, runtime_cdi_elsewhere; /* --runtime-cdi; somebody else has that kind */
    char *hook_path;                         /* installed by --install-dir; NULL */

    char *health_text; /* as last handed to the disk thread */
    bool ledger_writing, health_writing;
    bool reload_later;   /* asked for before the gpus were known: done then */
    bool facts_answered; /* kubelet was asked once for its records, whatever came of it */
    bool started;        /* the lock is ours: ledger and plugins exist */
    bool ending;
    enum driver_state driver;
    sigset_t signals_before;
    int64_t began_ns;
    int exit_code;

    struct timer facts_timer; /* how long the first answer of kubelet's records is waited for */
    struct timer publish_timer, health_timer, ledger_timer, in_use_timer, cdi_timer, cdi_look,
        write_timer, compare_timer, end_timer, log_timer, config_timer;
};

/* Something that the inventory is made of has changed: build it again on the next turn of the loop.
 */
void agent_changed(struct agent *a);
/* Reads in-use facts and gives them to the ledger. */
void agent_read_in_use(struct agent *a);
/* The first answer of kubelet's records has not come: goes on without it, and says so. */
void agent_facts_late(void *arg);
/* Sets the timer for when the ledger next wants to be looked at: a hand-over's quiet time, a state
 * directory to open. */
void agent_watch_ledger(struct agent *a);
bool agent_withholds(const struct agent *a); /* something is not offered because of the ledger */
/* Asks kubelet which devices it has of ours, and registers anew where that differs twice. */
void agent_compare(void *agent);
void agent_compare_soon(struct agent *a);
void facts_free(struct facts *f); /* NULL allowed */
/* Hands what ledger and health want on disk to the disk thread. */
void agent_save(struct agent *a);
/* Ends the loop with `code` after withdrawing politely. */
void agent_end(struct agent *a, int code);

/* publish.c */
void publish_init(struct agent *a);
void publish_done(struct agent *a);
/* No write of a CDI file is on its way any more: hands over what waited for them, or tries again
 * later. */
void agent_cdi_settled(struct agent *a);

/* cdi_files.c */
void cdi_files_init(struct agent *a);
void cdi_files_done(struct agent *a);
/* Hands the files that this inventory needs, and that are not on disk so, to the disk thread;
 * agent_cdi_settled follows, perhaps from here. */
void cdi_files_write(struct agent *a, const struct inventory *inv);

/* Does anything need CDI files? */
bool agent_wants_cdi(const struct agent *a);

/* install.c: hook and runtime on the host, by --install-dir. */
int agent_install(struct agent *a, struct error *err) must_check;

/* reload.c */
int config_load(const struct agent_setup *setup, struct opts *o, struct plugin_config **ret,
                struct config_identity *ret_seen, struct error *err) must_check;
/* What is in force and where it comes from: once a loading. */
void config_log(const struct opts *o, const struct plugin_config *c);
void agent_reload(struct agent *a, const char *why);
int reload_watch(struct agent *a, struct error *err) must_check;

/* labels.c: the feature file of --label-file, from survey and config. */
void agent_labels(struct agent *a);
void agent_labels_done(struct agent *a);

/* status.c: what `mete status` shows, as JSON. */
void agent_status(const struct agent *a, struct buf *out);
