/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What the host's /proc and /sys say about gpus, without the driver's library. */
#include "base/host.h"
#include "gpu/survey.h"

enum { PCI_TEXT_SIZE = sizeof((struct gpu *)NULL)->pci };

/* "0000:1b:00.0" from numbers; a domain above 0xffff keeps its digits. */
void pci_text(uint32_t domain, uint32_t bus, uint32_t device, char ret[PCI_TEXT_SIZE]);
bool pci_text_valid(const char *text);

/* Copies text that the driver gave: control characters become '?', the end is always there. As a
 * word, spaces and what is not ASCII too. */
void copy_text(char *to, size_t size, const char *from);
void copy_word(char *to, size_t size, const char *from);

/* A number from /sys/bus/pci/devices/<pci>/<name>, decimal or 0x…; false when there is none. */
bool sysfs_number(const struct host *h, const char *pci, const char *name, int64_t *ret);
/* Name of the kernel driver that the function is bound to; false: none, or not known. */
bool sysfs_driver(const struct host *h, const char *pci, char *ret, size_t size);
/* First 32 bits of the function's configuration space read as all ones: it does not answer on the
 * bus. False also when that cannot be read. */
bool sysfs_off_bus(const struct host *h, const char *pci);

/* One entry of /proc/driver/nvidia/gpus. */
struct proc_gpu {
    char pci[PCI_TEXT_SIZE];
    char uuid[UUID_TEXT_SIZE]; /* "": not told */
    uint32_t minor;
    bool has_minor, excluded;
};
/* Text of an "information" file. Never fails: what is not there stays empty. */
void proc_gpu_parse(struct str text, struct proc_gpu *ret);
/* All entries, by address; at most max. 0 also when the directory is not there. */
size_t proc_gpus(const struct host *h, struct proc_gpu *ret, size_t max);

bool meminfo_total(const struct host *h, uint64_t *ret_bytes);

/* /proc/driver/nvidia-caps/mig-minors: each() for every line that names an instance's access file;
 * ci is UINT32_MAX for the GPU instance's own. Other lines are passed over. *ret_monitor gets the
 * minor of the monitor capability, UINT32_MAX if no line tells. */
struct mig_minor {
    uint32_t gpu_minor, gi, ci, minor;
};
void mig_minors_parse(struct str text, void (*each)(void *arg, const struct mig_minor *m),
                      void *arg, uint32_t *ret_monitor);
enum { MIG_MINORS_MAX = 1024 * 1024 };

/* "wsl", "tegra" or "" (an ordinary host), with the evidence in words. Order and files:
 * spec/device-plugin.md 2.1; a device tree naming a Tegra is one hint more. */
const char *platform_detect(const struct host *h, char *ret_evidence, size_t size);
/* Does a gpu's name show an integrated gpu of a Tegra? */
bool platform_tegra_name(const char *gpu_name);
