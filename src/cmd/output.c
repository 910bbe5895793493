/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output.h"

#include <stdio.h>
#include <string.h>

#include "cmd/commands.h"
#include "data/json.h"

bool output_table(const struct opts *o)
{
    return strcmp(opts_text(o, "output"), "table") == 0;
}

static int print_yaml(const struct buf *json, struct error *err)
{
    auto_arena arena;
    arena_init(&arena, 64 * 1024 * 1024);
    struct value *v;
    int r = json_parse(&arena, buf_view(json), "output", &doc_limits_default, &v, err);
    if (r < 0)
        return r;
    auto_buf yaml;
    buf_init(&yaml, 16 * 1024 * 1024);
    value_to_yaml(v, &yaml);
    r = buf_check(&yaml, "the output", err);
    if (r == 0)
        fputs(yaml.p ? yaml.p : "", stdout);
    return r;
}

int output_document(const struct opts *o, const struct buf *json, const char *program)
{
    struct error err;
    int r = buf_check(json, "the output", &err);
    if (r < 0)
        return command_fail(program, &err);
    if (strcmp(opts_text(o, "output"), "yaml") == 0)
        r = print_yaml(json, &err);
    else
        puts(json->p);
    return r < 0 ? command_fail(program, &err) : 0;
}
