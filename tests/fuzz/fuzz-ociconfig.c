/* SPDX-License-Identifier: Apache-2.0 */
/* A container's config.json of anybody, to which a device with every kind of edit is applied. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cdi/apply.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const char spec[] =
    "{\"cdiVersion\":\"1.1.0\",\"kind\":\"v.org/c\",\"containerEdits\":{\"env\":[\"A=b\",\"PATH=/"
    "x\"],"
    "\"mounts\":[{\"hostPath\":\"/h\",\"containerPath\":\"/etc/"
    "x\",\"options\":[\"rbind\",\"ro\"]}]},"
    "\"devices\":[{\"name\":\"a\",\"containerEdits\":{\"deviceNodes\":[{\"path\":\"/dev/"
    "a\",\"type\":\"c\","
    "\"major\":195,\"minor\":1,\"fileMode\":438}],\"hooks\":[{\"hookName\":\"createContainer\","
    "\"path\":"
    "\"/"
    "h\",\"args\":[\"h\"],\"env\":[\"X=y\"],\"timeout\":3}],\"additionalGids\":[44],\"intelRdt\":{"
    "\"closID\":\"q\"},\"netDevices\":[{\"hostInterfaceName\":\"e0\",\"name\":\"n\"}]}}]}";

static struct cdi_registry *load(void)
{
    char dir[] = "/tmp/mete-fuzz-oci-XXXXXX";
    if (!mkdtemp(dir))
        abort();
    auto_free char *path = x_printf("%s/a.json", dir);
    FILE *out = fopen(path, "w");
    if (!out || fputs(spec, out) < 0 || fclose(out) != 0)
        abort();
    const char *const dirs[] = { dir };
    struct cdi_registry *r = NULL;
    struct findings f;
    struct error err;
    auto_arena a;
    arena_init(&a, 1 << 20);
    findings_init(&f, &a, 20);
    if (cdi_registry_load(dirs, 1, &r, &f, &err) < 0 || f.n > 0)
        abort();
    unlink(path);
    rmdir(dir);
    return r;
}

/* Applied twice is applied once, but for hooks and rules, which are added each time. */
static void check(const struct value *oci)
{
    const struct value *mounts = value_get(oci, "mounts"),
                       *devices = value_get(value_get(oci, "linux"), "devices");
    size_t found = 0;
    for (size_t i = 0; i < mounts->n; i++)
        found += strcmp(value_text(value_get(&mounts->items[i], "destination"), ""), "/etc/x") == 0;
    for (size_t i = 0; i < devices->n; i++)
        found += strcmp(value_text(value_get(&devices->items[i], "path"), ""), "/dev/a") == 0;
    if (found != 2)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct cdi_registry *registry;
    static const char *const names[] = { "v.org/c=a" };
    const struct cdi_apply_options o = { .root = "/nonexistent" };
    struct value *oci, *again;
    struct json_writer w;
    struct error err;
    auto_arena a;
    auto_buf text;
    arena_init(&a, 64 << 20);
    buf_init(&text, 16 << 20);
    if (!registry)
        registry = load();
    if (json_parse(&a, (struct str){ (const char *)p, n }, "config.json", &doc_limits_default, &oci,
                   &err) < 0)
        return 0;
    if (cdi_apply(&a, oci, registry, names, 1, &o, &err) < 0)
        return 0;
    check(oci);
    jw_init(&w, &text, 0);
    jw_value(&w, oci);
    if (!text.failed &&
        json_parse(&a, buf_view(&text), "again", &doc_limits_default, &again, &err) < 0)
        abort();
    if (cdi_apply(&a, oci, registry, names, 1, &o, &err) == 0)
        check(oci);
    return 0;
}
