/* SPDX-License-Identifier: Apache-2.0 */
/* CDI files as a container engine reads them, and what is said of those that it does not take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cdi/registry.h"
#include "data/yaml.h"
#include "tree.h"

enum { ARENA = 16 * 1024 * 1024 };

static void names(void **state)
{
    static const struct {
        const char *name;
        bool valid;
    } cases[] = {
        { "nvidia.com/gpu=0", true },
        { "nvidia.com/gpu=0:1", true },
        { "k8s.device-plugin.nvidia.com/gpu=GPU-1", true },
        { "v/c=a", true },
        { "v/c=MIG-GPU-1:2:0", true },
        { "v_1/c-2.x=a_b-c.d", true },
        { "nvidia.com/gpu=", false },
        { "nvidia.com/gpu", false },
        { "/gpu=0", false },
        { "nvidia.com/=0", false },
        { "1v/c=0", false },
        { "v/1c=0", false },
        { "v-/c=0", false },
        { "v/c-=0", false },
        { "v/c=0-", false },
        { "v/c=-0", false },
        { "v/c=a/b", false },
        { "v:x/c=a", false },
        { "v/c=a b", false },
        { "", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (cdi_name_valid(str_of(cases[i].name)) != cases[i].valid)
            fail_msg("%s", cases[i].name);
    assert_false(cdi_name_valid((struct str){ NULL, 0 }));
}

/* ---- one document ---- */

#define SPEC(version, device_name, edits, more)                                                    \
    "{\"cdiVersion\":\"" version "\",\"kind\":\"v.org/c\",\"devices\":[{\"name\":\"" device_name   \
    "\",\"containerEdits\":" edits "}]" more "}"
#define EDITS(version, edits) SPEC(version, "a", edits, "")

static const struct {
    const char *text, *cause; /* NULL: valid */
} documents[] = {
    { EDITS("0.3.0", "{\"env\":[\"A=b\"]}"), NULL },
    { EDITS("v0.3.0", "{\"env\":[\"A=\"]}"), NULL },
    { SPEC("0.5.0", "0", "{\"env\":[\"A=b\"]}", ""), NULL },
    { SPEC("0.3.0", "0", "{\"env\":[\"A=b\"]}", ""),
      "a name that begins with a digit needs 0.5.0" },
    { EDITS("0.5.0", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"hostPath\":\"/dev/b\"}]}"), NULL },
    { EDITS("0.3.0", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"hostPath\":\"/dev/b\"}]}"),
      "hostPath needs 0.5.0" },
    { EDITS("0.3.0", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"hostPath\":null}]}"), NULL },
    { EDITS("0.3.0", "{\"mounts\":[{\"hostPath\":\"/a\",\"containerPath\":\"/b\",\"type\":"
                     "\"bind\"}]}"),
      "type needs 0.4.0" },
    { EDITS("0.6.0", "{\"additionalGids\":[44]}"), "additionalGids needs 0.7.0" },
    { EDITS("0.7.0", "{\"additionalGids\":[44]}"), NULL },
    { EDITS("1.0.0", "{\"netDevices\":[{\"hostInterfaceName\":\"eth0\",\"name\":\"e\"}]}"),
      "netDevices needs 1.1.0" },
    { EDITS("1.1.0", "{\"netDevices\":[{\"hostInterfaceName\":\"eth0\",\"name\":\"e\"}]}"), NULL },
    { EDITS("1.1.0", "{\"netDevices\":[{\"name\":\"e\"}]}"), "\"hostInterfaceName\" is missing" },
    { EDITS("1.9.0", "{\"env\":[\"A=b\"]}"), "\"1.9.0\" is unknown" },
    { EDITS("", "{\"env\":[\"A=b\"]}"), "\"cdiVersion\" is missing or empty" },
    { EDITS("0.3.0", "{}"), "containerEdits of \"a\" are empty" },
    { EDITS("0.3.0", "{\"env\":[\"A\"]}"), "expected NAME=VALUE" },
    { EDITS("0.3.0", "{\"env\":[\"=b\"]}"), "expected NAME=VALUE" },
    { EDITS("0.3.0", "{\"env\":[\"\"]}"), "expected NAME=VALUE" },
    { EDITS("0.3.0", "{\"env\":[1]}"), "expected NAME=VALUE, found the number 1" },
    { EDITS("0.3.0", "{\"env\":\"A=b\"}"), "expected a list, found text" },
    { EDITS("0.3.0", "{\"enw\":[\"A=b\"]}"), "unknown key \"enw\", did you mean \"env\"?" },
    { EDITS("0.3.0", "{\"deviceNodes\":[{}]}"), "\"path\" is missing" },
    { EDITS("0.3.0", "{\"deviceNodes\":[7]}"), "expected a map, found the number 7" },
    { EDITS("0.3.0", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"type\":\"x\"}]}"),
      "\"x\" is none of b, c, u, p" },
    { EDITS("0.3.0", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"permissions\":\"rx\"}]}"),
      "\"rx\"" },
    { EDITS("0.3.0", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"permissions\":\"none\"}]}"), NULL },
    { EDITS("0.3.0", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"major\":-1}]}"), "major: found" },
    { EDITS("0.3.0", "{\"deviceNodes\":[{\"path\":\"/dev/a\",\"gid\":4294967296}]}"),
      "gid: found" },
    { EDITS("0.3.0", "{\"hooks\":[{\"hookName\":\"createcontainer\",\"path\":\"/x\"}]}"),
      "is no OCI hook" },
    { EDITS("0.3.0", "{\"hooks\":[{\"hookName\":\"prestart\",\"path\":\"\"}]}"),
      "\"path\" is missing or empty" },
    { EDITS("0.3.0", "{\"hooks\":[{\"hookName\":\"prestart\",\"path\":\"/x\",\"args\":[1]}]}"),
      "hooks.args: expected text" },
    { EDITS("0.3.0", "{\"mounts\":[{\"hostPath\":\"/a\"}]}"), "\"containerPath\" is missing" },
    { EDITS("0.3.0", "{\"mounts\":[{\"hostPath\":\"/a\",\"containerPath\":\"/b\",\"options\":"
                     "[true]}]}"),
      "mounts.options: expected text" },
    { EDITS("0.7.0", "{\"additionalGids\":[\"44\"]}"), "additionalGids: found text" },
    { EDITS("0.7.0", "{\"additionalGids\":[-1]}"), "additionalGids: found" },
    { SPEC("0.3.0", "a b", "{\"env\":[\"A=b\"]}", ""), "\"a b\" is no CDI name" },
    { "{\"cdiVersion\":\"0.3.0\",\"kind\":\"v.org\",\"devices\":[{\"name\":\"a\","
      "\"containerEdits\":{\"env\":[\"A=b\"]}}]}",
      "\"v.org\" is no vendor/class" },
    { "{\"cdiVersion\":\"0.3.0\",\"kind\":\"v.org/c.d\",\"devices\":[{\"name\":\"a\","
      "\"containerEdits\":{\"env\":[\"A=b\"]}}]}",
      "a dot in the class needs 0.6.0" },
    { "{\"cdiVersion\":\"0.3.0\",\"kind\":\"v.org/c\",\"devices\":[]}", "the list is empty" },
    { "{\"cdiVersion\":\"0.3.0\",\"kind\":\"v.org/c\"}", "\"devices\" is missing" },
    { "{\"cdiVersion\":\"0.3.0\",\"kind\":\"v.org/c\",\"devices\":[{\"name\":\"a\","
      "\"containerEdits\":{\"env\":[\"A=b\"]}},{\"name\":\"b\",\"containerEdits\":{\"env\":[\"A="
      "b\"]}}"
      ",{\"name\":\"a\",\"containerEdits\":{\"env\":[\"A=c\"]}}]}",
      "\"a\" stands twice" },
    { "{\"cdiVersion\":\"0.6.0\",\"kind\":\"v.org/c\",\"annotations\":{\"a.b/c\":\"d\"},"
      "\"devices\":[{\"name\":\"a\",\"containerEdits\":{\"env\":[\"A=b\"]}}]}",
      NULL },
    { "{\"cdiVersion\":\"0.6.0\",\"kind\":\"v.org/c\",\"annotations\":{\"a b\":\"d\"},"
      "\"devices\":[{\"name\":\"a\",\"containerEdits\":{\"env\":[\"A=b\"]}}]}",
      "\"a b\" is no key" },
    { "{\"cdiVersion\":\"0.6.0\",\"kind\":\"v.org/c\",\"devices\":[{\"name\":\"a\",\"annotations\":"
      "{\"k\":1},\"containerEdits\":{\"env\":[\"A=b\"]}}]}",
      "expected text, found the number 1" },
    { "[]", "expected a map, found a list" },
    { "7", "expected a map, found the number 7" },
    { "{\"devices\":{}}", "devices: expected a list" },
    { "{\"devices\":[null]}", "expected a map" },
    { "{\"devices\":[{\"name\":\"a\",\"containerEdits\":[]}]}", "expected a map, found a list" },
};

static void documents_are_checked(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
        auto_arena a;
        struct findings f;
        struct value *doc;
        struct error err;
        arena_init(&a, ARENA);
        findings_init(&f, &a, 100);
        assert_int_equal(
            yaml_parse(&a, str_of(documents[i].text), "f", &doc_limits_default, &doc, &err), 0);
        int r = cdi_validate(doc, "f", &f, &err);
        if (!documents[i].cause) {
            if (r < 0)
                fail_msg("%s: %s", documents[i].text, f.items[0].cause);
            continue;
        }
        assert_int_equal(r, -ERR_INVALID);
        bool said = false;
        for (size_t k = 0; k < f.n; k++) {
            said = said || strstr(f.items[k].cause, documents[i].cause);
            assert_int_equal(strncmp(f.items[k].subject, "f:1:", 4), 0);
        }
        if (!said)
            fail_msg("%s: %s", documents[i].text, f.items[0].cause);
    }
}

/* ---- folders ---- */

struct loaded {
    struct arena arena;
    struct findings findings;
    struct cdi_registry *registry;
};

static void load(struct loaded *l, const struct tmp_tree *t)
{
    auto_free char *etc = tmp_tree_path(t, "/etc/cdi"), *var = tmp_tree_path(t, "/var/run/cdi");
    const char *const dirs[] = { etc, var };
    struct error err;
    arena_init(&l->arena, ARENA);
    findings_init(&l->findings, &l->arena, 100);
    if (cdi_registry_load(dirs, 2, &l->registry, &l->findings, &err) < 0)
        fail_msg("%s", err.text);
}

static void unload(struct loaded *l)
{
    cdi_registry_free(l->registry);
    arena_done(&l->arena);
}

static const char *file_of(const struct loaded *l, const char *name)
{
    const struct cdi_found *f = cdi_registry_find(l->registry, str_of(name));
    return !f ? "none" : f->conflict ? "conflict" : strrchr(f->file, '/') + 1;
}

static bool told(const struct loaded *l, const char *id, const char *subject, const char *cause)
{
    for (size_t i = 0; i < l->findings.n; i++) {
        const struct finding *f = &l->findings.items[i];
        if (strcmp(f->id, id) == 0 && strstr(f->subject, subject) && strstr(f->cause, cause))
            return true;
    }
    return false;
}

/* /etc/cdi is missing: the other folder is read all the same (CDI 115). */
static void a_missing_folder(void **state)
{
    struct tmp_tree t;
    struct loaded l;
    tmp_tree_init(&t);
    tmp_tree_file(&t, "/var/run/cdi/a.json", EDITS("0.3.0", "{\"env\":[\"A=b\"]}"));
    load(&l, &t);
    assert_string_equal(file_of(&l, "v.org/c=a"), "a.json");
    assert_int_equal(l.findings.n, 0);
    unload(&l);
    tmp_tree_done(&t);
}

static void which_file_counts(void **state)
{
    struct tmp_tree t;
    struct loaded l;
    tmp_tree_init(&t);
    tmp_tree_file(
        &t, "/etc/cdi/old.json",
        SPEC("0.3.0", "a", "{\"env\":[\"A=1\"]}", ",\"containerEdits\":{\"env\":[\"C=1\"]}"));
    tmp_tree_file(&t, "/etc/cdi/other.yaml",
                  "cdiVersion: 0.3.0\nkind: v.org/c\ndevices:\n- name: b\n  containerEdits:\n    "
                  "env: [B=1]\n");
    tmp_tree_file(&t, "/etc/cdi/twice.json", SPEC("0.3.0", "x", "{\"env\":[\"A=1\"]}", ""));
    tmp_tree_file(&t, "/etc/cdi/twice2.json", SPEC("0.3.0", "x", "{\"env\":[\"A=2\"]}", ""));
    tmp_tree_file(&t, "/var/run/cdi/new.json", SPEC("0.3.0", "a", "{\"env\":[\"A=2\"]}", ""));
    tmp_tree_file(&t, "/var/run/cdi/c1.json", SPEC("0.3.0", "c", "{\"env\":[\"A=2\"]}", ""));
    tmp_tree_file(&t, "/var/run/cdi/c2.json", SPEC("0.3.0", "c", "{\"env\":[\"A=2\"]}", ""));
    tmp_tree_file(&t, "/var/run/cdi/x.json", SPEC("0.3.0", "x", "{\"env\":[\"A=3\"]}", ""));
    /* none of these is read */
    tmp_tree_file(&t, "/var/run/cdi/sub/d.json", SPEC("0.3.0", "d", "{\"env\":[\"A=2\"]}", ""));
    tmp_tree_file(&t, "/var/run/cdi/e.yml", SPEC("0.3.0", "e", "{\"env\":[\"A=2\"]}", ""));
    tmp_tree_file(&t, "/var/run/cdi/.f.json", SPEC("0.3.0", "f", "{\"env\":[\"A=2\"]}", ""));
    tmp_tree_file(&t, "/var/run/cdi/g.json.tmp", SPEC("0.3.0", "g", "{\"env\":[\"A=2\"]}", ""));
    load(&l, &t);
    assert_string_equal(file_of(&l, "v.org/c=a"), "new.json");
    assert_string_equal(file_of(&l, "v.org/c=b"), "other.yaml");
    assert_string_equal(file_of(&l, "v.org/c=c"), "conflict");
    assert_string_equal(file_of(&l, "v.org/c=x"), "x.json"); /* settled by the later folder */
    for (const char *n = "defg"; *n; n++) {
        char name[] = "v.org/c=?";
        name[8] = *n;
        assert_string_equal(file_of(&l, name), "none");
    }
    assert_int_equal(l.registry->n, 4);
    assert_int_equal(l.registry->n_all, 8);
    assert_int_equal(l.registry->n_files, 8);
    assert_true(l.registry->all[1].shadowed && !l.registry->all[0].shadowed);
    assert_true(told(&l, "cdi.conflict", "v.org/c=c", "c1.json"));
    assert_true(told(&l, "cdi.conflict", "v.org/c=x", "twice.json"));
    assert_int_equal(l.findings.n, 2);
    assert_null(cdi_registry_find(l.registry, str_of("v.org/c=a"))->common);
    unload(&l);
    tmp_tree_done(&t);
}

/* A broken file costs itself only. */
static void broken_files(void **state)
{
    struct tmp_tree t;
    struct loaded l;
    tmp_tree_init(&t);
    tmp_tree_file(&t, "/etc/cdi/a.json", EDITS("0.3.0", "{\"env\":[\"A=b\"]}"));
    tmp_tree_file(&t, "/etc/cdi/empty.json", "");
    tmp_tree_file(&t, "/etc/cdi/half.json", "{\"cdiVersion\":");
    tmp_tree_file(&t, "/etc/cdi/twice.json", "{\"kind\":\"a/b\",\"kind\":\"a/b\"}");
    tmp_tree_file(&t, "/etc/cdi/list.yaml", "- a\n- b\n");
    tmp_tree_file(&t, "/etc/cdi/key.yaml", "cdiVersion: 0.3.0\nkind: v.org/c\nDevices: []\n");
    tmp_tree_link(&t, "/etc/cdi/none.json", "/nowhere");
    tmp_tree_link(&t, "/etc/cdi/dir.json", "/");
    tmp_tree_link(&t, "/etc/cdi/zero.json", "/dev/zero");
    tmp_tree_file(&t, "/var/run/cdi", "a file in the place of the folder");
    load(&l, &t);
    assert_string_equal(file_of(&l, "v.org/c=a"), "a.json");
    assert_int_equal(l.registry->n, 1);
    assert_true(told(&l, "cdi.unreadable", "half.json", "half.json:"));
    assert_true(told(&l, "cdi.unreadable", "twice.json", "kind"));
    assert_true(told(&l, "cdi.invalid", "list.yaml:1:1", "expected a map, found a list"));
    assert_true(told(&l, "cdi.invalid", "key.yaml:3:", "unknown key \"Devices\""));
    assert_true(told(&l, "cdi.invalid", "empty.json", "expected a map"));
    assert_true(told(&l, "cdi.unreadable", "none.json", ""));
    assert_true(told(&l, "cdi.unreadable", "dir.json", ""));
    assert_true(told(&l, "cdi.unreadable", "zero.json", ""));
    assert_true(told(&l, "cdi.unreadable", "/var/run/cdi", ""));
    unload(&l);
    tmp_tree_done(&t);
}

static void every_allocation_may_fail(void **state)
{
    struct tmp_tree t;
    tmp_tree_init(&t);
    tmp_tree_file(&t, "/etc/cdi/a.json", EDITS("0.3.0", "{\"env\":[\"A=b\"]}"));
    tmp_tree_file(&t, "/etc/cdi/b.yaml",
                  "cdiVersion: 0.3.0\nkind: v.org/d\ndevices: [{name: a, "
                  "containerEdits: {env: [A=b]}}, {name: b, "
                  "containerEdits: {env: [A=b]}}]\n");
    auto_free char *etc = tmp_tree_path(&t, "/etc/cdi");
    const char *const dirs[] = { etc };
    size_t found = 0;
    for (uint64_t k = 1; found < 3; k++) {
        auto_arena a;
        struct findings f;
        struct cdi_registry *r = NULL;
        struct error err;
        assert_true(k < 1000);
        arena_init(&a, ARENA);
        findings_init(&f, &a, 100);
        mem_fail_at(k);
        int rc = cdi_registry_load(dirs, 1, &r, &f, &err);
        mem_fail_at(0);
        /* either it fails, or what is left out is told */
        assert_true(rc == -ERR_LIMIT ||
                    (rc == 0 && (r->n == 3 || findings_count(&f, SEVERITY_ERROR) > 0)));
        found = rc == 0 ? r->n : 0;
        cdi_registry_free(r);
    }
    tmp_tree_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(documents_are_checked),
        cmocka_unit_test(a_missing_folder),
        cmocka_unit_test(which_file_counts),
        cmocka_unit_test(broken_files),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
