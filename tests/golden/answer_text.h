/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Device plugin messages as sorted lines of text, so that a test compares what they say and not the
 * order in which they say it. */
#include "base/buf.h"
#include "base/str.h"

/* AllocateResponse: for each container "container N", then its lines "annotation K=V", "cdi NAME",
 * "env K=V", "mount CONTAINER<HOST[ ro]", "node CONTAINER<HOST PERMISSIONS". A random uuid at the
 * end of an annotation's key is written RANDOM-UUID. "broken" when it does not decode. */
void answer_text(struct str answer, struct buf *out);
/* ListAndWatchResponse: sorted lines "ID HEALTH [numa N]". */
void list_text(struct str list, struct buf *out);
/* PreferredAllocationResponse: the ids of the first container in the order given, one a line. */
void preferred_text(struct str answer, struct buf *out);
/* RegisterRequest: "VERSION ENDPOINT RESOURCE [prestart] [preferred]". */
void register_text(struct str request, struct buf *out);

/* Requests. ids: NULL-terminated; n_containers lists. */
void allocate_request(struct buf *out, const char *const *const *containers, size_t n_containers);
void preferred_request(struct buf *out, const char *const *available, size_t n_available,
                       const char *const *must, size_t n_must, int size);

/* Sorts the lines of a text. */
void sort_lines(struct buf *text);
