/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated host's nvidia-smi: a program of its own that asks the library through NVML, as any
 * other client. It knows what agents and people call it for: the list, queries as CSV, and the few
 * settings; everything else is refused by name.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "gpu/nvml_calls.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

struct smi {
    void *library;
    const char *only; /* -i: index, UUID or bus id; NULL: all */
#define SMI_MEMBER(symbol, ...) nv_fn_##symbol symbol;
    NV_CALLS(SMI_MEMBER)
#undef SMI_MEMBER
    nv_fn_nvmlErrorString nvmlErrorString;
};

static int say(const struct smi *s, const char *what, nv_return r)
{
    fprintf(stderr, "%s: %s\n", what, s->nvmlErrorString(r));
    return (int)r;
}

/* Beside the program, as a driver installs them; else where the loader looks. */
static bool load(struct smi *s)
{
    static const char *const places[] = { "../lib/x86_64-linux-gnu/", "../lib/aarch64-linux-gnu/",
                                          "../lib64/", "../lib/" };
    char exe[PATH_MAX / 2], path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = 0;
    char *slash = strrchr(exe, '/');
    for (size_t i = 0; slash && !s->library && i < COUNT_OF(places); i++) {
        slash[1] = 0;
        snprintf(path, sizeof(path), "%s%slibnvidia-ml.so.1", exe, places[i]);
        s->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!s->library)
        s->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!s->library)
        return false;
#define SMI_SYMBOL(symbol, ...) s->symbol = (nv_fn_##symbol)(uintptr_t)dlsym(s->library, #symbol);
    NV_CALLS(SMI_SYMBOL)
#undef SMI_SYMBOL
    s->nvmlErrorString = (nv_fn_nvmlErrorString)(uintptr_t)dlsym(s->library, "nvmlErrorString");
    return s->nvmlInit_v2 && s->nvmlErrorString;
}

static bool wanted(const struct smi *s, unsigned index, nv_device d)
{
    char uuid[NV_UUID_SIZE], number[12];
    struct nv_pci_info pci;
    if (!s->only)
        return true;
    snprintf(number, sizeof(number), "%u", index);
    if (strcmp(s->only, number) == 0)
        return true;
    if (s->nvmlDeviceGetUUID(d, uuid, sizeof(uuid)) == NV_OK && strcmp(uuid, s->only) == 0)
        return true;
    return s->nvmlDeviceGetPciInfo_v3(d, &pci) == NV_OK && strcasecmp(pci.bus_id, s->only) == 0;
}

/* Calls `each` for every gpu that is meant; the first failure is the program's result. */
static int for_each(const struct smi *s,
                    int (*each)(const struct smi *s, unsigned index, nv_device d, void *arg),
                    void *arg)
{
    unsigned n = 0, met = 0;
    int result = 0;
    nv_return r = s->nvmlDeviceGetCount_v2(&n);
    if (r != NV_OK)
        return say(s, "Unable to determine the number of devices", r);
    for (unsigned i = 0; i < n; i++) {
        nv_device d;
        char what[64];
        r = s->nvmlDeviceGetHandleByIndex_v2(i, &d);
        snprintf(what, sizeof(what), "Unable to determine the device handle for GPU%u", i);
        if (r != NV_OK) {
            result = result ? result : say(s, what, r);
            continue;
        }
        if (!wanted(s, i, d))
            continue;
        met++;
        int one = each(s, i, d, arg);
        result = result ? result : one;
    }
    if (met == 0 && result == 0) {
        printf("No devices were found\n");
        return s->only ? 6 : 0;
    }
    return result;
}

/* ---- the list ---- */

static int list_one(const struct smi *s, unsigned index, nv_device d, void *arg)
{
    char name[NV_NAME_V2_SIZE], uuid[NV_UUID_SIZE];
    unsigned slots = 0;
    nv_return r = s->nvmlDeviceGetName(d, name, sizeof(name));
    if (r == NV_OK)
        r = s->nvmlDeviceGetUUID(d, uuid, sizeof(uuid));
    if (r != NV_OK)
        return say(s, "Unable to read the device", r);
    printf("GPU %u: %s (UUID: %s)\n", index, name, uuid);
    if (s->nvmlDeviceGetMaxMigDeviceCount(d, &slots) != NV_OK)
        slots = 0;
    for (unsigned i = 0, shown = 0; i < slots; i++) {
        nv_device mig;
        if (s->nvmlDeviceGetMigDeviceHandleByIndex(d, i, &mig) != NV_OK ||
            s->nvmlDeviceGetName(mig, name, sizeof(name)) != NV_OK ||
            s->nvmlDeviceGetUUID(mig, uuid, sizeof(uuid)) != NV_OK)
            continue;
        const char *profile = strstr(name, " MIG ");
        printf("  MIG %-15s Device %2u: (UUID: %s)\n", profile ? profile + 5 : name, shown++, uuid);
    }
    return 0;
}

/* ---- queries ---- */

struct query {
    char fields[16][40];
    size_t n;
    bool header, units;
};

static void print_mib(uint64_t bytes, bool units)
{
    printf("%llu%s", (unsigned long long)(bytes >> 20), units ? " MiB" : "");
}

static bool print_text_field(const struct smi *s, nv_device d, const char *field)
{
    char text[NV_NAME_V2_SIZE] = "[N/A]";
    struct nv_pci_info pci;
    if (strcmp(field, "name") == 0 || strcmp(field, "gpu_name") == 0)
        s->nvmlDeviceGetName(d, text, sizeof(text));
    else if (strcmp(field, "uuid") == 0 || strcmp(field, "gpu_uuid") == 0)
        s->nvmlDeviceGetUUID(d, text, sizeof(text));
    else if (strcmp(field, "serial") == 0 || strcmp(field, "gpu_serial") == 0)
        s->nvmlDeviceGetSerial(d, text, sizeof(text));
    else if (strcmp(field, "driver_version") == 0)
        s->nvmlSystemGetDriverVersion(text, sizeof(text));
    else if (strcmp(field, "vbios_version") == 0)
        s->nvmlDeviceGetVbiosVersion(d, text, sizeof(text));
    else if (strcmp(field, "pci.bus_id") == 0 || strcmp(field, "gpu_bus_id") == 0) {
        if (s->nvmlDeviceGetPciInfo_v3(d, &pci) == NV_OK)
            snprintf(text, sizeof(text), "%s", pci.bus_id);
    } else
        return false;
    printf("%s", text);
    return true;
}

static bool print_number_field(const struct smi *s, unsigned index, nv_device d, const char *field,
                               bool units)
{
    struct nv_memory_v2 m = { .version = NV_VERSION(struct nv_memory_v2, 2) };
    unsigned a = 0, b = 0;
    bool memory = strncmp(field, "memory.", 7) == 0;
    if (memory && s->nvmlDeviceGetMemoryInfo_v2(d, &m) != NV_OK)
        printf("[N/A]");
    else if (strcmp(field, "memory.total") == 0)
        print_mib(m.total, units);
    else if (strcmp(field, "memory.used") == 0)
        print_mib(m.used, units);
    else if (strcmp(field, "memory.free") == 0)
        print_mib(m.free, units);
    else if (strcmp(field, "memory.reserved") == 0)
        print_mib(m.reserved, units);
    else if (strcmp(field, "index") == 0)
        printf("%u", index);
    else if (strcmp(field, "count") == 0 && s->nvmlDeviceGetCount_v2(&a) == NV_OK)
        printf("%u", a);
    else if (strcmp(field, "temperature.gpu") == 0 &&
             s->nvmlDeviceGetTemperature(d, 0, &a) == NV_OK)
        printf("%u", a);
    else if (strcmp(field, "mig.mode.current") == 0)
        printf("%s", s->nvmlDeviceGetMigMode(d, &a, &b) != NV_OK ? "[N/A]"
                     : a                                         ? "Enabled"
                                                                 : "Disabled");
    else if (strcmp(field, "mig.mode.pending") == 0)
        printf("%s", s->nvmlDeviceGetMigMode(d, &a, &b) != NV_OK ? "[N/A]"
                     : b                                         ? "Enabled"
                                                                 : "Disabled");
    else if (strcmp(field, "persistence_mode") == 0 &&
             s->nvmlDeviceGetPersistenceMode(d, &a) == NV_OK)
        printf("%s", a ? "Enabled" : "Disabled");
    else
        return false;
    return true;
}

static int query_one(const struct smi *s, unsigned index, nv_device d, void *arg)
{
    const struct query *q = arg;
    for (size_t i = 0; i < q->n; i++) {
        if (i > 0)
            printf(", ");
        if (!print_text_field(s, d, q->fields[i]) &&
            !print_number_field(s, index, d, q->fields[i], q->units)) {
            printf("\nField \"%s\" is not a valid field to query.\n", q->fields[i]);
            return 2;
        }
    }
    printf("\n");
    return 0;
}

static bool parse_query(struct query *q, const char *list)
{
    while (*list && q->n < COUNT_OF(q->fields)) {
        size_t n = strcspn(list, ",");
        if (n == 0 || n >= sizeof(q->fields[0]))
            return false;
        memcpy(q->fields[q->n], list, n);
        q->fields[q->n++][n] = 0;
        list += n + (list[n] == ',');
    }
    return *list == 0 && q->n > 0;
}

static int query(const struct smi *s, struct query *q)
{
    for (size_t i = 0; q->header && i < q->n; i++)
        printf("%s%s%s", i ? ", " : "", q->fields[i],
               q->units && strncmp(q->fields[i], "memory.", 7) == 0 ? " [MiB]" : "");
    if (q->header)
        printf("\n");
    return for_each(s, query_one, q);
}

/* ---- settings ---- */

struct setting {
    char which; /* p persistence, c compute mode, m MIG mode */
    unsigned value;
};

static int set_one(const struct smi *s, unsigned index, nv_device d, void *arg)
{
    const struct setting *k = arg;
    nv_return activation = NV_OK;
    nv_return r = k->which == 'p'   ? s->nvmlDeviceSetPersistenceMode(d, k->value)
                  : k->which == 'c' ? s->nvmlDeviceSetComputeMode(d, k->value)
                                    : s->nvmlDeviceSetMigMode(d, k->value, &activation);
    if (r != NV_OK)
        return say(s, "Unable to change the setting", r);
    if (activation != NV_OK)
        printf("Warning: the mode is pending on GPU %u: %s\n", index,
               s->nvmlErrorString(activation));
    printf("Changed the setting of GPU %u.\n", index);
    return 0;
}

static int table_one(const struct smi *s, unsigned index, nv_device d, void *arg)
{
    static struct query q = { .fields = { "index", "name", "pci.bus_id", "memory.used",
                                          "memory.total" },
                              .n = 5,
                              .units = true };
    return query_one(s, index, d, &q);
}

static int table(const struct smi *s)
{
    char driver[NV_DRIVER_VERSION_SIZE] = "?";
    int cuda = 0;
    s->nvmlSystemGetDriverVersion(driver, sizeof(driver));
    s->nvmlSystemGetCudaDriverVersion_v2(&cuda);
    printf("NVIDIA-SMI (simulated)   Driver Version: %s   CUDA Version: %d.%d\n", driver,
           cuda / 1000, cuda % 1000 / 10);
    return for_each(s, table_one, NULL);
}

/* ---- the command line ---- */

struct line {
    bool list, timeslice, setting_given;
    struct query query;
    struct setting setting;
};

static bool numeric(const char *text, unsigned *ret)
{
    if (!text || text[0] < '0' || text[0] > '9' || text[1])
        return false;
    *ret = (unsigned)(text[0] - '0');
    return true;
}

static bool parse(struct smi *s, struct line *l, int argc, char **argv)
{
    static const struct {
        const char *option;
        char which;
    } settings[] = { { "-pm", 'p' },  { "--persistence-mode", 'p' },
                     { "-c", 'c' },   { "--compute-mode", 'c' },
                     { "-mig", 'm' }, { "--multi-instance-gpu", 'm' } };
    l->query.header = l->query.units = true;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        bool known = true;
        char which = 0;
        for (size_t k = 0; k < COUNT_OF(settings); k++)
            which = strcmp(a, settings[k].option) == 0 ? settings[k].which : which;
        if (strcmp(a, "-L") == 0 || strcmp(a, "--list-gpus") == 0)
            l->list = true;
        else if ((strcmp(a, "-i") == 0 || strcmp(a, "--id") == 0) && next)
            s->only = argv[++i];
        else if (strncmp(a, "--id=", 5) == 0)
            s->only = a + 5;
        else if (strncmp(a, "--query-gpu=", 12) == 0)
            known = parse_query(&l->query, a + 12);
        else if (strncmp(a, "--format=csv", 12) == 0) {
            l->query.header = !strstr(a, "noheader");
            l->query.units = !strstr(a, "nounits");
        } else if (which && numeric(next, &l->setting.value)) {
            l->setting.which = which;
            l->setting_given = true;
            i++;
        } else if (strcmp(a, "compute-policy") == 0)
            l->timeslice = true;
        else if (strncmp(a, "--set-timeslice", 15) == 0 && l->timeslice)
            i += a[15] != '=' && next;
        else
            known = false;
        if (!known) {
            printf("Invalid combination of input arguments: the simulated nvidia-smi does not know "
                   "\"%s\".\n",
                   a);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct smi s = { 0 };
    struct line l = { 0 };
    if (!parse(&s, &l, argc, argv))
        return 2;
    if (!load(&s)) {
        printf("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n");
        return 12;
    }
    nv_return r = s.nvmlInit_v2();
    if (r != NV_OK) {
        printf("Failed to initialize NVML: %s\n", s.nvmlErrorString(r));
        return (int)r;
    }
    int result = l.list            ? for_each(&s, list_one, NULL)
                 : l.query.n > 0   ? query(&s, &l.query)
                 : l.setting_given ? for_each(&s, set_one, &l.setting)
                 : l.timeslice     ? 0
                                   : table(&s);
    s.nvmlShutdown();
    return result;
}
