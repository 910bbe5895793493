/* SPDX-License-Identifier: Apache-2.0 */
/* A container's config.json merged with CDI files: what comes out is JSON, and merging it again
 * changes nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "runtime/runtime.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char spec[] =
    "{\"cdiVersion\":\"0.7.0\",\"kind\":\"nvidia.com/"
    "gpu\",\"devices\":[{\"name\":\"0\",\"containerEdits\":{"
    "\"env\":[\"GOT=0\"],\"deviceNodes\":[{\"path\":\"/dev/"
    "nvidia0\",\"type\":\"c\",\"major\":195,\"minor\":0}],"
    "\"additionalGids\":[44]}},{\"name\":\"all\",\"containerEdits\":{\"env\":[\"GOT=all\"]}}],"
    "\"containerEdits\":{"
    "\"mounts\":[{\"hostPath\":\"/a\",\"containerPath\":\"/"
    "b\",\"options\":[\"ro\",\"rbind\"]}],\"hooks\":[{"
    "\"hookName\":\"createContainer\",\"path\":\"/h\",\"args\":[\"h\",\"x\"],\"env\":[\"A=b\"]}]}}";

static const char *spec_dir(void)
{
    static char dir[64];
    if (dir[0])
        return dir;
    snprintf(dir, sizeof dir, "/tmp/mete-fuzz-cdi-%d", (int)getpid());
    auto_free char *path = x_printf("%s/n.json", dir);
    mkdir(dir, 0755);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(spec, 1, sizeof spec - 1, f) != sizeof spec - 1 || fclose(f) != 0)
        abort();
    return dir;
}

static void remove_dir(void)
{
    auto_free char *path = x_printf("%s/n.json", spec_dir());
    unlink(path);
    rmdir(spec_dir());
}

static int merge(struct str in, struct buf *out)
{
    const char *dirs[] = { spec_dir() };
    struct runtime_config c = runtime_config_default;
    struct runtime_outcome outcome = { 0 };
    struct error err;
    c.spec_dirs = (struct runtime_texts){ dirs, 1 };
    c.volume_mounts = true;
    buf_init(out, RUNTIME_CONFIG_MAX);
    return runtime_merge(in, "config.json", &c, NULL, "", out, &outcome, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready)
        ready = atexit(remove_dir) == 0;
    auto_buf one, two;
    if (merge((struct str){ (const char *)data, size }, &one) < 0 || !one.n) {
        buf_init(&two, 1);
        return 0;
    }
    auto_arena a;
    struct value *v;
    struct error err;
    static const struct doc_limits limits = { RUNTIME_CONFIG_MAX, 80, 4000000 };
    arena_init(&a, 512 << 20);
    if (json_parse(&a, buf_view(&one), "out", &limits, &v, &err) < 0)
        abort();
    if (merge(buf_view(&one), &two) < 0 || one.n != two.n || memcmp(one.p, two.p, one.n) != 0)
        abort();
    return 0;
}
