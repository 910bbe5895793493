/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A small bounded JSON reader for the hook: finds one text in a document without building a tree.
 */
#include "base/error.h"
#include "base/str.h"

enum { JSONSCAN_DEPTH_MAX = 64 };

/* Finds the text at a path of member names ({ "root", "path", NULL }) and writes it unescaped and
 * terminated. ERR_NOT_FOUND: no such member, or not a text. ERR_INVALID: malformed before or at
 * that place, with the byte. Of duplicate members the first counts. */
int jsonscan_text(struct str doc, const char *const *path, char *ret, size_t size,
                  struct error *err) must_check;
