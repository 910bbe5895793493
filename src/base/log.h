/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The log: one line an event on stderr, text or JSON: time, level, event name, key/value pairs.
 *   log_info("plugin.registered", KV("resource", name), KV_I("devices", n));
 * Folders below src/kubelet do not log above debug. A value longer than 1 KiB is cut and marked. A
 * value that is a secret is passed as KV_SECRET and prints as ***. Thread-safe: a line is one
 * write(2).
 *
 * A reader that does not read would stop whoever logs. After log_never_wait nothing waits: 64 KiB
 * are kept, then lines are dropped and counted, and the count is the first line (log.lost) once
 * somebody reads again. A log in a file is written directly.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum log_level { LOG_DEBUG_, LOG_INFO_, LOG_WARN_, LOG_ERROR_ };
enum log_format { LOG_TEXT, LOG_JSON };

struct log_kv {
    const char *key;
    enum { LOG_KV_TEXT, LOG_KV_INT, LOG_KV_SECRET } kind;
    const char *text;
    int64_t number;
};

#define KV(k, v)        ((struct log_kv){ .key = (k), .kind = LOG_KV_TEXT, .text = (v) })
#define KV_I(k, v)      ((struct log_kv){ .key = (k), .kind = LOG_KV_INT, .number = (int64_t)(v) })
#define KV_SECRET(k, v) ((struct log_kv){ .key = (k), .kind = LOG_KV_SECRET, .text = (v) })
#define KV_ERR(e)       KV("error", (e)->text)

void log_setup(enum log_level level, enum log_format format); /* default: info, text */
void log_to_fd(int fd);                                       /* default: 2; for tests */
/* From now on. `stalled` is called, by whoever logs, when a line could not leave: log_flush is to
 * be called now and then until it returns true. */
void log_never_wait(void (*stalled)(void *arg), void *arg);
bool log_flush(void);   /* true: nothing is kept back */
void log_drain(int ms); /* at the end: waits so long at most for what is kept back */
bool log_on(enum log_level level);
void log_write(enum log_level level, const char *event, const struct log_kv *kv, size_t n);

#define log_at(level, event, ...)                                                                  \
    do {                                                                                           \
        if (log_on(level)) {                                                                       \
            const struct log_kv kv_[] = { { 0 }, ##__VA_ARGS__ };                                  \
            log_write(level, event, kv_ + 1, sizeof kv_ / sizeof kv_[0] - 1);                      \
        }                                                                                          \
    } while (0)
#define log_debug(event, ...) log_at(LOG_DEBUG_, event, ##__VA_ARGS__)
#define log_info(event, ...)  log_at(LOG_INFO_, event, ##__VA_ARGS__)
#define log_warn(event, ...)  log_at(LOG_WARN_, event, ##__VA_ARGS__)
#define log_error(event, ...) log_at(LOG_ERROR_, event, ##__VA_ARGS__)
