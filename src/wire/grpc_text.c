/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpc_text.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "wire/grpc.h"

#define YEARS_100_NS ((int64_t)3155760000 * 1000000000)

enum { TIMEOUT_DIGITS = 8, TIMEOUT_MOST = 99999999 };

bool grpc_timeout_parse(struct str s, int64_t *ret_ns)
{
    static const struct {
        char unit;
        int64_t ns;
    } units[] = { { 'H', 3600000000000 }, { 'M', 60000000000 }, { 'S', 1000000000 },
                  { 'm', 1000000 },       { 'u', 1000 },        { 'n', 1 } };
    uint64_t v;
    if (s.n < 2 || s.n > TIMEOUT_DIGITS + 1)
        return false;
    if (!str_to_u64((struct str){ s.p, s.n - 1 }, TIMEOUT_MOST, &v))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (s.p[s.n - 1] != units[i].unit)
            continue;
        int64_t ns;
        if (__builtin_mul_overflow((int64_t)v, units[i].ns, &ns) || ns > YEARS_100_NS)
            ns = YEARS_100_NS;
        *ret_ns = ns;
        return true;
    }
    return false;
}

size_t grpc_timeout_format(int64_t ms, char out[GRPC_TIMEOUT_SIZE])
{
    ms = MAX(ms, (int64_t)0);
    int n = ms <= TIMEOUT_MOST ? snprintf(out, GRPC_TIMEOUT_SIZE, "%um", (unsigned)ms)
                               : snprintf(out, GRPC_TIMEOUT_SIZE, "%uS",
                                          (unsigned)MIN(ms / 1000, (int64_t)TIMEOUT_MOST));
    return (size_t)n;
}

void grpc_message_encode(struct str text, struct buf *out)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c >= 0x20 && c <= 0x7E && c != '%') {
            buf_ch(out, (char)c);
        } else {
            char code[3] = { '%', hex[c >> 4], hex[c & 15] };
            buf_add(out, code, sizeof code);
        }
    }
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

void grpc_message_decode(struct str header, struct buf *out)
{
    for (size_t i = 0; i < header.n; i++) {
        char c = header.p[i];
        if (c == '%' && header.n - i > 2) {
            int high = hex_digit(header.p[i + 1]), low = hex_digit(header.p[i + 2]);
            if (high >= 0 && low >= 0) {
                c = (char)(high << 4 | low);
                i += 2;
            }
        }
        buf_ch(out, c ? c : '?');
    }
}

int grpc_status_of_http(int http)
{
    switch (http) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

int grpc_status_of_reset(uint32_t code)
{
    switch (code) {
    case 7: /* REFUSED_STREAM */
        return GRPC_UNAVAILABLE;
    case 8: /* CANCEL */
        return GRPC_CANCELLED;
    case 11: /* ENHANCE_YOUR_CALM */
        return GRPC_RESOURCE_EXHAUSTED;
    case 12: /* INADEQUATE_SECURITY */
        return GRPC_PERMISSION_DENIED;
    default:
        return GRPC_INTERNAL;
    }
}
