/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "runtime/runtime.h"

static char path[] = "/tmp/mete-runtime-config-XXXXXX";

static void put(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static const char *joined(struct runtime_texts t, struct buf *b)
{
    buf_init(b, 4096);
    for (size_t i = 0; i < t.n; i++)
        buf_fmt(b, "%s%s", i ? " " : "", t.items[i]);
    return b->p ? b->p : "";
}

/* What the toolkit's package installs, shortened. */
static const char packaged[] =
    "#accept-nvidia-visible-devices-as-volume-mounts = false\n"
    "disable-require = false\nsupported-driver-capabilities = \"compute,utility\"\n"
    "#swarm-resource = \"DOCKER_RESOURCE_GPU\"\n\n[nvidia-container-cli]\nenvironment = []\n"
    "ldconfig = \"@/sbin/ldconfig.real\"\nload-kmods = true\n\n[nvidia-container-runtime]\n"
    "#debug = \"/var/log/nvidia-container-runtime.log\"\nlog-level = \"info\"\nmode = \"auto\"\n"
    "runtimes = [\"runc\", \"crun\"]\n\n[nvidia-container-runtime.modes]\n\n"
    "[nvidia-container-runtime.modes.cdi]\nannotation-prefixes = [\"cdi.k8s.io/\"]\n"
    "default-kind = \"nvidia.com/gpu\"\nspec-dirs = [\"/etc/cdi\", \"/var/run/cdi\"]\n\n"
    "[nvidia-container-runtime.modes.csv]\nmount-spec-path = \"/etc/x\"\n\n"
    "[nvidia-container-runtime-hook]\npath = \"nvidia-container-runtime-hook\"\n";

static void the_packaged_file_is_the_default(void **state)
{
    (void)state;
    static const char *const texts[] = { packaged, "" };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        auto_arena a;
        struct runtime_config c;
        struct error err;
        auto_buf one, two, three, four;
        arena_init(&a, 1 << 20);
        put(texts[i]);
        assert_int_equal(runtime_config_read(&a, path, &c, &err), 0);
        assert_true(c.envvar_when_unprivileged && !c.volume_mounts && !c.ignore_imex && !c.verbose);
        assert_int_equal(c.swarm.n, 0);
        assert_null(c.log_path);
        assert_string_equal(joined(c.runtimes, &one), "runc crun");
        assert_string_equal(joined(c.kinds, &two),
                            "nvidia.com/gpu k8s.device-plugin.nvidia.com/gpu");
        assert_string_equal(joined(c.spec_dirs, &three), "/etc/cdi /var/run/cdi");
        assert_string_equal(joined(c.annotation_prefixes, &four), "cdi.k8s.io/");
    }
}

static void every_key_counts(void **state)
{
    (void)state;
    auto_arena a;
    struct runtime_config c;
    struct error err;
    struct buf b[5];
    arena_init(&a, 1 << 20);
    put("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
        "accept-nvidia-visible-devices-as-volume-mounts = true\n"
        "swarm-resource = \"A, B,\"\nfeatures.ignore-imex-channel-requests = true\n"
        "[nvidia-container-runtime]\ndebug = \"/tmp/x.log\"\nlog-level = \"debug\"\n"
        "runtimes = [\"/opt/runc\"]\n[nvidia-container-runtime.modes.cdi]\n"
        "default-kind = \"k8s.device-plugin.nvidia.com/gpu\"\nspec-dirs = [\"/a\"]\n"
        "annotation-prefixes = [\"p/\", \"q/\"]\n");
    assert_int_equal(runtime_config_read(&a, path, &c, &err), 0);
    assert_true(!c.envvar_when_unprivileged && c.volume_mounts && c.ignore_imex && c.verbose);
    assert_string_equal(c.log_path, "/tmp/x.log");
    assert_string_equal(joined(c.swarm, &b[0]), "A B");
    assert_string_equal(joined(c.runtimes, &b[1]), "/opt/runc");
    assert_string_equal(joined(c.kinds, &b[2]), "k8s.device-plugin.nvidia.com/gpu nvidia.com/gpu");
    assert_string_equal(joined(c.spec_dirs, &b[3]), "/a");
    assert_string_equal(joined(c.annotation_prefixes, &b[4]), "p/ q/");
    for (size_t i = 0; i < ARRAY_LEN(b); i++)
        buf_done(&b[i]);
    put("nvidia-container-runtime.modes.cdi.kinds = [\"a.b/c\"]\n");
    assert_int_equal(runtime_config_read(&a, path, &c, &err), 0);
    assert_int_equal(c.kinds.n, 1);
    assert_string_equal(c.kinds.items[0], "a.b/c");
}

static void faults_name_file_and_key(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "accept-nvidia-visible-devices-as-volume-mounts = \"yes\"",
          ":1:50: accept-nvidia-visible-devices-as-volume-mounts: expected true or false, found "
          "text" },
        { "[nvidia-container-runtime]\nruntimes = \"runc\"",
          ":2:12: nvidia-container-runtime.runtimes: "
          "expected a list of texts, found text" },
        { "[nvidia-container-runtime]\nruntimes = [\"\"]",
          "expected a list of texts that are not empty" },
        { "[nvidia-container-runtime]\nruntimes = [1]",
          "expected a list of texts that are not empty" },
        { "nvidia-container-runtime = 1", "expected a table above it, found the number 1" },
        { "[nvidia-container-runtime]\ndebug = 1", ":2:9: nvidia-container-runtime.debug" },
        { "swarm-resource = []", "swarm-resource: expected text in quotes" },
        { "[a", ":1:3: expected \"]\"" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_arena a;
        struct runtime_config c;
        struct error err;
        arena_init(&a, 1 << 20);
        put(cases[i].text);
        assert_int_equal(runtime_config_read(&a, path, &c, &err), -ERR_INVALID);
        if (!strstr(err.text, cases[i].says) || !strstr(err.text, path))
            fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(c.runtimes.n > 0, true); /* usable all the same */
    }
}

static void a_missing_file_is_fine_and_a_pipe_is_not(void **state)
{
    (void)state;
    auto_arena a;
    struct runtime_config c;
    struct error err;
    arena_init(&a, 1 << 20);
    unlink(path);
    assert_int_equal(runtime_config_read(&a, path, &c, &err), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(runtime_config_read(&a, path, &c, &err), -ERR_INVALID);
    unlink(path);
}

static void the_path_follows_the_environment(void **state)
{
    (void)state;
    auto_arena a;
    arena_init(&a, 4096);
    unsetenv("NVIDIA_CTK_CONFIG_FILE_PATH");
    unsetenv("XDG_CONFIG_HOME");
    assert_string_equal(runtime_config_path(&a), "/etc/nvidia-container-runtime/config.toml");
    setenv("XDG_CONFIG_HOME", "/opt/c", 1);
    assert_string_equal(runtime_config_path(&a), "/opt/c/nvidia-container-runtime/config.toml");
    setenv("NVIDIA_CTK_CONFIG_FILE_PATH", "relative", 1);
    assert_string_equal(runtime_config_path(&a), "/opt/c/nvidia-container-runtime/config.toml");
    setenv("NVIDIA_CTK_CONFIG_FILE_PATH", "/x.toml", 1);
    assert_string_equal(runtime_config_path(&a), "/x.toml");
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_packaged_file_is_the_default),
        cmocka_unit_test(every_key_counts),
        cmocka_unit_test(faults_name_file_and_key),
        cmocka_unit_test(a_missing_file_is_fine_and_a_pipe_is_not),
        cmocka_unit_test(the_path_follows_the_environment),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return r;
}
