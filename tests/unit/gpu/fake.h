/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A host directory with the fake driver in it, for one test. */
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "base/mem.h"

struct fake {
    char dir[64], control[96];
    struct host host;
};

/* Writes DIR/sub, with its folders. */
static inline void fake_file(const struct fake *f, const char *sub, const char *text)
{
    auto_free char *path = x_printf("%s%s", f->dir, sub);
    auto_free char *folder = x_strdup(path);
    *strrchr(folder, '/') = '\0';
    if (dir_make(folder, 0755, NULL) < 0)
        abort();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        abort();
    close(fd);
}

/* Replaced in one step: the library reads it at any moment. */
static inline void fake_set(const struct fake *f, const char *words)
{
    fake_file(f, "/control.new", words);
    auto_free char *fresh = x_printf("%s/control.new", f->dir);
    if (rename(fresh, f->control) < 0)
        abort();
}

/* Puts a copy of a library into the driver's place; NULL removes it. */
static inline void fake_library(const struct fake *f, const char *from)
{
    fake_file(f, "/usr/lib64/x", "");
    auto_free char *to = x_printf("%s/usr/lib64/libnvidia-ml.so.1", f->dir);
    unlink(to);
    if (!from)
        return;
    char *text;
    size_t n;
    struct error err;
    if (file_read(from, 16 << 20, &text, &n, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n)
        abort();
    close(fd);
    free(text);
}

static inline void fake_begin(struct fake *f, const char *library)
{
    *f = (struct fake){ 0 };
    snprintf(f->dir, sizeof f->dir, "/tmp/mete-test-gpu.XXXXXX");
    if (!mkdtemp(f->dir))
        abort();
    snprintf(f->control, sizeof f->control, "%s/control", f->dir);
    fake_set(f, "");
    setenv("METE_SIM_FAKE", f->control, 1);
    fake_library(f, library);
    fake_file(f, "/proc/meminfo", "MemTotal:       124610000 kB\nMemFree: 1 kB\n");
    struct error err;
    if (host_init(&f->host, &(struct host_config){ .root = f->dir }, &err) < 0)
        abort();
}

static inline int fake_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static inline void fake_end(struct fake *f)
{
    host_done(&f->host);
    nftw(f->dir, fake_remove, 16, FTW_DEPTH | FTW_PHYS);
}
