/* SPDX-License-Identifier: Apache-2.0 */
/* The small parsers of single values: durations, quantities, versions, names, patterns. Each gets
 * the whole text. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/opt.h"
#include "data/kname.h"
#include "data/quantity.h"
#include "data/semver.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct str s = { (const char *)p, n };
    struct error err;
    int64_t ns;
    struct quantity q;
    struct semver v;
    if (duration_parse(s, &ns, &err) == 0 && n > 0 && p[0] != '-' && ns < 0)
        abort();
    if (quantity_parse(s, &q, &err) == 0 &&
        (q.milli >= 1000 || q.milli <= -1000 || (q.units > 0 && q.milli < 0)))
        abort();
    if (semver_parse(s, &v, &err) == 0 && semver_cmp(&v, &v) != 0)
        abort();
    if (semver_parse_loose(s, &v, &err) == 0 && semver_cmp(&v, &v) != 0)
        abort();
    if (kname_extended_resource(s, &err) == 0 && kname_qualified(s, &err) < 0)
        abort();
    if (kname_dns1123_label(s, &err) == 0 &&
        (kname_dns1123_subdomain(s, &err) < 0 || kname_label_value(s, &err) < 0))
        abort();
    if (!str_glob(STR("*"), s))
        abort();
    return 0;
}
