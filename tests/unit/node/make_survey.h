/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Surveys by hand, for tests: healthy gpus that a test then bends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/survey.h"

static inline struct survey *make_survey(size_t n)
{
    struct survey *s = survey_new();
    s->driver = DRIVER_OK;
    snprintf(s->platform, sizeof s->platform, "nvml");
    snprintf(s->driver_version, sizeof s->driver_version, "550.163.01");
    s->n_gpus = n;
    s->gpus = x_alloc((n + 1) * sizeof *s->gpus);
    for (size_t i = 0; i < n; i++) {
        struct gpu *g = &s->gpus[i];
        g->index = g->minor = (uint32_t)i;
        g->valid = GPU_HAS_MINOR | GPU_HAS_EVENTS | GPU_HAS_MIG | GPU_HAS_NUMA;
        g->numa = (int32_t)(i * 2 / (n ? n : 1));
        snprintf(g->name, sizeof g->name, "NVIDIA H100 80GB HBM3");
        snprintf(g->uuid, sizeof g->uuid, "GPU-01000100-0000-0000-0000-%012zu", i);
        snprintf(g->pci, sizeof g->pci, "0000:%02zx:00.0", 16 + i);
    }
    return s;
}

/* Links of an HGX board: all gpus on NVSwitches, pairs on one PCIe switch. */
static inline void make_links(struct survey *s, uint8_t nvlinks)
{
    s->links = x_alloc(s->n_gpus * s->n_gpus * sizeof *s->links);
    for (size_t a = 0; a < s->n_gpus; a++)
        for (size_t b = 0; b < s->n_gpus; b++)
            if (a != b)
                s->links[a * s->n_gpus + b] = (struct gpu_link){
                    .ancestor = a / 2 == b / 2                       ? 10
                                : s->gpus[a].numa == s->gpus[b].numa ? 40
                                                                     : 50,
                    .nvlinks = nvlinks,
                    .through_switch = nvlinks > 0,
                };
}

static inline void set_link(struct survey *s, size_t a, size_t b, uint8_t ancestor, uint8_t nvlinks)
{
    struct gpu_link l = { .ancestor = ancestor, .nvlinks = nvlinks };
    s->links[a * s->n_gpus + b] = s->links[b * s->n_gpus + a] = l;
}

/* Switches MIG mode of a gpu on and adds a part; profile NULL: mode only. */
static inline struct part *make_part(struct survey *s, size_t gpu, const char *profile)
{
    struct gpu *g = &s->gpus[gpu];
    g->valid |= GPU_HAS_MIG;
    g->mig_current = g->mig_pending = 1;
    if (!profile)
        return NULL;
    if (!g->parts)
        g->parts = x_alloc(SURVEY_PARTS_MAX * sizeof *g->parts);
    struct part *p = &g->parts[g->n_parts];
    p->slot = (uint32_t)g->n_parts;
    p->gi = (uint32_t)g->n_parts + 1;
    p->valid = PART_HAS_ATTRIBUTES;
    snprintf(p->profile, sizeof p->profile, "%s", profile);
    p->gi_slices = p->ci_slices = (uint32_t)(profile[0] - '0');
    if (strstr(profile, "c."))
        p->gi_slices = (uint32_t)(strstr(profile, "c.")[2] - '0');
    p->memory_mb = 9728 * p->gi_slices;
    snprintf(p->uuid, sizeof p->uuid, "MIG-%08zu-0000-0000-0000-%012zu", gpu, g->n_parts);
    g->n_parts++;
    return p;
}

static inline void lose(struct survey *s, size_t gpu)
{
    s->gpus[gpu].lost = 15;
    snprintf(s->gpus[gpu].lost_text, sizeof s->gpus[gpu].lost_text, "GPU is lost");
}
