/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fixture.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

enum { GPUS = 8, DRIVER_MAJOR = 195, UVM_MAJOR = 510, CAPS_MAJOR = 236, IMEX_MAJOR = 235 };

struct profile {
    const char *name, *model, *uuid; /* uuid: a format for the index */
    uint32_t gpus, cc_major, cc_minor;
    uint64_t gib;
    unsigned bus[GPUS];
    int numa[GPUS]; /* -1: none */
    bool switched, mig_capable, mig;
};

static const struct profile profiles[] = {
    { "h100",
      "NVIDIA H100 80GB HBM3",
      "GPU-01000100-0000-0000-0000-00000000000%u",
      8,
      9,
      0,
      80,
      { 0x1a, 0x1b, 0x4a, 0x4b, 0x8a, 0x8b, 0xca, 0xcb },
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      true,
      true,
      false },
    { "h100-mig",
      "NVIDIA H100 80GB HBM3",
      "GPU-01000100-0000-0000-0000-00000000000%u",
      8,
      9,
      0,
      80,
      { 0x1a, 0x1b, 0x4a, 0x4b, 0x8a, 0x8b, 0xca, 0xcb },
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      true,
      true,
      true },
    { "a100",
      "NVIDIA A100-SXM4-40GB",
      "GPU-12345678-1234-1234-1234-12345678000%u",
      8,
      8,
      0,
      40,
      { 0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd },
      { 3, 3, 1, 1, 7, 7, 5, 5 },
      true,
      true,
      false },
    { "h200",
      "NVIDIA H200",
      "GPU-11111111-2222-3333-4444-55555555555%u",
      1,
      9,
      0,
      141,
      { 0x18 },
      { -1 },
      false,
      true,
      false },
    { "parts",
      "NVIDIA A100-SXM4-40GB",
      "GPU-12345678-1234-1234-1234-12345678000%u",
      2,
      8,
      0,
      40,
      { 0x07, 0x0f },
      { 3, 3 },
      true,
      true,
      false },
    { "wsl",
      "NVIDIA RTX A2000",
      "GPU-77777777-0000-0000-0000-00000000000%u",
      2,
      8,
      6,
      12,
      { 1, 2 },
      { 0, 0 },
      false,
      false,
      false },
};

static const struct profile *profile_named(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(profiles); i++) {
        if (strcmp(profiles[i].name, name) == 0)
            return &profiles[i];
    }
    abort(); /* a typing error in a test */
}

static void fill_gpu(const struct profile *p, uint32_t i, struct gpu *g)
{
    const char *percent = strchr(p->uuid, '%');
    snprintf(g->uuid, sizeof(g->uuid), "%.*s%u", (int)(percent - p->uuid), p->uuid,
             strcmp(p->name, "h200") == 0 ? 5 : i);
    snprintf(g->name, sizeof(g->name), "%s", p->model);
    snprintf(g->pci, sizeof(g->pci), "0000:%02x:00.0", p->bus[i]);
    g->index = g->minor = i;
    g->valid = GPU_HAS_MINOR | GPU_HAS_PCI | GPU_HAS_MEMORY | GPU_HAS_CC | GPU_HAS_EVENTS;
    g->memory_bytes = p->gib << 30;
    g->cc_major = p->cc_major;
    g->cc_minor = p->cc_minor;
    if (p->numa[i] >= 0) {
        g->valid |= GPU_HAS_NUMA;
        g->numa = p->numa[i];
    }
    if (p->mig_capable)
        g->valid |= GPU_HAS_MIG;
    g->mig_current = g->mig_pending = p->mig;
}

static void fill_links(const struct profile *p, struct gpu_link *links)
{
    for (uint32_t a = 0; a < p->gpus; a++) {
        for (uint32_t b = 0; b < p->gpus; b++) {
            struct gpu_link *l = &links[a * p->gpus + b];
            bool near = a / 2 == b / 2;
            l->ancestor = near ? 30 : p->numa[a] == p->numa[b] ? 40 : 50;
            l->nvlinks = p->switched && a != b ? 12 : 0;
            l->through_switch = l->nvlinks > 0;
        }
    }
}

static void fill_part(struct part *p, uint32_t slot, const char *profile, uint32_t slices,
                      uint32_t gi, uint32_t ci)
{
    snprintf(p->uuid, sizeof(p->uuid), "MIG-00000000-0000-0000-0000-00000000000%u", slot);
    snprintf(p->profile, sizeof(p->profile), "%s", profile);
    p->valid = PART_HAS_ATTRIBUTES | PART_HAS_CAPS;
    p->slot = slot;
    p->gi = gi;
    p->ci = ci;
    p->gi_slices = slices;
    p->ci_slices = slices;
    p->memory_mb = 4864 * slices;
    p->gi_cap = 3 + 9 * gi;
    p->ci_cap = p->gi_cap + 1 + ci;
}

static void fill_parts(struct gpu *g, struct part *parts)
{
    fill_part(&parts[0], 0, "3g.20gb", 3, 2, 0);
    fill_part(&parts[1], 1, "2g.10gb", 2, 3, 0);
    fill_part(&parts[2], 2, "1g.5gb", 1, 9, 0);
    fill_part(&parts[3], 3, "1g.5gb", 1, 10, 0);
    g->parts = parts;
    g->n_parts = 4;
    g->mig_current = g->mig_pending = 1;
}

struct survey *fixture_survey(const char *name)
{
    const struct profile *p = profile_named(name);
    struct gpu gpus[GPUS] = { 0 };
    struct gpu_link links[GPUS * GPUS] = { 0 };
    struct part parts[4] = { 0 };
    for (uint32_t i = 0; i < p->gpus; i++)
        fill_gpu(p, i, &gpus[i]);
    fill_links(p, links);
    if (strcmp(name, "parts") == 0)
        fill_parts(&gpus[0], parts);
    struct survey s = {
        .driver = DRIVER_OK,
        .driver_version = "550.163.01", /* the H200 had another one */
        .cuda_version = 12040,
        .gpus = gpus,
        .n_gpus = p->gpus,
        .links = p->gpus > 1 ? links : NULL,
    };
    if (strcmp(name, "h200") == 0)
        snprintf(s.driver_version, sizeof(s.driver_version), "580.159.04");
    snprintf(s.platform, sizeof(s.platform), "%s", strcmp(name, "wsl") == 0 ? "wsl" : "nvml");
    auto_buf bytes;
    buf_init(&bytes, 4 * 1024 * 1024);
    struct error err;
    struct survey *ret = NULL;
    if (survey_encode(&s, &bytes, &err) < 0 || survey_decode(buf_view(&bytes), &ret, &err) < 0)
        fail_msg("survey %s: %s", name, err.text);
    return ret;
}

/* ---- the host ---- */

static char *full_path(const struct fixture_host *f, const char *path)
{
    char *full = x_printf("%s%s", f->dir, path);
    char *slash = strrchr(full, '/');
    struct error err;
    *slash = '\0';
    if (dir_make(full, 0755, &err) < 0)
        fail_msg("%s", err.text);
    *slash = '/';
    return full;
}

void fixture_file(const struct fixture_host *f, const char *path, const char *text)
{
    auto_free char *full = full_path(f, path);
    FILE *out = fopen(full, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

void fixture_node(const struct fixture_host *f, const char *path, unsigned major_number,
                  unsigned minor_number)
{
    auto_free char *full = full_path(f, path);
    mode_t mask = umask(0);
    int r = mknod(full, S_IFCHR | 0666, makedev(major_number, minor_number));
    umask(mask);
    if (r < 0)
        fixture_file(f, path, "");
}

static void make_nodes(const struct fixture_host *f, const struct survey *s, const char *root,
                       int nodes)
{
    char path[128];
    const struct {
        const char *name;
        unsigned major_number, minor_number;
        bool wanted;
    } fixed[] = {
        { "nvidiactl", DRIVER_MAJOR, 255, true },
        { "nvidia-uvm", UVM_MAJOR, 0, true },
        { "nvidia-uvm-tools", UVM_MAJOR, 1, true },
        { "nvidia-modeset", DRIVER_MAJOR, 254, nodes & FIXTURE_MODESET },
        { "nvidia-caps-imex-channels/channel0", IMEX_MAJOR, 0, nodes & FIXTURE_IMEX },
    };
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
        snprintf(path, sizeof(path), "%s/dev/%s", root, fixed[i].name);
        if (fixed[i].wanted)
            fixture_node(f, path, fixed[i].major_number, fixed[i].minor_number);
    }
    for (size_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *g = &s->gpus[i];
        snprintf(path, sizeof(path), "%s/dev/nvidia%u", root, g->minor);
        fixture_node(f, path, DRIVER_MAJOR, g->minor);
        for (size_t k = 0; k < g->n_parts; k++) {
            snprintf(path, sizeof(path), "%s/dev/nvidia-caps/nvidia-cap%u", root,
                     g->parts[k].gi_cap);
            fixture_node(f, path, CAPS_MAJOR, g->parts[k].gi_cap);
            snprintf(path, sizeof(path), "%s/dev/nvidia-caps/nvidia-cap%u", root,
                     g->parts[k].ci_cap);
            fixture_node(f, path, CAPS_MAJOR, g->parts[k].ci_cap);
        }
    }
}

void fixture_host_init(struct fixture_host *f, const struct survey *s, int nodes,
                       const char *driver_root, const char *ctr_path, const char *dev_root)
{
    snprintf(f->dir, sizeof(f->dir), "/tmp/mete-fixture-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    if (nodes & FIXTURE_DRIVER_NODES)
        make_nodes(f, s, "/driver-root", nodes);
    if (nodes & FIXTURE_DEV_NODES)
        make_nodes(f, s, "", nodes);
    bool host_view = ctr_path && strcmp(ctr_path, "/") == 0;
    auto_free char *view = x_printf("%s%s", f->dir, host_view ? "" : "/driver-root");
    const struct host_config c = {
        .root = f->dir,
        .driver_root = driver_root,
        .driver_root_view = view,
        .dev_root = dev_root,
    };
    struct error err;
    if (host_init(&f->host, &c, &err) < 0)
        fail_msg("%s", err.text);
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *ftw)
{
    return remove(path);
}

void fixture_host_done(struct fixture_host *f)
{
    host_done(&f->host);
    nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
