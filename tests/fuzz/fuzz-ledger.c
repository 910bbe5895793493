/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as ledger.json. What is accepted is written and read back as the same. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "node/ledger_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static struct ledger *read_text(const struct host *h, struct str text)
{
    struct ledger *l = NULL;
    struct error err;
    if (ledger_open(h, NULL, OWNER_DEVICE_PLUGIN, &l, NULL, &err) < 0)
        abort();
    if (ledger_decode(l, text, &err) == 0)
        return l;
    if (!err.text[0])
        abort();
    ledger_free(l);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct host host;
    struct error err;
    const struct host_config config = { 0 };
    if (!host.seams && host_init(&host, &config, &err) < 0)
        abort();
    struct ledger *l = read_text(&host, (struct str){ (const char *)p, n });
    if (!l)
        return 0;
    auto_buf once, twice;
    buf_init(&once, LEDGER_TEXT_MAX);
    buf_init(&twice, LEDGER_TEXT_MAX);
    ledger_encode(l, &once);
    ledger_free(l);
    if (once.failed)
        return 0;
    l = read_text(&host, buf_view(&once));
    if (!l)
        abort();
    ledger_encode(l, &twice);
    ledger_free(l);
    if (!str_eq(buf_view(&once), buf_view(&twice)))
        abort();
    return 0;
}
