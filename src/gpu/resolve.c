/* SPDX-License-Identifier: Apache-2.0 */
/* Paths inside a driver root that is not our own root: links there are meant from that root. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "gpu/nvml.h"

enum { LINKS_MAX = 40 };

/* What is resolved so far below the root ("/usr/lib64"), and what is still to walk. */
struct walk {
    const char *root;
    char done[PATH_MAX], rest[PATH_MAX];
    int links;
};

static bool put(char *to, size_t size, const char *a, const char *b)
{
    char text[PATH_MAX];
    int n = a && b ? snprintf(text, sizeof text, "%s%s", a, b) : -1;
    if (n < 0 || (size_t)n >= sizeof text || (size_t)n >= size)
        return false;
    memcpy(to, text, (size_t)n + 1);
    return true;
}

static void up(struct walk *w)
{
    char *slash = strrchr(w->done, '/');
    *(slash ? slash : w->done) = '\0';
}

/* Takes one component: walks into it, or replaces it by its link's target. */
static bool step(struct walk *w, struct str name)
{
    if (name.n == 0 || str_is(name, "."))
        return true;
    if (str_is(name, "..")) {
        up(w);
        return true;
    }
    auto_free char *entry = x_printf("/%.*s", STR_FMT(name));
    if (!put(w->done, sizeof w->done, w->done, entry))
        return false;

    auto_free char *seen = x_printf("%s%s", w->root, w->done);
    char target[PATH_MAX];
    ssize_t n = readlink(seen, target, sizeof target - 1);
    if (n < 0)
        return errno == EINVAL; /* there, and no link */
    target[n] = '\0';
    if (++w->links > LINKS_MAX)
        return false;
    if (target[0] == '/')
        w->done[0] = '\0';
    else
        up(w);
    auto_free char *rest = x_strdup(w->rest);
    return put(w->rest, sizeof w->rest, target, "/") && put(w->rest, sizeof w->rest, w->rest, rest);
}

bool nvml_resolve(const char *root, const char *path, char *ret, size_t size)
{
    auto_free struct walk *w = x_alloc(sizeof *w);
    w->root = strcmp(root, "/") == 0 ? "" : root;
    if (!put(w->rest, sizeof w->rest, path, ""))
        return false;
    while (w->rest[0]) {
        struct str rest = str_of(w->rest);
        struct str name = str_cut(&rest, '/');
        auto_free char *component = x_strndup(name.p, name.n);
        memmove(w->rest, rest.p ? rest.p : "", rest.n + 1);
        if (!step(w, str_of(component)))
            return false;
    }
    return put(ret, size, w->root, w->done[0] ? w->done : "/");
}
