/* SPDX-License-Identifier: Apache-2.0 */
/* B-173: memory of gpus that the host counts as its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "gpu/memorynodes.h"

struct bed {
    char dir[40];
    struct host host;
    struct memory_node nodes[MEMORY_NODES_MAX];
    size_t n;
};

static void put(const struct bed *b, const char *name, const char *text)
{
    struct error err;
    auto_free char *path = x_printf("%s/sys/devices/system/node/%s", b->dir, name);
    auto_free char *dir = x_strndup(path, (size_t)(strrchr(path, '/') - path));
    assert_int_equal(dir_make(dir, 0755, &err), 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void begin(struct bed *b)
{
    struct error err;
    *b = (struct bed){ .dir = "/tmp/mete-nodes-XXXXXX" };
    assert_non_null(mkdtemp(b->dir));
    assert_int_equal(host_init(&b->host, &(struct host_config){ .root = b->dir }, &err), 0);
}

static void end(struct bed *b)
{
    auto_free char *command = x_printf("rm -rf '%s'", b->dir);
    host_done(&b->host);
    assert_int_equal(system(command), 0);
}

static void put_grace(const struct bed *b)
{
    put(b, "node0/cpulist", "0-71\n");
    put(b, "node0/meminfo", "Node 0 MemTotal:       502345728 kB\nNode 0 MemFree: 1 kB\n");
    put(b, "node10/cpulist", "\n");
    put(b, "node10/meminfo", "Node 10 MemTotal:              0 kB\n");
    put(b, "node1/cpulist", "\n");
    put(b, "node1/meminfo", "Node 1 MemTotal:       98304000 kB\n");
    put(b, "nodes/cpulist", "");
    put(b, "online", "0-1,10\n");
}

static void look(void **state)
{
    struct bed b;
    begin(&b);
    assert_int_equal(memory_nodes(&b.host, b.nodes, MEMORY_NODES_MAX), 0);
    put_grace(&b);
    b.n = memory_nodes(&b.host, b.nodes, MEMORY_NODES_MAX);
    assert_int_equal(b.n, 3);
    assert_int_equal(b.nodes[0].number, 0);
    assert_true(b.nodes[0].has_cpus);
    assert_int_equal(b.nodes[1].number, 1);
    assert_false(b.nodes[1].has_cpus);
    assert_true(b.nodes[1].bytes == UINT64_C(98304000) * 1024);
    assert_int_equal(b.nodes[2].number, 10);
    assert_true(b.nodes[2].bytes == 0);
    assert_int_equal(memory_nodes(&b.host, b.nodes, 1), 1);
    end(&b);
}

static void notes(void **state)
{
    static const struct {
        uint32_t valid, addressing;
        bool grace;
        const char *says, *not_says; /* says NULL: nothing */
    } cases[] = {
        { 0, 0, true, NULL, NULL },
        { GPU_HAS_ADDRESSING, 1, true, NULL, NULL },
        { GPU_HAS_ADDRESSING, 2, true, "(1: 96000 MiB)", "cannot be switched" },
        { GPU_HAS_ADDRESSING, 2, true, "NVreg_CoherentGPUMemoryMode=driver", "10" },
        { GPU_HAS_ADDRESSING, 2, false, NULL, NULL }, /* driver mode */
        { GPU_HAS_ADDRESSING | GPU_UNIFIED, 2, false, "cannot be switched", "NVreg" },
        { GPU_UNIFIED, 0, true, "cannot be switched", "NVreg" },
    };
    struct bed b;
    begin(&b);
    put_grace(&b);
    b.n = memory_nodes(&b.host, b.nodes, MEMORY_NODES_MAX);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[400];
        const struct gpu g = { .valid = cases[i].valid, .addressing = cases[i].addressing };
        bool said = memory_note(&g, b.nodes, cases[i].grace ? b.n : 1, text, sizeof text);
        assert_int_equal(said, cases[i].says != NULL);
        if (!said)
            continue;
        if (!strstr(text, cases[i].says) || strstr(text, cases[i].not_says))
            fail_msg("case %zu: %s", i, text);
    }
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(look), cmocka_unit_test(notes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
