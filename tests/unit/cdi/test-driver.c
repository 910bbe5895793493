/* SPDX-License-Identifier: Apache-2.0 */
/* What is found of a driver in the layouts of distributions and driver containers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "../../golden/driver_tree.h"
#include "base/file.h"
#include "base/mem.h"
#include "cdi/driver.h"

#define V "550.163.01"

enum { ARENA = 4 * 1024 * 1024 };

/* One file of a layout. "lib": an ELF file with that SONAME ("" an empty file); "link": to that
 * target; "bin": a program; "text": a file. */
struct entry {
    const char *kind, *path, *arg;
};

struct layout {
    const char *name, *version;
    struct entry entries[24];
    const char *expected;
};

/* 64-bit header turned into one of the 32-bit driver. */
static void elf32(const struct fixture_host *f, const char *path)
{
    Elf32_Ehdr h = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT },
                     .e_type = ET_DYN,
                     .e_machine = EM_386 };
    auto_free char *full = x_printf("%s%s", f->host.driver_root_view, path);
    driver_text(f, path, "");
    FILE *out = fopen(full, "w");
    assert_int_equal(fwrite(&h, sizeof h, 1, out), 1);
    fclose(out);
}

static void put(const struct fixture_host *f, const struct entry *e)
{
    if (strcmp(e->kind, "lib") == 0)
        driver_library(f, e->path, e->arg[0] ? e->arg : NULL);
    else if (strcmp(e->kind, "lib32") == 0)
        elf32(f, e->path);
    else if (strcmp(e->kind, "link") == 0)
        driver_link(f, e->path, e->arg);
    else if (strcmp(e->kind, "bin") == 0)
        driver_program(f, e->path);
    else
        driver_text(f, e->path, e->arg ? e->arg : "");
}

static void describe(const struct cdi_driver *d, struct buf *out)
{
    static const char kinds[] = {
        [CDI_FILE_LIBRARY] = 'L',  [CDI_FILE_XORG] = 'X',   [CDI_FILE_PROGRAM] = 'P',
        [CDI_FILE_FIRMWARE] = 'F', [CDI_FILE_CONFIG] = 'C', [CDI_FILE_SOCKET] = 'S'
    };
    buf_fmt(out, "%s\n", d->version);
    for (size_t i = 0; i < d->n_files; i++) {
        const struct cdi_file *f = &d->files[i];
        bool same = strcmp(f->container, f->real) == 0;
        buf_fmt(out, "%c %s%s%s\n", kinds[f->kind], f->container, same ? "" : " = ",
                same ? "" : f->real);
    }
    for (size_t i = 0; i < d->n_graphics_links; i++)
        buf_fmt(out, "g %s -> %s\n", d->graphics_links[i].path, d->graphics_links[i].target);
    for (size_t i = 0; i < d->n_links; i++)
        buf_fmt(out, "l %s -> %s\n", d->links[i].path, d->links[i].target);
    for (size_t i = 0; i < d->n_cuda_dirs; i++)
        buf_fmt(out, "cuda %s\n", d->cuda_dirs[i]);
    for (size_t i = 0; i < d->n_library_dirs; i++)
        buf_fmt(out, "dir %s\n", d->library_dirs[i]);
}

static void host_init_at(struct fixture_host *f)
{
    struct survey *s = fixture_survey("h200");
    fixture_host_init(f, s, 0, NULL, NULL, NULL);
    survey_unref(s);
    auto_free char *root = x_strdup(f->host.driver_root_view);
    struct error err;
    assert_int_equal(dir_make(root, 0755, &err), 0);
}

#define LIB "/usr/lib/x86_64-linux-gnu"
#define D   LIB "/nvidia/current"

static const struct layout layouts[] = {
    { "debian: two folders, links through alternatives, a library without a version",
      V,
      { { "lib", D "/libcuda.so." V, "libcuda.so.1" },
        { "link", D "/libcuda.so.1", "libcuda.so." V },
        { "link", LIB "/libcuda.so.1", "/etc/alternatives/glx--libcuda.so.1" },
        { "link", "/etc/alternatives/glx--libcuda.so.1", D "/libcuda.so.1" },
        { "lib", LIB "/libnvidia-glcore.so." V, "libnvidia-glcore.so." V },
        { "lib", LIB "/libGLX_nvidia.so.0", "libGLX_nvidia.so.0" },
        { "lib", LIB "/libnvoptix.so.1", "libsomething-else.so.1" },
        { "lib", LIB "/libc.so.6", "libc.so.6" },
        { "bin", "/usr/lib/nvidia/current/nvidia-smi", NULL },
        { "link", "/usr/bin/nvidia-smi", "/etc/alternatives/nvidia-smi" },
        { "link", "/etc/alternatives/nvidia-smi", "/usr/lib/nvidia/current/nvidia-smi" },
        { "link", "/lib", "usr/lib" },
        { "text", "/usr/lib/firmware/nvidia/" V "/gsp_ga10x.bin", NULL },
        { "text", "/usr/lib/firmware/nvidia/535.1.1/gsp_ga10x.bin", NULL },
        { "text", "/usr/lib/firmware/nvidia/" V "/other.bin", NULL } },
      V "\n"
        "P /usr/bin/nvidia-smi = /usr/lib/nvidia/current/nvidia-smi\n"
        "L " LIB "/libGLX_nvidia.so.0\n"
        "L " LIB "/libnvidia-glcore.so." V "\n"
        "F /lib/firmware/nvidia/" V "/gsp_ga10x.bin = /usr/lib/firmware/nvidia/" V
        "/gsp_ga10x.bin\n"
        "L " D "/libcuda.so." V "\n"
        "l " LIB "/libGLX_indirect.so.0 -> libGLX_nvidia.so.0\n"
        "l " D "/libcuda.so -> libcuda.so.1\n"
        "l " D "/libcuda.so.1 -> libcuda.so." V "\n"
        "cuda " D "\n"
        "dir " LIB "\n"
        "dir " D "\n" },
    { "rhel: the 32-bit driver lies in /usr/lib, /lib64 is a link",
      V,
      { { "lib", "/usr/lib64/libcuda.so." V, "libcuda.so.1" },
        { "lib32", "/usr/lib/libcuda.so." V, NULL },
        { "link", "/lib64", "usr/lib64" },
        { "lib", "/usr/lib64/vdpau/libvdpau_nvidia.so." V, "libvdpau_nvidia.so.1" },
        { "link", "/usr/lib64/vdpau/libvdpau_nvidia.so", "libvdpau_nvidia.so." V },
        { "bin", "/usr/bin/nvidia-persistenced", NULL },
        { "text", "/usr/bin/nvidia-smi", "not executable" },
        { "link", "/usr/sbin", "bin" } },
      V "\n"
        "P /usr/bin/nvidia-persistenced\n"
        "L /usr/lib64/libcuda.so." V "\n"
        "L /usr/lib64/vdpau/libvdpau_nvidia.so." V "\n"
        "l /usr/lib64/libcuda.so -> libcuda.so.1\n"
        "l /usr/lib64/libcuda.so.1 -> libcuda.so." V "\n"
        "l /usr/lib64/vdpau/libvdpau_nvidia.so -> libvdpau_nvidia.so.1\n"
        "l /usr/lib64/vdpau/libvdpau_nvidia.so.1 -> libvdpau_nvidia.so." V "\n"
        "cuda /usr/lib64\n"
        "dir /usr/lib64\n"
        "dir /usr/lib64/vdpau\n" },
    { "container-optimised: everything in one folder of its own",
      NULL,
      { { "lib", "/home/kubernetes/bin/nvidia/lib64/libcuda.so." V, "libcuda.so.1" },
        { "lib", "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so." V, "libnvidia-ml.so.1" },
        { "bin", "/home/kubernetes/bin/nvidia/bin/nvidia-smi", NULL },
        { "bin", "/usr/bin/nvidia-smi", NULL } },
      V "\n"
        "P /home/kubernetes/bin/nvidia/bin/nvidia-smi\n"
        "L /home/kubernetes/bin/nvidia/lib64/libcuda.so." V "\n"
        "L /home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so." V "\n"
        "l /home/kubernetes/bin/nvidia/lib64/libcuda.so -> libcuda.so.1\n"
        "l /home/kubernetes/bin/nvidia/lib64/libcuda.so.1 -> libcuda.so." V "\n"
        "l /home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1 -> libnvidia-ml.so." V "\n"
        "cuda /home/kubernetes/bin/nvidia/lib64\n"
        "dir /home/kubernetes/bin/nvidia/lib64\n" },
    { "a driver root of its own, with vulkan beside lib64; no libcuda",
      NULL,
      { { "lib", "/lib64/libnvidia-ml.so.470.57.02", "libnvidia-ml.so.1" },
        { "lib", "/lib64/libnvidia-ml.so.470.9.02", "libnvidia-ml.so.1" },
        { "text", "/vulkan/icd.d/nvidia_icd.json", "{}" } },
      "470.57.02\n"
      "L /lib64/libnvidia-ml.so.470.57.02\n"
      "C /etc/vulkan/icd.d/nvidia_icd.json = /vulkan/icd.d/nvidia_icd.json\n"
      "l /lib64/libnvidia-ml.so.1 -> libnvidia-ml.so.470.57.02\n"
      "cuda /lib64\n"
      "dir /lib64\n" },
    { "graphics, X, EGL platforms, sockets, programs of NVLink domains",
      V,
      { { "lib", "/usr/lib64/libcuda.so." V, "" },
        { "lib", "/usr/lib64/libnvidia-egl-gbm.so.1.1.2", "libnvidia-egl-gbm.so.1" },
        { "link", "/usr/lib64/libnvidia-egl-gbm.so.1", "libnvidia-egl-gbm.so.1.1.2" },
        { "lib", "/usr/lib64/libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4" },
        { "lib", "/usr/lib64/libnvidia-allocator.so." V, "" },
        { "lib", "/usr/lib64/libnvidia-vulkan-producer.so." V, "" },
        { "lib", "/usr/lib64/libnvidia-opticalflow.so." V, "" },
        { "lib", "/usr/lib64/xorg/modules/drivers/nvidia_drv.so", "" },
        { "lib", "/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so." V, "" },
        { "text", "/usr/local/share/glvnd/egl_vendor.d/10_nvidia.json", "" },
        { "text", "/usr/share/glvnd/egl_vendor.d/10_nvidia.json", "" },
        { "text", "/etc/X11/xorg.conf.d/10-nvidia.conf", "" },
        { "text", "/etc/OpenCL/vendors/nvidia.icd", "" },
        { "text", "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json", "" },
        { "text", "/usr/share/nvidia/nvoptix.bin", "" },
        { "text", "/run/nvidia-persistenced/socket", "" },
        { "text", "/var/run/nvidia-fabricmanager/socket", "" },
        { "text", "/tmp/nvidia-mps/control", "" },
        { "bin", "/usr/bin/nvidia-imex", NULL },
        { "bin", "/opt/bin/nvidia-imex-ctl", NULL } },
      V "\n"
        "S /tmp/nvidia-mps\n"
        "P /opt/bin/nvidia-imex-ctl\n"
        "S /run/nvidia-persistenced/socket\n"
        "P /usr/bin/nvidia-imex\n"
        "L /usr/lib64/libcuda.so." V "\n"
        "L /usr/lib64/libnvidia-allocator.so." V "\n"
        "L /usr/lib64/libnvidia-egl-gbm.so.1.1.2\n"
        "L /usr/lib64/libnvidia-nvvm70.so.4\n"
        "L /usr/lib64/libnvidia-opticalflow.so." V "\n"
        "L /usr/lib64/libnvidia-vulkan-producer.so." V "\n"
        "C /etc/OpenCL/vendors/nvidia.icd\n"
        "C /etc/vulkan/icd.d/nvidia_icd.x86_64.json = "
        "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json\n"
        "C /usr/share/nvidia/nvoptix.bin\n"
        "S /var/run/nvidia-fabricmanager/socket\n"
        "C /usr/share/X11/xorg.conf.d/10-nvidia.conf = /etc/X11/xorg.conf.d/10-nvidia.conf\n"
        "C /usr/share/glvnd/egl_vendor.d/10_nvidia.json = "
        "/usr/local/share/glvnd/egl_vendor.d/10_nvidia.json\n"
        "X /usr/lib64/xorg/modules/drivers/nvidia_drv.so\n"
        "X /usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so." V "\n"
        "g /usr/lib64/gbm/nvidia-drm_gbm.so -> ../libnvidia-allocator.so.1\n"
        "g /usr/lib64/libnvidia-vulkan-producer.so -> libnvidia-vulkan-producer.so." V "\n"
        "g /usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so -> libglxserver_nvidia.so." V
        "\n"
        "l /usr/lib64/libcuda.so -> libcuda.so.1\n"
        "l /usr/lib64/libnvidia-egl-gbm.so.1 -> libnvidia-egl-gbm.so.1.1.2\n"
        "l /usr/lib64/libnvidia-opticalflow.so -> libnvidia-opticalflow.so.1\n"
        "cuda /usr/lib64\n"
        "dir /usr/lib64\n" },
    { "hostile: links out of the root, folders and pipes in the place of files",
      V,
      { { "lib", "/usr/lib64/libcuda.so." V, "" },
        { "link", "/usr/lib64/libnvidia-ml.so." V, "../../../../../../../../etc/passwd" },
        { "link", "/usr/lib64/libnvidia-cfg.so." V, "/proc/self/environ" },
        { "text", "/usr/lib64/libnvidia-opencl.so." V "/x", "" },
        { "link", "/usr/bin", "/../../../../usr/bin" },
        { "link", "/lib/firmware/nvidia/" V, "../../../../../../../../etc" } },
      V "\n"
        "L /usr/lib64/libcuda.so." V "\n"
        "l /usr/lib64/libcuda.so -> libcuda.so.1\n"
        "cuda /usr/lib64\n"
        "dir /usr/lib64\n" },
};

static void layouts_of_distributions(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        const struct layout *l = &layouts[i];
        struct fixture_host f;
        auto_arena a;
        auto_buf out;
        struct cdi_driver d;
        struct error err;
        const struct cdi_driver_options o = { .version = l->version };
        host_init_at(&f);
        for (size_t k = 0; k < ARRAY_LEN(l->entries) && l->entries[k].kind; k++)
            put(&f, &l->entries[k]);
        arena_init(&a, ARENA);
        buf_init(&out, 64 * 1024);
        if (cdi_driver_find(&a, &f.host, &o, &d, NULL, &err) < 0)
            fail_msg("%s: %s", l->name, err.text);
        describe(&d, &out);
        if (strcmp(out.p, l->expected) != 0)
            fail_msg("%s:\n%s\nexpected:\n%s", l->name, out.p, l->expected);
        fixture_host_done(&f);
    }
}

/* The kernel's order: a custom path, then updates of this kernel, updates, this kernel, plain. */
static void firmware_order(void **state)
{
    struct fixture_host f;
    auto_arena a;
    struct cdi_driver d;
    struct error err;
    const struct cdi_driver_options o = { .version = V };
    static const char *const dirs[] = { "/custom", "/lib/firmware/updates/6.1.0-test",
                                        "/lib/firmware/updates", "/lib/firmware/6.1.0-test",
                                        "/lib/firmware" };
    host_init_at(&f);
    fixture_file(&f, "/proc/sys/kernel/osrelease", "6.1.0-test\n");
    fixture_file(&f, "/sys/module/firmware_class/parameters/path", "/custom\n");
    driver_library(&f, "/usr/lib64/libcuda.so." V, NULL);
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        auto_free char *path = x_printf("%s/nvidia/" V "/gsp_tu10x.bin", dirs[i]);
        driver_text(&f, path, "");
    }
    arena_init(&a, ARENA);
    assert_int_equal(cdi_driver_find(&a, &f.host, &o, &d, NULL, &err), 0);
    size_t n = 0;
    for (size_t i = 0; i < d.n_files; i++)
        n += d.files[i].kind == CDI_FILE_FIRMWARE;
    assert_int_equal(n, ARRAY_LEN(dirs));
    fixture_host_done(&f);
}

/* Folders that the loader's cache names, or that are asked for. */
static void further_folders(void **state)
{
    struct fixture_host f;
    auto_arena a;
    struct cdi_driver d;
    struct error err;
    const char *const dirs[] = { "/opt/asked", "relative", "/none" };
    struct cdi_driver_options o = { .version = V };
    host_init_at(&f);
    driver_library(&f, "/opt/cached/libcuda.so." V, NULL);
    driver_library(&f, "/opt/asked/libnvidia-ml.so." V, NULL);
    arena_init(&a, ARENA);
    assert_int_equal(cdi_driver_find(&a, &f.host, &o, &d, NULL, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "none of the usual folders exists"));
    o.library_dirs = dirs;
    o.n_library_dirs = ARRAY_LEN(dirs);
    assert_int_equal(cdi_driver_find(&a, &f.host, &o, &d, NULL, &err), 0);
    assert_string_equal(d.cuda_dirs[0], "/opt/asked");
    driver_cache(&f, "/opt/cached");
    assert_int_equal(cdi_driver_find(&a, &f.host, &o, &d, NULL, &err), 0);
    assert_int_equal(d.n_files, 2);
    assert_string_equal(d.cuda_dirs[0], "/opt/cached"); /* libcuda's folder is what is told */
    driver_text(&f, "/etc/ld.so.cache", "glibc-ld.so.cache1.1 and then nothing that fits at all");
    assert_int_equal(cdi_driver_find(&a, &f.host, &o, &d, NULL, &err), 0);
    fixture_host_done(&f);
}

/* What is missing, by capability (B-072). */
static void missing_by_capability(void **state)
{
    struct fixture_host f;
    auto_arena a;
    struct findings notes;
    struct cdi_driver d;
    struct error err;
    const struct cdi_driver_options o = { .version = V };
    host_init_at(&f);
    driver_library(&f, "/usr/lib64/libcuda.so." V, NULL);
    driver_library(&f, "/usr/lib64/libGLX_nvidia.so." V, NULL);
    arena_init(&a, ARENA);
    findings_init(&notes, &a, 10);
    assert_int_equal(cdi_driver_find(&a, &f.host, &o, &d, &notes, &err), 0);
    assert_int_equal(notes.n, 3);
    assert_string_equal(notes.items[0].subject, "compute");
    assert_int_equal(notes.items[0].severity, SEVERITY_WARNING);
    assert_non_null(strstr(notes.items[0].cause, "libnvidia-ml.so, libnvidia-ptxjitcompiler.so"));
    assert_string_equal(notes.items[1].subject, "graphics");
    assert_non_null(strstr(notes.items[1].cause, "libnvidia-glcore.so"));
    assert_null(strstr(notes.items[1].cause, "libGLX_nvidia"));
    assert_string_equal(notes.items[2].id, "cdi.no-capability");
    assert_int_equal(notes.items[2].severity, SEVERITY_INFO);
    fixture_host_done(&f);
}

static void options(void **state)
{
    struct fixture_host f;
    auto_arena a;
    struct cdi_driver d;
    struct error err;
    const char *const configs[] = { "/opt/share" };
    host_init_at(&f);
    driver_library(&f, "/usr/lib64/libcuda.so." V, NULL);
    driver_library(&f, "/usr/lib64/libnvidia-allocator.so." V, NULL);
    driver_library(&f, "/usr/lib64/libGL.so.1.7.0", "libGL.so.1");
    driver_link(&f, "/usr/lib64/libGL.so", "libGL.so.1.7.0");
    driver_text(&f, "/run/nvidia-persistenced/socket", "");
    driver_text(&f, "/opt/share/nvidia/nvoptix.bin", "");
    driver_text(&f, "/usr/share/nvidia/nvoptix.bin", "");
    const struct {
        struct cdi_driver_options o;
        size_t files, graphics_links;
    } cases[] = {
        { { .version = V }, 4, 1 },
        { { .version = V, .no_sockets = true }, 3, 1 },
        { { .version = V, .no_graphics = true }, 3, 0 },
        { { .version = V, .explicit_libraries = true }, 5, 1 },
        { { .version = V, .config_dirs = configs, .n_config_dirs = 1 }, 4, 1 },
        { { .version = "../etc" }, 4, 1 }, /* no version: taken from the files */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        arena_init(&a, ARENA);
        assert_int_equal(cdi_driver_find(&a, &f.host, &cases[i].o, &d, NULL, &err), 0);
        if (d.n_files != cases[i].files || d.n_graphics_links != cases[i].graphics_links)
            fail_msg("case %zu: %zu files, %zu links", i, d.n_files, d.n_graphics_links);
        assert_string_equal(d.version, V);
        arena_done(&a);
    }
    arena_init(&a, ARENA);
    fixture_host_done(&f);
}

static void versions(void **state)
{
    static const struct {
        const char *text;
        bool is;
    } cases[] = { { "550.163.01", true }, { "580.1", true },  { "550", false },  { "", false },
                  { "550.", false },      { ".5", false },    { "5..1", false }, { "5.1a", false },
                  { "5.1/..", false },    { "../1.2", false } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(cdi_is_version(str_of(cases[i].text)), cases[i].is);
    struct fixture_host f;
    char version[64];
    host_init_at(&f);
    cdi_module_version(&f.host, version);
    assert_string_equal(version, "");
    fixture_file(&f, "/proc/driver/nvidia/version",
                 "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release "
                 "Build  (root@x)\nGCC version:  gcc version 12.2.0 (Debian)\n");
    cdi_module_version(&f.host, version);
    assert_string_equal(version, "580.159.04");
    fixture_host_done(&f);
}

static void every_allocation_may_fail(void **state)
{
    struct fixture_host f;
    const struct cdi_driver_options o = { .version = NULL };
    host_init_at(&f);
    for (size_t k = 0; k < ARRAY_LEN(layouts[4].entries) && layouts[4].entries[k].kind; k++)
        put(&f, &layouts[4].entries[k]);
    driver_cache(&f, "/usr/lib64");
    int r = -1;
    for (uint64_t k = 1; r != 0; k++) {
        auto_arena a;
        struct cdi_driver d;
        struct error err;
        assert_true(k < 1000);
        arena_init(&a, ARENA);
        mem_fail_at(k);
        r = cdi_driver_find(&a, &f.host, &o, &d, NULL, &err);
        mem_fail_at(0);
        assert_true(r == 0 || r == -ERR_LIMIT);
    }
    for (size_t limit = 0; limit < 12000; limit += 64) {
        auto_arena a;
        struct cdi_driver d;
        struct error err;
        arena_init(&a, limit);
        r = cdi_driver_find(&a, &f.host, &o, &d, NULL, &err);
        assert_true(r == 0 || r == -ERR_LIMIT);
    }
    fixture_host_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_of_distributions),
        cmocka_unit_test(firmware_order),
        cmocka_unit_test(further_folders),
        cmocka_unit_test(missing_by_capability),
        cmocka_unit_test(options),
        cmocka_unit_test(versions),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
