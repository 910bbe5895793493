/* SPDX-License-Identifier: Apache-2.0 */
/* Creating, changing and showing a simulated host; its trees and stand-in files. */
#include "lab_host.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "data/json.h"
#include "sim/elf_file.h"
#include "sim/state_file.h"

static void test_create_refuses(void **state)
{
    static const struct {
        struct sim_create c;
        int code;
        const char *says;
    } cases[] = {
        { { .model = "h100sxm" }, -ERR_INVALID, "did you mean \"h100-sxm\"" },
        { { .model = "quantum" }, -ERR_INVALID, "a100-40, a100-80" },
        { { .profile = "h1000" }, -ERR_INVALID, "h100" },
        { { .profile = "h100", .model = "t4" }, -ERR_INVALID, "either a profile or a model" },
        { { .gpus = 65 }, -ERR_INVALID, "at most 64" },
        { { .driver_root = "run/nvidia" }, -ERR_INVALID, "must be an absolute path" },
        { { .library = "/nonexistent/lib.so" }, -ERR_NOT_FOUND, "/nonexistent/lib.so" },
        { { .library = "/etc/passwd", .hide_symbols = "nvmlInit" }, -ERR_INVALID, "no 64-bit ELF" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = { 0 };
        struct sim_create c = cases[i].c;
        c.dir = "/tmp/mete-lab-refused";
        assert_int_equal(cases[i].code, sim_create(&c, &err));
        if (!strstr(err.text, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].says);
        assert_int_equal(-1, access(c.dir, F_OK));
    }
}

static void test_create_leaves_what_is_there(void **state)
{
    struct lab l;
    struct error err = { 0 };
    lab_make(&l, (struct sim_create){ .gpus = 2 });
    struct sim_create c = { .dir = l.dir, .gpus = 1 };
    assert_int_equal(-ERR_CONFLICT, sim_create(&c, &err));
    assert_non_null(strstr(err.text, "is a simulated host already"));
    char path[128];
    snprintf(path, sizeof(path), "%s/etc", l.dir);
    c.dir = path; /* a directory with something in it */
    assert_int_equal(-ERR_CONFLICT, sim_create(&c, &err));
    assert_true(lab_exists(&l, "/etc/OpenCL/vendors/nvidia.icd"));
    snprintf(path, sizeof(path), "%s/proc/devices", l.dir);
    assert_int_equal(-ERR_CONFLICT, sim_create(&c, &err));
    lab_remove(&l);
    assert_int_equal(-ERR_NOT_FOUND, sim_set("/tmp", 1, (char *[]){ (char[]){ "reboot" } }, &err));
    assert_non_null(strstr(err.text, "mete sim create"));
}

static void test_the_tree_of_a_recorded_host(void **state)
{
    static const struct {
        const char *path, *text;
    } files[] = {
        { "/proc/driver/nvidia/version", "550.163.01" },
        { "/proc/driver/nvidia/params", "ModifyDeviceFiles: 1\n" },
        { "/proc/driver/nvidia/gpus/0000:1a:00.0/information",
          "GPU UUID: \t GPU-01000100-0000-0000-0000-000000000000\n" },
        { "/proc/driver/nvidia/capabilities/mig/monitor",
          "DeviceFileMinor: 2\nDeviceFileMode: 292\n" },
        { "/proc/driver/nvidia/capabilities/fabric-imex-mgmt", "DeviceFileMinor: 4323\n" },
        { "/proc/driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu0/gi0/access 3\n" },
        { "/proc/devices", "195 nvidia\n" },
        { "/proc/devices", "510 nvidia-uvm\n" },
        { "/proc/devices", "236 nvidia-caps\n" },
        { "/proc/modules", "nvidia_uvm " },
        { "/sys/bus/pci/devices/0000:cb:00.0/vendor", "0x10de\n" },
        { "/sys/bus/pci/devices/0000:cb:00.0/device", "0x2330\n" },
        { "/sys/bus/pci/devices/0000:cb:00.0/class", "0x030200\n" },
        { "/sys/bus/pci/devices/0000:cb:00.0/numa_node", "1\n" },
        { "/sys/bus/pci/devices/0000:4b:00.0/numa_node", "0\n" },
        { "/sys/bus/pci/devices/0000:cb:00.0/local_cpulist", "16-31\n" },
        { "/sys/class/dmi/id/product_name", "Test Machine 9000 (rev. B)\n" },
        { "/sys/module/nvidia/version", "550.163.01\n" },
    };
    struct lab l;
    struct stat st;
    char path[160], target[160];
    lab_make(&l, (struct sim_create){ .profile = "h100" });
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (!strstr(lab_read(&l, files[i].path), files[i].text))
            fail_msg("%s: no \"%s\" in \"%s\"", files[i].path, files[i].text,
                     lab_read(&l, files[i].path));
    /* The PCIe root is read out of where the link leads. */
    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/0000:8b:00.0", l.dir);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    assert_true(n > 0);
    target[n] = 0;
    assert_string_equal("../../../devices/pci0000:80/0000:80:01.0/0000:8b:00.0", target);
    assert_true(lab_exists(&l, "/sys/bus/pci/devices/0000:8b:00.0/driver"));
    snprintf(path, sizeof(path), "%s/run/nvidia/driver/usr/lib64/libcuda.so.550.163.01", l.dir);
    assert_int_equal(0, stat(path, &st));
    assert_int_equal(0, st.st_size);
    assert_true(lab_exists(&l, "/run/nvidia/driver/usr/bin/nvidia-cuda-mps-server"));
    assert_true(lab_exists(&l, "/run/nvidia/driver/dev/nvidia7"));
    assert_true(lab_exists(&l, "/dev/nvidia-uvm-tools"));
    assert_false(lab_exists(&l, "/dev/nvidia8"));
    lab_remove(&l);
}

/* On the recorded A100 host a gpu sits on one of the buses that switches have elsewhere. */
static void test_switches_keep_off_the_buses_of_gpus(void **state)
{
    struct lab l;
    lab_make(&l, (struct sim_create){ .profile = "a100" });
    assert_string_equal(lab_read(&l, "/sys/bus/pci/devices/0000:07:00.0/numa_node"), "3\n");
    assert_string_equal(lab_read(&l, "/sys/bus/pci/devices/0000:08:00.0/class"), "0x068000\n");
    assert_false(lab_exists(&l, "/sys/bus/pci/devices/0000:09:00.0"));
    lab_remove(&l);
}

static void test_stand_ins_can_be_loaded(void **state)
{
    struct lab l;
    char path[200];
    lab_make(&l, (struct sim_create){ .driver_root = "/run/nvidia/driver/" });
    snprintf(path, sizeof(path), "%s/run/nvidia/driver/usr/lib64/libcuda.so", l.dir);
#if defined(__x86_64__)
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h)
        fail_msg("%s", dlerror());
    dlclose(h);
#else
    assert_int_equal(0, access(path, R_OK));
#endif
    lab_remove(&l);
}

static void test_real_nodes(void **state)
{
    struct lab l;
    struct stat st;
    char path[100];
    struct error err = { 0 };
    char dir[] = "/tmp/mete-lab-nodes-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct sim_create c = { .dir = dir, .gpus = 2, .nodes = true };
    if (sim_create(&c, &err) < 0) {
        /* Without the right to make nodes: a clear word, and nothing left behind. */
        assert_int_equal(ERR_DENIED, err.code);
        assert_non_null(strstr(err.text, "--nodes"));
        assert_int_equal(-1, access(dir, F_OK));
        return;
    }
    snprintf(l.dir, sizeof(l.dir), "%s", dir);
    l.library = NULL;
    snprintf(path, sizeof(path), "%s/dev/nvidiactl", dir);
    assert_int_equal(0, stat(path, &st));
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(195, major(st.st_rdev));
    assert_int_equal(255, minor(st.st_rdev));
    assert_int_equal(0666, st.st_mode & 0777);
    lab_remove(&l);
}

static void test_seeds(void **state)
{
    struct lab a, b, c;
    lab_make(&a, (struct sim_create){ .gpus = 4 });
    lab_make(&b, (struct sim_create){ .gpus = 4 });
    lab_make(&c, (struct sim_create){ .gpus = 4, .seed = 7 });
    auto_free char *first =
        x_strdup(lab_read(&a, "/proc/driver/nvidia/gpus/0000:53:00.0/information"));
    assert_string_equal(first, lab_read(&b, "/proc/driver/nvidia/gpus/0000:53:00.0/information"));
    assert_string_not_equal(first,
                            lab_read(&c, "/proc/driver/nvidia/gpus/0000:53:00.0/information"));
    lab_remove(&a);
    lab_remove(&b);
    lab_remove(&c);
}

static void test_set_refuses_what_it_does_not_understand(void **state)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        { "gpi 0 xid 79", "did you mean \"gpu\"" },
        { "gpu", "the gpu is missing" },
        { "gpu 8 lost", "must be a number from 0 to 7" },
        { "gpu 0", "the change is missing" },
        { "gpu 0 xit 79", "did you mean \"xid\"" },
        { "gpu 0 xid", "the XID is missing" },
        { "gpu 0 xid 79x", "\"79x\" must be a number" },
        { "gpu 0 xid 79 gi 3 co 1", "usage: gpu N xid XID [gi G [ci C]]" },
        { "gpu 0 lost now", "one word too many" },
        { "gpu 0 mig 3g.40g", "did you mean \"3g.40gb\"" },
        { "gpu 0 mig 3g.40gb@2", "cannot start at memory slot 2" },
        { "gpu 0 mig destroy gi 4", "that exists" },
        { "gpu 0 memory gone", "normal, unsupported, zero, used, total" },
        { "gpu 0 handle IRQ_ISSU", "did you mean \"IRQ_ISSUE\"" },
        { "gpu 0 minor 300", "must be a number from 0 to 253" },
        { "driver reloaded", "did you mean \"reload\"" },
        { "driver version 1/2", "numbers and dots" },
        { "call nvmlDeviceGetNam hang", "did you mean \"nvmlDeviceGetName\"" },
        { "call nvmlDeviceGetName slow", "delay in milliseconds is missing" },
        { "call nvmlDeviceGetName hung", "did you mean \"hang\"" },
        { "call all hang", "ok" },
        { "monitor-cap denny", "did you mean \"deny\"" },
        { "gpu 0 fabric completed cluster 12", "must be a UUID" },
    };
    struct lab l;
    auto_buf before, after;
    buf_init(&before, 1 << 20);
    buf_init(&after, 1 << 20);
    lab_make(&l, (struct sim_create){ .gpus = 8 });
    assert_int_equal(0, sim_show(l.dir, &before, NULL));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = { 0 };
        assert_int_equal(-ERR_INVALID, lab_try(&l, cases[i].line, &err));
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].line, err.text, cases[i].says);
    }
    /* Two conflicts: the whole line is dropped, also the part that was possible. */
    struct error err = { 0 };
    assert_int_equal(-ERR_CONFLICT, lab_try(&l, "gpu 0 mig 7g.80gb,1g.10gb", &err));
    assert_non_null(strstr(err.text, "no room for 1g.10gb"));
    assert_int_equal(-ERR_CONFLICT, lab_try(&l, "gpu all minor 3", &err));
    assert_int_equal(0, sim_show(l.dir, &after, NULL));
    assert_string_equal(before.p, after.p);
    lab_remove(&l);
}

/* Each line of the grammar, as docs/lab.md gives it. */
static void test_set_understands(void **state)
{
    static const char *const lines[] = {
        "gpu 0 xid 79",
        "gpu 0 xid 31 gi 2",
        "gpu 0 xid 31 gi 2 ci 0",
        "gpu 0 ecc single 5",
        "gpu 0 ecc double 1",
        "gpu 0 ecc mode off",
        "gpu 0 lost",
        "gpu 0 reset",
        "gpu 0 removed",
        "gpu 0 present",
        "gpu 0 handle 11",
        "gpu 0 handle GPU_IS_LOST",
        "gpu 0 handle ok",
        "gpu 0 recovery imex",
        "gpu 0 recovery none",
        "gpu 0 remap uncorrected 2",
        "gpu 0 remap failed 1",
        "gpu 0 pages double 3",
        "gpu 0 sram-threshold exceeded",
        "gpu 0 event 0x200 7 gi 1",
        "gpu 0 mig on",
        "gpu 0 mig 3g.40gb,2g.20gb,1g.10gb",
        "gpu 0 mig destroy gi 1",
        "gpu 0 mig create-gi 1g.10gb+me",
        "gpu 0 mig destroy all",
        "gpu 0 mig off",
        "gpu 0 client 1234",
        "gpu 0 client 1235 memory 2048 kind mps",
        "gpu 0 client none",
        "gpu 0 memory unsupported",
        "gpu 0 memory normal",
        "gpu 0 memory used 1000",
        "gpu 0 memory total 40000",
        "gpu 0 numa 1",
        "gpu 0 numa none",
        "gpu 0 minor 40",
        "gpu 0 module 9",
        "gpu 0 temperature 60",
        "gpu 0 memory-temperature 70",
        "gpu 0 power 300",
        "gpu all util 50",
        "gpu 0 memory-util 9",
        "gpu 0 energy 12345",
        "gpu 0 pstate 8",
        "gpu 0 clock-reasons 0x48",
        "gpu 0 pcie-generation 1",
        "gpu 0 pcie-width 8",
        "gpu 0 pcie-replays 3",
        "gpu 0 pci-class 0x030000",
        "gpu 0 virtualization 1",
        "gpu 0 persistence off",
        "gpu 0 compute-mode exclusive-process",
        "gpu 0 addressing hmm",
        "gpu 0 addressing unsupported",
        "gpu 0 link 3 down",
        "gpu 0 link 3 up",
        "gpu 0 link 3 errors 7",
        "gpu 0 fabric in-progress",
        "gpu 0 fabric completed status 15 clique 7 cluster 00000000-0000-0000-0000-0000000000ff",
        "gpu 0 fabric unsupported",
        "driver unload",
        "driver load",
        "driver reload",
        "driver mismatch",
        "driver version 575.57.08",
        "driver cuda 12090",
        "call nvmlDeviceGetName hang",
        "call nvmlDevice* slow 5",
        "call nvmlInit_v2 fail 18",
        "call nvmlDeviceGetName fail NOT_SUPPORTED gpu 1",
        "call nvmlDeviceGetName ok",
        "call all ok",
        "monitor-cap deny",
        "monitor-cap allow",
        "moves-minor on",
        "lenient magic on",
        "lenient lost off",
        "imex-channels 3",
        "imex-channels 0",
        "product ThinkStation",
        "reboot",
    };
    struct lab l;
    struct error err;
    lab_make(&l, (struct sim_create){ .gpus = 2 });
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (lab_try(&l, lines[i], &err) < 0)
            fail_msg("%s: %s", lines[i], err.text);
    lab_remove(&l);
}

static void test_show_is_json(void **state)
{
    struct lab l;
    auto_buf text;
    auto_arena arena;
    struct value *v;
    struct error err = { 0 };
    buf_init(&text, 1 << 20);
    arena_init(&arena, 16 << 20);
    lab_make(&l, (struct sim_create){
                     .model = "h100-sxm", .gpus = 3, .hide_symbols = "nvmlDeviceGetPdi" });
    lab_set(&l, "gpu 1 mig 3g.40gb,1g.10gb");
    lab_set(&l, "gpu 2 lost");
    lab_set(&l, "call nvmlDeviceGetName fail TIMEOUT gpu 2");
    assert_int_equal(0, sim_show(l.dir, &text, &err));
    if (json_parse(&arena, buf_view(&text), "show", &doc_limits_default, &v, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal("h100-sxm", value_text(value_get(v, "model"), ""));
    const struct value *gpus = value_get(v, "gpus"), *driver = value_get(v, "driver");
    assert_int_equal(3, gpus->n);
    assert_string_equal("nvmlDeviceGetPdi", value_text(value_get(driver, "hiddenSymbols"), ""));
    assert_true(value_get(&gpus->items[2], "lost")->boolean);
    assert_int_equal(2, value_get(&gpus->items[1], "gpuInstances")->n);
    const struct value *fault = &value_get(v, "faults")->items[0];
    assert_string_equal("TIMEOUT", value_text(value_get(fault, "code"), ""));
    assert_int_equal(2, value_get(fault, "gpu")->number);
    lab_remove(&l);
}

/* The host's own nvidia-smi asks the library as any client. */
static void test_nvidia_smi(void **state)
{
    static const struct {
        const char *arguments, *says;
        int status;
    } cases[] = {
        { "-L", "GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-01000100-0000-0000-0000-000000000002)\n",
          0 },
        { "--query-gpu=index,uuid,memory.total --format=csv,noheader,nounits -i 1",
          "1, GPU-01000100-0000-0000-0000-000000000001, 81920\n", 0 },
        { "--query-gpu=nonsense --format=csv", "\"nonsense\" is not a valid field", 2 },
        { "-i 9 -L", "No devices were found", 6 },
        { "-i 0 -pm 0", "Changed the setting of GPU 0", 0 },
        { "--frobnicate", "does not know \"--frobnicate\"", 2 },
    };
    struct lab l;
    lab_make(&l, (struct sim_create){ .profile = "h100" });
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char command[256], out[4096];
        snprintf(command, sizeof(command), "%s/run/nvidia/driver/usr/bin/nvidia-smi %s 2>&1", l.dir,
                 cases[i].arguments);
        FILE *f = popen(command, "r");
        assert_non_null(f);
        out[fread(out, 1, sizeof(out) - 1, f)] = 0;
        int status = pclose(f);
        if (WEXITSTATUS(status) != cases[i].status || !strstr(out, cases[i].says))
            fail_msg("nvidia-smi %s: status %d, \"%s\"", cases[i].arguments, WEXITSTATUS(status),
                     out);
    }
    lab_remove(&l);
}

static void test_reboot(void **state)
{
    struct lab l;
    lab_make(&l, (struct sim_create){ .model = "h100-sxm", .gpus = 2 });
    auto_free char *before = x_strdup(lab_read(&l, "/proc/sys/kernel/random/boot_id"));
    lab_set(&l, "gpu 0 mig 7g.80gb");
    lab_set(&l, "gpu 1 lost");
    lab_set(&l, "reboot");
    assert_string_not_equal(before, lab_read(&l, "/proc/sys/kernel/random/boot_id"));
    assert_int_equal(37, strlen(lab_read(&l, "/proc/sys/kernel/random/boot_id")));
    auto_buf text;
    buf_init(&text, 1 << 20);
    assert_int_equal(0, sim_show(l.dir, &text, NULL));
    assert_null(strstr(text.p, "\"lost\": true"));
    assert_null(strstr(text.p, "\"mig\": true"));
    lab_remove(&l);
}

/* A file that is no state is told from one, and never mapped beyond its end. */
static void test_strange_state_files(void **state)
{
    struct lab l;
    struct error err = { 0 };
    char path[120];
    lab_make(&l, (struct sim_create){ .gpus = 1 });
    snprintf(path, sizeof(path), "%s/" SIM_STATE_PATH, l.dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(4, pwrite(fd, "nope", 4, 0));
    assert_int_equal(-ERR_INVALID, lab_try(&l, "reboot", &err));
    assert_int_equal(0, ftruncate(fd, 100));
    assert_int_equal(-ERR_INVALID, lab_try(&l, "reboot", &err));
    assert_non_null(strstr(err.text, "create the host anew"));
    close(fd);
    lab_remove(&l);
}

static void test_hiding_in_strange_bytes(void **state)
{
    auto_buf elf;
    size_t hidden;
    buf_init(&elf, 4096);
    sim_elf_standin(&elf, "libx.so.1", false);
    for (size_t n = 0; n <= elf.n; n++) {
        auto_free unsigned char *copy = x_alloc(n + 1);
        memcpy(copy, elf.p, n);
        assert_int_equal(-ERR_INVALID, sim_elf_hide(copy, n, "nvmlInit", &hidden, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_refuses),
        cmocka_unit_test(test_create_leaves_what_is_there),
        cmocka_unit_test(test_the_tree_of_a_recorded_host),
        cmocka_unit_test(test_switches_keep_off_the_buses_of_gpus),
        cmocka_unit_test(test_stand_ins_can_be_loaded),
        cmocka_unit_test(test_real_nodes),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_set_refuses_what_it_does_not_understand),
        cmocka_unit_test(test_set_understands),
        cmocka_unit_test(test_show_is_json),
        cmocka_unit_test(test_nvidia_smi),
        cmocka_unit_test(test_reboot),
        cmocka_unit_test(test_strange_state_files),
        cmocka_unit_test(test_hiding_in_strange_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
