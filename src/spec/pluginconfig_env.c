/* SPDX-License-Identifier: Apache-2.0 */
/* What only the environment holds: the two health variables, and configs that strayed into it. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "spec/pluginconfig_internal.h"

enum { XIDS_MAX = 4096 };

static void say_env(struct decode *d, const char *id, enum severity severity, const char *name,
                    const char *fix, const char *cause)
{
    char subject[128];
    snprintf(subject, sizeof subject, "env %.100s", name);
    findings_add(d->findings, id, severity, subject, fix, "%s", cause);
}

/* "94, 109", "all", "xids,94"; an empty element is none. */
static void decode_xids(struct decode *d, const char *name, const char *text, bool *ret_all,
                        const uint32_t **ret, size_t *ret_n)
{
    struct str rest = str_of(text);
    size_t n = 1;
    for (size_t i = 0; i < rest.n; i++)
        n += rest.p[i] == ',';
    if (n > XIDS_MAX) {
        say_env(d, "config.health-words", SEVERITY_ERROR, name, "list fewer XIDs",
                "more than 4096 words");
        return;
    }
    uint32_t *xids = decode_array(d, n, sizeof *xids);
    if (!xids)
        return;
    size_t found = 0;
    while (rest.p) {
        struct str word = str_trim(str_cut(&rest, ','));
        uint64_t xid;
        if (!word.n)
            continue;
        if (str_ieq(word, STR("all")) || str_ieq(word, STR("xids"))) {
            *ret_all = true;
        } else if (str_to_u64(word, UINT32_MAX, &xid)) {
            xids[found++] = (uint32_t)xid;
        } else {
            char cause[160];
            snprintf(cause, sizeof cause,
                     "\"%.*s\" is not allowed; allowed: all, xids, or XID numbers parted by commas",
                     (int)MIN(word.n, (size_t)60), word.p);
            say_env(d, "config.health-words", SEVERITY_ERROR, name,
                    memchr(word.p, ';', word.n) ? "part the numbers by commas"
                                                : "correct or unset the variable",
                    cause);
        }
    }
    *ret = xids;
    *ret_n = found;
}

void config_decode_health(struct decode *d, char *const *env, struct plugin_config *c)
{
    static const char disable[] = "DP_DISABLE_HEALTHCHECKS", enable[] = "DP_ENABLE_HEALTHCHECKS";
    const char *off = env_get(env, disable), *on = env_get(env, enable);
    if (off)
        decode_xids(d, disable, off, &c->health.disable_all, &c->health.disabled,
                    &c->health.n_disabled);
    if (on)
        decode_xids(d, enable, on, &c->health.enable_all, &c->health.enabled, &c->health.n_enabled);
    if (c->health.disable_all && !c->health.enable_all)
        say_env(d, "config.health-off", SEVERITY_WARNING, disable,
                "unset it, or name the XIDs to ignore",
                c->health.n_enabled
                    ? "health checking is off for every XID but those in DP_ENABLE_HEALTHCHECKS"
                    : "all health checking is off: a GPU that fails is still handed out");
}

static bool has_line(struct str text, const char *start)
{
    while (text.p)
        if (str_starts(str_cut(&text, '\n'), start))
            return true;
    return false;
}

void config_find_stray(struct decode *d, char *const *env)
{
    for (; *env; env++) {
        const char *equals = strchr(*env, '=');
        struct str value = str_of(equals ? equals + 1 : "");
        if (value.n < 12 || value.n > CONFIG_FILE_MAX || !has_line(value, "version:"))
            continue;
        if (!has_line(value, "sharing:") && !has_line(value, "flags:"))
            continue;
        char name[100];
        snprintf(name, sizeof name, "%.*s", (int)MIN((size_t)(equals - *env), sizeof name - 1),
                 *env);
        say_env(d, "config.in-environment", SEVERITY_WARNING, name,
                "mount the ConfigMap as a file (volumes, volumeMounts; not envFrom) and name that "
                "file with "
                "--config-file or CONFIG_FILE",
                "this variable holds the text of a plugin config; nobody reads it there, so it has "
                "no effect");
    }
}
