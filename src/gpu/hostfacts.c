/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/hostfacts.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

void pci_text(uint32_t domain, uint32_t bus, uint32_t device, char ret[PCI_TEXT_SIZE])
{
    snprintf(ret, PCI_TEXT_SIZE, "%04x:%02x:%02x.0", domain, bus & 0xFF, device & 0x1F);
}

bool pci_text_valid(const char *text)
{
    size_t digits = strspn(text, "0123456789abcdef");
    if (digits < 4 || digits > 8 || strlen(text) != digits + 8)
        return false;
    static const char shape[] = ":xx:xx.x";
    for (size_t i = 0; i < sizeof shape - 1; i++) {
        char c = text[digits + i];
        if (shape[i] == 'x' ? !isxdigit((unsigned char)c) || isupper((unsigned char)c)
                            : c != shape[i])
            return false;
    }
    return true;
}

static void copy_filtered(char *to, size_t size, const char *from, bool word)
{
    size_t n = strnlen(from, size - 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)from[i];
        bool bad = c < ' ' || c == 0x7F || (word && (c == ' ' || c > 0x7F));
        to[i] = bad ? '?' : from[i];
    }
    to[n] = '\0';
}

void copy_text(char *to, size_t size, const char *from)
{
    copy_filtered(to, size, from, false);
}

void copy_word(char *to, size_t size, const char *from)
{
    copy_filtered(to, size, from, true);
}

/* ---- sysfs ---- */

static char *sysfs_path(const struct host *h, const char *pci, const char *name)
{
    auto_free char *sub = x_printf("/sys/bus/pci/devices/%s/%s", pci, name);
    return host_path(h, sub);
}

/* An attribute says that it has the size of a page, which may be 64 KiB, whatever is in it. */
enum { ATTRIBUTE_MAX = 64 * 1024 };

bool sysfs_number(const struct host *h, const char *pci, const char *name, int64_t *ret)
{
    auto_free char *path = sysfs_path(h, pci, name);
    auto_free char *text = NULL;
    if (!pci[0] || file_read(path, ATTRIBUTE_MAX, &text, NULL, NULL) < 0)
        return false;
    struct str s = str_trim(str_of(text));
    if (!str_starts(s, "0x"))
        return str_to_i64(s, INT32_MIN, UINT32_MAX, ret);
    uint64_t v;
    if (!str_hex_to_u64(s, UINT32_MAX, &v))
        return false;
    *ret = (int64_t)v;
    return true;
}

bool sysfs_driver(const struct host *h, const char *pci, char *ret, size_t size)
{
    auto_free char *path = sysfs_path(h, pci, "driver");
    char target[256];
    ssize_t n = pci[0] ? readlink(path, target, sizeof target - 1) : -1;
    if (n <= 0)
        return false;
    target[n] = '\0';
    copy_word(ret, size, path_name(target));
    return true;
}

bool sysfs_off_bus(const struct host *h, const char *pci)
{
    auto_free char *path = sysfs_path(h, pci, "config");
    auto_close int fd = pci[0] ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    uint32_t first;
    return fd >= 0 && read(fd, &first, sizeof first) == (ssize_t)sizeof first &&
           first == UINT32_MAX;
}

/* ---- procfs ---- */

static struct str line_value(struct str line, const char *key)
{
    struct str rest = line;
    struct str found = str_trim(str_cut(&rest, ':'));
    return str_is(found, key) && rest.p ? str_trim(rest) : (struct str){ NULL, 0 };
}

void proc_gpu_parse(struct str text, struct proc_gpu *ret)
{
    while (text.p) {
        struct str line = str_cut(&text, '\n');
        struct str v = line_value(line, "GPU UUID");
        /* Question marks until the gpu was first opened. */
        if (v.n > 4 && v.n < sizeof ret->uuid && !memchr(v.p, '?', v.n)) {
            auto_free char *uuid = x_strndup(v.p, v.n);
            copy_word(ret->uuid, sizeof ret->uuid, uuid);
        }
        uint64_t minor;
        v = line_value(line, "Device Minor");
        if (v.p && str_to_u64(v, UINT32_MAX, &minor)) {
            ret->minor = (uint32_t)minor;
            ret->has_minor = true;
        }
        if (str_is(line_value(line, "GPU Excluded"), "Yes"))
            ret->excluded = true;
    }
}

static int by_pci(const void *a, const void *b)
{
    const struct proc_gpu *x = a, *y = b;
    return strcmp(x->pci, y->pci);
}

size_t proc_gpus(const struct host *h, struct proc_gpu *ret, size_t max)
{
    auto_free char *path = host_path(h, "/proc/driver/nvidia/gpus");
    DIR *dir = opendir(path);
    size_t n = 0;
    for (struct dirent *e; dir && n < max && (e = readdir(dir));) {
        if (!pci_text_valid(e->d_name))
            continue;
        ret[n] = (struct proc_gpu){ 0 };
        snprintf(ret[n].pci, sizeof ret[n].pci, "%.*s", (int)sizeof ret[n].pci - 1, e->d_name);
        auto_free char *information = x_printf("%s/%s/information", path, e->d_name);
        auto_free char *text = NULL;
        if (file_read(information, 16 * 1024, &text, NULL, NULL) == 0)
            proc_gpu_parse(str_of(text), &ret[n]);
        n++;
    }
    if (dir)
        closedir(dir);
    qsort(ret, n, sizeof *ret, by_pci);
    return n;
}

bool meminfo_total(const struct host *h, uint64_t *ret_bytes)
{
    auto_free char *path = host_path(h, "/proc/meminfo");
    auto_free char *text = NULL;
    if (file_read(path, 64 * 1024, &text, NULL, NULL) < 0)
        return false;
    struct str rest = str_of(text);
    while (rest.p) {
        struct str v = line_value(str_cut(&rest, '\n'), "MemTotal");
        if (!v.p || !str_ends(v, " kB"))
            continue;
        uint64_t kib;
        struct str number = str_trim((struct str){ v.p, v.n - 3 });
        if (!str_to_u64(number, UINT64_MAX / 1024, &kib) || kib == 0)
            return false;
        *ret_bytes = kib * 1024;
        return true;
    }
    return false;
}

/* ---- capability minors ---- */

/* "gpu3" with prefix "gpu" → 3 */
static bool numbered(struct str word, const char *prefix, uint32_t *ret)
{
    size_t n = strlen(prefix);
    uint64_t v;
    if (!str_starts(word, prefix) ||
        !str_to_u64((struct str){ word.p + n, word.n - n }, UINT32_MAX - 1, &v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

/* "gpu3/gi2/access" or "gpu3/gi2/ci0/access" */
static bool instance_path(struct str path, struct mig_minor *m)
{
    m->ci = UINT32_MAX;
    if (!numbered(str_cut(&path, '/'), "gpu", &m->gpu_minor) ||
        !numbered(str_cut(&path, '/'), "gi", &m->gi))
        return false;
    struct str next = str_cut(&path, '/');
    if (path.p && numbered(next, "ci", &m->ci))
        next = str_cut(&path, '/');
    return str_is(next, "access") && !path.p;
}

void mig_minors_parse(struct str text, void (*each)(void *arg, const struct mig_minor *m),
                      void *arg, uint32_t *ret_monitor)
{
    *ret_monitor = UINT32_MAX;
    while (text.p) {
        struct str line = str_trim(str_cut(&text, '\n'));
        struct str path = str_cut(&line, ' ');
        uint64_t minor;
        struct mig_minor m;
        if (!line.p || !str_to_u64(str_trim(line), UINT32_MAX - 1, &minor))
            continue;
        if (str_is(path, "monitor"))
            *ret_monitor = (uint32_t)minor;
        if (!instance_path(path, &m))
            continue;
        m.minor = (uint32_t)minor;
        each(arg, &m);
    }
}
