/* SPDX-License-Identifier: Apache-2.0 */
/* Faults in words, and the worst of them for each gpu and part. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "node/health_private.h"

static const char until_quiet[] = "returns 10 s after the last one";
static const char until_reset[] = "returns after a reset, or when the driver's recovery action is "
                                  "none";

static const struct {
    const char *action, *advice;
} advices[] = {
    { "restart-app", "restart the application" },
    { "reset-gpu", "drain and reset the gpu" },
    { "reboot-node", "reboot the node, then inspect the board" },
    { "inspect", "inspect the board, its links and power, then reset the gpu" },
    { "contact-support", "update the driver or ask its vendor, then reset the gpu" },
    { "restart-vm", "restart the virtual machine" },
    { "update-software", "update driver and hypervisor" },
    { "reset-when-convenient", "reset the gpu when it is free" },
};

static const char *advice(const char *action)
{
    for (size_t i = 0; i < ARRAY_LEN(advices); i++)
        if (strcmp(advices[i].action, action) == 0)
            return advices[i].advice;
    return "see the entries around it";
}

static const char *recovery_text(uint64_t action)
{
    static const char *const texts[] = {
        "none",
        "reset the gpu",
        "reboot the node",
        "drain peer-to-peer traffic",
        "drain and reset the gpu",
        "recover the IMEX domain",
    };
    return action < ARRAY_LEN(texts) ? texts[action] : "unknown";
}

static void describe_xid(struct fault *f)
{
    const struct xid_info *x = xid_lookup(f->value);
    snprintf(f->reason, sizeof f->reason, "xid-%llu", (unsigned long long)f->value);
    if (x)
        snprintf(f->text, sizeof f->text, "XID %llu (%s): %s; %s", (unsigned long long)f->value,
                 x->what, advice(x->action), f->needs_reset ? until_reset : until_quiet);
    else
        snprintf(f->text, sizeof f->text, "XID %llu (not in catalogue): reset the gpu; %s",
                 (unsigned long long)f->value, until_reset);
}

static void describe_lost(struct fault *f)
{
    snprintf(f->reason, sizeof f->reason, "lost");
    if (f->value)
        snprintf(f->text, sizeof f->text,
                 "the gpu does not answer the driver (NVML return code %llu): reset it or reboot "
                 "the node; returns when it answers again",
                 (unsigned long long)f->value);
    else
        snprintf(f->text, sizeof f->text,
                 "the driver no longer lists the gpu: reset it or reboot the node; returns when it "
                 "is listed again");
}

void health_describe(struct fault *f)
{
    switch (f->kind) {
    case FAULT_XID:
        describe_xid(f);
        break;
    case FAULT_LOST:
        describe_lost(f);
        break;
    case FAULT_RECOVERY:
        snprintf(f->reason, sizeof f->reason, "recovery-action");
        snprintf(f->text, sizeof f->text,
                 "the driver asks to %s (recovery action %llu); returns when the action is none",
                 recovery_text(f->value), (unsigned long long)f->value);
        break;
    case FAULT_REMAP:
        snprintf(f->reason, sizeof f->reason, "row-remap-failed");
        snprintf(f->text, sizeof f->text,
                 "the gpu could not replace a bad memory row: inspect and exchange the board; "
                 "returns when the flag is gone");
        break;
    case FAULT_UNAVAILABLE:
        snprintf(f->reason, sizeof f->reason, "unavailable");
        snprintf(f->text, sizeof f->text,
                 "the driver said that the gpu is not available; returns 10 s later if it answers");
        break;
    case FAULT_WAIT:
        snprintf(f->reason, sizeof f->reason, "wait-failed");
        snprintf(f->text, sizeof f->text,
                 "waiting for its events failed (NVML return code %llu); returns 10 s later if it "
                 "answers",
                 (unsigned long long)f->value);
        break;
    case FAULT_KINDS:
        break;
    }
}

/* The worst first: what does not go away by itself, then what came first. */
static bool worse(const struct fault *a, const struct fault *b)
{
    bool x = a->needs_reset || a->kind == FAULT_LOST || a->kind == FAULT_REMAP;
    bool y = b->needs_reset || b->kind == FAULT_LOST || b->kind == FAULT_REMAP;
    return x != y ? x : a->since_ns < b->since_ns;
}

static bool concerns(const struct fault *f, bool whole, uint32_t gi, uint32_t ci)
{
    return whole || f->gi == UINT32_MAX || (f->gi == gi && (f->ci == UINT32_MAX || f->ci == ci));
}

static struct health_view without_fault(const struct health *h, const struct patient *p)
{
    if (h->driver_bad) {
        const struct driver_policy *policy = health_driver_policy(h);
        return (struct health_view){ h->driver_late ? HEALTH_UNHEALTHY : HEALTH_UNKNOWN,
                                     policy->reason, policy->text, h->driver_since_ns };
    }
    if (h->wait_broken)
        return (struct health_view){ HEALTH_UNHEALTHY, "no-monitor",
                                     "the driver's events cannot be read, so faults would go "
                                     "unseen; returns when they can",
                                     h->wait_first_ns };
    if (h->doubt)
        return (struct health_view){
            h->doubt_late ? HEALTH_UNHEALTHY : HEALTH_UNKNOWN, "unknown",
            "the driver reported a fault but not of which gpu; a new survey will tell",
            h->doubt_since_ns
        };
    if (!p->surveyed)
        return (struct health_view){ HEALTH_UNKNOWN, "not-surveyed",
                                     "no survey has shown this gpu yet", 0 };
    return (struct health_view){
        .state = HEALTH_OK,
        .text = p->remap_pending ? "a memory row waits to be replaced: reset the gpu when it is "
                                   "free"
                                 : NULL,
        .since_ns = p->returned_ns == INT64_MIN ? 0 : p->returned_ns,
    };
}

static struct health_view view(const struct health *h, const char *uuid, bool whole, uint32_t gi,
                               uint32_t ci)
{
    static const struct patient nobody;
    const struct patient *p = health_patient(h, uuid);
    const struct fault *worst = NULL;
    for (size_t i = 0; p && i < p->n_faults; i++)
        if (concerns(&p->faults[i], whole, gi, ci) && (!worst || worse(&p->faults[i], worst)))
            worst = &p->faults[i];
    if (worst)
        return (struct health_view){ HEALTH_UNHEALTHY, worst->reason, worst->text,
                                     worst->since_ns };
    return without_fault(h, p ? p : &nobody);
}

struct health_view health_gpu(const struct health *h, const char *uuid)
{
    return view(h, uuid, true, 0, 0);
}

struct health_view health_part(const struct health *h, const char *gpu_uuid, uint32_t gi,
                               uint32_t ci)
{
    return view(h, gpu_uuid, false, gi, ci);
}

struct health_evidence health_evidence(const struct health *h, const char *uuid)
{
    const struct patient *p = health_patient(h, uuid);
    return p ? p->evidence : (struct health_evidence){ 0 };
}
