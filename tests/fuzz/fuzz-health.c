/* SPDX-License-Identifier: Apache-2.0 */
/* The saved health state: whatever the file says, what was read is saved and read again as the
 * same, and a survey and the passing of time stay within their bounds. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "node/health.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static struct health *new_health(void)
{
    static const struct plugin_config defaults;
    struct health *h;
    check(health_new(&defaults, &h, NULL) == 0);
    health_boot(h, "boot-1");
    return h;
}

#define ENOUGH_NS INT64_C(700000000000)

static void live(struct health *h, int64_t now)
{
    struct part part = { .gi = 1 };
    struct gpu gpus[2] = { { .uuid = "GPU-a", .valid = GPU_HAS_RECOVERY },
                           { .uuid = "GPU-b", .parts = &part, .n_parts = 1 } };
    const struct survey s = { .gpus = gpus, .n_gpus = 2 };
    for (int i = 0; i < 500 && now < ENOUGH_NS; i++) {
        health_survey(h, &s, now);
        int64_t next = health_next_ns(h);
        check(next > now);
        now = MIN(next, now + INT64_C(60000000000));
        health_tick(h, now);
    }
    /* With a recovery action of none for so long, whatever it was is over. */
    check(now >= ENOUGH_NS || health_next_ns(h) == INT64_MAX);
    check(health_gpu(h, "GPU-a").state == HEALTH_OK);
    (void)health_part(h, "GPU-b", 1, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int64_t now = INT64_C(1000000000);
    struct health *h = new_health();
    struct error err;
    if (health_load(h, (struct str){ (const char *)data, size }, now, &err) < 0) {
        check(err.text[0] && err.code != ERR_NONE);
        health_free(h);
        return 0;
    }
    auto_buf first, second;
    buf_init(&first, 4 * 1024 * 1024);
    buf_init(&second, 4 * 1024 * 1024);
    health_save(h, &first);
    check(!first.failed);
    struct health *again = new_health();
    check(health_load(again, buf_view(&first), now, &err) == 0);
    health_save(again, &second);
    check(str_eq(buf_view(&first), buf_view(&second)));
    health_free(again);
    live(h, now);
    health_free(h);
    return 0;
}
