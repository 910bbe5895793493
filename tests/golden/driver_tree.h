/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Driver installations as on the recorded hosts (cases/README-recordings.md,
 * spec/h200-host-facts.txt), below a fixture's driver root. Files are empty or hold an ELF header
 * with a SONAME: sizes do not matter. */
#include "fixture.h"

/* The mock hosts: /usr/lib64 with NVML and five empty libraries, five programs in /usr/bin. */
void driver_tree_mock(const struct fixture_host *f);
/* The H200: everything below `root` of the driver root ("/opt/driver": the loader's cache names it,
 * and the host's own /usr/share has the graphics files; "": the driver root itself). */
void driver_tree_h200(const struct fixture_host *f, const char *root);

/* Pieces, paths in the driver root. An executable file; a library with a SONAME (NULL: an empty
 * file); a link; the loader's cache with one entry libcuda.so.1 in a folder. */
void driver_program(const struct fixture_host *f, const char *path);
void driver_library(const struct fixture_host *f, const char *path, const char *soname);
void driver_link(const struct fixture_host *f, const char *path, const char *target);
void driver_text(const struct fixture_host *f, const char *path, const char *text);
void driver_cache(const struct fixture_host *f, const char *dir);
