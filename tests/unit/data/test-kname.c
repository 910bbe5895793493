/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "data/kname.h"

typedef int check_fn(struct str, struct error *);

#define X10 "xxxxxxxxxx"
#define X60 X10 X10 X10 X10 X10 X10

static void test_names(void **state)
{
    static const struct {
        check_fn *check;
        const char *in;
        bool ok;
    } cases[] = {
        { kname_dns1123_label, "a-1", true },
        { kname_dns1123_label, "1", true },
        { kname_dns1123_label, "", false },
        { kname_dns1123_label, "-a", false },
        { kname_dns1123_label, "a-", false },
        { kname_dns1123_label, "A", false },
        { kname_dns1123_label, "a.b", false },
        { kname_dns1123_label, X60 "xxx", true },
        { kname_dns1123_label, X60 "xxxx", false },
        { kname_dns1123_subdomain, "mig-1g.10gb.me", true },
        { kname_dns1123_subdomain, "a..b", false },
        { kname_dns1123_subdomain, "a.", false },
        { kname_dns1123_subdomain, ".a", false },
        { kname_dns1123_subdomain, "a.-b", false },
        { kname_dns1123_subdomain, "a_b", false },
        { kname_dns1123_subdomain, X60 X60 X60 X60 X10 "xxx", true },
        { kname_dns1123_subdomain, X60 X60 X60 X60 X10 "xxxx", false },
        { kname_qualified, "nvidia.com/gpu", true },
        { kname_qualified, "gpu", true },
        { kname_qualified, "nvidia.com/A_b.c-D", true },
        { kname_qualified, "nvidia.com/", false },
        { kname_qualified, "/gpu", false },
        { kname_qualified, "a/b/c", false },
        { kname_qualified, "NVIDIA.com/gpu", false },
        { kname_qualified, "nvidia.com/_a", false },
        { kname_qualified, "nvidia.com/mig-1g.5gb+me", false },
        { kname_qualified, "nvidia.com/" X60 "xxx", true },
        { kname_qualified, "nvidia.com/" X60 "xxxx", false },
        { kname_extended_resource, "nvidia.com/gpu.shared", true },
        { kname_extended_resource, "gpu", false },
        { kname_extended_resource, "kubernetes.io/gpu", false },
        { kname_extended_resource, "a.kubernetes.io/gpu", false },
        { kname_extended_resource, "notkubernetes.io/gpu", true },
        { kname_extended_resource, "requests.nvidia.com/gpu", false },
        { kname_label_value, "", true },
        { kname_label_value, "NVIDIA-H100_80.x", true },
        { kname_label_value, "-x", false },
        { kname_label_value, "a b", false },
        { kname_label_value, X60 "xxxx", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = { 0 };
        int r = cases[i].check(str_of(cases[i].in), &e);
        if (r != (cases[i].ok ? 0 : -ERR_INVALID))
            fail_msg("case %zu \"%s\": %d %s", i, cases[i].in, r, e.text);
        assert_true(cases[i].ok || e.text[0]);
    }
    struct error e;
    assert_int_equal(kname_label_value((struct str){ "a\0b", 3 }, &e), -ERR_INVALID);
    assert_int_equal(kname_dns1123_label((struct str){ NULL, 0 }, NULL), -ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
