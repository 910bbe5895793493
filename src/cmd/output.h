/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* -o table|json|yaml, the same for every command that prints a table: a command writes its document
 * once as JSON (data/json.h), this prints it as asked. */
#include "base/buf.h"
#include "base/opt.h"

#define OUTPUT_OPTION                                                                              \
    {                                                                                              \
        .name = "output", .letter = 'o', .type = OPT_STRING, .deflt = "table",                     \
        .choices = "table|json|yaml", .value_name = "FORMAT",                                      \
        .help = "print a table, JSON or YAML"                                                      \
    }

/* Prints the JSON text in `json` as JSON or YAML by the option "output". Returns an exit code. */
int output_document(const struct opts *o, const struct buf *json, const char *program);
/* True when the table form is wanted. */
bool output_table(const struct opts *o);
