/* SPDX-License-Identifier: Apache-2.0 */
/* A library that an image would like to have loaded into a program of the host: it leaves
 * "<itself>.loaded" behind. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void loaded(void)
{
    Dl_info info;
    char path[4096];
    if (!dladdr((void *)(unsigned long)&loaded, &info))
        return;
    snprintf(path, sizeof path, "%s.loaded", info.dli_fname);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0)
        close(fd);
}
