/* SPDX-License-Identifier: Apache-2.0 */
/* mete labels: the labels that feature discovery gives this node, printed once. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/label_options.h"
#include "cmd/output.h"
#include "data/json.h"
#include "gpu/worker.h"

enum { OUTPUT_MAX = 4 * 1024 * 1024, FINDINGS_MAX = 100, FINDINGS_ARENA = 256 * 1024 };

static const char program[] = "mete labels";

static const struct opt options[] = {
    LABEL_OPTIONS,
    { .name = "timeout",
      .type = OPT_DURATION,
      .deflt = "30s",
      .help = "how long the driver may take" },
    { .name = "output",
      .letter = 'o',
      .type = OPT_STRING,
      .deflt = "table",
      .choices = "table|json|yaml|file",
      .value_name = "FORMAT",
      .help = "print a table, JSON, YAML, or the lines of a feature file" },
    { 0 },
};

static void print_table(const struct labels *l)
{
    int width = 0;
    for (size_t i = 0; i < l->n; i++)
        width = MAX(width, (int)strlen(l->items[i].key));
    for (size_t i = 0; i < l->n; i++)
        printf("%-*s  %s\n", width, l->items[i].key, l->items[i].value);
}

static void print_notes(const struct findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *it = &f->items[i];
        fprintf(stderr, "%s: %s: %s: %s\n", program, severity_name(it->severity), it->subject,
                it->cause);
        if (it->fix[0])
            fprintf(stderr, "  fix: %s\n", it->fix);
    }
}

static int print_document(const struct opts *o, const struct labels *l)
{
    auto_buf out;
    buf_init(&out, OUTPUT_MAX);
    struct json_writer w;
    jw_init(&w, &out, 2);
    jw_map(&w);
    jw_key(&w, "labels");
    jw_map(&w);
    for (size_t i = 0; i < l->n; i++)
        jw_kv(&w, l->items[i].key, l->items[i].value);
    jw_end(&w);
    jw_key(&w, "full");
    jw_map(&w);
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].full)
            jw_kv(&w, l->items[i].key, l->items[i].full);
    jw_end(&w);
    jw_key(&w, "notes");
    jw_list(&w);
    for (size_t i = 0; i < l->notes.n; i++) {
        const struct finding *it = &l->notes.items[i];
        jw_map(&w);
        jw_kv(&w, "id", it->id);
        jw_kv(&w, "severity", severity_name(it->severity));
        jw_kv(&w, "subject", it->subject);
        jw_kv(&w, "cause", it->cause);
        jw_kv(&w, "fix", it->fix);
        jw_end(&w);
    }
    jw_end(&w);
    jw_end(&w);
    return output_document(o, &out, program);
}

static int show(const struct opts *o, const struct labels *l)
{
    int code = 0;
    if (strcmp(opts_text(o, "output"), "file") == 0) {
        auto_buf text;
        buf_init(&text, LABEL_FILE_MAX);
        labels_text(l, &text);
        fputs(text.p ? text.p : "", stdout);
        print_notes(&l->notes);
    } else if (output_table(o)) {
        print_table(l);
        print_notes(&l->notes);
    } else {
        code = print_document(o, l);
    }
    fflush(stdout);
    return code;
}

static enum error_code driver_error(const struct survey *s)
{
    return strcmp(s->platform, "tegra") == 0   ? ERR_UNSUPPORTED
           : s->driver == DRIVER_NO_PERMISSION ? ERR_DENIED
                                               : ERR_UNAVAILABLE;
}

static int build(const struct opts *o, const struct plugin_config *c, bool per_model, int *ret_code,
                 struct error *err)
{
    struct host h;
    struct survey *s = NULL;
    struct labels *l = NULL;
    struct label_facts facts;
    int r = label_host_init(o, c, &h, err);
    if (r < 0)
        return r;
    int64_t ms = opts_int(o, "timeout") / 1000000;
    r = gpu_survey_once(&h, MAX(ms, (int64_t)1), &s, err);
    if (r == 0) {
        label_facts_read(&h, c->gfd.machine_type_file, s, &facts);
        const struct label_input in = {
            .survey = s,
            .config = c,
            .facts = &facts,
            .timestamp = c->gfd.no_timestamp ? -1 : host_real_ns(&h) / 1000000000,
            .per_model = per_model,
        };
        r = labels_build(&in, &l, err);
    }
    if (r == 0)
        *ret_code = show(o, l);
    if (r == 0 && s->driver != DRIVER_OK)
        r = error_set(err, driver_error(s), 0, "the driver cannot be used (%s): %s",
                      driver_state_name(s->driver), s->driver_text);
    labels_free(l);
    survey_unref(s);
    host_done(&h);
    return r;
}

static int run(int argc, char **argv)
{
    struct opts o;
    struct error err;
    struct plugin_config *c = NULL;
    bool per_model = false;
    int code = 0;
    if (!command_begin(&cmd_labels, &o, argc, argv, 0, true, &code))
        return code;
    auto_arena arena;
    arena_init(&arena, FINDINGS_ARENA);
    struct findings findings;
    findings_init(&findings, &arena, FINDINGS_MAX);
    int r = label_config_load(&o, &findings, &c, &per_model, &err);
    print_notes(&findings);
    if (r == 0)
        r = build(&o, c, per_model, &code, &err);
    pluginconfig_free(c);
    opts_done(&o);
    return r < 0 ? command_fail(program, &err) : code;
}

const struct command cmd_labels = {
    .name = "labels",
    .summary = "show the labels that describe this node's gpus",
    .usage = "[options]",
    .text =
        "Starts a GPU worker, takes one survey and prints the labels that gpu-feature-discovery "
        "would give this node with the same options and config file. Nothing is written; an agent "
        "that runs is not disturbed.\n\n"
        "What could not be told, and why, follows on standard error (in JSON and YAML it is under "
        "\"notes\", and texts that were too long for a label under \"full\"). When the driver "
        "cannot be used the exit code is that of the cause: 5 not available, 7 not permitted, 8 "
        "not "
        "supported on this platform.",
    .options = options,
    .run = run,
};
