/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "hook/root.h"

void place_shell(const char *fmt, ...)
{
    char command[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    assert_int_equal(system(command), 0);
}

int place_set_up(void **state)
{
    struct place *p = x_alloc(sizeof *p);
    snprintf(p->dir, sizeof p->dir, "/tmp/mete-hook-XXXXXX");
    if (!mkdtemp(p->dir))
        return -1;
    snprintf(p->root, sizeof p->root, "%s/root", p->dir);
    snprintf(p->host, sizeof p->host, "%s/host", p->dir);
    mkdir(p->root, 0755);
    mkdir(p->host, 0755);
    p->rootfd = open(p->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    root_without_openat2(0);
    return p->rootfd < 0;
}

int place_tear_down(void **state)
{
    struct place *p = *state;
    place_shell("rm -rf %s", p->dir);
    close(p->rootfd);
    free(p);
    return 0;
}

bool place_host_untouched(const struct place *p)
{
    auto_free char *command = x_printf("test -z \"$(ls -A %s)\"", p->host);
    return system(command) == 0;
}

bool place_has(const struct place *p, const char *path)
{
    auto_free char *full = x_printf("%s%s", p->root, path);
    struct stat st;
    return lstat(full, &st) == 0;
}

struct hook_options place_link(const char *link)
{
    struct hook_options o = { 0 };
    o.links.items[0] = link;
    o.links.n = 1;
    return o;
}

struct hook_options place_folder(const char *folder)
{
    struct hook_options o = { 0 };
    o.folders.items[0] = folder;
    o.folders.n = 1;
    return o;
}

char *place_read(const struct place *p, const char *path)
{
    auto_free char *full = x_printf("%s%s", p->root, path);
    char *text = NULL;
    return file_read(full, 1 << 20, &text, NULL, NULL) == 0 ? text : NULL;
}

void place_in_namespace(void **state, void (*test)(struct place *p))
{
    struct place *p = *state;
    if (geteuid() != 0)
        skip();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
            _exit(77);
        /* the descriptor from before still stands for the other namespace's mount */
        close(p->rootfd);
        p->rootfd = open(p->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        test(p); /* aborts the child on a failure */
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
