/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/survey.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/nvml_abi.h"

static const char *const state_names[] = {
    [DRIVER_OK] = "ok",
    [DRIVER_NO_LIBRARY] = "no-library",
    [DRIVER_BAD_LIBRARY] = "bad-library",
    [DRIVER_NOT_LOADED] = "not-loaded",
    [DRIVER_VERSION_MISMATCH] = "version-mismatch",
    [DRIVER_NO_PERMISSION] = "no-permission",
    [DRIVER_RELEASED] = "released",
    [DRIVER_HUNG] = "hung",
    [DRIVER_STUCK] = "stuck",
    [DRIVER_ERROR] = "error",
};

const char *driver_state_name(enum driver_state s)
{
    return (size_t)s < ARRAY_LEN(state_names) ? state_names[s] : "unknown";
}

struct survey *survey_new(void)
{
    struct survey *s = x_alloc(sizeof *s);
    s->refs = 1;
    return s;
}

struct survey *survey_ref(struct survey *s)
{
    if (s && s->refs)
        s->refs++;
    return s;
}

void survey_unref(struct survey *s)
{
    if (!s || s->refs == 0 || --s->refs > 0)
        return;
    for (size_t i = 0; s->gpus && i < s->n_gpus; i++)
        free(s->gpus[i].parts);
    free(s->gpus);
    free(s->links);
    free(s);
}

const struct gpu *survey_gpu(const struct survey *s, const char *uuid)
{
    for (size_t i = 0; i < s->n_gpus; i++)
        if (uuid[0] && strcmp(s->gpus[i].uuid, uuid) == 0)
            return &s->gpus[i];
    return NULL;
}

const struct part *survey_part(const struct survey *s, const char *uuid, const struct gpu **ret_gpu)
{
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        for (size_t k = 0; k < g->n_parts; k++) {
            if (strcmp(g->parts[k].uuid, uuid) != 0)
                continue;
            if (ret_gpu)
                *ret_gpu = g;
            return &g->parts[k];
        }
    }
    return NULL;
}

const struct gpu_link *survey_link(const struct survey *s, size_t a, size_t b)
{
    if (!s->links || a >= s->n_gpus || b >= s->n_gpus || a == b)
        return NULL;
    return &s->links[a * s->n_gpus + b];
}

bool survey_loss_proves_reset(int code)
{
    return code == NV_E_GPU_IS_LOST || code == NV_E_RESET_REQUIRED || code == NV_E_GPU_NOT_FOUND ||
           code == NV_E_DRIVER_NOT_LOADED || code == NV_E_UNINITIALIZED;
}
