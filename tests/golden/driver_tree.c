/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "driver_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "elf/ldcache.h"
#include "sim/elf_file.h"

#define H200_VERSION "580.159.04"
#define MOCK_VERSION "550.163.01"

static char *place(const struct fixture_host *f, const char *path)
{
    const char *view = f->host.driver_root_view;
    char *full = x_printf("%s%s", strcmp(view, "/") == 0 ? "" : view, path);
    char *slash = strrchr(full, '/');
    struct error err;
    *slash = '\0';
    if (dir_make(full, 0755, &err) < 0)
        fail_msg("%s", err.text);
    *slash = '/';
    return full;
}

static void put(const struct fixture_host *f, const char *path, struct str bytes, mode_t mode)
{
    auto_free char *full = place(f, path);
    FILE *out = fopen(full, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes.p ? bytes.p : "", 1, bytes.n, out), bytes.n);
    fclose(out);
    assert_int_equal(chmod(full, mode), 0);
}

void driver_text(const struct fixture_host *f, const char *path, const char *text)
{
    put(f, path, str_of(text), 0644);
}

void driver_program(const struct fixture_host *f, const char *path)
{
    put(f, path, STR("#!/bin/sh\n"), 0755);
}

void driver_library(const struct fixture_host *f, const char *path, const char *soname)
{
    auto_buf elf;
    buf_init(&elf, 64 * 1024);
    if (soname)
        sim_elf_standin(&elf, soname, false);
    put(f, path, buf_view(&elf), 0755);
}

void driver_link(const struct fixture_host *f, const char *path, const char *target)
{
    auto_free char *full = place(f, path);
    assert_int_equal(symlink(target, full), 0);
}

void driver_cache(const struct fixture_host *f, const char *dir)
{
    auto_free char *path = x_printf("%s/libcuda.so.1", dir);
    struct ldcache_entry e = { "libcuda.so.1", path, LDCACHE_X86_64, 0 };
    struct ldcache c = { .entries = &e, .n = 1 };
    auto_buf bytes;
    struct error err;
    buf_init(&bytes, 64 * 1024);
    assert_int_equal(ldcache_write(&c, &bytes, &err), 0);
    put(f, "/etc/ld.so.cache", buf_view(&bytes), 0644);
}

static void programs(const struct fixture_host *f, const char *dir)
{
    static const char *const names[] = { "nvidia-smi", "nvidia-debugdump", "nvidia-persistenced",
                                         "nvidia-cuda-mps-control", "nvidia-cuda-mps-server" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        auto_free char *path = x_printf("%s/%s", dir, names[i]);
        driver_program(f, path);
    }
}

void driver_tree_mock(const struct fixture_host *f)
{
    static const char *const empty[] = { "libcuda", "libcudadebugger", "libnvidia-cfg",
                                         "libnvidia-opencl", "libnvidia-ptxjitcompiler" };
    for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
        auto_free char *path = x_printf("/usr/lib64/%s.so." MOCK_VERSION, empty[i]);
        driver_library(f, path, NULL);
    }
    driver_library(f, "/usr/lib64/libnvidia-ml.so." MOCK_VERSION, "libnvidia-ml.so.1");
    driver_link(f, "/usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so." MOCK_VERSION);
    driver_link(f, "/usr/lib64/libnvidia-ml.so", "libnvidia-ml.so.1");
    programs(f, "/usr/bin");
}

static const struct {
    const char *name, *number; /* of the SONAME; NULL: the version itself */
} h200[] = {
    { "libcudadebugger", "1" },
    { "libcuda", "1" },
    { "libEGL_nvidia", "0" },
    { "libGLESv1_CM_nvidia", "1" },
    { "libGLESv2_nvidia", "2" },
    { "libGLX_nvidia", "0" },
    { "libnvcuvid", "1" },
    { "libnvidia-allocator", "1" },
    { "libnvidia-cfg", "1" },
    { "libnvidia-eglcore", NULL },
    { "libnvidia-encode", "1" },
    { "libnvidia-fbc", "1" },
    { "libnvidia-glcore", NULL },
    { "libnvidia-glsi", NULL },
    { "libnvidia-glvkspirv", NULL },
    { "libnvidia-gpucomp", NULL },
    { "libnvidia-ml", "1" },
    { "libnvidia-nvvm", "4" },
    { "libnvidia-opencl", "1" },
    { "libnvidia-opticalflow", "1" },
    { "libnvidia-pkcs11-openssl3", NULL },
    { "libnvidia-ptxjitcompiler", "1" },
    { "libnvidia-rtcore", NULL },
    { "libnvidia-tls", NULL },
    { "libnvoptix", "1" },
    { "libvdpau_nvidia", "1" },
};

static void h200_library(const struct fixture_host *f, const char *root, size_t i)
{
    const char *name = h200[i].name;
    auto_free char *file = x_printf("%s.so." H200_VERSION, name),
                   *soname =
                       h200[i].number ? x_printf("%s.so.%s", name, h200[i].number) : x_strdup(file),
                   *path = x_printf("%s/lib64/%s", root, file),
                   *link = x_printf("%s/lib64/%s", root, soname),
                   *dot_so = x_printf("%s/lib64/%s.so", root, name);
    driver_library(f, path, soname);
    if (h200[i].number)
        driver_link(f, link, file);
    driver_link(f, dot_so, soname);
}

void driver_tree_h200(const struct fixture_host *f, const char *root)
{
    static const char *const firmware[] = { "gsp_ga10x.bin", "gsp_tu10x.bin" };
    auto_free char *bin = x_printf("%s/bin", root), *lib = x_printf("%s/lib64", root);
    for (size_t i = 0; i < ARRAY_LEN(h200); i++)
        h200_library(f, root, i);
    programs(f, bin);
    for (size_t i = 0; i < ARRAY_LEN(firmware); i++) {
        auto_free char *path =
            x_printf("%s/firmware/nvidia/" H200_VERSION "/%s", root, firmware[i]);
        driver_text(f, path, "");
    }
    fixture_file(f, "/sys/module/firmware_class/parameters/path", "/opt/driver/firmware\n");
    if (!root[0])
        return;
    driver_cache(f, lib);
    driver_text(f, "/usr/share/vulkan/icd.d/nvidia_icd.json", "{}");
    driver_text(f, "/usr/share/glvnd/egl_vendor.d/10_nvidia.json", "{}");
}
