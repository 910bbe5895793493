/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update-application-profile: tells the driver's graphics libraries which of the host's gpus this
 * container has, as a mask of minor numbers. Only graphics needs it: nothing here stops a
 * container.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "hook/hook.h"
#include "hook/root.h"

enum { NVIDIA_MAJOR = 195, GPUS_MAX = 64, NODES_MAX = 1024, ARENA_MAX = 4 * 1024 * 1024 };

static const char profile[] = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";

/* "nvidia7", but not "nvidiactl". */
static bool gpu_name(const char *name)
{
    return strncmp(name, "nvidia", 6) == 0 && name[6] >= '0' && name[6] <= '9';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The minor numbers that the container's nodes really have; their names may be the image's. */
static uint64_t gpu_mask(int devfd, char **names, size_t n)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (fstatat(devfd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode) &&
            major(st.st_rdev) == NVIDIA_MAJOR && minor(st.st_rdev) < GPUS_MAX)
            mask |= UINT64_C(1) << minor(st.st_rdev);
    }
    return mask;
}

static int write_profile(int rootfd, uint64_t mask, struct error *err)
{
    auto_close int dirfd = -1;
    char name[256];
    auto_buf text;
    buf_init(&text, 4096);
    buf_fmt(
        &text,
        "{\"profiles\":[{\"name\":\"_container_\",\"settings\":[\"EGLVisibleDGPUDevices\",%llu]}],"
        "\"rules\":[{\"pattern\":[],\"profile\":\"_container_\"}]}\n",
        (unsigned long long)mask);
    int r = root_open_parent(rootfd, profile, &dirfd, name, err);
    return r < 0 ? r : hook_write(dirfd, name, buf_view(&text), 0644, err);
}

int hook_update_application_profile(int rootfd, const struct hook_options *o, struct error *err)
{
    struct error why;
    auto_close int devfd = -1;
    auto_arena arena;
    char **names;
    size_t n;
    arena_init(&arena, ARENA_MAX);
    if (root_open(rootfd, "/dev", O_RDONLY | O_DIRECTORY, 0, &devfd, &why) < 0)
        return 0;
    int r = root_list(&arena, devfd, gpu_name, by_name, NODES_MAX, &names, &n, &why);
    uint64_t mask = r == 0 ? gpu_mask(devfd, names, n) : 0;
    if (mask)
        r = write_profile(rootfd, mask, &why);
    if (r < 0)
        hook_warn("the driver's graphics profile is not set: %s", why.text);
    return 0;
}
