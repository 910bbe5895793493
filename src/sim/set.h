/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Inside `mete sim set`: the words of one change, and what it works on. Nothing is published unless
 * the whole line was understood. */
#include "gpu/nvml_abi.h"
#include "sim/mig.h"
#include "sim/state_file.h"

struct set {
    struct sim_map *map;
    struct sim_world *world;
    uint32_t number; /* the gpu in question */
    int argc, at;
    char *const *argv;
    bool trees;            /* proc, sys and dev follow */
    char renamed_from[32]; /* driver version before, when it changed */
    struct error *err;
};

struct set_word {
    const char *word, *usage; /* what may follow */
    int (*run)(struct set *s);
};

extern const struct set_word set_gpu_words[];
extern const size_t n_set_gpu_words;

/* The next word; NULL at the end. `accept` takes it only if it is that word. */
const char *set_peek(const struct set *s);
bool set_accept(struct set *s, const char *word);
/* A word out of a list parted by '|', or an error that names it, the nearest and all of them. */
int set_choice(struct set *s, const char *what, const char *choices, uint32_t *ret) must_check;
int set_number(struct set *s, const char *what, uint64_t min, uint64_t max,
               uint64_t *ret) must_check;
int set_u32(struct set *s, const char *what, uint32_t min, uint32_t max, uint32_t *ret) must_check;
int set_code(struct set *s, uint32_t *ret) must_check; /* a return code by name or number */
/* [gi G [ci C]]; UINT32_MAX where it is not given. */
int set_instance(struct set *s, uint32_t *ret_gi, uint32_t *ret_ci) must_check;
/* Finds the row for the next word, or says what was found, the nearest, and what there is. */
int set_lookup(struct set *s, const char *what, const struct set_word *words, size_t n,
               const struct set_word **ret) must_check;

int set_gpu_mig(struct set *s); /* set_mig.c */
