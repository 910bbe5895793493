/* SPDX-License-Identifier: Apache-2.0 */
/* mete version: what this is and what it stands in for. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/output.h"
#include "data/json.h"

static const struct opt options[] = {
    OUTPUT_OPTION,
    { 0 },
};

/* The releases whose names, flags, files and answers this version keeps. */
static const struct {
    const char *name, *version;
} peers[] = {
    { "nvidia-device-plugin", "0.20.0" },
};

static int run(int argc, char **argv)
{
    struct opts o;
    int code = 0;
    if (!command_begin(&cmd_version, &o, argc, argv, 0, true, &code))
        return code;
    if (strcmp(opts_text(&o, "output"), "table") == 0) {
        puts("mete " METE_VERSION);
        for (size_t i = 0; i < ARRAY_LEN(peers); i++)
            printf("  does the work of %s %s\n", peers[i].name, peers[i].version);
    } else {
        auto_buf out;
        buf_init(&out, 4096);
        struct json_writer w;
        jw_init(&w, &out, 2);
        jw_map(&w);
        jw_kv(&w, "version", METE_VERSION);
        jw_key(&w, "compatibleWith");
        jw_map(&w);
        for (size_t i = 0; i < ARRAY_LEN(peers); i++)
            jw_kv(&w, peers[i].name, peers[i].version);
        jw_end(&w);
        jw_end(&w);
        code = output_document(&o, &out, "mete version");
    }
    opts_done(&o);
    return code;
}

const struct command cmd_version = {
    .name = "version",
    .summary = "print the version and what it is compatible with",
    .usage = "[options]",
    .options = options,
    .run = run,
};
