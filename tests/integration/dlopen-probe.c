/* SPDX-License-Identifier: Apache-2.0 */
/* dlopen-probe NAME...   runs inside a container: where does its own loader find each library? */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *h = dlopen(argv[i], RTLD_LAZY);
        struct link_map *map = NULL;
        if (h && dlinfo(h, RTLD_DI_LINKMAP, &map) == 0)
            printf("%s %s\n", argv[i], map->l_name);
        else
            printf("%s missing: %s\n", argv[i], dlerror());
    }
    return 0;
}
