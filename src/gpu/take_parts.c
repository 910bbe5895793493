/* SPDX-License-Identifier: Apache-2.0 */
/* The MIG devices of a gpu. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "gpu/take.h"

/* What the index of a GPU instance profile means; the profile's id differs by board (spec 1.6). */
static const struct {
    uint32_t slices;
    const char *suffix;
} gi_profiles[NV_GI_PROFILES] = {
    [NV_GI_1_SLICE] = { 1, "" },
    [NV_GI_2_SLICE] = { 2, "" },
    [NV_GI_3_SLICE] = { 3, "" },
    [NV_GI_4_SLICE] = { 4, "" },
    [NV_GI_7_SLICE] = { 7, "" },
    [NV_GI_8_SLICE] = { 8, "" },
    [NV_GI_6_SLICE] = { 6, "" },
    [NV_GI_1_SLICE_REV1] = { 1, "+me" },
    [NV_GI_2_SLICE_REV1] = { 2, "+me" },
    [NV_GI_1_SLICE_REV2] = { 1, "" },
    [NV_GI_1_SLICE_GFX] = { 1, "+gfx" },
    [NV_GI_2_SLICE_GFX] = { 2, "+gfx" },
    [NV_GI_4_SLICE_GFX] = { 4, "+gfx" },
    [NV_GI_1_SLICE_NO_ME] = { 1, "-me" },
    [NV_GI_2_SLICE_NO_ME] = { 2, "-me" },
    [NV_GI_1_SLICE_ALL_ME] = { 1, "+me.all" },
    [NV_GI_2_SLICE_ALL_ME] = { 2, "+me.all" },
    [NV_GI_3_SLICE_GFX] = { 3, "+gfx" },
};

static const uint32_t ci_slices[NV_CI_PROFILES] = {
    [NV_CI_1_SLICE] = 1, [NV_CI_2_SLICE] = 2,      [NV_CI_3_SLICE] = 3,
    [NV_CI_4_SLICE] = 4, [NV_CI_7_SLICE] = 7,      [NV_CI_8_SLICE] = 8,
    [NV_CI_6_SLICE] = 6, [NV_CI_1_SLICE_REV1] = 1, [NV_CI_7_SLICE_MULTI] = 7,
};

void part_profile_name(char *ret, size_t size, uint32_t gi, uint32_t ci, uint64_t memory_mb,
                       uint64_t total_bytes, const char *suffix)
{
    const uint64_t mib = 1024 * 1024, gib = 1024 * mib;
    ret[0] = '\0';
    if (gi == 0 || ci == 0 || memory_mb == 0 || memory_mb > UINT64_MAX / (16 * mib) ||
        total_bytes == 0 || total_bytes > UINT64_MAX / 1024)
        return;
    uint64_t eighths = (8 * memory_mb * mib + total_bytes - 1) / total_bytes;
    uint64_t total_gib = (total_bytes + gib - 1) / gib;
    uint64_t gb = (2 * eighths * total_gib + 8) / 16; /* half rounds up */
    char own[16] = "";
    if (ci != gi)
        snprintf(own, sizeof own, "%uc.", ci);
    int n = snprintf(ret, size, "%s%ug.%llugb%s", own, gi, (unsigned long long)gb, suffix);
    if (n < 0 || (size_t)n >= size)
        ret[0] = '\0';
}

/* ---- one part ---- */

struct reading {
    struct nvml *n;
    struct gpu *gpu;
    nv_device device;
};

static void take_attributes(const struct reading *r, nv_device mig, struct part *p)
{
    struct nv_attributes a = { 0 };
    if (!gpu_got(r->gpu, NVML_CALL(r->n, r->gpu->index, attributes, mig, &a),
                 "reading attributes of a MIG device"))
        return;
    p->gi_slices = a.gi_slices;
    p->ci_slices = a.ci_slices;
    p->memory_mb = a.memory_mb;
    p->multiprocessors = a.multiprocessors;
    p->copy_engines = a.copy_engines;
    p->decoders = a.decoders;
    p->encoders = a.encoders;
    p->jpegs = a.jpegs;
    p->ofas = a.ofas;
    p->valid |= PART_HAS_ATTRIBUTES;
}

/* Which profile a GPU instance was made of: its slices, its suffix, and memory where the attributes
 * did not tell. */
static const char *take_gi_profile(const struct reading *r, uint32_t profile, struct part *p)
{
    for (uint32_t i = 0; i < NV_GI_PROFILES; i++) {
        struct nv_gi_profile_info info = { 0 };
        if (NVML_CALL(r->n, r->gpu->index, gi_profile, r->device, i, &info) != NV_OK ||
            info.id != profile)
            continue;
        p->gi_slices = gi_profiles[i].slices;
        if (!(p->valid & PART_HAS_ATTRIBUTES))
            p->memory_mb = info.memory_mb;
        return gi_profiles[i].suffix;
    }
    return "";
}

static nv_return take_ci_profile_id(const struct reading *r, nv_gi gi, uint32_t ci, uint32_t *ret)
{
    nv_ci handle;
    struct nv_ci_info v2 = { 0 };
    struct nv_ci_info_v1 v1 = { 0 };
    nv_return code = NVML_CALL(r->n, r->gpu->index, ci_by_id, gi, ci, &handle);
    if (code != NV_OK)
        return code;
    code = NVML_CALL(r->n, r->gpu->index, ci_info, handle, &v2);
    if (code == NV_OK) {
        *ret = v2.profile;
        return code;
    }
    code = NVML_CALL(r->n, r->gpu->index, ci_info_v1, handle, &v1);
    *ret = v1.profile;
    return code;
}

static void take_ci_profile(const struct reading *r, nv_gi gi, struct part *p)
{
    uint32_t profile = 0;
    if (take_ci_profile_id(r, gi, p->ci, &profile) != NV_OK)
        return;
    for (uint32_t i = 0; i < NV_CI_PROFILES; i++) {
        struct nv_ci_profile_info info = { 0 };
        if (NVML_CALL(r->n, r->gpu->index, ci_profile, gi, i, NV_CI_ENGINE_SHARED, &info) ==
                NV_OK &&
            info.id == profile) {
            p->ci_slices = ci_slices[i];
            return;
        }
    }
}

static void take_profile(const struct reading *r, struct part *p)
{
    nv_gi gi;
    struct nv_gi_info info = { 0 };
    const char *suffix = "";
    if (NVML_CALL(r->n, r->gpu->index, gi_by_id, r->device, p->gi, &gi) == NV_OK) {
        if (NVML_CALL(r->n, r->gpu->index, gi_info, gi, &info) == NV_OK) {
            p->placement_start = info.placement.start;
            p->placement_size = info.placement.size;
            p->valid |= PART_HAS_PLACEMENT;
            suffix = take_gi_profile(r, info.profile, p);
        }
        take_ci_profile(r, gi, p);
    }
    if (r->gpu->valid & GPU_HAS_MEMORY)
        part_profile_name(p->profile, sizeof p->profile, p->gi_slices, p->ci_slices, p->memory_mb,
                          r->gpu->memory_bytes, suffix);
}

/* The handle's ids; without them it is no device that could be handed out. */
static nv_return take_ids(const struct reading *r, nv_device mig, struct part *p)
{
    char uuid[NV_UUID_SIZE] = "";
    unsigned gi = 0, ci = 0;
    nv_return code = NVML_CALL(r->n, r->gpu->index, uuid, mig, uuid, sizeof uuid);
    if (code == NV_OK)
        code = NVML_CALL(r->n, r->gpu->index, gi_id, mig, &gi);
    if (code == NV_OK)
        code = NVML_CALL(r->n, r->gpu->index, ci_id, mig, &ci);
    copy_word(p->uuid, sizeof p->uuid, uuid);
    p->gi = gi;
    p->ci = ci;
    return code == NV_OK && !uuid[0] ? NV_E_UNKNOWN : code;
}

/* ---- all parts ---- */

static void note(struct gpu *g, nv_return code, const char *what)
{
    if (g->mig_text[0])
        return;
    snprintf(g->mig_text, sizeof g->mig_text, "%s: %s (NVML %d)", what, nvml_code_text((int)code),
             (int)code);
}

static bool known(const struct gpu *g, const char *uuid)
{
    for (size_t i = 0; i < g->n_parts; i++)
        if (strcmp(g->parts[i].uuid, uuid) == 0)
            return true;
    return false;
}

static void take_slot(const struct reading *r, unsigned slot)
{
    struct gpu *g = r->gpu;
    nv_device mig = NULL;
    nv_return code = NVML_CALL(r->n, g->index, mig_by_index, r->device, slot, &mig);
    if (code == NV_E_NOT_FOUND || code == NV_E_ARGUMENT)
        return; /* slots are sparse */
    struct part *p = &g->parts[g->n_parts];
    *p = (struct part){ .slot = slot };
    if (code == NV_OK)
        code = take_ids(r, mig, p);
    if (code == NV_E_NOT_FOUND || code == NV_E_ARGUMENT)
        return; /* destroyed meanwhile */
    if (!gpu_got(g, code, "reading its MIG devices")) {
        note(g, code, "MIG devices cannot be read");
        return;
    }
    if (known(g, p->uuid)) {
        note(g, NV_E_UNKNOWN, "two MIG devices have one UUID");
        return;
    }
    take_attributes(r, mig, p);
    take_profile(r, p);
    g->n_parts++;
}

void take_parts(struct nvml *n, struct found *f)
{
    struct gpu *g = f->gpu;
    if (!(g->valid & GPU_HAS_MIG) || !g->mig_current || g->lost)
        return;
    unsigned max = 0;
    nv_return r = NVML_CALL(n, g->index, mig_max, f->device, &max);
    if (!gpu_got(g, r, "counting its MIG devices")) {
        note(g, r, "MIG devices cannot be counted");
        return;
    }
    g->parts = x_alloc(SURVEY_PARTS_MAX * sizeof *g->parts);
    const struct reading reading = { n, g, f->device };
    for (unsigned slot = 0; slot < MIN(max, (unsigned)SURVEY_PARTS_MAX); slot++)
        take_slot(&reading, slot);
}

/* ---- capabilities ---- */

static void set_cap(void *arg, const struct mig_minor *m)
{
    struct survey *s = arg;
    for (size_t i = 0; i < s->n_gpus; i++) {
        struct gpu *g = &s->gpus[i];
        if (!(g->valid & GPU_HAS_MINOR) || g->minor != m->gpu_minor)
            continue;
        for (size_t k = 0; k < g->n_parts; k++) {
            struct part *p = &g->parts[k];
            if (p->gi != m->gi)
                continue;
            if (m->ci == UINT32_MAX)
                p->gi_cap = m->minor;
            else if (m->ci == p->ci)
                p->ci_cap = m->minor;
        }
    }
}

void take_part_caps(const struct host *h, struct survey *s)
{
    bool wanted = false, denied = false;
    char suffix[16];
    snprintf(suffix, sizeof suffix, "(NVML %d)", NV_E_NO_PERMISSION);
    for (size_t i = 0; i < s->n_gpus; i++) {
        wanted = wanted || s->gpus[i].n_parts > 0;
        denied = denied || str_ends(str_of(s->gpus[i].mig_text), suffix);
    }
    if (!wanted && !denied)
        return;

    auto_free char *path = host_path(h, "/proc/driver/nvidia-caps/mig-minors");
    auto_free char *text = NULL;
    uint32_t monitor = UINT32_MAX;
    if (file_read(path, MIG_MINORS_MAX, &text, NULL, NULL) == 0)
        mig_minors_parse(str_of(text), set_cap, s, &monitor);
    for (size_t i = 0; i < s->n_gpus; i++) {
        struct gpu *g = &s->gpus[i];
        for (size_t k = 0; k < g->n_parts; k++)
            if (g->parts[k].gi_cap && g->parts[k].ci_cap)
                g->parts[k].valid |= PART_HAS_CAPS;
        if (str_ends(str_of(g->mig_text), suffix))
            snprintf(g->mig_text, sizeof g->mig_text,
                     "no permission to read MIG devices: this needs /dev/nvidia-caps/nvidia-cap%u "
                     "(monitor); run privileged, set NVIDIA_MIG_MONITOR_DEVICES=all, or add CDI "
                     "device management.nvidia.com/gpu=all",
                     monitor == UINT32_MAX ? 2 : monitor);
    }
}
