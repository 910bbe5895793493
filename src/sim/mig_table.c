/* SPDX-License-Identifier: Apache-2.0 */
/* Made by tools/gen-mig-table.py from mig-geometry.json; do not edit. */
#include "sim/models.h"

/* id, index, compute slices, memory slots, instances, MiB, SM, copy, decoders, JPEG, OFA, graphics,
 * starts */
#define PROFILE(n, i, x, s, z, m, mib, sm, ce, dec, jpg, ofa, gfx, ...)                            \
    {                                                                                              \
        .name = (n), .id = (i), .index = (x), .slices = (s), .size = (z), .instances = (m),        \
        .memory_mib = (mib), .multiprocessors = (sm), .copy_engines = (ce), .decoders = (dec),     \
        .jpegs = (jpg), .ofas = (ofa), .graphics = (gfx), .starts = { __VA_ARGS__ },               \
        .n_starts = sizeof((uint8_t[]){ __VA_ARGS__ })                                             \
    }

static const struct sim_profile a100_40[] = {
    PROFILE("1g.5gb", 19, 0, 1, 1, 7, 4864, 14, 1, 0, 0, 0, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.5gb+me", 20, 7, 1, 1, 1, 4864, 14, 1, 1, 1, 1, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.10gb", 15, 9, 1, 2, 4, 9856, 14, 1, 1, 0, 0, false, 0, 2, 4, 6),
    PROFILE("2g.10gb", 14, 1, 2, 2, 3, 9856, 28, 2, 1, 0, 0, false, 0, 2, 4),
    PROFILE("3g.20gb", 9, 2, 3, 4, 2, 19968, 42, 3, 2, 0, 0, false, 0, 4),
    PROFILE("4g.20gb", 5, 3, 4, 4, 1, 19968, 56, 4, 2, 0, 0, false, 0),
    PROFILE("7g.40gb", 0, 4, 7, 8, 1, 40192, 98, 7, 5, 1, 1, false, 0),
};

static const struct sim_profile a100_80[] = {
    PROFILE("1g.10gb", 19, 0, 1, 1, 7, 9856, 14, 1, 1, 0, 0, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.10gb+me", 20, 7, 1, 1, 1, 9856, 14, 1, 1, 1, 1, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.20gb", 15, 9, 1, 2, 4, 19968, 14, 1, 1, 0, 0, false, 0, 2, 4, 6),
    PROFILE("2g.20gb", 14, 1, 2, 2, 3, 19968, 28, 2, 1, 0, 0, false, 0, 2, 4),
    PROFILE("3g.40gb", 9, 2, 3, 4, 2, 40192, 42, 3, 2, 0, 0, false, 0, 4),
    PROFILE("4g.40gb", 5, 3, 4, 4, 1, 40192, 56, 4, 2, 0, 0, false, 0),
    PROFILE("7g.80gb", 0, 4, 7, 8, 1, 80384, 98, 7, 5, 1, 1, false, 0),
};

static const struct sim_profile a30_24[] = {
    PROFILE("1g.6gb", 14, 0, 1, 1, 4, 5836, 14, 1, 0, 0, 0, false, 0, 1, 2, 3),
    PROFILE("1g.6gb+me", 21, 7, 1, 1, 1, 5836, 14, 1, 1, 1, 1, false, 0, 1, 2, 3),
    PROFILE("2g.12gb", 5, 1, 2, 2, 2, 11672, 28, 2, 2, 0, 0, false, 0, 2),
    PROFILE("2g.12gb+me", 6, 8, 2, 2, 1, 11672, 28, 2, 2, 1, 1, false, 0, 2),
    PROFILE("4g.24gb", 0, 3, 4, 4, 1, 23344, 56, 4, 4, 1, 1, false, 0),
};

static const struct sim_profile h100_80[] = {
    PROFILE("1g.10gb", 19, 0, 1, 1, 7, 9984, 16, 1, 1, 1, 0, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.10gb+me", 20, 7, 1, 1, 1, 9984, 16, 1, 1, 1, 1, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.20gb", 15, 9, 1, 2, 4, 20096, 26, 1, 1, 1, 0, false, 0, 2, 4, 6),
    PROFILE("2g.20gb", 14, 1, 2, 2, 3, 20096, 32, 2, 2, 2, 0, false, 0, 2, 4),
    PROFILE("3g.40gb", 9, 2, 3, 4, 2, 40448, 60, 3, 3, 3, 0, false, 0, 4),
    PROFILE("4g.40gb", 5, 3, 4, 4, 1, 40448, 64, 4, 4, 4, 0, false, 0),
    PROFILE("7g.80gb", 0, 4, 7, 8, 1, 81152, 132, 8, 7, 7, 1, false, 0),
};

static const struct sim_profile h100_94[] = {
    PROFILE("1g.12gb", 19, 0, 1, 1, 7, 11648, 16, 1, 1, 1, 0, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.12gb+me", 20, 7, 1, 1, 1, 11648, 16, 1, 1, 1, 1, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.24gb", 15, 9, 1, 2, 4, 23680, 26, 1, 1, 1, 0, false, 0, 2, 4, 6),
    PROFILE("2g.24gb", 14, 1, 2, 2, 3, 23680, 32, 2, 2, 2, 0, false, 0, 2, 4),
    PROFILE("3g.47gb", 9, 2, 3, 4, 2, 47493, 60, 3, 3, 3, 0, false, 0, 4),
    PROFILE("4g.47gb", 5, 3, 4, 4, 1, 47493, 64, 4, 4, 4, 0, false, 0),
    PROFILE("7g.94gb", 0, 4, 7, 8, 1, 95354, 132, 8, 7, 7, 1, false, 0),
};

static const struct sim_profile h200_141[] = {
    PROFILE("1g.18gb", 19, 0, 1, 1, 7, 16384, 16, 1, 1, 1, 0, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.18gb+me", 20, 7, 1, 1, 1, 16384, 16, 1, 1, 1, 1, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.35gb", 15, 9, 1, 2, 4, 33024, 26, 1, 1, 1, 0, false, 0, 2, 4, 6),
    PROFILE("2g.35gb", 14, 1, 2, 2, 3, 33024, 32, 2, 2, 2, 0, false, 0, 2, 4),
    PROFILE("3g.71gb", 9, 2, 3, 4, 2, 71168, 60, 3, 3, 3, 0, false, 0, 4),
    PROFILE("4g.71gb", 5, 3, 4, 4, 1, 71168, 64, 4, 4, 4, 0, false, 0),
    PROFILE("7g.141gb", 0, 4, 7, 8, 1, 143104, 132, 8, 7, 7, 1, false, 0),
};

static const struct sim_profile b200_180[] = {
    PROFILE("1g.23gb", 19, 0, 1, 1, 7, 20992, 18, 2, 1, 1, 0, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.23gb+me", 20, 7, 1, 1, 1, 20992, 18, 2, 1, 1, 1, false, 0, 1, 2, 3, 4, 5, 6),
    PROFILE("1g.45gb", 15, 9, 1, 2, 4, 45312, 30, 2, 1, 1, 0, false, 0, 2, 4, 6),
    PROFILE("2g.45gb", 14, 1, 2, 2, 3, 45312, 36, 4, 2, 2, 0, false, 0, 2, 4),
    PROFILE("3g.90gb", 9, 2, 3, 4, 2, 91136, 70, 6, 3, 3, 0, false, 0, 4),
    PROFILE("4g.90gb", 5, 3, 4, 4, 1, 91136, 72, 8, 4, 4, 0, false, 0),
    PROFILE("7g.180gb", 0, 4, 7, 8, 1, 182784, 148, 16, 7, 7, 1, false, 0),
};

static const struct sim_profile rtx_pro_6000_bw[] = {
    PROFILE("1g.24gb", 14, 0, 1, 3, 4, 24192, 46, 2, 1, 1, 0, false, 0, 3, 6, 9),
    PROFILE("1g.24gb+me", 21, 7, 1, 3, 1, 24186, 46, 2, 1, 1, 1, false, 0, 3, 6, 9),
    PROFILE("1g.24gb+gfx", 47, 10, 1, 3, 4, 24186, 46, 2, 1, 1, 0, true, 0, 3, 6, 9),
    PROFILE("1g.24gb+me.all", 65, 15, 1, 3, 1, 24186, 46, 2, 1, 1, 0, false, 0, 3, 6, 9),
    PROFILE("1g.24gb-me", 67, 13, 1, 3, 4, 24186, 46, 2, 1, 1, 0, false, 0, 3, 6, 9),
    PROFILE("2g.48gb", 5, 1, 2, 6, 2, 48512, 94, 4, 2, 2, 0, false, 0, 6),
    PROFILE("2g.48gb+gfx", 35, 11, 2, 6, 2, 48517, 94, 4, 2, 2, 0, true, 0, 6),
    PROFILE("2g.48gb+me.all", 64, 16, 2, 6, 1, 48517, 94, 4, 2, 2, 0, false, 0, 6),
    PROFILE("2g.48gb-me", 66, 14, 2, 6, 2, 48517, 94, 4, 2, 2, 0, false, 0, 6),
    PROFILE("4g.96gb", 0, 3, 4, 12, 1, 97408, 188, 8, 4, 4, 1, false, 0),
    PROFILE("4g.96gb+gfx", 32, 12, 4, 12, 1, 97280, 188, 8, 4, 4, 1, true, 0),
};

const struct sim_geometry sim_geometries[] = {
    { "A100-40", 8, 7, a100_40, 7 },   { "A100-80", 8, 7, a100_80, 7 },
    { "A30-24", 4, 4, a30_24, 5 },     { "H100-80", 8, 7, h100_80, 7 },
    { "H100-94", 8, 7, h100_94, 7 },   { "H200-141", 8, 7, h200_141, 7 },
    { "B200-180", 8, 7, b200_180, 7 }, { "RTX-PRO-6000-BW", 12, 4, rtx_pro_6000_bw, 11 },
};
const size_t n_sim_geometries = 8;
