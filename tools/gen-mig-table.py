#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/sim/mig_table.c from a mig-geometry/1 file: gen-mig-table.py GEOMETRY.json > src/sim/mig_table.c

Figures that the file lacks are derived: memory from the neighbour with as many slots, else from the
share of the total; engines from the number of slices (twice the copy engines on Blackwell)."""
import json
import sys

WANTED = ["A100-40", "A100-80", "A30-24", "H100-80", "H100-94", "H200-141", "B200-180", "RTX-PRO-6000-BW"]
TOTAL_MIB = {"A100-40": 40960, "A100-80": 81920, "A30-24": 24576, "H100-80": 81559, "H100-94": 95830,
             "H200-141": 143771, "B200-180": 183359, "RTX-PRO-6000-BW": 97887}


def memory(gpu, p):
    if "memory_mib" in p:
        return p["memory_mib"]
    if "memory_gib_smi" in p:
        return int(p["memory_gib_smi"] * 1024)
    for q in gpu["profiles"]:
        if q["memory_slots"] == p["memory_slots"] and ("memory_mib" in q or "memory_gib_smi" in q):
            return memory(gpu, q)
    share = TOTAL_MIB[gpu["key"]] * p["memory_slots"] // gpu["memory_slot_count"] - 256
    return share // 128 * 128


def engines(gpu, p):
    e = dict(p.get("engines", {}))
    n = p["g_slices"]
    full = n == gpu["compute_slice_count"]
    e.setdefault("sm", 0)
    if not e["sm"]:
        e["sm"] = {1: 16, 2: 32, 3: 60, 4: 64, 7: 132}[n] if p["nvml_enum"] != 9 else 26
    e.setdefault("ce", n * (2 if gpu["architecture"] == "blackwell" else 1) + (1 if full and n == 7 else 0))
    e.setdefault("dec", n)
    e.setdefault("jpg", n)
    e.setdefault("ofa", 1 if full or "me" in p.get("attributes", []) else 0)
    return e


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        gpus = {g["key"]: g for g in json.load(f)["gpus"]}
    out = ["/* SPDX-License-Identifier: Apache-2.0 */",
           "/* Made by tools/gen-mig-table.py from mig-geometry.json; do not edit. */",
           '#include "sim/models.h"', "",
           "/* id, index, compute slices, memory slots, instances, MiB, SM, copy, decoders, JPEG, OFA, graphics, starts */",
           "#define PROFILE(n, i, x, s, z, m, mib, sm, ce, dec, jpg, ofa, gfx, ...) \\",
           "    { .name = (n), .id = (i), .index = (x), .slices = (s), .size = (z), .instances = (m), \\",
           "      .memory_mib = (mib), .multiprocessors = (sm), .copy_engines = (ce), .decoders = (dec), \\",
           "      .jpegs = (jpg), .ofas = (ofa), .graphics = (gfx), .starts = { __VA_ARGS__ }, \\",
           "      .n_starts = sizeof((uint8_t[]){ __VA_ARGS__ }) }",
           ""]
    for key in WANTED:
        g = gpus[key]
        ident = key.lower().replace("-", "_")
        out.append(f"static const struct sim_profile {ident}[] = {{")
        for p in g["profiles"]:
            e = engines(g, p)
            places = p["placements"]
            assert len({x["size"] for x in places}) == 1
            gfx = "true" if "gfx" in p.get("attributes", []) else "false"
            starts = ", ".join(str(x["start"]) for x in places)
            out.append(f'    PROFILE("{p["name"]}", {p["profile_id"]}, {p["nvml_enum"]}, {p["g_slices"]}, '
                       f'{places[0]["size"]}, {p["max_instances"]}, {memory(g, p)}, {e["sm"]}, {e["ce"]}, '
                       f'{e["dec"]}, {e["jpg"]}, {e["ofa"]}, {gfx}, {starts}),')
        out += ["};", ""]
    out.append("const struct sim_geometry sim_geometries[] = {")
    for key in WANTED:
        g = gpus[key]
        ident = key.lower().replace("-", "_")
        out.append(f'    {{ "{key}", {g["memory_slot_count"]}, {g["compute_slice_count"]}, {ident}, '
                   f"{len(g['profiles'])} }},")
    out += ["};", f"const size_t n_sim_geometries = {len(WANTED)};"]
    print("\n".join(out))


if __name__ == "__main__":
    main()
