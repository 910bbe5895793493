/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Two small pieces of ELF: stand-ins for the driver's libraries, and a library that lacks symbols.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

/* A shared object that has nothing but its SONAME; dlopen takes it. aarch64 or x86-64. */
void sim_elf_standin(struct buf *out, const char *soname, bool aarch64);

/* Makes dlsym fail for every dynamic symbol whose name one of the patterns matches ("*" is any
 * text), by spoiling the first letter of its name; the hash of the symbol stays, so no other name
 * finds it either. `list`: patterns parted by commas. *ret_hidden counts them. ERR_INVALID when the
 * bytes are no 64-bit ELF file, ERR_NOT_FOUND when a pattern matches no symbol. */
int sim_elf_hide(unsigned char *bytes, size_t n, const char *list, size_t *ret_hidden,
                 struct error *err) must_check;
