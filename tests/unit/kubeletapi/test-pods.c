/* SPDX-License-Identifier: Apache-2.0 */
/* Pods: their cgroups, their names. */
#include <sys/stat.h>

#include "kubeletapi-help.h"

#define UID        "6b1f3c0e-7d1c-4f9e-9a5e-0d8f5c2b7a10"
#define UID_       "6b1f3c0e_7d1c_4f9e_9a5e_0d8f5c2b7a10"
#define STATIC_UID "0123456789abcdef0123456789abcdef"

static struct in_use *with_pods(struct device_use *uses, size_t n)
{
    struct in_use *u = in_use_new();
    for (size_t i = 0; i < n; i++) {
        uses[i].resource = "nvidia.com/gpu";
        uses[i].id = "GPU-a";
        uses[i].pod_name = uses[i].pod_name ? uses[i].pod_name : "";
        uses[i].pod_namespace = uses[i].pod_namespace ? uses[i].pod_namespace : "";
    }
    u->uses = uses;
    u->n = n;
    return u;
}

static void pods_with_and_without_cgroup(void **state)
{
    enum { ALIVE, GONE, UNPROVED };
    static const struct {
        const char *dir, *uid; /* dir NULL: no cgroup tree at all */
        int is;
    } cases[] = {
        { "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_ ".slice", UID,
          ALIVE },
        { "/kubepods.slice/kubepods-pod" UID_ ".slice", UID, ALIVE },
        { "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" STATIC_UID ".slice",
          STATIC_UID, ALIVE },
        { "/kubepods/burstable/pod" UID, UID, ALIVE },
        { "/kubepods/pod" UID, UID, ALIVE },
        { "/memory/kubepods/besteffort/pod" UID, UID, ALIVE }, /* v1 */
        { "/systemd/kubepods.slice/kubepods-pod" UID_ ".slice", UID, ALIVE },
        { "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" UID_ ".slice", UID, ALIVE },
        { "/kubepods.slice/kubepods-burstable.slice", UID, GONE },
        { "/kubepods.slice/kubepods-pod" UID_ "x.slice", UID, GONE },
        { "/kubepods/podx" UID, UID, GONE },
        { "/kubepods/burstable", UID, GONE },
        { "/system.slice/containerd.service", UID, UNPROVED }, /* kubelet's tree is not in view */
        { "/kubepods.slice/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", UID, UNPROVED },
        { NULL, UID, UNPROVED },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct host h;
        struct error err = { 0 };
        char *root = temp_dir();
        host_at(&h, root);
        struct device_use uses[] = { { .pod_uid = cases[i].uid }, { .pod_uid = "" } };
        struct in_use *u = with_pods(uses, 2);
        auto_free char *sub = cases[i].dir ? x_printf("/sys/fs/cgroup%s", cases[i].dir) : NULL;
        if (sub)
            make_dir(root, sub);
        int r = pods_gone_mark(&h, u, &err);
        int is = r < 0 ? UNPROVED : uses[0].pod_gone ? GONE : ALIVE;
        if (is != cases[i].is)
            fail_msg("%s: %d %s", cases[i].dir, is, err.text);
        assert_true(r == 0 || !uses[0].pod_gone);
        assert_false(uses[1].pod_gone); /* no uid: nothing can be proved */
        assert_true(use_holds(&uses[0]) == (is != GONE));
        in_use_free(u);
        host_done(&h);
        remove_dir(root);
    }
}

static void unreadable_tree_proves_nothing(void **state)
{
    if (geteuid() == 0) /* root reads everything: take a link to nowhere as the tree */
        print_message("as root: a tree that is no directory instead of an unreadable one\n");
    struct host h;
    struct error err;
    char *root = temp_dir();
    host_at(&h, root);
    struct device_use uses[] = { { .pod_uid = UID } };
    struct in_use *u = with_pods(uses, 1);
    if (geteuid() == 0) {
        make_dir(root, "/sys/fs");
        auto_free char *dir = x_printf("%s/sys/fs", root);
        put_file(dir, "cgroup", "");
    } else {
        make_dir(root, "/sys/fs/cgroup/kubepods/burstable");
        auto_free char *dir = x_printf("%s/sys/fs/cgroup/kubepods/burstable", root);
        assert_int_equal(chmod(dir, 0), 0);
    }
    assert_true(pods_gone_mark(&h, u, &err) < 0);
    assert_false(uses[0].pod_gone);
    in_use_free(u);
    host_done(&h);
    remove_dir(root);
}

/* Several pods, of which some have the device more than once. */
static void each_pod_is_told_apart(void **state)
{
    struct host h;
    struct error err;
    char *root = temp_dir();
    host_at(&h, root);
    make_dir(root, "/sys/fs/cgroup/kubepods/pod-b");
    make_dir(root, "/sys/fs/cgroup/kubepods/podb/podc"); /* below a pod there are no pods */
    make_dir(root, "/sys/fs/cgroup/kubepods/burstable/podd");
    struct device_use uses[] = { { .pod_uid = "d" }, { .pod_uid = "a" }, { .pod_uid = "b" },
                                 { .pod_uid = "c" }, { .pod_uid = "a" }, { .pod_uid = "d" } };
    struct in_use *u = with_pods(uses, ARRAY_LEN(uses));
    assert_int_equal(pods_gone_mark(&h, u, &err), 0);
    for (size_t i = 0; i < u->n; i++)
        assert_int_equal(uses[i].pod_gone, strchr("ac", uses[i].pod_uid[0]) != NULL);
    for (uint64_t k = 1; k < 20; k++) {
        mem_fail_at(k);
        int r = pods_gone_mark(&h, u, &err);
        assert_true(r == 0 || r == -ERR_LIMIT);
    }
    mem_fail_at(0);
    in_use_free(u);
    host_done(&h);
    remove_dir(root);
}

static void names_from_log_directories(void **state)
{
    static const char *const dirs[] = {
        "default_trainer_u-1", "kube-system_x_u-2", "nonsense", "a_b", "__u-3", "ns_name_",
        "ns_name_u-9"
    };
    struct host h;
    char *root = temp_dir();
    host_at(&h, root);
    struct device_use uses[] = {
        { .pod_uid = "u-2" }, { .pod_uid = "u-1" },
        { .pod_uid = "u-3" }, { .pod_uid = "u-1" },
        { .pod_uid = "" },    { .pod_uid = "u-9", .pod_name = "kept", .pod_namespace = "k" }
    };
    struct in_use *u = with_pods(uses, ARRAY_LEN(uses));
    pods_name(&h, u); /* no such directory */
    assert_string_equal(uses[0].pod_name, "");
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        auto_free char *sub = x_printf("/var/log/pods/%s", dirs[i]);
        make_dir(root, sub);
    }
    pods_name(&h, u);
    assert_string_equal(uses[0].pod_name, "x");
    assert_string_equal(uses[0].pod_namespace, "kube-system");
    assert_string_equal(uses[1].pod_name, "trainer");
    assert_string_equal(uses[3].pod_namespace, "default");
    assert_string_equal(uses[2].pod_name, "");
    assert_string_equal(uses[4].pod_name, "");
    assert_string_equal(uses[5].pod_name, "kept");
    in_use_free(u);
    host_done(&h);
    remove_dir(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pods_with_and_without_cgroup),
        cmocka_unit_test(unreadable_tree_proves_nothing),
        cmocka_unit_test(each_pod_is_told_apart),
        cmocka_unit_test(names_from_log_directories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
