/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The inside of struct health, shared by health*.c. */
#include "node/health.h"

enum {
    HEALTH_GPUS_MAX = 2 * SURVEY_GPUS_MAX,
    FAULTS_MAX = 32, /* of one gpu; more are merged into one that stands for the whole gpu */
    RELAPSES_MAX = 5,
    BOOT_ID_SIZE = 64,
};

#define SECOND            INT64_C(1000000000)
#define QUIET_NS          (10 * SECOND) /* without a new sign, where no reset is needed */
#define SETTLE_NS         (3 * SECOND)  /* after proof that the fault is gone */
#define QUIET_MAX_NS      (300 * SECOND)
#define RELAPSE_NS        (600 * SECOND) /* a fault so soon after a return doubles the times */
#define STALE_GRACE_NS    (30 * SECOND)
#define DOUBT_GRACE_NS    (5 * SECOND)
#define DOUBT_SETTLE_NS   (SECOND / 4)
#define FORGOTTEN_NS      (3600 * SECOND)
#define PROBE_NS          (2 * SECOND) /* surveys while a fault is open, in its first minutes */
#define PROBE_LATER_NS    (10 * SECOND)
#define PROBE_EAGER_NS    (120 * SECOND)
#define WAIT_BROKEN_NS    (60 * SECOND) /* event waits that fail for so long: no monitoring */
#define WAIT_FORGOTTEN_NS (30 * SECOND)

enum fault_kind {
    FAULT_XID,
    FAULT_LOST,
    FAULT_RECOVERY, /* recovery action other than none */
    FAULT_REMAP,    /* row remap failed */
    FAULT_UNAVAILABLE,
    FAULT_WAIT, /* the event wait failed for this gpu */
    FAULT_KINDS,
};

struct fault {
    enum fault_kind kind;
    uint64_t value;  /* XID, nvmlReturn_t, recovery action */
    uint32_t gi, ci; /* UINT32_MAX: not bound to an instance */
    bool needs_reset;
    bool reset_seen; /* a reset or reboot since was proved */
    bool lost_seen;  /* the gpu was lost in a survey since */
    bool based;      /* generation and energy below were taken from a survey */
    uint64_t generation, energy_mj;
    int64_t since_ns, last_ns; /* first and latest sign */
    char reason[32], text[300];
};

struct patient { /* a gpu, as health sees it */
    char uuid[UUID_TEXT_SIZE];
    struct fault *faults; /* FAULTS_MAX, allocated with the first */
    size_t n_faults;
    /* From the last survey in which it answered. */
    bool surveyed, has_recovery, has_energy, remap_pending, parts_known;
    uint32_t recovery_action;
    uint64_t generation, energy_mj;
    struct {
        uint32_t gi, ci;
    } parts[SURVEY_PARTS_MAX];
    size_t n_parts;
    bool kept; /* scratch of one survey */
    uint32_t relapses;
    int64_t returned_ns; /* when its last fault ended; INT64_MIN: it had none */
    struct health_evidence evidence;
};

struct health {
    bool ignore_all, enable_all;
    uint32_t *ignored, *enabled;
    size_t n_ignored, n_enabled;
    char boot[BOOT_ID_SIZE];

    struct patient *patients; /* HEALTH_GPUS_MAX; in order of first sight */
    size_t n_patients;

    bool driver_bad, driver_stale, driver_late; /* late: the grace is over */
    enum driver_state driver;
    int64_t driver_since_ns;

    bool doubt, doubt_late; /* some gpu failed, not known which */
    int64_t doubt_since_ns;

    bool wait_failing, wait_broken;
    int64_t wait_first_ns, wait_last_ns;

    bool wants_survey;
    int64_t probe_ns; /* when a survey is wanted next; INT64_MAX: never */
    bool changed;     /* since the public call began */
};

struct patient *health_patient(const struct health *h, const char *uuid);
struct patient *health_patient_add(struct health *h, const char *uuid); /* NULL: table full */

/* Opens a fault or renews its last sign. */
struct fault *health_open(struct health *h, struct patient *p, const struct fault *like,
                          int64_t now_ns);
void health_close(struct health *h, struct patient *p, size_t i, int64_t now_ns);
void health_describe(struct fault *f); /* reason and text */

bool health_ignores(const struct health *h, uint64_t xid);
bool health_off(const struct health *h); /* health checks are switched off as a whole */
bool health_ignores_fault(const struct health *h, const struct fault *f);

/* What happens when a driver state has lasted: reason, sentence, grace. */
struct driver_policy {
    const char *reason, *text;
    int64_t grace_ns;
};
const struct driver_policy *health_driver_policy(const struct health *h);
/* Moves what only time moves. */
void health_advance(struct health *h, int64_t now_ns);
