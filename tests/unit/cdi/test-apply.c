/* SPDX-License-Identifier: Apache-2.0 */
/* What CDI devices do to an OCI runtime config. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/mem.h"
#include "cdi/apply.h"
#include "tree.h"

enum { ARENA = 64 * 1024 * 1024 };

#define SPEC(common, ...)                                                                          \
    "{\"cdiVersion\":\"1.1.0\",\"kind\":\"v.org/c\",\"containerEdits\":" common                    \
    ",\"devices\":[" __VA_ARGS__ "]}"
#define DEVICE(name, edits) "{\"name\":\"" name "\",\"containerEdits\":" edits "}"

/* Applies names (parted by blanks) of one spec to a config; the result as compact JSON, or the
 * error's text. */
static int applied(const struct tmp_tree *t, const char *config, const char *names, struct buf *out)
{
    auto_arena a, notes;
    struct findings f;
    struct cdi_registry *r;
    struct value *oci;
    struct error err;
    const char *list[8];
    size_t n = 0;
    auto_free char *dir = tmp_tree_path(t, "/cdi"), *words = x_strdup(names);
    const char *const dirs[] = { dir };
    const struct cdi_apply_options o = { .root = t->dir };
    arena_init(&a, ARENA);
    arena_init(&notes, ARENA);
    findings_init(&f, &notes, 100);
    for (char *w = words; *w; n++) {
        list[n] = w;
        w += strcspn(w, " ");
        if (*w)
            *w++ = '\0';
    }
    if (cdi_registry_load(dirs, 1, &r, &f, &err) < 0 || f.n > 0)
        fail_msg("%s", f.n ? f.items[0].cause : err.text);
    if (json_parse(&a, str_of(config), "config", &doc_limits_default, &oci, &err) < 0)
        fail_msg("%s", err.text);
    int rc = cdi_apply(&a, oci, r, list, n, &o, &err);
    struct json_writer w;
    jw_init(&w, out, 0);
    if (rc == 0)
        jw_value(&w, oci);
    else
        buf_z(out, err.text);
    cdi_registry_free(r);
    return rc;
}

static const struct {
    const char *what, *spec, *config, *names, *expected;
} cases[] = {
    { "variables: same name replaced, also of the common part",
      SPEC("{\"env\":[\"C=1\",\"A=c\"]}",
           DEVICE("a", "{\"env\":[\"A=d\"]}") "," DEVICE("b", "{\"env\":[\"B=e\"]}")),
      "{\"process\":{\"env\":[\"A=old\",\"AB=kept\",\"X=y\"]}}", "v.org/c=a v.org/c=b",
      "{\"process\":{\"env\":[\"AB=kept\",\"X=y\",\"C=1\",\"A=d\",\"B=e\"]}}" },
    { "variables: a config without any",
      SPEC("{\"env\":[\"C=1\"]}", DEVICE("a", "{\"env\":[\"A=\"]}")), "{}", "v.org/c=a",
      "{\"process\":{\"env\":[\"C=1\",\"A=\"]}}" },
    { "nodes: numbers given, owner of the process, rule for the cgroup",
      SPEC("{}", DEVICE("a", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"type\":\"c\",\"major\":195,"
                             "\"minor\":3,\"fileMode\":438,\"permissions\":\"rw\"}]}")),
      "{\"process\":{\"user\":{\"uid\":7,\"gid\":0}},\"linux\":{\"devices\":[{\"path\":\"/dev/a\","
      "\"type\":\"b\"},{\"path\":\"/dev/"
      "z\",\"type\":\"c\"}],\"resources\":{\"devices\":[{\"allow\":"
      "false,\"access\":\"rwm\"}]}}}",
      "v.org/c=a",
      "{\"process\":{\"user\":{\"uid\":7,\"gid\":0}},\"linux\":{\"devices\":[{\"path\":\"/dev/z\","
      "\"type\":\"c\"},{\"path\":\"/dev/"
      "a\",\"type\":\"c\",\"major\":195,\"minor\":3,\"fileMode\":438,"
      "\"uid\":7}],\"resources\":{\"devices\":[{\"allow\":false,\"access\":\"rwm\"},{\"allow\":"
      "true,"
      "\"type\":\"c\",\"major\":195,\"minor\":3,\"access\":\"rw\"}]}}}" },
    { "nodes: own ids, no permissions, pipes without numbers",
      SPEC("{}", DEVICE("a", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"type\":\"b\",\"major\":8,"
                             "\"uid\":1,\"gid\":2},{\"path\":\"/p\",\"type\":\"p\"},{\"path\":"
                             "\"/dev/n\",\"type\":\"c\",\"major\":1,\"permissions\":\"none\"}]}")),
      "{\"process\":{\"user\":{\"uid\":7,\"gid\":8}}}", "v.org/c=a",
      "{\"process\":{\"user\":{\"uid\":7,\"gid\":8}},\"linux\":{\"devices\":[{\"path\":\"/dev/a\","
      "\"type\":\"b\",\"major\":8,\"minor\":0,\"uid\":1,\"gid\":2},{\"path\":\"/p\",\"type\":\"p\","
      "\"uid\":7,\"gid\":8},{\"path\":\"/dev/n\",\"type\":\"c\",\"major\":1,\"minor\":0,\"uid\":7,"
      "\"gid\":8}],\"resources\":{\"devices\":[{\"allow\":true,\"type\":\"b\",\"major\":8,"
      "\"minor\":0,"
      "\"access\":\"rwm\"}]}}}" },
    { "mounts: same destination replaced, parents first",
      SPEC("{\"mounts\":[{\"hostPath\":\"/h/lib\",\"containerPath\":\"/usr/lib/"
           "x\",\"options\":[\"ro\"]}]}",
           DEVICE("a", "{\"mounts\":[{\"hostPath\":\"/h/etc\",\"containerPath\":\"/etc\",\"type\":"
                       "\"bind\"}]}")),
      "{\"mounts\":[{\"destination\":\"/usr/lib/x/deep\",\"source\":\"/s\"},{\"destination\":"
      "\"/usr/lib/x\",\"source\":\"/old\"},{\"destination\":\"/proc\",\"type\":\"proc\"}]}",
      "v.org/c=a",
      "{\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\"},{\"destination\":\"/"
      "etc\",\"type\":"
      "\"bind\",\"source\":\"/h/etc\"},{\"destination\":\"/usr/lib/x\",\"source\":\"/h/"
      "lib\",\"options\":"
      "[\"ro\"]},{\"destination\":\"/usr/lib/x/deep\",\"source\":\"/s\"}]}" },
    { "mounts: a user namespace maps ids of bind mounts, once",
      SPEC("{}",
           DEVICE("a", "{\"mounts\":[{\"hostPath\":\"/h\",\"containerPath\":\"/a\",\"options\":"
                       "[\"ro\",\"rbind\"]},{\"hostPath\":\"/h\",\"containerPath\":\"/b\","
                       "\"options\":[\"bind\",\"ridmap\"]},{\"hostPath\":\"tmpfs\","
                       "\"containerPath\":\"/c\",\"type\":\"tmpfs\"}]}")),
      "{\"linux\":{\"namespaces\":[{\"type\":\"mount\"},{\"type\":\"user\"}]}}", "v.org/c=a",
      "{\"linux\":{\"namespaces\":[{\"type\":\"mount\"},{\"type\":\"user\"}]},\"mounts\":["
      "{\"destination\":\"/a\",\"source\":\"/h\",\"options\":[\"ro\",\"rbind\",\"idmap\"]},"
      "{\"destination\":\"/b\",\"source\":\"/"
      "h\",\"options\":[\"bind\",\"ridmap\"]},{\"destination\":"
      "\"/c\",\"type\":\"tmpfs\",\"source\":\"tmpfs\"}]}" },
    { "hooks go behind those there are",
      SPEC("{\"hooks\":[{\"hookName\":\"createContainer\",\"path\":\"/"
           "h\",\"args\":[\"h\",\"x\"],\"env\":"
           "[\"A=b\"],\"timeout\":5}]}",
           DEVICE("a", "{\"hooks\":[{\"hookName\":\"poststop\",\"path\":\"/p\"}]}")),
      "{\"hooks\":{\"createContainer\":[{\"path\":\"/first\"}]}}", "v.org/c=a",
      "{\"hooks\":{\"createContainer\":[{\"path\":\"/first\"},{\"path\":\"/"
      "h\",\"args\":[\"h\",\"x\"],"
      "\"env\":[\"A=b\"],\"timeout\":5}],\"poststop\":[{\"path\":\"/p\"}]}}" },
    { "groups: no zero, none twice", SPEC("{}", DEVICE("a", "{\"additionalGids\":[0,44,5,44]}")),
      "{\"process\":{\"user\":{\"additionalGids\":[5]}}}", "v.org/c=a",
      "{\"process\":{\"user\":{\"additionalGids\":[5,44]}}}" },
    { "cache control and network devices",
      SPEC("{}",
           DEVICE("a", "{\"intelRdt\":{\"closID\":\"c\"},\"netDevices\":[{\"hostInterfaceName\":"
                       "\"eth1\",\"name\":\"e\"}]}")),
      "{}", "v.org/c=a",
      "{\"linux\":{\"intelRdt\":{\"closID\":\"c\"},\"netDevices\":{\"eth1\":{\"name\":\"e\"}}}}" },
    { "the common part once for two devices of a file",
      SPEC("{\"additionalGids\":[9],\"hooks\":[{\"hookName\":\"prestart\",\"path\":\"/once\"}]}",
           DEVICE("a", "{\"env\":[\"A=1\"]}") "," DEVICE("b", "{\"env\":[\"B=1\"]}")),
      "{}", "v.org/c=b v.org/c=a",
      "{\"hooks\":{\"prestart\":[{\"path\":\"/"
      "once\"}]},\"process\":{\"user\":{\"additionalGids\":[9]},"
      "\"env\":[\"B=1\",\"A=1\"]}}" },
    { "an unknown name: nothing is applied", SPEC("{}", DEVICE("a", "{\"env\":[\"A=1\"]}")), "{}",
      "v.org/c=a v.org/c=b w.org/x=1", "no CDI file defines v.org/c=b, w.org/x=1" },
    { "a config that cannot take it", SPEC("{}", DEVICE("a", "{\"env\":[\"A=1\"]}")),
      "{\"process\":[]}", "v.org/c=a",
      "apply CDI device v.org/c=a: \"process\": expected a map, found a list" },
    { "a node that is not there",
      SPEC("{}", DEVICE("a", "{\"deviceNodes\":[{\"path\":\"/dev/none\"}]}")), "{}", "v.org/c=a",
      "/dev/none of v.org/c=a" },
    { "a node that is a link",
      SPEC("{}", DEVICE("a", "{\"deviceNodes\":[{\"path\":\"/dev/link\"}]}")), "{}", "v.org/c=a",
      "a symbolic link" },
    { "a node that is a file",
      SPEC("{}", DEVICE("a", "{\"deviceNodes\":[{\"path\":\"/dev/file\"}]}")), "{}", "v.org/c=a",
      "expected a device node" },
};

static void configs(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tmp_tree t;
        auto_buf out;
        buf_init(&out, 1024 * 1024);
        tmp_tree_init(&t);
        tmp_tree_file(&t, "/cdi/spec.json", cases[i].spec);
        tmp_tree_file(&t, "/dev/file", "");
        tmp_tree_link(&t, "/dev/link", "/dev/null");
        int r = applied(&t, cases[i].config, cases[i].names, &out);
        bool wanted = cases[i].expected[0] == '{';
        if (wanted != (r == 0) || !strstr(out.p, cases[i].expected) ||
            (wanted && strcmp(out.p, cases[i].expected) != 0))
            fail_msg("%s: %s\n expected %s", cases[i].what, out.p, cases[i].expected);
        tmp_tree_done(&t);
    }
}

/* Numbers that the file leaves out are read off the host's node. */
static void numbers_of_the_host(void **state)
{
    struct tmp_tree t;
    auto_buf out;
    tmp_tree_init(&t);
    auto_free char *path = tmp_tree_path(&t, "/dev/real");
    tmp_tree_file(&t, "/dev/x", "");
    if (mknod(path, S_IFCHR | 0600, makedev(195, 9)) < 0) {
        tmp_tree_done(&t);
        skip();
    }
    tmp_tree_file(
        &t, "/cdi/a.json",
        SPEC("{}",
             DEVICE(
                 "a",
                 "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"hostPath\":"
                 "\"/dev/real\",\"permissions\":\"r\"}]}") "," DEVICE("b",
                                                                      "{\"deviceNodes\":[{\"path\":"
                                                                      "\"/dev/a\",\"hostPath\":"
                                                                      "\"/dev/"
                                                                      "real\",\"type\":\"b\"}]}")));
    buf_init(&out, 1024 * 1024);
    assert_int_equal(applied(&t, "{}", "v.org/c=a", &out), 0);
    assert_string_equal(
        out.p, "{\"linux\":{\"devices\":[{\"path\":\"/dev/a\",\"type\":\"c\",\"major\":195,"
               "\"minor\":9}],\"resources\":{\"devices\":[{\"allow\":true,\"type\":\"c\","
               "\"major\":195,\"minor\":9,\"access\":\"r\"}]}}}");
    buf_reset(&out);
    assert_int_equal(applied(&t, "{}", "v.org/c=b", &out), -ERR_CONFLICT);
    tmp_tree_done(&t);
}

static void conflicts_are_refused(void **state)
{
    struct tmp_tree t;
    auto_arena a;
    struct findings f;
    struct cdi_registry *r;
    struct value oci = { .kind = VALUE_MAP };
    struct error err;
    tmp_tree_init(&t);
    tmp_tree_file(&t, "/cdi/a.json", SPEC("{}", DEVICE("a", "{\"env\":[\"A=1\"]}")));
    tmp_tree_file(&t, "/cdi/b.json", SPEC("{}", DEVICE("a", "{\"env\":[\"A=1\"]}")));
    auto_free char *dir = tmp_tree_path(&t, "/cdi");
    const char *const dirs[] = { dir }, *const names[] = { "v.org/c=a" };
    const struct cdi_apply_options o = { .root = "" };
    arena_init(&a, ARENA);
    findings_init(&f, &a, 10);
    assert_int_equal(cdi_registry_load(dirs, 1, &r, &f, &err), 0);
    assert_int_equal(cdi_apply(&a, &oci, r, names, 1, &o, &err), -ERR_CONFLICT);
    assert_int_equal(oci.n, 0);
    cdi_registry_free(r);
    tmp_tree_done(&t);
}

static void every_allocation_may_fail(void **state)
{
    struct tmp_tree t;
    struct findings f;
    struct cdi_registry *r;
    struct error err;
    auto_arena notes;
    tmp_tree_init(&t);
    tmp_tree_file(
        &t, "/cdi/a.json",
        SPEC("{\"mounts\":[{\"hostPath\":\"/h\",\"containerPath\":\"/a\",\"options\":[\"bind\"]}]}",
             DEVICE("a", "{\"env\":[\"A=1\"],\"additionalGids\":[4],\"deviceNodes\":[{\"path\":"
                         "\"/dev/a\",\"type\":\"c\",\"major\":1}],\"hooks\":[{\"hookName\":"
                         "\"prestart\",\"path\":\"/x\"}]}")));
    auto_free char *dir = tmp_tree_path(&t, "/cdi");
    const char *const dirs[] = { dir }, *const names[] = { "v.org/c=a" };
    const struct cdi_apply_options o = { .root = "" };
    arena_init(&notes, ARENA);
    findings_init(&f, &notes, 10);
    assert_int_equal(cdi_registry_load(dirs, 1, &r, &f, &err), 0);
    int rc = -1;
    for (size_t limit = 0; rc != 0; limit += 16) {
        auto_arena a;
        struct value oci = { .kind = VALUE_MAP };
        assert_true(limit < 1000000);
        arena_init(&a, limit);
        rc = cdi_apply(&a, &oci, r, names, 1, &o, &err);
        assert_true(rc == 0 || rc == -ERR_LIMIT);
    }
    cdi_registry_free(r);
    tmp_tree_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs),
        cmocka_unit_test(numbers_of_the_host),
        cmocka_unit_test(conflicts_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
