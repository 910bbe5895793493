/* SPDX-License-Identifier: Apache-2.0 */
/* A CDI file of anybody: read as engines do, then every device of it applied to an empty config. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cdi/apply.h"
#include "cdi/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static char dir[] = "/tmp/mete-fuzz-cdi-XXXXXX";

static void clean(void)
{
    auto_free char *path = x_printf("%s/a.yaml", dir);
    unlink(path);
    rmdir(dir);
}

static int open_dir(void)
{
    if (!mkdtemp(dir))
        abort();
    atexit(clean);
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* What may be applied gives JSON that can be read again. */
static void apply(const struct cdi_registry *r, const struct cdi_found *f)
{
    const struct cdi_apply_options o = { .root = "/nonexistent" };
    struct value oci = { .kind = VALUE_MAP }, *again;
    auto_arena a;
    auto_buf text;
    struct error err;
    struct json_writer w;
    arena_init(&a, 16 << 20);
    buf_init(&text, 16 << 20);
    if (cdi_apply(&a, &oci, r, &f->name, 1, &o, &err) < 0)
        return;
    jw_init(&w, &text, 0);
    jw_value(&w, &oci);
    if (!text.failed &&
        json_parse(&a, buf_view(&text), "again", &doc_limits_default, &again, &err) < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static int dirfd = -1;
    if (dirfd < 0)
        dirfd = open_dir();
    auto_close int fd = openat(dirfd, "a.yaml", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, p, n) != (ssize_t)n)
        abort();
    const char *const dirs[] = { dir };
    struct cdi_registry *r = NULL;
    struct findings f;
    struct error err;
    auto_arena a;
    arena_init(&a, 16 << 20);
    findings_init(&f, &a, 20);
    if (cdi_registry_load(dirs, 1, &r, &f, &err) == 0) {
        for (size_t i = 0; i < r->n && i < 8; i++) {
            if (!cdi_name_valid(str_of(r->devices[i].name)) ||
                cdi_registry_find(r, str_of(r->devices[i].name)) != &r->devices[i])
                abort();
            apply(r, &r->devices[i]);
        }
        cdi_registry_free(r);
    }
    const struct cdi_check with = {
        .root = "", .dirs = dirs, .n_dirs = 1, .driver_version = "1.2"
    };
    (void)!cdi_check(&with, &f, &err);
    return 0;
}
