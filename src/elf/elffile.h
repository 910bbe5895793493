/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/elf: what a shared library says of itself (SONAME, class, machine, notes), and glibc's
 * ld.so.cache read and written. Not here: which libraries belong to the driver, where they are
 * searched. may use: base
 *
 * All input is hostile (a container image chooses it): every offset, count and text end is checked
 * against the file's size.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

enum { ELF_SONAME_MAX = 255 };

struct elf_facts {
    uint16_t machine; /* EM_X86_64 62, EM_AARCH64 183, EM_386 3, … */
    bool is64;
    bool shared;                     /* ET_DYN */
    char soname[ELF_SONAME_MAX + 1]; /* "" when it has none */
};

/* Reads the facts of an ELF file through a descriptor (pread only; at most 1 MiB of it is looked
 * at). ERR_INVALID: no ELF, not little-endian, cut off or contradictory; the text says which. */
int elf_read(int fd, struct elf_facts *ret, struct error *err) must_check;

/* Finds the content of a note section by its section name (".note.cuda.fwd_compatibility"), within
 * `max` bytes; heap, terminated. ERR_NOT_FOUND without it. */
int elf_note(int fd, const char *section, size_t max, char **ret_text, size_t *ret_n,
             struct error *err) must_check;
