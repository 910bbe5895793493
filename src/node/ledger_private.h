/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The ledger's parts, shared by ledger*.c only. */
#include "node/ledger.h"

/* One way in which a gpu is in use: a resource name, shared or not, on the gpu or on one part. */
struct kind {
    char *resource, *base;
    bool shared, whole; /* whole: base is the gpu itself, not a part */
    bool remembered;    /* named in the ledger file as granted (docs/formats.md) */
    bool earlier;       /* was so when the file was read: by an agent before this one */
    bool was_held;      /* before the facts that are being taken in */
    uint32_t seen;      /* devices that the facts hold so */
    uint32_t open;      /* granted and not yet confirmed */
    char *seen_text, *open_text, *remembered_text; /* reasons for ledger_may_offer */
};

enum step {
    STEP_NONE,
    STEP_DRAINING, /* on its way to `to`, nobody is given the gpu */
    STEP_SETTLING, /* `owner` is the new one, not yet on disk */
};

struct entry {
    char uuid[UUID_TEXT_SIZE];
    enum owner owner, to;
    enum step step;
    bool rebuilt;          /* made anew after damage: whoever is using it is its owner */
    uint64_t gen;          /* the change of this entry that has to be on disk */
    int64_t quiet_from_ns; /* last grant, start of the hand-over, or start of this process */
    int64_t started_real_ns;
    int64_t free_began_ns; /* of the last read that showed it free */
    unsigned free_reads;
    struct kind *kinds;
    uint32_t n_kinds;
};

struct base { /* a gpu or a part */
    char uuid[UUID_TEXT_SIZE];
    uint32_t gpu; /* place in entries */
};

/* A device: kind and share; id = base or base::share. */
struct slot {
    uint32_t gpu;  /* place in entries; SLOT_EMPTY: free slot */
    uint32_t kind; /* place in the entry's kinds */
    uint32_t share;
    uint32_t pod;    /* hash of the pod's UID; 0: none known */
    int64_t ns;      /* grants: when */
    uint32_t counts; /* facts: it holds its device; grants: how many times it was granted */
    uint32_t check;  /* facts: the checkpoint names this pod */
};
#define SLOT_EMPTY UINT32_MAX
#define NO_SHARE   UINT32_MAX

struct slots {
    struct slot *at;
    size_t n, cap; /* cap: 0 or a power of two */
};
bool slots_reserve(struct slots *t, size_t more); /* false: out of memory */
struct slot *slots_find(const struct slots *t, uint32_t gpu, uint32_t kind, uint32_t share);
/* Finds or inserts; room was reserved. */
struct slot *slots_put(struct slots *t, uint32_t gpu, uint32_t kind, uint32_t share, bool *ret_new);
void slots_remove(struct slots *t, struct slot *s);
void slots_done(struct slots *t);

struct ledger {
    const struct host *host;
    char *state_dir; /* NULL: none */
    int dirfd;
    enum owner deflt;
    char boot[HOST_BOOT_ID_SIZE];
    struct entry *entries;
    uint32_t n_entries;
    struct base *bases; /* by uuid */
    size_t n_bases;

    uint64_t gen, out_gen, disk_gen; /* change counter: now, handed out (0: none), on disk */
    bool damaged, lost_state;        /* now; when it was opened */
    bool settled;                    /* a new owner has become durable since the last tick */
    struct error write_err;          /* code 0: the last write went well */
    int64_t opened_ns, retry_ns, ticked_ns;

    struct slots grants, facts;
    bool facts_ever, unknown; /* a checkpoint was read since the start; the last read failed */
    char unknown_note[240];
    struct in_use *strays; /* uses of gpus that no survey has shown yet; NULL: none */
};

/* ledger.c */
struct entry *ledger_entry(const struct ledger *l, const char *gpu_uuid); /* NULL: unknown */
const struct base *ledger_base(const struct ledger *l, struct str uuid);
/* Finds or makes; NULL when LEDGER_GPUS_MAX are there. */
struct entry *ledger_entry_add(struct ledger *l, const char *gpu_uuid);
void ledger_base_add(struct ledger *l, const char *uuid, uint32_t gpu);
void ledger_changed(struct ledger *l, struct entry *e); /* e may be NULL */

void ledger_reopen_dir(struct ledger *l, int64_t now_ns); /* when its name leads elsewhere */

/* ledger_use.c */
bool kind_held(const struct kind *k);
bool entry_free(const struct entry *e);
void entry_done(struct entry *e);
struct kind *kind_get(struct entry *e, const char *resource, bool shared, const char *base);
const struct kind *kind_conflict(const struct ledger *l, const struct entry *e,
                                 const char *resource, bool shared, const char *base);
const char *kind_text(const struct kind *k);
struct id_parts {
    struct str base;
    bool shared;
    uint32_t share; /* NO_SHARE: none */
};
struct id_parts id_split(struct str id); /* "base" or "base::N" */

/* ledger_facts.c */
void ledger_apply_strays(struct ledger *l); /* after new bases */

/* ledger_format.c */
void ledger_encode(const struct ledger *l, struct buf *out);
/* Into an empty ledger. ERR_UNSUPPORTED: a newer format; ERR_INVALID, ERR_LIMIT: damaged. */
int ledger_decode(struct ledger *l, struct str text, struct error *err) must_check;
