/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a corpus through a fuzz entry without libFuzzer: every file of the given folder, every
 * beginning of it, and a fixed number of small changes from a fixed seed, so that a plain gcc run
 * under the sanitizers sees more than the files themselves. An empty input is always tried.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { INPUT_MAX = 1 << 20, CUTS_MAX = 64, CHANGES = 64 };

/* An exact-size copy, so that a read past the end is one past a heap block. */
static void feed(const char *p, size_t n)
{
    uint8_t *copy = calloc(1, n ? n : 1);
    if (!copy)
        abort();
    memcpy(copy, p, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void change_and_feed(const char *p, size_t n, uint64_t *state)
{
    char *copy = malloc(n + 1);
    if (!copy)
        abort();
    memcpy(copy, p, n);
    size_t at = (size_t)next_random(state) % n;
    switch (next_random(state) % 4) {
    case 0:
        copy[at] ^= (char)(1u << (next_random(state) % 8));
        break;
    case 1:
        copy[at] = (char)0xff;
        break;
    case 2:
        memmove(copy + at, copy + at + 1, n - at - 1);
        n--;
        break;
    default:
        memmove(copy + at + 1, copy + at, n - at);
        n++;
        break;
    }
    feed(copy, n);
    free(copy);
}

static void replay(const char *p, size_t n)
{
    feed(p, n);
    size_t step = n / CUTS_MAX + 1;
    for (size_t cut = 0; cut < n; cut += step)
        feed(p, cut);
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < CHANGES && n > 0; i++)
        change_and_feed(p, n, &state);
}

static int replay_folder(const char *path)
{
    DIR *d = opendir(path);
    if (!d) {
        fprintf(stderr, "%s: %m (a fuzzer needs at least one seed)\n", path);
        return 1;
    }
    int files = 0, faults = 0;
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        auto_free char *text = NULL;
        size_t n = 0;
        struct error err = { 0 };
        if (file_read_at(dirfd(d), e->d_name, INPUT_MAX, &text, &n, &err) < 0) {
            fprintf(stderr, "%s/%s: %s\n", path, e->d_name, err.text);
            faults++;
            continue;
        }
        replay(text, n);
        files++;
    }
    closedir(d);
    if (files == 0)
        fprintf(stderr, "%s: no seed\n", path);
    /* One test case for each seed: a crash in any of them ends the program. */
    printf("%d passed, %d failed\n", files, faults + (files == 0));
    return faults > 0 || files == 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    feed("", 0);
    return replay_folder(argv[1]);
}
