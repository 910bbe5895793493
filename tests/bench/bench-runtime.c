/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-runtime METE-RUNTIME METE-HOOK METE SIMULATED-LIBRARY NOTHING
 * What mete-runtime adds to a container start, with and without a GPU asked for, and what each
 * action of the hook takes beside fork and exec; NOTHING stands for the real runtime.
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

enum { RUNS = 301, ARGS_MAX = 256 };

static char *nothing;

/* In memory, as bundles are. */
static char dir[] = "/dev/shm/mete-bench-runtime-XXXXXX";

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench-runtime: %s failed\n", what);
    exit(1);
}

static void shell(const char *fmt, ...) printf_like(1, 2);
static void shell(const char *fmt, ...)
{
    char command[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    must(system(command) == 0, command);
}

static void put(const char *name, struct str text)
{
    auto_free char *path = x_printf("%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    must(f && fwrite(text.p, 1, text.n, f) == text.n && fclose(f) == 0, path);
}

static double now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A program run to its end, with `input` as its standard input. */
static double once(char *const *argv, const char *input)
{
    char *env[] = { (char[]){ "PATH=/usr/bin" }, NULL, NULL };
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    env[1] = x_printf("NVIDIA_CTK_CONFIG_FILE_PATH=%s/config.toml", dir);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, input, O_RDONLY, 0);
    double t = now_us();
    must(posix_spawn(&pid, argv[0], &actions, NULL, argv, env) == 0 &&
             waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
         argv[0]);
    t = now_us() - t;
    posix_spawn_file_actions_destroy(&actions);
    free(env[1]);
    return t;
}

/* What a program takes beyond one that does nothing. Both run in turns, and of each the lowest
 * tenth counts: the rest of the machine may be busy. */
static double beyond(char *const *argv, const char *input, const char *restore)
{
    static double times[RUNS], idle[RUNS];
    char *nothing_argv[] = { nothing, NULL };
    auto_free char *from = restore ? x_printf("%s/%s", dir, restore) : NULL;
    auto_free char *text = NULL;
    struct error err;
    must(!from || file_read(from, 1 << 20, &text, NULL, &err) == 0, "read");
    for (int i = 0; i < RUNS; i++) {
        if (text)
            put("config.json", str_of(text));
        idle[i] = once(nothing_argv, input);
        times[i] = once(argv, input);
    }
    qsort(times, RUNS, sizeof *times, by_value);
    qsort(idle, RUNS, sizeof *idle, by_value);
    return times[RUNS / 10] - idle[RUNS / 10];
}

static void say(const char *what, double us, double limit_ms)
{
    printf("%-58s %8.3f ms   limit %g ms%s\n", what, us / 1000, limit_ms,
           us / 1000 > limit_ms ? "   OVER" : "");
}

/* A config.json of the size that containerd writes for a pod. */
static void put_bundle(const char *name, const char *visible)
{
    auto_buf b;
    buf_init(&b, 1 << 20);
    buf_z(&b, "{\"ociVersion\":\"1.1.0\",\"process\":{\"user\":{\"uid\":0,\"gid\":0},\"args\":[\"/"
              "bin/app\"],\"env\":[");
    for (int i = 0; i < 40; i++)
        buf_fmt(&b, "\"KUBERNETES_SERVICE_VARIABLE_%d=tcp://10.0.0.%d:443\",", i, i);
    buf_fmt(&b,
            "\"%s\"],\"cwd\":\"/"
            "\",\"rlimits\":[{\"type\":\"RLIMIT_NOFILE\",\"hard\":18446744073709551615,"
            "\"soft\":1024}]},\"root\":{\"path\":\"rootfs\"},\"mounts\":[",
            visible);
    for (int i = 0; i < 20; i++)
        buf_fmt(&b,
                "%s{\"destination\":\"/m%d\",\"type\":\"bind\",\"source\":\"/var/lib/kubelet/pods/"
                "x/volumes/v%d\","
                "\"options\":[\"rbind\",\"rprivate\",\"rw\"]}",
                i ? "," : "", i, i);
    buf_z(&b, "],\"linux\":{\"resources\":{\"devices\":[{\"allow\":false,\"access\":\"rwm\"}]},"
              "\"seccomp\":{"
              "\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[{\"names\":[");
    for (int i = 0; i < 400; i++)
        buf_fmt(&b, "%s\"syscall_number_%d\"", i ? "," : "", i);
    buf_z(&b, "],\"action\":\"SCMP_ACT_ALLOW\"}]}}}");
    must(!b.failed, "config.json");
    put(name, buf_view(&b));
}

static void bench_runtime(char *program)
{
    auto_free char *input = x_strdup("/dev/null");
    char *argv[] = { program, (char[]){ "create" }, (char[]){ "--bundle" },
                     dir,     (char[]){ "x" },      NULL };
    put_bundle("plain.json", "PATH=/usr/bin");
    put_bundle("void.json", "NVIDIA_VISIBLE_DEVICES=void");
    put_bundle("one.json", "NVIDIA_VISIBLE_DEVICES=0");
    put_bundle("all.json", "NVIDIA_VISIBLE_DEVICES=all");
    say("runtime: added to a start without a GPU", beyond(argv, input, "plain.json"), 1);
    say("runtime: the same, variable says void", beyond(argv, input, "void.json"), 1);
    say("runtime: added to a start with one GPU", beyond(argv, input, "one.json"), 2);
    say("runtime: added to a start with all 8 GPUs", beyond(argv, input, "all.json"), 2);
}

static void bench_hook(char *program)
{
    auto_free char *state = x_printf("%s/state.json", dir);
    auto_free char *text = x_printf("{\"root\":\"%s/rootfs\",\"bundle\":\"%s\"}", dir, dir);
    put("state.json", str_of(text));
    static char names[60][128];
    char *links[ARGS_MAX] = { program, (char[]){ "create-symlinks" } };
    for (int i = 0; i < 60; i++) {
        snprintf(names[i], sizeof names[i],
                 "--link=libx%d.so.580.1::/usr/lib/x86_64-linux-gnu/libx%d.so.1", i, i);
        links[2 + i] = names[i];
    }
    char *cache[] = { program,
                      (char[]){ "update-ldcache" },
                      (char[]){ "--folder" },
                      (char[]){ "/opt/driver" },
                      (char[]){ "--folder" },
                      (char[]){ "/usr/lib/x86_64-linux-gnu" },
                      NULL };
    char *compat[] = { program, (char[]){ "enable-cuda-compat" },
                       (char[]){ "--host-driver-version=550.1" }, NULL };
    char *params[] = { program, (char[]){ "disable-device-node-modification" }, NULL };
    char *profile[] = { program, (char[]){ "update-application-profile" }, NULL };
    say("hook: create-symlinks, 60 links", beyond(links, state, NULL), 2);
    say("hook: update-ldcache, 40 libraries; image: 200, cache of 565", beyond(cache, state, NULL),
        2);
    say("hook: enable-cuda-compat", beyond(compat, state, NULL), 2);
    say("hook: disable-device-node-modification, nothing to do", beyond(params, state, NULL), 2);
    say("hook: update-application-profile", beyond(profile, state, NULL), 2);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr,
                "usage: bench-runtime METE-RUNTIME METE-HOOK METE SIMULATED-LIBRARY NOTHING\n");
        return 2;
    }
    must(mkdtemp(dir) != NULL, "mkdtemp");
    shell("%s sim create --gpus 8 --library %s %s/host", argv[3], argv[4], dir);
    shell("mkdir %s/cdi && %s cdi generate --host-root %s/host --driver-root %s/host "
          "--driver-root-ctr-path %s/host "
          "--dev-root %s/host --format json --output %s/cdi/nvidia.json 2>/dev/null",
          dir, argv[3], dir, dir, dir, dir, dir);
    shell("mkdir -p %s/rootfs/etc %s/rootfs/dev %s/rootfs/opt/driver "
          "%s/rootfs/usr/lib/x86_64-linux-gnu "
          "%s/rootfs/usr/local/cuda/compat; "
          "cp /etc/ld.so.cache %s/rootfs/etc/; cd %s/rootfs/opt/driver; for i in $(seq 40); do cp "
          "%s libx$i.so.580.1; done; "
          "cd %s/rootfs/usr/lib/x86_64-linux-gnu; seq -f libimage%%g.so.1.2 200 | xargs touch; for "
          "i in $(seq 200); do ln -s libimage$i.so.1.2 libimage$i.so.1; done",
          dir, dir, dir, dir, dir, dir, dir, argv[4], dir);
    auto_free char *toml = x_printf("[nvidia-container-runtime]\nruntimes = "
                                    "[\"%s\"]\n[nvidia-container-runtime.modes.cdi]\nspec-dirs = "
                                    "[\"%s/cdi\"]\n",
                                    argv[5], dir);
    put("config.toml", str_of(toml));
    nothing = argv[5];
    bench_runtime(argv[1]);
    bench_hook(argv[2]);
    shell("rm -rf %s", dir);
    return 0;
}
