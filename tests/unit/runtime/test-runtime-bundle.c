/* SPDX-License-Identifier: Apache-2.0 */
/* Bundles: which containers are changed, by what, and what happens when something is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "runtime/runtime.h"

struct place {
    char dir[64], config[96], cdi[2][96];
    const char *dirs[2];
};

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

/* A file whose devices each leave a variable GOT_<name> behind, and whose common part leaves
 * GOT_COMMON. */
static void put_cdi(const struct place *p, int dir, const char *file, const char *kind,
                    const char *const *names)
{
    auto_buf b;
    buf_init(&b, 65536);
    buf_fmt(&b, "{\"cdiVersion\":\"0.5.0\",\"kind\":\"%s\",\"devices\":[", kind);
    for (size_t i = 0; names[i]; i++)
        buf_fmt(&b,
                "%s{\"name\":\"%s\",\"containerEdits\":{\"env\":[\"GOT_%s=%s\"],\"deviceNodes\":[{"
                "\"path\":"
                "\"/dev/nvidia%zu\",\"type\":\"c\",\"major\":195,\"minor\":%zu}]}}",
                i ? "," : "", names[i], names[i], kind, i, i);
    buf_z(&b, "],\"containerEdits\":{\"env\":[\"GOT_COMMON=1\"],\"hooks\":[{\"hookName\":"
              "\"createContainer\","
              "\"path\":\"/h\",\"args\":[\"h\",\"x\"]}]}}");
    auto_free char *path = x_printf("%s/%s", p->cdi[dir], file);
    put(path, b.p);
}

static int set_up(void **state)
{
    static const char *const gpus[] = { "0",   "1",     "GPU-a",         "GPU-b",
                                        "0:1", "MIG-c", "MIG-GPU-d:3:0", "all",
                                        NULL },
                             *const plugin[] = { "GPU-a", "GPU-e", NULL },
                             *const all[] = { "all", NULL }, *const channels[] = { "0", "7", NULL };
    struct place *p = x_alloc(sizeof *p);
    snprintf(p->dir, sizeof p->dir, "/tmp/mete-bundle-XXXXXX");
    if (!mkdtemp(p->dir))
        return -1;
    snprintf(p->config, sizeof p->config, "%s/config.json", p->dir);
    for (int i = 0; i < 2; i++) {
        snprintf(p->cdi[i], sizeof p->cdi[i], "%s/cdi%d", p->dir, i);
        mkdir(p->cdi[i], 0755);
        p->dirs[i] = p->cdi[i];
    }
    put_cdi(p, 1, "nvidia.json", "nvidia.com/gpu", gpus);
    put_cdi(p, 1, "plugin.json", "k8s.device-plugin.nvidia.com/gpu", plugin);
    put_cdi(p, 1, "gds.json", "k8s.device-plugin.nvidia.com/gds", all);
    put_cdi(p, 1, "imex.json", "k8s.device-plugin.nvidia.com/imex-channel", channels);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    auto_free char *command = x_printf("rm -rf %s", p->dir);
    int r = system(command);
    free(p);
    return r;
}

static struct runtime_config config_of(const struct place *p)
{
    struct runtime_config c = runtime_config_default;
    c.spec_dirs = (struct runtime_texts){ p->dirs, 2 };
    return c;
}

/* The GOT_ variables of the bundle, in order. */
static void got(const struct place *p, struct buf *out)
{
    auto_arena a;
    auto_free char *text = NULL;
    struct error err;
    struct value *v;
    size_t n;
    arena_init(&a, 8 << 20);
    buf_init(out, 65536);
    buf_z(out, "");
    assert_int_equal(file_read(p->config, 1 << 20, &text, &n, &err), 0);
    assert_int_equal(json_parse(&a, (struct str){ text, n }, "config.json", NULL, &v, &err), 0);
    const struct value *env = value_get(value_get(v, "process"), "env");
    for (size_t i = 0; env && i < env->n; i++)
        if (str_starts(env->items[i].text, "GOT_")) {
            struct str rest = env->items[i].text, name = str_cut(&rest, '=');
            buf_fmt(out, "%s%.*s", out->n ? " " : "", (int)name.n - 4, name.p + 4);
        }
}

/* ---- what is asked for ---- */

enum { UNPRIVILEGED_REFUSED = 1, MOUNTS = 2, NO_IMEX = 4, SWARM = 8 };

static const struct {
    const char *env, *mounts, *annotations, *bounding; /* insides of the JSON lists */
    unsigned flags;
    const char *got; /* NULL: an error with `says` */
    const char *says;
} cases[] = {
    /* nothing asked for: unchanged */
    { .env = "", .got = "-" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=\"", .got = "-" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=void\"", .got = "-" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES= ,,\"", .got = "-" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=void,0\"", .got = "-" },
    { .env = "\"CUDA_VERSION=9.0\"", .got = "-" }, /* no old images' default */
    { .env = "\"NVIDIA_DRIVER_CAPABILITIES=all\",\"NVIDIA_GDS=enabled\"", .got = "-" },
    { .env = "\"XNVIDIA_VISIBLE_DEVICES=0\",\"NVIDIA_VISIBLE_DEVICES\"", .got = "-" },
    /* variables */
    { .env = "\"NVIDIA_VISIBLE_DEVICES=GPU-a\"", .got = "COMMON GPU-a" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0,1\"", .got = "COMMON 0 1" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES= 1 ,0,1\"", .got = "COMMON 1 0" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=all\"", .got = "COMMON all" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0,all\"", .got = "COMMON all" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=none\"", .got = "COMMON" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0:1,MIG-c\"", .got = "COMMON 0:1 MIG-c" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=MIG-GPU-d/3/0\"", .got = "COMMON MIG-GPU-d:3:0" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=GPU-e\"",
      .got = "COMMON GPU-e" }, /* only in the second kind */
    { .env = "\"NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-e\"",
      .got = "COMMON GPU-a GPU-e" },                                          /* both there */
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0,GPU-e\"", .got = "0 COMMON GPU-e" }, /* of two kinds */
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0\",\"NVIDIA_VISIBLE_DEVICES=1\"", .got = "COMMON 1" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=1\"", .got = "COMMON 1" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=2\"",
      .says = "NVIDIA_VISIBLE_DEVICES asks for \"2\", which no CDI file in" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=2\"",
      .says = "nvidia.com/gpu has 0, 0:1, 1, GPU-a, GPU-b, MIG-GPU-d:3:0 and 2 more" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=a.b/c=d\"", .says = "asks for \"a.b/c=d\"" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=../../x\"", .says = "asks for \"../../x\"" },
    /* privileged or not */
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0\"", .flags = UNPRIVILEGED_REFUSED, .got = "-" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0\"",
      .bounding = "\"CAP_CHOWN\",\"CAP_SYS_ADMIN\"",
      .flags = UNPRIVILEGED_REFUSED,
      .got = "COMMON 0" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=all\"",
      .mounts = "GPU-a",
      .flags = UNPRIVILEGED_REFUSED | MOUNTS,
      .got = "COMMON GPU-a" },
    { .env = "\"NVIDIA_IMEX_CHANNELS=0\"", .flags = UNPRIVILEGED_REFUSED, .got = "-" },
    /* mounts */
    { .env = "\"NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices\"",
      .mounts = "GPU-b",
      .flags = MOUNTS,
      .got = "COMMON GPU-b" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices\"",
      .mounts = "GPU-b",
      .says = "accept-nvidia-visible-devices-as-volume-mounts = true" },
    { .env = "", .mounts = "GPU-b", .got = "-" },
    { .env = "", .mounts = "cdi/nvidia.com/gpu/1", .flags = MOUNTS, .got = "COMMON 1" },
    { .env = "", .mounts = "cdi/nvidia.com/gpu", .flags = MOUNTS, .says = "names no CDI device" },
    { .env = "", .mounts = "imex/7", .flags = MOUNTS, .got = "COMMON 7" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=1\"",
      .mounts = "imex/7",
      .flags = MOUNTS,
      .got = "1 COMMON 7" },
    /* annotations */
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0\"",
      .annotations = "\"cdi.k8s.io/x\":\"nvidia.com/gpu=1\"",
      .got = "COMMON 1" },
    { .env = "",
      .annotations =
          "\"cdi.k8s.io/x\":\"nvidia.com/gpu=1,nvidia.com/gpu=0\",\"other\":\"nvidia.com/gpu=all\"",
      .got = "COMMON 1 0" },
    { .env = "",
      .annotations = "\"cdi.k8s.io/x\":\"GPU-a\"",
      .says = "annotation cdi.k8s.io/x: \"GPU-a\" is no CDI device" },
    { .env = "",
      .annotations = "\"cdi.k8s.io/x\":\"nvidia.com/gpu=9\"",
      .says = "an annotation asks for" },
    { .env = "", .annotations = "\"cdi.k8s.io/x\":7", .got = "-" },
    /* beside gpus */
    { .env = "\"NVIDIA_VISIBLE_DEVICES=GPU-e\",\"NVIDIA_GDS=enabled\"", .got = "GPU-e COMMON all" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0\",\"NVIDIA_GDS=disabled\"", .got = "COMMON 0" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0\",\"NVIDIA_MOFED=enabled\"",
      .got = "COMMON 0" }, /* said in the log */
    { .env = "\"NVIDIA_IMEX_CHANNELS=0,7\"", .got = "COMMON 0 7" },
    { .env = "\"NVIDIA_IMEX_CHANNELS=0,7\"", .flags = NO_IMEX, .got = "-" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=void\",\"NVIDIA_IMEX_CHANNELS=3\"",
      .says = "channel \"3\"" },
    /* another name for the variable */
    { .env = "\"RESOURCE=1\",\"NVIDIA_VISIBLE_DEVICES=0\"", .flags = SWARM, .got = "COMMON 1" },
    { .env = "\"NVIDIA_VISIBLE_DEVICES=0\"", .flags = SWARM, .got = "COMMON 0" },
};

static void write_bundle(const struct place *p, size_t i)
{
    auto_buf b;
    buf_init(&b, 65536);
    buf_fmt(&b,
            "{\"ociVersion\": \"1.0.2\", "
            "\"process\":{\"env\":[%s],\"capabilities\":{\"bounding\":[%s]},\"rlimits\":"
            "[{\"hard\":18446744073709551615}]},\"root\":{\"path\":\"rootfs\"},\"mounts\":[{"
            "\"destination\":"
            "\"/proc\",\"type\":\"proc\",\"source\":\"proc\"}",
            cases[i].env, cases[i].bounding ? cases[i].bounding : "");
    if (cases[i].mounts)
        buf_fmt(
            &b,
            ",{\"destination\":\"/var/run/nvidia-container-devices/%s\",\"source\":\"/dev/null\"},"
            "{\"destination\":\"/var/run/nvidia-container-devices/0\",\"source\":\"/etc\"},"
            "{\"destination\":\"/var/run/nvidia-container-devices\",\"source\":\"/dev/null\"}",
            cases[i].mounts);
    buf_z(&b, "]");
    if (cases[i].annotations)
        buf_fmt(&b, ",\"annotations\":{%s}", cases[i].annotations);
    buf_z(&b, "}");
    put(p->config, b.p);
}

static void containers_get_what_they_ask_for(void **state)
{
    struct place *p = *state;
    static const char *const swarm[] = { "RESOURCE" };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct runtime_config c = config_of(p);
        struct runtime_outcome out;
        struct error err = { 0 };
        auto_free char *before = NULL, *after = NULL;
        auto_buf names;
        c.envvar_when_unprivileged = !(cases[i].flags & UNPRIVILEGED_REFUSED);
        c.volume_mounts = cases[i].flags & MOUNTS;
        c.ignore_imex = cases[i].flags & NO_IMEX;
        if (cases[i].flags & SWARM)
            c.swarm = (struct runtime_texts){ swarm, 1 };
        write_bundle(p, i);
        assert_int_equal(file_read(p->config, 1 << 20, &before, NULL, &err), 0);
        int r = runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err);
        assert_int_equal(file_read(p->config, 1 << 20, &after, NULL, NULL), 0);
        got(p, &names);
        if (r != 0 && cases[i].got)
            fail_msg("case %zu: %s", i, err.text);
        if (r == 0 && !cases[i].got)
            fail_msg("case %zu: taken", i);
        bool unchanged = strcmp(before, after) == 0;
        if (!cases[i].got && (!strstr(err.text, cases[i].says) || !unchanged))
            fail_msg("case %zu: %s", i, err.text);
        if (cases[i].got && cases[i].got[0] == '-' && (!unchanged || out.written))
            fail_msg("case %zu: changed: %s", i, names.p);
        if (cases[i].got && cases[i].got[0] != '-' && strcmp(names.p, cases[i].got) != 0)
            fail_msg("case %zu: %s", i, names.p);
        if (out.written)
            assert_non_null(strstr(after, "18446744073709551615"));
    }
}

static void what_is_ignored_is_said(void **state)
{
    struct place *p = *state;
    struct runtime_config c = config_of(p);
    struct runtime_outcome out;
    struct error err;
    put(p->config, "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\"]}}");
    c.envvar_when_unprivileged = false;
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err), 0);
    assert_non_null(
        strstr(out.text, "NVIDIA_VISIBLE_DEVICES is ignored: the container is not privileged"));
    c.envvar_when_unprivileged = true;
    put(p->config,
        "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\",\"NVIDIA_MOFED=enabled\"]}}");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err), 0);
    assert_string_equal(
        out.text,
        "NVIDIA_VISIBLE_DEVICES: nvidia.com/gpu=0; NVIDIA_MOFED is enabled, but no CDI file "
        "defines class mofed");
}

/* ---- files ---- */

static void owner_and_mode_stay_and_nothing_is_left_over(void **state)
{
    struct place *p = *state;
    struct runtime_config c = config_of(p);
    struct runtime_outcome out;
    struct error err;
    struct stat st;
    put(p->config, "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\"]}}");
    chmod(p->config, 0640);
    if (geteuid() == 0)
        assert_int_equal(chown(p->config, 12, 34), 0);
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err), 0);
    assert_int_equal(stat(p->config, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_true(geteuid() != 0 || (st.st_uid == 12 && st.st_gid == 34));
    auto_free char *count = x_printf("test $(ls -A %s | wc -l) = 3", p->dir);
    assert_int_equal(system(count), 0);
    auto_free char *text = NULL;
    assert_int_equal(file_read(p->config, 1 << 20, &text, NULL, &err), 0);
    assert_string_equal(
        text,
        "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\",\"GOT_COMMON=1\",\"GOT_0=nvidia.com/"
        "gpu\"]},"
        "\"hooks\":{\"createContainer\":[{\"path\":\"/h\",\"args\":[\"h\",\"x\"]}]},\"linux\":{"
        "\"devices\":[{\"path\":\"/dev/nvidia0\",\"type\":\"c\",\"major\":195,\"minor\":0}],"
        "\"resources\":{\"devices\":[{\"allow\":true,\"type\":\"c\",\"major\":195,\"minor\":0,"
        "\"access\":\"rwm\"}]}}}");
}

/* An engine that knows CDI applied the annotation already and passed it on. */
static void what_an_engine_did_already_is_not_done_twice(void **state)
{
    struct place *p = *state;
    struct runtime_config c = config_of(p);
    struct runtime_outcome out;
    struct error err;
    auto_free char *once = NULL, *twice = NULL;
    put(p->config,
        "{\"annotations\":{\"cdi.k8s.io/x\":\"nvidia.com/gpu=0\"},\"process\":{\"env\":[]}}");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err), 0);
    assert_int_equal(file_read(p->config, 1 << 20, &once, NULL, &err), 0);
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err), 0);
    assert_int_equal(file_read(p->config, 1 << 20, &twice, NULL, &err), 0);
    assert_string_equal(once, twice);
}

static void odd_bundles_end_in_errors_or_are_left_alone(void **state)
{
    struct place *p = *state;
    struct runtime_config c = config_of(p);
    struct runtime_outcome out;
    struct error err;
    auto_free char *other = x_printf("%s/other.json", p->dir);
    static const char asks[] = "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\"]}}";
    /* no bundle, no file: for the real runtime to say */
    assert_int_equal(runtime_prepare("/nowhere", "config.json", &c, NULL, "", &out, &err), 0);
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err), 0);
    /* another file by option */
    put(other, asks);
    assert_int_equal(runtime_prepare(p->dir, "other.json", &c, NULL, "", &out, &err), 0);
    assert_true(out.written);
    /* a link to it is not followed */
    assert_int_equal(symlink("other.json", p->config), 0);
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err),
                     -ERR_INVALID);
    assert_non_null(strstr(err.text, "is a link"));
    unlink(p->config);
    assert_int_equal(mkfifo(p->config, 0600), 0);
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err),
                     -ERR_INVALID);
    unlink(p->config);
    /* no JSON: only a problem where a word of ours is in it */
    put(p->config, "{\"process\":");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err), 0);
    put(p->config, "{\"NVIDIA_VISIBLE_DEVICES\":");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err),
                     -ERR_INVALID);
    assert_non_null(strstr(err.text, p->dir));
    static const char *const shapes[] = {
        "[\"NVIDIA_VISIBLE_DEVICES=0\"]", "{\"process\":[\"NVIDIA_VISIBLE_DEVICES=0\"]}",
        "{\"process\":{\"env\":{\"NVIDIA_VISIBLE_DEVICES=0\":1}}}",
        "{\"process\":{\"env\":[[\"NVIDIA_VISIBLE_DEVICES=0\"],7,null]}}",
        "\"NVIDIA_VISIBLE_DEVICES=0\""
    };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        put(p->config, shapes[i]);
        assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err), 0);
        assert_false(out.written);
    }
    /* a tree that edits do not fit into */
    put(p->config, "{\"linux\":[],\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\"]}}");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err),
                     -ERR_INVALID);
    /* too large */
    put(p->config, asks);
    assert_int_equal(truncate(p->config, RUNTIME_CONFIG_MAX + 1), 0);
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err), -ERR_LIMIT);
}

static void a_wrong_config_file_stops_only_who_asks(void **state)
{
    struct place *p = *state;
    struct runtime_config c = config_of(p);
    struct runtime_outcome out;
    struct error err, why;
    (void)error_set(&why, ERR_INVALID, 0, "config.toml:1:1: bad");
    put(p->config, "{\"process\":{\"env\":[\"PATH=/bin\"]}}");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, &why, "", &out, &err), 0);
    put(p->config, "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=void\"]}}");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, &why, "", &out, &err), 0);
    put(p->config, "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\"]}}");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, &why, "", &out, &err),
                     -ERR_INVALID);
    assert_string_equal(err.text, "config.toml:1:1: bad");
}

static void trouble_in_the_cdi_directories_is_told(void **state)
{
    struct place *p = *state;
    struct runtime_config c = config_of(p);
    struct runtime_outcome out;
    struct error err;
    static const char *const twice[] = { "0", NULL };
    auto_free char *broken = x_printf("%s/broken.json", p->cdi[0]);
    put(p->config, "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=GPU-z\"]}}");
    put(broken, "{\"cdiVersion\":\"0.5.0\",");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err),
                     -ERR_NOT_FOUND);
    if (!strstr(err.text, "(left out: ") || !strstr(err.text, "broken.json"))
        fail_msg("%s", err.text);
    put_cdi(p, 1, "second.json", "nvidia.com/gpu", twice);
    put(p->config, "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\"]}}");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err),
                     -ERR_CONFLICT);
    /* no files at all */
    c.spec_dirs.n = 0;
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err),
                     -ERR_NOT_FOUND);
    put(p->config, "{\"process\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=none\"]}}");
    assert_int_equal(runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err),
                     -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "\"none\", which needs the driver's files"));
}

static void every_allocation_may_fail(void **state)
{
    struct place *p = *state;
    struct runtime_config c = config_of(p);
    for (uint64_t k = 1;; k++) {
        struct runtime_outcome out;
        struct error err = { 0 };
        write_bundle(p, 8);
        mem_fail_at(k);
        int r = runtime_prepare(p->dir, "config.json", &c, NULL, "", &out, &err);
        uint64_t calls = mem_fail_at(0);
        auto_buf names;
        got(p, &names);
        if (calls < k) {
            assert_int_equal(r, 0);
            assert_true(k > 5);
            return;
        }
        /* A CDI file that could not be read is left out; what it defines is missing then. */
        assert_true(r < 0 ? !names.n : strcmp(names.p, "COMMON GPU-a") == 0);
    }
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_PLACE(containers_get_what_they_ask_for),
        IN_PLACE(what_is_ignored_is_said),
        IN_PLACE(owner_and_mode_stay_and_nothing_is_left_over),
        IN_PLACE(what_an_engine_did_already_is_not_done_twice),
        IN_PLACE(odd_bundles_end_in_errors_or_are_left_alone),
        IN_PLACE(a_wrong_config_file_stops_only_who_asks),
        IN_PLACE(trouble_in_the_cdi_directories_is_told),
        IN_PLACE(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
