/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The small kubelet's state, shared by the kubelet*.c files of this folder. */
#include "base/host.h"
#include "base/mem.h"
#include "base/str.h"
#include "sim/kubelet.h"
#include "wire/grpc.h"
#include "wire/pb/deviceplugin.pb.h"

enum {
    SIM_DIAL_MS = 10000,       /* kubelet dials back for so long within Register */
    SIM_DIAL_AGAIN_MS = 20,    /* between two tries */
    SIM_CALL_MS = 120000,      /* kubelet has no deadline for Allocate; a lab has one */
    SIM_PRE_START_MS = 30000,  /* as kubelet */
    SIM_GRACE_MS = 300000,     /* as kubelet: endpoint's stop grace period */
    SIM_EVENTS_MAX = 4096,     /* kept */
    SIM_ANSWER_MAX = 16777216, /* JSON text of one answer */
    SIM_NUMA_MAX = 8,          /* of one device */
};

struct sim_device {
    char *id;
    bool healthy;
    int64_t numa[SIM_NUMA_MAX];
    size_t n_numa;
};

struct sim_resource {
    struct sim_resource *next;
    struct sim_kubelet *k;
    char *name;
    struct sim_endpoint *endpoint; /* NULL: never registered since the start, or gone */
    struct sim_device *devices;    /* sorted by id; all unhealthy once the endpoint went */
    size_t n;
    uint64_t lists; /* since the start */
    struct timer grace;
};

/* A plugin that registered: dialled, asked for its options, then watched. */
struct sim_endpoint {
    struct sim_endpoint *next;
    struct sim_kubelet *k;
    char *resource, *path, *file;
    struct grpc_client *client;
    struct grpc_call *registering; /* the Register call that waits for us; NULL once answered */
    bool established, dead;
    bool refused; /* only waits to be told so */
    bool preferred, pre_start;
    int64_t deadline_ns;
    struct timer again;
};

struct sim_pod {
    struct sim_pod *next;
    char *space, *name, *uid;
    bool ended;
};

/* Devices of one container of one resource, as in the checkpoint. */
struct sim_grant {
    struct sim_grant *next;
    struct sim_pod *pod;
    char *container, *resource;
    char **ids;
    size_t n;
    char *answer; /* ContainerAllocateResponse, protobuf bytes */
    size_t answer_len;
};

struct sim_admission {
    struct sim_admission *next;
    struct sim_kubelet *k;
    struct sim_pod *pod;
    char *container, *resource;
    uint32_t want;
    char **ids; /* chosen, in the order given to Allocate */
    size_t n;
    char **preferred; /* as the plugin answered */
    size_t n_preferred;
    struct sim_endpoint *endpoint;
    struct sim_grant *grant;
    bool reused;
    int64_t began_ns, preferred_ns, allocate_ns; /* of the calls */
    void (*done)(void *arg, const char *answer_json, const struct error *e);
    void *arg;
};

struct sim_event {
    uint64_t number;
    int64_t mono_ns, real_ns;
    char *kind, *resource, *text;
};

struct sim_kubelet {
    struct loop *loop;
    struct host host;
    char *dir, *plugin_dir, *cgroup_dir;
    int plugin_dirfd;
    int64_t grace_ms, began_ns;
    void *arg;
    void (*changed)(void *arg, const char *resource, size_t capacity, size_t allocatable);

    int64_t register_ms;
    char *refuse; /* NULL: Register is answered as it should be */

    struct grpc_server *registration, *pod_resources; /* NULL while stopped */
    struct sim_resource *resources;                   /* sorted by name */
    struct sim_endpoint *endpoints;
    struct sim_pod *pods;
    struct sim_grant *grants;
    struct sim_admission *admissions; /* first one is in progress */
    struct timer admit_timer, reap_timer;

    struct sim_event events[SIM_EVENTS_MAX]; /* ring */
    uint64_t n_events;
};

/* kubelet.c */
void sim_event(struct sim_kubelet *k, const char *kind, const char *resource, const char *fmt, ...)
    printf_like(4, 5);
void sim_changed(struct sim_kubelet *k, const struct sim_resource *r);
struct sim_resource *sim_resource_find(const struct sim_kubelet *k, const char *name);
struct sim_resource *sim_resource_need(struct sim_kubelet *k,
                                       const char *name); /* made if absent */
struct sim_device *sim_device_find(const struct sim_resource *r, const char *id);
size_t sim_resource_healthy(const struct sim_resource *r);
struct sim_pod *sim_pod_need(struct sim_kubelet *k, const char *space, const char *name,
                             const char *uid);
void sim_grant_free(struct sim_grant *g);
void sim_grants_forget_ended(struct sim_kubelet *k);
void sim_strings_free(char **list, size_t n);

/* kubelet_plugin.c: the plugin's side: register, dial, watch */
void sim_register(struct grpc_call *call, struct str request, void *arg);
void sim_register_cancelled(struct grpc_call *call, void *arg);
void sim_endpoint_lost(struct sim_endpoint *e, const char *why);
void sim_endpoints_reap(void *arg); /* struct sim_kubelet */
void sim_grace_over(void *arg);     /* struct sim_resource */

/* kubelet_admit.c */
void sim_admit_next(void *arg); /* struct sim_kubelet */
void sim_admissions_fail(struct sim_kubelet *k, const struct sim_endpoint *e, const char *why);
void sim_admission_free(struct sim_admission *a);

/* kubelet_state.c: checkpoint and pod-resources */
int sim_checkpoint_write(struct sim_kubelet *k, struct error *err) must_check;
void sim_checkpoint_read(struct sim_kubelet *k); /* absent or unreadable: empty */
extern const struct grpc_method sim_pod_resources_methods[];
extern const size_t sim_pod_resources_n_methods;
