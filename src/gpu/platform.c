/* SPDX-License-Identifier: Apache-2.0 */
/* Which kind of host this is. The files are looked at where this process sees the driver root, as
 * the peer does, and at the host root, which is where they really are. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "gpu/hostfacts.h"
#include "gpu/nvml.h"

#define DXCORE "libdxcore.so"

static bool has_dxcore(const struct host *h, char *where, size_t size)
{
    if (nvml_find_library(h->driver_root_view, DXCORE, where, size))
        return true;
    if (strcmp(h->driver_root_view, "/") != 0)
        return false;
    void *handle = dlopen(DXCORE, RTLD_LAZY | RTLD_LOCAL);
    if (handle)
        dlclose(handle);
    snprintf(where, size, "%s", DXCORE);
    return handle != NULL;
}

/* Text of a small file at the driver root or the host root; NULL: in neither. */
static char *root_text(const struct host *h, const char *sub, size_t *ret_n)
{
    auto_free char *own =
        x_printf("%s%s", strcmp(h->driver_root_view, "/") == 0 ? "" : h->driver_root_view, sub);
    auto_free char *host = host_path(h, sub);
    char *text = NULL;
    if (file_read(own, 64 * 1024, &text, ret_n, NULL) < 0 &&
        file_read(host, 64 * 1024, &text, ret_n, NULL) < 0)
        return NULL;
    return text;
}

static bool tegra_family(const struct host *h)
{
    size_t n;
    auto_free char *text = root_text(h, "/sys/devices/soc0/family", &n);
    return text && n >= 5 && str_ieq((struct str){ text, 5 }, STR("tegra"));
}

/* NUL-separated names, "nvidia,tegra234" among them. */
static bool tegra_device_tree(const struct host *h)
{
    size_t n;
    auto_free char *text = root_text(h, "/proc/device-tree/compatible", &n);
    return text && memmem(text, n, "nvidia,tegra", strlen("nvidia,tegra"));
}

static bool tegra_release(const struct host *h)
{
    size_t n;
    auto_free char *text = root_text(h, "/etc/nv_tegra_release", &n);
    return text != NULL;
}

const char *platform_detect(const struct host *h, char *ret_evidence, size_t size)
{
    static const struct {
        bool (*found)(const struct host *h);
        const char *evidence;
    } hints[] = {
        { tegra_release, "/etc/nv_tegra_release" },
        { tegra_family, "/sys/devices/soc0/family" },
        { tegra_device_tree, "/proc/device-tree/compatible" },
    };
    if (has_dxcore(h, ret_evidence, size))
        return "wsl";
    for (size_t i = 0; i < ARRAY_LEN(hints); i++) {
        if (!hints[i].found(h))
            continue;
        snprintf(ret_evidence, size, "%s", hints[i].evidence);
        return "tegra";
    }
    ret_evidence[0] = '\0';
    return "";
}

bool platform_tegra_name(const char *gpu_name)
{
    return strstr(gpu_name, "(nvgpu)") || strstr(gpu_name, "NVIDIA Thor");
}
