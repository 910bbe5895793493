/* SPDX-License-Identifier: Apache-2.0 */
/* The least that any process must pay for NVML: dlopen, nvmlInit, nothing else. Prints one byte and
 * waits to be measured. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "bare-nvml: %s\n", argc == 2 ? dlerror() : "usage: bare-nvml LIBRARY");
        return 1;
    }
    int (*init)(void) = NULL;
    void *symbol = dlsym(library, "nvmlInit_v2");
    memcpy(&init, &symbol, sizeof init);
    int r = init ? init() : -1;
    if (r != 0) {
        fprintf(stderr, "bare-nvml: nvmlInit_v2 answers %d\n", r);
        return 1;
    }
    if (write(1, "r", 1) != 1)
        return 1;
    pause();
    return 0;
}
