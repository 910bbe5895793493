/* SPDX-License-Identifier: Apache-2.0 */
/* Help, man page and completion: for every row of a table all of its facts are there, and the
 * programs that read the output accept it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/opt.h"

static const struct opt agent_options[] = {
    { .name = "mig-strategy",
      .letter = 'm',
      .type = OPT_STRING,
      .aliases = { "old_name" },
      .env = { "MIG", "OLD_MIG" },
      .config_key = "flags.migStrategy",
      .deflt = "none",
      .choices = "none|single",
      .group = "Devices",
      .help = "how parts are offered: *not* at all, or as nvidia.com/mig-PROFILE" },
    { .name = "config-file", .type = OPT_STRING, .value_name = "FILE", .help = "config file" },
    { .name = "fail",
      .type = OPT_BOOL,
      .deflt = "true",
      .group = "Devices",
      .help = "end at once" },
    { .name = "words",
      .type = OPT_LIST,
      .group = "Words",
      .help = ".starts with a dot; some_words_with_lines" },
    { .name = "every", .type = OPT_DURATION, .group = "Devices", .help = "how often" },
    { 0 },
};
static const struct command agent = {
    .name = "agent",
    .summary = "own the GPUs",
    .usage = "[options]",
    .text = "First paragraph with enough words in it that it has to be broken over more than one "
            "line of text.\n\n"
            "- second_paragraph, which starts with a dash",
    .options = agent_options,
};
static const struct command sim_create = { .name = "sim create",
                                           .summary = "make a host",
                                           .usage = "[options] DIR",
                                           .options = agent_options };
static const struct command sim_set = { .name = "sim set", .summary = "change it" };
static const struct command hidden = { .name = "worker" };
static const struct command *const commands[] = { &agent, &sim_create, &sim_set, &hidden };

static char *text_of(void (*make)(const struct command *, const char *, struct buf *),
                     const struct command *c)
{
    struct buf b;
    buf_init(&b, 100000);
    make(c, "mete", &b);
    return buf_take(&b);
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("lacks \"%s\":\n%s", part, text);
}

static void test_help(void **state)
{
    auto_free char *text = text_of(command_help, &agent);
    has(text, "mete agent: own the GPUs\n\nusage: mete agent [options]\n");
    has(text, "\nOptions:\n  --config-file FILE\n      config file.\n  -h, --help\n");
    has(text, "\nDevices:\n  -m, --mig-strategy, --old_name WORD\n");
    has(text, "(one of:\n      none, single; default: none; env: MIG, OLD_MIG; config:\n      "
              "flags.migStrategy).\n");
    has(text, "  --fail\n      end at once (default: true).\n");
    has(text, "  --every DURATION\n");
    has(text, "\nWords:\n  --words LIST\n");
    assert_null(strstr(strstr(text, "\nDevices:") + 1, "\nDevices:")); /* a group has one heading */
    size_t longest = 0;
    for (struct str rest = str_of(text); rest.p;)
        longest = MAX(longest, str_cut(&rest, '\n').n);
    assert_true(longest <= 80);
    auto_free char *none = text_of(command_help, &sim_set);
    has(none, "usage: mete sim set\n");
    has(none, "--help");
}

/* Runs `command` with `input` on its standard input and returns its output; NULL when it fails or
 * is not there. */
static char *filter(const char *command, const char *input)
{
    char name[] = "/tmp/mete-test-opt-text.XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, input, strlen(input)), (ssize_t)strlen(input));
    close(fd);
    auto_free char *line = x_printf("%s < %s 2>&1", command, name);
    FILE *p = popen(line, "r");
    assert_non_null(p);
    struct buf out;
    buf_init(&out, 1000000);
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, p)) > 0;)
        buf_add(&out, chunk, n);
    int status = pclose(p);
    unlink(name);
    char *text = buf_take(&out);
    if (status != 0) {
        print_message("%s: %s\n", command, text);
        free(text);
        return NULL;
    }
    return text;
}

static void test_man(void **state)
{
    auto_free char *text = text_of(command_man, &sim_create);
    has(text, "mete-sim-create(1)\n\n# NAME\n\nmete-sim-create - make a host\n");
    free(steal(text));
    text = text_of(command_man, &agent);
    has(text, "*--old\\_name*");
    has(text, "\\*not\\* at all");
    has(text, "\n\\- second\\_paragraph");
    has(text, "\n\t\\.starts");
    if (system("command -v scdoc > /dev/null") != 0)
        return;
    auto_free char *roff = filter("scdoc", text);
    assert_non_null(roff);
    has(roff, ".TH \"mete-agent\" \"1\"");
    has(roff, "*not* at all");
    has(roff, "some_words_with_lines");
}

/* What bash offers for a command line; words are parted by blanks, the last one is being completed.
 */
static void completes(const char *script, const char *words, const char *want)
{
    auto_free char *program =
        x_printf("%s\nCOMP_WORDS=(%s)\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_mete\n"
                 "printf '%%s ' \"${COMPREPLY[@]}\"\n",
                 script, words);
    auto_free char *got = filter("bash", program);
    if (!got || strcmp(got, want) != 0)
        fail_msg("\"%s\": got \"%s\", want \"%s\"", words, got ? got : "", want);
}

static void test_complete(void **state)
{
    struct buf b;
    buf_init(&b, 100000);
    command_complete(commands, ARRAY_LEN(commands), "mete", &b);
    auto_free char *script = buf_take(&b);
    assert_non_null(script);
    assert_null(strstr(script, "worker"));
    if (system("command -v bash > /dev/null") != 0)
        return;
    completes(script, "mete ''", "agent sim ");
    completes(script, "mete a", "agent ");
    completes(script, "mete sim ''", "create set ");
    completes(script, "mete help a", "agent ");
    completes(script, "mete help sim ''", "create set ");
    completes(script, "mete agent --m", "--mig-strategy ");
    completes(script, "mete agent --old", "--old_name ");
    completes(script, "mete agent --mig-strategy ''", "none single ");
    completes(script, "mete agent --mig-strategy = s", "single ");
    completes(script, "mete agent -m =", "none single ");
    completes(script, "mete agent --old_name n", "none ");
    completes(script, "mete sim create --f", "--fail ");
    completes(script, "mete sim create --mig-strategy s", "single ");
    completes(script, "mete agent --config-file /etc/hostnam", "/etc/hostname ");
    completes(script, "mete sim set --h", "--help ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_man),
        cmocka_unit_test(test_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
