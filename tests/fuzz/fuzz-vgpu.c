/* SPDX-License-Identifier: Apache-2.0 */
/* PCI configuration space of a gpu: what it says about a vGPU. */
#include <stdlib.h>
#include <string.h>

#include "node/labels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char version[VGPU_TEXT_SIZE], branch[VGPU_TEXT_SIZE];
    memset(version, 'x', sizeof version);
    memset(branch, 'x', sizeof branch);
    enum vgpu_state s = vgpu_look(data, n, version, branch);
    bool ended = memchr(version, '\0', sizeof version) && memchr(branch, '\0', sizeof branch);
    if (!ended || (s != VGPU_GUEST && (version[0] || branch[0])) ||
        (n < 256) != (s == VGPU_UNKNOWN))
        abort();
    return 0;
}
