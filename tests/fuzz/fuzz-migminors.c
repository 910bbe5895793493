/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's text files: mig-minors and a gpu's information. */
#include <stdlib.h>

#include "gpu/hostfacts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(void *arg, const struct mig_minor *m)
{
    if (m->minor == UINT32_MAX || m->gi == UINT32_MAX || m->gpu_minor == UINT32_MAX)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct str text = { (const char *)data, size };
    uint32_t monitor;
    struct proc_gpu p = { 0 };
    mig_minors_parse(text, check, NULL, &monitor);
    proc_gpu_parse(text, &p);
    if (strnlen(p.uuid, sizeof p.uuid) == sizeof p.uuid)
        abort();
    return 0;
}
