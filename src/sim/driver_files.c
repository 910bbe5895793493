/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/driver_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sim/elf_file.h"

static const struct {
    const char *name; /* libcuda */
    const char
        *soname;   /* number after ".so."; NULL: the version itself, and no link of that name */
    bool recorded; /* also on the recorded hosts, as an empty file */
} libraries[] = {
    { "libcuda", "1", true },
    { "libcudadebugger", "1", true },
    { "libEGL_nvidia", "0", false },
    { "libGLESv1_CM_nvidia", "1", false },
    { "libGLESv2_nvidia", "2", false },
    { "libGLX_nvidia", "0", false },
    { "libnvcuvid", "1", false },
    { "libnvidia-allocator", "1", false },
    { "libnvidia-cfg", "1", true },
    { "libnvidia-eglcore", NULL, false },
    { "libnvidia-encode", "1", false },
    { "libnvidia-fbc", "1", false },
    { "libnvidia-glcore", NULL, false },
    { "libnvidia-glsi", NULL, false },
    { "libnvidia-glvkspirv", NULL, false },
    { "libnvidia-gpucomp", NULL, false },
    { "libnvidia-nvvm", "4", false },
    { "libnvidia-opencl", "1", true },
    { "libnvidia-opticalflow", "1", false },
    { "libnvidia-pkcs11-openssl3", NULL, false },
    { "libnvidia-ptxjitcompiler", "1", true },
    { "libnvidia-rtcore", NULL, false },
    { "libnvidia-tls", NULL, false },
    { "libnvoptix", "1", false },
    { "libvdpau_nvidia", "1", false },
};

static const struct {
    const char *name;
    bool recorded;
} programs[] = {
    { "nvidia-smi", true },
    { "nvidia-debugdump", true },
    { "nvidia-persistenced", true },
    { "nvidia-cuda-mps-control", true },
    { "nvidia-cuda-mps-server", true },
    { "nvidia-modprobe", false },
};

static const char *const texts[][2] = {
    { "usr/share/vulkan/icd.d/nvidia_icd.json",
      "{\"file_format_version\": \"1.0.1\", \"ICD\": {\"library_path\": "
      "\"libGLX_nvidia.so.0\", \"api_version\": \"1.4.312\"}}\n" },
    { "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
      "{\"file_format_version\": \"1.0.0\", \"ICD\": {\"library_path\": "
      "\"libEGL_nvidia.so.0\"}}\n" },
    { "etc/OpenCL/vendors/nvidia.icd", "libnvidia-opencl.so.1\n" },
};

static const char program_text[] =
    "#!/bin/sh\n# Stand-in of the simulated host: does nothing.\nexit 0\n";

static const char *below(const char *path)
{
    return path[0] == '/' ? path + 1 : path;
}

/* "run/nvidia/driver/usr/lib64" */
static void directory(const struct sim_world *w, const char *sub, char ret[256])
{
    snprintf(ret, 256, "%s%s", w->driver_root, sub);
    memmove(ret, below(ret), strlen(below(ret)) + 1);
}

static void put_links(struct tree *t, const struct sim_world *w, const char *dir, const char *name,
                      const char *soname)
{
    char target[96];
    snprintf(target, sizeof(target), "%s.so.%s", name, w->driver_version);
    if (soname) {
        tree_link(t, target, "%s/%s.so.%s", dir, name, soname);
        snprintf(target, sizeof(target), "%s.so.%s", name, soname);
    }
    tree_link(t, target, "%s/%s.so", dir, name);
}

static void put_library(struct tree *t, const struct sim_world *w, const char *dir, size_t i)
{
    const char *name = libraries[i].name, *version = w->driver_version;
    auto_buf elf;
    buf_init(&elf, 4096);
    if (!w->bare) {
        auto_free char *soname =
            x_printf("%s.so.%s", name, libraries[i].soname ? libraries[i].soname : version);
        sim_elf_standin(&elf, soname, strcmp(w->model, "gb10") == 0);
        put_links(t, w, dir, name, libraries[i].soname);
    } else if (!libraries[i].recorded) {
        return;
    }
    tree_put(t, buf_view(&elf), 0755, "%s/%s.so.%s", dir, name, version);
}

static void put_extras(struct tree *t, const struct sim_world *w, const char *lib)
{
    char dir[256];
    tree_link(t, "../libnvidia-allocator.so.1", "%s/gbm/nvidia-drm_gbm.so", lib);
    tree_link(t, "libGLX_nvidia.so.0", "%s/libGLX_indirect.so.0", lib);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        directory(w, "/", dir);
        tree_put(t, str_of(texts[i][1]), 0644, "%s%s", dir, texts[i][0]);
    }
    directory(w, strcmp(w->lib_dir, "/lib64") == 0 ? "/firmware/nvidia" : "/lib/firmware/nvidia",
              dir);
    tree_put(t, STR("simulated GSP firmware\n"), 0444, "%s/%s/gsp_ga10x.bin", dir,
             w->driver_version);
    tree_put(t, STR("simulated GSP firmware\n"), 0444, "%s/%s/gsp_tu10x.bin", dir,
             w->driver_version);
}

void sim_driver_files_put(struct tree *t, const struct sim_world *w, struct str library,
                          struct str smi)
{
    char dir[256];
    directory(w, w->lib_dir, dir);
    tree_put(t, library, 0755, "%s/libnvidia-ml.so.%s", dir, w->driver_version);
    put_links(t, w, dir, "libnvidia-ml", "1");
    for (size_t i = 0; i < ARRAY_LEN(libraries); i++)
        put_library(t, w, dir, i);
    if (!w->bare)
        put_extras(t, w, dir);
    directory(w, w->bin_dir, dir);
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        if (w->bare && !programs[i].recorded)
            continue;
        bool is_smi = i == 0 && smi.n > 0;
        tree_put(t, is_smi ? smi : STR(program_text), 0755, "%s/%s", dir, programs[i].name);
    }
}

static int rename_one(struct tree *t, const char *dir, const char *name, const char *old,
                      const char *version)
{
    char from[400], to[400];
    snprintf(from, sizeof(from), "%s/%s%s", dir, name, old);
    snprintf(to, sizeof(to), "%s/%s%s", dir, name, version);
    if (renameat(t->fd, from, t->fd, to) < 0 && errno != ENOENT)
        return error_errno(t->err, errno, "rename %s/%s to %s", t->root, from, to);
    return 0;
}

int sim_driver_files_rename(const char *root, const struct sim_world *w, const char *old,
                            struct error *err)
{
    struct tree t;
    int r = tree_open(&t, root, err);
    if (r < 0)
        return r;
    char dir[256], name[80];
    directory(w, w->lib_dir, dir);
    r = rename_one(&t, dir, "libnvidia-ml.so.", old, w->driver_version);
    if (r == 0)
        put_links(&t, w, dir, "libnvidia-ml", "1");
    for (size_t i = 0; i < ARRAY_LEN(libraries) && r == 0; i++) {
        snprintf(name, sizeof(name), "%s.so.", libraries[i].name);
        r = rename_one(&t, dir, name, old, w->driver_version);
        if (!w->bare)
            put_links(&t, w, dir, libraries[i].name, libraries[i].soname);
    }
    directory(w, strcmp(w->lib_dir, "/lib64") == 0 ? "/firmware/nvidia" : "/lib/firmware/nvidia",
              dir);
    if (r == 0)
        r = rename_one(&t, dir, "", old, w->driver_version);
    int closed = tree_close(&t);
    return r < 0 ? r : closed;
}
