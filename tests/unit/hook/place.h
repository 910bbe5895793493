/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A container's root in a temporary directory, and a host beside it that must not be touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hook/hook.h"

/* <dir>/root is the container's root, <dir>/host what must not be touched. */
struct place {
    char dir[64], root[96], host[96];
    int rootfd;
};

int place_set_up(void **state);
int place_tear_down(void **state);
void place_shell(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* must succeed */
bool place_host_untouched(const struct place *p);
bool place_has(const struct place *p, const char *path);
char *place_read(const struct place *p, const char *path); /* NULL: cannot be read */
struct hook_options place_link(const char *link);
struct hook_options place_folder(const char *folder);
/* Runs test(p) in a child with a mount namespace of its own, private all over; skips without root.
 */
void place_in_namespace(void **state, void (*test)(struct place *p));
