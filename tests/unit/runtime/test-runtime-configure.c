/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of containerd and CRI-O: what is planned, written and taken back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "runtime/configure.h"
#include "runtime/toml.h"

static char root[64];
static struct host host;

static void put(const char *path, const char *text)
{
    auto_free char *full = x_printf("%s%s", root, path), *dir = x_strdup(full);
    *strrchr(dir, '/') = '\0';
    assert_int_equal(dir_make(dir, 0755, NULL), 0);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static char *get(const char *path)
{
    auto_free char *full = x_printf("%s%s", root, path);
    char *text = NULL;
    return file_read(full, 1 << 20, &text, NULL, NULL) == 0 ? text : NULL;
}

static int set_up(void **state)
{
    (void)state;
    struct error err;
    snprintf(root, sizeof root, "/tmp/mete-configure-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    put("/opt/mete-runtime", "");
    auto_free char *program = x_printf("%s/opt/mete-runtime", root);
    const struct host_config config = { .root = root };
    return chmod(program, 0755) < 0 || host_init(&host, &config, &err) < 0;
}

static int tear_down(void **state)
{
    (void)state;
    auto_free char *command = x_printf("rm -rf %s", root);
    host_done(&host);
    return system(command);
}

static struct runtime_setup containerd_1(void)
{
    return (struct runtime_setup){ .engine = ENGINE_CONTAINERD,
                                   .root = root,
                                   .name = "nvidia",
                                   .runtime_path = "/opt/mete-runtime" };
}

static const char main_path[] = "/etc/containerd/config.toml",
                  drop_in[] = "/etc/containerd/conf.d/zz-mete-nvidia.toml";

static int make(const struct runtime_setup *s, struct arena *a, struct runtime_plan *p,
                struct findings *notes, struct error *err)
{
    arena_init(a, 16 << 20);
    findings_init(notes, a, 20);
    return runtime_plan_make(a, s, p, notes, err);
}

static int make_and_write(const struct runtime_setup *s)
{
    auto_arena a;
    struct runtime_plan p;
    struct findings notes;
    struct error err;
    int r = make(s, &a, &p, &notes, &err);
    if (r == 0)
        r = runtime_plan_write(&host, s, &p, &err);
    if (r < 0)
        print_message("%s\n", err.text);
    return r;
}

static int undo_and_write(const struct runtime_setup *s, size_t *ret_notes)
{
    auto_arena a;
    struct runtime_plan p;
    struct findings notes;
    struct error err;
    arena_init(&a, 16 << 20);
    findings_init(&notes, &a, 20);
    int r = runtime_plan_undo(&a, s, &p, &notes, &err);
    *ret_notes = notes.n;
    return r < 0 ? r : runtime_plan_write(&host, s, &p, &err);
}

/* A value of a TOML file by the names on the way to it. */
static const struct value *at(struct arena *a, const char *path, const char *const *way)
{
    auto_free char *text = get(path);
    struct value *v;
    assert_non_null(text);
    char *copy = arena_strdup(a, str_of(text));
    assert_int_equal(toml_parse(a, str_of(copy), path, &v, NULL), 0);
    const struct value *here = v;
    for (; *way && here; way++)
        here = value_get(here, *way);
    return here;
}
#define AT(a, path, ...) at(a, path, (const char *const[]){ __VA_ARGS__, NULL })

/* ---- containerd ---- */

static const char site_2[] =
    "# site settings, by hand\nversion = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\"]\n"
    "  sandbox_image = \"registry.local/pause\"\n"
    "  [plugins.\"io.containerd.grpc.v1.cri\".cni]\n    bin_dir = \"/opt/cni\"\n"
    "  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
    "    runtime_type = \"io.containerd.runc.v2\"\n"
    "    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n"
    "      SystemdCgroup = true\n";

/* A tool that rewrites the file loses what the site has set (amazon-eks-ami #2054); one that writes
 * a small drop-in for containerd before 2.1 loses it too (containerd #5837). */
static void settings_of_the_site_stay(void **state)
{
    (void)state;
    auto_arena a;
    arena_init(&a, 1 << 20);
    struct runtime_setup s = containerd_1();
    put(main_path, site_2);
    assert_int_equal(make_and_write(&s), 0);
    static const char cri[] = "io.containerd.grpc.v1.cri";
    assert_string_equal(value_text(AT(&a, drop_in, "plugins", cri, "sandbox_image"), ""),
                        "registry.local/pause");
    assert_string_equal(value_text(AT(&a, drop_in, "plugins", cri, "cni", "bin_dir"), ""),
                        "/opt/cni");
    assert_non_null(
        AT(&a, drop_in, "plugins", cri, "containerd", "runtimes", "runc", "runtime_type"));
    assert_string_equal(value_text(AT(&a, drop_in, "plugins", cri, "containerd", "runtimes",
                                      "nvidia", "runtime_type"),
                                   ""),
                        "io.containerd.runc.v2");
    assert_string_equal(value_text(AT(&a, drop_in, "plugins", cri, "containerd", "runtimes",
                                      "nvidia", "options", "BinaryName"),
                                   ""),
                        "/opt/mete-runtime");
    /* the cgroup driver of the handler that containers have now */
    assert_true(AT(&a, drop_in, "plugins", cri, "containerd", "runtimes", "nvidia", "options",
                   "SystemdCgroup")
                    ->boolean);
    assert_null(AT(&a, drop_in, "plugins", cri, "containerd", "default_runtime_name"));
    assert_null(AT(&a, drop_in, "plugins", cri, "enable_cdi"));
    /* of the engine's own file one line more */
    auto_free char *now = get(main_path);
    assert_non_null(strstr(now, "# site settings, by hand\nversion = 2\nimports = "
                                "[\"/etc/containerd/conf.d/*.toml\"]\n\n[plugins."));
    auto_free char *backup = get("/etc/containerd/config.toml.mete-backup");
    assert_string_equal(backup, site_2);
}

static void a_containerd_that_merges_gets_only_ours(void **state)
{
    (void)state;
    auto_arena a;
    arena_init(&a, 1 << 20);
    struct runtime_setup s = containerd_1();
    s.engine_major = 2;
    s.engine_minor = 1;
    s.as_default = s.cdi = true;
    put(main_path,
        "version = 3\nimports = []\n[plugins.'io.containerd.cri.v1.runtime']\nsandboxer = 'x'\n"
        "[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name='kata'\n"
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\nruntime_type='k'\n");
    assert_int_equal(make_and_write(&s), 0);
    auto_free char *text = get(drop_in);
    assert_string_equal(
        text, "# Written by \"mete runtime configure\"; \"--undo\" removes it.\nversion = 3\n\n"
              "[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = true\n\n"
              "[plugins.\"io.containerd.cri.v1.runtime\".containerd]\ndefault_runtime_name = "
              "\"nvidia\"\n\n"
              "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]\n"
              "runtime_type = \"io.containerd.runc.v2\"\n\n"
              "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia.options]\n"
              "BinaryName = \"/opt/mete-runtime\"\n");
    auto_free char *now = get(main_path);
    assert_non_null(strstr(now, "imports = [\"/etc/containerd/conf.d/*.toml\"]\n"));
}

static void each_config_version_has_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *section;
        int64_t version;
    } cases[] = {
        { "root = \"/var\"\n[plugins.cri.containerd]\n", "cri", 1 },
        { "version = 1\n", "cri", 1 },
        { "version = 2\n", "io.containerd.grpc.v1.cri", 2 },
        { "version = 3\n", "io.containerd.cri.v1.runtime", 3 },
        { NULL, "io.containerd.grpc.v1.cri", 2 },
        { "", "io.containerd.grpc.v1.cri", 2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_arena a;
        arena_init(&a, 1 << 20);
        struct runtime_setup s = containerd_1();
        tear_down(NULL);
        set_up(NULL);
        if (cases[i].text)
            put(main_path, cases[i].text);
        assert_int_equal(make_and_write(&s), 0);
        assert_int_equal(AT(&a, drop_in, "version")->number, cases[i].version);
        assert_non_null(
            AT(&a, drop_in, "plugins", cases[i].section, "containerd", "runtimes", "nvidia"));
        assert_int_equal(AT(&a, main_path, "imports")->n, 1);
        size_t notes;
        assert_int_equal(undo_and_write(&s, &notes), 0);
        assert_int_equal(notes, 0);
        auto_free char *now = get(main_path), *mine = get(drop_in),
                       *backup = get("/etc/containerd/config.toml.mete-backup");
        assert_null(mine);
        assert_null(backup);
        if (cases[i].text && cases[i].text[0])
            assert_string_equal(now, cases[i].text);
    }
}

/* The import is added to whatever the file has; nothing else of it changes. */
static void imports_are_added_in_place(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after; /* after NULL: nothing to change */
    } cases[] = {
        { "version = 2", "version = 2\nimports = [\"P\"]\n" },
        { "# x\nversion = 2 # y\nroot = 'r'\n",
          "# x\nversion = 2 # y\nimports = [\"P\"]\nroot = 'r'\n" },
        { "root = 'r'\n[a]\n", "imports = [\"P\"]\nroot = 'r'\n[a]\n" },
        { "version = 2\nimports = []\n", "version = 2\nimports = [\"P\"]\n" },
        { "version = 2\nimports = ['/a', '/b']\n", "version = 2\nimports = [\"P\", '/a', '/b']\n" },
        { "imports = [ # why\n  '/a',\n]\nversion = 2\n",
          "imports = [\"P\",  # why\n  '/a',\n]\nversion = 2\n" },
        { "'é' = 1\nversion = 2\n'imports' = ['é']",
          "'é' = 1\nversion = 2\n'imports' = [\"P\", 'é']" },
        { "imports = [\"P\"]\n", NULL },
        { "imports = ['/a', 'P']\n", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_arena a;
        struct error err;
        const char *got;
        arena_init(&a, 1 << 20);
        int r = containerd_import(&a, "c", cases[i].before, "P", &got, &err);
        if (r < 0)
            fail_msg("case %zu: %s", i, err.text);
        if (cases[i].after)
            assert_string_equal(got, cases[i].after);
        else
            assert_null(got);
    }
    auto_arena a;
    struct error err;
    const char *got;
    arena_init(&a, 1 << 20);
    assert_int_equal(containerd_import(&a, "c", "imports = 1\n", "P", &got, &err), -ERR_INVALID);
}

static void what_cannot_work_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *runtime, *says;
    } cases[] = {
        { "version = 2\ndisabled_plugins = [\"cri\"]\n", "nvidia", "/opt/mete-runtime",
          "config.toml:2: disabled_plugins has \"cri\": kubelet cannot use this containerd" },
        { "disabled_plugins = [\"x\", \"io.containerd.grpc.v1.cri\"]\n", "nvidia",
          "/opt/mete-runtime", "disabled_plugins has" },
        { "version = 4\n", "nvidia", "/opt/mete-runtime",
          "version is the number 4; known are 1, 2 and 3" },
        { "version = \"2\"\n", "nvidia", "/opt/mete-runtime", "version is text" },
        { "version = \n", "nvidia", "/opt/mete-runtime", "config.toml:1:11: expected a value" },
        { "version = 2\n", "runc", "/opt/mete-runtime", "choose another" },
        { "version = 2\n", "a_b", "/opt/mete-runtime", "lower-case letters, digits and dashes" },
        { "version = 2\n", "", "/opt/mete-runtime", "choose another" },
        { "version = 2\n", "nvidia", "opt/mete-runtime", "expected a path from the root" },
        { "version = 2\n", "nvidia", "/opt/absent", "/opt/absent is no program on this host" },
        { "version = 2\n", "nvidia", "/etc/containerd/config.toml", "is no program on this host" },
        { "version = 2\nplugins = 1\n", "nvidia", "/opt/mete-runtime", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_arena a;
        struct runtime_plan p;
        struct findings notes;
        struct error err;
        struct runtime_setup s = containerd_1();
        s.name = cases[i].name;
        s.runtime_path = cases[i].runtime;
        put(main_path, cases[i].text);
        int r = make(&s, &a, &p, &notes, &err);
        if (cases[i].says[0] && (r >= 0 || !strstr(err.text, cases[i].says)))
            fail_msg("case %zu: %d %s", i, r, err.text);
    }
}

static void other_files_are_read_too(void **state)
{
    (void)state;
    auto_arena a;
    struct runtime_plan p;
    struct findings notes;
    struct error err;
    struct runtime_setup s = containerd_1();
    put(main_path, "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\", \"more/*.toml\"]\n"
                   "[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"main\"\nx = 1\n");
    put("/etc/containerd/conf.d/99-nvidia.toml",
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"theirs\"\n"
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\nBinaryName = "
        "\"/usr/bin/old\"\n");
    put("/etc/containerd/more/z.toml",
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\ny = 2\n");
    assert_int_equal(make(&s, &a, &p, &notes, &err), 0);
    assert_int_equal(p.n, 1); /* the import is there already */
    assert_non_null(strstr(p.changes[0].after, "sandbox_image = \"theirs\"\nx = 1\ny = 2\n"));
    assert_int_equal(notes.n, 2);
    assert_string_equal(notes.items[0].id, "runtime.several-sections");
    assert_string_equal(notes.items[1].id, "runtime.defined-already");
    assert_non_null(strstr(notes.items[1].cause, "defined here as /usr/bin/old"));
    /* a wrong one says where */
    put("/etc/containerd/more/z.toml", "version = \n");
    arena_done(&a);
    assert_int_equal(make(&s, &a, &p, &notes, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "/etc/containerd/more/z.toml:1:11"));
}

static void a_second_run_finds_nothing_to_do(void **state)
{
    (void)state;
    auto_arena a;
    struct runtime_plan p;
    struct findings notes;
    struct error err;
    struct runtime_setup s = containerd_1();
    put(main_path, site_2);
    assert_int_equal(make_and_write(&s), 0);
    assert_int_equal(make(&s, &a, &p, &notes, &err), 0);
    assert_int_equal(p.n, 0);
}

static void what_was_changed_since_is_not_taken_back(void **state)
{
    (void)state;
    struct runtime_setup s = containerd_1();
    size_t notes;
    put(main_path, site_2);
    assert_int_equal(make_and_write(&s), 0);
    auto_free char *now = get(main_path), *more = x_printf("%s# later\n", now);
    put(main_path, more);
    assert_int_equal(undo_and_write(&s, &notes), 0);
    assert_int_equal(notes, 1);
    auto_free char *left = get(main_path), *mine = get(drop_in),
                   *backup = get("/etc/containerd/config.toml.mete-backup");
    assert_string_equal(left, more);
    assert_null(mine);
    assert_non_null(backup);
    /* with nothing of ours there, undo does nothing */
    put(main_path, site_2);
    assert_int_equal(undo_and_write(&s, &notes), 0);
}

/* A write that fails leaves all files as they were. */
static int fail_countdown;

static ssize_t failing_write(void *arg, int fd, const void *p, size_t n)
{
    if (fail_countdown-- == 0)
        return -ENOSPC;
    return host_seams_real.write(arg, fd, p, n);
}

static void a_failed_write_leaves_everything_as_it_was(void **state)
{
    (void)state;
    struct host_seams seams = host_seams_real;
    seams.write = failing_write;
    for (int k = 0;; k++) {
        auto_arena a;
        struct runtime_plan p;
        struct findings notes;
        struct error err;
        struct runtime_setup s = containerd_1();
        tear_down(NULL);
        set_up(NULL);
        struct host failing = host;
        failing.seams = &seams;
        put(main_path, site_2);
        assert_int_equal(make(&s, &a, &p, &notes, &err), 0);
        fail_countdown = k;
        int r = runtime_plan_write(&failing, &s, &p, &err);
        auto_free char *now = get(main_path), *mine = get(drop_in);
        if (r == 0) {
            assert_true(k >= 3);
            assert_true(strcmp(now, site_2) != 0);
            return;
        }
        assert_string_equal(now, site_2);
        assert_null(mine);
    }
}

static void the_plan_is_shown_by_lines(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after, *shows;
    } cases[] = {
        { NULL, "a\nb\n", "/f (new):\n+a\n+b\n" },
        { "a\nb\n", NULL, "/f (removed):\n-a\n-b\n" },
        { "a\nb\nc\n", "a\nx\nb\nc\n", "/f:\n+x\n" },
        { "a\nb\nc\n", "a\nc\n", "/f:\n-b\n" },
        { "a\nb\nc", "a\nB\nc", "/f:\n-b\n+B\n" },
        { "a", "b", "/f:\n-a\n+b\n" },
        { "a\na\n", "a\n", "/f:\n-a\n" },
        { "", "a", "/f:\n+a\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct runtime_plan p = { .changes = { { "/f", cases[i].before, cases[i].after, 0 } },
                                        .n = 1 };
        auto_buf out;
        buf_init(&out, 4096);
        runtime_plan_print(&p, &out);
        assert_string_equal(out.p, cases[i].shows);
    }
}

/* ---- CRI-O ---- */

static void crio_takes_over_what_its_runtime_has(void **state)
{
    (void)state;
    auto_arena a;
    struct runtime_plan p;
    struct findings notes;
    struct error err;
    struct runtime_setup s = containerd_1();
    s.engine = ENGINE_CRIO;
    s.as_default = s.cdi = true;
    put("/etc/crio/crio.conf.d/10-crun.conf",
        "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nruntime_path = "
        "\"/usr/libexec/crio/crun\"\n"
        "monitor_path = \"/usr/libexec/crio/conmon\"\nallowed_annotations = [\"x\"]\n");
    put("/etc/crio/crio.conf.d/99-nvidia.conf",
        "[crio.runtime.runtimes.nvidia]\nruntime_path = \"/old\"\n");
    assert_int_equal(make(&s, &a, &p, &notes, &err), 0);
    assert_int_equal(p.n, 1);
    assert_string_equal(p.changes[0].path, "/etc/crio/crio.conf.d/zz-mete-nvidia.conf");
    assert_string_equal(
        p.changes[0].after,
        "# Written by \"mete runtime configure\"; \"--undo\" removes it.\n\n[crio.runtime]\n"
        "default_runtime = \"nvidia\"\n\n[crio.runtime.runtimes.nvidia]\nruntime_path = "
        "\"/opt/mete-runtime\"\n"
        "monitor_path = \"/usr/libexec/crio/conmon\"\nallowed_annotations = [\"x\"]\nruntime_type "
        "= \"oci\"\n");
    assert_int_equal(notes.n, 3);
    assert_string_equal(notes.items[0].id, "runtime.defined-already");
    assert_int_equal(runtime_plan_write(&host, &s, &p, &err), 0);
    size_t n;
    assert_int_equal(undo_and_write(&s, &n), 0);
    auto_free char *mine = get("/etc/crio/crio.conf.d/zz-mete-nvidia.conf");
    assert_null(mine);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    put(main_path, site_2);
    for (uint64_t k = 1;; k++) {
        auto_arena a;
        struct runtime_plan p;
        struct findings notes;
        struct error err;
        struct runtime_setup s = containerd_1();
        mem_fail_at(k);
        int r = make(&s, &a, &p, &notes, &err);
        if (mem_fail_at(0) < k) {
            assert_int_equal(r, 0);
            assert_true(k > 3);
            return;
        }
        assert_true(r < 0);
    }
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_PLACE(settings_of_the_site_stay),
        IN_PLACE(a_containerd_that_merges_gets_only_ours),
        IN_PLACE(each_config_version_has_its_place),
        IN_PLACE(imports_are_added_in_place),
        IN_PLACE(what_cannot_work_is_refused),
        IN_PLACE(other_files_are_read_too),
        IN_PLACE(a_second_run_finds_nothing_to_do),
        IN_PLACE(what_was_changed_since_is_not_taken_back),
        IN_PLACE(a_failed_write_leaves_everything_as_it_was),
        IN_PLACE(the_plan_is_shown_by_lines),
        IN_PLACE(crio_takes_over_what_its_runtime_has),
        IN_PLACE(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
