/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * CDI specs from what the host has. Facts: spec/operator-mig-cdi.md 6, spec/device-plugin.md 3.4,
 * spec/nvml-and-cuda.md 3. Looks at device nodes, proc, sysfs and the driver's files; runs nothing.
 */
#include "base/finding.h"
#include "cdi/cdi.h"

enum cdi_mode {
    CDI_MODE_AUTO, /* gpu or wsl, by the survey's platform */
    CDI_MODE_GPU,  /* gpus and parts, with the driver's files in common */
    CDI_MODE_WSL,
    CDI_MODE_MANAGEMENT, /* one device "all" with every node of the driver, for whoever administers
                          */
    CDI_MODE_GDS,
    CDI_MODE_GDRCOPY,
    CDI_MODE_MOFED,
    CDI_MODE_IMEX,     /* every channel by its number, and "all" */
    CDI_MODE_NVSWITCH, /* one device "all" */
};
/* "auto", "gpu", …; "nvml" is gpu too. False for another word. */
bool cdi_mode_of(struct str word, enum cdi_mode *ret);
extern const char cdi_mode_words[]; /* "auto, nvml, …": for messages */

enum cdi_naming { CDI_NAME_INDEX, CDI_NAME_UUID, CDI_NAME_TYPE_INDEX };
bool cdi_naming_of(struct str word, enum cdi_naming *ret); /* "index", "uuid", "type-index" */

struct cdi_texts {
    const char *const *items;
    size_t n;
};

struct cdi_generate {
    enum cdi_mode mode;
    const char *kind; /* "nvidia.com/gpu" */
    const enum cdi_naming *namings;
    size_t n_namings;      /* at least one */
    bool all_device;       /* also a device "all" that has everything the others have */
    bool divided_too;      /* whole gpus also while they are in MIG mode */
    struct cdi_texts ids;  /* only these (uuid, index, "all", "none"; imex: numbers); empty: all */
    const char *hook_path; /* the host's program; hooks are called as "nvidia-ctk hook NAME" when it
                              is named nvidia-ctk, else as "<its name> NAME" */
    struct cdi_texts hooks_off, hooks_on; /* names, off also "all"; on wins. "chmod" is off unless
                                             named in hooks_on */
    struct cdi_texts flags;               /* see cdi_flags */
    struct cdi_texts library_dirs, config_dirs;
};

/* Feature flags: "no-additional-gids-for-device-nodes", "enable-explicit-driver-libraries",
 * "enable-coherent-annotations" (a further spec each, classes CLASS.coherent and
 * CLASS.noncoherent), "disable-ipc-discoverer"; without effect, as there is nothing to switch off:
 * "disable-nvsandbox-utils", "disable-nvsandboxutils", "disable-multiple-csv-devices". */
extern const char *const cdi_flags[];
extern const size_t n_cdi_flags;
extern const char *const cdi_hooks[]; /* every hook that may be in a spec, by its name */
extern const size_t n_cdi_hooks;

/* Writes *ret_n specs into the arena, in a stable order; the first one is of o->kind. `notes` (NULL
 * allowed): what is missing although a container may need it. `s` may be NULL in modes other than
 * gpu, wsl and auto. ERR_NOT_FOUND: nothing to publish (no gpu, no node, no driver library); the
 * text says what was looked for and where. */
int cdi_generate(struct arena *a, const struct host *h, const struct survey *s,
                 const struct cdi_generate *o, struct cdi_spec **ret, size_t *ret_n,
                 struct findings *notes, struct error *err) must_check;
