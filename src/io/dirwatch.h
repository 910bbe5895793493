/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Tells when entries of one directory appear, vanish or are replaced. inotify; where that is not to
 * be had (limit reached, directory not there yet, overmounted, moved) a poll every `poll_ms` takes
 * over until a watch holds again, and says so once through `note`. A symbolic link swap as
 * ConfigMap volumes do it ("..data") is reported for the entries behind it.
 */
#include "io/loop.h"

struct dirwatch;
struct dirwatch_events {
    void (*changed)(void *arg,
                    const char *name); /* entry created, moved in or out, deleted, or closed after
                                          writing; NULL: anything may have changed */
    void (*note)(void *arg, const char *text); /* may be NULL; for the log */
    void *arg;
};
int dirwatch_new(struct loop *l, const char *path, int64_t poll_ms,
                 const struct dirwatch_events *ev, struct dirwatch **ret,
                 struct error *err) must_check;
void dirwatch_free(struct dirwatch *w);
bool dirwatch_polling(const struct dirwatch *w); /* true while the fallback runs */
