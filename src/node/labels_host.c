/* SPDX-License-Identifier: Apache-2.0 */
/* What the host says for labels: the machine's type and whether its gpus are virtual. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "gpu/hostfacts.h"
#include "node/labels.h"

enum {
    MACHINE_MAX = 64 * 1024, /* a sysfs attribute says that it has the size of a page */
    CONFIG_MAX = 64 * 1024,
    CONFIG_LEAST = 256, /* less than this, and capabilities are missing */
    VENDOR_NVIDIA = 0x10de,
    CLASS_DISPLAY = 0x03,
};

/* ---- machine ---- */

static bool of_host(const char *path)
{
    static const char *const trees[] = { "/sys/", "/proc/", "/dev/" };
    for (size_t i = 0; i < ARRAY_LEN(trees); i++)
        if (strncmp(path, trees[i], strlen(trees[i])) == 0)
            return true;
    return false;
}

static void read_machine(const struct host *h, const char *file, struct label_facts *ret)
{
    if (!file[0])
        return;
    struct error err;
    size_t n = 0;
    auto_free char *path = of_host(file) ? host_path(h, file) : x_strdup(file);
    auto_free char *text = NULL;
    if (file_read(path, MACHINE_MAX, &text, &n, &err) < 0) {
        snprintf(ret->machine_text, sizeof ret->machine_text, "%s", err.text);
        return;
    }
    struct str s = str_trim((struct str){ text, n });
    for (size_t i = 0, at = 0; i < s.n && at + 1 < sizeof ret->machine; i++)
        if (s.p[i])
            ret->machine[at++] = s.p[i];
}

/* ---- vGPU ---- */

/* Offset of the vendor-specific capability; 0: there is none. */
static size_t vendor_capability(const unsigned char *c)
{
    enum { STATUS = 0x06, HAS_LIST = 0x10, FIRST = 0x34, VENDOR_SPECIFIC = 0x09, BROKEN = 0xff };
    bool seen[CONFIG_LEAST] = { false };
    if (!(c[STATUS] & HAS_LIST))
        return 0;
    for (size_t at = c[FIRST]; at != 0 && at + 2 < CONFIG_LEAST && !seen[at]; at = c[at + 1]) {
        if (c[at] == VENDOR_SPECIFIC)
            return at;
        if (c[at] == BROKEN)
            return 0;
        seen[at] = true;
    }
    return 0;
}

static void record_text(const unsigned char *from, char ret[VGPU_TEXT_SIZE])
{
    size_t n = 0;
    for (size_t i = 0; i < VGPU_TEXT_SIZE - 1; i++)
        if (from[i] > ' ' && from[i] < 0x7f)
            ret[n++] = (char)from[i];
    ret[n] = '\0';
}

enum vgpu_state vgpu_look(const void *config, size_t n, char version[VGPU_TEXT_SIZE],
                          char branch[VGPU_TEXT_SIZE])
{
    enum { RECORDS = 5, HEAD = 2, TEXT = VGPU_TEXT_SIZE - 1 };
    const unsigned char *c = config;
    version[0] = branch[0] = '\0';
    if (n < CONFIG_LEAST)
        return VGPU_UNKNOWN;
    size_t at = vendor_capability(c);
    size_t end = at ? MIN(at + c[at + 2], (size_t)CONFIG_LEAST) : 0;
    if (at + RECORDS > end || c[at + 3] != 'V' || c[at + 4] != 'F')
        return VGPU_NONE;
    for (at += RECORDS; at + HEAD <= end && c[at + 1] >= HEAD; at += c[at + 1]) {
        if (c[at] != 0)
            continue;
        if (at + HEAD + 2 * TEXT > end)
            break;
        record_text(c + at + HEAD, version);
        record_text(c + at + HEAD + TEXT, branch);
        break;
    }
    return VGPU_GUEST;
}

/* One function of the bus. A state that is certain is not given up for a later one. */
static void look_at(const struct host *h, const char *pci, struct label_facts *ret)
{
    auto_free char *sub = x_printf("/sys/bus/pci/devices/%s/config", pci);
    auto_free char *path = host_path(h, sub);
    auto_free char *bytes = NULL;
    char version[VGPU_TEXT_SIZE], branch[VGPU_TEXT_SIZE];
    struct error err;
    size_t n = 0;
    if (ret->vgpu == VGPU_GUEST && ret->vgpu_version[0])
        return;
    int r = file_read(path, CONFIG_MAX, &bytes, &n, &err);
    if (r == -ERR_NOT_FOUND) /* no sysfs, or gone from the bus: nothing says that it is one */
        return;
    enum vgpu_state state = r < 0 ? VGPU_UNKNOWN : vgpu_look(bytes, n, version, branch);
    if (state == VGPU_UNKNOWN && ret->vgpu == VGPU_NONE) {
        ret->vgpu = VGPU_UNKNOWN;
        if (r < 0)
            snprintf(ret->vgpu_text, sizeof ret->vgpu_text, "%s", err.text);
        else
            snprintf(ret->vgpu_text, sizeof ret->vgpu_text,
                     "%s holds %zu bytes for this process, %d are needed", path, n, CONFIG_LEAST);
    }
    if (state != VGPU_GUEST)
        return;
    ret->vgpu = VGPU_GUEST;
    ret->vgpu_text[0] = '\0';
    memcpy(ret->vgpu_version, version, sizeof version);
    memcpy(ret->vgpu_branch, branch, sizeof branch);
    if (!version[0])
        snprintf(ret->vgpu_text, sizeof ret->vgpu_text,
                 "the vGPU %s does not tell the version of its host's driver", pci);
}

static bool is_display(const struct host *h, const char *pci)
{
    int64_t vendor = 0, class = 0;
    return sysfs_number(h, pci, "vendor", &vendor) && vendor == VENDOR_NVIDIA &&
           sysfs_number(h, pci, "class", &class) && class >> 16 == CLASS_DISPLAY;
}

static void look_at_bus(const struct host *h, struct label_facts *ret)
{
    auto_free char *path = host_path(h, "/sys/bus/pci/devices");
    DIR *dir = opendir(path);
    if (!dir && errno != ENOENT) {
        ret->vgpu = VGPU_UNKNOWN;
        snprintf(ret->vgpu_text, sizeof ret->vgpu_text, "%.120s: %m", path);
    }
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (pci_text_valid(e->d_name) && is_display(h, e->d_name))
            look_at(h, e->d_name, ret);
    if (dir)
        closedir(dir);
}

void label_facts_read(const struct host *h, const char *machine_type_file, const struct survey *s,
                      struct label_facts *ret)
{
    *ret = (struct label_facts){ .vgpu = VGPU_NONE };
    read_machine(h, machine_type_file, ret);
    bool any = false;
    for (size_t i = 0; i < s->n_gpus; i++) {
        if (!pci_text_valid(s->gpus[i].pci))
            continue;
        any = true;
        look_at(h, s->gpus[i].pci, ret);
    }
    if (!any)
        look_at_bus(h, ret);
}
