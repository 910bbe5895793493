/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/told.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define AGAIN_NS      (60 * INT64_C(1000000000))
#define LINE_NS       (INT64_C(1000000000) / 2)
#define LINES_AT_ONCE 20

bool told_anew(struct told *t, const char *text, int64_t now_ns)
{
    if (t->text && strcmp(t->text, text) == 0 && now_ns - t->ns < AGAIN_NS)
        return false;
    free(t->text);
    t->text = x_strdup(text);
    t->ns = now_ns;
    return true;
}

bool told_over(struct told *t)
{
    bool was = t->text != NULL;
    free(steal(t->text));
    return was;
}

bool flood_lets(struct flood *f, int64_t now_ns, uint64_t *ret_hidden)
{
    int64_t most = LINES_AT_ONCE * LINE_NS;
    f->room_ns = f->ns ? MIN(f->room_ns + now_ns - f->ns, most) : most;
    f->ns = now_ns;
    if (f->room_ns < LINE_NS) {
        f->hidden++;
        return false;
    }
    f->room_ns -= LINE_NS;
    *ret_hidden = f->hidden;
    f->hidden = 0;
    return true;
}
