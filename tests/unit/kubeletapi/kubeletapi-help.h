/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "kubeletapi/inuse.h"

static inline char *temp_dir(void)
{
    char *path = x_strdup("/tmp/mete-inuse-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void remove_dir(char *path)
{
    auto_free char *command = x_printf("chmod -R u+rwX '%s' && rm -rf '%s'", path, path);
    assert_int_equal(system(command), 0);
    free(path);
}

static inline void make_dir(const char *root, const char *sub)
{
    struct error err;
    auto_free char *path = x_printf("%s%s", root, sub);
    assert_int_equal(dir_make(path, 0755, &err), 0);
}

static inline void put_file(const char *dir, const char *name, const char *text)
{
    auto_free char *path = x_printf("%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static inline void host_at(struct host *h, const char *root)
{
    struct error err;
    const struct host_config config = { .root = root };
    assert_int_equal(host_init(h, &config, &err), 0);
}

/* What kubelet writes, with the given entries. */
static inline char *checkpoint_text(const char *entries, const char *registered)
{
    return x_printf("{\"Data\":{\"PodDeviceEntries\":%s,\"RegisteredDevices\":%s},\"Checksum\":1}",
                    entries, registered);
}

#define ENTRY(uid, container, resource, ids)                                                       \
    "{\"PodUID\":\"" uid "\",\"ContainerName\":\"" container "\",\"ResourceName\":\"" resource     \
    "\",\"DeviceIDs\":" ids ",\"AllocResp\":\"CgASAA==\"}"

static inline int parse(const char *text, struct in_use *u, struct error *err)
{
    auto_arena scratch;
    arena_init(&scratch, 64 * 1024 * 1024);
    return checkpoint_parse(&scratch, str_of(text), u, err);
}
