/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks, variables and mounts: how the driver's files become usable in a container
 * (spec/operator-mig-cdi.md 6.2 and 7). */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cdi/maker.h"
#include "cdi/root.h"

const char *const cdi_hooks[] = {
    "create-symlinks",
    "enable-cuda-compat",
    "update-ldcache",
    "disable-device-node-modification",
    "update-application-profile",
    "chmod",
    "create-soname-symlinks", /* of older versions; update-ldcache does its work */
};
const size_t n_cdi_hooks = ARRAY_LEN(cdi_hooks);

static bool listed(const struct cdi_texts *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->items[i], name) == 0)
            return true;
    return false;
}

static bool hook_wanted(const struct maker *m, const char *name)
{
    if (listed(&m->o->hooks_on, name))
        return true;
    return strcmp(name, "chmod") != 0 && !listed(&m->o->hooks_off, "all") &&
           !listed(&m->o->hooks_off, name);
}

void maker_hook(struct maker *m, struct cdi_edits *e, const char *name, const char *const *args,
                size_t n)
{
    /* A hook without a variable of its own would inherit those of the image. */
    static const char *const env[] = { "NVIDIA_CTK_DEBUG=false" };
    if (!hook_wanted(m, name))
        return;
    const char *program = path_name(m->o->hook_path);
    bool ctk = strcmp(program, "nvidia-ctk") == 0;
    const char **all = arena_array(m->arena, n + 3, sizeof *all);
    struct cdi_hook *h = all ? MAKER_PUSH(m, e->hooks, e->n_hooks) : NULL;
    m->full |= !h;
    if (!h)
        return;
    size_t at = 0;
    all[at++] = program;
    if (ctk)
        all[at++] = "hook";
    all[at++] = name;
    if (n)
        memcpy(all + at, args, n * sizeof *all);
    *h = (struct cdi_hook){ .name = "createContainer",
                            .path = m->o->hook_path,
                            .args = all,
                            .n_args = at + n,
                            .env = env,
                            .n_env = ARRAY_LEN(env) };
}

void maker_env(struct maker *m, struct cdi_edits *e, const char *text)
{
    const char **item = text ? MAKER_PUSH(m, e->env, e->n_env) : NULL;
    if (item)
        *item = text;
}

void maker_mount(struct maker *m, struct cdi_edits *e, const char *real, const char *container,
                 bool socket)
{
    static const char *const file_options[] = { "ro", "nosuid", "nodev", "rbind", "rprivate" };
    static const char *const socket_options[] = { "nosuid", "nodev", "rbind", "rprivate",
                                                  "noexec" };
    const char *root = strcmp(m->host->driver_root, "/") == 0 ? "" : m->host->driver_root;
    struct cdi_mount *at = MAKER_PUSH(m, e->mounts, e->n_mounts);
    if (at)
        *at = (struct cdi_mount){ .host_path = maker_text(m, "%s%s", root, real),
                                  .container_path = container,
                                  .options = socket ? socket_options : file_options,
                                  .n_options = ARRAY_LEN(file_options) };
}

void maker_links(struct maker *m, struct cdi_edits *e, const struct cdi_link *links, size_t n)
{
    const char **args = n ? arena_array(m->arena, 2 * n, sizeof *args) : NULL;
    m->full |= n && !args;
    for (size_t i = 0; args && i < n; i++) {
        args[2 * i] = "--link";
        args[2 * i + 1] = maker_text(m, "%s::%s", links[i].target, links[i].path);
    }
    if (args && !m->full)
        maker_hook(m, e, "create-symlinks", args, 2 * n);
}

static void folder_hook(struct maker *m, struct cdi_edits *e, const char *const *dirs, size_t n)
{
    const char **args = n ? arena_array(m->arena, 2 * n, sizeof *args) : NULL;
    m->full |= n && !args;
    for (size_t i = 0; args && i < n; i++) {
        args[2 * i] = "--folder";
        args[2 * i + 1] = dirs[i];
    }
    if (args)
        maker_hook(m, e, "update-ldcache", args, 2 * n);
}

static const char *joined(struct maker *m, const char *name, const char *const *texts, size_t n)
{
    char line[PATH_MAX];
    int at = snprintf(line, sizeof line, "%s=", name);
    for (size_t i = 0; i < n && at > 0 && (size_t)at < sizeof line; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, "%s%s", i ? ":" : "", texts[i]);
    m->full |= at < 0 || (size_t)at >= sizeof line;
    return m->full ? NULL : maker_text(m, "%s", line);
}

int maker_driver(struct maker *m, const char *version, bool whole, struct cdi_edits *e,
                 struct error *err)
{
    const struct cdi_driver_options o = {
        .version = version,
        .library_dirs = m->o->library_dirs.items,
        .n_library_dirs = m->o->library_dirs.n,
        .config_dirs = m->o->config_dirs.items,
        .n_config_dirs = m->o->config_dirs.n,
        .explicit_libraries = maker_flag(m, "enable-explicit-driver-libraries"),
        .no_sockets = maker_flag(m, "disable-ipc-discoverer"),
        .no_graphics = !whole,
    };
    struct cdi_driver d;
    int r = cdi_driver_find(m->arena, m->host, &o, &d, m->notes, err);
    if (r < 0)
        return r;
    const char *compat = maker_text(m, "--host-driver-version=%s", d.version);
    maker_env(m, e, joined(m, "NVIDIA_CTK_LIBCUDA_DIR", d.cuda_dirs, d.n_cuda_dirs));
    /* keeps an nvidia runtime that also looks at the environment from adding devices of its own */
    maker_env(m, e, "NVIDIA_VISIBLE_DEVICES=void");
    if (whole)
        maker_links(m, e, d.graphics_links, d.n_graphics_links);
    maker_links(m, e, d.links, d.n_links);
    maker_hook(m, e, "enable-cuda-compat", &compat, 1);
    folder_hook(m, e, d.library_dirs, d.n_library_dirs);
    maker_hook(m, e, "disable-device-node-modification", NULL, 0);
    if (whole)
        maker_hook(m, e, "update-application-profile", NULL, 0);
    for (size_t i = 0; i < d.n_files; i++)
        maker_mount(m, e, d.files[i].real, d.files[i].container,
                    d.files[i].kind == CDI_FILE_SOCKET);
    return 0;
}

/* ---- WSL2 ---- */

/* The driver's files lie in the Windows driver store, as /usr/lib/wsl/drivers/NAME; those that
 * every adapter shares in /usr/lib/wsl/lib. */
static const char *find_wsl(struct maker *m, const struct cdi_root *root, const char *const *stores,
                            size_t n, const char *name)
{
    char path[CDI_PATH_MAX], real[CDI_PATH_MAX];
    struct stat st;
    for (size_t i = 0; i <= n; i++) {
        int len = i < n ? snprintf(path, sizeof path, "/usr/lib/wsl/drivers/%s/%s", stores[i], name)
                        : snprintf(path, sizeof path, "/usr/lib/wsl/lib/%s", name);
        if (len > 0 && (size_t)len < sizeof path && cdi_root_resolve(root, path, real, &st) &&
            S_ISREG(st.st_mode))
            return maker_text(m, "%s", real);
    }
    return NULL;
}

static void add_wsl_file(struct maker *m, struct cdi_edits *e, const char *path,
                         const char ***folders, size_t *n_folders)
{
    const char *slash = strrchr(path, '/');
    maker_mount(m, e, path, path, false);
    if (strcmp(slash + 1, "nvidia-smi") == 0) {
        const struct cdi_link link = { path, "/usr/bin/nvidia-smi" };
        maker_links(m, e, &link, 1);
    }
    if (!strstr(slash, ".so"))
        return;
    const char *folder = maker_text(m, "%.*s", (int)(slash - path), path);
    for (size_t i = 0; i < *n_folders; i++)
        if (strcmp((*folders)[i], folder) == 0)
            return;
    const char **item = MAKER_PUSH(m, *folders, *n_folders);
    if (item)
        *item = folder;
}

int maker_wsl(struct maker *m, struct cdi_edits *e, struct error *err)
{
    static const char *const names[] = {
        "libcuda.so.1.1",    "libcuda_loader.so",      "libnvidia-ptxjitcompiler.so.1",
        "libnvidia-ml.so.1", "libnvidia-ml_loader.so", "libdxcore.so",
        "libnvdxgdmal.so.1", "nvcubins.bin",           "nvidia-smi",
    };
    struct cdi_root root;
    size_t n, n_folders = 0;
    const char **folders = NULL;
    int r = cdi_root_open(&root, m->host->driver_root_view, err);
    if (r < 0)
        return error_wrap(err, "driver root");
    const char **stores = maker_names(m, m->host->driver_root_view, "/usr/lib/wsl/drivers", "", &n);
    for (size_t i = 0; i < ARRAY_LEN(names) && !m->full; i++) {
        const char *path = find_wsl(m, &root, stores, n, names[i]);
        if (path)
            add_wsl_file(m, e, path, &folders, &n_folders);
        else if (m->notes)
            findings_add(m->notes, "cdi.missing-library", SEVERITY_WARNING, names[i],
                         "update the Windows driver, then run \"wsl --shutdown\"",
                         "%s is in no folder of /usr/lib/wsl/drivers and not in /usr/lib/wsl/lib",
                         names[i]);
    }
    cdi_root_close(&root);
    folder_hook(m, e, folders, n_folders);
    maker_env(m, e, "NVIDIA_VISIBLE_DEVICES=void");
    return 0;
}
