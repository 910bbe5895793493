/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A host with two gpus, the second one in two parts, and facts made by hand. */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "node/ledger.h"

#define GPU_A "GPU-aaaaaaaa-0000-0000-0000-000000000000"
#define GPU_B "GPU-bbbbbbbb-0000-0000-0000-000000000000"
#define MIG_0 "MIG-00000000-0000-0000-0000-00000000000b"
#define MIG_1 "MIG-11111111-0000-0000-0000-00000000000b"
#define S     INT64_C(1000000000)

static struct part help_parts[2] = { { .uuid = MIG_0 }, { .uuid = MIG_1 } };
static struct gpu help_gpus[2] = {
    { .uuid = GPU_A },
    { .uuid = GPU_B, .parts = help_parts, .n_parts = 2 },
};
static const struct survey help_survey = { .gpus = help_gpus, .n_gpus = 2 };

struct facts {
    struct in_use in_use;
    struct device_use uses[64];
};

static inline void facts_init(struct facts *f, int64_t began_ns)
{
    memset(f, 0, sizeof *f);
    f->in_use = (struct in_use){
        .uses = f->uses, .checkpoint_read = true, .podresources_read = true, .began_ns = began_ns
    };
}

static inline struct device_use *facts_add(struct facts *f, const char *resource, const char *id,
                                           const char *pod_uid)
{
    assert_true(f->in_use.n < ARRAY_LEN(f->uses));
    struct device_use *u = &f->uses[f->in_use.n++];
    *u = (struct device_use){ .resource = resource,
                              .id = id,
                              .pod_uid = pod_uid,
                              .pod_name = "",
                              .pod_namespace = "",
                              .container = "main",
                              .from_checkpoint = true };
    return u;
}

/* A grant of one device. */
struct one {
    const char *id, *base, *gpu;
    struct grant_request g;
};

static inline const struct grant_request *one(struct one *o, const char *resource, const char *id,
                                              const char *base, const char *gpu)
{
    *o = (struct one){ .id = id, .base = base, .gpu = gpu };
    o->g = (struct grant_request){ .resource = resource,
                                   .ids = &o->id,
                                   .bases = &o->base,
                                   .gpu_uuids = &o->gpu,
                                   .n = 1,
                                   .exclusive = !strstr(id, "::") };
    return &o->g;
}

static inline int grant(struct ledger *l, const char *resource, const char *id, const char *base,
                        const char *gpu, int64_t now_ns, struct error *err)
{
    struct one o;
    return ledger_grant(l, one(&o, resource, id, base, gpu), now_ns, err);
}

/* In memory where the host has such a place: these tests make and remove thousands. */
static inline char *temp_dir(void)
{
    bool shm = access("/dev/shm", W_OK | X_OK) == 0;
    char *path = x_printf("%s/mete-ledger-XXXXXX", shm ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline int help_remove(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

static inline void remove_dir(char *path)
{
    assert_int_equal(nftw(path, help_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(path);
}

static inline void host_plain(struct host *h, const struct host_seams *seams)
{
    struct error err;
    const struct host_config config = { .seams = seams };
    assert_int_equal(host_init(h, &config, &err), 0);
}

/* ---- a ledger of its own; help_host is made by main ---- */

static struct host help_host;

static inline struct ledger *open_at(const char *dir, enum owner deflt, struct findings *notes)
{
    struct ledger *l = NULL;
    struct error err = { 0 };
    int r = ledger_open(&help_host, dir, deflt, &l, notes, &err);
    if (r < 0)
        print_message("%s\n", err.text);
    assert_int_equal(r, 0);
    return l;
}

static inline struct ledger *open_memory(void)
{
    struct ledger *l = open_at(NULL, OWNER_DEVICE_PLUGIN, NULL);
    ledger_survey(l, &help_survey);
    return l;
}

/* As the agent's disk thread does. */
static inline int write_out(struct ledger *l)
{
    struct error err = { 0 };
    auto_free char *text = ledger_pending_text(l);
    if (!text)
        return 0;
    int r = file_replace(&help_host, ledger_dirfd(l), LEDGER_FILE, str_of(text), 0600,
                         FILE_SYNC_ALL, &err);
    ledger_written(l, r, &err);
    return r;
}

static inline bool may(const struct ledger *l, const char *resource, bool shared, const char *gpu,
                       const char *base)
{
    const char *reason = NULL;
    bool ok = ledger_may_offer(l, resource, shared, gpu, base, &reason);
    assert_true(ok == !reason);
    return ok;
}
