/* SPDX-License-Identifier: Apache-2.0 */
/* Help, man page and completion from a command's option table. */
#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "base/opt.h"

enum { WIDTH = 80 };

static const struct opt no_options[] = { { 0 } };
static const struct opt help_row = {
    .name = "help", .letter = 'h', .type = OPT_BOOL, .help = "show this text"
};

static const struct opt *table_of(const struct command *c)
{
    return c->options ? c->options : no_options;
}

/* Writes words with `indent` blanks before each line, none past WIDTH columns. */
static void wrap(struct buf *out, struct str text, size_t indent)
{
    size_t column = 0;
    while (text.p) {
        struct str word = str_cut(&text, ' ');
        if (!word.n)
            continue;
        if (column && column + 1 + word.n > WIDTH) {
            buf_ch(out, '\n');
            column = 0;
        }
        if (!column) {
            buf_fmt(out, "%*s", (int)indent, "");
            column = indent;
        } else {
            buf_ch(out, ' ');
            column++;
        }
        buf_str(out, word);
        column += word.n;
    }
    buf_ch(out, '\n');
}

/* The next paragraph (parted by a blank line); newlines in it count as blanks for the caller. */
static struct str next_paragraph(struct str *text)
{
    const char *at = text->n ? memmem(text->p, text->n, "\n\n", 2) : NULL;
    struct str head = *text;
    if (at) {
        head.n = (size_t)(at - text->p);
        *text = (struct str){ at + 2, text->n - head.n - 2 };
    } else {
        *text = (struct str){ NULL, 0 };
    }
    return head;
}

static void put_choices(struct buf *out, const char *choices)
{
    struct str rest = str_of(choices);
    for (bool first = true; rest.p; first = false) {
        struct str word = str_cut(&rest, '|');
        buf_fmt(out, "%s%.*s", first ? "" : ", ", STR_FMT(word));
    }
}

/* "mig strategy (one of: none, single, mixed; default: none; env: MIG_STRATEGY; config: flags…)" */
static void put_description(struct buf *out, const struct opt *row)
{
    const char *sep = " (";
    buf_z(out, row->help ? row->help : "");
    if (row->choices) {
        buf_fmt(out, "%s%s", sep, row->type == OPT_LIST ? "any of: " : "one of: ");
        put_choices(out, row->choices);
        sep = "; ";
    } else if (row->type == OPT_LIST) {
        buf_fmt(out, "%scomma list or repeated", sep);
        sep = "; ";
    }
    if (row->deflt && row->deflt[0]) {
        buf_fmt(out, "%sdefault: %s", sep, row->deflt);
        sep = "; ";
    }
    for (size_t i = 0; i < ARRAY_LEN(row->env) && row->env[i]; i++) {
        buf_fmt(out, "%s%s", i ? ", " : sep, i ? "" : "env: ");
        buf_z(out, row->env[i]);
        sep = "; ";
    }
    if (row->config_key) {
        buf_fmt(out, "%sconfig: %s", sep, row->config_key);
        sep = "; ";
    }
    if (sep[0] == ';')
        buf_ch(out, ')');
    buf_ch(out, '.');
}

static const char *value_name(const struct opt *row)
{
    static const char *const by_type[] = {
        [OPT_BOOL] = "BOOL", [OPT_STRING] = "TEXT",       [OPT_INT] = "N",
        [OPT_LIST] = "LIST", [OPT_DURATION] = "DURATION",
    };
    if (row->value_name)
        return row->value_name;
    return row->choices && row->type == OPT_STRING ? "WORD" : by_type[row->type];
}

/* Calls `each` for every row in the order of help: the general ones and --help first, then group by
 * group in the order of their first row. */
struct group_walk {
    void (*heading)(struct buf *out, const char *group);
    void (*row)(struct buf *out, const struct opt *row);
};

static bool same_group(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool group_seen(const struct opt *table, const struct opt *at)
{
    for (const struct opt *before = table; before < at; before++)
        if (same_group(before->group, at->group))
            return true;
    return false;
}

static void walk_groups(const struct opt *table, const struct group_walk *walk, struct buf *out)
{
    walk->heading(out, NULL);
    for (const struct opt *row = table; row->name; row++)
        if (!row->group)
            walk->row(out, row);
    walk->row(out, &help_row);
    for (const struct opt *first = table; first->name; first++) {
        if (!first->group || group_seen(table, first))
            continue;
        walk->heading(out, first->group);
        for (const struct opt *row = first; row->name; row++)
            if (same_group(row->group, first->group))
                walk->row(out, row);
    }
}

static void help_heading(struct buf *out, const char *group)
{
    buf_fmt(out, "\n%s:\n", group ? group : "Options");
}

static void help_row_text(struct buf *out, const struct opt *row)
{
    buf_z(out, "  ");
    if (row->letter)
        buf_fmt(out, "-%c, ", row->letter);
    buf_fmt(out, "--%s", row->name);
    for (size_t i = 0; i < ARRAY_LEN(row->aliases) && row->aliases[i]; i++)
        buf_fmt(out, ", --%s", row->aliases[i]);
    if (row->type != OPT_BOOL)
        buf_fmt(out, " %s", value_name(row));
    buf_ch(out, '\n');
    auto_buf text;
    buf_init(&text, 16 * 1024);
    put_description(&text, row);
    wrap(out, buf_view(&text), 6);
}

void command_help(const struct command *c, const char *program, struct buf *out)
{
    static const struct group_walk walk = { help_heading, help_row_text };
    buf_fmt(out, "%s %s: %s\n\nusage: %s %s%s%s\n", program, c->name, c->summary ? c->summary : "",
            program, c->name, c->usage && c->usage[0] ? " " : "", c->usage ? c->usage : "");
    struct str text = str_of(c->text);
    while (text.p) {
        buf_ch(out, '\n');
        wrap(out, next_paragraph(&text), 0);
    }
    walk_groups(table_of(c), &walk, out);
}

/* scdoc gives a meaning to these inside a line, and to some more at its start. */
static void put_man(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\n') {
            buf_ch(out, ' ');
            continue;
        }
        bool at_start = out->n == 0 || out->p[out->n - 1] == '\n' || out->p[out->n - 1] == '\t';
        if (strchr("\\*_", s.p[i]) || (at_start && strchr("-.#|[]; ", s.p[i])))
            buf_ch(out, '\\');
        buf_ch(out, s.p[i]);
    }
}

static void man_heading(struct buf *out, const char *group)
{
    buf_z(out, group ? "\n## " : "\n# OPTIONS\n");
    if (group) {
        put_man(out, str_of(group));
        buf_ch(out, '\n');
    }
}

static void man_name(struct buf *out, const char *dashes, const char *name)
{
    buf_z(out, "*");
    buf_z(out, dashes);
    put_man(out, str_of(name));
    buf_z(out, "*");
}

static void man_row(struct buf *out, const struct opt *row)
{
    buf_ch(out, '\n');
    if (row->letter) {
        man_name(out, "-", (char[]){ row->letter, '\0' });
        buf_z(out, ", ");
    }
    man_name(out, "--", row->name);
    for (size_t i = 0; i < ARRAY_LEN(row->aliases) && row->aliases[i]; i++) {
        buf_z(out, ", ");
        man_name(out, "--", row->aliases[i]);
    }
    if (row->type != OPT_BOOL) {
        buf_z(out, " _");
        put_man(out, str_of(value_name(row)));
        buf_z(out, "_");
    }
    auto_buf text;
    buf_init(&text, 16 * 1024);
    put_description(&text, row);
    buf_z(out, "\n\t");
    put_man(out, buf_view(&text));
    buf_ch(out, '\n');
}

void command_man(const struct command *c, const char *program, struct buf *out)
{
    static const struct group_walk walk = { man_heading, man_row };
    auto_free char *page = x_printf("%s-%s", program, c->name);
    for (char *at = page; *at; at++)
        if (*at == ' ')
            *at = '-';
    buf_fmt(out, "%s(1)\n\n# NAME\n\n%s - ", page, page);
    put_man(out, str_of(c->summary ? c->summary : ""));
    buf_fmt(out, "\n\n# SYNOPSIS\n\n*%s %s* ", program, c->name);
    put_man(out, str_of(c->usage ? c->usage : ""));
    buf_ch(out, '\n');
    struct str text = str_of(c->text);
    if (text.p)
        buf_z(out, "\n# DESCRIPTION\n");
    while (text.p) {
        buf_ch(out, '\n');
        put_man(out, next_paragraph(&text));
        buf_ch(out, '\n');
    }
    walk_groups(table_of(c), &walk, out);
}

/* Every way to write the option, each between `before` and `after`. */
static void put_option_names(struct buf *out, const struct opt *row, const char *before,
                             const char *after)
{
    if (row->letter)
        buf_fmt(out, "%s-%c%s", before, row->letter, after);
    buf_fmt(out, "%s--%s%s", before, row->name, after);
    for (size_t i = 0; i < ARRAY_LEN(row->aliases) && row->aliases[i]; i++)
        buf_fmt(out, "%s--%s%s", before, row->aliases[i], after);
}

static bool names_path(const struct opt *row)
{
    static const char *const names[] = { "DIR", "FILE", "PATH", "SOCKET" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (row->value_name && strcmp(row->value_name, names[i]) == 0)
            return true;
    return false;
}

/* "    'sim create --gpus') words="…";;": what may follow an option that takes a value. */
static void complete_values(struct buf *out, const struct command *c)
{
    for (const struct opt *row = table_of(c); row->name; row++) {
        if (row->type == OPT_BOOL)
            continue;
        auto_free char *before = x_printf("|'%s ", c->name);
        buf_z(out, "    ''");
        put_option_names(out, row, before, "'");
        buf_z(out, ") ");
        if (names_path(row))
            buf_z(out, "files=1");
        buf_z(out, " words='");
        struct str rest = str_of(row->choices);
        while (rest.p) {
            buf_str(out, str_cut(&rest, '|'));
            buf_ch(out, ' ');
        }
        buf_z(out, "' ;;\n");
    }
}

static void complete_options(struct buf *out, const struct command *c)
{
    buf_fmt(out, "    '%s') words='--help", c->name);
    for (const struct opt *row = table_of(c); row->name; row++) {
        put_option_names(out, row, " ", "");
    }
    buf_z(out, "' ;;\n");
}

/* Whether an earlier command that is shown has the same first word. */
static bool first_word_seen(const struct command *const *commands, size_t i)
{
    size_t n = strcspn(commands[i]->name, " ");
    for (size_t k = 0; k < i; k++)
        if (commands[k]->summary && strcspn(commands[k]->name, " ") == n &&
            strncmp(commands[k]->name, commands[i]->name, n) == 0)
            return true;
    return false;
}

/* Both words of two-word commands: first "sim", then "create". */
static void complete_commands(struct buf *out, const struct command *const *commands, size_t n)
{
    buf_z(out, "    '') words='");
    for (size_t i = 0; i < n; i++)
        if (commands[i]->summary && !first_word_seen(commands, i))
            buf_fmt(out, "%.*s ", (int)strcspn(commands[i]->name, " "), commands[i]->name);
    buf_z(out, "' ;;\n");
    for (size_t i = 0; i < n; i++) {
        size_t first = strcspn(commands[i]->name, " ");
        if (!commands[i]->summary || !commands[i]->name[first] || first_word_seen(commands, i))
            continue;
        buf_fmt(out, "    '%.*s') words='", (int)first, commands[i]->name);
        for (size_t k = i; k < n; k++)
            if (commands[k]->summary &&
                strncmp(commands[k]->name, commands[i]->name, first + 1) == 0)
                buf_fmt(out, "%s ", commands[k]->name + first + 1);
        buf_z(out, "' ;;\n");
    }
}

static const char complete_head[] =
    "_%s() {\n"
    "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= files= "
    "i from=1\n"
    "  # \"--option=va\" arrives as three words.\n"
    "  if [[ $cur == = ]]; then cur=; fi\n"
    "  if [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
    "  # \"help sim create\" names a command, as the line without \"help\" would.\n"
    "  if [[ ${COMP_WORDS[1]} == help && $cur != -* ]]; then from=2; fi\n"
    "  for ((i = from; i < COMP_CWORD; i++)); do\n"
    "    case $command${command:+ }${COMP_WORDS[i]} in\n";

void command_complete(const struct command *const *commands, size_t n, const char *program,
                      struct buf *out)
{
    buf_fmt(out, "# bash completion for %s\n", program);
    buf_fmt(out, complete_head, program);
    for (size_t i = 0; i < n; i++) {
        size_t first = strcspn(commands[i]->name, " ");
        if (!commands[i]->summary)
            continue;
        if (commands[i]->name[first])
            buf_fmt(out, "    '%.*s') command='%.*s' ;;\n", (int)first, commands[i]->name,
                    (int)first, commands[i]->name);
        buf_fmt(out, "    '%s') command='%s' ;;\n", commands[i]->name, commands[i]->name);
    }
    buf_z(out, "    esac\n  done\n"
               "  case \"$command $prev\" in\n");
    for (size_t i = 0; i < n; i++)
        if (commands[i]->summary)
            complete_values(out, commands[i]);
    buf_z(out, "    *) case $command in\n");
    complete_commands(out, commands, n);
    for (size_t i = 0; i < n; i++)
        if (commands[i]->summary)
            complete_options(out, commands[i]);
    buf_z(out, "    esac; [[ $cur == -* || $command == '' || -n $words && $words != --* ]] || "
               "files=1 ;;\n  esac\n"
               "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
               "  if [[ $files ]]; then COMPREPLY+=($(compgen -f -- \"$cur\")); fi\n}\n");
    buf_fmt(out, "complete -o filenames -F _%s %s\n", program, program);
}
