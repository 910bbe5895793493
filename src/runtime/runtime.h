/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/runtime: the OCI runtime that RuntimeClass "nvidia" names: it looks whether a container that
 * is to be made asks for GPUs, writes what their CDI files say into the bundle's config.json and
 * becomes runc or crun. Beside it: settings of containerd and CRI-O that name it.
 * Not here: which GPU a container gets (the device plugin said so already), what a GPU needs (the
 * CDI files say so). may use: base data cdi
 *
 * mete-runtime is static and has only these floors: it runs on hosts whose libraries nobody knows,
 * in every container start.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "data/json.h"

enum {
    RUNTIME_CONFIG_MAX = 16 * 1024 * 1024, /* bytes of a config.json that is read or written */
    RUNTIME_IDS_MAX = 4096,                /* devices that one container may ask for */
};

struct runtime_texts {
    const char *const *items;
    size_t n;
};

/* ---- config.c: /etc/nvidia-container-runtime/config.toml ---- */

struct runtime_config {
    bool envvar_when_unprivileged; /* accept-nvidia-visible-devices-envvar-when-unprivileged */
    bool volume_mounts;            /* accept-nvidia-visible-devices-as-volume-mounts */
    bool ignore_imex;              /* features.ignore-imex-channel-requests */
    struct runtime_texts swarm;    /* variables that stand for NVIDIA_VISIBLE_DEVICES */
    struct runtime_texts runtimes; /* names or absolute paths of the real runtime, in order */
    struct runtime_texts kinds;    /* CDI kinds in which an id is looked for, in order */
    struct runtime_texts annotation_prefixes, spec_dirs;
    const char *log_path; /* nvidia-container-runtime.debug; NULL: no log of its own */
    bool verbose;         /* log-level is "debug" */
};

extern const struct runtime_config runtime_config_default;
/* Where the file is: NVIDIA_CTK_CONFIG_FILE_PATH, else
 * XDG_CONFIG_HOME/nvidia-container-runtime/config.toml, else that below /etc. NULL: no memory. */
const char *runtime_config_path(struct arena *a);
/* Fills *ret in any case, with defaults where the file says nothing or is wrong. A missing file is
 * fine. ERR_INVALID names file, line, key, what was found and what is expected. Keys that are not
 * known are the business of other versions. */
int runtime_config_read(struct arena *a, const char *path, struct runtime_config *ret,
                        struct error *err) must_check;

/* ---- command.c: the arguments of runc and crun ---- */

struct runtime_command {
    const char *word;             /* "create", …; NULL: none */
    bool makes_container;         /* create or run */
    const char *bundle;           /* "." when not given */
    const char *config_name;      /* within the bundle; crun has an option for it */
    const char *log, *log_format; /* as given, or NULL */
};
/* Never fails: what it does not understand is for the real runtime to judge. Everything is borrowed
 * from argv. */
struct runtime_command runtime_command_of(int argc, char *const *argv);

/* ---- request.c: what a container asks for ---- */

struct runtime_request {
    const char *source;       /* "NVIDIA_VISIBLE_DEVICES", "mounts below …": for messages */
    struct runtime_texts ids; /* uuid, index, "0:1", "all" or a qualified CDI name */
    bool driver_only;         /* "none": the driver's files and no gpu */
    struct runtime_texts imex_channels;
    unsigned gated; /* one bit for each of runtime_gated */
    bool refused;   /* asked for by a variable that this container may not use */
};
enum { RUNTIME_GATED = 4 };
extern const struct runtime_gated {
    const char *variable, *class_name;
} runtime_gated[RUNTIME_GATED];

/* Could this config.json ask for a GPU at all? A search for a few words in its bytes, so that other
 * containers start as fast as without. */
bool runtime_may_ask(struct str text, const struct runtime_config *c);
/* ERR_INVALID: an annotation that holds no CDI name; ERR_LIMIT. */
int runtime_request_read(struct arena *a, const struct value *oci, const struct runtime_config *c,
                         struct runtime_request *ret, struct error *err) must_check;
bool runtime_request_empty(const struct runtime_request *q);

/* ---- resolve.c, merge.c, bundle.c ---- */

struct cdi_registry;
/* The CDI names of what is asked for, in a stable order. ERR_NOT_FOUND: an id that no file defines;
 * the text says what there is. `notes` (NULL allowed) takes one line of what was left out. */
int runtime_resolve(struct arena *a, const struct runtime_request *q,
                    const struct runtime_config *c, const struct cdi_registry *r,
                    struct runtime_texts *ret, char *notes, size_t notes_size,
                    struct error *err) must_check;

struct runtime_outcome {
    bool written;
    char text[400]; /* what was done, one line for the log; "" when there is nothing to say */
};
/* What becomes of a config.json: the changed text in `out`, which stays empty when the container
 * asks for nothing. `name` is for messages; the rest as runtime_prepare. */
int runtime_merge(struct str text, const char *name, const struct runtime_config *c,
                  const struct error *why_config, const char *root, struct buf *out,
                  struct runtime_outcome *ret, struct error *err) must_check;
/* Prepares the bundle in `bundle`: reads <bundle>/<config_name> and writes it anew (same owner and
 * mode, atomically) when the container asks for GPUs. On an error nothing was written. `root`:
 * where the host's device nodes are seen, "" on the host itself. A config file that is not there is
 * left to the real runtime to complain about. `why_config` (NULL allowed): the config file could
 * not be read for this reason; it fails the containers that ask for something, and no other. */
int runtime_prepare(const char *bundle, const char *config_name, const struct runtime_config *c,
                    const struct error *why_config, const char *root, struct runtime_outcome *ret,
                    struct error *err) must_check;

/* ---- become.c ---- */

/* The real runtime: the first of `names` that is an executable file and not this program, looked
 * for in `path` (as PATH; NULL: a default) unless absolute. ERR_NOT_FOUND says what was tried. */
int runtime_find(struct arena *a, const struct runtime_texts *names, const char *path,
                 const char **ret, struct error *err) must_check;
/* Says an error as runc does: on standard error, and as a line of the log file that the caller
 * reads. */
void runtime_report(const struct runtime_command *c, const char *program, const char *text);
/* One line into nvidia-container-runtime.debug. */
void runtime_note(const struct runtime_config *c, const char *level, const char *text);
