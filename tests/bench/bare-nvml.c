/* SPDX-License-Identifier: Apache-2.0 */
/* The least that any process must pay for NVML: dlopen, nvmlInit, nothing else. Prints one byte and
 * waits to be measured. */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
    int (*init)(void) = NULL;
    void *symbol = library ? dlsym(library, "nvmlInit_v2") : NULL;
    memcpy(&init, &symbol, sizeof init);
    if (!init || init() != 0 || write(1, "r", 1) != 1)
        return 1;
    pause();
    return 0;
}
