/* SPDX-License-Identifier: Apache-2.0 */
/* mete status, mete driver release, mete driver acquire: ask the agent that runs on this node. */
#include <stdio.h>
#include <string.h>

#include "agent/standby.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/output.h"
#include "data/json.h"

enum { ANSWER_MS = 5000, STATUS_MAX = 16 * 1024 * 1024 };

#define STATE_DIR_OPTION                                                                           \
    {                                                                                              \
        .name = "state-dir", .type = OPT_STRING, .env = { "METE_STATE_DIR" },                      \
        .deflt = "/var/lib/mete", .value_name = "DIR", .help = "the agent's state directory"       \
    }

static const struct opt status_options[] = { STATE_DIR_OPTION, OUTPUT_OPTION, { 0 } };
static const struct opt driver_options[] = { STATE_DIR_OPTION, { 0 } };

static const char *text_of(const struct value *map, const char *key)
{
    return value_text(value_get(map, key), "");
}

static int64_t number_of(const struct value *map, const char *key)
{
    const struct value *v = value_get(map, key);
    return v && v->kind == VALUE_INT ? v->number : 0;
}

static bool true_of(const struct value *map, const char *key)
{
    const struct value *v = value_get(map, key);
    return v && v->kind == VALUE_BOOL && v->boolean;
}

static void print_resources(const struct value *list)
{
    printf("\n%-36s %8s %8s  %s\n", "RESOURCE", "DEVICES", "HEALTHY", "KUBELET");
    for (size_t i = 0; list && i < list->n; i++) {
        const struct value *r = &list->items[i];
        const char *state = true_of(r, "streamOpen")   ? "registered, listening"
                            : true_of(r, "registered") ? "registered, not listening yet"
                                                       : "not registered";
        printf("%-36s %8lld %8lld  %s", text_of(r, "name"), (long long)number_of(r, "devices"),
               (long long)number_of(r, "healthy"), state);
        printf(text_of(r, "lastError")[0] ? " (%s)\n" : "%s\n", text_of(r, "lastError"));
    }
}

/* What was seen of the gpu and changed nothing. */
static void print_evidence(const struct value *g)
{
    int64_t xids = number_of(g, "xidsPassedOver"), ecc = number_of(g, "doubleBitEccEvents");
    if (xids)
        printf(" (%lld XIDs passed over, the last was %lld)", (long long)xids,
               (long long)number_of(g, "lastXidPassedOver"));
    if (ecc)
        printf(" (%lld double-bit ECC errors)", (long long)ecc);
    puts("");
}

static void print_gpus(const struct value *list)
{
    printf("\n%-3s %-42s %-28s %-14s %s\n", "GPU", "UUID", "NAME", "OWNER", "HEALTH");
    for (size_t i = 0; list && i < list->n; i++) {
        const struct value *g = &list->items[i];
        printf("%-3lld %-42s %-28s %-14s %s%s%s", (long long)number_of(g, "index"),
               text_of(g, "uuid"), text_of(g, "name"), text_of(g, "owner"), text_of(g, "health"),
               text_of(g, "text")[0] ? ": " : "", text_of(g, "text"));
        print_evidence(g);
    }
}

/* What needs somebody; the rest is in the document. */
static void print_findings(const struct value *list)
{
    for (size_t i = 0; list && i < list->n; i++) {
        const struct value *f = &list->items[i];
        if (strcmp(text_of(f, "severity"), "info") != 0)
            printf("\n%s: %s: %s\n  fix: %s\n", text_of(f, "severity"), text_of(f, "subject"),
                   text_of(f, "cause"), text_of(f, "fix"));
    }
}

static void print_values(const struct value *list)
{
    for (size_t i = 0; list && i < list->n; i++)
        printf("  %s = %s (%s)\n", text_of(&list->items[i], "option"),
               text_of(&list->items[i], "value"), text_of(&list->items[i], "origin"));
}

static void print_table(const struct value *v)
{
    printf("mete %s, pid %lld, up %lld s\n", text_of(v, "version"), (long long)number_of(v, "pid"),
           (long long)number_of(v, "uptimeSeconds"));
    printf("driver %s %s\n", text_of(v, "driver"), text_of(v, "driverVersion"));
    printf("config %s\n", text_of(v, "config")[0] ? text_of(v, "config")
                                                  : "none: flags, environment and defaults");
    print_values(value_get(v, "configValues"));
    if (text_of(v, "refused")[0])
        printf("nothing is offered: %s\n", text_of(v, "refused"));
    if (strcmp(text_of(v, "healthChecks"), "off") == 0)
        puts("health checks are off: faults of gpus change nothing");
    const struct value *kubelet = value_get(v, "kubelet");
    if (true_of(kubelet, "settling"))
        printf(
            "kubelet started %lld s ago and is settling: the node may still show older numbers\n",
            (long long)number_of(kubelet, "socketAgeSeconds"));
    if (text_of(kubelet, "disagrees")[0])
        printf("kubelet has other numbers: %s\n", text_of(kubelet, "disagrees"));
    print_gpus(value_get(v, "gpus"));
    print_resources(value_get(v, "resources"));
    const struct value *off = value_get(v, "notOffered");
    for (size_t i = 0; off && i < off->n; i++)
        printf("%snot offered: %s of %s: %s\n", i ? "" : "\n", text_of(&off->items[i], "device"),
               text_of(&off->items[i], "resource"), text_of(&off->items[i], "reason"));
    print_findings(value_get(v, "findings"));
}

static int show(const struct opts *o, const char *text, struct error *err)
{
    auto_buf json;
    buf_init(&json, STATUS_MAX);
    auto_arena arena;
    arena_init(&arena, 4 * STATUS_MAX);
    struct value *v;
    int r = json_parse(&arena, str_of(text), "the agent's answer", &doc_limits_default, &v, err);
    if (r < 0)
        return r;
    if (output_table(o)) {
        print_table(v);
        return 0;
    }
    struct json_writer w;
    jw_init(&w, &json, 2);
    jw_value(&w, v);
    return output_document(o, &json, "mete status");
}

static int run_status(int argc, char **argv)
{
    struct opts o;
    int code = 0;
    if (!command_begin(&cmd_status, &o, argc, argv, 0, true, &code))
        return code;
    struct error err;
    auto_free char *text = NULL;
    int r = agent_ask(opts_text(&o, "state-dir"), "status", ANSWER_MS, &text, &err);
    if (r == 0)
        r = show(&o, text, &err);
    code = r < 0 ? command_fail("mete status", &err) : r;
    opts_done(&o);
    return code;
}

static int ask_driver(const struct command *c, const char *request, int argc, char **argv)
{
    struct opts o;
    int code = 0;
    if (!command_begin(c, &o, argc, argv, 0, true, &code))
        return code;
    struct error err;
    auto_free char *text = NULL;
    int r = agent_ask(opts_text(&o, "state-dir"), request, ANSWER_MS, &text, &err);
    auto_free char *program = x_printf("mete %s", c->name);
    code = r < 0 ? command_fail(program, &err) : 0;
    if (r == 0 && text[0])
        puts(text);
    opts_done(&o);
    return code;
}

static int run_release(int argc, char **argv)
{
    return ask_driver(&cmd_driver_release, "driver release", argc, argv);
}

static int run_acquire(int argc, char **argv)
{
    return ask_driver(&cmd_driver_acquire, "driver acquire", argc, argv);
}

const struct command cmd_status = {
    .name = "status",
    .summary = "show what the agent of this node offers, and why it does not offer the rest",
    .usage = "[options]",
    .options = status_options,
    .run = run_status,
};

const struct command cmd_driver_release = {
    .name = "driver release",
    .summary = "let the agent let go of the NVIDIA driver, for a GPU reset or a driver upgrade",
    .usage = "[options]",
    .text = "Grants and sockets stay up; the GPUs leave the list until \"mete driver acquire\".",
    .options = driver_options,
    .run = run_release,
};

const struct command cmd_driver_acquire = {
    .name = "driver acquire",
    .summary = "let the agent take the NVIDIA driver again",
    .usage = "[options]",
    .options = driver_options,
    .run = run_acquire,
};
