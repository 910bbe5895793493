/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/pbmsg.h"

#include <string.h>

int pbmsg_read_as(const pb_msgdesc_t *fields, const char *name, struct str bytes, size_t max,
                  void *msg, struct error *err)
{
    static const pb_byte_t nothing[1];
    const char *type = strchr(name, '_') + 1;
    if (bytes.n > max)
        return error_set(err, ERR_LIMIT, 0, "message %s has %zu bytes, at most %zu are read", type,
                         bytes.n, max);
    const pb_byte_t *p = bytes.n ? (const pb_byte_t *)bytes.p : nothing;
    pb_istream_t in = pb_istream_from_buffer(p, bytes.n);
    if (pb_decode(&in, fields, msg)) /* releases what it has on failure */
        return 0;
    const char *why = PB_GET_ERROR(&in);
    enum error_code code = strcmp(why, "realloc failed") == 0 ? ERR_LIMIT : ERR_INVALID;
    return error_set(err, code, 0, "message %s of %zu bytes does not decode: %s", type, bytes.n,
                     why);
}

static bool to_buf(pb_ostream_t *stream, const pb_byte_t *p, size_t n)
{
    struct buf *out = stream->state;
    buf_add(out, p, n);
    return !out->failed;
}

int pbmsg_add_as(const pb_msgdesc_t *fields, const char *name, const void *msg, struct buf *out,
                 struct error *err)
{
    const char *type = strchr(name, '_') + 1;
    pb_ostream_t stream = { .callback = to_buf, .state = out, .max_size = SIZE_MAX };
    if (!out->failed && pb_encode(&stream, fields, msg))
        return 0;
    if (out->failed)
        return buf_check(out, type, err);
    return error_set(err, ERR_INTERNAL, 0, "message %s does not encode: %s", type,
                     PB_GET_ERROR(&stream));
}
