/* SPDX-License-Identifier: Apache-2.0 */
/* What the host says for labels: machine type, PCI configuration space. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "gpu/hostfacts.h"
#include "make_survey.h"
#include "node/labels.h"

/* ---- configuration space ---- */

enum { CONFIG = 256, CAPABILITY = 0xd0 };

/* A function with one capability of `n` bytes at 0xd0. */
static void make_config(unsigned char c[CONFIG], const void *capability, size_t n)
{
    memset(c, 0, CONFIG);
    c[0x00] = 0xde;
    c[0x01] = 0x10;
    c[0x06] = 0x10;
    c[0x34] = CAPABILITY;
    memcpy(c + CAPABILITY, capability, n);
}

static void capabilities(void **state)
{
    static const struct {
        const char *what;
        const char capability[40];
        enum vgpu_state state;
        const char *version, *branch;
    } cases[] = {
        { "version record",
          "\x09\0\x1bVF\0\x16"
          "460.16\0\0\0\0r460_00\0\0",
          VGPU_GUEST, "460.16", "r460_00" },
        { "behind another record",
          "\x09\0\x1fVF\x07\x04\xff\xff\0\x16"
          "550.90.05\0r550_00\0\0",
          VGPU_GUEST, "550.90.05", "r550_00" },
        { "other vendor data", "\x09\0\x14\x01", VGPU_NONE, "", "" },
        { "other capability", "\x05\0\x1bVF", VGPU_NONE, "", "" },
        { "no record", "\x09\0\x05VF", VGPU_GUEST, "", "" },
        { "half a head", "\x09\0\x06VF\x01", VGPU_GUEST, "", "" },
        { "length 0", "\x09\0\x07VF\x01\0", VGPU_GUEST, "", "" },
        { "length 1", "\x09\0\x07VF\x01\x01", VGPU_GUEST, "", "" },
        { "length past the end", "\x09\0\x07VF\x01\xff", VGPU_GUEST, "", "" },
        { "version past the end", "\x09\0\x07VF\0\x16", VGPU_GUEST, "", "" },
        { "too short for letters", "\x09\0\x04VF", VGPU_NONE, "", "" },
        { "a chain that loops", "\x05\xd0\x10", VGPU_NONE, "", "" },
        { "a chain that is broken", "\xff\x40\x10", VGPU_NONE, "", "" },
        { "a chain to the end", "\x05\xff\x10", VGPU_NONE, "", "" },
    };
    char version[VGPU_TEXT_SIZE], branch[VGPU_TEXT_SIZE];
    unsigned char c[CONFIG];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_config(c, cases[i].capability, sizeof cases[i].capability);
        if (vgpu_look(c, sizeof c, version, branch) != cases[i].state)
            fail_msg("%s", cases[i].what);
        assert_string_equal(version, cases[i].version);
        assert_string_equal(branch, cases[i].branch);
        assert_int_equal(vgpu_look(c, 64, version, branch), VGPU_UNKNOWN);
    }
    make_config(c, cases[0].capability, sizeof cases[0].capability);
    c[0x06] = 0; /* no list of capabilities */
    assert_int_equal(vgpu_look(c, sizeof c, version, branch), VGPU_NONE);
    memset(c, 0xff, sizeof c); /* does not answer on the bus */
    assert_int_equal(vgpu_look(c, sizeof c, version, branch), VGPU_NONE);
}

/* ---- a host ---- */

struct bed {
    char dir[64];
    struct host host;
};

static void bed_init(struct bed *b)
{
    struct error err;
    snprintf(b->dir, sizeof b->dir, "/tmp/mete-labels-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    const struct host_config c = { .root = b->dir };
    assert_int_equal(host_init(&b->host, &c, &err), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

static void bed_done(struct bed *b)
{
    nftw(b->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    host_done(&b->host);
}

static void put(struct bed *b, const char *path, const void *bytes, size_t n)
{
    auto_free char *full = x_printf("%s%s", b->dir, path);
    auto_free char *dir = x_strndup(full, (size_t)(strrchr(full, '/') - full));
    assert_int_equal(dir_make(dir, 0755, NULL), 0);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put_text(struct bed *b, const char *path, const char *text)
{
    put(b, path, text, strlen(text));
}

static void put_function(struct bed *b, const char *pci, const char *vendor, const char *class,
                         const void *config, size_t n)
{
    auto_free char *v = x_printf("/sys/bus/pci/devices/%s/vendor", pci);
    auto_free char *k = x_printf("/sys/bus/pci/devices/%s/class", pci);
    auto_free char *c = x_printf("/sys/bus/pci/devices/%s/config", pci);
    put_text(b, v, vendor);
    put_text(b, k, class);
    put(b, c, config, n);
}

static void machine_types(void **state)
{
    struct bed b;
    struct label_facts f;
    struct survey *s = make_survey(0);
    bed_init(&b);
    label_facts_read(&b.host, "/sys/class/dmi/id/product_name", s, &f);
    assert_string_equal(f.machine, "");
    assert_non_null(strstr(f.machine_text, "product_name"));
    put_text(&b, "/sys/class/dmi/id/product_name", "  DGX H100\n");
    label_facts_read(&b.host, "/sys/class/dmi/id/product_name", s, &f);
    assert_string_equal(f.machine, "DGX H100");
    assert_string_equal(f.machine_text, "");
    /* Any other path is this process's own. */
    put_text(&b, "/machine", "Rack 7\nrow 2");
    auto_free char *own = x_printf("%s/machine", b.dir);
    label_facts_read(&b.host, own, s, &f);
    assert_string_equal(f.machine, "Rack 7\nrow 2");
    label_facts_read(&b.host, "", s, &f);
    assert_string_equal(f.machine, "");
    assert_string_equal(f.machine_text, "");
    put(&b, "/machine", "A\0B", 3);
    label_facts_read(&b.host, own, s, &f);
    assert_string_equal(f.machine, "AB");
    label_facts_read(&b.host, b.dir, s, &f); /* a directory */
    assert_string_equal(f.machine, "");
    assert_true(f.machine_text[0]);
    survey_unref(s);
    bed_done(&b);
}

static void vgpus_of_the_host(void **state)
{
    static const char guest[] = "\x09\x00\x1b"
                                "VF\x00\x16"
                                "460.16\0\0\0\0r460_00\0\0";
    unsigned char config[CONFIG], empty[CONFIG] = { 0 };
    make_config(config, guest, sizeof guest);
    struct bed b;
    struct label_facts f;
    bed_init(&b);
    struct survey *none = make_survey(0), *two = make_survey(2);
    /* No sysfs at all: nothing says that there is a vGPU. */
    label_facts_read(&b.host, "", none, &f);
    assert_int_equal(f.vgpu, VGPU_NONE);
    label_facts_read(&b.host, "", two, &f);
    assert_int_equal(f.vgpu, VGPU_NONE);

    /* Without a driver the bus is looked at, and only for NVIDIA's display controllers. */
    put_function(&b, "0000:05:00.0", "0x8086\n", "0x030000\n", empty, 64);
    put_function(&b, "0000:06:00.0", "0x10de\n", "0x068000\n", empty, 64);
    label_facts_read(&b.host, "", none, &f);
    assert_int_equal(f.vgpu, VGPU_NONE);
    put_function(&b, "0000:07:00.0", "0x10de\n", "0x030200\n", config, sizeof config);
    label_facts_read(&b.host, "", none, &f);
    assert_int_equal(f.vgpu, VGPU_GUEST);
    assert_string_equal(f.vgpu_version, "460.16");
    assert_string_equal(f.vgpu_branch, "r460_00");

    /* With one, its gpus alone: 0000:10:00.0 and 0000:11:00.0. */
    put_function(&b, "0000:10:00.0", "0x10de\n", "0x030200\n", empty, sizeof empty);
    label_facts_read(&b.host, "", two, &f);
    assert_int_equal(f.vgpu, VGPU_NONE);
    put_function(&b, "0000:11:00.0", "0x10de\n", "0x030200\n", empty, 64);
    label_facts_read(&b.host, "", two, &f);
    assert_int_equal(f.vgpu, VGPU_UNKNOWN);
    assert_non_null(strstr(f.vgpu_text, "64 bytes"));
    /* One that is certain outweighs one that cannot be read. */
    put_function(&b, "0000:10:00.0", "0x10de\n", "0x030200\n", config, sizeof config);
    label_facts_read(&b.host, "", two, &f);
    assert_int_equal(f.vgpu, VGPU_GUEST);
    assert_string_equal(f.vgpu_text, "");
    survey_unref(none);
    survey_unref(two);
    bed_done(&b);
}

/* Attributes of a real sysfs claim the size of a page; trees made by tests do not. */
static void real_sysfs(void **state)
{
    struct host h;
    struct label_facts f;
    struct survey *s = make_survey(0);
    const char *attribute = "/sys/kernel/mm/transparent_hugepage/enabled";
    DIR *dir = opendir("/sys/bus/pci/devices");
    assert_int_equal(host_init(&h, &(struct host_config){ .root = "/" }, NULL), 0);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int64_t class = 0, vendor = 0;
        if (!pci_text_valid(e->d_name))
            continue;
        assert_true(sysfs_number(&h, e->d_name, "class", &class));
        assert_true(sysfs_number(&h, e->d_name, "vendor", &vendor));
        assert_true(class > 0 && class <= 0xffffff && vendor > 0 && vendor <= 0xffff);
    }
    if (dir)
        closedir(dir);
    if (access(attribute, R_OK) == 0) {
        label_facts_read(&h, attribute, s, &f);
        assert_non_null(strstr(f.machine, "never"));
    }
    survey_unref(s);
    host_done(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capabilities),
        cmocka_unit_test(machine_types),
        cmocka_unit_test(vgpus_of_the_host),
        cmocka_unit_test(real_sysfs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
