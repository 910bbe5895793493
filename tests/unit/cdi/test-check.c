/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of the CDI files of a host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/mem.h"
#include "cdi/check.h"
#include "tree.h"

enum { ARENA = 16 * 1024 * 1024 };

#define SPEC(kind, name, edits)                                                                    \
    "{\"cdiVersion\":\"0.5.0\",\"kind\":\"" kind "\",\"devices\":[{\"name\":\"" name               \
    "\",\"containerEdits\":" edits "}]}"
#define GPU(name, edits) SPEC("nvidia.com/gpu", name, edits)
#define FINE             "{\"env\":[\"A=b\"]}"

struct checked {
    struct arena arena;
    struct findings findings;
};

static void check(struct checked *c, const struct tmp_tree *t, const char *const *names, size_t n,
                  const char *version)
{
    auto_free char *etc = tmp_tree_path(t, "/etc/cdi"), *var = tmp_tree_path(t, "/var/run/cdi");
    const char *const dirs[] = { etc, var };
    const struct cdi_check options = { t->dir, dirs, 2, names, n, version };
    struct error err;
    arena_init(&c->arena, ARENA);
    findings_init(&c->findings, &c->arena, 100);
    if (cdi_check(&options, &c->findings, &err) < 0)
        fail_msg("%s", err.text);
}

static bool told(const struct checked *c, const char *id, enum severity severity,
                 const char *subject, const char *cause)
{
    for (size_t i = 0; i < c->findings.n; i++) {
        const struct finding *f = &c->findings.items[i];
        if (strcmp(f->id, id) == 0 && f->severity == severity && strstr(f->subject, subject) &&
            strstr(f->cause, cause))
            return true;
    }
    for (size_t i = 0; i < c->findings.n; i++)
        print_error("%s %s: %s\n", c->findings.items[i].id, c->findings.items[i].subject,
                    c->findings.items[i].cause);
    return false;
}

static void node(const struct tmp_tree *t, const char *path, unsigned major_, unsigned minor_)
{
    tmp_tree_file(t, path, "");
    auto_free char *full = tmp_tree_path(t, path);
    unlink(full);
    if (mknod(full, S_IFCHR | 0666, makedev(major_, minor_)) < 0)
        tmp_tree_file(t, path, ""); /* not permitted: the test looks at what can be seen */
}

static bool is_node(const struct tmp_tree *t, const char *path)
{
    auto_free char *full = tmp_tree_path(t, path);
    struct stat st;
    return stat(full, &st) == 0 && S_ISCHR(st.st_mode);
}

static void a_sound_host(void **state)
{
    struct tmp_tree t;
    struct checked c;
    const char *const names[] = { "nvidia.com/gpu=0" };
    tmp_tree_init(&t);
    node(&t, "/dev/nvidia0", 195, 0);
    tmp_tree_file(&t, "/usr/lib64/libcuda.so.580.1.1", "");
    tmp_tree_file(&t, "/usr/bin/hook", "");
    auto_free char *hook = tmp_tree_path(&t, "/usr/bin/hook");
    assert_int_equal(chmod(hook, 0755), 0);
    tmp_tree_file(&t, "/var/run/cdi/nvidia.json",
                  GPU("0",
                      "{\"deviceNodes\":[{\"path\":\"/dev/nvidia0\",\"major\":195}],\"mounts\":[{"
                      "\"hostPath\":\"/usr/lib64/libcuda.so.580.1.1\",\"containerPath\":\"/x\"}],"
                      "\"hooks\":[{\"hookName\":\"prestart\",\"path\":\"/usr/bin/hook\"}]}"));
    check(&c, &t, names, 1, "580.1.1");
    assert_int_equal(c.findings.n, is_node(&t, "/dev/nvidia0") ? 0 : 1);
    arena_done(&c.arena);
    tmp_tree_done(&t);
}

static void what_is_gone(void **state)
{
    struct tmp_tree t;
    struct checked c;
    tmp_tree_init(&t);
    tmp_tree_file(&t, "/dev/file", "");
    tmp_tree_file(&t, "/usr/bin/text", "");
    tmp_tree_link(&t, "/usr/lib64/link", "/nowhere");
    tmp_tree_file(
        &t, "/etc/cdi/a.json",
        GPU("0",
            "{\"deviceNodes\":[{\"path\":\"/dev/none\"},{\"path\":\"/dev/later\",\"type\":\"c\","
            "\"major\":1},{\"path\":\"/dev/x\",\"hostPath\":\"/dev/file\"}],\"mounts\":[{"
            "\"hostPath\":\"/usr/lib64/link\",\"containerPath\":\"/a\"},{\"hostPath\":"
            "\"/lib/libcuda.so.550.1.1\",\"containerPath\":\"/b\"}],\"hooks\":[{\"hookName\":"
            "\"prestart\",\"path\":\"/usr/bin/none\"},{\"hookName\":\"prestart\",\"path\":"
            "\"/usr/bin/none\"},{\"hookName\":\"prestart\",\"path\":\"/usr/bin/text\"}]}"));
    check(&c, &t, NULL, 0, "580.1.1");
    assert_true(told(&c, "cdi.missing-node", SEVERITY_ERROR, "/dev/none", "do not start"));
    assert_true(told(&c, "cdi.missing-node", SEVERITY_WARNING, "/dev/later", "engines make it"));
    assert_true(told(&c, "cdi.missing-node", SEVERITY_ERROR, "/dev/file", "no device node"));
    assert_true(told(&c, "cdi.missing-file", SEVERITY_ERROR, "a.json",
                     "2 of the files it mounts are not on the host: /usr/lib64/link, "
                     "/lib/libcuda.so.550.1.1"));
    assert_true(told(&c, "cdi.missing-hook", SEVERITY_ERROR, "/usr/bin/none", "no such file"));
    assert_true(told(&c, "cdi.missing-hook", SEVERITY_ERROR, "/usr/bin/text", "no executable"));
    assert_true(told(&c, "cdi.stale-driver", SEVERITY_ERROR, "a.json", "550.1.1"));
    assert_int_equal(c.findings.n, 7);
    arena_done(&c.arena);
    /* without a loaded driver there is nothing to compare with */
    check(&c, &t, NULL, 0, "");
    assert_int_equal(c.findings.n, 6);
    arena_done(&c.arena);
    tmp_tree_done(&t);
}

/* The major of nvidia-uvm is another after each load of the driver. */
static void numbers_changed(void **state)
{
    struct tmp_tree t;
    struct checked c;
    tmp_tree_init(&t);
    node(&t, "/dev/nvidia-uvm", 238, 0);
    if (!is_node(&t, "/dev/nvidia-uvm")) {
        tmp_tree_done(&t);
        skip();
    }
    tmp_tree_file(&t, "/etc/cdi/a.json",
                  GPU("0", "{\"deviceNodes\":[{\"path\":\"/dev/nvidia-uvm\",\"major\":510}]}"));
    check(&c, &t, NULL, 0, "");
    assert_true(told(&c, "cdi.node-changed", SEVERITY_ERROR, "/dev/nvidia-uvm",
                     "says 510:0, the node is 238:0"));
    arena_done(&c.arena);
    tmp_tree_done(&t);
}

/* B-074, and files that some engines cannot read. */
static void which_file_counts(void **state)
{
    struct tmp_tree t;
    struct checked c;
    tmp_tree_init(&t);
    tmp_tree_file(&t, "/etc/cdi/old.json", GPU("0", FINE));
    tmp_tree_file(&t, "/var/run/cdi/new.json", GPU("0", FINE));
    tmp_tree_file(&t, "/var/run/cdi/x.json", GPU("1", FINE));
    tmp_tree_file(&t, "/var/run/cdi/y.json", GPU("1", FINE));
    tmp_tree_file(&t, "/var/run/cdi/nvidia.yml", GPU("2", FINE));
    auto_free char *private = tmp_tree_path(&t, "/var/run/cdi/new.json");
    assert_int_equal(chmod(private, 0600), 0);
    check(&c, &t, NULL, 0, "");
    assert_true(told(&c, "cdi.shadowed", SEVERITY_INFO, "nvidia.com/gpu=0", "new.json counts"));
    assert_true(told(&c, "cdi.conflict", SEVERITY_ERROR, "nvidia.com/gpu=1", "y.json"));
    assert_true(told(&c, "cdi.private", SEVERITY_WARNING, "new.json", "0600"));
    assert_true(told(&c, "cdi.ignored-file", SEVERITY_WARNING, "nvidia.yml", ".yaml"));
    assert_int_equal(c.findings.n, 4);
    arena_done(&c.arena);
    tmp_tree_done(&t);
}

/* B-065: the kind exists, the name does not. */
static void names_that_do_not_resolve(void **state)
{
    struct tmp_tree t;
    struct checked c;
    const char *const names[] = { "management.nvidia.com/gpu=GPU-1", "nvidia.com/gpu=0", "x",
                                  "management.nvidia.com/gpu=all" };
    tmp_tree_init(&t);
    tmp_tree_file(&t, "/var/run/cdi/m.json", SPEC("management.nvidia.com/gpu", "all", FINE));
    check(&c, &t, names, ARRAY_LEN(names), "");
    assert_true(
        told(&c, "cdi.unresolvable", SEVERITY_ERROR, names[0],
             "kind management.nvidia.com/gpu exists, but has no such name; available: all"));
    assert_true(told(&c, "cdi.unresolvable", SEVERITY_ERROR, names[1],
                     "no file has the kind nvidia.com/gpu; kinds there are: "
                     "management.nvidia.com/gpu"));
    assert_true(told(&c, "cdi.unresolvable", SEVERITY_ERROR, names[2], "no CDI name"));
    assert_int_equal(c.findings.n, 3);
    arena_done(&c.arena);
    tmp_tree_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_host),
        cmocka_unit_test(what_is_gone),
        cmocka_unit_test(numbers_changed),
        cmocka_unit_test(which_file_counts),
        cmocka_unit_test(names_that_do_not_resolve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
